// SPDX-License-Identifier: GPL-2.0
// The cost of a grant of EDM's scheduler at 64 ports, all of which are loaded.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "core.hpp"

namespace {

constexpr uint16_t ports = 64;
constexpr uint32_t chunk_bytes = 16384;

// Each port has two long messages and, again and again, a short one to each of three peers.
class Rack {
public:
    Rack() {
        edm_match_config config{};
        config.demand = {ports, 64, 3, EDM_SRPT, false, 1, 1'000'000'000};
        config.chunk_bytes = chunk_bytes;
        config.unit_bytes = 1024;
        config.age_ns = 10'000'000;
        config.egress_bytes_max = 1 << 20;
        config.share_bytes = 1 << 30;
        config.share_permille = 1000;
        memory.resize(edm_match_bytes(&config) / sizeof(uint64_t) + 1);
        edm_match_init(&m, &config, memory.data());
        for (uint16_t port = 0; port < ports; port++)
            edm_match_follow(&m, 0, port, edm_match_byte_q24(10'000'000'000, 1000));
        for (uint16_t port = 0; port < ports; port++)
            for (uint32_t n = 1; n <= 5; n++)
                announce(port, static_cast<uint16_t>((port + 7 * n) % ports), n);
    }

    void announce(uint16_t source, uint16_t destination, uint32_t n) {
        edm_announcement a{};
        a.source = source;
        a.destination = destination;
        a.type = EDM_WRITE;
        a.size = n > 3 ? 1U << 30 : 1000 * n * n;
        a.id = ids[source]++;
        edm_demand* demand;
        edm_match_announce(&m, now_ns, &a, &demand);
    }

    // A grant, with the announcement that replaces its message if it has ended.
    bool grant() {
        edm_booking booking;
        while (!edm_match_next(&m, now_ns, &booking)) {
            if (edm_match_deadline_ns(&m) == EDM_NEVER)
                return false;
            now_ns = edm_match_deadline_ns(&m);
        }
        const edm_demand* demand = booking.demand;
        if (booking.end == demand->size)
            announce(demand->source, demand->destination, 1 + booking.end % 3);
        return true;
    }

private:
    std::vector<uint64_t> memory;
    edm_match m;
    uint64_t now_ns = 0;
    uint32_t ids[ports] = {};
};

void edm_grant(benchmark::State& state) {
    Rack rack;
    for (auto _ : state)
        if (!rack.grant())
            return state.SkipWithError("no port was ever idle");
}

BENCHMARK(edm_grant);

} // namespace
