# SPDX-License-Identifier: GPL-2.0
"""EQDS in the namespaces of one machine: hosts on a bridge, a tunnel device in each, streams between them.

     h1            h2                 underlay 10.0.0.N on eth0, inside 10.9.0.N on eqds0
    eqds0         eqds0
     eth0          eth0
      |             |
     p1 -- rack -- p2 ...             a bridge; a port's root qdisc is the switch's queue to that host
"""

import contextlib
import json
import pathlib
import re
import statistics

import rmemlab  # sets the path to remoralab
from remoralab import compiled, rmem
from remoralab.say import LabError

HERE = pathlib.Path(__file__).resolve().parent
STREAM = HERE / "stream.py"
CORE, MODULE, TRIM = "eqds_core", "eqds", "sch_trim"
PORT = 5001
# Packets of a tunnel on the wire at once: EQDS_WINDOW_MTUS of kmod/eqds/device.h.
WINDOW_MTUS = 64
STREAM_S = 120
WAYS = ("eqds", "plain")
PORT_MBITS, PULL_MBITS = 10, 9
# A port of a switch without trimming queues this many bytes: the paper's 100 packets.
PLAIN_QUEUE_BYTES = 100 * 1500


def loaded(machine):
    return machine.run(f"cd /sys/module; for m in {TRIM} {MODULE} {CORE}; do [ ! -e $m ] || echo $m; done").out.split()


def load(machine, *names):
    present = loaded(machine)
    # A core object uses what remora_core exports: hashes.
    first = [] if rmem.CORE in rmem.loaded(machine) else [rmem.CORE]
    machine.insmod(*(rmem.module_path(machine, name) for name in [*first, *names] if name not in present))


def unload(machine):
    present = loaded(machine)
    if present:
        machine.run(["rmmod", *present], timeout=rmem.ACTION_S)
    rmem.unload(machine)


def many(lab, count):
    """The size of a flood: a fifth of count on an emulated debug kernel, where tunnels that rest would expire before its
    end."""
    return count // 5 if rmemlab.is_emulated_debug(lab) else count


def counters_of(text):
    """Counters of ethtool -S: numbers by name."""
    return {name: int(value) for name, value in re.findall(r"^\s+(\w+): (\d+)$", text, re.M)}


class Host:
    """A namespace with a tunnel device."""

    def __init__(self, machine, number):
        self.machine, self.number, self.name = machine, number, f"h{number}"
        self.under, self.inside, self.port = f"10.0.0.{number}", f"10.9.0.{number}", f"p{number}"
        self.vxlan = f"10.8.0.{number}"

    def wrap(self, command):
        return f"ip netns exec {self.name} {command}"

    def run(self, command, **more):
        return self.machine.run(self.wrap(command), **more)

    def ip(self, *lines):
        """Commands of ip(8), in the host's namespace."""
        self.machine.run(f"ip -n {self.name} -batch -", input="\n".join(lines) + "\n")

    def spawn(self, command):
        return self.machine.spawn("exec " + self.wrap(command))

    def counters(self, device="eqds0"):
        """ethtool -S, as numbers by name."""
        return counters_of(self.run(f"ethtool -S {device}").out)

    def silence(self, end=False):
        """From now on, until its end, none of its packets reaches another host: neither a tunnel's answer nor a word that there
        is no tunnel."""
        self.ip(*(f"neigh {'del' if end else 'replace'} {subnet}{number} {'' if end else 'lladdr 02:00:00:00:00:99'} dev eth0"
                  for subnet in ("10.0.0.", "fd00::") for number in range(1, 10)))


class Home(Host):
    """The machine's own namespace, in which modules have their sockets: a host of the rack as the others."""

    def wrap(self, command):
        return command

    def ip(self, *lines):
        self.machine.run("ip -batch -", input="\n".join(lines) + "\n")


class Racked:
    """with Racked(machine, 3, mbits=100) as hosts: hosts[0] pings hosts[1].inside ... home: the last is a Home."""

    def __init__(self, machine, count, mbits=0, mtu=1500, home=False):
        self.machine, self.mbits, self.mtu = machine, mbits, mtu
        self.hosts = [(Home if home and number == count else Host)(machine, number) for number in range(1, count + 1)]

    def __enter__(self):
        load(self.machine, CORE, MODULE)
        # The bridge is in a Home's namespace. It must not answer for the address of the Home's eth0.
        lines = ["modprobe -a veth bridge", f"ip link add rack mtu {self.mtu} type bridge",
                 "sysctl -qw net.ipv4.conf.rack.arp_ignore=1", "ip link set rack up"]
        for host in self.hosts:
            link, within = f"ip link add {host.port} mtu {self.mtu} type veth peer name eth0 mtu {self.mtu}", ""
            if not isinstance(host, Home):
                lines, within = [*lines, f"ip netns add {host.name}"], f" netns {host.name}"
            lines += [link + within, f"ip link set {host.port} master rack up"]
        self.machine.run(" && ".join(lines))
        for host in self.hosts:
            host.ip("link set lo up", "link set eth0 up", f"addr add {host.under}/24 dev eth0")
            self.add_device(host)
        return self.hosts

    def add_device(self, host):
        """The host's tunnel device, with its address and routes to the others."""
        host.ip("link add link eth0 name eqds0 type eqds", f"addr add {host.inside}/32 dev eqds0", "link set eqds0 up",
                *(f"route add {other.inside} via {other.under} dev eqds0 onlink src {host.inside}"
                  for other in self.hosts if other is not host))
        if self.mbits:
            host.run(f"ethtool -s eqds0 speed {self.mbits} duplex full autoneg off")

    def __exit__(self, *_):
        # Deleted by name: a namespace stays for minutes while a closed TCP socket in it has data to send.
        for host in self.hosts:
            ends = "" if isinstance(host, Home) else \
                f"pids=$(ip netns pids {host.name}); [ -z \"$pids\" ] || kill -9 $pids; ip netns del {host.name}; "
            self.machine.run(f"{ends}ip link del {host.port}", check=False)
        self.machine.run("ip link del rack", check=False)


@contextlib.contextmanager
def sink(host, connections, address=None):
    """stream.py receive; a list that has a tuple per stream at the end, in the order in which they ended: (peer,
    bytes, sha256, began_s, ended_s, bytes that the slowest stream had then)."""
    process = host.spawn(f"python3 {STREAM} receive {address or host.inside} {PORT} {connections}")
    process.wait_output("listening")
    told = []
    yield told
    result = process.wait(STREAM_S)
    assert result.rc == 0, result
    for line in result.out.splitlines()[1:]:
        peer, count, digest, began, ended, slowest = line.split()
        told.append((peer, int(count), digest, float(began), float(ended), int(slowest)))


def start(host, to, count, seed=1, address=None):
    return host.spawn(f"python3 {STREAM} send {address or to.inside} {PORT} {count} {seed}")


def transfer(host, to, count, seed=1, address=None):
    """One stream, compared byte by byte; the seconds it took at its receiver."""
    with sink(to, 1, address) as told:
        sent = start(host, to, count, seed, address).wait(STREAM_S)
        assert sent.rc == 0, sent
    (_, got, digest, began, ended, _), = told
    assert [str(got), digest] == sent.out.split(), (told, sent.out)
    return ended - began


def test_modules_go(lab):
    """The last test of a suite."""
    machine = lab["compute"]
    unload(machine)
    assert not loaded(machine)


# ---- remote memory by tunnels ----

class Lending:
    """with Lending(node, 64) as lent: a host lends memory, of so many MiB, to programs of the others and to disks of the
    rack's Home. After it no disk is left, and no region."""

    SPACE_KEY = "/run/eqds-rmem.key"

    def __init__(self, node, mib):
        self.machine, self.node, self.mib = node.machine, node, mib

    def __enter__(self):
        rmem.load(self.machine, rmem.NODE, rmem.CLIENT)
        rmem.new_key(self.machine, self.SPACE_KEY)
        self.start()
        return self

    def start(self):
        self.node.run(f"{rmem.CLI} node start --memory {self.mib}M --space 1={self.SPACE_KEY}")

    def target(self, address):
        """For libremote, and for the Home's tools."""
        return f"udp:{address},key={self.SPACE_KEY}"

    def disk(self, address, mib, *words):
        size = ["--size", f"{mib}M"] if mib else ["--programs"]
        out = rmem.remora(self.machine, "attach", address, *size, "--key", self.SPACE_KEY, *words).out
        return rmem.Device(self.machine, out.strip())

    def status(self):
        return json.loads(self.node.run(f"{rmem.CLI} node status --json").out)

    def clear(self):
        """Takes back what programs left allocated."""
        self.node.run(f"{rmem.CLI} node space del --force 1")

    def __exit__(self, kind, *_):
        for each in rmem.attached(self.machine):
            each.detach(*([] if kind is None else ["--force"]), check=kind is None)
        regions = self.status()["regions"]
        self.node.run(f"{rmem.CLI} node stop", check=kind is None)
        assert kind or not regions, f"{regions} regions are left"


# ---- EQDS beside plain ----

def address(host, way):
    return {"eqds": host.inside, "plain": host.under, "vxlan": host.vxlan}[way]


def switch(machine, receiver, way):
    """The receiver's port, as a switch of that kind has it."""
    leaf = "trim" if way == "eqds" else f"bfifo limit {PLAIN_QUEUE_BYTES}"
    # Anew, since tc replaces no leaf by one of another kind. A burst of 13 ms makes up for late timers.
    machine.run(f"tc qdisc del dev {receiver.port} root", check=False)
    machine.run(f"tc qdisc add dev {receiver.port} root handle 1: tbf rate {PORT_MBITS}mbit burst 16k limit 1m && "
                f"tc qdisc add dev {receiver.port} parent 1:1 handle 2: {leaf}")


def ping_ms(host, to, count):
    said = host.run(f"ping -c{count} -i0.05 -W10 {to}", timeout=600, check=False).out
    times = [float(each) for each in re.findall(r"time=([\d.]+)", said)]
    if not times:
        raise LabError(f"no ping came back: {said}")
    return statistics.mean(times)


def load_program():
    return compiled.program("incast", [HERE / "incast.cpp"])


def ask_ms(host, to, count):
    """Times of so many questions to a memcached, one after the other."""
    return [int(each) / 1000 for each in host.run(f"{load_program()} ask {to} 11211 {count}", timeout=900).out.split()]


class Streams:
    """with Streams(way, receiver, senders, seconds) as streams: ...; streams.counts(): [(peer, bytes)]."""

    def __init__(self, way, receiver, senders, seconds, controls=()):
        self.way, self.receiver, self.senders, self.seconds = way, receiver, senders, seconds
        self.controls = controls or ["cubic"] * len(senders)

    def __enter__(self):
        senders = " ".join(f"{host.name}={control}" for host, control in zip(self.senders, self.controls))
        # Last in the queue for the CPU: it stands for machines that have CPUs of their own.
        self.process = self.receiver.spawn(f"nice -n 19 {load_program()} pour {address(self.receiver, self.way)} {PORT} "
                                           f"{self.seconds} {senders}")
        self.process.wait_output("counting", timeout=240)
        return self

    def counts(self):
        result = self.process.wait(120 + 20 * self.seconds)
        if result.rc != 0:
            raise LabError(f"incast: {result.err}")
        lines = result.out.split("counting\n")[1].splitlines()
        return [(peer, int(count)) for peer, count in map(str.split, lines)]

    def __exit__(self, *_):
        self.process.signal(9)
        self.process.wait(120)
