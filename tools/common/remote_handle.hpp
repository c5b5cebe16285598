// SPDX-License-Identifier: GPL-2.0
// The C interface, as programs see it, with errors thrown and things given back at the end.
#pragma once

#include <cstring>
#include <string>
#include <utility>

#include <remote/remote.h>

#include "support/failure.hpp"

namespace remora {

inline void must(int result, const char* what) {
    if (result)
        throw Failure("{}: {}", what, std::strerror(-result));
}

class RemoteHandle {
public:
    explicit RemoteHandle(const std::string& target, std::uint32_t integrity = REMOTE_DIGEST) {
        remote_options options{};
        options.size = sizeof(options);
        options.integrity = integrity;
        if (remote_open(&r_, target.c_str(), &options))
            throw Failure("{}", remote_why());
    }
    RemoteHandle(RemoteHandle&& other) noexcept : r_(std::exchange(other.r_, nullptr)) {}
    RemoteHandle& operator=(RemoteHandle&&) = delete;
    ~RemoteHandle() { remote_close(r_); }
    remote_t* get() const { return r_; }

private:
    remote_t* r_ = nullptr;
};

// The handle has to stay where it is.
class RemoteRegion {
public:
    RemoteRegion(const RemoteHandle& handle, std::uint64_t bytes) : handle_(handle) {
        must(ralloc(handle_.get(), bytes, REMOTE_RW, &address_), "ralloc");
    }
    RemoteRegion(const RemoteRegion&) = delete;
    RemoteRegion& operator=(const RemoteRegion&) = delete;
    ~RemoteRegion() { rfree(handle_.get(), address_); }
    raddr_t address() const { return address_; }

private:
    const RemoteHandle& handle_;
    raddr_t address_ = 0;
};

} // namespace remora
