// SPDX-License-Identifier: GPL-2.0
#include "client.hpp"

#include <gtest/gtest.h>

namespace remora::test {

Client::Client(rmem_integrity level, unsigned int from, std::uint16_t datagram_bytes, bool reader)
    : level_(level), from_(from), datagram_bytes_(datagram_bytes), reader_(reader) {
    Bytes random = random_bytes(name.size());
    std::copy(random.begin(), random.end(), name.begin());
    Answer answer = pair().ask_one(open_request());
    EXPECT_EQ(answer.head.status, RMEM_OK);
    session = answer.head.session;
}

Client::~Client() {
    if (closed)
        return;
    floor = 0;
    for (auto [region, bytes] : regions_)
        ask(free_request(region, bytes));
    ask(request(RMEM_CLOSE));
}

unsigned int Client::allocate(std::uint64_t bytes, std::uint32_t perm) {
    Answer answer = pair().ask_one(alloc_request(bytes, perm));
    EXPECT_EQ(answer.head.status, RMEM_OK);
    if (answer.payload.size() != sizeof(rmem_range))
        return no_region;
    auto region = static_cast<unsigned int>(base_load_le64(answer.payload.data()));
    regions_[region] = base_load_le64(answer.payload.data() + offsetof(rmem_range, bytes));
    return region;
}

Message Client::request(rmem_type type) {
    Message message;
    message.from = from_;
    message.head.type = type;
    message.head.integrity = level_;
    message.head.space = reader_ ? pair().view() : pair().space();
    if (reader_)
        message.key = pair().view_key();
    message.head.session = session;
    message.head.boot = this_boot;
    message.head.id = next_id++;
    message.head.floor = floor ? floor : message.head.id;
    return message;
}

Message Client::open_request() {
    Message message = request(RMEM_OPEN);
    message.head.session = 0;
    message.head.boot = 0;
    message.head.id = nonce += 1 + random_u64() % 1000;
    message.head.floor = 0;
    message.head.len = sizeof(rmem_open);
    rmem_open open{};
    std::copy(name.begin(), name.end(), open.client);
    open.integrity = level_;
    base_store_le16(&open.datagram_bytes, datagram_bytes_);
    message.payload = [open](const Names&) { return wire::bytes_of(open); };
    next_id--;
    return message;
}

Message Client::alloc_request(std::uint64_t bytes, std::uint32_t perm, std::uint64_t addr) {
    Message message = request(RMEM_ALLOC);
    message.head.len = sizeof(rmem_alloc);
    message.payload = [=](const Names&) {
        return wire::bytes_of(wire::alloc_of(bytes, addr, perm));
    };
    return message;
}

Message Client::free_request(unsigned int region, std::uint64_t bytes) {
    Message message = request(RMEM_FREE);
    message.head.len = sizeof(rmem_range);
    message.payload = [=](const Names& names) {
        return wire::bytes_of(wire::range_of(names.base[region], bytes));
    };
    return message;
}

Message Client::read_request(unsigned int region, std::uint64_t offset, std::uint32_t bytes) {
    Message message = request(RMEM_READ);
    message.region = region;
    message.head.addr = offset;
    message.head.len = bytes;
    message.head.piece = static_cast<u16>(pair().piece_bytes());
    return message;
}

Message Client::write_request(unsigned int region, std::uint64_t offset, const Bytes& data) {
    Message message = request(RMEM_WRITE);
    message.region = region;
    message.head.addr = offset;
    message.head.len = static_cast<u32>(data.size());
    message.payload = [data](const Names&) { return data; };
    return message;
}

Message Client::clear_request(rmem_type type, unsigned int region, std::uint64_t offset,
                              std::uint32_t bytes) {
    Message message = request(type);
    message.region = region;
    message.head.addr = offset;
    message.head.len = bytes;
    return message;
}

Message Client::atomic_request(rmem_atomic_op op, unsigned int region, std::uint64_t offset,
                               std::uint32_t bytes, std::uint64_t value, std::uint64_t compare) {
    Message message = request(RMEM_ATOMIC);
    message.region = region;
    message.head.op = op;
    message.head.addr = offset;
    message.head.len = bytes;
    message.payload = [=](const Names&) {
        return wire::bytes_of(wire::operands_of(value, compare));
    };
    return message;
}

Message Client::put_request(unsigned int region, std::uint64_t offset, const Bytes& data,
                            rmem_atomic_op op, unsigned int integer_region, std::uint64_t integer,
                            std::uint32_t bytes, std::uint64_t value) {
    Message message = request(RMEM_PUT);
    message.region = region;
    message.head.op = op;
    message.head.addr = offset;
    message.head.len = static_cast<u32>(data.size());
    message.payload = [=](const Names& names) {
        rmem_put put = wire::put_of(names.base[integer_region] + integer, value, bytes);
        return wire::followed_by(wire::bytes_of(put), data);
    };
    return message;
}

Message Client::copy_request(unsigned int region, std::uint64_t to, unsigned int from_region,
                             std::uint64_t from, std::uint32_t bytes) {
    Message message = request(RMEM_COPY);
    message.region = region;
    message.head.addr = to;
    message.head.len = bytes;
    message.payload = [=](const Names& names) {
        return wire::bytes_of(wire::copy_of(names.base[from_region] + from));
    };
    return message;
}

Message Client::publish_request(unsigned int region, std::string_view name) {
    Message message = request(RMEM_PUBLISH);
    message.head.len = sizeof(rmem_named);
    message.payload = [region, name = std::string(name)](const Names& names) {
        return wire::bytes_of(wire::named_of(name, names.base[region]));
    };
    return message;
}

Message Client::withdraw_request(std::string_view name) {
    Message message = request(RMEM_PUBLISH);
    message.head.len = sizeof(rmem_named);
    message.payload = [name = std::string(name)](const Names&) {
        return wire::bytes_of(wire::named_of(name));
    };
    return message;
}

Message Client::lookup_request(std::string_view name) {
    Message message = withdraw_request(name);
    message.head.type = RMEM_LOOKUP;
    return message;
}

Message Client::vector_request(rmem_type type, const std::vector<Range>& ranges,
                               const Bytes& data) {
    Message message = request(type);
    message.head.op = static_cast<u8>(ranges.size());
    for (const Range& range : ranges)
        message.head.len += static_cast<u32>(range.bytes);
    message.payload = [=](const Names& names) {
        std::vector<wire::Range> wired;
        for (const Range& range : ranges)
            wired.push_back({names.base[range.region] + range.offset, range.bytes});
        return wire::followed_by(wire::ranges_of(wired), data);
    };
    return message;
}

rmem_status Client::ask(const Message& message) {
    return static_cast<rmem_status>(pair().ask_one(message).head.status);
}

Bytes Client::read(unsigned int region, std::uint64_t offset, std::uint32_t bytes) {
    Bytes data;
    for (const Answer& part : pair().ask(read_request(region, offset, bytes))) {
        EXPECT_EQ(part.head.status, RMEM_OK);
        EXPECT_EQ(part.head.offset, data.size());
        data.insert(data.end(), part.payload.begin(), part.payload.end());
    }
    return data;
}

rmem_status Client::write(unsigned int region, std::uint64_t offset, const Bytes& data) {
    return ask(write_request(region, offset, data));
}

} // namespace remora::test
