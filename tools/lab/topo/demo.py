# SPDX-License-Identifier: GPL-2.0
"""The demonstration: redis-server with more data than its machine has memory.

`make demo` boots demo.topo and calls main(). First without remote memory, to see what happens then;
after that the same load with /dev/rmb0 as swap, every value read back and compared.
"""

import contextlib
import time

from remoralab import compiled, rmem, say
from remoralab.rmem import Rack
from remoralab.say import LabError

VALUE_BYTES = 4000  # with redis' own header this fills a page, so swap holds values, not gaps
VALUES = 84_000
LENT, DEVICE = "512M", "448M"
LOAD_S = 900
SOCKET = "/run/redis.sock"
MIB = 1 << 20


class Stages:
    """A line for each stage when it has ended, and the table of all of them."""

    def __init__(self):
        self.took = []

    @contextlib.contextmanager
    def __call__(self, name):
        began = time.monotonic()
        told = []
        yield told.append
        self.took.append((name, time.monotonic() - began))
        say.stage(f"{name}: {self.took[-1][1]:.1f} s" + "".join(f", {word}" for word in told))


def mib(count):
    return f"{count / MIB:.0f} MiB"


class Redis:
    """A redis-server in a machine that keeps everything in memory, and its load."""

    def __init__(self, machine):
        self.machine = machine
        self.load = compiled.program("redisload", ["redisload.cpp"])
        self.server = machine.spawn(["redis-server", "--save", "", "--appendonly", "no", "--port", "0",
                                     "--unixsocket", SOCKET])
        self.server.wait_output("ready to accept connections")

    def run(self, what):
        return self.machine.run([self.load, SOCKET, what, str(VALUES), str(VALUE_BYTES)],
                                timeout=LOAD_S, check=False)

    def stop(self):
        self.server.signal(15)
        self.server.wait()


def vmstat(machine):
    return {name: int(value) * 4096 for name, value in
            (line.split() for line in machine.read("/proc/vmstat").splitlines()) if name.startswith("pswp")}


def swap_used(machine):
    return sum(int(line.split()[3]) * 1024 for line in machine.read("/proc/swaps").splitlines()[1:])


def memory_total(machine):
    return int(machine.read("/proc/meminfo").split()[1]) * 1024


def without(compute, stage):
    """The load on the machine as it is; returns what became of it, in words."""
    with stage("without remote memory") as tell, \
            compute.expect_complaint(r"invoked oom-killer|Out of memory:"):
        # A machine out of memory may go on for minutes reading its programs' pages again and again; let
        # the kernel see that as the end it is.
        compute.run("echo 1000 > /sys/kernel/mm/lru_gen/min_ttl_ms || :")
        mark = compute.console_mark()
        redis = Redis(compute)
        filled = redis.run("fill")
        compute.run("echo 0 > /sys/kernel/mm/lru_gen/min_ttl_ms || :")
        if filled.rc == 0:
            raise LabError(f"{compute.name} held all {VALUES} values by itself: this demonstrates nothing")
        compute.settle("end of the load without remote memory")
        killed = any("Killed process" in line and "redis-server" in line for line in compute.console.since(mark))
        redis.stop()
        said = filled.out.strip().splitlines()[-1]
        count = int(said.split()[-2])
        words = "the OOM killer ended redis-server" if killed else f"redis-server refused ({said})"
        words += f" at {mib(count * VALUE_BYTES)}"
        tell(words)
    return words


def load(compute, node, stage, rows):
    """The load with remote memory behind the machine."""
    before = vmstat(compute)
    redis = Redis(compute)
    with stage("fill redis-server"):
        filled = redis.run("fill")
        if filled.rc != 0:
            raise LabError(f"redis-server did not take every value: {filled.out.strip()}")
    filled_at = vmstat(compute)
    rows["remote after filling"] = (f"{mib(swap_used(compute))} of swap in use, "
                                    f"{mib(node.backed_bytes())} of {node.machine.name}'s memory hold it")
    with stage("read back and compare"):
        checked = redis.run("check")
        if checked.rc != 0:
            raise LabError(f"what was read back is not what was stored: {checked.out.strip()}")
    after = vmstat(compute)
    rows["swapped while filling"] = (f"{mib(filled_at['pswpout'] - before['pswpout'])} out, "
                                     f"{mib(filled_at['pswpin'] - before['pswpin'])} in")
    rows["swapped while reading"] = (f"{mib(after['pswpout'] - filled_at['pswpout'])} out, "
                                     f"{mib(after['pswpin'] - filled_at['pswpin'])} in")
    if after["pswpin"] == before["pswpin"]:
        raise LabError("nothing was swapped in: this demonstrates nothing")
    return redis


def main(lab, _arguments):
    compute, memory = lab["compute"], lab["memory"]
    stage, rows = Stages(), {}
    stage.took.append(("boot", max(machine.boot_s for machine in lab)))
    rows["values"] = f"{mib(VALUES * VALUE_BYTES)}, on a machine with {mib(memory_total(compute))} of memory"
    rows["without remote memory"] = without(compute, stage)
    with Rack(lab) as rack:
        with stage("insmod"):
            rmem.load(memory, rmem.NODE)
            rmem.load(compute, rmem.CLIENT)
        with stage("node start") as tell:
            node = rack.node("memory", LENT)
            tell(f"{memory.name} lends {LENT}")
        with stage("attach") as tell:
            device = rack.attach("compute", node, DEVICE)
            tell(f"{device.path}, {DEVICE}")
        with stage("mkswap"):
            compute.run(["mkswap", device.path])
        with stage("swapon"):
            # Its network card must find pages to receive into while all else is used up.
            compute.run("echo 8192 > /proc/sys/vm/min_free_kbytes")
            compute.run(["swapon", "--discard", device.path])
        redis = load(compute, node, stage, rows)
        with stage("stop, swapoff, detach"):
            redis.stop()
            compute.run(["swapoff", device.path], timeout=LOAD_S)
            device.detach()
    rows["with remote memory"] = f"all {VALUES} values read back, every byte compared"
    show(rows, stage)
    print("demo: ok", flush=True)
    return 0


def show(rows, stage):
    print()
    for name, text in rows.items():
        print(f"  {name:24} {text}")
    print("\n  stage                      seconds   (emulated machines are several times slower than real ones)")
    for name, took in stage.took:
        print(f"  {name:24} {took:9.1f}")
    print()
