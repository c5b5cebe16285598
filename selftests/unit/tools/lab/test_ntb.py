# SPDX-License-Identifier: GPL-2.0
"""NTBs in topology files."""

import pathlib
import re
import sys
import tempfile
import types
import unittest

REPO = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(REPO / "tools" / "lab"))

from remoralab import ntb, topology  # noqa: E402
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

    def test_windows_can_be_bounded(self):
        [spec] = load("[ntb f]\nports = a b\nwindow = 1M\n").ntbs
        self.assertEqual(spec.window_mib, 1)
        self.refused("[ntb f]\nports = a b\nwindow = 64k\n", "write it as")

    def test_user_mode_linux_is_refused(self):
        topo = load("[ntb f]\nports = a b\n")
        topo.machines["b"].kernel = "uml"
        with self.assertRaisesRegex(LabError, "needs PCI"):
            ntb.Fabrics(types.SimpleNamespace(topology=topo, pump=None))

    def test_bounds_match_the_header(self):
        self.assertEqual(int(re.search(r"define NTB_PORTS_MAX (\w+)", HEADER)[1]), topology.NTB_PORTS_MAX)

    def test_denied_pairs_become_rules_both_ways(self):
        [spec] = load("[ntb f]\nports = a b\ndeny = a-b\n").ntbs
        self.assertEqual(spec.access, [{"from": "a", "to": "b", "may": "nothing"}, {"from": "b", "to": "a", "may": "nothing"}])
        self.refused("[ntb f]\nports = a b\ndeny = a-c\n", "two of its machines")
        self.refused("[ntb f]\nports = a b\ndeny = a\n", "two of its machines")


if __name__ == "__main__":
    unittest.main()
