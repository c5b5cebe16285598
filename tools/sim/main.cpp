// SPDX-License-Identifier: GPL-2.0
// remora-sim: one run, or one per seed. One line on standard error says what went wrong; exit code
// 0: done, 1: failed, 2: asked for wrongly.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "sim/message/message_report.hpp"
#include "sim/network.hpp"
#include "sim/options.hpp"
#include "sim/report.hpp"
#include "sim/trace.hpp"
#include "sim/workload.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/say.hpp"

namespace {

using remora::Failure;
using sim::Options;

int complain(int code, const char* text) {
    remora::warn("remora-sim: {}", text);
    return code;
}

void show_progress(const sim::Sim& sim) {
    fmt::print(stderr, "\r{} us, {} million events, {} of {} flows left ", sim.now() / sim::us,
               sim.events.executed() / 1'000'000, sim.unfinished, sim.flows.size());
    std::fflush(stderr);
}

std::unique_ptr<sim::Trace> start_trace(sim::Sim& sim, const Options& options) {
    if (options.trace.empty() && options.pcap.empty())
        return nullptr;
    for (const auto& flow : sim.flows) {
        if (flow->id == options.watch)
            return std::make_unique<sim::Trace>(sim, flow->index, options.trace, options.pcap);
    }
    // A closed loop makes its flows as it goes, with ids in that order.
    if (options.params.workload == "closed-loop" && options.watch)
        return std::make_unique<sim::Trace>(sim, static_cast<std::uint32_t>(options.watch - 1),
                                            options.trace, options.pcap);
    throw Failure("watch {}: no flow has that id", options.watch);
}

void simulate(Options options) {
    if (options.params.workload == "messages") {
        sim::simulate_messages(options);
        return;
    }
    using Clock = std::chrono::steady_clock;
    std::uint64_t before = sim::resident_bytes();
    auto begun = Clock::now();
    std::clock_t cpu_begun = std::clock();
    if (std::uint32_t hosts = sim::Workload::hosts_needed(options.params)) {
        if (!options.params.hosts)
            options.params.hosts = hosts;
        if (std::uint64_t there = sim::Network::host_count(options.params); there < hosts)
            throw Failure("the matrix has {} nodes, the topology {} hosts", hosts, there);
    }
    sim::Sim sim(options.params);
    sim::Workload workload(sim);
    std::unique_ptr<sim::Trace> trace = start_trace(sim, options);
    sim.run([&] {
        if (options.progress)
            show_progress(sim);
    });
    if (options.progress)
        fmt::print(stderr, "\n");
    sim::RunCost cost;
    cost.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    cost.cpu_seconds = static_cast<double>(std::clock() - cpu_begun) / CLOCKS_PER_SEC;
    cost.memory_bytes = sim::resident_bytes() - before;
    if (trace) {
        trace->close();
        if (sim.watched_flow >= sim.flows.size())
            throw Failure("watch {}: there were {} flows", options.watch, sim.flows.size());
    }
    if (!options.json.empty())
        write_json(sim, cost, options.wall_time, options.json);
    if (!options.csv.empty())
        write_csv(sim, options.csv);
    if (!options.ports_csv.empty())
        write_ports_csv(sim, options.ports_csv);
    if (!options.samples_csv.empty())
        write_samples_csv(sim, options.samples_csv);
    if (!options.quiet && options.json != "-")
        print_summary(sim, cost);
}

// NAME.SUFFIX as NAME.SEED.SUFFIX.
std::string with_seed(const std::string& file, std::uint64_t seed) {
    if (file.empty())
        return file;
    std::size_t dot = file.rfind('.'), slash = file.rfind('/');
    if (dot == std::string::npos || (slash != std::string::npos && dot < slash))
        return fmt::format("{}.{}", file, seed);
    return fmt::format("{}.{}{}", file.substr(0, dot), seed, file.substr(dot));
}

int run_one(const Options& options);

// One process per seed; returns the worst exit code.
int run_seeds(const Options& options) {
    std::size_t dash = options.seeds.find('-');
    auto first = remora::parse_number(options.seeds.substr(0, dash), 0, ~0ull, "seeds");
    auto last = dash == std::string::npos
                    ? first
                    : remora::parse_number(options.seeds.substr(dash + 1), first, ~0ull, "seeds");
    unsigned jobs = options.jobs ? options.jobs : std::max(1u, std::thread::hardware_concurrency());
    unsigned running = 0;
    int worst = 0;
    auto reap = [&] {
        int status = 0;
        if (wait(&status) < 0)
            throw Failure("can't wait for a process");
        running--;
        worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    };
    for (auto seed = first;; seed++) {
        if (running == jobs)
            reap();
        std::fflush(stdout);
        pid_t child = fork();
        if (child < 0)
            throw Failure("can't start a process for seed {}", seed);
        if (!child) {
            Options one = options;
            one.params.seed = seed;
            for (std::string* file :
                 {&one.json, &one.csv, &one.ports_csv, &one.samples_csv, &one.trace, &one.pcap})
                *file = with_seed(*file, seed);
            int code = run_one(one);
            std::fflush(stdout);
            _exit(code);
        }
        running++;
        if (seed == last)
            break;
    }
    while (running)
        reap();
    return worst;
}

int run_one(const Options& options) {
    try {
        simulate(options);
        if (std::fflush(stdout))
            throw Failure("can't write to standard output");
        return 0;
    } catch (const remora::Misuse& misuse) {
        return complain(2, misuse.what());
    } catch (const sim::Broken& broken) {
        return complain(1, fmt::format("an invariant is broken: {}", broken.what()).c_str());
    } catch (const std::exception& failure) {
        return complain(1, failure.what());
    }
}

} // namespace

int main(int argc, char** argv) {
    try {
        Options options = sim::parse_options({argv + 1, argv + argc});
        return options.seeds.empty() ? run_one(options) : run_seeds(options);
    } catch (const remora::Misuse& misuse) {
        return complain(2, misuse.what());
    } catch (const std::exception& failure) {
        return complain(1, failure.what());
    }
}
