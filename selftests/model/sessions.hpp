// SPDX-License-Identifier: GPL-2.0
// The node's sessions and the client's ids as a model's state holds them, a byte a field, in the
// hands of the real code (kmod/core/rmem/node/session.c, client/seq.c).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>

extern "C" {
#include "core/base/bytes.h"
#include "core/rmem/client/seq.h"
#include "core/rmem/node/session.h"
}

namespace model {

constexpr int slots = 2;

constexpr uint32_t window_most = 4;

struct Slot { // of struct rmem_session what matters
    uint8_t name, floor, executed, used, nonce, client, renewed, before;
    uint8_t found[window_most];
    uint8_t refused, running;
};

// Names in a state are generation << 1 | slot.
inline uint64_t wire_name(uint8_t name) {
    return uint64_t(name >> 1) << RMEM_SESSION_SLOT_BITS | (name & 1);
}

inline uint8_t short_name(uint64_t name) {
    return uint8_t(name >> RMEM_SESSION_SLOT_BITS << 1 | (name & 1));
}

// Writes back what it changed when it goes.
struct Sessions {
    Slot* slot;
    uint8_t& generation;
    alignas(
        64) uint8_t memory[slots * (sizeof(rmem_session) + 16 + window_most * sizeof(rmem_found))];
    rmem_sessions all;

    // replay: ids whose results are kept; 0: as many as the code would.
    Sessions(Slot* held, uint8_t& newest, uint32_t window, uint32_t replay = 0)
        : slot(held), generation(newest) {
        rmem_sessions_init(&all, memory, slots, window, generation, nullptr);
        for (int i = 0; i < slots; i++) {
            rmem_session& session = all.slot[i];
            session.name = slot[i].name ? wire_name(slot[i].name) : RMEM_SESSION_NONE;
            session.floor = slot[i].floor;
            session.executed[0] = slot[i].executed;
            session.refused[0] = slot[i].refused;
            session.refused_id = slot[i].refused ? ~uint64_t{0} : 0; // so the map is looked at
            session.running = slot[i].running;
            session.used = slot[i].used;
            session.nonce = slot[i].nonce;
            session.client[0] = slot[i].client;
            session.origin = slot[i].renewed ? RMEM_SESSION_NONE : session.name;
            session.before = slot[i].before ? wire_name(slot[i].before) : RMEM_SESSION_NONE;
            session.replay_ids = replay ? replay : session.replay_ids;
            for (uint32_t id = 0; id < session.replay_ids; id++)
                base_store_le64(&session.found[id].value[0], slot[i].found[id]);
            all.in_use += slot[i].name != 0;
        }
    }
    Sessions(const Sessions&) = delete;

    // The slot of the session that the OPEN names, and which has another name now; -1: none.
    int renew(rmem_attempt attempt, uint8_t name) {
        rmem_peer peer{};
        attempt.renews = wire_name(name);
        int found = rmem_sessions_superseded(&all, &attempt);
        if (rmem_sessions_is_late(&all, &attempt) || found < 0 ||
            !rmem_session_may_renew(&all.slot[found], &attempt))
            return -1;
        rmem_sessions_renew(&all, static_cast<uint32_t>(found), 1, &attempt, &peer);
        return found;
    }

    // The slot an OPEN gets, the client's older sessions ended; -1: none, or not while is_locked().
    template <class IsLocked>
    int slot_for(const rmem_attempt& attempt, bool supersedes, IsLocked&& is_locked) {
        int found;
        if (rmem_sessions_is_late(&all, &attempt))
            return -1;
        while (supersedes && (found = rmem_sessions_superseded(&all, &attempt)) >= 0) {
            if (is_locked(found))
                return -1;
            rmem_sessions_close(&all, found);
        }
        found = rmem_sessions_choose(&all, &attempt, 1, 1, 0);
        return found < 0 || is_locked(found) ? -1 : found;
    }

    // The slot of the session that an OPEN gets which renews none: the same attempt's while it is
    // unused, or a new session's. `names` says how many may still begin. -1: no answer.
    template <class IsLocked>
    int open(const rmem_attempt& attempt, uint8_t& names, bool supersedes, IsLocked&& is_locked) {
        rmem_peer peer{};
        int found = slot_for(attempt, supersedes, is_locked);
        if (found < 0)
            return -1;
        if (rmem_session_is_attempt(&all.slot[found], &attempt))
            return all.slot[found].used ? -1 : found;
        if (!names--)
            return -1;
        rmem_sessions_open(&all, found, 1, &attempt, &peer);
        return found;
    }

    ~Sessions() {
        generation = uint8_t(all.generation);
        for (int i = 0; i < slots; i++) {
            const rmem_session& session = all.slot[i];
            if (session.name == RMEM_SESSION_NONE)
                slot[i] = {};
            else
                slot[i] = held(session);
        }
    }

private:
    static Slot held(const rmem_session& session) {
        Slot held{short_name(session.name),
                  uint8_t(session.floor),
                  uint8_t(session.executed[0]),
                  session.used,
                  uint8_t(session.nonce),
                  session.client[0],
                  rmem_session_is_renewed(&session),
                  session.before == RMEM_SESSION_NONE ? uint8_t{} : short_name(session.before),
                  {},
                  0,
                  0};
        for (uint32_t id = 0; id < session.replay_ids; id++)
            held.found[id] = uint8_t(base_load_le64(&session.found[id].value[0]));
        held.refused = uint8_t(session.refused[0]);
        held.running = uint8_t(session.running);
        return held;
    }
};

// The client's ids; `owner` in a state is op + 1. Writes back what it changed when it goes.
template <class State>
struct Ids {
    State& s;
    void* owner[std::size(State{}.owner)];
    rmem_seq seq;

    Ids(State& state, uint32_t window) : s(state) {
        rmem_seq_init(&seq, owner, window);
        seq.floor = s.floor;
        seq.next = s.next;
        for (uint32_t i = 0; i < window; i++)
            owner[i] = reinterpret_cast<void*>(uintptr_t(s.owner[i]));
    }
    Ids(const Ids&) = delete;

    // The op that waits for the id; -1: none.
    int op_of(uint64_t id) const {
        return int(reinterpret_cast<uintptr_t>(rmem_seq_owner(&seq, id))) - 1;
    }

    ~Ids() {
        s.floor = uint8_t(seq.floor);
        s.next = uint8_t(seq.next);
        for (uint32_t i = 0; i < seq.window; i++)
            s.owner[i] = uint8_t(reinterpret_cast<uintptr_t>(owner[i]));
    }
};

// A state's messages, sorted, each there once. False: it is there already.
template <class Message, int messages_max>
bool send(Message (&message)[messages_max], uint8_t& messages, const Message& m) {
    Message* end = message + messages;
    Message* at = std::lower_bound(message, end, m);
    if (at != end && *at == m)
        return false;
    if (messages == messages_max) {
        std::fprintf(stderr, "more messages than foreseen\n");
        std::exit(2);
    }
    std::move_backward(at, end, end + 1);
    *at = m;
    messages++;
    return true;
}

} // namespace model
