// SPDX-License-Identifier: GPL-2.0
/*
 * remora ping: can programs of this machine use that space of that node?
 *
 *   remote_open() ── a session ── small reads of address 0, which the node refuses ── times
 *        |                                               |
 *        `- full, or no answer                           `- timeout, restart
 *
 * Address 0 is in no region, so the answers show the way there and back, and the memory is not
 * touched.
 */
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "remora/commands.hpp"
#include "remora/table.hpp"
#include "remote/remote.h"
#include "support/failure.hpp"
#include "support/key.hpp"
#include "support/parse.hpp"

namespace remora {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t count_max = 1'000'000;

struct PingOptions {
    std::string node, key_file;
    std::string space = "1", count = "5", timeout = "2";
    bool json = false;
};

// A state other than ok, and the error that is shown for it.
struct Trouble {
    const char* state;
    std::string error;
};

struct CloseRemote {
    void operator()(remote_t* r) const { remote_close(r); }
};
using Remote = std::unique_ptr<remote_t, CloseRemote>;

class Ping {
public:
    explicit Ping(const PingOptions& options)
        : node_(parse_endpoint(options.node, default_port)),
          name_(endpoint_text(node_.host, node_.port)),
          space_(parse_space_id(options.space)),
          count_(parse_number(options.count, 1, count_max, "--count")),
          timeout_us_(1000ULL * parse_seconds_ms(options.timeout, 1, UINT32_MAX, "--timeout")) {
        key_ = key_read_warning(options.key_file, "remora");
        target_ = fmt::format("udp:{},space={}", name_, space_);
    }

    void open() {
        remote_options options{};
        options.size = sizeof(options);
        options.timeout_us = timeout_us_;
        options.integrity = REMOTE_DIGEST;
        options.key = key_.data(); // not in the target, where a comma ends a file's name
        remote_t* r = nullptr;
        int error = remote_open(&r, target_.c_str(), &options);
        remote_.reset(r);
        switch (error) {
        case 0:
            return;
        case -EUSERS:
            throw Trouble{"full", remote_why()};
        case -EKEYREJECTED:
            throw Trouble{"wrong-key-or-space", remote_why()};
        case -ECONNREFUSED:
            throw Trouble{"no-node", remote_why()};
        case -EHOSTUNREACH:
            throw Trouble{"unreachable", remote_why()};
        default:
            throw Failure("{}", remote_why());
        }
    }

    void measure() {
        for (std::uint64_t n = 0; n < count_; n++) {
            auto began = std::chrono::steady_clock::now();
            std::uint8_t byte;
            int error = remote_read(remote_.get(), 0, &byte, 1);
            std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began;
            if (error == -ESTALE || error == -ETIMEDOUT)
                check_still_there(error);
            if (error != -EFAULT)
                throw Failure("a read of {} failed: {}", name_, remote_strerror(error));
            times_ns_.push_back(static_cast<std::uint64_t>(took.count()));
        }
        std::sort(times_ns_.begin(), times_ns_.end());
    }

    void ask_for_memory() {
        memory_.size = sizeof(memory_);
        check_still_there(remote_info(remote_.get(), &memory_));
    }

    Json json() const { return {{"node", name_}, {"space", space_}}; }
    Json result() const {
        Json json = this->json();
        json["state"] = "ok";
        json["round_trip_ns"] = {
            {"min", times_ns_.front()}, {"median", median()}, {"max", times_ns_.back()}};
        json["memory_bytes"] = memory_.memory_bytes;
        json["free_bytes"] = memory_.free_bytes;
        return json;
    }
    std::string text() const {
        return fmt::format(
            "{}, space {}: ok, {} of {} free, {} round trips: min {}, median {}, max {}", name_,
            space_, size_text(memory_.free_bytes), size_text(memory_.memory_bytes),
            times_ns_.size(), time_text(times_ns_.front()), time_text(median()),
            time_text(times_ns_.back()));
    }

private:
    void check_still_there(int error) const {
        if (error == -ESTALE)
            throw Trouble{"restarted", fmt::format("{} stopped or restarted meanwhile", name_)};
        if (error == -ETIMEDOUT)
            throw Trouble{"silent", fmt::format("{} answered at first, and then no more", name_)};
        if (error)
            throw Failure("{} doesn't tell its memory: {}", name_, remote_strerror(error));
    }
    std::uint64_t median() const { return times_ns_[times_ns_.size() / 2]; }

    Endpoint node_;
    std::string name_;
    std::uint32_t space_;
    std::uint64_t count_, timeout_us_;
    Key key_;
    std::string target_;
    Remote remote_;
    std::vector<std::uint64_t> times_ns_;
    remote_node memory_{};
};

void ping(const PingOptions& options) {
    Ping ping(options);
    try {
        ping.open();
        ping.measure();
        ping.ask_for_memory();
    } catch (const Trouble& trouble) {
        Json json = ping.json();
        json["state"] = trouble.state;
        json["error"] = trouble.error;
        if (options.json)
            fmt::print("{}\n", json.dump(2));
        throw Failure("{}", trouble.error);
    }
    if (options.json)
        fmt::print("{}\n", ping.result().dump(2));
    else
        fmt::print("{}\n", ping.text());
}

} // namespace

void add_ping_command(CLI::App& program) {
    CLI::App* command =
        program.add_subcommand("ping", "Ask a node whether programs can use its memory");
    auto options = std::make_shared<PingOptions>();
    command->add_option("NODE", options->node, "HOST[:PORT]")->required();
    command->add_option("--key", options->key_file, "FILE with the key of the space")->required();
    command->add_option("--space", options->space, "ID of the space; default 1");
    command->add_option("--count", options->count, "Round trips; default 5");
    command->add_option("--timeout", options->timeout, "SECONDS to wait for the node; default 2");
    command->add_flag("--json", options->json, "Print JSON");
    command->callback([options] { ping(*options); });
}

} // namespace remora
