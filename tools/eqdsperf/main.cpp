// SPDX-License-Identifier: GPL-2.0
// eqdsperf: throughput and round trips between two programs over libeqds.
//
//   eqdsperf serve                 counts what comes, and sends pings back
//   eqdsperf send HOST             packets as fast as credit comes; as the completions say it
//   eqdsperf ping HOST             one packet at a time, there and back; no answer for 1 s: lost
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "eqds/eqds.h"
#include "support/failure.hpp"
#include "support/say.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using remora::Failure;

constexpr std::uint16_t port_default = 7;
// Buffers for the time that the program doesn't run.
constexpr std::uint32_t serving_packets = 4096;
constexpr int missed_look_ms = 200;
// An answer that takes longer counts as lost.
constexpr int answer_ms = 1000;
constexpr std::uint8_t echo = 1; // first byte of a packet that is to come back

struct Options {
    std::string device = "eqds0", host;
    std::uint16_t port = port_default;
    std::size_t bytes = 0;
    std::uint64_t count = 0;
    std::uint32_t window = 64;
    bool json = false;
};

int checked(int result, const char* what) {
    if (result < 0)
        throw Failure("{}: {}", what, std::strerror(-result));
    return result;
}

class Handle {
public:
    Handle(const Options& options, std::uint16_t port, std::uint32_t packets = 0) {
        eqds_options wanted{};
        wanted.bytes = sizeof(wanted);
        wanted.port = port;
        wanted.packets = packets;
        int err = eqds_open(&e_, options.device.c_str(), &wanted);
        if (err == -ENOENT)
            throw Failure("there is no /dev/eqds: load the kernel module eqds");
        checked(err, ("open " + options.device).c_str());
    }
    ~Handle() { eqds_close(e_); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    eqds_t* get() const { return e_; }

    // Waits for at least one; none after timeout_ms without anything.
    std::vector<eqds_packet> receive(int timeout_ms = -1) {
        std::vector<eqds_packet> packets(64);
        int n;
        while (!(n = checked(eqds_receive(e_, packets.data(), packets.size()), "receive"))) {
            complete();
            if (!checked(eqds_wait(e_, timeout_ms), "wait"))
                break;
        }
        packets.resize(static_cast<std::size_t>(n));
        return packets;
    }

    std::vector<eqds_completion> complete() {
        std::vector<eqds_completion> done(64);
        done.resize(static_cast<std::size_t>(
            checked(eqds_complete(e_, done.data(), done.size()), "complete")));
        return done;
    }

    // False: all buffers are under way.
    bool send(const eqds_address& to, std::uint8_t kind, std::size_t bytes, std::uint64_t cookie) {
        eqds_packet packet{};
        if (eqds_buffer(e_, &packet.data))
            return false;
        packet.bytes = bytes;
        packet.cookie = cookie;
        packet.address = to;
        std::memset(packet.data, 0, bytes);
        static_cast<std::uint8_t*>(packet.data)[0] = kind;
        std::memcpy(static_cast<std::uint8_t*>(packet.data) + 1, &cookie,
                    std::min(sizeof(cookie), bytes - 1));
        if (checked(eqds_send(e_, &packet, 1), "send"))
            return true;
        eqds_release(e_, packet.data);
        return false;
    }

private:
    eqds_t* e_ = nullptr;
};

std::uint64_t percentile(const std::vector<std::uint64_t>& sorted, unsigned percent) {
    return sorted.empty() ? 0 : sorted[std::min(sorted.size() - 1, sorted.size() * percent / 100)];
}

void print(const Options& options, const nlohmann::ordered_json& result) {
    if (options.json) {
        fmt::print("{}\n", result.dump(2));
        return;
    }
    for (const auto& [name, value] : result.items())
        fmt::print("{:<20}{}\n", name, value.dump());
}

eqds_address address_of(const Options& options) {
    eqds_address to{};
    if (eqds_address_parse(options.host.c_str(), options.port, &to))
        throw Failure("'{}' is not an address: use 10.0.0.2 or fd00::2, for instance",
                      options.host);
    return to;
}

// Until count packets have come, or were missed for want of buffers; 0: until it is stopped.
void serve(const Options& options) {
    Handle handle(options, options.port, serving_packets);
    std::uint64_t packets = 0, bytes = 0, in_order = 0, next = 0;
    remora::warn("serving");
    while (!options.count || packets + eqds_dropped(handle.get()) < options.count) {
        // A packet that was missed wakes nobody.
        for (const eqds_packet& packet : handle.receive(missed_look_ms)) {
            const auto* data = static_cast<const std::uint8_t*>(packet.data);
            std::uint64_t number = 0;
            std::memcpy(&number, data + 1, std::min(sizeof(number), packet.bytes - 1));
            packets++;
            bytes += packet.bytes;
            in_order += number >= next;
            next = number + 1;
            if (data[0] == echo)
                handle.send(packet.address, 0, packet.bytes, number);
            eqds_release(handle.get(), packet.data);
        }
        handle.complete();
    }
    print(options, {{"packets", packets},
                    {"bytes", bytes},
                    {"in_order", in_order},
                    {"missed", eqds_dropped(handle.get())}});
}

struct Sent {
    std::uint64_t delivered = 0, dropped = 0, again = 0, queued_max = 0, pulls_max = 0,
                  busy_us_max = 0;
    std::vector<std::uint64_t> rtt_ns;
    std::vector<std::uint64_t> paths = std::vector<std::uint64_t>(EQDS_PATH_COUNT);

    void count(const eqds_completion& each) {
        if (each.status == EQDS_INVALID)
            throw Failure("the kernel refuses the packet: it is too long, or its host is invalid");
        delivered += each.status == EQDS_DELIVERED;
        dropped += each.status == EQDS_DROPPED;
        again += each.attempts;
        queued_max = std::max<std::uint64_t>(queued_max, each.queued);
        pulls_max = std::max<std::uint64_t>(pulls_max, each.pulls);
        busy_us_max = std::max<std::uint64_t>(busy_us_max, each.busy_us);
        if (each.rtt_ns)
            rtt_ns.push_back(each.rtt_ns);
        if (each.status == EQDS_DELIVERED)
            paths[each.path % EQDS_PATH_COUNT]++;
    }
};

void send(const Options& options) {
    Handle handle(options, 0);
    const eqds_address to = address_of(options);
    const std::size_t bytes = options.bytes ? options.bytes : eqds_packet_bytes(handle.get());
    Sent sent;
    std::uint64_t begun = 0;
    auto start = Clock::now();
    while (sent.delivered + sent.dropped < options.count) {
        while (begun < options.count && begun - sent.delivered - sent.dropped < options.window &&
               handle.send(to, 0, bytes, begun))
            begun++;
        checked(eqds_wait(handle.get(), -1), "wait");
        for (const eqds_completion& each : handle.complete())
            sent.count(each);
    }
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    eqds_peer_info peer{};
    peer.bytes = sizeof(peer);
    checked(eqds_peer(handle.get(), &to, &peer), "ask for the tunnel");
    std::sort(sent.rtt_ns.begin(), sent.rtt_ns.end());
    print(options,
          {{"packets", sent.delivered},
           {"packet_bytes", bytes},
           {"dropped", sent.dropped},
           {"retransmissions", sent.again},
           {"seconds", seconds},
           {"mbits_per_s", static_cast<double>(sent.delivered * bytes * 8) / seconds / 1e6},
           {"rtt_p50_ns", percentile(sent.rtt_ns, 50)},
           {"rtt_p99_ns", percentile(sent.rtt_ns, 99)},
           {"tunnel_rtt_ns", peer.rtt_ns},
           {"queued_max", sent.queued_max},
           {"pulls_max", sent.pulls_max},
           {"busy_us_max", sent.busy_us_max},
           {"by_path", sent.paths}});
}

void ping(const Options& options) {
    Handle handle(options, 0);
    const eqds_address to = address_of(options);
    std::vector<std::uint64_t> rtt_ns;
    Sent sent;
    for (std::uint64_t n = 0; n < options.count; n++) {
        auto start = Clock::now();
        while (!handle.send(to, echo, options.bytes ? options.bytes : 64, n))
            checked(eqds_wait(handle.get(), -1), "wait");
        bool back = false;
        for (bool late = false; !back && !late;) {
            std::vector<eqds_packet> packets = handle.receive(answer_ms);
            late = packets.empty();
            for (const eqds_packet& packet : packets) {
                std::uint64_t number = 0;
                std::memcpy(&number, static_cast<const std::uint8_t*>(packet.data) + 1,
                            sizeof(number));
                back |= number == n;
                eqds_release(handle.get(), packet.data);
            }
        }
        if (back)
            rtt_ns.push_back(static_cast<std::uint64_t>((Clock::now() - start).count()));
        for (const eqds_completion& each : handle.complete())
            sent.count(each);
    }
    std::sort(rtt_ns.begin(), rtt_ns.end());
    print(options, {{"pings", rtt_ns.size()},
                    {"lost", options.count - rtt_ns.size()},
                    {"p50_ns", percentile(rtt_ns, 50)},
                    {"p99_ns", percentile(rtt_ns, 99)},
                    {"min_ns", percentile(rtt_ns, 0)},
                    {"max_ns", percentile(rtt_ns, 100)}});
}

CLI::App* add(CLI::App& program, const char* name, const char* help, Options* options) {
    CLI::App* command = program.add_subcommand(name, help);
    command->add_option("--device", options->device, "eqds device; default eqds0");
    command->add_option("--port", options->port, "Port of the serving program; default 7")
        ->check(CLI::Range(1, 65535));
    command->add_flag("--json", options->json, "Print JSON.");
    return command;
}

int run(int argc, char** argv) {
    CLI::App program("Throughput and round trips of packets through EQDS tunnels.");
    Options serving, sending, pinging;
    program.require_subcommand(1);
    CLI::App* serve_command = add(program, "serve", "Count packets, and answer pings.", &serving);
    serve_command->add_option("--count", serving.count, "Packets; default: until stopped");
    serve_command->callback([&] { serve(serving); });
    CLI::App* send_command = add(program, "send", "Send as fast as credit comes.", &sending);
    sending.count = 100000;
    send_command->add_option("HOST", sending.host, "Address under the tunnel")->required();
    send_command->add_option("--count", sending.count, "Packets; default 100000");
    send_command->add_option("--bytes", sending.bytes, "Of each; default: the most")
        ->check(CLI::Range(16, 65000));
    send_command->add_option("--window", sending.window, "Packets unsettled; default 64")
        ->check(CLI::Range(1, 256));
    send_command->callback([&] { send(sending); });
    CLI::App* ping_command =
        add(program, "ping", "One packet at a time, there and back.", &pinging);
    pinging.count = 1000;
    ping_command->add_option("HOST", pinging.host, "Address under the tunnel")->required();
    ping_command->add_option("--count", pinging.count, "Pings; default 1000");
    ping_command->add_option("--bytes", pinging.bytes, "Of each; default 64")
        ->check(CLI::Range(16, 65000));
    ping_command->callback([&] { ping(pinging); });
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (!error.get_exit_code())
            return program.exit(error); // help
        remora::warn("eqdsperf: {}: see 'eqdsperf --help'", error.what());
        return 2;
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& failure) {
        remora::warn("eqdsperf: {}", failure.what());
        return 1;
    }
}
