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

#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <remote/lock.h>
#include <remote/remote.h>

namespace remote {

template <typename T>
class result;

namespace detail {

/* Ends the program, in every build: it would go on with a value that nobody has. */
inline void require(bool holds, const char* what) {
    if (holds) [[likely]]
        return;
    std::fprintf(stderr, "remote: %s\n", what);
    std::abort();
}

template <typename T>
inline constexpr bool is_result = false;
template <typename T>
inline constexpr bool is_result<result<T>> = true;

} // namespace detail

/*
 * A value, or a negative errno. value(), * and -> abort the program if there is no value. A result
 * of bool is no condition: ask for error(), and then for its value.
 */
template <typename T>
class [[nodiscard]] result {
public:
    using value_type = T;

    result(T value) : value_(std::in_place, std::move(value)) {}
    /* error: a negative errno. */
    static result failed(int error) {
        detail::require(error < 0, "result::failed() needs a negative errno");
        return result(error_tag{error});
    }

    explicit operator bool() const requires(!std::same_as<T, bool>) { return has_value(); }
    bool has_value() const { return value_.has_value(); }
    /* 0: no error. */
    int error() const { return error_; }
    T& value() & { return *checked(); }
    const T& value() const& { return *checked(); }
    T&& value() && { return std::move(*checked()); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*checked()); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    T value_or(T other) const& { return value_.value_or(std::move(other)); }
    T value_or(T other) && { return std::move(value_).value_or(std::move(other)); }

    /* next(value), which returns a result; or this error. */
    template <typename Next>
    auto and_then(Next&& next) const& {
        return chained(value_, std::forward<Next>(next));
    }
    template <typename Next>
    auto and_then(Next&& next) && {
        return chained(std::move(value_), std::forward<Next>(next));
    }
    /* A result that holds to(value); or this error. */
    template <typename To>
    auto transform(To&& to) const& {
        return and_then(wrapped(std::forward<To>(to)));
    }
    template <typename To>
    auto transform(To&& to) && {
        return std::move(*this).and_then(wrapped(std::forward<To>(to)));
    }

private:
    struct error_tag {
        int error;
    };

    explicit result(error_tag failed) : error_(failed.error) {}
    std::optional<T>& checked() {
        detail::require(has_value(), "a result without a value was asked for it");
        return value_;
    }
    const std::optional<T>& checked() const {
        detail::require(has_value(), "a result without a value was asked for it");
        return value_;
    }
    template <typename Value, typename Next>
    auto chained(Value&& value, Next&& next) const {
        using next_result =
            std::remove_cvref_t<std::invoke_result_t<Next, decltype(*std::forward<Value>(value))>>;
        static_assert(detail::is_result<next_result>,
                      "and_then() takes a function that returns a result");

        return value ? std::invoke(std::forward<Next>(next), *std::forward<Value>(value))
                     : next_result::failed(error_);
    }
    template <typename To>
    static auto wrapped(To&& to) {
        return [&to](auto&& value) {
            using made = std::remove_cvref_t<std::invoke_result_t<To, decltype(value)>>;

            if constexpr (std::is_void_v<made>) {
                std::invoke(std::forward<To>(to), std::forward<decltype(value)>(value));
                return result<void>(0);
            } else {
                return result<made>(
                    std::invoke(std::forward<To>(to), std::forward<decltype(value)>(value)));
            }
        };
    }

    std::optional<T> value_; /* none: there is an error */
    int error_ = 0;
};

/* Done, or a negative errno. */
template <>
class [[nodiscard]] result<void> {
public:
    using value_type = void;

    result(int error) : error_(error < 0 ? error : 0) {}
    static result failed(int error) { return error; }
    explicit operator bool() const { return !error_; }
    bool has_value() const { return !error_; }
    int error() const { return error_; }

    /* next(), which returns a result; or this error. */
    template <typename Next>
    auto and_then(Next&& next) const {
        using next_result = std::remove_cvref_t<std::invoke_result_t<Next>>;
        static_assert(detail::is_result<next_result>,
                      "and_then() takes a function that returns a result");

        return error_ ? next_result::failed(error_) : std::invoke(std::forward<Next>(next));
    }
    /* A result that holds to(); or this error. */
    template <typename To>
    auto transform(To&& to) const {
        using made = std::remove_cvref_t<std::invoke_result_t<To>>;

        return and_then([&to]() -> result<made> {
            if constexpr (std::is_void_v<made>)
                return std::invoke(std::forward<To>(to)), 0;
            else
                return std::invoke(std::forward<To>(to));
        });
    }

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
    /* At that address, or -EADDRNOTAVAIL; with REMOTE_ANYWHERE in permission perhaps elsewhere. */
    result<raddr_t> alloc_at(raddr_t wanted, uint64_t bytes,
                             unsigned int permission = REMOTE_RW) const {
        raddr_t address = 0;
        int error = remote_alloc_at(r_, wanted, bytes, permission, &address);

        return error < 0 ? result<raddr_t>::failed(error) : result<raddr_t>(address);
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
    /* remote_list(): regions of the space from the address from on, as many as there is room for.
     */
    result<std::size_t> list(raddr_t from, std::span<remote_region> to) const {
        int listed = to.empty() ? 0 : remote_list(r_, from, to.data(), to.size());

        return listed < 0 ? result<std::size_t>::failed(listed)
                          : result<std::size_t>(static_cast<std::size_t>(listed));
    }
    /* remote_query() and remote_call(): the bytes of the result. function.detail tells why it
     * failed. */
    result<std::size_t> query(remote_function& function) const {
        int error = remote_query(r_, &function);

        return error ? result<std::size_t>::failed(error)
                     : result<std::size_t>(function.result_bytes);
    }
    result<std::size_t> call(remote_function& function) const {
        int error = remote_call(r_, &function);

        return error ? result<std::size_t>::failed(error)
                     : result<std::size_t>(function.result_bytes);
    }
    /* remote_lost(): the next allocation that the restart lost; none: the handle goes on. */
    result<std::optional<region>> lost() const {
        region taken;
        int told = remote_lost(r_, &taken.address, &taken.bytes);

        if (told < 0)
            return result<std::optional<region>>::failed(told);
        return told ? std::optional(taken) : std::nullopt;
    }

    /* An empty span, here and below, does nothing, without an error, at any address. */
    result<void> read(raddr_t address, std::span<std::byte> to) const {
        return to.empty() ? 0 : remote_read(r_, address, to.data(), to.size());
    }
    result<void> write(raddr_t address, std::span<const std::byte> from) const {
        return from.empty() ? 0 : remote_write(r_, address, from.data(), from.size());
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
        return pieces.empty() ? 0 : remote_readv(r_, pieces.data(), pieces.size());
    }
    result<void> writev(std::span<const remote_vec> pieces) const {
        return pieces.empty() ? 0 : remote_writev(r_, pieces.data(), pieces.size());
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
        detail::require(index < size_, "an index beyond the end of a span");
        return {r_, address_ + index * sizeof(T)};
    }
    span subspan(std::size_t from, std::size_t size) const {
        detail::require(holds(from, size), "a part beyond the end of a span");
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

namespace detail {

/* A resource that a handle gave out by a key; the destructor gives it back. */
template <typename Key, int (*give_back)(remote_t*, Key)>
class owner {
public:
    owner() = default;
    owner(remote_t* r, Key key) : r_(r), key_(key) {}
    owner(owner&& other) noexcept : r_(other.release()), key_(other.key_) {}
    owner& operator=(owner&& other) noexcept {
        if (this != &other) {
            (void)reset();
            r_ = other.release();
            key_ = other.key_;
        }
        return *this;
    }
    /* No caller is there to be told of an error. */
    ~owner() { (void)reset(); }

    /* NULL: owns nothing. */
    remote_t* handle() const { return r_; }
    Key key() const { return r_ ? key_ : Key{}; }
    remote_t* release() { return std::exchange(r_, nullptr); }
    int reset() {
        remote_t* r = release();

        return r ? give_back(r, key_) : 0;
    }

private:
    remote_t* r_ = nullptr;
    Key key_{};
};

} // namespace detail

/*
 * Allocated memory, initially zero, freed when destroyed. A node that doesn't answer then keeps it:
 * call free() to learn of that.
 */
class allocation {
public:
    static result<allocation> make(const handle& h, std::uint64_t bytes,
                                   unsigned int permission = REMOTE_RW) {
        return h.alloc(bytes, permission).transform([&](raddr_t address) {
            allocation made;

            made.owner_ = {h.get(), address};
            made.bytes_ = bytes;
            return made;
        });
    }

    /* 0: none, or it was freed, released or moved. */
    raddr_t address() const { return owner_.key(); }
    std::uint64_t bytes() const { return owner_.handle() ? bytes_ : 0; }
    remote_t* get() const { return owner_.handle(); }
    /* The memory stays, and its address is the caller's to free. */
    raddr_t release() {
        raddr_t address = owner_.key();

        owner_.release();
        return address;
    }
    result<void> free() { return owner_.reset(); }

private:
    detail::owner<raddr_t, remote_free> owner_;
    std::uint64_t bytes_ = 0;
};

/* An array in remote memory, initially zero, freed when destroyed. */
template <plain T>
class vector {
public:
    static result<vector> make(const handle& h, std::size_t size) {
        if (size > std::numeric_limits<std::size_t>::max() / sizeof(T))
            return result<vector>::failed(-EINVAL);
        return allocation::make(h, size * sizeof(T)).transform([&](allocation&& memory) {
            vector made;

            made.memory_ = std::move(memory);
            return made;
        });
    }

    std::size_t size() const { return memory_.bytes() / sizeof(T); }
    raddr_t address() const { return memory_.address(); }
    operator span<T>() const { return {memory_.get(), address(), size()}; }
    ptr<T> operator[](std::size_t index) const { return span<T>(*this)[index]; }
    /* As those of the span. */
    result<void> read(std::size_t from, std::span<T> to) const {
        return span<T>(*this).read(from, to);
    }
    result<void> write(std::size_t from, std::span<const T> data) const {
        return span<T>(*this).write(from, data);
    }

private:
    allocation memory_;
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

    /* Reads it whole; read permission is enough. */
    result<T> load() const {
        uint64_t found = 0;
        int error = remote_wait(r_, address_, sizeof(T), REMOTE_GE, 0, 0, &found);

        return error ? result<T>::failed(error) : result<T>(static_cast<T>(found));
    }
    result<void> store(T value) const {
        return remote_fetch(r_, address_, sizeof(T), REMOTE_SWAP, bits(value), nullptr);
    }
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
    /* remote_wait(): waits until the integer compares so, and returns it. -EAGAIN: the time is
     * up.
     */
    result<T> wait(remote_compare compare, T value,
                   uint64_t timeout_us = std::numeric_limits<uint64_t>::max())
        const requires std::unsigned_integral<T> {
        uint64_t found = 0;
        int error = remote_wait(r_, address_, sizeof(T), compare, value, timeout_us, &found);

        return error ? result<T>::failed(error) : result<T>(static_cast<T>(found));
    }
    /*
     * True: the integer was expected and is now desired. False: expected is the integer found,
     * for the next try.
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

/*
 * Holds a lock (remote_lock()) from its construction until destroyed. A lock belongs to the thread
 * that took it, so the object can't be moved.
 *
 *	remote::held_lock held(handle, lock);
 *	if (!held)
 *		return held.error();
 */
class [[nodiscard]] held_lock {
public:
    held_lock(const handle& h, raddr_t lock)
        : r_(h.get()), lock_(lock), taken_(remote_lock(r_, lock)) {}
    held_lock(const held_lock&) = delete;
    held_lock& operator=(const held_lock&) = delete;
    ~held_lock() { (void)give(); }

    /* Did the thread get it, and not give it back since? */
    explicit operator bool() const { return taken_ >= 0; }
    /* remote_lock()'s, a negative errno; -EPERM: given back. 0: held. */
    int error() const { return taken_ < 0 ? taken_ : 0; }
    /* The previous holder's lease expired: the protected data might be half changed. */
    bool passed_over() const { return taken_ == 1; }
    result<void> extend() const { return taken_ < 0 ? -EPERM : remote_lock_extend(r_, lock_); }
    /* Releases the lock before destruction. -EPERM: this thread had lost it before. */
    result<void> give() {
        int error = taken_ < 0 ? 0 : remote_unlock(r_, lock_);

        if (taken_ >= 0 && error != -ETIMEDOUT)
            taken_ = -EPERM;
        return error;
    }

private:
    remote_t* r_;
    raddr_t lock_;
    int taken_; /* remote_lock()'s result */
};

/*
 * A range of remote memory mapped into the process (remote_mmap()), unmapped when destroyed. Call
 * unmap() to learn whether all changes were written back.
 */
class mapping {
public:
    static result<mapping> make(const handle& h, raddr_t address, std::size_t bytes,
                                unsigned int permission = REMOTE_RW,
                                const remote_mmap_options* options = nullptr) {
        mapping made;
        void* memory = nullptr;
        int error = remote_mmap(h.get(), address, bytes, permission, options, &memory);

        if (error)
            return result<mapping>::failed(error);
        made.owner_ = {h.get(), memory};
        made.bytes_ = bytes;
        return made;
    }

    std::size_t size() const { return owner_.handle() ? bytes_ : 0; }
    std::byte* data() const { return static_cast<std::byte*>(owner_.key()); }
    /* The mapping as an array of T. */
    template <plain T>
    std::span<T> as() const {
        return {static_cast<T*>(owner_.key()), size() / sizeof(T)};
    }
    /* Waits until the node has everything written before. */
    result<void> sync() const { return remote_msync(owner_.handle(), owner_.key(), size()); }
    result<void> unmap() { return owner_.reset(); }

private:
    detail::owner<void*, remote_munmap> owner_;
    std::size_t bytes_ = 0;
};

/* A registered buffer (remote_register()), unregistered when destroyed. */
class registered {
public:
    template <plain T>
    static result<registered> make(const handle& h, std::span<T> memory) {
        registered made;
        int error = remote_register(h.get(), memory.data(), memory.size_bytes());

        if (error)
            return result<registered>::failed(error);
        made.owner_ = {h.get(), memory.data()};
        return made;
    }

private:
    detail::owner<void*, remote_unregister> owner_;
};

} // namespace remote

#endif
