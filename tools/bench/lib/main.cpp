// SPDX-License-Identifier: GPL-2.0
// One measurement, its figures as a line of JSON. `run` starts the servers and asks for them in
// turn.
//
//   bench-lib latency remote udp:127.0.0.1:7670,key=FILE --bytes 1024 --write
//   bench-lib pipeline redis 6379 --depth 64 --server PID
//   bench-lib sessions udp:127.0.0.1:7670,key=FILE --count 1,10,100,1000
//   bench-lib crowd shm:/run/remora-node.shm,key=FILE --count 64
//   bench-lib embedded
//   bench-lib alloc --page 64K
//   bench-lib order --bytes 1024
//   bench-lib distance 0 1
//   bench-lib pong --spin
#include <cstdlib>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <remote/remote.h>

#include "measure.hpp"
#include "pong.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::bench {

namespace {

struct Options {
    std::string who, target, page = "64K", integrity = "link";
    std::uint32_t bytes = 16, seeds = 10;
    std::vector<std::uint32_t> counts{1};
    std::vector<unsigned> processors;
    bool spin = false;
    Load load;
};

std::uint32_t integrity_of(const std::string& text) {
    if (text == "link")
        return REMOTE_LINK;
    if (text == "sealed")
        return REMOTE_SEALED;
    return text == "full" ? REMOTE_FULL : REMOTE_DIGEST;
}

std::unique_ptr<Store> open_store(const Options& options) {
    if (options.who == "remote")
        return open_remote(options.target, options.bytes, integrity_of(options.integrity));
    if (options.who == "queue")
        return open_queue(options.target, options.bytes, integrity_of(options.integrity));
    if (options.who == "memcached")
        return open_memcached(options.target, options.bytes);
    if (options.who == "redis")
        return open_redis(options.target, options.bytes);
    if (options.who.starts_with("shm-floor"))
        return open_floor(options.target, options.bytes, options.who == "shm-floor-data");
    return open_udp(options.target, options.bytes, options.who == "udp-spin");
}

CLI::App* declare_load(CLI::App& program, const char* name, const char* what, Options& options) {
    CLI::App* command = program.add_subcommand(name, what);
    command->add_option("who", options.who)
        ->required()
        ->check(CLI::IsMember({"remote", "queue", "memcached", "redis", "udp", "udp-spin",
                               "shm-floor", "shm-floor-data"}));
    command->add_option("target", options.target, "What remote_open() takes, or a PORT")
        ->required();
    command->add_option("--bytes", options.bytes, "Of an object; 16")->check(CLI::Range(16, 60000));
    command->add_flag("--write", options.load.write, "Write, not read");
    return command;
}

void declare_seconds(CLI::App* command, Options& options) {
    command->add_option("--seconds", options.load.seconds, "How long; 1")
        ->check(CLI::Range(0.01, 3600.0));
}

void declare_integrity(CLI::App* command, Options& options) {
    command->add_option("--integrity", options.integrity, "link, digest, full or sealed; link")
        ->check(CLI::IsMember({"link", "digest", "full", "sealed"}));
}

Figures run(int argc, char** argv) {
    CLI::App program("One measurement of libremote or of a peer.", "bench-lib");
    Options options;
    program.require_subcommand(1);
    CLI::App* one = declare_load(program, "latency", "Requests one at a time", options);
    CLI::App* many = declare_load(program, "pipeline", "Requests many at a time", options);
    many->add_option("--depth", options.load.depth, "So many; 64")->check(CLI::Range(1U, objects));
    many->add_option("--server", options.load.server, "PID of who serves, if it is here");
    CLI::App* handles = program.add_subcommand("sessions", "Many handles taking turns");
    handles->add_option("target", options.target, "What remote_open() takes")->required();
    handles->add_option("--count", options.counts, "So many handles; 1")
        ->delimiter(',')
        ->check(CLI::Range(1, 100000));
    CLI::App* many_idle =
        program.add_subcommand("crowd", "One busy handle beside idle and slow ones");
    many_idle->add_option("target", options.target, "What remote_open() takes")->required();
    many_idle->add_option("--count", options.counts, "So many others; 64")->expected(1);
    CLI::App* inside = program.add_subcommand("embedded", "The node inside the process");
    CLI::App* places = program.add_subcommand("alloc", "The allocator's retries");
    places->add_option("--page", options.page, "SIZE of a page; 64K");
    places->add_option("--seeds", options.seeds, "So many times; 10")->check(CLI::Range(1, 10000));
    CLI::App* rows = program.add_subcommand("order", "Operations that wait for others");
    rows->add_option("--bytes", options.bytes, "Of an operation; 16")->check(CLI::Range(1, 65536));
    CLI::App* apart = program.add_subcommand("distance", "A cache line there and back");
    apart->add_option("processors", options.processors, "Between which two")
        ->required()
        ->expected(2);
    CLI::App* other_end = program.add_subcommand("pong", "The floor's other end");
    other_end->add_flag("--spin", options.spin, "Never sleep");
    for (CLI::App* each : {one, many, handles, many_idle, inside})
        declare_seconds(each, options);
    for (CLI::App* each : {one, many, handles, many_idle})
        declare_integrity(each, options);
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code())
            throw Misuse("{}: see 'bench-lib --help'", error.what());
        std::exit(program.exit(error));
    }
    if (*other_end)
        pong(options.spin);
    if (*one)
        return latency(*open_store(options), options.load);
    if (*many)
        return pipeline(*open_store(options), options.load);
    if (*handles)
        return sessions(options.target, options.counts, options.load.seconds,
                        integrity_of(options.integrity));
    if (*many_idle)
        return crowd(options.target, options.counts.front(), options.load.seconds,
                     integrity_of(options.integrity));
    if (*inside)
        return embedded(options.load.seconds);
    if (*apart)
        return distance(options.processors[0], options.processors[1]);
    if (*rows)
        return order({.bytes = options.bytes});
    return alloc(parse_size(options.page), options.seeds);
}

} // namespace

} // namespace remora::bench

int main(int argc, char** argv) {
    auto complain = [](int code, const char* text) {
        fmt::print(stderr, "bench-lib: {}\n", text);
        return code;
    };
    try {
        fmt::print("{}\n", remora::bench::run(argc, argv).dump());
        return 0;
    } catch (const remora::Misuse& misuse) {
        return complain(2, misuse.what());
    } catch (const std::exception& failure) {
        return complain(1, failure.what());
    }
}
