// SPDX-License-Identifier: GPL-2.0
// EDM's datagrams, any bytes: one form on the wire for what parses. And a scheduler and a host that
// get any datagrams that parse, sealed by a hostile holder of the key: their invariants hold, no
// port is booked twice, a drained core's deadline lies ahead.
//
// Input: 0 and a datagram; or 1 and a script of calls, each a byte that says what, and its fields.
#include "script.hpp"

#include <vector>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/edm/host.h"
#include "core/edm/sched.h"
}
#pragma GCC diagnostic pop

namespace {

constexpr uint16_t ports = 4, slots = 4;

void one_form(const uint8_t* data, size_t size) {
    edm_message m;
    if (edm_wire_parse(&m, data, size) != EDM_WIRE_GOOD)
        return;
    const size_t head = edm_wire_header_bytes(&m);
    require(head + m.payload_bytes == size && m.count <= EDM_ENTRIES_MAX);
    std::vector<edm_item> items(m.count);
    for (uint32_t n = 0; n < m.count; n++)
        edm_wire_item(data, n, &items[n]);
    std::vector<uint8_t> again(head);
    edm_wire_encode(&m, items.data(), again.data());
    // All but the tag.
    for (size_t at = 0; at < head; at++)
        require(again[at] == data[at] || (m.kind != EDM_DATA && at >= 16 && at < 24));
}

struct Rack {
    Rack() {
        edm_sched_config config{};
        config.match.demand = {ports, slots, 2, EDM_SRPT, false, 1, 1'000'000};
        config.match.chunk_bytes = 4096;
        config.match.unit_bytes = 64;
        config.match.age_ns = 100'000;
        config.match.egress_bytes_max = 8192;
        config.match.share_bytes = 8192;
        config.match.share_permille = 250;
        config.life = 1;
        config.lease_us = 1'000;
        config.book_permille = 970;
        require(edm_sched_config_is_valid(&config));
        sched_memory.resize(edm_sched_bytes(&config) / 8 + 1);
        edm_sched_init(&sched, &config, sched_memory.data());
        edm_host_config host_config{};
        host_config.link = {{}, 1'000'000, 1, 8'000, 0, slots};
        host_config.ports = ports;
        host_config.links = EDM_LINKS_MAX;
        host_config.mega_bytes = 1024;
        host_config.patience_ns = 5'000'000;
        host_config.late_ns = 500'000;
        require(edm_host_config_is_valid(&host_config));
        host_memory.resize(edm_host_bytes(&host_config) / 8 + 1);
        edm_host_init(&host, now, &host_config, host_memory.data());
    }

    void drain() {
        edm_message message;
        edm_item item;
        while (edm_sched_expire(&sched, now))
            ;
        while (edm_sched_next(&sched, now, &message, &item)) {
            require(message.port < ports && item.peer < ports && message.port != item.peer);
            require(item.size && item.size <= 4096 && item.granted >= item.size);
        }
        require(edm_sched_deadline_ns(&sched) > now && !edm_match_check(&sched.match));
        static edm_host_action action;
        while (edm_host_next(&host, now, &action)) {
            if (action.what == EDM_HOST_SENT)
                require(action.op->state == EDM_OP_IDLE);
            if (action.what == EDM_HOST_SEND) {
                uint32_t& sent = sent_of[action.op - ops];
                require(action.bytes && action.from == sent);
                sent += action.bytes;
                require(sent <= action.op->bytes);
            }
        }
        require(edm_host_deadline_ns(&host) > now && !edm_host_check(&host));
    }

    edm_item item_of(Script& in) {
        edm_item item{};
        item.id = in.take(1);
        item.size = in.take(2);
        item.granted = in.take(2);
        item.peer = in.take(1) % 8;
        item.type = 1 + in.take(1) % 3;
        return item;
    }

    // Fields that a hostile end chooses; only what parses reaches a core.
    std::vector<uint8_t> message(Script& in, uint8_t kind, edm_message* parsed) {
        edm_message m{};
        edm_item items[3];
        m.kind = kind;
        m.port = in.take(1) % 8;
        m.epoch = in.take(1) % 4;
        m.life = kind == EDM_JOIN ? 0 : in.take(1) % 4;
        m.seq = in.take(1);
        m.seen = in.take(1);
        m.follows = in.take(1) & 1;
        m.rate_mbps = kind == EDM_JOIN ? 1 + in.take(2) : 0;
        m.cookie = in.take(1) % 4;
        if (kind == EDM_WELCOME) {
            m.chunk_bytes = 4096;
            m.lease_us = 1'000;
            m.slots = slots;
            m.active_max = 2;
        }
        m.peer_epoch = kind == EDM_FORWARD ? 1 + in.take(1) % 3 : 0;
        m.count = kind == EDM_DEMAND || kind == EDM_GRANT ? in.take(1) % 4 : 0;
        for (uint32_t n = 0; n < m.count; n++) {
            items[n] = item_of(in);
            if (kind == EDM_GRANT)
                items[n].status = in.take(1) % 4;
        }
        if (kind == EDM_REQUEST || kind == EDM_FORWARD)
            m.item = item_of(in);
        std::vector<uint8_t> bytes(edm_wire_header_bytes(&m));
        edm_wire_encode(&m, items, bytes.data());
        if (kind == EDM_REQUEST || kind == EDM_FORWARD)
            bytes.push_back(0);
        if (edm_wire_parse(parsed, bytes.data(), bytes.size()) != EDM_WIRE_GOOD)
            bytes.clear();
        return bytes;
    }

    void to_scheduler(Script& in) {
        static const uint8_t kinds[] = {EDM_JOIN, EDM_DEMAND, EDM_DEMAND, EDM_REQUEST};
        edm_message m, reply;
        edm_item items[EDM_ENTRIES_MAX];
        const auto bytes = message(in, kinds[in.take(1) % 4], &m);
        if (bytes.empty())
            return;
        if (m.kind == EDM_JOIN)
            edm_sched_join(&sched, now, &m, m.port, 1, &reply);
        else if (m.kind == EDM_DEMAND)
            edm_sched_demand(&sched, now, &m, bytes.data(), &reply, items);
        else
            edm_sched_request(&sched, now, &m, &reply, items);
    }

    void to_host(Script& in) {
        static const uint8_t kinds[] = {EDM_CHALLENGE, EDM_WELCOME, EDM_GRANT, EDM_FORWARD};
        const uint8_t link = in.take(1) % EDM_LINKS_MAX;
        edm_message m;
        const auto bytes = message(in, kinds[in.take(1) % 4], &m);
        if (bytes.empty())
            return;
        if (m.kind != EDM_FORWARD)
            edm_host_receive(&host, now, link, &m, bytes.data());
        else if (edm_host_request(&host, now, link, &m) == EDM_HOST_NEW)
            edm_host_answer(&host, m.item.peer, m.item.id);
    }

    void user(Script& in) {
        const uint32_t n = in.take(1) % 16;
        edm_op& op = ops[n];
        switch (op.state) {
        case EDM_OP_IDLE:
            op = {};
            op.bytes = 1 + in.take(2);
            op.peer = 1 + in.take(1) % (ports - 1);
            op.type = in.take(1) & 1 ? EDM_READ : EDM_WRITE;
            sent_of[n] = 0;
            edm_host_submit(&host, now, &op);
            break;
        case EDM_OP_ACTIVE:
            if (op.type == EDM_READ && in.take(1) & 1) {
                edm_host_done(&host, now, &op);
                break;
            }
            [[fallthrough]];
        default:
            edm_host_cancel(&host, now, &op);
        }
    }

    void step(Script& in) {
        switch (in.take(1) % 6) {
        case 0:
        case 1:
            to_scheduler(in);
            break;
        case 2:
        case 3:
            to_host(in);
            break;
        case 4:
            user(in);
            break;
        default:
            now += in.take(3);
            edm_match_egress(&sched.match, in.take(1) % ports, in.take(2));
        }
        drain();
    }

    edm_sched sched;
    edm_host host;
    std::vector<uint64_t> sched_memory, host_memory;
    uint64_t now = 1'000'000;
    edm_op ops[16] = {};
    uint32_t sent_of[16] = {};
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (!size || !(data[0] & 1)) {
        one_form(data + !!size, size - !!size);
        return 0;
    }
    Script in(data + 1, size - 1);
    Rack rack;
    rack.drain();
    for (int steps = 0; !in.done() && steps < 256; steps++)
        rack.step(in);
    return 0;
}
