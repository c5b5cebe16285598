// SPDX-License-Identifier: GPL-2.0
// A late copy of a finished write does no harm, whatever the network and the node do.
//
//   client (kmod/core/rmem/client/seq.c)            node (kmod/core/rmem/node/session.c)
//   ids, floor, sessions opened again         sessions, floors, executed ids
//        |                                        ^
//        +---> messages: every one ever sent, <---+
//              deliverable at any time, again and again, or never
//
// That set of messages is loss, duplication, reordering and any delay at once. Besides,
// at any time: a request is sent again; the node evicts a session, or restarts and forgets all;
// the client is attached anew (its session superseded), or gives an op up.
//
// The client writes place A twice, discards it and reads it, each after the one before
// ended; of place B it writes and reads at any time, so floors lag and executed ids matter.
//
// stale_write --large explores more, for minutes.
#include "explore.hpp"
#include "sessions.hpp"

#include <cstdlib>
#include <iterator>
#include <string_view>

extern "C" {
#include "core/rmem/client/seq.h"
}

namespace {

using model::Ids;
using model::Sessions;
using model::Slot;
using model::wire_name;

constexpr int slots = model::slots;
constexpr int window_max = 4;
constexpr int messages_max = 48;
constexpr uint64_t generation_of_boot[] = {0, 0, 20};

enum Mutation {
    NONE,
    NO_FLOOR,       // node executes what is below the floor
    NO_BITS,        // node executes again what is marked
    FLOOR_OLDEST,   // client's floor never moves
    FLOOR_NEWEST,   // client's floor passes what is outstanding
    NAMES_REUSED,   // a session is named like the one before in its slot
    NO_SUPERSEDE,   // older sessions of the client stay
    MARKED_FIRST,   // marked before executed, which may fail
    UNLOCKED,       // a second copy is answered while the first is being executed
    BOOT_UNCHECKED, // a restarted node is taken for one that evicted the session
    MUTATIONS
};

const char* const mutation_names[] = {
    "none",
    "the node executes what is below the floor",
    "the node executes again what is marked",
    "the client's floor never moves",
    "the client's floor passes what is outstanding",
    "a session is named like the one before in its slot",
    "older sessions of a client stay",
    "marked before it is executed, which may fail",
    "a copy is answered while the first is being executed",
    "a restarted node is taken for one that evicted the session",
};
static_assert(std::size(mutation_names) == MUTATIONS);

enum Kind : uint8_t { WRITE, READ };

struct Op {
    Kind kind;
    uint8_t place;
    uint8_t value;
    int8_t after; // op that must have ended; -1: none
    const char* name;
};

constexpr Op program[] = {
    {WRITE, 0, 1, -1, "A=1"},  {WRITE, 0, 2, 0, "A=2"},  {WRITE, 0, 0, 1, "discard A"},
    {READ, 0, 0, 2, "read A"}, {WRITE, 1, 3, -1, "B=3"}, {READ, 1, 0, 4, "read B"},
};
constexpr int ops = std::size(program);

enum Type : uint8_t { OPEN, OPENED, REQUEST, RESPONSE };
enum Status : uint8_t { OK, NO_SESSION, REBOOTED, STALE, INVALID, BUSY };
const char* const status_names[] = {"OK", "NO_SESSION", "REBOOTED", "STALE", "INVALID", "BUSY"};

struct Message {
    uint8_t type;
    uint8_t session; // generation << 1 | slot; nonce in OPEN
    uint8_t boot;
    uint8_t id; // nonce in OPENED
    uint8_t floor;
    uint8_t op;
    uint8_t status;
    uint8_t value;
    auto operator<=>(const Message&) const = default;
};

enum Phase : uint8_t { OPENING, UP, LOST };
enum OpState : uint8_t { IDLE, OUT, ENDED, GIVEN_UP };

struct State {
    // client
    uint8_t phase, boot, session, nonce;
    uint8_t floor, next;
    uint8_t owner[window_max]; // op + 1
    uint8_t op[ops];
    uint8_t id[ops];
    // node
    uint8_t node_boot, generation;
    Slot slot[slots];
    uint8_t content[2];
    uint8_t last[2];      // op + 1 executed last, of writes to that place
    Message executing[2]; // being executed: op is in no memory yet; type 0xff: none
    // bounds, and what may still go wrong
    uint8_t opens, names, evictions, restarts, attaches, give_ups;
    uint8_t messages;
    Message message[messages_max];
};

struct Bounds {
    uint32_t window;
    uint8_t opens; // nonces of the client
    uint8_t names; // sessions the node names: one more is a late copy of an OPEN
    uint8_t evictions, restarts, attaches, give_ups;
    bool keep_all;      // messages
    uint8_t ops = 0x3f; // of the program, bits
};

// Events that must happen at least once, so that a good result isn't an empty one.
struct Seen {
    uint64_t status[6];
    uint64_t repeated, executed, finished, lost;
};

class StaleWrite {
public:
    using State = ::State;

    StaleWrite(const Bounds& bounds, Mutation mutation) : bounds_(bounds), mutation_(mutation) {}

    mutable Seen seen{};

    State initial() const {
        State s;
        std::memset(&s, 0, sizeof(s));
        s.floor = s.next = 1;
        s.nonce = 1;
        s.node_boot = 1;
        s.generation = uint8_t(generation_of_boot[1]);
        s.opens = bounds_.opens - 1;
        s.names = bounds_.names;
        s.evictions = bounds_.evictions;
        s.restarts = bounds_.restarts;
        s.attaches = bounds_.attaches;
        s.give_ups = bounds_.give_ups;
        s.executing[0].type = s.executing[1].type = 0xff;
        return s;
    }

    const char* stuck(const State&) const { return nullptr; }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        if (s.phase == LOST)
            return;
        auto tidy_emit = [&](State next, const char* violation, auto&& label) {
            if (!bounds_.keep_all && mutation_ != NAMES_REUSED)
                forget(next);
            if (violation || std::memcmp(&next, &s, sizeof(s)))
                emit(next, violation, label);
        };
        client_steps(s, tidy_emit);
        for (int i = 0; i < s.messages; i++)
            delivery(s, s.message[i], tidy_emit);
        node_steps(s, tidy_emit);
    }

private:
    // Messages that can't do anything any more, because names, nonces and ids are never
    // given twice, are forgotten: that is what keeps the number of states finite in practice. The
    // runs with keep_all do without.
    void forget(State& s) const {
        Ids ids(s, bounds_.window);
        auto dead = [&](const Message& m) {
            bool lives = false;
            switch (m.type) {
            case OPENED:
                return s.phase != OPENING || m.id != s.nonce;
            case RESPONSE:
                return m.session != s.session || ids.op_of(m.id) < 0;
            case REQUEST:
                for (const Slot& slot : s.slot)
                    lives |= slot.name == m.session;
                return !lives && m.session != s.session;
            default:
                return false;
            }
        };
        Message* end = std::remove_if(s.message, s.message + s.messages, dead);
        std::memset(end, 0, (s.message + s.messages - end) * sizeof(*end));
        s.messages = uint8_t(end - s.message);
    }

    static std::string text(const Message& m) {
        char line[128];
        switch (m.type) {
        case OPEN:
            snprintf(line, sizeof(line), "OPEN(nonce %d)", m.session);
            break;
        case OPENED:
            snprintf(line, sizeof(line), "OPENED(nonce %d: session %d, boot %d)", m.id, m.session,
                     m.boot);
            break;
        case REQUEST:
            snprintf(line, sizeof(line), "request(%s: session %d, id %d, floor %d)",
                     program[m.op].name, m.session, m.id, m.floor);
            break;
        default:
            snprintf(line, sizeof(line), "response(%s to %s: session %d, id %d, value %d)",
                     status_names[m.status], program[m.op].name, m.session, m.id, m.value);
        }
        return line;
    }

    static bool send(State& s, const Message& m) { return model::send(s.message, s.messages, m); }

    // ---- client ----

    bool may_submit(const State& s, int op) const {
        int after = program[op].after;
        return bounds_.ops >> op & 1 && s.op[op] == IDLE && (after < 0 || s.op[after] >= ENDED);
    }

    // A new session: all that is outstanding gets new ids when it is sent next.
    static void reopen(State& s) {
        s.phase = OPENING;
        s.session = 0;
        s.nonce++;
        s.opens--;
        for (int op = 0; op < ops; op++)
            s.id[op] = 0;
    }

    uint8_t floor_of(const State& s, uint8_t id) const {
        switch (mutation_) {
        case FLOOR_OLDEST:
            return 1;
        case FLOOR_NEWEST:
            return uint8_t(s.next - 1 > id ? id : s.next - 1);
        default:
            return s.floor;
        }
    }

    template <class Emit>
    void client_steps(const State& s, Emit& emit) const {
        if (s.phase == OPENING) {
            State next = s;
            Message m{OPEN, s.nonce, 0, 0, 0, 0, 0, 0};
            if (send(next, m))
                emit(next, nullptr, [=] { return "client sends " + text(m); });
            return;
        }
        for (int op = 0; op < ops; op++)
            send_op(s, op, emit);
        if (s.attaches && s.opens) {
            State next = s;
            next.attaches--;
            reopen(next);
            emit(next, nullptr, [] { return std::string("client is attached anew"); });
        }
    }

    template <class Emit>
    void send_op(const State& s, int op, Emit& emit) const {
        State next = s;
        if (may_submit(s, op))
            next.op[op] = OUT;
        else if (s.op[op] != OUT)
            return;
        if (!next.id[op]) {
            Ids ids(next, bounds_.window);
            next.id[op] = uint8_t(rmem_seq_take(&ids.seq, 1, reinterpret_cast<void*>(op + 1)));
            if (!next.id[op])
                return;
        }
        Message m{REQUEST, s.session, s.boot, next.id[op], 0, uint8_t(op), 0, 0};
        m.floor = floor_of(next, m.id);
        if (send(next, m))
            emit(next, nullptr, [=] { return "client sends " + text(m); });
        if (s.op[op] == OUT && s.id[op] && s.give_ups) {
            State gone = s;
            gone.give_ups--;
            gone.op[op] = GIVEN_UP;
            gone.id[op] = 0;
            {
                Ids ids(gone, bounds_.window);
                rmem_seq_put(&ids.seq, s.id[op]);
            }
            emit(gone, nullptr, [=] { return std::string("client gives up ") + program[op].name; });
        }
    }

    template <class Emit>
    void opened(const State& s, const Message& m, Emit& emit) const {
        if (s.phase != OPENING || m.id != s.nonce)
            return;
        State next = s;
        auto label = [=] { return "client receives " + text(m); };
        if (s.boot && m.boot != s.boot && mutation_ != BOOT_UNCHECKED) {
            next.phase = LOST;
            seen.lost++;
            emit(next, nullptr, label);
            return;
        }
        next.phase = UP;
        next.session = m.session;
        next.boot = m.boot;
        {
            Ids ids(next, bounds_.window);
            rmem_seq_reset(&ids.seq);
        }
        emit(next, nullptr, label);
    }

    template <class Emit>
    void response(const State& s, const Message& m, Emit& emit) const {
        if (s.phase != UP || m.session != s.session)
            return;
        State next = s;
        const char* violation = nullptr;
        int op;
        {
            Ids ids(next, bounds_.window);
            op = ids.op_of(m.id);
            if (op < 0)
                return;
            if (m.status == OK)
                rmem_seq_put(&ids.seq, m.id);
        }
        auto label = [=] { return "client receives " + text(m); };
        switch (m.status) {
        case OK:
            next.op[op] = ENDED;
            next.id[op] = 0;
            violation = judge_end(next, op, m.value);
            count_end(next);
            break;
        case NO_SESSION:
            if (!s.opens)
                return;
            reopen(next);
            break;
        case REBOOTED:
            next.phase = LOST;
            seen.lost++;
            break;
        case STALE:
            violation = "an op still outstanding was refused as STALE";
            break;
        case INVALID:
            violation = "an id was refused as beyond the window";
            break;
        default:
            return;
        }
        emit(next, violation, label);
    }

    // The result that the client gets must be true.
    const char* judge_end(const State& s, int op, uint8_t value) const {
        const Op& done = program[op];
        if (done.kind == READ)
            return may_hold(s, op, value) ? nullptr
                                          : "a read returned what isn't the place's content";
        if (s.boot != s.node_boot)
            return nullptr; // was executed in a boot that's gone; what comes next tells the client
        return s.content[done.place] == done.value
                   ? nullptr
                   : "a write was acknowledged, and the place holds something else";
    }

    // The last write before it, unless that was given up: then the one before it may be seen, too.
    static bool may_hold(const State& s, int op, uint8_t value) {
        for (int before = program[op].after; before >= 0; before = program[before].after) {
            if (program[before].value == value)
                return true;
            if (s.op[before] != GIVEN_UP)
                return false;
        }
        return value == 0;
    }

    void count_end(const State& s) const {
        for (int op = 0; op < ops; op++) {
            if (bounds_.ops >> op & 1 && s.op[op] != ENDED)
                return;
        }
        seen.finished++;
    }

    // ---- node ----

    template <class Emit>
    void delivery(const State& s, const Message& m, Emit& emit) const {
        switch (m.type) {
        case OPEN:
            node_open(s, m, emit);
            break;
        case OPENED:
            opened(s, m, emit);
            break;
        case REQUEST:
            node_request(s, m, emit);
            break;
        default:
            response(s, m, emit);
        }
    }

    // The lock of a session's slot is held while one of its requests is being executed.
    bool is_locked(const State& s, int slot) const {
        if (mutation_ == UNLOCKED)
            return false;
        for (const Message& m : s.executing) {
            if (m.type != 0xff && (m.session & 1) == slot)
                return true;
        }
        return false;
    }

    template <class Emit>
    void node_open(const State& s, const Message& m, Emit& emit) const {
        rmem_attempt attempt{};
        rmem_peer peer{};
        attempt.nonce = m.session;
        State next = s;
        const char* violation = nullptr;
        int slot;
        {
            Sessions sessions(next.slot, next.generation, bounds_.window);
            slot = sessions.slot_for(attempt, mutation_ != NO_SUPERSEDE,
                                     [&](int held) { return is_locked(s, held); });
            if (slot < 0)
                return;
            rmem_session& session = sessions.all.slot[slot];
            if (!rmem_session_is_attempt(&session, &attempt)) {
                if (!rmem_sessions_may_open(&sessions.all, slot, 1, 0))
                    return;
                if (mutation_ == NAMES_REUSED)
                    sessions.all.generation = generation_of_boot[s.node_boot];
                rmem_sessions_open(&sessions.all, slot, 1, &attempt, &peer);
                if (sessions.all.generation <= s.generation && mutation_ != NAMES_REUSED)
                    violation = "a session got a name that was given before";
                if (!next.names--)
                    return;
            } else if (session.used) {
                return; // late: nobody waits for its answer
            }
        }
        send(next, {OPENED, next.slot[slot].name, s.node_boot, m.session, 0, 0, 0, 0});
        emit(next, violation, [=] { return "node receives " + text(m); });
    }

    template <class Emit>
    void node_request(const State& s, const Message& m, Emit& emit) const {
        State next = s;
        Status status = NO_SESSION;
        bool fresh = false;
        if (m.boot != s.node_boot && mutation_ != BOOT_UNCHECKED) {
            status = REBOOTED;
        } else {
            if (is_locked(s, m.session & 1))
                return;
            Sessions sessions(next.slot, next.generation, bounds_.window);
            rmem_session* session = rmem_sessions_find(&sessions.all, wire_name(m.session));
            if (session) {
                rmem_session_touch(session, m.id, 1);
                status = judge(session, m, fresh);
                if (fresh && mutation_ == MARKED_FIRST && program[m.op].kind == WRITE)
                    rmem_session_done(session, m.id);
            }
        }
        auto label = [=] { return "node receives " + text(m); };
        if (fresh && program[m.op].kind == WRITE) {
            answer(s, next, m, BUSY, emit, label);
            Message& place = next.executing[next.executing[0].type != 0xff];
            if (place.type != 0xff)
                return;
            place = m;
            emit(next, nullptr, label);
            return;
        }
        answer(s, next, m, status, emit, label);
    }

    Status judge(rmem_session* session, const Message& m, bool& fresh) const {
        switch (rmem_session_check(session, m.id, m.floor)) {
        case RMEM_SESSION_FRESH:
            fresh = true;
            return OK;
        case RMEM_SESSION_REPEATED:
            seen.repeated++;
            fresh = mutation_ == NO_BITS;
            return OK;
        case RMEM_SESSION_STALE:
            fresh = mutation_ == NO_FLOOR;
            return fresh ? OK : STALE;
        default:
            return INVALID;
        }
    }

    template <class Emit, class Label>
    void answer(const State& s, State next, const Message& m, Status status, Emit& emit,
                Label& label) const {
        seen.status[status]++;
        if (status == BUSY) { // the client sends again anyway, and may at any time
            emit(next, nullptr, label);
            return;
        }
        Message reply{RESPONSE, m.session, s.node_boot, m.id, 0, m.op, status, 0};
        if (status == OK && program[m.op].kind == READ)
            reply.value = s.content[program[m.op].place];
        send(next, reply);
        emit(next, nullptr, label);
    }

    // The copy into memory ends: it counts as executed, and is answered.
    template <class Emit>
    void finish(const State& s, int which, Emit& emit) const {
        const Message m = s.executing[which];
        const Op& op = program[m.op];
        State next = s;
        const char* violation = nullptr;
        if (s.op[m.op] == ENDED)
            violation = "a write that was acknowledged is executed once more";
        else if (s.last[op.place] > m.op + 1)
            violation = "an older write is executed after a newer one";
        next.content[op.place] = op.value;
        next.last[op.place] = uint8_t(m.op + 1);
        next.executing[which] = s.executing[1];
        next.executing[1] = Message{};
        next.executing[1].type = 0xff;
        {
            Sessions sessions(next.slot, next.generation, bounds_.window);
            rmem_session* session = rmem_sessions_find(&sessions.all, wire_name(m.session));
            if (session && mutation_ != MARKED_FIRST)
                rmem_session_done(session, m.id);
        }
        send(next, {RESPONSE, m.session, s.node_boot, m.id, 0, m.op, OK, 0});
        seen.executed++;
        emit(next, violation, [=] { return "node has executed " + text(m); });
    }

    template <class Emit>
    void node_steps(const State& s, Emit& emit) const {
        for (int which = 0; which < 2; which++) {
            if (s.executing[which].type != 0xff)
                finish(s, which, emit);
        }
        for (int slot = 0; slot < slots && s.evictions; slot++) {
            if (!s.slot[slot].name || is_locked(s, slot))
                continue;
            State next = s;
            next.evictions--;
            {
                Sessions sessions(next.slot, next.generation, bounds_.window);
                rmem_sessions_close(&sessions.all, slot);
            }
            emit(next, nullptr,
                 [=] { return "node evicts session " + std::to_string(s.slot[slot].name); });
        }
        if (!s.restarts)
            return;
        State next = s;
        next.restarts--;
        next.node_boot++;
        next.generation = uint8_t(generation_of_boot[next.node_boot]);
        std::memset(next.slot, 0, sizeof(next.slot));
        std::memset(next.content, 0, sizeof(next.content));
        std::memset(next.last, 0, sizeof(next.last));
        std::memset(next.executing, 0, sizeof(next.executing));
        next.executing[0].type = next.executing[1].type = 0xff;
        emit(next, nullptr, [] { return std::string("node restarts, its memory is gone"); });
    }

    const Bounds bounds_;
    const Mutation mutation_;
};

// The protocol as it is: no state breaks a rule, and all that can happen did happen.
void prove(model::Report& report, const std::string& name, const Bounds& bounds,
           uint64_t states_max) {
    StaleWrite model(bounds, NONE);
    auto out = model::Explorer<StaleWrite>(model, states_max).run();
    report.check(name, out, false);
    const Seen& seen = model.seen;
    printf("# %s: executed %llu, repeated %llu, all done %llu, lost %llu", name.c_str(),
           static_cast<unsigned long long>(seen.executed),
           static_cast<unsigned long long>(seen.repeated),
           static_cast<unsigned long long>(seen.finished),
           static_cast<unsigned long long>(seen.lost));
    bool all = seen.executed && seen.repeated && seen.finished && !seen.status[INVALID];
    for (int status = OK; status <= BUSY; status++) {
        printf(", %s %llu", status_names[status],
               static_cast<unsigned long long>(seen.status[status]));
        bool wanted = status != INVALID && (status != NO_SESSION || bounds.evictions) &&
                      (status != REBOOTED || bounds.restarts);
        all &= !wanted || seen.status[status];
    }
    printf("\n");
    report.result(all && (seen.lost || !bounds.restarts), name + ": every outcome was met");
}

} // namespace

int main(int argc, char** argv) {
    bool large = argc > 1 && std::string_view(argv[1]) == "--large";
    uint64_t states_max = large ? 150'000'000 : 10'000'000;
    model::Report report;
    //           window opens names evict restart attach give_up keep_all
    prove(report, "two ids", {2, 2, 3, 1, 1, 1, 0, false}, states_max);
    prove(report, "two ids, ops given up", {2, 2, 2, 1, 0, 1, 1, false}, states_max);
    prove(report, "four ids", {4, 2, 2, 1, 1, 1, 0, false}, states_max);
    prove(report, "all messages kept", {2, 2, 3, 1, 1, 1, 1, true, 0x03}, states_max);
    prove(report, "all messages kept, two places", {4, 2, 2, 1, 0, 0, 0, true, 0x13}, states_max);
    if (large) {
        prove(report, "large: two ids", {2, 3, 4, 2, 1, 1, 1, false}, states_max);
        prove(report, "large: four ids", {4, 3, 4, 1, 1, 1, 1, false}, states_max);
    }
    for (int mutation = NONE + 1; mutation < MUTATIONS; mutation++) {
        StaleWrite model({4, 2, 2, 1, 1, 1, 0, false}, static_cast<Mutation>(mutation));
        auto out = model::Explorer<StaleWrite>(model, states_max).run();
        report.check(std::string("wrong: ") + mutation_names[mutation], out, true);
    }
    return report.finish();
}
