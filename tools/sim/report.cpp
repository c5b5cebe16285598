// SPDX-License-Identifier: GPL-2.0
#include "sim/report.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "sim/network.hpp"
#include "sim/workload.hpp"
#include "support/failure.hpp"

namespace sim {

using remora::Failure;

namespace {

class Output {
public:
    explicit Output(const std::string& file)
        : name_(file), file_(file == "-" ? stdout : std::fopen(file.c_str(), "w")) {
        if (!file_)
            throw Failure("{}: {}", file, std::strerror(errno));
    }
    ~Output() {
        if (file_ && file_ != stdout)
            std::fclose(file_);
    }
    Output(const Output&) = delete;
    Output& operator=(const Output&) = delete;

    template <typename... Args>
    void print(fmt::format_string<Args...> text, Args&&... args) {
        fmt::print(file_, text, std::forward<Args>(args)...);
    }
    void close() {
        FILE* file = std::exchange(file_, nullptr);
        bool bad = std::ferror(file) | std::fflush(file);
        if (file != stdout)
            bad |= std::fclose(file) != 0;
        if (bad)
            throw Failure("{}: can't be written", name_);
    }

private:
    std::string name_;
    FILE* file_;
};

// Microseconds with three digits, from integers.
std::string us_text(Time time) {
    Time rounded = (time + ns / 2) / ns;
    return fmt::format("{}.{:03}", rounded / 1000, rounded % 1000);
}

// Bits per second while the flow ran, since the warm-up.
std::uint64_t throughput(const Sim& sim, const Flow& flow) {
    Time warmup = static_cast<Time>(sim.params.warmup_us * us);
    Time from = std::max(flow.start, warmup), to = std::min(flow.end, sim.now());
    if (to <= from)
        return 0;
    return static_cast<std::uint64_t>(Wide(flow.delivered_bytes - flow.delivered_at_warmup) * 8 *
                                      sec / (to - from));
}

std::uint64_t mean_queue(const Sim& sim, const Port& port) {
    Time from = static_cast<Time>(sim.params.warmup_us * us);
    const PortStats& stats = port.stats();
    std::uint64_t area =
        stats.area + port.queued_bytes() * ((sim.now() - std::max(stats.area_at, from)) >> 10);
    return sim.now() > from ? static_cast<std::uint64_t>(Wide(area) * 1024 / (sim.now() - from))
                            : 0;
}

// The value below which p percent of the sorted ones lie.
Time percentile(const std::vector<Time>& sorted, unsigned p) {
    return sorted[std::min(sorted.size() - 1, sorted.size() * p / 100)];
}

} // namespace

std::uint64_t resident_bytes() {
    std::ifstream in("/proc/self/statm");
    std::uint64_t total = 0, resident = 0;
    in >> total >> resident;
    return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void write_json(const Sim& sim, const RunCost& cost, bool wall_time, const std::string& file) {
    Output out(file);
    out.print("{{\"events\":{}", sim.events.executed());
    if (wall_time)
        out.print(",\"seconds\":{:.6f},\"cpu_seconds\":{:.6f},\"memory_bytes\":{}", cost.seconds,
                  cost.cpu_seconds, cost.memory_bytes);
    std::uint64_t drops = 0, trims = 0, marks = 0, peak = 0;
    for (const Port* port : sim.network->ports()) {
        drops += port->stats().drops;
        trims += port->stats().trims;
        marks += port->stats().marks;
        if (port->queue().discipline != Discipline::nic)
            peak = std::max(peak, port->stats().peak_bytes);
    }
    out.print(
        ",\"seed\":{},\"hosts\":{},\"simulated_us\":{},\"drops\":{},\"trims\":{},\"marks\":{},"
        "\"queue_peak_bytes\":{},\"flows\":[",
        sim.params.seed, sim.hosts.size(), us_text(sim.now()), drops, trims, marks, peak);
    const char* comma = "";
    for (const auto& flow : sim.flows) {
        out.print("{}\n{{\"id\":{},\"src\":{},\"dst\":{},\"transport\":\"{}\",\"start_us\":{},",
                  comma, flow->id, flow->src, flow->dst, transport_name(flow->transport),
                  us_text(flow->start));
        if (flow->done())
            out.print("\"fct_us\":{},", us_text(flow->end - flow->start));
        else
            out.print("\"fct_us\":null,");
        out.print("\"bytes\":{},\"delivered_bytes\":{},\"throughput_bps\":{},\"packets\":{},"
                  "\"retransmissions\":{},\"timeouts\":{},\"drops\":{},\"trims\":{},\"marks\":{},"
                  "\"edge_drops\":{},\"edge_retransmissions\":{},\"reorder_depth\":{}}}",
                  flow->bytes, flow->delivered_bytes, throughput(sim, *flow), flow->packets,
                  flow->retransmissions, flow->timeouts, flow->drops, flow->trims, flow->marks,
                  flow->edge_drops, flow->edge_retransmissions, flow->reorder_depth);
        comma = ",";
    }
    out.print("\n]}}\n");
    out.close();
}

void write_csv(const Sim& sim, const std::string& file) {
    Output out(file);
    out.print("id,src,dst,transport,bytes,start_us,fct_us,delivered_bytes,throughput_bps,packets,"
              "retransmissions,timeouts,drops,trims,marks,edge_drops,edge_retransmissions,reorder_"
              "depth\n");
    for (const auto& flow : sim.flows) {
        out.print("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", flow->id, flow->src,
                  flow->dst, transport_name(flow->transport), flow->bytes, us_text(flow->start),
                  flow->done() ? us_text(flow->end - flow->start) : "", flow->delivered_bytes,
                  throughput(sim, *flow), flow->packets, flow->retransmissions, flow->timeouts,
                  flow->drops, flow->trims, flow->marks, flow->edge_drops,
                  flow->edge_retransmissions, flow->reorder_depth);
    }
    out.close();
}

void write_ports_csv(const Sim& sim, const std::string& file) {
    Output out(file);
    out.print("port,gbps,sent_packets,sent_bytes,peak_bytes,mean_bytes,drops,trims,marks\n");
    for (const Port* port : sim.network->ports()) {
        const PortStats& stats = port->stats();
        out.print("{},{},{},{},{},{},{},{},{}\n", sim.network->port_name(port->id()),
                  static_cast<double>(port->bits_per_second()) / 1e9, stats.sent_packets,
                  stats.sent_bytes, stats.peak_bytes, mean_queue(sim, *port), stats.drops,
                  stats.trims, stats.marks);
    }
    out.close();
}

void write_samples_csv(const Sim& sim, const std::string& file) {
    Output out(file);
    out.print("id,rtt_us\n");
    for (const auto& flow : sim.flows) {
        for (Time rtt : flow->rtts)
            out.print("{},{}\n", flow->id, us_text(rtt));
    }
    out.close();
}

void print_summary(const Sim& sim, const RunCost& cost) {
    std::vector<Time> fcts, pings, operations;
    Wide sum = 0, squares = 0;
    std::uint64_t count = 0, retransmissions = 0, packets = 0, drops = 0, trims = 0;
    for (const auto& flow : sim.flows) {
        if (flow->done())
            fcts.push_back(flow->end - flow->start);
        auto& times = flow->transport == Transport::ping ? pings : operations;
        times.insert(times.end(), flow->rtts.begin(), flow->rtts.end());
        retransmissions += flow->retransmissions;
        packets += flow->packets;
        drops += flow->drops;
        trims += flow->trims;
        if (flow->transport == Transport::ping)
            continue;
        Wide rate = throughput(sim, *flow) / 1000;
        sum += rate;
        squares += rate * rate;
        count++;
    }
    auto line = [](const char* what, std::vector<Time>& values) {
        if (values.empty())
            return;
        std::sort(values.begin(), values.end());
        fmt::print("{}: min {} median {} p95 {} p99 {} max {} us ({})\n", what, us_text(values[0]),
                   us_text(percentile(values, 50)), us_text(percentile(values, 95)),
                   us_text(percentile(values, 99)), us_text(values.back()), values.size());
    };
    line("flow completion", fcts);
    line("ping", pings);
    line("remote memory operation", operations);
    if (count && squares)
        fmt::print("throughput: mean {:.3f} Gb/s over {} flows, Jain's index {:.4f}\n",
                   static_cast<double>(sum) / static_cast<double>(count) / 1e6, count,
                   static_cast<double>(sum) * static_cast<double>(sum) /
                       static_cast<double>(count) / static_cast<double>(squares));
    fmt::print("packets: {} sent, {} of them again; {} dropped, {} trimmed in the network\n",
               packets, retransmissions, drops, trims);
    fmt::print("{} us simulated, {} events in {:.2f} s, {:.2f} s of CPU: {:.2f} million per CPU "
               "second; {} KiB per host\n",
               us_text(sim.now()), sim.events.executed(), cost.seconds, cost.cpu_seconds,
               static_cast<double>(sim.events.executed()) / cost.cpu_seconds / 1e6,
               cost.memory_bytes / sim.hosts.size() / 1024);
    if (sim.unfinished)
        fmt::print("{} flows did not finish\n", sim.unfinished);
}

} // namespace sim
