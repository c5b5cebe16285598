// SPDX-License-Identifier: GPL-2.0
// An EQDS tunnel whose numbers have two or three bits, so that they wrap within a few packets.
//
//   user: offers packets        network: up to messages_max messages; each may arrive now,
//     |                         later, twice, trimmed, or never
//   sender.c  ---- data, RTS, FIN ---->  receiver.c, asl.c  ---> user
//             <-- ACK, NACK, PULL, RST --
//
// The ends are the real code (kmod/core/eqds). At any step either end may forget all it knows, or
// be idle for long. A sender that forgot offers its packets again, in any epoch. Checked:
//
//   - a receiver delivers a packet once between two beginnings of an epoch, in the order of
//   numbers;
//   - a packet that its sender frees has arrived;
//   - a packet is given up only if one of its transmissions was lost, trimmed, or late; a receiver
//     without memory refuses packets as often as it likes;
//   - an unnumbered packet is delivered alone and without an answer, and changes no number of the
//     receiver's;
//   - eqds_sender_check() and eqds_receiver_check();
//   - while a BDP of demand remains: credit + pulls in flight + credit owed by the list + demand in
//     flight = one BDP, and none of the last three is negative;
//   - from every state, all that was offered is acknowledged once faults end, with the messages on
//     their way lost: the timers that the core has armed are all that brings the ends back. A
//     packet that was given up is not acknowledged, but its receiver waits for it no more.
//
// Time is abstract: a deadline that is armed may pass now. Assumptions, for numbers wrap:
//
//   - no copy outlives half the space of numbers: Ends::is_expired();
//   - unless colliding: no epoch begins that the receiver or a message on its way has by an earlier
//     life of the sender. 32 random bits make that likely. If colliding, acknowledgements of the
//     earlier life may fit, and free packets that did not arrive: these are counted.
#include "eqds_ends.hpp"
#include "explore.hpp"

#include <string>

using namespace model;

namespace {

enum Mutation {
    NONE,
    FORGETS_RTS,
    CREDIT_TWICE,
    IGNORES_EPOCHS,
    ACK_OF_ANY_EPOCH,
    DUPLICATES,
    ACKS_WHAT_IS_CUT,
    WAITS_FOR_HOLES,
    CUTS_DEMAND,
    SAME_EPOCH,
    REFUSALS_STRIKE,
    HIDES_HOLES,
    NUMBERS_ALL,
    MUTATIONS
};

const char* const mutation_names[] = {
    "none",
    "no timer repeats an RTS",
    "a copy of a pull gives credit again",
    "the receiver takes packets of any epoch for its own",
    "the sender takes acknowledgements of any epoch for its own",
    "the receiver delivers a number again",
    "a trimmed packet is acknowledged",
    "a receiver that forgot waits for packets that it had acknowledged",
    "a receiver that forgot ignores targets beyond one BDP",
    "the sender opens the epoch again that it had",
    "a receiver without memory says that the packet was trimmed",
    "the receiver is not told of numbers that were given up",
    "the receiver takes the number of an unnumbered packet for its own",
};
static_assert(sizeof(mutation_names) / sizeof(*mutation_names) == MUTATIONS);

struct Seen {
    uint64_t wrapped, restarted, released, refuted, relearned, nacked, rested, false_acks, lost,
        passed;
};

class TunnelModel {
public:
    using State = model::State;

    TunnelModel(const Bounds& bounds, Mutation mutation) : bounds_(bounds), mutation_(mutation) {}

    mutable Seen seen{};

    State initial() const {
        State s;
        std::memset(&s, 0, sizeof(s));
        s.resting = 1;
        s.sender_forgets = bounds_.sender_forgets;
        s.receiver_forgets = bounds_.receiver_forgets;
        s.lives = bounds_.lives;
        for (uint8_t i = bounds_.packets; i < packets_max; i++)
            s.place[i] = FREED;
        return s;
    }

    // heal() says more: some timer is armed in most states.
    const char* stuck(const State&) const { return nullptr; }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        if (const char* wrong = heal(s)) {
            emit(s, wrong, [] { return std::string("no fault happens any more"); });
            return;
        }
        offer(s, emit);
        transmit(s, emit);
        if (bounds_.unnumbered)
            pass(s, emit);
        timers(s, emit);
        pull(s, emit);
        for (uint8_t i = 0; i < s.messages; i++)
            network(s, i, emit);
        forget(s, emit);
    }

private:
    struct Step {
        State next;
        const char* violation = nullptr;
        bool good = true; // within the bounds and assumptions
    };

    static std::string text(const Message& m) {
        static const char* const names[] = {"SYN",   "NACK",  "SACK", "ACK",
                                            "EMPTY", "PAUSE", "FIN",  "TRIM"};
        std::string text = m.control ? "control" : "data";
        for (int i = 0; i < 8; i++)
            text += m.flags & 1 << i ? std::string(" ") + names[i] : "";
        text += ", epoch " + std::to_string(m.epoch) + (m.control ? ", ack " : ", seq ") +
                std::to_string(m.number) + ", pull " + std::to_string(m.pull);
        if (m.flags & (EQDS_SACK | EQDS_NACK))
            text += ", echo " + std::to_string(m.echo);
        if (m.payload)
            text += ", packet " + std::to_string(m.payload);
        if (m.marks & unnumbered_mark)
            text += ", unnumbered";
        if (m.marks & EQDS_MARK_NO_ROOM)
            text += ", no room";
        return text + (m.current ? "" : " (of an earlier life)");
    }

    static void remove(State& s, uint8_t i) {
        std::copy(s.message + i + 1, s.message + s.messages, s.message + i);
        s.message[--s.messages] = {};
    }

    void lose(State& s, const Message& m) const {
        if (m.payload && bounds_.strikes_max)
            s.hurt |= uint8_t(1 << (m.payload - 1));
    }

    // Lost if the network is full: another one could have been lost before.
    void send(State& s, const Message& m) const {
        Message* end = s.message + s.messages;
        Message* at = std::lower_bound(s.message, end, m);
        if (at != end && *at == m)
            return;
        if (s.messages == messages_max) {
            lose(s, m);
            return;
        }
        std::move_backward(at, end, end + 1);
        *at = m;
        s.messages++;
    }

    // The sender has begun an epoch: all there is belongs to an earlier life.
    bool begin_life(State& s) const {
        bool used = s.established && s.r_epoch == s.epoch;
        for (uint8_t i = 0; i < s.messages; i++) {
            s.message[i].current = 0;
            used |= s.message[i].epoch == s.epoch;
        }
        std::sort(s.message, s.message + s.messages);
        auto end = std::unique(s.message, s.message + s.messages);
        while (s.message + s.messages > end)
            s.message[--s.messages] = {};
        s.r_current = s.r_whole = s.r_opened = 0;
        if (!s.lives)
            return false;
        s.lives--;
        return !used || bounds_.colliding || mutation_ == SAME_EPOCH;
    }

    const char* check_credit(const State& s, const Ends& ends) const {
        const uint8_t bits = bounds_.profile.pull_bits;
        const eqds_sender& sender = ends.s;
        const eqds_receiver& receiver = ends.r;
        auto sum = sender.credit_bytes + eqds_ahead(sender.target, sender.pull, bits);
        if (eqds_sender_backlog_bytes(&sender) >= bounds_.window_mtus && sum != bounds_.window_mtus)
            return "credit at the sender and on its way is not one BDP";
        if (!s.r_whole || bounds_.colliding)
            return nullptr;
        if (eqds_ahead(receiver.share.pull, sender.pull, bits) < 0)
            return "the sender has seen a pull that was not sent";
        if (eqds_ahead(receiver.share.target, receiver.share.pull, bits) < 0)
            return "the list owes less than nothing";
        return eqds_ahead(sender.target, receiver.share.target, bits) <
                       -int(eqds_gift_max(&ends.config))
                   ? "the list owes credit that the sender did not ask for"
                   : nullptr;
    }

    // The last part of every step. began: the sender has begun an epoch.
    void settle(Step& step, const Ends& ends, bool began) const {
        State& s = step.next;
        ends.store(s);
        if (mutation_ == FORGETS_RTS)
            s.rts_due = 0;
        if (mutation_ == HIDES_HOLES)
            s.skipping = s.skip = 0;
        if (began)
            step.good = begin_life(s);
        for (uint8_t i = 0; i < s.messages;) {
            if (!ends.is_expired(s.message[i])) {
                i++;
                continue;
            }
            lose(s, s.message[i]);
            remove(s, i);
        }
        if (!step.violation)
            step.violation = eqds_sender_check(&ends.s);
        if (!step.violation)
            step.violation = eqds_receiver_check(&ends.r);
        if (!step.violation && s.state != EQDS_SENDER_CLOSED)
            step.violation = check_credit(s, ends);
        seen.rested += s.resting && s.state == EQDS_SENDER_ESTABLISHED;
    }

    Step after_sender(const State& before, Ends& ends, const eqds_out& out) const {
        Step step{before};
        const bool restarted = out.verdict == EQDS_RESTARTED;
        for (const eqds_packet* p = out.lost; p; p = p->next) {
            auto i = p - ends.at_sender;
            step.next.place[i] = LOST;
            step.next.seq[i] = step.next.attempt[i] = step.next.strikes[i] = 0;
            seen.lost++;
            if (!(before.hurt & 1 << i))
                step.violation = "a packet is given up that was neither lost nor trimmed";
        }
        for (const eqds_packet* p = out.free; p; p = p->next) {
            auto i = p - ends.at_sender;
            step.next.place[i] = FREED;
            step.next.seq[i] = step.next.attempt[i] = step.next.strikes[i] = 0;
            if (before.arrived & 1 << i)
                continue;
            seen.false_acks++;
            if (!bounds_.colliding)
                step.violation = "a packet is acknowledged that has not arrived";
        }
        seen.restarted += restarted;
        if (mutation_ == SAME_EPOCH && restarted)
            ends.s.epoch = before.epoch;
        settle(step, ends,
               restarted ||
                   (before.state == EQDS_SENDER_CLOSED && ends.s.state == EQDS_SENDER_SYN_SENT));
        if (out.send) {
            Message m = Ends::message(out.head, 0);
            if (mutation_ == SAME_EPOCH)
                m.epoch = step.next.epoch;
            m.current = !(m.flags & EQDS_FIN);
            send(step.next, m);
        }
        return step;
    }

    // of_before: so many of the chain, its first ones, are of the epoch before.
    void deliver(Step& step, const Ends& ends, const eqds_packet* chain, uint32_t of_before) const {
        State& s = step.next;
        for (const eqds_packet* p = chain; p; p = p->next) {
            auto bit = uint8_t(1 << (p - ends.at_receiver));
            if (s.delivered & bit)
                step.violation = "a packet is delivered twice";
            else if (bounds_.ordered && s.delivered >= bit)
                step.violation = "a packet is delivered behind a later one";
            s.delivered |= bit;
            if (of_before && !--of_before)
                s.delivered = 0;
        }
    }

    Step after_receiver(const State& before, const Ends& ends, const Message& m,
                        const eqds_out& out, uint32_t held) const {
        Step step{before};
        State& s = step.next;
        bool opened = ends.r.established && (!before.established || ends.r.epoch != before.r_epoch);
        const bool refused = out.head.flags & EQDS_NACK && !(out.head.flags & EQDS_FIN);
        if (m.payload && !(m.flags & EQDS_TRIM) && !out.free && !refused && ends.r.established)
            s.arrived |= uint8_t(1 << (m.payload - 1));
        if (opened && !held)
            s.delivered = 0;
        seen.released += opened && held;
        deliver(step, ends, out.deliver, opened ? held : 0);
        if (opened) {
            seen.relearned += m.current && s.r_opened;
            s.r_current = m.current;
            s.r_whole = m.current && !s.r_opened;
            s.r_opened |= m.current;
        }
        if (!ends.r.established)
            s.r_current = s.r_whole = s.delivered = 0;
        settle(step, ends, false);
        if (out.send) {
            Message reply = Ends::message(out.head, 0);
            if (mutation_ == ACKS_WHAT_IS_CUT && reply.flags & EQDS_NACK && m.flags & EQDS_TRIM)
                reply.flags ^= EQDS_NACK | EQDS_SACK;
            if (mutation_ == REFUSALS_STRIKE)
                reply.marks = 0;
            reply.current = before.established || opened ? s.r_current : m.current;
            send(s, reply);
        }
        return step;
    }

    template <class Emit, class Label>
    static void emit_step(Emit& emit, const Step& step, Label&& label) {
        if (step.good || step.violation)
            emit(step.next, step.violation, label);
    }

    // ---- steps ----

    template <class Emit>
    void offer(const State& s, Emit& emit) const {
        auto i = std::find(s.place, s.place + packets_max, AT_USER) - s.place;
        if (i == packets_max)
            return;
        Ends ends(bounds_, s);
        eqds_out out;
        eqds_sender_enqueue(&ends.s, now_ns, &ends.at_sender[i], &out);
        emit_step(emit, after_sender(s, ends, out),
                  [=] { return "packet " + std::to_string(i + 1) + " is offered"; });
    }

    template <class Emit>
    void transmit(const State& s, Emit& emit) const {
        // The peer was heard since the packet left the last time, or not.
        for (bool heard : {false, true}) {
            Ends ends(bounds_, s);
            eqds_head head;
            if (heard && (!bounds_.strikes_max || !ends.s.retransmit.count))
                return;
            ends.s.heard_ns = heard ? now_ns + 1 : 0;
            eqds_packet* packet = eqds_sender_next(&ends.s, now_ns, &head);
            if (!packet)
                return;
            Step step{s};
            settle(step, ends, false);
            seen.wrapped += step.next.next < s.next;
            Message m = Ends::message(head, uint8_t(packet - ends.at_sender + 1));
            m.current = 1;
            send(step.next, m);
            emit_step(emit, step, [=] { return "sends " + text(m) + (heard ? ", a strike" : ""); });
        }
    }

    template <class Emit>
    void pass(const State& s, Emit& emit) const {
        Ends ends(bounds_, s);
        eqds_head head;
        if (!eqds_sender_unnumbered(&ends.s, now_ns, 1, EQDS_PROTO_IPV4, &head))
            return;
        Step step{s};
        settle(step, ends, false);
        Message m = Ends::message(head, 0);
        m.current = 1;
        send(step.next, m);
        seen.passed++;
        emit_step(emit, step, [=] { return "sends " + text(m); });
    }

    template <class Emit>
    void timers(const State& s, Emit& emit) const {
        // counts: what is late left since the last timeout.
        auto expire = [&](uint64_t now, int packet, bool counts, const char* name) {
            Ends ends(bounds_, s);
            eqds_out out;
            ends.s.timeout_ns = counts ? 0 : now;
            if (packet >= 0) { // the oldest one
                ends.at_sender[packet].sent_ns = now - rto_ns;
                eqds_list_remove(&ends.s.in_flight, &ends.at_sender[packet]);
                eqds_list_insert(&ends.s.in_flight, nullptr, &ends.at_sender[packet]);
            }
            eqds_sender_expire(&ends.s, now, &out);
            State late = s;
            if (packet >= 0 && bounds_.strikes_max)
                late.hurt |= uint8_t(1 << packet);
            emit_step(emit, after_sender(late, ends, out), [=] {
                return name + (packet >= 0 ? " of packet " + std::to_string(packet + 1) : "") +
                       (counts ? "" : ", part of the last one");
            });
        };
        for (bool counts : {true, false}) {
            if (!counts && !s.timeouts)
                continue;
            if (s.rts_due)
                expire(now_ns + 1, -1, counts, "timeout of the RTS");
            for (uint8_t i = 0; i < packets_max; i++) {
                if (s.place[i] == IN_FLIGHT)
                    expire(now_ns, i, counts, "timeout");
            }
        }
        if (s.resting && s.state != EQDS_SENDER_CLOSED && s.sender_forgets)
            expire(now_ns + idle_ns, -1, true, "the sender has been idle for long");
    }

    template <class Emit>
    void pull(const State& s, Emit& emit) const {
        Ends ends(bounds_, s);
        eqds_head head;
        if (!eqds_receiver_next(&ends.asl, now_ns, &head))
            return;
        Step step{s};
        settle(step, ends, false);
        Message m = Ends::message(head, 0);
        m.current = s.r_current;
        send(step.next, m);
        emit_step(emit, step, [=] { return "pulls: " + text(m); });
    }

    template <class Emit>
    void network(const State& s, uint8_t i, Emit& emit) const {
        const Message m = s.message[i];
        State without = s;
        remove(without, i);
        arrive(without, m, emit, "arrives: ");
        arrive(s, m, emit, "a copy arrives: ");
        if (m.payload && !(m.flags & EQDS_TRIM) && bounds_.strikes_max)
            refuse(without, m, emit);
        lose(without, m);
        emit(without, nullptr, [=] { return "lost: " + text(m); });
        if (m.payload && !(m.flags & EQDS_TRIM) && bounds_.trimming) {
            Message cut = m;
            cut.flags |= EQDS_TRIM;
            send(without, cut);
            emit(without, nullptr, [=] { return "trimmed: " + text(m); });
        }
    }

    template <class Emit>
    void arrive(const State& s, const Message& m, Emit& emit, const char* how) const {
        Ends ends(bounds_, s);
        Step step = m.control ? at_sender(s, ends, m) : at_receiver(s, ends, m);
        emit_step(emit, step, [=] { return how + text(m); });
    }

    template <class Emit>
    void refuse(const State& s, const Message& m, Emit& emit) const {
        Ends ends(bounds_, s);
        emit_step(emit, at_receiver(s, ends, m, true),
                  [=] { return "arrives, and finds no memory: " + text(m); });
    }

    Step at_sender(const State& s, Ends& ends, const Message& m) const {
        eqds_head head = Ends::head(m);
        eqds_out out;
        if (mutation_ == ACK_OF_ANY_EPOCH && !(m.flags & (EQDS_FIN | EQDS_SYN)))
            head.epoch = s.epoch;
        if (mutation_ == CREDIT_TWICE && s.state == EQDS_SENDER_ESTABLISHED && head.pull == s.pull)
            ends.s.credit_bytes++;
        eqds_sender_receive(&ends.s, now_ns, &head, &out);
        seen.refuted += (s.state == EQDS_SENDER_ESTABLISHED || m.flags & EQDS_SYN) &&
                        !(m.flags & EQDS_FIN) && m.epoch == s.epoch && ends.s.epoch != s.epoch;
        seen.nacked += (m.flags & EQDS_RST) == EQDS_NACK && ends.s.retransmit.count;
        return after_sender(s, ends, out);
    }

    Step at_receiver(const State& s, Ends& ends, const Message& m, bool no_room = false) const {
        eqds_out out;
        const uint32_t held = ends.r.held;
        eqds_head head = Ends::head(m);
        head.no_room = no_room;
        if (head.unnumbered)
            return unnumbered_at_receiver(s, ends, m, head);
        receiver_receives(ends, head, m.payload, now_ns, out);
        return after_receiver(s, ends, m, out, held);
    }

    Step unnumbered_at_receiver(const State& s, Ends& ends, const Message& m,
                                eqds_head head) const {
        eqds_out out{};
        const uint32_t expected = ends.r.expected, end = ends.r.end, held = ends.r.held;
        const bool known = ends.r.established && ends.r.epoch == head.epoch;
        ends.unnumbered = {};
        head.unnumbered = mutation_ != NUMBERS_ALL;
        if (ends.r.established || eqds_receiver_admit(&head, 0, &out))
            eqds_receiver_receive(&ends.r, now_ns, &head, 1, &ends.unnumbered, &out);
        const bool alone = !out.deliver || (out.deliver == &ends.unnumbered && !out.deliver->next);
        out.deliver = out.free = nullptr;
        if (mutation_ == NUMBERS_ALL) { // the number has arrived, by another packet
            for (eqds_packet*& slot : ends.r_slot)
                if (slot == &ends.unnumbered)
                    slot = reinterpret_cast<eqds_packet*>(1), ends.r.held--, ends.r.held_bytes--;
            out.send = false;
        }
        Step step = after_receiver(s, ends, m, out, held);
        if (mutation_ == NUMBERS_ALL || step.violation)
            return step;
        if (!alone || (known && out.send))
            step.violation = "an unnumbered packet is not delivered alone, or is answered";
        else if (ends.r.expected != expected || ends.r.end != end || ends.r.held != held)
            step.violation = "an unnumbered packet changed numbers";
        return step;
    }

    void receiver_receives(Ends& ends, eqds_head head, uint8_t payload, uint64_t now,
                           eqds_out& out) const {
        const bool established = ends.r.established;
        if (!established && !eqds_receiver_admit(&head, 0, &out))
            return;
        const uint32_t seq_mask = eqds_mask(bounds_.profile.seq_bits);
        if (mutation_ == IGNORES_EPOCHS && established)
            head.epoch = ends.r.epoch;
        if (mutation_ == WAITS_FOR_HOLES)
            head.unacked = uint16_t((head.seq - ends.r.expected) & seq_mask);
        if (mutation_ == CUTS_DEMAND && established &&
            eqds_ahead(head.pull, ends.r.share.pull, bounds_.profile.pull_bits) >
                bounds_.window_mtus)
            head.pull = ends.r.share.pull;
        eqds_packet* packet = payload && !(head.flags & EQDS_TRIM) && !head.no_room
                                  ? &ends.at_receiver[payload - 1]
                                  : nullptr;
        eqds_receiver_receive(&ends.r, now, &head, 1, packet, &out);
        if (mutation_ == DUPLICATES && out.verdict == EQDS_DUPLICATE && out.free)
            std::swap(out.deliver, out.free);
    }

    template <class Emit>
    void forget(const State& s, Emit& emit) const {
        if (s.receiver_forgets && s.established) {
            State next = s;
            next.receiver_forgets--;
            next.established = next.r_epoch = next.expected = next.end = 0;
            next.r_pull = next.r_target = next.r_told = next.r_current = next.r_whole =
                next.delivered = 0;
            std::memset(next.slot, 0, sizeof(next.slot));
            emit(next, nullptr, [] { return std::string("the receiver forgets"); });
            close_receiver(s, emit);
        }
        if (!s.sender_forgets || s.state == EQDS_SENDER_CLOSED)
            return;
        for (uint8_t epoch = 0; epoch <= eqds_mask(bounds_.profile.epoch_bits); epoch++) {
            State next = s;
            next.sender_forgets--;
            next.state = EQDS_SENDER_CLOSED;
            next.epoch = epoch;
            next.una = next.next = next.pull = next.target = next.told = 0;
            next.timeouts = next.rts_due = next.skipping = next.skip = 0;
            next.resting = 1;
            next.credit = 0;
            for (uint8_t i = 0; i < packets_max; i++) {
                if (s.place[i] < FREED)
                    next.place[i] = AT_USER;
                next.seq[i] = next.attempt[i] = next.strikes[i] = 0;
            }
            emit(next, nullptr,
                 [=] { return "the sender forgets, its next epoch is " + std::to_string(epoch); });
        }
    }

    // The receiver drops its state when idle_ns has passed without a packet.
    template <class Emit>
    void close_receiver(const State& s, Emit& emit) const {
        Ends ends(bounds_, s);
        eqds_out out;
        eqds_receiver_expire(&ends.r, now_ns + idle_ns, &out);
        Step step{s};
        step.next.receiver_forgets--;
        deliver(step, ends, out.deliver, 0);
        step.next.r_current = step.next.r_whole = step.next.delivered = 0;
        settle(step, ends, false);
        Message m = Ends::message(out.head, 0);
        m.current = s.r_current;
        send(step.next, m);
        emit_step(emit, step, [=] { return "the receiver has been idle for long: " + text(m); });
    }

    // ---- the end of faults ----

    const char* waits_for_hole(const Ends& ends) const {
        return bounds_.strikes_max && ends.s.state == EQDS_SENDER_ESTABLISHED &&
                       ends.r.established && ends.r.epoch == ends.s.epoch &&
                       ends.r.expected != ends.s.next
                   ? "the receiver waits for a packet that was given up"
                   : nullptr;
    }

    // Messages on their way are lost, later ones arrive in order. NULL: all is acknowledged.
    const char* heal(const State& from) const {
        constexpr int rounds = 200;
        Ends ends(bounds_, from);
        std::vector<eqds_head> wire;
        uint64_t clock = now_ns;
        auto act = [&](auto&& event) {
            eqds_out out{};
            event(out);
            if (out.send)
                wire.push_back(out.head);
            if (mutation_ == FORGETS_RTS)
                ends.s.rts_due_ns = EQDS_NEVER;
            if (mutation_ == HIDES_HOLES)
                ends.s.skipping = false;
        };
        auto to_receiver = [&](const eqds_head& head, uint8_t payload) {
            act([&](eqds_out& out) { receiver_receives(ends, head, payload, clock, out); });
        };
        for (uint8_t i = 0; i < packets_max; i++) {
            if (from.place[i] == AT_USER)
                act([&](eqds_out& out) {
                    eqds_sender_enqueue(&ends.s, clock, &ends.at_sender[i], &out);
                });
        }
        for (int round = 0; round < rounds; round++) {
            eqds_head head;
            if (!wire.empty()) {
                head = wire.front();
                wire.erase(wire.begin());
                if (head.control)
                    act([&](eqds_out& out) { eqds_sender_receive(&ends.s, clock, &head, &out); });
                else
                    to_receiver(head, 0);
            } else if (ends.s.resting) {
                return waits_for_hole(ends);
            } else if (eqds_packet* packet = eqds_sender_next(&ends.s, clock, &head)) {
                to_receiver(head, uint8_t(packet - ends.at_sender + 1));
            } else if (eqds_receiver_next(&ends.asl, clock, &head)) {
                wire.push_back(head);
            } else {
                clock = eqds_sender_deadline_ns(&ends.s);
                if (clock == EQDS_NEVER)
                    return "deadlock: no timer is armed, and packets wait";
                // Numbers of an earlier life may fit until the idle time is over.
                if (bounds_.colliding && round > rounds / 2)
                    clock += idle_ns;
                act([&](eqds_out& out) { eqds_sender_expire(&ends.s, clock, &out); });
                if (eqds_sender_deadline_ns(&ends.s) <= clock)
                    return "a deadline stays in the past: its timer would fire for ever";
            }
        }
        return "deadlock: the ends go round in circles";
    }

    const Bounds bounds_;
    const Mutation mutation_;
};

constexpr eqds_profile two_bits{.seq_bits = 2, .pull_bits = 2, .epoch_bits = 2, .start_bits = 0};
constexpr eqds_profile three_bits{.seq_bits = 3, .pull_bits = 3, .epoch_bits = 2, .start_bits = 0};

// Two packets that the network may do to as it likes, and a sender that timeouts don't discourage.
Bounds bounds() {
    Bounds b{};
    b.profile = two_bits;
    b.packets = 2;
    b.window_mtus = b.lives = 1;
    b.ordered = b.patient = true;
    return b;
}

Bounds forgetful(uint8_t sender_forgets, uint8_t receiver_forgets) {
    Bounds b = bounds();
    b.sender_forgets = sender_forgets;
    b.receiver_forgets = receiver_forgets;
    b.lives = uint8_t(1 + sender_forgets + receiver_forgets);
    return b;
}

Bounds wide() {
    Bounds b = forgetful(0, 1);
    b.profile = three_bits;
    b.window_mtus = 2;
    b.packets = 3;
    return b;
}

// The path keeps packets back, and the receiver is without memory at times.
Bounds hopeless() {
    Bounds b = bounds();
    b.profile = three_bits;
    b.packets = b.strikes_max = 1;
    b.trimming = true;
    return b;
}

constexpr uint64_t states_max = 20'000'000;

struct Correct {
    model::Report& report;
    Seen sum{};

    void run(const char* name, const Bounds& bounds) {
        TunnelModel model(bounds, NONE);
        report.check(name, model::Explorer<TunnelModel>(model, states_max).run(), false);
        const Seen& seen = model.seen;
        sum.wrapped += seen.wrapped;
        sum.restarted += seen.restarted;
        sum.released += seen.released;
        sum.relearned += seen.relearned;
        sum.nacked += seen.nacked;
        sum.rested += seen.rested;
        sum.lost += seen.lost;
        sum.passed += seen.passed;
        if (!bounds.colliding)
            return;
        printf("# numbers refuted: %llu, false acknowledgements: %llu\n",
               static_cast<unsigned long long>(seen.refuted),
               static_cast<unsigned long long>(seen.false_acks));
        report.result(seen.refuted && seen.false_acks, std::string(name) + ": both were met");
    }
};

} // namespace

int main(int argc, char** argv) {
    const bool large = argc > 1 && std::string(argv[1]) == "--large";
    model::Report report;
    Correct correct{report};

    Bounds b = bounds();
    b.packets = 5;
    correct.run("numbers wrap", b);
    b = bounds();
    b.trimming = true;
    correct.run("the network trims", b);
    b.ordered = false;
    correct.run("and order doesn't matter", b);
    b = bounds();
    b.profile = three_bits;
    b.trimming = b.pull_trimmed = true;
    correct.run("a trimmed packet is demand", b);
    b = bounds();
    b.packets = 3;
    b.overdraw = true;
    correct.run("any credit is enough", b);
    b = bounds();
    b.profile = three_bits;
    b.window_mtus = 2;
    correct.run("a BDP of two MTUs", b);
    b.unnumbered = true;
    correct.run("the same, and unnumbered packets", b);
    b = forgetful(0, 1);
    b.unnumbered = true;
    correct.run("the receiver forgets, and unnumbered packets", b);
    correct.run("packets are given up, or refused", hopeless());
    b = bounds();
    b.patient = false;
    b.lives = 2;
    correct.run("timeouts open the tunnel again", b);
    correct.run("the receiver forgets", forgetful(0, 1));
    correct.run("the sender forgets", forgetful(1, 0));
    b = forgetful(1, 1);
    b.packets = 1;
    correct.run("both forget", b);
    b = forgetful(1, 0);
    b.colliding = true;
    correct.run("the sender forgets, epochs collide", b);
    if (large) {
        b = forgetful(0, 1);
        b.packets = 3;
        correct.run("the receiver forgets, three packets", b);
        b = forgetful(0, 1);
        b.trimming = true;
        correct.run("the receiver forgets, the network trims", b);
        b.profile = three_bits;
        b.pull_trimmed = true;
        b.packets = 1;
        correct.run("and a trimmed packet is demand", b);
        b = hopeless();
        b.packets = 2;
        correct.run("two packets are given up, or refused", b);
    }
    const Seen& sum = correct.sum;
    report.result(sum.wrapped && sum.restarted && sum.released && sum.relearned && sum.nacked &&
                      sum.rested && sum.lost && sum.passed,
                  "every outcome was met");

    Bounds trims = bounds();
    trims.trimming = true;
    Bounds impatient = bounds();
    impatient.patient = false;
    impatient.lives = 2;
    Bounds passing = bounds();
    passing.profile = three_bits;
    passing.window_mtus = 2;
    passing.unnumbered = true;
    const Bounds wrong[MUTATIONS] = {
        bounds(), bounds(), bounds(),  forgetful(0, 1), forgetful(0, 1), bounds(), trims,
        wide(),   wide(),   impatient, hopeless(),      hopeless(),      passing};
    for (int mutation = NONE + 1; mutation < MUTATIONS; mutation++) {
        TunnelModel model(wrong[mutation], static_cast<Mutation>(mutation));
        auto out = model::Explorer<TunnelModel>(model, states_max).run();
        report.check(std::string("wrong: ") + mutation_names[mutation], out, true);
    }
    return report.finish();
}
