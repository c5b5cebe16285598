// SPDX-License-Identifier: MIT
/*
 * The buffers a program has registered with a handle, remote_register(): which they are, and the
 * number a backend knows each by.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "src/backend/backend.hpp"

namespace remora::lib {

class Buffers {
public:
    explicit Buffers(Backend& backend);

    // -EEXIST: it overlaps a registered one. -ENOSPC: REMOTE_BUFFERS_MAX are registered. Throws
    // bad_alloc.
    int add(std::uint8_t* memory, std::size_t bytes);
    // -EINVAL: no registration begins there.
    int remove(const std::uint8_t* memory);
    // Registers all buffers with the backend that replaces the previous one. On an error some
    // aren't registered.
    int move_to(Backend& backend);

private:
    struct Buffer {
        std::size_t bytes;
        unsigned number;
    };

    using Row = std::map<const std::uint8_t*, Buffer>;

    std::mutex lock_; // all below
    Backend* backend_;
    Row by_begin_;
    std::uint64_t free_; // a bit for each number
};

} // namespace remora::lib
