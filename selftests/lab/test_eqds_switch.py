#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Linux as the switch below tunnels: the queue that trims, its options, and routers that choose among paths."""

import contextlib
import json
import pathlib
import re

import eqdslab
from eqdslab import Host, Racked, test_modules_go, transfer
from remoralab import rmem, tap
from remoralab.rmem import wait_until

MIB = 1 << 20
HOSTILE = pathlib.Path(__file__).resolve().parent / "hostile_eqds.py"
# UDP and tunnel headers.
HEADER_BYTES = 8 + 40
COUNT = 21


def _stopped(machine, port, rate, burst=1600):
    machine.run(f"tc qdisc replace dev {port} root handle 1: tbf rate {rate} burst {burst} limit 1m")


def _through(machine, left, right, options, to, at_once=1):
    """COUNT packets into a port that stands still; what arrives once it goes on, in order: (number, was it cut). And how
    many passed before the port stood still: it has credit for one, perhaps, and takes one in hand. at_once: more than 1
    come in one piece, which tbf leaves whole if it has a burst for all; others use that up before, and none passes."""
    machine.run(f"tc qdisc del dev {right.port} root", check=False)
    _stopped(machine, right.port, "8bit", 1600 * at_once)
    machine.run(f"{rmem.CLI} eqds trim {right.port} --parent 1:1 --handle 2: {options}")
    if at_once > 1:
        left.run(f"python3 {HOSTILE} sequence {to} {1600 * at_once // 1120}")
    watch = right.spawn(f"python3 {HOSTILE} watch eth0")
    watch.wait_output("watching")
    left.run(f"python3 {HOSTILE} sequence {to} {COUNT} {at_once}")

    def said():
        text = machine.run(f"tc -s qdisc show dev {right.port}").out
        return map(int, re.search(r"qdisc trim.*?dropped (\d+), overlimits (\d+).*?backlog \S+ (\d+)p", text, re.S).groups())

    dropped, trimmed, _ = said()
    _stopped(machine, right.port, "1gbit")
    # tbf waits as long as the old rate demands, unless a packet comes.
    left.run(f"ping -c1 -W1 {to}", check=False)
    wait_until("the queue is empty", lambda: list(said())[2] == 0)
    watch.end_input()
    result = watch.wait(60)
    assert result.rc == 0, result
    told = json.loads(result.out.splitlines()[-1])
    # A header that was cut has lengths that say so, or its receiver would drop it.
    assert all(stated == (HEADER_BYTES if cut else HEADER_BYTES + 1000) == length for _, cut, stated, length, *_ in told), told
    order = [(number, cut) for number, cut, *_ in told]
    passed = next(place for place, (_, cut) in enumerate(order) if cut)
    assert passed in ((1, 2) if at_once == 1 else (0,)), order
    return order, passed, trimmed, dropped


def _packets(whole, cut, then):
    return [(n, False) for n in whole] + [(n, True) for n in cut] + [(n, False) for n in then]


def test_options_of_the_trimming_queue(lab):
    """Over IPv4 and IPv6."""
    machine = lab["compute"]
    with Racked(machine, 2) as hosts:
        left, right = hosts
        eqdslab.load(machine, eqdslab.TRIM)
        machine.run("modprobe sch_tbf")
        for host in hosts:
            host.run("ip link set eqds0 down")
            host.ip(f"addr add fd00::{host.number}/64 dev eth0 nodad")
        left.run(f"ping -c1 -W5 fd00::{right.number}")
        for to in (right.under, f"fd00::{right.number}"):
            # Five wait, all after them are cut and overtake them. A query for a neighbour may be dropped.
            order, n, trimmed, dropped = _through(machine, left, right, "--data 5", to)
            assert trimmed == COUNT - n - 5 and dropped <= 2, (n, trimmed, dropped)
            assert order == _packets(range(n), range(n + 5, COUNT), range(n, n + 5)), order
            # Of a packet that comes in one piece, each segment is one.
            order, n, trimmed, dropped = _through(machine, left, right, "--data 5", to, at_once=COUNT)
            assert trimmed == COUNT - n - 5 and dropped <= 2, (n, trimmed, dropped)
            assert order == _packets(range(n), range(n + 5, COUNT), range(n, n + 5)), order
            # The one at the tail is cut: the last one to arrive stays.
            order, n, trimmed, dropped = _through(machine, left, right, "--data 5 --trim tail", to)
            assert trimmed == COUNT - n - 5 and dropped <= 2, (n, trimmed, dropped)
            assert order == _packets(range(n), range(n + 4, COUNT - 1), [*range(n, n + 4), COUNT - 1]), order
            # By chance one of the two: that it is the same for all has a chance of 1 in 4,000.
            order, n, trimmed, dropped = _through(machine, left, right, "--data 5 --trim either", to)
            cut = [number for number, was in order if was]
            assert trimmed == len(cut) == COUNT - n - 5 and not set(cut) & set(range(n + 4)), order
            assert cut not in ([*range(n + 5, COUNT)], [*range(n + 4, COUNT - 1)]), order
            # Headers have a bound of their own.
            order, n, trimmed, dropped = _through(machine, left, right, "--data 5 --headers 3", to)
            assert trimmed == 3 and 0 <= dropped - (COUNT - n - 8) <= 2, (n, trimmed, dropped)
            assert order == _packets(range(n), range(n + 5, n + 8), range(n, n + 5)), order
        # Changed while it is there; what is not named stays.
        machine.run(f"{rmem.CLI} eqds trim {right.port} --parent 1:1 --data 7")
        assert "qdisc trim 2:" in machine.run(f"tc qdisc show dev {right.port}").out
        for words, says in (("--data 0", "16384"), ("--trim head", "arriving"), ("--parent 1", "names no qdisc"),
                            ("--parent 9:1", "(?i)qdisc")):
            result = machine.run(f"{rmem.CLI} eqds trim {right.port} {words}", check=False)
            assert result.rc != 0 and re.search(says, result.err), (words, result)
        result = machine.run(f"{rmem.CLI} eqds trim nolink", check=False)
        assert result.rc != 0 and "no network device nolink" in result.err, result


def test_long_packets_that_say_they_are_headers_have_no_priority(lab):
    """Headers leave first, and have a long queue. A sender of full-sized packets gets neither by a word in them."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        eqdslab.load(machine, eqdslab.TRIM)
        machine.run("modprobe sch_tbf")
        left.run(f"ping -c1 -W5 {right.under}")
        for kind, flags in ((0x12, 0x08), (0x11, 0x10), (0x11, 0x80)):
            machine.run(f"tc qdisc add dev {right.port} root handle 1: tbf rate 100kbit burst 4k limit 1m && "
                        f"tc qdisc add dev {right.port} parent 1:1 handle 2: trim")
            left.run("python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
                     f"[s.sendto(bytes([{kind}, {flags}]) + bytes(1400), (\"{right.under}\", 7671)) for _ in range(100)]'")
            text = machine.run(f"tc -s qdisc show dev {right.port}").out
            dropped = int(re.search(r"qdisc trim.*?dropped (\d+)", text, re.S).group(1))
            machine.run(f"tc qdisc del dev {right.port} root")
            assert dropped > 50, text


def test_streams_through_a_queue_that_trims_its_tail(lab):
    machine = lab["compute"]
    # The port is slower than any machine of the lab, so its queue fills.
    with Racked(machine, 2, mbits=60) as (left, right):
        eqdslab.load(machine, eqdslab.TRIM)
        machine.run("modprobe sch_tbf")
        machine.run(f"tc qdisc add dev {right.port} root handle 1: tbf rate 6mbit burst 4k limit 1m")
        machine.run(f"{rmem.CLI} eqds trim {right.port} --parent 1:1 --handle 2: --data 8 --trim either")
        transfer(left, right, 2 * MIB)
        heard, counted = right.counters(), left.counters()
        tap.diag(str({name: value for name, value in heard.items() if value}))
        assert heard["receiver_trimmed"] and counted["tx_retransmits"], (heard, counted)


class Routed:
    """with Routed(machine) as (left, right): two hosts behind a router each, and two links between the routers.

         h1 --- r1 ===== r2 --- h2        r1 and r2 choose a link by the fields that fib_multipath_hash_policy says
    """

    def __init__(self, machine, policy):
        self.machine, self.policy = machine, policy
        self.hosts = [Host(machine, 1), Host(machine, 2)]
        self.rack = Racked(machine, 0)
        self.rack.hosts = self.hosts
        for host in self.hosts:
            host.under = f"10.{host.number}.0.1"

    def __enter__(self):
        eqdslab.load(self.machine, eqdslab.CORE, eqdslab.MODULE)
        lines = ["modprobe veth"]
        for number in (1, 2):
            lines += [f"ip netns add h{number}", f"ip netns add r{number}",
                      f"ip link add eth0 netns h{number} type veth peer name eth0 netns r{number}"]
        lines += [f"ip link add eth{path} netns r1 type veth peer name eth{path} netns r2" for path in (1, 2)]
        for number, other in ((1, 2), (2, 1)):
            lines += [f"ip -n r{number} addr add 10.{number}.0.254/24 dev eth0", f"ip -n r{number} link set eth0 up",
                      f"ip netns exec r{number} sysctl -qw net.ipv4.ip_forward=1 "
                      f"net.ipv4.fib_multipath_hash_policy={self.policy}",
                      f"ip -n h{number} addr add 10.{number}.0.1/24 dev eth0", f"ip -n h{number} link set lo up",
                      f"ip -n h{number} link set eth0 up",
                      f"ip -n h{number} route add default via 10.{number}.0.254"]
            lines += [f"ip -n r{number} addr add 10.1{path}.0.{number}/24 dev eth{path} && "
                      f"ip -n r{number} link set eth{path} up" for path in (1, 2)]
            lines += [f"ip -n r{number} route add 10.{other}.0.0/24 nexthop via 10.11.0.{other} nexthop via 10.12.0.{other}"]
        self.machine.run(" && ".join(lines))
        for host in self.hosts:
            self.rack.add_device(host)
        return self.hosts

    def carried(self):
        """Packets that r1 has sent by each link."""
        return [int(self.machine.run(f"ip netns exec r1 cat /sys/class/net/eth{path}/statistics/tx_packets").out)
                for path in (1, 2)]

    def __exit__(self, *_):
        for name in ("h1", "h2", "r1", "r2"):
            self.machine.run(f"pids=$(ip netns pids {name}); [ -z \"$pids\" ] || kill -9 $pids; ip netns del {name}",
                             check=False)


def test_one_tunnel_spreads_over_the_paths_of_routers(lab):
    """By its source ports, where routers look at ports; else it takes one path."""
    for policy in (1, 0):
        with contextlib.ExitStack() as stack:
            routed = Routed(lab["compute"], policy)
            left, right = stack.enter_context(routed)
            left.run(f"ping -c1 -W5 {right.inside}")
            before = routed.carried()
            transfer(left, right, 2 * MIB)
            grown = [after - was for after, was in zip(routed.carried(), before)]
            tap.diag(f"policy {policy}: {grown}")
            assert left.counters()["tx_tunnels"] == 1, left.counters()
            paths = json.loads(left.run(f"{rmem.CLI} eqds paths --json").out)
            assert len(paths) == 16 and all(each["sent"] for each in paths), paths
            if policy:
                # Sixteen ports by a hash: all on one side has a chance of 1 in 32,768. Of one port there is a sixteenth.
                assert min(grown) > 2 * MIB // 1412 // 32, grown
            else:
                assert min(grown) < 20, grown


TESTS = [test_options_of_the_trimming_queue, test_long_packets_that_say_they_are_headers_have_no_priority,
         test_streams_through_a_queue_that_trims_its_tail,
         test_one_tunnel_spreads_over_the_paths_of_routers, test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
