# SPDX-License-Identifier: GPL-2.0
"""A remora-node for a bench: pinned to a processor, with keys, rings, a UDP port and a control socket of its own."""

import contextlib
import os
import pathlib
import subprocess
import tempfile

from remoralab import say

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = REPO / "out/bin"
NODE_CPU, CLIENT_CPU = 0, 1


def pinned(cpu, *command):
    return ["taskset", "-c", str(cpu), "setpriv", "--pdeathsig", "KILL", *map(str, command)]


class Node:
    """rings, udp: targets in which {} is a space's number, from 1 on."""

    def __init__(self, process, port, folder):
        self.pid = process.pid
        self.rings = f"shm:{folder}/rings,key={folder}/key{{}},space={{}}"
        self.udp = f"udp:127.0.0.1:{port},key={folder}/key{{}},space={{}}"


@contextlib.contextmanager
def started(memory, *options, spaces=1, offload=None):
    """A node that serves; an offload is loaded for space 1."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        keys = []
        for space in range(1, spaces + 1):
            subprocess.run([BIN / "remora", "key", "new", folder / f"key{space}"], check=True, stdout=subprocess.DEVNULL)
            keys += ["--space", f"{space}={folder}/key{space}"]
        ready, given = os.pipe()
        with subprocess.Popen(pinned(NODE_CPU, BIN / "remora-node", "--memory", memory, "--no-lock", "--bind", "127.0.0.1",
                                     "--port", "0", "--shm", folder / "rings", "--socket", folder / "control", *keys,
                                     "--ready-fd", given, *options), pass_fds=[given], stdout=subprocess.DEVNULL) as process:
            os.close(given)
            try:
                with os.fdopen(ready) as pipe:
                    line = pipe.readline()
                if not line:
                    raise say.LabError("remora-node ended before it served: see its words above")
                if offload:
                    subprocess.run([BIN / "remora", "node", "offload", "load", REPO / f"out/lib/offload/{offload}.so", "--space",
                                    "1", "--socket", folder / "control"], check=True, stdout=subprocess.DEVNULL)
                yield Node(process, int(line), folder)
            finally:
                process.terminate()
