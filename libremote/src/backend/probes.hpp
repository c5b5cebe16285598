// SPDX-License-Identifier: MIT
/*
 * Where a tracer can look (USDT): a nop each, until one does.
 *
 *   remote:start  handle's backend, Kind (op.hpp), address, bytes
 *   remote:end    the same, result (0 or -errno)
 *
 *   bpftrace -e 'usdt:out/lib/libremote.so:remote:end { @[arg1] = count(); }'
 */
#pragma once

#include <sys/sdt.h>

#define REMOTE_PROBE_START(backend, type, address, bytes)                                          \
    DTRACE_PROBE4(remote, start, backend, type, address, bytes)
#define REMOTE_PROBE_END(backend, type, address, bytes, result)                                    \
    DTRACE_PROBE5(remote, end, backend, type, address, bytes, result)
