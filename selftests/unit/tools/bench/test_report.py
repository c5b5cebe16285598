# SPDX-License-Identifier: GPL-2.0
"""Output of the benches: the table where not every peer has a figure, and what is said of goals."""

import json
import pathlib
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[4] / "tools/bench"
sys.path[:0] = [str(BENCH), str(BENCH / "lib")]

from goals import goals  # noqa: E402
from report import Samples  # noqa: E402


def row(case, metric, ours, **peers):
    return {"case": case, "metric": metric, "unit": "us", "better": "lower", "ours": ours,
            "peers": {name.replace("_", "-"): figure for name, figure in peers.items()}}


class Table(unittest.TestCase):
    def test_median_of_rounds_and_the_better_peer(self):
        samples = Samples("x", "ours")
        for who, figures in (("ours", (3, 1, 2)), ("a", (4, 4, 4)), ("b", (8, 8, 8))):
            for figure in figures:
                samples.add("read", "p50", "us", "lower", who, figure)
        self.assertEqual(samples.rows()[0]["ours"], 2)
        self.assertEqual(samples.ratio(samples.rows()[0]), 0.5)

    def test_peers_of_some_rows_only(self):
        samples = Samples("x", "ours")
        samples.add("alone", "p50", "us", "lower", "ours", 1)
        samples.add("read", "p50", "us", "lower", "ours", 1)
        samples.add("read", "p50", "us", "lower", "a", 2)
        head, alone, read = (line.split() for line in samples.table().splitlines())
        self.assertEqual(head, ["case", "metric", "ours", "a", "ratio"])
        self.assertEqual(alone[-2:], ["-", "-"])
        self.assertEqual(read[-1], "0.50")


    def test_a_floor_is_no_peer(self):
        samples = Samples("x", "ours", ("floor",))
        samples.add("read", "p50", "us", "lower", "ours", 2)
        samples.add("read", "p50", "us", "lower", "floor", 1)
        self.assertEqual(samples.table().split()[-1], "-")
        samples.add("read", "p50", "us", "lower", "a", 4)
        self.assertEqual(samples.rows()[0]["peers"], {"floor": 1, "a": 4})
        self.assertEqual(samples.ratio(samples.rows()[0]), 0.5)


class File(unittest.TestCase):
    def test_rows_of_parts_that_were_not_run_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "bench" / "x.json"
            for run, cases in ((1, ("read", "write")), (2, ("write", "copy"))):
                samples = Samples("x", "ours")
                for case in cases:
                    samples.add(case, "p50", "us", "lower", "ours", run)
                samples.write(keep=True, path=path)
            rows = json.loads(path.read_text())["rows"]
            self.assertEqual({row["case"]: row["ours"] for row in rows}, {"read": 1, "write": 2, "copy": 2})
            samples.write(path=path)
            self.assertEqual(len(json.loads(path.read_text())["rows"]), 2)


class Goals(unittest.TestCase):
    def said(self, *rows):
        return [line.split()[0] for line in goals(list(rows)).splitlines()]

    def test_latency(self):
        self.assertEqual(self.said(row("read-16b-qd1", "p50", 13, udp_floor=10, memcached=22)), ["reached", "reached"])
        self.assertEqual(self.said(row("read-16b-qd1", "p50", 14, udp_floor=10, memcached=22)), ["MISSED", "MISSED"])
        self.assertEqual(self.said(row("read-16b-qd1", "p99", 99, udp_floor=10, memcached=22)), [])

    def test_rate(self):
        for case, floor in (("read-1k-pipelined", 500), ("read-16b-pipelined", 600)):
            for ours, said in ((300, "reached"), (299, "MISSED")):
                measured = row(case, "ops-per-server-core", ours, memcached=100, udp_floor_spin=floor)
                self.assertEqual(self.said(measured), [said, said])

    def test_sessions_are_compared_with_one(self):
        rows = [row("sessions-1", "p50", 10), row("sessions-10", "p50", 11), row("sessions-100", "p50", 12)]
        self.assertEqual(self.said(*rows), ["reached", "MISSED"])

    def test_retries_below_half_and_above(self):
        rows = [row("alloc-64k-fill-50", "retries-worst", 1), row("alloc-64k-fill-60", "retries-worst", 60),
                row("alloc-64k-fill-100", "retries-worst", 2)]
        self.assertEqual(self.said(*rows), ["MISSED", "reached"])


if __name__ == "__main__":
    unittest.main()
