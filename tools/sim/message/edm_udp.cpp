// SPDX-License-Identifier: GPL-2.0
#include "sim/message/edm_udp.hpp"

#include <algorithm>

#include "support/failure.hpp"

namespace sim {

using remora::Misuse;

namespace {

constexpr base_siphash_key operator_key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
constexpr std::uint32_t epoch = 1;
constexpr std::uint32_t frame_bytes = 1460 - EDM_DATA_BYTES;
// Data has this part of a link: frames' heads and the scheduler's datagrams have the rest.
constexpr std::uint32_t book_permille = 920;
constexpr std::uint32_t overhead_bytes = 78;
// Longest life of a datagram in the network; an id is not used again before.
constexpr u64 late_ns = 1'000'000;
constexpr std::uint32_t down_leases = 5;
constexpr std::uint32_t doublings_max = 3;
constexpr std::uint32_t rank_control = 0, rank_data = 1;

const Budget& udp_budget(const Sim& sim) {
    const std::string& stack = sim.params.message.stack;
    return budget_of(stack.empty() ? "raw" : stack);
}

std::size_t words(std::size_t bytes) {
    return bytes / sizeof(std::uint64_t) + 1;
}

} // namespace

// Fields of a packet: seq is the operation's number. Data has its offset in tunnel, the id of a
// read's message in ack, and in subflow EDM_WRITE, EDM_ANSWER, or 0 if no scheduler knows the
// answer.

EdmUdp::EdmUdp(Sim& sim, Messages& messages)
    : Star(sim, messages, udp_budget(sim), ~std::uint64_t{0}, 2), rng_(mix(sim.params.seed + 2)) {
    const MessageParams& params = sim.params.message;
    if (sim.hosts.size() > EDM_PORTS_MAX)
        throw Misuse("hosts {}: EDM has at most {} ports", sim.hosts.size(), EDM_PORTS_MAX);
    repeat_.rack = failures_.rack = this;
    for (std::uint32_t number = 0; number < EDM_LINKS_MAX; number++)
        make_scheduler(number);
    for (std::uint16_t port = 0; port < sim.hosts.size(); port++)
        make_member(port);
    join_all();
    auto fails = [&](double at_us, std::uint64_t what) {
        if (at_us > 0)
            sim.events.at(static_cast<Time>(at_us * us), failures_, what);
    };
    fails(params.scheduler_dies_us, Failures::scheduler_dies);
    fails(params.port_down_us, Failures::port_down);
}

EdmUdp::~EdmUdp() = default;

void EdmUdp::make_scheduler(std::uint32_t number) {
    const MessageParams& params = sim_.params.message;
    edm_sched_config config{};
    edm_match_config& match = config.match;
    match.demand.ports = static_cast<u16>(sim_.hosts.size());
    match.demand.slots = static_cast<u16>(params.slots);
    match.demand.active_max = static_cast<u8>(params.active_max);
    match.demand.policy = params.policy == "fcfs" ? EDM_FCFS : EDM_SRPT;
    match.demand.in_order = params.in_order;
    match.demand.turn_ns = 1000;
    match.demand.lease_ns = params.lease_us * 1000ULL;
    match.chunk_bytes = params.chunk_bytes;
    match.unit_bytes = params.unit_bytes;
    match.age_ns = static_cast<u64>(params.age_us * 1000);
    match.egress_bytes_max = ~0U;
    match.share_bytes = 1U << 30;
    match.share_permille = 1000;
    config.life = number + 1;
    config.lease_us = params.lease_us;
    config.book_permille = book_permille;
    config.overhead_bytes = overhead_bytes;
    config.key = operator_key;
    if (!edm_sched_config_is_valid(&config))
        throw Misuse("EDM refuses its parameters: edm-chunk-bytes is a multiple of "
                     "edm-unit-bytes, edm-active is 1 to {}, edm-lease-us {} to {}",
                     EDM_ACTIVE_MAX, EDM_LEASE_US_MIN, EDM_LEASE_US_MAX);
    Scheduler& one = schedulers_.emplace_back();
    one.rack = this;
    one.number = number;
    one.memory.resize(words(edm_sched_bytes(&config)));
    one.secret = {{mix(number + 1), mix(number + 2)}};
    edm_sched_init(&one.core, &config, one.memory.data());
}

void EdmUdp::make_member(std::uint16_t port) {
    const MessageParams& params = sim_.params.message;
    edm_host_config config{};
    config.link.key = operator_key;
    config.link.join_ns = params.lease_us * 1000ULL;
    config.link.epoch = epoch;
    config.link.rate_mbps = static_cast<u32>(sim_.params.host_gbps * 1000);
    config.link.port = port;
    config.link.slots = static_cast<u16>(params.slots);
    config.ports = static_cast<u16>(sim_.hosts.size());
    config.links = EDM_LINKS_MAX;
    config.mega_bytes = params.mega_bytes;
    config.patience_ns = 10 * params.lease_us * 1000ULL;
    config.late_ns = late_ns;
    if (!edm_host_config_is_valid(&config))
        throw Misuse("edm-slots {}: a power of two up to {}", params.slots, EDM_SLOTS_MAX);
    Member& one = members_.emplace_back();
    one.rack = this;
    one.port = port;
    one.memory.resize(words(edm_host_bytes(&config)));
    edm_host_init(&one.core, now_ns(), &config, one.memory.data());
}

// All hosts follow the first scheduler when the run begins.
void EdmUdp::join_all() {
    for (Member& member : members_)
        drain(member);
    while (!joins_.empty()) {
        Packet* packet = joins_.front();
        joins_.pop_front();
        deliver(packet);
        sim_.pool.give(packet);
    }
    joining_ = false;
    for (const Member& member : members_)
        require(member.core.follow == 0, "EDM: a host has not joined");
}

// ---- datagrams ----

void EdmUdp::post(std::uint32_t from, std::uint32_t to, const edm_message& message,
                  const edm_item* items, std::uint64_t operation, const base_siphash_key& key) {
    Bytes bytes(edm_wire_header_bytes(&message) + message.payload_bytes);
    edm_wire_encode(&message, items, bytes.data());
    edm_wire_seal(bytes.data(), bytes.size(), &key);
    Packet* one = packet(Kind::edm_note, static_cast<std::uint16_t>(from),
                         static_cast<std::uint16_t>(to), static_cast<std::uint32_t>(bytes.size()));
    one->rank = rank_control;
    one->seq = operation;
    one->content = sim_.pool.contents.add(std::move(bytes));
    if (joining_)
        joins_.push_back(one);
    else
        nic(from).send(one);
}

bool EdmUdp::is_lost(const Packet& packet) {
    constexpr std::uint64_t all = 1'000'000;
    if (port_is_down_ && (packet.src == 0 || packet.dst == 0))
        return true;
    if (packet.dst >= members_.size() && schedulers_[packet.dst - members_.size()].dead)
        return true;
    return rng_.below(all) <
           static_cast<std::uint64_t>(sim_.params.message.loss_percent / 100 * all);
}

void EdmUdp::receive(Packet* packet) {
    if (is_lost(*packet))
        lost_++;
    else
        deliver(packet);
    sim_.pool.give(packet);
}

void EdmUdp::deliver(Packet* packet) {
    if (packet->kind == Kind::leg_data) {
        data(*packet);
    } else if (packet->kind == Kind::leg_ack) {
        acknowledged(packet->seq);
    } else if (packet->kind == Kind::leg_control) {
        // A request without a scheduler: its answer goes at once.
        auto found = operations_.find(packet->seq);
        if (found != operations_.end())
            send_data(static_cast<std::uint16_t>(packet->dst),
                      static_cast<std::uint16_t>(packet->src), packet->seq, nullptr, 0,
                      found->second->core.bytes);
    } else {
        const Bytes bytes = sim_.pool.contents[packet->content];
        const std::size_t hosts = members_.size();
        if (packet->dst < hosts)
            to_member(members_[packet->dst], static_cast<std::uint32_t>(packet->src - hosts), bytes,
                      packet->seq);
        else
            to_scheduler(schedulers_[packet->dst - hosts], static_cast<std::uint16_t>(packet->src),
                         bytes, packet->seq);
    }
}

void EdmUdp::wake(Handler& handler, Time& wake_at, u64 deadline_ns) {
    if (deadline_ns == EDM_NEVER)
        return;
    const Time when = std::max(deadline_ns * ns - us, sim_.now() + 1);
    if (when >= wake_at)
        return;
    wake_at = when;
    sim_.events.at(when, handler);
}

// ---- schedulers ----

void EdmUdp::to_scheduler(Scheduler& scheduler, std::uint16_t from, const Bytes& bytes,
                          std::uint64_t operation) {
    edm_message in, out;
    edm_item items[EDM_ENTRIES_MAX];
    edm_sched& core = scheduler.core;
    const auto own = static_cast<std::uint32_t>(members_.size() + scheduler.number);
    require(edm_wire_parse(&in, bytes.data(), bytes.size()) == EDM_WIRE_GOOD,
            "EDM: a host's datagram is malformed");
    if (in.kind == EDM_JOIN) {
        const u64 cookie = edm_wire_cookie(&scheduler.secret, &from, sizeof(from));
        if (edm_sched_join(&core, now_ns(), &in, from, cookie, &out) == EDM_SCHED_REPLY)
            post(own, from, out, nullptr, 0, operator_key);
        drain(scheduler);
        return;
    }
    const base_siphash_key* key = edm_sched_key(&core, in.port);
    if (!key || !edm_wire_verifies(bytes.data(), bytes.size(), key))
        return;
    if (scheduler.number && in.follows && !joining_)
        standby_heard_ = std::min(standby_heard_, sim_.now());
    if (in.kind == EDM_DEMAND) {
        if (edm_sched_demand(&core, now_ns(), &in, bytes.data(), &out, items) == EDM_SCHED_REPLY)
            post(own, out.port, out, items, 0, *key);
    } else {
        const auto verdict = edm_sched_request(&core, now_ns(), &in, &out, items);
        if (verdict != EDM_SCHED_IGNORE)
            post(own, out.port, out, items, operation, *edm_sched_key(&core, out.port));
    }
    drain(scheduler);
}

void EdmUdp::drain(Scheduler& scheduler) {
    edm_message message;
    edm_item item;
    while (edm_sched_expire(&scheduler.core, now_ns()))
        ;
    while (edm_sched_next(&scheduler.core, now_ns(), &message, &item)) {
        if (scheduler.number) {
            standby_grants_++;
            standby_granted_ = std::min(standby_granted_, sim_.now());
        }
        post(static_cast<std::uint32_t>(members_.size() + scheduler.number), message.port, message,
             &item, 0, *edm_sched_key(&scheduler.core, message.port));
    }
    wake(scheduler, scheduler.wake_at, edm_sched_deadline_ns(&scheduler.core));
}

void EdmUdp::Scheduler::fire(std::uint64_t) {
    if (dead || rack->sim_.now() < wake_at)
        return;
    wake_at = never;
    rack->drain(*this);
}

// ---- members ----

void EdmUdp::to_member(Member& member, std::uint32_t link, const Bytes& bytes,
                       std::uint64_t operation) {
    edm_message in;
    require(edm_wire_parse(&in, bytes.data(), bytes.size()) == EDM_WIRE_GOOD,
            "EDM: a scheduler's datagram is malformed");
    const bool joins = in.kind == EDM_CHALLENGE || in.kind == EDM_WELCOME;
    const auto at = static_cast<u8>(link);
    const base_siphash_key* key = joins ? &operator_key : edm_host_key(&member.core, at);
    if (!key || !edm_wire_verifies(bytes.data(), bytes.size(), key))
        return;
    if (in.kind != EDM_FORWARD) {
        edm_host_receive(&member.core, now_ns(), at, &in, bytes.data());
    } else if (edm_host_request(&member.core, now_ns(), at, &in) == EDM_HOST_NEW) {
        const std::uint32_t slots = sim_.params.message.slots;
        member.answers[in.item.peer * slots + in.item.id % slots] = {in.item.id, operation};
        edm_host_answer(&member.core, in.item.peer, in.item.id);
    }
    drain(member);
}

void EdmUdp::drain(Member& member) {
    edm_host_action action;
    while (edm_host_next(&member.core, now_ns(), &action))
        act(member, action);
    wake(member, member.wake_at, edm_host_deadline_ns(&member.core));
}

void EdmUdp::Member::fire(std::uint64_t) {
    if (rack->sim_.now() < wake_at)
        return;
    wake_at = never;
    rack->drain(*this);
}

void EdmUdp::act(Member& member, const edm_host_action& action) {
    const auto server = static_cast<std::uint32_t>(members_.size() + action.link);
    const auto* operation = reinterpret_cast<const Operation*>(action.op);
    const std::uint32_t slots = sim_.params.message.slots;
    if (action.what == EDM_HOST_TELL) {
        const bool joins = action.message.kind == EDM_JOIN;
        post(member.port, server, action.message, action.items, 0,
             joins ? operator_key : *edm_host_key(&member.core, action.link));
    } else if (action.what == EDM_HOST_ASK && action.unscheduled) {
        Packet* ask =
            packet(Kind::leg_control, member.port, action.peer, sim_.params.message.request_bytes);
        ask->seq = operation->number;
        nic(member.port).send(ask);
    } else if (action.what == EDM_HOST_ASK) {
        edm_message message = action.message;
        message.payload_bytes = sim_.params.message.request_bytes;
        post(member.port, server, message, nullptr, operation->number,
             *edm_host_key(&member.core, action.link));
    } else if (action.what == EDM_HOST_SEND) {
        send_data(member.port, action.peer, operation->number, &action, action.from, action.bytes);
    } else if (action.what == EDM_HOST_ANSWER) {
        const auto& [id, number] = member.answers[action.peer * slots + action.message.id % slots];
        require(id == action.message.id, "EDM: an answer to no request");
        send_data(member.port, action.peer, number, &action, action.from, action.bytes);
    }
}

void EdmUdp::send_data(std::uint16_t from, std::uint16_t to, std::uint64_t operation,
                       const edm_host_action* action, std::uint32_t offset, std::uint32_t bytes) {
    for (const std::uint32_t end = offset + bytes; offset < end;) {
        const std::uint32_t payload = std::min(frame_bytes, end - offset);
        Packet* one = packet(Kind::leg_data, from, to, payload + EDM_DATA_BYTES);
        one->rank = rank_data;
        one->payload_bytes = static_cast<std::uint16_t>(payload);
        one->seq = operation;
        one->tunnel = offset;
        if (action) {
            one->ack = action->message.id;
            one->subflow = action->message.type;
        }
        nic(from).send(one);
        offset += payload;
    }
}

// ---- operations ----

void EdmUdp::send(Leg leg) {
    const Message& message = messages_[leg.message];
    auto fresh = std::make_unique<Operation>();
    Operation& one = *fresh;
    one.core.bytes = one.left = message.bytes;
    one.core.peer = message.memory;
    one.core.type = message.read ? EDM_READ : EDM_WRITE;
    one.number = next_++;
    one.message = leg.message;
    one.landed.resize(message.bytes);
    operations_.emplace(one.number, std::move(fresh));
    edm_host_submit(&members_[message.requester].core, now_ns(), &one.core);
    drain(members_[message.requester]);
    sim_.events.after(static_cast<Time>(sim_.params.message.rto_us * us), repeat_, one.number);
}

// Bytes that arrive belong to the operation that sent them, or to none any more.
void EdmUdp::data(const Packet& packet) {
    const auto host = static_cast<std::uint16_t>(packet.dst);
    auto found = operations_.find(packet.seq);
    if (packet.subflow == EDM_ANSWER) {
        edm_message head{};
        head.kind = EDM_DATA;
        head.type = EDM_ANSWER;
        head.port = static_cast<u16>(packet.src);
        head.epoch = epoch;
        head.id = static_cast<u32>(packet.ack);
        head.offset = packet.tunnel;
        head.payload_bytes = packet.payload_bytes;
        const edm_op* op = edm_host_op_of(&members_[host].core, &head);
        require(!op || reinterpret_cast<const Operation*>(op)->number == packet.seq,
                "EDM: bytes of one read arrive as another's");
        if (!op)
            found = operations_.end();
    }
    if (found == operations_.end()) {
        late_++;
        return;
    }
    Operation& one = *found->second;
    const Message& message = messages_[one.message];
    require((message.read ? message.requester : message.memory) == host &&
                packet.tunnel + packet.payload_bytes <= one.core.bytes,
            "EDM: bytes arrive where they don't belong");
    for (std::uint32_t at = packet.tunnel; at < packet.tunnel + packet.payload_bytes; at++) {
        one.left -= !one.landed[at];
        one.landed[at] = true;
    }
    if (one.left)
        return;
    if (message.read) {
        finish(one);
        return;
    }
    // The first time, and for a copy whose sender has not heard of it.
    if (!one.complete || packet.tunnel + packet.payload_bytes == one.core.bytes) {
        one.complete = true;
        Packet* ack = this->packet(Kind::leg_ack, host, message.requester, 0);
        ack->seq = one.number;
        nic(host).send(ack);
    }
}

void EdmUdp::acknowledged(std::uint64_t operation) {
    auto found = operations_.find(operation);
    if (found != operations_.end())
        finish(*found->second);
}

void EdmUdp::finish(Operation& one) {
    const std::uint32_t message = one.message;
    Member& member = members_[messages_[message].requester];
    bool returned = one.core.state == EDM_OP_IDLE;
    if (!returned && one.core.type == EDM_READ && one.core.state == EDM_OP_ACTIVE) {
        edm_host_done(&member.core, now_ns(), &one.core);
        returned = true;
    } else if (!returned) {
        returned = edm_host_cancel(&member.core, now_ns(), &one.core);
    }
    auto node = operations_.extract(one.number);
    if (!returned)
        ended_.push_back(std::move(node.mapped()));
    drain(member);
    messages_.finished(message);
}

void EdmUdp::Repeat::fire(std::uint64_t number) {
    auto found = rack->operations_.find(number);
    if (found != rack->operations_.end())
        rack->try_again(*found->second);
}

// A write that the core still has only waits. A read's answer might be lost.
void EdmUdp::try_again(Operation& one) {
    Member& member = members_[messages_[one.message].requester];
    const bool asked = one.core.type == EDM_READ && one.core.state == EDM_OP_ACTIVE;
    if (asked)
        require(edm_host_cancel(&member.core, now_ns(), &one.core), "EDM: a read can't end");
    if (one.core.state == EDM_OP_IDLE) {
        repeats_++;
        one.repeats++;
        edm_host_submit(&member.core, now_ns(), &one.core);
        drain(member);
    }
    const auto rto = static_cast<Time>(sim_.params.message.rto_us * us);
    sim_.events.after(rto << std::min(one.repeats, doublings_max), repeat_, one.number);
}

// ---- failures ----

void EdmUdp::Failures::fire(std::uint64_t what) {
    const std::uint32_t lease_us = rack->sim_.params.message.lease_us;
    if (what == scheduler_dies) {
        rack->schedulers_[0].dead = true;
        rack->died_at_ = rack->sim_.now();
        return;
    }
    rack->port_is_down_ = what == port_down;
    if (what == port_down)
        rack->sim_.events.after(Time{down_leases} * lease_us * us, *this, port_up);
}

void EdmUdp::check(bool idle) const {
    Star::check(idle);
    for (const Member& member : members_) {
        const char* broken = edm_host_check(&member.core);
        require(!broken, broken);
    }
    for (const Scheduler& scheduler : schedulers_) {
        const char* broken = edm_demand_check(&scheduler.core.match.demands);
        require(!broken, broken);
    }
    require(!idle || operations_.empty(), "EDM: an operation is left");
}

std::vector<std::pair<std::string, std::uint64_t>> EdmUdp::counts() const {
    auto result = Star::counts();
    std::uint64_t unscheduled = 0, silences = 0;
    for (const Member& member : members_) {
        unscheduled += member.core.counts.unscheduled;
        silences += member.core.counts.silences;
    }
    auto since_death = [&](Time at) {
        return at == never || died_at_ == never ? 0 : (at - died_at_) / ns;
    };
    // Three leases, and a round trip: of datagrams behind a full frame at each port. A port that
    // begins to follow is busy for a chunk's time.
    auto on_link = [&](std::uint64_t bytes) {
        return static_cast<Time>(static_cast<double>(bytes) * 8000 / sim_.params.host_gbps);
    };
    const Time round = 2 * (one_way() + 2 * on_link(2 * ethernet_bytes(1500)));
    const Time asked = Time{EDM_SILENT_LEASES} * sim_.params.message.lease_us * us + round;
    const Time granted =
        asked + on_link(sim_.params.message.chunk_bytes) * 1000 / book_permille + 2 * ns;
    result.insert(result.end(), {{"grants", schedulers_[0].core.counts.grants},
                                 {"standby_grants", standby_grants_},
                                 {"standby_asked_ns", since_death(standby_heard_)},
                                 {"standby_granted_ns", since_death(standby_granted_)},
                                 {"standby_asked_bound_ns", asked / ns},
                                 {"standby_granted_bound_ns", granted / ns},
                                 {"datagrams_lost", lost_},
                                 {"datagrams_late", late_},
                                 {"repeats", repeats_},
                                 {"unscheduled", unscheduled},
                                 {"silences", silences}});
    return result;
}

} // namespace sim
