// SPDX-License-Identifier: GPL-2.0
// Any bytes as an EQDS header, and both ends of a tunnel under any sequence of headers.
//
// A header that parses encodes to bytes that parse to the same. Whatever arrives: invariants of
// both ends hold, each packet comes back to its owner exactly once, numbers of an epoch are
// delivered in order if that is configured, none twice in two trains or alone, and an answer to a
// peer without proof is no longer than its packet.
//
// Input: configuration (1 byte), then steps of 16 bytes each, struct step below. Behind 0xff the
// bytes are a header instead.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "../unit/eqds/core.hpp"

namespace {

constexpr size_t steps_max = 256;
constexpr uint64_t cookie = 0x5eed;

void require(bool holds) {
    if (!holds)
        std::abort();
}

void require_whole(const char* broken) {
    require(!broken);
}

struct step {
    uint8_t what;
    uint8_t flags;
    uint8_t twist; // bits: fields that are the tunnel's own, not those below
    uint8_t attempt;
    int8_t number; // seq or ack, from where the tunnel is
    int8_t pull;   // pull target or pull number, from where the tunnel is
    int8_t echo;
    uint8_t epoch;
    uint32_t value;
    uint16_t busy_us;
    uint16_t bytes;
};
static_assert(sizeof(step) == 16);

bool same(const eqds_head& a, const eqds_head& b) {
    return a.control == b.control && a.tagged == b.tagged && a.flags == b.flags &&
           a.has_epoch == b.has_epoch && a.attempt == b.attempt && a.epoch == b.epoch &&
           a.pull == b.pull && a.sender == b.sender && a.seq == b.seq && a.path == b.path &&
           a.bytes == b.bytes && a.next_proto == b.next_proto && a.unacked == b.unacked &&
           a.stamp == b.stamp && a.backlog_bytes == b.backlog_bytes && a.marks == b.marks &&
           a.busy_us == b.busy_us && a.ack == b.ack && a.echo == b.echo && a.sack == b.sack &&
           a.cookie == b.cookie && a.counted == b.counted;
}

// A tag made with the key verifies, until a bit changes.
void check_tag(std::vector<uint8_t> header, const uint8_t* data, size_t size) {
    const base_siphash_key key = {{1, 2}};
    const eqds_tag_ends ends = {{1}, {2}};
    const size_t head_bytes = EQDS_DATA_BYTES + EQDS_TAG_BYTES;
    struct base_siphash payload;
    eqds_tag_payload_begin(&payload, &key);
    base_siphash_update(&payload, data + head_bytes, size - head_bytes);
    struct base_siphash again = payload;
    eqds_tag_seal(header.data(), &ends, &key, &payload);
    require(eqds_tag_check(header.data(), header.size(), &ends, &key) == EQDS_TAG_GOOD);
    require(eqds_tag_payload_verifies(header.data(), &again));
    header[8 + data[8] % (EQDS_DATA_BYTES - 8)] ^= 1;
    require(eqds_tag_check(header.data(), header.size(), &ends, &key) == EQDS_TAG_WRONG);
}

// Reads a header as a carrier does; what is good has one form on the wire.
bool read(const eqds_profile& profile, const uint8_t* data, size_t size, eqds_head* head) {
    if (eqds_wire_parse(&profile, data, size, head) != EQDS_WIRE_GOOD)
        return false;
    require(size >= eqds_wire_header_bytes(&profile, head->control));
    require(head->control == ((head->flags & EQDS_CONTROL_FLAGS) != 0));
    std::vector<uint8_t> bytes(eqds_wire_bytes(&profile, head));
    eqds_wire_encode(&profile, head, bytes.data());
    eqds_head again;
    require(eqds_wire_parse(&profile, bytes.data(), bytes.size(), &again) == EQDS_WIRE_GOOD);
    // The paper's control packets have one number: with two kinds of flags, one of them goes.
    bool two_numbers = profile.start_bits && head->control && head->flags & EQDS_ACK &&
                       head->flags & (EQDS_SACK | EQDS_NACK);
    require(two_numbers || same(*head, again));
    require(!std::memcmp(bytes.data(), data, eqds_wire_header_bytes(&profile, head->control)) ||
            two_numbers);
    if (head->tagged)
        check_tag(bytes, data, size);
    return true;
}

// Counted numbers: an IP ID tells a number that the header is for, or none.
bool count(eqds_head* head, uint16_t ip_id, uint16_t more) {
    const eqds_head was = *head;
    const uint16_t nth = ip_id - static_cast<uint16_t>(was.seq);
    const bool covers = nth + more <= was.counted;
    require(eqds_wire_count(head, ip_id, more) == covers);
    require(head->seq == was.seq + (covers ? nth : 0));
    return covers;
}

// At the receiver: with the numbers after seq that came with it.
struct Arrived : eqds_packet {
    uint32_t more;
};

class Fuzzed {
public:
    explicit Fuzzed(uint8_t options) {
        profile = options & 1 ? &eqds_profile_paper : &eqds_profile_extended;
        eqds_config_init(&config, profile, 1500, 1500 * (1 + (options >> 5)));
        config.window_packets = 16;
        config.trimming = options & 2;
        config.overdraw = options & 4;
        config.ordered = options & 8;
        config.timeouts_max = 3;
        config.strikes_max = 2 * EQDS_STRIKES_LOSS;
        require(eqds_config_is_valid(&config));
        asl_policy = options & 16 ? EQDS_ASL_PIFO : EQDS_ASL_FIFO;
        eqds_asl_init(&asl, asl_policy, 1500, 10'000'000'000, 1);
        sender_slots.resize(config.window_packets);
        receiver_slots.resize(config.window_packets);
        path.resize(4);
        eqds_paths_init(&paths, path.data(), 4, 1);
        eqds_sender_init(&sender, &config, sender_slots.data(), &paths, 7, 1, 0);
    }

    ~Fuzzed() {
        eqds_out out;
        eqds_sender_close(&sender, &out);
        sender_did(out);
        require(sent.empty());
        if (has_receiver) {
            eqds_receiver_close(&receiver, &out);
            receiver_did(out);
        }
        require(arrived.empty());
        require(!asl.active && !asl.owed_mtus);
    }

    void run(const step& s) {
        eqds_out out;
        now += s.value % 100'000;
        switch (s.what % 8) {
        case 0:
        case 1:
            offer(1 + s.bytes % 1500, many(s));
            break;
        case 2:
            to_sender(control(s));
            break;
        case 3:
            to_receiver(data(s), s.bytes % 1500, s.twist & 128 ? s.busy_us : 0, s.epoch / 3);
            break;
        case 4: // the last message of an end reaches the other
            if (s.flags & 1 && !to_receiver_last.empty())
                to_receiver(decoded(to_receiver_last), 1000, s.twist & 128 ? s.busy_us % 20 : 0,
                            s.epoch / 3);
            if (s.flags & 2 && !to_sender_last.empty())
                to_sender(decoded(to_sender_last));
            break;
        case 5:
            eqds_sender_expire(&sender, now, &out);
            require(eqds_sender_deadline_ns(&sender) > now);
            sender_did(out);
            require(eqds_sender_deadline_ns(&sender) > now);
            break;
        case 6:
            now += s.busy_us * 1000ull * (s.flags & 1 ? 1000 : 1);
            pull();
            if (has_receiver) {
                eqds_receiver_expire(&receiver, now, &out);
                require(eqds_receiver_deadline_ns(&receiver) > now);
                receiver_did(out);
            }
            break;
        case 7:
            forget(s);
            break;
        }
        require_whole(eqds_sender_check(&sender));
        if (has_receiver)
            require_whole(eqds_receiver_check(&receiver));
    }

    const eqds_profile* profile;

private:
    // Numbers after the first: of a whole packet, or of a header that counts.
    uint8_t many(const step& s) const {
        return profile->start_bits || s.what / 8 % 4 != 1 ? 0 : 1 + s.attempt % 32;
    }

    // A packet, or a whole one, whose segments have as many bytes.
    void offer(uint32_t bytes, uint16_t more) {
        if (sent.size() >= 100)
            return;
        std::vector<eqds_packet> segments(more + 1u);
        eqds_packet* packet = segments.data();
        packets.emplace(packet, std::move(segments));
        packet->bytes = bytes * (more + 1);
        for (uint16_t nth = 0; nth <= more; nth++)
            sent.insert(packet + nth);
        eqds_out out;
        eqds_sender_enqueue_whole(&sender, now, packet, more, bytes, &out);
        sender_did(out);
    }

    void forget(const step& s) {
        eqds_out out;
        if (s.flags & 1 && has_receiver) {
            eqds_receiver_close(&receiver, &out);
            receiver_did(out);
        }
        if (s.flags & 2) {
            eqds_sender_close(&sender, &out);
            sender_did(out);
        }
    }

    // Through the codec, so that no head is one that could not have come.
    eqds_head decoded(const std::vector<uint8_t>& bytes) {
        eqds_head head;
        require(read(*profile, bytes.data(), bytes.size(), &head));
        return head;
    }
    std::vector<uint8_t> encoded(const eqds_head& head) {
        std::vector<uint8_t> bytes(eqds_wire_bytes(profile, &head));
        eqds_wire_encode(profile, &head, bytes.data());
        return bytes;
    }

    eqds_head control(const step& s) {
        eqds_head head{};
        head.control = true;
        head.tagged = s.twist & 64 && !profile->start_bits;
        head.flags = s.flags;
        head.attempt = s.attempt;
        head.epoch = s.twist & 1 ? s.value : sender.epoch + s.epoch % 3;
        head.has_epoch = true;
        head.pull = s.twist & 2 ? s.value : sender.pull + s.pull;
        head.ack = s.twist & 4 ? s.value : sender.una + s.number;
        head.echo = s.twist & 8 ? s.value : sender.una + s.echo;
        head.sack = s.value;
        head.busy_us = s.busy_us;
        head.marks = s.attempt;
        head.cookie = s.twist & 16 ? s.value : 0;
        return head;
    }
    eqds_head data(const step& s) {
        eqds_head head{};
        uint32_t expected = has_receiver ? receiver.expected : 0;
        uint32_t pulled = has_receiver ? receiver.share.pull : 0;
        head.flags = s.flags;
        head.counted = many(s);
        head.tagged = s.twist & 64 && !profile->start_bits && !head.counted;
        head.attempt = head.counted ? 0 : s.attempt;
        head.epoch = s.twist & 1 ? s.value : (has_receiver ? receiver.epoch : 1) + s.epoch % 3;
        head.has_epoch = true;
        head.pull = s.twist & 2 ? s.value : pulled + s.pull;
        head.seq = s.twist & 4 ? s.value : expected + s.number;
        head.unacked = s.twist & 8 ? s.value : s.echo & 15;
        head.path = s.busy_us;
        head.bytes = s.bytes;
        head.stamp = s.value;
        head.backlog_bytes = s.value;
        head.cookie = s.twist & 16 ? cookie : s.twist & 32 ? s.value : 0;
        return head;
    }

    void to_sender(const eqds_head& written) {
        eqds_head head;
        std::vector<uint8_t> bytes = encoded(written);
        if (!read(*profile, bytes.data(), bytes.size(), &head))
            return;
        eqds_out out;
        eqds_sender_receive(&sender, now, &head, &out);
        sender_did(out);
    }

    // after: how far the IP ID is from that of the number in the header, which counts.
    void to_receiver(const eqds_head& written, uint32_t payload, uint16_t more, uint8_t after) {
        eqds_head head;
        std::vector<uint8_t> bytes = encoded(written);
        if (!read(*profile, bytes.data(), bytes.size(), &head))
            return;
        bool whole = !(head.flags & (EQDS_EMPTY | EQDS_TRIM));
        if (head.counted &&
            !count(&head, static_cast<uint16_t>(head.seq + after), whole ? more : 0))
            return;
        uint32_t wire_bytes = bytes.size() + (whole ? payload : 0);
        eqds_out out;
        if (!has_receiver) {
            if (!eqds_receiver_admit(&head, cookie, &out)) {
                require(!out.send || encoded(out.head).size() <= wire_bytes);
                return;
            }
            eqds_receiver_init(&receiver, &config, &asl, receiver_slots.data(), head.sender,
                               cookie);
            has_receiver = true;
            epoch = receiver.epoch - 1;
        }
        Arrived* packet = nullptr;
        if (whole) {
            head.more = more;
            packet = new Arrived{};
            packet->more = more;
            arrived.insert(packet);
        }
        const uint32_t expected = receiver.expected, in_epoch = receiver.epoch;
        // A sender that lies about what was acknowledged skips as many numbers as it likes, so
        // what is delivered next is told by the number that the receiver expects.
        numbers.assign(1, eqds_add(expected, -1u, profile->seq_bits));
        eqds_receiver_receive(&receiver, now, &head, wire_bytes, packet, &out);
        receiver_did(out);
        if (!has_receiver)
            return;
        require(receiver.held <= config.window_packets);
        require(receiver.epoch != in_epoch || out.verdict == EQDS_RESTARTED ||
                eqds_ahead(receiver.expected, expected, profile->seq_bits) >= 0);
    }

    void pull() {
        eqds_head head;
        for (int n = 0; n < 20 && eqds_receiver_next(&asl, now, &head); n++)
            say(head);
    }

    // The receiver's word on its way.
    void say(const eqds_head& head) { to_sender_last = encoded(head); }

    void release(eqds_packet* chain) {
        for (eqds_packet* p = chain; p;) {
            eqds_packet* next = p->next;
            auto whole = packets.find(p - p->nth);
            for (uint16_t nth = 0; nth <= p->more; nth++)
                require(sent.erase(p + nth) == 1);
            auto left = sent.lower_bound(whole->first);
            if (left == sent.end() || *left > &whole->second.back())
                packets.erase(whole);
            p = next;
        }
    }

    void sender_did(const eqds_out& out) {
        release(out.free);
        release(out.lost);
        if (out.send)
            to_receiver_last = encoded(out.head);
        eqds_head head;
        while (eqds_packet* p = eqds_sender_next(&sender, now, &head)) {
            require(sent.count(p) == 1 && head.counted == p->more);
            require(head.bytes == (p->more ? p->each_bytes : p->bytes));
            to_receiver_last = encoded(head);
        }
    }

    void receiver_did(const eqds_out& out) {
        // A new epoch's packets come behind those of the old one, which have no order.
        if (receiver.epoch != epoch || out.verdict == EQDS_RESTARTED)
            numbers.clear();
        bool mixed = out.verdict == EQDS_RESTARTED || out.verdict == EQDS_CLOSED;
        epoch = receiver.epoch;
        for (eqds_packet* p = out.deliver; p;) {
            eqds_packet* next = p->next;
            require(arrived.erase(p) == 1);
            if (!mixed && config.ordered) {
                require(numbers.empty() ||
                        eqds_ahead(p->seq, numbers.back(), profile->seq_bits) > 0);
                numbers.assign(1,
                               eqds_add(p->seq, static_cast<Arrived*>(p)->more, profile->seq_bits));
            }
            delete static_cast<Arrived*>(p);
            p = next;
        }
        for (eqds_packet* p = out.free; p;) {
            eqds_packet* next = p->next;
            require(arrived.erase(p) == 1);
            delete static_cast<Arrived*>(p);
            p = next;
        }
        if (out.send)
            say(out.head);
        if (out.verdict == EQDS_CLOSED) {
            has_receiver = false;
            numbers.clear();
        }
    }

    eqds_config config;
    eqds_asl_policy asl_policy;
    eqds_asl asl;
    eqds_sender sender;
    eqds_receiver receiver{};
    std::vector<eqds_packet*> sender_slots, receiver_slots;
    std::vector<eqds_path> path;
    eqds_paths paths;
    bool has_receiver = false;
    uint64_t now = 1000;
    uint32_t epoch = 0;                   // of what was delivered last
    std::vector<uint32_t> numbers;        // the last one delivered
    std::set<eqds_packet*> sent, arrived; // packets that an end holds; of whole ones, segments
    std::map<eqds_packet*, std::vector<eqds_packet>> packets; // offered, by the first node
    std::vector<uint8_t> to_receiver_last, to_sender_last;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (!size)
        return 0;
    const uint8_t options = *data++;
    size--;
    if (options == 0xff) {
        std::vector<uint8_t> exact(data, data + size);
        eqds_head head;
        read(eqds_profile_extended, exact.data(), size, &head);
        read(eqds_profile_paper, exact.data(), size, &head);
        return 0;
    }
    Fuzzed fuzzed(options);
    for (size_t n = 0; n < std::min(size / sizeof(step), steps_max); n++) {
        step s;
        std::memcpy(&s, data + n * sizeof(s), sizeof(s));
        fuzzed.run(s);
    }
    return 0;
}
