// SPDX-License-Identifier: GPL-2.0
#include "sim/rmem.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "support/failure.hpp"

namespace sim {

using remora::Misuse;

namespace {

constexpr std::uint32_t space = 1;
constexpr std::uint8_t key_bytes[BASE_SIPHASH_KEY_BYTES] = {1, 2,  3,  4,  5,  6,  7,  8,
                                                            9, 10, 11, 12, 13, 14, 15, 16};
constexpr std::uint32_t ip_udp_bytes = 28;
// Operations of a region that don't overlap.
constexpr std::uint64_t region_operations = 16;
// The cores take a time of 0 for none.
constexpr std::uint64_t clock_begin_ns = 1'000'000;

std::uint64_t clock_ns(const Sim& sim) {
    return sim.now() / ns + clock_begin_ns;
}

std::uint64_t region_bytes(const Params& params) {
    constexpr std::uint64_t page = 1 << RMEM_PAGE_SHIFT_MIN;
    return (params.rmem_op_bytes * region_operations + page - 1) / page * page;
}

// Largest datagram: what a packet holds beside the headers of IP, UDP and the tunnel.
std::uint32_t datagram_bytes(const Params& params, bool tunnelled) {
    return std::min<std::uint32_t>(params.mtu_bytes - ip_udp_bytes -
                                       (tunnelled ? params.tunnel_overhead_bytes : 0),
                                   RMEM_DATAGRAM_BYTES_MAX);
}

// The only byte that clients write to this address. Not 0: unwritten memory reads as that.
std::uint8_t byte_of(std::uint64_t address) {
    return static_cast<std::uint8_t>(address % 251 + 1);
}

bool is_pattern(const Bytes& data, std::uint64_t address) {
    for (std::uint8_t byte : data) {
        if (byte && byte != byte_of(address))
            return false;
        address++;
    }
    return true;
}

void send_datagram(Sim& sim, Flow& flow, bool to_source, std::uint32_t path, Bytes bytes) {
    Packet* packet = sim.pool.take();
    packet->kind = to_source ? Kind::rmem_response : Kind::rmem_request;
    packet->flags = to_source ? flag_to_source : 0;
    packet->flow = flow.index;
    packet->dst = to_source ? flow.src : flow.dst;
    packet->path = path;
    packet->bytes = static_cast<std::uint16_t>(bytes.size() + ip_udp_bytes);
    packet->payload_bytes = static_cast<std::uint16_t>(bytes.size());
    packet->seq = flow.packets++;
    packet->stamp = sim.now();
    packet->content = sim.pool.contents.add(std::move(bytes));
    sim.hosts[to_source ? flow.dst : flow.src].send(packet);
}

// Calls each(head, payload) for the messages of a packet's datagram. The network damages nothing.
template <typename Each>
void for_each_message(Sim& sim, const Packet& packet, bool response, const base_siphash_key& key,
                      Each each) {
    const Bytes& bytes = sim.pool.contents[packet.content];
    rmem_datagram in;
    require(rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()), response) ==
                    RMEM_WIRE_GOOD &&
                rmem_datagram_verifies(&in, &key, bytes.data()),
            "remote memory: a datagram that can't be read");
    while (rmem_datagram_step(&in, bytes.data())) {
        require(!rmem_datagram_is_damaged(&in, bytes.data()), "remote memory: a damaged message");
        each(in.head, bytes.data() + in.payload_offset);
    }
}

} // namespace

void check_rmem_params(const Params& params) {
    std::uint32_t least = RMEM_HEADS_BYTES(1) + RMEM_PIECE_BYTES_MIN + ip_udp_bytes +
                          (params.over_eqds ? params.tunnel_overhead_bytes : 0);
    if (params.mtu_bytes < least)
        throw Misuse("rmem flows need --mtu-bytes {} or more", least);
    if (!params.rmem_op_bytes || params.rmem_op_bytes > RMEM_OP_BYTES_MAX)
        throw Misuse("rmem-op-bytes is from 1 to {}", RMEM_OP_BYTES_MAX);
    if (!params.rmem_depth || params.rmem_depth > RMEM_WINDOW)
        throw Misuse("rmem-depth is from 1 to {}", RMEM_WINDOW);
    if (params.rmem_write_percent > 100 || params.rmem_interval_us < 0)
        throw Misuse("rmem-write-percent is from 0 to 100, rmem-interval-us at least 0");
}

// ---- datagrams ----

bool RmemDatagram::admits(std::uint32_t limit_bytes, const rmem_head& head) {
    if (added_ && !(shares_ && rmem_type_may_share(head.type)))
        return false;
    return rmem_bundle_joins(&bundle_, limit_bytes, &head);
}

void RmemDatagram::add(rmem_head head, std::span<const std::uint8_t> payload) {
    if (!added_) {
        heads_.resize(RMEM_HDR_BYTES);
        rmem_wire_encode_hdr(heads_.data(), &head);
        base_siphash_init(&hash_, &key_);
    }
    if (rmem_wire_has_digest(&head))
        head.digest =
            base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, payload.data(), payload.size()));
    heads_.resize(heads_.size() + RMEM_MSG_BYTES);
    rmem_wire_encode_msg(heads_.data() + heads_.size() - RMEM_MSG_BYTES, &head);
    base_siphash_update(&hash_, payload.data(),
                        std::min<std::size_t>(rmem_wire_tagged_bytes(&head), payload.size()));
    payloads_.insert(payloads_.end(), payload.begin(), payload.end());
    more_ = head.more;
    shares_ = rmem_type_may_share(head.type);
    added_++;
}

Bytes RmemDatagram::take() {
    rmem_wire_seal(heads_.data(), added_, more_, &hash_);
    Bytes bytes = std::move(heads_);
    bytes.insert(bytes.end(), payloads_.begin(), payloads_.end());
    heads_.clear();
    payloads_.clear();
    bundle_ = {};
    added_ = 0;
    return bytes;
}

// ---- the node ----

namespace {

rmem_node_config node_config(Sim& sim, std::uint32_t sessions) {
    rmem_node_config config{};
    config.boot = sim.rng.next() | 1;
    for (u64& seed : config.seed)
        seed = sim.rng.next();
    config.page_shift = RMEM_PAGE_SHIFT_MIN;
    config.pages = sessions * (region_bytes(sim.params) >> config.page_shift);
    config.pool_pages = static_cast<u32>(std::bit_ceil(std::max<u64>(config.pages, 2)));
    config.piece_bytes = RMEM_PIECE_BYTES_MAX;
    config.spaces_max = 1;
    config.sessions_max = config.regions_max = sessions;
    config.session_idle_ms = 60'000;
    config.challenges = true;
    return config;
}

} // namespace

RmemNode::RmemNode(Sim& sim, std::uint32_t host, std::uint32_t sessions)
    : sim_(sim), id_(host), host_(node_config(sim, sessions), false) {
    require(host_.add_space(space, key_bytes, 0) == RMEM_SPACE_OK,
            "remote memory: the node takes no space");
}

void RmemNode::receive(Flow& flow, Packet* packet) {
    const base_siphash_key& key = *rmem_node_key(host_.core(), space);
    RmemDatagram out(key);
    for_each_message(sim_, *packet, false, key,
                     [&](const rmem_head& head, const std::uint8_t* payload) {
                         serve(flow, head, payload, out);
                     });
    sim_.pool.give(packet);
    flush(flow, out);
    refill();
}

struct RmemNode::Carrier {
    RmemNode& node;
    Flow& flow;
    const std::uint8_t* payload;
    std::uint32_t limit_bytes;
    RmemDatagram& out;
};

constexpr rmem_execute_ops RmemNode::carrier_ops{
    [](void* carrier, const rmem_extent* extent) -> void* {
        return static_cast<Carrier*>(carrier)->node.host_.at(*extent);
    },
    [](void* carrier, u32 offset, void* to, u32 bytes) {
        std::memcpy(to, static_cast<Carrier*>(carrier)->payload + offset, bytes);
    },
    [](void* carrier, rmem_answer* decision, rmem_execute_data* data) {
        auto& [node, flow, payload, limit_bytes, out] = *static_cast<Carrier*>(carrier);
        auto* found = reinterpret_cast<const std::uint8_t*>(&decision->found);
        Bytes bytes(found, found + (data ? 0 : rmem_wire_payload_bytes(&decision->reply)));
        if (data)
            rmem_execute_begin(data);
        while (data && rmem_execute_next(data)) {
            for (const rmem_extent& extent : std::span(decision->extent, decision->extents)) {
                auto part = node.host_.data(extent);
                bytes.insert(bytes.end(), part.begin(), part.end());
            }
        }
        node.answer(flow, decision->reply, bytes, limit_bytes, out);
        return true;
    }};

// One thread runs all requests, so no lock is needed.
void RmemNode::serve(Flow& flow, const rmem_head& head, const std::uint8_t* payload,
                     RmemDatagram& out) {
    rmem_peer peer{};
    base_store_le32(peer.addr, flow.index);
    rmem_node* core = host_.core();
    if (rmem_node_is_slow(core, &head)) {
        rmem_node_call call;
        host_.call(call, clock_ns(sim_), head, peer, payload);
        const rmem_head& reply = call.answer.reply;
        if (call.answer.action == RMEM_ACT_REPLY)
            answer(
                flow, reply,
                {reinterpret_cast<const std::uint8_t*>(&call.out), rmem_wire_payload_bytes(&reply)},
                0, out);
        return;
    }
    rmem_answer decision;
    rmem_node_request(core, clock_ns(sim_), &head, payload, &peer, &decision);
    Carrier carrier{*this, flow, payload, rmem_node_datagram_bytes(&decision), out};
    rmem_execute(core, &carrier_ops, &carrier, &head, payload, &decision);
}

void RmemNode::answer(Flow& flow, const rmem_head& head, std::span<const std::uint8_t> payload,
                      std::uint32_t limit_bytes, RmemDatagram& out) {
    if (!out.admits(limit_bytes, head)) {
        flush(flow, out);
        out.admits(limit_bytes, head);
    }
    out.add(head, payload);
}

void RmemNode::flush(Flow& flow, RmemDatagram& out) {
    if (out.messages())
        send_datagram(sim_, flow, true, static_cast<std::uint32_t>(mix(flow.index)), out.take());
}

// Zeroes freed pages if too few are ready.
void RmemNode::refill() {
    while (rmem_node_scrub_wanted(host_.core()) && (host_.has_dirty() || host_.take_dirty()))
        host_.clean();
}

// ---- shared state ----

rmem_base& RmemMachine::base_of(std::uint32_t node) {
    auto [found, added] = bases.try_emplace(node);
    if (added)
        rmem_base_init(&found->second);
    return found->second;
}

void RmemMachine::wake_waiters() {
    if (waking)
        return; // the call that wakes asks again
    waking = true;
    for (int waiter; (waiter = rmem_incast_next(&incast)) != RMEM_WAITER_NONE;) {
        for (RmemClient* client : clients) {
            if (client->waiter() == static_cast<unsigned>(waiter))
                client->pump();
        }
    }
    waking = false;
}

RmemNet::RmemNet(Sim& owner) : sim(owner) {
    base_siphash_key_load(&key, key_bytes);
}

RmemNode& RmemNet::node(std::uint32_t host) {
    auto found = nodes_.find(host);
    if (found != nodes_.end())
        return found->second;
    std::uint32_t sessions = 0;
    for (const auto& flow : sim.flows)
        sessions += flow->transport == Transport::rmem && flow->dst == host;
    return nodes_.try_emplace(host, sim, host, sessions).first->second;
}

// ---- the client ----

RmemClient::RmemClient(RmemNet& net, Flow& flow)
    : net_(net),
      sim_(net.sim),
      flow_(flow),
      machine_(net.machine(flow.src)),
      operations_(net.sim.params.rmem_depth),
      path_(static_cast<std::uint32_t>(net.sim.rng.next())) {
    rmem_client_config mine = config();
    rmem_client_init(&client_, &mine, &machine_.base_of(flow.dst), &machine_.incast, 0);
    machine_.clients.push_back(this);
}

rmem_client_config RmemClient::config() {
    rmem_client_config config{};
    base_store_le32(config.client, flow_.index + 1);
    config.space = space;
    config.integrity = RMEM_DIGEST;
    config.key = net_.key;
    config.datagram_bytes = datagram_bytes(sim_.params, flow_.tunnelled);
    config.piece_bytes =
        std::min<u32>(config.datagram_bytes - RMEM_HEADS_BYTES(1), RMEM_PIECE_BYTES_MAX);
    config.seed = sim_.rng.next();
    config.waiter = static_cast<u8>(machine_.clients.size() % RMEM_WAITERS);
    return config;
}

void RmemClient::start() {
    rmem_client_open(&client_, clock_ns(sim_));
    region_.core.type = RMEM_ALLOC;
    region_.core.alloc = {region_bytes(sim_.params), 0, RMEM_PERM_READ | RMEM_PERM_WRITE};
    submit(region_);
    pump();
}

void RmemClient::submit(Operation& operation) {
    operation.outstanding = true;
    operation.begun = sim_.now();
    rmem_client_submit(&client_, &operation.core, clock_ns(sim_));
}

void RmemClient::begin(Operation& operation) {
    const Params& params = sim_.params;
    std::uint64_t bytes = params.rmem_op_bytes;
    if (flow_.bytes)
        bytes = std::min(bytes, flow_.bytes - begun_bytes_);
    if (!bytes)
        return;
    rmem_op& core = operation.core;
    core.type = sim_.rng.below(100) < params.rmem_write_percent ? RMEM_WRITE : RMEM_READ;
    core.addr = region_address_ + sim_.rng.below(region_operations) * params.rmem_op_bytes;
    core.len = static_cast<u32>(bytes);
    operation.data.resize(bytes);
    if (core.type == RMEM_WRITE) {
        for (std::uint64_t i = 0; i < bytes; i++)
            operation.data[i] = byte_of(core.addr + i);
    }
    begun_bytes_ += bytes;
    outstanding_++;
    submit(operation);
}

void RmemClient::pump() {
    RmemDatagram out(net_.key);
    rmem_client_tx tx;
    while (rmem_client_next(&client_, clock_ns(sim_), &tx))
        send_message(out, tx);
    flush(out);
    std::uint64_t deadline_ns = rmem_client_deadline(&client_);
    if (deadline_ns)
        timer_.set(sim_, *this, (std::max(deadline_ns, clock_begin_ns) - clock_begin_ns) * ns);
    else
        timer_.clear();
    machine_.wake_waiters();
}

void RmemClient::send_message(RmemDatagram& out, const rmem_client_tx& tx) {
    std::uint32_t limit = client_.config.datagram_bytes;
    if (!out.admits(limit, tx.head)) {
        flush(out);
        out.admits(limit, tx.head);
    }
    if (tx.data_bytes)
        out.add(tx.head, {operation_of(tx.op).data.data() + tx.data_offset, tx.data_bytes});
    else
        out.add(tx.head,
                {static_cast<const std::uint8_t*>(rmem_client_tx_payload(&tx)), tx.payload_bytes});
}

void RmemClient::flush(RmemDatagram& out) {
    if (out.messages())
        send_datagram(sim_, flow_, false, path_, out.take());
}

void RmemClient::receive(Packet* packet) {
    for_each_message(sim_, *packet, true, net_.key,
                     [&](const rmem_head& head, const std::uint8_t* payload) {
                         rmem_client_rx rx;
                         rmem_client_receive(&client_, clock_ns(sim_), &head, payload, false, &rx);
                         if (rx.op)
                             std::memcpy(operation_of(rx.op).data.data() + rx.data_offset, payload,
                                         rx.data_bytes);
                         ended(rx.finished, rx.result);
                     });
    sim_.pool.give(packet);
    settle();
}

// arg: 0 for the client's timer, else an operation's number from 1 up, whose interval is over.
void RmemClient::fire(std::uint64_t arg) {
    if (arg) {
        begin(operations_[arg - 1]);
    } else {
        if (!timer_.due(sim_, *this))
            return;
        expire();
        return;
    }
    settle();
}

void RmemClient::expire() {
    rmem_client_result result;
    std::uint64_t sent = client_.count.sent;
    rmem_op* chain = rmem_client_expire(&client_, clock_ns(sim_), &result);
    ended(chain, result);
    settle();
    std::uint64_t deadline_ns = rmem_client_deadline(&client_);
    require(!deadline_ns || deadline_ns > clock_ns(sim_) || client_.count.sent > sent,
            "remote memory: a deadline stays in the past");
}

void RmemClient::ended(rmem_op* chain, rmem_client_result result) {
    while (chain) {
        Operation& operation = operation_of(chain);
        chain = chain->next;
        require(operation.outstanding, "remote memory: an operation ended twice");
        require(result == RMEM_CLIENT_OK, "remote memory: an operation failed");
        operation.outstanding = false;
        if (&operation != &region_) {
            moved(operation);
        } else if (!region_address_) {
            region_address_ = region_.core.range.addr;
            for (std::uint32_t i = 0; i < operations_.size(); i++) {
                operations_[i].index = i;
                begin(operations_[i]);
            }
        } else {
            rmem_client_close(&client_, clock_ns(sim_));
        }
    }
}

void RmemClient::moved(Operation& operation) {
    const Params& params = sim_.params;
    const rmem_op& core = operation.core;
    require(core.type == RMEM_WRITE || is_pattern(operation.data, core.addr),
            "remote memory: a read returned what nobody wrote there");
    outstanding_--;
    flow_.delivered_bytes += core.len;
    if (operation.begun >= static_cast<Time>(params.warmup_us * us))
        flow_.rtts.push_back(sim_.now() - operation.begun);
    if (params.rmem_interval_us > 0)
        sim_.events.after(sim_.rng.exponential(static_cast<Time>(params.rmem_interval_us * us)),
                          *this, operation.index + 1);
    else
        begin(operation);
    if (!flow_.bytes || flow_.delivered_bytes != flow_.bytes)
        return;
    sim_.flow_acked(flow_);
    region_.core.type = RMEM_FREE;
    region_.core.range = {region_address_, region_bytes(params), false};
    submit(region_);
}

// To be called after the core received something, or its timer expired, or operations were added.
void RmemClient::settle() {
    flow_.retransmissions = client_.count.retries;
    flow_.timeouts = client_.count.timeouts;
    pump();
}

void RmemClient::check() const {
    require(outstanding_ <= operations_.size(), "remote memory: more operations than the depth");
    require(client_.outstanding_ops == outstanding_ + region_.outstanding,
            "remote memory: operations were lost");
    require(!flow_.bytes || begun_bytes_ <= flow_.bytes,
            "remote memory: a flow began more than it has");
}

namespace {

class RmemSink final : public Endpoint {
public:
    RmemSink(RmemNode& node, Flow& flow) : node_(node), flow_(flow) {}
    void receive(Packet* packet) override { node_.receive(flow_, packet); }

private:
    RmemNode& node_;
    Flow& flow_;
};

} // namespace

void create_rmem_endpoints(Sim& sim, Flow& flow) {
    if (!sim.rmem)
        sim.rmem = std::make_shared<RmemNet>(sim);
    flow.source = std::make_unique<RmemClient>(*sim.rmem, flow);
    flow.sink = std::make_unique<RmemSink>(sim.rmem->node(flow.dst), flow);
}

} // namespace sim
