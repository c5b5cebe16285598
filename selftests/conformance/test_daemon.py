# SPDX-License-Identifier: GPL-2.0
"""remora-node as a program: how it ends where it can't serve, and what remora top shows of it."""

import json
import os
import pathlib
import resource
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODE = [ROOT / "out/bin/remora-node", "--memory", "16M", "--no-lock", "--bind", "127.0.0.1", "--port", "0"]
GIB = 1 << 30


class Daemon(unittest.TestCase):
    def test_no_memory_for_another_thread(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_STACK, (GIB, GIB))  # which is a thread's
            resource.setrlimit(resource.RLIMIT_AS, (4 * GIB, 4 * GIB))
        done = subprocess.run([*NODE, "--threads", "16"], preexec_fn=limit, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual([line for line in done.stderr.splitlines() if "warning" not in line],
                         ["remora-node: no 16 threads: Resource temporarily unavailable"])

    def test_top(self):
        with tempfile.TemporaryDirectory() as folder:
            status = pathlib.Path(folder) / "status"
            ready, given = os.pipe()
            with subprocess.Popen([*NODE, "--json-status", status, "--ready-fd", str(given)], pass_fds=[given],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as node:
                os.close(given)
                try:
                    with os.fdopen(ready) as pipe:
                        port = int(pipe.readline())
                    said = subprocess.run([ROOT / "out/bin/remora", "top", "--json", "--interval", "0.01", "--socket", status],
                                          check=True, stdout=subprocess.PIPE).stdout
                finally:
                    node.terminate()
            self.assertEqual(node.returncode, 0)
            [shown] = [each for each in json.loads(said)["nodes"] if each["node"] == str(status)]
            self.assertEqual(shown["port"], port)
            self.assertEqual([shown[f"{what}_per_s"] for what in ("read", "write", "atomic", "put", "drop")], [0] * 5)


if __name__ == "__main__":
    unittest.main()
