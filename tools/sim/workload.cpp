// SPDX-License-Identifier: GPL-2.0
#include "sim/workload.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "sim/network.hpp"
#include "sim/rmem.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace sim {

using remora::Failure;
using remora::Misuse;

namespace {

constexpr const char* transport_names[] = {"newreno", "cubic", "dctcp", "mptcp", "udp",
                                           "ping",    "ndp",   "eqds",  "rmem"};

// Sizes of messages in five applications, whose traces EDM (ASPLOS'25, 4.3.2) uses: points of the
// distribution function, in units, and of 10,000. Between points it is linear.
constexpr std::uint64_t trace_unit_bytes = 1460;

struct MemoryTrace {
    const char* name;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> points;
};

const MemoryTrace* memory_trace(const std::string& name) {
    static const MemoryTrace traces[] = {
        {"edm-hadoop", {{4, 0}, {4, 7000}, {88, 8000}, {167, 9000}, {920, 10'000}}},
        {"edm-spark", {{4, 0}, {4, 7000}, {13, 8000}, {220, 9000}, {930, 10'000}}},
        {"edm-sparksql",
         {{4, 0}, {4, 5000}, {7, 6000}, {7, 7000}, {83, 8000}, {140, 9000}, {980, 10'000}}},
        {"edm-graphlab", {{4, 0}, {4, 7000}, {88, 8000}, {167, 9000}, {1080, 10'000}}},
        {"edm-memcached", {{4, 0}, {4, 7000}, {64, 8000}, {296, 9000}, {1216, 10'000}}}};
    for (const MemoryTrace& trace : traces) {
        if (name == trace.name)
            return &trace;
    }
    return nullptr;
}

} // namespace

Transport parse_transport(const std::string& name) {
    auto found = std::find(std::begin(transport_names), std::end(transport_names), name);
    if (found == std::end(transport_names))
        throw Misuse(
            "transport '{}' is none of newreno, cubic, dctcp, mptcp, udp, ping, ndp, eqds, "
            "rmem",
            name);
    return static_cast<Transport>(found - std::begin(transport_names));
}

const char* transport_name(Transport transport) {
    return transport_names[static_cast<int>(transport)];
}

Sizes::Sizes(const std::string& name, std::uint64_t mean_bytes) {
    if (name == "fixed") {
        points_ = {{mean_bytes, 0}, {mean_bytes, 10'000}};
    } else if (name == "uniform") {
        points_ = {{1, 0}, {2 * mean_bytes, 10'000}};
    } else if (name == "web-search") {
        // DCTCP (SIGCOMM'10), figure 4, in the form that HPCC (SIGCOMM'19) published.
        points_ = {{1, 0},
                   {10'000, 1500},
                   {20'000, 2000},
                   {30'000, 3000},
                   {50'000, 4000},
                   {80'000, 5300},
                   {200'000, 6000},
                   {1'000'000, 7000},
                   {2'000'000, 8000},
                   {5'000'000, 9000},
                   {10'000'000, 9700},
                   {30'000'000, 10'000}};
    } else if (name == "hadoop") {
        // Facebook's Hadoop (SIGCOMM'15), in the form that HPCC (SIGCOMM'19) published.
        points_ = {{1, 0},          {100, 100},        {200, 200},        {300, 500},
                   {350, 1500},     {400, 2000},       {500, 3000},       {600, 4000},
                   {700, 5000},     {1000, 6000},      {2000, 6700},      {7000, 7000},
                   {30'000, 7200},  {50'000, 8200},    {80'000, 8700},    {120'000, 9000},
                   {300'000, 9500}, {1'000'000, 9750}, {2'000'000, 9900}, {10'000'000, 10'000}};
    } else if (const MemoryTrace* trace = memory_trace(name)) {
        for (const auto& [units, permille_10] : trace->points)
            points_.push_back({units * trace_unit_bytes, permille_10});
    } else {
        std::ifstream in(name);
        if (!in)
            throw Failure(
                "sizes '{}' is none of fixed, uniform, web-search, hadoop, edm-hadoop, edm-spark, "
                "edm-sparksql, edm-graphlab, edm-memcached, and no file: {}",
                name, std::strerror(errno));
        double bytes, percent;
        while (in >> bytes >> percent)
            points_.push_back({std::max<std::uint64_t>(static_cast<std::uint64_t>(bytes), 1),
                               static_cast<std::uint64_t>(percent * 100 + 0.5)});
        bool sorted = std::is_sorted(points_.begin(), points_.end(), [](auto& a, auto& b) {
            return a.bytes < b.bytes && a.permille_10 < b.permille_10;
        });
        if (!in.eof() || points_.size() < 2 || !sorted || points_.back().permille_10 != 10'000)
            throw Failure("{}: wants lines 'BYTES PERCENT', both rising, the last one of 100",
                          name);
    }
}

std::uint64_t Sizes::draw(Rng& rng) const {
    std::uint64_t p = rng.below(10'000) + 1;
    std::size_t i = 1;
    while (points_[i].permille_10 < p)
        i++;
    std::uint64_t span = points_[i].bytes - points_[i - 1].bytes;
    return points_[i - 1].bytes + rng.below(span + 1);
}

std::uint64_t Sizes::mean_bytes() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 1; i < points_.size(); i++)
        sum += (points_[i].bytes + points_[i - 1].bytes) *
               (points_[i].permille_10 - points_[i - 1].permille_10);
    return sum / 20'000;
}

std::uint32_t Workload::hosts_needed(Params& params) {
    if (!params.matrix.empty())
        return read_matrix(params.matrix).nodes;
    return 0;
}

Workload::Workload(Sim& sim)
    : sim_(sim),
      sizes_(sim.params.sizes, sim.params.flow_bytes),
      default_transport_(parse_transport(sim.params.transport)) {
    for (const std::string& text : sim.params.transport_of) {
        HostRange range = parse_host_range(text);
        transports_.push_back({{range.first, range.last}, parse_transport(range.value)});
    }
    sim.on_done = [this](Flow& flow) { done(flow); };
    const std::string& name = sim.params.workload;
    if (!sim.params.matrix.empty())
        from_matrix();
    else if (name == "permutation")
        permutation();
    else if (name == "incast")
        incast();
    else if (name == "all-to-all")
        all_to_all();
    else if (name == "poisson")
        poisson();
    else if (name == "closed-loop")
        closed_loop();
    else
        throw Misuse("workload '{}' is none of permutation, incast, all-to-all, poisson, "
                     "closed-loop; or name a .cm file",
                     name);
    extra_flows();
    if ((closed_ || sim.unfinished != sim.flows.size()) && sim.params.end_us <= 0)
        throw Misuse("flows without an end need --end-us");
}

Transport Workload::transport_of(std::uint32_t src) const {
    for (const auto& [hosts, transport] : transports_) {
        if (src >= hosts.first && src <= hosts.second)
            return transport;
    }
    return default_transport_;
}

Flow& Workload::add(std::uint32_t src, std::uint32_t dst, std::uint64_t bytes) {
    return add(src, dst, bytes, transport_of(src));
}

Flow& Workload::add(std::uint32_t src, std::uint32_t dst, std::uint64_t bytes,
                    Transport transport) {
    if (transport == Transport::rmem) {
        check_rmem_params(sim_.params);
        if (closed_)
            throw Misuse("rmem flows are closed loops themselves: instead of closed-loop, take "
                         "another workload and --rmem-depth");
    }
    Flow& flow = sim_.add_flow(src, dst, transport == Transport::ping ? 0 : bytes, transport);
    flow.tunnelled =
        sim_.params.over_eqds && transport != Transport::ndp && transport != Transport::eqds;
    if (!sim_.params.native.empty() && flow.tunnelled) {
        HostRange range = parse_host_range(sim_.params.native + "=");
        flow.tunnelled = src < range.first || src > range.last;
    }
    return flow;
}

Time Workload::start_time() {
    Time spread = static_cast<Time>(sim_.params.start_spread_us * us);
    return spread ? sim_.rng.below(spread) : 0;
}

void Workload::from_matrix() {
    matrix_ = read_matrix(sim_.params.matrix);
    for (const Matrix::Connection& one : matrix_.connections) {
        Flow& flow = add(one.src, one.dst, one.bytes);
        if (one.id)
            flow.id = one.id;
        if (one.start != never)
            sim_.start_flow(flow, one.start);
    }
}

void Workload::permutation() {
    auto hosts = static_cast<std::uint32_t>(sim_.hosts.size());
    std::vector<std::uint32_t> to(hosts);
    std::iota(to.begin(), to.end(), 0u);
    // Sattolo's shuffle: one cycle, so no host sends to itself.
    for (std::uint32_t i = hosts - 1; i; i--)
        std::swap(to[i], to[sim_.rng.below(i)]);
    for (std::uint32_t src = 0; src < hosts; src++)
        sim_.start_flow(add(src, to[src], sizes_.draw(sim_.rng)), start_time());
}

void Workload::incast() {
    auto hosts = static_cast<std::uint32_t>(sim_.hosts.size());
    std::uint32_t receiver = sim_.params.receiver;
    std::uint32_t flows = sim_.params.flows ? sim_.params.flows : hosts - 1;
    if (receiver >= hosts)
        throw Misuse("receiver {}: the last host is {}", receiver, hosts - 1);
    for (std::uint32_t i = 0; i < flows; i++) {
        std::uint32_t src = i % (hosts - 1);
        src += src >= receiver;
        sim_.start_flow(add(src, receiver, sizes_.draw(sim_.rng)), start_time());
    }
}

void Workload::all_to_all() {
    for (std::uint32_t src = 0; src < sim_.hosts.size(); src++) {
        for (std::uint32_t dst = 0; dst < sim_.hosts.size(); dst++) {
            if (src != dst)
                sim_.start_flow(add(src, dst, sizes_.draw(sim_.rng)), start_time());
        }
    }
}

void Workload::poisson() {
    if (!sim_.params.flows || sim_.params.load <= 0)
        throw Misuse("the poisson workload needs --flows and --load above 0");
    std::size_t hosts = sim_.hosts.size();
    double bits = 8.0 * static_cast<double>(sizes_.mean_bytes());
    double rate = sim_.params.load * sim_.params.host_gbps * 1e9 * static_cast<double>(hosts);
    auto gap = static_cast<Time>(bits / rate * 1e12);
    Time when = 0;
    for (std::uint32_t i = 0; i < sim_.params.flows; i++) {
        when += sim_.rng.exponential(gap);
        auto src = static_cast<std::uint32_t>(sim_.rng.below(hosts));
        auto dst = static_cast<std::uint32_t>(sim_.rng.below(hosts - 1));
        dst += dst >= src;
        sim_.start_flow(add(src, dst, sizes_.draw(sim_.rng)), when);
    }
}

// Each client fetches one object after the other: from other clients at random, or always from one
// server if --servers says how many of the first hosts serve.
void Workload::closed_loop() {
    closed_ = true;
    std::uint32_t servers = sim_.params.servers;
    std::uint32_t clients = sim_.params.flows
                                ? sim_.params.flows
                                : static_cast<std::uint32_t>(sim_.hosts.size()) - servers;
    if (client_host(clients) > sim_.hosts.size() || servers > client_host(0))
        throw Misuse("{} servers and {} clients from host {}: there are {} hosts", servers, clients,
                     client_host(0), sim_.hosts.size());
    if (!servers && clients < 2)
        throw Misuse("a closed loop without --servers needs two clients");
    closed_clients_ = clients;
    for (std::uint32_t client = 0; client < clients; client++) {
        for (std::uint32_t i = 0; i < sim_.params.concurrency; i++)
            next_closed(client);
    }
}

std::uint32_t Workload::client_host(std::uint32_t client) const {
    return (sim_.params.first_client ? sim_.params.first_client : sim_.params.servers) + client;
}

void Workload::extra_flows() {
    for (const std::string& text : sim_.params.extra_flow) {
        std::size_t arrow = text.find("->"), equals = text.find('=');
        if (arrow == std::string::npos || equals == std::string::npos || equals < arrow)
            throw Misuse("extra-flow '{}' isn't of the form SRC->DST=TRANSPORT[:BYTES]", text);
        std::size_t colon = text.find(':', equals), hosts = sim_.hosts.size();
        auto src = remora::parse_number(text.substr(0, arrow), 0, hosts - 1, "host");
        auto dst =
            remora::parse_number(text.substr(arrow + 2, equals - arrow - 2), 0, hosts - 1, "host");
        std::uint64_t bytes = colon == std::string::npos
                                  ? 0
                                  : remora::parse_number(text.substr(colon + 1), 1, never, "bytes");
        Transport transport = parse_transport(text.substr(equals + 1, colon - equals - 1));
        sim_.start_flow(
            add(static_cast<std::uint32_t>(src), static_cast<std::uint32_t>(dst), bytes, transport),
            start_time());
    }
}

void Workload::next_closed(std::uint32_t client) {
    std::uint32_t servers = sim_.params.servers, host = client_host(client), server;
    if (servers) {
        server = client % servers;
    } else {
        server = static_cast<std::uint32_t>(sim_.rng.below(closed_clients_ - 1));
        server = client_host(server + (server >= client));
    }
    Flow& flow = add(server, host, sizes_.draw(sim_.rng));
    clients_.resize(flow.index + 1, ~0u);
    clients_[flow.index] = client;
    sim_.start_flow(flow, sim_.now() + start_time());
}

void Workload::activate(std::uint32_t id) {
    using Type = Matrix::Trigger::Type;
    const Matrix::Trigger& trigger = matrix_.triggers.at(id);
    std::uint32_t count = ++activations_[id];
    if (trigger.type == Type::oneshot && count > 1)
        return;
    if (trigger.type == Type::barrier && count != trigger.count)
        return;
    for (std::size_t i = 0; i < matrix_.connections.size(); i++) {
        // A multishot trigger starts one more connection each time.
        if (matrix_.connections[i].trigger != id || sim_.flows[i]->started)
            continue;
        sim_.flows[i]->started = true;
        sim_.start_flow(*sim_.flows[i], sim_.now());
        if (trigger.type == Type::multishot)
            return;
    }
}

void Workload::done(Flow& flow) {
    if (flow.index < matrix_.connections.size()) {
        const Matrix::Connection& one = matrix_.connections[flow.index];
        if (one.send_done)
            activate(one.send_done);
        if (one.recv_done)
            activate(one.recv_done);
    }
    if (closed_ && flow.index < clients_.size() && clients_[flow.index] != ~0u)
        next_closed(clients_[flow.index]);
}

} // namespace sim
