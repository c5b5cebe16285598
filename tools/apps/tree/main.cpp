// SPDX-License-Identifier: GPL-2.0
// remora-tree: builds a radix tree in remote memory, searches it by reads and by the offload in
// turns, and checks each answer. Exit code 0: all were right, 1: failure, 2: wrong usage.
#include <chrono>
#include <memory>
#include <random>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/tree/remote_tree.hpp"
#include "common/program.hpp"
#include "support/parse.hpp"

namespace remora::tree {

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned misses = 8; // of this many searches, one is for a key that isn't there

struct Way {
    const char* name;
    Found (RemoteTree::*find)(std::uint64_t) const;
    std::vector<double> us;
    std::uint64_t levels = 0, trips = 0;
};

void search(const RemoteTree& tree, Way& way, std::uint64_t number, bool there) {
    const auto from = Clock::now();
    const Found found = (tree.*way.find)(number);
    way.us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - from).count());
    if (there != (found.address != 0) || (there && found.value != number))
        throw Failure("by {}, key number {} has the value {} at {:#x}", way.name, number,
                      found.value, found.address);
    way.levels += found.levels;
    way.trips += way.find == &RemoteTree::by_reads ? found.levels : 1;
}

double quantile(std::vector<double>& all, double part) {
    const auto at =
        all.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(all.size() - 1) * part);
    std::ranges::nth_element(all, at);
    return *at;
}

int run(int argc, char** argv) {
    CLI::App program("Builds a radix tree in remote memory and searches it.", "remora-tree");
    std::string target, by = "both";
    std::uint64_t count = 1'000'000, searches = 10'000, seed = 1;
    bool dense = false;
    program.add_option("TARGET", target, "What remote_open() takes: udp:HOST,key=FILE")->required();
    program.add_option("--keys", count, "Keys of the tree; 1000000")
        ->check(CLI::Range(1, 100'000'000));
    program.add_option("--searches", searches, "Searches each way; 10000")
        ->check(CLI::Range(1, 100'000'000));
    program
        .add_option("--by", by,
                    "reads (a round trip a level), query (the node's offload tree, "
                    "one round trip), or both in turns; both")
        ->check(CLI::IsMember({"reads", "query", "both"}));
    program.add_option("--seed", seed, "Of the order of the searches; 1");
    program.add_flag("--dense", dense, "Keys 0, 1, 2 ... in place of random ones");
    if (!parse_command_line(program, argc, argv))
        return 0;
    remote_t* opened = nullptr;
    if (remote_open(&opened, target.c_str(), nullptr))
        throw Failure("{}", remote_why());
    const std::unique_ptr<remote_t, void (*)(remote_t*)> handle(
        opened, [](remote_t* r) { remote_close(r); });
    const auto began = Clock::now();
    const RemoteTree tree(opened, count, dense ? Keys::dense : Keys::random);
    fmt::print("{} keys in {} with {} nodes, built in {:.1f} s\n", count, size_text(tree.bytes()),
               tree.nodes(), std::chrono::duration<double>(Clock::now() - began).count());
    std::vector<Way> ways;
    if (by != "query")
        ways.push_back({"reads", &RemoteTree::by_reads, {}});
    if (by != "reads")
        ways.push_back({"query", &RemoteTree::by_query, {}});
    std::mt19937_64 random(seed);
    for (std::uint64_t n = 0; n < searches; n++) {
        const bool there = random() % misses != 0;
        const std::uint64_t number = random() % count + (there ? 0 : count);
        for (Way& way : ways)
            search(tree, way, number, there);
    }
    for (Way& way : ways)
        fmt::print("by {}: p50 {:.1f} us, p99 {:.1f} us, {:.2f} levels and {:.2f} round trips a "
                   "search\n",
                   way.name, quantile(way.us, 0.5), quantile(way.us, 0.99),
                   static_cast<double>(way.levels) / static_cast<double>(searches),
                   static_cast<double>(way.trips) / static_cast<double>(searches));
    if (ways.size() == 2 && ways[0].levels != ways[1].levels)
        throw Failure("reads saw {} levels and queries {}", ways[0].levels, ways[1].levels);
    return 0;
}

} // namespace

} // namespace remora::tree

int main(int argc, char** argv) {
    return remora::run_program("remora-tree", [&] { return remora::tree::run(argc, argv); });
}
