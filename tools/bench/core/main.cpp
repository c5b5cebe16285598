// SPDX-License-Identifier: GPL-2.0
// Benchmarks of the protocol core, without network, kernel or other machine.
//
//   bench-core [--benchmark_out=FILE] [other options of Google Benchmark]
//
// FILE gets the rows of every bench here (tools/bench/report.py): the median of the repetitions, or
// the only run.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

namespace {

class Rows : public benchmark::BenchmarkReporter {
public:
    bool ReportContext(const Context&) override { return true; }

    void ReportRuns(const std::vector<Run>& runs) override {
        for (const Run& run : runs) {
            if (run.error_occurred)
                continue;
            bool median = run.run_type == Run::RT_Aggregate && run.aggregate_name == "median";
            if (median || (run.run_type == Run::RT_Iteration && run.repetitions <= 1))
                figures_[run.run_name.function_name] = run.GetAdjustedCPUTime();
        }
    }

    void Finalize() override {
        nlohmann::ordered_json rows = nlohmann::ordered_json::array();
        for (const auto& [name, ns] : figures_)
            rows.push_back({{"case", name},
                            {"metric", "ns"},
                            {"unit", "ns"},
                            {"better", "lower"},
                            {"ours", std::round(ns * 10) / 10},
                            {"peers", nlohmann::ordered_json::object()}});
        nlohmann::ordered_json all = {{"bench", "core"}, {"rows", rows}};
        GetOutputStream() << all.dump(1) << "\n";
    }

private:
    std::map<std::string, double> figures_;
};

// The table on the screen; knows whether a case refused to be measured.
class Screen : public benchmark::ConsoleReporter {
public:
    Screen() : ConsoleReporter(OO_None) {}

    void ReportRuns(const std::vector<Run>& runs) override {
        failed |= std::any_of(runs.begin(), runs.end(),
                              [](const Run& run) { return run.error_occurred; });
        ConsoleReporter::ReportRuns(runs);
    }
    bool failed = false;
};

} // namespace

int main(int argc, char** argv) {
    bool wants_rows = false;
    for (int n = 1; n < argc; n++)
        wants_rows |= std::string(argv[n]).starts_with("--benchmark_out=");
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    Screen screen;
    Rows rows;
    benchmark::RunSpecifiedBenchmarks(&screen, wants_rows ? &rows : nullptr);
    return screen.failed ? 1 : 0;
}
