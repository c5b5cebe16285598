// SPDX-License-Identifier: GPL-2.0
#include "sim/port.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/sim.hpp"

namespace sim {

// Flows with queued packets, in the order of their turns. std::map: its order is the same
// everywhere.
struct Port::FairQueues {
    struct Queue {
        Fifo packets;
        std::int64_t deficit_bytes = 0;
        bool active = false;
    };
    std::map<std::uint32_t, Queue> queues;
    std::vector<std::uint32_t> turns; // a ring of active flows, from `first`
    std::size_t first = 0;

    std::set<std::pair<std::uint64_t, std::uint32_t>> by_bytes; // queued bytes, flow

    void push(std::uint32_t flow, Queue& queue, Packet* packet) {
        by_bytes.erase({queue.packets.bytes(), flow});
        queue.packets.push(packet);
        by_bytes.insert({queue.packets.bytes(), flow});
    }
    Packet* pop(std::uint32_t flow, Queue& queue) {
        by_bytes.erase({queue.packets.bytes(), flow});
        Packet* packet = queue.packets.pop();
        if (!queue.packets.empty())
            by_bytes.insert({queue.packets.bytes(), flow});
        return packet;
    }
    // The newest packet of the longest queue. A list only loses its first one, so the packets
    // before it are turned over once.
    Packet* drop_longest() {
        std::uint32_t flow = by_bytes.rbegin()->second;
        Queue& queue = queues[flow];
        for (std::uint32_t left = queue.packets.packets(); --left;)
            queue.packets.push(queue.packets.pop());
        return pop(flow, queue);
    }
};

Port::Port(Sim& sim, std::uint32_t id, std::uint64_t bits_per_second, Time delay, Handler& peer,
           const QueueParams& queue)
    : sim_(sim),
      peer_(peer),
      ps_per_byte_16_(static_cast<std::uint64_t>((Wide(8 * sec) << 16) / bits_per_second)),
      delay_(delay),
      queue_(queue),
      bits_per_second_(bits_per_second),
      id_(id) {
    if (queue.discipline == Discipline::fair)
        fair_ = std::make_unique<FairQueues>();
}

Port::~Port() = default;

bool Port::idle() const {
    return !wake_scheduled_ && sim_.now() >= busy_until_;
}

void Port::wake_at_end() {
    if (!wake_scheduled_) {
        wake_scheduled_ = true;
        sim_.events.at(busy_until_, *this);
    }
}

void Port::send(Packet* packet) {
    if (!up_) {
        drop(packet);
        return;
    }
    if (idle()) {
        transmit(packet);
        return;
    }
    enqueue(packet);
    wake_at_end();
}

void Port::kick() {
    if (!idle() || feeder_->feed())
        wake_at_end();
}

void Port::fire(std::uint64_t) {
    wake_scheduled_ = false;
    if (Packet* packet = dequeue()) {
        transmit(packet);
        if (queued_bytes_ || feeder_)
            wake_at_end();
    } else if (feeder_ && feeder_->feed()) {
        wake_at_end();
    }
}

void Port::transmit(Packet* packet) {
    const std::uint64_t bytes =
        sim_.params.ethernet ? ethernet_bytes(packet->bytes) : packet->bytes;
    busy_until_ = sim_.now() + transmit_time(bytes);
    serving_bytes_ = packet->flags & flag_control ? 0 : packet->bytes;
    stats_.sent_packets++;
    stats_.sent_bytes += packet->bytes;
    sim_.on_wire++;
    sim_.events.at(busy_until_ + delay_, peer_, reinterpret_cast<std::uint64_t>(packet));
}

void Port::account(std::int64_t bytes) {
    Time now = sim_.now();
    stats_.area += queued_bytes_ * ((now - stats_.area_at) >> 10);
    stats_.area_at = now;
    queued_bytes_ += static_cast<std::uint64_t>(bytes);
    stats_.peak_bytes = std::max(stats_.peak_bytes, queued_bytes_);
}

void Port::reset_area() {
    account(0);
    stats_.area = 0;
}

void Port::drop(Packet* packet) {
    stats_.drops++;
    sim_.dropped(*packet, id_);
    sim_.pool.give(packet);
}

void Port::mark(Packet* packet, std::uint64_t queued) {
    if (queue_.mark_bytes && queued > queue_.mark_bytes && packet->flags & flag_ect) {
        packet->flags |= flag_ce;
        stats_.marks++;
    }
}

void Port::enqueue(Packet* packet) {
    switch (queue_.discipline) {
    case Discipline::nic:
        account(packet->bytes);
        (packet->flags & flag_control ? headers_ : data_).push(packet);
        return;
    case Discipline::drop_tail:
        if (data_.bytes() + serving_bytes_ + packet->bytes > queue_.limit_bytes) {
            drop(packet);
            return;
        }
        mark(packet, data_.bytes());
        account(packet->bytes);
        data_.push(packet);
        return;
    case Discipline::trim:
        enqueue_trim(packet);
        return;
    case Discipline::fair:
        enqueue_fair(packet);
        return;
    }
}

void Port::enqueue_header(Packet* packet) {
    if (headers_.bytes() + packet->bytes > queue_.header_limit_bytes) {
        drop(packet);
        return;
    }
    account(packet->bytes);
    headers_.push(packet);
}

void Port::enqueue_trim(Packet* packet) {
    if (packet->flags & flag_control) {
        enqueue_header(packet);
        return;
    }
    if (!(packet->flags & flag_sprayed)) {
        if (legacy_.bytes() + packet->bytes > queue_.legacy_limit_bytes) {
            drop(packet);
            return;
        }
        mark(packet, legacy_.bytes());
        account(packet->bytes);
        legacy_.push(packet);
        return;
    }
    std::uint64_t after = data_.bytes() + serving_bytes_ + packet->bytes;
    if (after <= queue_.limit_bytes) {
        mark(packet, data_.bytes());
        account(packet->bytes);
        data_.push(packet);
        return;
    }
    bool tail = queue_.victim == TrimVictim::tail ||
                (queue_.victim == TrimVictim::either && sim_.rng.coin());
    // The last packet's place must be large enough for the arriving one.
    if (tail && !data_.empty() && after - data_.tail()->bytes <= queue_.limit_bytes) {
        account(std::int64_t{packet->bytes} - data_.tail()->bytes);
        packet = data_.replace_tail(packet);
    }
    stats_.trims++;
    sim_.trimmed(*packet, id_);
    packet->bytes = static_cast<std::uint16_t>(sim_.params.header_bytes);
    packet->flags |= flag_trimmed | flag_control;
    enqueue_header(packet);
}

void Port::enqueue_fair(Packet* packet) {
    FairQueues& fair = *fair_;
    FairQueues::Queue& queue = fair.queues[packet->flow];
    mark(packet, queue.packets.bytes());
    account(packet->bytes);
    fair.push(packet->flow, queue, packet);
    if (!queue.active) {
        queue.active = true;
        queue.deficit_bytes = 0;
        fair.turns.push_back(packet->flow);
    }
    if (queued_bytes_ <= queue_.limit_bytes)
        return;
    Packet* last = fair.drop_longest();
    account(-std::int64_t{last->bytes});
    drop(last);
}

Packet* Port::dequeue_fair() {
    FairQueues& fair = *fair_;
    while (fair.first < fair.turns.size()) {
        std::uint32_t flow = fair.turns[fair.first];
        FairQueues::Queue& queue = fair.queues[flow];
        if (queue.packets.empty()) {
            queue.active = false;
            fair.queues.erase(flow);
            fair.first++;
            continue;
        }
        Packet* packet = nullptr;
        if (queue.deficit_bytes > 0) {
            packet = fair.pop(flow, queue);
            queue.deficit_bytes -= packet->bytes;
        }
        if (queue.deficit_bytes <= 0) {
            queue.deficit_bytes += sim_.params.mtu_bytes;
            fair.turns.push_back(flow);
            fair.first++;
        }
        if (fair.first > 1024 && fair.first * 2 > fair.turns.size()) {
            fair.turns.erase(fair.turns.begin(),
                             fair.turns.begin() + static_cast<std::ptrdiff_t>(fair.first));
            fair.first = 0;
        }
        if (packet)
            return packet;
    }
    return nullptr;
}

Packet* Port::dequeue() {
    Packet* packet = nullptr;
    if (!headers_.empty()) {
        packet = headers_.pop();
    } else if (fair_) {
        packet = dequeue_fair();
    } else if (!legacy_.empty() && (data_.empty() || legacy_turn_)) {
        packet = legacy_.pop();
        legacy_deficit_bytes_ -= packet->bytes;
    } else if (!data_.empty()) {
        packet = data_.pop();
        legacy_deficit_bytes_ += packet->bytes;
    }
    if (!packet)
        return nullptr;
    // The class that was served fewer bytes while both had packets goes next.
    if (data_.empty() || legacy_.empty())
        legacy_deficit_bytes_ = 0;
    legacy_turn_ = legacy_deficit_bytes_ > 0;
    account(-std::int64_t{packet->bytes});
    return packet;
}

void Port::set_up(bool up) {
    up_ = up;
    while (!up) {
        Packet* packet = dequeue();
        if (!packet)
            return;
        drop(packet);
    }
}

std::uint32_t Port::queued_packets() const {
    std::uint32_t count = headers_.packets() + data_.packets() + legacy_.packets();
    if (fair_) {
        for (const auto& [flow, queue] : fair_->queues)
            count += queue.packets.packets();
    }
    return count;
}

void Port::check() const {
    std::uint64_t bytes = headers_.bytes() + data_.bytes() + legacy_.bytes();
    if (fair_) {
        for (const auto& [flow, queue] : fair_->queues)
            bytes += queue.packets.bytes();
    }
    require(bytes == queued_bytes_, "a port's queued bytes don't add up");
    if (queue_.discipline == Discipline::drop_tail || queue_.discipline == Discipline::trim) {
        require(data_.bytes() <= queue_.limit_bytes, "a data queue is beyond its limit");
    }
    if (queue_.discipline == Discipline::trim) {
        require(headers_.bytes() <= queue_.header_limit_bytes,
                "a header queue is beyond its limit");
        require(legacy_.bytes() <= queue_.legacy_limit_bytes, "a legacy queue is beyond its limit");
    }
    require(!queued_bytes_ || wake_scheduled_, "packets wait and nothing wakes their port");
}

} // namespace sim
