// SPDX-License-Identifier: GPL-2.0
#include "sim/message/message_options.hpp"

#include <CLI/CLI.hpp>

#include "support/failure.hpp"

namespace sim {

using remora::Misuse;

namespace {

void add_edm(CLI::App& app, MessageParams& m) {
    const char* group = "EDM";
    auto add = [&](const char* name, auto& value, const char* text) {
        app.add_option(name, value, text)->group(group)->capture_default_str();
    };
    add("--edm-chunk-bytes", m.chunk_bytes, "most bytes of a grant");
    add("--edm-unit-bytes", m.unit_bytes,
        "a chunk that is shortened against phase lock has a multiple of these; as many as "
        "--edm-chunk-bytes: never shortened, as in the paper");
    add("--edm-active", m.active_max, "messages of a pair that wait for grants");
    add("--edm-slots", m.slots, "messages of a host that are announced, a power of two");
    add("--edm-policy", m.policy, "srpt or fcfs");
    app.add_flag("--edm-in-order", m.in_order, "within a pair by arrival, as in the paper")
        ->group(group);
    add("--edm-matcher", m.matcher, "event, or pim: the paper's, cycle by cycle");
    add("--edm-pim-cycle-ns", m.pim_cycle_ns, "of pim; an iteration takes three");
    add("--edm-egress-blocks", m.egress_blocks,
        "a destination whose egress queue has more gets no grant");
    add("--edm-age-us", m.age_us, "a message that waits longer goes first");
    add("--edm-mega-bytes", m.mega_bytes, "writes up to these, together, share a message");
    add("--edm-window-bytes", m.window_bytes,
        "leaf-spine: of chunks that a leaf offers to a host of another, and that leaf hasn't "
        "granted");
    add("--edm-lease-us", m.lease_us, "edm-udp: of hosts at the scheduler and its standby");
    add("--edm-loss-percent", m.loss_percent, "edm-udp: of datagrams that are lost");
    add("--edm-scheduler-dies-us", m.scheduler_dies_us,
        "edm-udp: when the first scheduler dies; 0: never");
    add("--edm-port-down-us", m.port_down_us,
        "edm-udp: when host 0's port goes down, for five leases; 0: never");
}

} // namespace

void add_message_options(CLI::App& app, Params& params) {
    const char* group = "Messages (workload messages: reads and writes of remote memory)";
    MessageParams& m = params.message;
    auto add = [&](const char* name, auto& value, const char* text) {
        app.add_option(name, value, text)->group(group)->capture_default_str();
    };
    add("--messages", m.count, "that are measured");
    add("--warmup-percent", m.warmup_percent, "messages before those, of as many");
    add("--read-percent", m.read_percent, "of the messages; the others are writes");
    add("--write-bytes", m.write_bytes, "of every write; 0: by --sizes, as reads");
    add("--request-bytes", m.request_bytes, "of a read's request, but EDM's");
    add("--memory-hosts", m.memory_hosts,
        "the first hosts have memory, the others ask; 0: every host does both");
    add("--load-of", m.load_of,
        "arrivals are those at which this transport has the load; empty: the "
        "run's own");
    add("--message-trace", m.trace, "messages from lines id,type,src,dst,bytes,read_bytes,slot");
    add("--stack", m.stack,
        "times of hosts and switches: edm, raw, roce, tcp or cxl; empty: the "
        "transport's own");
    add("--message-rto-us", m.rto_us, "pFabric, TCP: until a lost packet goes again");
    add("--credit-bytes", m.credit_bytes, "CXL: of a link's receiver, requests and data each");
    add("--frame-load", m.frame_load, "of frames beside messages over EDM, of a host's link");
    add("--frame-bytes", m.frame_bytes, "of such a frame, from address to FCS");
    add_edm(app, m);
}

void check_message_options(const Params& params) {
    const MessageParams& m = params.message;
    if (params.workload != "messages")
        return;
    if (!m.count || m.read_percent > 100 || m.warmup_percent > 10'000)
        throw Misuse("messages is at least 1, read-percent at most 100, warmup-percent 10000");
    if (!m.request_bytes || m.request_bytes > 1024)
        throw Misuse("request-bytes is from 1 to 1024");
    if (params.load <= 0)
        throw Misuse("load {}: a load above 0", params.load);
    if (m.policy != "srpt" && m.policy != "fcfs")
        throw Misuse("edm-policy '{}' is none of srpt, fcfs", m.policy);
    if (m.matcher != "event" && m.matcher != "pim")
        throw Misuse("edm-matcher '{}' is none of event, pim", m.matcher);
    if (m.pim_cycle_ns < 0.001 || m.age_us < 0 || m.frame_load < 0)
        throw Misuse("edm-pim-cycle-ns is at least 0.001, edm-age-us and frame-load 0");
    if (m.loss_percent < 0 || m.loss_percent > 50 || m.scheduler_dies_us < 0 || m.port_down_us < 0)
        throw Misuse("edm-loss-percent is from 0 to 50, times of failures are 0 or more");
    if (m.frame_bytes < 64 || m.frame_bytes > 9216)
        throw Misuse("frame-bytes is from 64 to 9216");
}

} // namespace sim
