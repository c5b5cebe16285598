// SPDX-License-Identifier: MIT
/*
 * A handle's state between two starts of its node: the backend, which is lost for good when the
 * node restarts, and the memory and locks that the handle got through it.
 *
 *   call, asynchronous operation, mapping ----> the epoch it began in
 *   Handle::lost(), all is reported:            another one, with a backend of its own
 *
 * A call that began before the restart keeps the old epoch, so its requests end with -ESTALE,
 * however late they come. They never reach the memory that the node has at those addresses now. An
 * epoch is freed with its last user.
 */
#pragma once

#include <memory>
#include <utility>

#include "src/api/heap.hpp"
#include "src/backend/backend.hpp"
#include "src/backend/build.hpp"
#include "src/sync/lock.hpp"

namespace remora::lib {

struct Epoch final : StepsMaker {
    explicit Epoch(std::unique_ptr<Backend> opened) : backend(std::move(opened)) {}

    std::unique_ptr<Backend> backend;
    Locks locks{*backend};
    Heap heap{*backend, locks};

    std::unique_ptr<Steps> steps_of(const remote_op& op) override;
};

using EpochRef = std::shared_ptr<Epoch>;

// The epoch's backend, which keeps the epoch.
inline BackendRef backend_of(EpochRef epoch) {
    Backend* backend = epoch->backend.get();
    return {std::move(epoch), backend};
}

} // namespace remora::lib
