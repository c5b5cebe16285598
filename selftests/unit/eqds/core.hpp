// SPDX-License-Identifier: GPL-2.0
// The EQDS core, which is C, for the tests, which aren't.
#pragma once

extern "C" {
#include "core/eqds/asl.h"
#include "core/eqds/class.h"
#include "core/eqds/cookie.h"
#include "core/eqds/drr.h"
#include "core/eqds/receiver.h"
#include "core/eqds/roce.h"
#include "core/eqds/sender.h"
#include "core/eqds/tag.h"
}
