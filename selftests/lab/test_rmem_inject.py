#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Allocations that fail, wherever our modules make one (kernels with the sanitizers only).

Two ways of the kernel's fault injection, both confined to calls from our modules' code:
  - fail-nth: the n-th allocation of one command, for one n after the other, so that every failure
    label of attach, detach and node start is visited;
  - by chance, in every context, softirq too, while I/O goes on.
Regions, unloading of the modules and kmemleak show leftovers; lockdep watches.
"""

import contextlib
import random
import re
import subprocess

import rmemlab
from remoralab import compiled, rmem, tap
from remoralab.rmem import Rack, wait_until

ATTRIBUTES = ("failslab", "fail_page_alloc")
# fail-nth visits about so many n, chosen by the seed.
VISITS = 2
# An upper bound on the allocations of one command.
NTH_MAX = 2000
# The kernel's report of an injected failure.
EXPECTED = r"page allocation failure|Unable to allocate memory"

# A cache whose sysfs entry can't be made keeps its name: the kernel's own, when it makes a disk's bios.
KERNELS_OWN_LEAKS = r"sysfs_slab_add"


def text_range(machine, name):
    """The module's code, as the stack filter of fault injection wants it."""
    start = int(machine.read(f"/sys/module/{name}/sections/.text"), 16)
    sections = subprocess.run(["readelf", "-SW", rmem.module_path(machine, name)], check=True,
                              capture_output=True, text=True).stdout
    size = int(re.search(r"\] \.text\s+PROGBITS\s+\S+\s+\S+\s+(\S+)", sections)[1], 16)
    return start, start + size


@contextlib.contextmanager
def injection(machine, module, percent=0):
    """Fault injection armed for calls from a module; by chance too, if `percent`."""
    start, end = text_range(machine, module)
    lines = []
    for attribute in ATTRIBUTES:
        settings = {"probability": percent, "interval": 1, "times": -1, "verbose": 1, "task-filter": "N",
                    "ignore-gfp-wait": "N", "stacktrace-depth": 32, "require-start": hex(start),
                    "require-end": hex(end)}
        if attribute == "fail_page_alloc":
            settings |= {"min-order": 0, "ignore-gfp-highmem": "N"}
        lines += [f"echo {value} > /sys/kernel/debug/{attribute}/{key}" for key, value in settings.items()]
    machine.run("set -e\n" + "\n".join(lines))
    try:
        with machine.expect_complaint(EXPECTED):
            yield
            machine.settle("end of the injection")
    finally:
        if machine.is_on():
            machine.run("\n".join(f"echo 0 > /sys/kernel/debug/{each}/probability; "
                                  f"echo 0 > /sys/kernel/debug/{each}/require-start; "
                                  f"echo 0 > /sys/kernel/debug/{each}/require-end" for each in ATTRIBUTES))


def nth_failing(machine, n, command):
    """Runs a command with its n-th allocation failing: (did one fail, status)."""
    runner = compiled.program("failnth", [rmemlab.HERE / "failnth.cpp"])
    out = machine.run([runner, str(n), *command], timeout=rmem.ACTION_S).out
    fired, _, status = out.splitlines()[-1].rpartition(" ")
    return fired == "fired", int(status)


def visit(machine, command, undo, clean, most=NTH_MAX):
    """fail-nth over a command, in steps that grow up to `most`. undo() after it succeeded; clean() says what must
    hold if it didn't."""
    chance = random.Random(rmemlab.SEED)
    n = visited = refused = 0
    step = 2
    while n < NTH_MAX:
        # The first allocations are the module's, the later ones mostly the block layer's for it.
        n += 1 if n < 10 else chance.randint(1, step)
        step = min(step + max(1, n // VISITS), most)
        fired, status = nth_failing(machine, n, command)
        if status == 0:
            undo()
        else:
            refused += 1
            clean()
        if not fired:
            assert status == 0, f"{command[1]} failed ({status}) although no allocation did"
            tap.diag(f"{' '.join(map(str, command[1:3]))}: {visited} of {n} allocations made to fail, {refused} refused")
            return
        visited += 1
    raise rmemlab.LabError(f"{command[1]} makes more than {NTH_MAX} allocations")


def debug_only(test):
    def run(lab):
        if not rmemlab.is_debug(lab):
            tap.skip("needs a kernel with fault injection")
        test(lab)
    run.__name__ = test.__name__
    run.bound_s = 1200
    return run


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
            for size in ("32M", None):
                visit(compute, [rmem.CLI, *rmem.attach_words(compute, node, size)], undo, clean)


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
    with lab.expect_complaint("kmemleak"):
        scans = [(machine, machine.kmemleak_scan()) for machine in lab]
        for machine, scan in scans:
            found = machine.kmemleak(scan, ignore=KERNELS_OWN_LEAKS)
            assert not found.strip(), found
    for machine in lab:
        stats = machine.read("/proc/lockdep_stats")
        assert re.search(r"debug_locks:\s+1", stats), f"{machine.name}: lockdep is off, it gave up earlier"


def scan_when_asked(machine):
    """No kmemleak scan but the last test's, which knows what to overlook."""
    machine.run("echo scan=off > /sys/kernel/debug/kmemleak 2>/dev/null || :")


TESTS = [test_attach, test_detach, test_programs, test_node_start, test_io, test_swap, test_nothing_leaked]

if __name__ == "__main__":
    tap.main("pair", TESTS, on_boot=scan_when_asked)
