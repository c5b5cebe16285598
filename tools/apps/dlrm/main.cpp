// SPDX-License-Identifier: GPL-2.0
// remora-dlrm: inferences of a recommendation model whose embedding rows lie in remote memory. Exit
// code 0: all answers were right, 1: failure, 2: wrong usage.
#include <climits>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/dlrm/inference.hpp"
#include "common/cpu_time.hpp"
#include "common/program.hpp"
#include "common/version.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::dlrm {

namespace {

constexpr std::size_t pool_queries = 20000, check_queries = 2000;
constexpr std::uint64_t items_min = 64, items_max = 1 << 28;

struct Options {
    std::string target, items = "352000", rows = "f32", by = "query,read,local,floor", past = "0",
                        messages = "64", rounds = "1", seed = "1", node = "0";
    double seconds = 1;
    bool check = false, json = false;
};

// Bytes that this network namespace's interfaces have carried; the loopback counts each once.
double wire_bytes() {
    std::ifstream file("/proc/self/net/dev");
    std::uint64_t sum = 0;
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        if (colon == line.npos)
            continue;
        std::istringstream words(line.substr(colon + 1));
        std::array<std::uint64_t, 9> count{};
        for (std::uint64_t& each : count)
            words >> each;
        const std::string name = line.substr(line.find_first_not_of(' '));
        sum += count[8] + (name.starts_with("lo:") ? 0 : count[0]);
    }
    return static_cast<double>(sum);
}

// Use of the network and of processors so far.
struct Use {
    explicit Use(pid_t node)
        : wire(wire_bytes()),
          own_ns(process_cpu_ns(getpid())),
          node_ns(node ? process_cpu_ns(node) : 0) {}
    Use(double wire, double own_ns, double node_ns)
        : wire(wire), own_ns(own_ns), node_ns(node_ns) {}
    Use since(const Use& before, double queries) const {
        return {(wire - before.wire) / queries, (own_ns - before.own_ns) / queries,
                (node_ns - before.node_ns) / queries};
    }
    double wire, own_ns, node_ns;
};

struct Run {
    std::string by;
    bool memo;
    std::function<Tally(const Limits&)> run;
};

class Bench {
public:
    explicit Bench(const Options& options)
        : shape_{parse_format(options.rows), static_cast<std::uint32_t>(parse_number(
                                                 options.items, items_min, items_max, "--items"))},
          data_(shape_.rows, parse_number(options.seed, 0, UINT64_MAX, "--seed")),
          past_(data_.queries(past_count(options))),
          pool_(shape_.format, data_.queries(options.check ? check_queries : pool_queries)),
          memo_(shape_.rows, past_, shape_.entries_max()),
          local_(shape_, memo_),
          node_(open(options.target)),
          remote_(node_, local_) {
        const std::size_t messages = parse_number(options.messages, 1, 128, "--messages");
        const unsigned groups = Inference::groups_max(node_.get(), remote_);
        reader_.emplace(node_.get(), remote_, pool_, messages);
        plain_.emplace(node_.get(), remote_, pool_, nullptr, messages, groups);
        with_memo_.emplace(node_.get(), remote_, pool_, &memo_, messages, groups);
        std::istringstream names(options.by);
        for (std::string name; std::getline(names, name, ',');)
            add(name);
    }

    const std::vector<Run>& runs() const { return runs_; }
    const Shape& shape() const { return shape_; }
    std::uint32_t entries() const { return memo_.entries(); }

private:
    static Format parse_format(const std::string& text) {
        if (text != "i8" && text != "f32")
            throw Misuse("--rows: '{}' is no kind of numbers: use i8 or f32", text);
        return text == "i8" ? Format::i8 : Format::f32;
    }
    // Enough to see the popular clusters several times.
    std::size_t past_count(const Options& options) const {
        const std::uint64_t given = parse_number(options.past, 0, 10'000'000, "--past");
        return given ? given : std::max<std::size_t>(1000, shape_.rows / 8);
    }
    static remote::handle open(const std::string& target) {
        remote_options options{};
        options.size = sizeof(options);
        options.integrity = REMOTE_LINK; // as others that are measured: the checksum of the network
        auto node = remote::handle::open(target.c_str(), &options);
        if (!node)
            throw Failure("can't open '{}': {}", target, remote_why());
        return std::move(*node);
    }
    void add(const std::string& name) {
        if (name == "query") {
            runs_.push_back({name, false, [&](const Limits& most) { return plain_->run(most); }});
            runs_.push_back(
                {name, true, [&](const Limits& most) { return with_memo_->run(most); }});
        } else if (name == "read") {
            runs_.push_back({name, false, [&](const Limits& most) { return reader_->run(most); }});
        } else if (name == "local") {
            for (Memo* memo : {static_cast<Memo*>(nullptr), &memo_})
                runs_.push_back({name, memo != nullptr, [this, memo](const Limits& most) {
                                     return run_local(pool_, local_, memo, most);
                                 }});
        } else if (name == "floor") {
            runs_.push_back(
                {name, false, [&](const Limits& most) { return plain_->run_empty(most); }});
        } else {
            throw Misuse("--by: '{}' is no way to answer: use query, read, local or floor", name);
        }
    }

    const Shape shape_;
    Data data_;
    const Queries past_;
    const Pool pool_;
    Memo memo_;
    const LocalTable local_;
    remote::handle node_;
    RemoteTable remote_;
    std::optional<Reader> reader_;
    std::optional<Inference> plain_, with_memo_;
    std::vector<Run> runs_;
};

void print(const Run& run, const Tally& tally, const Use& use, bool json) {
    const double queries = static_cast<double>(tally.queries);
    const double rate = queries / tally.seconds, accesses = double(tally.accesses) / queries;
    if (json)
        fmt::print("{}\n", nlohmann::ordered_json{{"by", run.by},
                                                  {"memo", run.memo},
                                                  {"queries_per_s", rate},
                                                  {"accesses", accesses},
                                                  {"wire_bytes", use.wire},
                                                  {"own_cpu_ns", use.own_ns},
                                                  {"node_cpu_ns", use.node_ns}}
                               .dump());
    else
        fmt::print("{:<8}{:<6}{:>12.0f}{:>12.1f}{:>12.0f}{:>12.0f}{:>12.0f}\n", run.by,
                   run.memo ? "memo" : "rows", rate, accesses, use.wire, use.own_ns, use.node_ns);
    std::fflush(stdout);
}

void serve(const Options& options) {
    if (!(options.seconds > 0))
        throw Misuse("--seconds: give a time above 0");
    const std::uint64_t rounds = parse_number(options.rounds, 1, 1000, "--rounds");
    const auto node = static_cast<pid_t>(parse_number(options.node, 0, INT_MAX, "--node"));
    if (node)
        process_cpu_ns(node); // is there one?
    const Bench bench(options);
    if (!options.json)
        fmt::print("{} items, rows of {} bytes, {} memo entries of {}\n"
                   "{:<14}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
                   bench.shape().rows, bench.shape().row_bytes(), bench.entries(),
                   bench.shape().memo_bytes(), "by", "queries/s", "accesses", "wire bytes",
                   "CPU here ns", "at node ns");
    const Limits limits = options.check
                              ? Limits{std::numeric_limits<double>::infinity(), check_queries}
                              : Limits{options.seconds, SIZE_MAX};
    for (std::uint64_t round = 0; round < rounds; round++) {
        // The ways take turns; each round begins with another one.
        for (std::size_t n = 0; n < bench.runs().size(); n++) {
            const Run& run = bench.runs()[(n + round) % bench.runs().size()];
            const Use before(node);
            const Tally tally = run.run(limits);
            print(run, tally, Use(node).since(before, static_cast<double>(tally.queries)),
                  options.json);
        }
    }
}

int run(int argc, char** argv) {
    CLI::App program("Sums embedding rows that lie in remote memory, and checks every sum.",
                     "remora-dlrm");
    Options options;
    program.set_version_flag("--version", version);
    program.add_option("TARGET", options.target, "udp:HOST[:PORT],key=FILE or shm:PATH,key=FILE")
        ->required();
    program.add_option("--items", options.items, "N embedding rows; default 352000");
    program.add_option("--rows", options.rows, "KIND of their numbers: i8 or f32, the default");
    program.add_option("--by", options.by,
                       "WAYS to answer, of query, read, local and floor; default all");
    program.add_option("--past", options.past,
                       "N queries to make the memo from; default an eighth of the items");
    program.add_option("--messages", options.messages, "N messages under way; default 64");
    program.add_option("--seconds", options.seconds, "SECONDS for each way; default 1");
    program.add_option("--rounds", options.rounds, "N turns of all ways; default 1");
    program.add_option("--seed", options.seed, "N, of the data; default 1");
    program.add_option("--node", options.node,
                       "PID of a node on this machine, to tell its CPU time");
    program.add_flag("--check", options.check, "Answer 2000 queries in each way");
    program.add_flag("--json", options.json, "Print lines of JSON");
    if (!parse_command_line(program, argc, argv))
        return 0;
    serve(options);
    return 0;
}

} // namespace

} // namespace remora::dlrm

int main(int argc, char** argv) {
    return remora::run_program("remora-dlrm", [&] { return remora::dlrm::run(argc, argv); });
}
