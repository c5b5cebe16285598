// SPDX-License-Identifier: GPL-2.0
// remora-tx: transactions on the replicas of tools/offloads/tx. Exit code 0: done, 1: failure, 2:
// wrong usage.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "apps/tx/client.hpp"
#include "common/program.hpp"
#include "common/version.hpp"
#include "offloads/tx/log.h"
#include "support/failure.hpp"
#include "support/random.hpp"
#include "support/say.hpp"

namespace remora::tx {

namespace {

std::uint64_t random_id() {
    return random_value<std::uint64_t>() >> 1 | 1;
}

void show_status(const std::string& target) {
    const Status status = Client(target, random_id(), 0).status();
    say(STDOUT_FILENO,
        fmt::format("epoch {} role {}{}{} begin {} applied {} end {} log {} data {}\n",
                    status.epoch, status.role & TX_CHAIN_HEAD ? "head" : "replica",
                    status.role & TX_CHAIN_NEXT ? "+next" : "",
                    status.role & TX_STATUS_FENCED ? "+fenced" : "", status.begin, status.applied,
                    status.end, status.log_bytes, status.data_bytes));
}

struct Chain {
    std::string target;
    std::uint32_t epoch = 0;
    bool head = false, next = false;
};

void change_chain(const Chain& chain) {
    Client(chain.target, random_id(), 0)
        .change_chain(chain.epoch,
                      (chain.head ? TX_CHAIN_HEAD : 0) | (chain.next ? TX_CHAIN_NEXT : 0));
}

// ---- load ----

// A slot's pairs are its own, and each transaction writes one: both tuples to its number. So a
// transaction that is torn, lost or executed again shows in the next one that reads the pair.
struct Load {
    std::string target;
    std::uint64_t slot = 0, pairs = 8, count = 1000, id = 0, sequence = 0, patience_s = 30;
    std::uint32_t bytes = 64;
    bool shared = false; // write a tuple of all slots, too
    bool report = false;
};

std::string tuple_of(std::uint64_t number, std::uint32_t bytes) {
    std::string data;
    while (data.size() < bytes)
        data.append(reinterpret_cast<const char*>(&number), sizeof(number));
    data.resize(bytes);
    return data;
}

std::optional<std::uint64_t> number_in(const std::string& tuple) {
    std::uint64_t number = 0;
    std::memcpy(&number, tuple.data(), std::min(sizeof(number), tuple.size()));
    if (tuple != tuple_of(number, static_cast<std::uint32_t>(tuple.size())))
        return std::nullopt;
    return number;
}

// The first tuple of data is the shared one.
std::uint64_t offset_of(const Load& load, std::uint64_t tuple) {
    return (1 + load.slot * 2 * load.pairs + tuple) * load.bytes;
}

std::uint64_t check_pair(const std::vector<std::string>& tuples, std::uint64_t pair) {
    const auto a = number_in(tuples.at(0)), b = number_in(tuples.at(1));
    if (!a || !b)
        throw Failure("pair {} has a torn tuple", pair);
    if (*a != *b)
        throw Failure("pair {} has {} and {}: a transaction is torn", pair, *a, *b);
    return *a;
}

std::vector<Read> pair_of(const Load& load, std::uint64_t pair) {
    return {{offset_of(load, 2 * pair), load.bytes}, {offset_of(load, 2 * pair + 1), load.bytes}};
}

void run_load(Load load) {
    Client client(load.target, load.id ? load.id : random_id(), load.sequence);
    client.patience = std::chrono::seconds(load.patience_s);
    std::vector<std::optional<std::uint64_t>> expected(load.pairs);
    std::uint64_t number = load.sequence, repeated = 0;
    for (std::uint64_t n = 0; n < load.count; n++) {
        const std::uint64_t pair = n % load.pairs;
        number++;
        std::vector<Write> writes;
        for (const Read& each : pair_of(load, pair))
            writes.push_back({each.offset, tuple_of(number, load.bytes)});
        if (load.shared)
            writes.push_back({0, tuple_of(load.slot << 32 | number, load.bytes)});
        const auto tuples = client.run(pair_of(load, pair), writes);
        repeated += client.repeated();
        if (!client.repeated()) {
            const std::uint64_t found = check_pair(tuples, pair);
            if (expected[pair] && *expected[pair] != found)
                throw Failure("pair {} has {}, not {}: a transaction was lost or executed twice",
                              pair, found, *expected[pair]);
        }
        expected[pair] = number;
        if (load.report)
            say(STDOUT_FILENO, fmt::format("{}\n", number));
    }
    if (!load.report)
        say(STDOUT_FILENO,
            fmt::format("{} transactions, {} of them repeated\n", load.count, repeated));
}

// ---- check ----

// acked: the last transaction that the load reported.
void check(const Load& load, std::uint64_t acked) {
    Client client(load.target, random_id(), 0);
    std::uint64_t highest = 0;
    for (std::uint64_t pair = 0; pair < load.pairs; pair++)
        highest = std::max(highest, check_pair(client.run(pair_of(load, pair), {}), pair));
    for (std::uint64_t pair = 0; pair < load.pairs; pair++) {
        const std::uint64_t found = check_pair(client.run(pair_of(load, pair), {}), pair);
        // The last one of this pair up to the highest one.
        std::uint64_t wanted = highest;
        while (wanted && (wanted - 1 - load.sequence) % load.pairs != pair)
            wanted--;
        if (wanted > load.sequence && found != wanted)
            throw Failure("pair {} has {}, not {}", pair, found, wanted);
    }
    if (highest < acked)
        throw Failure("transaction {} was acknowledged, and {} is the last one there", acked,
                      highest);
    say(STDOUT_FILENO, fmt::format("{}\n", highest));
}

void compare(const std::string& one, const std::string& other, std::uint64_t bytes) {
    if (Client(one, random_id(), 0).read(0, bytes) != Client(other, random_id(), 0).read(0, bytes))
        throw Failure("the replicas' data differ");
}

void declare_load(CLI::App& command, Load& load) {
    command.add_option("TARGET", load.target, "The head: udp:HOST,key=FILE or shm:PATH,key=FILE")
        ->required();
    command.add_option("--slot", load.slot, "Whose pairs of tuples; default 0");
    command.add_option("--pairs", load.pairs, "Pairs of a slot; default 8")
        ->check(CLI::Range(1, 1 << 20));
    command.add_option("--bytes", load.bytes, "Of a tuple; default 64")
        ->check(CLI::Range(8U, TX_TUPLE_BYTES_MAX));
    command.add_option("--sequence", load.sequence, "Transactions before this load; default 0");
}

int run(int argc, char** argv) {
    CLI::App program("Transactions on a chain of replicas.", "remora-tx");
    program.set_version_flag("--version", std::string("remora-tx ") + version);
    program.require_subcommand(1);
    std::string target, other;
    Chain chain;
    Load load;
    std::uint64_t acked = 0, bytes = 4096;

    CLI::App* status = program.add_subcommand("status", "A replica's epoch, role and log");
    status->add_option("TARGET", target)->required();
    status->callback([&] { show_status(target); });

    CLI::App* change = program.add_subcommand("chain", "Give a replica its place, in a new epoch");
    change->add_option("TARGET", chain.target)->required();
    change->add_option("--epoch", chain.epoch, "Above the chain's epoch until now")
        ->required()
        ->check(CLI::Range(1U, TX_EPOCH_MAX));
    change->add_flag("--head", chain.head, "It executes the clients' transactions");
    change->add_flag("--next", chain.next, "It has a next replica: the offload's --link next");
    change->callback([&] { change_chain(chain); });

    CLI::App* loads = program.add_subcommand("load", "Run transactions, and check their reads");
    declare_load(*loads, load);
    loads->add_option("--count", load.count, "Transactions; default 1000");
    loads->add_option("--client", load.id,
                      "The client's number, to go on after an end; default random");
    loads->add_option("--patience", load.patience_s, "Seconds that a restart can take; default 30");
    loads->add_flag("--shared", load.shared, "Write a tuple that all slots write, too");
    loads->add_flag("--report", load.report,
                    "Print each transaction's number once it is acknowledged");
    loads->callback([&] { run_load(load); });

    CLI::App* checks = program.add_subcommand("check", "Check the pairs of a load that has ended");
    declare_load(*checks, load);
    checks->add_option("--acked", acked, "The last number that the load reported");
    checks->callback([&] { check(load, acked); });

    CLI::App* compares = program.add_subcommand("compare", "Compare two replicas' data");
    compares->add_option("TARGET", target)->required();
    compares->add_option("OTHER", other)->required();
    compares->add_option("--bytes", bytes, "Of data; default 4096");
    compares->callback([&] { compare(target, other, bytes); });

    // The subcommands' callbacks do the work.
    parse_command_line(program, argc, argv);
    return 0;
}

} // namespace

} // namespace remora::tx

int main(int argc, char** argv) {
    return remora::run_program("remora-tx", [&] { return remora::tx::run(argc, argv); });
}
