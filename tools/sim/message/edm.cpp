// SPDX-License-Identifier: GPL-2.0
#include "sim/message/edm.hpp"

#include <algorithm>

#include <endian.h>

#include "sim/message/budget.hpp"
#include "support/failure.hpp"

namespace sim {

using remora::Misuse;

namespace {

constexpr std::uint32_t block_bytes = 8;
constexpr std::uint32_t life = 1, epoch = 1;
// Longer than any run, in picoseconds: nothing is lost, so no lease has to end.
constexpr std::uint32_t lease_us = 4'000'000'000;
constexpr edm_line line{EDM_PROFILE_TYPES, false};

// Cycles of table 1 and figure 5. A switch spends 11 on a read or write: 5 on data (1 to identify
// it, 4 to forward it). The other 6 identify a demand, queue it and match it.
constexpr Time make_note = 2, make_data = 3, take_grant = 2, take_request = 3, grant_queue = 4,
               take_data = 3, switch_demand = 6, switch_match = 3, switch_data = 5;

std::size_t words(std::size_t bytes) {
    return bytes / sizeof(std::uint64_t) + 1;
}

// A GRANT with one entry, as the core reads it.
struct GrantBytes {
    std::uint8_t heads[EDM_HEAD_BYTES + EDM_LIST_BYTES];
    edm_entry entry;
};

GrantBytes grant_bytes(const Packet& packet) {
    GrantBytes bytes{};
    bytes.entry.id = htole32(static_cast<std::uint32_t>(packet.seq));
    bytes.entry.size = htole32(packet.rank);
    bytes.entry.granted = htole32(static_cast<std::uint32_t>(packet.ack));
    bytes.entry.peer = htole16(static_cast<std::uint16_t>(packet.path));
    bytes.entry.type = packet.subflow;
    return bytes;
}

} // namespace

// Fields of a packet in EDM: seq is the message's id. path is the port of its other end, subflow
// the type of the core's entry. rank has bytes: of a demand, a grant or data. ack is the end offset
// of a grant, or the operation of a write's data. tunnel is the offset of data, or the message's
// size. An OFFER of another leaf is the grant or the request that its host gets next. In a TAKEN
// seq says if the offer has been taken in full.

EdmRack::EdmRack(Sim& sim_, Messages& messages_)
    : sim(sim_), messages(messages_), block(static_cast<Time>(64e3 / sim_.params.host_gbps)) {
    const bool one = sim.params.topology == "star";
    if (!one && sim.params.topology != "leaf-spine")
        throw Misuse("topology '{}': EDM wants star or leaf-spine", sim.params.topology);
    leaf_count = static_cast<std::uint16_t>(one ? 1 : sim.params.leaves);
    leaf_hosts = static_cast<std::uint16_t>(sim.hosts.size() / leaf_count);
    if (sim.hosts.size() + (leaf_count > 1 ? leaf_count : 0) > EDM_PORTS_MAX)
        throw Misuse("hosts {}: EDM has at most {} ports", sim.hosts.size(), EDM_PORTS_MAX);
    if (leaf_count > 1 && sim.params.message.matcher == "pim")
        throw Misuse("edm-matcher pim: the paper's has one switch, so it wants star");
    if (sim.params.fabric_gbps > 0 && sim.params.fabric_gbps != sim.params.host_gbps)
        throw Misuse("fabric-gbps {}: blocks are cut through, so all links have the hosts' rate",
                     sim.params.fabric_gbps);
    const edm_block_head request{EDM_RREQ, 0, 0, 0, 1, 0};
    request_bytes = block_bytes * edm_block_count(&line, &request);
    delays();
    build();
    if (sim.params.message.frame_load > 0)
        frames = std::make_unique<EdmFrames>(*this);
}

void EdmRack::build() {
    for (std::uint16_t number = 0; number < leaf_count; number++)
        leaves.emplace_back(*this, number);
    for (std::uint16_t port = 0; port < sim.hosts.size(); port++)
        hosts.emplace_back(*this, port);
    for (std::uint16_t port = 0; port < sim.hosts.size(); port++) {
        EdmLeaf& leaf = leaves[port / leaf_hosts];
        BlockPort& to = leaf.down.emplace_back(sim, block, down, hosts[port]);
        to.listen(leaf, port, sim.params.message.egress_blocks * block_bytes);
    }
    if (leaf_count == 1)
        return;
    for (std::uint32_t number = 0; number < sim.params.spines; number++) {
        EdmSpine& spine = spines.emplace_back(*this);
        spine.down.resize(leaf_count);
    }
    for (EdmSpine& spine : spines) {
        for (std::uint16_t number = 0; number < leaf_count; number++) {
            for (std::uint32_t link = 0; link < sim.params.links_per_spine; link++) {
                leaves[number].up.add(*this, across, spine);
                spine.down[number].add(*this, back, leaves[number].above);
            }
        }
    }
}

EdmRack::~EdmRack() = default;

// ---- frames ----

EdmFrames::EdmFrames(EdmRack& rack) : rack_(rack), rng_(mix(rack.sim.params.seed + 1)) {
    const Params& params = rack.sim.params;
    bytes_ = block_bytes * (edm_block_frame(params.message.frame_bytes) + 1);
    gap_ =
        static_cast<Time>(static_cast<double>(bytes_ / block_bytes * rack.block) /
                          params.message.frame_load / static_cast<double>(rack.sim.hosts.size()));
    rack.sim.events.at(us, *this);
}

void EdmFrames::fire(std::uint64_t) {
    const std::uint64_t hosts = rack_.sim.hosts.size();
    const auto from = static_cast<std::uint16_t>(rng_.below(hosts));
    auto to = static_cast<std::uint16_t>(rng_.below(hosts - 1));
    to = static_cast<std::uint16_t>(to + (to >= from));
    rack_.hosts[from].nic.send(rack_.packet(Kind::edm_frame, from, to, bytes_), BlockLane::frame);
    sent++;
    rack_.sim.events.after(rng_.exponential(gap_), *this);
}

// ---- rack ----

void EdmRack::delays() {
    const bool pim = sim.params.message.matcher == "pim";
    const Time link = budget_edm.link();
    auto set = [&](BlockPort::Delays& delays, Kind kind, Time cycles) {
        delays.of[static_cast<std::size_t>(kind)] = link + cycles * edm_cycle;
    };
    const Time demand = pim ? switch_demand - switch_match : switch_demand;
    set(up, Kind::edm_note, make_note + demand);
    set(up, Kind::edm_request, make_note + demand);
    set(up, Kind::edm_data, make_data + switch_data);
    up.cut_through = true;
    set(down, Kind::edm_grant, take_grant + grant_queue);
    set(down, Kind::edm_request, take_request + grant_queue);
    set(down, Kind::edm_data, take_data);
    // Frames pass MAC and PCS as in a switch without EDM, and are stored and forwarded.
    up.of[static_cast<std::size_t>(Kind::edm_frame)] = budget_raw.link() + budget_raw.forward;
    down.of[static_cast<std::size_t>(Kind::edm_frame)] = budget_raw.link();
    // A spine identifies and forwards, as a switch does data. A leaf takes a spine's packets as it
    // takes a host's.
    for (const Kind kind : {Kind::edm_note, Kind::edm_grant, Kind::edm_request, Kind::edm_taken}) {
        set(across, kind, switch_data);
        set(back, kind, demand);
    }
    set(across, Kind::edm_data, switch_data);
    set(back, Kind::edm_data, switch_data);
    across.of[static_cast<std::size_t>(Kind::edm_frame)] = budget_raw.link() + budget_raw.forward;
    back.of[static_cast<std::size_t>(Kind::edm_frame)] = budget_raw.link() + budget_raw.forward;
    across.cut_through = back.cut_through = true;
}

std::uint32_t EdmRack::data_bytes(bool read, std::uint32_t bytes) const {
    const edm_block_head head{
        static_cast<u8>(read ? EDM_RRES : EDM_WREQ), 0, 0, 0, static_cast<u16>(bytes), 0};
    return block_bytes * edm_block_count(&line, &head);
}

Wire EdmRack::wire(bool read, std::uint32_t bytes) const {
    const std::uint32_t chunk = sim.params.message.chunk_bytes;
    const std::uint32_t full = bytes / chunk, rest = bytes % chunk;
    const double data = full * data_bytes(read, chunk) + (rest ? data_bytes(read, rest) : 0);
    const double chunks = full + (rest != 0);
    Wire wire;
    if (read) {
        wire.requester_tx = request_bytes;
        wire.memory_rx = request_bytes + (chunks - 1) * block_bytes;
        wire.memory_tx = wire.requester_rx = data;
    } else {
        wire.requester_tx = block_bytes + data;
        wire.requester_rx = chunks * block_bytes;
        wire.memory_rx = data;
    }
    return wire;
}

Packet* EdmRack::packet(Kind kind, std::uint16_t from, std::uint16_t to, std::uint32_t bytes) {
    Packet* packet = sim.pool.take();
    packet->kind = kind;
    packet->src = from;
    packet->dst = to;
    packet->bytes = static_cast<std::uint16_t>(bytes);
    return packet;
}

EdmOp& EdmRack::take_op() {
    EdmOp* op;
    if (free_.empty()) {
        op = &ops_.emplace_back();
    } else {
        op = free_.back();
        free_.pop_back();
    }
    *op = EdmOp{};
    return *op;
}

void EdmRack::submit(std::uint32_t message) {
    hosts[messages[message].requester].submit(message);
}

void EdmRack::check(bool idle) const {
    for (const EdmLeaf& leaf : leaves)
        leaf.check();
    for (const EdmHost& host : hosts)
        host.check();
    require(!idle || free_.size() == ops_.size(), "EDM: an operation is left");
}

std::uint64_t EdmRack::egress_peak_bytes() const {
    std::uint64_t peak = 0;
    for (const EdmLeaf& leaf : leaves) {
        for (const BlockPort& port : leaf.down)
            peak = std::max(peak, port.peak_bytes());
    }
    return peak;
}

std::vector<std::pair<std::string, std::uint64_t>> EdmRack::counts() const {
    Time wait = 0;
    std::uint64_t grants = 0, offers = 0, peak = 0;
    for (const EdmLeaf& leaf : leaves) {
        for (const BlockPort& port : leaf.down)
            wait = std::max(wait, port.frame_wait_max());
        for (const BlockPort& port : leaf.up.links)
            peak = std::max(peak, port.peak_bytes());
        grants += leaf.grants;
        offers += leaf.offers;
    }
    for (const EdmSpine& spine : spines) {
        for (const EdmLinks& links : spine.down) {
            for (const BlockPort& port : links.links)
                peak = std::max(peak, port.peak_bytes());
        }
    }
    for (const EdmHost& host : hosts)
        wait = std::max(wait, host.nic.frame_wait_max());
    return {{"grants", grants},
            {"offers", offers},
            {"fabric_peak_bytes", peak},
            {"frames_sent", frames ? frames->sent : 0},
            {"frames_received", frames ? frames->received : 0},
            {"frame_wait_max_ps", wait}};
}

// ---- host ----

EdmHost::EdmHost(EdmRack& rack, std::uint16_t port)
    : nic(rack.sim, rack.block, rack.up, rack.leaves[port / rack.leaf_hosts]),
      rack_(rack),
      port_(port) {
    const MessageParams& params = rack.sim.params.message;
    edm_host_config config{};
    config.link.join_ns = 1;
    config.link.epoch = epoch;
    config.link.rate_mbps = 1;
    config.link.port = port;
    config.link.slots = static_cast<u16>(params.slots);
    config.ports = static_cast<u16>(rack.sim.hosts.size());
    config.links = 1;
    config.mega_bytes = params.mega_bytes;
    config.patience_ns = EDM_NEVER;
    if (!edm_host_config_is_valid(&config))
        throw Misuse("edm-slots {}: a power of two up to {}", params.slots, EDM_SLOTS_MAX);
    memory_.resize(words(edm_host_bytes(&config)));
    edm_host_init(&core_, rack.now(), &config, memory_.data());
    join();
}

// The switch welcomes the host before the run begins.
void EdmHost::join() {
    const MessageParams& params = rack_.sim.params.message;
    edm_message welcome{};
    welcome.kind = EDM_WELCOME;
    welcome.port = port_;
    welcome.epoch = epoch;
    welcome.life = life;
    welcome.chunk_bytes = params.chunk_bytes;
    welcome.lease_us = lease_us;
    welcome.slots = static_cast<u16>(params.slots);
    welcome.active_max = static_cast<u8>(params.active_max);
    edm_host_receive(&core_, rack_.now(), 0, &welcome, nullptr);
    drain();
}

void EdmHost::submit(std::uint32_t index) {
    const Message& message = rack_.messages[index];
    EdmOp& op = rack_.take_op();
    op.message = index;
    op.core.bytes = message.bytes;
    op.core.peer = message.memory;
    op.core.type = message.read ? EDM_READ : EDM_WRITE;
    edm_host_submit(&core_, rack_.now(), &op.core);
    drain();
}

void EdmHost::fire(std::uint64_t arg) {
    Packet* packet = reinterpret_cast<Packet*>(arg);
    if (BlockPort::is_late(rack_.sim, packet, *this))
        return;
    rack_.sim.on_wire--;
    switch (packet->kind) {
    case Kind::edm_grant:
        grant(*packet);
        break;
    case Kind::edm_request:
        request(*packet);
        break;
    case Kind::edm_data:
        data(*packet);
        break;
    default:
        require(packet->kind == Kind::edm_frame, "EDM: a packet that hosts don't get");
        rack_.frames->received++;
    }
    rack_.sim.pool.give(packet);
}

// Has the request arrived that a read's grant belongs to?
bool EdmHost::knows(const Packet& packet) const {
    const auto id = static_cast<u32>(packet.seq), slots = u32{core_.config.link.slots};
    const edm_flow& answer = core_.answer[packet.path * slots + id % slots];
    return answer.state == EDM_FLOW_USED && answer.id == id;
}

void EdmHost::grant(const Packet& packet) {
    // A control block passes a request that waits for data's end. The grant queue keeps it.
    if (packet.subflow == EDM_ANSWER && !knows(packet)) {
        early_.push_back(packet);
        return;
    }
    const GrantBytes bytes = grant_bytes(packet);
    edm_message message{};
    message.kind = EDM_GRANT;
    message.port = port_;
    message.epoch = epoch;
    message.life = life;
    message.seq = ++seq_;
    message.count = 1;
    edm_host_receive(&core_, rack_.now(), 0, &message, &bytes);
    drain();
}

// An RREQ that was matched: the request, and the grant of the first chunk of its answer.
void EdmHost::request(const Packet& packet) {
    edm_message forward{};
    forward.kind = EDM_FORWARD;
    forward.port = port_;
    forward.epoch = forward.peer_epoch = epoch;
    forward.life = life;
    forward.seq = ++seq_;
    forward.item.id = static_cast<u32>(packet.seq);
    forward.item.size = packet.tunnel;
    forward.item.peer = static_cast<u16>(packet.path);
    forward.item.type = EDM_ANSWER;
    require(edm_host_request(&core_, rack_.now(), 0, &forward) == EDM_HOST_NEW,
            "EDM: a request came twice");
    edm_host_answer(&core_, forward.item.peer, forward.item.id);
    grant(packet);
    for (std::size_t i = 0; i < early_.size();) {
        if (early_[i].path != packet.path || early_[i].seq != packet.seq) {
            i++;
            continue;
        }
        const Packet next = early_[i];
        early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(i));
        grant(next);
    }
}

void EdmHost::data(const Packet& packet) {
    if (packet.subflow == EDM_WRITE) {
        landed(*reinterpret_cast<EdmOp*>(packet.ack), packet.rank);
        return;
    }
    edm_message message{};
    message.kind = EDM_DATA;
    message.type = EDM_ANSWER;
    message.port = static_cast<u16>(packet.src);
    message.epoch = epoch;
    message.id = static_cast<u32>(packet.seq);
    message.offset = packet.tunnel;
    message.payload_bytes = packet.rank;
    edm_op* op = edm_host_op_of(&core_, &message);
    require(op, "EDM: an answer to no read");
    landed(*reinterpret_cast<EdmOp*>(op), packet.rank);
}

void EdmHost::landed(EdmOp& op, std::uint32_t bytes) {
    op.landed += bytes;
    require(op.landed <= op.core.bytes, "EDM: more bytes arrive than a message has");
    if (op.landed < op.core.bytes)
        return;
    const std::uint32_t message = op.message;
    if (op.core.type == EDM_READ) {
        edm_host_done(&core_, rack_.now(), &op.core);
        drain();
    }
    require(op.core.state == EDM_OP_IDLE, "EDM: an operation ends before it was sent");
    rack_.give_op(op);
    rack_.messages.finished(message);
}

void EdmHost::drain() {
    edm_host_action action;
    while (edm_host_next(&core_, rack_.now(), &action))
        act(action);
}

void EdmHost::act(const edm_host_action& action) {
    switch (action.what) {
    case EDM_HOST_TELL:
        for (u32 n = 0; n < action.message.count; n++) {
            const edm_item& item = action.items[n];
            require(item.type == EDM_WRITE && item.size && !item.granted,
                    "EDM: a host tells more than a demand");
            Packet* note = rack_.packet(Kind::edm_note, port_, item.peer, block_bytes);
            note->seq = item.id;
            note->rank = item.size;
            note->path = item.peer;
            note->subflow = EDM_WRITE;
            nic.send(note, BlockLane::control);
        }
        break;
    case EDM_HOST_ASK:
        ask(action);
        break;
    case EDM_HOST_SEND:
    case EDM_HOST_ANSWER:
        send_data(action);
        break;
    default:
        break;
    }
}

void EdmHost::ask(const edm_host_action& action) {
    require(!action.unscheduled, "EDM: a host without a scheduler");
    Packet* request = rack_.packet(Kind::edm_request, port_, port_, rack_.request_bytes);
    request->seq = action.message.item.id;
    request->rank = action.message.item.size;
    request->path = action.peer;
    request->subflow = EDM_READ;
    nic.send(request, BlockLane::request);
}

void EdmHost::send_data(const edm_host_action& action) {
    const bool answer = action.what == EDM_HOST_ANSWER;
    require(!action.unscheduled, "EDM: data without a grant");
    // A grant covers a chunk, but several might have come since: a message of the wire is a chunk.
    const std::uint32_t chunk = rack_.sim.params.message.chunk_bytes;
    for (u32 sent = 0; sent < action.bytes; sent += chunk) {
        const u32 bytes = std::min(chunk, action.bytes - sent);
        Packet* data =
            rack_.packet(Kind::edm_data, port_, action.peer, rack_.data_bytes(answer, bytes));
        data->seq = action.message.id;
        data->ack = reinterpret_cast<std::uint64_t>(action.op);
        data->rank = bytes;
        data->tunnel = action.message.offset + sent;
        data->subflow = answer ? EDM_ANSWER : EDM_WRITE;
        nic.send(data, BlockLane::data);
    }
}

void EdmHost::check() const {
    const char* broken = edm_host_check(&core_);
    require(!broken, broken);
    require(early_.size() < core_.config.link.slots, "EDM: grants wait for requests");
}

// ---- links between switches ----

BlockPort& EdmLinks::add(EdmRack& rack, const BlockPort::Delays& delays, Handler& peer) {
    return links.emplace_back(rack.sim, rack.block, delays, peer);
}

void EdmLinks::send(Packet* packet, BlockLane lane) {
    std::size_t best = next_;
    Time least = never;
    for (std::size_t tried = 0; tried < links.size() && least; tried++) {
        const std::size_t at = (next_ + tried) % links.size();
        const Time backlog = links[at].backlog();
        if (backlog < least) {
            least = backlog;
            best = at;
        }
    }
    next_ = (best + 1) % links.size();
    links[best].send(packet, lane);
}

void EdmSpine::fire(std::uint64_t arg) {
    Packet* packet = reinterpret_cast<Packet*>(arg);
    if (packet->kind != Kind::edm_data && BlockPort::is_late(rack_.sim, packet, *this))
        return;
    rack_.sim.on_wire--;
    down[packet->dst / rack_.leaf_hosts].send(packet, EdmLeaf::lane_of(*packet));
}

// ---- leaf ----

BlockLane EdmLeaf::lane_of(const Packet& packet) {
    switch (packet.kind) {
    case Kind::edm_data:
        return BlockLane::data;
    case Kind::edm_frame:
        return BlockLane::frame;
    case Kind::edm_request:
        return BlockLane::request;
    default:
        return BlockLane::control;
    }
}

EdmLeaf::EdmLeaf(EdmRack& rack, std::uint16_t number) : rack_(rack) {
    const MessageParams& params = rack.sim.params.message;
    edm_leaf_config config{};
    const auto hosts = static_cast<u16>(rack.sim.hosts.size());
    config.leaves = rack.leaf_count;
    config.leaf = number;
    config.hosts = rack.leaf_hosts;
    config.window_bytes = std::max(params.window_bytes, params.chunk_bytes);
    config.match.demand.ports = static_cast<u16>(hosts + (config.leaves > 1 ? config.leaves : 0));
    config.match.demand.slots = static_cast<u16>(params.slots);
    config.match.demand.active_max = static_cast<u8>(params.active_max);
    config.match.demand.policy = params.policy == "fcfs" ? EDM_FCFS : EDM_SRPT;
    config.match.demand.in_order = params.in_order;
    config.match.demand.turn_ns = params.chunk_bytes / block_bytes * rack.block;
    config.match.demand.lease_ns = EDM_NEVER;
    config.match.chunk_bytes = params.chunk_bytes;
    config.match.unit_bytes = params.unit_bytes;
    config.match.age_ns = static_cast<u64>(params.age_us * us);
    config.match.egress_bytes_max = params.egress_blocks * block_bytes;
    config.match.share_bytes = 1U << 30;
    config.match.share_permille = 1000;
    if (!edm_leaf_config_is_valid(&config))
        throw Misuse("EDM refuses its parameters: edm-chunk-bytes is a multiple of "
                     "edm-unit-bytes, edm-active is 1 to {}, edm-slots at least a leaf's hosts",
                     EDM_ACTIVE_MAX);
    memory_.resize(words(edm_leaf_bytes(&config)));
    edm_leaf_init(&core_, &config, memory_.data());
    const u64 byte_q24 = (rack.block << 24) / block_bytes;
    const u32 links = rack.sim.params.spines * rack.sim.params.links_per_spine;
    for (u16 port = 0; port < config.match.demand.ports; port++)
        edm_match_follow(&core_.match, 0, port, port < hosts ? byte_q24 : byte_q24 / links);
    request_.resize(std::size_t{hosts} * params.slots);
    pim_cycle_ = static_cast<Time>(params.pim_cycle_ns * ns);
    if (params.matcher == "pim") {
        pim_ = std::make_unique<edm_pim>();
        edm_pim_init(pim_.get(), &core_.match);
    }
    above.leaf = this;
}

void EdmLeaf::egress(std::uint32_t port, std::uint32_t bytes) {
    edm_match_egress(&core_.match, static_cast<u16>(port), bytes);
    if (!wake_at_ || wake_at_ > rack_.sim.now())
        rack_.sim.events.after(0, *this, 0);
}

// To a host of this leaf, or to the leaf that has it.
void EdmLeaf::forward(Packet* packet, BlockLane lane) {
    if (has(packet->dst))
        down[packet->dst % core_.config.hosts].send(packet, lane);
    else
        up.send(packet, lane);
}

void EdmLeaf::fire(std::uint64_t arg) {
    Packet* packet = reinterpret_cast<Packet*>(arg);
    if (!packet) {
        if (rack_.sim.now() >= wake_at_)
            wake_at_ = never;
        pim_ ? tick() : match();
        return;
    }
    if (packet->kind != Kind::edm_data && BlockPort::is_late(rack_.sim, packet, *this))
        return;
    rack_.sim.on_wire--;
    if (packet->kind == Kind::edm_data || packet->kind == Kind::edm_frame || !has(packet->dst))
        forward(packet, lane_of(*packet));
    else
        announce(packet);
}

void EdmLeaf::Above::fire(std::uint64_t arg) {
    Packet* packet = reinterpret_cast<Packet*>(arg);
    if (packet->kind != Kind::edm_data && BlockPort::is_late(leaf->rack_.sim, packet, *this))
        return;
    leaf->rack_.sim.on_wire--;
    switch (packet->kind) {
    case Kind::edm_note:
        leaf->announce(packet);
        break;
    case Kind::edm_grant:
    case Kind::edm_request:
        leaf->offer(packet);
        break;
    case Kind::edm_taken:
        edm_leaf_taken(&leaf->core_, static_cast<u16>(packet->src), packet->rank, packet->seq);
        leaf->rack_.sim.pool.give(packet);
        leaf->match();
        break;
    default:
        leaf->forward(packet, lane_of(*packet));
    }
}

void EdmLeaf::announce(Packet* packet) {
    const bool read = packet->subflow == EDM_READ;
    const auto port = static_cast<u16>(packet->src), peer = static_cast<u16>(packet->path);
    edm_announcement a{};
    a.id = static_cast<u32>(packet->seq);
    a.size = packet->rank;
    a.source = read ? peer : port;
    a.destination = read ? port : peer;
    a.type = packet->subflow;
    edm_demand* demand;
    const auto verdict = edm_match_announce(&core_.match, rack_.now(), &a, &demand);
    require(verdict == EDM_DEMAND_NEW, "EDM: the switch refuses a demand");
    if (read)
        request_[port * rack_.sim.params.message.slots + a.id % rack_.sim.params.message.slots] =
            packet;
    else
        rack_.sim.pool.give(packet);
    pim_ ? tick() : match();
}

// Another leaf offers to a host of this one.
void EdmLeaf::offer(Packet* packet) {
    edm_offer one{};
    one.id = static_cast<u32>(packet->seq);
    one.bytes = packet->rank;
    one.end = static_cast<u32>(packet->ack);
    one.beyond = packet->tunnel - one.end;
    one.source = static_cast<u16>(packet->dst);
    one.destination = static_cast<u16>(packet->path);
    one.type = packet->subflow == EDM_ANSWER ? EDM_READ : EDM_WRITE;
    if (packet->kind == Kind::edm_request)
        one.request = packet;
    else
        rack_.sim.pool.give(packet);
    require(edm_leaf_offer(&core_, rack_.now(), &one), "EDM: a leaf has too many offers");
    match();
}

void EdmLeaf::match() {
    edm_leaf_action action;
    while (edm_leaf_next(&core_, rack_.now(), &action))
        act(action);
    // Nothing waits: no port has to be looked at when it becomes idle.
    if (!core_.match.demands.queued)
        return;
    const u64 deadline = edm_match_deadline_ns(&core_.match);
    if (deadline == EDM_NEVER)
        return;
    const Time when = deadline - us;
    if (when < wake_at_) {
        wake_at_ = when;
        rack_.sim.events.at(when, *this, 0);
    }
}

// A cycle of the matcher's clock, as long as something waits.
void EdmLeaf::tick() {
    const Time now = rack_.sim.now();
    if (now % pim_cycle_ == 0 && wake_at_ == never) {
        edm_leaf_action action;
        edm_booking booking;
        edm_pim_tick(pim_.get(), rack_.now());
        while (edm_pim_next(pim_.get(), rack_.now(), &booking)) {
            edm_leaf_booked(&core_, rack_.now(), &booking, &action);
            act(action);
        }
    }
    if (wake_at_ != never || (!core_.match.demands.queued && !pim_->cycle))
        return;
    wake_at_ = (now / pim_cycle_ + 1) * pim_cycle_;
    rack_.sim.events.at(wake_at_, *this, 0);
}

// Tell the source of a chunk, or its leaf. The first chunk of a read is told by its request.
void EdmLeaf::act(const edm_leaf_action& action) {
    const edm_offer& chunk = action.chunk;
    const bool read = chunk.type == EDM_READ;
    const std::uint32_t slots = rack_.sim.params.message.slots;
    auto* packet = static_cast<Packet*>(chunk.request);
    if (action.demand && read)
        packet = std::exchange(request_[chunk.destination * slots + chunk.id % slots], nullptr);
    if (packet) {
        packet->stamp = 0;
        packet->dst = chunk.source;
    } else {
        packet = rack_.packet(Kind::edm_grant, chunk.source, chunk.source, block_bytes);
        packet->seq = chunk.id;
    }
    packet->path = chunk.destination;
    packet->rank = chunk.bytes;
    packet->ack = chunk.end;
    packet->tunnel = chunk.end + chunk.beyond;
    packet->subflow = read ? EDM_ANSWER : EDM_WRITE;
    (action.what == EDM_LEAF_OFFER ? offers : grants)++;
    charge(action);
    forward(packet, lane_of(*packet));
    if (action.taken_by == EDM_LEAF_NONE)
        return;
    Packet* taken = rack_.packet(Kind::edm_taken, chunk.source, chunk.destination, block_bytes);
    taken->rank = chunk.bytes;
    taken->seq = action.last;
    up.send(taken, BlockLane::control);
}

// A chunk's blocks have more than its bytes. N, G and RREQ are not charged: they are short, and the
// egress bound counts the delay they cause. With them, ports rest while there is something to send,
// and at a wire load of 0.9 mean slowdowns are 1.30 in place of 1.21.
void EdmLeaf::charge(const edm_leaf_action& action) {
    const edm_offer& chunk = action.chunk;
    const std::uint32_t more = rack_.data_bytes(chunk.type == EDM_READ, chunk.bytes) - chunk.bytes;
    const u16 destination = action.taken_by == EDM_LEAF_NONE
                                ? chunk.destination
                                : edm_leaf_port(&core_, action.taken_by);
    edm_match_charge(&core_.match, EDM_SOURCE, chunk.source, more);
    edm_match_charge(&core_.match, EDM_DESTINATION, destination, more);
}

void EdmLeaf::check() const {
    const char* broken =
        core_.config.leaves > 1 ? edm_leaf_check(&core_) : edm_demand_check(&core_.match.demands);
    require(!broken, broken);
}

} // namespace sim
