// SPDX-License-Identifier: GPL-2.0
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "remora/bench.hpp"
#include "support/descriptor.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

constexpr std::size_t page_bytes = 4096;

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

class DeviceTarget final : public BenchTarget {
public:
    DeviceTarget(const std::string& path, bool writes, BenchSize size)
        : size_(size),
          path_(path),
          // O_EXCL: not while a file system or swap has it.
          fd_(open(path.c_str(), O_DIRECT | O_CLOEXEC | (writes ? O_RDWR | O_EXCL : O_RDONLY))),
          slots_(size.depth) {
        if (!fd_ && errno == EBUSY)
            throw Failure("{} is in use, and a bench that writes would destroy its content", path);
        if (!fd_ || ioctl(fd_.get(), BLKGETSIZE64, &bytes_))
            throw Failure("can't open the block device {}: {}", path, std::strerror(errno));
        buffer_.reset(std::aligned_alloc(page_bytes, std::size_t{size.bytes} * size.depth));
        if (!buffer_)
            throw std::bad_alloc();
        std::memset(buffer_.get(), 1, std::size_t{size.bytes} * size.depth);
        if (const int error = io_uring_queue_init(size.depth, &ring_, 0))
            throw Failure("no io_uring: {}", std::strerror(-error));
    }
    ~DeviceTarget() override { io_uring_queue_exit(&ring_); }

    std::uint64_t bytes() const override { return bytes_; }

    void begin(unsigned slot, std::uint64_t offset, bool write) override {
        io_uring_sqe* entry = io_uring_get_sqe(&ring_);
        char* at = static_cast<char*>(buffer_.get()) + std::size_t{slot} * size_.bytes;
        if (write)
            io_uring_prep_write(entry, fd_.get(), at, size_.bytes, offset);
        else
            io_uring_prep_read(entry, fd_.get(), at, size_.bytes, offset);
        entry->user_data = slot;
    }

    std::span<const unsigned> wait() override {
        int error = io_uring_submit_and_wait(&ring_, 1);
        while (error == -EINTR)
            error = io_uring_submit_and_wait(&ring_, 1);
        if (error < 0)
            throw Failure("io_uring: {}", std::strerror(-error));
        std::size_t count = 0;
        io_uring_cqe* entry = nullptr;
        while (count < slots_.size() && !io_uring_peek_cqe(&ring_, &entry)) {
            if (entry->res != static_cast<int>(size_.bytes))
                throw Failure("{}: an operation ended with {}", path_,
                              entry->res < 0 ? std::strerror(-entry->res) : "fewer bytes");
            slots_[count++] = static_cast<unsigned>(entry->user_data);
            io_uring_cqe_seen(&ring_, entry);
        }
        return std::span(slots_).first(count);
    }

private:
    BenchSize size_;
    std::string path_;
    Descriptor fd_;
    std::uint64_t bytes_ = 0;
    std::unique_ptr<void, Free> buffer_;
    std::vector<unsigned> slots_;
    io_uring ring_{};
};

} // namespace

std::unique_ptr<BenchTarget> bench_device(const std::string& path, bool writes, BenchSize size) {
    return std::make_unique<DeviceTarget>(path, writes, size);
}

std::string bench_device_number(const std::string& path) {
    struct stat about {};
    if (stat(path.c_str(), &about) || !S_ISBLK(about.st_mode))
        throw Failure("{} is no block device", path);
    return fmt::format("{}:{}", major(about.st_rdev), minor(about.st_rdev));
}

} // namespace remora
