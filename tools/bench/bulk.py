# SPDX-License-Identifier: GPL-2.0
"""Bulk data over Marlin: transactions of the software engine (softdma) by marlin_perf, and copies of programs.

The engine's costs are those of the paper's baseline, Table 1: 4 KiB at 1.54 Gbit/s, four channels that share the
interrupt at 2.88, 256 parts of 4 KiB at 20.17, 8 of 128 KiB at 20.31. An emulated machine's own copy is slower than
that engine. So the engine of the bench is slower, too, by SCALE in each of its costs: what the paper's figures are to
each other stays.
"""

import contextlib
import re
import statistics

import ntblab
from ntblab import CORE, DRIVER, EVENT_S, MARLIN
from remoralab import Lab, rmem, say
from remoralab.rmem import wait_until
from test_cmmc import CMMCIO

ENGINE, PERF = "softdma", "marlin_perf"
SCALE = 10
# For one transaction, descriptor and interrupt, and the link: by Table 1.
TRANSACTION_NS, DESCRIPTOR_NS, INTERRUPT_NS, LINK_MBPS = 8350, 12, 11380, 21330
# Figure 7: less than half as fast.
UNALIGNED_PERCENT = 110
COSTS = {"transaction_ns": TRANSACTION_NS * SCALE, "descriptor_ns": DESCRIPTOR_NS * SCALE,
         "interrupt_ns": INTERRUPT_NS * SCALE, "mbps": LINK_MBPS // SCALE, "unaligned_percent": UNALIGNED_PERCENT}
CHANNELS, PARTS_MAX = 4, 256
HUGE_PAGES = 4  # of 2 MiB: a program's 4 MiB, and some
KIB, MIB = 1 << 10, 1 << 20
PERF_BYTES_MAX = 4 * MIB - 2 * 4 * KIB
WRITE, HEADROOM = 1, 2
BOUND_S = 300
TRACE = "/sys/kernel/tracing"


def parameter(machine, module, name, value):
    machine.write(f"/sys/module/{module}/parameters/{name}", str(value))


class Bulk:
    """Two machines; the left one has the engine."""

    def __init__(self, lab):
        self.left, self.right = lab
        self.mapped = {}

    def channels(self, count):
        parameter(self.left, MARLIN, "hrdma_channels", 0)
        parameter(self.left, MARLIN, "hrdma_channels", count)

    def run(self, count, sub, parts, depth=1, runs=(1, 1), skews=(0, 0), flags=WRITE, bytes_each=None):
        """Transactions of so many parts of `sub` bytes; Mbit/s, and the parts of each."""
        bytes_each = bytes_each or sub * parts
        self.left.write(f"{self.files}/run", f"1 {self.address:#x} {bytes_each} {count} {depth} {sub} "
                        f"{runs[0]} {runs[1]} {skews[0]} {skews[1]} {flags}", timeout=BOUND_S)
        took_ns, parts_each = map(int, self.left.read(f"{self.files}/run").split())
        return bytes_each * count * 8e3 / took_ns, parts_each

    def own(self, size):
        """A program of the right machine that grants memory; (process, handle)."""
        process = self.right.spawn(f"{CMMCIO} time-own 0 {size}")
        process.wait_output("handle", timeout=BOUND_S)
        return process, process.out.split()[1]

    def write_ns(self, handle, size, count, memory="buffer"):
        """The median time of a program's write."""
        said = self.left.run(f"{CMMCIO} time {handle} {size} {count} {memory}", timeout=BOUND_S).out.split()
        assert said[0] == "median", said
        return int(said[1])


@contextlib.contextmanager
def machines():
    with Lab("ntb") as lab:
        for machine in lab:
            ntblab.clear(machine)
            ntblab.insert(machine, CORE, DRIVER, options="ram=1")
            ntblab.insert(machine, MARLIN)
            machine.run(f"echo {HUGE_PAGES} > /proc/sys/vm/nr_hugepages; ip link set eop0 up; insmod {rmem.module_path(machine, PERF)}", timeout=EVENT_S)
        costs = " ".join(f"{name}={value}" for name, value in COSTS.items())
        lab["left"].run(f"insmod {rmem.module_path(lab['left'], ENGINE)} channels={CHANNELS} {costs}", timeout=EVENT_S)
        for machine in lab:
            wait_until("carrier", lambda m=machine: m.read("/sys/class/net/eop0/carrier").strip() == "1", EVENT_S)
            parameter(machine, MARLIN, "hrdma_bytes_min", 0)
        bulk = Bulk(lab)
        bulk.files = f"{ntblab.BASE}/{PERF}"
        bulk.address = int(bulk.right.read(f"{bulk.files}/memory").split()[0], 0)
        bulk.run(500, 4 * KIB, 1, 4)  # of code that the emulator hasn't seen, so not counted
        yield bulk


def table1(bulk, samples):
    """The paper's Table 1: without batching, that on all channels, batched, and with contiguous pages combined."""
    for case, channels, count, sub, parts, depth in (("single", 1, 1000, 4 * KIB, 1, 4), ("channels", CHANNELS, 1000, 4 * KIB, 1, 16),
                                                     ("batched", 1, 40, 4 * KIB, 256, 2), ("combined", 1, 40, 128 * KIB, 8, 2)):
        bulk.channels(channels)
        mbps, _ = bulk.run(count, sub, parts, depth)
        say.stage(f"{case}: {mbps:.0f} Mbit/s, at the paper's speed {mbps * SCALE / 1e3:.2f} Gbit/s")
        samples.add(f"hrdma-{case}", "mbps", "Mbit/s", "higher", "marlin", mbps)


def sweeps(bulk, samples):
    """Figures 6 and 7: sub-transfers of 128 bytes to 64 KiB, and places of the first byte."""
    bulk.channels(1)
    for log in range(7, 17):
        sub = 1 << log
        parts = min(PARTS_MAX, PERF_BYTES_MAX // sub)
        mbps, _ = bulk.run(max(2, 8 * MIB // (sub * parts)) if sub > 512 else 40, sub, parts, 2)
        samples.add(f"hrdma-sub-{sub}", "mbps", "Mbit/s", "higher", "marlin", mbps)
    for skew in (0, 1, 4, 16, 32, 48, 64):
        # One part: of an unaligned start the CPU takes the first bytes, if both sides have the same.
        for case, skews, flags in (("same", (skew, skew), WRITE), ("headroom", (skew, skew), WRITE | HEADROOM),
                                   ("other", (skew, 0), WRITE)):
            mbps, _ = bulk.run(20, 64 * KIB, 16, 2, skews=skews, flags=flags)
            samples.add(f"hrdma-skew-{case}-{skew}", "mbps", "Mbit/s", "higher", "marlin", mbps)


def copies(bulk, samples, rounds):
    """4 MiB by a program beside the same by transactions, which take turns."""
    bulk.channels(CHANNELS)
    owner, handle = bulk.own(4 * MIB)
    for _ in range(rounds):
        for memory, case in (("buffer", "cmmc-4m"), ("memory", "cmmc-4m-unregistered")):
            peer = statistics.median(bulk.run(4, 0, 1, 2, bytes_each=MIB)[0] for _ in range(15))
            mbps = 4 * MIB * 8e3 / bulk.write_ns(handle, 4 * MIB, 15, memory)
            say.stage(f"{case}: {mbps:.0f} Mbit/s, of transactions {mbps / peer:.3f}")
            samples.add(case, "mbps", "Mbit/s", "higher", "marlin", mbps)
            samples.add(case, "mbps", "Mbit/s", "higher", "hrdma", peer)
    end(owner)


def fragments(bulk, samples):
    """384 KiB whose pages are in so many contiguous pieces, here and there."""
    bulk.channels(1)
    # 97: the lists have a page more, for a skew, and each page is a piece.
    for own, peer in ((1, 1), (4, 4), (4, 6), (6, 6), (97, 97)):
        mbps, parts = bulk.run(100, 0, 1, 2, runs=(own, peer), bytes_each=96 * 4 * KIB)
        say.stage(f"{own} pieces to {peer}: {mbps:.0f} Mbit/s, {parts} parts")
        samples.add(f"hrdma-fragments-{own}-{peer}", "mbps", "Mbit/s", "higher", "marlin", mbps)
        samples.add(f"hrdma-fragments-{own}-{peer}", "parts", "", "lower", "marlin", parts)


def end(process):
    process.end_input()
    process.wait(BOUND_S)


def pingpong(bulk, samples, count=400):
    """4 bytes from program to program and back, by the CPU, as by default. Both programs look for them all the time."""
    for machine in (bulk.left, bulk.right):
        parameter(machine, MARLIN, "hrdma_bytes_min", 32768)
    ping, pong = (machine.spawn(f"{CMMCIO} pingpong {port} {count} {name}")
                  for machine, port, name in ((bulk.left, 1, "ping"), (bulk.right, 0, "pong")))
    for each in (ping, pong):
        each.wait_output("handle", timeout=BOUND_S)
    pong.send(f"{ping.out.split()[1]}\n".encode())
    ping.send(f"{pong.out.split()[1]}\n".encode())
    ping.wait_output("median", timeout=BOUND_S)
    us = int(ping.out.split()[3]) / 1e3
    end(ping)
    end(pong)
    say.stage(f"4 bytes there and back: {us:.1f} us")
    samples.add("cmmc-4b", "p50", "us", "lower", "marlin", us)
    for machine in (bulk.left, bulk.right):
        parameter(machine, MARLIN, "hrdma_bytes_min", 0)


STAGES = {"pre": ("cmmc_start", "hrdma_start"), "pre-dma": ("hrdma_start", "hrdma_issue"),
          "dma": ("hrdma_issue", "hrdma_done"), "post": ("hrdma_done", "cmmc_end")}


def stages(bulk, samples, count=200):
    """The paper's Table 2: where the time of a program's write of 4 bytes goes, by trace events."""
    owner, handle = bulk.own(4 * KIB)
    left = bulk.left
    left.run(f"cd {TRACE} && echo mono > trace_clock && echo > trace && echo 1 > events/marlin/enable")
    bulk.write_ns(handle, 4, count)
    left.run(f"echo 0 > {TRACE}/events/marlin/enable")
    times = {name: [] for name in STAGES}
    seen = {}
    for at, event in re.findall(r" ([\d.]+): (\w+): ", left.read(f"{TRACE}/trace", timeout=BOUND_S)):
        seen[event] = float(at) * 1e6
        if event == "cmmc_end" and len(seen) == 5:
            for name, (begin, finish) in STAGES.items():
                times[name].append(seen[finish] - seen[begin])
        if event == "cmmc_end":
            seen = {}
    for name, each in times.items():
        samples.add("cmmc-4b-stages", name, "us", "lower", "marlin", statistics.median(each))
        say.stage(f"{name}: {statistics.median(each):.1f} us")
    end(owner)


def bulk(samples, arguments):
    with machines() as both:
        for number in range(arguments.rounds):
            say.stage(f"round {number + 1} of {arguments.rounds}: bulk data")
            table1(both, samples)
            pingpong(both, samples)
        copies(both, samples, arguments.rounds)
        sweeps(both, samples)
        fragments(both, samples)
        stages(both, samples)
