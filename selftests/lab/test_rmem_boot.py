#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Boots and shutdowns by systemd, with /etc/remora: systemd is the first process of a process namespace in the machine."""

import contextlib
import re
import time

import eqdslab
import rmemlab
from remoralab import cache, rmem, tap
from remoralab.rmem import Rack, wait_until
from test_rmem_apply import DEAD_S, ALIVE_S, disk_text, swap_out, swap_used_kib, swaps

PREFIX = "/run/installed"
# The rest of the host's services has nothing to do with it, and takes its time.
PREPARE = f"""set -e
    rm -rf /.dockerenv /etc/systemd/system/*.wants /lib/systemd/system/multi-user.target.wants /etc/remora
    mkdir -p {PREFIX}/bin /etc/remora /etc/systemd/system-generators /etc/udev/rules.d
    ln -sf {rmem.CLI} {rmem.DAEMON} {PREFIX}/bin
    {cache.REPO}/tools/systemd/install '' {PREFIX}
    cp {PREFIX}/lib/systemd/system/* /etc/systemd/system
    cp {PREFIX}/lib/systemd/system-generators/* /etc/systemd/system-generators
    cp {PREFIX}/lib/udev/rules.d/* /etc/udev/rules.d"""
UNIT = "remora-device@db.service"


class Systemd:
    """A boot of the machine's systemd, up to multi-user.target and the end of its jobs."""

    def __init__(self, machine):
        self.machine = machine
        self.process = machine.spawn(
            "exec unshare --fork --pid --mount-proc --propagation private /lib/systemd/systemd --unit=multi-user.target "
            "--log-target=console --show-status=no </dev/null")
        self.pid = wait_until("systemd runs", lambda: self.machine.run(
            "pgrep -xo systemd", check=False).out.strip())
        # systemd answers once it has its socket.
        wait_until("it is up", lambda: self.ctl("is-system-running --wait", check=False).out.strip() in
                   ("running", "degraded"), rmemlab.LOAD_S)

    def ctl(self, words, check=True):
        return self.machine.run(f"nsenter -t {self.pid} -p -m systemctl {words}", check=check, timeout=rmemlab.LOAD_S)

    def state(self, unit):
        return self.ctl(f"show -P SubState {unit}").out.strip()

    def power_off(self):
        """How long it took, in seconds."""
        began = time.monotonic()
        self.ctl("poweroff", check=False)
        self.process.wait(rmemlab.LOAD_S)
        took_s = time.monotonic() - began
        # systemd couldn't unmount the machine's root, and left it read-only.
        self.machine.run("mount -o remount,rw /")
        return took_s


@contextlib.contextmanager
def booted(lab, rack, *lines):
    """A machine that boots with such a device; its node isn't there yet."""
    compute = lab["compute"]
    node = rack.node("memory", "256M")
    node.stop()
    rmem.load(compute, rmem.CLIENT)
    compute.run(PREPARE)
    compute.write("/etc/remora/remora.conf", disk_text(compute, node, *lines, size="192M"))
    systemd = Systemd(compute)
    try:
        yield systemd, node
    finally:
        if compute.is_on():
            systemd.process.kill()


@tap.bound(600)
def test_boot_waits_for_no_node(lab):
    """The boot ends without the node. The swap is there when the node is, and its link."""
    compute = lab["compute"]
    with Rack(lab) as rack, booted(lab, rack, "swap = yes") as (systemd, node):
        assert systemd.state(UNIT) == "running", systemd.state(UNIT)
        assert swaps(compute) == []
        node.start()
        began = time.monotonic()
        wait_until("the unit has done its work", lambda: systemd.state(UNIT) == "exited")
        tap.diag(f"the swap was there {time.monotonic() - began:.1f} s after the node")
        assert swaps(compute) == ["/dev/rmb0"]
        wait_until("the link is there", lambda: compute.run("readlink -f /dev/remora/db", check=False).out == "/dev/rmb0\n")
        took_s = systemd.power_off()
        tap.diag(f"off after {took_s:.1f} s")
        assert swaps(compute) == [] and rmem.devices(compute) == []
        assert node.status()["regions"] == 0


def power_off(lab, limit_s, node_dies):
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack, booted(lab, rack, "swap = yes") as (systemd, node):
        node.start()
        wait_until("the unit has done its work", lambda: systemd.state(UNIT) == "exited")
        swap_out(compute)
        # systemd has units of its own for the line in /proc/swaps.
        assert re.search(r"dev-rmb0\.swap +loaded +active", systemd.ctl("list-units --type=swap --no-legend").out)
        if node_dies:
            memory.kill()
        took_s = systemd.power_off()
        tap.diag(f"off after {took_s:.1f} s")
        assert took_s < limit_s
        assert swap_used_kib(compute) == 0 and swaps(compute) == [] and rmem.devices(compute) == []
        compute.run(["umount", "/run/swapped"])


@tap.bound(600)
def test_power_off_with_node_alive(lab):
    power_off(lab, ALIVE_S, False)


@tap.bound(600)
def test_power_off_with_node_dead(lab):
    power_off(lab, DEAD_S, True)


def uptime_s(machine):
    return float(machine.read("/proc/uptime").split()[0])


@tap.bound(600)
def test_boot_waits_for_no_link(lab):
    """Tunnels over a link that isn't there: the boot ends without them. They are there when the link is, and go with it."""
    compute = lab["compute"]
    eqdslab.load(compute, eqdslab.CORE, eqdslab.MODULE)
    compute.run("modprobe dummy")
    compute.run(PREPARE)
    compute.write("/etc/remora/remora.conf", "[eqds eq0]\nlink = late0\n")
    began = uptime_s(compute)
    systemd = Systemd(compute)
    took_s = uptime_s(compute) - began
    tap.diag(f"booted in {took_s:.1f} s")
    # systemd waits for a device for 90 s.
    assert took_s < 60
    compute.run("ip link add late0 type dummy")
    wait_until("the unit has done its work", lambda: systemd.state("remora-eqds@eq0.service") == "exited")
    compute.run("ip link show eq0 && ip link del late0")
    wait_until("the unit has ended", lambda: systemd.state("remora-eqds@eq0.service") == "dead")
    assert compute.run("ip link show eq0", check=False).rc != 0
    systemd.power_off()
    eqdslab.unload(compute)


@tap.bound(600)
def test_daemon_is_a_service(lab):
    """The daemon serves as a user of its own, by a key that only root can read, and `remora node` finds it."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab):
        memory.run(PREPARE)
        memory.run("install -d -m 700 /etc/remora/keys")
        key = rmem.new_key(memory, "/etc/remora/keys/rack.key")
        rmem.write_key(compute, "/run/rack.key", key)
        memory.write("/etc/remora/node.conf", 'memory = "64M"\n'
                                              'space = ["1=/run/credentials/remora-node.service/keys_rack.key"]\n')
        memory.run("mkdir /etc/systemd/system/multi-user.target.wants && ln -s /etc/systemd/system/remora-node.service "
                   "/etc/systemd/system/multi-user.target.wants/")
        systemd = Systemd(memory)
        # Type=notify: the boot's jobs end when it serves.
        assert systemd.state("remora-node.service") == "running", systemd.ctl("status remora-node.service", check=False).out
        main = systemd.ctl("show -P MainPID remora-node.service").out.strip()
        status = memory.run(f"nsenter -t {systemd.pid} -p -m cat /proc/{main}/status").out
        assert not re.search(r"^Uid:\s+0\b", status, re.M) and re.search(r"^CapEff:\s+0+$", status, re.M), status
        rmem.remora(compute, "ping", str(rmem.address(memory, compute)), "--key", "/run/rack.key")
        assert "64M" in rmem.remora(memory, "node", "status").out
        systemd.power_off()


TESTS = [test_boot_waits_for_no_node, test_boot_waits_for_no_link, test_power_off_with_node_alive,
         test_power_off_with_node_dead, test_daemon_is_a_service, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
