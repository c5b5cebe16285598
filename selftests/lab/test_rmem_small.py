#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Small machines that swap all they have, with the kernel's own reserves: none may stand still for ever.

The kernels of two CPUs at least, where tasks reclaim beside each other. The tests of TESTS run one by one by name:
40 runs, on machines of 256 and 512 MiB, with two and four CPUs and two network cards.
"""

import itertools
import re

import rmemlab
from remoralab import rmem, tap
from remoralab.channel import CommandTimeout
from remoralab.rmem import Rack

RUN_S = 30
SHORT_RUN_S = 20
# A run that stands still for so long will do so for ever: swap's waits are bounded by some seconds.
STUCK_S = 90
THEFT_S = 5
THIEF = """
import ctypes, socket, sys, time
SO_RCVBUFFORCE, MCL_CURRENT, MCL_FUTURE = 33, 1, 2
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taken.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 30)
taken.bind(("", 9))
assert ctypes.CDLL(None).mlockall(MCL_CURRENT | MCL_FUTURE) == 0
print("bound", flush=True)
time.sleep(float(sys.argv[1]))
taken.close()
"""
FLOOD = """
import contextlib, socket, sys, time
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flood.connect((sys.argv[1], 9))
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    with contextlib.suppress(OSError):
        flood.send(bytes(60000))
"""
RUNS = 5
MACHINES = [dict(ram_mib=ram, cpus=cpus, nic=nic)
            for ram, cpus, nic in itertools.product((512, 256), (2, 4), ("virtio", "e1000"))]


def reboot_as(machine, ram_mib, cpus, nic):
    """The machine with other hardware, and no state of a run before."""
    machine.kill()
    machine.spec.ram_mib, machine.spec.cpus, machine.spec.nic = ram_mib, cpus, nic
    machine.boot()


def steal_receive_memory(lab):
    """For some seconds another socket keeps all that the network can receive into. Then it lets go, and without memory."""
    compute, memory = lab["compute"], lab["memory"]
    thief = compute.spawn(["python3", "-c", THIEF, str(THEFT_S)])
    thief.wait_output("bound")
    memory.run(["python3", "-c", FLOOD, rmem.address(compute, memory), str(THEFT_S / 2)])
    thief.wait(THEFT_S + STUCK_S)  # if the OOM killer has not ended it, it lets go


def swap_all(lab, seconds, thefts=0):
    """Two stressors with about as much memory as the machine has, over /dev/rmb0; they check each byte."""
    compute = lab["compute"]
    mib = compute.spec.ram_mib
    swap_mib = mib * 5 // 4
    # A driver that finds no receive buffer tries again later. The kernel ends a program, with swap left, if its reclaim
    # finds all pages in use 16 times in a row; stress-ng starts another.
    with Rack(lab) as rack, lab.expect_complaint(r"page allocation failure: order:0, mode:0x820\(GFP_ATOMIC\)|"
                                                 r"stress-ng-vm invoked oom-killer|Killed process \d+ \(stress-ng-vm\)"):
        device = rack.attach("compute", rack.node("memory", f"{swap_mib + 32}M"), f"{swap_mib}M")
        throttling = "/sys/block/rmb0/queue/wbt_lat_usec"
        assert compute.read(throttling).strip() == "0"
        with rmemlab.swap_on(compute, device):
            before = rmemlab.vmstat(compute)
            load = compute.spawn(f"stress-ng --vm 2 --vm-bytes {mib * 500 // 512}M --vm-method all --verify "
                                 f"--timeout {seconds} --temp-path /tmp")
            try:
                for _ in range(thefts):
                    steal_receive_memory(lab)
                result = load.wait(seconds + STUCK_S)
            except CommandTimeout:
                compute.show_stuck_tasks()
                raise
            assert result.rc == 0, f"{result.out} {result.err}"
            after = rmemlab.vmstat(compute)
            given = device.counters()["reserve-given"]
            swapped_mib = (after["pswpout"] - before["pswpout"]) * 4 // 1024
            least = compute.read("/proc/sys/vm/min_free_kbytes").strip()
            tap.diag(f"{mib} MiB, {compute.spec.cpus} CPUs, {compute.spec.nic}, min_free_kbytes {least}: {swapped_mib} MiB "
                     f"out, {given} blocks given, {after['oom_kill']} times the OOM killer")
            assert swapped_mib and given, "memory was never short: the test shows nothing"


def of_kind(machine):
    """A test of RUNS runs on such a machine."""
    def test(lab):
        for _ in range(RUNS):
            reboot_as(lab["compute"], **machine)
            swap_all(lab, RUN_S)
    test.__name__ = f"test_{machine['ram_mib']}_mib_{machine['cpus']}_cpus_{machine['nic']}"
    return tap.bound(RUNS * (RUN_S + STUCK_S + 60))(test)


@tap.bound(600)
def test_three_runs(lab):
    for machine in (MACHINES[0], MACHINES[-1], MACHINES[4]):
        reboot_as(lab["compute"], **machine)
        swap_all(lab, SHORT_RUN_S)


@tap.bound(600)
def test_stolen_receive_memory(lab):
    """A network driver's worker gets its memory though the disk that it swaps to can't answer without it. Meanwhile, the
    kernel can run out of memory."""
    reboot_as(lab["compute"], **MACHINES[4])
    lab["compute"].write("/proc/sys/net/ipv4/udp_mem", f"{1 << 20} {1 << 20} {1 << 20}")
    with lab.expect_complaint(r"page allocation failure: order:\d, mode:0x\w+\(GFP_ATOMIC|"
                              r"invoked oom-killer|Out of memory: Killed"):
        swap_all(lab, RUN_S, thefts=4)


def test_warnings_of_a_small_reserve(lab):
    """attach and status say what mends it, and nothing once it's mended; a device for programs doesn't swap."""
    compute = lab["compute"]
    says = r"remora: vm\.min_free_kbytes is \d+: for swap .*'sysctl vm\.min_free_kbytes=8192'\n"
    knob = "/proc/sys/vm/min_free_kbytes"
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)
        for kib, size, warns in ((2048, "16M", True), (8192, "16M", False), (2048, None, False)):
            compute.write(knob, str(kib))
            out = rmem.remora(compute, *rmem.attach_words(compute, node, size))
            status = rmem.remora(compute, "status")
            for each in (out, status):
                assert bool(re.fullmatch(says, each.err)) == warns and bool(each.err) == warns, f"{kib} KiB: {each}"
            rmem.attached(compute)[0].detach()


TESTS = [test_warnings_of_a_small_reserve, test_three_runs, test_stolen_receive_memory, *map(of_kind, MACHINES), rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
