// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "core.hpp"

namespace {

// Senders with all the credit they want, below one NIC.
struct Nic {
    struct Tunnel {
        eqds_sender sender;
        std::vector<eqds_packet*> slots;
        std::vector<std::unique_ptr<eqds_packet>> packets;
        eqds_eqif* eqif;
    };

    Nic() {
        eqds_config_init(&config, &eqds_profile_extended, 9000, 1 << 30);
        config.window_packets = 4096;
        config.trimming = true; // starts with a window of credit
        eqds_drr_init(&drr);
    }

    eqds_eqif* eqif(uint8_t level, uint32_t quantum_bytes) {
        eqifs.push_back(std::make_unique<eqds_eqif>());
        eqds_eqif_init(eqifs.back().get(), level, quantum_bytes);
        return eqifs.back().get();
    }
    Tunnel* tunnel(eqds_eqif* eqif, uint32_t packets, uint32_t bytes) {
        tunnels.push_back(std::make_unique<Tunnel>());
        Tunnel* t = tunnels.back().get();
        t->slots.resize(config.window_packets);
        t->eqif = eqif;
        eqds_sender_init(&t->sender, &config, t->slots.data(), nullptr, tunnels.size() - 1, 1, 0);
        offer(t, packets, bytes);
        return t;
    }
    void offer(Tunnel* t, uint32_t packets, uint32_t bytes) {
        for (uint32_t i = 0; i < packets; i++) {
            t->packets.push_back(std::make_unique<eqds_packet>());
            t->packets.back()->bytes = bytes;
            eqds_out out;
            eqds_sender_enqueue(&t->sender, 1, t->packets.back().get(), &out);
        }
        eqds_drr_update(&drr, t->eqif, &t->sender);
    }
    // Sends packets, and returns the ids of their tunnels.
    std::vector<uint16_t> send(uint32_t packets) {
        std::vector<uint16_t> from;
        eqds_head head;
        eqds_sender* s;
        while (packets--) {
            eqds_packet* packet = eqds_drr_send(&drr, 1, &head, &s);
            if (!packet)
                break;
            EXPECT_EQ(head.sender, s->id);
            EXPECT_EQ(head.bytes, packet->bytes);
            sent_bytes[s->id] += packet->bytes;
            from.push_back(s->id);
        }
        return from;
    }

    eqds_config config;
    eqds_drr drr;
    std::vector<std::unique_ptr<eqds_eqif>> eqifs;
    std::vector<std::unique_ptr<Tunnel>> tunnels;
    std::map<uint16_t, uint64_t> sent_bytes;
};

using Ids = std::vector<uint16_t>;

TEST(EqdsDrr, TunnelsOfAnInterfaceTakeTurns) {
    Nic nic;
    eqds_eqif* eqif = nic.eqif(0, 1500);
    for (int i = 0; i < 3; i++)
        nic.tunnel(eqif, 2, 1500);
    EXPECT_EQ(nic.send(10), (Ids{0, 1, 2, 0, 1, 2}));
    EXPECT_TRUE(nic.send(1).empty());
}

TEST(EqdsDrr, InterfacesShareBytesAndNotPackets) {
    Nic nic;
    nic.tunnel(nic.eqif(0, 9000), 2000, 300);
    nic.tunnel(nic.eqif(0, 9000), 100, 9000);
    nic.send(1000);
    EXPECT_NEAR(double(nic.sent_bytes[0]), double(nic.sent_bytes[1]), 2 * 9000);
}

TEST(EqdsDrr, QuantumIsTheWeightOfAnInterface) {
    Nic nic;
    nic.tunnel(nic.eqif(0, 3 * 1500), 2000, 1500);
    nic.tunnel(nic.eqif(0, 1500), 2000, 1500);
    nic.send(400);
    EXPECT_EQ(nic.sent_bytes[0], 300u * 1500);
    EXPECT_EQ(nic.sent_bytes[1], 100u * 1500);
}

TEST(EqdsDrr, InterfaceWithManyTunnelsGetsNoMoreThanOneWithOne) {
    Nic nic;
    eqds_eqif *greedy = nic.eqif(0, 1500), *modest = nic.eqif(0, 1500);
    for (int i = 0; i < 10; i++)
        nic.tunnel(greedy, 200, 1500);
    nic.tunnel(modest, 200, 1500);
    nic.send(200);
    EXPECT_EQ(nic.sent_bytes[10], 100u * 1500);
}

TEST(EqdsDrr, LowerLevelSendsFirst) {
    Nic nic;
    nic.tunnel(nic.eqif(3, 1500), 2, 1500);
    nic.tunnel(nic.eqif(200, 1500), 1, 1500); // levels beyond the last are the last
    nic.tunnel(nic.eqif(0, 1500), 3, 1500);
    EXPECT_EQ(nic.send(4), (Ids{2, 2, 2, 0}));
    nic.offer(nic.tunnels[2].get(), 1, 1500);
    EXPECT_EQ(nic.send(1), (Ids{2}));
    EXPECT_EQ(nic.send(9).size(), 2u);
}

TEST(EqdsDrr, InterfaceThatWasIdleSavedNothingUp) {
    Nic nic;
    eqds_eqif *a = nic.eqif(0, 9000), *b = nic.eqif(0, 9000);
    Nic::Tunnel* ta = nic.tunnel(a, 1, 100);
    nic.send(1);
    EXPECT_TRUE(nic.send(1).empty()); // a leaves with most of its quantum unused
    EXPECT_EQ(a->deficit_bytes, 0u);
    EXPECT_FALSE(a->listed);
    nic.tunnel(b, 100, 9000);
    nic.offer(ta, 100, 9000);
    nic.sent_bytes.clear();
    nic.send(40);
    EXPECT_EQ(nic.sent_bytes[0], nic.sent_bytes[1]);
}

TEST(EqdsDrr, TunnelThatBecameUnreadyIsPassedOver) {
    Nic nic;
    eqds_eqif* eqif = nic.eqif(0, 1500);
    Nic::Tunnel* gone = nic.tunnel(eqif, 1, 1500);
    nic.tunnel(eqif, 1, 1500);
    eqds_out out;
    eqds_sender_close(&gone->sender, &out);
    EXPECT_EQ(nic.send(5), (Ids{1}));
    EXPECT_EQ(gone->sender.eqif, nullptr);
}

TEST(EqdsDrr, RemovedTunnelIsNotServed) {
    for (int removed = 0; removed < 3; removed++) {
        Nic nic;
        eqds_eqif* eqif = nic.eqif(0, 1500);
        for (int i = 0; i < 3; i++)
            nic.tunnel(eqif, 1, 1500);
        eqds_drr_remove(&nic.tunnels[removed]->sender);
        eqds_drr_remove(&nic.tunnels[removed]->sender); // twice is no harm
        Ids rest;
        for (uint16_t i = 0; i < 3; i++)
            if (i != removed)
                rest.push_back(i);
        EXPECT_EQ(nic.send(5), rest);
    }
}

TEST(EqdsDrr, RemovedInterfaceLeavesTheOthersListed) {
    for (int removed = 0; removed < 3; removed++) {
        Nic nic;
        eqds_eqif* eqif[3];
        for (auto& one : eqif) {
            one = nic.eqif(1, 1500);
            nic.tunnel(one, 2, 1500);
        }
        eqds_drr_remove_eqif(&nic.drr, eqif[removed]);
        EXPECT_EQ(nic.tunnels[removed]->sender.eqif, nullptr);
        nic.tunnel(nic.eqif(1, 1500), 2, 1500); // at the tail, which may have been removed
        Ids ids = nic.send(10);
        EXPECT_EQ(ids.size(), 6u);
        EXPECT_EQ(std::count(ids.begin(), ids.end(), removed), 0);
        EXPECT_EQ(std::count(ids.begin(), ids.end(), 3), 2);
    }
}

} // namespace
