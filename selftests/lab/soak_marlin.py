#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Marlin's links under faults of chance: frames, copies between programs, locks, and remote memory of a peer.

    soak_marlin.py --kernel 6.12 --seconds 600 --seed 7

     left  ==== fabric ==== right     left uses memory of right's node; programs of left and third copy, streams go
                  ||                  around, and left and third count under a lock of right
                 third
"""

import contextlib

import soaklab  # first: it reads --seed
import ntblab
import rmemlab
import soak_marlin_faults as marlin
import soak_nodes
import test_cmmc as cmmc
import test_eop as eop
from ntblab import HALVES
from remoralab import rmem
from remoralab.rmem import wait_until
from soak_faults import ClockStep, Killed, Mtu, Mute, Netem, Suspended
from soak_loads import FORCED, INTEGRITY, KILLED, ByDevice, Disk, End, Swap, Wire
from soak_marlin_loads import Copies, Locks
from soak_nodes import DEVICE_SPACE, AttachedAgain, ForcedDetach
from soaklab import Soak
from test_marlin_rmem import target

MEMORY = "96M"


class Rig:
    """Modules, an interface and an echo in each machine. Left is a client of right's node, and attaches by Marlin, as a Rack
    does by UDP."""

    levels = INTEGRITY

    def __init__(self, lab):
        self.lab = lab
        self.left, self.right, self.third = lab
        self.node = soak_nodes.Node(self.right, MEMORY)

    def attach(self, machine, node, size, *words, key=None):
        return rmem.attach(self.lab[machine], node, size, *words, host=target(node.machine), key=key)

    def halves(self, machine):
        """The halves of remote memory that the machine has; loads them."""
        half = {self.left: rmem.CLIENT, self.right: rmem.NODE}.get(machine)
        if half:
            ntblab.load_half(machine, half)

    def start(self, machine):
        """All of it, after a boot or an unload."""
        cmmc.start(machine)
        self.halves(machine)
        if machine is self.right:
            self.node.start()

    def boot(self, machine):
        machine.boot()
        self.start(machine)
        Wire.start_echo(end_of(machine))

    def stop(self, machine):
        """Of modules nothing is left."""
        if machine is self.right:
            self.node.stop()
        ntblab.unload_halves(machine)
        ntblab.clear(machine)

    def __enter__(self):
        with cmmc.network(self.lab):
            for machine in self.lab:
                self.halves(machine)
                Wire.start_echo(end_of(machine))
            self.node.start()
        return self

    def __exit__(self, kind, *_):
        for machine in self.lab:
            if kind is None:
                self.stop(machine)
            else:
                machine.kill()


def end_of(machine):
    return End(machine.name, machine, (eop.address(machine), eop.address6(machine)))


class SmallSwap(Swap):
    size = "32M"


def loads_of(rig):
    left, right, third = rig.lab
    ends = {machine: end_of(machine) for machine in rig.lab}
    return [Disk("disk", rig, left.name, rig.node), SmallSwap("swap", rig, left.name, rig.node),
            ByDevice("program", rig, left.name, rig.node),
            Copies(left, right), Copies(third, left), Locks(right, left, third),
            Wire("tcp", ends[left], ends[third]), Wire("tcp", ends[third], ends[right]), Wire("udp", ends[right], ends[left])]


def faults_of(rig, soak, loads):
    lab, left, right, third = rig.lab, *rig.lab
    disk, swap, program, copies, more_copies, locks, *_ = loads
    devices = [disk, swap, program]
    faults = [kind(machine, "eop0") for machine in lab for kind in (Netem, Mute, marlin.EopDown, marlin.Settings)]
    faults += [kind(lab, machine) for machine in lab for kind in (marlin.Cable, marlin.DriverAway)]
    faults += [kind(machine, soak.away) for machine in lab for kind in (Suspended, marlin.StandsStill)]
    faults += [ClockStep(machine) for machine in lab]
    faults += [Mtu(machine, "eop0", 65535) for machine in lab]
    faults += [marlin.Engine(machine) for machine in (left, third)]
    faults += [marlin.PagesClosed(lab, left, right), marlin.PagesClosed(lab, third, left)]
    faults += [marlin.PowerCut(rig, machine) for machine in (right, third)]
    faults += [kind(rig.node) for kind in (soak_nodes.NodeStopped, soak_nodes.NodeRestarted)]
    faults += [soak_nodes.NodeRestartsAtRest(rig.node, devices)]
    faults += [Killed(load, KILLED) for load in loads]
    faults += [marlin.OwnerKilled(load, KILLED) for load in (copies, more_copies, locks)]
    faults += [ForcedDetach(load) for load in (disk, program)]
    faults += [AttachedAgain(load) for load in devices]
    faults += [marlin.AllModulesAgain(rig, machine, devices) for machine in lab]
    return faults


def test_soak(lab):
    soak = Soak(lab, [marlin.WATCHDOG])
    with Rig(lab) as rig:
        loads = loads_of(rig)
        soak.run(loads, faults_of(rig, soak, loads))
        rig.node.clear(DEVICE_SPACE)
        if FORCED in soak.reasons:
            rig.node.clear_space()
        wait_until("no region is left", lambda: rig.node.status()["regions"] == 0)
    soaklab.check_leaks(lab)


def test_modules_go(lab):
    for machine in lab:
        assert not ntblab.loaded(machine) and not rmem.loaded(machine)


if __name__ == "__main__":
    soaklab.main("ntb3", test_soak, test_modules_go)
