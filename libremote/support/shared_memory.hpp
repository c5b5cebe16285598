// SPDX-License-Identifier: MIT
// Files of memory that processes share, and their descriptors on the way through a Unix socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "support/descriptor.hpp"

namespace remora {

// Zeroed memory of a size that no holder can change. closed_to_writers: mappings made from now on
// can only be read; the ones before stay writable. Throws Failure.
Descriptor shared_file(const char* name, std::size_t bytes);
void close_to_writers(const Descriptor& file);

// A mapping of a file. A child of fork() doesn't have it.
class Mapping {
public:
    Mapping() = default;
    // at: where to, replacing what is there; null: anywhere. Throws Failure.
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

// Files that travel with one message, at most.
inline constexpr std::size_t files_max = 3;

// One message with these files. Never waits. False: errno says why.
bool send_files(int fd, std::span<const std::uint8_t> message, std::span<const int> files);
// Returns the bytes of the message as recvmsg() does, without waiting; files: as many as came.
ssize_t receive_files(int fd, std::span<std::uint8_t> message, std::vector<Descriptor>& files);

} // namespace remora
