#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Packets that travel together: in trains, which GRO joins, and whole, which the link's device makes segments of."""

import pathlib

import eqdslab
from eqdslab import Racked, sink, start, test_modules_go, transfer
from remoralab import rmem, tap
from remoralab.rmem import wait_until

MIB = 1 << 20
HOSTILE = pathlib.Path(__file__).resolve().parent / "hostile_eqds.py"


def _joins(machine):
    """Before 6.5 GRO looks for a socket as if packets came from no link, and finds none that is bound to one."""
    return tuple(map(int, machine.run("uname -r").out.split(".")[:2])) >= (6, 5)


def _trains(hosts):
    """Trains on, and links that receive by NAPI, as NICs do: GRO is what joins packets. veth has them for packets of a
    device that makes no TSO alone."""
    if not _joins(hosts[0].machine):
        tap.skip("this kernel's GRO finds no tunnel")
    for host in hosts:
        host.run("ethtool --set-priv-flags eqds0 trains on")
        host.run("ethtool -K eth0 gro on")
        host.machine.run(f"ethtool -K {host.port} tso off")


def test_trains_are_taken_as_one(lab):
    with Racked(lab["compute"], 2) as (left, right):
        _trains((left, right))
        right.run("ethtool --set-priv-flags eqds0 trains off")
        transfer(left, right, 4 * MIB)
        assert not right.counters()["rx_trains"], right.counters()
        right.run("ethtool --set-priv-flags eqds0 trains on")
        before = right.counters()
        transfer(left, right, 16 * MIB)
        after = right.counters()
        trains, packets = (after[name] - before[name] for name in ("rx_trains", "rx_packets"))
        tap.diag(f"{trains} trains, {packets} packets")
        # All of the stream's packets count, however many came as one.
        assert trains and packets >= 16 * MIB // 1412, (before, after)
        assert not after["rx_drop_wire"] and not after["rx_drop_size"], after
        # A key's tag is of one packet, so those with a tag come alone.
        rmem.new_key(lab["compute"], "/run/trains.key")
        for host in (left, right):
            host.run(f"{rmem.CLI} eqds key eqds0 --key /run/trains.key")
        before = right.counters()
        transfer(left, right, MIB)
        assert right.counters()["rx_trains"] == before["rx_trains"], right.counters()


def test_trains_lose_and_overtake(lab):
    machine = lab["compute"]
    with Racked(machine, 2) as hosts:
        left, right = hosts
        _trains(hosts)
        for netem in ("loss 2%", "delay 2ms reorder 25% loss 1% duplicate 2%"):
            for host in hosts:
                machine.netem(host.port, netem)
            transfer(left, right, 4 * MIB)
        counted = right.counters()
        tap.diag(f"{counted['rx_trains']} trains, {counted['receiver_duplicate']} duplicates, "
                 f"{left.counters()['tx_retransmits']} sent again")
        assert counted["rx_trains"] and left.counters()["tx_retransmits"], (left.counters(), counted)


def _through_trimming_switch(machine, prepare, burst="16k"):
    """Two senders of prepared hosts; their data arrives. The receiver's counters. Slow, so that a debug kernel fills it. burst:
    tbf hands on what is no longer in one piece."""
    with Racked(machine, 3, mbits=20) as hosts:
        *senders, receiver = hosts
        prepare(hosts)
        eqdslab.load(machine, eqdslab.TRIM)
        machine.run("modprobe sch_tbf")
        machine.run(f"tc qdisc add dev {receiver.port} root handle 1: tbf rate 4mbit burst {burst} limit 1m && "
                    f"tc qdisc add dev {receiver.port} parent 1:1 handle 2: trim")
        with sink(receiver, len(senders)) as told:
            sent = [process.wait(eqdslab.STREAM_S) for process in
                    [start(host, receiver, MIB, seed) for seed, host in enumerate(senders)]]
        assert sorted(each[2] for each in told) == sorted(result.out.split()[1] for result in sent), (told, sent)
        counted = receiver.counters()
        assert counted["receiver_trimmed"], counted
        return counted


def test_trains_pass_a_trimming_switch(lab):
    _through_trimming_switch(lab["compute"], _trains)


def test_trains_of_others_are_forwarded_packet_by_packet(lab):
    """A router that has tunnels of its own, with trains on: a train that it joined would leave with one number for all."""
    with Racked(lab["compute"], 3) as hosts:
        left, right, router = hosts
        _trains(hosts)
        router.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.eth0.send_redirects=0")
        left.ip(f"route add {right.under}/32 via {router.under} dev eth0")
        transfer(left, right, 8 * MIB)
        counted = right.counters()
        tap.diag(f"{counted['rx_trains']} trains, {counted['receiver_duplicate']} duplicates")
        assert counted["rx_trains"] and not router.counters()["rx_trains"], (counted, router.counters())
        assert counted["receiver_duplicate"] < counted["rx_packets"] // 10, counted
        # Its own are joined.
        transfer(left, router, 8 * MIB)
        assert router.counters()["rx_trains"], router.counters()


def test_trains_of_ipv6_inside(lab):
    with Racked(lab["compute"], 2) as hosts:
        left, right = hosts
        _trains(hosts)
        for host, other in (hosts, hosts[::-1]):
            host.ip(f"addr add fd09::{host.number}/128 dev eqds0 nodad", "route add fd09::/64 dev eqds0")
            host.run(f"{rmem.CLI} eqds map eqds0 fd09::{other.number} {other.under}")
        transfer(left, right, 8 * MIB, address=f"fd09::{right.number}")
        assert right.counters()["rx_trains"], right.counters()


def _whole(hosts, segmented=True):
    """Whole packets on. segmented: links make packets of their MTU, as wires have them, and GRO joins those."""
    for host in hosts:
        host.run("ethtool --set-priv-flags eqds0 whole on")
        for each in (host.run, host.machine.run):
            each(f"ethtool -K {'eth0' if each == host.run else host.port} gro on tso {'off' if segmented else 'on'}")


def _send_whole(left, right, mib, **more):
    """A stream; the counters of it, of both ends."""
    before = [host.counters() for host in (left, right)]
    transfer(left, right, mib * MIB, **more)
    after = [host.counters() for host in (left, right)]
    sent, got = counted = [{name: now[name] - was[name] for name in was} for was, now in zip(before, after)]
    tap.diag(f"{sent['tx_whole']} whole, of {sent['tx_packets']} packets {got['rx_counted']} counted, {got['rx_trains']} trains, "
             f"{sent['tx_retransmits']} sent again, {got['receiver_duplicate']} duplicates")
    return counted


def test_whole_packets_arrive(lab):
    with Racked(lab["compute"], 2) as (left, right):
        sent, _ = _send_whole(left, right, 1)
        assert not sent["tx_whole"], sent
        for segmented, trains in ((True, "off"), (True, "on"), (False, "off")):
            _whole((left, right), segmented)
            right.run(f"ethtool --set-priv-flags eqds0 trains {trains}")
            sent, got = _send_whole(left, right, 4)
            assert sent["tx_whole"] and got["rx_counted"] > sent["tx_packets"] // 2, (sent, got)
            # One that nothing segments on its way is a train from the start.
            assert bool(got["rx_trains"]) == (not segmented or (trains == "on" and _joins(lab["compute"]))), got
            assert not got["rx_drop_wire"] and not got["rx_drop_size"], got
        # A key's tag is of one packet.
        rmem.new_key(lab["compute"], "/run/whole.key")
        for host in (left, right):
            host.run(f"{rmem.CLI} eqds key eqds0 --key /run/whole.key")
        sent, _ = _send_whole(left, right, 1)
        assert not sent["tx_whole"], sent


def test_whole_packets_of_ipv6_inside(lab):
    with Racked(lab["compute"], 2) as hosts:
        left, right = hosts
        _whole(hosts)
        _trains(hosts)
        for host, other in (hosts, hosts[::-1]):
            host.ip(f"addr add fd09::{host.number}/128 dev eqds0 nodad", "route add fd09::/64 dev eqds0")
            host.run(f"{rmem.CLI} eqds map eqds0 fd09::{other.number} {other.under}")
        sent, got = _send_whole(left, right, 8, address=f"fd09::{right.number}")
        assert sent["tx_whole"] and got["rx_counted"], (sent, got)


def test_whole_packets_of_jumbo_frames(lab):
    with Racked(lab["compute"], 2, mtu=9000) as hosts:
        left, right = hosts
        _whole(hosts)
        _trains(hosts)
        sent, got = _send_whole(left, right, 4)
        assert sent["tx_whole"] and got["rx_counted"], (sent, got)


def test_whole_packets_lose_single_segments(lab):
    """A segment that is lost is cut from the packet that waits for its acknowledgement."""
    machine = lab["compute"]
    with Racked(machine, 2) as hosts:
        left, right = hosts
        _whole(hosts)
        for netem in ("loss 2%", "delay 2ms reorder 25% loss 1% duplicate 2%"):
            for host in hosts:
                machine.netem(host.port, netem)
            sent, got = _send_whole(left, right, 4)
            assert sent["tx_whole"] and got["rx_counted"] and sent["tx_retransmits"], (sent, got)


def test_whole_packets_pass_a_trimming_switch(lab):
    counted = _through_trimming_switch(lab["compute"], _whole)
    assert counted["rx_counted"], counted


def test_trimming_switch_makes_segments_of_whole_packets(lab):
    """Its port gets them in one piece. Each segment is queued, or trimmed, alone."""
    counted = _through_trimming_switch(lab["compute"], lambda hosts: _whole(hosts, segmented=False), burst="256k")
    assert counted["rx_counted"] and not counted["rx_trains"], counted


def test_path_that_changes_ip_ids_gets_no_whole_packets(lab):
    """All IP IDs become 1: of a whole packet, one segment at most arrives under its number."""
    machine = lab["compute"]
    with Racked(machine, 2) as hosts:
        left, right = hosts
        _whole(hosts)
        machine.run("modprobe -a sch_ingress cls_matchall act_pedit act_csum", check=False)
        changed = machine.run(f"tc qdisc add dev {left.port} clsact && tc filter add dev {left.port} ingress protocol ip "
                              "matchall action pedit munge offset 4 u16 set 1 pipe action csum ip4h", check=False)
        if changed.rc:
            tap.skip("no act_pedit")
        sent, got = _send_whole(left, right, 8)
        # A probe each time, and the time between two doubles.
        assert 1 <= sent["tx_whole"] < 40 and got["rx_drop_wire"], (sent, got)
        # A path that counts is found again.
        machine.run(f"tc qdisc del dev {left.port} clsact")
        wait_until("whole packets leave again", lambda: _send_whole(left, right, 4)[0]["tx_whole"] > 40)


def test_counted_numbers_that_lie_are_dropped(lab):
    """A peer whose headers are for more or fewer packets than come, whose IDs are outside, whose lengths are above."""
    with Racked(lab["compute"], 2) as (left, right):
        said = left.run(f"python3 {HOSTILE} counted {left.under} {right.under} 2000 1").out
        tap.diag(said.strip())
        counted = right.counters()
        assert counted["rx_drop_wire"] and counted["rx_counted"], counted
        transfer(left, right, MIB)


TESTS = [test_trains_are_taken_as_one, test_trains_lose_and_overtake, test_trains_pass_a_trimming_switch,
         test_trains_of_others_are_forwarded_packet_by_packet, test_trains_of_ipv6_inside, test_whole_packets_arrive,
         test_whole_packets_of_ipv6_inside, test_whole_packets_of_jumbo_frames,
         test_whole_packets_lose_single_segments, test_whole_packets_pass_a_trimming_switch,
         test_trimming_switch_makes_segments_of_whole_packets, test_path_that_changes_ip_ids_gets_no_whole_packets,
         test_counted_numbers_that_lie_are_dropped, test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
