// SPDX-License-Identifier: GPL-2.0
#include "remora-node/rings.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/eventfd.h>
#include <sys/socket.h>

#include "support/failure.hpp"
#include "support/futex.hpp"

extern "C" {
#include "core/rmem/types.h"
#include "remora/rmem.h"
}

namespace remora::daemon {

namespace {

constexpr std::uint32_t entry_bytes =
    (RING_HEAD_BYTES + RMEM_DATAGRAM_BYTES_MAX + RING_LINE_BYTES - 1) / RING_LINE_BYTES *
    RING_LINE_BYTES;

constexpr std::size_t pages_for(std::size_t bytes) {
    return (bytes + RING_PAGE_BYTES - 1) / RING_PAGE_BYTES * RING_PAGE_BYTES;
}

constexpr std::size_t request_offset = RING_PAGE_BYTES;
constexpr std::size_t response_offset =
    request_offset + pages_for(std::size_t{RingPair::requests} * entry_bytes);
constexpr std::size_t pair_bytes =
    response_offset + pages_for(std::size_t{RingPair::responses} * entry_bytes);

} // namespace

// ---- pointer buffer ----

PointerBuffer::PointerBuffer() {
    void* at = mmap(nullptr, std::size_t{users_max} * RING_PAGE_BYTES, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        throw Failure("no address space for a pointer buffer: {}", std::strerror(errno));
    region_ = static_cast<ring_page*>(at);
}

PointerBuffer::~PointerBuffer() {
    munmap(region_, std::size_t{users_max} * RING_PAGE_BYTES);
}

std::optional<PointerBuffer::Place> PointerBuffer::claim(uid_t user, unsigned share) {
    std::lock_guard lock(lock_);
    auto is_users = [&](const Page& page) { return page.used && page.user == user; };
    auto page = std::find_if(page_.begin(), page_.end(), is_users);
    if (page == page_.end())
        page =
            std::find_if(page_.begin(), page_.end(), [](const Page& each) { return !each.used; });
    if (page == page_.end() || page->used >= std::min(share, unsigned{RING_POINTERS_MAX}))
        return std::nullopt;
    auto number = static_cast<unsigned>(page - page_.begin());
    if (!page->used) {
        // A new file, for clients of the last user might have the old one still.
        Descriptor file = shared_file("remora-pointers", RING_PAGE_BYTES);
        void* to = mmap(at(number), RING_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        file.get(), 0);
        if (to == MAP_FAILED)
            throw Failure("can't map a page of pointers: {}", std::strerror(errno));
        page->file = std::move(file);
        page->user = user;
        page->words.reset();
    }
    unsigned index = 0; // the lowest, so that the words in use lie together
    while (page->words.test(index))
        index++;
    page->words.set(index);
    page->used++;
    Place place{number, index, &at(number)->pointer[index], page->file.get()};
    __atomic_store_n(place.word, 0, __ATOMIC_RELAXED);
    return place;
}

void PointerBuffer::give_back(const Place& place) {
    std::lock_guard lock(lock_);
    Page& page = page_[place.page];
    page.words.reset(place.index);
    if (--page.used == 0)
        page.file = Descriptor();
}

// A page that comes into use meanwhile has its pair announced by wake().
void PointerBuffer::doze() {
    std::lock_guard lock(lock_);
    flags_ = {&own_flag_};
    for (unsigned i = 0; i < users_max; i++)
        if (page_[i].used)
            flags_.push_back(&at(i)->node_sleeps);
    for (std::uint32_t* flag : flags_)
        ring_doze(flag);
}

void PointerBuffer::sleep() {
    futex_wait_any(flags_, base_swap_le32(1));
}

// A page might have become another user's meanwhile; then its flag is 0 already.
void PointerBuffer::rise() {
    std::lock_guard lock(lock_); // claim() maps pages
    for (std::uint32_t* flag : flags_)
        ring_rise(flag);
}

void PointerBuffer::wake() {
    if (ring_must_wake(&own_flag_))
        futex_wake(&own_flag_);
}

// ---- pair ----

RingPair::RingPair(std::uint64_t number, pid_t process, PointerBuffer& pointers,
                   const PointerBuffer::Place& place)
    : serial(number),
      client(process),
      pointer(place.word),
      pointers_(pointers),
      place_(place),
      file_(shared_file("remora-rings", pair_bytes)),
      memory_(file_, pair_bytes, PROT_READ | PROT_WRITE) {
    // By the transport's thread: a page that the worker misses is a fault that all clients wait
    // for.
    if (madvise(memory_.data(), pair_bytes, MADV_POPULATE_WRITE))
        throw Failure("no {} bytes of shared memory: {}", pair_bytes, std::strerror(errno));
    auto& words = *reinterpret_cast<ring_pair*>(memory_.data());
    ring_in_init(&in, memory_.data() + request_offset, requests, entry_bytes,
                 &words.request_credit);
    ring_out_init(&out, memory_.data() + response_offset, responses, entry_bytes,
                  &words.response_credit);
    client_sleeps_ = &words.client_sleeps;
    client_watches_ = &words.client_watches;
}

void RingPair::wake_client() {
    if (ring_must_wake(client_sleeps_)) // has the barrier for both
        futex_wake(client_sleeps_);
    if (__atomic_load_n(client_watches_, __ATOMIC_RELAXED))
        tell_watcher();
}

// A client that takes no bytes finds the earlier ones.
void RingPair::tell_watcher() {
    ring_rise(client_watches_);
    char byte = 0;
    send(socket_.get(), &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL);
}

ring_offer RingPair::offer() const {
    ring_offer offer{};
    base_store_le32(&offer.version, RING_VERSION);
    base_store_le32(&offer.answer, RING_OFFERED);
    base_store_le32(&offer.request.entries, requests);
    base_store_le32(&offer.request.entry_bytes, entry_bytes);
    base_store_le32(&offer.response.entries, responses);
    base_store_le32(&offer.response.entry_bytes, entry_bytes);
    base_store_le64(&offer.request_offset, request_offset);
    base_store_le64(&offer.response_offset, response_offset);
    base_store_le64(&offer.pair_bytes, pair_bytes);
    base_store_le32(&offer.pointer, place_.index);
    return offer;
}

// ---- meeting place ----

Rings::Rings(unsigned rings)
    : rings_max_(rings), closed_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!closed_fd_)
        throw Failure("no eventfd: {}", std::strerror(errno));
    if (!has_futex_wait_any())
        throw Failure("this kernel is older than Linux 5.16: leave --shm out");
    unused_.reserve(rings);
}

// The worker often has the last pointer to a pair, but no time for giving back its memory.
void Rings::give_back(RingPair* last) {
    std::lock_guard lock(lock_);
    unused_.emplace_back(last);
    eventfd_write(closed_fd_.get(), 1);
}

std::shared_ptr<RingPair> Rings::open(pid_t client, uid_t user, unsigned share) {
    if (rings_ >= rings_max_)
        return nullptr;
    std::optional<PointerBuffer::Place> place = pointers_.claim(user, share);
    if (!place)
        return nullptr;
    std::unique_ptr<RingPair> pair;
    try {
        pair = std::make_unique<RingPair>(++serial_, client, pointers_, *place);
    } catch (...) {
        pointers_.give_back(*place);
        throw;
    }
    rings_++;
    return {pair.release(), [this](RingPair* last) { give_back(last); }};
}

void Rings::came(std::shared_ptr<RingPair> pair) {
    {
        std::lock_guard lock(lock_);
        changes_.came.push_back(std::move(pair));
        changed_.store(true, std::memory_order_release);
    }
    wake();
}

void Rings::went(std::uint64_t serial) {
    {
        std::lock_guard lock(lock_);
        changes_.went.push_back(serial);
        changed_.store(true, std::memory_order_release);
    }
    wake();
}

void Rings::answer(std::uint64_t serial, std::vector<std::uint8_t> datagram) {
    {
        std::lock_guard lock(lock_);
        changes_.answers.push_back({serial, std::move(datagram)});
        changed_.store(true, std::memory_order_release);
    }
    wake();
}

Rings::Changes Rings::take_changes() {
    std::lock_guard lock(lock_);
    changed_.store(false, std::memory_order_relaxed);
    return std::exchange(changes_, {});
}

void Rings::close(std::uint64_t serial) {
    std::lock_guard lock(lock_);
    closed_.push_back(serial);
    eventfd_write(closed_fd_.get(), 1);
}

std::vector<std::uint64_t> Rings::take_closed() {
    std::vector<std::unique_ptr<RingPair>> unused;
    unused.reserve(rings_max_);
    std::vector<std::uint64_t> closed;
    {
        std::lock_guard lock(lock_);
        eventfd_t count;
        eventfd_read(closed_fd_.get(), &count);
        unused.swap(unused_);
        closed.swap(closed_);
    }
    rings_ -= static_cast<unsigned>(unused.size());
    return closed;
}

} // namespace remora::daemon
