// SPDX-License-Identifier: GPL-2.0
// The cores, which are C, for the tests, which aren't.
#pragma once

// A function may have the name of a struct in C.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/ring.h"
#include "core/base/siphash.h"
#include "core/rmem/datagram.h"
#include "core/rmem/node/call.h"
#include "core/rmem/node/execute.h"
#include "core/rmem/offload/run.h"
}
#pragma GCC diagnostic pop
