#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Hostile peers: what doesn't verify does nothing but count, and those who are served go on being served."""

import contextlib

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack

HOSTILE = rmemlab.HERE / "hostile.py"
ATTACK_S = 4
MIB = 16


@contextlib.contextmanager
def quiet_log(machine):
    """A packet from a stranger must not be able to fill anybody's log."""
    def lines():
        return len(machine.run("dmesg").out.splitlines())
    before = lines()
    yield
    assert lines() - before < 5, machine.run("dmesg | tail -20").out


def attack(machine, *words):
    return machine.spawn(["python3", HOSTILE, *map(str, words), str(ATTACK_S), str(rmemlab.SEED)])


def sent(attacker):
    result = attacker.wait(rmemlab.LOAD_S)
    assert result.rc == 0, result
    assert int(result.out) > 100, "hardly an attack"
    return int(result.out)


def serves_under(lab, rack, begin, counted):
    """A client's data stays whole while begin(node, device) attacks; counted(node, device) grows."""
    right = lab["right"]
    node = rack.node("memory", "96M")
    device = rack.attach("right", node, "64M")
    rmemlab.write_pattern(right, device.path, MIB, seed=41)
    before = counted(node, device)
    sessions = node.status()["sessions"]
    with quiet_log(lab["memory"]), quiet_log(right):
        attacker = begin(node, device)
        rounds = 0
        while attacker.running() or not rounds:
            rmemlab.run_fio(right, device.path, "mixed", "4k-64k", 4, extra="--offset=32M", seed=rounds)
            rounds += 1
        packets = sent(attacker)
    after = counted(node, device)
    tap.diag(f"{packets} packets, {rounds} rounds of load; " +
             ", ".join(f"{name} {after[name] - before[name]}" for name in after if after[name] > before[name]))
    rmemlab.check_pattern(right, device.path, MIB, seed=41)
    status = node.status()
    assert status["regions"] == 1 and status["sessions"] == sessions, status
    return {name: after[name] - before[name] for name in after}


def node_counters(node, _device):
    return node.counters()


def ip_counters(node, _device):
    """The counters of the node's IP layer, and of the node."""
    lines = [line.split() for line in node.machine.read("/proc/net/netstat").splitlines()
             + node.machine.read("/proc/net/snmp").splitlines()]
    counters = {}
    for names, values in zip(lines[::2], lines[1::2]):
        counters |= {name: int(value) for name, value in zip(names[1:], values[1:])}
    return counters | node.counters()


def test_flood(lab):
    """Noise, forged tags, strangers, malformed headers and bundles at a node that serves another."""
    with Rack(lab) as rack:
        grown = serves_under(lab, rack, lambda node, _device: attack(
            lab["left"], "flood", rmem.address(lab["memory"], lab["left"]), node.port), node_counters)
        for name in ("drop-short", "drop-version", "drop-type", "drop-malformed", "drop-tag", "drop-space"):
            assert grown[name], f"no packet counted as {name}: {grown}"


def test_overlapping_fragments(lab):
    """The IP layer refuses fragments that overlap; what it lets through is still forged."""
    with Rack(lab) as rack:
        grown = serves_under(lab, rack, lambda node, _device: attack(
            lab["left"], "fragments", rmem.address(lab["left"], lab["memory"]),
            rmem.address(lab["memory"], lab["left"]), node.port), ip_counters)
        for name in ("ReasmOverlaps", "ReasmFails", "drop-tag"):
            assert grown[name], f"{name} didn't grow: {grown}"


def test_forged_answers(lab):
    """To the client's ports, from the node's address and port."""
    def begin(node, _device):
        right, memory = lab["right"], lab["memory"]
        lines = [line.split() for line in right.read("/proc/net/udp").splitlines()[1:]]
        ports = [str(int(words[1].split(":")[1], 16)) for words in lines
                 if int(words[2].split(":")[1], 16) == node.port]
        assert ports, "the client has no socket connected to the node"
        return attack(memory, "forge", rmem.address(memory, right), rmem.address(right, memory), ",".join(ports))

    with Rack(lab) as rack:
        grown = serves_under(lab, rack, begin, lambda _node, device: device.counters())
        for name in ("drop-short", "drop-version", "drop-malformed", "drop-tag"):
            assert grown[name], f"no answer counted as {name}: {grown}"


TESTS = [test_flood, test_overlapping_fragments, test_forged_answers, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("triple", TESTS)
