#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""eop0 by stock tools: several rings (ethtool -l, -L, -g, -G), looking before sleep (-c, -C), statistics of each
ring, GRO; XDP programs; frames that find no memory."""

import contextlib
import pathlib
import re
import signal
import subprocess

import ntblab
import rmemlab
import test_eop as eop
from remoralab import cache, tap
from remoralab.rmem import wait_until

HERE = pathlib.Path(__file__).resolve().parent
FRAMES = HERE / "ethframes.py"
FLOWS = 8
LINES_SMALL = 4096  # of 64 bytes: 256 KiB
XDP_MTU = 1500
ABORTED, DROP, PASS, GROW, TX, REDIRECT, INVALID = 0, 1, 2, 100, 101, 102, 77
GROWTH_BYTES = 32


def shown(machine, option, name):
    """The current value of a setting."""
    current = machine.run(f"ethtool {option} eop0").out.split("Current hardware settings:")[-1]
    return int(re.search(rf"^{name}:\s+(\d+)$", current, re.M)[1])


def change(machines, options):
    for machine in machines:
        machine.run(f"ethtool {options}", timeout=ntblab.EVENT_S)
    for machine in machines:
        eop.wait_up(machine, *eop.others(machine))


def refused(machine, command, why):
    result = machine.run(command, check=False)
    assert result.rc != 0 and why in result.err + result.out, result


def several_flows(machine, to):
    """FLOWS streams at once, for a second."""
    drain = to.spawn(f"exec python3 {eop.STREAM} drain {eop.address(to)} {eop.PORT} {FLOWS} 1")
    drain.wait_output("listening", timeout=ntblab.EVENT_S)
    pours = [machine.spawn(f"exec python3 {eop.STREAM} pour {eop.address(to)} {eop.PORT}") for _ in range(FLOWS)]
    result = drain.wait(eop.STREAM_S)
    assert result.rc == 0, result
    eop.end(*pours)


def test_flows_use_several_rings_and_one_if_told(lab):
    with eop.network(lab) as (left, right, _):
        rings = shown(left, "-l", "Combined")
        assert rings > 1, "the test needs machines of several processors"
        before = eop.counters(right)
        several_flows(left, right)
        after = eop.counters(right)
        used = [k for k in range(rings) if after[f"queue{k}_rx_packets"] > before[f"queue{k}_rx_packets"] + 10]
        tap.diag(f"{FLOWS} flows used rings {used}")
        assert len(used) > 1, after
        try:
            change([right], "-L eop0 combined 1")
            assert shown(right, "-l", "Combined") == 1
            before = eop.counters(right)
            several_flows(left, right)
            several_flows(right, left)
            after = eop.counters(right)
            assert after["queue1_rx_packets"] == before["queue1_rx_packets"], "a ring that was given up is used"
        finally:
            change([right], f"-L eop0 combined {rings}")
        refused(left, "ethtool -L eop0 combined 3", "")
        refused(left, "ethtool -L eop0 combined 64", "")
        several_flows(left, right)


def test_rings_are_resized_under_traffic(lab):
    with eop.network(lab) as (left, right, third):
        largest = shown(right, "-g", "RX")
        pouring, sink = eop.pour(left, right)
        change([right], f"-G eop0 rx {LINES_SMALL}")
        assert shown(right, "-g", "RX") == LINES_SMALL
        eop.ping(left, eop.address(third))
        refused(right, "ethtool -G eop0 rx 1000", "power of two")
        refused(right, "ethtool -G eop0 rx 1024", "power of two")
        change([right], f"-G eop0 rx {largest}")
        eop.end(pouring, sink)
        eop.transfer([(left, right)], count=eop.MIB)


def test_poll_looks_for_answers_unless_told_not_to(lab):
    with eop.network(lab) as (left, right, _):
        def spins():
            return sum(value for name, value in eop.counters(left).items() if re.fullmatch(r"queue\d_rx_spins", name))

        ask = f"ping -f -c200 -W20 {eop.address(right)}"
        refused(left, "ethtool -C eop0 rx-usecs 5000", "")
        change([left], "-C eop0 rx-usecs 0")
        assert shown(left, "-c", "rx-usecs") == 0
        before = spins()
        left.run(ask, timeout=ntblab.EVENT_S)
        assert spins() == before, "a poll that may not look did"
        change([left], "-C eop0 rx-usecs 500")

        def looks():
            left.run(ask, timeout=ntblab.EVENT_S)
            return spins() > before
        # Never while anything else wants the processor, and on the debug kernel something always does.
        if not rmemlab.is_debug(lab):
            wait_until("a poll looks", looks, ntblab.EVENT_S)


def test_small_segments_are_merged_on_receipt(lab):
    with eop.network(lab) as (left, right, _):
        try:
            for machine in (left, right):
                eop.configure(machine, mtu=1500)
            left.run("ethtool -K eop0 tso off gso off")
            name = f"port{eop.port_of(left)}_rx_packets"
            frames = eop.counters(right)[name]
            segments = tcp_segments_in(right)
            eop.transfer([(left, right)], count=4 * eop.MIB)
            frames, segments = eop.counters(right)[name] - frames, tcp_segments_in(right) - segments
            tap.diag(f"{frames} frames came, {segments} segments went up")
            # TCP counts what GRO merged by its parts; IP's count is of packets after it.
            assert segments < frames, (segments, frames)
        finally:
            left.run("ethtool -K eop0 tso on gso on")
            for machine in (left, right):
                eop.configure(machine)


def tcp_segments_in(machine):
    names, values = (line.split() for line in machine.read("/proc/net/snmp").splitlines() if line.startswith("Ip:"))
    return int(values[names.index("InReceives")])


# Memory

FAILURES = 100
FAULTS = "/sys/kernel/debug"
# A frame needs memory twice: the packet's head, and pages for the rest. Allocations that may wait don't fail.
FAILING = {"failslab": "echo Y > cache-filter; echo 1 > /sys/kernel/slab/skbuff_head_cache/failslab",
           "fail_page_alloc": "echo 0 > min-order"}
POOL_BYTES = 6 * eop.MIB


@contextlib.contextmanager
def memory_fails(machine, what, times, also="true"):
    """Each allocation of that kind by an interrupt, so often; -1: until the end."""
    machine.run(f"cd {FAULTS}/{what} && {FAILING[what]}; {also}; echo 100 > probability; echo 0 > verbose; echo {times} > times")
    try:
        yield
    finally:
        machine.run(f"echo 0 > {FAULTS}/{what}/probability")


@contextlib.contextmanager
def kept_unread(machine):
    """Datagrams to the machine fill a socket, with 32 MiB."""
    program = machine.spawn(f"exec python3 {eop.STREAM} swallow {eop.address(machine)} {eop.PORT}")
    program.wait_output("listening", timeout=ntblab.EVENT_S)
    program.signal(signal.SIGSTOP)
    yield
    program.kill()


def test_frames_without_memory_are_dropped_and_traffic_recovers(lab):
    with eop.network(lab) as (left, right, third):
        if right.run(["test", "-e", f"{FAULTS}/failslab"], check=False).rc:
            tap.skip("this kernel has no fault injection")
        drops = f"port{eop.port_of(left)}_rx_drop_memory"
        flood = left.spawn(f"exec python3 {eop.STREAM} flood {eop.address(right)} {eop.PORT} 1000")
        flood.wait_output("flooding", timeout=ntblab.EVENT_S)
        before = eop.counters(right)[drops]
        with memory_fails(right, "failslab", FAILURES):
            wait_until("a hundred frames in a row find no memory",
                       lambda: eop.counters(right)[drops] >= before + FAILURES, ntblab.EVENT_S)
            # The failures are used up, but nothing was told to stop.
            eop.ping(left, eop.address(right), "-c3 -i0.2")
        before = eop.counters(right)[drops]
        with memory_fails(right, "failslab", -1):
            wait_until("frames find no memory on and on",
                       lambda: eop.counters(right)[drops] >= before + 10 * FAILURES, ntblab.EVENT_S)
            eop.ping(left, eop.address(third))
        eop.end(flood)
        eop.transfer([(left, right)], count=eop.MIB)
        # Frames of many pages. A socket that isn't read keeps them: else the pool would have all it wants.
        with kept_unread(right):
            received = f"port{eop.port_of(left)}_rx_bytes"
            before = eop.counters(right)
            with memory_fails(right, "fail_page_alloc", -1, "echo 1 > min-order"):
                flood = left.spawn(f"exec python3 {eop.STREAM} flood {eop.address(right)} {eop.PORT} 60000")
                wait_until("the pool is empty, and single pages serve",
                           lambda: eop.counters(right)[received] > before[received] + 2 * POOL_BYTES, ntblab.EVENT_S)
                eop.end(flood)
                eop.transfer([(left, right)], count=eop.MIB)
            assert eop.counters(right)[drops] == before[drops]
        with kept_unread(right):
            def frames_are_dropped():
                # Others get some of the failures.
                right.write(f"{FAULTS}/fail_page_alloc/times", str(FAILURES))
                return eop.counters(right)[drops] > before[drops]
            with memory_fails(right, "fail_page_alloc", FAILURES):
                flood = left.spawn(f"exec python3 {eop.STREAM} flood {eop.address(right)} {eop.PORT} 60000")
                wait_until("pages fail", frames_are_dropped, ntblab.EVENT_S)
        eop.end(flood)
        counted = eop.counters(right)
        tap.diag(f"{counted[drops]} frames were dropped")
        assert not counted[f"port{eop.port_of(left)}_faults"], counted
        eop.transfer([(left, right), (right, third)], count=eop.MIB)


# XDP


def program():
    """The object file; compiled once for a source."""
    source = HERE / "xdp.bpf.c"
    built = cache.REPO / "out" / "lab" / "xdp.bpf.o"
    built.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["clang", "-target", "bpf", "-O2", "-Wall", "-Werror", "-I/usr/include/x86_64-linux-gnu", "-c",
                    str(source), "-o", str(built)], check=True)
    return built


def mac(machine):
    return machine.read("/sys/class/net/eop0/address").strip()


@contextlib.contextmanager
def attached(lab):
    """Every machine with a small MTU, right with the program, in the driver."""
    with eop.network(lab) as machines:
        _, right, _ = machines
        for machine in machines:
            eop.configure(machine, mtu=XDP_MTU)
        try:
            right.run(f"ip link set eop0 xdpdrv obj {program()} sec xdp", timeout=ntblab.EVENT_S)
            for machine in machines:
                eop.wait_up(machine, *eop.others(machine))
            yield machines
        finally:
            right.run("ip link set eop0 xdpdrv off", timeout=ntblab.EVENT_S)
            for machine in machines:
                eop.configure(machine)


def listen(machine):
    process = machine.spawn(f"exec python3 {FRAMES} listen eop0")
    process.wait_output("listening", timeout=ntblab.EVENT_S)
    return process


def send(machine, to, verdict, where="00:00:00:00:00:00", count_bytes=100, count=1):
    machine.run(f"python3 {FRAMES} send eop0 {mac(to)} {verdict} {where} {count_bytes} {count}", timeout=ntblab.EVENT_S)


def test_program_passes_drops_and_counts(lab):
    with attached(lab) as (left, right, _):
        drops = f"port{eop.port_of(left)}_rx_drop_xdp"
        heard = listen(right)
        before = eop.counters(right)[drops]
        with lab.expect_complaint("Illegal XDP return value"):
            for verdict in (DROP, ABORTED, INVALID):
                send(left, right, verdict, count=10)
            wait_until("all are dropped", lambda: eop.counters(right)[drops] == before + 30, ntblab.EVENT_S)
        send(left, right, PASS)
        heard.wait_output(f"{PASS} 100 {mac(left)}", timeout=ntblab.EVENT_S)
        send(left, right, GROW)
        heard.wait_output(f"{GROW} {100 + GROWTH_BYTES} {mac(left)}", timeout=ntblab.EVENT_S)
        assert f"{DROP} " not in heard.out.replace("\n", "\n "), heard.out
        eop.end(heard)


def test_program_sends_back_and_onwards(lab):
    with attached(lab) as (left, right, third):
        back, onwards = listen(left), listen(third)
        send(left, right, TX)
        back.wait_output(f"{TX} 100 {mac(right)}", timeout=ntblab.EVENT_S)
        send(left, right, REDIRECT, where=mac(third), count_bytes=1000)
        onwards.wait_output(f"{REDIRECT} 1000 {mac(right)}", timeout=ntblab.EVENT_S)
        counted = eop.counters(right)
        assert counted[f"port{eop.port_of(left)}_rx_xdp_tx"] and counted[f"port{eop.port_of(left)}_rx_xdp_redirect"], counted
        # No machine has this address.
        drops = f"port{eop.port_of(left)}_rx_drop_xdp"
        send(left, right, REDIRECT, where="02:00:00:00:00:77")
        wait_until("it is dropped", lambda: eop.counters(right)["tx_drop_unknown"] > counted["tx_drop_unknown"],
                   ntblab.EVENT_S)
        tap.diag(f"{drops}: {eop.counters(right)[drops]}")
        eop.end(back, onwards)


def test_streams_pass_a_program_and_its_coming_and_going(lab):
    with attached(lab) as (left, right, third):
        before = eop.counters(right)
        eop.transfer([(left, right), (right, left), (third, right)], count=eop.MIB)
        eop.ping(left, eop.address6(right))
        after = eop.counters(right)
        assert all(after[name] == before[name] for name in after if "drop" in name), after
        pouring, sink = eop.pour(left, right)
        right.run("ip link set eop0 xdpdrv off", timeout=ntblab.EVENT_S)
        right.run(f"ip link set eop0 xdpdrv obj {program()} sec xdp", timeout=ntblab.EVENT_S)
        eop.wait_up(left, right)
        eop.end(pouring, sink)
        refused(right, "ip link set eop0 mtu 9000", "")
    with eop.network(lab) as (left, right, _):
        refused(right, f"ip link set eop0 xdpdrv obj {program()} sec xdp", "MTU")
        eop.transfer([(left, right)], count=eop.MIB)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    tap.main("ntb3", TESTS)
