#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""EQDS tunnels under faults of chance: streams, datagrams, and a disk whose node is at a tunnel's other end. Inside and
outside of a tunnel are IPv4, or both IPv6.

    soak_eqds.py --kernel uml-debug --seconds 60 --seed 7

Three hosts in one machine (eqdslab.py); the third is the machine itself, where the disk is.
"""

import random

import soaklab  # first: it reads --seed
import eqdslab
import rmemlab
from remoralab import rmem, tap
from soak_faults import ClockStep, InterfaceDown, Killed, Mute, Netem, OfMachine, Paused, Suspended, silence
from soak_loads import INTEGRITY, KILLED, LOST, Disk, End, Wire
from soak_nodes import AttachedAgain
from soaklab import Fault, Soak, SoakFailed

NODE_MIB, MTU = 64, 1500
KEY = "/run/eqds-soak.key"


class Lent:
    """Attaches disks by a tunnel to one of a host's addresses, by chance, as a Rack does by a link."""

    levels = INTEGRITY

    def __init__(self, lab, lending, addresses):
        self.lab, self.lending, self.addresses = lab, lending, addresses
        self.chance = random.Random(f"{tap.SEED} versions")

    def attach(self, _machine, _node, size, *words):
        return self.lending.disk(self.chance.choice(self.addresses), rmem.size_bytes(size) >> 20, *words)


def inside6(host):
    return f"fd09::{host.number}"


def under6(host):
    return f"fd00::{host.number}"


def end_of(host):
    return End(host.name, host.machine, (host.inside, inside6(host)), host.wrap)


class TunnelWire(Wire):
    """A stream or datagrams; no timer of its ends' tunnel devices was set for a time in the past."""

    def __init__(self, kind, source, to):
        super().__init__(kind, end_of(source), end_of(to))
        self.hosts = source, to

    def mend(self, excuses, failed):
        super().mend(excuses, failed)
        for host in self.hosts:
            late = host.counters()["timer_late"]
            if late:
                raise SoakFailed(f"{host.name}: {late} timers were set for a time in the past")


class Network:
    """The hosts, and what faults change of them for longer than a step."""

    def __init__(self, racked, hosts):
        self.racked, self.hosts, self.machine = racked, hosts, hosts[0].machine
        self.keyed = False
        for host in hosts:
            host.ip(f"addr add {under6(host)}/64 dev eth0 nodad")
            self.set_up(host)

    def set_key(self, host, keyed):
        host.run(f"{rmem.CLI} eqds key eqds0 " + (f"--key {KEY}" if keyed else "--remove"))

    def add_routes(self, host):
        """A device that goes down forgets its routes, and its address of IPv6."""
        host.ip(*(f"route replace {other.inside} via {other.under} dev eqds0 onlink src {host.inside}"
                  for other in self.hosts if other is not host),
                f"addr replace {inside6(host)}/128 dev eqds0 nodad", "route replace fd09::/64 dev eqds0")

    def set_up(self, host):
        """A new device, as the soak wants it."""
        host.run("ethtool -s eqds0 speed 10000 duplex full autoneg off")
        self.add_routes(host)
        # IPv6 knows no next hop that is on another link: the tunnel's other end is a rule.
        for other in self.hosts:
            if other is not host:
                host.run(f"{rmem.CLI} eqds map eqds0 {inside6(other)} {under6(other)}")

    def add_device(self, host):
        self.racked.add_device(host)
        self.set_up(host)
        if self.keyed:
            self.set_key(host, True)


class OfHost(Fault):
    """A fault of one host's tunnel device."""

    part = "device"

    def __init__(self, network, host):
        self.network, self.host = network, host
        self.name = f"{self.name} {host.name}"
        self.uses = (f"{network.machine.name}.{host.name}.{self.part}",)

    def excuses(self, loads, **_params):
        return silence(loads)


class DeviceDown(OfHost):
    name = "tunnel-down"

    def begin(self):
        self.host.ip("link set eqds0 down")

    def end(self):
        self.host.ip("link set eqds0 up")
        self.network.add_routes(self.host)


class PeerReboot(OfHost):
    """A host's device goes without a word to its peers, and another comes, with its rules."""

    name = "reboot"

    def begin(self):
        self.host.silence()
        self.host.ip("link del eqds0")
        self.host.silence(end=True)

    def end(self):
        self.network.add_device(self.host)


class KeyChanged(Fault):
    """One host has another key than the others for a while; then all have it, or none."""

    name = "key"

    def __init__(self, network):
        self.network = network
        self.uses = tuple(f"{network.machine.name}.{host.name}.device" for host in network.hosts)

    def draw(self, chance):
        return {"first": chance.randrange(len(self.network.hosts)), "keyed": chance.random() < 0.6}

    def excuses(self, loads, first, keyed):
        return silence(loads)

    def begin(self, first, keyed):
        rmem.new_key(self.network.machine, KEY)
        self.network.set_key(self.network.hosts[first], True)

    def end(self, first, keyed):
        self.network.keyed = keyed
        for host in self.network.hosts:
            if keyed or host is self.network.hosts[first] or self._has_key(host):
                self.network.set_key(host, keyed)

    def _has_key(self, host):
        return '"key": true' in host.run(f"{rmem.CLI} eqds credit --json").out.replace('":true', '": true')


class Rules(OfHost):
    """Rules and bounds come and go under traffic. The rule of peers leaves one of them out."""

    name = "rules"
    RULES = {"share": "share eqds0 10.0.0.0/24 --weight 3 --priority 1", "map": "map eqds0 {0.inside} {0.under}",
             "allow": "allow eqds0 {0.under}"}

    def draw(self, chance):
        return {"rule": chance.choice(sorted(self.RULES))}

    def begin(self, rule):
        self._set(rule, "")

    def end(self, rule):
        self._set(rule, "--remove")

    def _set(self, rule, remove):
        other = next(host for host in self.network.hosts if host is not self.host)
        words = self.RULES[rule].format(other)
        self.host.run(f"{rmem.CLI} eqds {words.split(' --')[0] if remove else words} {remove}")


class Settings(OfHost):
    """Speed, window and ways to send are changed under traffic."""

    name = "settings"
    CHANGES = (("ethtool -s eqds0 speed 10 duplex full autoneg off", "ethtool -s eqds0 speed 10000 duplex full autoneg off"),
               (f"{rmem.CLI} eqds set eqds0 --window 4", f"{rmem.CLI} eqds set eqds0 --window {eqdslab.WINDOW_MTUS}"),
               ("ethtool --set-priv-flags eqds0 burst off", "ethtool --set-priv-flags eqds0 burst on"),
               ("ethtool --set-priv-flags eqds0 trains on", "ethtool --set-priv-flags eqds0 trains off"),
               ("ethtool --set-priv-flags eqds0 whole on", "ethtool --set-priv-flags eqds0 whole off"),
               (f"{rmem.CLI} eqds set eqds0 --tunnels 1", f"{rmem.CLI} eqds set eqds0 --tunnels 16384"))

    def draw(self, chance):
        return {"change": chance.randrange(len(self.CHANGES))}

    def begin(self, change):
        self.host.run(self.CHANGES[change][0])

    def end(self, change):
        self.host.run(self.CHANGES[change][1])


class TrimmingPort(OfMachine):
    """A host's port becomes that of a slow switch that trims."""

    name = "trim"

    def __init__(self, machine, host):
        super().__init__(machine)
        self.host = host
        self.name = f"{self.name} {host.port}"
        self.uses = (f"{machine.name}.{host.port}.qdisc",)

    def begin(self):
        eqdslab.switch(self.machine, self.host, "eqds")

    def end(self):
        self.machine.run(f"tc qdisc del dev {self.host.port} root")


class LinksMtu(Fault):
    """All links get a smaller MTU, one after the other, and their own again."""

    name = "mtu"

    def __init__(self, network):
        self.network = network
        self.uses = tuple(f"{network.machine.name}.{host.name}" for host in network.hosts)

    def draw(self, chance):
        return {"mtu": chance.choice((1300, 1400, 1499))}

    def excuses(self, loads, mtu):
        return silence(loads)

    def begin(self, mtu):
        for host in self.network.hosts:
            host.ip(f"link set eth0 mtu {mtu}")

    def end(self, mtu):
        self.begin(MTU)


class Shrink(OfMachine):
    """The kernel asks for the memory of tunnels that are idle."""

    name, part, can_be_long = "shrink", "shrink", False

    def begin(self):
        self.machine.run("echo 2 > /proc/sys/vm/drop_caches")


class NodeStopped(Fault):
    name, uses = "node-stopped", ("compute.node",)

    def __init__(self, lending):
        self.lending = lending

    def excuses(self, loads):
        return {load: LOST for load in loads if load.node is self.lending}

    def begin(self):
        self.lending.node.run(f"{rmem.CLI} node stop")

    def end(self):
        self.lending.start()


class ModuleAgain(Fault):
    """The module goes with all devices, and comes, while nothing is under way."""

    name, idle, can_be_long, lasts_s, uses = "module-again", True, False, (0, 0), ("compute",)

    def __init__(self, network):
        self.network = network

    def begin(self):
        machine = self.network.machine
        machine.run(["rmmod", eqdslab.MODULE, eqdslab.CORE], timeout=rmem.ACTION_S)
        eqdslab.load(machine, eqdslab.CORE, eqdslab.MODULE)
        for host in self.network.hosts:
            self.network.add_device(host)


def faults_of(soak, network, lending, loads):
    machine = network.machine
    faults = [ClockStep(machine), Paused(machine, soak.away), KeyChanged(network), LinksMtu(network), Shrink(machine),
              NodeStopped(lending), ModuleAgain(network), AttachedAgain(loads[0])]
    if not rmemlab.is_native(soak.lab):
        faults.append(Suspended(machine, soak.away))
    for host in network.hosts:
        faults += [kind(machine, host.port) for kind in (Netem, Mute, InterfaceDown)]
        faults += [kind(network, host) for kind in (DeviceDown, PeerReboot, Rules, Settings)]
        faults += [TrimmingPort(machine, host)]
    return faults + [Killed(load, KILLED) for load in loads]


def test_soak(lab):
    soak = Soak(lab)
    machine = lab["compute"]
    racked = eqdslab.Racked(machine, 3, mtu=MTU, home=True)
    with racked as hosts, eqdslab.Lending(hosts[0], NODE_MIB) as lending:
        eqdslab.load(machine, eqdslab.TRIM)
        machine.run("modprobe -a sch_tbf sch_netem 2>/dev/null || :")
        network = Network(racked, hosts)
        ends = [end_of(host) for host in hosts]
        for end in ends:
            Wire.start_echo(end)
        loads = [Disk("disk", Lent(lab, lending, ends[0].addresses), "compute", lending),
                 *(TunnelWire(kind, hosts[source], hosts[to])
                   for kind, source, to in (("tcp", 0, 1), ("tcp", 1, 2), ("tcp", 2, 0), ("udp", 0, 1), ("udp", 1, 2)))]
        soak.run(loads, faults_of(soak, network, lending, loads))
    soaklab.check_leaks(lab)


if __name__ == "__main__":
    soaklab.main("solo", test_soak, eqdslab.test_modules_go)
