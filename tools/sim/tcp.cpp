// SPDX-License-Identifier: GPL-2.0
#include "sim/tcp.hpp"

#include <algorithm>

namespace sim {

namespace {

constexpr std::uint32_t tcp_ip_bytes = 40;

} // namespace

TcpSubflow::TcpSubflow(TcpSource& owner, std::uint8_t index, CcGroup* group)
    : owner_(owner),
      cc_(owner.flow.transport, owner.mss, owner.sim.params.initial_window, group),
      path_(static_cast<std::uint32_t>(owner.sim.rng.next())),
      index_(index),
      rto_(static_cast<Time>(owner.sim.params.rto_initial_us * us)) {}

// The length of the segment to send at seq: new data is taken from the connection.
std::uint32_t TcpSubflow::segment_at(std::uint64_t seq) {
    if (seq == assigned_)
        assigned_ += owner_.supply(owner_.mss);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(assigned_ - seq, owner_.mss));
}

std::pair<std::uint64_t, std::uint64_t> add_island(Islands& islands, std::uint64_t from,
                                                   std::uint64_t to) {
    auto at = islands.begin();
    while (at != islands.end() && at->second < from)
        ++at;
    auto end = at;
    while (end != islands.end() && end->first <= to) {
        from = std::min(from, end->first);
        to = std::max(to, end->second);
        ++end;
    }
    if (at == end) {
        islands.insert(at, {from, to});
    } else {
        *at = {from, to};
        islands.erase(at + 1, end);
    }
    return {from, to};
}

std::uint64_t TcpSubflow::next_hole(std::uint64_t from) const {
    for (const auto& [start, end] : islands_) {
        if (from < start)
            break;
        from = std::max(from, end);
    }
    return from;
}

std::uint64_t TcpSubflow::pipe() const {
    std::uint64_t bytes = in_flight(), from = std::max(again_, una_), highest = highest_sacked();
    std::uint64_t holes = recovering_ && highest > from ? highest - from : 0;
    for (const auto& [start, end] : islands_) {
        // After a timeout, islands may lie beyond what counts as sent.
        bytes -= std::min(end, nxt_) - std::min(start, nxt_);
        if (holes && end > from)
            holes -= end - std::max(start, from);
    }
    return bytes - holes;
}

// Sends the next hole below the highest SACK again; false: there is none.
bool TcpSubflow::retransmit_hole() {
    std::uint64_t seq = next_hole(std::max(again_, una_));
    if (seq >= highest_sacked()) {
        pass_end_ = std::min(pass_end_, max_sent_);
        return false;
    }
    std::uint32_t bytes = segment_at(seq);
    send_segment(seq, bytes);
    again_ = seq + bytes;
    return true;
}

void TcpSubflow::send_more() {
    std::uint64_t window = cc_.cwnd_bytes;
    if (owner_.sim.params.window_limit_packets > 0)
        window = std::min(window, static_cast<std::uint64_t>(
                                      owner_.sim.params.window_limit_packets * owner_.mss));
    for (std::uint64_t used = pipe(); used + owner_.mss <= window; used += owner_.mss) {
        if (recovering_ && retransmit_hole())
            continue;
        nxt_ = next_hole(nxt_); // after a timeout, what was SACKed is not sent again
        std::uint32_t bytes = segment_at(nxt_);
        if (!bytes)
            break;
        send_segment(nxt_, bytes);
        nxt_ += bytes;
        max_sent_ = std::max(max_sent_, nxt_);
    }
    arm(false);
}

void TcpSubflow::send_segment(std::uint64_t seq, std::uint32_t bytes) {
    Sim& sim = owner_.sim;
    Packet* packet = sim.pool.take();
    packet->kind = Kind::tcp_data;
    packet->flow = owner_.flow.index;
    packet->dst = owner_.flow.dst;
    packet->path = path_;
    packet->bytes = static_cast<std::uint16_t>(bytes + tcp_ip_bytes);
    packet->payload_bytes = static_cast<std::uint16_t>(bytes);
    packet->subflow = index_;
    packet->seq = seq;
    packet->stamp = sim.now();
    packet->flags = owner_.flow.transport == Transport::dctcp ? flag_ect : 0;
    owner_.flow.packets++;
    if (seq < max_sent_) {
        packet->flags |= flag_retransmit;
        owner_.flow.retransmissions++;
    }
    owner_.host.send(packet);
}

// progress: new data was acknowledged, or the timer has expired.
void TcpSubflow::arm(bool progress) {
    if (nxt_ == una_) {
        timer_.clear();
        return;
    }
    if (!progress && timer_.active())
        return;
    Time wait = rto_ << std::min(backoff_, 8u);
    auto least = static_cast<Time>(owner_.sim.params.tail_probe_us * us);
    Time until_probe = std::max(2 * srtt_, least);
    timer_probes_ =
        least && srtt_ && !recovering_ && !backoff_ && !probe_end_ && until_probe < wait;
    timer_.set(owner_.sim, *this, owner_.sim.now() + (timer_probes_ ? until_probe : wait));
}

// RFC 8985, section 7: the last segment goes again, so that its SACK shows what else was lost.
// Returns false if it is the timer's turn to expire. Unlike there, a probe that repairs the only
// loss leaves the window as it is.
bool TcpSubflow::probe() {
    if (!std::exchange(timer_probes_, false))
        return false;
    if (!recovering_) {
        std::uint64_t seq = std::max(una_, (nxt_ - 1) / owner_.mss * owner_.mss);
        probe_end_ = nxt_;
        send_segment(seq, static_cast<std::uint32_t>(nxt_ - seq));
    }
    arm(true);
    return true;
}

void TcpSubflow::measure(Time rtt) {
    if (!srtt_) {
        srtt_ = rtt;
        rttvar_ = rtt / 2;
    } else {
        Time error = rtt > srtt_ ? rtt - srtt_ : srtt_ - rtt;
        rttvar_ = rttvar_ - rttvar_ / 4 + error / 4;
        srtt_ = srtt_ - srtt_ / 8 + rtt / 8;
    }
    rto_ = std::max(static_cast<Time>(owner_.sim.params.rto_min_us * us), srtt_ + 4 * rttvar_);
}

void TcpSubflow::ack(const Packet& packet) {
    bool ece = packet.flags & flag_ece;
    if (packet.ack > una_) {
        measure(owner_.sim.now() - packet.stamp);
        std::uint64_t bytes = packet.ack - una_;
        una_ = packet.ack;
        nxt_ = std::max(nxt_, una_);
        backoff_ = 0;
        if (una_ >= probe_end_)
            probe_end_ = 0;
        while (!islands_.empty() && islands_.front().second <= una_)
            islands_.erase(islands_.begin());
        arm(true);
        new_ack(bytes, ece);
    } else if (cc_.kind == Transport::dctcp) {
        cc_.marked(owner_.mss, ece, false);
    }
    if (packet.sack_to && packet.ack + packet.sack_to > una_)
        sacked(packet.ack + packet.sack_from, packet.ack + packet.sack_to);
    send_more();
}

void TcpSubflow::new_ack(std::uint64_t bytes, bool ece) {
    if (cc_.kind == Transport::dctcp) {
        bool window_end = una_ > window_end_;
        cc_.marked(bytes, ece, window_end);
        if (window_end)
            window_end_ = nxt_;
    } else if (ece && una_ > ecn_recover_ && !recovering_) {
        cc_.lost(owner_.sim.now(), in_flight());
        ecn_recover_ = nxt_;
    }
    if (recovering_)
        recovering_ = una_ < recover_;
    else if (!ece || cc_.kind == Transport::dctcp)
        cc_.acked(owner_.sim.now(), bytes, srtt_);
}

void TcpSubflow::sacked(std::uint64_t from, std::uint64_t to) {
    add_island(islands_, from, to);
    std::uint64_t bytes = 0;
    for (const auto& [start, end] : islands_)
        bytes += end - start;
    if (recovering_ && pass_end_ != never && highest_sacked() >= pass_end_ + 3 * owner_.mss) {
        // Segments sent after the last hole have arrived: holes that remain were lost again, which
        // is congestion again.
        cc_.lost(owner_.sim.now(), pipe());
        again_ = una_;
        pass_end_ = never;
    }
    bool answers_probe = probe_end_ && to >= probe_end_;
    if (recovering_ || una_ < recover_ || (bytes < 3 * std::uint64_t{owner_.mss} && !answers_probe))
        return;
    cc_.lost(owner_.sim.now(), in_flight());
    recovering_ = true;
    recover_ = max_sent_;
    again_ = una_;
    pass_end_ = never;
    retransmit_hole();
}

void TcpSubflow::fire(std::uint64_t) {
    if (!timer_.due(owner_.sim, *this) || nxt_ == una_)
        return;
    if (probe())
        return;
    owner_.flow.timeouts++;
    cc_.timed_out(owner_.sim.now(), in_flight());
    recovering_ = false;
    recover_ = max_sent_;
    islands_.clear(); // the receiver may have discarded them
    nxt_ = una_;
    backoff_++;
    send_more();
}

void TcpSubflow::check() const {
    require(una_ <= nxt_ && nxt_ <= max_sent_ && max_sent_ <= assigned_, "TCP: sequence disorder");
    require(pipe() <= in_flight(), "TCP: more SACKed or lost than sent");
    require(cc_.cwnd_bytes >= owner_.mss, "TCP: a window below one segment");
}

TcpOpening::TcpOpening(Sim& sim, Flow& flow)
    : sim_(sim),
      flow_(flow),
      established_(sim.params.tcp_open == "established"),
      fetch_(sim.params.tcp_open == "fetch") {}

bool TcpOpening::start() {
    if (!established_)
        ask(syn);
    return established_;
}

void TcpOpening::ask(Step step) {
    asked_ = step;
    send(step);
    auto wait = static_cast<Time>(sim_.params.rto_initial_us * us);
    timer_.set(sim_, *this, sim_.now() + (wait << std::min(backoff_, 8u)));
}

void TcpOpening::send(Step step) {
    bool from_source = (step == syn_ack) == fetch_;
    Packet* packet = sim_.pool.take();
    packet->kind = Kind::tcp_open;
    packet->flow = flow_.index;
    packet->dst = from_source ? flow_.dst : flow_.src;
    packet->path = flow_.index;
    packet->bytes = static_cast<std::uint16_t>(sim_.params.header_bytes);
    packet->ack = step;
    packet->flags = from_source ? 0 : flag_to_source;
    sim_.hosts[from_source ? flow_.src : flow_.dst].send(packet);
}

bool TcpOpening::receive(Packet* packet) {
    auto step = static_cast<Step>(packet->ack);
    sim_.pool.give(packet);
    if (step == syn) {
        send(syn_ack);
        return false;
    }
    if (step == syn_ack) {
        if (asked_ != syn)
            return false; // a second one: the first SYN was not lost
        backoff_ = 0;
        timer_.clear();
        if (fetch_) {
            ask(request);
            return false;
        }
        asked_ = request;
    }
    return !std::exchange(sending_, true);
}

void TcpOpening::fire(std::uint64_t) {
    if (!timer_.due(sim_, *this))
        return;
    flow_.timeouts++;
    flow_.retransmissions++;
    backoff_++;
    ask(asked_);
}

TcpSource::TcpSource(Sim& sim_, Flow& flow_)
    : sim(sim_),
      flow(flow_),
      host(sim_.hosts[flow_.src]),
      mss(sim_.params.mtu_bytes - tcp_ip_bytes -
          (flow_.tunnelled ? sim_.params.tunnel_overhead_bytes : 0)),
      opening(sim_, flow_) {
    std::uint32_t count = flow.transport == Transport::mptcp ? sim.params.subflows : 1;
    for (std::uint32_t i = 0; i < count; i++)
        subflows_.emplace_back(*this, static_cast<std::uint8_t>(i),
                               flow.transport == Transport::mptcp ? &group_ : nullptr);
}

void TcpSource::start() {
    if (opening.start())
        send_all();
}

void TcpSource::send_all() {
    for (TcpSubflow& subflow : subflows_)
        subflow.send_more();
}

std::uint32_t TcpSource::supply(std::uint32_t bytes) {
    if (flow.bytes)
        bytes = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(bytes, flow.bytes - supplied_bytes_));
    supplied_bytes_ += bytes;
    return bytes;
}

void TcpSource::receive(Packet* packet) {
    if (packet->kind == Kind::tcp_open) {
        if (opening.receive(packet))
            send_all();
        return;
    }
    subflows_[packet->subflow].ack(*packet);
    sim.pool.give(packet);
    if (flow.bytes && supplied_bytes_ == flow.bytes && !flow.done() &&
        std::all_of(subflows_.begin(), subflows_.end(),
                    [](const TcpSubflow& one) { return one.all_acked(); }))
        sim.flow_acked(flow);
}

void TcpSource::check() const {
    for (const TcpSubflow& subflow : subflows_)
        subflow.check();
}

TcpSink::TcpSink(Sim& sim, Flow& flow)
    : sim_(sim),
      flow_(flow),
      source_(static_cast<TcpSource&>(*flow.source)),
      subflows_(flow.transport == Transport::mptcp ? sim.params.subflows : 1) {}

void TcpSink::receive(Packet* packet) {
    if (packet->kind == Kind::tcp_open) {
        source_.opening.receive(packet);
        return;
    }
    source_.opening.data();
    Subflow& subflow = subflows_[packet->subflow];
    std::uint64_t from = packet->seq, to = from + packet->payload_bytes;
    std::pair<std::uint64_t, std::uint64_t> block{0, 0}; // to report
    bool in_order = from == subflow.next && subflow.islands.empty();
    if (in_order) {
        flow_.delivered_bytes += packet->payload_bytes;
        subflow.next = to;
    } else if (to > subflow.next) {
        if (from > subflow.next)
            flow_.reorder_depth = std::max(flow_.reorder_depth, ++subflow.waiting_packets);
        // Bytes count when they arrive: what waits for a hole has used its share of the link.
        from = std::max(from, subflow.next);
        flow_.delivered_bytes += to - from;
        for (const auto& [start, end] : subflow.islands) {
            if (start < to && end > from)
                flow_.delivered_bytes -= std::min(end, to) - std::max(start, from);
        }
        block = add_island(subflow.islands, from, to);
        if (block.first == subflow.next) {
            subflow.next = block.second;
            subflow.islands.erase(subflow.islands.begin());
            subflow.waiting_packets = 0;
            block = {0, 0};
        }
    }
    bool ce = packet->flags & flag_ce;
    flow_.marks += ce;
    // Out of order, marked and last segments are acknowledged at once.
    if (!in_order || ce || ++subflow.unacked >= sim_.params.ack_every ||
        flow_.delivered_bytes == flow_.bytes) {
        subflow.unacked = 0;
        packet->kind = Kind::tcp_ack;
        packet->dst = flow_.src;
        packet->ack = subflow.next;
        if (block.second) {
            packet->sack_from = static_cast<std::uint32_t>(block.first - subflow.next);
            packet->sack_to = static_cast<std::uint32_t>(block.second - subflow.next);
        }
        packet->bytes = static_cast<std::uint16_t>(sim_.params.header_bytes);
        packet->payload_bytes = 0;
        packet->flags = flag_to_source | (ce ? flag_ece : 0);
        packet->hops = 0;
        sim_.hosts[flow_.dst].send(packet);
    } else {
        sim_.pool.give(packet);
    }
    if (flow_.listener)
        flow_.listener->progress(flow_, subflow.next);
    else if (flow_.bytes && flow_.delivered_bytes == flow_.bytes)
        sim_.flow_delivered(flow_);
}

} // namespace sim
