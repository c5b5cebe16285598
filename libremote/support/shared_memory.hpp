// SPDX-License-Identifier: MIT
// Files of memory that processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <sys/mman.h>

#include "support/descriptor.hpp"

namespace remora {

// Zeroed memory of a size that no holder can change. Throws Failure.
Descriptor shared_file(const char* name, std::size_t bytes);

// A mapping of a file. A child of fork() doesn't have it.
class Mapping {
public:
    Mapping() = default;
    // at: the address, replacing mappings there; null: anywhere. Throws Failure.
    Mapping(const Descriptor& file, std::size_t bytes, int protection, void* at = nullptr);
    Mapping(Mapping&& other) noexcept
        : at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(at_, other.at_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Mapping() {
        if (at_)
            munmap(at_, bytes_);
    }
    std::uint8_t* data() const { return static_cast<std::uint8_t*>(at_); }
    explicit operator bool() const { return at_; }

private:
    void* at_ = nullptr;
    std::size_t bytes_ = 0;
};

// Is the file of at least that size, and sealed against shrinking?
bool keeps_its_size(const Descriptor& file, std::size_t bytes);

} // namespace remora
