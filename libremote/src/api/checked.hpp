// SPDX-License-Identifier: MIT
/*
 * Every C function checks its arguments by these functions, and does its work in guarded(), which
 * turns exceptions into errors. No stack is unwound while an operation of it is in flight: the
 * functions of a backend and a transport that run then are noexcept.
 */
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include <pthread.h>
#include <sys/single_threaded.h>

#include "remote/queue.h"
#include "src/api/handles.hpp"
#include "support/failure.hpp"

#define REMOTE_API extern "C" __attribute__((visibility("default")))

namespace remora::lib {

// Keeps the text for the thread's remote_why(); returns error.
int fail(int error, const char* text) noexcept;

// 0, -EINVAL, -EBADF, -ECHILD.
int check(const remote_t* r);
int check_range(const remote_t* r, raddr_t address, const void* buffer, std::size_t bytes);
// An integer of 4 or 8 bytes.
int check_integer(const remote_t* r, raddr_t address, std::size_t bytes);
// One of 16, too.
int check_cas(const remote_t* r, raddr_t address, std::size_t bytes);
// Two ranges that don't overlap.
int check_copy(const remote_t* r, raddr_t to, raddr_t from, std::size_t bytes);
// A lock's address.
int check_lock(const remote_t* r, raddr_t lock);
// permission, with flags, of memory to allocate at wanted, 0: anywhere.
int check_alloc(const remote_t* r, raddr_t wanted, std::uint64_t bytes, unsigned permission);
// An operation's arguments, flags and kind.
int check_op(const remote_t* r, const remote_op& op);

// A thread that is cancelled in a call ends after it: it might be receiving for all others, and its
// operations lie on its stack.
class NoCancellation {
public:
    NoCancellation() noexcept : alone_(__libc_single_threaded) {
        if (!alone_)
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    }
    ~NoCancellation() {
        if (!alone_)
            pthread_setcancelstate(before_, nullptr);
    }
    NoCancellation(const NoCancellation&) = delete;
    NoCancellation& operator=(const NoCancellation&) = delete;

private:
    const bool alone_; // no other thread can cancel this one
    int before_ = PTHREAD_CANCEL_ENABLE;
};

// In a handler: the current exception as an error. tells: remote_why() tells it.
int caught(bool tells) noexcept;

// Returns fn()'s result. Every exported function that does more than look something up is one call
// of this, or of opening().
template <typename Fn>
int guarded(Fn fn, bool tells = false) noexcept {
    const NoCancellation whole;
    try {
        return fn();
    } catch (...) {
        return caught(tells);
    }
}

// For functions that open something: sets remote_why() on failure.
template <typename Fn>
int opening(Fn fn) noexcept {
    return guarded(fn, true);
}

// No structure will ever be longer: a size beyond is one that was never set.
inline constexpr std::size_t structure_bytes_max = 4096;

// Sizes of the structures in version 0.1, the first: programs of all versions can use them.
template <typename T>
inline constexpr std::size_t bytes_of_first = 0;
template <>
inline constexpr std::size_t bytes_of_first<remote_options> = 40;
template <>
inline constexpr std::size_t bytes_of_first<remote_node> = 40;
template <>
inline constexpr std::size_t bytes_of_first<remote_counters> = 448;
template <>
inline constexpr std::size_t bytes_of_first<remote_mmap_options> = 24;
template <>
inline constexpr std::size_t bytes_of_first<remote_queue_options> = 16;
template <>
inline constexpr std::size_t bytes_of_first<remote_op> = 128;
static_assert(sizeof(remote_vec) == 24 && sizeof(remote_signal) == 32 &&
                  sizeof(remote_kind_stats) == 24 && sizeof(remote_completion) == 16,
              "these never change");

// Throws Misuse. name: the structure's. bytes, known: the sizes that the program and this library
// give it; least: that of the first version.
void check_size(const void* given, std::string_view name, std::size_t bytes, std::size_t known,
                std::size_t least);

// options: of a size that this library, an older or a newer one knows, or NULL for the defaults.
// Fields that this library doesn't know must be 0. Throws Misuse.
template <typename Options>
Options options_of(const Options* given, std::string_view name) {
    static_assert(sizeof(Options) >= bytes_of_first<Options> && bytes_of_first<Options>);
    Options options{};
    if (given) {
        check_size(given, name, given->size, sizeof(options), bytes_of_first<Options>);
        std::memcpy(&options, given, std::min<std::size_t>(given->size, sizeof(options)));
    }
    options.size = sizeof(options);
    return options;
}

// The same for a structure that is to be filled.
template <typename Results>
void check_results(const Results* given, std::string_view name) {
    static_assert(sizeof(Results) >= bytes_of_first<Results> && bytes_of_first<Results>);
    check_size(given, name, given->size, sizeof(Results), bytes_of_first<Results>);
}

// Fills as much of the program's structure as it has.
template <typename Results>
void give(Results& found, Results* to) {
    found.size = std::min<std::size_t>(to->size, sizeof(found));
    std::memcpy(to, &found, found.size);
}

} // namespace remora::lib
