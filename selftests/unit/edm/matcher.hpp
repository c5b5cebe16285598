// SPDX-License-Identifier: GPL-2.0
// A matcher whose ports follow, with a clock of its own: a byte takes a nanosecond, a chunk 1024.
// After each event its invariants are checked, and that no port is booked twice at a time.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "core.hpp"

namespace edm {

constexpr uint32_t chunk = 1024, unit = 64;
constexpr uint64_t nanosecond_a_byte = 1 << 24;

inline edm_match_config match_config(uint16_t ports) {
    edm_match_config config{};
    config.demand.ports = ports;
    config.demand.slots = 64;
    config.demand.active_max = 3;
    config.demand.policy = EDM_SRPT;
    config.demand.turn_ns = chunk;
    config.demand.lease_ns = 1'000'000'000;
    config.chunk_bytes = chunk;
    config.unit_bytes = unit;
    config.age_ns = 1'000'000'000;
    config.egress_bytes_max = 8 * chunk;
    config.share_bytes = 1 << 30;
    config.share_permille = 1000;
    return config;
}

struct Booked {
    uint64_t at_ns, ends_ns;
    uint16_t source, destination;
    uint32_t id, bytes, end;
};

class Matcher {
public:
    explicit Matcher(const edm_match_config& config)
        : memory(edm_match_bytes(&config) / 8 + 1), ids(config.demand.ports) {
        EXPECT_TRUE(edm_match_config_is_valid(&config));
        edm_match_init(&m, &config, memory.data());
        for (uint16_t port = 0; port < config.demand.ports; port++)
            edm_match_follow(&m, now, port, nanosecond_a_byte);
        run(2 * config.chunk_bytes);
    }
    explicit Matcher(uint16_t ports) : Matcher(match_config(ports)) {}

    // Announce a message; returns its id.
    uint32_t add(uint16_t source, uint16_t destination, uint32_t size, uint8_t type = EDM_WRITE) {
        EXPECT_EQ(try_add(source, destination, size, type), EDM_DEMAND_NEW);
        return ids[type == EDM_READ ? destination : source] - 1;
    }

    // As a host does that keeps within X messages a pair: one more waits.
    edm_demand_verdict try_add(uint16_t source, uint16_t destination, uint32_t size,
                               uint8_t type = EDM_WRITE) {
        edm_announcement a{};
        a.source = source;
        a.destination = destination;
        a.type = type;
        a.size = size;
        a.id = ids[type == EDM_READ ? destination : source];
        edm_demand* demand = nullptr;
        edm_demand_verdict verdict = edm_match_announce(&m, now, &a, &demand);
        if (verdict != EDM_DEMAND_NEW)
            return verdict;
        ids[type == EDM_READ ? destination : source]++;
        arrived[{source, destination, a.id}] = now;
        drain();
        return verdict;
    }

    // Let time pass, with the events in it.
    void run(uint64_t ns) {
        const uint64_t until = now + ns;
        while (edm_match_deadline_ns(&m) <= until) {
            now = edm_match_deadline_ns(&m);
            drain();
        }
        now = until;
    }

    void drain() {
        edm_booking booking;
        while (edm_match_next(&m, now, &booking)) {
            const edm_demand& demand = *booking.demand;
            for (const Booked& b : booked) {
                if (b.ends_ns <= now)
                    continue;
                EXPECT_NE(b.source, demand.source) << "a source is booked twice";
                EXPECT_NE(b.destination, demand.destination) << "a destination is booked twice";
            }
            booked.push_back({now, booking.ends_ns, demand.source, demand.destination, demand.id,
                              booking.bytes, booking.end});
            EXPECT_LE(booking.bytes, m.config.chunk_bytes);
            if (booking.end == demand.size)
                done[{demand.source, demand.destination, demand.id}] = booking.ends_ns;
        }
        ASSERT_GT(edm_match_deadline_ns(&m), now);
        // The check takes ports^2 steps.
        if (ids.size() > 16 && drains++ % 32)
            return;
        const char* broken = edm_match_check(&m);
        ASSERT_FALSE(broken) << broken;
    }

    // Time from the announcement of a message to the end of its last chunk; 0: it hasn't ended.
    uint64_t took(uint16_t source, uint16_t destination, uint32_t id) const {
        auto found = done.find({source, destination, id});
        return found == done.end() ? 0 : found->second - arrived.at({source, destination, id});
    }

    uint64_t bytes_from(uint16_t source) const {
        uint64_t bytes = 0;
        for (const Booked& b : booked)
            bytes += b.source == source ? b.bytes : 0;
        return bytes;
    }

    std::vector<uint64_t> memory;
    edm_match m;
    uint64_t now = 1'000'000;
    std::vector<Booked> booked;

private:
    using Key = std::tuple<uint16_t, uint16_t, uint32_t>;
    std::vector<uint32_t> ids;
    uint32_t drains = 0;
    std::map<Key, uint64_t> arrived, done;
};

} // namespace edm
