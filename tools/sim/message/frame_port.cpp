// SPDX-License-Identifier: GPL-2.0
#include "sim/message/frame_port.hpp"

#include <algorithm>

namespace sim {

FramePort::FramePort(Sim& sim, const Config& config, Handler& peer, FrameOwner& owner,
                     std::uint32_t number_)
    : number(number_),
      sim_(sim),
      config_(config),
      peer_(peer),
      owner_(owner),
      ps_per_byte_q16_(static_cast<std::uint64_t>(8000 * 65536 / config.gbps)) {}

Time FramePort::tx(const Packet& packet) const {
    const std::uint64_t bytes = config_.ethernet ? ethernet_bytes(packet.bytes) : packet.bytes;
    return bytes * ps_per_byte_q16_ >> 16;
}

void FramePort::transmit(Packet* packet) {
    busy_until_ = sim_.now() + tx(*packet);
    sent_packets_++;
    sim_.on_wire++;
    owner_.leaves(*this, *packet);
    sim_.events.at(busy_until_ + config_.delay, peer_, reinterpret_cast<std::uint64_t>(packet));
}

void FramePort::wake() {
    if (wake_scheduled_)
        return;
    wake_scheduled_ = true;
    sim_.events.at(std::max(busy_until_, sim_.now()), *this);
}

void FramePort::drop_worst() {
    // The last of those with the greatest rank.
    auto worst = std::max_element(heap_.begin(), heap_.end(),
                                  [](const Entry& a, const Entry& b) { return a.key < b.key; });
    Packet* packet = worst->packet;
    heap_.erase(worst);
    std::make_heap(heap_.begin(), heap_.end());
    queued_bytes_ -= packet->bytes;
    drops_++;
    owner_.dropped(packet);
    sim_.pool.give(packet);
}

void FramePort::send(Packet* packet) {
    if (!is_busy() && !wake_scheduled_ && !paused_ && heap_.empty()) {
        transmit(packet);
        return;
    }
    heap_.push_back({std::uint64_t{packet->rank} << 32 | order_++, packet});
    std::push_heap(heap_.begin(), heap_.end());
    queued_bytes_ += packet->bytes;
    peak_bytes_ = std::max(peak_bytes_, queued_bytes_);
    while (queued_bytes_ > config_.limit_bytes)
        drop_worst();
    if (!paused_)
        wake();
}

void FramePort::kick() {
    if (!paused_)
        wake();
}

void FramePort::pause(bool paused) {
    paused_ = paused;
    if (!paused)
        wake();
}

void FramePort::fire(std::uint64_t) {
    wake_scheduled_ = false;
    if (paused_)
        return;
    if (is_busy()) {
        wake();
        return;
    }
    if (heap_.empty()) {
        owner_.idle(*this);
        return;
    }
    std::pop_heap(heap_.begin(), heap_.end());
    Packet* packet = heap_.back().packet;
    heap_.pop_back();
    queued_bytes_ -= packet->bytes;
    transmit(packet);
    wake();
}

} // namespace sim
