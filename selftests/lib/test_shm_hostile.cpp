// SPDX-License-Identifier: GPL-2.0
// Clients of shm:PATH against a hostile node: offers that can't be, and bad words in shared memory.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "../common/messages.hpp"
#include "backend.hpp"
#include "common/listener.hpp"
#include "patience.hpp"
#include "remora-node/clock.hpp"
#include "remote/queue.h"
#include "support/key.hpp"
#include "support/shared_memory.hpp"
#include "support/unix_socket.hpp"

namespace remora::test {

namespace {

std::size_t open_descriptors() {
    std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

bool is_mapped(const std::string& name) {
    std::ostringstream maps;
    maps << std::ifstream("/proc/self/maps").rdbuf();
    return maps.str().find(name) != std::string::npos;
}

int open_at(const std::string& path, remote_t*& handle, std::uint64_t call_timeout_us,
            std::uint64_t timeout_us) {
    remote_options options{};
    options.size = sizeof(options);
    options.timeout_us = timeout_us;
    options.call_timeout_us = call_timeout_us;
    return remote_open(&handle, shm_target(path).c_str(), &options);
}

// ---- offers ----

constexpr std::uint32_t entry_bytes =
    (RING_HEAD_BYTES + RMEM_DATAGRAM_BYTES_MAX + RING_LINE_BYTES - 1) / RING_LINE_BYTES *
    RING_LINE_BYTES;
constexpr std::uint32_t entries = 64;
constexpr std::uint64_t ring_bytes = std::uint64_t{entries} * entry_bytes;
constexpr std::uint64_t request_offset = RING_PAGE_BYTES;
constexpr std::uint64_t response_offset = request_offset + ring_bytes;
constexpr std::uint64_t pair_bytes = response_offset + ring_bytes;
static_assert(ring_bytes % RING_PAGE_BYTES == 0);

constexpr const char* file_name = "remora-hostile";

// A file of memory with these seals only.
Descriptor memory(std::uint64_t bytes, int seals) {
    Descriptor file(memfd_create(file_name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
    return file;
}

// A sound offer, until a test bends it.
struct Offer {
    Offer() {
        base_store_le32(&words.version, RING_VERSION);
        base_store_le32(&words.answer, RING_OFFERED);
        for (ring_shape* shape : {&words.request, &words.response}) {
            base_store_le32(&shape->entries, entries);
            base_store_le32(&shape->entry_bytes, entry_bytes);
        }
        base_store_le64(&words.request_offset, request_offset);
        base_store_le64(&words.response_offset, response_offset);
        base_store_le64(&words.pair_bytes, pair_bytes);
        files.push_back(memory(pair_bytes, F_SEAL_SHRINK));
        files.push_back(memory(RING_PAGE_BYTES, F_SEAL_SHRINK));
    }

    // Sends the message and all files at once, as sendmsg() returns.
    ssize_t send(int fd) const {
        wire::Bytes message = wire::bytes_of(words);
        message.resize(message_bytes);
        iovec vector{message.data(), message.size()};
        std::vector<int> fds;
        for (const Descriptor& file : files)
            fds.push_back(file.get());
        std::vector<std::uint64_t> control(CMSG_SPACE(fds.size() * sizeof(int)) / 8 + 1);
        msghdr header{};
        header.msg_iov = &vector;
        header.msg_iovlen = 1;
        if (!fds.empty()) {
            header.msg_control = control.data();
            header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
            cmsghdr* item = CMSG_FIRSTHDR(&header);
            item->cmsg_level = SOL_SOCKET;
            item->cmsg_type = SCM_RIGHTS;
            item->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
            std::memcpy(CMSG_DATA(item), fds.data(), fds.size() * sizeof(int));
        }
        return sendmsg(fd, &header, MSG_NOSIGNAL);
    }

    ring_offer words{};
    std::vector<Descriptor> files;
    std::size_t message_bytes = sizeof(ring_offer);
};

// Waits for the next client; none: nobody comes within patience.
Descriptor admit(const UnixListener& listener) {
    pollfd ready{listener.fd(), POLLIN, 0};
    poll(&ready, 1, std::chrono::milliseconds(patience).count());
    return listener.accept();
}

// The error of a client that gets this answer. timeout_us: the client's; 0: its default.
int error_with(const std::function<void(const Descriptor& connection)>& answer,
               std::uint64_t timeout_us = 0) {
    const std::string path = shm_path();
    UnixListener listener("--shm", path, 0600, SOCK_SEQPACKET);
    Watchdog dog("remote_open() of a hostile node");
    const std::size_t before = open_descriptors();
    std::thread node([&] {
        Descriptor connection = admit(listener);
        answer(connection);
        // Until the client has given up.
        pollfd ended{connection.get(), 0, 0};
        poll(&ended, 1, std::chrono::milliseconds(patience).count());
    });
    remote_t* r = nullptr;
    int error = open_at(path, r, 0, timeout_us);
    node.join();
    const std::string why = remote_why();
    if (error) {
        EXPECT_EQ(r, nullptr);
        EXPECT_NE(why.find(path), std::string::npos) << why;
        EXPECT_EQ(why.find('\n'), std::string::npos) << why;
        EXPECT_EQ(open_descriptors(), before) << "descriptors are left open";
        EXPECT_FALSE(is_mapped(file_name)) << "memory is left mapped";
    }
    remote_close(r);
    return error;
}

int error_with(const Offer& offer, std::uint64_t timeout_us = 0) {
    return error_with(
        [&](const Descriptor& connection) {
            EXPECT_EQ(offer.send(connection.get()), static_cast<ssize_t>(offer.message_bytes));
        },
        timeout_us);
}

struct BadOffer {
    const char* name;
    void (*bend)(Offer& offer);
};

void PrintTo(const BadOffer& bad, std::ostream* to) {
    *to << bad.name;
}

// The cases of a ring, request or response.
#define RING_CASES(ring, Ring)                                                                      \
    {#Ring "WithoutEntries", [](Offer& o) { base_store_le32(&o.words.ring.entries, 0); }},          \
        {#Ring "OfOneEntry", [](Offer& o) { base_store_le32(&o.words.ring.entries, 1); }},          \
        {#Ring "OfSixtyThreeEntries",                                                               \
         [](Offer& o) { base_store_le32(&o.words.ring.entries, entries - 1); }},                    \
        {#Ring "OfTooManyEntries",                                                                  \
         [](Offer& o) {                                                                             \
             base_store_le32(&o.words.ring.entries, 2 * RING_ENTRIES_MAX);                          \
             base_store_le64(&o.words.response_offset, 2 * response_offset * RING_ENTRIES_MAX);     \
             make_room(o);                                                                          \
         }},                                                                                        \
        {#Ring "OfEntriesWithoutBytes",                                                             \
         [](Offer& o) { base_store_le32(&o.words.ring.entry_bytes, 0); }},                          \
        {#Ring "OfEntriesThatAreNoLines",                                                           \
         [](Offer& o) {                                                                             \
             base_store_le32(&o.words.ring.entry_bytes, entry_bytes + RING_HEAD_BYTES);             \
             base_store_le64(&o.words.response_offset, response_offset + RING_PAGE_BYTES);          \
             make_room(o);                                                                          \
         }},                                                                                        \
        {#Ring "OfEntriesThatAreTooLong",                                                           \
         [](Offer& o) {                                                                             \
             base_store_le32(&o.words.ring.entry_bytes, RING_ENTRY_BYTES_MAX + RING_LINE_BYTES);    \
             base_store_le64(&o.words.response_offset, 2 * response_offset * RING_ENTRIES_MAX);     \
             make_room(o);                                                                          \
         }},                                                                                        \
        {#Ring "OfEntriesShorterThanADatagram",                                                     \
         [](Offer& o) {                                                                             \
             base_store_le32(&o.words.ring.entry_bytes, entry_bytes - RING_LINE_BYTES);             \
         }},                                                                                        \
        {#Ring "InTheWords", [](Offer& o) { base_store_le64(&o.words.ring##_offset, 0); }},         \
        {#Ring "OffAPage",                                                                          \
         [](Offer& o) {                                                                             \
             base_store_le64(&o.words.ring##_offset,                                                \
                             base_load_le64(&o.words.ring##_offset) + RING_LINE_BYTES);             \
             base_store_le64(&o.words.response_offset,                                              \
                             base_load_le64(&o.words.response_offset) +                             \
                                 (&o.words.ring == &o.words.request ? RING_PAGE_BYTES : 0));        \
             make_room(o);                                                                          \
         }},                                                                                        \
        {#Ring "AtTheEnd", [](Offer& o) { base_store_le64(&o.words.ring##_offset, pair_bytes); }},  \
    {                                                                                               \
#Ring "WhoseEndOverflows",                                                                  \
            [](Offer &                                                                              \
               o) { base_store_le64(&o.words.ring##_offset, ~std::uint64_t{RING_PAGE_BYTES} + 1); } \
    }

// Makes the pair so long that only the bent field is wrong. The file is sparse.
void make_room(Offer& offer) {
    constexpr std::uint64_t bytes = std::uint64_t{1} << 34;
    base_store_le64(&offer.words.pair_bytes, bytes);
    offer.files[0] = memory(bytes, F_SEAL_SHRINK);
}

const BadOffer bad_offers[] = {
    {"NoVersion", [](Offer& o) { base_store_le32(&o.words.version, 0); }},
    {"AnotherVersion", [](Offer& o) { base_store_le32(&o.words.version, RING_VERSION + 1); }},
    {"UnknownAnswer", [](Offer& o) { base_store_le32(&o.words.answer, RING_REFUSED_ERROR + 1); }},
    {"OneByte", [](Offer& o) { o.message_bytes = 1; }},
    {"ShortMessage", [](Offer& o) { o.message_bytes -= 4; }},
    {"LongMessage", [](Offer& o) { o.message_bytes += 4; }},
    RING_CASES(request, Request),
    RING_CASES(response, Response),
    {"RingsAtOnePlace",
     [](Offer& o) { base_store_le64(&o.words.response_offset, request_offset); }},
    {"RingsThatOverlapByAPage",
     [](Offer& o) {
         base_store_le64(&o.words.response_offset, response_offset - RING_PAGE_BYTES);
     }},
    {"RingsInTheOtherOrder",
     [](Offer& o) { std::swap(o.words.request_offset, o.words.response_offset); }},
    {"PairWithoutBytes", [](Offer& o) { base_store_le64(&o.words.pair_bytes, 0); }},
    {"PairShorterThanItsRings",
     [](Offer& o) { base_store_le64(&o.words.pair_bytes, pair_bytes - 1); }},
    {"PairLongerThanItsFile",
     [](Offer& o) { base_store_le64(&o.words.pair_bytes, pair_bytes + 1); }},
    {"PairOfAllBytes", [](Offer& o) { base_store_le64(&o.words.pair_bytes, ~std::uint64_t{0}); }},
    {"PointerBehindTheLast",
     [](Offer& o) { base_store_le32(&o.words.pointer, RING_POINTERS_MAX); }},
    {"PointerFarAway", [](Offer& o) { base_store_le32(&o.words.pointer, ~0U); }},
    {"NoFiles", [](Offer& o) { o.files.clear(); }},
    {"OneFile", [](Offer& o) { o.files.pop_back(); }},
    {"ThreeFiles", [](Offer& o) { o.files.push_back(memory(pair_bytes, F_SEAL_SHRINK)); }},
    {"FilesWithoutEnd",
     [](Offer& o) {
         while (o.files.size() < 200)
             o.files.push_back(memory(RING_PAGE_BYTES, F_SEAL_SHRINK));
     }},
    {"FilesInTheOtherOrder", [](Offer& o) { std::swap(o.files[0], o.files[1]); }},
    {"PairsFileTooShort",
     [](Offer& o) { o.files[0] = memory(pair_bytes - RING_PAGE_BYTES, F_SEAL_SHRINK); }},
    {"PageWithoutBytes", [](Offer& o) { o.files[1] = memory(0, F_SEAL_SHRINK); }},
    {"PageTooShort", [](Offer& o) { o.files[1] = memory(RING_PAGE_BYTES - 1, F_SEAL_SHRINK); }},
    {"PairThatMayShrink", [](Offer& o) { o.files[0] = memory(pair_bytes, F_SEAL_GROW); }},
    {"PageThatMayShrink", [](Offer& o) { o.files[1] = memory(RING_PAGE_BYTES, F_SEAL_GROW); }},
    {"PairThatCantBeWritten",
     [](Offer& o) { o.files[0] = memory(pair_bytes, F_SEAL_SHRINK | F_SEAL_WRITE); }},
    {"PageThatCantBeWritten",
     [](Offer& o) { o.files[1] = memory(RING_PAGE_BYTES, F_SEAL_SHRINK | F_SEAL_WRITE); }},
    {"PairThatIsOpenForReading",
     [](Offer& o) {
         const std::string path = "/proc/self/fd/" + std::to_string(o.files[0].get());
         o.files[0] = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
     }},
    {"PairThatIsNoMemory",
     [](Offer& o) { o.files[0] = Descriptor(open("/dev/zero", O_RDWR | O_CLOEXEC)); }},
    {"PairThatIsAnOrdinaryFile",
     [](Offer& o) {
         o.files[0] = Descriptor(open(testing::TempDir().c_str(), O_TMPFILE | O_RDWR, 0600));
         EXPECT_EQ(ftruncate(o.files[0].get(), pair_bytes), 0);
     }},
};

class BadOffers : public testing::TestWithParam<BadOffer> {};

TEST_P(BadOffers, AreRefusedAndLeaveNothingOpen) {
    Offer offer;
    GetParam().bend(offer);
    EXPECT_EQ(error_with(offer), -EPROTO) << remote_why();
    EXPECT_NE(std::string(remote_why()), "");
}

INSTANTIATE_TEST_SUITE_P(Shm, BadOffers, testing::ValuesIn(bad_offers),
                         [](const auto& each) { return std::string(each.param.name); });

// The node never answers the client's OPEN, so the client learns of no fault in the offer.
TEST(ShmHostile, SoundOfferIsTaken) {
    EXPECT_EQ(error_with(Offer(), 300'000), -EKEYREJECTED) << remote_why();
}

TEST(ShmHostile, RefusalsHaveTheirErrorsAndLeaveNothingOpen) {
    for (auto [answer, error] : {std::pair(RING_REFUSED_USER, EACCES),
                                 {RING_REFUSED_FULL, EUSERS},
                                 {RING_REFUSED_ERROR, ENOMEM}}) {
        Offer offer; // files, too
        base_store_le32(&offer.words.answer, static_cast<std::uint32_t>(answer));
        EXPECT_EQ(error_with(offer), -error);
    }
}

TEST(ShmHostile, NodeThatHangsUpIsRefused) {
    EXPECT_EQ(
        error_with([](const Descriptor& connection) { shutdown(connection.get(), SHUT_RDWR); }),
        -EPROTO);
}

TEST(ShmHostile, NodeThatSaysNothingIsGivenUp) {
    EXPECT_EQ(error_with([](const Descriptor&) {}), -EHOSTUNREACH);
}

// ---- words ----

rmem_node_config node_config() {
    rmem_node_config config{};
    config.boot = 1;
    config.page_shift = RMEM_PAGE_SHIFT_MIN;
    config.pages = (std::uint64_t{32} << 20) >> config.page_shift;
    config.pool_pages = 64;
    config.piece_bytes = RMEM_PIECE_BYTES_MAX;
    config.spaces_max = 1;
    config.sessions_max = 4096;
    config.regions_max = 256;
    config.session_idle_ms = 60'000;
    config.challenges = true;
    return config;
}

// A node that serves its clients, and writes into the memory they share what a test wants.
class BadNode {
public:
    // Called in the node's thread for each record of answers. False: the record is not sent.
    using Bend = std::function<bool(wire::Bytes& record)>;

    explicit BadNode(const std::string& path)
        : listener_("--shm", path, 0600, SOCK_SEQPACKET), node_(node_config(), false, 1) {
        node_.add_space(1, key_read(key_file()).key, 0);
        draft_ = std::make_unique<Client>(pointers_, 0);
        ring_in_init(&drafts_, draft_->pair.out.entries, draft_->pair.out.mask + 1,
                     draft_->pair.out.entry_bytes, const_cast<u32*>(draft_->pair.out.credit));
        thread_ = std::thread([this] { run(); });
    }
    ~BadNode() {
        stopped_ = true;
        thread_.join();
    }

    void bend_answers(Bend bend) {
        std::lock_guard lock(lock_);
        bend_ = std::move(bend);
    }
    // Serves no client, and hangs up on new ones, until serve_again().
    void stand_still() { set_serves(false); }
    void serve_again() { set_serves(true); }
    // The answer to new clients instead of rings.
    void answer_new_clients(std::function<void(int connection)> answer) {
        std::lock_guard lock(lock_);
        answer_ = std::move(answer);
    }
    // Calls fn(pair, connection) for each client's, while the node's thread does nothing.
    template <typename Fn>
    void for_each_pair(Fn fn) {
        std::lock_guard lock(lock_);
        for (auto& [serial, client] : clients_)
            fn(client->pair, client->connection.get());
    }
    // Connections that clients have ended.
    unsigned ended() const { return ended_; }
    void hang_up() {
        std::lock_guard lock(lock_);
        clients_.clear();
    }

private:
    void set_serves(bool serves) {
        std::lock_guard lock(lock_);
        serves_ = serves;
    }
    struct Client {
        Client(daemon::PointerBuffer& pointers, std::uint64_t serial)
            : pair(serial, getpid(), pointers, pointers.claim(geteuid(), 256).value()) {
            pair.path = daemon::path_of(serial, nullptr);
        }
        daemon::RingPair pair;
        Descriptor connection;
    };

    void run() {
        while (!stopped_) {
            bool busy;
            {
                std::lock_guard lock(lock_);
                busy = admit_one();
                busy |= std::erase_if(
                    clients_, [&](const auto& each) { return has_ended(each.second->connection); });
                if (serves_)
                    for (auto& [serial, client] : clients_)
                        busy |= serve(client->pair);
            }
            if (!busy)
                std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    bool has_ended(const Descriptor& connection) {
        pollfd ready{connection.get(), POLLIN, 0};
        poll(&ready, 1, 0);
        ended_ += ready.revents != 0;
        return ready.revents != 0;
    }
    bool admit_one() {
        Descriptor connection = listener_.accept();
        if (!connection)
            return false;
        if (answer_)
            answer_(connection.get());
        if (answer_ || !serves_)
            return true;
        auto client = std::make_unique<Client>(pointers_, ++serial_);
        const ring_offer offer = client->pair.offer();
        const int files[] = {client->pair.file(), client->pair.place().file};
        send_files(connection.get(), {reinterpret_cast<const std::uint8_t*>(&offer), sizeof(offer)},
                   files);
        client->connection = std::move(connection);
        clients_.emplace(serial_, std::move(client));
        return true;
    }
    bool serve(daemon::RingPair& pair) {
        std::uint32_t bytes;
        ring_fault fault;
        const std::uint8_t* record = ring_in_record(&pair.in, &bytes, &fault);
        if (!record || bytes > RMEM_DATAGRAM_BYTES_MAX)
            return false;
        wire::Bytes request(record, record + bytes);
        ring_in_take(&pair.in);
        ring_in_tell(&pair.in);
        node_.enter(0);
        outbox_.begin(draft_->pair);
        node_.handle(0, daemon::now_ns(), request, pair.path, outbox_);
        outbox_.flush();
        node_.leave(0);
        while ((record = ring_in_record(&drafts_, &bytes, &fault))) {
            wire::Bytes answer(record, record + bytes);
            ring_in_take(&drafts_);
            ring_in_tell(&drafts_);
            ring_out_learn(&pair.out); // of a pair that was scribbled on, it may never have room
            if ((!bend_ || bend_(answer)) && ring_out_room(&pair.out))
                post(pair, answer);
        }
        pair.wake_client();
        return true;
    }

public:
    static void post(daemon::RingPair& pair, const wire::Bytes& record) {
        std::copy(record.begin(), record.end(), ring_out_record(&pair.out));
        ring_out_post(&pair.out, static_cast<std::uint32_t>(record.size()));
    }

private:
    UnixListener listener_;
    daemon::Node node_;
    daemon::PointerBuffer pointers_;
    daemon::RingOutbox outbox_{node_.counters(0)};
    std::unique_ptr<Client> draft_; // answers before they are bent
    ring_in drafts_;
    std::atomic<unsigned> ended_ = 0;
    std::atomic<bool> stopped_ = false;
    std::mutex lock_; // all below, but for thread_
    std::uint64_t serial_ = 0;
    std::map<std::uint64_t, std::unique_ptr<Client>> clients_;
    Bend bend_;
    std::function<void(int)> answer_;
    bool serves_ = true;
    std::thread thread_;
};

constexpr std::uint64_t call_timeout_us = 50'000;
// Upper bound on how late an operation ends: a busy machine delays the client's thread. An
// operation that never ends is the defect.
constexpr std::chrono::seconds lateness{20};

class BadWords : public testing::Test {
protected:
    // Another handle; all have one region. Calls that must succeed have no limit.
    void open(std::uint64_t call_us = call_timeout_us, std::uint64_t timeout_us = 0) {
        close();
        ASSERT_EQ(open_at(path, r, call_us, timeout_us), 0) << remote_why();
        if (!a) {
            ASSERT_EQ(remote_alloc(r, region_bytes, REMOTE_RW, &a), 0);
        }
    }
    void close() {
        in_time([this] {
            remote_close(std::exchange(r, nullptr));
            return 0;
        });
    }
    // The result of an operation; it ends by its deadline.
    template <typename Operation>
    static int in_time(Operation operation) {
        const auto begin = std::chrono::steady_clock::now();
        int result = operation();
        EXPECT_LT(std::chrono::steady_clock::now() - begin,
                  std::chrono::microseconds(call_timeout_us) + lateness);
        return result;
    }
    int read(std::size_t bytes) {
        std::vector<std::uint8_t> to(bytes); // no byte more, so that ASan sees the one behind
        return in_time([&] { return remote_read(r, a, to.data(), bytes); });
    }
    int write(std::size_t bytes) {
        std::vector<std::uint8_t> from(bytes, 1);
        return in_time([&] { return remote_write(r, a, from.data(), bytes); });
    }
    void TearDown() override { close(); }

    static constexpr std::size_t region_bytes = 2 << 20;
    const std::string path = shm_path();
    Watchdog dog{"a client of a hostile node"};
    BadNode node{path};
    remote_t* r = nullptr;
    raddr_t a = 0;
};

TEST_F(BadWords, SoundWordsAreTaken) {
    open(0);
    std::vector<std::uint8_t> data(region_bytes), back(region_bytes);
    std::generate(data.begin(), data.end(), std::mt19937(1));
    ASSERT_EQ(remote_write(r, a, data.data(), data.size()), 0);
    ASSERT_EQ(remote_read(r, a, back.data(), back.size()), 0);
    EXPECT_EQ(data, back);
    EXPECT_EQ(node.ended(), 0U);
}

// The word is that of the next entry of the response ring.
TEST_F(BadWords, BadWordOfAnEntryEndsThePair) {
    struct Case {
        const char* what;
        std::uint64_t (*word)(std::uint64_t number);
        bool plain = true;
    };
    const Case cases[] = {
        {"one byte longer than its entry",
         [](std::uint64_t n) {
             return n << 32 | RING_VALID | (entry_bytes - RING_HEAD_BYTES + 1);
         }},
        {"as long as can be said", [](std::uint64_t n) { return n << 32 | 0xffffffff; }},
        {"not valid", [](std::uint64_t n) { return n << 32 | RMEM_PLAIN_BYTES; }},
        {"of the entry before", [](std::uint64_t n) { return (n - 1) << 32 | RING_VALID | 64; }},
        {"of the entry behind", [](std::uint64_t n) { return (n + 1) << 32 | RING_VALID | 64; }},
        {"of this place in the next round",
         [](std::uint64_t n) { return (n + daemon::RingPair::responses) << 32 | RING_VALID | 64; }},
        {"without bytes", [](std::uint64_t n) { return n << 32 | RING_VALID; }, false},
        {"of a datagram shorter than its header",
         [](std::uint64_t n) { return n << 32 | RING_VALID | (RMEM_HDR_BYTES - 1); }, false},
        {"of a datagram longer than any",
         [](std::uint64_t n) { return n << 32 | RING_VALID | (RMEM_DATAGRAM_BYTES_MAX + 1); },
         false},
    };
    static_assert(entry_bytes - RING_HEAD_BYTES > RMEM_DATAGRAM_BYTES_MAX);
    for (const Case& test : cases) {
        SCOPED_TRACE(test.what);
        open();
        if (HasFatalFailure())
            return;
        const unsigned ended = node.ended();
        node.stand_still();
        node.for_each_pair([&](daemon::RingPair& pair, int) {
            std::uint8_t* entry =
                ring_entry(pair.out.entries, pair.out.mask, pair.out.entry_bytes, pair.out.posted);
            std::memset(entry + RING_HEAD_BYTES, 0, RMEM_HDR_BYTES);
            // A client that takes it for a message doesn't end the pair.
            if (test.plain)
                entry[RING_HEAD_BYTES] = RMEM_PLAIN;
            __atomic_store_n(reinterpret_cast<std::uint64_t*>(entry),
                             base_swap_le64(test.word(pair.out.posted)), __ATOMIC_RELEASE);
        });
        EXPECT_EQ(read(1), -ETIMEDOUT);
        EXPECT_TRUE(comes_true([&] { return node.ended() > ended; })) << "the client goes on";
        close();
        node.serve_again();
    }
}

// The client looks at the credit word when it has filled the ring.
TEST_F(BadWords, BadCreditEndsThePair) {
    constexpr std::size_t bytes = 8192, count = 2 * daemon::RingPair::requests; // an entry each
    for (std::uint32_t by : {~0U, 1000U}) {
        SCOPED_TRACE(by);
        open(call_timeout_us, 2'000'000); // operations of a queue have this limit
        if (HasFatalFailure())
            return;
        const unsigned ended = node.ended();
        node.stand_still();
        node.for_each_pair([&](daemon::RingPair& pair, int) {
            __atomic_store_n(pair.in.credit, base_swap_le32(pair.in.told + by), __ATOMIC_RELEASE);
        });
        remote_queue_t* q = nullptr;
        ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0);
        std::vector<std::uint8_t> data(bytes);
        std::vector<remote_op> ops;
        for (std::size_t i = 0; i < count; i++)
            ops.push_back(remote_op_write(a + bytes * i, data.data(), bytes, i));
        EXPECT_EQ(remote_queue_submit(q, ops.data(), count), static_cast<int>(count));
        std::vector<remote_completion> done(count);
        EXPECT_EQ(in_time([&] {
                      return static_cast<int>(
                          remote_queue_wait(q, done.data(), count, count, 60'000'000));
                  }),
                  static_cast<int>(count));
        for (const remote_completion& each : done)
            EXPECT_EQ(each.result, -ETIMEDOUT);
        EXPECT_TRUE(comes_true([&] { return node.ended() > ended; })) << "the client goes on";
        remote_queue_close(q);
        close();
        node.serve_again();
    }
}

// One byte at a time is bent. The client may believe the node, but only within the client's
// buffers.
TEST_F(BadWords, BentHeadsOfAnswersHurtNoMemory) {
    open();
    for (std::size_t at = 0; at < RMEM_PLAIN_BYTES; at++)
        for (int how = 0; how < 4; how++) {
            SCOPED_TRACE("byte " + std::to_string(at) + " bent " + std::to_string(how));
            std::atomic<unsigned> bent = 0;
            node.bend_answers([&](wire::Bytes& record) {
                if (record.size() <= at)
                    return true;
                const std::uint8_t was = record[at];
                const std::uint8_t bend[] = {static_cast<std::uint8_t>(was ^ 1),
                                             static_cast<std::uint8_t>(was ^ 0x80), 0, 0xff};
                record[at] = bend[how];
                bent++;
                return true;
            });
            int error = read(100);
            EXPECT_GT(bent, 0U);
            node.bend_answers(nullptr);
            if (error)
                open();
            if (HasFatalFailure())
                return;
        }
}

// The answers have more bytes than the client asked for, or other ones.
TEST_F(BadWords, AnswersToMoreThanWasAskedForAreNotTaken) {
    open();
    struct Case {
        std::uint32_t len, offset;
    };
    constexpr std::uint32_t asked = 100;
    for (Case test : {Case{asked + 1, 0},
                      {asked, 1},
                      {asked, asked},
                      {8000, 0},
                      {asked, 1U << 31},
                      {asked, ~0U},
                      {1, asked},
                      {0, 0},
                      {~0U, 0},
                      {asked, ~0U - asked + 1}}) {
        SCOPED_TRACE(std::to_string(test.len) + " at " + std::to_string(test.offset));
        std::atomic<unsigned> bent = 0;
        node.bend_answers([&](wire::Bytes& record) {
            rmem_plain plain;
            if (record.size() < sizeof(plain) || record[0] != RMEM_PLAIN)
                return true;
            std::memcpy(&plain, record.data(), sizeof(plain));
            base_store_le32(&plain.len, test.len);
            base_store_le32(&plain.part, test.offset);
            std::memcpy(record.data(), &plain, sizeof(plain));
            record.resize(std::clamp<std::size_t>(rmem_plain_bytes(test.len), record.size(),
                                                  RMEM_DATAGRAM_BYTES_MAX),
                          0xee);
            bent++;
            return true;
        });
        EXPECT_NE(read(asked), 0);
        EXPECT_GT(bent, 0U);
        node.bend_answers(nullptr);
        open();
        if (HasFatalFailure())
            return;
    }
}

TEST_F(BadWords, GarbageAsMessagesEndsNoOperationLate) {
    std::mt19937 random(1), bending(2); // the test's; the node's thread's
    open();
    for (unsigned round = 0; round < 150; round++) {
        SCOPED_TRACE(round);
        node.bend_answers([&](wire::Bytes& record) {
            wire::Bytes garbage = record;
            if (bending() % 2) {
                garbage.resize(bending() % RMEM_DATAGRAM_BYTES_MAX + 1);
                std::generate(garbage.begin(), garbage.end(), std::ref(bending));
                const std::uint8_t versions[] = {RMEM_PLAIN, RMEM_VERSION, garbage[0]};
                garbage[0] = versions[bending() % 3];
            } else {
                for (unsigned n = bending() % 4; n-- > 0;)
                    garbage[bending() % garbage.size()] = static_cast<std::uint8_t>(bending());
                garbage.resize(bending() % 2 ? garbage.size()
                                             : bending() % (RMEM_DATAGRAM_BYTES_MAX + 1));
            }
            record = garbage;
            return true;
        });
        int error = random() % 2 ? read(1 + random() % 20'000) : write(1 + random() % 20'000);
        node.bend_answers(nullptr);
        if (error)
            open();
        if (HasFatalFailure())
            return;
    }
}

// Random words anywhere in the memory that the client shares with the node.
class Scribbler {
public:
    Scribbler(BadNode& node, unsigned seed)
        : thread_([this, &node, seed] {
              std::mt19937 random(seed);
              while (!stopped_) {
                  node.for_each_pair([&](daemon::RingPair& pair, int) { scribble(pair, random); });
                  std::this_thread::yield();
              }
          }) {}
    ~Scribbler() {
        stopped_ = true;
        thread_.join();
    }
    std::uint64_t words() const { return words_; }

private:
    void scribble(const daemon::RingPair& pair, std::mt19937& random) {
        const ring_offer offer = pair.offer();
        const std::uint64_t bytes = base_load_le64(&offer.pair_bytes);
        Mapping all(Descriptor(dup(pair.file())), bytes, PROT_READ | PROT_WRITE);
        Mapping page(Descriptor(dup(pair.place().file)), RING_PAGE_BYTES, PROT_READ | PROT_WRITE);
        const std::uint64_t response = base_load_le64(&offer.response_offset);
        for (unsigned n = 0; n < 20; n++) {
            std::uint8_t* at = all.data();
            switch (random() % 4) {
            case 0: // anywhere
                at += random() % (bytes / 4) * 4;
                break;
            case 1: // heads of answers, and of their messages
                at += response + random() % daemon::RingPair::responses * entry_bytes +
                      random() % 32 * 4;
                break;
            case 2: // credit and flags
                at += random() % (sizeof(ring_pair) / 4) * 4;
                break;
            default:
                at = page.data() + random() % (RING_PAGE_BYTES / 4) * 4;
                break;
            }
            const std::uint32_t values[] = {static_cast<std::uint32_t>(random()), 0, 1, ~0U,
                                            RING_VALID |
                                                static_cast<std::uint32_t>(random() % 9000)};
            __atomic_store_n(reinterpret_cast<std::uint32_t*>(at), values[random() % 5],
                             __ATOMIC_RELAXED);
            words_++;
        }
    }

    std::atomic<bool> stopped_ = false;
    std::atomic<std::uint64_t> words_ = 0;
    std::thread thread_;
};

TEST_F(BadWords, ScribblingNodeEndsNoOperationLate) {
    constexpr unsigned seeds = 20;
    for (unsigned seed = 1; seed <= seeds; seed++) {
        SCOPED_TRACE(seed);
        open();
        if (HasFatalFailure())
            return;
        Scribbler scribbler(node, seed);
        ASSERT_TRUE(comes_true([&] { return scribbler.words() > 0; }));
        std::mt19937 random(seed);
        for (unsigned n = 0; n < 10; n++) {
            read(1 + random() % 50'000);
            write(1 + random() % 50'000);
        }
        close();
    }
    EXPECT_GT(node.ended(), seeds) << "no client found a fault";
    open(0); // the process is sound, and may have other handles
    EXPECT_EQ(read(1000), 0);
}

// ---- later on ----

TEST_F(BadWords, BadOffersAfterALossLeaveNothingOpen) {
    const std::size_t before = open_descriptors();
    open();
    std::atomic<std::size_t> offers = 0;
    node.answer_new_clients([&](int connection) {
        Offer offer;
        bad_offers[offers % std::size(bad_offers)].bend(offer);
        // A client whose limit has expired is gone; it comes again.
        if (offer.send(connection) > 0)
            offers++;
    });
    node.hang_up();
    EXPECT_TRUE(comes_true([&] {
        EXPECT_EQ(read(1), -ETIMEDOUT);
        return offers >= std::size(bad_offers) || HasFailure();
    })) << "the client doesn't come back";
    close();
    node.answer_new_clients(nullptr); // its thread has done with offers
    EXPECT_TRUE(comes_true([&] { return open_descriptors() == before; }));
    EXPECT_FALSE(is_mapped(file_name));
}

// The client takes bytes from the socket, but never waits for the last one.
TEST_F(BadWords, BytesAndFilesWithoutEndHoldUpNothing) {
    open(0);
    const std::size_t before = open_descriptors();
    const std::uint8_t byte = 0;
    const Descriptor file = memory(1, 0);
    const int files[] = {file.get(), file.get(), file.get()};
    for (unsigned n = 0; n < 200; n++) {
        node.for_each_pair([&](daemon::RingPair&, int connection) {
            while (send_files(connection, {&byte, 1}, files)) {
            }
        });
        EXPECT_EQ(read(100), 0);
    }
    EXPECT_EQ(open_descriptors(), before + 1);
    EXPECT_EQ(node.ended(), 0U);
}

} // namespace

} // namespace remora::test
