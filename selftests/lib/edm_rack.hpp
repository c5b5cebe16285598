// SPDX-License-Identifier: GPL-2.0
// A scheduler of EDM and a memory node behind it, in this process: the core's scheduler, and a
// node's host that executes what the scheduler forwards. Its answers don't wait for grants.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <poll.h>

#include "support/descriptor.hpp"

extern "C" {
#include "core/edm/host.h"
#include "core/edm/sched.h"
}

namespace remora::test {

class EdmRack {
public:
    // node: UDP port of the memory node. lease: of the ports.
    explicit EdmRack(std::uint16_t node, std::chrono::microseconds lease = brief_lease);
    ~EdmRack();

    // With the program's port there.
    std::string target(unsigned as = 3) const;
    // The scheduler answers nobody.
    void silence(bool is_silent) { silent_ = is_silent; }
    std::uint64_t forwards() const { return forwards_; }
    std::uint64_t grants() const { return grants_; }

    static constexpr std::uint16_t node_port = 2;
    static constexpr std::chrono::milliseconds brief_lease{100};

private:
    struct Flow {
        sockaddr_in client;
        Descriptor back; // to the node
    };
    using Bytes = std::vector<std::uint8_t>;

    void run();
    int pause_ms() const;
    void take_scheduled();
    void take_hosts();
    void take_from_client();
    void take_from_node(Flow& flow);
    void handle(const edm_message& message, const Bytes& bytes, const sockaddr_in& from);
    void reply(edm_message& message, std::span<const std::uint8_t> payload, const sockaddr_in& to,
               const base_siphash_key& key);
    void drain();
    void pump_host();
    Flow& flow_of(const sockaddr_in& client);

    const std::uint16_t node_;
    Descriptor stop_, scheduler_, host_socket_, front_;
    std::vector<std::uint64_t> sched_memory_, host_memory_;
    edm_sched sched_{};
    edm_host host_{};
    base_siphash_key secret_{{1, 2}};
    sockaddr_in way_[EDM_PORTS_MAX]{};
    edm_item items_[EDM_ENTRIES_MAX]{};
    std::deque<Flow> flows_;
    std::vector<pollfd> waited_for_; // stop, scheduler, host, front, then flows
    std::atomic<bool> silent_{false};
    std::atomic<std::uint64_t> forwards_{0}, grants_{0};
    std::thread thread_;
};

} // namespace remora::test
