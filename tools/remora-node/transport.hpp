// SPDX-License-Identifier: GPL-2.0
/*
 * A transport is a way for requests into the node, and for their answers out. Each has a
 * TransportKind, with its options, in the table of transport.cpp: that and its own files are all a
 * new one needs.
 *
 * A thread of a transport, for each batch: Node::enter(), handle() for each datagram,
 * Outbox::flush(), leave(); and between batches scrub(). path.hpp says which fields a path must
 * have.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "remora-node/node.hpp"

// Its header takes the compiler seconds, and tests of the library include this one.
namespace CLI {
class App;
}

namespace remora::daemon {

// The threads of a transport. They end with it.
class Serving {
public:
    virtual ~Serving() = default;
};

class Transport {
public:
    virtual ~Transport() = default;
    // So many of the node's threads are this transport's.
    virtual unsigned threads() const = 0;
    // Serves from now on, in the node's threads from first on. The transport and the node must
    // outlive the result; the thread of run_slow() must not. Throws Failure.
    virtual std::unique_ptr<Serving> serve(Node& node, unsigned first) = 0;
    // UDP's; 0: it has none.
    virtual std::uint16_t port() const { return 0; }
};

class TransportKind {
public:
    virtual ~TransportKind() = default;
    virtual void declare(CLI::App& program) = 0;
    // Once the command line was parsed. spin_us: how long a thread looks for requests before it
    // sleeps, if the operator said so. Throws Misuse.
    virtual void interpret(std::optional<std::uint32_t> spin_us) = 0;
    // Null: the options ask for no such transport. Throws Misuse, Failure.
    virtual std::unique_ptr<Transport> open() = 0;
};

std::vector<std::unique_ptr<TransportKind>> transport_kinds();

using Transports = std::vector<std::unique_ptr<Transport>>;

// So many threads of the node are theirs.
unsigned threads_of(const Transports& transports);

// Each serves, in threads of its own. Throws Failure.
std::vector<std::unique_ptr<Serving>> serve_by(const Transports& transports, Node& node);

} // namespace remora::daemon
