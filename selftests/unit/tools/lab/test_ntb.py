# SPDX-License-Identifier: GPL-2.0
"""The switch of the lab's NTBs, by its protocol: what QEMU is told, and what stands in the registers."""

import array
import os
import pathlib
import re
import socket
import struct
import sys
import tempfile
import types
import unittest

REPO = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(REPO / "tools" / "lab"))

from remoralab import ntb, topology  # noqa: E402
from remoralab.channel import Pump  # noqa: E402
from remoralab.say import LabError  # noqa: E402

MACHINES = "[machine a]\nram = 256M\n[machine b]\nram = 1G\n[machine c]\nram = 384M\n[machine d]\nram = 4G\n"
HEADER = (REPO / "include" / "remora" / "ntb.h").read_text()


def load(text):
    with tempfile.NamedTemporaryFile("w", suffix=".topo") as file:
        file.write(MACHINES + text)
        file.flush()
        return topology.load(file.name)


class Topology(unittest.TestCase):
    def refused(self, text, why):
        with self.assertRaisesRegex(LabError, why):
            load(text)

    def test_ports_keep_their_order(self):
        [spec] = load("[ntb f]\nports = b a\n").ntbs
        self.assertEqual((spec.name, spec.ports), ("f", ["b", "a"]))

    def test_impossible_ntbs_are_refused(self):
        self.refused("[ntb f]\nports = a\n", "joins 1 machines")
        self.refused("[ntb f]\nports = a x\n", "'x', which is no machine")
        self.refused("[ntb f]\nports = a a\n", "'a' twice")
        self.refused("[ntb f]\nports = a c\n", "c has 384 MiB")
        self.refused("[ntb f]\nports = a d\n", "d has 4096 MiB")
        self.refused("[ntb f]\nmtu = 1\n", "needs ports")
        self.refused("[ntb f]\nports = a b\n[ntb g]\nports = b a\n", "is in two NTBs")
        self.refused("[ntb f]\nports = a b\n[link f]\na = 10.0.0.1/24\nb = 10.0.0.2/24\n", "two names")

    def test_user_mode_linux_is_refused(self):
        topo = load("[ntb f]\nports = a b\n")
        topo.machines["b"].kernel = "uml"
        with self.assertRaisesRegex(LabError, "needs PCI"):
            ntb.Fabrics(types.SimpleNamespace(topology=topo, pump=None))


class Constants(unittest.TestCase):
    def test_constants_match_the_header(self):
        for name, value in (("MAGIC", ntb.MAGIC), ("VERSION", ntb.VERSION), ("PAGE_BYTES", ntb.PAGE_BYTES),
                            ("PORTS_MAX", topology.NTB_PORTS_MAX), ("DOORBELLS", ntb.DOORBELLS)):
            self.assertEqual(int(re.search(rf"define NTB_{name} (\w+)", HEADER)[1], 0), value, name)

    def test_windows_fit_where_they_are_set_aside(self):
        for ram_mib in (64, 256, 2048):
            for ports in range(2, topology.NTB_PORTS_MAX + 1):
                base, size = ntb.windows(ram_mib, ports)
                self.assertEqual(base % size, 0)
                self.assertGreaterEqual(size, 4096)
                self.assertLessEqual(base + (ports - 1) * size, ram_mib << 20)


class Qemu:
    """The end of the switch's socket that a QEMU has."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(10)

    def hear(self):
        """(word, descriptor or None) of the next message."""
        data, passed, _, _ = self.sock.recvmsg(8, socket.CMSG_SPACE(4))
        files = array.array("i")
        for _level, _kind, content in passed:
            files.frombytes(content)
        return struct.unpack("<q", data)[0], files[0] if files else None

    def hear_vectors(self, port):
        told = [self.hear() for _ in range(ntb.VECTORS)]
        assert all(word == port and file is not None for word, file in told), told
        return [file for _, file in told]


class Switch(unittest.TestCase):
    def setUp(self):
        topo = load("[ntb f]\nports = a b\n")
        self.fabric = ntb.Fabric(topo.ntbs[0], topo.machines, Pump())
        self.addCleanup(self.fabric.close)

    def present(self):
        return struct.unpack_from("<I", self.fabric.registers, ntb.PRESENT_AT)[0]

    def start(self, machine, port):
        """Power for a machine; its QEMU after the greeting, its vectors, and the other port's."""
        qemu = Qemu(self.fabric.connect(machine))
        self.addCleanup(qemu.sock.close)
        self.assertEqual(qemu.hear(), (0, None))
        self.assertEqual(qemu.hear(), (port, None))
        word, memory = qemu.hear()
        self.assertEqual((word, os.fstat(memory).st_size), (-1, ntb.REGISTERS_BYTES))
        theirs = qemu.hear_vectors(1 - port)
        return qemu, qemu.hear_vectors(port), theirs

    def test_machine_with_power_is_greeted_and_present(self):
        self.start("b", 1)
        self.assertEqual(self.present(), 2)

    def test_machines_get_each_others_vectors(self):
        _, own, _ = self.start("a", 0)
        _, _, seen = self.start("b", 1)
        self.assertEqual(self.present(), 3)
        os.eventfd_write(seen[3], 5)
        self.assertEqual(os.eventfd_read(own[3]), 5)

    def test_peer_that_goes_rings_the_others_bell(self):
        _, own, _ = self.start("a", 0)
        second, _, _ = self.start("b", 1)
        os.eventfd_read(own[ntb.VECTOR_EVENT])
        second.sock.close()
        os.set_blocking(own[ntb.VECTOR_EVENT], True)
        os.eventfd_read(own[ntb.VECTOR_EVENT])
        self.assertEqual(self.present(), 1)

    def test_bell_rung_without_power_is_lost(self):
        _, _, theirs = self.start("a", 0)
        os.eventfd_write(theirs[5], 1)
        _, own, _ = self.start("b", 1)
        with self.assertRaises(BlockingIOError):
            os.eventfd_read(own[5])

    def test_power_clears_ram_and_registers(self):
        at = 2 * ntb.PAGE_BYTES
        self.fabric.registers[at:at + 4] = b"old!"
        os.pwrite(self.fabric.ports[1].ram, b"old!", 1 << 20)
        self.start("b", 1)
        self.assertEqual(self.fabric.registers[at:at + 4], bytes(4))
        self.assertEqual(os.pread(self.fabric.ports[1].ram, 4, 1 << 20), bytes(4))

    def test_unplugged_cable_is_not_present(self):
        self.start("a", 0)
        self.fabric.plug("a", False)
        self.assertEqual(self.present(), 0)
        self.fabric.plug("a", True)
        self.assertEqual(self.present(), 1)

    def test_map_tells_where_windows_are(self):
        read = ntb.MAP.unpack_from(self.fabric.registers, ntb.MAP_AT + ntb.MAP.size)
        self.assertEqual(read[:3], (1 << 30, *ntb.windows(1024, 2)))
        self.assertIn("memmap=4M$768M", self.fabric.command_line("b"))

    def test_closing_leaves_no_descriptor(self):
        before = len(os.listdir("/proc/self/fd"))
        topo = load("[ntb f]\nports = a b\n")
        fabric = ntb.Fabric(topo.ntbs[0], topo.machines, self.fabric._pump)
        sock = fabric.connect("a")
        fabric.close()
        sock.close()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()
