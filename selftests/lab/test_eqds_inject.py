#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Allocations that fail, wherever eqds.ko makes one (debug kernels only): devices, rules, keys, and packets."""

import eqdslab
import rmemlab
from eqdslab import Racked, transfer
from injectlab import check_leaks, debug_only, injection, scan_when_asked, visit
from remoralab import rmem, tap
from remoralab.rmem import wait_until

MIB = 1 << 20
PERF = rmem.CLI.parent / "eqdsperf"


def _visit(host, command, undo):
    words = ["ip", "netns", "exec", host.name, *command]
    visit(host.machine, words, lambda: host.run(undo), lambda: None, most=8)


@debug_only
def test_commands(lab):
    """Each is refused as a whole, or done: what undoes it finds what it needs, and it can be done again."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        file = machine.run("mktemp -u /tmp/eqds.XXXXXX").out.strip()
        left.run(f"{rmem.CLI} key new {file}")
        with injection(machine, eqdslab.MODULE):
            for command, undo in (
                    (["ip", "link", "set", "eqds0", "up"], "ip link set eqds0 down"),
                    ([rmem.CLI, "eqds", "map", "eqds0", "10.8.0.0/24", right.under],
                     f"{rmem.CLI} eqds map eqds0 10.8.0.0/24 --remove"),
                    ([rmem.CLI, "eqds", "share", "eqds0", "10.8.0.0/24"],
                     f"{rmem.CLI} eqds share eqds0 10.8.0.0/24 --remove"),
                    ([rmem.CLI, "eqds", "set", "eqds0", "--rdma", "cnp"], f"{rmem.CLI} eqds set eqds0 --rdma pause"),
                    ([rmem.CLI, "eqds", "key", "eqds0", "--key", file], f"{rmem.CLI} eqds key eqds0 --remove"),
                    (["ip", "link", "add", "link", "eth0", "name", "eqds1", "type", "eqds"], "ip link del eqds1")):
                if "up" in command:
                    left.run("ip link set eqds0 down")
                _visit(left, command, undo)
                left.run("ip link set eqds0 up")
        left.ip(f"route replace {right.inside} via {right.under} dev eqds0 onlink src {left.inside}")
        transfer(left, right, MIB)


@debug_only
def test_packets(lab):
    """Nodes, copies, headers and tunnels that can't be allocated: sent again or dropped, and never a wrong byte."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        file = machine.run("mktemp -u /tmp/eqds.XXXXXX").out.strip()
        left.run(f"{rmem.CLI} key new {file}")
        for keyed in (False, True):
            before = [host.counters() for host in (left, right)]
            with injection(machine, eqdslab.MODULE, percent=5):
                transfer(left, right, MIB, seed=rmemlab.SEED)
            grown = [rmemlab.growth(host.counters, was) for host, was in zip((left, right), before)]
            tap.diag(str(grown))
            assert grown[0].get("tx_drop_memory") and grown[1].get("rx_drop_memory"), grown
            for host in (left, right):
                host.run(f"{rmem.CLI} eqds key eqds0 " + ("--remove" if keyed else f"--key {file}"))
        transfer(left, right, MIB)
        for host in (left, right):
            host.run("ip link set eqds0 down")


@debug_only
def test_programs(lab):
    """Of native packets, all are delivered, dropped or missed, and counted."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        server = right.spawn(f"{PERF} serve 2>&1")
        server.wait_output("serving")
        sending = left.spawn(f"{PERF} send {right.under} --count 1000000")
        wait_until("packets leave", lambda: left.counters()["tx_native"] > 100)
        with injection(machine, eqdslab.MODULE, percent=5):
            wait_until("allocations fail at both ends",
                       lambda: left.counters()["tx_drop_memory"] > 20 and right.counters()["rx_drop_memory"] > 20)
        # The programs go on. When they die, the kernel has all memory back.
        at = right.counters()["rx_native"]
        wait_until("packets arrive", lambda: right.counters()["rx_native"] > at + 100)
        for process in (sending, server):
            process.signal(9)
            process.wait(60)


@debug_only
def test_nothing_leaked(lab):
    eqdslab.unload(lab["compute"])
    check_leaks(lab)


TESTS = [test_commands, test_packets, test_programs, test_nothing_leaked]

if __name__ == "__main__":
    tap.main("solo", TESTS, on_boot=scan_when_asked)
