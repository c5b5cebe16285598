// SPDX-License-Identifier: GPL-2.0
// Sealed handles (REMOTE_SEALED), seen by somebody between the program and the node.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <tuple>

#include "backend.hpp"

namespace remora::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::string_view secret = "attack at dawn, and bring the maps; ";

Bytes secret_of(std::size_t bytes) {
    Bytes data(bytes);
    for (std::size_t at = 0; at < bytes; at++)
        data[at] = static_cast<std::uint8_t>(secret[at % secret.size()]);
    return data;
}

bool has(const Bytes& datagram, std::span<const std::uint8_t> what) {
    return std::search(datagram.begin(), datagram.end(), what.begin(), what.end()) !=
           datagram.end();
}

std::uint64_t counter(TestNode& node, std::string_view name) {
    for (const auto& [each, value] : node.report().counters)
        if (each == name)
            return value;
    ADD_FAILURE() << "no counter " << name;
    return 0;
}

struct Sealed : testing::Test {
    // The relay's thread uses these until it ends.
    std::mt19937 random{1};
    std::uint64_t in_header = 0, behind = 0, to_client = 0; // bits flipped
    std::vector<Bytes> writes;
    std::size_t played = 0;
    std::mutex lock;
    std::vector<Bytes> seen;
    TestNode node;
    Relay relay{node.port(), 0};
    remote_t* r = nullptr;

    ~Sealed() override { remote_close(r); }

    void watch() {
        relay.change([this](bool, Bytes& datagram) {
            std::lock_guard guard(lock);
            seen.push_back(datagram);
        });
    }
    // Datagrams, but for OPEN and its answers, that have it behind their header.
    std::size_t count(std::span<const std::uint8_t> what) {
        std::lock_guard guard(lock);
        return static_cast<std::size_t>(std::ranges::count_if(seen, [&](const Bytes& each) {
            return !(each[1] & RMEM_FLAGS_CLEAR) &&
                   has(Bytes(each.begin() + RMEM_HDR_BYTES, each.end()), what);
        }));
    }
    void open(const char* level) {
        std::string target = udp_target(relay.port()) + ",integrity=" + level;
        ASSERT_EQ(remote_open(&r, target.c_str(), nullptr), 0) << remote_why();
    }
    // All kinds of messages whose payloads tell something. Returns the address used.
    raddr_t talk() {
        raddr_t address = 0;
        EXPECT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &address), 0);
        Bytes data = secret_of(100'000), back(data.size());
        EXPECT_EQ(rwrite(r, address, data.data(), data.size()), 0);
        EXPECT_EQ(rread(r, address, back.data(), back.size()), 0);
        EXPECT_EQ(back, data);
        std::uint64_t found = 0;
        EXPECT_EQ(remote_fetch(r, address + (1 << 19), 8, REMOTE_ADD, 1, &found), 0);
        EXPECT_EQ(found, 0U);
        EXPECT_EQ(remote_publish(r, "the name of the secret", address), 0);
        raddr_t named = 0;
        EXPECT_EQ(remote_lookup(r, "the name of the secret", &named, nullptr), 0);
        EXPECT_EQ(named, address);
        EXPECT_EQ(rfree(r, address), 0);
        return address;
    }
};

std::span<const std::uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

TEST_F(Sealed, NoDatagramHasPlaintext) {
    watch();
    open("sealed");
    raddr_t address = talk();
    std::uint8_t where[8];
    base_store_le64(where, address);
    EXPECT_EQ(count(bytes_of(secret.substr(0, 8))), 0U);
    EXPECT_EQ(count(bytes_of("the name")), 0U);
    EXPECT_EQ(count(where), 0U);
    std::lock_guard guard(lock);
    EXPECT_GT(seen.size(), 20U);
    std::size_t clear = 0;
    for (const Bytes& each : seen)
        clear += !rmem_wire_is_sealed(each.data());
    EXPECT_EQ(clear, 4U); // OPEN, its challenge, OPEN with that, its answer
}

// The search of the test above can find plaintext.
TEST_F(Sealed, AtLevelFullTheSameTalkIsReadable) {
    watch();
    open("full");
    raddr_t address = talk();
    std::uint8_t where[8];
    base_store_le64(where, address);
    EXPECT_GT(count(bytes_of(secret.substr(0, 8))), 10U);
    EXPECT_GT(count(bytes_of("the name")), 0U);
    EXPECT_GT(count(where), 10U);
}

TEST_F(Sealed, TwoSessionsHaveNoCiphertextInCommon) {
    watch();
    open("sealed");
    talk();
    std::vector<Bytes> first;
    {
        std::lock_guard guard(lock);
        first = std::move(seen);
        seen.clear();
    }
    remote_close(r);
    open("sealed");
    talk();
    std::lock_guard guard(lock);
    for (const Bytes& each : seen) {
        if (each.size() <= RMEM_HDR_BYTES + 64 || !rmem_wire_is_sealed(each.data()))
            continue;
        for (const Bytes& other : first)
            ASSERT_FALSE(has(other, std::span(each).subspan(RMEM_HDR_BYTES, 16)));
    }
}

TEST_F(Sealed, FlippedBitIsRefusedAndCounted) {
    open("sealed");
    raddr_t address = 0;
    ASSERT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &address), 0);
    relay.change([this](bool to_node, Bytes& datagram) {
        if (random() % 6)
            return;
        std::size_t bit = random() % (8 * datagram.size());
        datagram[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
        std::uint64_t& which = bit / 8 < RMEM_HDR_BYTES ? in_header : behind;
        (to_node ? which : to_client)++;
    });
    for (unsigned round = 0; round < 30; round++) {
        Bytes data = secret_of(3'000 + round), back(data.size());
        ASSERT_EQ(rwrite(r, address + round, data.data(), data.size()), 0);
        ASSERT_EQ(rread(r, address + round, back.data(), back.size()), 0);
        ASSERT_EQ(back, data);
    }
    relay.change(nullptr);
    EXPECT_GT(behind, 0U);
    EXPECT_EQ(counter(node, "drop-seal"), behind);
    EXPECT_EQ(counter(node, "damaged"), 0U);
}

TEST_F(Sealed, DatagramPlayedAgainChangesNothing) {
    open("sealed");
    raddr_t address = 0;
    ASSERT_EQ(ralloc(r, 1 << 16, REMOTE_RW, &address), 0);
    Bytes first = secret_of(512), second(512, 7), back(512);
    // Both to the place of one later request each.
    relay.change([this](bool to_node, Bytes& datagram) {
        if (to_node && datagram.size() > 512)
            writes.push_back(datagram);
    });
    ASSERT_EQ(rwrite(r, address, first.data(), first.size()), 0);
    ASSERT_EQ(rwrite(r, address, second.data(), second.size()), 0);
    relay.change([this](bool to_node, Bytes& datagram) {
        if (to_node && played < writes.size())
            datagram = writes[played++];
    });
    for (unsigned round = 0; round < 4; round++) {
        ASSERT_EQ(rread(r, address, back.data(), back.size()), 0);
        EXPECT_EQ(back, second);
    }
    EXPECT_GT(played, 0U);
}

TEST_F(Sealed, NodeThatRestartsIsNoticed) {
    open("sealed");
    raddr_t address = 0;
    ASSERT_EQ(ralloc(r, 1 << 16, REMOTE_RW, &address), 0);
    remote_t* other = nullptr;
    std::optional<TestNode> first(std::in_place);
    std::uint16_t port = first->port();
    std::string target = udp_target(port) + ",integrity=sealed";
    ASSERT_EQ(remote_open(&other, target.c_str(), nullptr), 0) << remote_why();
    ASSERT_EQ(ralloc(other, 1 << 16, REMOTE_RW, &address), 0);
    first.reset();
    TestNode second(port);
    std::uint8_t byte = 1;
    EXPECT_EQ(rwrite(other, address, &byte, 1), -ESTALE);
    EXPECT_GE(counter(second, "rebooted"), 1U);
    remote_close(other);
}

TEST_F(Sealed, SpaceThatRequiresItRefusesOtherLevels) {
    remote_t* other = nullptr;
    for (const char* level : {"link", "digest", "full"}) {
        std::string target = sealed_only_target(node.port()) + ",integrity=" + level;
        EXPECT_EQ(remote_open(&other, target.c_str(), nullptr), -EACCES) << level;
        EXPECT_NE(std::string(remote_why()).find("integrity=sealed"), std::string::npos);
    }
    remote_options options{};
    options.size = sizeof(options);
    options.integrity = REMOTE_SEALED;
    ASSERT_EQ(remote_open(&other, sealed_only_target(node.port()).c_str(), &options), 0)
        << remote_why();
    raddr_t address = 0;
    EXPECT_EQ(ralloc(other, 4096, REMOTE_RW, &address), 0);
    remote_close(other);
}

TEST_F(Sealed, WaysThatSealNothingRefuseIt) {
    remote_options options{};
    options.size = sizeof(options);
    options.integrity = REMOTE_SEALED;
    remote_t* other = nullptr;
    EXPECT_EQ(remote_open(&other, "dev:/dev/rmem0", &options), -EPROTONOSUPPORT);
    EXPECT_NE(std::string(remote_why()).find("udp:"), std::string::npos);
    std::string path = shm_path();
    TestNode with_rings(daemon::ShmOptions{.path = path});
    EXPECT_EQ(remote_open(&other, (shm_target(path) + ",integrity=sealed").c_str(), nullptr),
              -EPROTONOSUPPORT);
    EXPECT_NE(std::string(remote_why()).find("integrity=full"), std::string::npos);
}

TEST_F(Sealed, UnknownLevelOfATargetIsInvalid) {
    remote_t* other = nullptr;
    EXPECT_EQ(remote_open(&other, (udp_target(node.port()) + ",integrity=seal").c_str(), nullptr),
              -EINVAL);
    EXPECT_NE(std::string(remote_why()).find("sealed"), std::string::npos);
}

TEST_F(Sealed, TargetThatContradictsTheOptionsIsInvalid) {
    remote_options options{};
    options.size = sizeof(options);
    remote_t* other = nullptr;
    for (const auto& [level, wanted, error] : {std::tuple{"link", REMOTE_SEALED, -EINVAL},
                                               {"digest", REMOTE_SEALED, -EINVAL},
                                               {"sealed", REMOTE_FULL, -EINVAL},
                                               {"sealed", REMOTE_SEALED, 0},
                                               {"sealed", REMOTE_DIGEST, 0}}) {
        options.integrity = wanted;
        const std::string target = udp_target(node.port()) + ",integrity=" + level;
        EXPECT_EQ(remote_open(&other, target.c_str(), &options), error) << level << wanted;
        if (error) {
            EXPECT_NE(std::string(remote_why()).find("another level"), std::string::npos);
        } else {
            remote_close(other);
        }
    }
}

// The relay loses, doubles and delays a tenth of all datagrams; remote_info() renews the session.
TEST_F(Sealed, BadNetworkCorruptsNothing) {
    Relay bad(node.port(), 10);
    std::string target = udp_target(bad.port()) + ",integrity=sealed";
    ASSERT_EQ(remote_open(&r, target.c_str(), nullptr), 0) << remote_why();
    raddr_t address = 0;
    ASSERT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &address), 0);
    Bytes model(20'000), back(model.size());
    std::mt19937 random(7);
    for (unsigned round = 0; round < 60; round++) {
        std::size_t from = random() % model.size();
        std::size_t bytes = 1 + random() % (model.size() - from);
        std::uint8_t value = static_cast<std::uint8_t>(random());
        std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(from), bytes, value);
        ASSERT_EQ(rwrite(r, address + from, &model[from], bytes), 0);
        if (round % 8 == 7) {
            remote_node info{};
            info.size = sizeof(info);
            ASSERT_EQ(remote_info(r, &info), 0) << remote_why(); // renews the session
        }
        ASSERT_EQ(rread(r, address, back.data(), back.size()), 0);
        ASSERT_EQ(back, model);
    }
    EXPECT_GE(counters_of(r).reopened, 7U);
}

} // namespace

} // namespace remora::test
