# SPDX-License-Identifier: GPL-2.0
"""A remora-node for tests of Python programs, and the package as it lies in the tree."""

import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "out/bin"
sys.path.insert(0, str(ROOT / "libremote/python"))
import remora  # noqa: E402


def new_key(path):
    path.write_text(secrets.token_hex(16) + "\n")
    path.chmod(0o600)


class Node:
    """A daemon with space 1, by UDP and by rings."""

    def __init__(self, folder, *words, memory="64M"):
        self.folder, self.words, self.memory = pathlib.Path(folder), words, memory
        self.key, self.rings, self.control = (self.folder / name for name in ("key", "rings", "control"))
        new_key(self.key)
        self.port, self.process = 0, None
        self.start()

    def start(self):
        ready, given = os.pipe()
        self.process = subprocess.Popen(
            [BIN / "remora-node", "--memory", self.memory, "--no-lock", "--bind", "127.0.0.1", "--port", str(self.port), "--space",
             f"1={self.key}", "--shm", self.rings, "--socket", self.control, "--ready-fd", str(given), *self.words],
            pass_fds=[given], stdout=subprocess.DEVNULL)
        os.close(given)
        with os.fdopen(ready) as pipe:
            self.port = int(pipe.readline())

    def target(self, transport):
        return f"udp:127.0.0.1:{self.port},key={self.key}" if transport == "udp" else f"shm:{self.rings},key={self.key}"

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(60)

    def restart(self):
        self.stop()
        self.start()

    def pause(self):
        """The node answers nothing until go()."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def go(self):
        os.kill(self.process.pid, signal.SIGCONT)


class Interrupt(BaseException):
    """Raised by a signal, as KeyboardInterrupt is by Ctrl-C."""


class Served(unittest.TestCase):
    """Tests with a node that the tests of a class share, and a handle for each."""

    transport = "udp"

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.node = Node(folder.name)
        cls.addClassCleanup(cls.node.stop)

    def open(self, **options):
        handle = remora.open(self.node.target(self.transport), **options)
        self.addCleanup(handle.close)
        return handle

    def setUp(self):
        self.handle = self.open()

    def tearDown(self):
        self.node.go()  # before cleanups, which need it

    def interrupted(self, native, call, then=lambda: None):
        """Runs call in this thread, which has to be the main one. A signal comes while it is in a call of the library; then
        `then` runs in another thread. True if the signal's exception ended call."""
        def handler(*_):
            raise Interrupt

        def interrupt():
            while not native._calls:
                pass
            os.kill(os.getpid(), signal.SIGUSR1)
            then()

        before = signal.signal(signal.SIGUSR1, handler)
        other = threading.Thread(target=interrupt)
        other.start()
        try:
            call()
            other.join()
        except Interrupt:
            return True
        finally:
            other.join()
            signal.signal(signal.SIGUSR1, before)
        return False

    def fails(self, error, call, *words, **named):
        """call raises a remora.Error of that errno, which says something."""
        with self.assertRaises(remora.Error) as caught:
            call(*words, **named)
        self.assertEqual(caught.exception.errno, error, caught.exception)
        self.assertTrue(caught.exception.strerror)
        return caught.exception
