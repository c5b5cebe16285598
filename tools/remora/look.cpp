// SPDX-License-Identifier: GPL-2.0
#include "remora/look.hpp"

#include <cerrno>
#include <future>

#include "common/control.hpp"
#include "common/control_client.hpp"
#include "remora/daemon.hpp"
#include "remora/edm.hpp"
#include "remora/eqds.hpp"
#include "remora/nodes.hpp"
#include "support/failure.hpp"
#include "support/say.hpp"
#include "uapi/remora_eqds.h"

namespace remora {

namespace {

using Clock = std::chrono::steady_clock;

// A module that isn't loaded, or serves in another network namespace alone, reports nothing.
template <typename Ask>
auto if_serves(std::string& elsewhere, Ask ask) -> std::optional<decltype(ask())> {
    try {
        return ask();
    } catch (const netlink::NoFamily& none) {
        if (none.is_loaded())
            elsewhere = none.what();
        return std::nullopt;
    }
}

// Older modules list these to root only.
template <typename Ask>
auto if_permitted(const char* what, Ask ask) -> decltype(ask()) {
    try {
        return ask();
    } catch (const netlink::Refused& refused) {
        if (refused.error() != EPERM)
            throw;
        warn("remora: {} are left out: run it as root, or load newer modules", what);
        return {};
    }
}

NodeLook kernel_look() {
    NodeLook node{"kernel", kernel_report(), {}, {}};
    if (node.report.started) {
        node.spaces = if_permitted("spaces of the kernel's node", kernel_spaces);
        node.offloads = if_permitted("offloads of the kernel's node", kernel_offloads);
    }
    return node;
}

NodeLook daemon_look(const std::string& socket, Clock::time_point until) {
    Daemon daemon(socket, until);
    NodeLook node{socket, daemon.report(), {}, {}};
    if (daemon.has_control()) {
        node.spaces = daemon.spaces();
        node.offloads = daemon.offloads();
    }
    return node;
}

// The daemon ended, ends, or stands still. One whose socket isn't there might be misspelt.
bool is_silence(int error) {
    return error == ETIMEDOUT || error == ECONNREFUSED || error == ECONNRESET || error == EPIPE;
}

// A daemon that doesn't answer is told of, and the others are shown.
void add_daemons(const std::vector<std::string>& sockets, Clock::time_point until, Look& now) {
    std::vector<std::future<NodeLook>> looks;
    for (const std::string& socket : sockets)
        looks.push_back(std::async(std::launch::async, daemon_look, socket, until));
    for (std::size_t i = 0; i < looks.size(); i++) {
        try {
            now.nodes.push_back(looks[i].get());
        } catch (const Failure& failure) {
            if (!is_silence(failure.error()))
                throw;
            warn("remora: {}", failure.what());
            now.silent.push_back(sockets[i]);
        }
    }
}

std::vector<std::string> sockets_or_default(const std::vector<std::string>& sockets,
                                            std::chrono::milliseconds patience) {
    if (!sockets.empty())
        return sockets;
    const std::string path = daemon_serving_path(patience);
    return path.empty() ? sockets : std::vector{path};
}

} // namespace

Look look(const std::vector<std::string>& named, std::chrono::milliseconds patience) {
    Look now{};
    now.when = Clock::now();
    std::string elsewhere; // why a module that is loaded serves nothing here
    auto kernel = if_serves(elsewhere, kernel_look);
    auto used = if_serves(elsewhere, [] { return devices(std::nullopt); });
    auto tunnels = if_serves(elsewhere, [] { return if_permitted("eqds devices", eqds_devices); });
    now.edm = if_serves(elsewhere, edm_report);
    const std::vector<std::string> sockets = sockets_or_default(named, patience / 4);
    if (!kernel && !used && !tunnels && !now.edm && sockets.empty())
        now.why_nothing = elsewhere.empty()
                              ? "none of rmem, rmem_node, eqds and edm is loaded, and "
                                "no remora-node serves: modprobe one, or name a "
                                "--socket"
                              : elsewhere;
    if (kernel && kernel->report.started)
        now.nodes.push_back(std::move(*kernel));
    add_daemons(sockets, now.when + patience, now);
    if (used)
        for (Device& device : *used) {
            std::string name = device.name();
            now.devices.emplace(std::move(name), std::move(device));
        }
    if (tunnels)
        for (netlink::Attributes& device : *tunnels) {
            std::string name = device.string(EQDS_A_DEVICE);
            now.eqds.emplace(std::move(name), std::move(device));
        }
    return now;
}

} // namespace remora
