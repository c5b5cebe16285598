#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The core alone, given the events of a run, does what the tunnels of that run did, packet by packet.

At both ends, a recorder on the link has all outer packets in order, and trace events have what the core is given besides:
times, packets that enter a queue, deadlines, chance. out/bin/eqds-replay repeats each end from that, natively and under
sanitizers. Its packets have to be the recorded ones, byte by byte, in their order; so do its verdicts.
"""

import json
import pathlib
import re
import subprocess

import eqdslab
import rmemlab
from eqdslab import Racked, test_modules_go, transfer
from hostile_eqds import COUNTED, KIND_DATA
from remoralab import rmem, tap

MIB = 1 << 20
RECORDER = pathlib.Path(__file__).resolve().parent / "record_eqds.py"
REPLAY = rmem.CLI.parent / "eqds-replay"
TRACING = "/sys/kernel/tracing"
EVENTS = ("turn", "open", "enqueue", "pass", "expire", "receive", "outcome")
# enum eqds_verdict, as eqds_outcome prints it.
VERDICTS = ("ok", "duplicate", "trimmed", "beyond", "old-epoch", "wrong-epoch", "bad-ack", "bad-pull", "bad-nack",
            "restarted", "closed", "no-tunnel")
CONFIG = {"mtu": 1500, "window_mtus": eqdslab.WINDOW_MTUS, "outer": 48, "rto_min_ns": 2_000_000, "rto_max_ns": 200_000_000,
          "paths": 16}
RTS_SYN = "11113b"  # kind, flags, next_proto; then attempt
# The recorders end after the events: so many packets can have passed meanwhile.
TAIL = 8
LINE = re.compile(r"eqds_(\w+): (.*)$", re.M)


class Recorded:
    """with Recorded(hosts) as run: traffic; run.ends: [(events, packets)] of each host."""

    def __init__(self, hosts):
        self.hosts, self.machine = hosts, hosts[0].machine

    def __enter__(self):
        run = self.machine.run
        run(f"mountpoint -q {TRACING} || mount -t tracefs none {TRACING}")
        run(f"echo 32768 > {TRACING}/buffer_size_kb && echo > {TRACING}/trace && "
            + " && ".join(f"echo 1 > {TRACING}/events/eqds/eqds_{event}/enable" for event in EVENTS))
        self.recorders = [host.spawn(f"python3 {RECORDER} eth0") for host in self.hosts]
        for recorder in self.recorders:
            recorder.wait_output("recording")
        return self

    def __exit__(self, *_):
        self.machine.run(f"echo 0 > {TRACING}/events/eqds/enable")
        packets = []
        for recorder in self.recorders:
            recorder.end_input()
            result = recorder.wait(120)
            assert result.rc == 0, result
            packets.append(json.loads(result.out.splitlines()[-1]))
        text = self.machine.read(f"{TRACING}/trace", timeout=120)
        assert "LOST" not in text, "the trace has gaps"
        self.machine.run(f"echo > {TRACING}/trace; echo 1408 > {TRACING}/buffer_size_kb")
        nets = [host.run("stat -Lc %i /proc/self/ns/net").out.strip() for host in self.hosts]
        events = {net: [] for net in nets}
        for name, what in LINE.findall(text):
            words = dict(re.findall(r"(\w+)=(\S+)", what))
            # A turn holds the device's lock, so all up to the next turn is of its device.
            if name == "turn":
                mine = events[words["net"]]
            mine.append((name, words, what.split()))
        self.ends = [(events[net], heard) for net, heard in zip(nets, packets)]


def _script(events, packets, mbits, burst):
    """The events of an end as eqds-replay reads them, and the verdicts that the end told."""
    lines = [" ".join(str(each) for each in ("config", CONFIG["mtu"], CONFIG["window_mtus"], mbits, int(burst), CONFIG["outer"],
                                             CONFIG["rto_min_ns"], CONFIG["rto_max_ns"], CONFIG["paths"]))]
    arrived = [packet for packet in packets if packet["way"] == "in"]
    verdicts, taken = [], 0
    for name, words, told in events:
        if name == "turn":
            lines.append(f"turn {words['kind']} {words['now']}")
        elif name == "open":
            end = "sender" if "sender" in told else "receiver"
            chance = words["seed" if end == "sender" else "cookie"]
            line = f"open {end} {words['peer']} {words['id']} {int(words['epoch'], 16)} {chance}"
            # A tunnel of the receiving end is made for the packet that the trace has already told.
            lines.insert(len(lines) - (end == "receiver"), line)
            if end == "receiver":
                lines.insert(1, f"cookie {words['peer']} {chance}")
        elif name == "enqueue":
            lines.append(f"enqueue {words['peer']} {words['id']} {words['bytes']} {words['proto']} {words['segments']} "
                         f"{words['each']}")
        elif name == "pass":
            lines.append(f"pass {words['peer']} {words['id']} {words['bytes']} {words['proto']}")
        elif name == "expire":
            lines.append(f"expire {words['peer']} {words['id']}")
        elif name == "receive":
            packet = arrived[taken]
            taken += 1
            epoch = int(packet["header"][8:16], 16)
            assert epoch == int(words["epoch"], 16), f"packet {taken} of the link is another one: {packet}, {words}"
            lines.append(f"receive {words['peer']} {packet['bytes']} {int(packet['ce'])} {packet['id']} {packet['header']}")
        elif name == "outcome":
            verdicts.append(VERDICTS.index(told[-1]))
    assert 0 <= len(arrived) - taken <= TAIL, f"{len(arrived)} packets arrived, the device took {taken}"
    return "\n".join(lines) + "\n", verdicts


def _is_copy(packet):
    """Was the header copied from that of an earlier segment? The core has one header for all of them."""
    kind, seq = int(packet["header"][:2], 16), int(packet["header"][16:24], 16)
    return kind == KIND_DATA | COUNTED and packet["id"] != seq & 0xffff


def _of_core(packet):
    """The header as the core wrote it: an RTS with SYN becomes a claim later (remora/eqds.h)."""
    header = packet["header"]
    return RTS_SYN + "00" + header[8:64] + 16 * "0" if header.startswith(RTS_SYN + "01") else header


def _compare(what, seen, wanted, tail=0):
    for number, (one, other) in enumerate(zip(seen, wanted)):
        assert one == other, f"{what} {number} of {len(wanted)}: the core {one}, the run {other}"
    assert 0 <= len(wanted) - len(seen) <= tail, f"{what}: the core has {len(seen)}, the run {len(wanted)}"


def _check(hosts, run, mbits=10000, burst=True):
    for host, (events, packets) in zip(hosts, run.ends):
        script, verdicts = _script(events, packets, mbits, burst)
        result = subprocess.run([REPLAY], input=script, capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode == 0, result.stderr
        lines = [line.split() for line in result.stdout.splitlines()]
        sent = [_of_core(packet) for packet in packets if packet["way"] == "out" and not _is_copy(packet)]
        _compare(f"{host.name}: packet", [words[1] for words in lines if words[0] == "send"], sent, TAIL)
        _compare(f"{host.name}: verdict", [int(words[1]) for words in lines if words[0] == "outcome"], verdicts)
        tap.diag(f"{host.name}: {len(events)} events, {len(sent)} packets, {len(verdicts)} verdicts")


def _replayed(lab, mbits=0, burst=True, before=lambda hosts: None, mib=1):
    hosts = Racked(lab["compute"], 2, mbits=mbits)
    with hosts as (left, right):
        for host in (left, right):
            # Packets on the link are compared one by one.
            if "trains" in host.run("ethtool --show-priv-flags eqds0").out:
                host.run("ethtool --set-priv-flags eqds0 trains off")
            if not burst:
                host.run("ethtool --set-priv-flags eqds0 burst off")
            # Neighbours are found before: a packet that waits for one is not on the link yet.
            host.run(f"ping -c1 -W5 {(right if host is left else left).under}")
        before((left, right))
        with Recorded((left, right)) as run:
            transfer(left, right, mib * MIB)
        _check((left, right), run, mbits or 10000, burst)
        return left.counters(), right.counters()


def test_stream(lab):
    _replayed(lab)


def _rate(lab, mbits):
    """Sanitizers slow the sender, which must be faster than this."""
    return mbits // 10 if rmemlab.is_debug(lab) else mbits


def test_stream_that_waits_for_credit(lab):
    """Tunnels begin by asking, and pulls leave by the timer."""
    left, right = _replayed(lab, mbits=_rate(lab, 50), burst=False)
    assert right["pull_timers"] > 100, right


def test_loss_and_reordering(lab):
    """Timeouts, retransmissions, gaps that bitmaps tell, and credit that is asked for again."""
    def netem(hosts):
        for host in hosts:
            lab["compute"].netem(host.port, "delay 2ms reorder 25% loss 3% duplicate 2%")
    left, right = _replayed(lab, before=netem)
    assert left["tx_retransmits"] and right["rx_held_max"], (left, right)


def test_trimmed_packets(lab):
    """NACKs, and what is sent again for them."""
    def switch(hosts):
        eqdslab.load(lab["compute"], eqdslab.TRIM)
        lab["compute"].run("modprobe sch_tbf")
        lab["compute"].run(f"tc qdisc add dev {hosts[1].port} root handle 1: tbf rate {_rate(lab, 100)}mbit burst 4k limit 1m && "
                           f"tc qdisc add dev {hosts[1].port} parent 1:1 handle 2: trim")
    left, right = _replayed(lab, mbits=_rate(lab, 400), before=switch)
    assert right["receiver_trimmed"], right


def test_whole_packets(lab):
    """Headers that are for several packets, of which some are lost and overtaken."""
    def whole(hosts):
        for host in hosts:
            host.run("ethtool --set-priv-flags eqds0 whole on")
            # The link makes the segments.
            host.run("ethtool -K eth0 tso off")
            lab["compute"].netem(host.port, "delay 2ms reorder 25% loss 1%")
    left, right = _replayed(lab, before=whole, mib=2)
    assert left["tx_whole"] and left["tx_retransmits"] and right["rx_counted"], (left, right)


TESTS = [test_stream, test_stream_that_waits_for_credit, test_loss_and_reordering, test_trimmed_packets, test_whole_packets,
         test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
