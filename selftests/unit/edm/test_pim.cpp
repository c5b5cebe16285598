// SPDX-License-Identifier: GPL-2.0
// The cycle model of the paper's matcher: cycles, order, iterations to a maximal matching.
#include <cmath>
#include <random>

#include "matcher.hpp"

namespace edm {

namespace {

// Ports whose messages the event-driven matcher of the rig does not touch.
struct Pim {
    explicit Pim(uint16_t ports) : rack(ports) { edm_pim_init(&pim, &rack.m); }

    void add(uint16_t source, uint16_t destination, uint32_t size) {
        edm_announcement a{};
        a.source = source;
        a.destination = destination;
        a.type = EDM_WRITE;
        a.size = size;
        a.id = id++;
        edm_demand* demand = nullptr;
        EXPECT_NE(edm_match_announce(&rack.m, rack.now, &a, &demand), EDM_DEMAND_STALE);
    }

    // A cycle; returns how many pairs it matched.
    uint32_t tick() {
        edm_booking booking;
        uint32_t matched = 0;
        edm_pim_tick(&pim, rack.now);
        while (edm_pim_next(&pim, rack.now, &booking)) {
            matched++;
            booked.push_back({rack.now, booking.ends_ns, booking.demand->source,
                              booking.demand->destination, booking.demand->id, booking.bytes,
                              booking.end});
        }
        return matched;
    }
    uint32_t iterate() { return tick() + tick() + tick(); }

    Matcher rack;
    edm_pim pim;
    std::vector<Booked> booked;
    uint32_t id = 0;
};

TEST(EdmPim, LoneMessageIsMatchedInTheThirdCycle) {
    Pim rack(4);
    rack.add(0, 1, 64);
    EXPECT_EQ(rack.tick(), 0u);
    EXPECT_EQ(rack.tick(), 0u);
    EXPECT_EQ(rack.tick(), 1u);
    EXPECT_EQ(rack.booked[0].source, 0);
    EXPECT_EQ(rack.booked[0].destination, 1);
}

TEST(EdmPim, SourceGrantsTheBestOfItsRequests) {
    Pim rack(4);
    rack.add(0, 1, 8 * chunk);
    rack.add(0, 2, 64);
    rack.add(0, 3, 2 * chunk);
    EXPECT_EQ(rack.iterate(), 1u);
    EXPECT_EQ(rack.booked[0].destination, 2);
}

TEST(EdmPim, DestinationRequestsItsBestMessage) {
    Pim rack(4);
    rack.add(0, 3, 8 * chunk);
    rack.add(1, 3, 64);
    EXPECT_EQ(rack.iterate(), 1u);
    EXPECT_EQ(rack.booked[0].source, 1);
}

TEST(EdmPim, MessageThatEndsBetweenCyclesIsNotBooked) {
    Pim rack(4);
    rack.add(0, 1, 64);
    rack.tick();
    rack.tick();
    edm_demand_end(&rack.rack.m.demands, edm_demand_find(&rack.rack.m.demands, 0, 0));
    EXPECT_EQ(rack.tick(), 0u);
}

// Iterations until no idle pair has a message.
uint32_t iterations(Pim& rack) {
    for (uint32_t n = 1;; n++)
        if (!rack.iterate())
            return n - 1;
}

TEST(EdmPim, MatchingIsMaximalAfterLog2IterationsOnAverage) {
    for (uint16_t ports : {16, 64, 256}) {
        double sum = 0;
        for (uint32_t seed = 0; seed < 10; seed++) {
            Pim rack(ports);
            std::mt19937 random(seed);
            for (uint16_t source = 0; source < ports; source++) {
                rack.id = 0;
                for (uint32_t n = 0; n < 8; n++)
                    rack.add(source,
                             static_cast<uint16_t>((source + 1 + random() % (ports - 1)) % ports),
                             1 + random() % 5000);
            }
            sum += iterations(rack);
            for (uint16_t port = 0; port < ports; port++) {
                uint16_t peer;
                const bool idle = edm_match_is_idle(&rack.rack.m, EDM_DESTINATION, port);
                EXPECT_TRUE(!idle || edm_match_best(&rack.rack.m, rack.rack.now, EDM_DESTINATION,
                                                    port, &peer) == EDM_LEVELS);
            }
        }
        EXPECT_LE(sum / 10, std::log2(ports) + 1) << ports;
        EXPECT_GE(sum / 10, 2) << ports;
    }
}

} // namespace

} // namespace edm
