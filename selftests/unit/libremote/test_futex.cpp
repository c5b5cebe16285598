// SPDX-License-Identifier: GPL-2.0
// Waiting for words: what ends a wait, and what doesn't.
#include "support/futex.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "remora-node/rings.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

constexpr std::chrono::seconds patience{60}; // for what happens at once on an idle machine
constexpr std::chrono::milliseconds nap{1};

template <typename Condition>
bool becomes_true(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        std::this_thread::sleep_for(nap);
    }
    return true;
}

// Is this thread of that process asleep?
bool sleeps(pid_t process, pid_t thread) {
    std::ifstream file(fmt::format("/proc/{}/task/{}/stat", process, thread));
    std::string text;
    std::getline(file, text);
    auto name_end = text.rfind(')');
    return name_end != std::string::npos && text.compare(name_end, 3, ") S") == 0;
}

// A thread in one wait. words: those that it may wait for; they must outlive it. wait() must sleep
// for nothing else: falls_asleep() can't tell one sleep from another.
class Waiter {
public:
    Waiter(std::span<std::uint32_t> words, std::function<void()> wait) : words_(words) {
        thread_ = std::thread([this, wait = std::move(wait)] {
            id_ = static_cast<pid_t>(syscall(SYS_gettid));
            wait();
            ended_ = true;
        });
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    // Changes the words and wakes the thread, so that a test that has failed ends, too.
    ~Waiter() {
        for (std::uint32_t& word : words_)
            __atomic_store_n(&word, ~0U, __ATOMIC_SEQ_CST);
        while (!ended_) {
            for (std::uint32_t& word : words_)
                syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
            std::this_thread::sleep_for(nap);
        }
        thread_.join();
    }

    bool falls_asleep() {
        return becomes_true([this] { return id_ && sleeps(getpid(), id_); });
    }
    bool ends() {
        return becomes_true([this] { return ended_.load(); });
    }
    bool ended() const { return ended_; }
    void signal(int number) { pthread_kill(thread_.native_handle(), number); }

private:
    std::span<std::uint32_t> words_;
    std::atomic<pid_t> id_{0};
    std::atomic<bool> ended_{false};
    std::thread thread_;
};

// Counts the signals SIGUSR1 while it exists. flags: of sigaction().
class CountedSignals {
public:
    explicit CountedSignals(int flags) {
        count = 0;
        struct sigaction action {};
        action.sa_handler = [](int) { count++; };
        action.sa_flags = flags;
        sigaction(SIGUSR1, &action, &before_);
    }
    CountedSignals(const CountedSignals&) = delete;
    CountedSignals& operator=(const CountedSignals&) = delete;
    ~CountedSignals() { sigaction(SIGUSR1, &before_, nullptr); }

    static inline std::atomic<int> count{0};

private:
    struct sigaction before_ {};
};

class Futex : public testing::Test {
protected:
    // Waits while the word is 1.
    std::unique_ptr<Waiter> waiter(std::uint32_t& word, const timespec* limit = nullptr) {
        return std::make_unique<Waiter>(std::span(&word, 1),
                                        [&word, limit] { futex_wait(&word, 1, limit); });
    }
    std::uint32_t word = 1;
};

TEST_F(Futex, WaitReturnsAtOnceIfTheValueDiffers) {
    word = 2;
    EXPECT_TRUE(waiter(word)->ends());
}

TEST_F(Futex, WakeEndsTheWaitOfOneThread) {
    auto one = waiter(word), two = waiter(word);
    ASSERT_TRUE(one->falls_asleep() && two->falls_asleep());
    EXPECT_FALSE(one->ended() || two->ended());
    futex_wake(&word);
    EXPECT_TRUE(becomes_true([&] { return one->ended() || two->ended(); }));
    Waiter& left = *(one->ended() ? two : one);
    EXPECT_TRUE(left.falls_asleep());
    EXPECT_FALSE(left.ended());
    futex_wake(&word);
    EXPECT_TRUE(left.ends());
}

TEST_F(Futex, WakeOfAnotherWordEndsNoWait) {
    std::uint32_t other = 1;
    auto one = waiter(word);
    ASSERT_TRUE(one->falls_asleep());
    futex_wake(&other);
    EXPECT_TRUE(one->falls_asleep());
    EXPECT_FALSE(one->ended());
}

TEST_F(Futex, WakeReachesAnotherProcess) {
    void* memory = mmap(nullptr, sizeof(std::uint32_t), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* shared = static_cast<std::uint32_t*>(memory);
    *shared = 1;
    pid_t child = fork();
    if (!child) {
        futex_wait(shared, 1, nullptr);
        _exit(0);
    }
    ASSERT_GT(child, 0);
    EXPECT_TRUE(becomes_true([&] { return sleeps(child, child); }));
    futex_wake(shared);
    int status = -1;
    bool ended = becomes_true([&] { return waitpid(child, &status, WNOHANG) == child; });
    EXPECT_TRUE(ended);
    EXPECT_EQ(status, 0);
    if (!ended) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    munmap(memory, sizeof(std::uint32_t));
}

TEST_F(Futex, DeadlineEndsAWait) {
    const timespec limit{0, 20'000'000};
    auto one = waiter(word, &limit);
    EXPECT_TRUE(one->ends());
    EXPECT_EQ(word, 1U);
}

// With a limit, even a signal whose handler restarts system calls ends the wait.
TEST_F(Futex, SignalEndsAWait) {
    const timespec limit{1'000'000, 0};
    for (bool limited : {false, true}) {
        CountedSignals signals(limited ? SA_RESTART : 0);
        word = 1;
        auto one = waiter(word, limited ? &limit : nullptr);
        ASSERT_TRUE(one->falls_asleep());
        one->signal(SIGUSR1);
        EXPECT_TRUE(one->ends()) << limited;
        EXPECT_EQ(signals.count, 1);
        EXPECT_EQ(word, 1U);
    }
}

class FutexAny : public testing::Test {
protected:
    void SetUp() override {
        if (!has_futex_wait_any())
            GTEST_SKIP() << "this kernel is older than Linux 5.16";
    }
    // Waits while each of the words is 1.
    std::unique_ptr<Waiter> waiter(std::vector<std::uint32_t>& words) {
        std::vector<std::uint32_t*> all;
        for (std::uint32_t& word : words)
            all.push_back(&word);
        return std::make_unique<Waiter>(words, [all] { futex_wait_any(all, 1); });
    }
};

TEST_F(FutexAny, AnyWordOfAllWakes) {
    for (std::size_t count : {std::size_t{1}, std::size_t{3}, futexes_max}) {
        std::vector<std::uint32_t> words(count, 1);
        for (std::size_t i : {std::size_t{0}, count / 2, count - 1}) {
            auto one = waiter(words);
            ASSERT_TRUE(one->falls_asleep());
            EXPECT_FALSE(one->ended());
            futex_wake(&words[i]);
            EXPECT_TRUE(one->ends()) << i << " of " << count;
            one.reset();
            words.assign(count, 1);
        }
    }
}

TEST_F(FutexAny, WaitReturnsAtOnceIfOneValueDiffers) {
    for (std::size_t i : {0U, 1U, 2U}) {
        std::vector<std::uint32_t> words(3, 1);
        words[i] = 0;
        EXPECT_TRUE(waiter(words)->ends()) << i;
    }
}

TEST_F(FutexAny, SignalEndsAWait) {
    CountedSignals signals(0);
    std::vector<std::uint32_t> words(3, 1);
    auto one = waiter(words);
    ASSERT_TRUE(one->falls_asleep());
    one->signal(SIGUSR1);
    EXPECT_TRUE(one->ends());
    EXPECT_EQ(signals.count, 1);
}

// ---- kernels without futex_waitv() ----

// The calling thread gets ENOSYS from futex_waitv() until it ends. False: no seccomp.
bool lose_futex_waitv() {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program{sizeof(filter) / sizeof(filter[0]), filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

TEST(FutexOld, RingsAreRefusedWithoutWaitingForSeveralWords) {
    bool filtered = false, has = true;
    std::string why;
    std::thread([&] {
        filtered = lose_futex_waitv();
        has = has_futex_wait_any();
        try {
            daemon::Rings rings(1);
        } catch (const Failure& failure) {
            why = failure.what();
        }
    }).join();
    if (!filtered)
        GTEST_SKIP() << "this kernel has no seccomp";
    EXPECT_FALSE(has);
    EXPECT_EQ(why, "this kernel is older than Linux 5.16: leave --shm out");
}

} // namespace

} // namespace remora
