# SPDX-License-Identifier: GPL-2.0
"""Remote memory by udp, by udp over EQDS and by EDM, in the namespaces of one machine: writers and a reader of one node.

    h1 .. h8  writers     h9  reader    h10  node      h11  scheduler
        |                  |             |              |
        p1 ...   rack      p9           p10, slow      p11        a bridge, as in eqdslab.py

The node's link is the slow one. Each packet to the node leaves by p10, whose queue holds 64 KiB, or trims for EQDS. The
node's own queue is the interface's, and long.
"""

import json
import statistics

import eqdslab
from eqdslab import Racked
from remoralab import compiled, rmem
from remoralab.say import LabError

WAYS = ("udp", "eqds", "edm")
MODULES = ("edm", "rmem_edm", "rmem_node_edm")
WRITERS, DISK_MIB = 8, 8
PORT_MBITS, QUEUE_BYTES = 100, 65536
# EQDS' credit, to the port's rate.
PULL_PART = 0.95
# A burst, 1.3 ms at 100 Mbit/s, makes up for late timers. A frame takes preamble, checksum and gap as well.
BURST_BYTES = 16384
FRAME_BYTES = 24
CHUNK_BYTES, LEASE_MS = 16384, 200
WATCH_US = 500
READ_BYTES = 4096
# The reader beside writers: about as many as udp manages, so that all ways carry the same.
READS_PER_S = 150
KEY, SPACE_KEY = "/run/edm.key", "/run/edm-space.key"
FIO = "fio --output-format=json --direct=1 --ioengine=libaio --thread --time_based --norandommap"


class EdmRack:
    """with EdmRack(machine) as rack: rack.attach(rack.reader, "edm"), rack.beside(...)"""

    def __init__(self, machine, writers=WRITERS, mbits=PORT_MBITS, disk_mib=DISK_MIB):
        self.machine, self.count, self.mbits, self.disk_mib = machine, writers, mbits, disk_mib
        self.racked = Racked(machine, writers + 3, mbits=round(PULL_PART * mbits))

    def __enter__(self):
        *self.writers, self.reader, self.node, self.scheduler = self.racked.__enter__()
        rmem.load(self.machine, rmem.NODE, rmem.CLIENT)
        self.machine.insmod(*(rmem.module_path(self.machine, name) for name in MODULES))
        eqdslab.load(self.machine, eqdslab.TRIM)
        self.machine.run("modprobe -a sch_tbf")
        for key in (KEY, SPACE_KEY):
            rmem.new_key(self.machine, key)
        self.start_node()
        self.start()
        for host in self.members():
            self.join(host)
        for host in self.members():
            self.wait_state(host, "scheduled")
        return self

    def members(self):
        return [*self.writers, self.reader, self.node]

    def edm(self, host, *words):
        return host.run(" ".join(map(str, (rmem.CLI, "edm", *words)))).out

    def start_node(self):
        memory_mib = (self.count + 2) * self.disk_mib
        self.node.run(f"{rmem.CLI} node start --memory {memory_mib}M --space 1={SPACE_KEY}")

    def join(self, host):
        self.edm(host, "join", self.scheduler.under, "--as", host.number, "--rate", self.mbits, "--key", KEY)

    def start(self, *words):
        self.edm(self.scheduler, "start", "--key", KEY, "--chunk", CHUNK_BYTES, "--lease", LEASE_MS, *words)

    def status(self, host):
        return json.loads(self.edm(host, "status", "--json"))

    def wait_state(self, host, state):
        rmem.wait_until(f"{host.name} is {state}", lambda: self.status(host)["state"] == state)

    def target(self, way):
        if way == "edm":
            return f"edm:{self.scheduler.under}/{self.node.number}@{self.node.under}"
        return self.node.inside if way == "eqds" else self.node.under

    def attach(self, host, way, *words, mib=DISK_MIB):
        out = host.run(f"{rmem.CLI} attach {self.target(way)} --size {mib}M --key {SPACE_KEY} {' '.join(words)}").out
        return rmem.Device(self.machine, out.strip())

    def port(self, way):
        """The node's port, as a switch of that kind has it."""
        leaf = "trim" if way == "eqds" else f"bfifo limit {QUEUE_BYTES}"
        self.machine.run(f"tc qdisc del dev {self.node.port} root", check=False)
        slow = f"handle 1: tbf rate {self.mbits}mbit burst {BURST_BYTES} limit 1m overhead {FRAME_BYTES}"
        self.machine.run(f"tc qdisc add dev {self.node.port} root {slow} && "
                         f"tc qdisc add dev {self.node.port} parent 1:1 handle 2: {leaf}")
        self.node.run(f"tc qdisc replace dev eth0 root {slow}")

    def __exit__(self, kind, *_):
        check = kind is None
        for each in rmem.attached(self.machine):
            each.detach(*([] if check else ["--force"]), check=check)
        self.node.run(f"{rmem.CLI} node stop", check=check)
        # The memberships hold their namespaces.
        self.machine.run(["rmmod", *MODULES[::-1]], check=check)
        self.racked.__exit__(kind)


class Watch:
    """with Watch(rack) as watch: ...; watch.told: longest and mean backlog of the node's port, its drops, bytes sent."""

    def __init__(self, rack):
        self.rack = rack

    def __enter__(self):
        program = compiled.program("portwatch", [eqdslab.HERE / "portwatch.cpp"])
        self.process = self.rack.machine.spawn([program, self.rack.node.port, str(WATCH_US)])
        self.process.wait_output("watching")
        return self

    def __exit__(self, *_):
        self.process.end_input()
        result = self.process.wait(60)
        if result.rc != 0:
            raise LabError(f"portwatch: {result.err}")
        self.told = dict(zip(("longest", "mean", "drops", "sent"), map(int, result.out.split()[1:])))


def fio_job(result):
    if result.rc != 0:
        raise LabError(f"fio: {result.err}")
    return json.loads(result.out[result.out.index("{"):])["jobs"][0]


def times_us(machine, disk, rw, seconds, seed, most_per_s=0):
    """(p50, p99) of operations of READ_BYTES, one after the other."""
    rate = f"--rate_iops={most_per_s}" if most_per_s else ""
    said = machine.spawn(f"{FIO} --name=one --filename={disk.path} --rw={rw} --bs={READ_BYTES} --iodepth=1 "
                         f"--runtime={seconds} --randseed={seed} {rate}").wait(60 + 10 * seconds)
    job = fio_job(said)["read" if "read" in rw else "write"]["clat_ns"]["percentile"]
    return job["50.000000"] / 1000, job["99.000000"] / 1000


def written(machine, disks):
    """Bytes of each."""
    names = " ".join(f"/sys/block/{disk.name}/stat" for disk in disks)
    return [int(line.split()[6]) * 512 for line in machine.run(f"cat {names}").out.splitlines()]


class Writing:
    """with Writing(rack, disks): each disk is written, as fast as it goes."""

    def __init__(self, rack, disks, block="64k", depth=4):
        self.machine, self.disks, self.block, self.depth = rack.machine, disks, block, depth

    def __enter__(self):
        jobs = "".join(f"[w{number}]\nfilename={disk.path}\n" for number, disk in enumerate(self.disks))
        self.machine.write("/tmp/writers.fio", f"[global]\nrw=randwrite\nbs={self.block}\niodepth={self.depth}\n"
                           f"size={DISK_MIB}M\nruntime=3600\n{jobs}")
        before = written(self.machine, self.disks)
        # Last in the queue for the CPU: it stands for machines that have CPUs of their own.
        self.process = self.machine.spawn(f"exec nice -n 19 {FIO} /tmp/writers.fio")
        rmem.wait_until("all write", lambda: all(now > then + (1 << 20) for now, then in
                                                 zip(written(self.machine, self.disks), before)))
        return self

    def __exit__(self, *_):
        self.process.signal(15)
        self.process.wait(120)


def jain(shares):
    return sum(shares) ** 2 / len(shares) / sum(each * each for each in shares)


def turn(rack, way, seconds, seed):
    """Figures of one way: the reader's times alone and beside the writers, and the port's queue meanwhile."""
    machine = rack.machine
    rack.port(way)
    disk, disks = rack.attach(rack.reader, way), [rack.attach(host, way) for host in rack.writers]
    machine.run(f"dd if=/dev/urandom of={disk.path} bs=1M count={DISK_MIB} oflag=direct status=none", timeout=300)
    row = {}
    for rw, name in (("randread", "read"), ("randwrite", "write")):
        row[f"idle_{name}_us"], row[f"idle_{name}_p99_us"] = times_us(machine, disk, rw, seconds, seed)
    with Writing(rack, disks), Watch(rack) as watch:
        before = written(machine, disks)
        began = float(machine.read("/proc/uptime").split()[0])
        row["p50_us"], row["p99_us"] = times_us(machine, disk, "randread", 2 * seconds, seed, READS_PER_S)
        took = float(machine.read("/proc/uptime").split()[0]) - began
        shares = [now - then for now, then in zip(written(machine, disks), before)]
    counted = [each.counters() for each in (disk, *disks)]
    row |= {"jain": jain(shares), "mbits": sum(shares) * 8 / took / 1e6, "wire_mbits": watch.told["sent"] * 8 / took / 1e6,
            "queue_max": watch.told["longest"], "queue_mean": watch.told["mean"], "drops": watch.told["drops"]}
    for name in ("retries", "waiting", "unscheduled"):
        row[name] = sum(each[name] for each in counted)
    for each in (disk, *disks):
        each.detach()
    return row


def medians(rows):
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}
