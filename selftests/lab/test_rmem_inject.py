#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Allocations that fail, wherever our modules make one (kernels with the sanitizers only).

Regions, unloading of the modules and kmemleak show leftovers; lockdep watches.
"""

import rmemlab
from injectlab import check_leaks, debug_only, injection, scan_when_asked, visit
from remoralab import rmem, tap
from remoralab.rmem import Rack, wait_until

# A cache whose sysfs entry can't be made keeps its name: the kernel's own, when it makes a disk's bios.
KERNELS_OWN_LEAKS = r"sysfs_slab_add"


@debug_only
def test_attach(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)

        def undo():
            [device] = rmem.attached(compute)
            device.detach()

        def clean():
            assert rmem.devices(compute) == [], "a refused attach left a device"
            wait_until("no region is left", lambda: node.status()["regions"] == 0)

        with injection(compute, rmem.CLIENT):
            for size, *words in (("32M",), (None,), ("32M", "--name", "db")):
                visit(compute, [rmem.CLI, *rmem.attach_words(compute, node, size, *words)], undo, clean)


@debug_only
def test_detach(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "32M")

        def undo():
            wait_until("no region is left", lambda: node.status()["regions"] == 0)
            assert rack.attach("compute", node, "32M").name == device.name

        def clean():
            assert [each["state"] for each in rmem.devices(compute)] == ["up"], "refused, but not as it was"

        with injection(compute, rmem.CLIENT):
            visit(compute, [rmem.CLI, "detach", device.name], undo, clean)


@debug_only
def test_programs(lab):
    """Each operation of a program's finds memory, or is refused; a region that is refused isn't kept."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None)

        def clean():
            wait_until("no region is left", lambda: node.status()["regions"] == 0)

        with injection(compute, rmem.CLIENT):
            visit(compute, [rmemlab.rmemio_path(), "each", device.path], clean, clean, most=8)


@debug_only
def test_node_start(lab):
    memory = lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "32M")
        node.stop()
        words = [rmem.CLI, "node", "start", "--memory", "32M", "--space", f"1={node.key_path}"]

        def clean():
            assert not node.status()["started"], "a refused start left the node started"

        with injection(memory, rmem.NODE):
            visit(memory, words, node.stop, clean)
        node.start()


def assert_failed(name, read, before):
    """The packets of I/O were among what couldn't be allocated."""
    grown = rmemlab.growth(read, before)
    tap.diag(f"{name}: {grown.get(name, 0)}")
    assert name in grown, f"no allocation of a packet failed: {grown}"


@debug_only
def test_io(lab):
    """Packets and requests that can't be allocated: sent again, never an error, never a wrong byte."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "32M")
        before = device.counters(), node.counters()
        # An interface that can't gather is the one for which spare packets are kept. Emulated ones can't.
        if rmemlab.is_native(lab):
            compute.run("ethtool -K eth0 sg off")
        with injection(compute, rmem.CLIENT, percent=5), injection(memory, rmem.NODE, percent=5):
            rmemlab.run_fio(compute, device.path, "mixed", "4k-64k", 4, depth=16, seed=rmemlab.SEED)
            compute.run(f"blkdiscard {device.path}")
        if rmemlab.is_native(lab):
            compute.run("ethtool -K eth0 sg on")
        assert_failed("no-buffer", device.counters, before[0])
        assert_failed("spare-packets", device.counters, before[0])
        assert_failed("drop-no-buffer", node.counters, before[1])
        rmemlab.run_fio(compute, device.path, "mixed", "4k-64k", 4)


@debug_only
def test_swap(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "128M"), "96M")
        before = device.counters()
        with rmemlab.swap_on(compute, device), injection(compute, rmem.CLIENT, percent=2):
            compute.run(rmemlab.in_cgroup(compute, "hungry", 12, f"{rmemlab.hog_path()} 16 1 {rmemlab.SEED}"),
                        timeout=rmemlab.LOAD_S)
        assert_failed("no-buffer", device.counters, before)


@debug_only
def test_nothing_leaked(lab):
    for machine in lab:
        # Memory that a module's variables still refer to is no leak before the module is gone.
        rmem.unload(machine)
    check_leaks(lab, KERNELS_OWN_LEAKS)


TESTS = [test_attach, test_detach, test_programs, test_node_start, test_io, test_swap, test_nothing_leaked]

if __name__ == "__main__":
    tap.main("pair", TESTS, on_boot=scan_when_asked)
