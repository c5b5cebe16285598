// SPDX-License-Identifier: MIT
#include "src/backend/buffers.hpp"

#include <bit>
#include <cerrno>
#include <iterator>

namespace remora::lib {

static_assert(REMOTE_BUFFERS_MAX == 64); // as many as free_ has bits

Buffers::Buffers(Backend& backend) : backend_(&backend), free_(~std::uint64_t{0}) {}

int Buffers::add(std::uint8_t* memory, std::size_t bytes) {
    std::lock_guard lock(lock_);
    auto next = by_begin_.lower_bound(memory);
    bool overlaps = next != by_begin_.end() && next->first < memory + bytes;
    if (next != by_begin_.begin()) {
        const auto& [begin, before] = *std::prev(next);
        overlaps |= begin + before.bytes > memory;
    }
    if (overlaps)
        return -EEXIST;
    if (!free_)
        return -ENOSPC;
    unsigned number = static_cast<unsigned>(std::countr_zero(free_));
    Row made{{memory, Buffer{bytes, number}}}; // before it is registered, for it takes memory
    if (int error = backend_->keep_buffer(number, {memory, bytes}))
        return error;
    by_begin_.merge(made);
    free_ &= free_ - 1;
    return 0;
}

int Buffers::remove(const std::uint8_t* memory) {
    std::lock_guard lock(lock_);
    auto found = by_begin_.find(memory);
    if (found == by_begin_.end())
        return -EINVAL;
    backend_->drop_buffer(found->second.number);
    free_ |= std::uint64_t{1} << found->second.number;
    by_begin_.erase(found);
    return 0;
}

// Drops the buffer from the previous backend first, for pinned memory is limited.
int Buffers::move_to(Backend& backend) {
    std::lock_guard lock(lock_);
    for (const auto& [begin, buffer] : by_begin_)
        backend_->drop_buffer(buffer.number);
    for (const auto& [begin, buffer] : by_begin_) {
        if (int error = backend.keep_buffer(buffer.number,
                                            {const_cast<std::uint8_t*>(begin), buffer.bytes}))
            return error;
    }
    backend_ = &backend;
    return 0;
}

} // namespace remora::lib
