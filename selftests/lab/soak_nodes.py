# SPDX-License-Identifier: GPL-2.0
"""Nodes of a soak, the kernel's and daemons, and faults of nodes and of devices that use them."""

import signal

from remoralab import cache, rmem
from soak_faults import OfMachine, Suspended
from soak_loads import FORCED, LOST, SILENT
from soaklab import Fault, SoakFailed

DAEMON_MEMORY, DAEMON_PORT = "64M", 7671
# Below soaklab.LONG_S.
SESSION_IDLE_S = 8
DEVICE_SPACE, UDP_SPACE, DAEMON_SPACE = 2, 3, 4


class Node(rmem.Node):
    """A kernel's node with a space for disks and some for programs."""

    def __init__(self, machine, memory):
        super().__init__(machine, memory)
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
        super().start()
        rmem.load(self.machine, rmem.CHASE)
        self.load_offload()
        return self

    def load_offload(self):
        rmem.remora(self.machine, "node", "offload", "load", "chase", "--space", str(UDP_SPACE))

    def space_key(self, space):
        return self.keys[space]

    def clear(self, space):
        """Takes back what programs left allocated. A space's offload goes with it."""
        rmem.remora(self.machine, "node", "space", "del", "--force", str(space))
        rmem.remora(self.machine, "node", "space", "add", f"{space}={self.space_key_path(space)}")
        if space == UDP_SPACE:
            self.load_offload()


class Daemon:
    """remora-node beside the kernel's node, with a space for disks and one for programs."""

    DISKS = rmem.Node.SPACE
    WHERE = ("--socket", "/run/remora-node.sock")

    def __init__(self, machine):
        self.machine, self.port = machine, DAEMON_PORT
        self.keys = {space: rmem.new_key(machine, self.key_path(space)) for space in (self.DISKS, DAEMON_SPACE)}
        self.key = self.keys[self.DISKS]

    @staticmethod
    def key_path(space):
        return f"/run/daemon-{space}.key"

    def start(self):
        spaces = []
        for space, key in self.keys.items():
            rmem.write_key(self.machine, self.key_path(space), key)
            spaces += ["--space", f"{space}={self.key_path(space)}"]
        self.process = self.machine.spawn([rmem.DAEMON, "--memory", DAEMON_MEMORY, "--port", self.port, "--session-idle",
                                           SESSION_IDLE_S, *spaces])
        self.process.wait_output("ready on port")
        self.load_offload()
        return self

    def load_offload(self):
        rmem.remora(self.machine, "node", "offload", "load", cache.REPO / "out" / "lib" / "offload" / "chase.so", "--space",
                    str(DAEMON_SPACE), *self.WHERE)

    def space_key(self, space):
        return self.keys[space]

    def clear(self, space):
        rmem.remora(self.machine, "node", "space", "del", *self.WHERE, "--force", str(space))
        rmem.remora(self.machine, "node", "space", "add", *self.WHERE, f"{space}={self.key_path(space)}")
        self.load_offload()

    def stop(self):
        self.process.signal(signal.SIGTERM)
        ended = self.process.wait()
        assert ended.rc == 0, f"remora-node: {ended}"


# Faults

class NodeStopped(Fault):
    """The kernel's node stops, and starts without what it had."""

    name = "node-stopped"

    def __init__(self, node):
        self.node, self.uses = node, (f"{node.machine.name}.node",)

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


class Hibernated(Suspended):
    """A node's machine begins to hibernate, and gives up, for its image would take more memory than it has left. Its node
    serves no memory of before all the same."""

    name, STATE, GIVES_UP = "hibernate", "disk", "Cannot allocate memory"

    def __init__(self, machine, away, node):
        super().__init__(machine, away)
        self.node, self.uses = node, (*self.uses, f"{machine.name}.node")

    def excuses(self, loads, for_s):
        return {**super().excuses(loads, for_s=for_s), **{load: LOST for load in loads if load.node is self.node}}


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
