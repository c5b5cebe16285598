# SPDX-License-Identifier: GPL-2.0
"""The package remora: handles, regions, buffers, integers, locks, by UDP and by shared memory."""

import array
import errno
import os
import pathlib
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy
from served import BIN, ROOT, Node, Served, new_key, remora

from remora import _library, queue

PAGE = 1 << 16
CHASE = 1


class Memory(Served):
    def test_allocated_memory_is_zeroed_and_keeps_bytes(self):
        with self.handle.alloc(PAGE) as region:
            self.assertEqual(region.read(PAGE), bytes(PAGE))
            region.write(b"hello", 7)
            self.assertEqual(region.read(5, 7), b"hello")
            self.assertEqual(self.handle.read(region.address + 6, 7), b"\0hello\0")
            self.assertEqual(len(region), PAGE)

    def test_freed_memory_is_a_fault(self):
        with self.handle.alloc(PAGE) as region:
            pass
        self.fails(errno.EFAULT, region.read, 1)
        self.fails(errno.EFAULT, region.free)

    def test_bytes_beyond_a_region_are_refused(self):
        # A small region shares its page, so the node wouldn't refuse them.
        with self.handle.alloc(64) as region:
            for offset, size in ((60, 5), (-1, 1), (64, 1)):
                self.assertRaises(IndexError, region.read, size, offset)
                self.assertRaises(IndexError, region.write, bytes(size), offset)

    def test_named_memory_is_found_by_another_handle(self):
        other = self.open()
        region = self.handle.alloc(PAGE)
        region.write(b"shared")
        region.publish("test.name")
        self.assertIsInstance(self.fails(errno.EEXIST, region.publish, "test.name"), FileExistsError)
        found = other.lookup("test.name")
        self.assertEqual((found.address, found.bytes, found.read(6)), (region.address, PAGE, b"shared"))
        self.assertIn(remora.Listed(region.address, PAGE, True, 1, "test.name"), [*other.regions()])
        self.handle.withdraw("test.name")
        self.assertIsInstance(self.fails(errno.ENOENT, other.lookup, "test.name"), FileNotFoundError)
        found.free()
        self.fails(errno.EFAULT, region.read, 1)

    def test_all_regions_are_listed(self):
        made = [self.handle.alloc(PAGE, writable=i % 2 == 0) for i in range(40)]
        listed = {each.address: each for each in self.handle.regions()}
        for i, each in enumerate(made):
            self.assertEqual(listed[each.address].writable, i % 2 == 0)
            each.free()
        self.assertEqual([*self.handle.regions()], [])

    def test_info_tells_the_nodes_memory(self):
        told = self.handle.info()
        self.assertEqual((told.page_bytes, told.memory_bytes), (PAGE, 64 << 20))
        with self.handle.alloc(1 << 20):
            self.assertEqual(self.handle.info().free_bytes, told.free_bytes - (1 << 20))

    def test_copy_stays_in_the_node(self):
        with self.handle.alloc(2 * PAGE) as region:
            region.write(b"over there")
            self.handle.copy(region.address + PAGE, region, 10)
            self.assertEqual(region.read(10, PAGE), b"over there")

    def test_counters_count(self):
        with self.handle.alloc(PAGE) as region:
            before = self.handle.stats()
            region.write(bytes(100))
            region.read(10)
        after = self.handle.stats()
        self.assertEqual((after.write.done - before.write.done, after.write.bytes - before.write.bytes), (1, 100))
        self.assertEqual((after.read.done - before.read.done, after.read.bytes - before.read.bytes), (1, 10))


class Buffers(Served):
    def setUp(self):
        super().setUp()
        self.region = self.handle.alloc(1 << 20)
        self.addCleanup(self.region.free)

    def test_buffers_of_all_kinds_are_written(self):
        for buffer in (b"abcdefgh", bytearray(b"abcdefgh"), memoryview(b"xabcdefghx")[1:-1], array.array("H", [25185, 25699, 26213, 26727]),
                       numpy.frombuffer(b"abcdefgh", dtype=">u4")):
            with self.subTest(type(buffer)):
                self.region.write(bytes(8))
                self.region.write(buffer)
                self.assertEqual(self.region.read(8), b"abcdefgh")

    def test_a_slice_is_filled_in_place(self):
        self.region.write(b"abcd")
        whole = bytearray(b"........")
        self.region.readinto(memoryview(whole)[2:6])
        self.assertEqual(whole, b"..abcd..")
        numbers = numpy.zeros(8, dtype="u1")
        self.region.readinto(numbers[4:])
        self.assertEqual(bytes(numbers), b"\0\0\0\0abcd")

    def test_strided_slices_are_gathered_and_scattered(self):
        table = numpy.arange(4 * 6 * 5, dtype="i4").reshape(4, 6, 5)
        for index in (numpy.s_[:, 2:4, :], numpy.s_[:, :, 1:3], numpy.s_[::2], numpy.s_[1, :, 0], numpy.s_[::-1]):
            with self.subTest(index=index):
                self.region.write(table[index])
                self.assertEqual(self.region.read(table[index].nbytes), table[index].tobytes())
                filled = numpy.zeros_like(table)
                self.region.readinto(filled[index])
                expected = numpy.zeros_like(table)
                expected[index] = table[index]
                self.assertTrue((filled == expected).all())
        view = memoryview(b"a-b-c-d-")[::2]
        self.region.write(view)
        self.assertEqual(self.region.read(4), b"abcd")

    def test_too_many_pieces_are_refused(self):
        with self.assertRaisesRegex(ValueError, "4096 contiguous pieces"):
            self.region.write(numpy.zeros(10000, dtype="u1")[::2])

    def test_unfit_buffers_are_refused(self):
        self.assertRaises(BufferError, self.region.readinto, b"read-only")
        self.assertRaises(TypeError, self.region.write, "text")
        self.assertRaises(TypeError, self.region.write, numpy.array([object()]))
        self.fails(errno.EINVAL, self.region.write, b"")

    def test_pieces_go_to_places_of_their_own(self):
        two = bytearray(2), bytearray(3)
        self.handle.writev([(self.region.at(8), b"ab"), (self.region.at(100), b"cde")])
        self.handle.readv([(self.region.at(8), two[0]), (self.region.at(100), two[1])])
        self.assertEqual(two, (b"ab", b"cde"))

    def test_large_buffers_come_back(self):
        data = os.urandom(1 << 20)
        self.region.write(data)
        self.assertEqual(self.region.read(1 << 20), data)

    def test_a_registered_buffer_cannot_be_resized(self):
        buffer = bytearray(PAGE)
        self.handle.register(buffer)
        self.assertRaises(BufferError, buffer.extend, b"x")
        self.region.readinto(buffer)
        self.handle.unregister(buffer)
        buffer.extend(b"x")


class Integers(Served):
    def setUp(self):
        super().setUp()
        self.region = self.handle.alloc(PAGE)
        self.addCleanup(self.region.free)

    def test_changes_return_the_integer_before(self):
        at, value = self.region.address, 10
        self.handle.swap(at, value)
        for change, operand, after in ((remora.Change.SWAP, 7, 7), (remora.Change.ADD, -9, (1 << 64) - 2),
                                       (remora.Change.SMAX, 3, 3), (remora.Change.OR, 4, 7), (remora.Change.MIN, 2, 2)):
            self.assertEqual(self.handle.fetch(at, change, operand), value, change)
            value = after
        self.assertEqual(self.handle.add(at, 0), value)
        self.assertEqual(self.handle.add(self.region.at(16), 1, size=4), 0)
        self.assertEqual(self.region.read(8, 16), b"\1" + bytes(7))

    def test_compare_and_swap_of_each_size(self):
        for size in (4, 8, 16):
            large = (1 << (8 * size)) - 3
            with self.subTest(size=size):
                at = self.region.at(16 * size)
                self.assertEqual(self.handle.cas(at, 1, 2, size=size), (False, 0))
                self.assertTrue(self.handle.cas(at, 0, large, size=size))
                self.assertEqual(self.handle.cas(at, 0, 1, size=size), (False, large))
                self.assertEqual(self.region.read(size, 16 * size), large.to_bytes(size, "little"))
                self.assertTrue(self.handle.cas(at, -3, 1, size=size))

    def test_numbers_that_do_not_fit_are_refused(self):
        for call in (lambda: self.handle.add(self.region, 1 << 64), lambda: self.handle.add(self.region, 1 << 32, size=4),
                     lambda: self.handle.cas(self.region, -(1 << 63) - 1, 0)):
            self.assertRaises(OverflowError, call)
        self.assertRaises(ValueError, self.handle.add, self.region, 1, size=3)

    def test_a_waiter_sees_the_data_behind_a_signal(self):
        signal, seen = self.region.at(1024), []
        waiter = threading.Thread(target=lambda: seen.extend(
            (self.handle.wait(signal, remora.Compare.GE, 5, timeout=60), self.region.read(4))))
        waiter.start()
        self.open().put(self.region, b"data", remora.Signal(signal, 5, remora.Change.ADD))
        waiter.join()
        self.assertEqual(seen, [5, b"data"])
        self.assertIsInstance(self.fails(errno.EAGAIN, self.handle.wait, signal, remora.Compare.EQ, 6, timeout=0.01), TimeoutError)

    def test_threads_share_a_handle(self):
        def work(i):
            for _ in range(50):
                self.handle.add(self.region, 1)
                self.region.write(bytes([i]) * 64, 64 * i)
                self.assertEqual(self.region.read(64, 64 * i), bytes([i]) * 64)

        threads = [threading.Thread(target=work, args=[i]) for i in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.handle.add(self.region, 0), 400)

    def test_a_lock_excludes_and_is_given_back(self):
        other, counter = self.open(), self.region.at(1024)

        def count(handle):
            for _ in range(20):
                with handle.lock(self.region.address):
                    number = int.from_bytes(handle.read(counter, 8), "little")
                    handle.write(counter, (number + 1).to_bytes(8, "little"))

        threads = [threading.Thread(target=count, args=[handle]) for handle in (self.handle, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.handle.add(counter, 0), 40)

    def test_an_expired_lock_is_passed_over(self):
        mine = self.handle.lock(self.region).init(lease=0.01)
        self.assertFalse(mine.acquire())
        with self.open().lock(self.region) as taken:
            self.assertTrue(taken.passed_over)
            self.assertIsInstance(self.fails(errno.EPERM, mine.release), PermissionError)


    def test_a_lock_that_a_signal_keeps_from_its_block_is_free(self):
        self.handle.lock(self.region).init(lease=1000)
        other, mine = self.open(call_timeout=20), self.handle.lock(self.region)
        held, waited_for = threading.Event(), threading.Event()

        def hold():
            lock = other.lock(self.region)
            lock.acquire()
            held.set()
            waited_for.wait()
            lock.release()

        def enter():
            with mine:
                self.fail("the signal came late")

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        self.assertTrue(self.interrupted(self.handle._native, enter, waited_for.set))
        holder.join()
        with other.lock(self.region) as lock:
            self.assertFalse(lock.passed_over)


class OverRings:
    """The same by shared memory."""

    transport = "shm"


class MemoryByRings(OverRings, Memory):
    pass


class BuffersByRings(OverRings, Buffers):
    pass


class IntegersByRings(OverRings, Integers):
    pass


class Life(Served):
    def test_close_waits_for_the_calls_of_other_threads(self):
        handle, other = self.open(), self.open()
        region, ends = other.alloc(PAGE), []

        def wait():
            ends.append(handle.wait(region.address, remora.Compare.EQ, 1))
            ends.append("waited")

        def close():
            handle.close()
            ends.append("closed")

        waiter, closer = threading.Thread(target=wait), threading.Thread(target=close)
        waiter.start()
        while not handle._native._calls:
            pass
        closer.start()
        while not handle.closed:
            pass
        self.fails(errno.EBADF, handle.read, region, 1)
        other.swap(region, 1)
        waiter.join()
        closer.join()
        self.assertEqual(sorted(map(str, ends)), ["1", "closed", "waited"])
        self.assertEqual(ends[0], 1)
        handle.close()

    def test_a_call_of_another_thread_holds_its_buffer(self):
        handle, buffer = self.open(), bytearray(PAGE)
        with self.handle.alloc(PAGE) as region:
            self.node.pause()
            reader = threading.Thread(target=handle.readinto, args=[region.address, buffer])
            reader.start()
            while not handle._native._calls:
                pass
            self.assertRaises(BufferError, buffer.clear)
            self.node.go()
            reader.join()
            buffer.clear()

    def test_a_silent_node_is_a_timeout(self):
        handle = self.open(timeout=0.2)
        with self.handle.alloc(PAGE) as region:
            self.node.pause()
            error = self.fails(errno.ETIMEDOUT, handle.read, region.address, 1)
            self.assertIsInstance(error, remora.Timeout)
            self.assertIsInstance(error, TimeoutError)
            self.node.go()
            self.assertEqual(self.handle.read(region, 1), b"\0")

    def test_a_child_has_to_open_its_own_handle(self):
        child = os.fork()
        if not child:
            try:
                self.handle.info()
            except ChildProcessError as error:
                os._exit(error.errno)
            os._exit(0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), errno.ECHILD)
        self.handle.info()

    def test_a_child_can_close_a_handle_that_another_thread_uses(self):
        handle = self.open()
        operations = handle.queue()
        with self.handle.alloc(PAGE) as region:
            self.node.pause()
            operations.submit([queue.read(region.address, bytearray(1))])
            threads = [threading.Thread(target=handle.read, args=[region.address, 1]), threading.Thread(target=operations.wait)]
            for thread in threads:
                thread.start()
            while handle._native._calls < 2 or not operations._native._calls:
                pass
            child = os.fork()
            if not child:
                handle.close()
                os._exit(0)
            process = os.pidfd_open(child)
            ended = select.select([process], [], [], 60)[0]
            os.close(process)
            if not ended:
                os.kill(child, signal.SIGKILL)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.node.go()
            for thread in threads:
                thread.join()
            self.assertEqual(handle.read(region.address, 1), b"\0")

    def test_an_interpreter_that_ends_with_open_handles_ends(self):
        program = ("import sys, remora, threading; h = remora.open(sys.argv[1]); r = h.alloc(65536); q = h.queue();"
                   "q.submit([remora.queue.read(r, bytearray(9))]);"
                   "t = threading.Thread(target=h.wait, args=[r, remora.Compare.EQ, 1], daemon=True); t.start();"
                   "\nwhile not h._native._calls: pass\nprint('end')")
        done = subprocess.run([sys.executable, "-c", program, self.node.target("udp")], capture_output=True, text=True, timeout=60,
                              check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "libremote/python")})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""))

    def test_errors_of_opening_say_why(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder) / "key"
            new_key(other)
            self.fails(errno.EKEYREJECTED, remora.open, f"udp:127.0.0.1:{self.node.port},key={other}")
        error = self.fails(errno.ECONNREFUSED, remora.open, f"shm:/nonexistent,key={self.node.key}")
        self.assertIn("/nonexistent", error.strerror)
        self.assertIsInstance(error, ConnectionRefusedError)
        self.fails(errno.EINVAL, remora.open, "bogus")
        self.fails(errno.ENOKEY, remora.open, "udp:127.0.0.1,key=/nonexistent")
        self.assertRaises(ValueError, remora.open, "embedded:", key=b"short")
        self.assertRaises(ValueError, remora.open, "embedded:\0")
        self.assertRaises(ValueError, remora.open, "embedded:", timeout=-1)

    def test_a_key_can_be_given_as_bytes(self):
        key = bytes.fromhex(self.node.key.read_text().split()[-1])
        with remora.open(f"udp:127.0.0.1:{self.node.port}", key=key, integrity=remora.Integrity.SEALED) as handle:
            with handle.alloc(PAGE) as region:
                region.write(b"sealed")
                self.assertEqual(region.read(6), b"sealed")


class Restarts(unittest.TestCase):
    def test_losses_are_told_and_the_handle_works_again(self):
        with tempfile.TemporaryDirectory() as folder:
            node = Node(folder)
            self.addCleanup(lambda: node.stop())
            with remora.open(node.target("udp")) as handle:
                region = handle.alloc(PAGE)
                self.assertEqual(handle.lost(), [])
                node.restart()
                with self.assertRaises(remora.Lost):
                    region.read(1)
                self.assertEqual(handle.lost(), [(region.address, PAGE)])
                with handle.alloc(PAGE) as again:
                    self.assertEqual(again.read(4), bytes(4))


    def test_losses_are_told_again_when_the_node_was_silent(self):
        with tempfile.TemporaryDirectory() as folder:
            node = Node(folder)
            self.addCleanup(lambda: node.stop())
            with remora.open(node.target("udp"), timeout=1) as handle:
                regions = [handle.alloc(PAGE) for _ in range(2)]
                node.restart()
                with self.assertRaises(remora.Lost):
                    regions[0].read(1)
                node.pause()
                with self.assertRaises(remora.Error):
                    handle.lost()
                node.go()
                self.assertCountEqual(handle.lost(), [(each.address, PAGE) for each in regions])
                self.assertEqual(handle.lost(), [])


class Functions(Served):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run([BIN / "remora", "node", "offload", "load", ROOT / "out/lib/offload/chase.so", "--space", "1", "--socket",
                        cls.node.control], check=True, timeout=60, stdout=subprocess.DEVNULL)

    def setUp(self):
        super().setUp()
        self.region = self.handle.alloc(PAGE)
        self.addCleanup(self.region.free)
        # A list of three elements: key, next, value.
        for i in range(3):
            self.region.write(struct.pack("<QQQ", 100 + i, self.region.at(64 * (i + 1)) if i < 2 else 0, 1000 + i), 64 * i)
        self.find = struct.pack("<QQIIQ", self.region.address, 102, 0, 8, 0)

    def test_a_query_and_a_call_run_at_the_node(self):
        found = struct.unpack("<QQ", self.handle.query(CHASE, 0, self.find, 16))
        self.assertEqual(found, (self.region.at(128), 3))
        added = self.handle.call(CHASE, 1, self.find + struct.pack("<IIQ", 16, 0, 5))
        self.assertEqual(struct.unpack("<QQ", added), (self.region.at(128), 1002))
        self.assertEqual(self.region.read(8, 128 + 16), (1007).to_bytes(8, "little"))
        with self.handle.queue() as operations:
            operations.submit([queue.query(CHASE, 0, self.find, 16)])
            self.assertEqual(struct.unpack("<QQ", operations.wait()[0].result()), found)

    def test_a_functions_errno_is_told(self):
        error = self.fails(errno.EREMOTEIO, self.handle.query, CHASE, 0, struct.pack("<QQIIQ", 1, 1, 0, 8, 0), 16)
        self.assertEqual(error.detail, errno.EFAULT)
        self.fails(errno.ENOSYS, self.handle.query, 12345, 0, b"", 16)


class Declarations(unittest.TestCase):
    def test_declarations_agree_with_the_headers(self):
        """ABI mode trusts them. The C compiler compares structures, functions and constants."""
        lines = ["#define REMOTE_OP_FUNCTION static inline", "#include <stddef.h>", "#include <remote/remote.h>", "#include <remote/queue.h>",
                 "#include <remote/lock.h>", *re.findall(r"^(?!typedef)[a-z][^;{}]*\([^;]*\);", _library.DECLARATIONS, flags=re.M)]
        structs = re.findall(r"^struct (\w+) \{", _library.DECLARATIONS, flags=re.M)
        self.assertGreater(len(structs), 10)
        for name in structs:
            kind = _library.ffi.typeof(f"struct {name}")
            lines.append(f"_Static_assert(sizeof(struct {name}) == {_library.ffi.sizeof(kind)}, \"{name}\");")
            for field, there in kind.fields:
                lines.append(f"_Static_assert(offsetof(struct {name}, {field}) == {there.offset} && "
                             f"sizeof(((struct {name} *)0)->{field}) == {_library.ffi.sizeof(there.type)}, \"{name}.{field}\");")
        constants = {f"REMOTE_OP_{name[5:]}": value for name, value in vars(queue).items() if name.startswith("KIND_")}
        constants.update({f"REMOTE_{each.name}": each for kind in (remora.Change, remora.Compare, remora.Integrity) for each in kind})
        constants.update({"REMOTE_PIECES_MAX": _library.PIECES_MAX, "REMOTE_OP_LINK": queue.LINK, "REMOTE_OP_UNORDERED": queue.UNORDERED,
                          "REMOTE_LOCK_BYTES": remora.Lock.BYTES, "REMOTE_RW": 3, "REMOTE_READ": 1, "REMOTE_OWN_PAGES": 8})
        self.assertEqual(len([name for name in constants if name.startswith("REMOTE_OP_")]), 17)
        lines += [f"_Static_assert({name} == {int(value)}, \"{name}\");" for name, value in constants.items()]
        done = subprocess.run(["gcc", "-std=c11", "-Wall", "-Werror", f"-I{ROOT}/include", "-fsyntax-only", "-x", "c", "-"],
                              input="\n".join(lines), capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_each_exported_function_is_declared_or_left_out_on_purpose(self):
        exported = set(re.findall(r"^\t(remote_\w+);", (ROOT / "libremote/libremote.map").read_text(), flags=re.M))
        declared = set(re.findall(r"\b(remote_\w+)\(", _library.DECLARATIONS))
        # Mappings: an access that fails ends the interpreter. Others: done in Python.
        self.assertEqual({name for name in exported - declared if not name.startswith("remote_op_")},
                         {"remote_alloc_at", "remote_execute", "remote_mmap", "remote_msync", "remote_munmap"})
        self.assertEqual(declared - exported, set())


class Examples(unittest.TestCase):
    def test_hello_runs(self):
        done = subprocess.run([sys.executable, ROOT / "libremote/python/examples/hello.py"], capture_output=True, text=True,
                              timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "libremote/python")})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "hello, remote memory\n64 chunks came back\nthe counter was 41 and is 42\n")


if __name__ == "__main__":
    unittest.main()
