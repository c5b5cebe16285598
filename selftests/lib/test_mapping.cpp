// SPDX-License-Identifier: GPL-2.0
// remote_mmap(): remote memory as memory. test_pager.cpp tests its requests to a backend.
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "async.hpp"
#include "backend.hpp"
#include "bus_error.hpp"
#include "mappable.hpp"
#include "src/mmap/mapped_ranges.hpp"

namespace remora::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

std::uint8_t* map(remote_t* r, raddr_t address, std::size_t bytes, std::uint64_t cache_bytes = 0,
                  unsigned permission = REMOTE_RW) {
    remote_mmap_options options{sizeof(options), cache_bytes, 0};
    void* memory = nullptr;
    EXPECT_EQ(remote_mmap(r, address, bytes, permission, &options, &memory), 0) << remote_why();
    return static_cast<std::uint8_t*>(memory);
}

Bytes read(remote_t* r, raddr_t address, std::size_t bytes) {
    Bytes data(bytes);
    EXPECT_EQ(rread(r, address, data.data(), bytes), 0);
    return data;
}

class Mapped : public Backends {
protected:
    Mapped() : other(is_shared() ? open() : r) {}
    ~Mapped() override {
        if (other != r)
            remote_close(other);
    }
    void SetUp() override { SKIP_UNLESS_MAPPABLE(); }
    // The bytes that another handle reads.
    Bytes at_node(raddr_t address, std::size_t bytes) { return read(other, address, bytes); }

    remote_t* other; // another handle, if there can be one
};

INSTANTIATE_TEST_SUITE_P(Lib, Mapped, testing::ValuesIn(kinds()), kind_name);

// ---- data ----

// Anything anywhere, with a cache of a sixteenth.
TEST_P(Mapped, IsMemory) {
    const std::size_t bytes = 256 * page;
    raddr_t a = alloc(bytes);
    Bytes mirror(bytes);
    std::mt19937 random(3);
    for (std::size_t i = 0; i < bytes; i++)
        mirror[i] = static_cast<std::uint8_t>(random());
    ASSERT_EQ(rwrite(r, a, mirror.data(), bytes), 0);
    std::uint8_t* memory = map(r, a, bytes, bytes / 16);
    for (int step = 0; step < (is_slow() ? 100 : 500); step++) {
        std::size_t from = random() % bytes;
        std::size_t count = 1 + random() % std::min(bytes - from, random() % 8 ? 3 * page : bytes);
        if (random() % 2) {
            std::memset(memory + from, step, count);
            std::memset(&mirror[from], step, count);
        } else {
            ASSERT_EQ(std::memcmp(memory + from, &mirror[from], count), 0);
        }
    }
    EXPECT_EQ(remote_munmap(r, memory), 0);
    EXPECT_EQ(at_node(a, bytes), mirror);
}

TEST_P(Mapped, BeginsAndEndsOnAnyPage) {
    raddr_t a = alloc(64 * page);
    std::uint8_t* memory = map(r, a + 5 * page, 37 * page);
    for (std::size_t i = 0; i < 37; i++)
        memory[i * page] = static_cast<std::uint8_t>(i + 1);
    EXPECT_EQ(remote_munmap(r, memory), 0);
    EXPECT_EQ(at_node(a + 4 * page, page), Bytes(page, 0));
    for (std::size_t i = 0; i < 37; i++)
        EXPECT_EQ(at_node(a + (i + 5) * page, 2), (Bytes{static_cast<std::uint8_t>(i + 1), 0}));
    EXPECT_EQ(at_node(a + 42 * page, page), Bytes(page, 0));
}

TEST_P(Mapped, ThreadsShareIt) {
    constexpr std::size_t threads = 4;
    const std::size_t bytes = 64 * page;
    raddr_t a = alloc(bytes);
    std::uint8_t* memory = map(r, a, bytes, 16 * page);
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; t++) {
        running.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            Bytes mirror(bytes, 0);
            for (int step = 0; step < (is_slow() ? 200 : 1000); step++) {
                std::size_t byte = random() % (bytes / threads) * threads + t;
                volatile std::uint8_t& it = memory[byte];
                ASSERT_EQ(it, mirror[byte]);
                it = mirror[byte] = static_cast<std::uint8_t>(random());
            }
        });
    }
    for (std::thread& thread : running)
        thread.join();
    EXPECT_EQ(remote_munmap(r, memory), 0);
}

TEST_P(Mapped, SyncedPagesAreVisibleToOthers) {
    raddr_t a = alloc(64 * page);
    std::uint8_t* memory = map(r, a, 64 * page);
    std::memset(memory, 1, 64 * page);
    EXPECT_EQ(at_node(a, 64 * page), Bytes(64 * page, 0)) << "nobody asked for it yet";
    EXPECT_EQ(remote_msync(r, memory + 20 * page + 1, 3 * page), 0);
    EXPECT_EQ(at_node(a + 20 * page, 4 * page), Bytes(4 * page, 1));
    memory[22 * page] = 2;
    EXPECT_EQ(remote_msync(r, memory, 64 * page), 0);
    EXPECT_EQ(at_node(a, 22 * page), Bytes(22 * page, 1));
    EXPECT_EQ(at_node(a + 22 * page, 2), (Bytes{2, 1}));
    EXPECT_EQ(remote_munmap(r, memory), 0);
}

TEST_P(Mapped, EvictedDirtyPagesAreWrittenBack) {
    raddr_t a = alloc(128 * page);
    std::uint8_t* memory = map(r, a, 128 * page, 16 * page);
    std::memset(memory, 1, 128 * page);
    EXPECT_EQ(at_node(a, 64 * page), Bytes(64 * page, 1)) << "nobody asked for it";
    std::memset(memory, 2, 8 * page);
    EXPECT_EQ(memory[100 * page], 1);
    EXPECT_EQ(remote_munmap(r, memory), 0);
    EXPECT_EQ(at_node(a, 8 * page), Bytes(8 * page, 2));
}

TEST_P(Mapped, SeveralAtOnce) {
    raddr_t a = alloc(32 * page), b = alloc(32 * page);
    std::uint8_t *one = map(r, a, 32 * page), *two = map(r, b, 32 * page);
    std::memset(one, 1, 32 * page);
    std::memset(two, 2, 32 * page);
    EXPECT_EQ(std::memcmp(one + page, one, page), 0);
    EXPECT_EQ(remote_munmap(r, one), 0);
    EXPECT_EQ(remote_munmap(r, one), -EINVAL) << "twice";
    EXPECT_EQ(remote_munmap(r, two + page), -EINVAL) << "no mapping begins there";
    EXPECT_EQ(remote_munmap(r, two), 0);
    EXPECT_EQ(at_node(a, page), Bytes(page, 1));
    EXPECT_EQ(at_node(b, page), Bytes(page, 2));
}

// ---- what can't be ----

TEST_P(Mapped, ArgumentsThatCantBe) {
    raddr_t a = alloc(64 * page);
    std::uint64_t end = a + std::max(64 * page, page_bytes_of(r));
    void* memory = nullptr;
    EXPECT_EQ(remote_mmap(r, a, page, REMOTE_RW, nullptr, nullptr), -EINVAL);
    EXPECT_EQ(remote_mmap(nullptr, a, page, REMOTE_RW, nullptr, &memory), -EINVAL);
    EXPECT_EQ(remote_mmap(r, a, 0, REMOTE_RW, nullptr, &memory), -EINVAL);
    EXPECT_EQ(remote_mmap(r, a + 1, page, REMOTE_RW, nullptr, &memory), -EINVAL);
    EXPECT_NE(std::string(remote_why()).find("pages"), std::string::npos);
    EXPECT_EQ(remote_mmap(r, a, page + 1, REMOTE_RW, nullptr, &memory), -EINVAL);
    EXPECT_EQ(remote_mmap(r, a, 0 - page, REMOTE_RW, nullptr, &memory), -EINVAL);
    EXPECT_EQ(remote_mmap(r, a, page, REMOTE_WRITE, nullptr, &memory), -EINVAL);
    EXPECT_EQ(remote_mmap(r, a, page, 8, nullptr, &memory), -EINVAL);
    EXPECT_EQ(remote_mmap(r, a, end - a + page, REMOTE_RW, nullptr, &memory), -EFAULT);
    EXPECT_EQ(remote_mmap(r, a - page, 2 * page, REMOTE_RW, nullptr, &memory), -EFAULT);
    remote_mmap_options options{};
    EXPECT_EQ(remote_mmap(r, a, page, REMOTE_RW, &options, &memory), -EINVAL);
    EXPECT_NE(std::string(remote_why()).find("sizeof(struct remote_mmap_options)"),
              std::string::npos);
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(remote_msync(nullptr, &options, 1), -EINVAL);
    EXPECT_EQ(remote_msync(r, &options, 1), -EINVAL);
    EXPECT_EQ(remote_msync(r, nullptr, 1), -EINVAL);
    EXPECT_EQ(remote_munmap(nullptr, &options), -EINVAL);
    EXPECT_EQ(remote_munmap(r, nullptr), -EINVAL);
    ASSERT_EQ(remote_mmap(r, a, page, REMOTE_RW, nullptr, &memory), 0);
    EXPECT_EQ(remote_msync(r, memory, page + 1), -EINVAL);
    EXPECT_EQ(remote_msync(r, memory, 0), -EINVAL);
    if (other != r) {
        EXPECT_EQ(remote_msync(other, memory, page), -EINVAL) << "another handle's";
    }
    EXPECT_EQ(remote_munmap(r, memory), 0);
}

TEST_P(Mapped, NoBufferIsThere) {
    raddr_t a = alloc(64 * page), b = alloc(64 * page);
    std::uint8_t* memory = map(r, a, 16 * page);
    AsyncOp op;
    for (remote_t* each : {r, other}) {
        EXPECT_EQ(rread(each, b, memory + page, page), -EINVAL);
        EXPECT_EQ(rwrite(each, b, memory + 16 * page - 1, 64), -EINVAL);
        EXPECT_EQ(read_async(each, b, memory - 1, 2, &op), -EINVAL);
        EXPECT_EQ(write_async(each, b, memory, 1, &op), -EINVAL);
        EXPECT_EQ(rread(each, b, memory, ~std::size_t{0} - b), -EINVAL);
    }
    Bytes elsewhere(page);
    EXPECT_EQ(rread(r, b, elsewhere.data(), page), 0);
    EXPECT_EQ(remote_munmap(r, memory), 0);
}

TEST_P(Mapped, ToReadAlone) {
    raddr_t a = alloc(64 * page, REMOTE_READ);
    std::uint8_t* memory = map(r, a, 64 * page, 16 * page, REMOTE_READ);
    for (std::size_t i = 0; i < 64 * page; i += 100)
        ASSERT_EQ(memory[i], 0);
    SignalTrap trap(SIGSEGV);
    EXPECT_EQ(trap.attempt([&] { *static_cast<volatile std::uint8_t*>(memory) = 1; }), memory);
    EXPECT_EQ(remote_munmap(r, memory), 0);
}

TEST_P(Mapped, SyncOfReadOnlyMemoryFails) {
    raddr_t a = alloc(64 * page, REMOTE_READ);
    std::uint8_t* memory = map(r, a, 64 * page);
    memory[3 * page] = 7;
    EXPECT_EQ(remote_msync(r, memory, 64 * page), -EACCES);
    EXPECT_EQ(memory[3 * page], 7);
    EXPECT_EQ(remote_munmap(r, memory), -EACCES);
}

TEST_P(Mapped, FreedUnderIt) {
    raddr_t a = alloc(64 * page);
    std::uint8_t* memory = map(r, a, 64 * page);
    memory[0] = 1;
    EXPECT_EQ(rfree(r, a), 0);
    EXPECT_EQ(bus_error_at(memory + 40 * page + 7), memory + 40 * page + 7);
    EXPECT_EQ(memory[0], 1) << "what is here is here";
    EXPECT_EQ(remote_msync(r, memory, page), -EFAULT);
    EXPECT_EQ(remote_munmap(r, memory), -EFAULT);
}

// ---- processes ----

TEST_P(Mapped, ClosingWritesBack) {
    remote_t* mine = open();
    raddr_t a = 0;
    ASSERT_EQ(ralloc(mine, 64 * page, REMOTE_RW, &a), 0);
    for (int i = 0; i < 4; i++) {
        std::uint8_t* memory = map(mine, a + static_cast<std::size_t>(i) * 16 * page, 16 * page);
        std::memset(memory, i + 1, 16 * page);
    }
    remote_close(mine);
    if (node) {
        for (std::size_t i = 0; i < 4; i++)
            EXPECT_EQ(at_node(a + i * 16 * page, 16 * page),
                      Bytes(16 * page, static_cast<std::uint8_t>(i + 1)));
    }
}

TEST_P(Mapped, AChildDoesntHaveIt) {
    raddr_t a = alloc(64 * page);
    std::uint8_t* memory = map(r, a, 64 * page, 16 * page);
    memory[0] = 1;
    pid_t child = fork();
    if (!child) {
        void* another = nullptr;
        unsigned char here;
        bool refused = remote_msync(r, memory, page) == -ECHILD &&
                       remote_munmap(r, memory) == -ECHILD &&
                       remote_mmap(r, a, page, REMOTE_RW, nullptr, &another) == -ECHILD;
        bool gone = mincore(memory, page, &here) && errno == ENOMEM;
        remote_close(r);
        _exit(refused && gone ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    for (std::size_t i = 0; i < 64; i++)
        memory[i * page + 1] = 2;
    EXPECT_EQ(remote_munmap(r, memory), 0);
    EXPECT_EQ(at_node(a, 2), (Bytes{1, 2}));
    EXPECT_EQ(at_node(a + 63 * page, 2), (Bytes{0, 2}));
}

TEST_P(Mapped, ChildMapsAndForksAgain) {
    raddr_t a = alloc(page);
    std::uint8_t* memory = map(r, a, page);
    pid_t child = fork();
    if (!child) {
        alarm(60); // ends a child that hangs
        std::uint8_t own = 0;
        lib::MappedRange range(&own, sizeof(own)); // as remote_mmap() does
        pid_t grandchild = fork();
        if (!grandchild)
            _exit(lib::is_mapped(&own, sizeof(own)) ? 1 : 0);
        int status = 1;
        waitpid(grandchild, &status, 0);
        _exit(status || !lib::is_mapped(&own, sizeof(own)) || lib::is_mapped(memory, page) ? 1 : 0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(remote_munmap(r, memory), 0);
}

// The child's own calls take the locks that the parent's threads may have held.
TEST(MappedChild, MapsAndForksAgain) {
    SKIP_UNLESS_MAPPABLE();
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer ends a child that starts threads";
#endif
    remote_t* r = nullptr;
    raddr_t a = 0;
    ASSERT_EQ(remote_open(&r, "embedded:", nullptr), 0);
    ASSERT_EQ(ralloc(r, page, REMOTE_RW, &a), 0);
    std::uint8_t* memory = map(r, a, page);
    pid_t child = fork();
    if (!child) {
        alarm(60); // ends a child that hangs
        remote_t* own = nullptr;
        void* mine = nullptr;
        bool good = !remote_open(&own, "embedded:", nullptr) && !ralloc(own, page, REMOTE_RW, &a) &&
                    !remote_mmap(own, a, page, REMOTE_RW, nullptr, &mine);
        if (good)
            *static_cast<std::uint8_t*>(mine) = 7;
        good = good && !remote_msync(own, mine, page);
        pid_t grandchild = fork();
        if (!grandchild)
            _exit(0);
        int status = 1;
        waitpid(grandchild, &status, 0);
        std::uint8_t back = 0;
        good =
            good && !status && !remote_munmap(own, mine) && !rread(own, a, &back, 1) && back == 7;
        _exit(!good);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(remote_munmap(r, memory), 0);
    remote_close(r);
}

// ---- what the system gives ----

// Can this kernel be told which system calls to refuse?
bool filters_system_calls() {
    std::uint32_t action = SECCOMP_RET_ERRNO;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

// Installs a filter of system calls for the calling thread and those that it starts.
void filter_system_calls(std::span<sock_filter> filter) {
    sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0)
        << std::strerror(errno);
}

// Denies the calling thread, until it ends, any userfaultfd but one for faults of user mode, or
// all.
void restrict_userfaultfd(bool to_none) {
    constexpr std::uint32_t deny = SECCOMP_RET_ERRNO | EPERM;
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, to_none ? 0U : UFFD_USER_MODE_ONLY, 4, 0),
        BPF_STMT(BPF_RET | BPF_K, deny),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, USERFAULTFD_IOC_NEW, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, deny),
    };
    filter_system_calls(filter);
}

// Denies the calling thread, and those that it starts, the holes of a mapping.
void refuse_holes() {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAP_SHARED | MAP_FIXED, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
    };
    filter_system_calls(filter);
}

// Does the system let this process see faults of the kernel, too?
bool sees_kernel_faults() {
    Descriptor fd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC)));
    Descriptor device(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
    return fd || device;
}

TEST_P(Mapped, SystemCallsMayUseIt) {
    if (!sees_kernel_faults())
        GTEST_SKIP() << "that takes privilege, or /dev/userfaultfd";
    raddr_t a = alloc(64 * page);
    Bytes data(page, 5);
    ASSERT_EQ(rwrite(r, a + 5 * page, data.data(), page), 0);
    std::uint8_t* memory = map(r, a, 64 * page);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Descriptor out(ends[0]), in(ends[1]);
    EXPECT_EQ(write(in.get(), memory + 5 * page, page), static_cast<ssize_t>(page));
    EXPECT_EQ(::read(out.get(), memory + 40 * page, page), static_cast<ssize_t>(page));
    EXPECT_EQ(remote_munmap(r, memory), 0);
    EXPECT_EQ(at_node(a + 40 * page, page), data);
}

TEST_P(Mapped, WithoutPrivilegeProgramsMayUseIt) {
    if (!filters_system_calls())
        GTEST_SKIP() << "this kernel has no seccomp";
    raddr_t a = alloc(64 * page);
    std::thread([&] {
        restrict_userfaultfd(false);
        std::uint8_t* memory = map(r, a, 64 * page, 16 * page);
        int ends[2];
        ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
        Descriptor out(ends[0]), in(ends[1]);
        EXPECT_EQ(write(in.get(), memory + 5 * page, page), -1);
        EXPECT_EQ(errno, EFAULT);
        for (std::size_t i = 0; i < 64; i++)
            memory[i * page] = static_cast<std::uint8_t>(i);
        EXPECT_EQ(memory[5 * page], 5);
        EXPECT_EQ(write(in.get(), memory + 5 * page, page), static_cast<ssize_t>(page));
        EXPECT_EQ(remote_munmap(r, memory), 0);
    }).join();
    EXPECT_EQ(at_node(a + 63 * page, 1), Bytes{63});
}

TEST_P(Mapped, WithoutUserfaultfdItSaysSo) {
    if (!filters_system_calls())
        GTEST_SKIP() << "this kernel has no seccomp";
    raddr_t a = alloc(page);
    std::thread([&] {
        restrict_userfaultfd(true);
        void* memory = nullptr;
        EXPECT_EQ(remote_mmap(r, a, page, REMOTE_RW, nullptr, &memory), -EOPNOTSUPP);
        EXPECT_NE(std::string(remote_why()).find("userfaultfd"), std::string::npos);
    }).join();
}

// ---- nodes that fall silent, or restart ----

class MappedNetwork : public testing::Test {
protected:
    // timeout_us: 0 is the library's, long enough for a node that is there on a busy machine.
    void begin(std::uint16_t port, std::uint64_t timeout_us = 0) {
        remote_options options{};
        options.size = sizeof(options);
        options.timeout_us = timeout_us;
        ASSERT_EQ(remote_open(&r, udp_target(port).c_str(), &options), 0) << remote_why();
        ASSERT_EQ(ralloc(r, 64 * page, REMOTE_RW, &a), 0);
        memory = map(r, a, 64 * page, 16 * page);
    }

    remote_t* r = nullptr;
    raddr_t a = 0;
    std::uint8_t* memory = nullptr;
};

TEST_F(MappedNetwork, ASilentNodeIsABusErrorAndThenItIsThereAgain) {
    TestNode node;
    Relay relay(node.port(), 0);
    begin(relay.port(), 2'000'000);
    memory[0] = 1;
    relay.cut(true);
    EXPECT_EQ(bus_error_at(memory + 20 * page), memory + 20 * page);
    EXPECT_EQ(remote_msync(r, memory, page), -ETIMEDOUT);
    EXPECT_EQ(memory[0], 1);
    relay.cut(false);
    int error;
    while ((error = remote_msync(r, memory, page)) == -ETIMEDOUT) {
    }
    EXPECT_EQ(error, 0);
    EXPECT_EQ(bus_error_at(memory + 20 * page), memory + 20 * page) << "it doesn't heal";
    EXPECT_EQ(memory[21 * page], 0);
    EXPECT_EQ(remote_munmap(r, memory), 0);
    memory = map(r, a, 64 * page);
    EXPECT_EQ(memory[0], 1);
    EXPECT_EQ(memory[20 * page], 0);
    remote_close(r);
}

// The page's reader waits, and the page is requested again until the node answers.
TEST_F(MappedNetwork, PageWithoutRoomForItsHoleIsRequestedAgain) {
    if (!filters_system_calls())
        GTEST_SKIP() << "this kernel has no seccomp";
    TestNode node;
    Relay relay(node.port(), 0);
    std::thread([&] {
        refuse_holes();
        begin(relay.port(), 1'000'000);
    }).join();
    ASSERT_NE(memory, nullptr);
    relay.cut(true);
    std::thread reader([&] { EXPECT_EQ(*static_cast<volatile std::uint8_t*>(memory), 0); });
    while (counters_of(r).kind[REMOTE_KIND_READ].failed < 2 && !HasFailure())
        std::this_thread::yield();
    relay.cut(false);
    reader.join();
    EXPECT_EQ(remote_munmap(r, memory), 0);
    remote_close(r);
}

// All that is dirty fails by the same timeout, whoever waits for it.
TEST_F(MappedNetwork, ASilentNodeDoesntHoldUpTheEnd) {
    TestNode node;
    Relay relay(node.port(), 0);
    begin(relay.port(), 2'000'000);
    for (std::uint8_t i = 0; i < 20; i++)
        *map(r, a, 64 * page) = i;
    std::memset(memory, 1, 8 * page);
    relay.cut(true);
    SignalTrap trap(SIGBUS);
    std::vector<std::thread> threads;
    for (std::size_t i = 20; i < 24; i++) {
        threads.emplace_back([&, i] {
            volatile std::uint8_t* byte = memory + i * page;
            EXPECT_EQ(trap.attempt([&] { static_cast<void>(*byte); }), byte);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(remote_munmap(r, memory), -ETIMEDOUT);
    remote_close(r);
}

TEST_F(MappedNetwork, ARestartedNodeHasLostEverything) {
    auto node = std::make_unique<TestNode>();
    std::uint16_t port = node->port();
    begin(port);
    memory[0] = 1;
    node.reset();
    node = std::make_unique<TestNode>(port);
    EXPECT_EQ(bus_error_at(memory + 20 * page), memory + 20 * page);
    EXPECT_EQ(memory[0], 1);
    EXPECT_EQ(remote_msync(r, memory, page), -ESTALE);
    void* another = nullptr;
    EXPECT_EQ(remote_mmap(r, a, page, REMOTE_RW, nullptr, &another), -ESTALE);
    EXPECT_EQ(remote_munmap(r, memory), -ESTALE);
    remote_close(r);
}

} // namespace

} // namespace remora::test
