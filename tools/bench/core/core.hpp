// SPDX-License-Identifier: GPL-2.0
// What is measured: the cores, which are C.
#pragma once

// A function may have the name of a struct in C.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/siphash.h"
#include "core/edm/match.h"
#include "core/eqds/asl.h"
#include "core/eqds/drr.h"
#include "core/eqds/receiver.h"
#include "core/rmem/client/client.h"
#include "core/rmem/datagram.h"
#include "core/rmem/node/session.h"
#include "core/rmem/node/table.h"
}
#pragma GCC diagnostic pop

namespace bench {

inline base_siphash_key key() {
    return {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
}

} // namespace bench
