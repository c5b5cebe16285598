/* SPDX-License-Identifier: MIT */
/*
 * The C++20 face of remote.h: handles and memory that free themselves, spans, typed addresses.
 * No function throws. A function that can fail returns a result: a value or a negative errno.
 *
 *	auto handle = remote::handle::open("embedded:");
 *	if (!handle)
 *		return fail(remote_why());
 *	auto numbers = remote::vector<int>::make(*handle, 1000);
 *	if (!numbers || (*numbers)[7].set(42).error())
 *		return fail("no memory there");
 *	int seven = (*numbers)[7].get().value_or(0);
 */
#ifndef REMOTE_REMOTE_HPP
#define REMOTE_REMOTE_HPP

#include <cassert>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <remote/lock.h>
#include <remote/remote.h>

namespace remote {

/*
 * A value, or a negative errno. value() and * require a value. A result of bool is no condition:
 * ask for error(), and then for its value.
 */
template <typename T>
class [[nodiscard]] result {
public:
    result(T value) : value_(std::move(value)) {}
    static result failed(int error) {
        result failed{T{}};

        assert(error < 0);
        failed.error_ = error;
        return failed;
    }

    explicit operator bool() const requires(!std::same_as<T, bool>) { return !error_; }
    bool has_value() const { return !error_; }
    /* 0: no error. */
    int error() const { return error_; }
    T& value() {
        assert(!error_);
        return value_;
    }
    const T& value() const {
        assert(!error_);
        return value_;
    }
    T& operator*() { return value(); }
    const T& operator*() const { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    T value_or(T other) const { return error_ ? std::move(other) : value_; }

private:
    T value_;
    int error_ = 0;
};

/* Done, or a negative errno. */
template <>
class [[nodiscard]] result<void> {
public:
    result(int error) : error_(error < 0 ? error : 0) {}
    explicit operator bool() const { return !error_; }
    bool has_value() const { return !error_; }
    int error() const { return error_; }

private:
    int error_;
};

/* A type that can be copied as bytes, the only way to another machine. */
template <typename T>
concept plain = std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>;

/* A range of remote memory. */
struct region {
    raddr_t address = 0;
    uint64_t bytes = 0;
};

/* remote_t, closed at its end. An empty one refuses everything with -EINVAL. */
class handle {
public:
    handle() = default;
    handle(handle&& other) noexcept : r_(std::exchange(other.r_, nullptr)) {}
    handle& operator=(handle&& other) noexcept {
        if (this != &other) {
            remote_close(r_);
            r_ = std::exchange(other.r_, nullptr);
        }
        return *this;
    }
    ~handle() { remote_close(r_); }

    static result<handle> open(const char* target, const remote_options* options = nullptr) {
        handle opened;
        int error = remote_open(&opened.r_, target, options);

        return error ? result<handle>::failed(error) : result<handle>(std::move(opened));
    }

    remote_t* get() const { return r_; }

    result<raddr_t> alloc(uint64_t bytes, unsigned int permission = REMOTE_RW) const {
        raddr_t address = 0;
        int error = remote_alloc(r_, bytes, permission, &address);

        return error ? result<raddr_t>::failed(error) : result<raddr_t>(address);
    }
    result<void> free(raddr_t address) const { return remote_free(r_, address); }
    result<void> free(raddr_t address, std::uint64_t bytes) const {
        return remote_free_sized(r_, address, bytes);
    }
    /* Names the allocation at address. */
    result<void> publish(const char* name, raddr_t address) const {
        return address ? remote_publish(r_, name, address) : -EINVAL;
    }
    result<void> withdraw(const char* name) const { return remote_publish(r_, name, 0); }
    /* The allocation of that name, in whole pages. */
    result<region> lookup(const char* name) const {
        region found;
        int error = remote_lookup(r_, name, &found.address, &found.bytes);

        return error ? result<region>::failed(error) : result<region>(found);
    }
    /* remote_lost(): the next allocation that the restart lost; none: the handle goes on. */
    result<std::optional<region>> lost() const {
        region taken;
        int told = remote_lost(r_, &taken.address, &taken.bytes);

        if (told < 0)
            return result<std::optional<region>>::failed(told);
        return told ? std::optional(taken) : std::nullopt;
    }

    result<void> read(raddr_t address, std::span<std::byte> to) const {
        return remote_read(r_, address, to.data(), to.size());
    }
    result<void> write(raddr_t address, std::span<const std::byte> from) const {
        return remote_write(r_, address, from.data(), from.size());
    }
    template <plain T>
    result<void> read(raddr_t address, std::span<T> to) const {
        return read(address, std::as_writable_bytes(to));
    }
    template <plain T>
    result<void> write(raddr_t address, std::span<const T> from) const {
        return write(address, std::as_bytes(from));
    }
    /* Copies inside the node; the two ranges don't overlap. */
    result<void> copy(raddr_t to, raddr_t from, std::size_t bytes) const {
        return remote_copy(r_, to, from, bytes);
    }
    /* Writes the data, then changes the signal's integer. */
    result<void> put(raddr_t address, std::span<const std::byte> from,
                     const remote_signal& signal) const {
        return remote_put(r_, address, from.data(), from.size(), &signal);
    }
    template <plain T>
    result<void> put(raddr_t address, std::span<const T> from, const remote_signal& signal) const {
        return put(address, std::as_bytes(from), signal);
    }
    /* Each piece with a remote and a local range; the first error among them. */
    result<void> readv(std::span<const remote_vec> pieces) const {
        return remote_readv(r_, pieces.data(), pieces.size());
    }
    result<void> writev(std::span<const remote_vec> pieces) const {
        return remote_writev(r_, pieces.data(), pieces.size());
    }
    result<void> release() const { return remote_release(r_); }
    result<void> fence() const { return remote_fence(r_); }

private:
    remote_t* r_ = nullptr;
};

/*
 * The objects below keep the handle's name, not the object, so they stay valid when the handle is
 * moved. When it is closed, they refuse everything with -EBADF.
 */

/* The address of a remote T. */
template <plain T>
class ptr {
public:
    ptr() = default;
    ptr(const handle& h, raddr_t address) : ptr(h.get(), address) {}
    ptr(remote_t* r, raddr_t address) : r_(r), address_(address) {}

    raddr_t address() const { return address_; }
    explicit operator bool() const { return address_ != 0; }

    result<T> get() const {
        T value{};
        int error = remote_read(r_, address_, &value, sizeof(value));

        return error ? result<T>::failed(error) : result<T>(value);
    }
    result<void> set(const T& value) const {
        return remote_write(r_, address_, &value, sizeof(value));
    }

    ptr operator+(std::ptrdiff_t count) const {
        return {r_, address_ + static_cast<raddr_t>(count) * sizeof(T)};
    }
    ptr operator[](std::ptrdiff_t index) const { return *this + index; }
    bool operator==(const ptr& other) const = default;

private:
    remote_t* r_ = nullptr;
    raddr_t address_ = 0;
};

/* Remote elements, one after the other, that something else owns. */
template <plain T>
class span {
public:
    span() = default;
    span(const handle& h, raddr_t address, std::size_t size) : span(h.get(), address, size) {}
    span(remote_t* r, raddr_t address, std::size_t size) : r_(r), address_(address), size_(size) {}

    raddr_t address() const { return address_; }
    std::size_t size() const { return size_; }
    std::size_t size_bytes() const { return size_ * sizeof(T); }
    bool empty() const { return !size_; }
    /* The address of an element, for get() and set(). */
    ptr<T> operator[](std::size_t index) const {
        assert(index < size_);
        return {r_, address_ + index * sizeof(T)};
    }
    span subspan(std::size_t from, std::size_t size) const {
        assert(from <= size_ && size <= size_ - from);
        return {r_, address_ + from * sizeof(T), size};
    }
    span first(std::size_t size) const { return subspan(0, size); }
    span last(std::size_t size) const { return subspan(size_ - size, size); }
    /* Reads to.size() elements from index from on. -EFAULT: the span has fewer. */
    result<void> read(std::size_t from, std::span<T> to) const {
        return holds(from, to.size())
                   ? result<void>(to.empty() ? 0
                                             : remote_read(r_, address_ + from * sizeof(T),
                                                           to.data(), to.size_bytes()))
                   : -EFAULT;
    }
    result<void> write(std::size_t from, std::span<const T> data) const {
        return holds(from, data.size())
                   ? result<void>(data.empty() ? 0
                                               : remote_write(r_, address_ + from * sizeof(T),
                                                              data.data(), data.size_bytes()))
                   : -EFAULT;
    }

private:
    bool holds(std::size_t from, std::size_t size) const {
        return from <= size_ && size <= size_ - from;
    }

    remote_t* r_ = nullptr;
    raddr_t address_ = 0;
    std::size_t size_ = 0;
};

/* An array in remote memory, initially zero, freed when destroyed. */
template <plain T>
class vector {
public:
    vector() = default;
    vector(vector&& other) noexcept { *this = std::move(other); }
    vector& operator=(vector&& other) noexcept {
        if (this != &other) {
            free();
            r_ = std::exchange(other.r_, nullptr);
            all_ = std::exchange(other.all_, {});
        }
        return *this;
    }
    ~vector() { free(); }

    static result<vector> make(const handle& h, std::size_t size) {
        vector made;

        if (size > std::numeric_limits<std::size_t>::max() / sizeof(T))
            return result<vector>::failed(-EINVAL);
        result<raddr_t> address = h.alloc(size * sizeof(T));
        if (!address)
            return result<vector>::failed(address.error());
        made.r_ = h.get();
        made.all_ = span<T>(h, *address, size);
        return made;
    }

    std::size_t size() const { return all_.size(); }
    raddr_t address() const { return all_.address(); }
    operator span<T>() const { return all_; }
    ptr<T> operator[](std::size_t index) const { return all_[index]; }
    /* As those of the span. */
    result<void> read(std::size_t from, std::span<T> to) const { return all_.read(from, to); }
    result<void> write(std::size_t from, std::span<const T> data) const {
        return all_.write(from, data);
    }

private:
    /* A node that doesn't answer keeps the memory; a destructor can't report that. */
    void free() {
        if (r_)
            (void)remote_free(r_, all_.address());
    }

    remote_t* r_ = nullptr;
    span<T> all_;
};

/*
 * An integer of 4 or 8 bytes that the node changes atomically. Each change returns the integer
 * before it. -ECONNRESET, -ETIMEDOUT: executed once or never, which is unknown.
 */
template <std::integral T>
requires(sizeof(T) == 4 || sizeof(T) == 8) class atomic {
public:
    atomic(const handle& h, raddr_t address) : r_(h.get()), address_(address) {}

    raddr_t address() const { return address_; }

    result<T> exchange(T value) const { return fetch(REMOTE_SWAP, value); }
    result<T> fetch_add(T value) const { return fetch(REMOTE_ADD, value); }
    result<T> fetch_sub(T value) const {
        return fetch(REMOTE_ADD, static_cast<T>(0 - bits(value)));
    }
    result<T> fetch_and(T value) const { return fetch(REMOTE_AND, value); }
    result<T> fetch_or(T value) const { return fetch(REMOTE_OR, value); }
    result<T> fetch_xor(T value) const { return fetch(REMOTE_XOR, value); }
    result<T> fetch_min(T value) const {
        return fetch(std::is_signed_v<T> ? REMOTE_SMIN : REMOTE_MIN, value);
    }
    result<T> fetch_max(T value) const {
        return fetch(std::is_signed_v<T> ? REMOTE_SMAX : REMOTE_MAX, value);
    }
    /* For handle::put(): the change that such a fetch would make. */
    remote_signal signal(remote_change what, T value) const {
        return {address_, sizeof(T), what, bits(value)};
    }
    /* remote_wait(): waits until the integer compares so, and returns it. -EAGAIN: the time is up.
     */
    result<T> wait(remote_compare compare, T value,
                   uint64_t timeout_us = std::numeric_limits<uint64_t>::max())
        const requires std::unsigned_integral<T> {
        uint64_t found = 0;
        int error = remote_wait(r_, address_, sizeof(T), compare, value, timeout_us, &found);

        return error ? result<T>::failed(error) : result<T>(static_cast<T>(found));
    }
    /*
     * True: the integer was expected and is now desired. False: expected is the integer found. To
     * try until it is done, or fails:
     *	auto done = x.compare_exchange(e, f(e));
     *	while (!done.error() && !*done)
     *		done = x.compare_exchange(e, f(e));
     */
    result<bool> compare_exchange(T& expected, T desired) const {
        uint64_t there = bits(expected);
        const uint64_t wanted = bits(desired);
        int done = remote_cas(r_, address_, sizeof(T), &there, &wanted);

        if (done < 0)
            return result<bool>::failed(done);
        expected = static_cast<T>(there);
        return done == 1;
    }

private:
    static uint64_t bits(T value) { return static_cast<std::make_unsigned_t<T>>(value); }
    result<T> fetch(remote_change what, T value) const {
        uint64_t found = 0;
        int error = remote_fetch(r_, address_, sizeof(T), what, bits(value), &found);

        return error ? result<T>::failed(error) : result<T>(static_cast<T>(found));
    }

    remote_t* r_;
    raddr_t address_;
};

/* A lock held by one thread until destroyed (remote_lock()). */
class held_lock {
public:
    held_lock() = default;
    held_lock(held_lock&& other) noexcept { *this = std::move(other); }
    held_lock& operator=(held_lock&& other) noexcept {
        if (this != &other) {
            (void)give();
            r_ = std::exchange(other.r_, nullptr);
            lock_ = other.lock_;
            passed_over_ = other.passed_over_;
        }
        return *this;
    }
    ~held_lock() { (void)give(); }

    static result<held_lock> take(const handle& h, raddr_t lock) {
        held_lock held;
        int taken = remote_lock(h.get(), lock);

        if (taken < 0)
            return result<held_lock>::failed(taken);
        held.r_ = h.get();
        held.lock_ = lock;
        held.passed_over_ = taken == 1;
        return held;
    }

    /* The previous holder's lease expired: the protected data might be half changed. */
    bool passed_over() const { return passed_over_; }
    result<void> extend() const { return r_ ? remote_lock_extend(r_, lock_) : -EPERM; }
    /* Releases the lock before destruction. -EPERM: this thread had lost it before. */
    result<void> give() {
        int error = r_ ? remote_unlock(r_, lock_) : 0;

        if (error != -ETIMEDOUT)
            r_ = nullptr;
        return error;
    }

private:
    remote_t* r_ = nullptr;
    raddr_t lock_ = 0;
    bool passed_over_ = false;
};

/*
 * A range of remote memory mapped into the process (remote_mmap()), unmapped when destroyed. Call
 * unmap() to learn whether all changes were written back.
 */
class mapping {
public:
    mapping() = default;
    mapping(mapping&& other) noexcept { *this = std::move(other); }
    mapping& operator=(mapping&& other) noexcept {
        if (this != &other) {
            (void)unmap();
            r_ = std::exchange(other.r_, nullptr);
            memory_ = std::exchange(other.memory_, nullptr);
            bytes_ = std::exchange(other.bytes_, 0);
        }
        return *this;
    }
    ~mapping() { (void)unmap(); }

    static result<mapping> make(const handle& h, raddr_t address, std::size_t bytes,
                                unsigned int permission = REMOTE_RW,
                                const remote_mmap_options* options = nullptr) {
        mapping made;
        int error = remote_mmap(h.get(), address, bytes, permission, options, &made.memory_);

        if (error)
            return result<mapping>::failed(error);
        made.r_ = h.get();
        made.bytes_ = bytes;
        return made;
    }

    std::size_t size() const { return bytes_; }
    std::byte* data() const { return static_cast<std::byte*>(memory_); }
    /* The mapping as an array of T. */
    template <plain T>
    std::span<T> as() const {
        return {static_cast<T*>(memory_), bytes_ / sizeof(T)};
    }
    /* Waits until the node has everything written before. */
    result<void> sync() const { return remote_msync(r_, memory_, bytes_); }
    result<void> unmap() {
        int error = memory_ ? remote_munmap(r_, memory_) : 0;

        memory_ = nullptr;
        bytes_ = 0;
        return error;
    }

private:
    remote_t* r_ = nullptr;
    void* memory_ = nullptr;
    std::size_t bytes_ = 0;
};

/* A registered buffer (remote_register()), unregistered when destroyed. */
class registered {
public:
    registered() = default;
    registered(registered&& other) noexcept { *this = std::move(other); }
    registered& operator=(registered&& other) noexcept {
        if (this != &other) {
            unregister();
            r_ = std::exchange(other.r_, nullptr);
            memory_ = std::exchange(other.memory_, nullptr);
        }
        return *this;
    }
    ~registered() { unregister(); }

    template <plain T>
    static result<registered> make(const handle& h, std::span<T> memory) {
        registered made;
        int error = remote_register(h.get(), memory.data(), memory.size_bytes());

        if (error)
            return result<registered>::failed(error);
        made.r_ = h.get();
        made.memory_ = memory.data();
        return made;
    }

private:
    void unregister() {
        if (memory_)
            (void)remote_unregister(r_, memory_);
    }

    remote_t* r_ = nullptr;
    void* memory_ = nullptr;
};

} // namespace remote

#endif
