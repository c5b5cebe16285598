// SPDX-License-Identifier: GPL-2.0
#include "sim/message/message_report.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>

#include <fmt/format.h>

#include "sim/message/lone.hpp"
#include "sim/message/table1.hpp"
#include "sim/network.hpp"
#include "support/failure.hpp"

namespace sim {

using remora::Failure;

namespace {

// The reported figures of a set of values.
struct Figures {
    double mean = 0, p50 = 0, p99 = 0, p999 = 0, max = 0;
};

Figures figures(std::vector<double>& values) {
    Figures result;
    if (values.empty())
        return result;
    std::sort(values.begin(), values.end());
    for (double value : values)
        result.mean += value;
    result.mean /= static_cast<double>(values.size());
    auto at = [&](std::size_t permille) {
        return values[std::min(values.size() - 1, values.size() * permille / 1000)];
    };
    result.p50 = at(500);
    result.p99 = at(990);
    result.p999 = at(999);
    result.max = values.back();
    return result;
}

std::string text_of(const Figures& f) {
    return fmt::format(
        "{{\"mean\":{:.4f},\"p50\":{:.4f},\"p99\":{:.4f},\"p999\":{:.4f},\"max\":{:.4f}}}", f.mean,
        f.p50, f.p99, f.p999, f.max);
}

// The messages of one type, or of all.
struct Class {
    const char* name;
    std::vector<double> ns, slowdown, ideal;
};

// slowdown: relative to a lone message of the same transport; ideal: to a lone one of EDM.
std::vector<Class> classes(const Params& params, const std::vector<Sample>& samples) {
    std::vector<Class> result{{"read", {}, {}, {}}, {"write", {}, {}, {}}, {"all", {}, {}, {}}};
    Lone own(params, params.transport), edm(params, "edm");
    for (const Sample& sample : samples) {
        const auto latency = static_cast<double>(sample.latency);
        const auto alone = static_cast<double>(own.of(sample.read, sample.bytes, sample.far));
        const auto ideal = static_cast<double>(edm.of(sample.read, sample.bytes, sample.far));
        for (Class* one : {&result[sample.read ? 0 : 1], &result[2]}) {
            one->ns.push_back(latency / 1000);
            one->slowdown.push_back(latency / alone);
            one->ideal.push_back(latency / ideal);
        }
    }
    return result;
}

class File {
public:
    explicit File(const std::string& name)
        : name_(name), file_(name == "-" ? stdout : std::fopen(name.c_str(), "w")) {
        if (!file_)
            throw Failure("{}: can't be written", name);
    }
    ~File() {
        if (file_ && file_ != stdout)
            std::fclose(file_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    void write(const std::string& text) { std::fputs(text.c_str(), file_); }
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

std::string head_text(const Sim& sim, Messages& messages, const RunCost& cost, bool wall_time) {
    std::string text = fmt::format("{{\"events\":{}", sim.events.executed());
    if (wall_time)
        text += fmt::format(",\"seconds\":{:.6f},\"cpu_seconds\":{:.6f},\"memory_bytes\":{}",
                            cost.seconds, cost.cpu_seconds, cost.memory_bytes);
    std::uint64_t drops = 0, trims = 0, marks = 0;
    for (const Port* port : sim.network->ports()) {
        drops += port->stats().drops;
        trims += port->stats().trims;
        marks += port->stats().marks;
    }
    const auto window = static_cast<double>(std::max<Time>(messages.measured_time(), 1));
    text += fmt::format(
        ",\"seed\":{},\"hosts\":{},\"transport\":\"{}\",\"load\":{},\"messages\":{},\"issued\":{},"
        "\"in_flight_peak\":{},\"simulated_us\":{:.3f},\"messages_per_us_host\":{:.3f},"
        "\"goodput_gbps_host\":{:.4f},\"drops\":{},\"trims\":{},\"marks\":{},"
        "\"egress_peak_bytes\":{}",
        sim.params.seed, sim.hosts.size(), sim.params.transport, sim.params.load,
        messages.samples().size(), messages.issued(), messages.in_flight_peak(),
        static_cast<double>(sim.now()) / us,
        static_cast<double>(messages.samples().size()) / (window / us) /
            static_cast<double>(sim.hosts.size()),
        static_cast<double>(messages.goodput_bytes()) * 8000 / window /
            static_cast<double>(sim.hosts.size()),
        drops, trims, marks, messages.carrier().egress_peak_bytes());
    const Wire wire = messages.mean_wire();
    text += fmt::format(",\"wire_bytes\":{{\"requester_tx\":{:.2f},\"requester_rx\":{:.2f},"
                        "\"memory_tx\":{:.2f},\"memory_rx\":{:.2f}}}",
                        wire.requester_tx, wire.requester_rx, wire.memory_tx, wire.memory_rx);
    for (const auto& [name, value] : messages.carrier().counts())
        text += fmt::format(",\"{}\":{}", name, value);
    return text;
}

void write_messages_csv(const Params& params, const std::vector<Sample>& samples,
                        const std::string& file) {
    Lone own(params, params.transport);
    File out(file);
    out.write("id,type,bytes,ns,slowdown\n");
    for (const Sample& sample : samples)
        out.write(fmt::format(
            "{},{},{},{:.3f},{:.4f}\n", sample.trace_line, sample.read ? "read" : "write",
            sample.bytes, static_cast<double>(sample.latency) / 1000,
            static_cast<double>(sample.latency) /
                static_cast<double>(own.of(sample.read, sample.bytes, sample.far))));
    out.close();
}

void write_table1(const Params& params, const std::string& file) {
    File out(file);
    out.write("stack,line,read_ns,write_ns\n");
    for (const Table1Row& row : table1(params))
        out.write(fmt::format("{},\"{}\",{:.2f},{:.2f}\n", row.stack, row.line,
                              static_cast<double>(row.read) / 1000,
                              static_cast<double>(row.write) / 1000));
    out.close();
}

void print_class(Class& one) {
    const std::size_t count = one.ns.size();
    if (!count)
        return;
    const Figures ns = figures(one.ns), slow = figures(one.slowdown), ideal = figures(one.ideal);
    fmt::print("{:5}: {} messages, ns mean {:.1f} p50 {:.1f} p99 {:.1f} p99.9 {:.1f} max {:.1f}\n",
               one.name, count, ns.mean, ns.p50, ns.p99, ns.p999, ns.max);
    fmt::print("       slowdown mean {:.3f} p50 {:.3f} p99 {:.3f} p99.9 {:.3f} max {:.3f}; beside "
               "a lone EDM message {:.3f}\n",
               slow.mean, slow.p50, slow.p99, slow.p999, slow.max, ideal.mean);
}

} // namespace

void simulate_messages(const Options& options) {
    if (!options.table1.empty()) {
        write_table1(options.params, options.table1);
        return;
    }
    using Clock = std::chrono::steady_clock;
    const auto begun = Clock::now();
    const std::clock_t cpu_begun = std::clock();
    Sim sim(message_params(options.params));
    Messages messages(sim);
    messages.run([&] {
        if (options.params.check)
            messages.carrier().check(false);
        if (options.progress)
            fmt::print(stderr, "\r{} us, {} messages ", sim.now() / us, messages.issued());
    });
    RunCost cost;
    cost.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    cost.cpu_seconds = static_cast<double>(std::clock() - cpu_begun) / CLOCKS_PER_SEC;
    cost.memory_bytes = resident_bytes();
    if (!options.csv.empty())
        write_messages_csv(options.params, messages.samples(), options.csv);
    std::vector<Class> all = classes(options.params, messages.samples());
    if (!options.json.empty()) {
        File out(options.json);
        out.write(head_text(sim, messages, cost, options.wall_time));
        for (Class& one : all)
            out.write(
                fmt::format(",\n\"{}\":{{\"count\":{},\"ns\":{},\"slowdown\":{},\"ideal\":{}}}",
                            one.name, one.ns.size(), text_of(figures(one.ns)),
                            text_of(figures(one.slowdown)), text_of(figures(one.ideal))));
        out.write("}\n");
        out.close();
    }
    if (options.quiet || options.json == "-")
        return;
    for (Class& one : all)
        print_class(one);
    fmt::print("{} events in {:.2f} s of CPU: {:.2f} million a second\n", sim.events.executed(),
               cost.cpu_seconds,
               static_cast<double>(sim.events.executed()) / cost.cpu_seconds / 1e6);
}

} // namespace sim
