# SPDX-License-Identifier: GPL-2.0
"""remora-kv over a remora-node with the offload kv: its protocols, as programs of memcached and Redis use them."""

import contextlib
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "out/bin"


@contextlib.contextmanager
def program(*words):
    """A program that is ready, with its port."""
    ready, given = os.pipe()
    with subprocess.Popen([*words, "--ready-fd", str(given)], pass_fds=[given], stdout=subprocess.DEVNULL) as running:
        os.close(given)
        try:
            with os.fdopen(ready) as pipe:
                line = pipe.readline()
            assert line, f"{words[0]} didn't start"
            running.port = int(line)
            yield running
        finally:
            running.send_signal(signal.SIGCONT)
            running.terminate()
            running.wait(30)


@contextlib.contextmanager
def node(memory="256M", offloads=("kv.so",), spaces=1):
    """A node: its targets of space 1, by each transport, and its process."""
    with tempfile.TemporaryDirectory() as folder:
        options = []
        for space in range(1, spaces + 1):
            key = pathlib.Path(folder, f"key{space}")
            key.write_text(secrets.token_hex(16) + "\n")
            key.chmod(0o600)
            options += ["--space", f"{space}={key}"]
        key, control, rings = f"{folder}/key1", f"{folder}/control", f"{folder}/rings"
        with program(BIN / "remora-node", "--memory", memory, "--no-lock", "--bind", "127.0.0.1", "--port", "0", *options,
                     "--socket", control, "--shm", rings) as running:
            for name in offloads:
                subprocess.run([BIN / "remora", "node", "offload", "load", ROOT / "out/lib/offload" / name, "--space", "1",
                                "--socket", control], check=True, timeout=60)
            yield {"shm": f"shm:{rings},key={key}", "udp": f"udp:127.0.0.1:{running.port},key={key}"}, running


def sleeps(process):
    """How often its threads have gone to sleep."""
    return sum(int(line.split()[1]) for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()
               for line in (task / "status").read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))


def cpu_ns(process):
    """The processor time that it has used."""
    return time.clock_gettime_ns(~process.pid << 3 | 2)


UNKNOWN = "-ERR Unknown subcommand or wrong number of arguments for '{}'. SETNAME and SETINFO are known."


class Client:
    def __init__(self, at):
        """at: a port, or a Unix socket's path."""
        if isinstance(at, int):
            self.socket = socket.create_connection(("127.0.0.1", at))
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(at)
        self.socket.settimeout(60)
        self.file = self.socket.makefile("rb")

    def send(self, text):
        self.socket.sendall(text if isinstance(text, bytes) else text.encode())

    def ask(self, text):
        """A line for a line."""
        self.send(text + "\r\n")
        return self.file.readline().decode().rstrip("\r\n")

    def value(self, text):
        """The lines up to END."""
        self.send(text + "\r\n")
        lines = []
        while not lines or lines[-1] not in ("END", "ERROR") and not lines[-1].startswith(("CLIENT_", "SERVER_")):
            lines.append(self.file.readline().decode().rstrip("\r\n"))
        return lines

    def redis(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.send(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self.redis_reply()

    def redis_reply(self):
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind in (b"+", b"-"):
            return line.decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode()
        assert kind == b"*", line
        return [self.redis_reply() for _ in range(int(rest))]

    def close(self):
        self.file.close()
        self.socket.close()


class Served(unittest.TestCase):
    transport = "shm"

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.targets, self.node = self.stack.enter_context(node())
        self.kv = self.serve()
        self.port = self.kv.port
        self.client = self.connect()

    def serve(self, *words):
        return self.stack.enter_context(program(BIN / "remora-kv", self.targets[self.transport], "--listen", "127.0.0.1:0",
                                                *words))

    def settle(self):
        """remora-kv has read all that its clients sent, for it has answered another one since."""
        with contextlib.closing(Client(self.port)) as other:
            self.assertEqual(other.ask("mn"), "MN")

    def connect(self, port=None):
        client = Client(port or self.port)
        self.stack.callback(client.close)
        return client

    def check(self, *pairs):
        for asked, expected in pairs:
            self.assertEqual(self.client.ask(asked), expected, asked)


class Kv(Served):
    def test_text(self):
        value, ask = self.client.value, self.client.ask
        self.assertEqual(value("get a"), ["END"])
        self.check(("set a 5 0 3\r\nxyz", "STORED"), ("add a 0 0 1\r\nq", "NOT_STORED"), ("replace b 0 0 1\r\nq", "NOT_STORED"),
                   ("append a 9 0 2\r\n!!", "STORED"), ("prepend a 9 0 2\r\n((", "STORED"), ("append no 0 0 1\r\nx", "NOT_STORED"))
        self.assertEqual(value("get a b"), ["VALUE a 5 7", "((xyz!!", "END"])
        cas = value("gets a")[0].split()[4]
        self.check((f"cas a 1 0 1 {cas}\r\n1", "STORED"), (f"cas a 1 0 1 {cas}\r\n2", "EXISTS"),
                   (f"cas b 1 0 1 {cas}\r\n2", "NOT_FOUND"), ("incr a 41", "42"), ("decr a 50", "0"), ("incr b 1", "NOT_FOUND"),
                   ("set t 0 0 1\r\nt", "STORED"), ("incr t x", "CLIENT_ERROR invalid numeric delta argument"),
                   ("incr t 1", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
                   ("touch t 100", "TOUCHED"), ("touch none 100", "NOT_FOUND"), ("delete t", "DELETED"), ("delete t", "NOT_FOUND"),
                   ("set e 0 -1 1\r\ne", "STORED"))
        self.assertEqual(value("get e"), ["END"])
        self.check(("set e 0 60 1\r\ne", "STORED"))
        self.assertEqual(value("gat 100 a e"), ["VALUE a 1 1", "0", "VALUE e 0 1", "e", "END"])
        self.assertTrue(ask("version").startswith("VERSION "))
        self.check(("verbosity 1", "OK"), ("verbosity", "ERROR"), ("nonsense", "ERROR"), ("", "ERROR"), ("get", "ERROR"))
        stats = dict(line.split()[1:] for line in value("stats")[:-1])
        self.assertEqual(stats["curr_items"], "2")
        self.assertGreater(int(stats["get_hits"]), 0)
        self.check(("flush_all", "OK"))
        self.assertEqual(value("get a e"), ["END"])
        self.client.send("quit\r\n")
        self.assertEqual(self.client.file.read(), b"")

    def test_bad_input_keeps_the_connection_in_step(self):
        ask, value = self.client.ask, self.client.value
        long = "k" * 251
        self.check((f"get {long}", "CLIENT_ERROR bad command line format"),
                   (f"set {long} 0 0 3\r\nabc", "CLIENT_ERROR bad command line format"),
                   ("set a x 0 3\r\nabc", "CLIENT_ERROR bad command line format"))
        self.assertEqual(ask("set big 0 0 1048577\r\n" + "x" * 1048577), "SERVER_ERROR object too large for cache")
        self.check(("set a 0 0 3\r\nabc", "STORED"))
        self.assertEqual(value("get a"), ["VALUE a 0 3", "abc", "END"])
        other = self.connect()
        other.send(b"\x80\x0b" + bytes(22))
        self.assertIn(b"binary", other.file.readline())
        self.assertEqual(other.file.read(), b"")

    def test_noreply_and_pipelines_keep_their_order(self):
        self.client.send("".join(f"set n{n} 0 0 {len(str(n))} noreply\r\n{n}\r\n" for n in range(500)))
        self.client.send("incr n7 3 noreply\r\ndelete n8 noreply\r\n")
        keys = " ".join(f"n{n}" for n in range(500))
        lines = self.client.value(f"get {keys}")
        self.assertEqual(len(lines), 2 * 499 + 1)
        self.assertEqual(lines[15], "10")
        # Changes of one key, and reads between them, without waiting.
        self.client.send("set c 0 0 1\r\n0\r\n" + "incr c 1\r\nget c\r\n" * 200)
        self.assertEqual(self.client.file.readline(), b"STORED\r\n")
        for n in range(1, 201):
            self.assertEqual(self.client.file.readline(), b"%d\r\n" % n)
            self.assertEqual(self.client.file.readline(), b"VALUE c 0 %d\r\n" % len(str(n)))
            self.assertEqual(self.client.file.readline(), b"%d\r\n" % n)
            self.assertEqual(self.client.file.readline(), b"END\r\n")

    def test_bad_data_chunk_is_as_long_as_its_line_says(self):
        """However its bytes come; memcached answers the same."""
        for noreply in ("", " noreply"):
            for parts in ((f"set a 0 0 3{noreply}\r\nabcdemn\r\n",), (f"set a 0 0 3{noreply}\r\nabc", "de", "mn\r\n")):
                self.client.send(parts[0])
                for part in parts[1:]:
                    self.settle()
                    self.client.send(part)
                if not noreply:
                    self.assertEqual(self.client.file.readline(), b"CLIENT_ERROR bad data chunk\r\n")
                self.assertEqual(self.client.file.readline(), b"MN\r\n")

    def test_noreply_is_never_answered(self):
        value = "x" * (1 << 20 | 1)
        self.check(("set a 0 0 1\r\nx", "STORED"), ("set t 0 0 1\r\nt", "STORED"))
        for line in (f"add a 0 0 {len(value)} noreply\r\n{value}", "set a x 0 1 noreply\r\nx", f"set {'k' * 251} 0 0 1 noreply\r\nx",
                     "incr t 1 noreply", "incr t x noreply", "delete a 5 noreply", "touch a x noreply", "touch none 5 noreply"):
            self.assertEqual(self.client.ask(f"{line}\r\nmn"), "MN", line[:50])
        self.assertEqual(self.client.value("get a"), ["VALUE a 0 1", "x", "END"])
        # The item of before would be stale.
        self.assertEqual(self.client.ask(f"set a 0 0 {len(value)} noreply\r\n{value}\r\nmn"), "MN")
        self.assertEqual(self.client.value("get a"), ["END"])
        self.check(("set a 0 0 1\r\nx", "STORED"), (f"ms a {len(value)} q\r\n{value}", "SERVER_ERROR object too large for cache"))
        self.assertEqual(self.client.value("get a"), ["END"])

    def test_negative_expiry_is_answered_once(self):
        self.check(("set a 3 0 1\r\nx", "STORED"), ("set b 3 0 1\r\ny", "STORED"))
        self.assertEqual(self.client.value("gat -1 a none"), ["VALUE a 3 1", "x", "END"])
        self.assertEqual(self.client.value("get a"), ["END"])
        self.assertEqual(self.client.ask("mg b v T-1"), "VA 1")
        self.assertEqual(self.client.file.readline(), b"y\r\n")
        self.assertEqual(self.client.ask("mg b v"), "EN")

    def test_http_ends_the_connection(self):
        for line in ("POST / HTTP/1.1", "Host: localhost", "host:localhost"):
            other = self.connect()
            other.send(f"{line}\r\nset stolen 0 0 1\r\nx\r\n")
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(other.file.read(), b"", line)
        self.assertEqual(self.client.value("get stolen"), ["END"])

    def test_client_that_has_gone_takes_no_processor_time(self):
        path = f"{self.folder}/socket"
        kv = self.stack.enter_context(program(BIN / "remora-kv", self.targets["shm"], "--unix", path))
        self.node.send_signal(signal.SIGSTOP)
        gone, other = Client(path), Client(path)
        gone.send("get a\r\n")
        self.assertEqual(other.ask("mn"), "MN")
        # Its command is under way. Were epoll to tell of the closed socket again and again, the thread would hardly sleep.
        gone.close()
        self.assertEqual(other.ask("mn"), "MN")
        slept, used_ns = sleeps(kv), cpu_ns(kv)
        while sleeps(kv) < slept + 10:
            self.assertLess(cpu_ns(kv), used_ns + 20_000_000)
            time.sleep(0.01)
        self.node.send_signal(signal.SIGCONT)
        self.assertEqual(other.value("get a"), ["END"])
        other.close()

    def test_long_pipelines_are_answered_to_the_end(self):
        self.client.send("mn\r\n" * 5000)
        for _ in range(5000):
            self.assertEqual(self.client.file.readline(), b"MN\r\n")

    def test_keys_beyond_a_calls_limit_are_found(self):
        self.check((f"set big 0 0 100000\r\n{'x' * 100000}", "STORED"))
        self.assertEqual(len(self.client.value("get" + " big" * 200)), 2 * 200 + 1)
        self.assertEqual(len(self.client.value("get" + " big" * 1000)), 2 * 1000 + 1)  # 100 MB

    def test_value_behind_a_refused_line_is_no_command(self):
        self.check(("set a 0 0 1\r\nx", "STORED"))
        for key in ("k" * 251, "!!!"):
            flag = "" if key[0] == "k" else " b"
            self.client.send(f"ms {key} 9{flag}\r\nflush_all\r\n")
            self.assertEqual(self.client.file.readline(), b"CLIENT_ERROR bad command line format\r\n")
        self.assertEqual(self.client.value("get a"), ["VALUE a 0 1", "x", "END"])

    def test_large_values(self):
        for size in (900, 1000, 8000, 9000, 65000, 66000, 300_000, 1_048_576):
            data = secrets.token_hex(size // 2)
            self.check((f"set big 3 0 {size}\r\n{data}", "STORED"))
            self.assertEqual(self.client.value("get big"), [f"VALUE big 3 {size}", data, "END"])
        self.check((f"set big 3 0 5000\r\n{'x' * 5000}", "STORED"), (f"append big 0 0 5000\r\n{'y' * 5000}", "STORED"),
                   ("prepend big 0 0 1\r\nw", "STORED"))
        self.assertEqual(self.client.value("get big")[1], "w" + "x" * 5000 + "y" * 5000)

    def test_meta(self):
        self.check(("mn", "MN"), ("mg a v", "EN"), ("ms a 2 T100 F7\r\nhi", "HD"),
                   ("mg a s f k Oabc", "HD s2 f7 ka Oabc"), ("mg a", "HD"), ("ms a 1 ME\r\nx", "NS"), ("ms b 1 MR\r\nx", "NS"),
                   ("ms a 1 MA\r\n!", "HD"), ("ms n 1 S3\r\n1", "CLIENT_ERROR invalid flag"), ("ms n 1\r\n1", "HD"),
                   ("ma n", "HD"), ("ma n MD D9 t", "HD t-1"), ("ma new", "NF"), ("ma new N0 J13", "HD"),
                   ("md none", "NF"), ("mg a C1", "CLIENT_ERROR invalid flag"))
        self.assertEqual(self.client.ask("mg a v f"), "VA 3 f7")
        self.assertEqual(self.client.file.readline(), b"hi!\r\n")
        self.assertEqual(self.client.ask("ma new v"), "VA 2")
        self.assertEqual(self.client.file.readline(), b"14\r\n")
        left = int(self.client.ask("mg a t")[4:])
        self.assertTrue(95 <= left <= 100, left)
        cas = self.client.ask("mg a c")[4:]
        self.check((f"ms a 1 C{int(cas) + 1}\r\nx", "EX"), (f"ms a 1 C{cas}\r\nx", "HD"), ("md a C1", "EX"))
        self.check(("ms Zm9v 1 b\r\nx", "HD"), ("mg foo s", "HD s1"), ("mg Zm9v b k s", "HD b kZm9v s1"))
        self.client.send("mg none v q\r\nms a 1 q\r\n1\r\nmd none q\r\nmn\r\n")
        self.assertEqual(self.client.file.readline(), b"MN\r\n")
        self.assertTrue(self.client.ask("me foo").startswith("ME foo exp=-1 "))

    def test_redis(self):
        ask = self.client.redis
        for words, expected in (
                ("PING", "+PONG"), ("ECHO hi", "hi"), ("GET a", None), ("SET a 1", "+OK"), ("GET a", "1"), ("SET a 2 NX", None),
                ("SET b 2 XX", None), ("SET b 2 NX EX 100", "+OK"), ("MGET a none b", ["1", None, "2"]), ("TTL b", range(99, 101)),
                ("TTL a", -1), ("TTL none", -2), ("PERSIST b", 1), ("PERSIST b", 0), ("PERSIST none", 0), ("TTL b", -1),
                ("EXPIRE b 50", 1), ("TTL b", range(49, 51)),
                ("EXPIRE b -1", 1), ("GET b", None), ("EXPIRE none 5", 0), ("INCR a", 2), ("INCRBY a 40", 42),
                ("DECRBY a 50", -8), ("DECR new", -1), ("INCRBY a x", "-ERR value is not an integer or out of range"),
                ("APPEND a 9", 3), ("APPEND fresh abc", 3), ("STRLEN fresh", 3), ("EXISTS a none fresh a", 3),
                ("MSET k1 v1 k2 v2", "+OK"), ("MGET k1 k2", ["v1", "v2"]), ("DEL k1 k2 k3", 2), ("DBSIZE", 3),
                ("SETNX k1 v", 1), ("SETNX k1 v", 0), ("GETSET k1 w", "v"), ("GETDEL k1", "w"), ("GETDEL k1", None),
                ("SETEX k2 10 v", "+OK"), ("TTL k2", range(9, 11)), ("SET s t", "+OK"),
                ("INCR s", "-ERR value is not an integer or out of range"), ("SELECT 0", "+OK"),
                ("SELECT 1", "-ERR DB index is out of range"), ("CONFIG GET save", []), ("COMMAND DOCS", []),
                ("CLIENT SETNAME x", "+OK"), ("CLIENT SETINFO LIB-NAME x", "+OK"), ("CLIENT REPLY OFF", UNKNOWN.format("REPLY")),
                ("CLIENT SETNAME", UNKNOWN.format("SETNAME")), ("MSET a", "-ERR wrong number of arguments for 'MSET' command"),
                ("LPUSH a b", "-ERR unknown command 'LPUSH'"), ("SET a b EX 0", "-ERR invalid expire time in 'set' command"),
                ("SET a b NX XX", "-ERR syntax error"), ("TYPE s", "+string"), ("FLUSHALL", "+OK"), ("EXISTS a s", 0), ("DBSIZE", 0)):
            got = ask(*words.split())
            self.assertTrue(got in expected if isinstance(expected, range) else got == expected, f"{words}: {got}")
        self.assertEqual(ask("SET", b"\0\r\n", "binary"), "+OK")
        self.assertEqual(ask("GET", b"\0\r\n"), "binary")
        self.assertIn("connected_clients:1", ask("INFO"))
        self.assertEqual(ask("SET", "k" * 251, "v"), "-ERR a key has 1 to 250 bytes")
        self.assertEqual(ask("QUIT"), "+OK")
        other = self.connect()
        other.send("*1\r\n$x\r\n")
        self.assertIn(b"Protocol error", other.file.readline())
        self.assertEqual(other.file.read(), b"")
        other = self.connect()
        other.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4194304\r\n")
        self.assertIn(b"Protocol error", other.file.readline())

    def test_redis_commands_that_come_in_pieces(self):
        other = self.connect()
        words = [b"MSET", *(b"%b%d" % (kind, n) for n in range(3000) for kind in (b"key", b"value"))]
        text = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        for at in range(0, len(text), 1001):
            other.send(text[at:at + 1001])
        self.assertEqual(other.redis_reply(), "+OK")
        keys = [f"key{n}" for n in range(3000)]
        self.assertEqual(other.redis("MGET", *keys, "none"), [f"value{n}" for n in range(3000)] + [None])
        self.assertEqual(other.redis("EXISTS", *keys, "none"), 3000)

    def test_append_answers_its_own_length(self):
        others = [self.connect() for _ in range(4)]
        for other in others:
            other.send(b"*3\r\n$6\r\nAPPEND\r\n$1\r\na\r\n$1\r\nx\r\n" * 100)
        lengths = [other.redis_reply() for other in others for _ in range(100)]
        self.assertEqual(sorted(lengths), list(range(1, 401)))
        self.assertEqual(others[0].redis("APPEND", "a", "y" * 9600), 10000)

    def test_processes_share_a_table(self):
        self.transport = "udp"
        other = self.connect(self.serve().port)
        self.check(("set a 0 0 5\r\nhello", "STORED"))
        self.assertEqual(other.value("get a"), ["VALUE a 0 5", "hello", "END"])
        self.assertEqual(other.ask("delete a"), "DELETED")
        self.assertEqual(self.client.value("get a"), ["END"])
        apart = self.connect(self.serve("--table", "other", "--store", "--memory", "2M").port)
        self.assertEqual(apart.value("get a"), ["END"])
        n = 0
        while apart.ask(f"set k{n} 0 0 900\r\n{'x' * 900}") == "STORED":
            n += 1
        self.assertGreater(n, 1000)
        self.assertEqual(apart.ask("set more 0 0 900\r\n" + "x" * 900), "SERVER_ERROR out of memory storing object")
        self.assertEqual(len(apart.value("get " + " ".join(f"k{each}" for each in range(n)))), 2 * n + 1)

    def test_modest_client_has_its_turn(self):
        greedy = [self.connect() for _ in range(4)]
        self.node.send_signal(signal.SIGSTOP)
        for number, each in enumerate(greedy):
            each.send("".join(f"set g{number}-{n} 0 0 1\r\nx\r\n" for n in range(1000)))
        self.settle()
        self.client.send("set modest 0 0 1\r\nx\r\n")
        self.settle()
        self.node.send_signal(signal.SIGCONT)
        self.assertEqual(self.client.file.readline(), b"STORED\r\n")
        for each in greedy:
            for _ in range(1000):
                self.assertEqual(each.file.readline(), b"STORED\r\n")
        # Versions tell in which order the node executed the sets.
        keys = " ".join(f"g{number}-{n}" for number in range(4) for n in range(1000))
        versions = [int(line.split()[4]) for line in self.client.value(f"gets {keys}") if line.startswith("VALUE")]
        mine = int(self.client.value("gets modest")[0].split()[4])
        self.assertEqual(len(versions), 4000)
        self.assertLess(sum(version < mine for version in versions), 2000)

    def test_many_clients_add_at_once(self):
        port = self.serve("--threads", "2").port
        self.check(("set sum 0 0 1\r\n0", "STORED"))
        failures = []

        def add():
            client = Client(port)
            for n in range(200):
                client.send(f"incr sum 1\r\nset k{n} 0 0 4\r\nsome\r\nget k{n}\r\n")
                got = [client.file.readline() for _ in range(5)]
                if got[1:] != [b"STORED\r\n", b"VALUE k%d 0 4\r\n" % n, b"some\r\n", b"END\r\n"]:
                    failures.append(got)
            client.close()
        threads = [threading.Thread(target=add) for _ in range(16)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(failures, [])
        self.assertEqual(self.client.value("get sum")[1], "3200")

    def test_no_item_expires_before_its_time(self):
        while not 0.5 < time.time() % 1 < 0.8:  # the rest of the second isn't a whole one
            time.sleep(0.01)
        begun = time.monotonic()
        self.check(("set a 0 1 1\r\nx", "STORED"))
        self.assertEqual(self.connect().redis("SET", "b", "x", "PX", 700), "+OK")
        for key, least in (("b", 0.7), ("a", 1)):
            while self.client.value(f"get {key}") != ["END"]:
                time.sleep(0.01)
            self.assertGreaterEqual(time.monotonic() - begun, least, key)

    def test_expiry_by_the_clock(self):
        self.check(("set a 0 2 1\r\nx", "STORED"), ("set b 0 1000 1\r\nx", "STORED"))
        while self.client.value("get a") != ["END"]:  # the suite's bound ends it else
            time.sleep(0.1)
        self.assertEqual(len(self.client.value("get b")), 3)

    def run_program(self, *words, timeout=120):
        if not shutil.which(words[0]):
            self.skipTest(f"no {words[0]}")
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
        self.assertEqual(done.returncode, 0, f"{done.stdout} {done.stderr}")
        return done.stdout + done.stderr

    def test_memccapable(self):
        out = self.run_program("memccapable", "-h", "127.0.0.1", "-p", str(self.port), "-a")
        self.assertNotIn("[FAIL]", out)
        self.assertIn("[pass]", out)

    def test_memcslap(self):
        self.run_program("memcslap", f"--servers=127.0.0.1:{self.port}", "--concurrency=4", "--execute-number=500", "--test=get")
        self.run_program("memcslap", f"--servers=127.0.0.1:{self.port}", "--concurrency=4", "--execute-number=500", "--test=set")

    def test_redis_programs(self):
        self.assertIn("PONG", self.run_program("redis-cli", "-p", str(self.port), "ping"))
        self.run_program("redis-cli", "-p", str(self.port), "set", "greeting", "hello")
        self.assertIn("hello", self.run_program("redis-cli", "-p", str(self.port), "get", "greeting"))
        out = self.run_program("redis-benchmark", "-p", str(self.port), "-t", "set,get,incr,mset", "-n", "5000", "-q", "-P", "16")
        self.assertIn("GET: ", out)


class Memory(Served):
    """Clients that send much, or don't read, beside one that asks for little."""

    buffers = 64 << 20
    slack = 32 << 20  # for the allocator, and other memory
    large = 1 << 20

    def setUp(self):
        super().setUp()
        self.kv = self.serve("--buffers", str(self.buffers), "--connections", "256")
        self.port = self.kv.port
        self.client = self.connect()
        self.base = self.bytes_of("VmRSS")

    def bytes_of(self, row):
        for line in pathlib.Path(f"/proc/{self.kv.pid}/status").read_text().splitlines():
            if line.startswith(row + ":"):
                return int(line.split()[1]) << 10
        raise KeyError(row)

    def check_modest_client(self):
        for n in range(100):
            self.check((f"set small 0 0 3\r\n{n:03}", "STORED"))
            self.assertEqual(self.client.value("get small"), ["VALUE small 0 3", f"{n:03}", "END"])

    def check_memory(self):
        self.assertLess(self.bytes_of("VmHWM"), self.base + self.buffers + self.slack)

    def test_clients_that_do_not_read(self):
        for n in range(4):
            self.check((f"set big{n} 0 0 {self.large}\r\n{str(n) * self.large}", "STORED"))
        for text in (b"".join(b"get big%d big%d\r\n" % (n % 4, n % 3) for n in range(50)), b"get" + b" big1" * 100 + b"\r\n",
                     b"*101\r\n$4\r\nMGET\r\n" + b"$4\r\nbig2\r\n" * 100):
            greedy = [self.connect() for _ in range(4)]
            for each in greedy:
                each.send(text)
            self.settle()
            self.check_modest_client()
            # These few leave enough for a large value, too.
            self.check((f"set mine 0 0 {self.large}\r\n{'m' * self.large}", "STORED"))
            self.assertEqual(len(self.client.value("get mine")[1]), self.large)
            self.check_memory()
            for each in greedy:
                left = 100 * self.large
                while left > 0:  # the last bytes don't matter: every reply is a bit longer than its values
                    got = len(each.socket.recv(1 << 20))
                    self.assertGreater(got, 0)
                    left -= got
                each.close()
        self.check_memory()

    def test_clients_that_send_much(self):
        greedy = [self.connect() for _ in range(100)]
        value = b"g" * self.large
        for n, each in enumerate(greedy):
            each.send(b"set g%d 0 0 %d\r\n" % (n, self.large) + value[:600_000])
        self.settle()
        self.check_modest_client()
        self.check_memory()
        for each in greedy:
            each.send(value[600_000:] + b"\r\n")
        for each in greedy:
            self.assertEqual(each.file.readline(), b"STORED\r\n")
        self.check_memory()

    def test_stalled_client_gives_its_memory_up(self):
        greedy = [self.connect() for _ in range(40)]
        for n, each in enumerate(greedy):
            each.send(b"set g%d 0 0 %d\r\n" % (n, self.large))
        self.settle()
        self.check((f"set a 0 0 {self.large}\r\n{'m' * self.large}", "STORED"))


class Usage(unittest.TestCase):
    def refused(self, *words, code=2):
        done = subprocess.run([BIN / "remora-kv", *words], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def test_wrong_usage_gets_one_line(self):
        self.assertIn("TARGET", self.refused())
        self.assertIn("--memory", self.refused("shm:/none", "--memory"))
        self.assertIn("size", self.refused("shm:/none", "--memory", "x").lower())
        self.assertIn("exclude", self.refused("shm:/none", "--store", "--cache"))
        self.assertIn("--listen", self.refused("shm:/none", "--listen", "nonsense"))
        self.assertIn("--item", self.refused("shm:/none", "--item", "1"))
        self.assertIn("use 64M", self.refused("shm:/none", "--buffers", "63M", "--threads", "2"))
        self.assertIn("can't open", self.refused("shm:/none,key=/none", "--listen", "127.0.0.1:0", code=1))

    def test_node_without_the_offload(self):
        with node(offloads=()) as (targets, _):
            self.assertIn("offload load", self.refused(targets["shm"], "--listen", "127.0.0.1:0", code=1))


if __name__ == "__main__":
    unittest.main()
