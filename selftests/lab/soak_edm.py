#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Remote memory by EDM under faults of chance: disks of three hosts, whose scheduler stops, restarts, leaves its machine
or is cut off, and whose node comes and goes.

    soak_edm.py --kernel uml-debug --seconds 60 --seed 7

The hosts are namespaces of one machine (edmlab.py).
"""

import soaklab  # first: it reads --seed
import edmlab
import eqdslab
from edmlab import EdmRack
from remoralab import rmem
from soak_faults import ClockStep, InterfaceDown, Killed, Mute, Netem, Paused
from soak_loads import INTEGRITY, KILLED, LOST, Disk
from soak_nodes import AttachedAgain
from soaklab import Fault, Soak, SoakFailed

WRITERS = 2
# Of memory for each host, more than a Disk has; and of the links, which no queue slows down.
HOST_MIB, MBITS = 36, 1000
# A machine of a busy host stands still for a while, and that is no silence of the scheduler's.
LEASES_MS = (20, 200, 1000)
CHUNKS = ("8K", "16K", "64K")


class Lent:
    """Attaches disks of a host, as a Rack does those of a machine."""

    levels = INTEGRITY

    def __init__(self, lab, rack, host):
        self.lab, self.rack, self.host = lab, rack, host

    def attach(self, _machine, _node, size, *words):
        return self.rack.attach(self.host, "edm", *words, mib=rmem.size_bytes(size) >> 20)


def check_timers(rack, host):
    """No timer of the host's membership, or of its scheduler, was set for a time in the past. Their end ends the counters."""
    late = {name: count for name, count in rack.status(host)["counters"].items() if name.endswith("timer-late") and count}
    if late:
        raise SoakFailed(f"{host.name}: timers set for a time in the past: {late}")


class MemberDisk(Disk):
    """A disk by EDM."""

    def mend(self, excuses, failed):
        super().mend(excuses, failed)
        for host in (self.rack.host, self.rack.rack.node, self.rack.rack.scheduler):
            check_timers(self.rack.rack, host)


class OfScheduler(Fault):
    uses = ("compute.scheduler",)

    def __init__(self, rack):
        self.rack = rack

    def draw(self, chance):
        return {"lease": chance.choice(LEASES_MS), "chunk": chance.choice(CHUNKS)}

    def begin(self, **_params):
        check_timers(self.rack, self.rack.scheduler)
        self.rack.edm(self.rack.scheduler, "stop")

    def end(self, lease, chunk):
        self.rack.edm(self.rack.scheduler, "start", "--key", edmlab.KEY, "--lease", lease, "--chunk", chunk)


class SchedulerStopped(OfScheduler):
    """Requests go without grants meanwhile."""

    name = "scheduler-stopped"


class SchedulerRestarts(OfScheduler):
    """Another life of it, with other leases and chunks, before anybody has missed it; several times."""

    name, can_be_long, lasts_s, TIMES = "scheduler-restarts", False, (0, 0), 5

    def end(self, **params):
        for _ in range(self.TIMES):
            super().end(**params)
            self.begin()
        super().end(**params)


class NodeLeaves(Fault):
    """The node is no member for a while: it can't be granted answers."""

    name, uses = "node-leaves", ("compute.membership",)

    def __init__(self, rack):
        self.rack = rack

    def begin(self):
        check_timers(self.rack, self.rack.node)
        self.rack.edm(self.rack.node, "leave")

    def end(self):
        self.rack.join(self.rack.node)


class NodeStopped(Fault):
    name, uses = "node-stopped", ("compute.node",)

    def __init__(self, rack):
        self.rack = rack

    def excuses(self, loads):
        return dict.fromkeys(loads, LOST)

    def begin(self):
        self.rack.node.run(f"{rmem.CLI} node stop")

    def end(self):
        self.rack.start_node()


def faults_of(soak, rack, loads):
    machine = rack.machine
    faults = [ClockStep(machine), Paused(machine, soak.away), NodeStopped(rack)]
    faults += [kind(rack) for kind in (SchedulerStopped, SchedulerRestarts, NodeLeaves)]
    for host in (*rack.members(), rack.scheduler):
        faults += [kind(machine, host.port) for kind in (Netem, Mute, InterfaceDown)]
    return faults + [Killed(load, KILLED) for load in loads] + [AttachedAgain(load) for load in loads]


def test_soak(lab):
    soak = Soak(lab)
    machine = lab["compute"]
    with EdmRack(machine, WRITERS, MBITS, HOST_MIB) as rack:
        machine.run("modprobe -a sch_netem 2>/dev/null || :")
        loads = [MemberDisk(host.name, Lent(lab, rack, host), "compute", rack.node) for host in (*rack.writers, rack.reader)]
        soak.run(loads, faults_of(soak, rack, loads))
    soaklab.check_leaks(lab)


if __name__ == "__main__":
    soaklab.main("solo", test_soak, eqdslab.test_modules_go)
