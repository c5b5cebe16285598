// SPDX-License-Identifier: GPL-2.0
// Rings in shared memory: ends that die, restart, are too many, sleep, or scribble; and turns.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <pthread.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "../common/messages.hpp"
#include "backend.hpp"
#include "patience.hpp"
#include "remora-node/rings.hpp"
#include "remote/queue.h"
#include "src/transport/shm_link.hpp"
#include "support/futex.hpp"
#include "support/key.hpp"
#include "victim.hpp"

namespace remora::test {

namespace {

using daemon::ShmOptions;

constexpr int patience_ms = std::chrono::milliseconds(patience).count();

class Shm : public testing::Test {
protected:
    int try_open(remote_t*& handle, std::uint64_t timeout_us = 0) const {
        remote_options options{};
        options.size = sizeof(options);
        options.timeout_us = timeout_us;
        return remote_open(&handle, shm_target(path).c_str(), &options);
    }
    remote_t* open(std::uint64_t timeout_us = 0) const {
        remote_t* handle = nullptr;
        EXPECT_EQ(try_open(handle, timeout_us), 0) << remote_why();
        return handle;
    }
    void start(unsigned rings = 64, mode_t mode = 0600) {
        node = std::make_unique<TestNode>(ShmOptions{.path = path, .mode = mode, .rings = rings});
    }
    std::uint64_t count(std::string_view name) const {
        for (const auto& [each, value] : node->report().counters)
            if (each == name)
                return value;
        ADD_FAILURE() << "no counter " << name;
        return 0;
    }

    // A node that was killed leaves it.
    void TearDown() override { unlink(path.c_str()); }

    const std::string path = shm_path();
    std::unique_ptr<TestNode> node;
};

// ---- coming and going ----

TEST_F(Shm, PathWithoutNodeIsNamed) {
    remote_t* r = nullptr;
    EXPECT_EQ(try_open(r), -ECONNREFUSED);
    EXPECT_NE(std::string(remote_why()).find(path), std::string::npos);
}

TEST_F(Shm, WrongKeyIsRejected) {
    start();
    std::string file = key_file() + "-other";
    std::ofstream(file) << "000102030405060708090a0b0c0d0e0f\n";
    remote_options options{};
    options.size = sizeof(options);
    options.timeout_us = 300'000;
    remote_t* r = nullptr;
    EXPECT_EQ(remote_open(&r, fmt::format("shm:{},key={}", path, file).c_str(), &options),
              -EKEYREJECTED);
    unlink(file.c_str());
}

TEST_F(Shm, SocketIsItsOwnersAloneAndGoesWithTheNode) {
    start();
    EXPECT_EQ(std::filesystem::status(path).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    node.reset();
    EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(Shm, ClientsBeyondTheRingsAreRefusedUntilOneCloses) {
    start(2);
    remote_t *one = open(), *two = open(), *three = nullptr;
    EXPECT_EQ(try_open(three), -EUSERS);
    EXPECT_NE(std::string(remote_why()).find("--shm-rings"), std::string::npos);
    remote_close(one);
    // The node notices it a moment later.
    EXPECT_TRUE(comes_true([&] { return !try_open(three); })) << remote_why();
    remote_close(two);
    remote_close(three);
}

TEST_F(Shm, KilledClientsRingsAreFree) {
    Victim victim([this] {
        remote_t* r = nullptr;
        raddr_t a = 0;
        return !try_open(r) && !remote_alloc(r, 100, REMOTE_RW, &a);
    });
    start(1);
    ASSERT_TRUE(victim.run());
    remote_t* r = nullptr;
    EXPECT_EQ(try_open(r), -EUSERS);
    victim.kill();
    EXPECT_TRUE(comes_true([&] { return !try_open(r); })) << remote_why();
    remote_close(r);
}

TEST_F(Shm, KilledClientsRingsAreFreeThoughItsChildLives) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Descriptor child_end(ends[0]), end(ends[1]);
    Victim victim([&] {
        remote_t* r = nullptr;
        if (try_open(r) || fork())
            return r != nullptr;
        end = Descriptor(); // lives until the test's end of the pipe is closed
        char byte;
        _exit(read(child_end.get(), &byte, 1) ? 1 : 0);
    });
    start(1);
    ASSERT_TRUE(victim.run());
    victim.kill();
    remote_t* r = nullptr;
    EXPECT_TRUE(comes_true([&] { return !try_open(r); })) << remote_why();
    remote_close(r);
}

// The error of opening so many handles, as a user who isn't the node's.
int error_of_stranger(const std::string& path, unsigned handles) {
    const Key key = key_read(key_file()).key;
    remote_options options{};
    options.size = sizeof(options);
    options.key = key.data();
    if (seteuid(65534))
        return -errno;
    int error = 0;
    for (remote_t* r = nullptr; handles && !error; handles--)
        error = remote_open(&r, ("shm:" + path).c_str(), &options);
    return error;
}

// The socket's mode alone wouldn't keep such a user out: it may be changed, or the user be root's.
TEST_F(Shm, OtherUsersAreRefusedByTheirCredentials) {
    if (geteuid())
        GTEST_SKIP() << "needs root, to be another user";
    Victim stranger([&] { return error_of_stranger(path, 1) == -EACCES; });
    start();
    std::filesystem::permissions(path, std::filesystem::perms::all);
    EXPECT_TRUE(stranger.run());
    remote_close(open());
}

TEST_F(Shm, OtherUsersLeaveAQuarterOfTheRingsToTheOwner) {
    if (geteuid())
        GTEST_SKIP() << "needs root, to be another user";
    Victim stranger([&] { return error_of_stranger(path, 4) == -EUSERS; });
    start(4, 0666);
    EXPECT_TRUE(stranger.run());
    remote_close(open());
}

TEST_F(Shm, ClientOfANodeThatStandsStillSleeps) {
    Victim other([this] {
        start();
        return true;
    });
    ASSERT_TRUE(other.run());
    remote_t* r = open();
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, 100, REMOTE_RW, &a), 0);
    other.stop();
    std::atomic<pid_t> id = 0;
    std::thread waiting([&] {
        id = gettid();
        std::uint8_t byte = 0;
        EXPECT_EQ(remote_read(r, a, &byte, 1), 0);
    });
    auto sleeps = [&] {
        std::string call; // system call of the thread
        std::ifstream(fmt::format("/proc/self/task/{}/syscall", id.load())) >> call;
        return call == std::to_string(SYS_futex);
    };
    EXPECT_TRUE(comes_true(sleeps)) << "the client spins";
    other.resume();
    waiting.join();
    remote_close(r);
}

TEST_F(Shm, SilentNodeTimesOut) {
    start();
    remote_t* r = open(300'000);
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, 100, REMOTE_RW, &a), 0);
    node.reset();
    std::uint8_t byte = 0;
    EXPECT_EQ(remote_read(r, a, &byte, 1), -ETIMEDOUT);
    remote_close(r);
}

TEST_F(Shm, RestartedNodeHasLostEverything) {
    start();
    remote_t* r = open();
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, 100, REMOTE_RW, &a), 0);
    node.reset();
    start();
    std::uint8_t byte = 0;
    EXPECT_EQ(remote_read(r, a, &byte, 1), -ESTALE);
    remote_close(r);
    r = open();
    EXPECT_EQ(remote_read(r, a, &byte, 1), -EFAULT);
    remote_close(r);
}

// ---- bytes ----

TEST_F(Shm, DataOfAllSizesComesBack) {
    start();
    remote_t* r = open();
    raddr_t a = 0;
    constexpr std::size_t most = 3 << 20; // several times what the rings hold
    ASSERT_EQ(remote_alloc(r, most, REMOTE_RW, &a), 0);
    std::vector<std::uint8_t> data(most), back(most);
    std::mt19937 random(1);
    for (std::size_t bytes : {std::size_t{1}, std::size_t{16}, std::size_t{8703}, std::size_t{8704},
                              std::size_t{8705}, std::size_t{262144}, std::size_t{1000001}, most}) {
        std::generate(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(bytes),
                      [&] { return static_cast<std::uint8_t>(random()); });
        ASSERT_EQ(remote_write(r, a, data.data(), bytes), 0) << bytes;
        ASSERT_EQ(remote_read(r, a, back.data(), bytes), 0) << bytes;
        EXPECT_TRUE(std::equal(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(bytes),
                               back.begin()))
            << bytes;
    }
    remote_close(r);
}

// The node stands still, so writes fill the ring. The queue cancels all of them and frees their
// data before the ring has room again.
TEST_F(Shm, CancelledWritesAreNotTouchedWhenTheRingHasRoomAgain) {
    constexpr std::size_t bytes = 8192, count = 128; // each an entry; twice what the ring has
    Victim other([this] {
        start();
        return true;
    });
    ASSERT_TRUE(other.run());
    remote_t* r = open();
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, bytes * count, REMOTE_RW, &a), 0);
    other.stop();
    remote_queue_t* q = nullptr;
    ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0);
    {
        std::vector<std::uint8_t> data(bytes, 7);
        std::vector<remote_op> ops;
        for (std::size_t i = 0; i < count; i++)
            ops.push_back(remote_op_write(a + bytes * i, data.data(), bytes, i));
        EXPECT_EQ(remote_queue_submit(q, ops.data(), count), static_cast<int>(count));
        remote_queue_close(q);
    }
    other.resume();
    std::uint8_t byte = 1;
    EXPECT_EQ(remote_read(r, a + bytes * (count - 1), &byte, 1), 0);
    EXPECT_EQ(byte, 0) << "a write that never had room was executed";
    remote_close(r);
}

// Threads that share a handle combine: none is left behind.
TEST_F(Shm, ThreadsOfOneHandleAllGetTheirAnswers) {
    start();
    remote_t* r = open();
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, 4096, REMOTE_RW, &a), 0);
    constexpr std::uint64_t count = 8;
    std::latch begin(count);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < count; t++)
        threads.emplace_back([=, &begin] {
            begin.arrive_and_wait();
            for (std::uint64_t i = 1; i <= 300; i++) {
                std::uint64_t value = t << 32 | i, back = 0;
                EXPECT_EQ(remote_write(r, a + 8 * t, &value, 8), 0);
                EXPECT_EQ(remote_read(r, a + 8 * t, &back, 8), 0);
                EXPECT_EQ(back, value);
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    remote_close(r);
}

// The node stands still at first: until it answers, an event loop sleeps.
TEST_F(Shm, DescriptorIsReadableOnceTheNodeHasAnswered) {
    Victim other([this] {
        start();
        return true;
    });
    ASSERT_TRUE(other.run());
    remote_t* r = open(UINT64_MAX);
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, 100, REMOTE_RW, &a), 0);
    remote_queue_t* q = nullptr;
    ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0);
    for (int round = 0; round < 3; round++) {
        other.stop();
        std::uint64_t byte = 0, next_us = 0;
        remote_op op = remote_op_read(a, &byte, 1, 1);
        ASSERT_EQ(remote_queue_submit(q, &op, 1), 1);
        pollfd ready{remote_queue_fd(q, &next_us), POLLIN, 0};
        ASSERT_GE(ready.fd, 0);
        EXPECT_GT(next_us, 1000U) << "it would look again and again";
        EXPECT_EQ(poll(&ready, 1, 0), 0);
        other.resume();
        EXPECT_EQ(poll(&ready, 1, patience_ms), 1);
        remote_completion done{};
        ASSERT_TRUE(comes_true([&] {
            if (remote_queue_wait(q, &done, 1, 0, 0))
                return true;
            EXPECT_EQ(remote_queue_fd(q, &next_us), ready.fd);
            poll(&ready, 1, 10);
            return false;
        }));
        EXPECT_EQ(done.result, 0);
        EXPECT_EQ(remote_queue_fd(q, &next_us), ready.fd);
        EXPECT_EQ(next_us, UINT64_MAX);
        EXPECT_EQ(poll(&ready, 1, 0), 0) << "an idle event loop would spin";
    }
    remote_queue_close(q);
    remote_close(r);
}

TEST_F(Shm, DescriptorIsQuietWhenTheNodeHasEnded) {
    Victim other([this] {
        start();
        return true;
    });
    ASSERT_TRUE(other.run());
    remote_t* r = open();
    remote_queue_t* q = nullptr;
    ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0);
    std::uint64_t next_us = 0;
    pollfd ready{remote_queue_fd(q, &next_us), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 0), 0);
    other.kill();
    EXPECT_EQ(poll(&ready, 1, patience_ms), 1);
    remote_completion none;
    EXPECT_EQ(remote_queue_wait(q, &none, 1, 0, 0), 0);
    EXPECT_EQ(remote_queue_fd(q, &next_us), ready.fd);
    EXPECT_EQ(next_us, UINT64_MAX);
    EXPECT_EQ(poll(&ready, 1, 0), 0) << "an idle event loop would spin";
    remote_queue_close(q);
    remote_close(r);
}

// A client that is stopped after it has reset the node's flag doesn't wake the node.
TEST_F(Shm, NodeIsWokenAlthoughItsFlagIsReset) {
    start();
    remote_t* r = open();
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, 100, REMOTE_RW, &a), 0);
    lib::ShmLink other(path, lib::Clock::now() + std::chrono::seconds(5));
    ASSERT_TRUE(
        comes_true([&] { return __atomic_load_n(other.node_sleeps, __ATOMIC_SEQ_CST) != 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20)); // the node sleeps right after that
    __atomic_store_n(other.node_sleeps, 0, __ATOMIC_SEQ_CST);
    std::uint8_t byte = 0;
    EXPECT_EQ(remote_read(r, a, &byte, 1), 0);
    remote_close(r);
}

// A timer's signals interrupt poll() again and again.
TEST_F(Shm, SignalsDoNotDisturbTheOpening) {
    Victim other([this] {
        start();
        return true;
    });
    ASSERT_TRUE(other.run());
    struct sigaction counted {};
    static std::atomic<unsigned> signals;
    signals = 0;
    counted.sa_handler = [](int) { signals++; };
    struct sigaction before {};
    ASSERT_EQ(sigaction(SIGUSR1, &counted, &before), 0);
    other.stop(); // the kernel accepts for it: it offers rings later
    const pthread_t self = pthread_self();
    std::thread sender([&] {
        for (int i = 0; i < 20; i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            pthread_kill(self, SIGUSR1);
        }
        other.resume();
    });
    remote_t* r = open();
    sender.join();
    EXPECT_TRUE(r);
    EXPECT_GT(signals, 0U);
    remote_close(r);
    sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(Shm, StoppedNodeIsToldFromOneWithoutRings) {
    Victim other([this] {
        start();
        return true;
    });
    ASSERT_TRUE(other.run());
    other.stop();
    remote_t* r = nullptr;
    EXPECT_EQ(try_open(r, 300'000), -EHOSTUNREACH);
    EXPECT_NE(std::string(remote_why()).find("stopped"), std::string::npos);
}

// More at once than the node's socket has room for.
TEST_F(Shm, AllOfManyThatComeAtOnceAreAdmitted) {
    constexpr unsigned count = 200;
    start(count);
    std::vector<std::unique_ptr<lib::ShmLink>> links(count);
    std::vector<std::thread> threads;
    for (auto& link : links)
        threads.emplace_back([&] {
            link =
                std::make_unique<lib::ShmLink>(path, lib::Clock::now() + std::chrono::seconds(60));
        });
    for (std::thread& thread : threads)
        thread.join();
    for (auto& link : links)
        EXPECT_TRUE(link && link->is_open());
}

// ---- idleness ----

// CPU time that all threads of the process have spent.
std::chrono::nanoseconds time_spent_by(pid_t process) {
    clockid_t clock;
    timespec spent{};
    EXPECT_EQ(clock_getcpuclockid(process, &clock), 0);
    EXPECT_EQ(clock_gettime(clock, &spent), 0);
    return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

std::ptrdiff_t threads_of(const std::string& process) {
    std::filesystem::directory_iterator all("/proc/" + process + "/task");
    return std::distance(begin(all), end(all));
}

// ThreadSanitizer has a thread in each process, which wakes up now and then. Otherwise a process
// whose threads all sleep spends nothing at all.
#ifdef __SANITIZE_THREAD__
constexpr std::chrono::nanoseconds spent_idle_max{1'000'000};
#else
constexpr std::chrono::nanoseconds spent_idle_max{0};
#endif

// Does the node's worker sleep, and does no thread of the process run for a while?
bool is_idle(pid_t process, const lib::ShmLink& link, std::chrono::milliseconds time) {
    auto sleeps = [&] { return __atomic_load_n(link.node_sleeps, __ATOMIC_SEQ_CST) != 0; };
    if (!sleeps())
        return false;
    const auto spent = time_spent_by(process);
    std::this_thread::sleep_for(time);
    return sleeps() && time_spent_by(process) - spent <= spent_idle_max;
}

// First a node becomes idle, then it stays so.
constexpr std::chrono::milliseconds becomes_idle{20}, stays_idle{300};

TEST_F(Shm, IdleNodeWithWarmRingsSpendsNoTime) {
    Victim other([this] {
        start();
        return true;
    });
    ASSERT_TRUE(other.run());
    const std::ptrdiff_t threads = threads_of("self");
    remote_t* handles[] = {open(), open()};
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(handles[0], 100, REMOTE_RW, &a), 0);
    const lib::ShmLink link(path);
    for (int round = 0; round < 3; round++) {
        std::uint64_t value = 0;
        for (int i = 0; i < 100; i++)
            for (remote_t* r : handles) {
                ASSERT_EQ(remote_write(r, a, &value, sizeof(value)), 0);
                ASSERT_EQ(remote_read(r, a, &value, sizeof(value)), 0);
            }
        ASSERT_TRUE(comes_true([&] { return is_idle(other.pid(), link, becomes_idle); }))
            << "the node spins";
        EXPECT_TRUE(is_idle(other.pid(), link, stays_idle)) << "the node wakes up by itself";
    }
    EXPECT_EQ(threads_of("self"), threads) << "the library has threads, which may spend time";
    for (remote_t* r : handles)
        remote_close(r);
}

TEST_F(Shm, EventLoopOfAnIdleClientSleeps) {
    Victim other([this] {
        start();
        return true;
    });
    ASSERT_TRUE(other.run());
    remote_t *one = open(), *two = open();
    const lib::ShmLink link(path);
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(two, 100, REMOTE_RW, &a), 0);
    remote_queue_t* q = nullptr;
    ASSERT_EQ(remote_queue_open(&q, one, nullptr), 0);
    std::uint8_t byte = 0;
    std::uint64_t next_us = 0;
    remote_op op = remote_op_read(a, &byte, 1, 1);
    remote_completion done{};
    ASSERT_EQ(remote_queue_submit(q, &op, 1), 1);
    ASSERT_EQ(remote_queue_wait(q, &done, 1, 1, UINT64_MAX), 1);
    for (int i = 0; i < 100; i++) // by the other client: the event loop has nothing to do with it
        ASSERT_EQ(remote_read(two, a, &byte, 1), 0);
    pollfd ready{remote_queue_fd(q, &next_us), POLLIN, 0};
    EXPECT_EQ(next_us, UINT64_MAX);
    ASSERT_TRUE(comes_true([&] { return is_idle(other.pid(), link, becomes_idle); }))
        << "the node spins";
    const auto spent = time_spent_by(other.pid());
    EXPECT_EQ(poll(&ready, 1, stays_idle.count()), 0) << "the event loop is woken";
    EXPECT_LE(time_spent_by(other.pid()) - spent, spent_idle_max);
    remote_queue_close(q);
    remote_close(one);
    remote_close(two);
}

// ---- raw ends ----

// A request from before a restart, which the node refuses by an answer of its own datagram.
wire::Bytes request_of(std::uint64_t id) {
    static constexpr std::uint8_t key_bytes[16] = {1, 2, 3, 4, 5};
    base_siphash_key key;
    base_siphash_key_load(&key, key_bytes);
    rmem_head head{};
    head.type = RMEM_READ;
    head.integrity = RMEM_LINK;
    head.space = 1;
    head.session = 0x1234567;
    head.boot = 1; // an earlier one
    head.id = head.floor = id;
    head.len = 16;
    head.piece = RMEM_PIECE_BYTES_MIN;
    return wire::sealed(head, key);
}

void post(lib::ShmLink& link, const wire::Bytes& record) {
    std::memcpy(ring_out_record(&link.out), record.data(), record.size());
    ring_out_post(&link.out, static_cast<std::uint32_t>(record.size()));
}

void signal(lib::ShmLink& link) {
    ring_out_signal(&link.out, link.pointer);
    if (ring_must_wake(link.node_sleeps))
        futex_wake(link.node_sleeps);
}

// Of the next answer: how many datagrams the node's thread had begun then.
std::uint64_t number_of_answer(lib::ShmLink& link) {
    std::uint32_t bytes;
    ring_fault fault;
    const std::uint8_t* record;
    if (!comes_true([&] { return (record = ring_in_record(&link.in, &bytes, &fault)); })) {
        ADD_FAILURE() << "the node doesn't answer";
        return 0;
    }
    std::optional<rmem_head> head = wire::answer_head({record, record + bytes});
    ring_in_take(&link.in);
    if (!head) {
        ADD_FAILURE() << "the node's record is no answer";
        return 0;
    }
    return head->number & ((std::uint64_t{1} << 48) - 1);
}

// The worker starts when all have posted, so the order of its answers is that of the turns.
TEST_F(Shm, ModestClientWaitsForOneTurnOfEachGreedyOne) {
    constexpr unsigned greedy_clients = 3, idle_clients = 20, turn_requests = 8;
    RingsWithoutWorker rig(ShmOptions{.path = path});
    std::vector<std::unique_ptr<lib::ShmLink>> greedy, idle;
    for (unsigned i = 0; i < idle_clients; i++)
        idle.push_back(std::make_unique<lib::ShmLink>(path));
    for (unsigned i = 0; i < greedy_clients; i++) {
        auto& link = *greedy.emplace_back(std::make_unique<lib::ShmLink>(path));
        for (std::uint64_t id = 1; ring_out_room(&link.out); id++)
            post(link, request_of(id));
        signal(link);
    }
    lib::ShmLink modest(path);
    post(modest, request_of(1));
    signal(modest);
    rig.start_worker();
    EXPECT_LE(number_of_answer(modest), greedy_clients * turn_requests + 1);
    for (auto& link : greedy)
        EXPECT_LE(number_of_answer(*link), (greedy_clients - 1) * turn_requests + 2);
}

// Rounds until the client has its answer; at most so many.
unsigned rounds_until_answered(RingsWithoutWorker& rig, const lib::ShmLink& link, unsigned most) {
    unsigned rounds = 0;
    while (!ring_in_has_record(&link.in) && rounds < most) {
        rig.look();
        rounds++;
    }
    return rounds;
}

TEST_F(Shm, FirstRequestOfAnIdleRingWaitsForThreeTurnsOfEachOther) {
    constexpr unsigned greedy_clients = 3, turn_requests = 8, rounds_max = 32;
    RingsWithoutWorker rig(ShmOptions{.path = path});
    std::vector<std::unique_ptr<lib::ShmLink>> greedy;
    for (unsigned i = 0; i < greedy_clients; i++) {
        auto& link = *greedy.emplace_back(std::make_unique<lib::ShmLink>(path));
        for (std::uint64_t id = 1; ring_out_room(&link.out); id++)
            post(link, request_of(id));
        signal(link);
    }
    lib::ShmLink first(path), second(path);
    rig.look(); // from now on the greedy ones' rings are warm, and have more
    post(first, request_of(1));
    signal(first);
    rounds_until_answered(rig, first, rounds_max);
    EXPECT_LE(number_of_answer(first), 3 * greedy_clients * turn_requests + 1);
    // Rings that are warm and have nothing more hold up nobody either.
    post(second, request_of(1));
    signal(second);
    EXPECT_LE(rounds_until_answered(rig, second, 2 * rounds_max), rounds_max);
    EXPECT_NE(number_of_answer(second), 0U);
}

// The next round begins no further than the last pair that is left.
TEST_F(Shm, PairIsServedWhenManyOthersGoAtOnce) {
    constexpr unsigned rounds_max = 8;
    RingsWithoutWorker rig(ShmOptions{.path = path});
    std::vector<std::unique_ptr<lib::ShmLink>> links;
    for (unsigned i = 0; i < 8; i++)
        links.push_back(std::make_unique<lib::ShmLink>(path));
    for (unsigned i = 0; i < 12; i++)
        rig.look(); // every second one is for all, and begins one further
    links.resize(1);
    ASSERT_TRUE(comes_true([&] {
        rig.look();
        return rig.in_use() <= links.size();
    }));
    post(*links[0], request_of(1));
    signal(*links[0]);
    EXPECT_LT(rounds_until_answered(rig, *links[0], rounds_max), rounds_max);
}

// The worker, which all clients wait for, should take no page fault.
TEST_F(Shm, PagesOfAPairAreThereFromTheBegin) {
    start();
    lib::ShmLink link(path);
    auto missing = [](std::uint8_t* entries, std::size_t bytes) {
        std::size_t page_bytes = RING_PAGE_BYTES;
        std::vector<unsigned char> there((bytes + page_bytes - 1) / page_bytes);
        EXPECT_EQ(mincore(entries, bytes, there.data()), 0) << std::strerror(errno);
        return std::ranges::count_if(there, [](unsigned char page) { return !(page & 1); });
    };
    EXPECT_EQ(missing(link.out.entries, std::size_t{link.out.mask + 1} * link.out.entry_bytes), 0);
    EXPECT_EQ(missing(link.in.entries, std::size_t{link.in.mask + 1} * link.in.entry_bytes), 0);
}

// Of a client whose ring has requests, but no room for their answers.
TEST_F(Shm, NodeSleepsBesideAClientThatTakesNoAnswers) {
    Victim other([this] {
        start();
        return true;
    });
    ASSERT_TRUE(other.run());
    lib::ShmLink deaf(path);
    std::uint64_t id = 0;
    ASSERT_TRUE(comes_true([&] {
        EXPECT_EQ(ring_out_learn(&deaf.out), RING_OK);
        while (ring_out_room(&deaf.out))
            post(deaf, request_of(++id));
        signal(deaf);
        return is_idle(other.pid(), deaf, becomes_idle) && !ring_out_learn(&deaf.out) &&
               !ring_out_room(&deaf.out);
    })) << "the node spins";
    EXPECT_TRUE(is_idle(other.pid(), deaf, stays_idle)) << "the node wakes up by itself";
}

// Answers that a client doesn't take stop its own requests only.
TEST_F(Shm, ClientThatTakesNoAnswersStopsItself) {
    start();
    lib::ShmLink deaf(path);
    std::uint64_t id = 0;
    // Until the node takes no more of them: its response ring has too little room.
    for (unsigned tries = 0; tries < 1000 && id < 4 * std::uint64_t{deaf.in.mask + 1}; tries++) {
        ASSERT_EQ(ring_out_learn(&deaf.out), RING_OK);
        while (ring_out_room(&deaf.out))
            post(deaf, request_of(++id));
        signal(deaf);
        std::this_thread::yield();
    }
    EXPECT_LE(deaf.out.freed, deaf.in.mask + 1);
    remote_t* r = open();
    raddr_t a = 0;
    EXPECT_EQ(remote_alloc(r, 100, REMOTE_RW, &a), 0);
    remote_close(r);
    // The node goes on when the client takes them.
    for (std::uint64_t n = 0; n < id; n++) {
        number_of_answer(deaf);
        if (ring_in_tell(&deaf.in) && ring_must_wake(deaf.node_sleeps))
            futex_wake(deaf.node_sleeps);
    }
    EXPECT_EQ(count("drop-xmit"), 0U);
    EXPECT_EQ(count("rings-closed"), 0U);
}

TEST_F(Shm, BrokenRuleClosesItsOwnPairAlone) {
    start();
    remote_t* r = open();
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, 100, REMOTE_RW, &a), 0);
    auto break_rule = [&](auto how) {
        std::uint64_t before = count("rings-closed");
        lib::ShmLink link(path);
        how(link);
        signal(link);
        ASSERT_TRUE(comes_true([&] { return count("rings-closed") > before; }));
        std::uint8_t byte = 0;
        EXPECT_EQ(remote_read(r, a, &byte, 1), 0);
    };
    break_rule([](lib::ShmLink& link) { link.out.posted += link.out.mask + 2; });
    break_rule([](lib::ShmLink& link) { link.out.posted++; }); // signalled, and not there
    break_rule([](lib::ShmLink& link) {
        post(link, request_of(1));
        ring_entry(link.out.entries, link.out.mask, link.out.entry_bytes, 0)[4] ^= 1;
    });
    break_rule([](lib::ShmLink& link) { ring_out_post(&link.out, RING_ENTRY_BYTES_MAX); });
    remote_close(r);
}

// Anything at any place of the memory that it shares with the node, while others work.
TEST_F(Shm, ScribblingClientsLeaveAnotherClientsDataIntact) {
    start();
    remote_t* r = open();
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, 64 << 10, REMOTE_RW, &a), 0);
    for (unsigned seed = 1; seed <= 60; seed++) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        lib::ShmLink link(path);
        auto scribble = [&](std::uint8_t* entries, std::uint32_t count, std::uint32_t entry_bytes) {
            std::size_t bytes = std::size_t{count} * entry_bytes;
            // Half of the time where it matters: the beginning of an entry.
            std::size_t at =
                random() % 2 ? random() % count * entry_bytes + random() % 160 : random() % bytes;
            std::uint32_t value = random();
            std::size_t length = std::min(sizeof(value), bytes - at);
            std::memcpy(entries + at, &value, length);
        };
        for (unsigned step = 0; step < 40; step++) {
            switch (random() % 5) {
            case 0:
                scribble(link.out.entries, link.out.mask + 1, link.out.entry_bytes);
                break;
            case 1:
                scribble(link.in.entries, link.in.mask + 1, link.in.entry_bytes);
                break;
            case 2:
                if (random() % 4 == 0)
                    *link.in.credit = random();
                break;
            default: {
                wire::Bytes record = request_of(random() % 100 + 1);
                if (random() % 2)
                    record[random() % record.size()] ^=
                        static_cast<std::uint8_t>(1 + random() % 255);
                ring_out_learn(&link.out);
                if (ring_out_room(&link.out))
                    post(link, record);
                break;
            }
            }
            signal(link);
        }
        std::uint64_t value = seed, back = 0;
        ASSERT_EQ(remote_write(r, a + 8 * seed, &value, 8), 0);
        ASSERT_EQ(remote_read(r, a + 8 * seed, &back, 8), 0);
        EXPECT_EQ(back, value);
    }
    remote_close(r);
}

// ---- pages of the pointer buffer ----

TEST(PointerBuffer, UsersShareNoPage) {
    daemon::PointerBuffer buffer;
    auto first = buffer.claim(1, 8), second = buffer.claim(1, 8), others = buffer.claim(2, 8);
    ASSERT_TRUE(first && second && others);
    EXPECT_EQ(first->page, second->page);
    EXPECT_NE(first->word, second->word);
    EXPECT_NE(first->page, others->page);
    EXPECT_NE(first->file, others->file);
}

// A client that has gone may have kept the page.
TEST(PointerBuffer, NextUserOfAPlaceHasAnotherFile) {
    daemon::PointerBuffer buffer;
    auto first = buffer.claim(1, 8);
    ASSERT_TRUE(first);
    Descriptor kept(dup(first->file));
    const unsigned place = first->page;
    buffer.give_back(*first);
    auto next = buffer.claim(2, 8);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->page, place);
    struct stat before {
    }, now{};
    ASSERT_EQ(fstat(kept.get(), &before), 0);
    ASSERT_EQ(fstat(next->file, &now), 0);
    EXPECT_NE(before.st_ino, now.st_ino);
}

} // namespace

} // namespace remora::test
