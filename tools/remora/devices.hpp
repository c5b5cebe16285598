// SPDX-License-Identifier: GPL-2.0
// The client module's reports of its devices.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "remora/netlink.hpp"
#include "uapi/remora_rmem.h"

namespace remora {

// By the values of RMEM_A_INTEGRITY and RMEM_A_STATE.
extern const std::array<std::string, 4> integrity_names;
extern const std::array<std::string, 3> state_names;

template <std::size_t N>
std::string name_of(const std::array<std::string, N>& names, std::uint64_t value) {
    return value < N ? names[value] : fmt::to_string(value);
}

// The client's family; Failure says which module to load.
netlink::Family device_family();

using Counters = std::vector<std::pair<std::string, std::uint64_t>>;

// Histogram of durations, in the buckets of core/base/times.h, as the kernel's.
using Times = std::vector<std::uint64_t>;

struct Device {
    netlink::Attributes attributes;

    std::uint64_t number(std::uint16_t type) const { return attributes.number(type); }
    std::string name() const; // rmb0
    std::string node() const; // address and port
    Counters counters() const;
    Times times(const std::string& kind) const;
    // Absent: an older module, which keeps no sum.
    std::optional<std::uint64_t> times_sum_ns(const std::string& kind) const;
};

// In the order of their numbers. Throws if wanted names a device that doesn't exist.
std::vector<Device> devices(const std::optional<std::string>& wanted);

// All times in the bucket are below that; uapi/remora_rmem.h says of RMEM_A_TIMES why.
std::uint64_t times_bound_ns(std::size_t bucket);

// 0: no device.
std::uint64_t percentile_ns(const Times& times, unsigned percent);

} // namespace remora
