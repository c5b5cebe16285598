/* SPDX-License-Identifier: MIT */
/*
 * A std::pmr::memory_resource whose memory is remote: containers larger than this machine's memory.
 *
 *	auto mapped = remote::mapping::make(handle, address, bytes);
 *	if (!mapped)
 *		return fail(remote_why());
 *	remote::mapped_resource remote(std::move(*mapped));
 *	std::pmr::unordered_map<int, std::pmr::string> table(&remote);
 *
 * The rules of mappings in remote.h hold for the objects in it: a page that can't be read is
 * SIGBUS, and other clients see changes when pages are written back. Objects with pointers are of
 * use to this process alone.
 */
#ifndef REMOTE_PMR_HPP
#define REMOTE_PMR_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory_resource>
#include <new>
#include <utility>

#include <remote/remote.hpp>

namespace remote {

namespace detail {

/*
 * Hands out ranges of memory, first fit, and keeps its lists in local memory. Few ranges are in use
 * at a time, since small blocks come from a pool above it.
 */
class arena final : public std::pmr::memory_resource {
public:
    arena(std::byte* memory, std::size_t bytes) : memory_(memory) {
        if (bytes)
            blocks_.emplace(0, block{bytes, false});
    }

private:
    struct block {
        std::size_t bytes;
        bool used;
    };
    /* By offset, without gaps. */
    using blocks = std::map<std::size_t, block>;

    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
        bytes = std::max<std::size_t>(bytes, 1);
        for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
            const auto address = reinterpret_cast<std::uintptr_t>(memory_ + at->first);
            const std::size_t before = (alignment - address % alignment) % alignment;

            if (!at->second.used && before <= at->second.bytes &&
                bytes <= at->second.bytes - before) {
                auto from = split(at, before);

                split(from, bytes);
                from->second.used = true;
                return memory_ + from->first;
            }
        }
        throw std::bad_alloc();
    }
    /* Needs no memory. */
    void do_deallocate(void* memory, std::size_t, std::size_t) override {
        auto at = blocks_.find(static_cast<std::size_t>(static_cast<std::byte*>(memory) - memory_));

        require(at != blocks_.end() && at->second.used, "memory is freed that isn't allocated");
        at->second.used = false;
        join(at);
        if (at != blocks_.begin())
            join(std::prev(at));
    }
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
        return this == &other;
    }

    /* Splits a free block in two; returns the part that begins `bytes` into it. */
    blocks::iterator split(blocks::iterator at, std::size_t bytes) {
        const std::size_t rest = at->second.bytes - bytes;

        if (!bytes || !rest)
            return bytes ? std::next(at) : at;
        auto made = blocks_.emplace_hint(std::next(at), at->first + bytes, block{rest, false});
        at->second.bytes = bytes;
        return made;
    }
    /* A free block takes in the one behind it, if that is free. */
    void join(blocks::iterator at) {
        auto next = std::next(at);

        if (at->second.used || next == blocks_.end() || next->second.used)
            return;
        at->second.bytes += next->second.bytes;
        blocks_.erase(next);
    }

    std::byte* memory_;
    blocks blocks_;
};

} // namespace detail

/*
 * Owns the mapping; MUST outlive the memory allocated from it. Allocating throws std::bad_alloc
 * when the mapping has no room, or this process no memory. For one thread at a time.
 */
class mapped_resource final : public std::pmr::memory_resource {
public:
    explicit mapped_resource(mapping memory)
        : memory_(std::move(memory)), arena_(memory_.data(), memory_.size()), pool_(&arena_) {}

    std::byte* data() const { return memory_.data(); }
    /* Waits until the node has everything written before. */
    result<void> sync() const { return memory_.sync(); }

private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
        return pool_.allocate(bytes, alignment);
    }
    void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
        pool_.deallocate(memory, bytes, alignment);
    }
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
        return this == &other;
    }

    mapping memory_;
    detail::arena arena_;
    std::pmr::unsynchronized_pool_resource pool_;
};

} // namespace remote

#endif
