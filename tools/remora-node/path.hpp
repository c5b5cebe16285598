// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "node/core.hpp"

namespace remora::daemon {

class Outbox;

// Where a message came from, which is where its answers go. A transport makes it. The node keeps it
// and compares it; only the transport knows what place holds.
struct Path {
    // The client, as the core tells clients apart: no other transport has a client of that name.
    rmem_peer peer{};
    // Only that client can have written the messages, so plain ones are permitted. They have no
    // tag: peer alone says whose session they may use. The transport's outbox has a plain_room().
    bool plain = false;
    // For answers of run_slow()'s thread, which uses no other outbox. Null only where that thread
    // isn't: before Node::defer_slow().
    Outbox* late = nullptr;
    alignas(8) std::array<std::byte, 48> place{};

    template <typename T>
    T& place_as() {
        return const_cast<T&>(std::as_const(*this).place_as<T>());
    }
    template <typename T>
    const T& place_as() const {
        static_assert(sizeof(T) <= sizeof(place) && alignof(T) <= 8);
        static_assert(std::has_unique_object_representations_v<T>, "paths are compared by bytes");
        return *std::launder(reinterpret_cast<const T*>(place.data()));
    }
};

inline bool operator==(const Path& a, const Path& b) {
    return a.late == b.late && a.place == b.place;
}

} // namespace remora::daemon
