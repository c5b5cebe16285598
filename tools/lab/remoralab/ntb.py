# SPDX-License-Identifier: GPL-2.0
"""PCIe non-transparent bridges of the lab: machines that have each other's RAM in PCI BARs.

    QEMU of left                      Fabric (in the lab)                 QEMU of right
      RAM -------------------------- memory file ---------------------- ivshmem-plain BAR
      ivshmem-plain BAR ------------ memory file ---------------------- RAM
      ivshmem-doorbell  BAR -------- registers, a memory file --------- BAR  ivshmem-doorbell
                    '--- socket --- the switch: eventfds, presence --- socket ---'

The registers are specified in include/remora/ntb.h. The switch speaks the ivshmem server's protocol (QEMU's
docs/specs/ivshmem-spec.txt): when a machine starts, it sends the machine's ID, which is its port, the registers'
descriptor, and for each vector of each port an eventfd, by which they interrupt each other directly. The registers
tell the machines who has power. The protocol could, but a QEMU that hears that a peer went and came back with its ID
uses memory it has freed (close_peer_eventfds() in 7.2); so a port keeps its eventfds for good, and a ring at a machine
without power is lost. All files are memory files: nothing of a fabric outlives the lab's process.
"""

import array
import mmap
import os
import socket
import struct

from . import kernel
from .say import LabError

# As in include/remora/ntb.h.
MAGIC, VERSION = 0x42544E52, 1
PAGE_BYTES, REGISTERS_BYTES = 4096, 65536
DOORBELLS = 16
VECTOR_EVENT, VECTORS = DOORBELLS, DOORBELLS + 1
MAP, PRESENT_AT, MAP_AT = struct.Struct("<4Q"), 12, 64

# Port 0's PCI slot; QEMU fills the slots below by itself.
FIRST_SLOT = 0x10
WINDOW_BYTES_MAX = 4 << 20
MIB = 1 << 20
# The messages of a machine's start, 15 ports' vectors, are sent before its QEMU reads any.
SOCKET_BUFFER_BYTES = 1 << 20
PROTOCOL_VERSION, MEMORY = 0, -1


def windows(ram_mib, ports):
    """(base, bytes of each) of the memory a machine sets aside for its peers' windows, at most an eighth of it."""
    share = (ram_mib * MIB >> 3) // (ports - 1)
    return ram_mib * MIB * 3 // 4, min(WINDOW_BYTES_MAX, 1 << (share.bit_length() - 1))


class Port:
    """A machine's place in a fabric."""

    def __init__(self, machine, ram_mib, ports):
        self.machine, self.ram_mib = machine, ram_mib
        self.windows_base, self.window_bytes = windows(ram_mib, ports)
        self.windows_mib = -(-(ports - 1) * self.window_bytes // MIB)
        self.ram = _memory_file(machine, ram_mib * MIB)
        self.vectors = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(VECTORS)]
        self.sock = None  # to its QEMU, while it has power
        self.plugged = True


class Fabric:
    """One NTB: its switch, and the memory it joins. All but its making happens on the lab's pump."""

    def __init__(self, spec, machines, pump):
        self.name, self._pump = spec.name, pump
        self.ports = [Port(name, machines[name].ram_mib, len(spec.ports)) for name in spec.ports]
        self._file = _memory_file(spec.name, REGISTERS_BYTES)
        self.registers = mmap.mmap(self._file, REGISTERS_BYTES)
        struct.pack_into("<4I", self.registers, 0, MAGIC, VERSION, len(self.ports), 0)
        for number, port in enumerate(self.ports):
            MAP.pack_into(self.registers, MAP_AT + number * MAP.size, port.ram_mib * MIB, port.windows_base,
                          port.window_bytes, 0)

    def number(self, machine):
        return [port.machine for port in self.ports].index(machine)

    def connect(self, machine):
        """A machine gets power: its RAM and registers are cleared. Returns the socket its QEMU needs."""
        async def start():
            return self._power_on(self.number(machine))
        return self._pump.call(start())

    def disconnect(self, machine):
        """A machine has lost its power."""
        async def stop():
            self._power_off(self.number(machine))
        self._pump.call(stop())

    def plug(self, machine, plugged):
        """Pulls a machine's cable, or puts it in again: it has no links meanwhile, but the memory stays mapped."""
        async def change():
            self.ports[self.number(machine)].plugged = plugged
            self._tell_presence()
        self._pump.call(change())

    def arguments(self, machine, sock):
        """QEMU's arguments for a machine, and the descriptors it must inherit."""
        own = self.number(machine)
        argv = [*_memory(self.ports[own], "ram"), "-chardev", f"socket,id=ntb,fd={sock.fileno()}",
                "-device", f"ivshmem-doorbell,chardev=ntb,vectors={VECTORS},addr={FIRST_SLOT + own:#x}"]
        for number, port in enumerate(self.ports):
            if number != own:
                argv += [*_memory(port, f"ntb{number}"),
                         "-device", f"ivshmem-plain,memdev=ntb{number},addr={FIRST_SLOT + number:#x}"]
        return argv, [sock.fileno(), *(port.ram for port in self.ports)]

    def command_line(self, machine):
        """The part of a machine's kernel command line that keeps the windows' memory free."""
        port = self.ports[self.number(machine)]
        return f"memmap={port.windows_mib}M${port.windows_base // MIB}M"

    def close(self):
        for number in range(len(self.ports)):
            self.disconnect(self.ports[number].machine)
        self.registers.close()
        for file in [self._file, *(file for port in self.ports for file in (port.ram, *port.vectors))]:
            os.close(file)
        self.ports = []

    def _power_on(self, number):
        self._power_off(number)
        port = self.ports[number]
        with mmap.mmap(port.ram, 0) as ram:
            ram.madvise(mmap.MADV_REMOVE)
        self.registers[(1 + number) * PAGE_BYTES:(2 + number) * PAGE_BYTES] = bytes(PAGE_BYTES)
        port.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        port.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        port.sock.setblocking(False)
        for vector in port.vectors:
            _drain(vector)
        self._send(port, PROTOCOL_VERSION)
        self._send(port, number)
        self._send(port, MEMORY, self._file)
        own_last = sorted(range(len(self.ports)), key=lambda each: each == number)
        for each in own_last:
            for vector in self.ports[each].vectors:
                self._send(port, each, vector)
        self._pump.loop.add_reader(port.sock.fileno(), self._hear, number)
        self._tell_presence()
        return theirs

    def _power_off(self, number):
        port = self.ports[number]
        if port.sock is None:
            return
        self._pump.loop.remove_reader(port.sock.fileno())
        port.sock.close()
        port.sock = None
        self._tell_presence()

    def _hear(self, number):
        """QEMU says nothing; when its socket ends it is gone."""
        try:
            if self.ports[number].sock.recv(4096):
                return
        except BlockingIOError:
            return
        except ConnectionError:
            pass
        self._power_off(number)

    @staticmethod
    def _send(port, word, file=None):
        passed = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
        port.sock.sendmsg([struct.pack("<q", word)], passed)

    def _tell_presence(self):
        present = sum(1 << number for number, port in enumerate(self.ports) if port.sock and port.plugged)
        struct.pack_into("<I", self.registers, PRESENT_AT, present)
        for port in self.ports:
            if port.sock:
                os.eventfd_write(port.vectors[VECTOR_EVENT], 1)


class Fabrics:
    """All NTBs of a lab, from the view of one machine at a time: each is in one of them, or in none."""

    def __init__(self, lab):
        for ntb in lab.topology.ntbs:
            native = [name for name in ntb.ports if kernel.is_uml(lab.topology.machines[name].kernel)]
            if native:
                raise LabError(f"{lab.topology.name}: [ntb {ntb.name}] needs PCI, which User Mode Linux has not: boot "
                               f"{native[0]} with another kernel, 6.12 say")
        self.fabrics = [Fabric(ntb, lab.topology.machines, lab.pump) for ntb in lab.topology.ntbs]

    def of(self, machine):
        return next((each for each in self.fabrics if machine in (port.machine for port in each.ports)), None)

    def named(self, name):
        return next((each for each in self.fabrics if each.name == name), None)

    def disconnect(self, machine):
        fabric = self.of(machine)
        if fabric:
            fabric.disconnect(machine)

    def close(self):
        for fabric in self.fabrics:
            fabric.close()
        self.fabrics = []


def _memory(port, name):
    return ["-object", f"memory-backend-file,id={name},size={port.ram_mib}M,mem-path=/proc/self/fd/{port.ram},share=on"]


def _drain(vector):
    try:
        os.eventfd_read(vector)
    except BlockingIOError:
        pass


def _memory_file(name, size):
    file = os.memfd_create(f"remora-{name}", os.MFD_CLOEXEC)
    os.truncate(file, size)
    return file
