// SPDX-License-Identifier: GPL-2.0
// A packet's way through the tunnels' cores: queued, sent, received, acknowledged, freed.
#include <array>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "core.hpp"

namespace {

constexpr uint32_t mtu_bytes = 1500, window_mtus = 64;

// A sending and a receiving tunnel. Headers pass as bytes; nothing is lost or overtaken.
struct Pair {
    eqds_config config{};
    eqds_asl asl{};
    eqds_drr drr{};
    eqds_eqif eqif{};
    eqds_sender sender{};
    eqds_receiver receiver{};
    eqds_paths paths{};
    std::array<eqds_path, 256> path{};
    std::vector<eqds_packet*> sent, arrived;
    std::vector<eqds_packet> outgoing, incoming;
    eqds_head reply{};
    uint32_t bad_headers = 0;
    uint64_t now_ns = 1'000'000'000;

    explicit Pair(uint32_t packets) : outgoing(packets), incoming(packets) {
        eqds_config_init(&config, &eqds_profile_extended, mtu_bytes, window_mtus * mtu_bytes);
        sent.resize(config.window_packets);
        arrived.resize(config.window_packets);
        eqds_asl_init(&asl, EQDS_ASL_PIFO, mtu_bytes, 10'000'000'000, window_mtus);
        eqds_drr_init(&drr);
        eqds_eqif_init(&eqif, 0, mtu_bytes);
        eqds_paths_init(&paths, path.data(), static_cast<uint32_t>(path.size()), 1);
        eqds_sender_init(&sender, &config, sent.data(), &paths, 0, 1, 0);
        eqds_receiver_init(&receiver, &config, &asl, arrived.data(), 0, 0);
    }

    // The caller does what an event of the sender asks for: a request for credit arrives, too.
    void settle(const eqds_out& out) {
        eqds_drr_update(&drr, &eqif, &sender);
        if (out.send)
            arrive(out.head, nullptr);
    }

    // The header as the other end reads it from its bytes.
    eqds_head carried(const eqds_head& head) {
        std::array<uint8_t, EQDS_WIRE_BYTES_MAX> wire;
        eqds_head parsed;
        eqds_wire_encode(config.profile, &head, wire.data());
        bad_headers +=
            eqds_wire_parse(config.profile, wire.data(), wire.size(), &parsed) != EQDS_WIRE_GOOD;
        return parsed;
    }

    void arrive(const eqds_head& head, eqds_packet* packet) {
        const eqds_head parsed = carried(head);
        eqds_out out;
        eqds_receiver_receive(&receiver, now_ns, &parsed, mtu_bytes, packet, &out);
        reply = out.head;
    }

    void answer() {
        const eqds_head parsed = carried(reply);
        eqds_out out;
        eqds_sender_receive(&sender, now_ns, &parsed, &out);
        settle(out);
    }

    // As many packets as there are nodes, in batches that get one reply with the pulls that are
    // due.
    bool run() {
        uint32_t arrivals = 0;
        eqds_sender* from;
        eqds_head head;
        eqds_out out;
        for (eqds_packet& packet : outgoing) {
            packet = {};
            packet.bytes = mtu_bytes;
            packet.next_proto = EQDS_PROTO_IPV4;
            eqds_sender_enqueue(&sender, now_ns, &packet, &out);
            settle(out);
            while (eqds_drr_send(&drr, now_ns, &head, &from))
                arrive(head, &incoming[arrivals++]);
        }
        for (uint32_t batches = 0; batches < outgoing.size(); batches++) {
            now_ns += 20'000;
            while (eqds_receiver_next(&asl, now_ns, &head))
                reply.pull = head.pull;
            answer();
            if (sender.resting)
                return !bad_headers;
            while (eqds_drr_send(&drr, now_ns, &head, &from))
                arrive(head, &incoming[arrivals++]);
        }
        return false;
    }
};

// A window at once, which has credit: a packet's cost without pulls.
void eqds_window(benchmark::State& state) {
    Pair pair(window_mtus / 4);
    for (auto _ : state)
        if (!pair.run())
            return state.SkipWithError("a packet wasn't acknowledged");
    state.SetItemsProcessed(state.iterations() * pair.outgoing.size());
}

// Sixteen windows: nearly all packets wait for pulls.
void eqds_pulled(benchmark::State& state) {
    Pair pair(window_mtus * 16);
    for (auto _ : state)
        if (!pair.run())
            return state.SkipWithError("a packet wasn't acknowledged");
    state.SetItemsProcessed(state.iterations() * pair.outgoing.size());
}

BENCHMARK(eqds_window);
BENCHMARK(eqds_pulled);

} // namespace
