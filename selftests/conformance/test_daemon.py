# SPDX-License-Identifier: GPL-2.0
"""remora-node as a program: how it ends where it can't serve, and what remora top shows of it."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODE = [ROOT / "out/bin/remora-node", "--memory", "16M", "--no-lock", "--bind", "127.0.0.1"]
ANY_PORT = ["--port", "0"]
GIB = 1 << 30


class Daemon(unittest.TestCase):
    def test_no_memory_for_another_thread(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_STACK, (GIB, GIB))  # which is a thread's
            resource.setrlimit(resource.RLIMIT_AS, (4 * GIB, 4 * GIB))
        done = subprocess.run([*NODE, *ANY_PORT, "--threads", "16"], preexec_fn=limit, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual([line for line in done.stderr.splitlines() if "warning" not in line],
                         ["remora-node: no 16 threads: Resource temporarily unavailable"])

    def refused(self, *words):
        done = subprocess.run([*NODE, *words], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done)
        return [line for line in done.stderr.splitlines() if "warning" not in line]

    @contextlib.contextmanager
    def node(self, *words, stdout=subprocess.DEVNULL):
        """A node that is ready, and its port."""
        ready, given = os.pipe()
        with subprocess.Popen([*NODE, *ANY_PORT, *words, "--ready-fd", str(given)], pass_fds=[given], stdout=stdout,
                              stderr=subprocess.DEVNULL) as node:
            os.close(given)
            try:
                with os.fdopen(ready) as pipe:
                    yield node, int(pipe.readline())
            finally:
                node.terminate()
        self.assertEqual(node.returncode, 0)

    def test_a_port_belongs_to_one_daemon(self):
        for threads in ("1", "2"):
            with self.node("--threads", threads) as (_, port):
                for others in ("1", "2"):
                    self.assertEqual(self.refused("--threads", others, "--port", str(port)),
                                     [f"remora-node: UDP port {port} is in use: choose another --port"])

    def test_status_socket_replaces_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "key"
            path.write_text("precious")
            self.assertEqual(self.refused(*ANY_PORT, "--json-status", path),
                             [f"remora-node: --json-status {path} is there and is no socket: choose another path"])
            self.assertEqual(path.read_text(), "precious")
            # A socket that nobody serves is replaced; what another put in its place stays.
            stale = pathlib.Path(folder) / "status"
            with socket.socket(socket.AF_UNIX) as abandoned:
                abandoned.bind(str(stale))
            with self.node("--json-status", stale):
                stale.unlink()
                stale.write_text("precious")
            self.assertEqual(stale.read_text(), "precious")

    def test_lends_on_when_its_reader_has_gone(self):
        reader, writer = os.pipe()
        with tempfile.TemporaryDirectory() as folder:
            status = pathlib.Path(folder) / "status"
            with self.node("--json-status", status, stdout=writer) as (node, port):
                os.close(reader)
                os.close(writer)
                node.send_signal(signal.SIGUSR1)  # the node prints, and then serves the status socket
                with socket.socket(socket.AF_UNIX) as asking:
                    asking.connect(str(status))
                    self.assertEqual(json.load(asking.makefile())["port"], port)

    def test_top(self):
        with tempfile.TemporaryDirectory() as folder:
            status = pathlib.Path(folder) / "status"
            with self.node("--json-status", status) as (_, port):
                said = subprocess.run([ROOT / "out/bin/remora", "top", "--json", "--interval", "0.01", "--socket", status],
                                      check=True, stdout=subprocess.PIPE).stdout
            [shown] = [each for each in json.loads(said)["nodes"] if each["node"] == str(status)]
            self.assertEqual(shown["port"], port)
            self.assertEqual([shown[f"{what}_per_s"] for what in ("read", "write", "atomic", "put", "drop")], [0] * 5)


if __name__ == "__main__":
    unittest.main()
