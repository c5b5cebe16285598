// SPDX-License-Identifier: GPL-2.0
// Opening, closing, fork(), threads, and nodes that fall silent or restart.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/wait.h>
#include <unistd.h>

#include "async.hpp"
#include "backend.hpp"
#include "patience.hpp"
#include "src/backend/dev.hpp"
#include "victim.hpp"

namespace {

// A name that getaddrinfo() below resolves, and its addresses in this order.
struct TestHost {
    const char* name;
    const char* first;
    const char* second;
};

// connect() refuses it to a socket without SO_BROADCAST, as it refuses an address without a route.
constexpr char unreachable[] = "255.255.255.255";
constexpr TestHost two_addresses{"two-addresses.test", "127.0.0.2", "127.0.0.1"};
constexpr TestHost unreachable_first{"unreachable-first.test", unreachable, "127.0.0.1"};
constexpr TestHost unreachable_last{"unreachable-last.test", "127.0.0.1", unreachable};

} // namespace

// A name whose servers are silent until the test lets them answer.
class SilentNames {
public:
    static constexpr char host[] = "silent-names.test";

    static int look_up() {
        std::unique_lock lock(mutex_);
        waiting_++;
        changed_.wait(lock, [] { return answers_; });
        waiting_--;
        return EAI_AGAIN;
    }
    SilentNames() {
        std::lock_guard lock(mutex_);
        answers_ = false;
    }
    SilentNames(const SilentNames&) = delete;
    SilentNames& operator=(const SilentNames&) = delete;
    ~SilentNames() {
        answer();
        remora::test::comes_true([] { return !waiting(); });
    }
    static void answer() {
        std::lock_guard lock(mutex_);
        answers_ = true;
        changed_.notify_all();
    }
    static int waiting() {
        std::lock_guard lock(mutex_);
        return waiting_;
    }

private:
    inline static std::mutex mutex_;
    inline static std::condition_variable changed_;
    inline static bool answers_ = true;
    inline static int waiting_ = 0;
};

std::atomic<unsigned> look_ups{0};

extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints,
                           addrinfo** list) {
    static const auto system =
        reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
    look_ups++;
    if (host && !std::strcmp(host, SilentNames::host))
        return hints->ai_flags & AI_NUMERICHOST ? EAI_NONAME : SilentNames::look_up();
    for (const TestHost& test : {two_addresses, unreachable_first, unreachable_last}) {
        if (!host || std::strcmp(host, test.name))
            continue;
        if (int error = system(test.first, port, hints, list))
            return error;
        return system(test.second, port, hints, &(*list)->ai_next);
    }
    return system(host, port, hints, list);
}

extern "C" int __register_atfork(void (*)(), void (*)(), void (*)(), void*);

bool no_memory_at_fork = false;

extern "C" int pthread_atfork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
    return std::exchange(no_memory_at_fork, false)
               ? ENOMEM
               : __register_atfork(before, in_parent, in_child, nullptr);
}

namespace remora::test {

namespace {

class Life : public Backends {};

INSTANTIATE_TEST_SUITE_P(Lib, Life, testing::ValuesIn(kinds()), kind_name);

TEST_P(Life, ThreadsShareAHandle) {
    constexpr int threads = 8;
    constexpr std::uint32_t words = 64;
    raddr_t a = alloc(threads * words * 4);
    std::vector<std::thread> running;
    for (std::uint32_t t = 0; t < threads; t++) {
        running.emplace_back([&, t] {
            std::mt19937 random(t);
            std::vector<std::uint32_t> mirror(words, 0);
            for (int step = 0; step < 200; step++) {
                std::uint32_t at = random() % words, value = random();
                raddr_t address = a + 4 * (t * words + at);
                if (random() % 2) {
                    ASSERT_EQ(rwrite(r, address, &value, 4), 0);
                    mirror[at] = value;
                } else {
                    ASSERT_EQ(rread(r, address, &value, 4), 0);
                    ASSERT_EQ(value, mirror[at]);
                }
                if (random() % 50 == 0) {
                    raddr_t own = 0;
                    ASSERT_EQ(ralloc(r, 1000, REMOTE_RW, &own), 0);
                    ASSERT_EQ(rfree(r, own), 0);
                }
            }
        });
    }
    for (std::thread& thread : running)
        thread.join();
}

// Each writer repeats a byte of its own: a read sees one of them. On the network each has a handle
// of its own, or their order alone would keep them apart.
TEST_P(Life, EightBytesAreSeenWhole) {
    raddr_t a = alloc(8);
    std::atomic<bool> stop{false};
    std::vector<std::thread> writers;
    for (std::uint8_t t = 1; t <= 3; t++) {
        writers.emplace_back([&, t] {
            remote_t* mine = is_shared() ? open() : r;
            std::uint8_t data[8];
            std::memset(data, t, sizeof(data));
            while (!stop)
                ASSERT_EQ(rwrite(mine, a, data, sizeof(data)), 0);
            if (mine != r)
                remote_close(mine);
        });
    }
    for (int i = 0; i < 100; i++) {
        std::uint8_t data[8];
        ASSERT_EQ(rread(r, a, data, sizeof(data)), 0);
        for (std::uint8_t byte : data)
            ASSERT_EQ(byte, data[0]);
    }
    stop = true;
    for (std::thread& thread : writers)
        thread.join();
}

// However late, and whatever was opened since.
TEST_P(Life, NothingIsDoneByAClosedOne) {
    raddr_t a = alloc(100), b = 0;
    remote_t* closed = open();
    remote_close(closed);
    remote_t* next = open();
    for (remote_t* each : {closed, reinterpret_cast<remote_t*>(&a)}) {
        std::uint64_t word = 7, other[2] = {}, bytes = 0;
        remote_signal signal{a, 8, REMOTE_ADD, 1};
        remote_vec piece{a, &word, 8};
        remote_counters counters;
        void* memory = nullptr;
        AsyncOp op;
        EXPECT_EQ(rwrite(each, a, &word, 8), -EBADF);
        EXPECT_EQ(rread(each, a, &word, 8), -EBADF);
        EXPECT_EQ(read_async(each, a, &word, 8, &op), -EBADF);
        EXPECT_EQ(remote_writev(each, &piece, 1), -EBADF);
        EXPECT_EQ(poll_all(each, &op, 1, 0), -EBADF);
        EXPECT_EQ(cancel(each, &op), -EBADF);
        EXPECT_EQ(ralloc(each, 1, REMOTE_RW, &b), -EBADF);
        EXPECT_EQ(rfree(each, a), -EBADF);
        EXPECT_EQ(remote_free_sized(each, a, 1 << 20), -EBADF);
        EXPECT_EQ(remote_fetch(each, a, 8, REMOTE_ADD, 1, nullptr), -EBADF);
        EXPECT_EQ(remote_cas(each, a, 16, other, other), -EBADF);
        EXPECT_EQ(remote_put(each, a, &word, 8, &signal), -EBADF);
        EXPECT_EQ(remote_wait(each, a, 8, REMOTE_EQ, 0, 0, nullptr), -EBADF);
        EXPECT_EQ(rlock(each, a), -EBADF);
        EXPECT_EQ(runlock(each, a), -EBADF);
        EXPECT_EQ(rrelease(each), -EBADF);
        EXPECT_EQ(rfence(each), -EBADF);
        EXPECT_EQ(remote_stats(each, &counters), -EBADF);
        EXPECT_EQ(remote_lost(each, &b, &bytes), -EBADF);
        EXPECT_EQ(remote_register(each, &word, 8), -EBADF);
        EXPECT_EQ(remote_mmap(each, 0, 4096, REMOTE_RW, nullptr, &memory), -EBADF);
        remote_node node{};
        node.size = sizeof(node);
        EXPECT_EQ(remote_info(each, &node), -EBADF);
        remote_close(each);
    }
    EXPECT_EQ(rrelease(next), 0) << "it's another one's";
    remote_close(next);
}

// Memory outlives handles, so whoever has the address gives it back.
TEST_P(Life, AnyHandleFreesARegion) {
    std::uint64_t page = page_bytes_of(r);
    if (!is_shared()) {
        raddr_t own = 0, small = 0;
        ASSERT_EQ(ralloc(r, 3 * page - 5, REMOTE_RW, &own), 0);
        ASSERT_EQ(ralloc(r, 100, REMOTE_RW, &small), 0);
        EXPECT_EQ(remote_free_sized(r, own, page), -EFAULT);
        EXPECT_EQ(remote_free_sized(r, small, 200), -EFAULT);
        EXPECT_EQ(remote_free_sized(r, own, 3 * page - 5), 0);
        EXPECT_EQ(remote_free_sized(r, small, 100), 0);
        EXPECT_EQ(rfree(r, own), -EFAULT);
        return;
    }
    remote_t* other = open();
    raddr_t a = 0, b = 0, small = 0;
    std::uint8_t byte = 1;
    ASSERT_EQ(ralloc(other, 3 * page - 5, REMOTE_RW, &a), 0);
    ASSERT_EQ(ralloc(other, page, REMOTE_RW, &b), 0);
    ASSERT_EQ(ralloc(other, 100, REMOTE_RW, &small), 0);
    EXPECT_EQ(rfree(r, a), -EFAULT);
    EXPECT_EQ(remote_free_sized(r, a, 2 * page), -EFAULT);
    EXPECT_EQ(remote_free_sized(r, a + page, 2 * page), -EFAULT);
    EXPECT_EQ(remote_free_sized(r, a + 8, page), -EFAULT);
    EXPECT_EQ(remote_free_sized(r, small, 100), -EINVAL) << "others share its page";
    EXPECT_EQ(remote_free_sized(r, 0, page), -EINVAL);
    EXPECT_EQ(remote_free_sized(r, a, 0), -EINVAL);
    EXPECT_EQ(remote_free_sized(r, a, 3 * page - 5), 0);
    // Where an answer was lost, it may have been this call that freed it.
    auto is_gone = [&](int error) { return error == -EFAULT || (is_slow() && !error); };
    EXPECT_PRED1(is_gone, remote_free_sized(r, a, 3 * page)) << "twice";
    EXPECT_EQ(rwrite(other, a, &byte, 1), -EFAULT);
    EXPECT_PRED1(is_gone, rfree(other, a));
    remote_close(other);
    EXPECT_EQ(rwrite(r, b, &byte, 1), 0);
    EXPECT_EQ(remote_free_sized(r, b, page), 0);
}

TEST_P(Life, AChildHasNoUseOfIt) {
    raddr_t a = alloc(100);
    std::uint8_t byte = 3;
    ASSERT_EQ(rwrite(r, a, &byte, 1), 0);
    pid_t child = fork();
    if (!child) {
        std::uint8_t other = 4;
        AsyncOp op;
        raddr_t b;
        bool refused = rwrite(r, a, &other, 1) == -ECHILD && rread(r, a, &other, 1) == -ECHILD &&
                       read_async(r, a, &other, 1, &op) == -ECHILD && rrelease(r) == -ECHILD &&
                       ralloc(r, 1, REMOTE_RW, &b) == -ECHILD && rfree(r, a) == -ECHILD &&
                       poll_all(r, &op, 1, 0) == -ECHILD;
        remote_close(r);
        remote_t* own = open();
        raddr_t c = 0;
        bool works = own && !ralloc(own, 10, REMOTE_RW, &c) && !rwrite(own, c, &other, 1);
        remote_close(own);
        _exit(refused && works ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    byte = 0;
    EXPECT_EQ(rread(r, a, &byte, 1), 0);
    EXPECT_EQ(byte, 3);
}

// A child closes its copy of the ring with the mappings, and again with the handle.
TEST(Device, AChildClosesItsDescriptorsOnce) {
    const char* target = std::getenv("REMORA_TEST_TARGET");
    if (!target || std::string_view(target).substr(0, 4) != "dev:")
        GTEST_SKIP() << "needs REMORA_TEST_TARGET=dev:/dev/rmemN";
    lib::Dev device(target + 4);
    pid_t child = fork();
    if (!child) {
        device.disown();
        std::array<int, 8> opened; // under the numbers that are free again
        for (int& fd : opened)
            fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        device.disown();
        _exit(std::ranges::all_of(opened, [](int fd) { return fcntl(fd, F_GETFD) >= 0; }) ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

// Faults that newcomers make first.
TEST(Open, FailureNamesItsRemedy) {
    auto why = [](const std::string& target, int expected) {
        remote_t* r = nullptr;
        EXPECT_EQ(remote_open(&r, target.c_str(), nullptr), expected) << target;
        return std::string(remote_why());
    };
    const auto has = [](const std::string& text, const char* part) {
        return text.find(part) != std::string::npos;
    };
    EXPECT_PRED2(has, why("embedded:size=1T", -ENOMEM), "lower size= of the target");
    EXPECT_PRED2(has, why("dev:/dev/rmem-that-is-not-there", -ENODEV), "attach NODE --programs");
    EXPECT_PRED2(has, why("udp:127.0.0.1", -ENOKEY), "add ,key=FILE");
    EXPECT_PRED2(has, why("udp:127.0.0.1,key=/none/at/all", -ENOKEY), "'remora key new FILE'");
    const std::string file = key_file() + "-words";
    std::ofstream(file) << "secret\r\n";
    EXPECT_PRED2(has, why("udp:127.0.0.1,key=" + file, -ENOKEY), "'remora key new'");
    unlink(file.c_str());
}

TEST(Open, KeyFileMayEndLinesAsDosDoes) {
    TestNode node;
    const std::string file = key_file() + "-dos", target = udp_target(node.port());
    std::ifstream in(key_file());
    std::string digits;
    in >> digits;
    std::ofstream(file) << digits << "\r\n";
    remote_t* r = nullptr;
    EXPECT_EQ(
        remote_open(&r, (target.substr(0, target.find(',')) + ",key=" + file).c_str(), nullptr), 0)
        << remote_why();
    remote_close(r);
    unlink(file.c_str());
}

TEST(Open, FailureNamesItsReason) {
    auto why = [](const std::string& target) {
        remote_t* r = nullptr;
        EXPECT_LT(remote_open(&r, target.c_str(), nullptr), 0) << target;
        EXPECT_EQ(r, nullptr);
        return std::string(remote_why());
    };
    EXPECT_NE(why("").find("embedded:"), std::string::npos);
    EXPECT_NE(why("tcp:host").find("embedded:"), std::string::npos);
    EXPECT_NE(why("embedded:size=3x").find("3x"), std::string::npos);
    EXPECT_NE(why("embedded:size=1K").find("less than a page"), std::string::npos);
    EXPECT_NE(why("embedded:page=5K").find("power of two"), std::string::npos);
    EXPECT_NE(why("embedded:colour=blue").find("page, size"), std::string::npos);
    EXPECT_NE(why("embedded:size=1T,page=4M").find("available"), std::string::npos);
    EXPECT_NE(why("udp:127.0.0.1").find("key=FILE"), std::string::npos);
    EXPECT_NE(why("udp:127.0.0.1,key=/nowhere").find("/nowhere"), std::string::npos);
    EXPECT_NE(why("udp:127.0.0.1,space=0,key=x").find("space"), std::string::npos);
    EXPECT_NE(why("udp:no.such.host.invalid,key=" + key_file()).find("no.such.host"),
              std::string::npos);
    remote_options options{};
    remote_t* r = nullptr;
    EXPECT_EQ(remote_open(&r, "embedded:", &options), -EINVAL);
    EXPECT_NE(std::string(remote_why()).find("sizeof(struct remote_options)"), std::string::npos);
    options.size = sizeof(options);
    options.integrity = 9;
    EXPECT_EQ(remote_open(&r, "embedded:", &options), -EINVAL);
    EXPECT_EQ(remote_open(nullptr, "embedded:", nullptr), -EINVAL);
    remote_close(nullptr);
}

TEST(Open, WrongKeyClosedPortAndMissingHostDiffer) {
    auto node = std::make_unique<TestNode>();
    std::uint16_t port = node->port();
    std::string file = key_file() + "-other";
    std::ofstream(file) << "000102030405060708090a0b0c0d0e0f\n";
    auto error_of = [&](const std::string& place) {
        remote_t* r = nullptr;
        remote_options options{};
        options.size = sizeof(options);
        options.timeout_us = 300'000;
        return remote_open(&r, fmt::format("udp:{}:{},key={}", place, port, file).c_str(),
                           &options);
    };
    EXPECT_EQ(error_of("127.0.0.1"), -EKEYREJECTED);
    EXPECT_NE(std::string(remote_why()).find("key"), std::string::npos);
    EXPECT_EQ(error_of("[::1]"), -EKEYREJECTED);
    EXPECT_EQ(error_of("host.invalid"), -EHOSTUNREACH);
    node.reset();
    EXPECT_EQ(error_of("127.0.0.1"), -ECONNREFUSED);
    unlink(file.c_str());
}

std::string target_of(const TestHost& host, std::uint16_t port, const std::string& key) {
    return fmt::format("udp:{}:{},key={}", host.name, port, key);
}

void expect_use(const std::string& target) {
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, target.c_str(), nullptr), 0) << remote_why();
    raddr_t a = 0;
    EXPECT_EQ(ralloc(r, 100, REMOTE_RW, &a), 0);
    remote_close(r);
}

TEST(Open, HostIsReachedAtItsSecondAddress) {
    TestNode node;
    Relay relay(node.port(), 0);
    expect_use(target_of(two_addresses, relay.port(), key_file()));
}

TEST(Open, SilentFirstAddressIsTriedBeforeTheSecond) {
    TestNode node;
    Relay relay(node.port(), 0);
    Descriptor silent(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in first{};
    first.sin_family = AF_INET;
    first.sin_port = htons(relay.port());
    ASSERT_EQ(inet_pton(AF_INET, two_addresses.first, &first.sin_addr), 1);
    ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&first), sizeof(first)), 0);
    expect_use(target_of(two_addresses, relay.port(), key_file()));
    char byte;
    EXPECT_GT(recv(silent.get(), &byte, 1, MSG_TRUNC), 0) << "the first was left out";
}

// The reason of a silence is looked for when no other address is left: that takes time.
TEST(Open, SilentFirstAddressIsNotProbedWhileAnotherIsLeft) {
    TestNode node;
    Relay relay(node.port(), 0);
    Descriptor silent(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in first{};
    first.sin_family = AF_INET;
    first.sin_port = htons(relay.port());
    ASSERT_EQ(inet_pton(AF_INET, two_addresses.first, &first.sin_addr), 1);
    ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&first), sizeof(first)), 0);
    expect_use(target_of(two_addresses, relay.port(), key_file()));
    char byte;
    for (ssize_t got; (got = recv(silent.get(), &byte, 1, MSG_TRUNC)) > 0;)
        EXPECT_GT(got, 1) << "a probe";
}

remote_options in_time(std::uint64_t timeout_us) {
    remote_options options{};
    options.size = sizeof(options);
    options.timeout_us = timeout_us;
    return options;
}

TEST(Open, SilentNameServersTakeNoMoreThanTheTimeout) {
    const Watchdog watchdog("remote_open() with silent name servers");
    const SilentNames silent;
    const std::string target = fmt::format("udp:{},key={}", SilentNames::host, key_file());
    const remote_options options = in_time(50'000);
    remote_t* r = nullptr;
    for (int n = 1; n <= 16; n++) {
        EXPECT_EQ(remote_open(&r, target.c_str(), &options), -EHOSTUNREACH);
        EXPECT_NE(std::string(remote_why()).find("name servers"), std::string::npos)
            << remote_why();
        EXPECT_TRUE(comes_true([&] { return SilentNames::waiting() == n; }));
    }
    EXPECT_EQ(remote_open(&r, target.c_str(), &options), -EAGAIN) << "and another thread is left";
    SilentNames::answer();
    ASSERT_TRUE(comes_true([] { return !SilentNames::waiting(); }));
    EXPECT_TRUE(
        comes_true([&] { return remote_open(&r, target.c_str(), &options) == -EHOSTUNREACH; }));
    EXPECT_EQ(std::string(remote_why()).find("in time"), std::string::npos) << remote_why();
}

// The parent's threads that look names up aren't in the child.
TEST(Open, AChildHasItsOwnLookUps) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "TSan permits no threads in the child";
#endif
    const Watchdog watchdog("a child's remote_open()");
    const SilentNames silent;
    const std::string target = fmt::format("udp:{},key={}", SilentNames::host, key_file());
    const remote_options options = in_time(50'000);
    remote_t* r = nullptr;
    for (int n = 1; n <= 16; n++)
        EXPECT_EQ(remote_open(&r, target.c_str(), &options), -EHOSTUNREACH);
    EXPECT_EQ(remote_open(&r, target.c_str(), &options), -EAGAIN);
    pid_t child = fork();
    if (!child)
        _exit(remote_open(&r, target.c_str(), &options) == -EHOSTUNREACH ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(remote_open(&r, target.c_str(), &options), -EAGAIN);
}

// In a process of its own, where nothing has asked for fork()'s handlers yet.
TEST(OpenDeathTest, WithoutMemoryForForksHandlersTheNextCallTriesAgain) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto calls_that_fail = [] {
        const std::string by_name = fmt::format("udp:none.invalid,key={}", key_file());
        remote_t* r = nullptr;
        remote_queue_t* q = nullptr;
        const auto fails = [](auto call) {
            no_memory_at_fork = true;
            return call() == -ENOMEM && !no_memory_at_fork;
        };
        const auto opens = [&] { return remote_open(&r, "embedded:", nullptr); };
        const auto queues = [&] { return remote_queue_open(&q, r, nullptr); };
        const auto looks_up = [&] { return remote_open(&r, by_name.c_str(), nullptr); };
        // A handle has two places that ask for handlers.
        const bool good = fails(opens) && fails(opens) && !opens() && fails(queues) && !queues() &&
                          fails(looks_up) && looks_up() == -EHOSTUNREACH;
        _exit(good ? 0 : 1);
    };
    EXPECT_EXIT(calls_that_fail(), testing::ExitedWithCode(0), "");
}

TEST(Open, AskingForMemoryLooksNothingUp) {
    TestNode node(0, 1); // with a single session
    Relay relay(node.port(), 0);
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, target_of(two_addresses, relay.port(), key_file()).c_str(), nullptr),
              0);
    remote_node before{}, after{};
    before.size = after.size = sizeof(before);
    const unsigned asked = look_ups;
    ASSERT_EQ(remote_info(r, &before), 0) << remote_why();
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &a), 0);
    ASSERT_EQ(remote_info(r, &after), 0) << remote_why();
    EXPECT_EQ(after.free_bytes, before.free_bytes - (1 << 20));
    EXPECT_EQ(look_ups, asked);
    remote_close(r);
}

// Each addition is executed once.
TEST(Open, AskingForMemoryBesideIntegersChangesEachOnce) {
    TestNode node;
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, udp_target(node.port()).c_str(), nullptr), 0);
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 8, REMOTE_RW, &a), 0);
    std::atomic<bool> stop{false};
    std::uint64_t added = 0, found = 0;
    std::thread adding([&] {
        for (; !stop; added++)
            ASSERT_EQ(remote_fetch(r, a, 8, REMOTE_ADD, 1, nullptr), 0);
    });
    for (int n = 0; n < 50; n++) {
        remote_node node_info{};
        node_info.size = sizeof(node_info);
        ASSERT_EQ(remote_info(r, &node_info), 0) << remote_why();
    }
    stop = true;
    adding.join();
    EXPECT_EQ(rread(r, a, &found, 8), 0);
    EXPECT_EQ(found, added);
    remote_close(r);
}

TEST(Open, AddressThatConnectRefusesIsSkipped) {
    TestNode node;
    Relay relay(node.port(), 0);
    expect_use(target_of(unreachable_first, relay.port(), key_file()));
    expect_use(target_of(unreachable_last, relay.port(), key_file()));
}

// The machine's answer tells the user what to change. The address without a route doesn't.
TEST(Open, FailureOfAnAddressThatAnswersIsReported) {
    TestNode node;
    Relay relay(node.port(), 0);
    std::string file = key_file() + "-wrong";
    std::ofstream(file) << "000102030405060708090a0b0c0d0e0f\n";
    remote_options options{};
    options.size = sizeof(options);
    options.timeout_us = 300'000;
    for (const TestHost& host : {unreachable_first, unreachable_last}) {
        remote_t* r = nullptr;
        EXPECT_EQ(remote_open(&r, target_of(host, relay.port(), file).c_str(), &options),
                  -EKEYREJECTED)
            << host.name;
        EXPECT_NE(std::string(remote_why()).find("ignores us"), std::string::npos) << remote_why();
    }
    unlink(file.c_str());
}

// A node on the network, by two handles.
class Network : public testing::Test {
protected:
    remote_t* open(std::uint16_t port, std::uint64_t timeout_us = 0) {
        remote_options options{};
        options.size = sizeof(options);
        options.timeout_us = timeout_us;
        remote_t* r = nullptr;
        EXPECT_EQ(remote_open(&r, udp_target(port).c_str(), &options), 0) << remote_why();
        return r;
    }
};

TEST_F(Network, HandlesOfOneSpaceShareItsMemory) {
    TestNode node;
    remote_t *one = open(node.port()), *two = open(node.port());
    raddr_t a = 0, b = 0;
    char text[6] = "hello", back[6] = "";
    ASSERT_EQ(ralloc(one, 100, REMOTE_RW, &a), 0);
    ASSERT_EQ(ralloc(one, 100, REMOTE_READ, &b), 0);
    EXPECT_EQ(rwrite(one, a, text, 6), 0);
    EXPECT_EQ(rread(two, a, back, 6), 0);
    EXPECT_STREQ(back, text);
    EXPECT_EQ(rwrite(two, b, text, 6), -EACCES);
    remote_close(one); // its allocation stays
    EXPECT_EQ(rread(two, a, back, 6), 0);
    remote_close(two);
}

// One handle's debts must not stop the other, whichever is polled.
TEST_F(Network, HandlesDontWaitForEachOther) {
    TestNode node;
    remote_t *busy = open(node.port()), *other = open(node.port());
    raddr_t a = 0;
    ASSERT_EQ(ralloc(busy, 4 << 20, REMOTE_RW, &a), 0);
    std::vector<std::uint8_t> data(4 << 20);
    AsyncOp op;
    ASSERT_EQ(write_async(busy, a, data.data(), data.size(), &op), 0);
    std::uint8_t bytes[100];
    EXPECT_EQ(rread(other, a, bytes, sizeof(bytes)), 0);
    EXPECT_EQ(poll_all(busy, &op, 1, UINT64_MAX), 0);
    remote_close(busy);
    remote_close(other);
}

// The answer lies in the socket when the timeout has passed.
TEST_F(Network, AnswerInTheSocketIsNotLate) {
    TestNode node;
    remote_t* r = open(node.port());
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 100, REMOTE_RW, &a), 0);
    std::uint8_t byte = 1;
    AsyncOp op;
    auto began = std::chrono::steady_clock::now();
    {
        Within within(200'000);
        ASSERT_EQ(write_async(r, a, &byte, 1, &op), 0);
    }
    remote_t* other = open(node.port());
    std::uint8_t seen = 0;
    while (!seen)
        ASSERT_EQ(rread(other, a, &seen, 1), 0); // then it has been answered, too
    remote_close(other);
    // The program computes for longer than the timeout.
    std::this_thread::sleep_until(began + std::chrono::milliseconds(400));
    EXPECT_EQ(rread(r, a, &byte, 1), 0);
    EXPECT_EQ(poll_all(r, &op, 1, 1'000'000), 0);
    remote_close(r);
}

// A dead node is one timeout, however many operations wait for each other in order.
TEST_F(Network, TimeoutsDontAddUp) {
    TestNode node;
    Relay relay(node.port(), 0);
    remote_t* r = open(relay.port());
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 100, REMOTE_RW, &a), 0);
    relay.cut(true);
    std::vector<AsyncOp> ops(200);
    std::uint8_t byte = 1;
    Within within(300'000);
    for (AsyncOp& op : ops)
        ASSERT_EQ(write_async(r, a, &byte, 1, &op), 0);
    EXPECT_EQ(poll_all(r, ops.data(), ops.size(), UINT64_MAX), -ETIMEDOUT);
    remote_close(r);
}

TEST_F(Network, ASilentNodeIsATimeoutAndThenIsThereAgain) {
    TestNode node;
    Relay relay(node.port(), 0);
    remote_t* r = open(relay.port());
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 100, REMOTE_RW, &a), 0);
    std::uint8_t byte = 1;
    ASSERT_EQ(rwrite(r, a, &byte, 1), 0);
    relay.cut(true);
    Within within(300'000);
    AsyncOp op;
    ASSERT_EQ(read_async(r, a, &byte, 1, &op), 0);
    EXPECT_EQ(poll_all(r, &op, 1, 1000), -EAGAIN);
    EXPECT_EQ(op.result, -EINPROGRESS);
    byte = 2;
    EXPECT_EQ(write_in_time(r, a, &byte, 1), -ETIMEDOUT);
    EXPECT_EQ(poll_all(r, &op, 1, UINT64_MAX), -ETIMEDOUT);
    relay.cut(false);
    int error;
    while ((error = read_in_time(r, a, &byte, 1)) == -ETIMEDOUT) {
    }
    EXPECT_EQ(error, 0);
    remote_close(r);
}

// Three operations on the same bytes: one under way, two that wait for it.
TEST_F(Network, OperationsThatWaitInOrderEndToo) {
    auto node = std::make_unique<TestNode>();
    std::uint16_t port = node->port();
    Relay relay(port, 0);
    std::uint8_t bytes[3] = {1, 2, 3};
    AsyncOp ops[3];
    raddr_t a = 0;
    auto start = [&](remote_t* r) {
        ASSERT_EQ(ralloc(r, 100, REMOTE_RW, &a), 0);
        relay.cut(true);
        for (int i = 0; i < 3; i++)
            ASSERT_EQ(write_async(r, a, &bytes[i], 1, &ops[i]), 0);
    };
    remote_t* closed = open(relay.port());
    start(closed);
    remote_close(closed);
    relay.cut(false);

    remote_t* lost = open(relay.port());
    start(lost);
    node.reset();
    node = std::make_unique<TestNode>(port);
    relay.cut(false);
    EXPECT_EQ(poll_all(lost, ops, 3, 20'000'000), -ESTALE);
    for (const AsyncOp& op : ops)
        EXPECT_EQ(op.result, -ESTALE);
    remote_close(lost);
}

TEST_F(Network, ARestartedNodeHasLostEverything) {
    auto node = std::make_unique<TestNode>();
    std::uint16_t port = node->port();
    remote_t* r = open(port);
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 100, REMOTE_RW, &a), 0);
    std::uint8_t byte = 1;
    ASSERT_EQ(rwrite(r, a, &byte, 1), 0);
    node.reset();
    node = std::make_unique<TestNode>(port);
    EXPECT_EQ(rread(r, a, &byte, 1), -ESTALE);
    EXPECT_EQ(rwrite(r, a, &byte, 1), -ESTALE);
    EXPECT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &a), -ESTALE);
    remote_close(r);
    r = open(port);
    EXPECT_EQ(rread(r, a, &byte, 1), -EFAULT);
    remote_close(r);
}

// More than half of the node's memory: there is room for it again when nobody got it.
TEST_F(Network, UnacknowledgedRegionIsFreed) {
    TestNode node;
    Relay relay(node.port(), 0);
    remote_t* r = open(relay.port());
    relay.keep([](const rmem_head& head) { return head.type == (RMEM_READ | RMEM_RESPONSE); });
    raddr_t a = 0;
    EXPECT_EQ(ralloc(r, 20 << 20, REMOTE_RW, &a), -ETIMEDOUT);
    relay.keep(nullptr);
    EXPECT_EQ(ralloc(r, 20 << 20, REMOTE_RW, &a), 0);
    remote_close(r);
}

TEST_F(Network, SessionsComeAndGo) {
    TestNode node(0, 4);
    for (int i = 0; i < 100; i++) {
        remote_t* r = open(node.port());
        raddr_t a = 0;
        ASSERT_EQ(ralloc(r, 100, REMOTE_RW, &a), 0);
        ASSERT_EQ(rfree(r, a), 0);
        remote_close(r);
    }
}

// Processes are killed one after the other, each with nearly all sessions of the node. Their
// operations in flight disturb no other client, and in the end every session can be opened again.
TEST_F(Network, SessionsOfKilledProcessesAreUsedAgain) {
    constexpr std::uint32_t victims = 10, handles = 100, others = 2,
                            sessions = handles + others + 2;
    constexpr std::size_t long_bytes = 200'000;
    constexpr std::uint32_t kept = sessions / 3; // a quarter of all, for the view
    TestNode node(0, sessions + kept, 100);
    remote_t *one = open(node.port()), *two = open(node.port());
    raddr_t words = 0, lock = 0, area = 0;
    ASSERT_EQ(ralloc(one, 8 * handles, REMOTE_RW, &words), 0);
    ASSERT_EQ(ralloc(one, 64, REMOTE_RW, &lock), 0);
    ASSERT_EQ(ralloc(one, long_bytes, REMOTE_RW, &area), 0);
    ASSERT_EQ(remote_lock_init(one, lock, 1000), 0);

    // A word is written; a long write is under way, and of the lock one has it, and the others'
    // places in its row are taken.
    auto live = [&](std::uint64_t number) {
        remote_options options{};
        options.size = sizeof(options);
        static std::vector<std::uint8_t> data(long_bytes, 1);
        static std::vector<AsyncOp> ops(handles);
        for (std::uint32_t i = 0; i < handles; i++) {
            remote_t* own = nullptr;
            options.call_timeout_us = i ? 500 : 0;
            if (remote_open(&own, udp_target(node.port()).c_str(), &options))
                return false;
            set_depth(own, 1);
            if (write_async(own, words + 8 * i, &number, 8, &ops[i]) ||
                poll_all(own, &ops[i], 1, UINT64_MAX))
                return false;
            // Of the first: the lease of the one before has run out.
            if (rlock(own, lock) != (i ? -ETIMEDOUT : number > 1))
                return false;
            if (write_async(own, area, data.data(), data.size(), &ops[i]))
                return false;
        }
        return true;
    };
    std::deque<Victim> killed;
    for (std::uint32_t i = 0; i < victims; i++)
        killed.emplace_back([&, i] { return live(i + 1); });

    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> served{0};
    std::thread serving([&] {
        raddr_t a = 0;
        ASSERT_EQ(ralloc(two, 8, REMOTE_RW, &a), 0);
        for (std::uint64_t i = 1; !stop; i++) {
            std::uint64_t found = 0;
            ASSERT_EQ(rwrite(one, a, &i, 8), 0);
            ASSERT_EQ(rread(two, a, &found, 8), 0);
            ASSERT_EQ(found, i);
            served++;
        }
    });
    // After this the node has executed everything that arrived before.
    auto wait_until_served = [&] {
        for (std::uint64_t until = served + 2; served < until && !HasFailure();)
            std::this_thread::yield();
    };
    wait_until_served();
    std::uint32_t regions = node.report().regions;
    for (Victim& victim : killed) {
        EXPECT_TRUE(victim.run());
        EXPECT_GE(node.report().sessions, handles + others);
        victim.kill();
        wait_until_served();
    }
    for (std::uint32_t i = 0; i < handles; i++) {
        std::uint64_t found = 0;
        EXPECT_EQ(rread(one, words + 8 * i, &found, 8), 0);
        EXPECT_EQ(found, victims);
    }
    EXPECT_EQ(rlock(one, lock), 1);
    EXPECT_EQ(runlock(one, lock), 0);

    std::vector<remote_t*> last;
    for (std::uint32_t i = others; i < sessions; i++)
        last.push_back(open(node.port()));
    EXPECT_EQ(node.report().sessions, sessions);
    for (remote_t* handle : last)
        remote_close(handle);
    wait_until_served();
    EXPECT_EQ(node.report().sessions, others);
    EXPECT_EQ(node.report().regions, regions);
    stop = true;
    serving.join();
    remote_close(one);
    remote_close(two);
}

// More than the node has sessions for: the last one is told.
TEST_F(Network, TheNodesSessionsHaveAnEnd) {
    TestNode node(0, 2);
    remote_t *one = open(node.port()), *two = open(node.port()), *three = nullptr;
    remote_options options{};
    options.size = sizeof(options);
    options.timeout_us = 2'000'000; // the node's word comes within that even where it is slow
    EXPECT_EQ(remote_open(&three, udp_target(node.port()).c_str(), &options), -EUSERS);
    EXPECT_NE(std::string(remote_why()).find("session"), std::string::npos);
    remote_close(one);
    three = open(node.port());
    remote_close(three);
    remote_close(two);
}

} // namespace

} // namespace remora::test
