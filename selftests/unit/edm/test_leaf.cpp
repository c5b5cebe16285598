// SPDX-License-Identifier: GPL-2.0
// Leaves that schedule together: which chunks sources are told of, and what leaves tell each other.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <vector>

#include "matcher.hpp"

namespace {

using namespace edm;

constexpr uint16_t hosts = 4;
constexpr uint64_t trip_ns = 2000; // from leaf to leaf; a byte takes a nanosecond
constexpr uint32_t window = 4 * chunk;

edm_leaf_config leaf_config(uint16_t leaves, uint16_t leaf) {
    edm_leaf_config config{};
    config.match = match_config(static_cast<uint16_t>(leaves * hosts + leaves));
    config.leaves = leaves;
    config.leaf = leaf;
    config.hosts = hosts;
    config.window_bytes = window;
    return config;
}

struct Granted {
    uint64_t at_ns;
    edm_offer chunk;
};

// Leaves with trips between them.
class Fabric {
public:
    explicit Fabric(uint16_t leaves) : ids(leaves * hosts) {
        for (uint16_t leaf = 0; leaf < leaves; leaf++) {
            const edm_leaf_config config = leaf_config(leaves, leaf);
            EXPECT_TRUE(edm_leaf_config_is_valid(&config));
            memory.emplace_back(edm_leaf_bytes(&config) / 8 + 1);
            edm_leaf& one = leaf_.emplace_back();
            edm_leaf_init(&one, &config, memory.back().data());
            for (uint16_t port = 0; port < config.match.demand.ports; port++)
                edm_match_follow(&one.match, now, port,
                                 port < leaves * hosts ? nanosecond_a_byte
                                                       : nanosecond_a_byte / hosts);
        }
        run(2 * chunk);
    }

    edm_leaf& leaf_of(uint16_t host) { return leaf_[host / hosts]; }

    uint32_t add(uint16_t source, uint16_t destination, uint32_t size) {
        edm_announcement a{};
        a.source = source;
        a.destination = destination;
        a.type = EDM_WRITE;
        a.size = size;
        a.id = ids[source]++;
        edm_demand* demand;
        edm_leaf& leaf = leaf_of(destination);
        EXPECT_EQ(edm_match_announce(&leaf.match, now, &a, &demand), EDM_DEMAND_NEW);
        drain(leaf);
        return a.id;
    }

    void run(uint64_t ns) {
        const uint64_t until = now + ns;
        for (;;) {
            uint64_t next = trips.empty() ? until + 1 : trips.begin()->first;
            for (edm_leaf& leaf : leaf_)
                next = std::min<uint64_t>(next, edm_match_deadline_ns(&leaf.match));
            if (next > until)
                break;
            now = next;
            while (!trips.empty() && trips.begin()->first <= now) {
                const Trip trip = trips.begin()->second;
                trips.erase(trips.begin());
                arrive(trip);
            }
            for (edm_leaf& leaf : leaf_)
                drain(leaf);
        }
        now = until;
    }

    uint64_t bytes_to(uint16_t destination) const {
        uint64_t bytes = 0;
        for (const Granted& one : granted)
            bytes += one.chunk.destination == destination ? one.chunk.bytes : 0;
        return bytes;
    }
    uint64_t bytes_of(uint16_t source, uint32_t id) const {
        uint64_t bytes = 0;
        for (const Granted& one : granted)
            bytes += one.chunk.source == source && one.chunk.id == id ? one.chunk.bytes : 0;
        return bytes;
    }

    uint64_t now = 1'000'000;
    bool loses_taken = false;
    std::vector<Granted> granted;
    std::vector<edm_offer> offers;
    std::map<uint16_t, uint64_t> free_ns; // of sources

private:
    struct Trip {
        edm_leaf* to;
        edm_offer chunk;
        bool is_taken, last;
    };

    void arrive(const Trip& trip) {
        if (trip.is_taken)
            edm_leaf_taken(trip.to, trip.chunk.source, trip.chunk.bytes, trip.last);
        else
            EXPECT_TRUE(edm_leaf_offer(trip.to, now, &trip.chunk));
    }

    void drain(edm_leaf& leaf) {
        edm_leaf_action action;
        while (edm_leaf_next(&leaf, now, &action)) {
            const edm_offer& chunk = action.chunk;
            if (action.what == EDM_LEAF_OFFER) {
                offers.push_back(chunk);
                trips.emplace(now + trip_ns, Trip{&leaf_of(chunk.source), chunk, false, false});
                continue;
            }
            EXPECT_LE(free_ns[chunk.source], now + unit) << "a source is promised twice";
            free_ns[chunk.source] = std::max(now, free_ns[chunk.source]) + chunk.bytes;
            granted.push_back({now, chunk});
            if (action.taken_by != EDM_LEAF_NONE && !loses_taken)
                trips.emplace(now + trip_ns,
                              Trip{&leaf_[action.taken_by], chunk, true, action.last});
        }
        // The check takes ports^2 steps.
        if (drains++ % 32)
            return;
        const char* broken = edm_leaf_check(&leaf);
        ASSERT_FALSE(broken) << broken;
    }

    std::vector<std::vector<uint64_t>> memory;
    std::deque<edm_leaf> leaf_; // not moved: their lists have pointers to themselves
    std::vector<uint32_t> ids;
    uint32_t drains = 0;
    std::multimap<uint64_t, Trip> trips;
};

TEST(EdmLeaf, MessageWithinALeafNeedsNoOffer) {
    Fabric fabric(2);
    fabric.add(0, 1, 3 * chunk);
    fabric.run(4 * chunk);
    EXPECT_EQ(fabric.bytes_to(1), 3 * chunk);
    EXPECT_TRUE(fabric.offers.empty());
}

TEST(EdmLeaf, EachByteOfAFarMessageIsGrantedOnce) {
    Fabric fabric(2);
    const uint32_t size = 20 * chunk + 7;
    fabric.add(0, hosts, size);
    fabric.run(2 * trip_ns + 2 * size);
    uint32_t end = 0;
    for (const Granted& one : fabric.granted) {
        EXPECT_EQ(one.chunk.end, end + one.chunk.bytes);
        EXPECT_EQ(one.chunk.end + one.chunk.beyond, size);
        end = one.chunk.end;
    }
    EXPECT_EQ(end, size);
}

// A window of two round trips keeps a source busy all the time.
TEST(EdmLeaf, LoneFarMessageHasTheWholeLink) {
    Fabric fabric(2);
    const uint32_t size = 100 * chunk;
    fabric.add(0, hosts, size);
    fabric.run(trip_ns + size);
    EXPECT_GE(fabric.bytes_to(hosts), size - 2 * chunk);
}

// Three leaves and its own want all that it has: its leaf grants a chunk at a time, and it never
// rests.
TEST(EdmLeaf, SourceOfFourLeavesIsPromisedToOneReceiverAtATime) {
    Fabric fabric(4);
    const uint32_t size = 50 * chunk;
    for (uint16_t leaf = 0; leaf < 4; leaf++)
        fabric.add(0, static_cast<uint16_t>(leaf * hosts + 1), size);
    fabric.run(4 * size + trip_ns);
    for (uint16_t leaf = 0; leaf < 4; leaf++)
        EXPECT_EQ(fabric.bytes_to(static_cast<uint16_t>(leaf * hosts + 1)), size) << leaf;
}

TEST(EdmLeaf, SilentLeafsSourceGetsAWindowOfOffers) {
    Fabric fabric(2);
    fabric.loses_taken = true;
    fabric.add(0, hosts, 100 * chunk);
    // Another source is not held up.
    fabric.add(1, hosts, 2 * chunk);
    fabric.run(200 * chunk);
    EXPECT_EQ(fabric.bytes_of(0, 0), window);
    EXPECT_EQ(fabric.bytes_of(1, 0), 2 * chunk);
}

TEST(EdmLeaf, ManySmallOffersAreBoundedByTheirNumber) {
    Fabric fabric(2);
    fabric.loses_taken = true;
    for (uint32_t n = 0; n < EDM_LEAF_OFFERS + hosts; n++) {
        fabric.add(0, static_cast<uint16_t>(hosts + n % hosts), 1);
        fabric.run(chunk);
    }
    EXPECT_EQ(fabric.offers.size(), EDM_LEAF_OFFERS);
}

TEST(EdmLeaf, OfferBeyondTheQueueIsRefused) {
    Fabric fabric(2);
    edm_offer offer{};
    offer.bytes = 1;
    offer.end = 1;
    offer.destination = hosts;
    for (uint32_t n = 0; n < EDM_LEAF_OFFERS; n++)
        EXPECT_TRUE(edm_leaf_offer(&fabric.leaf_of(0), fabric.now, &offer));
    EXPECT_FALSE(edm_leaf_offer(&fabric.leaf_of(0), fabric.now, &offer));
}

// The offered chunk of a long message looks as short as a short one, but for the bytes behind it.
TEST(EdmLeaf, ShortMessageGoesBeforeOfferedChunksOfLongOnes) {
    Fabric fabric(2);
    for (uint16_t other = 0; other < 2; other++)
        fabric.add(0, static_cast<uint16_t>(hosts + other), 100 * chunk);
    fabric.run(20 * chunk);
    const uint32_t id = fabric.add(0, 1, chunk);
    const uint64_t began = fabric.now;
    fabric.run(200 * chunk);
    ASSERT_EQ(fabric.bytes_of(0, id), chunk);
    for (const Granted& one : fabric.granted) {
        if (one.chunk.id == id && one.chunk.source == 0) {
            EXPECT_LE(one.at_ns, began + 2 * chunk);
        }
    }
}

TEST(EdmLeaf, RandomMessagesAreGrantedInFull) {
    for (uint32_t seed = 1; seed <= 10; seed++) {
        Fabric fabric(3);
        std::mt19937 random(seed);
        std::map<std::pair<uint16_t, uint32_t>, uint32_t> sizes;
        for (int n = 0; n < 400; n++) {
            const auto source = static_cast<uint16_t>(random() % (3 * hosts));
            const auto destination =
                static_cast<uint16_t>((source + 1 + random() % (3 * hosts - 1)) % (3 * hosts));
            const uint32_t size = 1 + random() % (random() % 4 ? 200 : 6 * chunk);
            sizes[{source, fabric.add(source, destination, size)}] = size;
            fabric.run(random() % (4 * chunk));
        }
        fabric.run(1000 * chunk);
        for (const auto& [message, size] : sizes)
            EXPECT_EQ(fabric.bytes_of(message.first, message.second), size) << "seed " << seed;
    }
}

TEST(EdmLeaf, ImpossibleConfigurationsAreRefused) {
    for (auto change :
         {+[](edm_leaf_config& c) { c.hosts = 0; }, +[](edm_leaf_config& c) { c.leaf = 2; },
          +[](edm_leaf_config& c) { c.window_bytes = chunk - 1; },
          +[](edm_leaf_config& c) { c.match.demand.ports--; },
          +[](edm_leaf_config& c) { c.match.demand.slots = hosts / 2; }}) {
        edm_leaf_config config = leaf_config(2, 0);
        EXPECT_TRUE(edm_leaf_config_is_valid(&config));
        change(config);
        EXPECT_FALSE(edm_leaf_config_is_valid(&config));
    }
}

} // namespace
