#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Devices that stay attached after their node is gone, for longer than each of their timers: the client's machine
goes on answering, and spends next to no CPU time on them."""

import errno
import time

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack, wait_until

FAIL_AFTER_S = 5  # the disk's; a device for programs has 10 s by default
WATCH_S = 15      # longer than both
SOFTIRQ_SHARE_MAX = 0.1
# /proc/stat, in 1/100 s.
TICKS = 100
SOFTIRQ_FIELDS = (6, 7)  # irq and softirq


def softirq_s(machine):
    fields = machine.read("/proc/stat").splitlines()[0].split()
    return sum(int(fields[each]) for each in SOFTIRQ_FIELDS) / TICKS


def watch(machine, *devices):
    """The machine answers once a second, its softirqs have little to do, and no timer had to be held back."""
    before, began, slowest = softirq_s(machine), time.monotonic(), 0
    while time.monotonic() - began < WATCH_S:
        asked = time.monotonic()
        machine.run("true", timeout=rmem.ACTION_S)
        slowest = max(slowest, time.monotonic() - asked)
        time.sleep(1)  # the time that passes is what is tested
    share = (softirq_s(machine) - before) / (time.monotonic() - began)
    tap.diag(f"softirqs took {share:.1%} of a CPU; the slowest of the answers took {slowest:.1f} s")
    assert share < SOFTIRQ_SHARE_MAX, f"softirqs took {share:.1%} of a CPU"
    for device in devices:
        assert device.counters()["timer-late"] == 0, f"{device.name}: a timer was held back"


class Users:
    """A disk that gives up after FAIL_AFTER_S with a load that checks its bytes, and a program with a device of its
    own."""

    def __init__(self, rack, node):
        self.disk = rack.attach("compute", node, "64M", "--fail-after", str(FAIL_AFTER_S))
        self.device = rack.attach("compute", node, None)
        machine = self.disk.machine
        self.load = machine.spawn(rmemlab.until_it_fails(
            rmemlab.fio_command(self.disk.path, "mixed", "4k-64k", 48, 16)))
        self.program = rmemlab.Lingering(machine, self.device)
        wait_until("the load is under way", lambda: int(machine.read(f"/sys/block/{self.disk.name}/stat").split()[4]) > 100)

    def expect(self, error, state):
        """The load fails, the program's operations end with `error`, and the devices say `state`."""
        self.program.begin()
        self.program.expect(error)
        result = self.load.wait(rmemlab.LOAD_S)
        assert result.rc != 0, "a load on memory that is gone ended well"
        # A disk whose requests have all failed in time asks the node for nothing, until the next one.
        read = self.disk.machine.run(f"dd if={self.disk.path} of=/dev/null bs=4k count=1 iflag=direct", check=False,
                                     timeout=rmemlab.LOAD_S)
        assert read.rc != 0, "a read of memory that is gone ended well"
        for each in (self.disk, self.device):
            each.wait_state(state)

    def devices(self):
        return self.disk, self.device


def lost(lab, restart):
    """After the restart the devices are lost and stay so. Another one can be attached beside them."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        users = Users(rack, node)
        restart(node)
        users.expect(errno.ESTALE, "lost")
        watch(compute, *users.devices())
        again = rack.attach("compute", node, "32M", "--fail-after", str(FAIL_AFTER_S))
        rmemlab.run_fio(compute, again.path, "mixed", "4k-64k", rmemlab.scaled(lab, 8))
        watch(compute, again, *users.devices())
        assert users.disk.status()["state"] == "lost"


@tap.bound(600)
def test_node_restarted(lab):
    def restart(node):
        node.stop()
        node.start()
    lost(lab, restart)


@tap.bound(600)
def test_node_power_cut_and_back(lab):
    def restart(node):
        node.machine.kill()
        node.machine.boot()
        node.start()
    lost(lab, restart)


@tap.bound(600)
def test_node_never_back(lab):
    """The node stays silent: the devices are down until they are detached, which needs no answer."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        users = Users(rack, rack.node("memory", "192M"))
        lab["memory"].kill()
        users.expect(errno.ETIMEDOUT, "down")
        watch(compute, *users.devices())
        for each in users.devices():
            each.detach("--force")
        watch(compute)


TESTS = [test_node_restarted, test_node_power_cut_and_back, test_node_never_back, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
