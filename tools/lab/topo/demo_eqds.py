# SPDX-License-Identifier: GPL-2.0
"""EQDS at work: nine senders to one receiver, with a ping and a memcached beside them, plain and by tunnels in turn.

    h1 .. h9   TCP streams, as fast as they go --+
    h10        ping, questions to memcached -----+-- bridge -- 10 Mbit/s -- h11   receiver, memcached

`make demo-eqds` boots solo.topo as a User Mode Linux, whose namespaces are the hosts, and calls main(). The programs and
the link are the same both times. Plain, the port of the bridge has a queue of 100 packets; for EQDS, one that trims.
"""

import re
import statistics
import sys
import time

from remoralab import cache, say
from remoralab.say import LabError

sys.path.insert(0, str(cache.REPO / "selftests" / "lab"))

import eqdslab  # noqa: E402
from eqdslab import PORT_MBITS, Racked, Streams, address, ask_ms, ping_ms, switch  # noqa: E402

SENDERS, TURNS, LINES, PINGS, QUESTIONS = 9, 2, 2, 10, 20
WAYS = ("plain", "eqds")
# EQDS has at most this part of plain's increase of the ping, and of memcached's answer time.
PART = 0.1
COLUMNS = ("ping", "memcached", "ping", "memcached", "port")


def head():
    print(f"\n  {'':8}{'alone, ms':>22}{f'beside {SENDERS} senders, ms':>28}{'Mbit/s':>12}")
    print("  " + " " * 8 + "".join(f"{name:>{width}}" for name, width in zip(COLUMNS, (10, 12, 14, 14, 12))), flush=True)


def show(way, row):
    print(f"  {way:8}" + "".join(f"{value:{width}.2f}" for value, width in zip(row, (10, 12, 14, 14, 12))), flush=True)


def delays(beside, to):
    return ping_ms(beside, to, PINGS), statistics.mean(ask_ms(beside, to, QUESTIONS))


def sent_bytes(machine, receiver):
    """By the bridge's port to the receiver."""
    return int(re.search(r"Sent (\d+) bytes", machine.run(f"tc -s qdisc show dev {receiver.port} root").out)[1])


def turn(machine, way, hosts):
    *senders, beside, receiver = hosts
    to = address(receiver, way)
    switch(machine, receiver, way)
    alone, rows = delays(beside, to), []
    with Streams(way, receiver, senders, 10_000):
        for _ in range(LINES):
            before, began = sent_bytes(machine, receiver), time.monotonic()
            loaded = delays(beside, to)
            mbits = (sent_bytes(machine, receiver) - before) * 8 / (time.monotonic() - began) / 1e6
            rows.append((*alone, *loaded, mbits))
            show(way, rows[-1])
    return rows


def main(lab, _arguments):
    machine, rows = lab["compute"], {way: [] for way in WAYS}
    eqdslab.load(machine, eqdslab.CORE, eqdslab.MODULE, eqdslab.TRIM)
    machine.run("modprobe -a sch_tbf")
    with Racked(machine, SENDERS + 2, mbits=eqdslab.PULL_MBITS) as hosts:
        server = hosts[-1].spawn("memcached -u root -m 16 -t 1")
        say.stage(f"{SENDERS} senders, and one more host that asks, behind a port of {PORT_MBITS} Mbit/s")
        head()
        for way in WAYS * TURNS:
            rows[way] += turn(machine, way, hosts)
        server.signal(9)
        server.wait(60)
    plain, eqds = ([statistics.mean(column) for column in zip(*rows[way])] for way in WAYS)
    print("\n  means")
    show("plain", plain)
    show("eqds", eqds)
    ping, memcached = (eqds[2] - eqds[0]) / (plain[2] - plain[0]), eqds[3] / plain[3]
    print(f"\n  EQDS has {ping:.3f} of plain's increase of the ping, and {memcached:.3f} of memcached's answer time\n")
    if plain[2] < 10 * plain[0]:
        raise LabError("the senders did not fill the port's queue: is the machine very busy?")
    if max(ping, memcached) > PART:
        raise LabError(f"at most {PART} of each is wanted")
    print("demo: ok", flush=True)
    return 0
