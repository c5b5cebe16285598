// SPDX-License-Identifier: GPL-2.0
// A memory node with real pages and a caller that keeps its contract, one thread at a time:
// what the tests of the node, and its fuzz target, drive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "../../../common/messages.hpp"

namespace rig {

using wire::Bytes;

inline constexpr uint8_t key_bytes[BASE_SIPHASH_KEY_BYTES] = {1, 2,  3,  4,  5,  6,  7,  8,
                                                              9, 10, 11, 12, 13, 14, 15, 16};
inline constexpr uint8_t garbage = 0xa5; // content of pages that were not zeroed

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
        if (rmem_type_has_integer(type))
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
    // The node, but for which request was a session's newest.
    std::vector<uint8_t> snapshot() const {
        std::vector<uint8_t> all(sizeof(core) + bytes_);
        std::memcpy(all.data(), static_cast<const void*>(&core), sizeof(core));
        std::memcpy(all.data() + sizeof(core), state_.get(), bytes_);
        for (uint32_t slot = 0; slot < core.sessions.slots; slot++) {
            auto* newest = reinterpret_cast<const uint8_t*>(&core.sessions.slot[slot].newest_id);
            std::memset(all.data() + sizeof(core) + (newest - state_.get()), 0, sizeof(uint64_t));
        }
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
            if (call.waits)
                run_round();
        }
        return call.answer;
    }

    // ---- offloads ----

    struct Ended {
        rmem_answer answer;
        Bytes result; // the answer's payload
    };
    std::vector<Ended> ended; // by run_round()
    // The calls that lock this key wait; the last one of them.
    uint64_t locked_key = 0;
    rmem_call* parked = nullptr;
    bool wakes_early = false; // before the step ends

    int load(const rmem_offload_ops& ops, uint32_t space = 1,
             const std::vector<uint32_t>& clients = {}, uint32_t budget_us = 0) {
        static constexpr rmem_run_ops run_ops{
            [](void* carrier, const rmem_extent* extent) -> void* {
                static uint8_t zeros[RMEM_PIECE_BYTES_MAX];
                auto* node = static_cast<Node*>(carrier);
                return extent->page == RMEM_PAGE_NONE ? zeros : node->at(*extent);
            },
            nullptr, nullptr,
            [](void* carrier, rmem_call* call, u64 key) {
                auto* node = static_cast<Node*>(carrier);
                if (key != node->locked_key)
                    return 0;
                rmem_run_park(call);
                node->parked = call;
                if (node->wakes_early)
                    rmem_run_wake(&node->table, call);
                return -EAGAIN;
            }};
        if (!core.running) {
            const size_t bytes = (rmem_run_bytes(&core) + 63) & ~size_t{63};
            run_state_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, bytes)));
            rmem_run_init(&table, &core, &run_ops, this, run_state_.get());
        }
        return rmem_run_load(&table, &ops, space, budget_us, clients.data(),
                             static_cast<uint32_t>(clients.size()));
    }

    bool admit(const rmem_head& h, const uint8_t* args, rmem_answer& answer) {
        rmem_call* call = rmem_run_admit(&table, &h, &answer);
        if (!call)
            return false;
        if (h.len)
            std::memcpy(call->args, args, h.len);
        rmem_run_begin(&table, call);
        return true;
    }

    bool locked = false; // a node of several threads would hold the slow lock now

    // Each step takes so long. False: no call runs.
    bool run_round(uint64_t step_ns = 100) {
        rmem_call* round[RMEM_RUN_ROUND];
        const uint32_t count = rmem_run_take(&table, round);
        if (!count)
            return false;
        rmem_run_step(round, count, 1);
        rmem_call* done = rmem_run_charge(&table, round, count, step_ns * count);
        while (done) {
            rmem_call* call = done;
            done = call->next;
            Ended& end = ended.emplace_back();
            rmem_run_settle(&table, call, &end.answer);
            end.result = payload_of(end.answer, call->result);
            rmem_run_give(&table, call);
        }
        return true;
    }

    bool step(rmem_node_call& call) {
        locked = !call.alone;
        bool more = rmem_node_call_step(&core, &call);
        locked = false;
        if (call.fill.bytes)
            std::memset(at(call.fill), 0, call.fill.bytes);
        return more;
    }

    rmem_node_call begin(const rmem_peer& peer, const rmem_head& h, const void* payload = nullptr) {
        rmem_node_call call;
        rmem_node_call_begin(&core, &call, now_ns, &h, &peer, payload);
        return call;
    }

    rmem_node_call begin(const Client& client, const rmem_head& h, const void* payload = nullptr) {
        return begin(client.peer, h, payload);
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

    static constexpr uint32_t read_write = RMEM_PERM_READ | RMEM_PERM_WRITE;

    rmem_answer alloc(Client& client, const rmem_head& h, const rmem_alloc& wanted) {
        rmem_node_call call = begin(client, h, &wanted);
        rmem_answer answer = run(call);
        if (answer.reply.status == RMEM_OK)
            range = call.out.range;
        return answer;
    }

    rmem_answer alloc(Client& client, const rmem_head& h, uint64_t bytes, uint64_t addr = 0,
                      uint32_t perm = read_write) {
        return alloc(client, h, wire::alloc_of(bytes, addr, perm));
    }

    // The address, or 0.
    uint64_t alloc(Client& client, uint64_t bytes, uint64_t addr = 0, uint32_t perm = read_write) {
        rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
        rmem_answer answer = alloc(client, h, bytes, addr, perm);
        return answer.reply.status == RMEM_OK ? base_load_le64(&range.addr) : 0;
    }

    rmem_answer free(Client& client, const rmem_head& h, uint64_t addr, uint64_t bytes) {
        return free(client, h, wire::range_of(addr, bytes));
    }

    rmem_answer free(Client& client, const rmem_head& h, const rmem_range& given) {
        rmem_node_call call = begin(client, h, &given);
        return run(call);
    }

    rmem_answer free(Client& client, uint64_t addr, uint64_t bytes) {
        return free(client, client.head(RMEM_FREE, 0, sizeof(rmem_range)), addr, bytes);
    }

    // As a carrier does; answered(reply, payload) for each answer to the request.
    template <typename Answered>
    rmem_answer serve(const rmem_peer& peer, const rmem_head& h, const uint8_t* payload,
                      Answered answered) {
        limit_bytes = 0;
        if (rmem_node_is_slow(&core, &h)) {
            rmem_node_call call = begin(peer, h, payload);
            rmem_answer answer = run(call);
            if (answer.action == RMEM_ACT_REPLY)
                answered(answer.reply, payload_of(answer, &call.out));
            return answer;
        }
        rmem_answer answer{};
        rmem_node_request(&core, now_ns, &h, payload, &peer, &answer);
        limit_bytes = rmem_node_datagram_bytes(&answer);
        Carrier<Answered> carrier{*this, payload, answered};
        rmem_answer executed = answer; // which changes the extents
        rmem_execute(&core, &Carrier<Answered>::ops, &carrier, &h, payload, &executed);
        answer.found = executed.found;
        if (answer.action == RMEM_ACT_RUN && executed.action == RMEM_ACT_REPLY)
            return executed; // the run table refused it
        return answer;
    }

    // data: the request's payload, and afterwards what it reads.
    rmem_answer request(Client& client, const rmem_head& h, Bytes* data = nullptr) {
        Bytes out;
        parts = 0;
        rmem_answer answer = serve(client.peer, h, data ? data->data() : nullptr,
                                   [&](const rmem_head&, const Bytes& part) {
                                       out = wire::followed_by(std::move(out), part);
                                       parts++;
                                   });
        if (data && (answer.action == RMEM_ACT_SEND_OUT || answer.action == RMEM_ACT_GATHER))
            *data = std::move(out);
        return answer;
    }

    rmem_answer write(Client& client, uint64_t addr, Bytes data) {
        return request(client, client.head(RMEM_WRITE, addr, data.size()), &data);
    }

    Bytes read(Client& client, uint64_t addr, uint32_t len) {
        Bytes data;
        request(client, client.head(RMEM_READ, addr, len), &data);
        return data;
    }

    uint8_t* at(const rmem_extent& e) {
        return memory.data() + (uint64_t(e.page) << core.config.page_shift) + e.offset;
    }

    size_t parts = 0;         // answers to the last request
    uint32_t limit_bytes = 0; // of a datagram with an answer to it
    uint64_t now_ns = 1;
    rmem_opened opened{};
    rmem_range range{};
    rmem_node core;
    rmem_run table;

private:
    static Bytes payload_of(const rmem_answer& answer, const void* out) {
        auto* bytes = static_cast<const uint8_t*>(out);
        return Bytes(bytes, bytes + rmem_wire_payload_bytes(&answer.reply));
    }

    template <typename Answered>
    struct Carrier {
        Node& node;
        const uint8_t* payload;
        Answered& answered;

        static void* at(void* carrier, const rmem_extent* extent) {
            return static_cast<Carrier*>(carrier)->node.at(*extent);
        }
        static void copy(void* carrier, uint32_t offset, void* to, uint32_t bytes) {
            std::memcpy(to, static_cast<Carrier*>(carrier)->payload + offset, bytes);
        }
        static bool answer(void* carrier, rmem_answer* answer, rmem_execute_data* data) {
            auto& self = *static_cast<Carrier*>(carrier);
            self.answered(answer->reply,
                          data ? self.node.data_of(*data) : payload_of(*answer, &answer->found));
            return true;
        }
        static bool run(void* carrier, const rmem_head* head, rmem_answer* answer) {
            auto& self = *static_cast<Carrier*>(carrier);
            return self.node.admit(*head, self.payload, *answer);
        }
        static constexpr rmem_execute_ops ops{at, copy, answer, run};
    };

    Bytes data_of(rmem_execute_data& left) {
        Bytes data;
        rmem_execute_begin(&left);
        while (rmem_execute_next(&left)) {
            for (const rmem_extent& e : std::span(left.answer->extent, left.answer->extents)) {
                if (e.page == RMEM_PAGE_NONE)
                    data.resize(data.size() + e.bytes);
                else
                    data.insert(data.end(), at(e), at(e) + e.bytes);
            }
        }
        return data;
    }

    size_t bytes_;
    std::unique_ptr<uint8_t, Aligned> state_;
    std::unique_ptr<uint8_t, Aligned> run_state_;

public:
    std::vector<uint8_t> memory;
};

} // namespace rig
