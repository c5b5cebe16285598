// SPDX-License-Identifier: MIT
#include "src/api/checked.hpp"

#include <span>
#include <string>
#include <utility>

namespace remora::lib {

namespace {

// No structure will ever be longer: a size beyond is one that was never set.
constexpr std::size_t structure_bytes_max = 4096;

thread_local std::string why;
thread_local std::uint64_t own_timeout_us = 0; // remote_timeout()'s

} // namespace

int fail(int error, const char* text) noexcept {
    try {
        why = text;
    } catch (const std::bad_alloc&) {
        why.clear();
    }
    return error;
}

Clock::time_point limit() {
    return own_timeout_us ? from_now(own_timeout_us) : never;
}

int check(const remote_t* r) {
    if (!r)
        return -EINVAL;
    const Handle* handle = handle_of(r);
    if (!handle)
        return -EBADF;
    return handle->is_foreign() ? -ECHILD : 0;
}

int check_range(const remote_t* r, raddr_t address, const void* buffer, std::size_t bytes) {
    if (int error = check(r))
        return error;
    if (!bytes || !buffer || address + bytes < address || is_mapped(buffer, bytes))
        return -EINVAL;
    return 0;
}

void check_size(const void* options, std::string_view name, std::size_t bytes, std::size_t known,
                std::size_t least) {
    if (bytes < least || bytes > structure_bytes_max)
        throw Misuse("the options' size is {}: set it to sizeof(struct {})", bytes, name);
    if (bytes <= known)
        return;
    std::span tail(static_cast<const std::uint8_t*>(options) + known, bytes - known);
    if (std::ranges::any_of(tail, [](std::uint8_t byte) { return byte != 0; }))
        throw Misuse("struct {} sets a field that this version of libremote doesn't know", name);
}

} // namespace remora::lib

REMOTE_API const char* remote_why(void) {
    return remora::lib::why.c_str();
}

REMOTE_API uint64_t remote_timeout(uint64_t timeout_us) {
    return std::exchange(remora::lib::own_timeout_us, timeout_us);
}
