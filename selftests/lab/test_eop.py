#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Ethernet over PCIe among three machines: eop0 under unmodified ping and TCP, and under bad days."""

import contextlib
import pathlib
import re

import ntblab
from ntblab import MARLIN
from remoralab import tap
from remoralab.rmem import wait_until

HERE = pathlib.Path(__file__).resolve().parent
STREAM = HERE / "stream.py"
PORT = 5001
MIB = 1 << 20
STREAM_S = 180
# 65535 of an IPv4 packet, less its header and ICMP's.
PING_BYTES_MAX = 65507


def port_of(machine):
    return [each.name for each in machine.lab].index(machine.name)


def address(machine):
    return f"10.8.0.{port_of(machine) + 1}"


def address6(machine):
    return f"fd08::{port_of(machine) + 1}"


def counters(machine):
    """ethtool -S, as numbers by name."""
    return {name: int(value) for name, value in re.findall(r"^\s+(\w+): (\d+)$", machine.run("ethtool -S eop0").out, re.M)}


def others(machine):
    return [each for each in machine.lab if each is not machine]


def configure(machine, mtu=65535):
    machine.run(f"ip link set eop0 mtu {mtu} && ip addr replace {address(machine)}/24 dev eop0 && "
                f"ip addr replace {address6(machine)}/64 dev eop0 nodad && ip link set eop0 up")


def wait_up(machine, *peers):
    for peer in peers:
        wait_until(f"{machine.name} has a link to {peer.name}",
                   lambda p=peer: counters(machine)[f"port{port_of(p)}_up"], ntblab.EVENT_S)


def start(*machines):
    ntblab.insert_missing(machines, MARLIN)
    for machine in machines:
        configure(machine)


@contextlib.contextmanager
def network(lab, begin=start):
    """eop0 in all machines, with links between all. begin(*machines) loads and configures what isn't."""
    begin(*lab)
    for machine in lab:
        wait_up(machine, *others(machine))
    yield list(lab)


def ping(machine, to, options="-c3 -i0.2"):
    said = machine.run(f"ping {options} -W20 {to}").out
    assert " 0% packet loss" in said, said
    return said


def transfer(pairs, seed=1, count=4 * MIB, ipv6=False):
    """A stream for each (from, to), all at once, compared by their digests."""
    sinks = {}
    where = address6 if ipv6 else address
    for _, to in pairs:
        if to not in sinks:
            streams = sum(other is to for _, other in pairs)
            sinks[to] = to.spawn(f"python3 {STREAM} receive {where(to)} {PORT} {streams}")
            sinks[to].wait_output("listening", timeout=ntblab.EVENT_S)
    senders = [(machine, to, machine.spawn(f"python3 {STREAM} send {where(to)} {PORT} {count} {seed + n}"))
               for n, (machine, to) in enumerate(pairs)]
    sent = {}
    for machine, to, process in senders:
        result = process.wait(STREAM_S)
        assert result.rc == 0, result
        sent[to, where(machine)] = result.out.split()
    for to, process in sinks.items():
        result = process.wait(STREAM_S)
        assert result.rc == 0, result
        for line in result.out.splitlines()[1:]:
            peer, got, digest, *_ = line.split()
            assert sent.pop((to, peer)) == [got, digest], (to, line)
    assert not sent, sent


def pour(machine, to):
    """Endless TCP; returns the two processes once it flows."""
    sink = to.spawn(f"exec python3 {STREAM} receive {address(to)} {PORT} 1")
    sink.wait_output("listening", timeout=ntblab.EVENT_S)
    pouring = machine.spawn(f"exec python3 {STREAM} pour {address(to)} {PORT}")
    pouring.wait_output("pouring", timeout=ntblab.EVENT_S)
    before = counters(machine)[f"port{port_of(to)}_tx_bytes"]
    wait_until("bytes flow", lambda: counters(machine)[f"port{port_of(to)}_tx_bytes"] > before + 4 * MIB, STREAM_S)
    return pouring, sink


def end(*processes):
    for process in processes:
        process.kill()
        process.wait(STREAM_S)


def test_machines_ping_each_other_by_ipv4_and_ipv6(lab):
    with network(lab) as machines:
        for machine in machines:
            for other in others(machine):
                tap.diag(f"{machine.name} to {other.name}: {ping(machine, address(other)).splitlines()[-1]}")
                ping(machine, address6(other))


def test_packets_of_64_kib_arrive_whole(lab):
    with network(lab) as (left, right, _):
        ping(left, address(right), f"-c5 -i0.2 -M do -s {PING_BYTES_MAX}")
        # Around the size from which a frame is received into pages: 2048 with its headers of 42 bytes.
        for size in range(2003, 2010):
            ping(left, address(right), f"-c1 -s {size}")


def test_broadcast_reaches_every_peer(lab):
    with network(lab) as (left, right, third):
        for machine in (right, third):
            machine.write("/proc/sys/net/ipv4/icmp_echo_ignore_broadcasts", "0")
        before = counters(left)
        said = left.run("ping -b -c2 -i0.5 -W5 10.8.0.255").out
        for machine in (right, third):
            assert f"from {address(machine)}" in said, said
            name = f"port{port_of(machine)}_tx_packets"
            assert counters(left)[name] >= before[name] + 2


def test_streams_of_all_machines_carry_their_bytes(lab):
    with network(lab) as machines:
        transfer([(machine, other) for machine in machines for other in others(machine)], count=2 * MIB)
        for machine in machines:
            counted = counters(machine)
            tap.diag(f"{machine.name}: {counted}")
            assert not any(counted[name] for name in counted if "drop" in name or "faults" in name), counted


def test_gso_frames_pass_whole_at_a_small_mtu(lab):
    with network(lab) as (left, right, third):
        try:
            for machine in (left, right):
                configure(machine, mtu=1500)
            name = f"port{port_of(right)}_tx_packets"
            before = counters(left)[name]
            transfer([(left, right)], count=4 * MIB)
            transfer([(left, right)], count=MIB, ipv6=True)
            sent = counters(left)[name] - before
            tap.diag(f"{sent} frames for 5 MiB")
            assert sent < 5 * MIB / 1448 / 2, sent
            # Without TSO the stack cuts, and checks in software.
            left.run("ethtool -K eop0 tso off gso off tx off")
            transfer([(left, right)], count=MIB)
        finally:
            left.run("ethtool -K eop0 tx on tso on gso on")
            for machine in (left, right):
                configure(machine)


def test_unknown_address_is_dropped_and_counted(lab):
    with network(lab) as (left, *_):
        left.run("ip neigh replace 10.8.0.77 lladdr 02:00:00:00:00:77 dev eop0")
        before = counters(left)["tx_drop_unknown"]
        left.run("ping -c1 -W1 10.8.0.77", check=False)
        assert counters(left)["tx_drop_unknown"] > before


def test_peer_that_does_not_read_stops_its_own_queue_alone(lab):
    with network(lab) as (left, right, third):
        flood = left.spawn(f"exec python3 {STREAM} flood {address(right)} {PORT} 60000")
        flood.wait_output("flooding", timeout=ntblab.EVENT_S)
        faults = f"port{port_of(right)}_faults"
        before = counters(left)[faults]
        right.qmp("stop")  # its processors stand still
        try:
            ping(left, address(third))
            # The kernel names the queue before it tells the driver.
            with lab.expect_complaint("NETDEV WATCHDOG"):
                wait_until("its queue was stopped for too long", lambda: counters(left)[faults] > before, STREAM_S)
            ping(left, address(third))
        finally:
            right.qmp("cont")
        wait_up(left, right)
        stopped = counters(left)[f"port{port_of(right)}_tx_packets"]
        wait_until("frames flow again", lambda: counters(left)[f"port{port_of(right)}_tx_packets"] > stopped + 100, STREAM_S)
        end(flood)
        ping(left, address(right))


def test_peer_killed_under_load_comes_back(lab):
    with network(lab) as (left, right, third):
        pouring, _ = pour(left, right)
        right.kill()
        wait_until("the link is down", lambda: not counters(left)[f"port{port_of(right)}_up"], ntblab.EVENT_S)
        ping(left, address(third))
        end(pouring)
        right.boot()
        start(right)
        for machine in (left, third):
            wait_up(machine, right)
            wait_up(right, machine)
        transfer([(left, right), (right, third)], count=MIB)


def test_module_removed_under_traffic_comes_back(lab):
    with network(lab) as (left, right, third):
        for gone, other in ((right, left), (left, right)):
            pouring, sink = pour(left, right)
            ntblab.remove(gone, MARLIN)
            wait_until("the link is down", lambda g=gone, o=other: not counters(o)[f"port{port_of(g)}_up"],
                       ntblab.EVENT_S)
            ping(other, address(third))
            end(pouring, sink)
            start(gone)
            wait_up(gone, other, third)
            wait_up(other, gone)
            transfer([(left, right)], count=MIB)


def test_interface_down_takes_its_links_down(lab):
    with network(lab) as (left, right, third):
        right.run("ip link set eop0 down")
        wait_until("the link is down", lambda: not counters(left)[f"port{port_of(right)}_up"], ntblab.EVENT_S)
        ping(left, address(third))
        third.run("ip link set eop0 down")
        wait_until("no carrier", lambda: left.read("/sys/class/net/eop0/carrier").strip() == "0", ntblab.EVENT_S)
        for machine in (right, third):
            configure(machine)
        for machine in lab:
            wait_up(machine, *others(machine))
        transfer([(left, right)], count=MIB)


def test_cable_out_and_in_again(lab):
    with network(lab) as (left, right, third):
        lab.link_down("fabric", "right")
        for machine in (left, third):
            wait_until("the link is down", lambda m=machine: not counters(m)[f"port{port_of(right)}_up"], ntblab.EVENT_S)
        lab.link_up("fabric", "right")
        for machine in lab:
            wait_up(machine, *others(machine))
        transfer([(left, right), (third, right)], count=MIB)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    tap.main("ntb3", TESTS)
