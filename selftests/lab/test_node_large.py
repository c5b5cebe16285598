#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A memory node whose own state is larger than kvmalloc() allows."""

import rmemlab
from remoralab import tap
from remoralab.rmem import Rack

# The ring of zeroed pages at its longest, 8 bytes each: 2 GiB. The page table of a node of 2 TiB takes as much,
# and more memory than a test may have.
POOL_PAGES = 1 << 28
INT_MAX = (1 << 31) - 1


@tap.bound(600)
def test_state_above_int_max(lab):
    with Rack(lab) as rack:
        free = available_bytes(lab["compute"])
        node = rack.node("compute", "64M", extra=("--pool", str(POOL_PAGES)))
        taken = free - available_bytes(lab["compute"])
        tap.diag(f"the node takes {taken >> 20} MiB, of which it lends 64")
        assert taken > INT_MAX, "the state is not that large: the test shows nothing"
        device = rack.attach("compute", node, "32M", host="127.0.0.1")
        rmemlab.run_fio(lab["compute"], device.path, "mixed", "4k-64k", 16)


def available_bytes(machine):
    return int(machine.run("awk '/MemAvailable/ { print $2 }' /proc/meminfo").out) << 10


TESTS = [test_state_above_int_max, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("large", TESTS)
