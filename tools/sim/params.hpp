// SPDX-License-Identifier: GPL-2.0
// Every parameter of a run. options.cpp gives each its name on the command line and in files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/units.hpp"

namespace sim {

enum class Transport : std::uint8_t { newreno, cubic, dctcp, mptcp, udp, ping, ndp, eqds, rmem };

// The workload "messages": reads and writes of remote memory (message/message.hpp).
struct MessageParams {
    std::uint64_t count = 100'000; // measured
    std::uint32_t warmup_percent = 20, read_percent = 50;
    std::uint32_t request_bytes = 8; // of a read's request
    std::uint32_t write_bytes = 0;   // of every write; 0: as reads
    std::uint32_t memory_hosts = 0;  // the first hosts; 0: every host has memory and asks others
    std::string load_of;             // transport whose wire load is meant; empty: own
    std::string trace;               // CSV of messages to issue
    std::string stack;               // budget of passages: edm, raw, roce, tcp, cxl; empty: own
    // EDM.
    std::uint32_t chunk_bytes = 256, unit_bytes = 64, active_max = 3, slots = 128;
    std::string policy = "srpt";   // fcfs
    bool in_order = false;         // within a pair
    std::string matcher = "event"; // pim
    double pim_cycle_ns = 1.0 / 3;
    std::uint32_t egress_blocks = 128;
    double age_us = 100'000;
    std::uint32_t mega_bytes = 0;
    std::uint32_t window_bytes = 4096; // leaf-spine
    // EDM by datagrams, and its failures.
    std::uint32_t lease_us = 100;
    double loss_percent = 0, scheduler_dies_us = 0, port_down_us = 0; // 0: none
    // Others.
    double rto_us = 50;                  // pFabric, TCP: until a lost packet goes again
    std::uint32_t credit_bytes = 32'768; // CXL: of a link's receiver, requests and data each
    double frame_load = 0;               // of frames beside the messages, of a link's rate
    std::uint32_t frame_bytes = 1518;
};

struct Params {
    // Topology.
    std::string topology = "fat-tree"; // leaf-spine, dumbbell, star
    std::uint32_t hosts = 0;           // 0: as the workload or k says
    std::uint32_t k = 0;               // fat tree: ports per switch
    std::uint32_t oversubscription = 1;
    std::uint32_t leaves = 4, spines = 2, hosts_per_leaf = 4, links_per_spine = 1;
    double host_gbps = 10, fabric_gbps = 0; // 0: as the hosts' links
    std::vector<std::string> host_speeds;   // "A-B=GBPS"
    double hop_us = 1, host_hop_us = 0;     // host_hop_us 0: as hop_us
    std::uint32_t fail_links = 0;           // random links down from the start
    std::vector<std::string> fail_link;     // TIER:SWITCH:PORT[@US]
    double reroute_us = 0;
    std::string routing = "hash"; // path

    // Queues.
    std::string queue = "drop-tail"; // trim, fair
    double queue_packets = 100;
    double legacy_packets = 200, mark_packets = 0;
    double header_queue_packets = 0; // of queue's bytes; 0: twice queue_packets
    std::string trim = "either";

    // Packets.
    std::uint32_t mtu_bytes = 1500, header_bytes = 64;
    bool ethernet = false; // a link also carries MAC header, FCS, padding, preamble and gap

    // Transport.
    std::string transport = "newreno";
    std::vector<std::string> transport_of; // "A-B=NAME": of flows that these hosts send
    bool over_eqds = false;                // TCP, UDP and ping go through tunnels
    std::string native;                    // "A-B": hosts whose flows do not
    std::string tcp_open = "established";  // connect, fetch
    std::uint32_t subflows = 8, initial_window = 10, ack_every = 1;
    double rto_min_us = 10'000, rto_initial_us = 100'000;
    double tail_probe_us = 0;        // 0: no probes
    double window_limit_packets = 0; // of a TCP flow; 0: none
    double udp_gbps = 0, ping_interval_us = 100;
    std::uint32_t ndp_window = 30, paths = 128;
    double ndp_rto_us = 0; // 0: from queue and link speed

    // EQDS.
    std::uint32_t eqds_window = 30;
    std::uint32_t eqds_strikes = 0; // 0: EQDS flows count on the tunnel to lose nothing
    std::uint32_t eqif_packets = 100;
    double eqif_mark_packets = 16;
    std::string eqds_mode = "burst"; // rts
    double pull_rate = 0.99, eqds_rto_us = 0;
    std::uint32_t pull_burst = 1;
    std::vector<std::string> eqds_priority; // "A-B=PRIORITY": of tunnels from these hosts
    bool eqds_overdraw = false, eqds_pull_trimmed = false, eqds_retransmissions_first = false,
         eqds_unordered = false;
    std::uint32_t tunnel_overhead_bytes = 40;

    // Remote memory.
    std::uint32_t rmem_depth = 1, rmem_op_bytes = 4096, rmem_write_percent = 0;
    double rmem_interval_us = 0;

    // Workload.
    std::string matrix; // a .cm file
    std::string workload, sizes = "fixed";
    std::uint64_t flow_bytes = 1'000'000;
    std::uint32_t flows = 0, concurrency = 1, receiver = 0, servers = 0;
    std::uint32_t first_client = 0;      // closed-loop; 0: after the servers
    std::vector<std::string> extra_flow; // "SRC->DST=TRANSPORT[:BYTES]"
    double load = 0.5, start_spread_us = 0;

    MessageParams message;

    // Run.
    std::uint64_t seed = 1;
    double end_us = 0, warmup_us = 0;
    std::string fct = "delivered"; // acked
    bool check = false;
};

} // namespace sim
