# SPDX-License-Identifier: GPL-2.0
"""The Ethernet of the lab, made of datagram socketpairs: no privilege, nothing on the host's network.

    two machines    A's QEMU <== socketpair ==> B's QEMU
    a LAN of more   each QEMU <== socketpair ==> a QEMU without a machine that only repeats frames (hub)

The lab keeps both ends open, so that a machine can die and boot again on the same wire. While a
machine is off its end is drained here: frames to a dead machine are lost, as on a real wire, instead
of filling the socket and stalling the sender.
"""

import os
import socket

from .machine import QEMU, start_bound

WIRE_BUFFER_BYTES = 1 << 20


class Wires:
    def __init__(self, lab):
        self._lab = lab
        self._ends = {}  # (machine, link name): socket
        self._hubs = []
        for link in lab.topology.links:
            members = list(link.addresses)
            if len(members) == 2:
                pair = _pair()
                self._ends.update({(machine, link.name): end for machine, end in zip(members, pair)})
            else:
                self._hubs.append((link.name, self._hub(link.name, members)))
        for machine in lab.topology.machines:
            self.disconnect(machine)

    def _hub(self, name, members):
        argv, far_ends = [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "none"], []
        for index, machine in enumerate(members):
            near, far = _pair()
            self._ends[(machine, name)] = near
            far_ends.append(far)
            argv += ["-netdev", f"dgram,id=wire{index},local.type=fd,local.str={far.fileno()}",
                     "-netdev", f"hubport,id=port{index},hubid=0,netdev=wire{index}"]
        hub = start_bound(argv, [far.fileno() for far in far_ends], self._lab.log_dir / f"hub-{name}.qemu")
        for far in far_ends:
            far.close()
        return hub

    def _own(self, machine):
        return [(link, self._ends[(machine, link.name)]) for link in self._lab.topology.links_of(machine)]

    def arguments(self, machine):
        """QEMU's arguments for a machine's links, and the descriptors it must inherit."""
        argv, passed = [], []
        number = list(self._lab.topology.machines).index(machine)
        for index, (link, end) in enumerate(self._own(machine)):
            link_number = self._lab.topology.links.index(link)
            mac = f"52:54:00:00:{link_number:02x}:{number + 1:02x}"
            argv += ["-netdev", f"dgram,id=wire{index},local.type=fd,local.str={end.fileno()}",
                     "-device", f"virtio-net-pci,id=nic{index},netdev=wire{index},mac={mac},"
                                f"host_mtu={link.mtu},romfile="]
            passed.append(end.fileno())
        return argv, passed

    def connect(self, machine):
        """Before its QEMU starts: stop draining its ends."""
        async def stop():
            for _, end in self._own(machine):
                self._lab.pump.loop.remove_reader(end.fileno())
        self._lab.pump.call(stop())

    def disconnect(self, machine):
        """Its QEMU is gone: lose what is sent to it."""
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

    def nic(self, machine, link_name):
        """QEMU's name of a machine's end of a link."""
        names = [link.name for link in self._lab.topology.links_of(machine)]
        return f"nic{names.index(link_name)}"

    def close(self):
        for machine in self._lab.topology.machines:
            self.connect(machine)
        for _, hub in self._hubs:
            hub.kill()
            hub.wait()
        for end in self._ends.values():
            end.close()
        self._hubs, self._ends = [], {}


def _pair():
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WIRE_BUFFER_BYTES)
    return pair
