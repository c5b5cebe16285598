// SPDX-License-Identifier: GPL-2.0
// The node's sessions as a model's state holds them, a byte a field, in the hands of the real
// code (kmod/core/rmem/session.c).
#pragma once

#include <cstdint>

extern "C" {
#include "core/rmem/session.h"
}

namespace model {

constexpr int slots = 2;

struct Slot { // of struct rmem_session what matters
    uint8_t name, floor, executed, used, nonce, client;
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
    alignas(64) uint8_t memory[slots * (sizeof(rmem_session) + 16)];
    rmem_sessions all;

    Sessions(Slot* held, uint8_t& newest, uint32_t window) : slot(held), generation(newest) {
        rmem_sessions_init(&all, memory, slots, window, generation);
        for (int i = 0; i < slots; i++) {
            rmem_session& session = all.slot[i];
            session.name = slot[i].name ? wire_name(slot[i].name) : RMEM_SESSION_NONE;
            session.floor = slot[i].floor;
            session.executed[0] = slot[i].executed;
            session.used = slot[i].used;
            session.nonce = slot[i].nonce;
            session.client[0] = slot[i].client;
            all.in_use += slot[i].name != 0;
        }
    }
    Sessions(const Sessions&) = delete;
    ~Sessions() {
        generation = uint8_t(all.generation);
        for (int i = 0; i < slots; i++) {
            const rmem_session& session = all.slot[i];
            if (session.name == RMEM_SESSION_NONE)
                slot[i] = {};
            else
                slot[i] = {short_name(session.name),     uint8_t(session.floor),
                           uint8_t(session.executed[0]), session.used,
                           uint8_t(session.nonce),       session.client[0]};
        }
    }
};

} // namespace model
