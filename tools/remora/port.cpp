// SPDX-License-Identifier: GPL-2.0
// remora edm port: memory messages go before other frames of a network device. Where its driver has
// frame preemption (802.3br) they interrupt them; else they pass those in its queues.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include <linux/if_ether.h>
#include <linux/pkt_sched.h>
#include <net/if.h>

#include "remora/edm.hpp"
#include "remora/netlink.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

using netlink::Qdisc;
using netlink::Request;

// ethtool's and mqprio's numbers of Linux 6.3 and 6.4, which older headers lack.
constexpr std::uint8_t mm_get = 42, mm_set = 43;
enum MacMerge : std::uint16_t {
    mm_header = 1,
    mm_pmac_enabled,
    mm_tx_enabled,
    mm_verify_enabled = 7
};
constexpr std::uint16_t header_device_name = 2;
constexpr std::uint16_t mqprio_tc_entry = 5, tc_entry_index = 1, tc_entry_preemption = 2;
constexpr std::uint32_t express = 1, preemptible = 2;

// Priorities of packets that a device sends first: those of EDM's datagrams and the kernel's own.
constexpr unsigned first_priority = 6, priorities = TC_PRIO_MAX + 1;
// The handle ed00: marks the queues of this command.
constexpr std::uint32_t root_handle = 0xed00'0000;

struct Device {
    std::string name;
    unsigned index;
    unsigned queues;
};

Device device_of(const std::string& name) {
    const unsigned index = if_nametoindex(name.c_str());
    char main_name[IF_NAMESIZE] = "";
    if (!index || !if_indextoname(index, main_name))
        throw Failure("there is no network device {}: 'ip link' lists them", name);
    unsigned queues = 0;
    std::error_code error;
    for (const auto& each : std::filesystem::directory_iterator(
             fmt::format("/sys/class/net/{}/queues", main_name), error))
        queues += each.path().filename().string().starts_with("tx-");
    return {main_name, index, queues};
}

// ---- 802.3br ----

// A device's MAC merge layer.
struct Merging {
    bool receives, sends, verifies;
};

Request about_merging(const Device& device, std::uint8_t command) {
    Request request(command);
    request.nest(mm_header,
                 [&](Request& header) { header.string(header_device_name, device.name); });
    return request;
}

// Nothing: the driver or the kernel has none.
std::optional<Merging> merging_of(const Device& device) {
    try {
        const netlink::Attributes answer =
            netlink::Family("ethtool", 1, "ethtool").call(about_merging(device, mm_get));
        return Merging{answer.number(mm_pmac_enabled) != 0, answer.number(mm_tx_enabled) != 0,
                       answer.number(mm_verify_enabled) != 0};
    } catch (const netlink::NoFamily&) {
        return std::nullopt;
    } catch (const netlink::Refused& refused) {
        if (refused.error() == EOPNOTSUPP)
            return std::nullopt;
        throw;
    }
}

void set_merging(const Device& device, const Merging& merging) {
    Request request = about_merging(device, mm_set);
    request.u8(mm_pmac_enabled, merging.receives)
        .u8(mm_tx_enabled, merging.sends)
        .u8(mm_verify_enabled, merging.verifies);
    netlink::Family("ethtool", 1, "ethtool").call(std::move(request));
}

// ---- queues ----

// The last of the device's queues is for express frames.
void add_preemptible_queues(const Device& device) {
    tc_mqprio_qopt options{};
    options.num_tc = 2;
    options.hw = 1;
    for (unsigned priority = first_priority; priority < 8; priority++)
        options.prio_tc_map[priority] = 1;
    options.count[0] = static_cast<std::uint16_t>(device.queues - 1);
    options.offset[1] = options.count[0];
    options.count[1] = 1;
    netlink::add_qdisc({device.index, "mqprio", TC_H_ROOT, root_handle}, [&](nlmsghdr* message) {
        std::memcpy(mnl_nlmsg_put_extra_header(message, sizeof(options)), &options,
                    sizeof(options));
        for (std::uint32_t tc : {0u, 1u}) {
            nlattr* entry = mnl_attr_nest_start(message, mqprio_tc_entry);
            mnl_attr_put_u32(message, tc_entry_index, tc);
            mnl_attr_put_u32(message, tc_entry_preemption, tc ? express : preemptible);
            mnl_attr_nest_end(message, entry);
        }
    });
}

// Two bands; others' frames share the second one fairly, as by the system's own queues.
void add_prio(const Device& device, std::uint32_t parent, std::uint32_t handle) {
    tc_prio_qopt options{};
    options.bands = 2;
    for (unsigned priority = 0; priority < priorities; priority++)
        options.priomap[priority] = priority < first_priority || priority > 7;
    netlink::add_qdisc({device.index, "prio", parent, handle}, [&](nlmsghdr* message) {
        std::memcpy(mnl_nlmsg_put_extra_header(message, sizeof(options)), &options,
                    sizeof(options));
    });
    try {
        netlink::set_qdisc({device.index, "fq_codel", handle | 2, 0}, [](nlmsghdr*) {});
    } catch (const netlink::Refused& refused) {
        if (refused.error() != ENOENT) // a kernel without fq_codel has a queue of its own there
            throw;
    }
}

// A prio for each of the device's queues, so that they need no common lock.
void add_prios(const Device& device) {
    if (device.queues < 2) {
        add_prio(device, TC_H_ROOT, root_handle);
        return;
    }
    netlink::add_qdisc({device.index, "mq", TC_H_ROOT, root_handle}, [](nlmsghdr*) {});
    for (std::uint32_t queue = 1; queue <= device.queues; queue++)
        add_prio(device, root_handle | queue, root_handle + (queue << 16));
}

bool remove_queues(const Device& device) {
    return netlink::remove_qdisc({device.index, "", TC_H_ROOT, root_handle});
}

// Throws Failure; the device is then as it was.
void claim_queues(const Device& device) {
    try {
        add_prios(device);
    } catch (const netlink::Refused& refused) {
        remove_queues(device);
        if (refused.error() == EEXIST)
            throw Failure(
                "{} has a queueing discipline of its own: 'tc qdisc del dev {} root' first, or put "
                "'prio' into it",
                device.name, device.name);
        throw Failure("can't give {} queues by priority: {}", device.name, refused.what());
    }
}

// Why not; nothing: it is on.
std::optional<std::string> preempt(const Device& device) {
    const std::optional<Merging> before = merging_of(device);
    if (!before)
        return "its driver has none";
    try {
        set_merging(device, {true, true, true});
        remove_queues(device);
        add_preemptible_queues(device);
        return std::nullopt;
    } catch (const netlink::Refused& refused) {
        const std::string why = refused.what();
        set_merging(device, *before);
        remove_queues(device);
        claim_queues(device);
        return why;
    }
}

} // namespace

void edm_port(const std::string& name) {
    const Device device = device_of(name);
    remove_queues(device);
    claim_queues(device);
    if (std::optional<std::string> why = preempt(device))
        fmt::print("{}: no frame preemption ({}); by priority: memory messages go before other "
                   "frames in its queues\n",
                   device.name, *why);
    else
        fmt::print("{}: frame preemption (802.3br): memory messages interrupt other frames, once "
                   "the link's other end confirms that it has it, too\n",
                   device.name);
}

void edm_port_undo(const std::string& name) {
    const Device device = device_of(name);
    if (!remove_queues(device))
        throw Failure("{} has no queues of 'remora edm port'", device.name);
    if (std::optional<Merging> merging = merging_of(device); merging && merging->sends)
        set_merging(device, {merging->receives, false, merging->verifies});
}

} // namespace remora
