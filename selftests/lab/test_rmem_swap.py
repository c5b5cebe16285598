#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Swap on /dev/rmbN: a program that needs more memory than there is, and checks every word of it."""

import contextlib
import re

import rmemlab
from remoralab import tap
from remoralab.rmem import Rack, wait_until

DEVICE_MIB = 384
# The memory that a test of the whole machine leaves, and how much more than that the hog takes.
LEFT_MIB, OVER_MIB = 48, 32
# The memory of a cgroup whose programs swap.
GROUP_MIB = 12
SEALED = ("--integrity", "sealed")


def available_mib(machine):
    """MemAvailable, and what it leaves out: free pages on the CPUs' own lists, on a small machine an eighth of it."""
    available_kib = int(re.search(r"^MemAvailable: +(\d+) kB$", machine.read("/proc/meminfo"), re.M)[1])
    on_lists = sum(map(int, re.findall(r"^ +count: +(\d+)$", machine.read("/proc/zoneinfo"), re.M)))
    return (available_kib + 4 * on_lists) // 1024


def swap_used_kib(machine):
    return sum(int(line.split()[3]) for line in machine.read("/proc/swaps").splitlines()[1:])


def squeeze(machine, mib, rounds=2, threads=2, group=None, local=1):
    """Runs the hog, in a cgroup with only a part of what it needs, `local`, if `group`; it must have swapped."""
    before = rmemlab.vmstat(machine)
    command = f"{rmemlab.hog_path()} {mib} {rounds} {rmemlab.SEED} {threads}"
    if group:
        command = rmemlab.in_cgroup(machine, group, int(mib * local), command)
    machine.run(command, timeout=rmemlab.LOAD_S)
    after = rmemlab.vmstat(machine)
    moved = {way: (after[way] - before[way]) * 4 // 1024 for way in ("pswpin", "pswpout")}
    tap.diag(f"{mib} MiB, {rounds} rounds: {moved['pswpout']} MiB out, {moved['pswpin']} MiB in")
    assert moved["pswpout"] and moved["pswpin"], "nothing was swapped: the test shows nothing"


@contextlib.contextmanager
def knob(machine, name, value):
    """Another value in /proc/sys/vm, for a while."""
    before = machine.read(f"/proc/sys/vm/{name}").strip()
    machine.write(f"/proc/sys/vm/{name}", str(value))
    try:
        yield
    finally:
        if machine.is_on():
            machine.write(f"/proc/sys/vm/{name}", before)


@contextlib.contextmanager
def small_machine(machine):
    """Fills most of its memory with what can't be swapped, so that pressure comes sooner."""
    spare = available_mib(machine) - LEFT_MIB
    ballast = "/run/ballast"
    machine.run(f"mkdir -p {ballast} && mount -t ramfs ballast {ballast} && "
                f"dd if=/dev/zero of={ballast}/zeroes bs=1M count={spare} status=none", timeout=rmemlab.LOAD_S)
    try:
        yield
    finally:
        if machine.is_on():
            machine.run(["umount", ballast])


def whole_machine(lab, min_free_kib, *words):
    """The hog takes more than the machine has."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "448M"), f"{DEVICE_MIB}M", *words)
        with rmemlab.swap_on(compute, device), knob(compute, "min_free_kbytes", min_free_kib), small_machine(compute):
            squeeze(compute, available_mib(compute) + OVER_MIB, rounds=1)
        assert swap_used_kib(compute) == 0


@tap.bound(600)
def test_pressure_low_min_free(lab):
    # KASAN keeps freed objects from use, up to 1/32 of the memory. Memory freed while packets leave goes there
    # first, so on the debug kernel a reserve below that is used up before anything comes back.
    # Elsewhere it is the least that README.md asks for. With 512 KiB virtio-net may find no receive buffer. It then
    # stops reception and waits for memory in a work, which may wait for swap that is no longer answered.
    whole_machine(lab, (12 if rmemlab.is_debug(lab) else 8) * 1024)


@tap.bound(600)
def test_pressure_high_min_free(lab):
    # Where memory is fragmented the kernel triples the reserve for a while, to more than is left here: then it ends
    # programs though swap is empty.
    with knob(lab["compute"], "watermark_boost_factor", 0):
        whole_machine(lab, 32 * 1024)


@tap.bound(600)
def test_pressure_sealed(lab):
    """A sealed page takes memory of its own while it is written to free memory."""
    whole_machine(lab, (12 if rmemlab.is_debug(lab) else 8) * 1024, *SEALED)


@tap.bound(600)
def test_cgroup_of_a_quarter(lab, *words):
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "448M"), f"{DEVICE_MIB}M", *words)
        with rmemlab.swap_on(compute, device):
            squeeze(compute, 4 * GROUP_MIB, rounds=1, group="quarter", local=1 / 4)


@tap.bound(600)
def test_sealed_cgroup_of_a_quarter(lab):
    """As before, with pages that are encrypted in memory of the packets' own."""
    test_cgroup_of_a_quarter(lab, *SEALED)


@tap.bound(600)
def test_swapoff_under_load(lab):
    """swapoff brings a running program's pages back while it goes on changing them."""
    compute = lab["compute"]
    mib = rmemlab.scaled(lab, 128)
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "448M"), f"{DEVICE_MIB}M")
        compute.run(f"mkswap {device.path} >/dev/null && swapon {device.path}")
        command = f"{rmemlab.hog_path()} {mib} 3 {rmemlab.SEED} 1"
        hog = compute.spawn(rmemlab.in_cgroup(compute, "leaving", mib // 4, command))
        wait_until("a good part of it is remote", lambda: swap_used_kib(compute) > mib * 1024 // 4,
                   rmemlab.LOAD_S)
        compute.write("/sys/fs/cgroup/leaving/memory.max", "max")
        compute.run(["swapoff", device.path], timeout=rmemlab.LOAD_S)
        result = hog.wait(rmemlab.LOAD_S)
        assert result.rc == 0, result


@tap.bound(600)
def test_discard_frees_slots(lab):
    """With swapon --discard the node's memory follows what the swap device holds."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "448M")
        device = rack.attach("compute", node, f"{DEVICE_MIB}M")
        rmemlab.write_pattern(compute, device.path, 64)
        held = node.backed_bytes()
        # discard=once: swapon itself gives the whole device up before it uses it.
        with rmemlab.swap_on(compute, device, "--discard"):
            wait_until("swapon gave up what was there", lambda: node.backed_bytes() < held // 8)
            mib = 2 * GROUP_MIB
            for _ in range(2):
                squeeze(compute, mib, rounds=1, group="discarding", local=1 / 2)
            tap.diag(f"the node holds {node.backed_bytes() >> 20} MiB for programs of {mib} MiB that ended")
            # Slots are given up in clusters, when the allocator wants them again: some linger, but what
            # programs wrote one after the other must not add up.
            assert node.backed_bytes() <= mib << 20


@tap.bound(900)
def test_loss_while_swapping(lab):
    compute, memory = lab["compute"], lab["memory"]
    # Its cgroup has a bit more than GROUP_MIB, for a bad network keeps more of it waiting.
    mib = 24
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "448M"), f"{DEVICE_MIB}M")
        with rmemlab.swap_on(compute, device):
            for percent in (1, 10):
                with rmemlab.netem(compute, "eth0", f"loss {percent}%"), \
                        rmemlab.netem(memory, "eth0", f"loss {percent}%"):
                    squeeze(compute, mib, rounds=1, group="lossy", local=2 / 3)


TESTS = [test_pressure_low_min_free, test_pressure_high_min_free, test_pressure_sealed, test_cgroup_of_a_quarter,
         test_sealed_cgroup_of_a_quarter, test_swapoff_under_load, test_discard_frees_slots, test_loss_while_swapping, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
