// SPDX-License-Identifier: GPL-2.0
// A small node under any sequence of datagrams, well-tagged and not.
//
// Two tenants with a client each write their own mark only. Whatever arrives: no tenant reads
// another's bytes, pages and entries are never lost or held twice, and every answer is a message
// that its client would accept, in a datagram no larger than it asked for.
//
// Input: steps of 16 bytes each, struct step below.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "../unit/rmem/node/node_rig.hpp"

namespace {

constexpr uint64_t page = 1ull << RMEM_PAGE_SHIFT_MIN;
constexpr uint32_t tenants = 2;
constexpr size_t steps_max = 256;

void require(bool holds) {
    if (!holds)
        std::abort();
}

// Zeros and marks, nothing else; eight bytes at once, as there are many.
bool holds_only(const std::vector<uint8_t>& data, uint8_t mark) {
    const uint64_t ones = 0x0101010101010101;
    size_t n = 0;
    for (; n + 8 <= data.size(); n += 8) {
        uint64_t word = base_load_le64(data.data() + n);
        uint64_t set = (word | word >> 1) & ones; // marks are 1 and 2
        if (word != set * mark)
            return false;
    }
    return std::all_of(data.begin() + n, data.end(),
                       [&](uint8_t byte) { return !byte || byte == mark; });
}

struct step {
    uint8_t what;   // type of the message, or what the node's operator does; joins_next
    uint8_t who;    // tenant
    uint8_t twist;  // one field of the header that isn't as it should be
    uint8_t damage; // of the datagram: a bit flipped, a byte cut off
    uint8_t page;   // of the region, and beyond
    uint8_t back;   // how far the id lies behind the newest
    uint16_t offset;
    uint32_t len;
    uint32_t value;
};
static_assert(sizeof(step) == 16);

constexpr uint8_t joins_next = 0x80; // the message waits for the next one, in the same datagram
constexpr size_t messages_max = RMEM_BUNDLE_MAX + 2;

rmem_node_config fuzz_config() {
    rmem_node_config config = rig::small_config();
    config.pages = 9;
    config.pool_pages = 2;
    config.sessions_max = 2;
    config.regions_max = 3;
    config.window_ids = 8;
    config.session_idle_ms = 1;
    config.step_pages = 2;
    return config;
}

// An offload. Its function 0 (QUERY) answers a range of memory, 1 and 2 (CALLs) write their space's
// mark to it, by a copy and by a slice; all of them after some steps.
constexpr uint32_t offload_id = 9;

struct CallArgs {
    uint64_t addr;
    uint32_t bytes, steps;
};

int offload_step(rmem_call* call) {
    auto* args = static_cast<const CallArgs*>(rmem_args(call, sizeof(CallArgs)));
    auto* taken = static_cast<uint32_t*>(rmem_scratch(call, sizeof(uint32_t)));
    if (!args)
        return rmem_error(call);
    if ((*taken)++ < args->steps)
        return RMEM_AGAIN;
    if (rmem_function(call) == 0) {
        void* result = rmem_result(call, args->bytes);
        return result ? rmem_read(call, args->addr, result, args->bytes) : rmem_error(call);
    }
    const auto mark = static_cast<uint8_t>(call->offload->place.space);
    if (rmem_function(call) == 1) {
        std::vector<uint8_t> marks(args->bytes, mark);
        return rmem_write(call, args->addr, marks.data(), args->bytes);
    }
    void* slice = rmem_at(call, args->addr, args->bytes);
    if (!slice)
        return rmem_error(call);
    std::memset(slice, mark, args->bytes);
    return 0;
}

constexpr rmem_offload_ops offload{RMEM_OFFLOAD_VERSION, offload_id, 1 << 1 | 1 << 2, 10, "fuzz",
                                   offload_step};

class Fuzzed {
public:
    explicit Fuzzed(rig::Node& booted) : node(booted) {
        for (uint32_t n = 0; n < tenants; n++) {
            require(node.add_space(n + 1, n ? 6 * page : 0));
            require(node.load(offload, n + 1) >= 0);
        }
    }

    void run(const step& s) {
        switch (s.what % 16) {
        case 0:
            node.refill();
            break;
        case 9:
            node.now_ns += s.value;
            for (unsigned rounds = s.len % 4; rounds; rounds--)
                run_calls(s.offset);
            break;
        case 10:
            drop_and_add_space(s);
            break;
        case 11:
            scrub_halfway();
            break;
        default:
            message(s);
            if (s.twist < 128)
                finish();
        }
        advance();
        check_usage();
    }

    // Every entry and every page, counted.
    void audit() {
        finish();
        while (run_calls(1000)) {
        }
        require(!node.table.in_use);
        for (uint32_t slot = 0; slot < node.core.sessions.slots; slot++)
            require(!node.core.sessions.slot[slot].running);
        const rmem_table& table = node.core.table;
        std::vector<bool> seen(node.core.config.pages);
        uint64_t entries = 0, backed = 0;
        for (uint64_t b = 0; b <= table.mask; b++) {
            unsigned in_bucket = 0;
            for (unsigned n = 0; n < RMEM_BUCKET_ENTRIES; n++) {
                uint32_t pte = table.bucket[b].pte[n];
                require(!table.bucket[b].key[n] == !pte);
                in_bucket += pte != 0;
                if (!(pte & RMEM_PTE_BACKED))
                    continue;
                require(!seen[pte & RMEM_PTE_PAGE]);
                seen[pte & RMEM_PTE_PAGE] = true;
                backed++;
            }
            require(in_bucket == table.load[b]);
            entries += in_bucket;
        }
        require(entries == node.usage().pages_promised);
        require(backed == node.usage().pages_backed);
    }

private:
    struct Tenant {
        rig::Client client;
        uint64_t addr = 0, bytes = 0, nonce = 1;
    };

    static base_siphash_key key() {
        base_siphash_key k;
        base_siphash_key_load(&k, rig::key_bytes);
        return k;
    }

    void drop_and_add_space(const step& s) {
        finish();
        uint32_t space = 1 + s.who % tenants;
        if (s.back % 4 == 3 ? node.remove_space(space)
                            : rmem_node_space_del(&node.core, space) == RMEM_SPACE_OK) {
            require(!rmem_node_key(&node.core, space));
            for (uint32_t place = 0; place < RMEM_RUN_OFFLOADS; place++) {
                const rmem_run_offload& each = node.table.offload[place];
                while (each.ops && each.place.space == space &&
                       !rmem_run_unload(&node.table, place, false))
                    require(run_calls(1000));
            }
            require(node.add_space(space));
            require(node.load(offload, space) >= 0);
        }
    }

    void scrub_halfway() {
        bool used;
        uint32_t p = rmem_node_scrub_next(&node.core, &used);
        if (p != RMEM_PAGE_NONE)
            rmem_node_scrub_later(&node.core, p);
    }

    static uint8_t type_of(const step& s) {
        switch (s.what % 16) {
        case 0:
            return RMEM_COPY;
        case 10:
            return s.value % 4 == 0 ? RMEM_FENCE : s.value % 4 == 1 ? RMEM_LOOKUP : RMEM_PUBLISH;
        case 12:
            return RMEM_ATOMIC;
        case 13:
            return RMEM_PUT;
        case 14:
            return s.value >> 28 & 1 ? RMEM_QUERY : RMEM_READV;
        case 15:
            return s.value >> 28 & 1 ? RMEM_CALL : RMEM_WRITEV;
        default:
            return s.what % 16;
        }
    }

    rmem_head head_of(const step& s, Tenant& t) {
        uint8_t type = type_of(s);
        rmem_head h = t.client.head(type, 0, s.len);
        h.id -= std::min<uint64_t>(s.back, h.id - 1);
        h.floor = h.id > s.value % 16 ? h.id - s.value % 16 : 1;
        if (type >= RMEM_READ) {
            h.addr = t.addr + s.page % 16 * page + s.offset;
            // Long reads are rare (a twist): they'd take most of the time.
            bool brings_data = type == RMEM_WRITE || type == RMEM_PUT;
            h.len = s.len % (brings_data ? 4100 : type == RMEM_READ ? 10000 : 5 * page);
        } else {
            h.len = type == RMEM_CLOSE ? 0 : 24;
            h.len = type == RMEM_FREE ? 16 : h.len;
        }
        if (type == RMEM_ATOMIC) {
            h.op = 1 + s.value % RMEM_ATOMIC_OP_END;
            h.len = 4u << s.len % 4;
            h.addr -= h.addr % (s.len % 8 ? h.len : 1);
        }
        if (type == RMEM_PUT)
            h.op = 1 + s.value / 16 % RMEM_ATOMIC_OP_END;
        if (type == RMEM_COPY)
            h.len = s.len % (RMEM_COPY_BYTES_MAX + 2);
        if (rmem_type_has_name(type)) {
            h.addr = s.offset % 16 ? 0 : h.addr;
            h.len = s.len % 16 ? sizeof(rmem_named) : s.len;
        }
        if (rmem_type_has_ranges(type)) {
            h.op = 1 + s.value / 16 % (RMEM_RANGES_MAX + s.twist % 2);
            h.len = h.op * range_bytes(s);
            first_range = std::exchange(h.addr, 0);
        }
        if (rmem_type_runs(type)) {
            called = h.addr;
            h.addr = s.page / 16 ? offload_id : s.len;
            h.op = (type == RMEM_CALL) + s.value % 4;
            h.len = s.offset % 16 ? sizeof(CallArgs) : s.len % (RMEM_ARGS_BYTES_MAX + 2);
            h.piece = type == RMEM_QUERY ? s.len % 4100 : 0;
        }
        if (type == RMEM_OPEN) {
            h.session = s.back & 2 ? t.client.session : 0;
            h.boot = h.floor = 0;
            h.id = t.nonce += s.back % 2;
        }
        switch (s.twist % 128) {
        case 1:
            h.session ^= s.value;
            break;
        case 2:
            h.boot ^= s.value;
            break;
        case 3:
            h.space = s.value % 4;
            break;
        case 4:
            h.integrity = s.value % 4;
            break;
        case 5:
            h.piece = s.value;
            break;
        case 6:
            h.addr = uint64_t(s.value) << 32 | s.len;
            break;
        case 7:
            h.len = s.len;
            break;
        case 8:
            h.id += s.value;
            break;
        case 9:
            h.type = s.value;
            break;
        }
        return h;
    }

    std::vector<uint8_t> payload_of(const step& s, const rmem_head& h, Tenant& t) {
        std::vector<uint8_t> payload(std::min(rmem_wire_payload_bytes(&h), 9000u), t.client.space);
        if (h.type == RMEM_OPEN) {
            t.client.open.integrity = t.client.integrity = h.integrity;
            base_store_le16(&t.client.open.datagram_bytes, s.value);
            std::memcpy(payload.data(), &t.client.open, sizeof(rmem_open));
        } else if (h.type == RMEM_ALLOC) {
            base_store_le64(payload.data(), 1 + s.len % (10 * page));
            base_store_le64(payload.data() + 8, s.offset % 2 ? s.page * page : 0);
            base_store_le32(payload.data() + 16, s.offset % 8 ? 3 : s.value % 4);
            base_store_le32(payload.data() + 20, 0);
        } else if (h.type == RMEM_FREE) {
            base_store_le64(payload.data(), t.addr + (s.offset % 8 ? 0 : s.page * page));
            base_store_le64(payload.data() + 8, t.bytes);
        } else if (h.type == RMEM_PUT) {
            uint32_t bytes = s.value >> 8 & 7 ? 4 + (s.value >> 11) % 2 * 4 : s.value % 20;
            // Near the data, or some pages away.
            uint64_t integer = h.addr + (s.value >> 12) % 4 * (page / 2);
            base_store_le64(payload.data(), s.value >> 16 & 7 ? integer & ~7ull : integer);
            base_store_le32(payload.data() + 16, bytes);
            base_store_le32(payload.data() + 20, s.value >> 19 & 15 ? 0 : s.value);
        } else if (rmem_type_runs(h.type) && payload.size() >= sizeof(CallArgs)) {
            const CallArgs args{called, s.len % 3 ? s.len % 4100 % (h.piece + 1) : s.len % 70000,
                                s.value % 16 ? s.value >> 8 & 7 : ~0u};
            std::memcpy(payload.data(), &args, sizeof(args));
        } else if (rmem_type_has_name(h.type) && payload.size() >= sizeof(rmem_named)) {
            // A few names, so that some exist; 0 inside or none at all now and then.
            std::fill(payload.begin(), payload.end(), 0);
            payload[8] = s.value >> 2 & 31;
            payload[9 + s.offset % (RMEM_NAME_BYTES - 1)] = s.offset % 4 ? 0 : 'x';
            bool names = h.type == RMEM_PUBLISH && s.page % 4;
            base_store_le64(payload.data(), names ? t.addr + s.page / 4 % 2 * page : 0);
        } else if (h.type == RMEM_COPY) {
            // Right behind, a page away, overlapping, or of another tenant.
            uint64_t away = s.value & 3 ? h.len : s.value & 4 ? page : s.value;
            base_store_le64(payload.data(), s.value & 8 ? h.addr + away : h.addr - away);
        } else if (rmem_type_has_ranges(h.type)) {
            // As near to each other as it comes; one of them somewhere else, or of another length.
            for (size_t n = 0; n < h.op && (n + 1) * sizeof(rmem_range) <= payload.size(); n++) {
                bool odd = s.offset % 4 == 1 && n == s.value % h.op;
                uint8_t* at = payload.data() + n * sizeof(rmem_range);
                base_store_le64(at, first_range + n * (s.len >> 8 & 0x3fff) + odd * s.value);
                base_store_le64(at + 8, range_bytes(s) + (odd && s.offset % 8 == 5 ? s.value : 0));
            }
        }
        return payload;
    }

    static uint32_t range_bytes(const step& s) { return s.len % 64 ? s.len % 64 : s.len % 4100; }

    void message(const step& s) {
        Tenant& t = tenant[s.who % tenants];
        rmem_head h = head_of(s, t);
        std::vector<uint8_t> payload = payload_of(s, h, t);
        requests.add(h, key(), payload);
        if (s.what & joins_next && requests.added() < messages_max)
            return;
        wire::Bytes datagram = requests.take();
        if (s.damage % 4 == 1)
            datagram[s.value % datagram.size()] ^= 1 << (s.damage / 4 % 8);
        if (s.damage % 4 == 2)
            datagram.resize(s.value % datagram.size());
        receive(datagram, t);
        send_answers();
    }

    // Handles a datagram as a carrier does.
    void receive(const wire::Bytes& datagram, Tenant& t) {
        auto key_of = [&](uint32_t space) { return rmem_node_key(&node.core, space); };
        auto messages = wire::received(datagram, false, key_of);
        for (const wire::Received& in : messages)
            received(in.head, in.verdict, in.payload.data(), t);
    }

    void received(const rmem_head& h, rmem_wire_verdict verdict, const uint8_t* payload,
                  Tenant& t) {
        if (verdict == RMEM_WIRE_TAG)
            return;
        limit = 0;
        if (verdict == RMEM_WIRE_DAMAGED) {
            rmem_head reply;
            if (rmem_node_damaged(&node.core, node.now_ns, &h, &t.client.peer, &reply))
                answered(h, reply, {});
        } else if (rmem_node_is_slow(&node.core, &h)) {
            slow(h, payload, t);
        } else {
            fast(h, payload, t);
        }
    }

    void fast(const rmem_head& h, const uint8_t* payload, Tenant& t) {
        rmem_answer answer;
        rmem_node_request(&node.core, node.now_ns, &h, payload, &t.client.peer, &answer);
        limit = rmem_node_datagram_bytes(&answer);
        if (answer.action == RMEM_ACT_RUN && node.admit(h, payload, answer))
            return;
        if (answer.reason == RMEM_NODE_RUNNING)
            return;
        // Integers on a copy, so that the mark below stays right.
        alignas(16) uint8_t integer[16];
        if (answer.action == RMEM_ACT_ATOMIC) {
            require(answer.extents == 1 && answer.extent[0].bytes == h.len);
            copy_integer(answer.extent[0], integer);
            rmem_node_atomic(payload, integer, &answer);
        }
        if (answer.action == RMEM_ACT_PUT) {
            uint32_t bytes = 0;
            for (unsigned n = 0; n < answer.extents; n++)
                bytes += answer.extent[n].bytes;
            require(bytes == h.len && bytes + sizeof(rmem_put) <= node.core.config.piece_bytes);
            require(answer.integer.bytes == base_load_le32(payload + offsetof(rmem_put, bytes)));
            copy_integer(answer.integer, integer);
            rmem_node_put(payload, integer, &answer);
        }
        if (answer.action == RMEM_ACT_COPY)
            copy(h, answer);
        for (unsigned n = 0; n < answer.extents && answer.action != RMEM_ACT_COPY; n++) {
            const rmem_extent& e = answer.extent[n];
            check_extent(e);
            require(e.page != RMEM_PAGE_NONE);
            if (answer.action == RMEM_ACT_FILL) {
                std::memset(node.at(e), 0, e.bytes);
            } else {
                // A LINK payload may be damaged, or the space be another's: the mark stays right.
                std::memset(node.at(e), h.space, e.bytes);
            }
        }
        if (answer.action == RMEM_ACT_GATHER) {
            ranges(h, payload, answer);
            return;
        }
        if (answer.action == RMEM_ACT_SCATTER)
            ranges(h, payload, answer);
        if (answer.action == RMEM_ACT_COPY_IN || answer.action == RMEM_ACT_FILL ||
            answer.action == RMEM_ACT_SCATTER || answer.action == RMEM_ACT_COPY)
            rmem_node_done(&answer);
        if (answer.action != RMEM_ACT_SEND_OUT) {
            require(answer.action != RMEM_ACT_DROP);
            auto* found = reinterpret_cast<const uint8_t*>(&answer.found);
            std::vector<uint8_t> payload_out(found, found + rmem_wire_payload_bytes(&answer.reply));
            require(holds_only(payload_out, h.space));
            answered(h, answer.reply, payload_out);
            return;
        }
        uint32_t offset = 0;
        for (uint32_t bytes; (bytes = rmem_node_read_part(&node.core, &h, offset, &answer));) {
            std::vector<uint8_t> data;
            for (unsigned n = 0; n < answer.extents; n++) {
                const rmem_extent& e = answer.extent[n];
                check_extent(e);
                if (e.page == RMEM_PAGE_NONE)
                    data.resize(data.size() + e.bytes);
                else
                    data.insert(data.end(), node.at(e), node.at(e) + e.bytes);
            }
            require(data.size() == bytes && bytes <= node.core.config.piece_bytes);
            require(holds_only(data, h.space));
            answered(h, answer.reply, data);
            offset += bytes;
        }
        require(offset == h.len);
    }

    // The source has marks of its own space only, and so has its copy.
    void copy(const rmem_head& h, rmem_answer& answer) {
        size_t bytes = 0;
        rmem_extent to, from;
        while (rmem_node_stretch(&answer, &to, &from)) {
            check_extent(to);
            check_extent(from);
            require(to.page != RMEM_PAGE_NONE && to.bytes == from.bytes && to.bytes);
            if (from.page == RMEM_PAGE_NONE) {
                std::memset(node.at(to), 0, to.bytes);
            } else {
                require(to.page != from.page || to.offset + to.bytes <= from.offset ||
                        from.offset + from.bytes <= to.offset);
                std::memcpy(node.at(to), node.at(from), to.bytes);
                require(holds_only({node.at(to), node.at(to) + to.bytes}, h.space));
            }
            bytes += to.bytes;
        }
        require(bytes == h.len && bytes <= RMEM_COPY_BYTES_MAX);
    }

    // Marks to all of a WRITEV's, or a READV's bytes as its answer.
    void ranges(const rmem_head& h, const uint8_t* payload, rmem_answer range) {
        std::vector<uint8_t> data;
        size_t bytes = 0;
        for (uint32_t i = 0; i < h.op; i++) {
            rmem_node_range(&node.core, payload, i, &range);
            require(range.extents && range.extents <= RMEM_EXTENTS_MAX);
            for (unsigned n = 0; n < range.extents; n++) {
                const rmem_extent& e = range.extent[n];
                check_extent(e);
                bytes += e.bytes;
                require(h.type == RMEM_READV || e.page != RMEM_PAGE_NONE);
                if (h.type == RMEM_WRITEV)
                    std::memset(node.at(e), h.space, e.bytes);
                else if (e.page == RMEM_PAGE_NONE)
                    data.resize(data.size() + e.bytes);
                else
                    data.insert(data.end(), node.at(e), node.at(e) + e.bytes);
            }
        }
        require(bytes == h.len && bytes <= node.core.config.piece_bytes);
        if (h.type == RMEM_WRITEV)
            return;
        require(holds_only(data, h.space));
        answered(h, range.reply, data);
    }

    // A call may stay unfinished for some steps; the next one waits for it.
    void slow(const rmem_head& h, const uint8_t* payload, Tenant& t) {
        finish();
        if (h.type == RMEM_OPEN)
            std::memcpy(&t.client.open, payload, sizeof(rmem_open));
        call = node.begin(t.client, h, payload);
        caller = &t;
        request = h;
    }

    void finish() {
        while (caller)
            advance();
    }

    // A round of some steps. False: no call of an offload runs.
    bool run_calls(uint64_t step_ns) {
        const bool ran = node.run_round(step_ns);
        for (const rig::Node::Ended& end : std::exchange(node.ended, {})) {
            if (end.answer.action != RMEM_ACT_REPLY)
                continue;
            rmem_head its = end.answer.reply;
            its.type &= ~RMEM_RESPONSE;
            require(holds_only(end.result, its.space));
            send_answers();
            answered(its, end.answer.reply, end.result);
            send_answers();
        }
        return ran;
    }

    void advance() {
        if (!caller)
            return;
        if (node.step(call)) {
            if (call.waits)
                run_calls(1000);
            return;
        }
        Tenant& t = *std::exchange(caller, nullptr);
        const rmem_answer& answer = call.answer;
        if (answer.action != RMEM_ACT_REPLY)
            return;
        const uint8_t* out = reinterpret_cast<const uint8_t*>(&call.out);
        send_answers();
        answered(request, answer.reply, {out, out + rmem_wire_payload_bytes(&answer.reply)});
        send_answers();
        if (answer.reply.status != RMEM_OK)
            return;
        if (request.type == RMEM_OPEN) {
            t.client.session = answer.reply.session;
            t.client.boot = answer.reply.boot;
        }
        if (request.type == RMEM_LOOKUP) {
            uint64_t vpn = base_load_le64(&call.out.range.addr) / page;
            const rmem_space* space = rmem_spaces_find(&node.core.spaces, request.space);
            uint32_t index = space - node.core.spaces.slot;
            require(space && rmem_alloc_find(&node.core.alloc, index, vpn));
        }
        if (request.type == RMEM_ALLOC) {
            t.addr = base_load_le64(&call.out.range.addr);
            t.bytes = base_load_le64(&call.out.range.bytes);
        }
    }

    // Its client has to find the answer good.
    void answered(const rmem_head& request, rmem_head reply, const std::vector<uint8_t>& payload) {
        const base_siphash_key k = key();
        if (!answers.takes(limit, reply)) {
            send_answers();
            answers.takes(limit, reply);
        }
        answers.add(reply, k, payload);
        auto key_of = [&](uint32_t) { return &k; };
        auto alone = wire::received(wire::sealed(reply, k, payload), true, key_of);
        require(alone.size() == 1 && alone[0].verdict == RMEM_WIRE_GOOD);
        const rmem_head& parsed = alone[0].head;
        require(parsed.id == request.id && parsed.type == (request.type | RMEM_RESPONSE));
        require(answers.messages() == 1 || answers.bytes() <= limit);
    }

    // So has it the datagram.
    void send_answers() {
        if (!answers.messages())
            return;
        const base_siphash_key k = key();
        size_t messages = answers.messages();
        auto key_of = [&](uint32_t) { return &k; };
        auto received = wire::received(answers.take(), true, key_of);
        require(received.size() == messages && received[0].verdict != RMEM_WIRE_TAG);
    }

    void copy_integer(const rmem_extent& e, uint8_t* to) {
        check_extent(e);
        require(e.page != RMEM_PAGE_NONE && e.bytes <= 16 && e.offset % e.bytes == 0);
        std::memcpy(to, node.at(e), e.bytes);
    }

    void check_extent(const rmem_extent& e) {
        require(e.page == RMEM_PAGE_NONE || e.page < node.core.config.pages);
        require(e.bytes && e.offset + e.bytes <= page);
    }

    void check_usage() {
        struct rmem_node_usage u = node.usage();
        require(u.pages_promised <= u.pages && u.pages_backed <= u.pages_promised);
        require(u.pages_ready <= node.core.config.pool_pages);
        require(u.sessions <= node.core.config.sessions_max);
        require(u.regions <= node.core.config.regions_max && u.spaces == tenants);
    }

    rig::Node& node;
    rmem_node_call call{};
    uint64_t first_range = 0; // of the message that is put together
    uint64_t called = 0;      // the address in the arguments of that message
    wire::Datagram requests;  // of the datagram that is put together
    wire::Datagram answers;   // of the datagram that others may join
    uint32_t limit = 0;       // of its bytes
    rmem_head request{};      // the call's
    Tenant* caller = nullptr; // NULL: no call is under way
    std::array<Tenant, tenants> tenant{Tenant{rig::Client(1, 1)}, Tenant{rig::Client(2, 2)}};
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static rig::Node node(fuzz_config()); // kept, as getting its memory takes longer than the rest
    base_crc32c_setup();
    node.boot();
    Fuzzed fuzzed(node);
    size_t steps = std::min(size / sizeof(step), steps_max);
    for (size_t n = 0; n < steps; n++) {
        step s;
        std::memcpy(&s, data + n * sizeof(s), sizeof(s));
        fuzzed.run(s);
    }
    fuzzed.audit();
    return 0;
}
