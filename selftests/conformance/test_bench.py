# SPDX-License-Identifier: GPL-2.0
"""remora bench, by a node inside the process: its figures fit together. None of them is judged."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

REMORA = pathlib.Path(__file__).resolve().parents[2] / "out/bin/remora"


def bench(*words, code=0):
    done = subprocess.run([REMORA, "bench", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done
    return done.stderr if code else done.stdout


class Bench(unittest.TestCase):
    def test_figures_fit_together(self):
        for write in ((), ("--write",)):
            told = json.loads(bench("embedded:size=8M", "--region", "4M", "--seconds", "0.2", "--depth", "4", "--json", *write))
            self.assertEqual((told["operation"], told["bytes"]), ("write" if write else "read", 4096))
            self.assertEqual([run["depth"] for run in told["runs"]], [1, 4])
            for run in told["runs"]:
                self.assertAlmostEqual(run["bytes_per_s"], run["per_s"] * 4096, delta=1)
                counted = sum(bucket["count"] for bucket in run["histogram"])
                self.assertAlmostEqual(counted, run["per_s"] * told["seconds"], delta=1)
                order = [run[f"{name}_ns"] for name in ("p50", "p90", "p99", "p99.9", "max")]
                self.assertEqual(order, sorted(order))
                self.assertGreater(run["histogram"][-1]["below_ns"], run["max_ns"])

    def test_table_has_a_row_for_each_depth(self):
        lines = bench("embedded:size=8M", "--region", "1M", "--seconds", "0.1", "--bytes", "64").splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["DEPTH", "1", "32"])

    def test_signal_frees_the_region(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path, key = f"{folder}/control", f"{folder}/key"
        subprocess.run([REMORA, "key", "new", key], check=True, timeout=60)
        ready, given = os.pipe()
        node = self.enterContext(subprocess.Popen(
            [REMORA.with_name("remora-node"), "--memory", "16M", "--no-lock", "--bind", "127.0.0.1", "--port", "0", "--space",
             f"1={key}", "--socket", path, "--ready-fd", str(given)], pass_fds=[given], stdout=subprocess.DEVNULL))
        self.addCleanup(node.terminate)
        os.close(given)
        with os.fdopen(ready) as pipe:
            port = int(pipe.readline())

        def regions():
            told = subprocess.run([REMORA, "node", "status", "--json", "--socket", path], capture_output=True, check=True,
                                  timeout=60)
            return json.loads(told.stdout)["regions"]

        with subprocess.Popen([REMORA, "bench", f"udp:127.0.0.1:{port},key={key}", "--region", "4M", "--seconds", "3600"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as asking:
            while not regions():
                self.assertIsNone(asking.poll())
            asking.send_signal(signal.SIGINT)
            self.assertEqual(asking.communicate(timeout=60)[1], "remora: interrupted\n")
        self.assertEqual((asking.returncode, regions()), (1, 0))

    def test_wrong_use_is_told(self):
        self.assertIn("--io-cost measures a block device, and writes to it", bench("embedded:size=8M", "--io-cost", code=2))
        self.assertIn("of a device a multiple of 4096", bench("/dev/null", "--bytes", "100", code=2))
        self.assertIn("can't open the block device /dev/null", bench("/dev/null", code=1))
        self.assertIn("smaller than an operation", bench("embedded:size=8M", "--region", "64K", "--bytes", "1M", code=1))


if __name__ == "__main__":
    unittest.main()
