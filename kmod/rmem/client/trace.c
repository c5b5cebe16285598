// SPDX-License-Identifier: GPL-2.0
#define CREATE_TRACE_POINTS
#include "rmem/client/trace.h"
