// SPDX-License-Identifier: MIT
// The memory node's core, which is C.
#pragma once

extern "C" {
#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/rmem/datagram.h"
#include "core/rmem/node/call.h"
#include "core/rmem/node/execute.h"
#include "core/rmem/node/queue.h"
#include "core/rmem/node/store.h"
}
