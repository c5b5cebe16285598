// SPDX-License-Identifier: GPL-2.0
#include "sim/eqds.hpp"

#include "sim/ndp.hpp"
#include "sim/network.hpp"
#include "support/parse.hpp"

#include <algorithm>
#include <cstring>

namespace sim {

namespace {

EqdsNet::Node* node_of(eqds_packet* packet) {
    return reinterpret_cast<EqdsNet::Node*>(packet);
}

Time deadline(std::uint64_t deadline_ns) {
    return deadline_ns == EQDS_NEVER ? never : deadline_ns * ns;
}

} // namespace

EqdsNet::EqdsNet(Sim& owner) : sim(owner) {
    const Params& params = sim.params;
    eqds_config_init(&config, &eqds_profile_extended, params.mtu_bytes,
                     params.eqds_window * params.mtu_bytes);
    config.trimming = params.eqds_mode == "burst";
    config.overdraw = params.eqds_overdraw;
    config.pull_trimmed = params.eqds_pull_trimmed;
    config.ordered = !params.eqds_unordered;
    config.strikes_max = static_cast<u8>(params.eqds_strikes);
    config.idle_ns = 1'000'000'000;
    config.rto_min_ns = static_cast<std::uint64_t>(spray_rto_us(params, params.eqds_rto_us) * 1000);
    config.rto_max_ns = std::max(config.rto_max_ns, config.rto_min_ns);
    require(eqds_config_is_valid(&config), "EQDS refuses its configuration");
    eqds_class_init(&admission, EQDS_CLASS_TCP);
    admission.packets_max = params.eqif_packets;
    admission.average_shift = 0; // DCTCP wants the queue as it is
    admission.low_bytes = static_cast<u32>(params.eqif_mark_packets * params.mtu_bytes);
    admission.high_bytes = admission.low_bytes + 1;
    for (const std::string& text : params.eqds_priority) {
        HostRange range = parse_host_range(text);
        auto priority = remora::parse_number(range.value, 0, EQDS_PRIORITIES - 1, "eqds-priority");
        priorities_.push_back({range.first, range.last, static_cast<u8>(priority)});
    }
}

u8 EqdsNet::priority_of(std::uint32_t sender_host) const {
    for (const Priority& one : priorities_) {
        if (sender_host >= one.first && sender_host <= one.last)
            return one.priority;
    }
    return EQDS_PRIORITIES - 1;
}

EqdsHost& EqdsNet::host(std::uint32_t id) {
    Host& one = sim.hosts[id];
    if (!one.tunnel)
        one.tunnel = std::make_unique<EqdsHost>(*this, one);
    return static_cast<EqdsHost&>(*one.tunnel);
}

EqdsTunnel& EqdsNet::add_tunnel(std::uint32_t from, std::uint32_t to, Flow* native) {
    auto place = static_cast<std::uint32_t>(tunnels.size());
    return tunnels.emplace_back(sim, from, to, native, place);
}

EqdsNet::Node* EqdsNet::take_node() {
    Node* node;
    if (free_.empty()) {
        node = &nodes_.emplace_back();
    } else {
        node = free_.back();
        free_.pop_back();
    }
    *node = Node{};
    return node;
}

// Moves the tunnel to its place in the list at once.
void EqdsTunnel::prioritize(u8 priority) {
    const u32 target = receiver.share.target, backlog_mtus = receiver.share.backlog_mtus;
    eqds_asl_leave(&receiver.share);
    eqds_asl_set(&receiver.share, priority, 1);
    eqds_asl_update(&receiver.share, target, backlog_mtus);
}

EqdsTunnel::EqdsTunnel(Sim& owner, std::uint32_t from_host, std::uint32_t to_host, Flow* flow,
                       std::uint32_t place)
    : sim(owner),
      from(owner.eqds->host(from_host)),
      to(owner.eqds->host(to_host)),
      native(flow),
      index(place),
      sender_host(from_host),
      receiver_host(to_host) {
    sender_end.tunnel = receiver_end.tunnel = this;
    const eqds_config& config = sim.eqds->config;
    auto paths_count = static_cast<u32>(std::bit_floor(sim.params.paths));
    path_memory.resize(paths_count);
    sender_slots.resize(config.window_packets);
    receiver_slots.resize(config.window_packets);
    eqds_paths_init(&paths, path_memory.data(), paths_count, sim.rng.next());
    eqds_sender_init(&sender, &config, sender_slots.data(), &paths, static_cast<u16>(place),
                     static_cast<u32>(sim.rng.next()), 0);
    eqds_class_queue_init(&admission);
}

void EqdsTunnel::fire(std::uint64_t receiving_end) {
    if (receiving_end) {
        if (receiver_timer.due(sim, *this, 1))
            to.expire_receiver(*this);
    } else if (sender_timer.due(sim, *this)) {
        from.expire_sender(*this);
    }
}

EqdsHost::EqdsHost(EqdsNet& net, Host& host) : net_(net), sim_(net.sim), host_(host) {
    eqds_drr_init(&drr_);
    eqds_eqif_init(&tcp_, 0, net.config.mtu_bytes);
    eqds_eqif_init(&native_, 0, net.config.mtu_bytes);
    eqds_asl_init(
        &list_, net.has_priorities() ? EQDS_ASL_PIFO : EQDS_ASL_FIFO, net.config.mtu_bytes,
        static_cast<u64>(static_cast<double>(host.nic->bits_per_second()) * sim_.params.pull_rate),
        sim_.params.pull_burst);
}

// The header's bytes. An RTS without a cookie is padded; the padding isn't kept.
void EqdsHost::write_header(Packet& packet, const eqds_head& head) {
    std::uint8_t bytes[EQDS_WIRE_BYTES_MAX];
    eqds_wire_encode(&eqds_profile_extended, &head, bytes);
    packet.tunnel_header_bytes =
        static_cast<std::uint8_t>(eqds_wire_header_bytes(&eqds_profile_extended, head.control));
    std::memcpy(packet.tunnel_header, bytes, packet.tunnel_header_bytes);
}

// A control packet, or an RTS or FIN, which are data packets without payload.
void EqdsHost::send_head(EqdsTunnel& tunnel, const eqds_head& head) {
    Packet* packet = sim_.pool.take();
    bool to_sender = head.control;
    packet->kind = to_sender ? Kind::eqds_control : Kind::eqds_data;
    packet->src = host_.id();
    packet->dst = to_sender ? tunnel.sender_host : tunnel.receiver_host;
    packet->flow = tunnel.native ? tunnel.native->index : tunnel.last_flow;
    packet->path = static_cast<std::uint32_t>(sim_.rng.next());
    packet->bytes = static_cast<std::uint16_t>(std::max<std::uint32_t>(
        sim_.params.header_bytes, eqds_wire_bytes(&eqds_profile_extended, &head) + 28));
    packet->flags = flag_control | (to_sender ? flag_to_source : 0);
    packet->tunnel = tunnel.index;
    write_header(*packet, head);
    host_.emit(packet);
}

void EqdsHost::enqueue(Packet* packet) {
    auto [found, fresh] = tunnel_to_.try_emplace(packet->dst, 0);
    if (fresh) {
        EqdsTunnel& made = net_.add_tunnel(host_.id(), packet->dst, nullptr);
        found->second = made.index;
        sending_.push_back(&made);
    }
    EqdsTunnel& tunnel = net_.tunnels[found->second];
    eqds_class_verdict verdict = eqds_class_arrive(
        &net_.admission, &tunnel.admission, sim_.now() / ns, tunnel.sender.queue.count,
        tunnel.sender.queue.bytes, packet->flags & flag_ect, static_cast<u32>(sim_.rng.next()));
    if (verdict.drop) {
        sim_.flows[packet->flow]->edge_drops++;
        sim_.watch("edge-drop", *packet, ~0u);
        sim_.pool.give(packet);
        return;
    }
    if (verdict.mark)
        packet->flags |= flag_ce;
    EqdsNet::Node* node = net_.take_node();
    node->packet = packet;
    node->core.bytes = packet->bytes + sim_.params.tunnel_overhead_bytes;
    node->core.next_proto = EQDS_PROTO_IPV4;
    tunnel.last_flow = packet->flow;
    held_++;
    eqds_out out;
    eqds_sender_enqueue(&tunnel.sender, sim_.now() / ns, &node->core, &out);
    after_sender(tunnel, out);
}

void EqdsHost::start(EqdsTunnel& tunnel) {
    sending_.push_back(&tunnel);
    feed_native(tunnel);
}

// Keeps the queue of an EQDS flow longer than a window: the core asks for no more than that.
void EqdsHost::feed_native(EqdsTunnel& tunnel) {
    const Params& params = sim_.params;
    Flow& flow = *tunnel.native;
    while (tunnel.sender.queue.count < params.eqds_window + 2 &&
           (!flow.bytes || tunnel.fed_bytes < flow.bytes)) {
        std::uint64_t bytes = params.mtu_bytes - params.header_bytes;
        if (flow.bytes)
            bytes = std::min(bytes, flow.bytes - tunnel.fed_bytes);
        tunnel.fed_bytes += bytes;
        EqdsNet::Node* node = net_.take_node();
        node->payload_bytes = static_cast<std::uint32_t>(bytes);
        node->core.bytes = static_cast<u32>(bytes) + params.header_bytes;
        node->core.next_proto = EQDS_PROTO_NATIVE;
        eqds_out out;
        eqds_sender_enqueue(&tunnel.sender, sim_.now() / ns, &node->core, &out);
        after_sender(tunnel, out);
    }
}

void EqdsHost::release(EqdsTunnel& tunnel, eqds_packet* chain) {
    while (chain) {
        EqdsNet::Node* node = node_of(chain);
        chain = chain->next;
        if (node->packet) {
            sim_.pool.give(node->packet);
            held_--;
        } else {
            tunnel.acked_bytes += node->payload_bytes;
        }
        net_.give_node(node);
    }
}

// The tunnel has given packets up. An EQDS flow sends their bytes again, in new packets.
void EqdsHost::give_up(EqdsTunnel& tunnel, eqds_packet* chain) {
    while (chain) {
        EqdsNet::Node* node = node_of(chain);
        chain = chain->next;
        if (node->packet) {
            sim_.flows[node->packet->flow]->edge_drops++;
            sim_.watch("edge-drop", *node->packet, ~0u);
            sim_.pool.give(node->packet);
            held_--;
        } else {
            tunnel.native->edge_drops++;
            tunnel.fed_bytes -= node->payload_bytes;
        }
        net_.give_node(node);
    }
}

void EqdsHost::after_sender(EqdsTunnel& tunnel, eqds_out& out) {
    release(tunnel, out.free);
    give_up(tunnel, out.lost);
    if (out.send)
        send_head(tunnel, out.head);
    eqds_drr_update(&drr_, tunnel.native ? &native_ : &tcp_, &tunnel.sender);
    tunnel.sender_timer.set(sim_, tunnel, deadline(eqds_sender_deadline_ns(&tunnel.sender)));
    if (eqds_sender_is_ready(&tunnel.sender))
        host_.ready(*this);
    if (tunnel.native && tunnel.native->bytes && tunnel.acked_bytes == tunnel.native->bytes)
        sim_.flow_acked(*tunnel.native);
}

bool EqdsHost::send_one() {
    eqds_head head;
    eqds_sender* from = nullptr;
    eqds_packet* core = eqds_drr_send(&drr_, sim_.now() / ns, &head, &from);
    if (!core)
        return false;
    EqdsTunnel& tunnel = *reinterpret_cast<SenderEnd*>(from)->tunnel;
    EqdsNet::Node* node = node_of(core);
    Packet* packet = node->packet ? sim_.pool.copy(*node->packet) : sim_.pool.take();
    if (node->packet) {
        packet->inner_kind = packet->kind;
        packet->inner_flags = packet->flags;
        packet->inner_bytes = packet->bytes;
    } else {
        packet->src = host_.id();
        packet->dst = tunnel.receiver_host;
        packet->flow = tunnel.native->index;
        packet->payload_bytes = static_cast<std::uint16_t>(node->payload_bytes);
    }
    packet->kind = Kind::eqds_data;
    packet->flags = flag_sprayed | flag_ect | (core->attempt ? flag_retransmit : 0);
    packet->bytes = static_cast<std::uint16_t>(core->bytes);
    packet->path = head.path;
    packet->tunnel = tunnel.index;
    write_header(*packet, head);
    Flow& flow = *sim_.flows[packet->flow];
    if (tunnel.native) {
        flow.packets++;
        flow.retransmissions += core->attempt != 0;
    } else {
        flow.edge_retransmissions += core->attempt != 0;
    }
    tunnel.sender_timer.set(sim_, tunnel, deadline(eqds_sender_deadline_ns(&tunnel.sender)));
    host_.emit(packet);
    if (tunnel.native)
        feed_native(tunnel);
    return true;
}

void EqdsHost::receive(Packet* packet) {
    EqdsTunnel& tunnel = net_.tunnels[packet->tunnel];
    eqds_head head;
    if (packet->flags & flag_trimmed)
        packet->tunnel_header[1] |= EQDS_TRIM; // as a switch that trims does
    // The padding of an RTS is zeros and is read by nobody.
    bool good = eqds_wire_parse(&eqds_profile_extended, packet->tunnel_header,
                                packet->tunnel_header_bytes, &head) == EQDS_WIRE_GOOD;
    require(good, "EQDS: a header that can't be read");
    if (!head.control) {
        head.ce = packet->flags & flag_ce;
        receive_data(tunnel, packet, head);
        return;
    }
    sim_.pool.give(packet);
    eqds_out out;
    eqds_sender_receive(&tunnel.sender, sim_.now() / ns, &head, &out);
    after_sender(tunnel, out);
    if (tunnel.native)
        feed_native(tunnel);
}

void EqdsHost::receive_data(EqdsTunnel& tunnel, Packet* packet, const eqds_head& head) {
    eqds_out out;
    if (!tunnel.receiving) {
        if (!eqds_receiver_admit(&head, 0, &out)) {
            sim_.pool.give(packet);
            if (out.send)
                send_head(tunnel, out.head);
            return;
        }
        tunnel.receiving = true;
        eqds_receiver_init(&tunnel.receiver, &net_.config, &list_, tunnel.receiver_slots.data(),
                           tunnel.sender.id, 0);
        if (net_.has_priorities())
            eqds_asl_set(&tunnel.receiver.share, net_.priority_of(tunnel.sender_host), 1);
    }
    tunnel.last_flow = packet->flow;
    std::uint32_t bytes = packet->bytes;
    EqdsNet::Node* node = nullptr;
    if (head.flags & (EQDS_TRIM | EQDS_EMPTY)) {
        sim_.pool.give(packet);
    } else {
        node = net_.take_node();
        node->packet = packet;
        node->core.bytes = bytes;
        held_++;
    }
    eqds_receiver_receive(&tunnel.receiver, sim_.now() / ns, &head, bytes,
                          node ? &node->core : nullptr, &out);
    if (sim_.params.eqds_retransmissions_first && head.flags & EQDS_TRIM &&
        !tunnel.retransmissions_unpulled++)
        tunnel.prioritize(0);
    Flow& flow = *sim_.flows[tunnel.last_flow];
    flow.reorder_depth = std::max(flow.reorder_depth, tunnel.receiver.held);
    after_receiver(tunnel, out);
}

void EqdsHost::after_receiver(EqdsTunnel& tunnel, eqds_out& out) {
    if (out.send)
        send_head(tunnel, out.head);
    for (eqds_packet* at = out.deliver; at;) {
        EqdsNet::Node* node = node_of(at);
        at = at->next;
        hand_over(tunnel, node);
    }
    for (eqds_packet* at = out.free; at;) {
        EqdsNet::Node* node = node_of(at);
        at = at->next;
        sim_.pool.give(node->packet);
        held_--;
        net_.give_node(node);
    }
    if (tunnel.receiving)
        tunnel.receiver_timer.set(sim_, tunnel,
                                  deadline(eqds_receiver_deadline_ns(&tunnel.receiver)), 1);
    arm_list();
}

void EqdsHost::hand_over(EqdsTunnel& tunnel, EqdsNet::Node* node) {
    Packet* packet = node->packet;
    net_.give_node(node);
    held_--;
    if (tunnel.native) {
        Flow& flow = *tunnel.native;
        flow.delivered_bytes += packet->payload_bytes;
        sim_.pool.give(packet);
        if (flow.listener)
            flow.listener->progress(flow, flow.delivered_bytes);
        else if (flow.bytes && flow.delivered_bytes == flow.bytes)
            sim_.flow_delivered(flow);
        return;
    }
    bool ce = packet->flags & flag_ce;
    packet->kind = packet->inner_kind;
    packet->flags = packet->inner_flags;
    packet->bytes = packet->inner_bytes;
    if (ce && packet->flags & flag_ect) // RFC 6040
        packet->flags |= flag_ce;
    host_.deliver(packet);
}

void EqdsHost::arm_list() {
    list_timer_.set(sim_, *this, std::max(deadline(eqds_asl_deadline_ns(&list_)), sim_.now()));
}

void EqdsHost::fire(std::uint64_t) {
    if (!list_timer_.due(sim_, *this))
        return;
    eqds_head head;
    while (eqds_receiver* receiver = eqds_receiver_next(&list_, sim_.now() / ns, &head)) {
        EqdsTunnel& tunnel = *reinterpret_cast<ReceiverEnd*>(receiver)->tunnel;
        if (tunnel.retransmissions_unpulled && !--tunnel.retransmissions_unpulled)
            tunnel.prioritize(net_.priority_of(tunnel.sender_host));
        send_head(tunnel, head);
    }
    arm_list();
}

void EqdsHost::expire_sender(EqdsTunnel& tunnel) {
    eqds_out out;
    Flow* flow = tunnel.native ? tunnel.native : sim_.flows[tunnel.last_flow].get();
    u32 before = tunnel.sender.timeouts;
    eqds_sender_expire(&tunnel.sender, sim_.now() / ns, &out);
    flow->timeouts += tunnel.sender.timeouts > before;
    require(eqds_sender_deadline_ns(&tunnel.sender) > sim_.now() / ns,
            "EQDS: a sender's deadline stays in the past");
    after_sender(tunnel, out);
    if (tunnel.native)
        feed_native(tunnel);
}

void EqdsHost::expire_receiver(EqdsTunnel& tunnel) {
    eqds_out out;
    eqds_receiver_expire(&tunnel.receiver, sim_.now() / ns, &out);
    require(eqds_receiver_deadline_ns(&tunnel.receiver) > sim_.now() / ns,
            "EQDS: a receiver's deadline stays in the past");
    if (out.verdict == EQDS_CLOSED)
        tunnel.receiving = false;
    after_receiver(tunnel, out);
}

namespace {

class EqdsSource final : public Endpoint {
public:
    EqdsSource(EqdsNet& net, Flow& flow) : net_(net), flow_(flow) {}
    void start() override {
        tunnel_ = &net_.add_tunnel(flow_.src, flow_.dst, &flow_);
        net_.host(flow_.src).start(*tunnel_);
    }
    void more() override { net_.host(flow_.src).more(*tunnel_); }
    void receive(Packet* packet) override { net_.sim.pool.give(packet); }

private:
    EqdsNet& net_;
    Flow& flow_;
    EqdsTunnel* tunnel_ = nullptr;
};

// The tunnel delivers: nothing comes here.
class EqdsSink final : public Endpoint {
public:
    void receive(Packet*) override { throw Broken("EQDS: a packet outside its tunnel"); }
};

} // namespace

EqdsNet& eqds_net(Sim& sim) {
    if (!sim.eqds)
        sim.eqds = std::make_shared<EqdsNet>(sim);
    return *sim.eqds;
}

void create_eqds_endpoints(Sim& sim, Flow& flow) {
    flow.source = std::make_unique<EqdsSource>(eqds_net(sim), flow);
    flow.sink = std::make_unique<EqdsSink>();
}

void create_tunnels(Sim& sim, const Flow& flow) {
    eqds_net(sim).host(flow.src);
    eqds_net(sim).host(flow.dst);
}

void EqdsHost::check() const {
    for (const EqdsTunnel* tunnel : sending_) {
        const char* broken = eqds_sender_check(&tunnel->sender);
        if (!broken && tunnel->receiving)
            broken = eqds_receiver_check(&tunnel->receiver);
        require(!broken, broken);
    }
}

} // namespace sim
