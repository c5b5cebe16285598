# SPDX-License-Identifier: GPL-2.0
"""remora export: its text in both formats, its ways out, and the files of tools/monitor that use its names."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
REMORA = ROOT / "out/bin/remora"
MONITOR = ROOT / "tools/monitor"
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)')


def remora(*words, code=0):
    done = subprocess.run([REMORA, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done
    return done.stderr if code else done.stdout


def parsed(text, openmetrics=False):
    """{family: (type, help, {(name, labels): value})}; ValueError where the text breaks a rule of the format."""
    families, current = {}, None
    lines = text.split("\n")
    if lines.pop():
        raise ValueError("no newline at the end")
    if openmetrics and lines.pop() != "# EOF":
        raise ValueError("no # EOF")
    for line in lines:
        if line.startswith("# HELP "):
            current, told = line[7:].split(" ", 1)
            if current in families or not told:
                raise ValueError(f"{line}: its family is there already, or without a text")
            families[current] = [None, told, {}]
        elif line.startswith("# TYPE "):
            name, families[name][0] = line[7:].split(" ") if line[7:].startswith(current + " ") else (None, None)
        else:
            match = SAMPLE.fullmatch(line)
            if not match:
                raise ValueError(f"{line}: no sample")
            suffixes = {"gauge": [""], "counter": ["_total"] if openmetrics else [""],
                        "histogram": ["_bucket", "_sum", "_count"]}[families[current][0]]
            if match[1] not in [current + suffix for suffix in suffixes]:
                raise ValueError(f"{line}: outside its family")
            key = match[1], match[2] or ""
            if key in families[current][2]:
                raise ValueError(f"{line}: twice")
            families[current][2][key] = float(match[3])
    return families


def lint(families):
    """The complaints that promtool has about Prometheus' format, too."""
    for name, (kind, told, samples) in families.items():
        if not samples:
            yield f"{name}: no sample"
        if (kind == "counter") != name.endswith("_total"):
            yield f"{name}: _total is for counters"
        if re.search(r"_(ms|us|ns|kb|mb|gb|milliseconds|microseconds|nanoseconds)(_|$)", name):
            yield f"{name}: not in seconds or bytes"
        if re.search(r"counter|gauge|histogram", name):
            yield f"{name}: has its type in its name"
        if "doesn't describe" in told:
            yield f"{name}: not in the catalogue"


def catalogue():
    """The names of all metrics, from remora-counters(7)."""
    names, prefix = set(), None
    for line in remora("__counters").replace("\\-", "-").splitlines():
        if section := re.fullmatch(r"Metric: \\fB(\w+)\\fINAME\\fB_total\\fR\.", line):
            prefix = section[1]
        elif line == ".SH OTHER METRICS":
            prefix = ""
        elif line.startswith(".B ") and prefix is not None:
            name = prefix + line[3:].replace("-", "_")
            names.add(name if name.endswith("_worst") or not prefix else name + "_total")
    return names


class Export(unittest.TestCase):
    @contextlib.contextmanager
    def node(self):
        """A node of 16 MiB with space 1: its port, control socket and key file."""
        with tempfile.TemporaryDirectory() as folder:
            path, key = pathlib.Path(folder) / "control", pathlib.Path(folder) / "key"
            remora("key", "new", key)
            ready, given = os.pipe()
            with subprocess.Popen([ROOT / "out/bin/remora-node", "--memory", "16M", "--no-lock", "--bind", "127.0.0.1",
                                   "--port", "0", "--space", f"1={key},quota=8M", "--socket", path, "--ready-fd",
                                   str(given)],
                                  pass_fds=[given], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as node:
                os.close(given)
                try:
                    with os.fdopen(ready) as pipe:
                        yield int(pipe.readline()), path, key
                finally:
                    node.terminate()

    def test_both_formats_keep_their_rules(self):
        with self.node() as (_, path, _):
            text = remora("export", "--socket", path)
            families = parsed(text)
            self.assertEqual(list(lint(families)), [])
            self.assertGreater(len(families), 60)
            opened = parsed(remora("export", "--openmetrics", "--socket", path), openmetrics=True)
            self.assertEqual({name.removesuffix("_total") for name in families}, set(opened))
            if shutil.which("promtool"):
                done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                                      timeout=60, check=False)
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_each_metric_is_in_the_catalogue(self):
        with self.node() as (_, path, _):
            self.assertEqual(set(parsed(remora("export", "--socket", path))) - catalogue(), set())

    def test_space_has_its_clients_operations(self):
        with self.node() as (port, path, key):
            library = ctypes.CDLL(ROOT / "out/lib/libremote.so")
            handle, address = ctypes.c_void_p(), ctypes.c_uint64()
            target = f"udp:127.0.0.1:{port},key={key}".encode()
            self.assertEqual(library.remote_open(ctypes.byref(handle), target, None), 0)
            self.assertEqual(library.remote_alloc(handle, ctypes.c_uint64(1 << 20), 3, ctypes.byref(address)), 0)
            data = ctypes.create_string_buffer(3000)
            for _ in range(5):
                self.assertEqual(library.remote_write(handle, address, data, ctypes.c_size_t(3000)), 0)
            self.assertEqual(library.remote_read(handle, address, data, ctypes.c_size_t(100)), 0)
            families = parsed(remora("export", "--socket", path))
            # remote_alloc() ends with a read of one byte.
            labels = f'service="{path}",space="1"'
            for name, value in (("operations_total", 7), ("read_bytes_total", 101), ("written_bytes_total", 15000),
                                ("promised_bytes", 1 << 20), ("quota_bytes", 8 << 20), ("regions", 1)):
                name = f"remora_space_{name}"
                self.assertEqual(families[name][2][name, labels], value, name)
            library.remote_close(handle)
            # A session that ends leaves its counts to the space.
            name = "remora_space_operations_total"
            self.assertEqual(parsed(remora("export", "--socket", path))[name][2][name, labels], 7)

    def test_spaces_of_an_older_daemon_are_shown(self):
        """Its list has no counts of operations."""
        answers = {"status": {"status": {"started": False, "counters": {}}}, "offload list": {"offloads": []},
                   "space list": {"spaces": [{"space": 5, "promised_bytes": 9, "quota_bytes": 0, "regions": 1, "read_only_of": 0,
                                              "calls_ns": 0}]}}
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = pathlib.Path(folder) / "control"
            listener.bind(str(path))
            listener.listen()
            with subprocess.Popen([REMORA, "export", "--socket", path], stdout=subprocess.PIPE, text=True) as asking:
                connection, _ = listener.accept()
                with connection, connection.makefile("rw") as lines:
                    for line in lines:
                        lines.write(json.dumps({"ok": True, **answers[json.loads(line)["verb"]]}) + "\n")
                        lines.flush()
                families = parsed(asking.stdout.read())
            labels = f'service="{path}",space="5"'
            self.assertEqual(families["remora_space_promised_bytes"][2]["remora_space_promised_bytes", labels], 9)
            name = "remora_space_operations_total"
            self.assertEqual(families[name][2][name, labels], 0)

    def test_textfile_is_replaced_whole(self):
        with self.node() as (_, path, _), tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "remora.prom"
            file.write_text("old")
            with file.open() as reader:
                remora("export", "--textfile", file, "--socket", path)
                self.assertEqual(reader.read(), "old")  # a reader keeps the file that it opened
            self.assertEqual(list(lint(parsed(file.read_text()))), [])
            self.assertEqual(file.stat().st_mode & 0o777, 0o644)
            self.assertEqual(os.listdir(folder), ["remora.prom"])
            self.assertIn("can't write", remora("export", "--textfile", f"{folder}/no/x", "--socket", path, code=1))

    def test_page_comes_within_a_scrape_beside_silent_daemons(self):
        """Prometheus waits for 10 s. Each daemon has 5 s, and all have the same ones."""
        with self.node() as (_, path, _), contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            silent = [f"{folder}/{number}" for number in range(3)]
            for each in silent:
                listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(each)
                listener.listen()
            with self.served(path, *silent) as url, urllib.request.urlopen(url, timeout=10) as page:
                families = parsed(page.read().decode())
        up = families["remora_node_up"][2]
        self.assertEqual({service: up["remora_node_up", f'service="{service}"'] for service in (str(path), *silent)},
                         {str(path): 1, **dict.fromkeys(silent, 0)})

    @contextlib.contextmanager
    def served(self, *paths):
        sockets = [word for path in paths for word in ("--socket", path)]
        with subprocess.Popen([REMORA, "export", "--listen", "127.0.0.1:0", *sockets], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as server:
            try:
                yield server.stdout.readline().strip()
            finally:
                server.terminate()

    def test_page_is_served_in_the_format_asked_for(self):
        with self.node() as (_, path, _), self.served(path) as url:
            for accept, openmetrics in (("*/*", False), ("application/openmetrics-text;version=1.0.0", True)):
                with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=60) as page:
                    self.assertEqual(page.headers["Content-Type"].startswith("application/openmetrics-text"), openmetrics)
                    self.assertIn("remora_node_up" if openmetrics else "remora_node_verified_total",
                                  parsed(page.read().decode(), openmetrics))
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(url + "x", timeout=60)
            self.assertEqual(refused.exception.code, 404)
            refused.exception.close()

    def test_scraper_is_served_beside_idle_connections(self):
        with self.node() as (_, path, _), self.served(path) as url, contextlib.ExitStack() as stack:
            port = int(url.split(":")[2].split("/")[0])
            for _ in range(40):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)).sendall(b"GET /")
            with urllib.request.urlopen(url, timeout=60) as page:
                self.assertEqual(page.status, 200)
            with socket.create_connection(("127.0.0.1", port), timeout=60) as long:
                long.sendall(b"x" * 9000)
                self.assertIn(b"431", long.recv(100))

    def test_wrong_use_is_told(self):
        for words, error in ((("--listen", "127.0.0.1"), "is not ADDRESS:PORT: write 127.0.0.1:9101"),
                             (("--listen", "127.0.0.1:99999"), "not a number from 0 to 65535"),
                             (("--listen", "127.0.0.1:0", "--textfile", "x"), "excludes")):
            self.assertIn(error, remora("export", *words, code=2))
        self.assertIn("no memory node listens", remora("export", "--socket", "/nowhere", code=1))

    def test_dashboard_and_alerts_use_names_that_exist(self):
        names = catalogue()
        names |= {f"remora_device_latency_seconds_{suffix}" for suffix in ("bucket", "sum", "count")}
        dashboard = json.loads((MONITOR / "dashboard.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        expressions += [each["query"] for each in dashboard["templating"]["list"]]
        alerts = (MONITOR / "alerts.yaml").read_text()
        expressions += re.findall(r"expr: (?:>-\n +)?(.*)", alerts)
        used = {name for each in expressions for name in re.findall(r"\bremora_\w+\b(?!\.)", each)}
        self.assertGreater(len(used), 20)
        self.assertEqual({name for name in used if name not in names and not name.endswith("_drop_")}, set())
        if shutil.which("promtool"):
            subprocess.run(["promtool", "check", "rules", MONITOR / "alerts.yaml"], check=True, timeout=60,
                           stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main()
