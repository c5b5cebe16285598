// SPDX-License-Identifier: MIT
// Waiting for a word that another process can change: look, pause, sleep.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <span>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace remora {

// Sleeps while *word has the value, until woken, a signal, or the time limit; null: no limit. The
// word can be in memory that other processes share.
inline void futex_wait(std::uint32_t* word, std::uint32_t value, const timespec* limit) {
    syscall(SYS_futex, word, FUTEX_WAIT, value, limit, nullptr, 0);
}

// Words that one thread sleeps on at once.
inline constexpr std::size_t futexes_max = FUTEX_WAITV_MAX;

// The same while each of them has the value (Linux 5.16). Without limit.
inline void futex_wait_any(std::span<std::uint32_t* const> words, std::uint32_t value) {
    std::array<futex_waitv, futexes_max> wait;
    std::size_t count = std::min(words.size(), wait.size());
    for (std::size_t i = 0; i < count; i++)
        wait[i] = {value, reinterpret_cast<std::uintptr_t>(words[i]), FUTEX_32, 0};
    syscall(SYS_futex_waitv, wait.data(), count, 0, nullptr, CLOCK_MONOTONIC);
}

inline bool has_futex_wait_any() {
    return syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, CLOCK_MONOTONIC) < 0 && errno != ENOSYS;
}

// Wakes one thread of any process.
inline void futex_wake(std::uint32_t* word) {
    syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Does the machine have one processor only? Then a thread that spins keeps the other end from
// running. The processors of this process don't count: the other end might have another one.
inline bool has_one_processor() {
    return sysconf(_SC_NPROCESSORS_ONLN) == 1;
}

// Can this processor wait for a line of memory (umonitor, umwait, tpause)?
inline bool has_waitpkg() {
#if defined(__x86_64__)
    static const bool has = [] {
        unsigned a = 0, b = 0, c = 0, d = 0;
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 1U << 5);
    }();
    return has;
#else
    return false;
#endif
}

// Between two looks: lets the other thread of a core run.
inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

#if defined(__x86_64__)
// Upper bound on one pause, in cycles of the time-stamp counter: the caller looks at its clock
// between.
inline constexpr std::uint64_t pause_cycles = 20'000;

// Pauses until the line at word might have changed, if looks_idle() still holds once it is watched;
// null: for a short time. The processor has waitpkg.
template <typename Idle>
__attribute__((target("waitpkg"))) void pause_watching(const void* word, Idle looks_idle) {
    if (!word) {
        _tpause(0, __rdtsc() + pause_cycles / 20);
        return;
    }
    _umonitor(const_cast<void*>(word));
    if (looks_idle())
        _umwait(0, __rdtsc() + pause_cycles);
}
#endif

// A short pause of a thread that has looked in vain for a while.
template <typename Idle>
void pause_longer(const void* word, Idle looks_idle) {
#if defined(__x86_64__)
    if (has_waitpkg())
        return pause_watching(word, looks_idle);
#endif
    relax();
}

} // namespace remora
