// SPDX-License-Identifier: GPL-2.0
/*
 * A door is a way for requests into the node, and for their answers out. Each has a DoorKind, with
 * its options, in the table of door.cpp: that and its own files are all a new one needs.
 *
 * A thread of a door, for each batch: Node::enter(), handle() for each datagram, Outbox::flush(),
 * leave(); and between batches scrub(). path.hpp says what a path must have.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <CLI/CLI.hpp>

#include "remora-node/node.hpp"

namespace remora::daemon {

// The threads of a door. They end with it.
class Serving {
public:
    virtual ~Serving() = default;
};

class Door {
public:
    virtual ~Door() = default;
    // So many of the node's threads are this door's.
    virtual unsigned threads() const = 0;
    // Serves from now on, in the node's threads from first on. The door and the node must outlive
    // what it returns; the thread of run_slow() must not. Throws Failure.
    virtual std::unique_ptr<Serving> serve(Node& node, unsigned first) = 0;
    // UDP's; 0: it has none.
    virtual std::uint16_t port() const { return 0; }
};

class DoorKind {
public:
    virtual ~DoorKind() = default;
    virtual void declare(CLI::App& program) = 0;
    // Once the command line was parsed. spin_us: how long a thread looks for requests before it
    // sleeps, if the operator said so. Throws Misuse.
    virtual void interpret(std::optional<std::uint32_t> spin_us) = 0;
    // Null: the options ask for no such door. Throws Misuse, Failure.
    virtual std::unique_ptr<Door> open() = 0;
};

std::vector<std::unique_ptr<DoorKind>> door_kinds();

using Doors = std::vector<std::unique_ptr<Door>>;

// So many threads of the node are theirs.
unsigned threads_of(const Doors& doors);

// Each serves, in threads of its own. Throws Failure.
std::vector<std::unique_ptr<Serving>> serve_by(const Doors& doors, Node& node);

} // namespace remora::daemon
