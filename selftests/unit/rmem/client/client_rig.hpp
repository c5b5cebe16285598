// SPDX-License-Identifier: GPL-2.0
// A client that is attached, over net_rig.hpp's network.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "../net_rig.hpp"

namespace net {

inline Bytes noise(std::mt19937_64& random, size_t bytes) {
    Bytes data(bytes);
    for (auto& byte : data)
        byte = random();
    return data;
}

struct ClientTest : testing::Test {
    World world{42};
    uint64_t base = 0;

    rmem_client& client(size_t i = 0) { return world.channels[i]->client; }

    void attach(rmem_client_config config) {
        world.add_channel(config);
        base = allocate(world, 4 << 20);
    }

    void SetUp() override { attach(world.config(1)); }

    rmem_client_result write(uint64_t at, const Bytes& data) {
        Op op;
        make_write(op, base + at, data);
        return finish(world, op);
    }

    Bytes read(uint64_t at, uint32_t len) {
        Op op;
        make(op, RMEM_READ, base + at, len);
        EXPECT_EQ(finish(world, op), RMEM_CLIENT_OK);
        return op.data;
    }

    rmem_client_result simple(uint8_t type, uint64_t at, uint32_t len) {
        Op op;
        make(op, type, base + at, len);
        return finish(world, op);
    }
};

// From its begin on: datagrams of several messages, requests and answers.
struct Shared {
    explicit Shared(World& world) {
        world.on_sent = [this](const Packet& packet) {
            bool response = !packet.to_node;
            count[response] += received(packet.bytes, response, space_key()).size() > 1;
        };
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    size_t count[2] = {};
};

} // namespace net
