// SPDX-License-Identifier: GPL-2.0
// A memory node with real pages and a caller that keeps its contract, one thread at a time:
// what the tests of the node, and its fuzz target, drive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "core.hpp"

namespace rig {

inline constexpr uint8_t key_bytes[BASE_SIPHASH_KEY_BYTES] = {1, 2,  3,  4,  5,  6,  7,  8,
                                                              9, 10, 11, 12, 13, 14, 15, 16};
inline constexpr uint8_t garbage = 0xa5; // what pages hold that nobody zeroed

inline rmem_node_config small_config() {
    rmem_node_config config{};
    config.boot = 0x1122334455667788;
    config.seed[0] = 0x0123456789abcdef;
    config.seed[1] = 0xfedcba9876543210;
    config.pages = 64;
    config.page_shift = RMEM_PAGE_SHIFT_MIN;
    config.pool_pages = 16;
    config.piece_bytes = 4096;
    config.spaces_max = 4;
    config.sessions_max = 4;
    config.regions_max = 16;
    config.session_idle_ms = 1000;
    return config;
}

struct Aligned {
    void operator()(void* p) const { std::free(p); }
};

// A client that numbers its requests; ids and floors may be set by the test.
struct Client {
    uint32_t space = 1;
    uint64_t session = 0;
    uint64_t boot = 0;
    uint64_t next_id = 1;
    uint64_t floor = 1;
    uint8_t integrity = RMEM_LINK;
    rmem_peer peer{};
    rmem_open open{};

    explicit Client(uint8_t name = 1, uint32_t space_id = 1) : space(space_id) {
        std::memset(open.client, name, sizeof(open.client));
        peer.addr[15] = name;
        peer.port = 1000;
    }

    rmem_head head(uint8_t type, uint64_t addr, uint32_t len) {
        rmem_head h{};
        h.type = type;
        h.integrity = integrity;
        h.space = space;
        h.session = session;
        h.boot = boot;
        h.id = next_id++;
        h.floor = floor;
        h.addr = addr;
        h.len = len;
        h.attempt = 7;
        if (type == RMEM_READ)
            h.piece = 4096;
        if (rmem_type_is_exactly_once(type))
            h.op = RMEM_ADD;
        if (rmem_type_has_ranges(type))
            h.op = 1;
        return h;
    }

    rmem_head open_head(uint64_t nonce) const {
        rmem_head h{};
        h.type = RMEM_OPEN;
        h.integrity = integrity;
        h.space = space;
        h.id = nonce;
        h.len = sizeof(rmem_open);
        return h;
    }
};

class Node {
public:
    explicit Node(const rmem_node_config& config = small_config())
        : bytes_(rmem_node_state_bytes(&config)),
          state_(static_cast<uint8_t*>(std::aligned_alloc(64, bytes_))),
          memory(config.pages << config.page_shift) {
        core.config = config;
        boot();
    }

    // As after power came back: nothing is left of what was.
    void boot() {
        const rmem_node_config config = core.config;
        std::memset(state_.get(), garbage, bytes_);
        std::fill(memory.begin(), memory.end(), garbage);
        rmem_node_init(&core, &config, state_.get());
        now_ns = 1;
    }

    // Everything the node knows, to be compared.
    std::vector<uint8_t> snapshot() const {
        std::vector<uint8_t> all(sizeof(core) + bytes_);
        std::memcpy(all.data(), static_cast<const void*>(&core), sizeof(core));
        std::memcpy(all.data() + sizeof(core), state_.get(), bytes_);
        return all;
    }

    struct rmem_node_usage usage() const {
        struct rmem_node_usage u;
        rmem_node_usage(&core, &u);
        return u;
    }

    uint32_t page_bytes() const { return 1u << core.config.page_shift; }

    // One thread: no request is under way, so every grace period has passed.
    void refill() {
        bool used;
        for (;;) {
            uint32_t page = rmem_node_scrub_next(&core, &used);
            if (page == RMEM_PAGE_NONE)
                return;
            std::memset(at({page, 0, 0}), 0, page_bytes());
            rmem_node_scrub_done(&core, page);
        }
    }

    bool add_space(uint32_t space, uint64_t quota = 0) {
        return rmem_node_space_add(&core, space, key_bytes, quota) == RMEM_SPACE_OK;
    }

    bool add_view(uint32_t space, uint32_t base, uint8_t key = 99) {
        uint8_t bytes[BASE_SIPHASH_KEY_BYTES] = {key};
        return rmem_node_space_add_view(&core, space, bytes, base) == RMEM_SPACE_OK;
    }

    // By force: with all that is in it. False: there is none, or it has views.
    bool remove_space(uint32_t space) {
        rmem_node_call call;
        if (!rmem_node_call_clear(&core, &call, space))
            return false;
        run(call);
        return rmem_node_space_del(&core, space) == RMEM_SPACE_OK;
    }

    rmem_answer open(Client& client, uint64_t nonce) {
        client.open.integrity = client.integrity;
        return open_with(client, client.open_head(nonce));
    }

    // Of the session it has.
    rmem_answer renew(Client& client, uint64_t nonce) {
        rmem_head h = client.open_head(nonce);
        client.open.integrity = client.integrity;
        h.session = client.session;
        return open_with(client, h);
    }

    // To its end; one thread, so there is nothing to lock.
    rmem_answer run(rmem_node_call& call) {
        while (step(call)) {
        }
        return call.answer;
    }

    bool step(rmem_node_call& call) {
        bool more = rmem_node_call_step(&core, &call);
        if (call.fill.bytes)
            std::memset(at(call.fill), 0, call.fill.bytes);
        return more;
    }

    rmem_node_call begin(const Client& client, const rmem_head& h, const void* payload = nullptr) {
        rmem_node_call call;
        rmem_node_call_begin(&core, &call, now_ns, &h, &client.peer, payload);
        return call;
    }

    rmem_answer open_with(Client& client, const rmem_head& h) {
        rmem_node_call call = begin(client, h, &client.open);
        rmem_answer answer = run(call);
        if (answer.action == RMEM_ACT_REPLY && answer.reply.status == RMEM_OK) {
            opened = call.out.opened;
            client.session = answer.reply.session;
            client.boot = answer.reply.boot;
        }
        return answer;
    }

    rmem_answer close(Client& client, const rmem_head& h) {
        rmem_node_call call = begin(client, h);
        return run(call);
    }

    static rmem_alloc wish(uint64_t bytes, uint64_t addr = 0,
                           uint32_t perm = RMEM_PERM_READ | RMEM_PERM_WRITE) {
        rmem_alloc wanted{};
        base_store_le64(&wanted.bytes, bytes);
        base_store_le64(&wanted.addr, addr);
        base_store_le32(&wanted.perm, perm);
        return wanted;
    }

    rmem_answer alloc(Client& client, const rmem_head& h, const rmem_alloc& wanted) {
        rmem_node_call call = begin(client, h, &wanted);
        rmem_answer answer = run(call);
        if (answer.reply.status == RMEM_OK)
            range = call.out.range;
        return answer;
    }

    rmem_answer alloc(Client& client, const rmem_head& h, uint64_t bytes, uint64_t addr = 0,
                      uint32_t perm = RMEM_PERM_READ | RMEM_PERM_WRITE) {
        return alloc(client, h, wish(bytes, addr, perm));
    }

    // The address, or 0.
    uint64_t alloc(Client& client, uint64_t bytes, uint64_t addr = 0,
                   uint32_t perm = RMEM_PERM_READ | RMEM_PERM_WRITE) {
        rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
        rmem_answer answer = alloc(client, h, bytes, addr, perm);
        return answer.reply.status == RMEM_OK ? base_load_le64(&range.addr) : 0;
    }

    rmem_answer free(Client& client, const rmem_head& h, uint64_t addr, uint64_t bytes) {
        rmem_range wire{};
        base_store_le64(&wire.addr, addr);
        base_store_le64(&wire.bytes, bytes);
        return free(client, h, wire);
    }

    rmem_answer free(Client& client, const rmem_head& h, const rmem_range& wire) {
        rmem_node_call call = begin(client, h, &wire);
        return run(call);
    }

    rmem_answer free(Client& client, uint64_t addr, uint64_t bytes) {
        return free(client, client.head(RMEM_FREE, 0, sizeof(rmem_range)), addr, bytes);
    }

    // A whole request for data: data is what it carries, and what a READ brings.
    rmem_answer request(Client& client, const rmem_head& h, std::vector<uint8_t>* data = nullptr) {
        rmem_answer answer{};
        if (rmem_node_is_slow(&core, &h)) {
            rmem_node_call call = begin(client, h);
            return run(call);
        }
        const uint8_t* from = data ? data->data() : nullptr;
        rmem_node_request(&core, now_ns, &h, from, &client.peer, &answer);
        if (answer.action == RMEM_ACT_ATOMIC) {
            rmem_node_atomic(&core, &h, from, at(answer.extent[0]), &answer);
            return answer;
        }
        const uint8_t* payload = from;
        if (answer.action == RMEM_ACT_PUT)
            from += sizeof(rmem_put);
        for (unsigned n = 0; n < answer.extents; n++) {
            const rmem_extent& e = answer.extent[n];
            if (answer.action == RMEM_ACT_FILL) {
                std::memset(at(e), 0, e.bytes);
            } else {
                std::memcpy(at(e), from, e.bytes);
                from += e.bytes;
            }
        }
        if (answer.action == RMEM_ACT_COPY_IN || answer.action == RMEM_ACT_FILL)
            rmem_node_done(&core, &h);
        if (answer.action == RMEM_ACT_PUT)
            rmem_node_put(&core, &h, payload, at(answer.integer), &answer);
        if (answer.action == RMEM_ACT_SEND_OUT)
            collect(h, data);
        if (answer.action == RMEM_ACT_GATHER || answer.action == RMEM_ACT_SCATTER)
            ranges(h, *data);
        return answer;
    }

    rmem_answer write(Client& client, uint64_t addr, std::vector<uint8_t> data) {
        return request(client, client.head(RMEM_WRITE, addr, data.size()), &data);
    }

    std::vector<uint8_t> read(Client& client, uint64_t addr, uint32_t len) {
        std::vector<uint8_t> data;
        request(client, client.head(RMEM_READ, addr, len), &data);
        return data;
    }

    uint8_t* at(const rmem_extent& e) {
        return memory.data() + (uint64_t(e.page) << core.config.page_shift) + e.offset;
    }

    size_t parts = 0; // of the last READ
    uint64_t now_ns = 1;
    rmem_opened opened{};
    rmem_range range{};
    rmem_node core;

private:
    void collect(const rmem_head& h, std::vector<uint8_t>* data) {
        std::vector<uint8_t> all;
        uint32_t bytes;
        parts = 0;
        for (uint32_t offset = 0;; offset += bytes, parts++) {
            rmem_answer part{};
            bytes = rmem_node_read_part(&core, &h, offset, &part);
            if (!bytes)
                break;
            for (unsigned n = 0; n < part.extents; n++) {
                const rmem_extent& e = part.extent[n];
                if (e.page == RMEM_PAGE_NONE)
                    all.resize(all.size() + e.bytes);
                else
                    all.insert(all.end(), at(e), at(e) + e.bytes);
            }
        }
        if (data)
            *data = std::move(all);
    }

    // The data of all to its place; or from there, in the payload's place.
    void ranges(const rmem_head& h, std::vector<uint8_t>& payload) {
        std::vector<uint8_t> out;
        const uint8_t* from = payload.data() + rmem_wire_ranges_bytes(&h);
        for (uint32_t i = 0; i < h.op; i++) {
            rmem_answer range{};
            rmem_node_range(&core, &h, payload.data(), i, &range);
            for (unsigned n = 0; n < range.extents; n++) {
                const rmem_extent& e = range.extent[n];
                if (h.type == RMEM_WRITEV) {
                    std::memcpy(at(e), from, e.bytes); // one thread: no page has gone meanwhile
                    from += e.bytes;
                } else if (e.page == RMEM_PAGE_NONE) {
                    out.resize(out.size() + e.bytes);
                } else {
                    out.insert(out.end(), at(e), at(e) + e.bytes);
                }
            }
        }
        if (h.type == RMEM_WRITEV)
            rmem_node_done(&core, &h);
        else
            payload = std::move(out);
    }

    size_t bytes_;
    std::unique_ptr<uint8_t, Aligned> state_;

public:
    std::vector<uint8_t> memory;
};

} // namespace rig
