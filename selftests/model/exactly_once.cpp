// SPDX-License-Identifier: GPL-2.0
// An ATOMIC is executed once and its client learns what it found, or is told that nobody knows.
//
//   client (kmod/core/rmem/client/seq.c)            node (kmod/core/rmem/node/session.c)
//   ids, floor; what may have been            executed ids, and what the
//   executed isn't issued anew                ATOMICs among them found
//        |                                        ^
//        +---> messages: every one ever sent, <---+
//              deliverable at any time, again and again, or never
//
// Three ADDs of 1, 2 and 4 to one integer, all under way at once: what each finds tells which
// others came before it. The node keeps the results of two ids. It may evict the session at any
// time, and the client may give its session up. Or it takes an ADD back and has the session
// renewed: that one isn't executed from then on, and of the others nothing is lost.
//
// A CALL is an ADD that runs: the node admits it in one step and executes it in another, and
// between the two anything can come. The session waits for it before it is renewed or ended. A
// FENCE can come at any time, too, and waits for the calls that began before it, and for no others.
//
// A PUT is no different: it has one id, whose result is kept in the same place by the same rule,
// and what it does besides, to write its data, it does in the same hold of the lock.
#include "explore.hpp"
#include "sessions.hpp"

#include <string>

extern "C" {
#include "core/base/bytes.h"
#include "core/rmem/client/seq.h"
#include "core/rmem/node/running.h"
}

namespace {

using model::Ids;
using model::Sessions;
using model::Slot;
using model::wire_name;

constexpr uint32_t window = 4;
constexpr uint32_t replay = 2;
constexpr int ops = 3;
constexpr int messages_max = 64;

enum Mutation {
    NONE,
    ISSUED_ANEW,     // client issues in a new session what it had sent in an older one
    NOT_KEPT,        // node answers a copy with what is there now
    NO_BITS,         // node executes copies
    FLOOR_NEWEST,    // client's floor passes what is outstanding
    ONE_LIST,        // results lie in a list: the oldest id finds it full of newer ones'
    PLACE_SHARED,    // node keeps the result of an id that has no place
    SAME_NAME,       // node renews a session under its old name
    MARKS_LOST,      // node forgets the marks of a session it renews
    IDS_LOST,        // client gives new ids in a session that was renewed
    NEVER_LOST,      // client takes a new session for the one it wanted renewed
    ANY_ANSWER,      // client takes answers of a session that it has lost
    NOT_RUNNING,     // node forgets that an id runs
    RENEWED_AT_ONCE, // node renews a session whose calls run
    ENDED_AT_ONCE,   // node ends a session whose calls run
    FENCED_AT_ONCE,  // node answers a FENCE while earlier calls run
    FENCED_BY_LATER, // a FENCE waits for later calls, too
    MUTATIONS
};

const char* const mutation_names[] = {
    "none",
    "what was sent in an older session is issued anew",
    "a copy is answered with what is there now",
    "the node executes copies",
    "the client's floor passes what is outstanding",
    "newer results may take the place of the oldest id's",
    "a result is kept where another one is",
    "a session is renewed under the name it had",
    "a session that is renewed loses its marks",
    "new ids are given in a session that was renewed",
    "a new session is taken for one that was renewed",
    "answers in a session count that was lost",
    "a copy of a call that runs begins it again",
    "a session is renewed while a call of it runs",
    "a session ends while a call of it runs",
    "a FENCE is answered while an earlier call runs",
    "a FENCE waits for later calls",
};
static_assert(sizeof(mutation_names) / sizeof(*mutation_names) == MUTATIONS);

enum Type : uint8_t { OPEN, OPENED, ADD, FOUND, NO_SESSION, STALE };
const char* const type_names[] = {"OPEN", "OPENED", "add", "found", "no session", "stale"};

struct Message {
    uint8_t type;
    uint8_t session; // nonce in OPEN
    uint8_t id;      // nonce in OPENED, session to be renewed in OPEN
    uint8_t floor;
    uint8_t op;
    uint8_t value; // FOUND; OPENED: renewed
    auto operator<=>(const Message&) const = default;
};

enum Phase : uint8_t { OPENING, UP };
enum Fence : uint8_t { NO_FENCE, TO_COME, WAITS, ANSWERED };
enum OpState : uint8_t { IDLE, OUT, DONE, UNKNOWN, TAKEN_BACK };

struct State {
    // client
    uint8_t phase, session, nonce, renews;
    uint8_t floor, next;
    uint8_t owner[window]; // op + 1
    uint8_t op[ops];
    uint8_t id[ops];
    uint8_t sent[ops]; // in this session
    // node
    uint8_t generation;
    Slot slot[model::slots];
    uint8_t integer;
    uint8_t times[ops];                 // executed
    uint8_t found[ops];                 // when that was
    uint8_t runs_in[ops], runs_as[ops]; // slot + 1 and id of a call that runs; 0: none
    uint8_t number[ops], next_number;   // of calls that run, and of the next one
    uint8_t fence, fence_number;
    uint8_t fence_before; // bits of the calls that ran when it came
    // bounds
    uint8_t evictions, give_ups, takes_back, challenges, names;
    uint8_t messages;
    Message message[messages_max];
};

struct Bounds {
    uint8_t evictions, give_ups, takes_back;
    bool limited; // the client takes no id whose result has no place
    uint8_t challenges = 0;
    bool runs = false; // the ops are CALLs
    bool fences = false;
};

struct Seen {
    uint64_t executed, repeated, busy, unknown, unknown_done, stale, renewed, too_late, before,
        running, waits, fence_waits, fenced;
};

// The calls that run, as the core keeps them.
class Running {
public:
    explicit Running(const State& s) {
        all.next = s.next_number;
        for (uint32_t op = 0; op < ops; op++)
            all.call[op].number = s.number[op];
    }
    void put(State& s) const {
        s.next_number = uint8_t(all.next);
        for (uint32_t op = 0; op < ops; op++)
            s.number[op] = uint8_t(all.call[op].number);
    }
    rmem_running all{};
};

class ExactlyOnce {
public:
    using State = ::State;

    ExactlyOnce(const Bounds& bounds, Mutation mutation) : bounds_(bounds), mutation_(mutation) {}

    mutable Seen seen{};

    State initial() const {
        State s;
        std::memset(&s, 0, sizeof(s));
        s.floor = s.next = 1;
        s.nonce = 1;
        s.next_number = 1;
        s.fence = bounds_.fences ? TO_COME : NO_FENCE;
        s.evictions = bounds_.evictions;
        s.give_ups = bounds_.give_ups;
        // Late copies of an OPEN get some.
        s.takes_back = bounds_.takes_back;
        s.challenges = bounds_.challenges;
        s.names = uint8_t(2 * (1 + bounds_.evictions + bounds_.give_ups + bounds_.takes_back));
        return s;
    }

    // Nothing can happen any more, so nothing may be waited for.
    const char* stuck(const State& s) const {
        if (s.fence == WAITS)
            return "a FENCE never ends";
        if (s.phase == OPENING && !s.names)
            return nullptr; // as far as was looked
        for (uint8_t op : s.op) {
            if (op < DONE)
                return "an op never ends";
        }
        return nullptr;
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        auto change = [&](const State& next, const char* violation, auto&& label) {
            if (violation || std::memcmp(&next, &s, sizeof(s)))
                emit(next, violation, label);
        };
        client_steps(s, change);
        for (int i = 0; i < s.messages; i++)
            deliver(s, s.message[i], change);
        evict(s, change);
        for (uint8_t op = 0; op < ops; op++) {
            if (s.runs_in[op])
                end_call(s, op, change);
        }
        fence(s, change);
    }

private:
    static std::string text(const Message& m) {
        std::string text = type_names[m.type];
        if (m.type == ADD || m.type == FOUND)
            text += " " + std::to_string(m.type == ADD ? 1 << m.op : m.value);
        return text + (m.type == OPEN ? ", nonce " : ", session ") + std::to_string(m.session) +
               ", id " + std::to_string(m.id) + ", floor " + std::to_string(m.floor);
    }

    static bool send(State& s, const Message& m) { return model::send(s.message, s.messages, m); }

    // ---- client ----

    static void reopen(State& s, uint8_t renews) {
        s.phase = OPENING;
        s.session = 0;
        s.renews = renews;
        s.nonce++;
    }

    // Ends the ops that may have been executed: their results can't be learned any more.
    void lose_ids(State& s) const {
        for (int op = 0; op < ops; op++) {
            if (s.op[op] == OUT && s.sent[op] && mutation_ != ISSUED_ANEW) {
                s.op[op] = UNKNOWN;
                seen.unknown++;
                seen.unknown_done += s.times[op];
            }
            s.id[op] = s.sent[op] = 0;
        }
        if (mutation_ != ANY_ANSWER)
            s.renews = 0;
        Ids ids(s, window);
        rmem_seq_reset(&ids.seq);
    }

    template <class Emit>
    void client_steps(const State& s, Emit& emit) const {
        if (s.phase == OPENING) {
            State next = s;
            Message m{OPEN, s.nonce, s.renews, 0, 0, 0};
            send(next, m);
            emit(next, nullptr, [=] { return "client sends " + text(m); });
            if (s.challenges) {
                next = s;
                next.challenges--;
                next.nonce++;
                emit(next, nullptr, [] { return std::string("client is challenged"); });
            }
            return;
        }
        for (uint8_t op = 0; op < ops; op++) {
            if (s.op[op] < DONE)
                send_add(s, op, emit);
        }
        if (s.give_ups) {
            State next = s;
            next.give_ups--;
            reopen(next, 0);
            lose_ids(next);
            emit(next, nullptr, [] { return std::string("client gives its session up"); });
        }
        for (int op = 0; op < ops && s.takes_back; op++) {
            if (s.op[op] == OUT && s.sent[op])
                take_back(s, op, emit);
        }
    }

    template <class Emit>
    void take_back(const State& s, int op, Emit& emit) const {
        State next = s;
        next.takes_back--;
        next.op[op] = TAKEN_BACK;
        next.id[op] = next.sent[op] = 0;
        {
            Ids ids(next, window);
            rmem_seq_put(&ids.seq, s.id[op]);
        }
        reopen(next, s.session);
        emit(next, nullptr,
             [=] { return "client takes add " + std::to_string(1 << op) + " back"; });
    }

    template <class Emit>
    void send_add(const State& s, uint8_t op, Emit& emit) const {
        State next = s;
        next.op[op] = OUT;
        if (!next.id[op]) {
            Ids ids(next, window);
            if (bounds_.limited && rmem_seq_span(&ids.seq) >= replay)
                return;
            next.id[op] = uint8_t(rmem_seq_take(&ids.seq, 1, reinterpret_cast<void*>(op + 1)));
        }
        if (!next.id[op])
            return;
        next.sent[op] = 1;
        Message m{ADD, s.session, next.id[op], next.floor, op, 0};
        if (mutation_ == FLOOR_NEWEST)
            m.floor = m.id;
        send(next, m);
        emit(next, nullptr, [=] { return "client sends " + text(m); });
    }

    template <class Emit>
    void answered(const State& s, const Message& m, Emit& emit) const {
        State next = s;
        const char* violation = nullptr;
        if (m.type == OPENED) {
            if (s.phase != OPENING || m.id != s.nonce)
                return;
            next.phase = UP;
            next.session = m.session;
            if (mutation_ == NEVER_LOST ? !s.renews : !m.value || mutation_ == IDS_LOST)
                lose_ids(next);
        } else {
            // Accept results under the old name: the node did execute those operations.
            bool before = s.renews && m.session == s.renews && m.type == FOUND;
            if (!before && (s.phase != UP || m.session != s.session))
                return;
            int op = Ids(next, window).op_of(m.id);
            if (op < 0)
                return;
            seen.before += before;
            violation = outcome(next, m, op);
        }
        emit(next, violation, [=] { return "client receives " + text(m); });
    }

    const char* outcome(State& s, const Message& m, int op) const {
        if (m.type == STALE)
            return "an op still outstanding was refused as stale";
        if (m.type == NO_SESSION) {
            reopen(s, 0);
            lose_ids(s);
            return nullptr;
        }
        s.op[op] = DONE;
        s.id[op] = s.sent[op] = 0;
        {
            Ids ids(s, window);
            rmem_seq_put(&ids.seq, m.id);
        }
        if (s.times[op] != 1)
            return "an op ended well that wasn't executed once";
        return s.found[op] == m.value ? nullptr : "an op was told what it didn't find";
    }

    // ---- node ----

    template <class Emit>
    void deliver(const State& s, const Message& m, Emit& emit) const {
        switch (m.type) {
        case OPEN:
            node_open(s, m, emit);
            break;
        case ADD:
            node_add(s, m, emit);
            break;
        default:
            answered(s, m, emit);
        }
    }

    template <class Emit>
    void node_open(const State& s, const Message& m, Emit& emit) const {
        rmem_attempt attempt{};
        attempt.nonce = m.session;
        State next = s;
        for (const Slot& each : s.slot) {
            if (m.id && each.name == m.id && each.running && mutation_ != RENEWED_AT_ONCE) {
                seen.waits++;
                return;
            }
        }
        int slot = m.id ? node_renew(next, m, attempt) : -1;
        if (slot < 0) {
            Sessions sessions(next.slot, next.generation, window, places());
            slot = sessions.open(attempt, next.names, true, [&](int at) { return runs(s, at); });
            if (slot < 0)
                return;
        }
        send(next, {OPENED, next.slot[slot].name, m.session, 0, 0, next.slot[slot].renewed});
        emit(next, nullptr, [=] { return "node receives " + text(m); });
    }

    // Has the session calls that keep it from its end?
    bool runs(const State& s, int slot) const {
        return s.slot[slot].running && mutation_ != ENDED_AT_ONCE;
    }

    int node_renew(State& s, const Message& m, const rmem_attempt& attempt) const {
        Sessions sessions(s.slot, s.generation, window, places());
        int slot = sessions.renew(attempt, m.id);
        if (slot < 0)
            return slot;
        seen.renewed++;
        rmem_session& session = sessions.all.slot[slot];
        if (mutation_ == SAME_NAME)
            session.name = wire_name(m.id);
        if (mutation_ == MARKS_LOST)
            session.executed[0] = 0;
        return slot;
    }

    uint32_t places() const { return mutation_ == ONE_LIST ? window : replay; }

    bool has_place(const rmem_session* session, uint64_t id) const {
        if (mutation_ == PLACE_SHARED)
            return true;
        if (mutation_ != ONE_LIST)
            return rmem_session_has_place(session, id);
        uint32_t kept = 0;
        for (uint64_t other = session->floor; other < session->floor + window; other++)
            kept += session->executed[0] >> (other % window) & 1;
        return kept < replay;
    }

    template <class Emit>
    void node_add(const State& s, const Message& m, Emit& emit) const {
        State next = s;
        const char* violation = nullptr;
        Message reply{NO_SESSION, m.session, m.id, 0, m.op, 0};
        bool begins = false; // to run
        {
            Sessions sessions(next.slot, next.generation, window, places());
            rmem_session* session = rmem_sessions_find(&sessions.all, wire_name(m.session));
            if (session) {
                rmem_session_touch(session, m.id, 1);
                if (!node_judge(next, session, m, reply)) {
                    // Busy: the client sends again anyway, and may at any time.
                    begins = next.runs_in[m.op] && (!s.runs_in[m.op] || next.times[m.op] > 1);
                    if (!begins)
                        return;
                }
                violation = executed(s, next, m.op);
            } else {
                seen.too_late += s.op[m.op] == TAKEN_BACK;
            }
        }
        if (!begins) // its answer comes at its end
            send(next, reply);
        emit(next, violation, [=] { return "node receives " + text(m); });
    }

    // A change that was given up can still come while its session is there.
    static const char* executed(const State& before, const State& s, int op) {
        if (s.times[op] > 1)
            return "an op is executed twice";
        if (before.op[op] > DONE && before.phase == UP && before.times[op] != s.times[op])
            return "an op is executed that its client has done with";
        return nullptr;
    }

    uint8_t execute(State& s, int op) const {
        seen.executed++;
        uint8_t found = s.found[op] = s.integer;
        s.integer = uint8_t(s.integer + (1 << op));
        s.times[op]++;
        return found;
    }

    template <class Emit>
    void end_call(const State& s, uint8_t op, Emit& emit) const {
        State next = s;
        const int slot = s.runs_in[op] - 1;
        Message reply{FOUND, s.slot[slot].name, s.runs_as[op], 0, op, 0};
        next.runs_in[op] = next.runs_as[op] = 0;
        {
            Running running(next);
            rmem_running_end(&running.all, op);
            running.put(next);
        }
        reply.value = execute(next, op);
        {
            Sessions sessions(next.slot, next.generation, window, places());
            rmem_session& session = sessions.all.slot[slot];
            rmem_session_ran(&session, reply.id, true);
            rmem_found found{};
            base_store_le64(&found.value[0], reply.value);
            if (reply.id >= session.floor)
                rmem_session_keep(&session, reply.id, &found);
        }
        send(next, reply);
        emit(next, executed(s, next, op),
             [=] { return "node ends call " + std::to_string(1 << op); });
    }

    bool node_judge(State& s, rmem_session* session, const Message& m, Message& reply) const {
        rmem_found found{};
        reply.type = FOUND;
        switch (rmem_session_check(session, m.id, m.floor)) {
        case RMEM_SESSION_FRESH:
            break;
        case RMEM_SESSION_REPEATED:
            seen.repeated++;
            if (mutation_ == NO_BITS)
                break;
            rmem_session_replay(session, m.id, &found);
            reply.value =
                mutation_ == NOT_KEPT ? s.integer : uint8_t(base_load_le64(&found.value[0]));
            return true;
        case RMEM_SESSION_RUNNING:
            seen.running++;
            return false;
        default:
            seen.stale++;
            reply.type = STALE;
            return true;
        }
        if (!has_place(session, m.id)) {
            seen.busy++;
            return false;
        }
        if (bounds_.runs) {
            rmem_session_run(session, m.id);
            if (mutation_ == NOT_RUNNING)
                session->refused[0] = 0;
            if (s.runs_in[m.op])
                s.times[m.op] = 2;                          // soon
            s.runs_in[m.op] = uint8_t((m.session & 1) + 1); // names have the slot
            s.runs_as[m.op] = m.id;
            Running running(s);
            rmem_running_begin(&running.all, m.op, 0, 0);
            running.put(s);
            return false;
        }
        reply.value = execute(s, m.op);
        base_store_le64(&found.value[0], reply.value);
        rmem_session_keep(session, m.id, &found);
        return true;
    }

    static uint8_t running_now(const State& s) {
        uint8_t bits = 0;
        for (int op = 0; op < ops; op++)
            bits = uint8_t(bits | (s.runs_in[op] != 0) << op);
        return bits;
    }

    bool fence_waits(const State& s) const {
        if (mutation_ == FENCED_AT_ONCE)
            return false;
        if (mutation_ == FENCED_BY_LATER)
            return running_now(s);
        const Running running(s);
        return rmem_running_has_older(&running.all, 0, s.fence_number);
    }

    template <class Emit>
    void fence(const State& s, Emit& emit) const {
        State next = s;
        const char* violation = nullptr;
        if (s.fence == TO_COME) {
            next.fence = WAITS;
            next.fence_number = s.next_number;
            next.fence_before = running_now(s);
            emit(next, nullptr, [] { return std::string("node receives a FENCE"); });
            return;
        }
        if (s.fence != WAITS)
            return;
        const bool older = s.fence_before & running_now(s);
        if (fence_waits(s)) {
            seen.fence_waits++;
            if (older)
                return;
            violation = "a FENCE waits for a call that began later";
        } else {
            seen.fenced++;
            next.fence = ANSWERED;
            if (older)
                violation = "a FENCE is answered before the end of a call that began earlier";
        }
        emit(next, violation, [] { return std::string("node looks at the FENCE"); });
    }

    template <class Emit>
    void evict(const State& s, Emit& emit) const {
        for (int slot = 0; slot < model::slots && s.evictions; slot++) {
            if (!s.slot[slot].name || runs(s, slot))
                continue;
            State next = s;
            next.evictions--;
            {
                Sessions sessions(next.slot, next.generation, window, places());
                rmem_sessions_close(&sessions.all, slot);
            }
            emit(next, nullptr,
                 [=] { return "node evicts session " + std::to_string(s.slot[slot].name); });
        }
    }

    const Bounds bounds_;
    const Mutation mutation_;
};

constexpr uint64_t states_max = 10'000'000;

void prove(model::Report& report, const std::string& name, const Bounds& bounds) {
    ExactlyOnce model(bounds, NONE);
    auto out = model::Explorer<ExactlyOnce>(model, states_max).run();
    report.check(name, out, false);
    const Seen& seen = model.seen;
    bool ends = bounds.evictions || bounds.give_ups;
    report.result(
        seen.executed && seen.repeated && seen.stale && (seen.busy || bounds.limited) &&
            (ends ? seen.unknown > seen.unknown_done && seen.unknown_done : !seen.unknown) &&
            (!bounds.takes_back || (seen.renewed && seen.too_late && seen.before)) &&
            (!bounds.runs || (seen.running && (seen.waits || !bounds.takes_back))) &&
            (!bounds.fences || (seen.fence_waits && seen.fenced)),
        name + ": every outcome was met");
}

} // namespace

int main() {
    model::Report report;
    prove(report, "the client minds the places", {0, 0, 0, true});
    prove(report, "the node minds the places", {0, 0, 0, false});
    prove(report, "sessions end", {1, 1, 0, true});
    prove(report, "sessions end, the node minds the places", {1, 0, 0, false});
    prove(report, "an op is taken back", {0, 0, 1, false});
    prove(report, "one is, and the OPEN that renews is challenged", {0, 0, 1, true, 2});
    prove(report, "two are", {0, 0, 2, true});
    prove(report, "one is, and sessions end", {1, 0, 1, true});
    prove(report, "calls run", {0, 0, 0, true, 0, true});
    prove(report, "calls run, and sessions end", {1, 0, 0, true, 0, true});
    prove(report, "calls run, and one is taken back", {0, 0, 1, true, 0, true});
    prove(report, "calls run, and a FENCE comes", {0, 0, 0, true, 0, true, true});
    for (int mutation = NONE + 1; mutation < MUTATIONS; mutation++) {
        const bool runs = mutation >= NOT_RUNNING;
        const bool fences = mutation >= FENCED_AT_ONCE;
        const Bounds bounds{1, 0, uint8_t(mutation >= SAME_NAME), false, 0, runs, fences};
        ExactlyOnce model(bounds, static_cast<Mutation>(mutation));
        auto out = model::Explorer<ExactlyOnce>(model, states_max).run();
        report.check(std::string("wrong: ") + mutation_names[mutation], out, true);
    }
    return report.finish();
}
