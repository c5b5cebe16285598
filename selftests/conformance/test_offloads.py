# SPDX-License-Identifier: GPL-2.0
"""The offloads tree, versions and filter in a remora-node, called through libremote by rings and by UDP. Their arguments are made
here by hand, from the fields of their headers."""

import concurrent.futures
import contextlib
import ctypes
import errno
import re
import struct
import subprocess
import unittest

import test_kv

VERSIONS, FILTER = 6, 7
FORMAT, CREATE, DELETE, APPEND, STAGE, PUBLISH, READ = range(7)
RUN, ROWS = range(2)
REMOTE_RW = 3
ROOM = 1024  # a packet's payload, at least


class Function(ctypes.Structure):
    _fields_ = [("offload", ctypes.c_uint64), ("function", ctypes.c_uint32), ("detail", ctypes.c_uint32), ("args", ctypes.c_char_p),
                ("args_bytes", ctypes.c_size_t), ("result", ctypes.c_void_p), ("result_bytes", ctypes.c_size_t)]


class Client:
    """A handle of libremote."""

    def __init__(self, target):
        self.library = ctypes.CDLL(test_kv.ROOT / "out/lib/libremote.so")
        self.library.remote_why.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        assert not self.library.remote_open(ctypes.byref(self.handle), target.encode(), None), self.library.remote_why()

    def close(self):
        self.library.remote_close(self.handle)

    def must(self, error):
        assert not error, error

    def alloc(self, count):
        address = ctypes.c_uint64()
        self.must(self.library.remote_alloc(self.handle, ctypes.c_uint64(count), REMOTE_RW, ctypes.byref(address)))
        return address.value

    def write(self, address, data):
        self.must(self.library.remote_write(self.handle, ctypes.c_uint64(address), data, ctypes.c_size_t(len(data))))

    def read(self, address, count):
        data = ctypes.create_string_buffer(count)
        self.must(self.library.remote_read(self.handle, ctypes.c_uint64(address), data, ctypes.c_size_t(count)))
        return data.raw

    def run(self, way, offload, function, args, room):
        """The result, or the function's errno."""
        result = ctypes.create_string_buffer(room)
        what = Function(offload, function, 0, args, len(args), ctypes.addressof(result), room)
        error = way(self.handle, ctypes.byref(what))
        if error == -errno.EREMOTEIO:
            return what.detail
        self.must(error)
        return result.raw[:what.result_bytes]

    def call(self, offload, function, args):
        return self.run(self.library.remote_call, offload, function, args, 16)

    def query(self, offload, function, args, room=ROOM):
        return self.run(self.library.remote_query, offload, function, args, room)


class Table:
    """A client of tools/offloads/versions."""

    def __init__(self, client, address):
        self.client, self.address = client, address

    def make(self, objects, versions, version_bytes, memory_bytes):
        return self.client.call(VERSIONS, FORMAT, struct.pack("<QQ4I", self.address, memory_bytes, objects, versions, version_bytes, 0))

    def call(self, function, name=0, number=0, count=0):
        """A number and an address, or an errno."""
        result = self.client.call(VERSIONS, function, struct.pack("<QQII", self.address, name, number, count))
        return result if isinstance(result, int) else struct.unpack("<QQ", result)

    def append(self, name, data):
        result = self.client.call(VERSIONS, APPEND, struct.pack("<QQ", self.address, name) + data)
        return result if isinstance(result, int) else struct.unpack("<QQ", result)[0]

    def read(self, name, number=0):
        """Number and data, or an errno."""
        result = self.client.query(VERSIONS, READ, struct.pack("<QQII", self.address, name, number, 0))
        if isinstance(result, int):
            return result
        number, count, address = struct.unpack_from("<IIQ", result)
        return number, result[16:] if len(result) == 16 + count else self.client.read(address, count)


class Offloads(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.targets, _ = self.stack.enter_context(test_kv.node(offloads=("tree.so", "versions.so", "filter.so")))

    def client(self, target):
        client = Client(target)
        self.stack.callback(client.close)
        return client

    def each(self):
        for name, target in self.targets.items():
            with self.subTest(name):
                yield target

    def test_tree_is_searched_by_reads_and_by_query(self):
        for target in self.each():
            for words in ((), ("--dense",)):
                done = subprocess.run([test_kv.BIN / "remora-tree", target, "--keys", "20000", "--searches", "2000", *words],
                                      capture_output=True, text=True, timeout=100, check=False)
                self.assertEqual(done.returncode, 0, done)
                self.assertRegex(done.stdout, r"by reads: .*, (\d+\.\d+) levels and \1 round trips a search\n"
                                              r"by query: .*, \1 levels and 1\.00 round trips a search\n")
                self.assertGreater(float(re.search(r"([\d.]+) levels", done.stdout)[1]), 4)

    def test_remora_tree_refuses_by_one_line(self):
        with test_kv.node(offloads=()) as (targets, _):
            for words, code, says in (((targets["shm"], "--keys", "10"), 1, "the node has no offload tree"),
                                      ((targets["shm"], "--keys", "0"), 2, "--keys"),
                                      (("udp:127.0.0.1:1,key=/none",), 1, "/none"),
                                      ((), 2, "TARGET")):
                done = subprocess.run([test_kv.BIN / "remora-tree", *words], capture_output=True, text=True, timeout=100, check=False)
                self.assertEqual(done.returncode, code, done)
                self.assertIn(says, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_versions(self):
        for target in self.each():
            client = self.client(target)
            memory_bytes = 1 << 20
            table = Table(client, client.alloc(memory_bytes))
            self.assertEqual(table.make(4, 30, 8192, memory_bytes // 64), errno.EINVAL)
            self.assertEqual(table.call(CREATE), errno.ENXIO)
            self.assertIsInstance(table.make(4, 30, 8192, memory_bytes), bytes)
            name, _ = table.call(CREATE)
            self.assertEqual(table.read(name), errno.ENODATA)
            self.assertEqual([table.append(name, data) for data in (b"one", b"", b"x" * 1008)], [1, 2, 3])
            self.assertEqual([table.read(name, number) for number in (1, 2, 0)], [(1, b"one"), (2, b""), (3, b"x" * 1008)])
            room, address = table.call(STAGE, name)
            client.write(address, b"L" * 8192)
            self.assertEqual(table.read(name)[0], 3)
            self.assertEqual(table.call(DELETE, name), errno.EBUSY)
            self.assertEqual(table.call(PUBLISH, name, room, 8192)[0], 4)
            self.assertEqual(table.read(name), (4, b"L" * 8192))
            self.assertEqual(table.call(DELETE, name), (0, 0))
            self.assertEqual(table.read(name), errno.ENOENT)
            self.assertNotEqual(table.call(CREATE)[0], name)

    def test_appends_of_many_clients_have_versions_of_their_own(self):
        clients, each = 4, 200
        first = self.client(self.targets["shm"])
        table = Table(first, first.alloc(1 << 20))
        self.assertIsInstance(table.make(1, clients * each, 16, 1 << 20), bytes)
        name, _ = table.call(CREATE)

        def append(n):
            mine = Table(self.client(list(self.targets.values())[n % 2]), table.address)
            return {mine.append(name, f"{n}:{m}".encode()): f"{n}:{m}".encode() for m in range(each)}
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            made = {}
            for some in pool.map(append, range(clients)):
                made |= some
        self.assertEqual(sorted(made), list(range(1, clients * each + 1)))
        self.assertEqual({number: table.read(name, number)[1] for number in made}, made)
        self.assertEqual(table.append(name, b"x"), errno.ENOSPC)

    def test_filter(self):
        # Rows of 12 bytes: a number and a signed one. Many of them cross pages.
        rows = [(n, (n * 7919) % 1001 - 500) for n in range(60000)]
        for target in self.each():
            client = self.client(target)
            address = client.alloc(12 * len(rows))
            client.write(address, b"".join(struct.pack("<Qi", *row) for row in rows))

            def args(first, limit, value, column, address=address):
                """Rows with a number of `limit` or more whose other number is below `value`."""
                unsigned, signed = 8, 4 | 16
                return (struct.pack("<QQQII", address, len(rows), first, 12, 0) +
                        struct.pack("<QHB5xB7x", limit, 0, unsigned, 6) + struct.pack("<qHB5xB7x", value, 8, signed, 1) + column)
            match = [row for row in rows if row[0] >= 1000 and row[1] < -100]
            first, calls, matches, total, leasts, greatests = 0, 0, 0, 0, [], []
            while first < len(rows):
                result = client.query(FILTER, RUN, args(first, 1000, -100, struct.pack("<HB5x", 8, 4 | 16)))
                first, count, low, high, least, greatest = struct.unpack("<QQQqqq", result)
                calls, matches, total = calls + 1, matches + count, total + (high << 64) + low
                leasts.append(least)
                greatests.append(greatest)
            self.assertEqual((calls, matches, total), (2, len(match), sum(row[1] for row in match)))
            self.assertEqual((min(leasts), max(greatests)), (min(row[1] for row in match), max(row[1] for row in match)))
            first, numbers = 0, []
            while first < len(rows):
                result = client.query(FILTER, ROWS, args(first, 1000, -100, bytes(8)))
                first, count = struct.unpack_from("<QQ", result)
                numbers += struct.unpack_from(f"<{count}Q", result, 16)
            self.assertEqual(numbers, [row[0] for row in match])
            self.assertEqual(client.query(FILTER, RUN, args(0, 0, 0, bytes(8))), errno.EINVAL)
            self.assertEqual(client.query(FILTER, RUN, args(0, 0, 0, struct.pack("<HB5x", 8, 4), address - (1 << 30) & (1 << 63) - 1)),
                             errno.EFAULT)


if __name__ == "__main__":
    unittest.main()
