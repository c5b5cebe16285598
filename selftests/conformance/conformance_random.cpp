// SPDX-License-Identifier: GPL-2.0
// Random requests, sound and spoilt; and a flood of noise beside a client that is at work.
#include <algorithm>
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "client.hpp"

namespace remora::test {

namespace {

template <typename T>
T one_of(std::initializer_list<T> choices) {
    return choices.begin()[random_u64() % choices.size()];
}

// Few ranges or many, of few bytes or more than fit; now and then one of them can't be.
Message random_vector(Client& client, unsigned int region, std::uint32_t region_bytes,
                      rmem_type type) {
    std::vector<Client::Range> ranges(1 + random_u64() % one_of({4U, 40U, RMEM_RANGES_MAX}));
    std::uint64_t bytes_max = one_of({8, 40, 300});
    std::size_t sum = 0;
    for (Client::Range& range : ranges) {
        range = {region, random_u64() % (region_bytes - bytes_max), 1 + random_u64() % bytes_max};
        if (random_u64() % 1000 == 0)
            range.offset = one_of<std::uint64_t>({region_bytes - 1, region_bytes, 0 - range.bytes});
        if (random_u64() % 1000 == 0)
            range.bytes = 0;
        sum += range.bytes;
    }
    // More than fits no datagram is refused by the carrier's size, which isn't the node's to say.
    if (ranges.size() * sizeof(rmem_range) + sum > pair().piece_bytes())
        ranges.resize(1);
    sum = 0;
    for (const Client::Range& range : ranges)
        sum += range.bytes;
    return client.vector_request(type, ranges, type == RMEM_WRITEV ? random_bytes(sum) : Bytes());
}

// A request that may be sound, may reach beyond its region, may be a copy, may be spoilt.
Message random_message(Client& client, unsigned int region, std::uint32_t region_bytes) {
    std::uint32_t page = pair().page_bytes();
    std::uint64_t offset =
        one_of<std::uint64_t>({random_u64() % region_bytes, random_u64() % region_bytes,
                               page - random_u64() % 64, 0, region_bytes - random_u64() % 5000});
    auto bytes = static_cast<std::uint32_t>(1 + random_u64() % pair().piece_bytes());
    Message message;
    switch (random_u64() % 10) {
    case 0:
    case 1:
        message = client.write_request(region, offset, random_bytes(bytes));
        break;
    case 2:
        message =
            client.read_request(region, offset, bytes * static_cast<u32>(1 + random_u64() % 4));
        message.head.piece = static_cast<u16>(RMEM_PIECE_BYTES_MIN + random_u64() % 9000);
        break;
    case 3:
        message = client.clear_request(one_of({RMEM_ZERO, RMEM_DISCARD}), region, offset, bytes);
        break;
    case 4:
        message = client.atomic_request(
            static_cast<rmem_atomic_op>(1 + random_u64() % RMEM_ATOMIC_OP_END), region,
            offset / one_of({4, 8, 16}) * 16, one_of<u32>({4, 8, 8, 16, 3}), random_u64(), 0);
        break;
    case 5:
        message = client.put_request(
            region, offset, random_bytes(one_of<std::uint32_t>({bytes, 1, 40})),
            static_cast<rmem_atomic_op>(1 + random_u64() % RMEM_ATOMIC_OP_END), region,
            one_of<std::uint64_t>({offset / 8 * 8, random_u64() % region_bytes / 8 * 8, offset}),
            one_of<u32>({4, 8, 8, 16, 0}), random_u64());
        break;
    case 6:
        message = random_vector(client, region, region_bytes, RMEM_READV);
        break;
    case 7:
        message = random_vector(client, region, region_bytes, RMEM_WRITEV);
        break;
    case 8:
        bytes = one_of<std::uint32_t>({bytes, 1, RMEM_COPY_BYTES_MAX, RMEM_COPY_BYTES_MAX + 1});
        message = client.copy_request(
            region, offset, region,
            one_of<std::uint64_t>({offset + bytes, offset - bytes, random_u64() % region_bytes}),
            bytes);
        break;
    default:
        message = client.clear_request(one_of({RMEM_ZERO, RMEM_DISCARD}), region,
                                       offset / page * page, page);
    }
    message.head.attempt = static_cast<u8>(random_u64());
    return message;
}

// Somewhere else in the window, another session's, another boot's, or bits of it flipped.
void spoil_somehow(Client& client, Message& message) {
    switch (random_u64() % 12) {
    case 0:
        message.head.floor -= std::min<std::uint64_t>(message.head.floor, random_u64() % 64);
        break;
    case 1:
        // One that finds no place for its result would be asked again and again.
        message.head.id +=
            random_u64() %
            (rmem_type_has_integer(message.head.type) ? RMEM_REPLAY / 2 : 2 * RMEM_WINDOW);
        client.next_id = std::max(client.next_id, message.head.id + 1);
        break;
    case 2:
        message.head.boot = random_u64() | 1;
        break;
    case 3:
        message.head.integrity = one_of<u8>({RMEM_LINK, RMEM_DIGEST, RMEM_FULL});
        break;
    case 4:
        message.spoil = [at = random_u64(), bit = random_u64() % 8](Bytes& datagram) {
            datagram[at % datagram.size()] ^= static_cast<std::uint8_t>(1U << bit);
        };
        break;
    case 5:
        message.spoil = [bytes = random_u64()](Bytes& datagram) {
            datagram.resize(bytes % (datagram.size() + 1));
        };
        break;
    default:
        break;
    }
}

TEST(Random, AnswersAreTheCores) {
    std::uint32_t region_bytes = 3 * pair().page_bytes();
    for (rmem_integrity level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
        Client client(level);
        unsigned int region = client.allocate(region_bytes);
        std::vector<Message> sent;
        for (int i = 0; i < 700 && !testing::Test::HasFailure(); i++) {
            Message message = random_message(client, region, region_bytes);
            message.head.floor -= std::min<std::uint64_t>(message.head.floor, 8);
            spoil_somehow(client, message);
            sent.push_back(message);
            pair().ask(message);
            if (random_u64() % 4 == 0)
                pair().ask(
                    sent[sent.size() - 1 - random_u64() % std::min<std::size_t>(sent.size(), 16)]);
        }
        client.floor = 0;
    }
}

// None frees a page: a node that is out of zeroed ones would have to be asked again, and what was
// executed the first time is seen by what stands before it.
Message random_small_message(Client& client, unsigned int region, std::uint32_t region_bytes) {
    for (;;) {
        Message message = random_message(client, region, region_bytes);
        if (message.head.type < RMEM_DISCARD || message.head.len < pair().page_bytes())
            return message;
    }
}

TEST(Random, AnswersToBundlesAreTheCores) {
    constexpr std::uint16_t datagram_bytes = 4000;
    std::uint32_t region_bytes = 3 * pair().page_bytes();
    for (rmem_integrity level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
        Client client(level, 0, datagram_bytes);
        unsigned int region = client.allocate(region_bytes);
        for (std::uint64_t at = 0; at < region_bytes; at += pair().page_bytes())
            EXPECT_EQ(client.write(region, at, {1}), RMEM_OK);
        for (int i = 0; i < 300 && !testing::Test::HasFailure(); i++) {
            std::vector<Message> messages;
            std::size_t bytes = 0;
            do {
                Message message = random_small_message(client, region, region_bytes);
                message.head.floor -= std::min<std::uint64_t>(message.head.floor, 20);
                if (random_u64() % 8 == 0)
                    spoil_somehow(client, message);
                if (!messages.empty() && random_u64() % 8 == 0)
                    message.head.id = messages.front().head.id;
                bytes += rmem_wire_payload_bytes(&message.head);
                messages.push_back(message);
            } while (messages.size() < 8 && bytes < 6000 && random_u64() % 8);
            // A READ before a change of the same bytes may get the one or the other.
            std::stable_partition(messages.begin(), messages.end(), [](const Message& message) {
                return message.head.type != RMEM_READ;
            });
            pair().ask_together(messages);
        }
        client.floor = 0;
    }
}

// Noise of every kind a stranger can make, until told to stop or out of bounds.
void make_noise(NetworkSide& network, const std::vector<Bytes>& noise,
                const std::atomic<bool>& stop) {
    constexpr int datagrams_max = 200'000;
    for (int i = 0; i < datagrams_max && !stop; i++) {
        try {
            network.send(noise[static_cast<std::size_t>(i) % noise.size()], 2);
        } catch (const std::exception&) {
            std::this_thread::yield(); // no buffer for it: that is enough noise
        }
    }
}

std::vector<Bytes> some_noise(Client& client) {
    std::vector<Bytes> noise;
    for (int i = 0; i < 64; i++) {
        noise.push_back(random_bytes(random_u64() % 2000));
        Bytes headed = random_bytes(RMEM_HEADS_BYTES(1) + random_u64() % 500);
        headed[0] = RMEM_VERSION;
        headed[1] = headed[3] = 0;
        headed[2] = 1;
        base_store_le32(headed.data() + 4, pair().space());
        headed[RMEM_HDR_BYTES] = static_cast<std::uint8_t>(1 + random_u64() % 8);
        noise.push_back(headed);
        Message forged = client.write_request(no_region, random_u64(), random_bytes(100));
        forged.key = key_random();
        noise.push_back(pair().render({forged}, pair().network().names));
    }
    return noise;
}

/*
 * Sent again until answered, as a client does: under a flood, datagrams get lost. Late answers to
 * earlier attempts and other requests don't count.
 */
std::optional<Bytes> persist(const Message& message) {
    constexpr int attempts = 200;
    constexpr int timeout_ms = 100;
    NetworkSide& network = pair().network();
    for (int i = 0; i < attempts; i++) {
        network.send(pair().render({message}, network.names), message.from);
        while (std::optional<Bytes> answer = network.receive(message.from, timeout_ms)) {
            std::optional<rmem_head> head = wire::answer_head(*answer);
            if (head && head->id == message.head.id && head->status == RMEM_OK)
                return answer;
        }
    }
    return std::nullopt;
}

TEST(Flood, AnotherClientIsServed) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(pair().page_bytes());
    std::vector<Bytes> noise = some_noise(client);
    std::atomic<bool> stop{false};
    NetworkSide& network = pair().network();
    std::jthread stranger([&] { make_noise(network, noise, stop); });
    for (std::uint32_t i = 0; i < 100; i++) {
        Bytes data = random_bytes(128);
        if (!persist(client.write_request(region, i * 128, data))) {
            ADD_FAILURE() << "write " << i << " is not answered";
            break;
        }
        std::optional<Bytes> read = persist(client.read_request(region, i * 128, 128));
        if (!read || !std::equal(data.begin(), data.end(), read->begin() + RMEM_HEADS_BYTES(1))) {
            ADD_FAILURE() << "read " << i << " is not answered, or with something else";
            break;
        }
        if (::testing::Test::HasFailure())
            break;
    }
    stop = true;
    stranger.join();
    // Once this is answered the noise is behind it; what copies of it are left, the fence takes.
    EXPECT_TRUE(persist(client.clear_request(RMEM_ZERO, region, 0, pair().page_bytes())));
    network.exchange({0}, 0);
    EXPECT_EQ(client.ask(client.clear_request(RMEM_ZERO, region, 0, pair().page_bytes())), RMEM_OK);
    EXPECT_FALSE(network.receive(2, 0)) << "noise is answered";
}

} // namespace

} // namespace remora::test
