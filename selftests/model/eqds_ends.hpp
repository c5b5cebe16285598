// SPDX-License-Identifier: GPL-2.0
// The ends of an EQDS tunnel as a model's state holds them, a byte a field, in the hands of the
// real code (kmod/core/eqds). Numbers have a few bits.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstring>

extern "C" {
#include "core/eqds/asl.h"
#include "core/eqds/receiver.h"
#include "core/eqds/sender.h"
}

namespace model {

constexpr uint8_t packets_max = 6, window_most = 4, messages_max = 2;
constexpr uint64_t now_ns = 1 << 20, rto_ns = 10, idle_ns = 1 << 30;
constexpr uint8_t arrived_mark = 0xff;
constexpr uint8_t unnumbered_mark = 0x80; // Message.marks of data

enum Place : uint8_t { AT_USER, QUEUED, IN_FLIGHT, RETRANSMIT, FREED, LOST };

struct Message {
    uint8_t flags, control, epoch, pull;
    uint8_t number; // data: seq; control: ack
    uint8_t behind; // data: unacked; control: sack
    uint8_t echo, attempt, marks;
    uint8_t payload; // 1 + packet; 0: none
    uint8_t current; // sent, or caused, by this life of the sender
    auto operator<=>(const Message&) const = default;
};

struct State {
    // sender
    uint8_t state, epoch, una, next, pull, target, told, timeouts, resting, rts_due;
    int8_t credit;
    uint8_t place[packets_max], seq[packets_max], attempt[packets_max];
    uint8_t strikes[packets_max]; // at most strikes_max; and whether the last failure is among them
    uint8_t skipping, skip;
    // receiver
    uint8_t established, r_epoch, expected, end, r_pull, r_target, r_told;
    uint8_t slot[window_most]; // 1 + packet, or arrived_mark
    // history
    uint8_t arrived;   // bits of packets
    uint8_t hurt;      // bits of packets: a transmission was lost, trimmed, or late
    uint8_t delivered; // bits, since the receiver's epoch began
    uint8_t r_current; // this life of the sender opened the receiver's epoch
    uint8_t r_whole;   // for the first time, so the receiver has seen all of it
    uint8_t r_opened;  // this life has opened a receiver
    uint8_t sender_forgets, receiver_forgets, lives; // left
    uint8_t messages;
    Message message[messages_max];
};

struct Bounds {
    eqds_profile profile;
    uint8_t packets, window_mtus;
    bool trimming, overdraw, pull_trimmed, ordered;
    bool colliding;
    bool unnumbered;     // the sender's user has packets without number, too
    bool patient;        // timeouts don't open the tunnel again
    uint8_t strikes_max; // 0: no packet is given up, nor refused
    uint8_t sender_forgets, receiver_forgets, lives;
};

// Both ends as the core has them, made from a state.
struct Ends {
    eqds_config config;
    eqds_sender s;
    eqds_receiver r;
    eqds_asl asl;
    eqds_packet at_sender[packets_max], at_receiver[packets_max], unnumbered;
    eqds_packet *s_slot[window_most], *r_slot[window_most];
    // pull_trimmed: how far the sender's target rises without a pull. A receiver that forgot and
    // then met an old copy must not be left half the space behind.
    uint32_t gift_forgotten;

    Ends(const Bounds& bounds, const State& from) {
        eqds_config_init(&config, &bounds.profile, 1, bounds.window_mtus);
        config.window_packets = uint16_t(1U << (bounds.profile.seq_bits - 1));
        config.trimming = bounds.trimming;
        config.overdraw = bounds.overdraw;
        config.pull_trimmed = bounds.pull_trimmed;
        config.ordered = bounds.ordered;
        config.timeouts_max = bounds.patient ? 2 : 1;
        config.strikes_max = bounds.strikes_max;
        config.rto_min_ns = config.rto_max_ns = rto_ns;
        config.idle_ns = idle_ns;
        gift_forgotten = bounds.receiver_forgets ? eqds_gift_max(&config) : 0;
        load_sender(from);
        load_receiver(from);
    }

    void load_sender(const State& from) {
        eqds_sender_init(&s, &config, s_slot, nullptr, 0, from.epoch, 0);
        s.state = from.state;
        s.unnumbered = true;
        s.una = from.una;
        s.next = from.next;
        s.pull = from.pull;
        s.target = from.target;
        s.target_told = from.told;
        s.timeouts = from.timeouts;
        s.resting = from.resting;
        s.rts_due_ns = from.rts_due ? now_ns + 1 : EQDS_NEVER;
        s.credit_bytes = from.credit;
        s.used_ns = s.progress_ns = now_ns;
        s.skipping = from.skipping;
        s.skip = from.skip;
        for (uint8_t i = 0; i < packets_max; i++) {
            eqds_packet& packet = at_sender[i] = {};
            packet.bytes = 1;
            packet.seq = from.seq[i];
            packet.attempt = from.attempt[i] & 1;
            packet.again = from.attempt[i] & 2;
            packet.strikes = from.strikes[i] >> 1;
            packet.judged = from.strikes[i] & 1;
            packet.sent_ns = now_ns;
            if (from.place[i] == AT_USER || from.place[i] >= FREED)
                continue;
            packet.state = uint8_t(from.place[i] - QUEUED + EQDS_PACKET_QUEUED);
            eqds_list_append(packet.state == EQDS_PACKET_QUEUED      ? &s.queue
                             : packet.state == EQDS_PACKET_IN_FLIGHT ? &s.in_flight
                                                                     : &s.retransmit,
                             &packet);
            if (packet.state == EQDS_PACKET_IN_FLIGHT && packet.again)
                s.spare_bytes++;
            if (packet.state != EQDS_PACKET_QUEUED)
                s_slot[packet.seq & (config.window_packets - 1U)] = &packet;
        }
    }

    void load_receiver(const State& from) {
        eqds_asl_init(&asl, EQDS_ASL_FIFO, 1, 1'000'000'000'000, 1);
        eqds_receiver_init(&r, &config, &asl, r_slot, 0, 0);
        for (eqds_packet& packet : at_receiver) {
            packet = {};
            packet.bytes = 1;
        }
        if (!from.established)
            return;
        r.established = true;
        r.epoch = from.r_epoch;
        r.expected = from.expected;
        r.end = from.end;
        eqds_asl_renumber(&r.share, from.r_pull);
        eqds_asl_update(&r.share, from.r_target, 0);
        r.target_told = from.r_told;
        for (uint8_t i = 0; i < config.window_packets; i++) {
            if (from.slot[i] == arrived_mark) {
                r_slot[i] = reinterpret_cast<eqds_packet*>(1);
            } else if (from.slot[i]) {
                r_slot[i] = &at_receiver[from.slot[i] - 1];
                r.held++;
                r.held_bytes++;
            }
        }
    }

    uint8_t strikes(const eqds_packet& packet) const {
        return uint8_t(std::min(packet.strikes, config.strikes_max) << 1 | packet.judged);
    }

    // to.place of packets that the core doesn't hold stays.
    void store(State& to) const {
        to.state = s.state;
        to.epoch = uint8_t(s.epoch);
        to.una = uint8_t(s.una);
        to.next = uint8_t(s.next);
        to.pull = uint8_t(s.pull);
        to.target = uint8_t(s.target);
        to.told = uint8_t(s.target_told);
        to.timeouts = s.timeouts != 0; // patient: never as many as timeouts_max
        to.resting = s.resting;
        to.rts_due = s.rts_due_ns != EQDS_NEVER;
        to.credit = int8_t(s.credit_bytes);
        to.skipping = s.skipping;
        to.skip = s.skipping ? uint8_t(s.skip) : 0;
        for (const eqds_list* list : {&s.queue, &s.in_flight, &s.retransmit}) {
            for (const eqds_packet* packet = list->head; packet; packet = packet->next) {
                auto i = packet - at_sender;
                bool numbered = packet->state != EQDS_PACKET_QUEUED;
                to.place[i] = uint8_t(packet->state - EQDS_PACKET_QUEUED + QUEUED);
                to.seq[i] = numbered ? uint8_t(packet->seq) : 0;
                to.attempt[i] = numbered ? uint8_t(packet->again << 1 | (packet->attempt & 1)) : 0;
                to.strikes[i] = strikes(*packet);
            }
        }
        to.established = r.established;
        to.r_epoch = to.expected = to.end = to.r_pull = to.r_target = to.r_told = 0;
        std::memset(to.slot, 0, sizeof(to.slot));
        if (!r.established)
            return;
        to.r_epoch = uint8_t(r.epoch);
        to.expected = uint8_t(r.expected);
        to.end = uint8_t(r.end);
        to.r_pull = uint8_t(r.share.pull);
        to.r_target = uint8_t(r.share.target);
        to.r_told = uint8_t(r.target_told);
        for (uint8_t i = 0; i < config.window_packets; i++) {
            const eqds_packet* packet = r_slot[i];
            bool held = packet >= at_receiver && packet < at_receiver + packets_max;
            to.slot[i] = !packet ? 0 : held ? uint8_t(packet - at_receiver + 1) : arrived_mark;
        }
    }

    // A message of this life that by its numbers is half the space old.
    bool is_expired(const Message& m) const {
        const eqds_profile& p = *config.profile;
        uint32_t half = 1U << (p.seq_bits - 1), half_pull = 1U << (p.pull_bits - 1);
        auto age = [&](uint8_t seq) { return (s.next - seq) & eqds_mask(p.seq_bits); };
        if (!m.current)
            return false;
        if (!(m.flags & EQDS_FIN) &&
            ((s.target - m.pull) & eqds_mask(p.pull_bits)) + gift_forgotten >= half_pull)
            return true;
        if (!m.control)
            return age(m.number) + m.behind > half;
        return (m.flags & EQDS_ACK && age(m.number) > half) ||
               (m.flags & (EQDS_SACK | EQDS_NACK) && age(m.echo) > half);
    }

    static Message message(const eqds_head& head, uint8_t payload) {
        Message m{};
        m.flags = head.flags;
        m.control = head.control;
        m.epoch = uint8_t(head.epoch);
        m.pull = uint8_t(head.pull);
        m.number = uint8_t(head.control ? head.ack : head.seq);
        m.behind = uint8_t(head.control ? head.sack : head.unacked);
        m.echo = uint8_t(head.echo);
        m.attempt = head.attempt & 1;
        m.marks = head.unnumbered ? unnumbered_mark : head.marks;
        m.payload = payload;
        return m;
    }

    static eqds_head head(const Message& m) {
        eqds_head head{};
        head.flags = m.flags;
        head.control = m.control;
        head.has_epoch = true;
        head.epoch = m.epoch;
        head.pull = m.pull;
        head.attempt = m.attempt;
        head.marks = m.control ? m.marks : 0;
        head.unnumbered = !m.control && m.marks & unnumbered_mark;
        head.bytes = m.payload || head.unnumbered ? 1 : 0;
        (m.control ? head.ack : head.seq) = m.number;
        head.unacked = m.control ? 0 : m.behind;
        head.sack = m.control ? m.behind : 0;
        head.echo = m.echo;
        return head;
    }
};

} // namespace model
