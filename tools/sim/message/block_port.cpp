// SPDX-License-Identifier: GPL-2.0
#include "sim/message/block_port.hpp"

#include <algorithm>

namespace sim {

void BlockPort::arrive(Packet* packet, Time when) {
    sim_.on_wire++;
    sent_bytes_ += packet->bytes;
    sim_.events.at(when, peer_, reinterpret_cast<std::uint64_t>(packet));
}

void BlockPort::wake(Time when) {
    if (when < wake_at_) {
        wake_at_ = when;
        sim_.events.at(when, *this);
    }
}

void BlockPort::told() {
    const std::uint64_t bytes = queued_bytes();
    peak_bytes_ = std::max(peak_bytes_, bytes);
    if (!listener_ || above_ == (bytes > bound_bytes_))
        return;
    above_ = !above_;
    listener_->egress(port_, static_cast<std::uint32_t>(bytes));
}

void BlockPort::send_control(Packet* packet) {
    const Time start = std::max(sim_.now(), control_until_), time = tx(*packet);
    control_until_ = start + time;
    if (memory_until_ > sim_.now()) {
        memory_until_ += time;
        memory_->stamp += time;
    }
    pass_frame(time);
    packet->stamp = start + time - block_ + delay(*packet);
    arrive(packet, packet->stamp);
}

void BlockPort::start_memory(Packet* packet) {
    Time start = std::max(sim_.now(), control_until_);
    if (frame_until_ > start) {
        const Time rest = (frame_until_ - start) % block_;
        frame_wait_max_ = std::max(frame_wait_max_, rest);
        start += rest;
    }
    // The last block can't leave before it has come.
    const Time last = std::max(start + tx(*packet) - block_, packet->stamp);
    memory_ = packet;
    memory_until_ = last + block_;
    pass_frame(memory_until_ - start);
    packet->stamp = last + delay(*packet);
    const bool at_first = delays_.cut_through && packet->kind == Kind::edm_data;
    arrive(packet, at_first ? start + delay(*packet) : packet->stamp);
}

void BlockPort::start_frame(Packet* packet) {
    const Time start = std::max({sim_.now(), control_until_, memory_until_});
    frame_ = packet;
    frame_until_ = start + tx(*packet);
    packet->stamp = frame_until_ - block_ + delay(*packet);
    arrive(packet, packet->stamp);
}

void BlockPort::send(Packet* packet, BlockLane lane) {
    if (lane == BlockLane::control) {
        send_control(packet);
        return;
    }
    if (lane == BlockLane::frame) {
        frames_.push(packet);
    } else if (memory_until_ <= sim_.now() && !queued_bytes()) {
        start_memory(packet);
        return;
    } else {
        (lane == BlockLane::request ? requests_ : data_).push(packet);
        told();
    }
    next();
}

void BlockPort::next() {
    const Time now = sim_.now();
    if (memory_until_ <= now && queued_bytes()) {
        Packet* packet = requests_.empty() ? data_.pop() : requests_.pop();
        told();
        start_memory(packet);
    }
    if (frame_until_ <= now && !frames_.empty())
        start_frame(frames_.pop());
    if (queued_bytes())
        wake(memory_until_);
    if (!frames_.empty())
        wake(frame_until_);
}

void BlockPort::fire(std::uint64_t) {
    if (sim_.now() < wake_at_)
        return;
    wake_at_ = never;
    next();
}

} // namespace sim
