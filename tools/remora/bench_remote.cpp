// SPDX-License-Identifier: GPL-2.0
#include <algorithm>
#include <csignal>
#include <vector>

#include <remote/queue.h>

#include "common/remote_handle.hpp"
#include "remora/bench.hpp"
#include "remora/signals.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

class RemoteTarget final : public BenchTarget {
public:
    RemoteTarget(const std::string& target, std::uint64_t region_bytes, BenchSize size)
        : size_(size),
          handle_(target),
          region_(handle_, region_bytes),
          region_bytes_(region_bytes),
          buffer_(std::size_t{size.bytes} * size.depth, 1),
          done_(size.depth),
          slots_(size.depth) {
        remote_queue_options options{};
        options.size = sizeof(options);
        options.depth = std::max(size.depth, 2U);
        fill();
        must(remote_queue_open(&queue_, handle_.get(), &options), "remote_queue_open");
    }
    ~RemoteTarget() override { remote_queue_close(queue_); }

    std::uint64_t bytes() const override { return region_bytes_; }

    void begin(unsigned slot, std::uint64_t offset, bool write) override {
        char* at = &buffer_[std::size_t{slot} * size_.bytes];
        const raddr_t address = region_.address() + offset;
        const remote_op op = write ? remote_op_write(address, at, size_.bytes, slot)
                                   : remote_op_read(address, at, size_.bytes, slot);
        const int started = remote_queue_submit(queue_, &op, 1);
        must(started == 1 ? 0 : started, "remote_queue_submit");
    }

    std::span<const unsigned> wait() override {
        const int taken = remote_queue_wait(queue_, done_.data(), done_.size(), 1, look_up_us);
        must(taken < 0 ? taken : 0, "remote_queue_wait");
        for (int n = 0; n < taken; n++) {
            must(done_[n].result, "an operation");
            slots_[n] = static_cast<unsigned>(done_[n].user_data);
        }
        return std::span(slots_).first(static_cast<std::size_t>(taken));
    }

private:
    // Pages that were never written would be read without looking at memory.
    void fill() {
        const std::vector<char> some(1 << 20, 1);
        for (std::uint64_t at = 0; at < region_bytes_; at += some.size()) {
            if (signalled)
                throw Failure("interrupted");
            must(rwrite(handle_.get(), region_.address() + at, some.data(),
                        std::min<std::uint64_t>(some.size(), region_bytes_ - at)),
                 "rwrite");
        }
    }

    static constexpr std::uint64_t look_up_us = 100'000; // for signals

    BenchSize size_;
    RemoteHandle handle_;
    RemoteRegion region_;
    std::uint64_t region_bytes_;
    std::vector<char> buffer_;
    std::vector<remote_completion> done_;
    std::vector<unsigned> slots_;
    remote_queue_t* queue_ = nullptr;
};

} // namespace

std::unique_ptr<BenchTarget> bench_remote(const std::string& target, std::uint64_t region_bytes,
                                          BenchSize size) {
    // A region outlives its program, so a signal has it freed. A second one ends the program.
    catch_signals(SA_RESETHAND);
    return std::make_unique<RemoteTarget>(target, region_bytes, size);
}

} // namespace remora
