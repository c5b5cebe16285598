# SPDX-License-Identifier: GPL-2.0
"""The management host as a program: machines that join and leave, its standby, its policy, and hostile clients.

A test plays the launcher and QEMU: it asks to join, and reads what an ivshmem-doorbell device would.
"""

import array
import contextlib
import fcntl
import json
import os
import pathlib
import random
import select
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REMORA = ROOT / "out/bin/remora"
BOUND_S = 60
MIB = 1 << 20
# As in include/remora/ntb.h.
PAGE_BYTES, VECTORS, VECTOR_EVENT = 4096, 17, 16
MAGIC, VERSION, PRESENT_AT, MAP_AT, MAP = 0x42544E52, 4, 12, 64, struct.Struct("<4Q")
POLICY_AT, CHANGES_AT, SEEN_AT, PAGES_AT, RANGES = 256, 260, 320, 384, struct.Struct("<8I")

ALL_WRITE = [{"from": "*", "to": "*", "may": "write"}]
MACHINES = [{"name": "left", "ram": "64M"}, {"name": "right", "ram": "64M"}, {"name": "third", "ram": "128M"}]


class Refused(Exception):
    pass


def receive(sock, size):
    """(bytes, descriptors) of one message."""
    data, passed, _, _ = sock.recvmsg(size, socket.CMSG_SPACE(32 * 4))
    files = array.array("i")
    for _level, _kind, content in passed:
        files.frombytes(content)
    return data, list(files)


class Client:
    """A connection of the control socket."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(path))  # waits while too many do
        self.sock.settimeout(BOUND_S)

    def send(self, **request):
        self.sock.sendall(json.dumps(request).encode() + b"\n")

    def answer(self):
        """(the answer, its descriptors); then the connection is closed."""
        text, files = b"", []
        while not text.endswith(b"\n"):
            data, more = receive(self.sock, 65536)
            if not data:
                raise ConnectionResetError("the management host closed the connection")
            text, files = text + data, files + more
        self.sock.close()
        answer = json.loads(text)
        if not answer.pop("ok"):
            raise Refused(answer["error"])
        return answer, files


class Qemu:
    """A machine that has joined, and what its QEMU was told."""

    def __init__(self, path, name, reached):
        client = Client(path)
        client.send(verb="join", machine=name)
        self.told, files = client.answer()
        self.port = self.told["port"]
        self.doorbell = socket.socket(fileno=files.pop(0))
        self.doorbell.settimeout(BOUND_S)
        self.ram, *self.peers = files
        assert self._hear() == (0, []) and self._hear() == (self.port, [])
        word, [self.registers] = self._hear()
        assert word == -1
        self.vectors = {}
        for port in [*reached, self.port]:
            told = [self._hear() for _ in range(VECTORS)]
            assert all(word == port and len(file) == 1 for word, file in told), told
            self.vectors[port] = [file[0] for _, file in told]
        self.files = [self.ram, self.registers, *self.peers, *(each for port in self.vectors.values() for each in port)]
        self.doorbell.setblocking(False)
        try:
            raise AssertionError(f"more was said: {self.doorbell.recv(8)}")
        except BlockingIOError:
            pass

    def _hear(self):
        data, files = receive(self.doorbell, 8)
        return struct.unpack("<q", data)[0], files

    def present(self):
        return struct.unpack("<I", os.pread(self.registers, 4, PRESENT_AT))[0]

    def changes(self, port):
        """How often the port came and went."""
        return struct.unpack("<I", os.pread(self.registers, 4, PAGE_BYTES * (port + 1) + CHANGES_AT))[0]

    def policy(self):
        """Number of the policy; for each port its ranges of pages, (first, count)."""
        at = PAGE_BYTES * (self.port + 1)
        ranges = [RANGES.unpack(os.pread(self.registers, RANGES.size, at + PAGES_AT + port * RANGES.size)) for port in range(3)]
        return (struct.unpack("<I", os.pread(self.registers, 4, at + POLICY_AT))[0],
                [[pair for pair in zip(each[::2], each[1::2]) if pair[1]] for each in ranges])

    def has_seen(self, policy):
        os.pwrite(self.registers, struct.pack("<I", policy), PAGE_BYTES * (self.port + 1) + SEEN_AT)

    def ring(self, port, vector):
        os.eventfd_write(self.vectors[port][vector], 1)

    def drain(self):
        """Forgets that it was rung."""
        self.was_rung()

    def was_rung(self):
        with contextlib.suppress(BlockingIOError):
            return bool(os.eventfd_read(self.vectors[self.port][VECTOR_EVENT]))
        return False

    def wait_rung(self, vector):
        # O_NONBLOCK is one flag of all processes that have the eventfd: a standby sets it when it takes over.
        select.select([self.vectors[self.port][vector]], [], [])
        return os.eventfd_read(self.vectors[self.port][vector])

    def wait_present(self, present):
        while self.present() != present:
            self.wait_rung(VECTOR_EVENT)

    def close(self):
        """As when the process ends; once more is nothing."""
        self.doorbell.close()
        for file in self.files:
            os.close(file)
        self.files = []


class Daemon:
    """`remora mh serve` or `standby`, once it is ready."""

    def __init__(self, path, *words):
        ready, given = os.pipe()
        self.process = subprocess.Popen([REMORA, "mh", *words, "--socket", path, "--ready-fd", str(given)], pass_fds=[given],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        os.close(given)
        with os.fdopen(ready, "rb") as pipe:
            self.is_ready = bool(pipe.read(1))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait_said(self, text):
        for line in self.process.stdout:
            if text in line:
                return
        raise AssertionError(f"it ended without '{text}'")

    def end(self):
        """(status, what it said on stderr)"""
        error = self.process.communicate(timeout=BOUND_S)[1]
        return self.process.returncode, error


class Case(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.path = self.folder / "socket"

    def map(self, machines=3, access=ALL_WRITE, **more):
        file = self.folder / "map"
        file.write_text(json.dumps({"machines": MACHINES[:machines], "access": access, **more}))
        return file

    def daemon(self, *words):
        daemon = Daemon(self.path, *words)
        self.stack.callback(daemon.process.communicate)
        self.stack.callback(daemon.process.kill)
        return daemon

    def serve(self, **map_options):
        daemon = self.daemon("serve", self.map(**map_options))
        self.assertTrue(daemon.is_ready, None if daemon.is_ready else daemon.end())
        return daemon

    def join(self, name, reached):
        qemu = Qemu(self.path, name, reached)
        self.stack.callback(qemu.close)
        return qemu

    def call(self, **request):
        client = Client(self.path)
        client.send(**request)
        return client.answer()[0]

    def remora(self, *words):
        return subprocess.run([REMORA, "mh", words[0], "--socket", self.path, *words[1:]], capture_output=True, text=True, timeout=BOUND_S)

    def joined(self):
        return [each["name"] for each in self.call(verb="status")["machines"] if each["joined"]]


class Machines(Case):
    def test_machine_that_joins_learns_its_port_memory_and_vectors(self):
        self.serve()
        left = self.join("left", [1, 2])
        self.assertEqual((left.port, left.told["ram_bytes"]), (0, 64 * MIB))
        self.assertEqual(os.fstat(left.ram).st_size, 64 * MIB)
        self.assertEqual([os.fstat(each).st_size for each in left.peers], [64 * MIB, 128 * MIB])
        self.assertEqual(struct.unpack("<3I", os.pread(left.registers, 12, 0)), (MAGIC, VERSION, 3))
        third = MAP.unpack(os.pread(left.registers, MAP.size, MAP_AT + 2 * MAP.size))
        self.assertEqual(third, (128 * MIB, 96 * MIB, 4 * MIB, 0b011))
        self.assertEqual(left.present(), 0b001)

    def test_machines_share_memory_and_interrupt_each_other(self):
        self.serve()
        right, left = self.join("right", [0, 2]), self.join("left", [1, 2])
        os.pwrite(left.peers[0], b"hello", MIB)
        self.assertEqual(os.pread(right.ram, 5, MIB), b"hello")
        left.ring(1, 3)
        self.assertEqual(right.wait_rung(3), 1)

    def test_machines_join_and_leave_in_any_order(self):
        self.serve()
        order = random.Random(7)
        on = {}
        for _ in range(40):
            name = order.choice(MACHINES)["name"]
            port = [each["name"] for each in MACHINES].index(name)
            if name in on:
                on.pop(name).close()
            else:
                on[name] = self.join(name, [each for each in range(3) if each != port])
            present = sum(1 << each.port for each in on.values())
            for each in on.values():
                each.wait_present(present)
        for each in on.values():
            each.close()

    def test_machine_can_not_join_twice(self):
        self.serve()
        self.join("left", [1, 2])
        with self.assertRaisesRegex(Refused, "left has joined already: end its QEMU first"):
            self.join("left", [1, 2])

    def test_memory_and_registers_and_doorbells_are_cleared_when_a_machine_joins(self):
        self.serve()
        left, right = self.join("left", [1, 2]), self.join("right", [0, 2])
        os.pwrite(right.ram, b"old", MIB)
        os.pwrite(right.registers, b"old", 2 * PAGE_BYTES)
        right.close()
        left.wait_present(0b001)
        left.ring(1, 5)
        right = self.join("right", [0, 2])
        self.assertEqual(os.pread(right.ram, 3, MIB) + os.pread(right.registers, 3, 2 * PAGE_BYTES), bytes(6))
        with self.assertRaises(BlockingIOError):
            os.eventfd_read(right.vectors[1][5])

    def test_unplugged_machine_is_not_present(self):
        self.serve()
        left = self.join("left", [1, 2])
        self.call(verb="unplug", machine="left")
        left.wait_present(0)
        self.call(verb="plug", machine="left")
        left.wait_present(0b001)

    def test_cut_cable_is_counted_and_no_machine_is_told_before_it_is_in_again(self):
        self.serve()
        left = self.join("left", [1, 2])
        right = self.join("right", [0, 2])
        left.wait_present(0b011)
        left.drain()
        before = [left.changes(port) for port in range(3)]
        self.call(verb="cut", machine="right")
        self.assertEqual((left.present(), left.was_rung()), (0b001, False))
        self.assertEqual([left.changes(port) for port in range(3)], [before[0], before[1] + 1, before[2]])
        self.call(verb="plug", machine="right")
        self.assertEqual((left.present(), left.was_rung()), (0b011, True))
        self.assertEqual([left.changes(port) for port in range(3)], [before[0], before[1] + 2, before[2]])
        right.close()

    def test_command_gets_the_arguments_of_its_machine(self):
        self.serve(access=[*ALL_WRITE, {"from": "left", "to": "right", "may": "read"},
                           {"from": "left", "to": "third", "may": "nothing"}])
        done = self.remora("join", "left", "--", "echo", "qemu")
        self.assertEqual(done.returncode, 0, done)
        for part in ("^qemu ", r"-m 64M -machine memory-backend=ntb-ram ", r"id=ntb-ram,size=67108864,.*,share=on ",
                     r"ivshmem-doorbell,chardev=ntb-doorbell,vectors=17,addr=0x10 ",
                     r"id=ntb-ram1,size=67108864,mem-path=/proc/self/fd/\d+,share=on,readonly=on ",
                     r"id=ntb-ram2,size=134217728,mem-path=/proc/self/fd/\d+,share=on,readonly=on ",
                     r"ivshmem-plain,memdev=ntb-ram2,addr=0x12$"):
            self.assertRegex(done.stdout, part)
        self.assertEqual(self.remora("join", "none", "--", "echo").stderr,
                         "remora: no machine of the map is called \"none\": 'remora mh status' lists them\n")


class Policy(Case):
    def test_machines_that_may_not_reach_each_other_get_neither_memory_nor_doorbells(self):
        self.serve(access=[*ALL_WRITE, {"from": "left", "to": "third", "may": "nothing"}])
        left, third = self.join("left", [1]), self.join("third", [1])
        os.pwrite(third.ram, b"unseen", 0)
        self.assertEqual((os.pread(left.peers[1], 6, 0), len(left.peers)), (bytes(6), 2))
        with self.assertRaises(OSError):
            os.pwrite(left.peers[1], b"no", 0)
        # third may write to left, as the file says; without the other way there is no link.
        os.pwrite(third.peers[0], b"seen", 0)
        self.assertEqual(os.pread(left.ram, 4, 0), b"seen")
        self.assertEqual(MAP.unpack(os.pread(left.registers, MAP.size, MAP_AT))[3], 0b010)

    def test_memory_to_read_can_not_be_written(self):
        self.serve(machines=2, access=[{"from": "left", "to": "right", "may": "read"}])
        left, right = self.join("left", []), self.join("right", [])
        os.pwrite(right.ram, b"seen", 0)
        self.assertEqual(os.pread(left.peers[0], 4, 0), b"seen")
        with self.assertRaises(OSError):
            os.pwrite(left.peers[0], b"no", 0)
        self.assertEqual(os.pread(right.peers[0], 4, 0), bytes(4))

    def test_policy_shows_each_pair(self):
        self.serve(machines=2, access=[{"from": "left", "to": "right", "may": "read"}])
        self.assertEqual(json.loads(self.remora("policy", "--json").stdout), {"access": [
            {"from": "left", "to": "right", "may": "read", "link": False, "pages": ["0M-64M"], "in_force": True},
            {"from": "right", "to": "left", "may": "nothing", "link": False, "pages": ["0M-64M"], "in_force": True}]})
        self.assertRegex(self.remora("policy").stdout, r"left +right +read +no +0M-64M +yes")

    def test_pages_are_changed_while_machines_run(self):
        self.serve(access=[*ALL_WRITE, {"from": "left", "to": "third", "may": "write", "pages": ["1M-2M", "4K-8K"]}])
        left, right = self.join("left", [1, 2]), self.join("right", [0, 2])
        before, pages = left.policy()
        self.assertEqual(pages, [[], [(0, 16384)], [(256, 256), (1, 1)]])
        for each in (left, right):
            each.wait_present(0b011)
            each.has_seen(before)
        self.assertTrue(all(each["in_force"] for each in self.call(verb="policy")["access"]))
        left.drain()
        self.assertEqual(self.remora("pages", "left", "right", "8M-16M").returncode, 0)
        left.wait_rung(VECTOR_EVENT)
        number, pages = left.policy()
        self.assertEqual((number, pages), (before + 1, [[], [(2048, 2048)], [(256, 256), (1, 1)]]))
        self.assertEqual(right.policy(), (number, [[(0, 16384)], [], [(0, 32768)]]))
        left.has_seen(number)
        told = {(each["from"], each["to"]): each for each in self.call(verb="policy")["access"]}
        self.assertEqual((told["left", "right"]["pages"], told["left", "right"]["in_force"]), (["8M-16M"], True))
        self.assertFalse(told["right", "left"]["in_force"])
        self.assertEqual(self.remora("pages", "left", "right", "none").returncode, 0)
        self.assertEqual(left.policy()[1][1], [])
        self.assertEqual(self.remora("pages", "left", "right", "all").returncode, 0)
        self.assertEqual(left.policy(), (before + 3, [[], [(0, 16384)], [(256, 256), (1, 1)]]))

    def test_pages_that_are_none_change_nothing(self):
        self.serve()
        left = self.join("left", [1, 2])
        before = left.policy()
        for words, why in ((("1M",), "pages 1M aren't in RAM of 64M"), (("2M-1M",), "aren't in"),
                           (("0-65M",), "aren't in"),
                           (("1-4097",), "aren't in"), (("x-y",), "aren't in"), (["0-4K"] * 5, "up to 4 ranges"),
                           (("all", "none"), "aren't in")):
            done = self.remora("pages", "left", "right", *words)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), words)
            self.assertRegex(done.stderr, why)
        self.assertRegex(self.remora("pages", "left", "left", "all").stderr, "^remora: a machine reaches all of its own pages")
        self.assertRegex(self.remora("pages", "left", "none", "all").stderr, "no machine of the map")
        self.assertEqual(left.policy(), before)

    def test_standby_keeps_the_pages(self):
        active, standby = self.serve(), self.daemon("standby")
        self.assertTrue(standby.is_ready)
        left = self.join("left", [1, 2])
        self.assertEqual(self.remora("pages", "left", "right", "8M-16M").returncode, 0)
        number, pages = left.policy()
        # The active dies in a change, of which left is told but not the standby.
        os.pwrite(left.registers, struct.pack("<I", number + 1), PAGE_BYTES * (left.port + 1) + POLICY_AT)
        left.has_seen(number + 1)
        active.kill()
        standby.wait_said("has taken over")
        told = {number, number + 1}
        for ranges in ([[], [(2048, 2048)], [(0, 32768)]], [[], [(2048, 2048)], []]):
            number, pages = left.policy()
            self.assertEqual(pages, ranges)
            self.assertNotIn(number, told)
            self.assertFalse(any(each["in_force"] for each in self.call(verb="policy")["access"] if each["from"] == "left"))
            told.add(number)
            self.assertEqual(self.remora("pages", "left", "third", "none").returncode, 0)
        number = left.policy()[0]
        left.close()
        again = self.join("left", [1, 2])
        self.assertEqual(again.policy(), (number, [[], [(2048, 2048)], []]))

    def test_no_program_can_shrink_memory(self):
        self.serve()
        left = self.join("left", [1, 2])
        for file in (left.ram, left.peers[0], left.registers):
            with self.assertRaises(PermissionError):
                os.ftruncate(file, 4096)


class Standby(Case):
    def pair(self):
        active, standby = self.serve(), self.daemon("standby")
        self.assertTrue(standby.is_ready, None if standby.is_ready else standby.end())
        return active, standby

    def test_machines_notice_nothing_when_the_standby_takes_over(self):
        active, standby = self.pair()
        left, right = self.join("left", [1, 2]), self.join("right", [0, 2])
        active.kill()
        left.ring(1, 3)
        self.assertEqual(right.wait_rung(3), 1)
        standby.wait_said("has taken over")
        with self.assertRaises(BlockingIOError):
            left.doorbell.recv(1)
        self.assertEqual(self.joined(), ["left", "right"])
        third = self.join("third", [0, 1])
        for each in (left, right, third):
            each.wait_present(0b111)
        third.ring(0, 7)
        self.assertEqual(left.wait_rung(7), 1)
        right.close()
        for each in (left, third):
            each.wait_present(0b101)

    def test_standby_knows_machines_that_joined_before_and_after_it(self):
        active = self.serve()
        left = self.join("left", [1, 2])
        standby = self.daemon("standby")
        self.join("right", [0, 2])
        self.call(verb="unplug", machine="right")
        gone = self.join("third", [0, 1])
        gone.close()
        left.wait_present(0b001)
        active.kill()
        standby.wait_said("has taken over")
        self.assertEqual(self.joined(), ["left", "right"])
        self.assertEqual([each["plugged"] for each in self.call(verb="status")["machines"]], [True, False, True])
        self.assertEqual(left.present(), 0b001)

    def test_machine_that_leaves_before_the_take_over_is_absent_after_it(self):
        active, standby = self.pair()
        left, right = self.join("left", [1, 2]), self.join("right", [0, 2])
        os.kill(standby.process.pid, signal.SIGSTOP)
        active.kill()
        right.close()
        os.kill(standby.process.pid, signal.SIGCONT)
        left.wait_present(0b001)

    def test_request_made_before_the_take_over_is_answered_by_the_standby(self):
        active, standby = self.pair()
        os.kill(standby.process.pid, signal.SIGSTOP)
        active.kill()
        client = Client(self.path)
        client.send(verb="join", machine="left")
        os.kill(standby.process.pid, signal.SIGCONT)
        answer, files = client.answer()
        self.assertEqual((answer["port"], len(files)), (0, 4))
        for file in files:
            os.close(file)

    def test_standby_after_standby_takes_over(self):
        active, standby = self.pair()
        left = self.join("left", [1, 2])
        for times in range(1, 5):
            active.kill()
            standby.wait_said("has taken over")
            active, standby = standby, self.daemon("standby")
            self.assertTrue(standby.is_ready)
            self.assertEqual(self.call(verb="status")["takeovers"], times)
        active.kill()
        right = self.join("right", [0, 2])
        left.wait_present(0b011)
        right.ring(0, 1)
        self.assertEqual(left.wait_rung(1), 1)

    def test_active_ended_by_a_signal_leaves_the_service_to_its_standby(self):
        active, standby = self.pair()
        active.process.terminate()
        self.assertEqual(active.end(), (0, ""))
        standby.wait_said("has taken over")
        self.join("left", [1, 2])

    def test_stop_ends_the_standby_too(self):
        active, standby = self.pair()
        self.assertEqual(self.remora("stop").returncode, 0)
        self.assertEqual((active.end(), standby.end()), ((0, ""), (0, "")))
        self.assertFalse(self.path.exists())

    def test_stopped_standby_delays_no_machine_and_is_dropped(self):
        active, standby = self.pair()
        os.kill(standby.process.pid, signal.SIGSTOP)
        joins = 0
        while self.call(verb="status")["standby"] == "ready":
            self.join("left", [1, 2]).close()
            joins += 1
            self.assertLess(joins, 2000)
        active.wait_said("takes no messages and was dropped")
        right = self.join("right", [0, 2])
        os.kill(standby.process.pid, signal.SIGCONT)
        # The standby was told of some joins, and not of others: it must not take over.
        self.assertEqual(standby.end(), (1, "remora: the active management host lives and needs no standby: it has closed the connection\n"))
        again = self.daemon("standby")
        self.assertTrue(again.is_ready)
        active.kill()
        again.wait_said("has taken over")
        right.wait_present(0b010)
        self.assertEqual(self.joined(), ["right"])

    def test_standby_serves_at_the_path_though_the_active_took_it_away(self):
        active, standby = self.pair()
        left = self.join("left", [1, 2])
        os.kill(standby.process.pid, signal.SIGSTOP)
        self.path.unlink()
        active.kill()
        os.kill(standby.process.pid, signal.SIGCONT)
        standby.wait_said("has taken over")
        self.assertEqual(self.joined(), ["left"])
        left.close()

    def test_standby_waits_for_a_management_host_that_is_being_started(self):
        ready, given = os.pipe()
        process = subprocess.Popen([REMORA, "mh", "standby", "--socket", self.path, "--ready-fd", str(given)], pass_fds=[given])
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        os.close(given)
        self.serve()
        with os.fdopen(ready, "rb") as pipe:
            self.assertEqual(pipe.read(5), b"ready")

    def test_there_is_one_standby(self):
        self.pair()
        second = self.daemon("standby")
        self.assertEqual(second.end(), (1, "remora: this management host has a standby already\n"))

    def test_standby_that_died_can_be_replaced(self):
        active, standby = self.pair()
        standby.kill()
        active.wait_said("the standby has gone")
        self.assertEqual(self.call(verb="status")["standby"], "none")
        self.assertTrue(self.daemon("standby").is_ready)

    def test_standby_alone_or_second_host_is_refused(self):
        alone = self.daemon("standby")
        self.assertRegex(alone.end()[1], "^remora: no management host listens at .*: No such file or directory\n$")
        self.serve()
        second = self.daemon("serve", self.map())
        self.assertRegex(second.end()[1], "^remora: can't listen at .*: Address already in use: choose another path")


class Hostile(Case):
    def test_machine_that_writes_to_its_doorbell_socket_is_cut_off(self):
        daemon = self.serve()
        left, right = self.join("left", [1, 2]), self.join("right", [0, 2])
        left.doorbell.send(random.Random(1).randbytes(1000))
        daemon.wait_said("left wrote to its doorbell socket")
        right.wait_present(0b010)
        self.assertEqual(self.joined(), ["right"])

    def test_launcher_that_takes_no_answer_leaves_again(self):
        daemon = self.serve()
        left = self.join("left", [1, 2])
        client = Client(self.path)
        client.send(verb="join", machine="right")
        client.sock.close()
        daemon.wait_said("right has joined")
        daemon.wait_said("right has left")
        left.wait_present(0b001)
        self.assertEqual(self.joined(), ["left"])

    def test_unread_output_delays_no_machine(self):
        daemon = self.serve()
        output = daemon.process.stdout.fileno()
        room = fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PAGE_BYTES)
        for _ in range(room // len("remora mh: left has left\n")):
            self.join("left", [1, 2]).close()
        self.assertEqual(self.joined(), [])

    def test_blocking_doorbells_delay_no_machine(self):
        self.serve()
        left, right = self.join("left", [1, 2]), self.join("right", [0, 2])
        for vector in left.vectors[1]:
            os.set_blocking(vector, True)
        os.set_blocking(left.vectors[1][VECTOR_EVENT], False)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(left.vectors[1][VECTOR_EVENT], 0xfffffffffffffffe)
        os.set_blocking(left.vectors[1][VECTOR_EVENT], True)
        third = self.join("third", [0, 1])
        self.assertEqual(third.present(), 0b111)
        right.close()
        # Its doorbells are read when it joins again.
        self.join("right", [0, 2]).close()

    def test_garbage_on_the_control_socket_is_answered_with_one_error(self):
        self.serve()
        for line, why in ((b"\xff\x00{", "a request is a line"), (b"[]", "a request is a line"), (b"{\"verb\": 1}", "a request is a line"),
                          (b"{\"verb\": \"fly\"}", "unknown verb: use status"),
                          (b"{\"verb\": \"join\"}", "no string \"machine\""),
                          (b"{\"verb\": \"join\", \"machine\": 3}", "no string \"machine\""),
                          (b"{\"verb\": \"join\", \"machine\": \"\"}", "no machine of the map"),
                          (b"{\"verb\": \"status\", \"x\": 1}", "members that its verb"), (b"x" * 5000, "longer than 4096")):
            client = Client(self.path)
            client.sock.sendall(line + b"\n")
            with self.assertRaisesRegex(Refused, why):
                client.answer()
        self.assertEqual(self.joined(), [])

    def test_many_silent_connections_delay_no_machine(self):
        daemon = self.serve()
        silent = [Client(self.path) for _ in range(200)]
        for client in silent[::2]:
            with contextlib.suppress(BrokenPipeError):  # others took its place
                client.sock.sendall(b"{\"verb\": ")
        self.join("left", [1, 2])
        self.assertLess(len(os.listdir(f"/proc/{daemon.process.pid}/fd")), 120)
        for client in silent:
            client.sock.close()

    def test_standby_that_sends_garbage_is_dropped(self):
        daemon = self.serve()
        client = Client(self.path)
        client.send(verb="standby")
        _, [link] = client.answer()
        os.write(link, b"take over!")
        os.close(link)
        daemon.wait_said("the standby has gone")
        self.assertEqual(self.call(verb="status")["standby"], "none")


class MapFiles(Case):
    def refused(self, text, why):
        file = self.folder / "bad"
        file.write_text(text)
        done = self.remora("serve", file)
        self.assertEqual((done.returncode, done.stdout), (1, ""), text)
        self.assertRegex(done.stderr, f"^remora: {file}: {why}[^\n]*\n$")

    def test_each_mistake_is_told_in_one_line(self):
        two = '"machines": [{"name": "a", "ram": "64M"}, {"name": "b", "ram": "64M"}]'
        for text, why in (
                ("", "line 1 is no JSON"), ("{\n\"machines\": [\n}\n", "line 3 is no JSON"), ("[]", "the map is no object"),
                ("{}", "the map has no list \"machines\""), ('{"machines": []}', "the map has 0 machines"),
                ('{"machines": [1, 2]}', r"machines\[0\] is no object"),
                ('{"machines": [{"name": "a"}, {}]}', r"machines\[0\] has no string \"ram\""),
                ('{"machines": [{"name": "a b", "ram": "64M"}, {}]}', r"machines\[0\]: name \"a b\" is invalid"),
                ('{"machines": [{"name": "a", "ram": "96M"}, {}]}', r"machines\[0\]: ram 96M is no power of two from 64M to 2G"),
                ('{"machines": [{"name": "a", "ram": "4G"}, {}]}', r"machines\[0\]: ram 4G is no power"),
                ('{"machines": [{"name": "a", "ram": "x"}, {}]}', r"machines\[0\]: ram: "),
                ('{"machines": [{"name": "a", "ram": "64M", "cpu": 1}, {}]}', r"machines\[0\] has an unknown member \"cpu\""),
                ('{"machines": [{"name": "a", "ram": "64M"}, {"name": "a", "ram": "64M"}]}', r"machines\[1\]: name \"a\" is that"),
                (f"{{{two}}}", "the map has no list \"access\""), (f'{{{two}, "window": "8M", "access": []}}', "the map: window 8M"),
                (f'{{{two}, "window": 1, "access": []}}', "the map has no string \"window\""),
                (f'{{{two}, "access": [{{"from": "a", "to": "c", "may": "read"}}]}}', r"access\[0\]: to \"c\" is no machine"),
                (f'{{{two}, "access": [{{"from": "a", "to": "b"}}]}}', r"access\[0\] has no string \"may\""),
                (f'{{{two}, "access": [{{"from": "a", "to": "b", "may": "fly"}}]}}', r"access\[0\]: may \"fly\" is unknown"),
                (f'{{{two}, "access": [{{"from": "a", "to": "b", "may": "read", "pages": 3}}]}}', r"access\[0\]: pages are no list of up to 4 ranges"),
                (" " * 70000, "longer than 65536 bytes|.*longer than 65536 bytes")):
            with self.subTest(text[:80]):
                if len(text) > 65536:
                    file = self.folder / "long"
                    file.write_text(text)
                    self.assertRegex(self.remora("serve", file).stderr, "^remora: .* is longer than 65536 bytes: that is no map\n$")
                else:
                    self.refused(text, why)
        self.assertRegex(self.remora("serve", self.folder / "none").stderr, "^remora: can't read .*: No such file or directory\n$")

    def test_comments_and_small_windows_are_permitted(self):
        file = self.folder / "map"
        file.write_text('// a rack\n{"machines": [{"name": "a", "ram": "64M"}, {"name": "b", "ram": "1G"}],\n "window": "1M", "access": []}')
        daemon = self.daemon("serve", file)
        self.assertTrue(daemon.is_ready)
        machines = self.call(verb="status")["machines"]
        self.assertEqual([(each["window_bytes"], each["kernel_parameter"]) for each in machines],
                         [(MIB, "memmap=1M$48M"), (MIB, "memmap=1M$768M")])
        self.assertRegex(self.remora("status").stdout, r"b +1 +1G +1 x 1M +off +memmap=1M\$768M\nstandby: none, takeovers: 0\n$")

    def test_windows_fit_where_they_are_set_aside(self):
        for ram_mib in (64, 256, 2048):
            for count in (2, 3, 8, 15):
                file = self.folder / "map"
                machines = [{"name": f"m{number}", "ram": f"{ram_mib}M"} for number in range(count)]
                file.write_text(json.dumps({"machines": machines, "access": ALL_WRITE}))
                daemon = self.daemon("serve", file)
                self.assertTrue(daemon.is_ready)
                for each in self.call(verb="status")["machines"]:
                    base, size = each["windows_base"], each["window_bytes"]
                    self.assertEqual(base % size, 0)
                    self.assertGreaterEqual(size, PAGE_BYTES)
                    self.assertLessEqual(base + (count - 1) * size, ram_mib * MIB)
                if count == 15:
                    qemus = [self.join(f"m{port}", [each for each in range(15) if each != port]) for port in range(15)]
                    for qemu in qemus:
                        qemu.close()
                self.remora("stop")


if __name__ == "__main__":
    unittest.main()
