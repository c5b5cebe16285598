// SPDX-License-Identifier: GPL-2.0
#include "apps/image/user.hpp"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>

#include <poll.h>

#include "support/failure.hpp"

namespace remora::image {

namespace {

void must(int error, const char* what, std::uint32_t user) {
    if (error)
        throw Failure("user {}: {}: {}", user, what, remote_strerror(error));
}

} // namespace

User::User(const std::string& target, std::uint32_t number, std::uint32_t pictures, int quality,
           const Album& album)
    : number_(number), count_(pictures), quality_(quality), album_(album) {
    remote_options options{};
    options.size = sizeof(options);
    options.timeout_us = UINT64_MAX; // many users wait for one node
    auto node = remote::handle::open(target.c_str(), &options);
    if (!node)
        throw Failure("user {} can't open '{}': {}", number, target, remote_why());
    node_ = std::move(*node);
    remote_queue_t* queue = nullptr;
    must(remote_queue_open(&queue, node_.get(), nullptr), "no queue", number_);
    queue_.reset(queue);
    pictures_ = allocate(picture_bytes);
    jpegs_ = allocate(sizeof(Head) + Codec::jpeg_bytes_max());
}

remote::allocation User::allocate(std::uint64_t bytes_each) const {
    auto made = remote::allocation::make(node_, count_ * bytes_each);
    must(made.error(), "no memory for pictures", number_);
    return std::move(*made);
}

raddr_t User::jpeg_at(std::uint32_t n) const {
    return jpegs_.address() + n * (sizeof(Head) + Codec::jpeg_bytes_max());
}

// Sleeps while the node works. The synchronous calls spin for a while, which would take the
// processor from other users.
void User::transfer(const remote_op& op, const char* what) const {
    remote_completion done;
    const int begun = remote_queue_submit(queue_.get(), &op, 1);
    must(begun < 0 ? begun : 0, what, number_);
    for (;;) {
        const int ended = remote_queue_wait(queue_.get(), &done, 1, 0, 0);
        must(ended < 0 ? ended : 0, what, number_);
        if (ended)
            return must(done.result, what, number_);
        std::uint64_t next_us = 0;
        pollfd ready{remote_queue_fd(queue_.get(), &next_us), POLLIN, 0};
        must(ready.fd < 0 ? ready.fd : 0, what, number_);
        poll(&ready, 1, static_cast<int>(std::min<std::uint64_t>(next_us / 1000 + 1, INT_MAX)));
    }
}

void User::read(raddr_t from, std::span<std::byte> to) const {
    transfer(remote_op_read(from, to.data(), to.size(), 0), "can't read");
}

void User::write(raddr_t to, std::span<const std::byte> from) {
    transfer(remote_op_write(to, from.data(), from.size(), 0), "can't write");
    again_.resize(from.size());
    read(to, again_);
    if (!std::ranges::equal(again_, from))
        throw Failure("user {}: the node has other bytes than were written", number_);
}

void User::fill() {
    // The first one twice, as a warm-up: its decompressed copy is replaced by the original.
    for (std::uint32_t n = 0; n <= count_; n++) {
        album_.copy(number_, n % count_, picture_);
        write(picture_at(n % count_), picture_);
        if (n == 0) {
            compress(n);
            decompress(n);
        }
    }
}

void User::compress(std::uint32_t n) {
    picture_.resize(picture_bytes);
    read(picture_at(n), picture_);
    if (!std::isinf(album_.psnr_db(number_, n, picture_)))
        throw Failure("user {}: picture {} isn't the one that was written", number_, n);
    const auto jpeg = codec_.compress(picture_, quality_);
    const Head head{jpeg.size()};
    jpeg_.resize(sizeof(head) + jpeg.size());
    std::memcpy(jpeg_.data(), &head, sizeof(head));
    std::ranges::copy(jpeg, jpeg_.data() + sizeof(head));
    write(jpeg_at(n), jpeg_);
}

void User::decompress(std::uint32_t n) {
    Head head;
    read(jpeg_at(n), std::as_writable_bytes(std::span(&head, 1)));
    if (head.bytes > Codec::jpeg_bytes_max())
        throw Failure("user {}: JPEG {} has {} bytes", number_, n, head.bytes);
    jpeg_.resize(head.bytes);
    read(jpeg_at(n) + sizeof(head), jpeg_);
    codec_.decompress(jpeg_, picture_);
    const double db = album_.psnr_db(number_, n, picture_);
    if (db < psnr_min_db)
        throw Failure("user {}: picture {} has {:.1f} dB, less than {}: raise --quality", number_,
                      n, db, psnr_min_db);
    write(picture_at(n), picture_);
}

} // namespace remora::image
