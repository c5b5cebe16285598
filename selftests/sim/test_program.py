# SPDX-License-Identifier: GPL-2.0
"""The command line of remora-sim, and the files it writes."""

import csv
import json
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIM = ROOT / "out/bin/remora-sim"
MATRIX = """Nodes 16
Connections 3
0->5 id 7 start 0 size 200000
1->5 id 8 start 0 size 300000
9->2 id 9 start 1000000 size 1
"""
FILES = {"--json": "run.json", "--csv": "flows.csv", "--ports-csv": "ports.csv", "--trace": "flow.txt",
         "--pcap": "flow.pcap"}


def sim(*words):
    done = subprocess.run([SIM, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{words}: {done.stderr}")
    return done.stdout


def results(*words):
    return json.loads(sim(*words, "--json", "-"))


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.matrix = self.path / "my.cm"
        self.matrix.write_text(MATRIX)

    def run_into(self, folder, *words):
        """A run that writes every kind of file; their contents by name."""
        (self.path / folder).mkdir()
        options = [word for option, name in FILES.items() for word in (option, self.path / folder / name)]
        sim(self.matrix, "--preset", "htsim-eqds", "--no-wall-time", "--quiet", "--watch", 8, *options, *words)
        return {one.name: one.read_bytes() for one in (self.path / folder).iterdir()}

    def test_matrix_run_with_htsim_preset_reports_each_flow(self):
        result = results(self.matrix, "--preset", "htsim-eqds", "--check")
        self.assertGreater(result["events"], 0)
        self.assertGreater(result["seconds"], 0)
        flows = {flow["id"]: flow for flow in result["flows"]}
        self.assertEqual({7: 200000, 8: 300000, 9: 1}, {id: flow["bytes"] for id, flow in flows.items()})
        for flow in flows.values():
            self.assertGreater(flow["fct_us"], 0)
            self.assertGreaterEqual(flow["retransmissions"], 0)
        self.assertLess(flows[7]["fct_us"], flows[8]["fct_us"])

    def test_same_seed_writes_the_same_bytes(self):
        first = self.run_into("first", "--seed", 5)
        self.assertEqual(sorted(FILES.values()), sorted(first))
        self.assertEqual(first, self.run_into("again", "--seed", 5))
        self.assertNotEqual(first["flow.txt"], self.run_into("other", "--seed", 6)["flow.txt"])

    def test_seeds_run_in_processes_write_the_bytes_of_single_runs(self):
        together = self.run_into("together", "--seeds", "3-5", "--jobs", 3)
        self.assertEqual(3 * len(FILES), len(together))
        for seed in (3, 4, 5):
            for name, content in self.run_into(f"alone{seed}", "--seed", seed).items():
                stem, suffix = name.split(".")
                self.assertEqual(content, together[f"{stem}.{seed}.{suffix}"], f"{name} of seed {seed}")

    def test_command_line_wins_over_the_file_and_the_file_over_the_preset(self):
        config = self.path / "my.json"
        config.write_text('{"eqds-window": 3, "hop-us": 2}')
        words = (self.matrix, "--preset", "htsim-eqds", "--config", config)
        slow = results(*words, "--hop-us", 9)["flows"]
        same = (self.matrix, "--preset", "htsim-eqds", "--eqds-window", 3)
        self.assertEqual(slow, results(*same, "--hop-us", 9)["flows"])
        self.assertEqual(results(*words)["flows"], results(*same, "--hop-us", 2)["flows"])

    def test_wrong_parameter_is_refused_with_one_line(self):
        for words in (("--queue", "none"), ("--preset", "none"), ("--hop-us", "far"), ("--no-such-thing",)):
            done = subprocess.run([SIM, self.matrix, *words], capture_output=True, text=True, check=False)
            with self.subTest(words):
                self.assertEqual(2, done.returncode)
                self.assertEqual(1, done.stderr.count("\n"), done.stderr)

    def test_capture_has_whole_ip_packets_in_the_order_of_time(self):
        content = self.run_into("capture")["flow.pcap"]
        magic, major, minor, _, _, snaplen, _ = struct.unpack_from("<IHHiIII", content)
        self.assertIn(magic, (0xa1b2c3d4, 0xa1b23c4d))
        self.assertEqual((2, 4), (major, minor))
        at, packets, last = 24, 0, (0, 0)
        while at < len(content):
            seconds, fraction, kept, length = struct.unpack_from("<IIII", content, at)
            self.assertLessEqual(last, (seconds, fraction))
            self.assertLessEqual(kept, min(length, snaplen))
            at, packets, last = at + 16 + kept, packets + 1, (seconds, fraction)
        self.assertEqual(len(content), at)
        self.assertGreater(packets, 2 * 300000 // 4150)

    @unittest.skipUnless(shutil.which("tcpdump"), "tcpdump isn't installed")
    def test_tcpdump_reads_the_capture_as_tunnel_packets(self):
        self.run_into("capture")
        done = subprocess.run(["tcpdump", "-nr", self.path / "capture" / "flow.pcap"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        lines = done.stdout.splitlines()
        self.assertGreater(len(lines), 100)
        self.assertEqual([], [line for line in lines if " IP " not in line or "UDP" not in line])

    def test_memory_grows_no_faster_than_the_hosts(self):
        words = ("--preset", "htsim-eqds", "--workload", "permutation", "--flow-bytes", 100000)
        few, many = (results(*words, "--k", k) for k in (8, 16))
        self.assertEqual(8, many["hosts"] / few["hosts"])
        self.assertLess(many["memory_bytes"] / few["memory_bytes"], 8 * 1.5)

    def test_flows_end_though_tunnels_give_packets_up(self):
        """A packet is given up when it is trimmed for the first time. The flow sends its bytes again."""
        run = results("--topology", "leaf-spine", "--leaves", 1, "--spines", 1, "--hosts-per-leaf", 9, "--queue", "trim",
                      "--queue-packets", 8, "--transport", "eqds", "--workload", "incast", "--flow-bytes", 300000,
                      "--eqds-strikes", 1, "--check")
        self.assertTrue(sum(flow["edge_drops"] for flow in run["flows"]))
        self.assertEqual({300000}, {flow["delivered_bytes"] for flow in run["flows"]})

    def test_marks_of_an_oversubscribed_core_bound_its_trims(self):
        """Four hosts send over one link of their own speed to four others."""
        words = ("--topology", "leaf-spine", "--leaves", 2, "--spines", 1, "--hosts-per-leaf", 8, "--fabric-gbps", 10,
                 "--queue", "trim", "--queue-packets", 15, "--transport", "eqds", "--eqds-window", 10, "--check",
                 "--end-us", 20000)
        matrix = self.path / "core.cm"
        matrix.write_text("Nodes 16\nConnections 4\n" +
                          "".join(f"{i}->{8 + i} id {i + 1} start 0 size 0\n" for i in range(4)))
        flows = [results(matrix, *words, "--mark-packets", packets)["flows"] for packets in (0, 8)]
        trims = [sum(flow["trims"] for flow in run) / sum(flow["packets"] for flow in run) for run in flows]
        delivered = [sum(flow["delivered_bytes"] for flow in run) for run in flows]
        self.assertGreater(trims[0], 0.3)
        self.assertLess(trims[1], trims[0] / 4)
        self.assertGreater(delivered[1], delivered[0])


class Paper(unittest.TestCase):
    def test_table_has_the_figures_of_the_runs_that_are_there(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([ROOT / "tools/sim/paper", "--only", "pair-cubic", "--out", folder], check=True,
                           capture_output=True)
            out = pathlib.Path(folder)
            rows = {row[1].strip(): row[3].strip() for row in
                    csv.reader((out / "table.md").read_text().splitlines(), delimiter="|")}
            self.assertEqual("not run", rows["permutation, TCP"])
            over = rows["Cubic beside cubic: Gb/s without; with EQDS"].split(";")[1]
            one, other = map(float, over.split("+"))
            self.assertAlmostEqual(one / other, 1, delta=0.05)


if __name__ == "__main__":
    unittest.main()
