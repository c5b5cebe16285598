// SPDX-License-Identifier: GPL-2.0
#include "sim/message/lone.hpp"

#include <bit>

#include "sim/message/message.hpp"

namespace sim {

namespace {

constexpr std::uint32_t exact_bytes_max = 4096;
constexpr std::uint32_t steps_per_octave = 8;

} // namespace

Lone::Lone(const Params& params, const std::string& transport) : params_(params) {
    params_.transport = transport;
    params_.hosts = 2;
    params_.leaves = 2;
    params_.spines = params_.links_per_spine = params_.hosts_per_leaf = 1;
    params_.workload = "messages";
    params_.message.memory_hosts = 1;
    params_.message.count = 1;
    params_.message.trace.clear();
    params_.message.load_of.clear();
    params_.message.frame_load = 0;
    params_.message.loss_percent = 0;
    params_.message.scheduler_dies_us = params_.message.port_down_us = 0;
    params_.check = false;
    params_.end_us = params_.warmup_us = 0;
}

Time Lone::simulate(bool read, std::uint32_t bytes, bool far) {
    auto [found, fresh] = known_.try_emplace({read, bytes, far}, 0);
    if (fresh) {
        params_.topology = far ? "leaf-spine" : "star";
        Sim sim(message_params(params_));
        found->second = Messages(sim).lone(read, bytes);
    }
    return found->second;
}

Time Lone::of(bool read, std::uint32_t bytes, bool far) {
    if (bytes <= exact_bytes_max)
        return simulate(read, bytes, far);
    const std::uint32_t step = std::bit_floor(bytes) / steps_per_octave;
    const std::uint32_t below = bytes / step * step;
    const Time least = simulate(read, below, far);
    if (below == bytes)
        return least;
    return least + (simulate(read, below + step, far) - least) * (bytes - below) / step;
}

} // namespace sim
