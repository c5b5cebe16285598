#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""EQDS tunnels under faults of chance: streams, datagrams, and a disk whose node is at a tunnel's other end.

    soak_eqds.py --kernel uml-debug --seconds 60 --seed 7

Three hosts in one machine (eqdslab.py); the third is the machine itself, where the disk is.
"""

import soaklab  # first: it reads --seed
import eqdslab
import rmemlab
from remoralab import rmem
from remoralab.rmem import wait_until
from soak_faults import ClockStep, InterfaceDown, Killed, Mute, Netem, OfMachine, Paused, silence
from soak_loads import KILLED, LOST, SIGKILL, Command, Disk
from soaklab import Fault, Soak

NODE_MIB, PORT, MTU = 64, 5005, 1500
CHECK = rmemlab.HERE / "wire_check.py"
KEY = "/run/eqds-soak.key"


class Wire(Command):
    """Streams or datagrams between two hosts, sent back by an echo."""

    gives_up = True

    def __init__(self, kind, source, to):
        super().__init__(f"{kind}-{source.name}-{to.name}", source.machine, None)
        self.kind, self.source, self.to = kind, source, to

    def command(self):
        return "exec " + self.source.wrap(f"python3 {CHECK} {self.kind} {self.to.inside} {PORT} "
                                          f"{self.chance.randrange(1 << 30)}-$n /run/go-on-{self.name}")

    def rounds(self):
        return self.machine.read(f"/run/{self.name}.log").count("round ")

    def is_excusable(self, status, said):
        return status in (3, SIGKILL) and "wrong bytes" not in said

    def mend(self, excuses, failed):
        """All is healed: the peer is reached again, whatever tunnels went through."""
        wait_until(f"{self.source.name} reaches {self.to.name}", self._reached, rmemlab.LOAD_S)

    def _reached(self):
        return self.source.run(f"ping -c1 -W5 {self.to.inside}", check=False, timeout=rmem.ACTION_S).rc == 0


class Lent:
    """Attaches disks by a tunnel, as a Rack does by a link."""

    def __init__(self, lab, lending, address):
        self.lab, self.lending, self.address = lab, lending, address

    def attach(self, _machine, _node, size, *words):
        return self.lending.disk(self.address, rmem.size_bytes(size) >> 20, *words)


class Network:
    """The hosts, and what faults change of them for longer than a step."""

    def __init__(self, racked, hosts):
        self.racked, self.hosts, self.machine = racked, hosts, hosts[0].machine
        self.keyed = False

    def set_key(self, host, keyed):
        host.run(f"{rmem.CLI} eqds key eqds0 " + (f"--key {KEY}" if keyed else "--remove"))

    def add_routes(self, host):
        """A device that goes down forgets its routes."""
        host.ip(*(f"route replace {other.inside} via {other.under} dev eqds0 onlink src {host.inside}"
                  for other in self.hosts if other is not host))

    def add_device(self, host):
        self.racked.add_device(host)
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
    """A host's device goes without a word to its peers, and another comes."""

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
        self.uses = (f"{machine.name}.{host.port}-qdisc",)

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


class AttachedAgain(Fault):
    name, idle, can_be_long, lasts_s, uses = "attach-again", True, False, (0, 0), ("compute.disk",)

    def __init__(self, disk):
        self.disk = disk

    def begin(self):
        self.disk.renew()


def faults_of(soak, network, lending, loads):
    machine = network.machine
    faults = [ClockStep(machine), Paused(machine, soak.away), KeyChanged(network), LinksMtu(network), Shrink(machine),
              NodeStopped(lending), ModuleAgain(network), AttachedAgain(loads[0])]
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
        first, second, home = hosts
        eqdslab.load(machine, eqdslab.TRIM)
        machine.run("modprobe -a sch_tbf sch_netem 2>/dev/null || :")
        for host in hosts:
            host.run("ethtool -s eqds0 speed 10000 duplex full autoneg off")
            host.spawn(f"python3 {CHECK} echo {host.inside} {PORT}").wait_output("listening")
        network = Network(racked, hosts)
        loads = [Disk("disk", Lent(lab, lending, first.inside), "compute", lending),
                 Wire("tcp", first, second), Wire("tcp", second, home), Wire("tcp", home, first),
                 Wire("udp", first, second), Wire("udp", second, home)]
        soak.run(loads, faults_of(soak, network, lending, loads))
    soaklab.check_leaks(lab)


if __name__ == "__main__":
    soaklab.main("solo", test_soak, eqdslab.test_modules_go)
