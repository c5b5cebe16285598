// SPDX-License-Identifier: GPL-2.0
// The interface keeps its promises to programs of other versions, and names each error.
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "backend.hpp"
#include "common/listener.hpp"
#include "remote/queue.h"
#include "src/api/checked.hpp"
#include "support/key.hpp"

namespace remora::test {

namespace {

// ---- structures of other sizes ----

// A structure as a newer version of the library declares it.
template <typename Known>
struct Newer {
    Known known{};
    std::uint64_t unknown = 0;

    Newer() { known.size = sizeof(*this); }
};

class Structures : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(remote_open(&r, "embedded:size=4M", nullptr), 0);
        ASSERT_EQ(remote_alloc(r, 1 << 20, REMOTE_RW, &a), 0);
    }
    void TearDown() override { remote_close(r); }

    // call() gives such a structure to the library.
    template <typename Known, typename Call>
    void check_sizes(Call call) {
        Newer<Known> newer;
        EXPECT_EQ(call(&newer.known), 0) << "the tail is zero";
        EXPECT_LE(newer.known.size, sizeof(newer));
        newer = Newer<Known>();
        newer.unknown = std::uint64_t{1} << 56; // its last byte
        EXPECT_EQ(call(&newer.known), -EINVAL) << "the tail is unknown";
        newer = Newer<Known>();
        for (std::size_t never_set : {std::size_t{0}, sizeof(std::size_t), ~std::size_t{0}}) {
            newer.known.size = never_set;
            EXPECT_EQ(call(&newer.known), -EINVAL) << never_set;
        }
    }

    remote_t* r = nullptr;
    raddr_t a = 0;
};

TEST_F(Structures, OptionsOfAHandle) {
    check_sizes<remote_options>([](const remote_options* options) {
        remote_t* other = nullptr;
        int error = remote_open(&other, "embedded:size=4M", options);
        remote_close(other);
        return error;
    });
}

TEST_F(Structures, OptionsOfAQueue) {
    check_sizes<remote_queue_options>([this](const remote_queue_options* options) {
        remote_queue_t* q = nullptr;
        int error = remote_queue_open(&q, r, options);
        remote_queue_close(q);
        return error;
    });
}

TEST_F(Structures, OptionsOfAMapping) {
    check_sizes<remote_mmap_options>([this](const remote_mmap_options* options) {
        void* memory = nullptr;
        int error = remote_mmap(r, a, 65536, REMOTE_RW, options, &memory);
        return error ? error : remote_munmap(r, memory);
    });
}

TEST_F(Structures, PropertiesOfANode) {
    check_sizes<remote_node>([this](remote_node* node) { return remote_info(r, node); });
}

TEST_F(Structures, CountersOfAHandle) {
    check_sizes<remote_counters>(
        [this](remote_counters* counters) { return remote_stats(r, counters); });
}

TEST(Interface, ResultsFillNoMoreThanTheProgramsStructure) {
    remote_node found{}, older{};
    found.page_bytes = 4096;
    found.memory_bytes = 1 << 20;
    older.size = offsetof(remote_node, memory_bytes);
    older.memory_bytes = 7; // the program's own, behind its structure
    lib::give(found, &older);
    EXPECT_EQ(older.page_bytes, 4096U);
    EXPECT_EQ(older.memory_bytes, 7U);
    EXPECT_EQ(older.size, offsetof(remote_node, memory_bytes));
}

TEST_F(Structures, ReservedFieldsAreZero) {
    remote_options options{};
    options.size = sizeof(options);
    options.reserved = 1;
    remote_t* other = nullptr;
    EXPECT_EQ(remote_open(&other, "embedded:size=4M", &options), -EINVAL);
    remote_queue_options of_queue{};
    of_queue.size = sizeof(of_queue);
    of_queue.reserved = 1;
    remote_queue_t* q = nullptr;
    EXPECT_EQ(remote_queue_open(&q, r, &of_queue), -EINVAL);
    ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0);
    std::uint8_t byte;
    remote_op op = remote_op_read(a, &byte, 1, 0);
    op.flags = 1U << 31;
    EXPECT_EQ(remote_queue_submit(q, &op, 1), -EINVAL);
    EXPECT_EQ(remote_execute(r, &op), -EINVAL);
    remote_queue_close(q);
}

// ---- errors and versions ----

TEST(Interface, EveryErrorHasASentenceOfItsOwn) {
    std::set<std::string> sentences;
    for (int error : {0,      EINVAL, EFAULT,       EACCES,       ENOSPC,       ETIMEDOUT,
                      ESTALE, EBADF,  ECHILD,       ENOMEM,       ECONNRESET,   ECANCELED,
                      EAGAIN, ENOENT, EHOSTUNREACH, ECONNREFUSED, EKEYREJECTED, EUSERS,
                      ENOKEY, ENODEV, EPERM,        EDEADLK,      EEXIST,       EOPNOTSUPP,
                      EIO,    EPROTO, EMFILE}) {
        EXPECT_STREQ(remote_strerror(-error), remote_strerror(error));
        EXPECT_TRUE(sentences.insert(remote_strerror(-error)).second) << remote_strerror(-error);
    }
}

TEST(Interface, LibraryAndHeaderHaveOneVersion) {
    EXPECT_EQ(remote_version(), static_cast<unsigned>(REMOTE_VERSION));
}

// ---- opening ----

int open_error(const std::string& target, const std::uint8_t* key = nullptr) {
    remote_options options{};
    options.size = sizeof(options);
    options.key = key;
    remote_t* r = nullptr;
    int error = remote_open(&r, target.c_str(), &options);
    remote_close(r);
    return error;
}

TEST(Interface, KeyMayBeBytesInsteadOfAFile) {
    TestNode node;
    Key key = key_read(key_file()).key;
    std::string target = udp_target(node.port()).substr(0, udp_target(node.port()).find(','));
    EXPECT_EQ(open_error(target, key.data()), 0) << remote_why();
    EXPECT_EQ(open_error(target), -ENOKEY);
    EXPECT_EQ(open_error(udp_target(node.port()), key.data()), -EINVAL) << "both";
    EXPECT_EQ(open_error(target + ",key=/nowhere"), -ENOKEY);
}

// The error of opening with this key file. One line must name the file and this reason.
void expect_no_key(const std::string& file, const std::string& reason) {
    EXPECT_EQ(open_error("udp:127.0.0.1,key=" + file), -ENOKEY) << file;
    const std::string why = remote_why();
    EXPECT_NE(why.find(file), std::string::npos) << why;
    EXPECT_NE(why.find(reason), std::string::npos) << why;
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
}

TEST(Interface, KeyFileWithoutAKeyIsNamedWithItsFault) {
    const std::string file = key_file() + "-bad";
    auto put = [&](const std::string& text) { std::ofstream(file, std::ios::binary) << text; };
    put("");
    expect_no_key(file, "has 0 characters, not 32 hex digits");
    put("0123456789abcdef\n");
    expect_no_key(file, "has 16 characters, not 32 hex digits");
    put(std::string(1'000'000, 'a'));
    expect_no_key(file, "characters, not 32 hex digits");
    put("0123456789abcdef0123456789abcdeg\n");
    expect_no_key(file, "has other characters than hex digits");
    put(std::string(32, '\0'));
    expect_no_key(file, "has other characters than hex digits");
    put("0123456789abcdef\n0123456789abcde\n");
    expect_no_key(file, "has other characters than hex digits");
    unlink(file.c_str());
    expect_no_key(file, "No such file or directory");
    expect_no_key(testing::TempDir(), "it is a directory");
    // A FIFO that nobody writes must not stop the program.
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    expect_no_key(file, "has 0 characters, not 32 hex digits");
    unlink(file.c_str());
}

// Calls it in a thread whose user has no access to files of mode 0; root becomes another user
// there, since its privilege gives it access. False: it may not.
template <typename Call>
bool call_without_access(Call call) {
    bool may = false;
    std::thread([&] {
        constexpr uid_t keep = -1U, other = 65534;
        // The system call changes this thread only; setresuid() would change the process.
        may = geteuid() || !syscall(SYS_setresuid, keep, other, keep);
        if (may)
            call();
    }).join();
    return may;
}

class FileWithoutAccess {
public:
    FileWithoutAccess() {
        std::ofstream(name) << "0123456789abcdef0123456789abcdef\n";
        chmod(name.c_str(), 0);
    }
    FileWithoutAccess(const FileWithoutAccess&) = delete;
    FileWithoutAccess& operator=(const FileWithoutAccess&) = delete;
    ~FileWithoutAccess() { unlink(name.c_str()); }

    const std::string name = key_file() + "-secret";
};

TEST(Interface, KeyFileThatTheUserMayNotReadIsNamed) {
    FileWithoutAccess file;
    if (!call_without_access([&] { expect_no_key(file.name, "Permission denied"); }))
        GTEST_SKIP() << "root may not become another user here";
}

TEST(Interface, DeviceThatTheUserMayNotOpenIsNamedWithAdvice) {
    FileWithoutAccess file;
    bool called = call_without_access([&] {
        EXPECT_EQ(open_error("dev:" + file.name), -EACCES);
        EXPECT_EQ(std::string(remote_why()), "this user may not read and write " + file.name +
                                                 ": be root, or change the device's owner or mode");
    });
    if (!called)
        GTEST_SKIP() << "root may not become another user here";
}

TEST(Interface, DeviceThatIsMissingOrNoneIsNamed) {
    EXPECT_EQ(open_error("dev:/dev/rmem-none"), -ENODEV);
    EXPECT_NE(std::string(remote_why()).find("/dev/rmem-none"), std::string::npos);
    EXPECT_EQ(open_error("dev:/dev/null"), -ENODEV);
}

TEST(Interface, PathOfNoRingsIsNamed) {
    EXPECT_EQ(open_error("shm:" + std::string(200, 'x') + ",key=" + key_file()), -EINVAL);
    const std::string path = shm_path();
    UnixListener mute("--socket", path, 0600, SOCK_SEQPACKET);
    std::thread silent([&] {
        pollfd some{mute.fd(), POLLIN, 0};
        EXPECT_EQ(poll(&some, 1, -1), 1);
        mute.accept(); // and ends the connection
    });
    EXPECT_EQ(open_error("shm:" + path + ",key=" + key_file()), -EPROTO);
    silent.join();
}

// ---- what the node has ----

class Info : public Backends {};

INSTANTIATE_TEST_SUITE_P(Lib, Info, testing::ValuesIn(kinds()), kind_name);

TEST_P(Info, AllocationTakesItsPagesFromTheFreeOnes) {
    remote_node before{}, after{};
    before.size = after.size = sizeof(before);
    ASSERT_EQ(remote_info(r, &before), 0);
    EXPECT_EQ(before.page_bytes & (before.page_bytes - 1), 0U);
    alloc(3 * before.page_bytes);
    ASSERT_EQ(remote_info(r, &after), 0);
    EXPECT_EQ(after.page_bytes, before.page_bytes);
    EXPECT_EQ(after.memory_bytes, before.memory_bytes);
    if (GetParam() == Kind::given && before.free_bytes == UINT64_MAX)
        return; // the device doesn't know
    EXPECT_LE(before.free_bytes, before.memory_bytes);
    EXPECT_EQ(before.free_bytes - after.free_bytes, 3 * before.page_bytes);
    if (GetParam() != Kind::embedded) {
        EXPECT_GT(after.round_trip_ns, 0U);
    }
}

TEST_P(Info, QueryTakesAsMuchRoomAsInfoTells) {
    remote_node node{};
    node.size = sizeof(node);
    ASSERT_EQ(remote_info(r, &node), 0);
    std::vector<char> room(node.result_bytes + 1);
    remote_function what{};
    what.offload = 1;
    what.result = room.data();
    what.result_bytes = room.size();
    if (!node.result_bytes) {
        EXPECT_EQ(remote_query(r, &what), -EOPNOTSUPP);
        return;
    }
    EXPECT_GE(node.result_bytes, 1024U);
    EXPECT_EQ(remote_query(r, &what), -EINVAL);
    what.result_bytes = node.result_bytes;
    EXPECT_EQ(remote_query(r, &what), -ENOSYS) << "the node has no offload";
}

TEST(Interface, InfoNeedsNoSecondSession) {
    TestNode node(0, 1);
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, udp_target(node.port()).c_str(), nullptr), 0);
    remote_node known{};
    known.size = sizeof(known);
    EXPECT_EQ(remote_info(r, &known), 0) << remote_why();
    EXPECT_GT(known.memory_bytes, 0U);
    remote_close(r);
}

TEST(Interface, InfoEndsAtTheHandlesTimeLimit) {
    TestNode node;
    Relay relay(node.port(), 0);
    remote_options options{};
    options.size = sizeof(options);
    options.call_timeout_us = 100'000;
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, udp_target(relay.port()).c_str(), &options), 0);
    relay.cut(true);
    remote_node known{};
    known.size = sizeof(known);
    auto began = std::chrono::steady_clock::now();
    EXPECT_LT(remote_info(r, &known), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
    remote_close(r);
}

} // namespace

} // namespace remora::test
