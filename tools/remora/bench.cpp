// SPDX-License-Identifier: GPL-2.0
#include "remora/bench.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

#include "remora/commands.hpp"
#include "remora/devices.hpp"
#include "remora/signals.hpp"
#include "remora/table.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct BenchOptions {
    std::string target, bytes = "4K", region = "64M", depth = "32", seconds = "3";
    bool write = false, json = false, io_cost = false;
};

struct Run {
    BenchSize size;
    bool write = false, sequential = false;
    double seconds = 1;
};

struct Result {
    std::vector<std::uint64_t> times_ns; // of each operation, in ascending order
    double per_s = 0;

    std::uint64_t percentile_ns(double p) const {
        return times_ns[static_cast<std::size_t>(p * static_cast<double>(times_ns.size() - 1))];
    }
};

bool is_device(const std::string& target) {
    return target.starts_with("/");
}

std::unique_ptr<BenchTarget> open_target(const BenchOptions& options, const Run& run, bool writes) {
    if (is_device(options.target))
        return bench_device(options.target, writes, run.size);
    return bench_remote(options.target, parse_size(options.region), run.size);
}

// Offsets at random, the same ones each time; or one after the other.
class Offsets {
public:
    Offsets(std::uint64_t bytes, const Run& run)
        : places_(bytes / run.size.bytes), bytes_(run.size.bytes), sequential_(run.sequential) {
        if (!places_)
            throw Failure("the target is smaller than an operation");
    }
    std::uint64_t next() {
        at_ = sequential_ ? (at_ + 1) % places_ : random_() % places_;
        return at_ * bytes_;
    }

private:
    std::uint64_t places_, bytes_, at_ = 0;
    bool sequential_;
    std::mt19937_64 random_;
};

// A tenth of the time goes before, unmeasured. Each operation that ends is followed by another.
Result measure(BenchTarget& target, const Run& run) {
    Offsets offsets(target.bytes(), run);
    std::vector<Clock::time_point> begun(run.size.depth);
    auto begin = [&](unsigned slot) {
        begun[slot] = Clock::now();
        target.begin(slot, offsets.next(), run.write);
    };
    auto after = [](Clock::time_point from, double seconds) {
        return from +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    Result result;
    const Clock::time_point warm = after(Clock::now(), run.seconds / 10);
    const Clock::time_point until = after(warm, run.seconds);
    unsigned under_way = 0;
    for (; under_way < run.size.depth; under_way++)
        begin(under_way);
    while (under_way) {
        if (signalled)
            throw Failure("interrupted");
        for (const unsigned slot : target.wait()) {
            const Clock::time_point now = Clock::now();
            if (now >= warm && now < until)
                result.times_ns.push_back(static_cast<std::uint64_t>((now - begun[slot]).count()));
            if (now < until)
                begin(slot);
            else
                under_way--;
        }
    }
    if (result.times_ns.empty())
        throw Failure("no operation ended in that time: give it more --seconds");
    std::ranges::sort(result.times_ns);
    result.per_s = static_cast<double>(result.times_ns.size()) / run.seconds;
    return result;
}

// ---- output ----

constexpr std::pair<const char*, double> percentiles[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}};

// Buckets as of RMEM_A_TIMES; those without operations are left out.
Json histogram_json(const Result& result) {
    Json buckets = Json::array();
    std::size_t bucket = 0;
    auto at = result.times_ns.begin();
    while (at != result.times_ns.end()) {
        while (times_bound_ns(bucket) <= *at)
            bucket++;
        const auto end = std::lower_bound(at, result.times_ns.end(), times_bound_ns(bucket));
        buckets.push_back({{"below_ns", times_bound_ns(bucket)}, {"count", end - at}});
        at = end;
    }
    return buckets;
}

Json result_json(const Run& run, const Result& result) {
    Json json = {{"depth", run.size.depth},
                 {"per_s", result.per_s},
                 {"bytes_per_s", result.per_s * run.size.bytes}};
    for (const auto& [name, p] : percentiles)
        json[fmt::format("{}_ns", name)] = result.percentile_ns(p);
    json["histogram"] = histogram_json(result);
    return json;
}

void bench_rates(const BenchOptions& options, Run run) {
    Json runs = Json::array();
    Table table({"DEPTH", "OP/S", "MB/S", "P50", "P90", "P99", "P99.9", "MAX"});
    const unsigned deepest = run.size.depth;
    for (const unsigned depth : {1U, deepest}) {
        if (depth == deepest && !runs.empty() && deepest == 1)
            break;
        run.size.depth = depth;
        const auto target = open_target(options, run, run.write);
        const Result result = measure(*target, run);
        runs.push_back(result_json(run, result));
        std::vector<std::string> row = {fmt::to_string(depth), fmt::format("{:.0f}", result.per_s),
                                        fmt::format("{:.1f}", result.per_s * run.size.bytes / 1e6)};
        for (const auto& [name, p] : percentiles)
            row.push_back(time_text(result.percentile_ns(p)));
        table.add(std::move(row));
    }
    if (options.json)
        fmt::print("{}\n", Json{{"target", options.target},
                                {"operation", run.write ? "write" : "read"},
                                {"bytes", run.size.bytes},
                                {"seconds", run.seconds},
                                {"runs", runs}}
                               .dump(2));
    else
        table.print();
}

// A line for /sys/fs/cgroup/io.cost.model, measured as the kernel's iocost_coef_gen.py does.
void bench_io_cost(const BenchOptions& options, double seconds) {
    struct Figure {
        const char* name;
        bool write, sequential;
        std::uint32_t bytes;
        bool in_bytes;
    };
    static constexpr Figure figures[] = {
        {"rbps", false, true, 128 << 10, true},   {"rseqiops", false, true, 4096, false},
        {"rrandiops", false, false, 4096, false}, {"wbps", true, true, 128 << 10, true},
        {"wseqiops", true, true, 4096, false},    {"wrandiops", true, false, 4096, false},
    };
    std::string line =
        fmt::format("{} ctrl=user model=linear", bench_device_number(options.target));
    for (const Figure& figure : figures) {
        const Run run{{figure.bytes, 64}, figure.write, figure.sequential, seconds};
        const double per_s = measure(*open_target(options, run, true), run).per_s;
        line +=
            fmt::format(" {}={:.0f}", figure.name, figure.in_bytes ? per_s * figure.bytes : per_s);
    }
    fmt::print("{}\n", line);
}

void bench(const BenchOptions& options) {
    const double seconds = parse_seconds_ms(options.seconds, 10, 3600'000, "--seconds") / 1e3;
    if (options.io_cost) {
        if (!is_device(options.target) || !options.write)
            throw Misuse("--io-cost measures a block device, and writes to it: remora bench "
                         "/dev/rmb0 --io-cost --write");
        return bench_io_cost(options, seconds);
    }
    const std::uint64_t bytes = parse_size(options.bytes);
    if (!bytes || bytes > (1 << 24) || (is_device(options.target) && bytes % 4096))
        throw Misuse("--bytes {}: write 1 to 16M, of a device a multiple of 4096", options.bytes);
    const auto depth = static_cast<unsigned>(parse_number(options.depth, 1, 1024, "--depth"));
    bench_rates(options,
                {{static_cast<std::uint32_t>(bytes), depth}, options.write, false, seconds});
}

} // namespace

void add_bench_command(CLI::App& program) {
    CLI::App* command =
        program.add_subcommand("bench", "Measure a device or a node: rates and percentiles");
    auto options = std::make_shared<BenchOptions>();
    command
        ->add_option("TARGET", options->target,
                     "/dev/rmb0, or as udp:10.0.0.2,key=FILE, dev:/dev/rmem0, embedded:size=1G")
        ->required();
    command->add_option("--bytes", options->bytes, "SIZE of an operation; default 4K");
    command->add_option("--depth", options->depth,
                        "Operations in flight in the second measurement; default 32");
    command->add_option("--seconds", options->seconds, "SECONDS of each measurement; default 3");
    command->add_option("--region", options->region,
                        "SIZE of the region allocated at a node; default 64M");
    command->add_flag("--write", options->write, "Write, not read; destroys a device's content");
    command->add_flag("--json", options->json, "Print JSON, with histograms");
    command->add_flag("--io-cost", options->io_cost,
                      "Print a line for io.cost.model of a device, with --write");
    command->callback([options] { bench(*options); });
}

} // namespace remora
