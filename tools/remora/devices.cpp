// SPDX-License-Identifier: GPL-2.0
#include "remora/devices.hpp"

#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include <arpa/inet.h>
#include <net/if.h>

#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora {

using netlink::Attributes;

const std::array<std::string, 4> integrity_names = {"link", "digest", "full", "sealed"};
const std::array<std::string, 3> state_names = {"up", "down", "lost"};

netlink::Family device_family() {
    return {RMEM_GENL_NAME, RMEM_GENL_VERSION, "rmem"};
}

std::string Device::name() const {
    bool is_disk = number(RMEM_A_KIND) == RMEM_KIND_DISK;
    return fmt::format("{}{}", is_disk ? "rmb" : "rmem", number(RMEM_A_INDEX));
}

std::string Device::node() const {
    const auto& bytes = attributes.bytes(RMEM_A_NODE);
    char text[INET6_ADDRSTRLEN + 1] = {};
    if (bytes.size() != 4 && bytes.size() != 16)
        return attributes.string(RMEM_A_ADDRESS); // of a transport without IP
    inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
    std::string host = text;
    if (auto scope = static_cast<unsigned int>(number(RMEM_A_SCOPE))) {
        char name[IF_NAMESIZE];
        host += fmt::format("%{}", if_indextoname(scope, name) ? name : fmt::to_string(scope));
    }
    return endpoint_text(host, static_cast<std::uint16_t>(number(RMEM_A_PORT)));
}

Counters Device::counters() const {
    Counters counters;
    for (const Attributes& each : attributes.nests(RMEM_A_COUNTERS))
        counters.emplace_back(each.string(RMEM_COUNTER_NAME), each.number(RMEM_COUNTER_VALUE));
    return counters;
}

Times Device::times(const std::string& kind) const {
    Times times(RMEM_TIMES_BUCKETS);
    for (const Attributes& each : attributes.nests(RMEM_A_TIMES)) {
        const auto& counts = each.bytes(RMEM_TIMES_COUNTS);
        if (each.string(RMEM_TIMES_NAME) == kind)
            std::memcpy(times.data(), counts.data(),
                        std::min(counts.size(), times.size() * sizeof(times[0])));
    }
    return times;
}

std::optional<std::uint64_t> Device::times_sum_ns(const std::string& kind) const {
    for (const Attributes& each : attributes.nests(RMEM_A_TIMES))
        if (each.string(RMEM_TIMES_NAME) == kind && each.has(RMEM_TIMES_SUM_NS))
            return each.number(RMEM_TIMES_SUM_NS);
    return std::nullopt;
}

std::vector<Device> devices(const std::optional<std::string>& wanted) {
    std::optional<DeviceName> name;
    if (wanted)
        name = parse_device(*wanted);
    std::map<std::uint64_t, Device> found;
    for (Attributes& each : device_family().dump(netlink::Request(RMEM_CMD_STATUS))) {
        Device device{std::move(each)};
        std::uint64_t index = device.number(RMEM_A_INDEX);
        if (!name || (name->index == index && device.name().starts_with(name->stem)))
            found[index] = std::move(device);
    }
    if (name && found.empty())
        throw Failure("there is no {}: 'remora status' lists the devices", *wanted);
    std::vector<Device> list;
    list.reserve(found.size());
    for (auto& [index, device] : found)
        list.push_back(std::move(device));
    return list;
}

std::uint64_t times_bound_ns(std::size_t bucket) {
    if (bucket + 1 >= RMEM_TIMES_BUCKETS)
        return std::numeric_limits<std::uint64_t>::max();
    return std::uint64_t{4 + bucket % 4} << (4 + bucket / 4);
}

std::uint64_t percentile_ns(const Times& times, unsigned percent) {
    std::uint64_t all = std::accumulate(times.begin(), times.end(), std::uint64_t{0});
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < times.size(); bucket++) {
        seen += times[bucket];
        if (seen && seen * 100 >= all * percent)
            return times_bound_ns(bucket);
    }
    return 0;
}

} // namespace remora
