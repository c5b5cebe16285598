// SPDX-License-Identifier: GPL-2.0
// One session of a client as the tests drive it, against both sides of a pair.
#pragma once

#include "pair.hpp"

namespace remora::test {

// The pair all tests share, and the random numbers they draw from.
Pair& pair();
std::uint64_t random_u64();
Bytes random_bytes(std::size_t bytes);

class Client {
public:
    // Opens a session at this level, from one of the client's sockets; answers share datagrams of
    // that many bytes. A reader's is of the view.
    explicit Client(rmem_integrity level, unsigned int from = 0, std::uint16_t datagram_bytes = 0,
                    bool reader = false);
    // Frees what it allocated and closes; the node is left as it was.
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // A region of that many bytes, as a symbol.
    unsigned int allocate(std::uint64_t bytes,
                          std::uint32_t perm = RMEM_PERM_READ | RMEM_PERM_WRITE);

    // Requests to be changed and asked; each has a new id and the floor below it.
    Message request(rmem_type type);
    Message open_request();
    Message alloc_request(std::uint64_t bytes, std::uint32_t perm, std::uint64_t addr = 0);
    Message free_request(unsigned int region, std::uint64_t bytes);
    Message read_request(unsigned int region, std::uint64_t offset, std::uint32_t bytes);
    Message write_request(unsigned int region, std::uint64_t offset, const Bytes& data);
    Message clear_request(rmem_type type, unsigned int region, std::uint64_t offset,
                          std::uint32_t bytes);
    Message atomic_request(rmem_atomic_op op, unsigned int region, std::uint64_t offset,
                           std::uint32_t bytes, std::uint64_t value, std::uint64_t compare = 0);

    // The data to offset, then the integer at an offset of what may be another region.
    Message put_request(unsigned int region, std::uint64_t offset, const Bytes& data,
                        rmem_atomic_op op, unsigned int integer_region, std::uint64_t integer,
                        std::uint32_t bytes, std::uint64_t value);

    // Between offsets of what may be two regions.
    Message copy_request(unsigned int region, std::uint64_t to, unsigned int from_region,
                         std::uint64_t from, std::uint32_t bytes);

    // The region by its begin.
    Message publish_request(unsigned int region, std::string_view name);
    Message withdraw_request(std::string_view name);
    Message lookup_request(std::string_view name);

    struct Range {
        unsigned int region;
        std::uint64_t offset;
        std::uint64_t bytes;
    };
    // READV, or WRITEV with the data of all ranges.
    Message vector_request(rmem_type type, const std::vector<Range>& ranges,
                           const Bytes& data = {});

    // The answer's status; the answer is one.
    rmem_status ask(const Message& message);
    // All parts, put together; empty if it was refused.
    Bytes read(unsigned int region, std::uint64_t offset, std::uint32_t bytes);
    rmem_status write(unsigned int region, std::uint64_t offset, const Bytes& data);

    std::uint64_t session = 0;
    std::uint64_t next_id = 1;
    std::uint64_t nonce = 0; // of its last OPEN
    std::uint64_t floor = 0; // 0: each request's own id
    std::array<std::uint8_t, 16> name;
    bool closed = false; // nothing to be closed at the end

private:
    rmem_integrity level_;
    unsigned int from_;
    std::uint16_t datagram_bytes_;
    bool reader_;
    std::map<unsigned int, std::uint64_t> regions_; // allocated: bytes, rounded up
};

} // namespace remora::test
