// SPDX-License-Identifier: GPL-2.0
// bench-tx HEAD: the time of transactions of several tuples, and of one operation a tuple, in the
// same chain and in turns. The output is JSON: for each case the mean, median and 99th percentile
// in us.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/tx/client.hpp"
#include "support/failure.hpp"
#include "support/random.hpp"
#include "support/say.hpp"

namespace remora::tx {

namespace {

constexpr unsigned reads = 4, writes = 2;

class Bench {
public:
    Bench(const std::string& target, std::uint32_t bytes)
        : client_(target, random_value<std::uint64_t>() >> 1 | 1, 0),
          bytes_(bytes),
          data_(client_.status().data) {
        if (int error = remote_queue_open(&queue_, client_.node().get(), nullptr))
            throw Failure("no queue: {}", remote_strerror(error));
    }
    ~Bench() { remote_queue_close(queue_); }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    // One message has all tuples.
    void transaction() {
        std::vector<Read> all;
        for (unsigned n = 0; n < reads; n++)
            all.push_back({next(), bytes_});
        client_.run(all, {write(), write()});
    }
    // A message for each tuple, one after the other, as HyperLoop's operations.
    void one_by_one() {
        std::string tuple(bytes_, 0);
        for (unsigned n = 0; n < reads; n++)
            check(remote_read(client_.node().get(), data_ + next(), tuple.data(), tuple.size()));
        for (unsigned n = 0; n < writes; n++)
            client_.run({}, {write()});
    }
    // The same with the reads at once.
    void reads_at_once() {
        std::array<std::string, reads> tuples;
        std::array<remote_op, reads> ops;
        std::array<remote_completion, reads> done;
        for (unsigned n = 0; n < reads; n++) {
            tuples[n].resize(bytes_);
            ops[n] = remote_op_read(data_ + next(), tuples[n].data(), bytes_, n);
        }
        check(remote_queue_submit(queue_, ops.data(), ops.size()));
        if (remote_queue_wait(queue_, done.data(), reads, reads, UINT64_MAX) != reads)
            throw Failure("the reads didn't end");
        for (unsigned n = 0; n < writes; n++)
            client_.run({}, {write()});
    }
    void one_write() { client_.run({}, {write()}); }
    void one_read() {
        std::string tuple(bytes_, 0);
        check(remote_read(client_.node().get(), data_ + next(), tuple.data(), tuple.size()));
    }

private:
    static void check(int error) {
        if (error < 0)
            throw Failure("an operation failed: {}", remote_strerror(error));
    }
    // Offset of another tuple of the first MiB.
    std::uint64_t next() { return random_() % ((1U << 20) / bytes_) * bytes_; }
    Write write() { return {next(), std::string(bytes_, 'w')}; }

    Client client_;
    const std::uint32_t bytes_;
    const std::uint64_t data_;
    remote_queue_t* queue_ = nullptr;
    std::minstd_rand random_{1};
};

int run(int argc, char** argv) {
    CLI::App program("Times of transactions.", "bench-tx");
    std::string target;
    std::uint32_t bytes = 64;
    unsigned count = 300, rounds = 5;
    program.add_option("TARGET", target)->required();
    program.add_option("--bytes", bytes)->check(CLI::Range(8, 4096));
    program.add_option("--count", count);
    program.add_option("--rounds", rounds);
    CLI11_PARSE(program, argc, argv);

    Bench bench(target, bytes);
    using Case = std::pair<const char*, std::function<void()>>;
    const std::vector<Case> cases = {{"transaction", [&] { bench.transaction(); }},
                                     {"one-by-one", [&] { bench.one_by_one(); }},
                                     {"reads-at-once", [&] { bench.reads_at_once(); }},
                                     {"write", [&] { bench.one_write(); }},
                                     {"read", [&] { bench.one_read(); }}};
    std::map<std::string, std::vector<double>> times;
    for (unsigned round = 0; round < rounds; round++) {
        for (const auto& [name, once] : cases) {
            for (unsigned n = 0; n < count; n++) {
                const auto began = std::chrono::steady_clock::now();
                once();
                const std::chrono::duration<double, std::micro> took =
                    std::chrono::steady_clock::now() - began;
                times[name].push_back(took.count());
            }
        }
    }
    nlohmann::ordered_json out;
    for (auto& [name, all] : times) {
        std::ranges::sort(all);
        out[name] = {{"mean_us", std::accumulate(all.begin(), all.end(), 0.0) /
                                     static_cast<double>(all.size())},
                     {"p50_us", all[all.size() / 2]},
                     {"p99_us", all[all.size() * 99 / 100]}};
    }
    say(STDOUT_FILENO, out.dump() + "\n");
    return 0;
}

} // namespace

} // namespace remora::tx

int main(int argc, char** argv) {
    try {
        return remora::tx::run(argc, argv);
    } catch (const std::exception& failure) {
        remora::warn("bench-tx: {}", failure.what());
        return 1;
    }
}
