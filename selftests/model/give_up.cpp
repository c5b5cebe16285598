// SPDX-License-Identifier: GPL-2.0
// A write that its channel gave up does no harm to what another channel writes there later.
//
//   device: fence ---- may Y write?         node (kmod/core/rmem/node/session.c)
//     |           \                          sessions, each client's own
//   channel X      channel Y                    ^
//     write 1        write 2                    |
//        +-------------+---> messages: every one ever sent,
//                            deliverable at any time, again and again, or never
//
// X's write ends in one of two ways: acknowledged, or given up (fail_after). Only then may the
// device's user write the place again, through Y. A copy of X's write may be on its way, or in the
// hands of the node; so while X that gave up has its session renewed, the device takes nothing
// (fence() in kmod/rmem/client/channel.c). The session has another name then, or, if the node
// didn't have it any more, is a new one; the copy names the old one.
//
// A single op that its caller takes back (rmem_client_cancel()) is given up by the same step. With
// one channel, as libremote has, the place is written again by X itself: that leaves when X has its
// session again, which is when the fence is taken down for Y.
#include "explore.hpp"
#include "sessions.hpp"

#include <string>

namespace {

using model::Sessions;
using model::Slot;
using model::wire_name;

constexpr uint32_t window = 2;
constexpr int channels = 2;
constexpr int messages_max = 32;

enum Mutation {
    NONE,
    NO_FENCE,       // Y may write as soon as X gave up
    NO_NEW_SESSION, // X takes its fence down and keeps its session
    SAME_NAME,      // the node renews it under its old name
    NO_SUPERSEDE,   // not renewed, and the node keeps X's older session
    UNLOCKED,       // the node renews or ends a session while a request of it is being executed
    MUTATIONS
};

const char* const mutation_names[] = {
    "none",
    "another channel writes as soon as one gave up",
    "who gave up keeps its session",
    "a session is renewed under the name it had",
    "older sessions of a client stay",
    "a session is renewed or ends while a request of it is being executed",
};
static_assert(sizeof(mutation_names) / sizeof(*mutation_names) == MUTATIONS);

enum Type : uint8_t { OPEN, OPENED, WRITE, WRITTEN, NO_SESSION };
const char* const type_names[] = {"OPEN", "OPENED", "write", "written", "no session"};

struct Message {
    uint8_t type;
    uint8_t channel;
    uint8_t session; // nonce in OPEN
    uint8_t nonce;   // in OPENED; in OPEN: session to be renewed, or 0
    auto operator<=>(const Message&) const = default;
};

enum Phase : uint8_t { OPENING, UP };
enum OpState : uint8_t { IDLE, OUT, ENDED, GIVEN_UP };

struct Channel {
    uint8_t phase, session, nonce, renews, op;
};

struct State {
    Channel channel[channels];
    uint8_t fence;
    uint8_t generation;
    Slot slot[model::slots];
    uint8_t executing[channels]; // session whose request is being executed; 0: none
    uint8_t last;                // channel whose write was executed last, + 1
    uint8_t evictions, opens;
    uint8_t messages;
    Message message[messages_max];
};

struct Seen {
    uint64_t given_up, fenced, refused, renewed, both;
};

class GiveUp {
public:
    using State = ::State;

    GiveUp(uint8_t evictions, Mutation mutation) : evictions_(evictions), mutation_(mutation) {}

    mutable Seen seen{};

    State initial() const {
        State s;
        std::memset(&s, 0, sizeof(s));
        s.evictions = evictions_;
        s.opens = uint8_t(evictions_ + channels + 1); // one by X that gave up
        for (Channel& c : s.channel)
            c.nonce = 1;
        return s;
    }

    const char* stuck(const State&) const { return nullptr; }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        for (uint8_t i = 0; i < channels; i++)
            client_steps(s, i, emit);
        for (uint8_t i = 0; i < channels; i++)
            finish(s, i, emit);
        for (int i = 0; i < s.messages; i++)
            deliver(s, s.message[i], emit);
        evict(s, emit);
    }

private:
    static std::string text(const Message& m) {
        std::string text = type_names[m.type];
        text += m.channel ? " of Y" : " of X";
        return text + (m.type == OPEN ? ", nonce " : ", session ") + std::to_string(m.session);
    }

    static bool send(State& s, const Message& m) { return model::send(s.message, s.messages, m); }

    // ---- client ----

    static void reopen(Channel& c, uint8_t renews) {
        c.phase = OPENING;
        c.renews = renews;
        c.session = 0;
        c.nonce++;
    }

    // The user writes by Y what X has ended, one way or the other.
    bool may_write(const State& s, uint8_t i) const {
        if (s.channel[i].op == OUT)
            return true;
        if (s.channel[i].op != IDLE)
            return false;
        if (i == 0)
            return true;
        seen.fenced += s.fence && s.channel[0].op == GIVEN_UP;
        return s.channel[0].op >= ENDED && !s.fence;
    }

    template <class Emit>
    void client_steps(const State& s, uint8_t i, Emit& emit) const {
        const Channel& c = s.channel[i];
        State next = s;
        if (c.phase == OPENING) {
            Message m{OPEN, i, c.nonce, c.renews};
            if (send(next, m))
                emit(next, nullptr, [=] { return "sends " + text(m); });
        } else if (may_write(s, i)) {
            Message m{WRITE, i, c.session, 0};
            next.channel[i].op = OUT;
            if (send(next, m) || c.op == IDLE)
                emit(next, nullptr, [=] { return "sends " + text(m); });
        }
        if (i == 0 && c.op == OUT)
            give_up(s, emit);
    }

    template <class Emit>
    void give_up(const State& s, Emit& emit) const {
        State next = s;
        Channel& c = next.channel[0];
        c.op = GIVEN_UP;
        if (c.phase == UP && mutation_ != NO_NEW_SESSION)
            reopen(c, mutation_ == NO_SUPERSEDE ? 0 : c.session);
        next.fence = c.phase == OPENING && mutation_ != NO_FENCE;
        seen.given_up++;
        emit(next, nullptr, [] { return std::string("X gives its write up"); });
    }

    template <class Emit>
    void answered(const State& s, const Message& m, Emit& emit) const {
        State next = s;
        Channel& c = next.channel[m.channel];
        if (m.type == OPENED) {
            if (c.phase != OPENING || m.nonce != c.nonce)
                return;
            c.phase = UP;
            c.session = m.session;
            if (m.channel == 0)
                next.fence = 0;
        } else {
            if (c.phase != UP || m.session != c.session)
                return;
            if (m.type == NO_SESSION)
                reopen(c, 0);
            else if (c.op == OUT)
                c.op = ENDED;
            else
                return;
        }
        emit(next, nullptr, [=] { return "receives " + text(m); });
    }

    // ---- node ----

    template <class Emit>
    void deliver(const State& s, const Message& m, Emit& emit) const {
        switch (m.type) {
        case OPEN:
            node_open(s, m, emit);
            break;
        case WRITE:
            node_write(s, m, emit);
            break;
        default:
            answered(s, m, emit);
        }
    }

    bool is_locked(const State& s, int slot) const {
        bool locked = false;
        for (uint8_t session : s.executing)
            locked |= session && (session & 1) == slot;
        return locked && mutation_ != UNLOCKED;
    }

    template <class Emit>
    void node_open(const State& s, const Message& m, Emit& emit) const {
        rmem_attempt attempt{};
        attempt.nonce = m.session;
        attempt.client[0] = uint8_t(m.channel + 1);
        State next = s;
        int slot = m.nonce && !is_locked(s, m.nonce & 1) ? node_renew(next, m, attempt) : -1;
        if (slot < 0) {
            Sessions sessions(next.slot, next.generation, window);
            slot = sessions.open(attempt, next.opens, mutation_ != NO_SUPERSEDE,
                                 [&](int held) { return is_locked(s, held); });
            if (slot < 0)
                return;
        }
        send(next, {OPENED, m.channel, next.slot[slot].name, m.session});
        emit(next, nullptr, [=] { return "node receives " + text(m); });
    }

    int node_renew(State& s, const Message& m, const rmem_attempt& attempt) const {
        Sessions sessions(s.slot, s.generation, window);
        int slot = sessions.renew(attempt, m.nonce);
        if (slot < 0)
            return slot;
        seen.renewed++;
        if (mutation_ == SAME_NAME)
            sessions.all.slot[slot].name = wire_name(m.nonce);
        return slot;
    }

    // The id of a channel's one write is 1 in every session.
    template <class Emit>
    void node_write(const State& s, const Message& m, Emit& emit) const {
        State next = s;
        Message reply{NO_SESSION, m.channel, m.session, 0};
        if (is_locked(s, m.session & 1))
            return;
        {
            Sessions sessions(next.slot, next.generation, window);
            rmem_session* session = rmem_sessions_find(&sessions.all, wire_name(m.session));
            if (session) {
                rmem_session_touch(session, 1, 1);
                reply.type = WRITTEN;
                if (rmem_session_check(session, 1, 1) == RMEM_SESSION_FRESH) {
                    if (s.executing[m.channel])
                        return;
                    next.executing[m.channel] = m.session;
                }
            } else {
                seen.refused++;
            }
        }
        if (next.executing[m.channel] == s.executing[m.channel])
            send(next, reply);
        emit(next, nullptr, [=] { return "node receives " + text(m); });
    }

    // The copy into memory ends.
    template <class Emit>
    void finish(const State& s, uint8_t channel, Emit& emit) const {
        uint8_t session_name = s.executing[channel];
        if (!session_name)
            return;
        State next = s;
        const char* violation = nullptr;
        if (s.last == 2 && channel == 0)
            violation = "a write that was given up is executed after a later one";
        seen.both += s.last == 1 && channel == 1 && s.channel[0].op == GIVEN_UP;
        next.last = uint8_t(channel + 1);
        next.executing[channel] = 0;
        {
            Sessions sessions(next.slot, next.generation, window);
            rmem_session* session = rmem_sessions_find(&sessions.all, wire_name(session_name));
            if (session)
                rmem_session_done(session, 1);
        }
        send(next, {WRITTEN, channel, session_name, 0});
        emit(next, violation, [=] {
            return std::string("node has executed the write of ") + (channel ? "Y" : "X");
        });
    }

    template <class Emit>
    void evict(const State& s, Emit& emit) const {
        for (int slot = 0; slot < model::slots && s.evictions; slot++) {
            if (!s.slot[slot].name || is_locked(s, slot))
                continue;
            State next = s;
            next.evictions--;
            {
                Sessions sessions(next.slot, next.generation, window);
                rmem_sessions_close(&sessions.all, slot);
            }
            emit(next, nullptr,
                 [=] { return "node evicts session " + std::to_string(s.slot[slot].name); });
        }
    }

    const uint8_t evictions_;
    const Mutation mutation_;
};

} // namespace

int main() {
    constexpr uint64_t states_max = 10'000'000;
    model::Report report;
    for (uint8_t evictions : {0, 1, 2}) {
        GiveUp model(evictions, NONE);
        auto out = model::Explorer<GiveUp>(model, states_max).run();
        std::string name = std::to_string(evictions) + " evictions";
        report.check(name, out, false);
        const Seen& seen = model.seen;
        report.result(seen.given_up && seen.fenced && seen.refused && seen.renewed && seen.both,
                      name + ": every outcome was met");
    }
    for (int mutation = NONE + 1; mutation < MUTATIONS; mutation++) {
        GiveUp model(1, static_cast<Mutation>(mutation));
        auto out = model::Explorer<GiveUp>(model, states_max).run();
        report.check(std::string("wrong: ") + mutation_names[mutation], out, true);
    }
    return report.finish();
}
