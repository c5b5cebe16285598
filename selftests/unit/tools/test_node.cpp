// SPDX-License-Identifier: GPL-2.0
// The daemon's node: answers to requests that were received together, scrubbing, and what its
// operator asks for.
#include "remora-node/node.hpp"

#include <condition_variable>
#include <cstring>
#include <future>
#include <list>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "remora-node/ring_worker.hpp"
#include "support/failure.hpp"

extern "C" {
#include "core/rmem/plain.h"
}

namespace remora::daemon {

namespace {

constexpr std::uint32_t space = 1;
constexpr Key key{1, 2, 3};

class Answers final : public Outbox {
public:
    Reply& add(const Path&) override { return replies.emplace_back(); }
    void flush() override {
        close();
        std::lock_guard lock(lock_);
        sent_ = replies.size();
        changed_.notify_all();
    }
    // Another thread's.
    void wait_for(std::size_t datagrams) {
        std::unique_lock lock(lock_);
        changed_.wait(lock, [&] { return sent_ >= datagrams; });
    }
    std::vector<std::size_t> messages() const {
        std::vector<std::size_t> counts;
        for (const Reply& reply : replies)
            counts.push_back((reply.head_bytes - RMEM_HDR_BYTES) / RMEM_MSG_BYTES);
        return counts;
    }
    std::list<Reply> replies;

private:
    std::mutex lock_;
    std::condition_variable changed_;
    std::size_t sent_ = 0;
};

// Do the answers in this datagram succeed and match their sums, if it is sent now? key: for its
// tag.
bool is_sound(const Reply& reply, const base_siphash_key* key = nullptr) {
    std::vector<std::uint8_t> bytes(reply.head.begin(), reply.head.begin() + reply.head_bytes);
    for (std::span<const std::uint8_t> piece : std::span(reply.data).first(reply.pieces))
        bytes.insert(bytes.end(), piece.begin(), piece.end());
    rmem_datagram in;
    bool sound = rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()), true) ==
                     RMEM_WIRE_GOOD &&
                 (!key || rmem_datagram_verifies(&in, key, bytes.data()));
    while (sound && rmem_datagram_step(&in, bytes.data()))
        sound = in.head.status == RMEM_OK && !rmem_datagram_is_damaged(&in, bytes.data());
    return sound;
}

// A slot of an outbox can lie unused long after the session has ended.
TEST(Sealed, DatagramForgetsItsKeyOnceItIsSealed) {
    Answers answers;
    Sealing sealing;
    base_siphash_key space_key{};
    rmem_head head{};
    head.type = RMEM_WRITE | RMEM_RESPONSE;
    head.integrity = RMEM_SEALED;
    head.space = space;
    Reply& reply = answers.add(Path{});
    rmem_wire_encode_hdr(reply.head.data(), &head);
    rmem_wire_encode_msg(reply.head.data() + RMEM_HDR_BYTES, &head);
    reply.head_bytes = RMEM_HEADS_BYTES(1);
    reply.copied_bytes = 0;
    std::memset(&reply.key, 7, sizeof(reply.key));
    answers.open.reply = &reply;
    answers.open.bundle.messages = 1;
    answers.open.sealing = &sealing;
    answers.open.space_key = &space_key;
    answers.close();
    EXPECT_EQ(reply.pieces, 1u) << "it is sealed";
    const rmem_seal_key none{};
    EXPECT_EQ(std::memcmp(&reply.key, &none, sizeof(none)), 0);
}

class Joined : public testing::Test {
protected:
    explicit Joined(std::uint64_t pages = 4, std::uint32_t page_shift = RMEM_PAGE_SHIFT_MIN)
        : node_(config(pages, page_shift), false, 1) {
        base_siphash_key_load(&key_, key.data());
        node_.add_space(space, key, 0);
    }

    static rmem_node_config config(std::uint64_t pages, std::uint32_t page_shift) {
        rmem_node_config config{};
        config.boot = 7;
        config.pages = pages;
        config.page_shift = page_shift;
        config.pool_pages = 2;
        config.piece_bytes = RMEM_PIECE_BYTES_MAX;
        config.spaces_max = 2;
        config.sessions_max = 4;
        config.regions_max = 4;
        return config;
    }

    Path path(std::uint16_t port) const {
        Path path{};
        path.late = late_;
        path.peer.port = port;
        path.place_as<std::uint16_t>() = port;
        return path;
    }

    void handle(rmem_head head, std::uint16_t port, Answers& answers, const void* payload = nullptr,
                std::size_t bytes = 0) {
        std::vector<std::uint8_t> datagram(RMEM_HEADS_BYTES(1) + bytes);
        head.space = head.space ? head.space : space;
        head.boot = head.type == RMEM_OPEN ? 0 : 7;
        rmem_datagram_build_one(datagram.data(), &head, &key_, payload);
        if (bytes)
            std::memcpy(datagram.data() + RMEM_HEADS_BYTES(1), payload, bytes);
        node_.handle(0, 1, datagram, path(port), answers);
    }

    void send_open(std::uint16_t port, std::uint16_t datagram_bytes, rmem_integrity integrity,
                   Answers& answers, std::uint32_t to = space) {
        rmem_open open{};
        open.client[0] = static_cast<std::uint8_t>(port);
        open.integrity = integrity;
        base_store_le16(&open.datagram_bytes, datagram_bytes);
        rmem_head head{};
        head.type = RMEM_OPEN;
        head.space = to;
        head.integrity = integrity;
        head.id = 1;
        head.len = sizeof(open);
        handle(head, port, answers, &open, sizeof(open));
    }

    // A session from that port, whose answers share datagrams of so many bytes.
    std::uint64_t open(std::uint16_t port, std::uint16_t datagram_bytes,
                       rmem_integrity integrity = RMEM_LINK) {
        Answers answers;
        send_open(port, datagram_bytes, integrity, answers);
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

    // A request of the session, which the node executes.
    rmem_head request(std::uint8_t type, std::uint64_t session, std::uint64_t addr, u32 bytes) {
        rmem_head head{};
        head.type = type;
        head.integrity = level_;
        head.session = session;
        head.id = head.floor = ++id_;
        head.addr = addr;
        head.len = bytes;
        return head;
    }

    // A region of so many bytes, by its address.
    std::uint64_t alloc(std::uint64_t session, std::uint64_t bytes) {
        rmem_alloc wanted{};
        base_store_le64(&wanted.bytes, bytes);
        base_store_le32(&wanted.perm, RMEM_PERM_READ | RMEM_PERM_WRITE);
        Answers answers;
        handle(request(RMEM_ALLOC, session, 0, sizeof(wanted)), 1, answers, &wanted,
               sizeof(wanted));
        EXPECT_TRUE(is_sound(answers.replies.front()));
        return base_load_le64(answers.replies.front().head.data() + RMEM_HEADS_BYTES(1));
    }

    Node node_;
    base_siphash_key key_;
    std::uint64_t id_ = 0;
    Outbox* late_ = nullptr;             // of the paths
    rmem_integrity level_ = RMEM_DIGEST; // of requests
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

class Summed : public Joined, public testing::WithParamInterface<rmem_integrity> {
protected:
    Summed() : session_(open(1, 8972, GetParam())) {
        level_ = GetParam();
        region_ = alloc(session_, 8192);
        Answers answers;
        add_one(answers); // the region has a page from now on
    }
    rmem_head request(std::uint8_t type, u32 bytes) {
        return Joined::request(type, session_, region_, bytes);
    }
    void add_one(Answers& answers) {
        rmem_operands one{};
        base_store_le64(&one.value[0], 1);
        rmem_head head = request(RMEM_ATOMIC, 8);
        head.op = RMEM_ADD;
        handle(head, 1, answers, &one, sizeof(one));
    }
    // A change of a byte that the answer before has.
    void expect_sound_after_change(Answers& batch) {
        add_one(batch);
        batch.close();
        ASSERT_EQ(batch.messages(), (std::vector<std::size_t>{2}));
        EXPECT_TRUE(is_sound(batch.replies.front(), &key_));
    }

    std::uint64_t session_, region_;
};

INSTANTIATE_TEST_SUITE_P(Node, Summed, testing::Values(RMEM_DIGEST, RMEM_FULL));

TEST_P(Summed, ChangeInTheSameBatchDoesNotDamageAnEarlierRead) {
    for (u32 bytes : {16U, 1024U, 8192U}) {
        Answers batch;
        rmem_head read = request(RMEM_READ, bytes);
        read.piece = RMEM_PIECE_BYTES_MAX;
        handle(read, 1, batch);
        expect_sound_after_change(batch);
    }
}

TEST_P(Summed, ChangeInTheSameBatchDoesNotDamageAnEarlierReadOfRanges) {
    rmem_range ranges[2]{};
    for (rmem_range& range : ranges) {
        base_store_le64(&range.addr, region_);
        base_store_le64(&range.bytes, 2048);
    }
    Answers batch;
    rmem_head head = request(RMEM_READV, 4096);
    head.addr = 0;
    head.op = 2;
    handle(head, 1, batch, ranges, sizeof(ranges));
    expect_sound_after_change(batch);
}

// An ALLOC waits for its thread; a READ that comes after it doesn't wait for the ALLOC.
TEST_F(Joined, RequestsThatMayTakeLongWaitForTheirThread) {
    std::uint64_t session = open(1, 8972);
    node_.defer_slow();
    rmem_alloc wanted{};
    base_store_le64(&wanted.bytes, 1);
    Answers answers, slow;
    late_ = &slow;
    ask(session, 1, 1, answers);
    handle(request(RMEM_ALLOC, session, 0, sizeof(wanted)), 1, answers, &wanted, sizeof(wanted));
    answers.wait_for(1); // the READ was answered before the ALLOC was queued
    ask(session, 3, 1, answers);
    ASSERT_EQ(answers.messages(), (Counts{1, 1}));
    std::thread thread([&] { node_.run_slow(); });
    slow.wait_for(1);
    node_.stop_slow();
    thread.join();
    rmem_datagram in;
    const Reply& reply = slow.replies.front();
    ASSERT_EQ(rmem_datagram_open(&in, reply.head.data(), static_cast<u32>(reply.head_bytes), true),
              RMEM_WIRE_GOOD);
    EXPECT_EQ(in.head.type, RMEM_ALLOC | RMEM_RESPONSE);
}

TEST_F(Joined, RequestsThatFindNoRoomToWaitAreDropped) {
    std::uint64_t session = open(1, 8972);
    node_.defer_slow();
    rmem_alloc wanted{};
    Answers answers;
    for (unsigned n = 0; n < RMEM_QUEUE_JOBS + 3; n++)
        handle(request(RMEM_ALLOC, session, 0, sizeof(wanted)), 1, answers, &wanted,
               sizeof(wanted));
    EXPECT_EQ(node_.counters(0).get(count_drop_queue_full), 3U);
}

// ---- the operator's calls ----

class Operated : public Joined {
protected:
    ~Operated() override {
        if (!thread_.joinable())
            return;
        node_.stop_slow();
        thread_.join();
    }
    // From now on slow requests, and the operator's, have their thread.
    void start() {
        node_.defer_slow();
        late_ = &slow_;
        thread_ = std::thread([this] { node_.run_slow(); });
    }
    // The error that it throws, or nothing.
    std::string operate(const std::function<void(const node::Host::Between&)>& change) {
        std::promise<std::string> done;
        node_.operate([&](const node::Host::Between& between) {
            try {
                change(between);
                done.set_value("");
            } catch (const Failure& failure) {
                done.set_value(failure.what());
            }
        });
        return done.get_future().get();
    }
    std::string del(bool force) {
        return operate([&](const auto& between) { node_.del_space(space, force, between); });
    }

    Answers slow_;
    std::thread thread_;
};

// No client could open a session in it.
TEST(HostWithoutCipher, NoSpaceCanRequireSealedSessions) {
    rmem_node_config config{};
    config.boot = 1;
    config.pages = 4;
    config.page_shift = RMEM_PAGE_SHIFT_MIN;
    config.pool_pages = 2;
    config.piece_bytes = RMEM_PIECE_BYTES_MAX;
    config.spaces_max = 2;
    config.sessions_max = config.regions_max = 1;
    node::Host host(config, false);
    EXPECT_EQ(host.add_space(space, key.data(), 0, RMEM_SEALED), RMEM_SPACE_NO_CIPHER);
    EXPECT_TRUE(host.spaces().empty());
    EXPECT_EQ(host.add_space(space, key.data(), 0), RMEM_SPACE_OK);
    EXPECT_EQ(host.add_view(2, Key{9}.data(), space, RMEM_SEALED), RMEM_SPACE_NO_CIPHER);
}

TEST_F(Operated, ASpaceWithRegionsIsDeletedByForceAlone) {
    std::uint64_t session = open(1, 8972, RMEM_DIGEST);
    std::uint64_t region = alloc(session, 2 << RMEM_PAGE_SHIFT_MIN);
    Answers answers;
    std::uint8_t byte = 1;
    handle(request(RMEM_WRITE, session, region, 1), 1, answers, &byte, 1);
    start();
    EXPECT_EQ(del(false), "space 1 has 1 regions (128K): --force frees them");
    EXPECT_EQ(node_.report(0).promised_bytes, 2U << RMEM_PAGE_SHIFT_MIN);
    EXPECT_EQ(del(true), "");
    EXPECT_EQ(del(true), "no space 1: 'remora node space list' has them");
    NodeReport report = node_.report(0);
    EXPECT_EQ(report.spaces + report.sessions + report.regions, 0U);
    EXPECT_EQ(report.promised_bytes + report.backed_bytes, 0U);
    // Its key opens nothing, not even when the id is given out again.
    constexpr Key other{4, 5, 6};
    EXPECT_EQ(operate([&](const auto&) { node_.add_space(space, other, 0); }), "");
    ask(session, 9, 1, answers);
    EXPECT_EQ(node_.counters(0).get(count_wire + RMEM_WIRE_TAG), 1U);
}

TEST_F(Operated, ADeletedKeyIsKeptForTheRequestsThatFoundIt) {
    start();
    std::atomic<bool> left = false;
    node_.enter(0);
    std::thread batch([&] {
        while (!node_.spaces().empty())
            std::this_thread::yield();
        left = true; // while the deletion is under way
        node_.leave(0);
    });
    EXPECT_EQ(del(false), "");
    EXPECT_TRUE(left);
    batch.join();
}

TEST_F(Operated, OthersOpenSessionsBetweenTheStepsOfADeletion) {
    std::uint64_t session = open(1, 8972, RMEM_DIGEST);
    alloc(session, 1);
    node_.add_space(space + 1, key, 0);
    start();
    Answers answers;
    bool opened = false;
    EXPECT_EQ(operate([&](const auto& between) {
                  node_.del_space(space, true, [&](const rmem_node_call& under_way) {
                      if (!std::exchange(opened, true))
                          send_open(2, 8972, RMEM_LINK, answers, space + 1);
                      between(under_way);
                      EXPECT_EQ(slow_.replies.size(), 1U);
                  });
              }),
              "");
    EXPECT_TRUE(opened);
}

TEST_F(Operated, ARetiredNodeTellsItsClientsThatItHasRestarted) {
    std::uint64_t session = open(1, 8972);
    Answers answers;
    node_.retire();
    ask(session, 1, 1, answers);
    answers.close();
    const Reply& reply = answers.replies.front();
    rmem_datagram in;
    ASSERT_EQ(rmem_datagram_open(&in, reply.head.data(), static_cast<u32>(reply.head_bytes), true),
              RMEM_WIRE_GOOD);
    ASSERT_TRUE(rmem_datagram_step(&in, reply.head.data()));
    EXPECT_EQ(in.head.status, RMEM_REBOOTED);
}

// ---- plain messages ----

// As a ring's outbox: one record.
class PlainAnswers final : public Outbox {
public:
    Reply& add(const Path&) override { return reply; }
    void flush() override { close(); }
    std::uint8_t* plain_room(const rmem_head&, std::uint32_t payload_bytes) override {
        record.resize(bytes + rmem_plain_bytes(payload_bytes));
        return &record[bytes];
    }
    void plain_done(const rmem_head& head, std::uint32_t payload_bytes) override {
        bytes += rmem_plain_bytes(payload_bytes);
        heads.push_back(head);
    }
    Reply reply; // to OPEN, ALLOC
    std::vector<std::uint8_t> record;
    std::size_t bytes = 0;
    std::vector<rmem_head> heads;
};

class PlainRequests : public Joined {
protected:
    static Path ring(std::uint64_t serial) { return path_of(serial, nullptr); }
    // As open(), by a ring. The clients have the serial as name.
    std::uint64_t open_by_ring(std::uint64_t serial, rmem_integrity integrity = RMEM_LINK) {
        PlainAnswers answers;
        rmem_open open{};
        open.client[0] = static_cast<std::uint8_t>(serial);
        open.integrity = integrity;
        rmem_head head{};
        head.type = RMEM_OPEN;
        head.integrity = integrity;
        head.space = space;
        head.id = 1;
        head.len = sizeof(open);
        std::vector<std::uint8_t> datagram(RMEM_HEADS_BYTES(1) + sizeof(open));
        rmem_datagram_build_one(datagram.data(), &head, &key_, &open);
        std::memcpy(datagram.data() + RMEM_HEADS_BYTES(1), &open, sizeof(open));
        node_.handle(0, 1, datagram, ring(serial), answers);
        rmem_datagram opened;
        EXPECT_EQ(rmem_datagram_open(&opened, answers.reply.head.data(),
                                     static_cast<u32>(answers.reply.head_bytes), true),
                  RMEM_WIRE_GOOD);
        EXPECT_EQ(opened.head.status, RMEM_OK);
        return opened.head.session;
    }
    // A READ of no region.
    std::vector<std::uint8_t> read_of(std::uint64_t session) {
        rmem_head head = request(RMEM_READ, session, 0, 1);
        head.integrity = RMEM_LINK;
        head.piece = RMEM_PIECE_BYTES_MIN;
        std::vector<std::uint8_t> record(RMEM_PLAIN_BYTES);
        rmem_plain_encode(record.data(), &head);
        return record;
    }
    u8 status_of(const std::vector<std::uint8_t>& record, const Path& path) {
        PlainAnswers answers;
        node_.handle(0, 1, record, path, answers);
        EXPECT_EQ(answers.heads.size(), 1U);
        return answers.heads.empty() ? u8{RMEM_STATUS_COUNT} : answers.heads[0].status;
    }
};

TEST_F(PlainRequests, AreServedInASessionOfTheirOwnRingAlone) {
    std::uint64_t mine = open_by_ring(1);
    EXPECT_EQ(status_of(read_of(mine), ring(1)), RMEM_FAULT); // served: there is no region
    EXPECT_EQ(status_of(read_of(mine), ring(2)), RMEM_NO_SESSION);
    EXPECT_EQ(status_of(read_of(open(9, 8972)), ring(1)), RMEM_NO_SESSION);
    EXPECT_EQ(status_of(read_of(mine + 1), ring(1)), RMEM_NO_SESSION);
}

TEST_F(PlainRequests, ASessionOfAnotherLevelTakesNone) {
    EXPECT_EQ(status_of(read_of(open_by_ring(1, RMEM_FULL)), ring(1)), RMEM_INVALID);
}

TEST_F(PlainRequests, NoSocketTakesThem) {
    Answers answers;
    std::vector<std::uint8_t> record = read_of(open(1, 8972));
    record.resize(RMEM_HEADS_BYTES(1)); // as long as a datagram
    node_.handle(0, 1, record, path(1), answers);
    EXPECT_TRUE(answers.replies.empty());
    EXPECT_EQ(node_.counters(0).get(count_wire + RMEM_WIRE_VERSION), 1U);
}

TEST_F(PlainRequests, ARetiredNodeTellsItsNextBoot) {
    std::uint64_t session = open_by_ring(1);
    node_.retire();
    PlainAnswers answers;
    node_.handle(0, 1, read_of(session), ring(1), answers);
    ASSERT_EQ(answers.heads.size(), 1U);
    EXPECT_EQ(answers.heads[0].status, RMEM_REBOOTED);
    EXPECT_NE(base_load_le64(answers.record.data() + offsetof(struct rmem_plain, addr)), 7U);
}

TEST_F(PlainRequests, AMalformedOneEndsItsRecord) {
    std::uint64_t session = open_by_ring(1);
    std::vector<std::uint8_t> record = read_of(session), bad = read_of(session);
    bad[offsetof(struct rmem_plain, status)] = 1;
    for (const auto& more : {bad, read_of(session)})
        record.insert(record.end(), more.begin(), more.end());
    EXPECT_EQ(status_of(record, ring(1)), RMEM_FAULT);
    EXPECT_EQ(node_.counters(0).get(count_wire + RMEM_WIRE_MALFORMED), 1U);
}

class LargePages : public Joined {
protected:
    static constexpr std::uint64_t pages = 2, page_bytes = std::uint64_t{1} << RMEM_PAGE_SHIFT_MAX;

    LargePages() : Joined(pages, RMEM_PAGE_SHIFT_MAX) {}
};

// A READ behind them doesn't wait for them.
TEST_F(LargePages, AllocFreeAndLongZeroWaitForTheirThread) {
    std::uint64_t session = open(1, 8972, RMEM_DIGEST);
    std::uint64_t region = alloc(session, page_bytes);
    node_.defer_slow();
    rmem_alloc wanted{};
    base_store_le64(&wanted.bytes, page_bytes);
    rmem_range freed{};
    base_store_le64(&freed.addr, region);
    base_store_le64(&freed.bytes, page_bytes);
    Answers answers, slow;
    late_ = &slow;
    handle(request(RMEM_ZERO, session, region, page_bytes - 1), 1, answers);
    handle(request(RMEM_ALLOC, session, 0, sizeof(wanted)), 1, answers, &wanted, sizeof(wanted));
    handle(request(RMEM_FREE, session, 0, sizeof(freed)), 1, answers, &freed, sizeof(freed));
    ask(session, ++id_, 1, answers);
    answers.close();
    ASSERT_EQ(answers.messages(), (Counts{1}));
    std::thread thread([&] { node_.run_slow(); });
    slow.wait_for(3);
    node_.stop_slow();
    thread.join();
    EXPECT_EQ(slow.messages(), (Counts{1, 1, 1}));
}

// Requests wait for a turn.
TEST_F(LargePages, ATurnOfScrubbingZeroesAMebibyteAtMost) {
    std::uint64_t session = open(1, 8972, RMEM_DIGEST);
    std::uint64_t region = alloc(session, pages * page_bytes);
    Answers answers;
    std::uint8_t byte = 1;
    for (std::uint64_t page = 0; page < pages; page++)
        handle(request(RMEM_WRITE, session, region + page * page_bytes, 1), 1, answers, &byte, 1);
    rmem_range freed{};
    base_store_le64(&freed.addr, region);
    base_store_le64(&freed.bytes, pages * page_bytes);
    handle(request(RMEM_FREE, session, 0, sizeof(freed)), 1, answers, &freed, sizeof(freed));
    std::uint64_t turns = 0;
    while (node_.scrub(0))
        turns++;
    EXPECT_EQ(node_.counters(0).get(count_scrubbed), pages);
    EXPECT_GE(turns, pages * page_bytes >> 20);
}

} // namespace

} // namespace remora::daemon
