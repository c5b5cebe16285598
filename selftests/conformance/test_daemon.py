# SPDX-License-Identifier: GPL-2.0
"""remora-node as a program: how it ends where it can't serve, its control socket, and what remora shows of it."""

import concurrent.futures
import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODE = [ROOT / "out/bin/remora-node", "--memory", "16M", "--no-lock", "--bind", "127.0.0.1"]
ANY_PORT = ["--port", "0"]
GIB = 1 << 30
IDLE = {"operations": 0, "read_bytes": 0, "written_bytes": 0}  # a space that no client has used


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

    def refused(self, *words, code=1):
        done = subprocess.run([*NODE, *words], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done)
        return [line for line in done.stderr.splitlines() if "warning" not in line]

    @contextlib.contextmanager
    def node(self, *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options):
        """A node that is ready, and its port."""
        ready, given = os.pipe()
        with subprocess.Popen([*NODE, *ANY_PORT, *words, "--ready-fd", str(given)], pass_fds=[given], stdout=stdout,
                              stderr=stderr, **options) as node:
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

    def test_an_address_of_no_interface_is_refused_with_advice(self):
        done = subprocess.run([*NODE[:-2], *ANY_PORT, "--bind", "192.0.2.1"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done)
        said = done.stderr
        self.assertIn("no interface has that address: choose another --bind", said)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_rights_that_lack_are_refused_with_advice(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            key = pathlib.Path(folder) / "key"
            self.remora("key", "new", key)
            program = shutil.copy(NODE[0], folder)  # the user might not reach the one in the tree
            cases = [(("--port", "0", "--no-lock", "--space", f"1={key}"),
                      "be its owner, or copy it to a file of this user's with mode 600"),
                     (("--port", "0"), "run it as root, or under 'prlimit --memlock=unlimited', or give --no-lock")]
            if int(pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) > 1023:
                cases.append((("--port", "1023", "--no-lock"), "be root, or choose a --port from 1024 on"))
            for words, advice in cases:
                done = subprocess.run(
                    [program, "--memory", "16M", "--bind", "127.0.0.1", *words], user=65534, capture_output=True, text=True,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536)), timeout=60, check=False)
                self.assertEqual(done.returncode, 1, done)
                self.assertIn(advice, done.stderr)

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

    def test_a_reader_of_stdout_that_stalls_does_not_stop_control(self):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        with self.controlled(stdout=writer) as (node, _, _, command):
            os.set_blocking(writer, False)
            with contextlib.suppress(BlockingIOError):
                while os.write(writer, b"x" * 512):
                    pass
            os.set_blocking(writer, True)  # as the node knows it
            for _ in range(3):
                node.send_signal(signal.SIGUSR1)
                command("status")
        os.close(reader)
        os.close(writer)

    def break_a_rule(self, rings):
        """A client of the rings that posts more entries than there are; returns when the node has ended its rings."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(60)
            client.connect(str(rings))
            offer, files, _, _ = socket.recv_fds(client, 4096, 2)
            with mmap.mmap(files[1], 4096) as page:
                struct.pack_into("<I", page, 64 + 4 * struct.unpack_from("<I", offer, 48)[0], 0x7fffff)
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:  # wakes the node
                    other.connect(str(rings))
                    for file in [*files, *socket.recv_fds(other, 4096, 2)[1]]:
                        os.close(file)
                    self.assertEqual(client.recv(1), b"")

    def test_lends_on_when_nothing_can_be_said_on_stderr(self):
        reader, writer = os.pipe()
        with open("/dev/full", "wb") as full, tempfile.TemporaryDirectory() as folder:
            os.close(reader)
            rings = pathlib.Path(folder) / "rings"
            for stderr in (writer, full):
                with self.node("--shm", rings, stderr=stderr) as (node, _):
                    self.break_a_rule(rings)
                    self.assertIsNone(node.poll())
                done = subprocess.run([*NODE, "--port", "nonsense"], stderr=stderr, timeout=60, check=False)
                self.assertEqual(done.returncode, 2)
        os.close(writer)

    def test_top(self):
        with tempfile.TemporaryDirectory() as folder:
            status = pathlib.Path(folder) / "status"
            with self.node("--json-status", status) as (_, port):
                said = subprocess.run([ROOT / "out/bin/remora", "top", "--json", "--interval", "0.01", "--socket", status],
                                      check=True, stdout=subprocess.PIPE).stdout
            [shown] = [each for each in json.loads(said)["nodes"] if each["node"] == str(status)]
            self.assertEqual(shown["port"], port)
            self.assertEqual([shown[f"{what}_per_s"] for what in ("read", "write", "atomic", "put", "drop")], [0] * 5)

    def test_top_shows_spaces_of_a_daemon_in_so_many_samples(self):
        with self.controlled() as (_, path, (one, _), node):
            node("space", "add", f"1={one}")
            words = ("top", "-b", "-n", "2", "--interval", "0.01", "--socket", path)
            lines = self.remora(*words).splitlines()
            self.assertEqual(len([line for line in lines if line.startswith("LENT") and "SPACE" in line]), 2)
            self.assertEqual(len([line for line in lines if line.startswith(f"{path}  1  ")]), 2)
            samples = [json.loads(line) for line in self.remora(*words, "--json").splitlines()]
            self.assertEqual([sample["nodes"][0]["spaces"][0]["operations_per_s"] for sample in samples], [0, 0])

    def test_top_finds_the_daemon_at_the_default_path(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path("/run" if os.geteuid() == 0 else folder) / "remora-node.sock"
            if path.exists():
                self.skipTest(f"another daemon serves at {path}")
            with self.node(env={**os.environ, "XDG_RUNTIME_DIR": folder}):
                shown = json.loads(self.remora("top", "--json", "--interval", "0.01",
                                               env={**os.environ, "XDG_RUNTIME_DIR": folder}))
                self.assertIn(str(path), [node["node"] for node in shown["nodes"]])

    @contextlib.contextmanager
    def opened(self, target):
        """The library, and a handle to this target."""
        library = ctypes.CDLL(ROOT / "out/lib/libremote.so")
        library.remote_why.restype = ctypes.c_char_p
        handle = ctypes.c_void_p()
        self.assertEqual(library.remote_open(ctypes.byref(handle), target.encode(), None), 0, library.remote_why())
        try:
            yield library, handle
        finally:
            library.remote_close(handle)

    # ---- the control socket ----

    def remora(self, *words, code=0, **options):
        """The output of remora, or its error if it fails."""
        done = subprocess.run([ROOT / "out/bin/remora", *words], capture_output=True, text=True, timeout=60, check=False,
                              **options)
        self.assertEqual(done.returncode, code, done)
        return done.stderr if code else done.stdout

    def test_unknown_words_are_named_with_the_nearest(self):
        for words, error in (((), "remora needs one of key, node, attach"),
                             (("node",), "remora node needs one of start, stop, status"),
                             (("node", "strt"), "no command 'remora node strt': is it 'remora node start'?"),
                             (("unlike-all",), "no command 'remora unlike-all': see 'remora --help'"),
                             (("stats", "--unlike"), "not expected: --unlike: see 'remora stats --help'"),
                             (("attach",), "NODE is required: see 'remora attach --help'")):
            said = self.remora(*words, code=2)
            self.assertIn(error, said)
            self.assertEqual(said.count("\n"), 1, said)
        self.assertEqual(self.remora("help", "node", "start"), self.remora("node", "start", "--help"))

    def test_systemd_hears_of_ready_and_stopping(self):
        for abstract in (False, True):
            with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
                name = f"@{folder}/n" if abstract else f"{folder}/n"
                supervisor.bind(name.replace("@", "\0"))
                supervisor.settimeout(60)
                with self.node(env={**os.environ, "NOTIFY_SOCKET": name}):
                    self.assertEqual(supervisor.recv(100), b"READY=1")
                self.assertEqual(supervisor.recv(100), b"STOPPING=1")

    def test_unknown_option_in_a_file_is_told_with_its_line(self):
        for text, says in (("sessionz = 3\n", "1: there is no option 'sessionz': is it 'sessions'?"),
                           ("# none\n\n page = \"64K\"\n  bogus=3\n", "4: there is no option 'bogus': see"),
                           ("page = \"64K\"\n[part]\nbogus = 3\n", "2: [part] is not expected: the file has no sections")):
            with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
                file.write(text)
                file.flush()
                done = subprocess.run([*NODE, "--config", file.name], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn(f"{file.name}:{says}", done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    @contextlib.contextmanager
    def controlled(self, *words, **options):
        """A node, its control socket, two key files, and remora node for it."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "control"
            keys = [pathlib.Path(folder) / name for name in ("one.key", "two.key")]
            for key in keys:
                self.remora("key", "new", key)
            with self.node("--socket", path, *words, **options) as (node, _):
                yield node, path, keys, lambda *verb, code=0: self.remora("node", *verb, "--socket", path, code=code)

    def test_spaces_come_and_go_while_the_node_serves(self):
        with self.controlled() as (_, path, (one, two), node):
            node("space", "add", f"1={one},quota=1M")
            node("space", "add", f"2={two},read-only-of=1")
            self.assertEqual(json.loads(node("space", "list", "--json")), [
                {"space": 1, "promised_bytes": 0, "quota_bytes": 1 << 20, "regions": 0, "read_only_of": 0,
                 "calls_ns": 0, **IDLE, "sealed_only": 0, "member_of": 0, "revoked": 0},
                {"space": 2, "promised_bytes": 0, "quota_bytes": 0, "regions": 0, "read_only_of": 1,
                 "calls_ns": 0, **IDLE, "sealed_only": 0, "member_of": 0, "revoked": 0}])
            self.assertEqual(json.loads(node("status", "--json"))["spaces"], 2)
            node("space", "add", f"4={one},require=sealed")
            self.assertEqual([space["sealed_only"] for space in json.loads(node("space", "list", "--json"))], [0, 0, 1])
            node("space", "add", f"5={two},read-only-of=4")  # as the space that it shows
            self.assertEqual(json.loads(node("space", "list", "--json"))[-1]["sealed_only"], 1)
            node("space", "del", "5")
            node("space", "del", "4")
            for verb, error in ((("add", f"1={two}"), "space 1 exists already: choose another id, or delete it first"),
                                (("add", f"3={two},quota=1"), "space 3 has a quota below one page: raise it"),
                                (("add", f"3={one},read-only-of=1"),
                                 "space 3 has the key of another client of 1: make one for this client"),
                                (("del", "1"), "space 1 has read-only views or members: delete them first"),
                                (("del", "--force", "1"), "space 1 has read-only views or members: delete them first"),
                                (("del", "3"), "no space 3: 'remora node space list' has them")):
                self.assertEqual(node("space", *verb, code=1), f"remora: {error}\n")
            node("space", "del", "2")
            node("space", "del", "1")
            self.assertEqual(json.loads(node("space", "list", "--json")), [])
            node("space", "add", f"1={two}")  # its id and its place are free again

    def test_a_lost_key_is_revoked_and_the_memory_stays(self):
        with self.controlled() as (_, path, (lost, kept), node):
            node("space", "add", f"1={lost}")
            node("space", "add", f"2={kept},member-of=1,require=sealed")
            self.assertEqual(node("space", "add", f"3={kept},member-of=1", code=1),
                             "remora: space 3 has the key of another client of 1: make one for this client\n")
            self.assertEqual(node("space", "add", f"3={kept},member-of=2", code=1),
                             "remora: space 3 shows the memory of 2, which has none of its own: name the space that has\n")
            target = f"udp:127.0.0.1:{json.loads(node('status', '--json'))['port']},key="
            address, data = ctypes.c_uint64(), ctypes.create_string_buffer(8)
            with self.opened(f"{target}{lost}") as (library, handle):
                self.assertEqual(library.remote_alloc(handle, ctypes.c_uint64(65536), 3, ctypes.byref(address)), 0)
                self.assertEqual(library.remote_write(handle, address, b"kept", 4), 0)
            with self.opened(f"{target}{kept},space=2,integrity=sealed") as (library, handle):
                node("space", "revoke", "1")
                self.assertEqual(library.remote_read(handle, address, data, 4), 0)
                self.assertEqual(data.value, b"kept")
            self.assertEqual([(each["space"], each["revoked"], each["member_of"], each["regions"])
                              for each in json.loads(node("space", "list", "--json"))], [(1, 1, 0, 1), (2, 0, 1, 0)])
            _, first, second = node("space", "list").splitlines()
            self.assertIn("revoked", first)
            self.assertIn("member of 1, sealed", second)
            self.assertEqual(node("space", "revoke", "1", code=1), "remora: the key of space 1 is revoked already\n")
            self.assertEqual(node("space", "revoke", "3", code=1), "remora: no space 3: 'remora node space list' has them\n")
            node("space", "revoke", "2")
            self.assertEqual([each["space"] for each in json.loads(node("space", "list", "--json"))], [1])

    def test_regions_of_a_space_are_listed(self):
        with self.controlled() as (_, path, (one, _), node):
            node("space", "add", f"1={one}")
            self.assertEqual(json.loads(node("regions", "1", "--json")), [])
            self.assertEqual(node("regions", "3", code=1), "remora: no space 3: 'remora node space list' has them\n")
            port = json.loads(node("status", "--json"))["port"]
            with self.opened(f"udp:127.0.0.1:{port},key={one}") as (library, handle):
                address = ctypes.c_uint64()
                for permission, name in ((3, b"table"), (1, "t\u00e9".encode())):
                    self.assertEqual(library.remote_alloc(handle, ctypes.c_uint64(100000), permission, ctypes.byref(address)), 0)
                    self.assertEqual(library.remote_publish(handle, name, address), 0)
                self.assertEqual(library.remote_publish(handle, b"again", address), 0)
            first, second = json.loads(node("regions", "1", "--json"))
            self.assertEqual(first | {"address": None}, {"address": None, "bytes": 131072, "permission": "read-write",
                                                         "names": 1, "name": "table"})
            self.assertEqual(second, {"address": hex(address.value), "bytes": 131072, "permission": "read", "names": 2,
                                      "name": "t\\xc3\\xa9"})
            lines = [line.split() for line in node("regions", "1").splitlines()]
            self.assertEqual(lines, [["ADDRESS", "BYTES", "PERMISSION", "NAME"],
                                     [first["address"], "131072", "read-write", "table"],
                                     [second["address"], "131072", "read", "t\\xc3\\xa9", "and", "1", "more"]])

    def test_stop_returns_when_the_node_has_ended(self):
        with self.controlled() as (node, path, _, command):
            command("stop")
            self.assertFalse(path.exists())
            self.assertEqual(node.wait(timeout=60), 0)
            self.assertEqual(command("status", code=1),
                             f"remora: no memory node listens at {path}: No such file or directory\n")

    def test_only_its_owner_may_open_the_control_socket(self):
        with self.controlled() as (_, path, _, _):
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_other_users_are_refused_even_where_they_can_connect(self):
        with self.controlled() as (_, path, _, _):
            for opened in (path, path.parent):
                opened.chmod(0o777)
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(60)
                os.seteuid(65534)
                try:
                    asking.connect(str(path))
                finally:
                    os.seteuid(0)
                self.assertEqual(json.loads(asking.makefile().readline()),
                                 {"ok": False, "error": "only root and the user that runs the daemon may control it"})

    def say(self, path, *lines):
        """The node's answers to these lines, sent at once on one connection."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(60)
            asking.connect(str(path))
            asking.sendall(b"".join(lines))
            answers = asking.makefile()
            return [json.loads(answers.readline()) for line in lines]

    def test_requests_that_are_none_are_refused_by_a_line_each(self):
        key = b'"key": "' + b"1" * 32 + b'"'
        bad = [b"", b"status", b"{", b"[" * 4000, b"[]", b"7", b"{}", b'{"verb": 1}', b'{"verb": "halt"}', b"\xff\xfe", b"\0",
               b'{"verb": "status", "more": 1}', b'{"verb": "stop", "space": 1}', b'{"verb": "space del"}',
               b'{"verb": "space del", "space": 0}', b'{"verb": "space del", "space": -1}',
               b'{"verb": "space del", "space": 1e3}', b'{"verb": "space del", "space": 4294967296}',
               b'{"verb": "space del", "space": "1"}', b'{"verb": "space del", "space": 1, "force": 1}',
               b'{"verb": "space add", "space": 1}', b'{"verb": "space add", "space": 1, "key": "123"}',
               b'{"verb": "space add", "space": 1, "key": "' + b"g" * 32 + b'"}',
               b'{"verb": "space add", "space": 1, "quota_bytes": 18446744073709551616, ' + key + b"}",
               b'{"verb": "space add", "space": 1, "quota_bytes": 65536, "read_only_of": 2, ' + key + b"}"]
        with self.controlled() as (_, path, _, node):
            for line in bad:
                [answer] = self.say(path, line + b"\n")
                self.assertEqual((answer["ok"], len(answer["error"].splitlines())), (False, 1), (line, answer))
            said = self.say(path, *[line + b"\n" for line in bad if len(line) < 200], b'{"verb": "space list"}\n')
            self.assertEqual(said[-1], {"ok": True, "spaces": []})
            # One that has no end gets a line, too, and then the connection ends.
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(60)
                asking.connect(str(path))
                asking.sendall(b"x" * 4096)
                self.assertIn("longer than", json.loads(asking.makefile().read())["error"])
            self.assertEqual(json.loads(node("status", "--json"))["spaces"], 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_rings_refuse_another_user_with_advice(self):
        library = ctypes.CDLL(ROOT / "out/lib/libremote.so")
        library.remote_why.restype = ctypes.c_char_p
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            key, path = (pathlib.Path(folder) / name for name in ("key", "rings"))
            self.remora("key", "new", key)
            os.chown(key, 65534, 65534)
            with self.node("--shm", path, "--space", f"1={key}"):
                # The kernel refuses the connection; where somebody changed the socket's mode, the node does.
                for mode, why in ((0o600, f"this user may not use {path}: be root, or the node's user, or start the node with "
                                          "--shm-mode 666"),
                                  (0o666, f"the node at {path} refuses this user: its --shm-mode says who may use it")):
                    path.chmod(mode)
                    handle = ctypes.c_void_p()
                    os.seteuid(65534)
                    try:
                        error = library.remote_open(ctypes.byref(handle), f"shm:{path},key={key}".encode(), None)
                    finally:
                        os.seteuid(0)
                    self.assertEqual((error, library.remote_why().decode()), (-errno.EACCES, why))

    def test_connections_that_say_nothing_keep_no_others_out(self):
        with self.controlled() as (_, path, _, node), contextlib.ExitStack() as idle:
            for n in range(100):
                asking = idle.enter_context(socket.socket(socket.AF_UNIX))
                asking.connect(str(path))
                if n % 2:
                    asking.sendall(b'{"verb":')
                node("status")

    def test_a_second_node_serves_without_the_default_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            options = {"env": {**os.environ, "XDG_RUNTIME_DIR": folder}}
            if os.geteuid() == 0:  # root's default is the machine's
                options["user"] = 65534
                os.chown(folder, 65534, 65534)
            path = pathlib.Path(folder) / "remora-node.sock"
            with self.node(**options) as (_, port):
                self.assertTrue(path.is_socket())
                with self.node(stderr=subprocess.PIPE, **options) as (second, _):
                    second.terminate()
                    self.assertIn(f"remora-node: warning: no control socket: can't listen at {path}: Address already in use: "
                                  "choose another path for --socket", second.stderr.read().decode().splitlines())
                said = self.remora("node", "status", "--json", **options)  # no module, no --socket
                self.assertEqual(json.loads(said)["port"], port)

    def test_a_named_socket_that_another_node_has_is_refused(self):
        with self.controlled() as (_, path, _, _):
            self.assertEqual(self.refused(*ANY_PORT, "--socket", path),
                             [f"remora-node: can't listen at {path}: Address already in use: choose another path for --socket"])

    def test_list_of_spaces_is_a_table(self):
        with self.controlled() as (_, _, (one, two), node):
            self.assertEqual(node("space", "list"), "SPACE  PROMISED  QUOTA  REGIONS  ACCESS  CALLS\n")
            node("space", "add", f"7={one},quota=1536K")
            node("space", "add", f"1234567={two},read-only-of=7")
            port = json.loads(node("status", "--json"))["port"]
            with self.opened(f"udp:127.0.0.1:{port},key={one},space=7") as (library, handle):
                address = ctypes.c_uint64()
                self.assertEqual(library.remote_alloc(handle, ctypes.c_uint64(1 << 20), 3, ctypes.byref(address)), 0)
                self.assertEqual(node("space", "list").splitlines(),
                                 ["SPACE    PROMISED  QUOTA  REGIONS  ACCESS          CALLS",
                                  "7        1M        1.50M  1        full            0 us",
                                  "1234567  0         -      0        read-only of 7  0 us"])
                self.assertEqual(json.loads(node("space", "list", "--json")), [
                    # remote_alloc() ends with a read of one byte.
                    {"space": 7, "promised_bytes": 1 << 20, "quota_bytes": 1536 << 10, "regions": 1, "read_only_of": 0,
                     "calls_ns": 0, "operations": 1, "read_bytes": 1, "written_bytes": 0, "sealed_only": 0,
                     "member_of": 0, "revoked": 0},
                    {"space": 1234567, "promised_bytes": 0, "quota_bytes": 0, "regions": 0, "read_only_of": 7,
                     "calls_ns": 0, **IDLE, "sealed_only": 0, "member_of": 0, "revoked": 0}])

    # ---- --spin-us ----

    def test_options_out_of_range_are_refused_with_the_range(self):
        attach = "attach 127.0.0.1 --size 16M --key /dev/null"
        for words, says in ((f"{attach} --timeout 60", "--timeout '60' is not 0.001 to 30 seconds"),
                            (f"{attach} --timeout 0", "--timeout '0' is not 0.001 to 30 seconds"),
                            (f"{attach} --index 1024", "--index '1024' is not a number from 0 to 1023"),
                            (f"{attach} --queues 0", "--queues '0' is not a number from 1 to"),
                            ("attach 127.0.0.1 --programs --key /dev/null --fail-after 61", "'61' is not 0.001 to 60 seconds"),
                            ("ping 127.0.0.1 --key /dev/null --timeout 0", "--timeout '0' is not 0.001 to 4294967.295 seconds"),
                            ("stats --interval 0", "--interval '0' is not 0.001 to 4294967.295 seconds"),
                            ("top --interval 0", "--interval '0' is not 0.001 to 4294967.295 seconds"),
                            ("eqds share eqds0 10.0.0.0/8 --weight 1025", "--weight: Value 1025 not in range"),
                            ("eqds share eqds0 10.0.0.0/8 --priority 8", "--priority: Value 8 not in range"),
                            ("eqds set eqds0 --ttl 256", "--ttl: Value 256 not in range")):
            done = subprocess.run([ROOT / "out/bin/remora", *words.split()], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done)

    def test_spin_us_that_is_no_time_is_refused_by_one_line(self):
        for value in ("-1", "1000001", "18446744073709551616", "1.5", "50us", "nonsense"):
            [line] = self.refused(*ANY_PORT, f"--spin-us={value}", code=2)
            self.assertTrue(line.startswith("remora-node: ") and "--spin-us" in line and value in line, line)

    # ---- programs beside the memory ----

    @staticmethod
    def chaser(target, *words):
        return subprocess.Popen([ROOT / "out/bin/chaser", target, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    def calls_end(self, target, other, chase, command):
        """selftests/lab/chaser.c runs before the program is loaded, with it, and beside clients whose calls never end by themselves:
        one of the same space, and one of another space, which comes by another transport. Then their spaces are deleted."""
        def expect(process, code, says=""):
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, code, out + err)
            self.assertIn(says, err)

        def greedy(target):
            process = self.chaser(target, "greedy")
            self.assertEqual(process.stdout.readline(), "greedy\n")
            return process
        expect(self.chaser(target), 1, "the node has no such offload")
        command("offload", "load", chase, "--space", "1")
        self.assertIn("of that id", command("offload", "load", chase, "--space", "1", code=1))
        self.assertIn("no space 9", command("offload", "load", chase, "--space", "9", code=1))
        self.assertIn("can't load", command("offload", "load", "/etc/passwd", "--space", "1", code=1))
        expect(self.chaser(target), 0)
        listed, = json.loads(command("offload", "list", "--json"))
        self.assertEqual((listed["name"], listed["running"], listed["failed"]), ("chase", 0, 2), listed)
        self.assertGreaterEqual(listed["ended"], 205, listed)
        self.assertGreaterEqual(listed["used_ns"], 10_000_000, listed)
        command("offload", "remove", "chase", "--space", "1")
        self.assertIn("has no offload chase", command("offload", "remove", "chase", "--space", "1", code=1))
        command("offload", "load", chase, "--space", "1", "--budget", "12000")
        command("offload", "load", chase, "--space", "2")
        with greedy(target) as same, greedy(other) as another:
            expect(self.chaser(target), 0)
            same.terminate()
            expect(same, 0)
            another.terminate()
            expect(another, 0)
        with greedy(target) as same, greedy(other) as another:
            command("space", "del", "--force", "1")
            command("offload", "remove", "chase", "--space", "2")
            command("space", "del", "--force", "2")
            for process in (same, another):
                process.kill()
                process.communicate()
        self.assertEqual(json.loads(command("status", "--json"))["sessions"], 0)
        self.assertEqual(json.loads(command("offload", "list", "--json")), [])

    def test_calls_by_udp_and_rings(self):
        for rings in (False, True):
            with self.subTest(rings=rings), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "rings"
                with self.controlled("--shm", path) as (_, _, (one, two), command):
                    command("space", "add", f"1={one}")
                    command("space", "add", f"2={two}")
                    port = json.loads(command("status", "--json"))["port"]
                    ways = [f"udp:127.0.0.1:{port}", f"shm:{path}"]
                    target, other = reversed(ways) if rings else ways
                    self.calls_end(f"{target},key={one}", f"{other},space=2,key={two}", ROOT / "out/lib/offload/chase.so", command)

    @contextlib.contextmanager
    def served(self, spin_us, *, rings):
        """A node that spins for that time, and a function that has it serve 100 requests, with a pause after each."""
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            key, path = (pathlib.Path(folder) / name for name in ("key", "rings"))
            self.remora("key", "new", key)
            words = ["--spin-us", str(spin_us), "--space", f"1={key}", *(["--shm", path] if rings else [])]
            node, port = stack.enter_context(self.node(*words))
            target = f"shm:{path},key={key}" if rings else f"udp:127.0.0.1:{port},key={key}"
            library, handle = stack.enter_context(self.opened(target))

            def serve(pause_s=0):
                for _ in range(100):
                    byte = ctypes.c_uint8()
                    self.assertEqual(library.remote_read(handle, ctypes.c_uint64(0), ctypes.byref(byte), ctypes.c_size_t(1)),
                                     -errno.EFAULT)
                    time.sleep(pause_s)
            yield node, serve

    @staticmethod
    def serving_threads(node):
        """/proc's folders of all threads but the one for signals and the operator, which has timers."""
        return [task for task in pathlib.Path(f"/proc/{node.pid}/task").iterdir() if task.name != str(node.pid)]

    def sleeps(self, node):
        """How often those threads have gone to sleep."""
        return sum(int(line.split()[1]) for task in self.serving_threads(node)
                   for line in (task / "status").read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))

    def use(self, node):
        """States of those threads, and the time in ns for which each one has had a processor."""
        tasks = sorted(self.serving_threads(node))
        return ([(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks],
                [int((task / "schedstat").read_text().split()[0]) for task in tasks])

    def wait_until_idle(self, node):
        """Until those threads sleep and use no processor meanwhile; a timeout ends the suite."""
        before = None
        while (now := self.use(node)) != before or set(now[0]) != {"S"}:
            before = now
            time.sleep(0.1)

    def test_threads_that_do_not_spin_sleep_between_requests(self):
        for rings in (False, True):
            with self.subTest(rings=rings), self.served(0, rings=rings) as (node, serve):
                self.wait_until_idle(node)
                before = self.sleeps(node)
                serve(pause_s=0.001)  # a client that asks at once again can leave the node no time to sleep
                self.assertGreater(self.sleeps(node), before)
                self.wait_until_idle(node)

    @unittest.skipIf(os.sysconf("SC_NPROCESSORS_ONLN") == 1, "on one processor the daemon never spins")
    def test_threads_that_spin_serve_without_sleep(self):
        for rings in (False, True):
            with self.subTest(rings=rings), self.served(1_000_000, rings=rings) as (node, serve):
                # On a busy machine, the client itself may have no processor for so long that the node's thread sleeps.
                for _ in range(20):
                    before = self.sleeps(node)
                    serve()
                    if not (slept := self.sleeps(node) - before):
                        break
                self.assertEqual(slept, 0)
                self.wait_until_idle(node)

    # ---- remora ping ----

    def ping(self, port, key, *words, state):
        """The result of remora ping, whose state has to be this one."""
        done = subprocess.run([ROOT / "out/bin/remora", "ping", f"127.0.0.1:{port}", "--key", key, "--json", *words],
                              capture_output=True, text=True, timeout=60, check=False)
        said = json.loads(done.stdout)
        self.assertEqual((said["state"], done.returncode), (state, 0 if state == "ok" else 1), done)
        self.assertEqual(done.stderr, f"remora: {said['error']}\n" if state != "ok" else "")
        return said

    def wait_for_its_session(self, node, client):
        while not json.loads(node("status", "--json"))["sessions"]:
            self.assertIsNone(client.poll(), "the client has ended")

    def test_ping_tells_a_right_key_from_wrong_ones(self):
        with self.controlled() as (_, _, (one, two), node):
            port = json.loads(node("status", "--json"))["port"]
            self.ping(port, one, "--timeout", "0.2", state="wrong-key-or-space")
            node("space", "add", f"1={one}")
            said = self.ping(port, one, "--count", "3", state="ok")
            times = said["round_trip_ns"]
            self.assertTrue(0 < times["min"] <= times["median"] <= times["max"], times)
            self.assertEqual((said["memory_bytes"], said["free_bytes"]), (16 << 20, 16 << 20))
            self.ping(port, two, "--timeout", "0.2", state="wrong-key-or-space")
            self.ping(port, one, "--timeout", "0.2", "--space", "2", state="wrong-key-or-space")
            node("space", "add", f"2={two},read-only-of=1")
            self.ping(port, two, "--space", "2", state="ok")
            node("space", "del", "2")
            self.ping(port, two, "--timeout", "0.2", "--space", "2", state="wrong-key-or-space")

    def test_ping_prints_one_line_and_json_all_fields(self):
        with self.controlled() as (_, _, (one, two), node):
            port = json.loads(node("status", "--json"))["port"]
            node("space", "add", f"3={one}")
            words = ["ping", f"127.0.0.1:{port}", "--key", one, "--space", "3"]
            self.assertRegex(self.remora(*words, "--count", "3"),
                             rf"\A127\.0\.0\.1:{port}, space 3: ok, 16M of 16M free, 3 round trips: "
                             r"min \d+\.(\dus|\d\dms), median \d+\.(\dus|\d\dms), max \d+\.(\dus|\d\dms)\n\Z")
            said = json.loads(self.remora(*words, "--json"))
            self.assertEqual(list(said), ["node", "space", "state", "round_trip_ns", "memory_bytes", "free_bytes"])
            self.assertEqual((said["node"], said["space"]), (f"127.0.0.1:{port}", 3))
            self.assertEqual(list(said["round_trip_ns"]), ["min", "median", "max"])
            wrong = ["ping", f"127.0.0.1:{port}", "--key", two, "--space", "3", "--timeout", "0.2"]
            error = (f"127.0.0.1:{port} ignores us, though its machine answers: does the node have this space with this key, is "
                     "the UDP port open in the firewall, and is it a memory node's?")
            self.assertEqual(self.remora(*wrong, code=1), f"remora: {error}\n")
            self.assertEqual(self.ping(port, two, "--space", "3", "--timeout", "0.2", state="wrong-key-or-space"),
                             {"node": f"127.0.0.1:{port}", "space": 3, "state": "wrong-key-or-space", "error": error})

    def test_ping_takes_key_files_of_any_name(self):
        with self.controlled() as (_, _, (one, _), node):
            port = json.loads(node("status", "--json"))["port"]
            node("space", "add", f"1={one}")
            for name in ("rack,a.key", "space=2", "a b", ",", "k,space=2"):
                key = one.with_name(name)
                key.write_text(one.read_text())
                key.chmod(0o600)
                self.ping(port, key, "--count", "1", state="ok")
                node("space", "add", f"7={key},quota=1M")
                node("space", "del", "7")

    def test_rings_have_a_path_that_a_target_can_name(self):
        self.assertEqual(self.refused(*ANY_PORT, "--shm", "/tmp/rack,a", code=2), [
            "remora-node: --shm /tmp/rack,a has a comma, which ends the path in a program's target: choose another"])

    def test_commands_end_where_the_daemon_stands_still(self):
        """Each by itself, with one line; the kernel's part of top is shown."""
        with self.controlled() as (daemon, path, (one, _), node):
            node("space", "add", f"1={one}")
            os.kill(daemon.pid, signal.SIGSTOP)
            try:
                os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
                still = f"remora: the memory node at {path} doesn't answer: is it stopped?\n"
                verbs = [["status"], ["status", "--json"], ["space", "list"], ["space", "add", f"2={one}"],
                         ["space", "del", "1"], ["space", "del", "1", "--force"], ["stop"]]
                with concurrent.futures.ThreadPoolExecutor(len(verbs) + 1) as pool:
                    top = pool.submit(subprocess.run, [ROOT / "out/bin/remora", "top", "--json", "--socket", path],
                                      capture_output=True, text=True, timeout=60, check=False)
                    self.assertEqual(list(pool.map(lambda verb: node(*verb, code=1), verbs)), [still] * len(verbs))
                    self.assertEqual((top.result().returncode, top.result().stderr), (0, 2 * still))
                    self.assertEqual(json.loads(top.result().stdout)["nodes"], [])
            finally:
                os.kill(daemon.pid, signal.SIGCONT)

    def test_ping_tells_a_closed_port_from_a_silent_program(self):
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder) / "key"
            self.remora("key", "new", key)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
                taken.bind(("127.0.0.1", 0))
                port = taken.getsockname()[1]
                self.ping(port, key, "--timeout", "0.2", state="wrong-key-or-space")  # or no memory node
            self.ping(port, key, "--timeout", "0.2", state="no-node")

    def test_ping_tells_that_there_is_no_way_to_the_node(self):
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder) / "key"
            self.remora("key", "new", key)
            # As for an address without a route, connect() fails.
            said = json.loads(subprocess.run([ROOT / "out/bin/remora", "ping", "255.255.255.255", "--key", key, "--json"],
                                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False).stdout)
            self.assertEqual(said["state"], "unreachable")
            self.assertRegex(said["error"], r"\Ano way to 255\.255\.255\.255:7670: [^\n]+\Z")

    @contextlib.contextmanager
    def client(self, port, key):
        """A client that goes on and on."""
        with subprocess.Popen([ROOT / "out/bin/remora", "ping", f"127.0.0.1:{port}", "--key", key, "--json", "--count", "1000000"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
            try:
                yield client
            finally:
                client.kill()

    def test_ping_tells_that_the_node_is_full(self):
        with self.controlled("--sessions", "1", "--session-idle", "600") as (_, _, (one, _), node):
            port = json.loads(node("status", "--json"))["port"]
            node("space", "add", f"1={one}")
            with self.client(port, one) as client:
                self.wait_for_its_session(node, client)
                self.ping(port, one, state="full")

    def test_ping_needs_one_session(self):
        with self.controlled("--sessions", "1") as (_, _, (one, _), node):
            port = json.loads(node("status", "--json"))["port"]
            node("space", "add", f"1={one}")
            self.assertEqual(self.ping(port, one, state="ok")["memory_bytes"], 16 << 20)

    def test_stop_ends_a_client_at_work(self):
        with self.controlled() as (_, _, (one, _), node):
            port = json.loads(node("status", "--json"))["port"]
            node("space", "add", f"1={one}")
            with self.client(port, one) as client:
                self.wait_for_its_session(node, client)
                node("stop")
                # Silent, if it had no turn during the node's farewell.
                self.assertIn(json.load(client.stdout)["state"], ("restarted", "silent"))

    def test_closed_terminal_ends_it_with_a_farewell(self):
        # A test under nohup ignores the signal, which its node would inherit.
        with self.controlled(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)) as (daemon, _, (one, _), node):
            port = json.loads(node("status", "--json"))["port"]
            node("space", "add", f"1={one}")
            with self.client(port, one) as client:
                self.wait_for_its_session(node, client)
                daemon.send_signal(signal.SIGHUP)
                self.assertIn(json.load(client.stdout)["state"], ("restarted", "silent"))
            self.assertEqual(daemon.wait(), 0)

    def test_nohup_keeps_it(self):
        with self.node(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN), stdout=subprocess.PIPE) as (daemon, _):
            daemon.send_signal(signal.SIGHUP)
            daemon.send_signal(signal.SIGUSR1)  # signals that it takes come in the order of their numbers
            self.assertTrue(daemon.stdout.readline())
            self.assertIsNone(daemon.poll())

    def test_a_space_with_regions_is_deleted_by_force_and_its_memory_is_free(self):
        with self.controlled() as (_, _, (one, _), node):
            port = json.loads(node("status", "--json"))["port"]
            node("space", "add", f"1={one}")
            address = ctypes.c_uint64()
            with self.opened(f"udp:127.0.0.1:{port},key={one}") as (library, handle):
                self.assertEqual(library.remote_alloc(handle, ctypes.c_uint64(1 << 20), 3, ctypes.byref(address)), 0)
                self.assertEqual(library.remote_write(handle, address, b"x", ctypes.c_size_t(1)), 0)
                self.assertEqual(node("space", "del", "1", code=1), "remora: space 1 has 1 regions (1M): --force frees them\n")
                node("space", "del", "--force", "1")
                status = json.loads(node("status", "--json"))
                self.assertEqual([status[name] for name in ("spaces", "regions", "sessions", "promised_bytes", "backed_bytes")],
                                 [0] * 5)


if __name__ == "__main__":
    unittest.main()
