# SPDX-License-Identifier: GPL-2.0
"""remora-node --store: it is killed under load, again and again, and its clients notice a pause alone.

The load is checked: integers whose values found tell each execution, bytes read back, memory that is allocated and freed,
locks. test_store.py SEED KILLS plays one run."""

import contextlib
import ctypes
import json
import multiprocessing
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "selftests/conformance"))  # the processes that it spawns import it
NODE = [ROOT / "out/bin/remora-node", "--no-lock", "--bind", "127.0.0.1"]
MEMORY = ["--memory", "32M"]
PAGE = 64 << 10
RW, ADD = 3, 3
KEY = "00112233445566778899aabbccddeeff"
KILLS = 12


class Handle:
    """A handle of libremote. An error is an OSError."""

    lib = None

    def __init__(self, target):
        if not Handle.lib:
            lib = Handle.lib = ctypes.CDLL(ROOT / "out/lib/libremote.so.0")
            lib.remote_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
            lib.remote_why.restype = ctypes.c_char_p
            u64, size, at = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
            for name, types in {"alloc": [u64, ctypes.c_uint, at], "free": [u64], "read": [u64, at, size],
                                "write": [u64, at, size], "fetch": [u64, size, ctypes.c_int, u64, at],
                                "lock": [u64], "unlock": [u64], "publish": [ctypes.c_char_p, u64],
                                "lookup": [ctypes.c_char_p, at, at]}.items():
                getattr(lib, "remote_" + name).argtypes = [at, *types]
            lib.remote_close.argtypes = [at]
            lib.remote_close.restype = None
        self.r = ctypes.c_void_p()
        error = self.lib.remote_open(ctypes.byref(self.r), target.encode(), None)
        if error:
            raise OSError(-error, self.lib.remote_why().decode())

    def __getattr__(self, name):
        function = getattr(self.lib, "remote_" + name)

        def call(*words):
            error = function(self.r, *words)
            if error < 0:
                raise OSError(-error, f"{name}: {os.strerror(-error)}")
            return error
        return call

    def alloc_at(self, size):
        address = ctypes.c_uint64()
        self.alloc(size, RW, ctypes.byref(address))
        return address.value

    def add(self, address, value=1):
        found = ctypes.c_uint64()
        self.fetch(address, 8, ADD, value, ctypes.byref(found))
        return found.value

    def put(self, address, data):
        self.write(address, data, len(data))

    def get(self, address, size):
        data = ctypes.create_string_buffer(size)
        self.read(address, data, size)
        return data.raw

    def end(self):
        self.lib.remote_close(self.r)


def work(target, number, seed, counter, lock, turns, stop, results):
    """Until stop is set; turns[number] counts.

    Results: the values found, the number of holds of the lock, the longest turn."""
    chance = random.Random(f"{seed} {number}")
    found, holds, longest, turn = [], 0, 0, 0
    try:
        remote = Handle(target)
        own = remote.alloc_at(4 * PAGE)
        while not stop.is_set():
            turn += 1
            began = time.monotonic()
            found.append(remote.add(counter))
            size = chance.choice([8, 100, 4096, 30000])
            at = own + chance.randrange(4 * PAGE - size)
            data = chance.randbytes(size)
            remote.put(at, data)
            if remote.get(at, size) != data:
                raise ValueError(f"{size} bytes at {at:#x} aren't those that were written")
            if turn % 8 == 0:
                extra = remote.alloc_at(2 * PAGE)
                if remote.get(extra, 2 * PAGE) != bytes(2 * PAGE):
                    raise ValueError("new memory isn't zero")
                remote.put(extra + 100, data)
                if remote.get(extra + 100, size) != data:
                    raise ValueError("new memory isn't what was written")
                remote.free(extra)
            if turn % 4 == 0:
                remote.lock(lock)
                held = int.from_bytes(remote.get(counter + 8, 8), "little")
                remote.put(counter + 8, (held + 1).to_bytes(8, "little"))
                remote.unlock(lock)
                holds += 1
            longest = max(longest, time.monotonic() - began)
            turns[number] = turn
        remote.free(own)
        remote.end()
        results.put((number, None, found, holds, longest))
    except (OSError, ValueError) as error:
        results.put((number, f"turn {turn}: {error}", found, holds, longest))


class Store(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/dev/shm")  # a tmpfs
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.key = self.folder / "key"
        self.key.write_text(KEY + "\n")
        self.key.chmod(0o600)
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one:
            one.bind(("::", 0))
            self.port = one.getsockname()[1]
        self.node = None
        self.addCleanup(self.end)

    def end(self):
        if self.node:
            self.node.kill()
            self.node.communicate()
            self.node = None

    @property
    def target(self):
        return f"udp:127.0.0.1:{self.port},key={self.key}"

    @property
    def control(self):
        return self.folder / "control"

    def start(self, *words, store=None, memory=MEMORY, space=None, **options):
        """The daemon, ready; the lines that it said before."""
        self.node = subprocess.Popen(
            [*NODE, *memory, "--port", str(self.port), "--space", space or f"1={self.key}", "--store", store or self.folder,
             "--socket", self.control, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        said = []
        for line in self.node.stdout:
            said.append(line.strip())
            if "ready on port" in line:
                return said
        self.fail(f"the daemon isn't ready: {said}")

    def kill(self, how=signal.SIGKILL):
        self.node.send_signal(how)
        self.node.communicate()
        code, self.node = self.node.returncode, None
        return code

    def ask(self, **request):
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self.control))
            control.sendall((json.dumps(request) + "\n").encode())
            return json.loads(control.makefile().readline())

    def status(self):
        return self.ask(verb="status")["status"]

    def load_through(self, ends, seed, *words, rings=False):
        """Clients at work while the node ends and starts again, as ends says. Each has gone on in between."""
        chance = random.Random(seed)
        self.start("--shm", str(self.folder / "rings"), *words)
        boot = self.status()["boot"]
        remote = Handle(self.target)
        shared = remote.alloc_at(PAGE)
        lock = shared + 4096
        remote.publish(b"shared", shared)
        targets = [self.target, self.target + ",integrity=link", self.target + ",integrity=sealed"]
        if rings:
            targets.append(f"shm:{self.folder}/rings,key={self.key}")
        context = multiprocessing.get_context("spawn")
        turns, stop, results = context.Array("Q", len(targets)), context.Event(), context.Queue()
        workers = [context.Process(target=work, args=(target, number, seed, shared, lock, turns, stop, results), daemon=True)
                   for number, target in enumerate(targets)]
        for worker in workers:
            worker.start()
        before, pauses = [0] * len(targets), []
        for how in ends:
            deadline = time.monotonic() + 60
            while any(now == then for now, then in zip(turns, before)):
                if time.monotonic() > deadline:
                    self.fail(f"clients stand still: {list(turns)}")
                if not results.empty():
                    self.fail(results.get()[1])
                time.sleep(0.01)
            before = list(turns)
            time.sleep(chance.random() * 0.1)
            began = time.monotonic()
            self.kill(how)
            said = self.start("--shm", str(self.folder / "rings"), *words)
            pauses.append(time.monotonic() - began)
            self.assertTrue(any("took over" in line for line in said), said)
        stop.set()
        outcomes = [results.get(timeout=60) for _ in workers]
        for worker in workers:
            worker.join()
        self.assertEqual([error for _, error, *_ in outcomes if error], [])
        found = sorted(value for _, _, values, _, _ in outcomes for value in values)
        self.assertEqual(found, list(range(len(found))), "an addition was executed twice, or not at all")
        self.assertEqual(remote.add(shared), len(found))
        self.assertEqual(int.from_bytes(remote.get(shared + 8, 8), "little"), sum(holds for _, _, _, holds, _ in outcomes),
                         "two held the lock at once")
        address = ctypes.c_uint64()
        size = ctypes.c_uint64()
        remote.lookup(b"shared", ctypes.byref(address), ctypes.byref(size))
        self.assertEqual((address.value, size.value), (shared, PAGE))
        status = self.status()
        self.assertEqual((status["boot"], status["regions"]), (boot, 1))
        print(f"# seed {seed}: {len(ends)} ends, at most {max(pauses):.2f} s without a daemon; {len(found)} additions, the longest "
              f"turn by client {[round(longest, 2) for *_, longest in sorted(outcomes)]} s", flush=True)
        remote.free(shared)
        remote.end()

    def test_killed_node_loses_nothing(self):
        seed = int(os.environ.get("REMORA_STORE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
        with self.subTest(replay=f"REMORA_STORE_SEED={seed}"):
            self.load_through([signal.SIGKILL] * KILLS, seed)

    def test_killed_node_of_threads_loses_nothing(self):
        seed = int(os.environ.get("REMORA_STORE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
        with self.subTest(replay=f"REMORA_STORE_SEED={seed}"):
            self.load_through([signal.SIGKILL] * (KILLS // 2), seed, "--threads", "3", rings=True)

    def test_restarted_node_loses_nothing(self):
        self.load_through([signal.SIGTERM] * 2, 1, rings=True)

    def test_the_unit_restarts_it_after_each_signal_and_failure(self):
        self.start()
        self.assertEqual(self.kill(signal.SIGTERM), 0)
        unit = (ROOT / "tools/systemd/remora-node.service.in").read_text().splitlines()
        self.assertIn("Restart=always", unit)
        self.assertIn("StartLimitIntervalSec=0", unit)

    def test_a_store_of_another_size_is_refused_and_stays(self):
        self.start()
        boot = self.status()["boot"]
        remote = Handle(self.target)
        address = remote.alloc_at(PAGE)
        remote.put(address, b"data")
        self.kill()
        self.refused("the store can't be taken over: it was made with other sizes: --memory,", memory=["--memory", "16M"])
        self.start()
        self.assertEqual(self.status()["boot"], boot)
        self.assertEqual(remote.get(address, 4), b"data")
        remote.end()

    def refused(self, why, *words, space=None, memory=MEMORY, store=None):
        """The daemon doesn't start; its line on standard error has why."""
        done = subprocess.run([*NODE, *memory, "--port", "0", "--space", space or f"1={self.key}", "--store",
                               store or self.folder, *words], capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(why, done.stderr)

    def test_a_store_that_has_no_room_can_be_given_another_size(self):
        if os.geteuid():
            self.skipTest("mounting wants root")
        small = self.folder / "small"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24M", "tmpfs", small], check=True)
        self.addCleanup(subprocess.run, ["umount", small], check=True)
        self.addCleanup(self.end)
        self.refused(" for the store: No space left", store=small)
        self.start(store=small, memory=["--memory", "16M"])

    def test_a_quota_below_a_page_is_refused(self):
        self.start()
        self.kill()
        self.refused("space 1 has a quota below one page", space=f"1={self.key},quota=1K")

    def test_large_pages_are_refused(self):
        self.refused("--store takes pages up to 128K, not 4M", "--page", "4M")
        # The unit has --store whatever the operator's pages are.
        said = self.start("--page", "4M", store="systemd", stdin=subprocess.DEVNULL)
        self.assertIn("remora-node: warning: --store keeps nothing: it takes pages up to 128K: lower --page", said)

    def test_a_level_that_sessions_do_not_meet_is_refused(self):
        self.start()
        remote = Handle(self.target)
        self.kill()
        self.refused("space 1 has sessions in the store that aren't sealed", space=f"1={self.key},require=sealed")
        self.start()
        remote.end()
        self.kill()
        self.start(space=f"1={self.key},require=sealed")

    def test_a_view_has_the_level_of_its_space(self):
        self.start()
        self.assertEqual(self.ask(verb="space add", space=2, key=KEY[::-1], read_only_of=1), {"ok": True})
        self.kill()
        self.start(space=f"1={self.key},require=sealed")
        self.assertEqual([space["sealed_only"] for space in self.ask(verb="space list")["spaces"]], [True, True])

    def test_other_options_are_refused_in_one_line(self):
        self.start()
        self.kill()
        # A size that changes the file's size by less than its alignment.
        self.refused("it was made with other sizes: --memory,", "--pool", "32")

    def refused_store(self, *words):
        said = self.start(*words)
        warning = "remora-node: warning: the store isn't taken over, and its memory is lost: "
        lines = [line for line in said if "store" in line]
        self.assertEqual(len(lines), 1, said)
        self.assertTrue(lines[0].startswith(warning), said)
        return lines[0].removeprefix(warning)

    def test_another_layout_is_refused_in_one_line(self):
        self.start()
        self.kill()
        with (self.folder / "remora-node.store").open("r+b") as file:
            file.seek(8)  # struct rmem_store: layout
            file.write(bytes(8))
        self.refused("another version of the daemon made it, which lays it out otherwise")

    def test_an_undone_object_outside_of_the_store_is_refused_in_one_line(self):
        for size, offset, slot in ((8, 1 << 40, 0), (8, -64, 0), (8, (1 << 63) - 4, 0), (1 << 20, 0, 0), (8, 0, 1 << 20)):
            with self.subTest(bytes=size, offset=offset, slot=slot):
                store = self.folder / "remora-node.store"
                store.unlink(missing_ok=True)
                self.start()
                self.kill()
                with store.open("r+b") as file:
                    file.seek(48)  # struct rmem_store: undo
                    file.write(struct.pack("=IIqI", 1, size, offset, slot))
                self.refused("its tables contradict each other")

    def test_a_file_that_others_might_have_made_is_refused(self):
        store = self.folder / "remora-node.store"
        other = self.folder / "other"

        def of_all():
            store.touch()
            store.chmod(0o622)

        def with_a_second_name():
            other.touch(0o600)
            os.link(other, store)

        def a_link():
            other.touch(0o600)
            store.symlink_to(other)

        for make in (of_all, with_a_second_name, a_link, lambda: os.mkfifo(store, 0o600)):
            make()
            done = subprocess.run([*NODE, *MEMORY, "--port", "0", "--store", self.folder], capture_output=True, text=True, timeout=60,
                                  check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"{store}", done.stderr)
            self.assertTrue(store.lstat())
            store.unlink()
            other.unlink(missing_ok=True)

    def test_a_store_of_offloads_is_refused_in_one_line(self):
        self.start()
        boot = self.status()["boot"]
        chase = str(ROOT / "out/lib/offload/chase.so")
        self.assertFalse(self.ask(verb="offload load", file=chase, space=9)["ok"])
        self.kill()
        self.start()
        self.assertEqual(self.status()["boot"], boot)
        self.assertEqual(self.ask(verb="offload load", file=chase, space=1), {"ok": True})
        self.kill()
        self.assertEqual(self.refused_store(), "an offload was loaded, whose calls it can't hold")

    def test_another_key_is_refused_and_the_store_stays(self):
        self.start()
        boot = self.status()["boot"]
        self.kill()
        self.key.write_text(KEY[::-1] + "\n")
        done = subprocess.run([*NODE, *MEMORY, "--port", str(self.port), "--space", f"1={self.key}", "--store", self.folder],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("space 1 has another key", done.stderr)
        self.key.write_text(KEY + "\n")
        self.start()
        self.assertEqual(self.status()["boot"], boot)

    def test_the_operator_ends_it_for_good(self):
        said = self.start()
        self.assertEqual([line for line in said if "store" in line], [])
        boot = self.status()["boot"]
        self.assertTrue((self.folder / "remora-node.store").stat().st_size)
        self.assertEqual(self.ask(verb="stop"), {"ok": True})
        self.node.communicate()
        unit = (ROOT / "tools/systemd/remora-node.service.in").read_text().splitlines()
        self.assertIn(f"RestartPreventExitStatus={self.node.returncode}", unit)
        self.assertFalse((self.folder / "remora-node.store").exists())
        self.start()
        self.assertNotEqual(self.status()["boot"], boot)

    def test_spaces_of_the_operator_stay(self):
        self.start()
        self.assertEqual(self.ask(verb="space add", space=7, key=KEY[::-1], quota_bytes=4 * PAGE), {"ok": True})
        spaces = self.ask(verb="space list")
        self.kill()
        self.start()
        self.assertEqual(self.ask(verb="space list"), spaces)

    def test_a_folder_on_a_disk_is_refused(self):
        with tempfile.TemporaryDirectory(dir=ROOT / "out") as folder:
            if subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout == "tmpfs\n":
                self.skipTest("the tree is on a tmpfs")
            (pathlib.Path(folder) / "remora-node.store").touch()
            done = subprocess.run([*NODE, *MEMORY, "--port", "0", "--store", folder], capture_output=True, text=True, timeout=60,
                                  check=False)
            self.assertEqual((done.returncode, os.listdir(folder)), (1, ["remora-node.store"]))
            self.assertIn(f"{folder} is on a disk: name a folder of a tmpfs for the store", done.stderr)

    def test_one_process_has_it(self):
        self.start()
        done = subprocess.run([*NODE, *MEMORY, "--port", "0", "--store", self.folder], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is the store of another process", done.stderr)

    def test_a_memory_file_gives_the_store_of_systemd_back(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
            heard.bind(str(self.folder / "notify"))
            self.start("--memory-file", f"1={self.folder}/file,size=2M", store="systemd",
                       env={**os.environ, "NOTIFY_SOCKET": str(self.folder / "notify")})
            self.assertEqual(heard.recv(4096), b"FDSTOREREMOVE=1\nFDNAME=remora-node-store")

    def test_systemd_keeps_it(self):
        """Its part of sd_notify(3) and sd_listen_fds(3), by this test."""
        with contextlib.ExitStack() as stack:
            heard = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            heard.bind(str(self.folder / "notify"))
            notify = {"NOTIFY_SOCKET": str(self.folder / "notify")}
            self.start(store="systemd", env={**os.environ, **notify})
            text, descriptors, _, _ = socket.recv_fds(heard, 4096, 4)
            self.assertEqual(text, b"FDSTORE=1\nFDNAME=remora-node-store")
            boot = self.status()["boot"]
            remote = Handle(self.target)
            address = remote.alloc_at(PAGE)
            remote.put(address, b"data")
            self.kill()
            # As the first descriptor of a process that knows its own number.
            passed = {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "remora-node-store"}
            program = self.folder / "start"
            program.write_text(f"#!/bin/sh\nexec 3<>/proc/self/fd/{descriptors[0]}\nLISTEN_PID=$$ exec {NODE[0]} \"$@\"\n")
            program.chmod(0o700)
            nodes = list(NODE)
            try:
                NODE[0] = program
                self.start(store="systemd", env={**os.environ, **notify, **passed}, pass_fds=descriptors)
            finally:
                NODE[:] = nodes
            self.assertEqual(self.status()["boot"], boot)
            self.assertEqual(remote.get(address, 4), b"data")
            remote.end()
            for each in descriptors:
                os.close(each)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].isdigit():
        os.environ["REMORA_STORE_SEED"] = sys.argv[1]
        KILLS = int(sys.argv[2])
        del sys.argv[1:]
    unittest.main(verbosity=2)
