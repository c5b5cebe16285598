#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Remote memory under faults of chance: disks, swap and programs of a client, and a kernel's node beside a daemon.

    soak_rmem.py --kernel uml-debug --seconds 60 --seed 7
"""

import signal

import soaklab  # first: it reads --seed
import rmemlab
import soak_loads
from remoralab import rmem
from remoralab.rmem import Rack, wait_until
from soak_faults import ClockStep, InterfaceDown, Killed, LinkDown, Mtu, Mute, Netem, OfMachine, Paused, Pressure
from soak_loads import FORCED, KILLED, LOST, SILENT
from soaklab import Fault, Soak, SoakFailed

MEMORY, DAEMON_MEMORY, DAEMON_PORT = "448M", "32M", 7671
# Below soaklab.LONG_S: a device's patience, and a session's rest.
FAIL_AFTER_S, SESSION_IDLE_S = 5, 8
DEVICE_SPACE, UDP_SPACE, DAEMON_SPACE = 2, 3, 1


class Node(rmem.Node):
    """A kernel's node with a space for disks and some for programs."""

    def __init__(self, machine):
        super().__init__(machine, MEMORY)
        self.keys = {}
        self.extra = ["--session-idle", str(SESSION_IDLE_S)]
        for space in (DEVICE_SPACE, UDP_SPACE):
            self.extra += ["--space", f"{space}={self.space_key_path(space)}"]

    def start(self):
        for space in (DEVICE_SPACE, UDP_SPACE):
            path = self.space_key_path(space)
            if space in self.keys:
                rmem.write_key(self.machine, path, self.keys[space])
            else:
                self.keys[space] = rmem.new_key(self.machine, path)
        return super().start()

    def space_key(self, space):
        return self.keys[space]

    def clear(self, space):
        """Takes back what programs left allocated."""
        rmem.remora(self.machine, "node", "space", "del", "--force", str(space))
        rmem.remora(self.machine, "node", "space", "add", f"{space}={self.space_key_path(space)}")


class Daemon:
    """remora-node beside the kernel's node."""

    def __init__(self, machine):
        self.machine, self.port = machine, DAEMON_PORT
        self.key_path = "/run/daemon.key"
        self.key = rmem.new_key(machine, self.key_path)

    def start(self):
        rmem.write_key(self.machine, self.key_path, self.key)
        self.process = self.machine.spawn([rmem.DAEMON, "--memory", DAEMON_MEMORY, "--port", self.port, "--session-idle",
                                           SESSION_IDLE_S, "--space", f"{DAEMON_SPACE}={self.key_path}"])
        self.process.wait_output("ready on port")
        return self

    def space_key(self, _space):
        return self.key

    def clear(self, space):
        where = ["--socket", "/run/remora-node.sock"]
        rmem.remora(self.machine, "node", "space", "del", *where, "--force", str(space))
        rmem.remora(self.machine, "node", "space", "add", *where, f"{space}={self.key_path}")

    def stop(self):
        self.process.signal(signal.SIGTERM)
        ended = self.process.wait()
        assert ended.rc == 0, f"remora-node: {ended}"


# Faults

class NodeStopped(Fault):
    """The kernel's node stops, and starts without what it had."""

    name, uses = "node-stopped", ("memory.node",)

    def __init__(self, node):
        self.node = node

    def excuses(self, loads):
        return {load: LOST for load in loads if load.node is self.node}

    def begin(self):
        self.node.stop()

    def end(self):
        self.node.start()


class NodeRestarted(NodeStopped):
    """The node has restarted at once; devices stay attached and lost, with requests under way when it happened."""

    name, lasts_s, weight = "node-restarted", (0.3, 8), 2

    def begin(self):
        self.node.stop()
        self.node.start()

    def end(self):
        pass


class PowerCut(OfMachine):
    """The power of the nodes' machine, and back."""

    name = "power-cut"

    def __init__(self, machine, nodes):
        super().__init__(machine)
        self.nodes = nodes

    def excuses(self, loads):
        return {load: LOST for load in loads if load.node in self.nodes}

    def begin(self):
        self.machine.kill()

    def end(self):
        self.machine.boot()
        for node in self.nodes:
            node.start()


class DaemonKilled(Fault):
    name, uses = "daemon-killed", ("memory.daemon",)

    def __init__(self, daemon):
        self.daemon = daemon

    def excuses(self, loads):
        return {load: LOST for load in loads if load.node is self.daemon}

    def begin(self):
        self.daemon.process.kill()

    def end(self):
        self.daemon.start()


class DaemonStandsStill(DaemonKilled):
    name = "daemon-still"

    def excuses(self, loads):
        return {load: SILENT for load in loads if load.node is self.daemon}

    def begin(self):
        self.daemon.process.signal(signal.SIGSTOP)

    def end(self):
        self.daemon.process.signal(signal.SIGCONT)


class ForcedDetach(Fault):
    """A device is taken from under its user."""

    can_be_long = False

    def __init__(self, load):
        self.load = load
        self.name, self.uses = f"detach-force {load.name}", (f"{load.machine.name}.{load.name}",)

    def excuses(self, loads):
        return {self.load: FORCED}

    def begin(self):
        self.load.force()


class ModulesAgain(OfMachine):
    """All devices of the client are detached, its modules go and come, and devices are attached again."""

    name, idle, can_be_long, lasts_s = "modules-again", True, False, (0, 0)

    def __init__(self, machine, loads):
        super().__init__(machine)
        self.loads = loads

    def begin(self):
        for load in self.loads:
            load.leave()
        rmem.unload(self.machine)
        rmem.load(self.machine, rmem.CLIENT)
        for load in self.loads:
            load.attach()


class AttachedAgain(Fault):
    """A device is detached in order and another attached."""

    idle, can_be_long, lasts_s = True, False, (0, 0)

    def __init__(self, load):
        self.load = load
        self.name, self.uses = f"attach-again {load.name}", (f"{load.machine.name}.{load.name}",)

    def begin(self):
        self.load.renew()


class NodeRestartsAtRest(NodeStopped):
    """The node restarts while nothing is under way: the first access tells, and the devices stay attached and lost."""

    name, idle = "node-restarts-at-rest", True

    def __init__(self, node, loads):
        super().__init__(node)
        self.loads = loads

    def begin(self):
        self.restart()
        for load in self.loads:
            if load.touch():
                raise SoakFailed(f"{load.name}: an access went well though the node has restarted")

    def restart(self):
        self.node.stop()
        self.node.start()

    def end(self):
        for load in self.loads:
            load.mend({LOST}, True)


class ModulesOfNode(NodeRestartsAtRest):
    name = "node-modules-again"

    def restart(self):
        self.node.stop()
        rmem.unload(self.node.machine)
        self.node.start()


def faults_of(lab, soak, rack, node, daemon, loads):
    compute, memory = lab["compute"], lab["memory"]
    [link] = lab.topology.links
    disk, hasty, swap, program, *_ = loads
    devices = [disk, hasty, swap, program]
    faults = [kind(machine, "eth0") for machine in (compute, memory) for kind in (Netem, Mute)]
    faults += [ClockStep(machine) for machine in (compute, memory)]
    faults += [Paused(machine, soak.away) for machine in (compute, memory)]
    faults += [LinkDown(lab, link.name), NodeStopped(node), NodeRestarted(node), PowerCut(memory, [node, daemon]),
               DaemonKilled(daemon), DaemonStandsStill(daemon)]
    faults += [Killed(load, KILLED) for load in loads]
    # Swap that was forced away stays on the kernel's list, and keeps the module: README.md.
    faults += [ForcedDetach(load) for load in (disk, hasty, program)]
    faults += [AttachedAgain(load) for load in devices]
    faults += [ModulesAgain(compute, devices), NodeRestartsAtRest(node, devices), ModulesOfNode(node, devices)]
    # A User Mode Linux can neither open its wire again nor raise its MTU, and its memory is never short.
    if not rmemlab.is_native(lab):
        faults += [InterfaceDown(machine, "eth0") for machine in (compute, memory)]
        faults += [Mtu(machine, "eth0", link.mtu) for machine in (compute, memory)]
        faults.append(Pressure(compute, rack, node, rmemlab.hog_path(), 2 * rmemlab.LOAD_S))
    return faults


def test_soak(lab):
    soak = Soak(lab)
    with Rack(lab) as rack:
        node = Node(lab["memory"]).start()
        rack.nodes.append(node)
        daemon = Daemon(lab["memory"]).start()
        loads = [soak_loads.Disk("disk", rack, "compute", node),
                 soak_loads.Disk("hasty", rack, "compute", node, "--fail-after", str(FAIL_AFTER_S)),
                 soak_loads.Swap("swap", rack, "compute", node),
                 soak_loads.ByDevice("program", rack, "compute", node),
                 soak_loads.ByUdp("udp", lab["compute"], node, UDP_SPACE),
                 soak_loads.ByUdp("daemon", lab["compute"], daemon, DAEMON_SPACE)]
        soak.run(loads, faults_of(lab, soak, rack, node, daemon, loads))
        for space in (DEVICE_SPACE, UDP_SPACE):
            node.clear(space)
        if FORCED in soak.reasons:
            node.clear_space()
        wait_until("no region is left", lambda: node.status()["regions"] == 0)
        daemon.stop()
    soaklab.check_leaks(lab)


if __name__ == "__main__":
    soaklab.main("pair", test_soak)
