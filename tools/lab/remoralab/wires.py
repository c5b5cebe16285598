# SPDX-License-Identifier: GPL-2.0
"""The Ethernet of the lab, made of datagram socketpairs: no privilege, nothing on the host's network.

    two machines    A's process <== socketpair ==> B's process           QEMU or User Mode Linux
    a LAN of more   each process <== socketpair ==> a QEMU without a machine that only repeats frames (hub)

The lab keeps both ends open, so that a machine can die and boot again on the same wire. While a
machine is off its end is drained here: frames to a dead machine are lost, as on a real wire, instead
of filling the socket and stalling the sender.
"""

import ctypes
import os
import socket
import struct

from .child import start_bound
from .qemu import QEMU

WIRE_BUFFER_BYTES = 1 << 20
# linux/filter.h: `ret #0`, accept nothing of a packet.
BPF_RET_0 = struct.pack("HBBI", 6, 0, 0, 0)
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27


class Wires:
    def __init__(self, lab):
        self._lab = lab
        self._ends = {}  # (machine, link name): its socket, and the one at the wire's other end
        self._cut = set()  # (machine, link name)
        self._hubs = []
        for link in lab.topology.links:
            members = list(link.addresses)
            if len(members) == 2:
                pair = _pair()
                for machine, ends in zip(members, (pair, pair[::-1])):
                    self._ends[(machine, link.name)] = ends
            else:
                self._hubs.append((link.name, self._hub(link.name, members)))
        for machine in lab.topology.machines:
            self.disconnect(machine)

    def _hub(self, name, members):
        argv, far_ends = [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "none"], []
        for index, machine in enumerate(members):
            near, far = _pair()
            self._ends[(machine, name)] = near, far
            far_ends.append(far)
            argv += ["-netdev", f"dgram,id=wire{index},local.type=fd,local.str={far.fileno()}",
                     "-netdev", f"hubport,id=port{index},hubid=0,netdev=wire{index}"]
        return start_bound(argv, [far.fileno() for far in far_ends], self._lab.log_dir / f"hub-{name}.qemu")

    def _own(self, machine):
        return [(link, self._ends[(machine, link.name)][0]) for link in self._lab.topology.links_of(machine)]

    def ends(self, machine):
        """A machine's ends: [(link, MAC address, socket)], eth0's first."""
        number = list(self._lab.topology.machines).index(machine)
        return [(link, f"52:54:00:00:{self._lab.topology.links.index(link):02x}:{number + 1:02x}", end)
                for link, end in self._own(machine)]

    def connect(self, machine):
        """Before its process starts: stop draining its ends."""
        async def stop():
            for _, end in self._own(machine):
                self._lab.pump.loop.remove_reader(end.fileno())
        self._lab.pump.call(stop())

    def disconnect(self, machine):
        """Its process is gone: lose what is sent to it."""
        def drain(end):
            try:
                while end.recv(65536):
                    pass
            except BlockingIOError:
                pass

        async def start():
            for _, end in self._own(machine):
                os.set_blocking(end.fileno(), False)
                self._lab.pump.loop.add_reader(end.fileno(), drain, end)
        self._lab.pump.call(start())

    def set_link(self, machine, link, up):
        """Has the host lose what passes a machine's end of a link, both ways, or no longer."""
        (self._cut.discard if up else self._cut.add)((machine, link))
        lost = {end for cut in self._cut for end in self._ends[cut]}
        for end in {end for (_, name), ends in self._ends.items() if name == link for end in ends}:
            _lose(end, end in lost)

    def close(self):
        for machine in self._lab.topology.machines:
            self.connect(machine)
        for _, hub in self._hubs:
            hub.kill()
            hub.wait()
        for end in {end for ends in self._ends.values() for end in ends}:
            end.close()
        self._hubs, self._ends = [], {}


def _lose(end, lose):
    """Whether the kernel drops every datagram before it is queued at a socket."""
    program = ctypes.create_string_buffer(BPF_RET_0)
    try:
        end.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER if lose else SO_DETACH_FILTER,
                       struct.pack("HxxxxxxP", 1, ctypes.addressof(program)))
    except FileNotFoundError:
        pass  # none was attached


def _pair():
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WIRE_BUFFER_BYTES)
    return pair
