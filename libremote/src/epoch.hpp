// SPDX-License-Identifier: MIT
/*
 * What a handle has of its node from one start of that to the next: the backend, which is lost for
 * good when the node restarts, and what was allocated and locked by it.
 *
 *   call, asynchronous operation, mapping ----> the epoch it began in
 *   Handle::lost(), when all is told:           another one, with a backend of its own
 *
 * Whoever began before the restart goes on with the old one, so all he asks for is -ESTALE, however
 * late he asks: nothing of his reaches what the node has at those addresses now. When nobody is
 * left an epoch goes.
 */
#pragma once

#include <memory>
#include <utility>

#include "src/backend.hpp"
#include "src/heap.hpp"
#include "src/lock.hpp"

namespace remora::lib {

struct Epoch {
    explicit Epoch(std::unique_ptr<Backend> opened) : backend(std::move(opened)) {}

    std::unique_ptr<Backend> backend;
    Heap heap{*backend};
    Locks locks{*backend};
};

using EpochRef = std::shared_ptr<Epoch>;

} // namespace remora::lib
