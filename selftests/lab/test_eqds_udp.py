#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Unmodified UDP programs whose datagrams travel by tunnels: eqds-run and the layer that it preloads."""

import json
import pathlib
import re
import subprocess

import eqdslab
import rmemlab
from eqdslab import Racked
from remoralab import rmem, tap
from remoralab.rmem import wait_until

RUN = rmem.CLI.parent / "eqds-run"
LAYER = rmem.CLI.parent.parent / "lib/remora/libeqds-udp.so"
HABITS = pathlib.Path(__file__).resolve().parent / "udp_habits.py"
PEERS = "--peers 10.0.0.0/24"
# A packet of the tunnel with the layer's MTU: 1500 less IPv6, UDP, the tunnel's and the native header.
DATAGRAM = 1412 - 8


class Counted:
    """with Counted(host, words, command) as run: a program under eqds-run; run.process, then run.told."""

    def __init__(self, host, command, words=PEERS):
        self.host, self.command, self.words = host, command, words
        self.told = None

    def __enter__(self):
        self.file = self.host.machine.run("mktemp /tmp/eqds-run.XXXXXX").out.strip()
        self.process = self.host.spawn(f"{RUN} --stats {self.file} {self.words} -- {self.command}")
        return self

    def end(self, seconds=120):
        result = self.process.wait(seconds)
        self.told = json.loads(self.host.machine.read(self.file))
        tap.diag(f"{self.host.name}: {self.told}")
        return result

    def __exit__(self, *_):
        if self.process.running():
            self.process.signal(15)
            self.process.wait(60)


def _by_kernel(told):
    return sum(told["sent"]["kernel"].values())


def test_habits_of_udp_programs(lab):
    with Racked(lab["compute"], 2) as (left, right):
        with Counted(right, f"python3 {HABITS} serve 4711") as server:
            server.process.wait_output("serving")
            with Counted(left, f"python3 {HABITS} ask {right.under} 4711") as client:
                result = client.end()
                assert result.rc == 0, result
            assert server.end().rc == 0
        # All but what is too large for a packet, for all hosts, or stays on the machine.
        kernel = client.told["sent"]["kernel"]
        assert kernel == {"not_a_peer": 2, "this_machine": 0, "too_large": 3, "no_device": 0}, client.told
        assert server.told["received"]["kernel"] == 4, server.told
        assert client.told["sent"]["eqds"] == 22, client.told
        assert left.counters()["tx_native"] == client.told["sent"]["eqds"]
        # The answer to a datagram of a socket that was shut down has no reader.
        dropped = dict(client.told["dropped"], no_socket=0)
        assert not any(dropped.values()) and not any(server.told["dropped"].values()), (client.told, server.told)


def test_iperf3(lab):
    """Both ways; its control connection is TCP's, beside the tunnels. Only a receiver that is too slow loses datagrams.

    The reverse test has a time and no size: with -R -n, iperf3's client waits for that many bytes to arrive, but its
    server stops when it has sent them, so one lost datagram makes both wait for ever.
    """
    mib = rmemlab.scaled(lab, 8)
    with Racked(lab["compute"], 2) as (left, right):
        for words in (f"-n {mib}M", "-R -t 2"):
            with Counted(right, "iperf3 -s -1") as server:
                wait_until("iperf3 listens", lambda: ":5201" in right.run("ss -Htln").out)
                with Counted(left, f"iperf3 -u -c {right.under} -b 0 -l {DATAGRAM} --json {words}") as client:
                    result = client.end()
                    assert result.rc == 0, result
                assert server.end().rc == 0
            said = json.loads(result.out)["end"]["sum"]
            tap.diag(f"{said['bits_per_second'] / 1e6:.0f} Mbit/s, lost {said['lost_packets']} of {said['packets']}")
            source, sink = (server, client) if "-R" in words else (client, server)
            least = said["packets"] if "-R" in words else (mib << 20) // DATAGRAM
            assert source.told["sent"]["eqds"] >= least > 0 and not _by_kernel(source.told), source.told
            # The receiving program may be too slow, and then loses as UDP does. Nothing else does.
            dropped = dict(sink.told["dropped"])
            lost = dropped.pop("receiver_full") + right.counters()["rx_drop_native"] + left.counters()["rx_drop_native"]
            assert said["lost_packets"] <= lost, (said, sink.told)
            assert not any(dropped.values()) and not any(source.told["dropped"].values()), (source.told, sink.told)


ASK = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
for i in range(200):
    for request, wanted in ((b"set k%d 0 0 5\\r\\n%05d\\r\\n" % (i, i), b"STORED\\r\\n"),
                            (b"get k%d\\r\\n" % i, b"VALUE k%d 0 5\\r\\n%05d\\r\\nEND\\r\\n" % (i, i))):
        s.sendto(struct.pack(">HHHH", i, 0, 1, 0) + request, (sys.argv[1], 11211))
        said = s.recv(1500)
        assert said[:2] == struct.pack(">H", i) and said[8:] == wanted, said
print("answered")
"""


def test_memcached(lab):
    """Its sockets are in epoll (libevent's), of several threads, and it gives up root."""
    with Racked(lab["compute"], 2) as (left, right):
        with Counted(right, f"memcached -u nobody -U 11211 -p 11211 -l {right.under} -t 2") as server:
            wait_until("memcached listens", lambda: ":11211" in right.run("ss -Htln").out)
            with Counted(left, f"python3 -c '{ASK}' {right.under}") as client:
                result = client.end()
                assert result.rc == 0 and result.out == "answered\n", result
            server.process.signal(15)
            server.end()
        assert client.told["sent"]["eqds"] == client.told["received"]["eqds"] == 400, client.told
        assert server.told["sent"]["eqds"] == 400 and not _by_kernel(server.told), server.told


def test_socat_forks_for_each_peer(lab):
    with Racked(lab["compute"], 2) as (left, right):
        with Counted(right, "socat UDP4-LISTEN:4000,reuseaddr,fork EXEC:cat") as server:
            wait_until("socat listens", lambda: ":4000" in right.run("ss -Hlun").out)
            for text in ("one", "two"):
                with Counted(left, f"sh -c 'echo {text} | socat -t5 - UDP4:{right.under}:4000'") as client:
                    result = client.end()
                    assert result.rc == 0 and result.out == text + "\n", result
                    assert client.told["sent"]["eqds"] >= 1 and not _by_kernel(client.told), client.told
            server.process.signal(15)


def test_program_that_sends_without_credit_waits(lab):
    """poll() says so, as it does of a full socket; what it sent arrives when there is credit."""
    with Racked(lab["compute"], 2) as (left, right):
        send = ("import select, socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setblocking(False)\n"
                f"s.connect((\"{right.under}\", 4711)); n = 0\n"
                "try:\n  while n < 100000: s.send(b\"x\" * 1000); n += 1\n"
                "except BlockingIOError: print(n, \"full\", flush=True)\n"
                "select.select([], [s], [], 30)[1] and print(\"room\", flush=True)")
        left.run("ethtool --set-priv-flags eqds0 burst off")
        right.silence()
        with Counted(left, f"python3 -c '{send}'") as client:
            client.process.wait_output("full", timeout=60)
            sent = int(client.process.out.split()[0])
            right.silence(end=True)
            result = client.end()
            assert result.rc == 0 and "room" in result.out, result
        # As much as the pair between the two has room for, and what eqds-run may have under way.
        assert 0 < sent < 2000, sent


SERVE = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 4711))
print("serving", flush=True)
n = 0
while s.recv(2000) != b"end": n += 1
print(n, flush=True)
"""
# More than may be under way to a host. The rest fits into a quarter of the pair between program and eqds-run: a sender
# that found the pair full goes on when it is that empty.
FILLING = 150
FILL = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 4711))
for i in range({FILLING}): s.send(b"x" * 100)
print("sent", flush=True)
"""


def test_program_that_ends_leaves_nothing_behind(lab):
    """Datagrams that a program has sent arrive, although most had no credit yet when it ended."""
    with Racked(lab["compute"], 2) as (left, right):
        left.run("ethtool --set-priv-flags eqds0 burst off")
        with Counted(right, f"python3 -c '{SERVE}'") as server:
            server.process.wait_output("serving")
            right.silence()
            with Counted(left, f"python3 -c '{FILL}' {right.under}") as client:
                client.process.wait_output("sent", timeout=60)
                right.silence(end=True)
                assert client.end().rc == 0
            stop = f"s.sendto(b\"end\", (\"{right.under}\", 4711))"
            with Counted(left, f"python3 -c 'import socket; s = socket.socket(2, 2); {stop}'") as end:
                end.end()
            said = server.end()
        assert client.told["sent"]["eqds"] == FILLING, client.told
        assert said.out.split() == ["serving", str(FILLING)], said


def test_program_connects_elsewhere_before_all_it_sent_has_left(lab):
    """The rest goes to the peer of before, or nowhere."""
    with Racked(lab["compute"], 2) as (left, right):
        left.run("ethtool --set-priv-flags eqds0 burst off")
        right.silence()
        elsewhere = FILL + "s.connect((\"10.0.0.9\", 4711))\nprint(\"connected\", flush=True)\n"
        with Counted(left, f"python3 -c '{elsewhere}' {right.under}") as client:
            client.process.wait_output("connected", timeout=60)
            right.silence(end=True)
            assert client.end().rc == 0
        peers = {each["peer"] for each in json.loads(left.run(f"{rmem.CLI} eqds peers --json").out)}
        assert peers == {right.under} and client.told["dropped"]["peer_full"], (peers, client.told)


def test_layer_shows_programs_only_functions_of_sockets(lab):
    """Of a C++ program, the layer's own C++ runtime must not become the program's."""
    names = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", LAYER], check=True, capture_output=True,
                           text=True).stdout
    shown = {line.split()[0] for line in names.splitlines()}
    others = [name for name in shown if not re.fullmatch("[a-z0-9]+(_range)?|__[a-z]+_chk", name)]
    assert "sendmsg" in shown and not others, others


def test_wrong_use_is_explained(lab):
    with Racked(lab["compute"], 1) as (host,):
        for words, says, rc in (("--peers 10.0.0.0/24", "name the PROGRAM", 125),
                                ("true", "--peers is required", 125),
                                ("--peers 10.0.0.0/24 --device eqds9 true", "ip link add", 125),
                                ("--peers 10.0.0.0/33 true", "0 to 32", 125),
                                ("--peers nowhere true", "write 10.0.0.0/24", 125),
                                ("--device eth0 --peers 10.0.0.0/24 true", "eth0 is no eqds device", 125),
                                ("--peers 10.0.0.0/24 nothing-like-it", "No such file", 127)):
            result = host.run(f"{RUN} {words}", check=False)
            assert result.rc == rc and says in result.err, (words, result)
        # The program's own result is eqds-run's.
        assert host.run(f"{RUN} {PEERS} sh -c 'exit 7'", check=False).rc == 7
        # Two programs that want one port are told so, as by the kernel.
        bind = ("import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((\"\", 4711)); "
                "print(\"bound\", flush=True); sys.stdin.read()")
        with Counted(host, f"python3 -c '{bind}'") as first:
            first.process.wait_output("bound")
            second = host.run(f"{RUN} {PEERS} python3 -c '{bind}'", check=False)
            assert second.rc == 1 and "Address already in use" in second.err, second


TESTS = [test_habits_of_udp_programs, test_iperf3, test_memcached, test_socat_forks_for_each_peer,
         test_program_that_sends_without_credit_waits, test_program_that_ends_leaves_nothing_behind,
         test_program_connects_elsewhere_before_all_it_sent_has_left,
         test_layer_shows_programs_only_functions_of_sockets, test_wrong_use_is_explained]

if __name__ == "__main__":
    tap.main("solo", TESTS)
