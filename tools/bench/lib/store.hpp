// SPDX-License-Identifier: GPL-2.0
// Objects of one size behind a network, known by number: what the library and its peers have in
// common.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/failure.hpp"

namespace remora::bench {

inline constexpr std::uint32_t objects = 1024;

// Content of the objects. The number comes first, so that the answer to another request is noticed.
class Values {
public:
    explicit Values(std::uint32_t bytes) : bytes_(bytes), data_(std::size_t{objects} * bytes) {
        for (std::uint32_t i = 0; i < objects; i++) {
            std::memset(&data_[std::size_t{i} * bytes], static_cast<int>(i), bytes);
            std::memcpy(&data_[std::size_t{i} * bytes], &i, sizeof(i));
        }
    }
    std::uint32_t bytes() const { return bytes_; }
    std::span<const char> of(std::uint32_t object) const {
        return std::span(data_).subspan(std::size_t{object} * bytes_, bytes_);
    }
    void check(std::uint32_t object, const char* data, std::size_t bytes) const {
        if (bytes != bytes_ || std::memcmp(data, &object, sizeof(object)) != 0)
            throw Failure("object {} came back as {} bytes of something else", object, bytes);
    }

private:
    std::uint32_t bytes_;
    std::vector<char> data_;
};

class Store {
public:
    virtual ~Store() = default;
    // All objects are there afterwards.
    virtual void fill() = 0;
    virtual void read(std::uint32_t object) = 0;
    virtual void write(std::uint32_t object) = 0;
    // The same with all of them, which are different ones, under way at once.
    virtual void read_all(std::span<const std::uint32_t> list) = 0;
    virtual void write_all(std::span<const std::uint32_t> list) = 0;
};

// target: what remote_open() takes, or the port of a server on this machine, of memcached also the
// path of its Unix socket. Throw Failure.
std::unique_ptr<Store> open_remote(const std::string& target, std::uint32_t bytes,
                                   std::uint32_t integrity);
// The same by a completion queue, where open_remote() has one vectored call.
std::unique_ptr<Store> open_queue(const std::string& target, std::uint32_t bytes,
                                  std::uint32_t integrity);
std::unique_ptr<Store> open_memcached(const std::string& target, std::uint32_t bytes);
std::unique_ptr<Store> open_redis(const std::string& target, std::uint32_t bytes);
// target: processors of server and client, SERVER,CLIENT. crosses: the object goes from one's cache
// to the other's.
std::unique_ptr<Store> open_floor(const std::string& target, std::uint32_t bytes, bool crosses);
std::unique_ptr<Store> open_udp(const std::string& target, std::uint32_t bytes, bool spin);

} // namespace remora::bench
