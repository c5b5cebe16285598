// SPDX-License-Identifier: GPL-2.0
/*
 * Operations under way at a target of remora bench, up to a depth.
 *
 *   bench_remote.cpp   a region by libremote's completion queue
 *   bench_device.cpp   a block device by io_uring, past the page cache
 *   bench.cpp          the command: rates, percentiles, histograms
 */
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace remora {

class BenchTarget {
public:
    virtual ~BenchTarget() = default;
    virtual std::uint64_t bytes() const = 0;
    // Begins an operation; slot, below the depth, tells it from the others under way.
    virtual void begin(unsigned slot, std::uint64_t offset, bool write) = 0;
    // Waits for one or more, and returns their slots, valid until the next call. Throws Failure if
    // one failed.
    virtual std::span<const unsigned> wait() = 0;
};

struct BenchSize {
    std::uint32_t bytes; // of an operation
    unsigned depth;
};

// target: as remote_open() takes it. region_bytes: allocated there, written and freed at the end.
std::unique_ptr<BenchTarget> bench_remote(const std::string& target, std::uint64_t region_bytes,
                                          BenchSize size);
// writes: overwrites the device, which nothing else may have open.
std::unique_ptr<BenchTarget> bench_device(const std::string& path, bool writes, BenchSize size);

// MAJOR:MINOR.
std::string bench_device_number(const std::string& path);

} // namespace remora
