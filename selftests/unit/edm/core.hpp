// SPDX-License-Identifier: GPL-2.0
// The EDM core, which is C, for the tests, which are not.
#pragma once

// A function may have the name of a struct in C.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/base/crc32c.h"
#include "core/edm/block.h"
#include "core/edm/demand.h"
#include "core/edm/host.h"
#include "core/edm/leaf.h"
#include "core/edm/match.h"
#include "core/edm/mux.h"
#include "core/edm/pim.h"
#include "core/edm/sched.h"
#include "core/edm/wire.h"
}
#pragma GCC diagnostic pop
