// SPDX-License-Identifier: GPL-2.0
#include "sim/options.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/version.hpp"
#include "sim/message/message_options.hpp"
#include "support/failure.hpp"

namespace sim {

using remora::Failure;
using remora::Misuse;
using Words = std::vector<std::string>;

namespace {

// The parameters of published experiments, as words of the command line.
const std::map<std::string, Words> presets = {
    // htsim's EQDS model at its defaults: MTU 4150 with 64-byte headers, queues of 35 packets, 1 us
    // per hop, 128 paths, pulls at the full rate, also for trimmed packets, whose senders come
    // first; a flow ends when its sender knows. Its window is 50 packets, and its receivers give up
    // to one more to a sender
    // that asks for nothing; this core's give none, so the window is larger here.
    {"htsim-eqds",
     {"--topology",
      "fat-tree",
      "--transport",
      "eqds",
      "--host-gbps",
      "100",
      "--hop-us",
      "1",
      "--queue",
      "trim",
      "--queue-packets",
      "35",
      "--mtu-bytes",
      "4150",
      "--header-bytes",
      "64",
      "--eqds-window",
      "64",
      "--paths",
      "128",
      "--trim",
      "arriving",
      "--fct",
      "acked",
      "--pull-rate",
      "1",
      "--eqds-pull-trimmed",
      "--eqds-retransmissions-first"}},
    {"htsim-ndp", {"--topology",  "fat-tree", "--transport",    "ndp",  "--host-gbps",     "100",
                   "--hop-us",    "1",        "--queue",        "trim", "--queue-packets", "35",
                   "--mtu-bytes", "4150",     "--header-bytes", "64",   "--ndp-window",    "50",
                   "--paths",     "128",      "--fct",          "acked"}},
    // EQDS (NSDI'22), section 8.1, figure 8: k=16, 10 Gb/s.
    // EDM (ASPLOS'25): the testbed of table 1, and the network of section 4.3.
    {"edm-testbed",
     {"--topology", "star", "--hosts", "2", "--host-gbps", "25", "--workload", "messages",
      "--memory-hosts", "1", "--flow-bytes", "64", "--transport", "edm"}},
    {"edm-144",
     {"--topology", "star", "--hosts", "144", "--host-gbps", "100", "--workload", "messages",
      "--flow-bytes", "64", "--load", "0.8", "--transport", "edm", "--edm-slots", "64"}},
    {"edm-4x36",
     {"--topology",
      "leaf-spine",
      "--leaves",
      "4",
      "--hosts-per-leaf",
      "36",
      "--spines",
      "9",
      "--links-per-spine",
      "4",
      "--host-gbps",
      "100",
      "--workload",
      "messages",
      "--flow-bytes",
      "64",
      "--load",
      "0.8",
      "--transport",
      "edm",
      "--edm-slots",
      "128",
      "--edm-egress-blocks",
      "512"}},
    {"eqds-fig8",
     {"--topology", "fat-tree", "--k", "16", "--host-gbps", "10", "--mtu-bytes", "9000",
      "--workload", "permutation", "--flow-bytes", "0", "--rto-min-us", "10000", "--queue-packets",
      "100"}},
};

void add_network(CLI::App& app, Params& p) {
    const char* group = "Network";
    auto add = [&](const char* name, auto& value, const char* text) {
        return app.add_option(name, value, text)->group(group)->capture_default_str();
    };
    add("--topology", p.topology, "fat-tree, leaf-spine, dumbbell or star");
    add("--hosts", p.hosts, "hosts of a fat tree (at least), dumbbell or star");
    add("--k", p.k, "ports per switch of a fat tree; 0: as the hosts need");
    add("--oversubscription", p.oversubscription, "hosts per ToR, times those of a full fat tree");
    add("--leaves", p.leaves, "of leaf-spine");
    add("--spines", p.spines, "of leaf-spine");
    add("--hosts-per-leaf", p.hosts_per_leaf, "of leaf-spine");
    add("--links-per-spine", p.links_per_spine, "parallel links between a leaf and a spine");
    add("--host-gbps", p.host_gbps, "speed of the hosts' links");
    add("--fabric-gbps", p.fabric_gbps, "speed between switches; 0: as the hosts'");
    add("--host-speed", p.host_speeds, "FIRST-LAST=GBPS: other speeds for some hosts")
        ->take_all()
        ->allow_extra_args(false);
    add("--hop-us", p.hop_us, "latency of a link");
    add("--host-hop-us", p.host_hop_us,
        "latency of hosts' links, with what their stacks take; 0: as --hop-us");
    add("--fail-links", p.fail_links, "random links between switches that are down");
    add("--fail-link", p.fail_link, "tor|agg:SWITCH:UPLINK[@US]: a link that goes down")
        ->take_all()
        ->allow_extra_args(false);
    add("--routing", p.routing,
        "hash: of flow and path id, as ECMP; path: the id names the links, as source routing");
    add("--reroute-us", p.reroute_us, "until switches route around a link that went down");
}

void add_queues(CLI::App& app, Params& p) {
    const char* group = "Queues and packets";
    auto add = [&](const char* name, auto& value, const char* text) {
        app.add_option(name, value, text)->group(group)->capture_default_str();
    };
    add("--queue", p.queue, "drop-tail, trim or fair");
    add("--queue-packets", p.queue_packets, "a queue's limit in MTUs");
    add("--header-queue-packets", p.header_queue_packets,
        "trim: limit of the header queue in MTUs; 0: twice the data queue's");
    add("--legacy-packets", p.legacy_packets,
        "trim: limit in MTUs of the queue of packets that can't be trimmed");
    add("--mark-packets", p.mark_packets, "ECN: mark packets that find more MTUs; 0: never");
    add("--trim", p.trim, "the packet a full queue trims: arriving, tail or either");
    add("--mtu-bytes", p.mtu_bytes, "largest packet, with headers");
    add("--header-bytes", p.header_bytes, "a trimmed packet, an acknowledgement, a ping");
}

void add_transports(CLI::App& app, Params& p) {
    const char* group = "Transports";
    auto add = [&](const char* name, auto& value, const char* text) {
        return app.add_option(name, value, text)->group(group)->capture_default_str();
    };
    add("--transport", p.transport, "newreno, cubic, dctcp, mptcp, udp, ping, ndp, eqds or rmem");
    add("--transport-of", p.transport_of, "FIRST-LAST=NAME: of flows that these hosts send")
        ->take_all()
        ->allow_extra_args(false);
    app.add_flag("--over-eqds", p.over_eqds, "TCP, UDP, pings and rmem go through EQDS tunnels")
        ->group(group);
    add("--native", p.native, "FIRST-LAST: hosts whose flows use no tunnel");
    add("--tcp-open", p.tcp_open,
        "established: from the start; connect: the source connects first; fetch: the destination "
        "connects and asks for the data");
    add("--subflows", p.subflows, "of MPTCP");
    add("--initial-window", p.initial_window, "of TCP, in segments");
    add("--ack-every", p.ack_every, "TCP segments per acknowledgement");
    add("--rto-min-us", p.rto_min_us, "TCP's shortest retransmission timeout");
    add("--rto-initial-us", p.rto_initial_us, "TCP's first retransmission timeout");
    add("--tail-probe-us", p.tail_probe_us,
        "TCP sends its last segment again after two round trips, at least so long: RFC 8985's tail "
        "loss probe; 0: never");
    add("--window-limit-packets", p.window_limit_packets, "of TCP, in segments; 0: none");
    add("--udp-gbps", p.udp_gbps, "rate of UDP flows; 0: the host's link");
    add("--ping-interval-us", p.ping_interval_us, "between pings");
    add("--ndp-window", p.ndp_window, "NDP's first window, in packets");
    add("--ndp-rto-us", p.ndp_rto_us, "NDP's retransmission timeout; 0: from queue and speed");
    add("--paths", p.paths, "path ids that NDP and EQDS spray over");
    add("--eqds-window", p.eqds_window, "credit of a tunnel, in MTUs");
    add("--eqds-strikes", p.eqds_strikes,
        "failed transmissions of a packet, after which it is given up: 1 if trimmed, 8 if lost; 0: "
        "never")
        ->check(CLI::Range(0, 255));
    add("--eqds-mode", p.eqds_mode, "burst: a window at once; rts: ask first");
    add("--eqif-packets", p.eqif_packets, "queue of a tunnel's sender, in packets");
    add("--eqif-mark-packets", p.eqif_mark_packets, "ECN: mark packets that find more there");
    add("--eqds-rto-us", p.eqds_rto_us, "a tunnel's shortest timeout; 0: from queue and speed");
    add("--eqds-priority", p.eqds_priority,
        "FIRST-LAST=PRIORITY: of tunnels from these hosts, 0 (pulled first) to 7; others have 7")
        ->take_all()
        ->allow_extra_args(false);
    app.add_flag("--eqds-overdraw", p.eqds_overdraw, "send on any credit above 0")->group(group);
    app.add_flag("--eqds-pull-trimmed", p.eqds_pull_trimmed,
                 "pull for a trimmed packet before its sender asks")
        ->group(group);
    app.add_flag("--eqds-retransmissions-first", p.eqds_retransmissions_first,
                 "pull first for senders whose packets were trimmed, as often as they were")
        ->group(group);
    app.add_flag("--eqds-unordered", p.eqds_unordered, "deliver as packets arrive")->group(group);
    add("--pull-burst", p.pull_burst, "pulls that may be caught up at once");
    add("--pull-rate", p.pull_rate, "of the receiver's link rate");
    add("--tunnel-overhead-bytes", p.tunnel_overhead_bytes, "headers of a tunnel packet");
}

void add_rmem(CLI::App& app, Params& p) {
    const char* group = "Remote memory (rmem flows: the source reads and writes the destination's)";
    auto add = [&](const char* name, auto& value, const char* text) {
        app.add_option(name, value, text)->group(group)->capture_default_str();
    };
    add("--rmem-depth", p.rmem_depth, "operations that a flow keeps outstanding");
    add("--rmem-op-bytes", p.rmem_op_bytes, "size of an operation");
    add("--rmem-write-percent", p.rmem_write_percent, "of the operations; the others are reads");
    add("--rmem-interval-us", p.rmem_interval_us,
        "from an operation's end to the next one's begin: mean of random times");
}

void add_workload(CLI::App& app, Params& p) {
    const char* group = "Workload";
    auto add = [&](const char* name, auto& value, const char* text) {
        app.add_option(name, value, text)->group(group)->capture_default_str();
    };
    app.add_option("matrix", p.matrix, "a connection matrix (.cm)");
    add("--workload", p.workload,
        "permutation, incast, all-to-all, poisson, closed-loop or messages");
    add("--sizes", p.sizes,
        "fixed, uniform, web-search, hadoop, edm-hadoop, edm-spark, edm-sparksql, edm-graphlab, "
        "edm-memcached, or a file 'BYTES PERCENT'");
    add("--flow-bytes", p.flow_bytes, "of fixed; mean of uniform; fixed and 0: without end");
    add("--flows", p.flows, "of incast, poisson; clients of closed-loop; 0: one per host");
    add("--load", p.load, "poisson, messages: of the hosts' links");
    add("--concurrency", p.concurrency, "closed-loop: flows of a client at a time");
    add("--servers", p.servers, "closed-loop: the first hosts serve; 0: any host does");
    add("--first-client", p.first_client,
        "closed-loop: host of the first client; 0: after the servers");
    app.add_option("--extra-flow", p.extra_flow,
                   "SRC->DST=TRANSPORT[:BYTES]: beside the workload; no BYTES: without end")
        ->group(group)
        ->take_all()
        ->allow_extra_args(false);
    add("--receiver", p.receiver, "incast: the host");
    add("--start-spread-us", p.start_spread_us, "flows start at random within this time");
}

void add_run(CLI::App& app, Options& o) {
    const char* group = "Run and output";
    auto add = [&](const char* name, auto& value, const char* text) {
        app.add_option(name, value, text)->group(group)->capture_default_str();
    };
    auto flag = [&](const char* name, auto& value, const char* text) {
        app.add_flag(name, value, text)->group(group);
    };
    add("--seed", o.params.seed, "the same seed gives the same results on every machine");
    add("--seeds", o.seeds,
        "FIRST-LAST: one process each; output files get .SEED before the suffix");
    add("--jobs", o.jobs, "processes at a time; 0: one per CPU");
    add("--end-us", o.params.end_us, "simulated time; 0: until all flows are done");
    add("--warmup-us", o.params.warmup_us, "throughputs and mean queues count from here");
    add("--fct", o.params.fct, "a flow ends when it is delivered, or acked: its sender knows");
    add("--json", o.json, "results, or - for standard output");
    add("--csv", o.csv, "one line per flow");
    add("--ports-csv", o.ports_csv, "one line per queue: peak, mean, drops, trims, marks");
    add("--samples-csv", o.samples_csv,
        "times of pings, and of remote reads and writes since the warm-up, one per line");
    add("--table1", o.table1,
        "workload messages: EDM's table 1, line by line, and lone messages beside it, as CSV");
    add("--watch", o.watch, "id of the flow to trace");
    add("--trace", o.trace, "what happens to the packets of --watch, as text");
    add("--pcap", o.pcap, "packets of --watch as its hosts see them, for wireshark");
    flag("--progress", o.progress, "show time, events and flows on standard error");
    flag("--check", o.params.check, "check invariants as it runs");
    flag("--wall-time,!--no-wall-time", o.wall_time,
         "whether the JSON has the run's duration, which differs from run to run");
    flag("--quiet", o.quiet, "no summary");
}

// The members of a JSON object as words.
Words file_words(const std::string& file) {
    std::ifstream in(file);
    if (!in)
        throw Failure("{}: {}", file, std::strerror(errno));
    nlohmann::json root;
    try {
        root = nlohmann::json::parse(in, nullptr, true, true);
    } catch (const nlohmann::json::exception& error) {
        throw Failure("{}: {}", file, error.what());
    }
    if (!root.is_object())
        throw Failure("{}: wants an object of parameters, such as {{\"k\": 8}}", file);
    Words words;
    auto add = [&](const std::string& key, const nlohmann::json& value) {
        std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        words.push_back(key == "matrix" ? text : "--" + key + "=" + text);
    };
    for (const auto& [key, value] : root.items()) {
        if (value.is_array()) {
            for (const auto& one : value)
                add(key, one);
        } else {
            add(key, value);
        }
    }
    return words;
}

} // namespace

Options parse_options(const Words& arguments) {
    Options options;
    CLI::App app(
        "Packet-level simulation of data-centre networks: EQDS, TCP and NDP over fat trees.",
        "remora-sim");
    app.option_defaults()->take_last();
    app.set_version_flag("--version", std::string("remora-sim ") + remora::version);
    std::string preset, config;
    app.add_option("--preset", preset,
                   "parameters of a published experiment: htsim-eqds, htsim-ndp, eqds-fig8, "
                   "edm-testbed, edm-144, edm-4x36");
    app.add_option("--config", config,
                   "parameters from a JSON file: {\"k\": 8, \"queue\": \"trim\"}");
    add_network(app, options.params);
    add_queues(app, options.params);
    add_transports(app, options.params);
    add_rmem(app, options.params);
    add_workload(app, options.params);
    add_message_options(app, options.params);
    add_run(app, options);

    // Later words win: the preset's, the file's, then the command line's.
    auto value_of = [&](const std::string& name) {
        for (std::size_t i = 0; i < arguments.size(); i++) {
            if (arguments[i] == name && i + 1 < arguments.size())
                return arguments[i + 1];
            if (arguments[i].rfind(name + "=", 0) == 0)
                return arguments[i].substr(name.size() + 1);
        }
        return std::string();
    };
    Words words;
    if (std::string name = value_of("--preset"); !name.empty()) {
        auto found = presets.find(name);
        if (found == presets.end())
            throw Misuse("preset '{}' is none of htsim-eqds, htsim-ndp, eqds-fig8, edm-testbed, "
                         "edm-144, edm-4x36",
                         name);
        words = found->second;
    }
    if (std::string file = value_of("--config"); !file.empty()) {
        Words more = file_words(file);
        words.insert(words.end(), more.begin(), more.end());
    }
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::reverse(words.begin(), words.end()); // CLI11's parse() takes them from the back
    try {
        app.parse(words);
    } catch (const CLI::Success& help) {
        std::exit(app.exit(help));
    } catch (const CLI::ParseError& error) {
        std::string text = error.what();
        std::replace(text.begin(), text.end(), '\n', ' ');
        throw Misuse("{}: see 'remora-sim --help'", text);
    }
    const Params& p = options.params;
    check_message_options(p);
    if (p.fct != "delivered" && p.fct != "acked")
        throw Misuse("fct '{}' is none of delivered, acked", p.fct);
    if (p.eqds_mode != "burst" && p.eqds_mode != "rts")
        throw Misuse("eqds-mode '{}' is none of burst, rts", p.eqds_mode);
    if (p.tcp_open != "established" && p.tcp_open != "connect" && p.tcp_open != "fetch")
        throw Misuse("tcp-open '{}' is none of established, connect, fetch", p.tcp_open);
    if (p.mtu_bytes < 256 || p.mtu_bytes > 65'000 || p.header_bytes < 40 ||
        p.header_bytes >= p.mtu_bytes / 2)
        throw Misuse("mtu-bytes is from 256 to 65000, header-bytes from 40 to half of it");
    if (p.queue_packets < 1 || p.queue_packets > 1e6)
        throw Misuse("queue-packets is from 1 to 1000000");
    if (!p.paths || !p.subflows || !p.initial_window || !p.ndp_window || !p.ack_every ||
        p.subflows > 255)
        throw Misuse("paths, subflows (to 255), windows and ack-every are at least 1");
    return options;
}

} // namespace sim
