// SPDX-License-Identifier: GPL-2.0
// What arrives of answers that left as trains: each datagram as it was, in its order, at its peer.
#include "remora-node/outbox.hpp"

#include <cerrno>
#include <list>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <poll.h>

#include "remora-node/socket.hpp"
#include "support/descriptor.hpp"

namespace remora::daemon {

namespace {

constexpr int patience_ms = 10'000;

class Peer {
public:
    Peer() : socket_(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in6& address = path_.place_as<SocketPlace>().peer;
        address.sin6_family = AF_INET6;
        address.sin6_addr = in6addr_loopback;
        auto* any = reinterpret_cast<sockaddr*>(&address);
        socklen_t length = sizeof(address);
        int room = 4 << 20;
        if (bind(fd(), any, length) || getsockname(fd(), any, &length) ||
            setsockopt(fd(), SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)))
            ADD_FAILURE() << "no socket: " << errno;
    }
    int fd() const { return socket_.get(); }
    const Path& path() const { return path_; }
    // So many, and what came after them, which would be too many.
    std::vector<std::string> received(std::size_t count) const {
        std::vector<std::string> all;
        std::string buffer(1 << 16, 0);
        for (;;) {
            // Loopback may deliver later than at once, on a machine that has much to do.
            pollfd datagram{fd(), POLLIN, 0};
            if (all.size() < count && poll(&datagram, 1, patience_ms) <= 0)
                return all;
            ssize_t bytes = recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
            if (bytes < 0)
                return all;
            all.push_back(buffer.substr(0, static_cast<std::size_t>(bytes)));
        }
    }

private:
    Descriptor socket_;
    Path path_{};
};

class Trains : public testing::Test {
protected:
    // bytes of data behind a head, in so many pieces.
    void add(const Peer& peer, std::size_t bytes, unsigned pieces = 1) {
        std::string& data = texts_.emplace_back(bytes, static_cast<char>('a' + texts_.size() % 26));
        Reply& reply = outbox_.add(peer.path());
        std::string head = std::to_string(texts_.size()) + ":";
        std::copy(head.begin(), head.end(), reply.head.begin());
        reply.head_bytes = head.size();
        reply.pieces = pieces;
        std::span left(reinterpret_cast<const std::uint8_t*>(data.data()), data.size());
        for (unsigned i = 0; i < pieces; i++) {
            reply.data[i] = i + 1 < pieces ? left.first(bytes / pieces) : left;
            left = left.subspan(reply.data[i].size());
        }
        sent_[&peer].push_back(head + data);
    }

    void expect_all() {
        outbox_.flush();
        for (auto& [peer, texts] : sent_) {
            // Not EXPECT_EQ(): nobody wants to read them.
            EXPECT_TRUE(peer->received(texts.size()) == texts);
            answers_ += texts.size();
        }
        sent_.clear();
        EXPECT_EQ(counters_.get(count_answers), answers_);
        EXPECT_EQ(counters_.get(count_drop_xmit), 0U);
    }

    Peer node_, one_, other_;
    Counters counters_;
    SocketOutbox outbox_{node_.fd(), counters_};
    std::list<std::string> texts_;
    std::map<const Peer*, std::vector<std::string>> sent_;
    std::uint64_t answers_ = 0;
};

} // namespace

TEST_F(Trains, OfOneSize) {
    for (int i = 0; i < 7; i++)
        add(one_, 1000);
    expect_all();
}

TEST_F(Trains, EndWithAShorterOne) {
    for (std::size_t bytes : {1000, 1000, 999, 1000, 10, 20, 20, 5})
        add(one_, bytes);
    expect_all();
}

TEST_F(Trains, AreOfOnePeer) {
    for (int i = 0; i < 12; i++)
        add(i % 4 < 2 ? one_ : other_, 500);
    expect_all();
}

// More bytes than a packet has, and more datagrams than a train or a batch.
TEST_F(Trains, HaveAnEnd) {
    for (int i = 0; i < 20; i++)
        add(one_, RMEM_PIECE_BYTES_MAX, 9);
    for (int i = 0; i < 150; i++)
        add(other_, 100, 30);
    expect_all();
}

// A receiver of trains gets the same datagrams.
TEST_F(Trains, AreReceivedAsTheyWent) {
    receive_trains(one_.fd());
    for (std::size_t bytes : {1000, 1000, 1000, 300})
        add(one_, bytes);
    outbox_.flush();
    Inbox inbox(nullptr);
    std::vector<std::string> received;
    ASSERT_EQ(inbox.receive(one_.fd(), patience_ms), 1U);
    inbox.for_each_datagram(0, [&](std::span<const std::uint8_t> datagram) {
        received.emplace_back(datagram.begin(), datagram.end());
    });
    EXPECT_TRUE(received == sent_[&one_]);
}

// A packet isn't cut into datagrams that are cut into fragments: so each goes by itself.
TEST_F(Trains, NotWhereTheWayIsNarrow) {
    int mtu = 1280;
    ASSERT_EQ(setsockopt(node_.fd(), SOL_IPV6, IPV6_MTU, &mtu, sizeof(mtu)), 0);
    for (int i = 0; i < 5; i++)
        add(one_, 3000);
    add(other_, 10);
    expect_all();
}

// Datagrams that can't be sent are counted, and don't delay others.
TEST_F(Trains, UnsendableDatagramsAreCountedAndDropped) {
    Path nowhere = one_.path();
    nowhere.place_as<SocketPlace>().peer.sin6_port = 0;
    for (int i = 0; i < 3; i++) {
        Reply& reply = outbox_.add(nowhere);
        reply.head_bytes = 10;
        reply.pieces = 0;
    }
    add(one_, 10);
    outbox_.flush();
    EXPECT_EQ(one_.received(1), sent_[&one_]);
    EXPECT_EQ(counters_.get(count_drop_xmit), 3U);
    EXPECT_EQ(counters_.get(count_answers), 1U);
}

} // namespace remora::daemon
