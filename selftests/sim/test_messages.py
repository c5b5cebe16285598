# SPDX-License-Identifier: GPL-2.0
"""Messages in remora-sim: its reports of them, and EDM's experiments in short."""

import csv
import io
import json
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIM = ROOT / "out/bin/remora-sim"


def sim(*words):
    done = subprocess.run([SIM, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{words}: {done.stderr}")
    return done.stdout


def results(*words):
    return json.loads(sim(*words, "--json", "-"))


class Messages(unittest.TestCase):
    def test_run_reports_latencies_and_slowdowns_of_reads_and_writes(self):
        result = results("--preset", "edm-144", "--messages", 5000, "--check")
        self.assertEqual(5000, result["read"]["count"] + result["write"]["count"])
        for kind in ("read", "write", "all"):
            for what in ("ns", "slowdown", "ideal"):
                figures = result[kind][what]
                self.assertLessEqual(figures["p50"], figures["p99"])
                self.assertLessEqual(figures["p99"], figures["p999"])
                self.assertLessEqual(figures["p999"], figures["max"])
            self.assertGreaterEqual(result[kind]["slowdown"]["p50"], 1)
        self.assertEqual(0, result["drops"])

    def test_same_seed_writes_the_same_json(self):
        words = ("--preset", "edm-144", "--messages", 3000, "--no-wall-time")
        first = sim(*words, "--seed", 3, "--json", "-")
        self.assertEqual(first, sim(*words, "--seed", 3, "--json", "-"))
        self.assertNotEqual(first, sim(*words, "--seed", 4, "--json", "-"))

    def test_table1_has_the_totals_of_the_paper(self):
        table = csv.DictReader(io.StringIO(sim("--preset", "edm-testbed", "--table1", "-")))
        lines = {(line["stack"], line["line"]): (line["read_ns"], line["write_ns"]) for line in table}
        for stack, total in {"edm": ("299.52", "296.96"), "raw": ("1114.88", "557.44"), "roce": ("2035.68", "1017.84"),
                             "tcp": ("3779.68", "1889.84")}.items():
            self.assertEqual(total, lines[stack, "total"])
            self.assertEqual(total, lines[stack, "simulated"])

    def test_64_byte_messages_keep_within_the_bounds_of_slowdown(self):
        for load, read, write, p99 in ((0.8, 1.11, 1.14, 1.6), (0.9, 1.22, 1.35, 2.2)):
            result = results("--preset", "edm-144", "--messages", 100_000, "--load", load)
            self.assertLessEqual(result["read"]["slowdown"]["mean"], read)
            self.assertLessEqual(result["write"]["slowdown"]["mean"], write)
            self.assertLessEqual(result["all"]["slowdown"]["p99"], p99)

    def test_leaves_schedule_together(self):
        """Messages between leaves are as little delayed as at one switch, and late data wait in bounded queues."""
        words = ("--preset", "edm-4x36", "--messages", 40_000, "--check")
        for load, mean, p99 in ((0.8, 1.1, 1.6), (0.9, 1.22, 2.2)):
            result = results(*words, "--load", load)
            self.assertLessEqual(result["all"]["slowdown"]["mean"], mean)
            self.assertLessEqual(result["all"]["slowdown"]["p99"], p99)
            self.assertLess(result["egress_peak_bytes"], 8192)
            self.assertLess(result["fabric_peak_bytes"], 1024)
            # Three of four destinations are in another leaf.
            self.assertAlmostEqual(108 / 143, result["offers"] / result["issued"], delta=0.02)

    def test_rivals_cross_the_same_leaves(self):
        """A lone message takes its budget and two hops; all messages end."""
        for transport in ("homa", "ird", "floor", "pfabric", "eqds"):
            result = results("--preset", "edm-4x36", "--leaves", 2, "--hosts-per-leaf", 8, "--spines", 2, "--transport", transport,
                             "--load", 0.2, "--messages", 1000, "--check")
            self.assertEqual(1000, result["all"]["count"])
            self.assertGreaterEqual(result["all"]["slowdown"]["p50"], 1)
            self.assertLess(result["all"]["slowdown"]["p50"], 1.1, transport)

    def test_application_sizes_keep_within_the_bounds_of_slowdown(self):
        result = results("--preset", "edm-144", "--sizes", "edm-hadoop", "--load", 0.4, "--messages", 2000)
        self.assertLessEqual(result["all"]["slowdown"]["mean"], 1.2)
        self.assertLessEqual(result["all"]["slowdown"]["p99"], 3)
        self.assertLessEqual(result["all"]["slowdown"]["max"], 8)

    def test_frames_beside_reads_cost_them_nanoseconds(self):
        words = ("--preset", "edm-144", "--read-percent", 100, "--load", 0.001, "--messages", 5000)
        idle, busy = results(*words), results(*words, "--frame-load", 0.6)
        self.assertGreater(busy["frames_received"], 100)
        self.assertLessEqual(busy["frame_wait_max_ps"], 640)
        self.assertLess(busy["read"]["ns"]["p50"], idle["read"]["ns"]["p50"] + 1)
        self.assertLess(busy["read"]["ns"]["p99"], idle["read"]["ns"]["p99"] + 10)

    def test_all_messages_end_whatever_fails(self):
        """None hangs, and the simulator ends with an error at a wrong byte."""
        words = ("--preset", "edm-144", "--hosts", 24, "--transport", "edm-udp", "--flow-bytes", 16384, "--edm-chunk-bytes",
                 16384, "--edm-unit-bytes", 1024, "--messages", 2000, "--message-rto-us", 1000, "--check")
        loss, death = ("--edm-loss-percent", 2), ("--edm-scheduler-dies-us", 100)
        for failures in ((), loss, death, ("--edm-port-down-us", 100), (*loss, *death, "--edm-port-down-us", 300)):
            result = results(*words, *failures)
            self.assertEqual(2000, result["all"]["count"])
            self.assertEqual(bool(failures), bool(result["datagrams_lost"]), failures)
            if failures == death:
                self.assertFalse(result["unscheduled"])
                for what in ("asked", "granted"):
                    self.assertLess(0, result[f"standby_{what}_ns"])
                    self.assertLessEqual(result[f"standby_{what}_ns"], result[f"standby_{what}_bound_ns"])

    def test_datagrams_can_go_in_order_within_a_pair(self):
        words = ("--preset", "edm-144", "--hosts", 4, "--transport", "edm-udp", "--sizes", "edm-hadoop", "--edm-chunk-bytes",
                 16384, "--edm-unit-bytes", 1024, "--load", 0.8, "--messages", 500)
        figures = [results(*words, *more)["all"]["ns"] for more in ((), ("--edm-in-order",))]
        self.assertNotEqual(*figures)

    def test_messages_of_a_trace_are_reported_by_its_ids(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, out = pathlib.Path(folder, "trace.csv"), pathlib.Path(folder, "messages.csv")
            trace.write_text("id,type,src,dst,bytes,read_bytes,slot\n11,1,0,1,16,4096,0\n12,3,1,2,100,-1,5\n")
            sim("--preset", "edm-144", "--hosts", 3, "--message-trace", trace, "--csv", out, "--quiet")
            lines = list(csv.DictReader(out.read_text().splitlines()))
        self.assertEqual([("12", "write", "100"), ("11", "read", "4096")],
                         [(line["id"], line["type"], line["bytes"]) for line in lines])

    def test_impossible_parameters_are_refused(self):
        for words, text in ((("--transport", "udp"), "carries no messages"), (("--load", 0), "load"),
                            (("--edm-chunk-bytes", 100), "EDM refuses"), (("--edm-loss-percent", 60), "edm-loss-percent"), (("--topology", "fat-tree"), "star"),
                            (("--topology", "leaf-spine", "--transport", "dcqcn"), "wants star"),
                            (("--topology", "leaf-spine", "--edm-matcher", "pim"), "one switch"),
                            (("--topology", "leaf-spine", "--fabric-gbps", 400), "cut through"),
                            (("--memory-hosts", 144), "memory-hosts"), (("--edm-policy", "lifo"), "edm-policy")):
            done = subprocess.run([SIM, "--preset", "edm-144", *map(str, words)], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(2, done.returncode, words)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
