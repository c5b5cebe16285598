#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tunnels on bad days: caps, memory that is short, peers that vanish or reboot, routes that loop, several CPUs."""

import json
import pathlib
import re

import eqdslab
import rmemlab
from eqdslab import Racked, sink, start, test_modules_go, transfer
from remoralab import rmem, tap
from remoralab.rmem import wait_until

MIB = 1 << 20
HERE = pathlib.Path(__file__).resolve().parent
HOSTILE, LIAR = HERE / "hostile_eqds.py", HERE / "liar_eqds.py"


def _set(host, words):
    host.run(f"{rmem.CLI} eqds set eqds0 {words}")


def _credit(host):
    [told] = json.loads(host.run(f"{rmem.CLI} eqds credit --json").out)
    return told


def _peers(host, way):
    return {each["peer"] for each in json.loads(host.run(f"{rmem.CLI} eqds peers --json").out) if each["way"] == way}


def _ping(host, other, count=1):
    host.run(f"ping -c{count} -i0.2 -W20 {other.inside}")


def test_tunnel_used_longest_ago_goes_at_the_cap(lab):
    """At the end that receives, and, as it answers, at the one that sends. All peers are served."""
    with Racked(lab["compute"], 6) as (*hosts, right):
        _set(right, "--tunnels 4")
        assert _credit(right)["tunnels_max"] == 4
        first, second, third, fourth, fifth = hosts
        for host in hosts:
            _ping(host, right)
        counted = right.counters()
        assert counted["rx_evicted"] == counted["tx_evicted"] == 1, counted
        for way in ("from", "to"):
            assert _peers(right, way) == {each.under for each in (second, third, fourth, fifth)}, way
        _ping(second, right)
        _ping(first, right)
        for way in ("from", "to"):
            assert _peers(right, way) == {each.under for each in (second, fourth, fifth, first)}, way
        for words, says in (("--tunnels 0", "16384"), ("--tunnels 16385", "16384"), ("--memory much", "much")):
            result = right.run(f"{rmem.CLI} eqds set eqds0 {words}", check=False)
            assert result.rc != 0 and says in result.err, result


def test_tunnels_that_have_packets_under_way_are_not_evicted(lab):
    """At the cap of the end that sends, the packet without a tunnel is dropped, and counted."""
    with Racked(lab["compute"], 4) as (left, right, third, fourth):
        left.run("ethtool --set-priv-flags eqds0 burst off")
        _set(left, "--tunnels 2")
        for host in (right, third):
            host.silence()
            left.run(f"ping -c1 -W1 {host.inside}", check=False)
        before = left.counters()
        left.run(f"ping -c1 -W1 {fourth.inside}", check=False)
        counted = left.counters()
        assert counted["tx_drop_tunnels"] > before["tx_drop_tunnels"] and not counted["tx_evicted"], counted
        assert _peers(left, "to") == {right.under, third.under}
        # Once those are given up, others have room.
        wait_until("they are given up", lambda: not left.counters()["tx_tunnels"], timeout=120)
        _ping(left, fourth)


def test_flood_at_the_cap_evicts_nobody(lab):
    """Without the cookie of its address, a packet takes nobody's place; with it, a newcomer does."""
    with Racked(lab["compute"], 4) as (left, right, third, attacker):
        _set(right, "--tunnels 1")
        _ping(left, right)

        def attack(count):
            said = attacker.run(f"python3 {HOSTILE} syns 10.0.0.0/16 {right.under} {count} {tap.SEED}").out.split()
            return int(said[0]), right.counters()

        sent, counted = attack(eqdslab.many(lab, 2000))
        assert counted["rx_tunnels"] == 1 and not counted["rx_evicted"], counted
        assert counted["rx_refused"] >= sent, counted
        transfer(left, right, MIB)
        _, counted = attack(20)
        assert counted["rx_tunnels"] == 1 and not counted["rx_evicted"], counted
        _ping(left, right)
        _ping(third, right)
        assert right.counters()["rx_evicted"] == 1 and _peers(right, "from") == {third.under}


def test_bound_on_packets_held_for_their_order(lab):
    """Packets that would wait are dropped as if trimmed, the one that is waited for is taken: the stream goes on."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        # A slow machine has fewer packets at a time.
        kib = 8 if rmemlab.is_debug(lab) else 32
        _set(right, f"--memory {kib}K")
        machine.netem(right.port, "delay 5ms reorder 25%")
        wait_until("a stream had packets beyond the bound",
                   lambda: transfer(left, right, 2 * MIB) and right.counters()["rx_drop_held"])
        counted, told = right.counters(), _credit(right)
        tap.diag(f"{counted['rx_drop_held']} not held, at most {counted['rx_held_max']} held")
        # One that has come again meanwhile is told as that.
        assert counted["receiver_trimmed"] + counted["receiver_duplicate"] >= counted["rx_drop_held"], counted
        assert told["held_max_bytes"] == kib << 10 and told["held_bytes"] == 0, told


def test_bound_on_packets_held_for_credit(lab):
    """One peer gives no credit and its queue fills the device's memory: a packet to another peer still leaves."""
    with Racked(lab["compute"], 3) as (left, right, third):
        third.run("ip link set eqds0 down")
        liar = third.spawn(f"python3 {LIAR} mute")
        liar.wait_output("lying")
        _set(left, "--memory 64K")
        flood = left.spawn(f"python3 {eqdslab.STREAM} flood {third.inside} 9 1000")
        flood.wait_output("flooding")
        wait_until("the bound is reached", lambda: left.counters()["tx_drop_held"] > 100)
        assert _credit(left)["held_bytes"] < 65536 + 2 * 4096, _credit(left)
        _ping(left, right, count=5)
        assert left.counters()["tx_drop_class"] == 0, left.counters()
        flood.signal(9)
        flood.wait(60)
        liar.end_input()
        liar.wait(60)


def _shrink(machine):
    machine.run("echo 2 > /proc/sys/vm/drop_caches")


def test_memory_pressure_ends_idle_tunnels(lab):
    """And none that has packets: one waits for a peer that does not answer."""
    machine = lab["compute"]
    with Racked(machine, 3) as (left, right, third):
        left.run("ethtool --set-priv-flags eqds0 burst off")
        _ping(left, right)
        third.silence()
        left.run(f"ping -c1 -W1 {third.inside}", check=False)

        def idle_ones_are_gone():
            _shrink(machine)
            return _peers(left, "to") <= {third.under} and not _peers(left, "from") | _peers(right, "to") | \
                _peers(right, "from")

        wait_until("the idle tunnels are gone", idle_ones_are_gone, timeout=60)
        assert left.counters()["shrunk"] and right.counters()["shrunk"], left.counters()
        assert _peers(left, "to") == {third.under} or left.counters()["tx_given_up"], left.counters()
        transfer(left, right, MIB)


def test_idle_tunnels_expire(lab):
    with Racked(lab["compute"], 2) as (left, right):
        _ping(left, right)
        wait_until("no tunnel is left", lambda: not any(host.counters()[way + "_tunnels"] for host in (left, right)
                                                        for way in ("tx", "rx")), timeout=120)
        assert not left.counters()["tx_evicted"] and not left.counters()["shrunk"], left.counters()
        _ping(left, right)


def test_peer_that_vanishes_under_traffic(lab):
    """Its packets go with its tunnel; other peers are served meanwhile, and itself when it is back."""
    machine = lab["compute"]
    with Racked(machine, 3) as (left, right, third):
        taking = right.spawn(f"python3 {eqdslab.STREAM} receive {right.inside} {eqdslab.PORT} 1")
        taking.wait_output("listening")
        pouring = left.spawn(f"python3 {eqdslab.STREAM} pour {right.inside} {eqdslab.PORT}")
        pouring.wait_output("pouring")
        at = left.counters()["tx_packets"]
        wait_until("the stream runs", lambda: left.counters()["tx_packets"] > at + 1000)
        machine.run(f"ip link set {right.port} down")
        transfer(left, third, MIB)
        wait_until("the tunnel is given up", lambda: left.counters()["tx_given_up"], timeout=120)
        pouring.signal(9)
        taking.signal(9)
        machine.run(f"ip link set {right.port} up")
        transfer(left, right, MIB)
        assert _credit(left)["held_bytes"] == 0 or left.counters()["tx_tunnels"], _credit(left)


def test_peer_that_reboots_without_a_word(lab):
    """Neither FIN nor RST comes through. Epochs are random: reboots go on until an earlier one was seen."""
    lab["compute"].run("modprobe sch_netem")
    rack = Racked(lab["compute"], 2)
    with rack as (left, right):
        def earlier():
            counted = left.counters()
            return counted["rx_refused"] or counted["receiver_old_epoch"]

        for reboots in range(30):
            if reboots >= 6 and earlier():
                break
            _ping(left, right)
            _ping(right, left)
            # A link that is down would not lose them: they would wait for the peer's MAC address.
            right.run("tc qdisc add dev eth0 root netem loss 100%")
            right.ip("link del eqds0")
            right.run("tc qdisc del dev eth0 root")
            rack.add_device(right)
            # One ping opens a tunnel that the peer still has another epoch of; the other uses one that is forgotten.
            said = [host.run(f"ping -c3 -i0.2 -W20 {other.inside}").out for host, other in ((right, left), (left, right))]
            assert all(" 0% packet loss" in each for each in said), said
        transfer(left, right, MIB)
        transfer(right, left, MIB)
        tap.diag(str({name: value for name, value in left.counters().items() if value}))
        assert earlier(), left.counters()


def _unreachable(host, address, sends=1):
    """A ping that is told so."""
    said = host.run(f"ping -c{sends} -i0.2 -W30 {address}", check=False)
    assert said.rc == 1 and re.search("Destination Host Unreachable|Address unreachable", said.out), said


def test_senders_learn_that_a_host_has_no_tunnel_device(lab):
    """Not after 15 s, but by ICMP about the first packets of a tunnel; over IPv4 and IPv6, inside and outside."""
    with Racked(lab["compute"], 2) as hosts:
        left, right = hosts
        for host, other in (hosts, hosts[::-1]):
            host.ip(f"addr add fd00::{host.number}/64 dev eth0 nodad", f"addr add fd09::{host.number}/128 dev eqds0 nodad",
                    "route add fd09::/64 dev eqds0")
            host.run(f"{rmem.CLI} eqds map eqds0 fd09::{other.number} fd00::{other.number}")
        right.run("ip link set eqds0 down")
        for number, inside in enumerate((right.inside, f"fd09::{right.number}"), 1):
            _unreachable(left, inside)
            counted = left.counters()
            assert counted["tx_unreachable"] == number and not counted["tx_given_up"] and not counted["tx_tunnels"], counted
        right.run("ip link set eqds0 up")
        right.ip(f"route replace {left.inside} via {left.under} dev eqds0 onlink src {right.inside}")
        _ping(left, right)


def test_senders_learn_that_a_silent_peer_is_given_up(lab):
    with Racked(lab["compute"], 2) as (left, right):
        right.silence()
        _unreachable(left, right.inside)
        assert left.counters()["tx_given_up"] == 1 and not left.counters()["icmp_heard"], left.counters()


def test_icmp_ends_no_tunnel_whose_peer_has_answered(lab):
    """Packets wait while a peer without a word has no device, and says so; they arrive when it has one again."""
    machine = lab["compute"]
    rack = Racked(machine, 2)
    with rack as (left, right):
        pinging = left.spawn(f"ping -i0.2 {right.inside}")
        pinging.wait_output("from")
        # At once: a slow machine's tunnel would be given up for silence meanwhile.
        machine.run(f"ip link set {right.port} down; ip -n {right.name} link del eqds0; ip link set {right.port} up")
        wait_until("the host says that it has no tunnels", lambda: left.counters()["icmp_heard"])
        counted = left.counters()
        assert counted["tx_tunnels"] == 1 and not counted["tx_unreachable"] + counted["tx_given_up"], counted
        rack.add_device(right)
        wait_until("packets arrive again", lambda: right.counters()["rx_packets"])
        pinging.signal(9)
        pinging.wait(60)


def test_icmp_ends_no_tunnel_with_a_key(lab):
    """ICMP has no tag, and an observer of the tunnel's packets can send it."""
    with Racked(lab["compute"], 2) as (left, right):
        file = left.machine.run("mktemp -u /tmp/eqds.XXXXXX").out.strip()
        left.run(f"{rmem.CLI} key new {file}")
        left.run(f"{rmem.CLI} eqds key eqds0 --key {file}")
        right.run("ip link set eqds0 down")
        pinging = left.spawn(f"ping -i0.2 {right.inside}")
        # The host says so at most once a second, after a few.
        wait_until("it says for a while that it has no tunnels", lambda: left.counters()["icmp_heard"] > 7)
        assert not left.counters()["tx_unreachable"], left.counters()
        right.run(f"{rmem.CLI} eqds key eqds0 --key {file}")
        right.run("ip link set eqds0 up")
        wait_until("packets arrive", lambda: right.counters()["rx_packets"])
        pinging.signal(9)
        pinging.wait(60)


def test_peer_whose_own_address_is_routed_into_the_device(lab):
    """The outer packet takes the link, whatever routes say."""
    with Racked(lab["compute"], 2) as (left, right):
        left.ip(f"route add {right.under}/32 dev eqds0")
        said = left.run(f"ping -c3 -i0.2 -W5 {right.under}").out
        assert " 0% packet loss" in said, said
        assert left.counters()["tx_packets"] >= 3, left.counters()
        collisions = int(left.run("cat /sys/class/net/eqds0/statistics/collisions").out)
        assert collisions == 0 and left.counters()["tx_tunnels"] == 1, collisions


def test_tunnels_that_loop(lab):
    """A tunnel's link is a VXLAN, and a route sends the VXLAN's packets into the tunnel. While the loop lasts, packets are lost.
    Afterwards the stream goes on."""
    machine = lab["compute"]
    if machine.run("modprobe vxlan", check=False).rc:
        tap.skip("no vxlan")
    # Each machine needs some seconds for so much.
    count = (8 if rmemlab.is_emulated_debug(lab) else 32) * MIB
    with Racked(machine, 2) as hosts:
        left, right = hosts
        for host, other in (hosts, hosts[::-1]):
            host.ip(f"link add v0 type vxlan id 1 remote {other.under} dstport 4789", f"addr add {host.vxlan}/24 dev v0",
                    "link set v0 up", "link add link v0 name eqds1 type eqds", "link set eqds1 up",
                    f"addr add 10.7.0.{host.number}/32 dev eqds1",
                    f"route add 10.7.0.{other.number} via {other.vxlan} dev eqds1 onlink src 10.7.0.{host.number}")
            host.run("ethtool --set-priv-flags eqds1 whole on")
        with sink(right, 1, address="10.7.0.2") as told:
            sending = start(left, right, count, address="10.7.0.2")
            wait_until("whole packets leave", lambda: left.counters("eqds1")["tx_whole"] > 20)
            left.ip(f"route add {right.under}/32 dev eqds1")
            wait_until("outer packets enter the tunnel", lambda: left.counters("eqds1")["tx_tunnels"] > 1)
            before = left.counters("eqds1")["tx_packets"]
            left.run("ping -c3 -i1 -W1 10.7.0.2", check=False)
            looped = left.counters("eqds1")["tx_packets"] - before
            left.ip(f"route del {right.under}/32 dev eqds1")
            assert sending.wait(eqdslab.STREAM_S).rc == 0
        assert told[0][1] == count, told
        # The loop answers nothing, so its tunnels have only the credit that they begin with.
        assert looped < 1000, looped


def test_several_cpus(lab):
    """Packets of a device arrive on all CPUs, both ways, while it is looked at and changed."""
    machine = lab["compute"]
    if rmemlab.is_native(lab):
        tap.skip("User Mode Linux has one CPU")
    with Racked(machine, 4) as hosts:
        for host in hosts:
            host.run("sh -c 'for q in /sys/class/net/eth0/queues/rx-*; do echo 3 > $q/rps_cpus; done'")

        def taken():
            return [int(line.split()[0], 16) for line in machine.read("/proc/net/softnet_stat").splitlines()]

        before = taken()
        changes = rmemlab.UntilTold(machine, "changes", " && ".join(
            f"ip netns exec {hosts[0].name} {words} >/dev/null" for words in
            ("ethtool -S eqds0", f"{rmem.CLI} eqds peers", f"{rmem.CLI} eqds share eqds0 10.0.0.0/24 --weight 2",
             f"{rmem.CLI} eqds share eqds0 10.0.0.0/24 --remove", f"{rmem.CLI} eqds set eqds0 --tos 8",
             "ethtool -s eqds0 speed 1000 duplex full autoneg off")))
        with sink(hosts[0], 3) as told, sink(hosts[1], 1):
            out = [start(host, hosts[0], MIB, seed) for seed, host in enumerate(hosts[1:])]
            out.append(start(hosts[0], hosts[1], MIB))
            sent = [process.wait(eqdslab.STREAM_S) for process in out]
        changes.stop()
        assert all(result.rc == 0 for result in sent), sent
        assert sorted(each[2] for each in told) == sorted(result.out.split()[1] for result in sent[:3])
        grown = [after - was for after, was in zip(taken(), before)]
        tap.diag(f"packets by CPU: {grown}")
        assert len(grown) > 1 and all(each > 100 for each in grown), grown


def test_tunnels_over_ipsec(lab):
    """Outer packets are UDP of the host as any other: the policy for their port encrypts them."""
    machine = lab["compute"]
    if machine.run("modprobe -a esp4 xfrm_user gcm", check=False).rc != 0:
        tap.skip("this kernel has no ESP")
    with Racked(machine, 2) as (left, right):
        for host in (left, right):
            for spi, (source, to) in enumerate(((left, right), (right, left)), 0x100):
                ends = f"src {source.under} dst {to.under}"
                key = "0x" + f"{spi:040x}"
                host.ip(f"xfrm state add {ends} proto esp spi {spi} mode transport aead rfc4106(gcm(aes)) {key} 128",
                        f"xfrm policy add {ends} proto udp dport 7671 dir {'out' if source is host else 'in'} "
                        f"tmpl {ends} proto esp mode transport")
            # Room for ESP, or each packet becomes two.
            host.run("ip link set eqds0 mtu 1300")
        transfer(left, right, MIB)
        said = left.run("ip -s xfrm state").out
        packets = [int(each) for each in re.findall(r"(\d+)\(packets\)", said)]
        assert max(packets) > MIB // 1300, said


TESTS = [test_tunnel_used_longest_ago_goes_at_the_cap, test_tunnels_that_have_packets_under_way_are_not_evicted,
         test_flood_at_the_cap_evicts_nobody, test_bound_on_packets_held_for_their_order, test_bound_on_packets_held_for_credit,
         test_memory_pressure_ends_idle_tunnels, test_idle_tunnels_expire, test_peer_that_vanishes_under_traffic,
         test_peer_that_reboots_without_a_word,
         test_senders_learn_that_a_host_has_no_tunnel_device, test_senders_learn_that_a_silent_peer_is_given_up,
         test_icmp_ends_no_tunnel_whose_peer_has_answered, test_icmp_ends_no_tunnel_with_a_key, test_peer_whose_own_address_is_routed_into_the_device, test_tunnels_that_loop,
         test_several_cpus,
         test_tunnels_over_ipsec, test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
