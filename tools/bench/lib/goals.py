# SPDX-License-Identifier: GPL-2.0
"""The library's goals and figures: a line for each ratio."""

import re

FLOOR, MEMCACHED_P50, MEMCACHED_RATE = 1.3, 0.6, 3.0
FLAT, MUTEX, TOUCH, QUEUE = 1.1, 4.0, 1.5, 0.8
RETRIES_NEAR_FULL = 60
SEALED = 1.15  # of the level that hashes every byte
SHM_FLOOR, SHM_COPY, SHM_MEMCACHED, SHM_UDP, CROWD, UDP_SPIN = 2.0, 1.5, 6.0, 3.0, 0.9, 1.3


def _goals(rows):
    """[(goal, measured, "<=" or ">=", wanted)] of the goals that these rows have figures for."""
    by = {(row["case"], row["metric"]): row for row in rows}
    for (case, metric), row in by.items():
        ours, peers = row["ours"], row["peers"]
        if case.startswith(("shm-", "udp-")):
            yield from _shm_goals(case, metric, ours, peers)
        elif case.startswith("sealed-"):
            if metric == "p50":
                yield f"{case} p50, of full's", ours / peers["full"], "<=", SEALED
        elif case.endswith("-qd1") and metric == "p50":
            yield f"{case} p50, of the floor's", ours / peers["udp-floor"], "<=", FLOOR
            yield f"{case} p50, of memcached's", ours / peers["memcached"], "<=", MEMCACHED_P50
        elif metric == "ops-per-server-core":
            yield f"{case} per core of server, of memcached's", ours / peers["memcached"], ">=", MEMCACHED_RATE
            yield f"{case} per core of server, of the floor's", ours / peers["udp-floor-spin"], ">=", _idle_floor(case)
        elif case.startswith("sessions-") and case != "sessions-1":
            yield f"{case} p50, of one session's", ours / by["sessions-1", "p50"]["ours"], "<=", FLAT
        elif case == "queue-read-16b":
            yield f"{case}, of one vectored call's", ours / peers["vectored"], ">=", QUEUE
        elif case == "embedded-read-16b":
            yield f"{case}, of lock, copy, unlock", ours / peers["mutex-copy"], "<=", MUTEX
        elif case == "embedded-first-touch":
            yield f"{case}, of a later one", ours / peers["later-touch"], "<=", TOUCH
    yield from _alloc_goals(rows)


def _idle_floor(case):
    """Of a server that does nothing but send as many bytes."""
    return 0.5 if "-16b-" in case else 0.6


def _shm_goals(case, metric, ours, peers):
    if case.endswith("-qd1") and metric == "p50":
        yield (f"{case} p50, of the floor's with one copy", ours / peers["shm-floor"], "<=",
               SHM_FLOOR if case == "shm-read-16b-qd1" else SHM_COPY)
        if case != "shm-read-16b-qd1":
            yield f"{case} p50, of the floor's whose data crosses", ours / peers["shm-floor-data"], "<=", SHM_COPY
    elif metric == "ops-per-server-core":
        yield f"{case} per core of server, of memcached's", ours / peers["memcached-unix"], ">=", SHM_MEMCACHED
        yield f"{case} per core of server, of udp's", ours / peers["remote-udp"], ">=", SHM_UDP
    elif case == "shm-crowd":
        yield f"{case} rate, of alone", ours / peers["alone"], ">=", CROWD
    elif case.endswith("-spinning") and metric == "p50":
        yield f"{case} p50, of udp-floor-spin's", ours / peers["udp-floor-spin"], "<=", UDP_SPIN
        yield f"{case} p50, of udp-floor-both-spin's", ours / peers["udp-floor-both-spin"], "<=", UDP_SPIN


def _alloc_goals(rows):
    worst = {}
    for row in rows:
        match = re.fullmatch(r"alloc-(\w+)-fill-(\d+)", row["case"])
        if match and row["metric"] == "retries-worst":
            key = (match[1], int(match[2]) > 50)
            worst[key] = max(worst.get(key, 0), row["ours"])
    for (page, upper), retries in worst.items():
        where = "half full and above" if upper else "below half"
        yield f"alloc, pages of {page}, {where}: worst", retries, "<=", RETRIES_NEAR_FULL if upper else 0


def goals(rows):
    lines = []
    for what, measured, sense, wanted in _goals(rows):
        reached = measured <= wanted if sense == "<=" else measured >= wanted
        lines.append(f"{'reached' if reached else 'MISSED '}  {what}: {measured:.2f} (wanted {sense} {wanted:g})")
    return "\n".join(lines)
