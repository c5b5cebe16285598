// SPDX-License-Identifier: GPL-2.0
/*
 * node-conformance: does a memory node answer as the core does?
 *
 *	node-conformance					a remora-node of its own
 *	node-conformance --node HOST:PORT --space ID --key FILE --view ID --view-key FILE
 *								any node, the kernel's too
 *
 * --daemon FILE says where remora-node is (default: beside this program), --threads N how many
 *threads it gets, --seed N replays random tests. GoogleTest's options work as ever.
 */
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include <getopt.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include "client.hpp"
#include "process.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::test {

namespace {

struct Options {
    std::string node, key_file, view_key_file, daemon, threads = "1";
    std::uint32_t space = 1, view = 2;
    std::uint64_t seed = 0;
};

std::unique_ptr<Pair> shared_pair;
std::mt19937_64 random_engine;

Options parse(int argc, char** argv) {
    static const option names[] = {
        {"node", required_argument, nullptr, 'n'},
        {"space", required_argument, nullptr, 's'},
        {"key", required_argument, nullptr, 'k'},
        {"view", required_argument, nullptr, 'v'},
        {"view-key", required_argument, nullptr, 'w'},
        {"daemon", required_argument, nullptr, 'd'},
        {"threads", required_argument, nullptr, 't'},
        {"seed", required_argument, nullptr, 'r'},
        {nullptr, 0, nullptr, 0},
    };
    Options options;
    options.daemon = std::filesystem::path(argv[0]).replace_filename("remora-node");
    options.seed = std::random_device()();
    for (int each; (each = getopt_long(argc, argv, "", names, nullptr)) != -1;) {
        switch (each) {
        case 'n':
            options.node = optarg;
            break;
        case 's':
            options.space = parse_space_id(optarg);
            break;
        case 'k':
            options.key_file = optarg;
            break;
        case 'v':
            options.view = parse_space_id(optarg);
            break;
        case 'w':
            options.view_key_file = optarg;
            break;
        case 'd':
            options.daemon = optarg;
            break;
        case 't':
            options.threads = optarg;
            break;
        case 'r':
            options.seed = parse_number(optarg, 0, UINT64_MAX, "seed");
            break;
        default:
            throw Misuse("see the top of selftests/conformance/main.cpp for what it takes");
        }
    }
    if (options.node.empty() != options.key_file.empty() ||
        options.node.empty() != options.view_key_file.empty())
        throw Misuse("--node, --key and --view-key go together");
    return options;
}

Target target_at(const Endpoint& endpoint, const Options& options, const Key& key,
                 const Key& view_key) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* list = nullptr;
    std::string port = std::to_string(endpoint.port);
    if (int error = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list))
        throw Failure("no address for {}: {}", endpoint.host, gai_strerror(error));
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
    Target target{};
    std::memcpy(&target.address, list->ai_addr, list->ai_addrlen);
    target.length = list->ai_addrlen;
    target.space = options.space;
    target.key = key;
    target.view = options.view;
    target.view_key = view_key;
    return target;
}

// A directory for a key, gone at the end.
class Scratch {
public:
    Scratch() {
        if (!mkdtemp(path_.data()))
            throw Failure("no directory for a key: {}", std::strerror(errno));
    }
    ~Scratch() { std::filesystem::remove_all(path_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    std::string file(const char* name) const { return path_ + "/" + name; }

private:
    std::string path_ = std::filesystem::temp_directory_path() / "remora-node-XXXXXX";
};

int run_tests(const Target& target) {
    shared_pair = std::make_unique<Pair>(target);
    int result = RUN_ALL_TESTS();
    shared_pair.reset();
    return result;
}

int run_with_daemon(const Options& options) {
    Scratch scratch;
    Key key = key_random(), view_key = key_random();
    key_write(key, scratch.file("key"));
    key_write(view_key, scratch.file("view-key"));
    NodeProcess node(options.daemon,
                     {"--memory", "64M", "--no-lock", "--threads", options.threads, "--space",
                      fmt::format("{}={}", options.space, scratch.file("key")), "--space",
                      fmt::format("{}={},read-only-of={}", options.view, scratch.file("view-key"),
                                  options.space)});
    int result = run_tests(target_at({"127.0.0.1", node.port()}, options, key, view_key));
    int status = node.stop();
    if (status)
        fmt::print(stderr, "node-conformance: remora-node ended with wait status {:#x}\n",
                   static_cast<unsigned int>(status));
    return result ? result : status != 0;
}

int run(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    Options options = parse(argc, argv);
    random_engine.seed(options.seed);
    fmt::print("replay random tests by --seed {}\n", options.seed);
    if (options.node.empty())
        return run_with_daemon(options);
    return run_tests(target_at(parse_endpoint(options.node, RMEM_PORT), options,
                               key_read(options.key_file).key,
                               key_read(options.view_key_file).key));
}

} // namespace

Pair& pair() {
    return *shared_pair;
}

std::uint64_t random_u64() {
    return random_engine();
}

Bytes random_bytes(std::size_t bytes) {
    Bytes random(bytes);
    for (std::uint8_t& each : random)
        each = static_cast<std::uint8_t>(random_engine());
    return random;
}

} // namespace remora::test

int main(int argc, char** argv) {
    try {
        return remora::test::run(argc, argv);
    } catch (const std::exception& failure) {
        fmt::print(stderr, "node-conformance: {}\n", failure.what());
        return 1;
    }
}
