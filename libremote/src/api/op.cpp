// SPDX-License-Identifier: MIT
// queue.h's functions that make operations, as symbols: for languages that can't read C's inline
// functions.
#define REMOTE_OP_FUNCTION __attribute__((visibility("default")))
#include "remote/queue.h"
