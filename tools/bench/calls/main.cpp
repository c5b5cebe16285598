// SPDX-License-Identifier: GPL-2.0
// One round of `run`: reads, empty calls, chases and searches of trees, each for a time of its own,
// one after the other. Its figures are a line of JSON.
//
//   bench-calls udp:127.0.0.1:7670,key=FILE --server PID
//
// A list of all elements, in an order of chance, so that each one of it misses the caches.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <endian.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <remote/queue.h>
#include <remote/remote.h>

#include "apps/tree/remote_tree.hpp"
#include "common/cpu_time.hpp"
#include "common/program.hpp"
#include "offloads/chase/chase.h"
#include "support/failure.hpp"

namespace remora::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned depth = 8; // elements of a chase
constexpr unsigned under_way_max = 64;
constexpr std::size_t block_elements = 128;

struct Element {
    std::uint64_t key, next;
    std::uint64_t rest[6];
};
static_assert(sizeof(Element) == 64);

void must(int result, const char* what) {
    if (result < 0)
        throw Failure("{}: {}", what, remote_strerror(result));
}

// How long one takes, in microseconds: the median.
double one_by_one(double seconds, const std::function<void()>& one) {
    std::vector<double> all;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    for (auto from = Clock::now(); from < end;) {
        one();
        const auto to = Clock::now();
        all.push_back(std::chrono::duration<double, std::micro>(to - from).count());
        from = to;
    }
    auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    return *middle;
}

class Bench {
public:
    Bench(const std::string& target, std::size_t elements, double seconds, pid_t server)
        : elements_(elements), seconds_(seconds), server_(server) {
        remote_options options{};
        options.size = sizeof(options);
        options.integrity = REMOTE_LINK;
        if (remote_open(&r_, target.c_str(), &options))
            throw Failure("{}", remote_why());
        must(remote_alloc(r_, elements_ * sizeof(Element), REMOTE_RW, &list_), "alloc");
        must(remote_queue_open(&q_, r_, nullptr), "queue");
        fill();
    }
    ~Bench() {
        remote_queue_close(q_);
        remote_free(r_, list_);
        remote_close(r_);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    double one_by_one(const std::function<void()>& one) { return bench::one_by_one(seconds_, one); }

    void read(std::size_t bytes) {
        std::array<std::byte, sizeof(Element)> data;
        must(remote_read(r_, address(chance()), data.data(), bytes), "read");
    }
    void hop() {
        Element element;
        raddr_t at = address(chance());
        for (unsigned n = 0; n < depth; n++) {
            must(remote_read(r_, at, &element, sizeof(element)), "read");
            at = le64toh(element.next);
        }
    }
    void empty() {
        Call call;
        prepare(call, 0);
        must(remote_query(r_, &call.function), "query");
    }
    void chase() {
        Call call;
        prepare(call, address(chance()));
        must(remote_query(r_, &call.function), "query");
        if (le64toh(call.found.steps) != depth)
            throw Failure("a chase took {} steps", le64toh(call.found.steps));
    }

    struct Rate {
        double server_ns, per_second;
    };
    // So many under way: the server's CPU time for one, and how many there are in a second.
    Rate many(unsigned under_way, const std::function<remote_op(unsigned)>& make) {
        std::array<remote_op, under_way_max> ops;
        std::array<remote_completion, under_way_max> ended;
        std::size_t count = 0;
        for (unsigned n = 0; n < under_way; n++)
            ops[n] = make(n);
        submit(ops, under_way);
        const double cpu_before = server_ ? process_cpu_ns(server_) : 0;
        const auto began = Clock::now();
        const auto end = began + std::chrono::duration<double>(seconds_);
        while (Clock::now() < end) {
            const int got = remote_queue_wait(q_, ended.data(), under_way, 1, UINT64_MAX);
            must(got, "wait");
            for (int n = 0; n < got; n++) {
                must(ended[n].result < 0 ? static_cast<int>(ended[n].result) : 0, "an operation");
                ops[n] = make(static_cast<unsigned>(ended[n].user_data));
            }
            count += static_cast<std::size_t>(got);
            submit(ops, static_cast<unsigned>(got));
        }
        const double elapsed = std::chrono::duration<double>(Clock::now() - began).count();
        const double cpu = server_ ? process_cpu_ns(server_) - cpu_before : 0;
        for (unsigned left = under_way; left;) {
            const int got = remote_queue_wait(q_, ended.data(), left, 1, UINT64_MAX);
            must(got, "wait");
            left -= static_cast<unsigned>(got);
        }
        return {cpu / static_cast<double>(count), static_cast<double>(count) / elapsed};
    }
    remote_op read_op(unsigned n, std::size_t bytes) {
        return remote_op_read(address(chance()), data_[n].data(), bytes, n);
    }
    remote_op empty_op(unsigned n) {
        prepare(calls_[n], 0);
        return remote_op_query(&calls_[n].function, n);
    }
    remote_op chase_op(unsigned n) {
        prepare(calls_[n], address(chance()));
        return remote_op_query(&calls_[n].function, n);
    }

    // Searches of keys that are there, in a tree of random ones.
    nlohmann::ordered_json tree(std::uint64_t keys) {
        const tree::RemoteTree tree(r_, keys, tree::Keys::random);
        std::uint64_t levels = 0, searches = 0;
        auto search = [&](tree::Found (tree::RemoteTree::*find)(std::uint64_t) const) {
            const std::uint64_t number = random_() % keys;
            const tree::Found found = (tree.*find)(number);
            if (!found.address || found.value != number)
                throw Failure("key number {} of {} has the value {}", number, keys, found.value);
            levels += found.levels;
            searches++;
        };
        nlohmann::ordered_json figures;
        figures["query"] = one_by_one([&] { search(&tree::RemoteTree::by_query); });
        figures["reads"] = one_by_one([&] { search(&tree::RemoteTree::by_reads); });
        figures["levels"] = static_cast<double>(levels) / static_cast<double>(searches);
        figures["bytes"] = tree.bytes();
        return figures;
    }

private:
    struct Call {
        chase_args args;
        chase_found found;
        remote_function function;
    };

    raddr_t address(std::size_t element) const { return list_ + element * sizeof(Element); }
    std::size_t chance() { return random_() % elements_; }

    // Keys are 0, and the one that is looked for is none: a chase ends after so many steps.
    void prepare(Call& call, raddr_t start) {
        call.args = {htole64(start), htole64(1), 0, htole32(8), htole64(depth)};
        call.function = {};
        call.function.offload = CHASE_ID;
        call.function.function = CHASE_FIND;
        call.function.args = &call.args;
        call.function.args_bytes = sizeof(call.args);
        call.function.result = &call.found;
        call.function.result_bytes = sizeof(call.found);
    }
    void submit(std::span<const remote_op> ops, unsigned count) {
        must(remote_queue_submit(q_, ops.data(), count), "submit");
    }
    void fill() {
        std::vector<std::uint32_t> order(elements_), next(elements_);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random_);
        for (std::size_t n = 0; n < elements_; n++)
            next[order[n]] = order[(n + 1) % elements_];
        std::array<Element, block_elements> block{};
        for (std::size_t at = 0; at < elements_; at += block_elements) {
            const std::size_t count = std::min(block_elements, elements_ - at);
            for (std::size_t n = 0; n < count; n++)
                block[n].next = htole64(address(next[at + n]));
            must(remote_write(r_, address(at), block.data(), count * sizeof(Element)), "write");
        }
    }

    std::size_t elements_;
    double seconds_;
    pid_t server_;
    remote_t* r_ = nullptr;
    remote_queue_t* q_ = nullptr;
    raddr_t list_ = 0;
    std::mt19937_64 random_{1};
    std::array<Call, under_way_max> calls_;
    std::array<std::array<std::byte, sizeof(Element)>, under_way_max> data_;
};

int run(int argc, char** argv) {
    CLI::App program("Reads, empty calls, chases and searches of trees, one after the other.",
                     "bench-calls");
    std::string target;
    std::size_t elements = 1 << 20;
    double seconds = 0.5;
    pid_t server = 0;
    std::vector<std::uint64_t> keys;
    program.add_option("target", target, "What remote_open() takes")->required();
    program.add_option("--elements", elements, "Of the list, 64 bytes each; 1048576")
        ->check(CLI::Range(1024, 1 << 26));
    program.add_option("--seconds", seconds, "For each figure; 0.5")->check(CLI::Range(0.01, 60.0));
    program.add_option("--keys", keys, "Keys of a tree to search; may be given several times")
        ->check(CLI::Range(1, 100'000'000));
    program.add_option("--server", server, "PID of the node, for its CPU time");
    if (!parse_command_line(program, argc, argv))
        return 0;
    Bench bench(target, elements, seconds, server);
    nlohmann::ordered_json figures;
    figures["read 16 B"] = bench.one_by_one([&] { bench.read(16); });
    figures["empty call"] = bench.one_by_one([&] { bench.empty(); });
    figures["read 64 B"] = bench.one_by_one([&] { bench.read(64); });
    figures["chase"] = bench.one_by_one([&] { bench.chase(); });
    figures["hops"] = bench.one_by_one([&] { bench.hop(); });
    auto rates = [&](const char* name, unsigned under_way, auto make) {
        const Bench::Rate rate = bench.many(under_way, make);
        figures[fmt::format("{}, {} under way", name, under_way)] = {
            {"server_ns", rate.server_ns}, {"per_second", rate.per_second}};
    };
    for (unsigned under_way : {1U, under_way_max}) {
        rates("read 16 B", under_way, [&](unsigned n) { return bench.read_op(n, 16); });
        rates("empty call", under_way, [&](unsigned n) { return bench.empty_op(n); });
        rates("chase", under_way, [&](unsigned n) { return bench.chase_op(n); });
    }
    for (std::uint64_t each : keys)
        figures[fmt::format("tree of {}", each)] = bench.tree(each);
    fmt::print("{}\n", figures.dump());
    return 0;
}

} // namespace

} // namespace remora::bench

int main(int argc, char** argv) {
    return remora::run_program("bench-calls", [&] { return remora::bench::run(argc, argv); });
}
