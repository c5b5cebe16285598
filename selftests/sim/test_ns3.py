# SPDX-License-Identifier: GPL-2.0
"""remora-sim beside ns-3: a dumbbell with NewReno and with DCTCP. Skipped where ns-3 (Debian's libns3-dev) isn't."""

import csv
import json
import os
import pathlib
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIM = ROOT / "out/bin/remora-sim"
SOURCE = pathlib.Path(__file__).with_name("dumbbell_ns3.cpp")
MODULES = ["ns3-applications", "ns3-internet", "ns3-point-to-point", "ns3-traffic-control"]
FLOWS, HOST_GBPS, BOTTLENECK_GBPS, HOP_US, QUEUE_PACKETS, MARK_PACKETS = 4, 10, 1, 10, 100, 30
END_MS, WARMUP_MS = 1000, 200


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{shlex.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def build_ns3(out):
    """The ns-3 program. Its headers want C++17; of its libraries only its own are linked."""
    flags = run("pkg-config", "--cflags", *MODULES).split()
    libraries = [word for word in run("pkg-config", "--libs", *MODULES).split() if word.startswith("-lns3")]
    run(*shlex.split(os.environ.get("CXX", "g++")), "-std=c++17", "-O2", "-w", *flags, SOURCE, "-o", out,
        "-Wl,--allow-shlib-undefined", *libraries)


def has_ns3():
    try:
        return subprocess.run(["pkg-config", "--exists", *MODULES], check=False).returncode == 0
    except FileNotFoundError:
        return False


@unittest.skipUnless(has_ns3(), "ns-3 isn't installed (apt-get install libns3-dev)")
class Dumbbell(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        build_ns3(cls.path / "dumbbell_ns3")
        lines = [f"{i}->{i + FLOWS} id {i + 1} start 0 size 0" for i in range(FLOWS)]
        (cls.path / "dumbbell.cm").write_text(
            f"Nodes {2 * FLOWS}\nConnections {FLOWS}\n" + "".join(line + "\n" for line in lines))
        cls.results = {kind: (cls.ours(kind), cls.theirs(kind)) for kind in ("newreno", "dctcp")}

    @classmethod
    def theirs(cls, kind):
        return json.loads(run(cls.path / "dumbbell_ns3", kind, FLOWS, HOST_GBPS, BOTTLENECK_GBPS, HOP_US,
                              QUEUE_PACKETS, MARK_PACKETS, END_MS, WARMUP_MS))

    @classmethod
    def ours(cls, kind):
        ports = cls.path / "ports.csv"
        text = run(SIM, cls.path / "dumbbell.cm", "--topology", "dumbbell", "--transport", kind,
                   "--host-gbps", HOST_GBPS, "--fabric-gbps", BOTTLENECK_GBPS, "--hop-us", HOP_US,
                   "--queue-packets", QUEUE_PACKETS, "--mark-packets", MARK_PACKETS if kind == "dctcp" else 0,
                   "--mtu-bytes", 1500, "--rto-min-us", 10000, "--end-us", END_MS * 1000,
                   "--warmup-us", WARMUP_MS * 1000, "--json", "-", "--ports-csv", ports)
        result = json.loads(text)
        with open(ports, encoding="ascii") as lines:
            queue = next(line for line in csv.DictReader(lines) if line["port"] == "left>right")
        return {"throughput_bps": sum(flow["throughput_bps"] for flow in result["flows"]),
                "mean_queue_bytes": float(queue["mean_bytes"]), "events": result["events"],
                "cpu_seconds": result["cpu_seconds"]}

    def test_throughput_is_within_a_tenth_of_ns3(self):
        for kind, (ours, theirs) in self.results.items():
            with self.subTest(kind):
                self.assertAlmostEqual(ours["throughput_bps"] / theirs["throughput_bps"], 1, delta=0.1)

    def test_mean_queue_is_within_a_tenth_of_ns3(self):
        for kind, (ours, theirs) in self.results.items():
            with self.subTest(kind):
                self.assertAlmostEqual(ours["mean_queue_bytes"] / theirs["mean_queue_bytes"], 1, delta=0.1)

    def test_same_packets_take_a_fifth_of_the_time_of_ns3_or_less(self):
        """CPU time, side by side: both simulate the same second."""
        for kind, (ours, theirs) in self.results.items():
            print(f"# {kind}: throughput {ours['throughput_bps'] / 1e6:.1f} and {theirs['throughput_bps'] / 1e6:.1f} Mb/s"
                  f" (ns-3), mean queue {ours['mean_queue_bytes']:.0f} and {theirs['mean_queue_bytes']:.0f} bytes,"
                  f" {ours['events'] / ours['cpu_seconds'] / 1e6:.1f} and"
                  f" {theirs['events'] / theirs['cpu_seconds'] / 1e6:.2f} million events per CPU second,"
                  f" {ours['cpu_seconds']:.2f} and {theirs['cpu_seconds']:.2f} s")
            with self.subTest(kind):
                self.assertGreater(theirs["cpu_seconds"] / ours["cpu_seconds"], 5)
                self.assertGreater(ours["events"] / ours["cpu_seconds"],
                                   5 * theirs["events"] / theirs["cpu_seconds"])


if __name__ == "__main__":
    unittest.main()
