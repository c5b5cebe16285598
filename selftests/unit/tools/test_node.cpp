// SPDX-License-Identifier: GPL-2.0
// Which answers of the daemon's node share datagrams, of requests that were received together.
#include "remora-node/node.hpp"

#include <cstring>
#include <list>

#include <gtest/gtest.h>

namespace remora::daemon {

namespace {

constexpr std::uint32_t space = 1;
constexpr Key key{1, 2, 3};

class Answers final : public Outbox {
public:
    Reply& add(const Path&) override { return replies.emplace_back(); }
    std::vector<std::size_t> messages() const {
        std::vector<std::size_t> counts;
        for (const Reply& reply : replies)
            counts.push_back((reply.head_bytes - RMEM_HDR_BYTES) / RMEM_MSG_BYTES);
        return counts;
    }
    std::list<Reply> replies;
};

class Joined : public testing::Test {
protected:
    Joined() : node_(config(), false, 1) {
        base_siphash_key_load(&key_, key.data());
        node_.add_space(space, key, 0);
    }

    static rmem_node_config config() {
        rmem_node_config config{};
        config.boot = 7;
        config.pages = 4;
        config.page_shift = RMEM_PAGE_SHIFT_MIN;
        config.pool_pages = 2;
        config.piece_bytes = RMEM_PIECE_BYTES_MAX;
        config.spaces_max = 1;
        config.sessions_max = 4;
        config.regions_max = 4;
        return config;
    }

    static Path path(std::uint16_t port) {
        Path path{};
        path.peer.sin6_family = AF_INET6;
        path.peer.sin6_port = htons(port);
        return path;
    }

    void handle(rmem_head head, std::uint16_t port, Answers& answers, const void* payload = nullptr,
                std::size_t bytes = 0) {
        std::vector<std::uint8_t> datagram(RMEM_HEADS_BYTES(1) + bytes);
        head.space = space;
        head.boot = head.type == RMEM_OPEN ? 0 : 7;
        rmem_datagram_build_one(datagram.data(), &head, &key_, payload);
        if (bytes)
            std::memcpy(datagram.data() + RMEM_HEADS_BYTES(1), payload, bytes);
        node_.handle(0, 1, datagram, path(port), answers);
    }

    // A session from that port, whose answers share datagrams of so many bytes.
    std::uint64_t open(std::uint16_t port, std::uint16_t datagram_bytes) {
        rmem_open open{};
        open.client[0] = static_cast<std::uint8_t>(port);
        base_store_le16(&open.datagram_bytes, datagram_bytes);
        rmem_head head{};
        head.type = RMEM_OPEN;
        head.id = 1;
        head.len = sizeof(open);
        Answers answers;
        handle(head, port, answers, &open, sizeof(open));
        EXPECT_EQ(answers.replies.size(), 1U);
        const Reply& reply = answers.replies.front();
        rmem_datagram opened;
        EXPECT_EQ(rmem_datagram_open(&opened, reply.head.data(), static_cast<u32>(reply.head_bytes),
                                     true),
                  RMEM_WIRE_GOOD);
        return opened.head.session;
    }

    // A READ of no region: it is answered, which is all that matters here.
    void ask(std::uint64_t session, std::uint64_t id, std::uint16_t port, Answers& answers) {
        rmem_head head{};
        head.type = RMEM_READ;
        head.session = session;
        head.id = id;
        head.len = 1;
        head.piece = RMEM_PIECE_BYTES_MIN;
        handle(head, port, answers);
    }

    Node node_;
    base_siphash_key key_;
};

using Counts = std::vector<std::size_t>;

TEST_F(Joined, AnswersOfOneSession) {
    std::uint64_t session = open(1, 8972);
    Answers answers;
    for (std::uint64_t id = 1; id <= RMEM_BUNDLE_MAX + 2; id++)
        ask(session, id, 1, answers);
    EXPECT_EQ(answers.messages(), (Counts{RMEM_BUNDLE_MAX, 2}));
}

TEST_F(Joined, AnswersOfAnotherSessionTravelApart) {
    std::uint64_t one = open(1, 8972), two = open(2, 8972);
    Answers answers;
    ask(one, 1, 1, answers);
    ask(two, 1, 2, answers);
    ask(two, 2, 2, answers);
    ask(one, 2, 1, answers);
    EXPECT_EQ(answers.messages(), (Counts{1, 2, 1}));
}

TEST_F(Joined, NotWhereTheClientWantsThemAlone) {
    std::uint64_t session = open(1, 0);
    Answers answers;
    for (std::uint64_t id = 1; id <= 3; id++)
        ask(session, id, 1, answers);
    EXPECT_EQ(answers.messages(), (Counts{1, 1, 1}));
}

TEST_F(Joined, AnswersToAnotherAddressTravelApart) {
    std::uint64_t session = open(1, 8972);
    Answers answers;
    ask(session, 1, 1, answers);
    ask(session, 2, 2, answers);
    EXPECT_EQ(answers.messages(), (Counts{1, 1}));
}

} // namespace

} // namespace remora::daemon
