#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tunnels whose receivers clock every packet, under unmodified ping and TCP."""

import json
import pathlib
import re

import eqdslab
import rmemlab
from eqdslab import Racked, sink, start, test_modules_go, transfer
from remoralab import rmem, tap
from remoralab.rmem import wait_until

MIB = 1 << 20
HOSTILE = pathlib.Path(__file__).resolve().parent / "hostile_eqds.py"


def test_ping(lab):
    with Racked(lab["compute"], 2) as (left, right):
        said = left.run(f"ping -c5 -i0.2 -W2 {right.inside}").out
        assert " 0% packet loss" in said, said
        tap.diag(said.splitlines()[-1])
        counted = left.counters()
        assert counted["tx_packets"] >= 5 and counted["rx_packets"] >= 5, counted
        assert counted["tx_tunnels"] == counted["rx_tunnels"] == 1, counted
        peers = json.loads(left.run(f"{rmem.CLI} eqds peers --json").out)
        assert [(each["peer"], each["way"], each["state"]) for each in peers] == \
            [(right.under, "to", "open"), (right.under, "from", "open")], peers
        assert peers[0]["rtt_ns"], peers
        paths = json.loads(left.run(f"{rmem.CLI} eqds paths --json").out)
        assert len(paths) == 16 and sum(each["sent"] for each in paths) == counted["tx_packets"], paths


def test_ipv6_inside_and_outside(lab):
    """Each of the four pairs of inner and outer protocol."""
    with Racked(lab["compute"], 2) as hosts:
        left, right = hosts
        for host, other in (hosts, hosts[::-1]):
            # IPv6 knows no next hop that is on another link: the tunnel's other end is a rule.
            batch = [f"addr add fd00::{host.number}/64 dev eth0 nodad",
                     f"addr add fd09::{host.number}/128 dev eqds0 nodad", "route add fd09::/64 dev eqds0",
                     f"addr add fd0a::{host.number}/128 dev eqds0 nodad", "route add fd0a::/64 dev eqds0",
                     f"addr add 10.10.0.{host.number}/32 dev eqds0", "route add 10.10.0.0/24 dev eqds0"]
            host.machine.run(f"ip -n {host.name} -batch -", input="\n".join(batch) + "\n")
            for prefix, peer in ((f"fd09::{other.number}", f"fd00::{other.number}"),
                                 (f"fd0a::{other.number}", other.under),
                                 (f"10.10.0.{other.number}", f"fd00::{other.number}")):
                host.run(f"{rmem.CLI} eqds map eqds0 {prefix} {peer}")
        for inside in (f"fd09::{right.number}", f"fd0a::{right.number}", f"10.10.0.{right.number}", right.inside):
            said = left.run(f"ping -c3 -i0.2 -W5 {inside}").out
            assert " 0% packet loss" in said, said
        peers = {each["peer"] for each in json.loads(left.run(f"{rmem.CLI} eqds peers --json").out)}
        assert peers == {right.under, f"fd00::{right.number}"}, peers
        transfer(left, right, MIB, address=f"fd09::{right.number}")


def test_host_of_two_addresses(lab):
    """A tunnel to each, at once: their packets, and the answers, are told apart by the address."""
    with Racked(lab["compute"], 2) as (left, right):
        right.ip("addr add 10.0.0.102/24 dev eth0", "addr add 10.9.0.102/32 dev eqds0")
        left.ip(f"route add 10.9.0.102 via 10.0.0.102 dev eqds0 onlink src {left.inside}")
        taking = [right.spawn(f"python3 {eqdslab.STREAM} receive {address} {eqdslab.PORT} 1")
                  for address in (right.inside, "10.9.0.102")]
        for process in taking:
            process.wait_output("listening")
        sending = [start(left, right, MIB, seed, address) for seed, address in enumerate((right.inside, "10.9.0.102"))]
        for process, sink_process in zip(sending, taking):
            sent, took = process.wait(eqdslab.STREAM_S), sink_process.wait(eqdslab.STREAM_S)
            assert sent.rc == 0 and took.rc == 0, (sent, took)
            assert took.out.split()[2:4] == sent.out.split(), (sent, took)
        counted = right.counters()
        assert counted["rx_tunnels"] == 2 and not counted["receiver_restarted"] and not counted["receiver_old_epoch"], counted


def test_rules(lab):
    machine = lab["compute"]
    with Racked(machine, 3) as (left, right, third):
        def said(*words):
            return json.loads(left.run(" ".join([str(rmem.CLI), "eqds", *words, "--json"])).out)

        # Peers: the allowed one is heard, the other is not even answered.
        left.run(f"{rmem.CLI} eqds allow eqds0 {right.under}")
        right.run(f"ping -c1 -W5 {left.inside}")
        refused = third.run(f"ping -c2 -i0.2 -W1 {left.inside}", check=False)
        assert refused.rc != 0 and left.counters()["rx_drop_stranger"], (refused, left.counters())
        assert not third.counters()["rx_control"], third.counters()
        assert [(each["rule"], each["prefix"]) for each in said("rules")] == [("allow", right.under + "/32")]
        left.run(f"{rmem.CLI} eqds allow eqds0 {right.under} --remove")

        left.run(f"{rmem.CLI} eqds share eqds0 10.0.0.0/24 --weight 3 --priority 1")
        assert said("rules") == [{"device": "eqds0", "rule": "share", "prefix": "10.0.0.0/24", "priority": 1,
                                  "weight": 3}]
        # A tunnel that rests for ten seconds goes, and a debug kernel is slow.
        for host in (right, third):
            host.run(f"ping -c1 -W20 {left.inside}")
        [credit] = said("credit")
        assert credit["link"] == "eth0" and credit["mtu_bytes"] == 1500 and credit["tunnels_from"] == 2, credit
        [jitter] = said("jitter")
        assert sum(jitter["late_below_2_to_n_us"]) == jitter["timers"], jitter
        top = json.loads(left.run(f"{rmem.CLI} top --interval 0.1 --json").out)
        assert [each["device"] for each in top["eqds"]] == ["eqds0"], top

        # Outer packets: as the operator says, whatever the inner ones have.
        left.run(f"{rmem.CLI} eqds set eqds0 --ttl 7 --tos 32")
        capture = None
        if machine.run("command -v tcpdump", check=False).rc == 0:
            # A data packet with a payload: control packets have a class of their own.
            capture = right.spawn("tcpdump -lnv -i eth0 -c1 'udp dst port 7671 and src host 10.0.0.1 and "
                                  "udp[8] & 0xf = 1 and udp[9] & 0x10 = 0' 2>&1")
            capture.wait_output("listening on")
        left.run(f"ping -c1 -W5 {right.inside}")
        if capture:
            assert re.search(r"tos 0x20.* ttl 7,", capture.wait(60).out), capture.out

        for words, says in (("map eqds0 10.8.0.1/24 10.0.0.2", "bits set beyond its length"),
                            ("map eqds0 10.8.0.0/24", "name the PEER"),
                            ("map eqds0 10.8.0.0/33 10.0.0.2", "use a length of 0 to 32"),
                            ("allow eth0 10.0.0.1", "no such eqds device"),
                            ("allow eqds0 10.0.0.9 --remove", "no such rule"),
                            ("add nolink", "no network device nolink"),
                            ("add eth0", "File exists"),
                            ("set eqds0 --tos 300", "write 0 to 255, or inherit")):
            result = left.run(f"{rmem.CLI} eqds {words}", check=False)
            assert result.rc != 0 and says in result.err, (words, result)


def test_weights_divide_the_receivers_rate(lab):
    """A tunnel of weight 3 gets three of four pulls while both want all."""
    # A rate that both senders can use up, emulated and with sanitizers, too.
    count, mbits = (MIB, 1) if rmemlab.is_debug(lab) else (2 * MIB, 8)
    with Racked(lab["compute"], 3, mbits=mbits) as (one, three, receiver):
        receiver.run(f"{rmem.CLI} eqds share eqds0 {three.under} --weight 3")
        for sender in (one, three):
            sender.run("ethtool --set-priv-flags eqds0 burst off")
        with sink(receiver, 2) as told:
            running = [start(one, receiver, count), start(three, receiver, count)]
            for process in running:
                assert process.wait(eqdslab.STREAM_S).rc == 0, process.err
        first = told[0]
        tap.diag(f"{first[0]} had its {count} bytes when the other had {first[5]}")
        assert first[0] == three.inside and first[5] < count / 2, told


def _headers(left, right, ping):
    """(traffic class, hop limit) of a ping's outer packets, as they arrive at the link, and of its inner ones."""
    watch = right.spawn(f"python3 {HOSTILE} watch eth0")
    watch.wait_output("watching")
    left.run(f"ping -c2 -i0.2 -W5 {ping}")
    watch.end_input()
    result = watch.wait(60)
    assert result.rc == 0, result
    headers = {(tuple(each[4]), tuple(each[5])) for each in json.loads(result.out.splitlines()[-1])}
    assert len(headers) == 1, headers
    return headers.pop()


def test_traffic_class_and_hop_limit_of_outer_packets(lab):
    """DSCP as the inner packet's, unless the operator says which; ECN-capable once the receiver has said that it heeds
    marks; the hop limit is the tunnel's own."""
    with Racked(lab["compute"], 2) as hosts:
        left, right = hosts
        for host, other in (hosts, hosts[::-1]):
            host.ip(f"addr add fd09::{host.number}/128 dev eqds0 nodad", "route add fd09::/64 dev eqds0")
            host.run(f"{rmem.CLI} eqds map eqds0 fd09::{other.number} {other.under}")
        left.run(f"ping -c1 -W5 {right.inside}")
        for inside in (right.inside, f"fd09::{right.number}"):
            left.run(f"{rmem.CLI} eqds set eqds0 --tos inherit --ttl 0")
            assert _headers(left, right, f"-Q 0xb8 -t 9 {inside}") == ((0xba, 64), (0xb8, 9))
            assert _headers(left, right, f"-Q 0xba -t 9 {inside}") == ((0xba, 64), (0xba, 9))
            left.run(f"{rmem.CLI} eqds set eqds0 --tos 32 --ttl 5")
            assert _headers(left, right, f"-Q 0xba {inside}") == ((0x22, 5), (0xba, 64))


def test_congestion_seen_outside_is_told_inside(lab):
    """RFC 6040: a mark of the network reaches an ECN-capable packet. For another, the tunnel alone heeds it."""
    machine = lab["compute"]

    def marking(which):
        machine.run(f"tc filter del dev {right.port} egress", check=False)
        machine.run(f"tc filter add dev {right.port} egress protocol ip u32 "
                    f"match ip protocol 17 0xff match ip dport 7671 0xffff match u8 0x11 0xff at 28 {which} "
                    "action pedit ex munge ip tos set 3 retain 3 pipe action csum ip")

    def marked():
        """Packets of which the left's core knows that they arrived with a mark."""
        return sum(path["marked"] for path in json.loads(left.run(f"{rmem.CLI} eqds paths --json").out))

    with Racked(machine, 2) as (left, right):
        left.run(f"ping -c1 -W5 {right.inside}")
        machine.run(f"modprobe -a sch_ingress cls_u32 act_pedit act_csum && tc qdisc add dev {right.port} clsact")
        # As a switch does: of packets that say so.
        marking("match ip tos 2 3")
        said = left.run(f"ping -c3 -i0.2 -W5 -Q 2 {right.inside}").out
        assert " 0% packet loss" in said and marked() == 3, (said, marked())
        for host in (left, right):
            host.run("sysctl -qw net.ipv4.tcp_ecn=1")
        transfer(left, right, MIB)
        names, values = (line.split()[1:] for line in right.run("cat /proc/net/netstat").out.splitlines()
                         if line.startswith("IpExt:"))
        assert int(dict(zip(names, values))["InCEPkts"]) > 100, (names, values)
        # A packet that isn't ECN-capable inside is so outside. It arrives as it left.
        watch = right.spawn(f"python3 {HOSTILE} watch eth0")
        watch.wait_output("watching")
        before = marked()
        said = left.run(f"ping -c3 -i0.2 -W5 -Q 0 {right.inside}").out
        watch.end_input()
        result = watch.wait(60)
        assert result.rc == 0, result
        headers = {(each[4][0], each[5][0]) for each in json.loads(result.out.splitlines()[-1])}
        assert " 0% packet loss" in said and marked() - before == 3 and headers == {(3, 0)}, (said, marked(), headers)


# Datagrams with a traffic class, as many as a socket's memory holds at a time.
POUR = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[2]))
for _ in range(600):
    s.sendto(bytes(1300), (sys.argv[1], 9))
"""


def test_queue_without_credit_marks_ecn_capable_packets(lab):
    """The sending edge has the network's one queue: when that is long, senders that understand marks are told."""
    with Racked(lab["compute"], 2, mbits=1 if rmemlab.is_debug(lab) else 10) as (left, right):
        left.run("ethtool --set-priv-flags eqds0 burst off")
        for tos, marks in ((0, False), (2, True)):
            before = left.counters()["tx_mark"]
            left.run(f"python3 -c '{POUR}' {right.inside} {tos}")
            grown = left.counters()["tx_mark"] - before
            tap.diag(f"traffic class {tos}: {grown} of 600 marked")
            assert bool(grown) == marks, (tos, grown)


def test_segments_are_made_at_the_tunnel(lab):
    """TCP hands over packets of many segments; without GSO, of one. Both arrive, as packets of the same size."""
    with Racked(lab["compute"], 2) as (left, right):
        for switch in ("on", "off"):
            left.run(f"ethtool -K eqds0 gso {switch} tso {switch}")
            before = left.counters()["tx_packets"]
            transfer(left, right, MIB)
            packets = left.counters()["tx_packets"] - before
            assert packets >= MIB // 1412, packets


# Lends a buffer to the kernel, asks for word that it is free again, and overwrites it then: the numbers are
# SO_ZEROCOPY and MSG_ZEROCOPY. Waits as long as the packet waits for credit, if the kernel keeps the buffer.
LEND = """
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 60, 1)
s.connect((sys.argv[1], 9))
s.send(bytes(1200), 0x4000000)
p = select.poll()
p.register(s, 0)
assert p.poll(10000), "the kernel keeps the buffer"
s.recvmsg(0, 1000, socket.MSG_ERRQUEUE)
"""


def test_lent_pages_are_not_kept_while_a_packet_waits(lab):
    """A program that sends by MSG_ZEROCOPY has its pages again, though the peer gives no credit."""
    with Racked(lab["compute"], 2) as (left, right):
        left.run("ethtool --set-priv-flags eqds0 burst off")
        right.silence()
        before = left.counters()["tx_packets"]
        left.run(f"python3 -c '{LEND}' {right.inside}")
        counted = left.counters()
        assert counted["tx_tunnels"] == 1 and counted["tx_packets"] == before, counted


def test_trace_events(lab):
    machine, tracing = lab["compute"], "/sys/kernel/tracing"
    with Racked(machine, 2) as (left, right):
        machine.run(f"mountpoint -q {tracing} || mount -t tracefs none {tracing}")
        machine.run(f"echo > {tracing}/trace && echo 1 > {tracing}/events/eqds/enable")
        left.run(f"ping -c1 -W5 {right.inside}")
        machine.run(f"echo 0 > {tracing}/events/eqds/enable")
        said = machine.read(f"{tracing}/trace")
        for pattern in (r"eqds_send: .* data syn .* seq=0 ", r"eqds_receive: .* data syn .* seq=0 ",
                        r"eqds_receive: .* control syn\|sack\|ack .* ack=1 ", r"eqds_outcome: .* sender ok"):
            assert re.search(pattern, said), (pattern, said)


def test_many_tunnels(lab):
    """More tunnels than a message of the dump has room for."""
    with Racked(lab["compute"], 1) as (host,):
        # No host answers: each tunnel has one packet, and asks its peer for a cookie until the tunnel is given up.
        host.run("ip neigh replace 10.0.0.99 lladdr 02:00:00:00:00:99 dev eth0")
        lines = [f"route add 10.0.{net}.0/24 via 10.0.0.99 dev eth0" for net in (1, 2)]
        host.machine.run(f"ip -n {host.name} -batch -", input="\n".join(lines) + "\n")
        routes = [f"route add 10.9.{net}.{each} via 10.0.{net}.{each} dev eqds0 onlink"
                  for net in (1, 2) for each in range(1, 251)]
        host.machine.run(f"ip -n {host.name} -batch -", input="\n".join(routes) + "\n")
        # A socket each: one has no room for so many packets that wait, and would wait for the first tunnels' end.
        host.run("python3 -c 'import socket; "
                 "[socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (f\"10.9.{net}.{each}\", 9)) "
                 "for net in (1, 2) for each in range(1, 251)]'")
        assert host.counters()["tx_tunnels"] == 500, host.counters()
        peers = json.loads(host.run(f"{rmem.CLI} eqds peers --json").out)
        assert len({each["peer"] for each in peers}) == len(peers) == 500, len(peers)
        assert all(each["state"] == "opening" for each in peers), peers
        # A peer that never answers is given up, and its packets are freed.
        wait_until("all tunnels are given up", lambda: host.counters()["tx_tunnels"] == 0, timeout=120)
        assert host.counters()["tx_given_up"] == 500, host.counters()


def test_tcp_stream(lab):
    count = rmemlab.scaled(lab, 32) * MIB
    with Racked(lab["compute"], 2) as (left, right):
        seconds = transfer(left, right, count)
        tap.diag(f"{count * 8 / seconds / 1e6:.0f} Mbit/s")
        counted = left.counters()
        tap.diag(str({name: value for name, value in counted.items() if value}))
        assert counted["tx_packets"] > count // 1500, counted
        # Most acknowledgements of the stream have no number. The rest pays for a pull, as the tunnel rests in between.
        answers = right.counters()
        tap.diag(f"{answers['tx_unnumbered']} of {answers['tx_packets']} packets back had no number")
        assert answers["tx_unnumbered"] > answers["tx_packets"] // 2, answers
        wait_until("they arrive", lambda: left.counters()["rx_unnumbered"] >= answers["tx_unnumbered"])


def test_two_senders_share_the_receivers_rate(lab):
    count, mbits = rmemlab.scaled(lab, 8) * MIB, 100
    with Racked(lab["compute"], 3, mbits=mbits) as (*senders, receiver):
        for sender in senders:
            # Nothing leaves without credit, however often a slow sender's tunnel starts anew.
            sender.run("ethtool --set-priv-flags eqds0 burst off")
        with sink(receiver, 2) as told:
            running = [start(host, receiver, count, seed) for seed, host in enumerate(senders)]
            for process in running:
                assert process.wait(eqdslab.STREAM_S).rc == 0, process.err
        (_, _, _, began, _, beside), (_, _, _, _, ended, _) = told
        mbits_seen = 2 * count * 8 / (ended - began) / 1e6
        tap.diag(f"{mbits_seen:.0f} Mbit/s together; when one had its {count} bytes, the other had {beside}")
        assert beside > count / 2, told
        # Never above the rate that credit is given at.
        assert mbits_seen < 1.1 * mbits, told
        tap.diag(str({name: value for name, value in receiver.counters().items() if value}))


def _under_netem(lab, how, mib, effect):
    """Streams over such a network, until one of them had the effect: that is chance."""
    with Racked(lab["compute"], 2) as (left, right):
        for host in (left, right):
            lab["compute"].netem(host.port, how)
        mib = rmemlab.scaled(lab, mib) if rmemlab.is_native(lab) else 1

        def had_effect():
            seconds, counted = transfer(left, right, mib * MIB, seed=7), left.counters()
            tap.diag(f"{mib * 8 * MIB / seconds / 1e6:.1f} Mbit/s, {counted['tx_retransmits']} retransmissions "
                     f"of {counted['tx_packets']}")
            return effect(counted, right.counters())

        wait_until("the network had its effect", had_effect)


def test_loss_of_1_percent(lab):
    _under_netem(lab, "loss 1%", 8, lambda sender, _: sender["tx_retransmits"])


def test_loss_of_10_percent(lab):
    _under_netem(lab, "loss 10%", 4, lambda sender, _: sender["tx_retransmits"])


def test_reordering(lab):
    # Whether a late packet is sent again meanwhile is no matter; that later ones wait for it is.
    _under_netem(lab, "delay 5ms reorder 25%", 8, lambda _, receiver: receiver["rx_held_max"])


def test_jumbo_frames(lab):
    with Racked(lab["compute"], 2, mtu=9000) as (left, right):
        transfer(left, right, rmemlab.scaled(lab, 16) * MIB)
        mtu = int(left.run("cat /sys/class/net/eqds0/mtu").out)
        assert mtu == 9000 - 88, mtu
        left.run(f"ping -c1 -W5 -M do -s {mtu - 28} {right.inside}")
        refused = left.run(f"ping -c1 -W5 -M do -s {mtu - 27} {right.inside}", check=False)
        assert refused.rc != 0 and "message too long" in refused.out + refused.err, refused
        # Without that flag the stack makes fragments, each a packet of the tunnel.
        left.run(f"ping -c1 -W5 -M dont -s {2 * mtu} {right.inside}")


def test_device_down_and_up(lab):
    with Racked(lab["compute"], 2) as (left, right):
        transfer(left, right, MIB)
        for host in (right, left):
            host.run("ip link set eqds0 down")
            host.run("ip link set eqds0 up")
            # The routes of a device go when it goes down.
            other = left if host is right else right
            host.run(f"ip route replace {other.inside} via {other.under} dev eqds0 onlink src {host.inside}")
            transfer(left, right, MIB)
            transfer(right, left, MIB)


def test_namespace_destroyed_under_traffic(lab):
    machine = lab["compute"]
    with Racked(machine, 3) as (left, doomed, right):
        taking = doomed.spawn(f"python3 {eqdslab.STREAM} receive {doomed.inside} {eqdslab.PORT} 1")
        taking.wait_output("listening")
        pouring = left.spawn(f"python3 {eqdslab.STREAM} pour {doomed.inside} {eqdslab.PORT}")
        pouring.wait_output("pouring")
        at = left.counters()["tx_packets"]
        wait_until("the stream runs", lambda: left.counters()["tx_packets"] > at + 1000)
        # The namespace goes when its last process has gone.
        machine.run(f"ip netns del {doomed.name}")
        taking.signal(9)
        wait_until("its port is gone", lambda: doomed.port not in machine.run("ls /sys/class/net").out.split())
        pouring.signal(9)
        pouring.wait(eqdslab.STREAM_S)
        transfer(left, right, MIB)


def test_module_removed_under_traffic(lab):
    machine = lab["compute"]
    with Racked(machine, 3) as (left, right, third):
        streams = []
        for host in (right, third):
            taking = host.spawn(f"python3 {eqdslab.STREAM} receive {host.inside} {eqdslab.PORT} 1")
            taking.wait_output("listening")
            pouring = left.spawn(f"python3 {eqdslab.STREAM} pour {host.inside} {eqdslab.PORT}")
            pouring.wait_output("pouring")
            streams += [taking, pouring]
        at = left.counters()["tx_packets"]
        wait_until("the streams run", lambda: left.counters()["tx_packets"] > at + 1000)
        machine.run(f"rmmod {eqdslab.MODULE} {eqdslab.CORE}")
        assert "eqds0" not in left.run("ls /sys/class/net").out
        for process in streams:
            process.signal(9)
            process.wait(eqdslab.STREAM_S)


def test_wrong_use_is_explained(lab):
    machine = lab["compute"]
    with Racked(machine, 1) as (host,):
        for words, says in (("link add eqds1 type eqds", "name the device that tunnels use: link DEV"),
                            ("link add link eqds0 name eqds1 type eqds", "no tunnels in tunnels"),
                            ("link add link eth0 name eqds1 mtu 1500 type eqds", "at most 1412"),
                            ("link add link eth0 name eqds1 address 02:00:00:00:00:01 type eqds",
                             "no hardware address")):
            result = machine.run(f"ip -n {host.name} {words}", check=False)
            assert result.rc != 0 and says in result.err, (words, result)
        # A second device on one link would need the same port.
        machine.run(f"ip -n {host.name} link add link eth0 name eqds1 type eqds")
        result = machine.run(f"ip -n {host.name} link set eqds1 up", check=False)
        assert result.rc != 0 and "in use" in result.err, result
        host.run("ip link del eqds0")
        host.run(f"{rmem.CLI} eqds add eth0 --name eqds2")
        # A link takes its devices along.
        machine.run(f"ip -n {host.name} link del eth0")
        assert "eqds" not in host.run("ls /sys/class/net").out


def test_incast_through_a_trimming_switch(lab):
    if not rmemlab.is_native(lab):
        tap.skip("emulated senders are too slow to fill the queue of the port")
    machine, count, senders = lab["compute"], MIB, 8
    with Racked(machine, senders + 1, mbits=45) as (*hosts, receiver):
        eqdslab.load(machine, eqdslab.TRIM)
        machine.run("modprobe sch_tbf")
        # The switch's port to the receiver: 50 Mbit/s and 15 packets; pulls are given for a little less.
        machine.run(f"tc qdisc add dev {receiver.port} root handle 1: tbf rate 50mbit burst 4k limit 1m && "
                    f"tc qdisc add dev {receiver.port} parent 1:1 handle 2: trim")
        with sink(receiver, senders) as told:
            running = [start(host, receiver, count, seed) for seed, host in enumerate(hosts)]
            sent = [process.wait(eqdslab.STREAM_S) for process in running]
        assert all(result.rc == 0 for result in sent), sent
        assert sorted(each[2] for each in told) == sorted(result.out.split()[1] for result in sent)
        said = machine.run(f"tc -s qdisc show dev {receiver.port}").out
        dropped, trimmed = map(int, re.search(r"qdisc trim.*?dropped (\d+), overlimits (\d+)", said, re.S).groups())
        counted = [host.counters() for host in hosts]
        seconds = told[-1][4] - told[0][3]
        total = {name: sum(each[name] for each in counted) for name in counted[0]}
        tap.diag(f"{senders * count * 8 / seconds / 1e6:.0f} Mbit/s, trimmed {trimmed}, dropped {dropped}")
        tap.diag(str({name: value for name, value in total.items() if value}))
        # A full queue drops what it can't trim: an ARP request, say.
        assert trimmed and dropped <= 10, said
        # Every header arrives; some are of packets that have been sent again meanwhile.
        heard = receiver.counters()
        assert heard["receiver_trimmed"] <= trimmed <= heard["receiver_trimmed"] + heard["receiver_duplicate"], heard
        # No packet was lost: each that was sent again had been trimmed, or a busy machine's timer was hasty and it
        # arrived twice.
        again = total["tx_retransmits"]
        assert heard["receiver_trimmed"] <= again <= trimmed + heard["receiver_duplicate"], (again, trimmed, heard)


def test_loss_of_control_packets_alone(lab):
    """Acknowledgements and pulls get lost, data doesn't: no credit is lost with them."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        machine.run("modprobe -a sch_prio sch_netem cls_u32")
        control = "match ip protocol 17 0xff match u8 0x12 0xff at 28"
        machine.run(f"tc qdisc add dev {left.port} root handle 1: prio && "
                    f"tc qdisc add dev {left.port} parent 1:3 netem loss 10% && "
                    f"tc filter add dev {left.port} parent 1: protocol ip u32 {control} flowid 1:3")

        def lost():
            return int(re.search(r"netem.*?dropped (\d+)", machine.run(f"tc -s qdisc show dev {left.port}").out, re.S)[1])

        # A busy receiver answers rarely, so that a stream may lose none.
        wait_until("control packets were lost", lambda: transfer(left, right, 4 * MIB) and lost() > 5)


FLOOD = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 32, 1 << 22)  # SO_SNDBUFFORCE: more than two windows
while True:
    s.sendto(bytes(int(sys.argv[2])), (sys.argv[1], 9))
"""


def test_window_is_what_the_operator_says(lab):
    """Where a round trip takes long, a tunnel has a window of packets on their way to its peer, and no more."""
    def in_flight(host):
        return max((each["in_flight_packets"] for each in json.loads(host.run(f"{rmem.CLI} eqds peers --json").out)), default=0)

    with Racked(lab["compute"], 2) as (left, right):
        lab["compute"].run("modprobe sch_netem")
        mtu = int(left.run("cat /sys/class/net/eqds0/mtu").out)
        slow = rmemlab.is_emulated_debug(lab)
        left.run(f"ping -c1 -W20 {right.inside}")
        for mtus in (64, 256, 8):
            for host in (left, right):
                host.run(f"{rmem.CLI} eqds set eqds0 --window {mtus}")
                # Pulls alone fill the window, if the machine sends as many packets within a round trip. The queue is as long as
                # it is at this rate.
                if not slow:
                    host.run("ethtool --set-priv-flags eqds0 burst off")
                    host.run("ethtool -s eqds0 speed 1000 duplex full autoneg off")
            told, = json.loads(left.run(f"{rmem.CLI} eqds credit --json").out)
            assert told["window_mtus"] == mtus and told["window_bytes"] == mtus * told["mtu_bytes"], told
            left.run("tc qdisc replace dev eth0 root netem delay 100ms limit 10000")
            # 28: the headers of IP and UDP
            flooding = left.spawn(f"python3 -c '{FLOOD}' {right.inside} {mtu - 28}")
            wait_until(f"the window of {mtus} is full", lambda mtus=mtus: in_flight(left) == mtus, timeout=60)
            for _ in range(10):
                assert in_flight(left) <= mtus, mtus
            flooding.signal(9)
            flooding.wait(60)
            left.run("tc qdisc del dev eth0 root")
        left.run(f"{rmem.CLI} eqds set eqds0 --window 512")
        transfer(left, right, MIB)
        transfer(right, left, MIB)
        # Tunnels begin anew under a stream, which takes some seconds.
        right.run("ethtool -s eqds0 speed 20 duplex full autoneg off")
        with sink(right, 1) as told:
            sending = start(left, right, 8 * MIB)
            for mtus in (1, 300, 64):
                before = right.counters()["rx_packets"]
                wait_until("packets arrive", lambda before=before: right.counters()["rx_packets"] > before + 50)
                left.run(f"{rmem.CLI} eqds set eqds0 --window {mtus}")
            sent = sending.wait(eqdslab.STREAM_S)
        assert [str(told[0][1]), told[0][2]] == sent.out.split(), (told, sent)
        left.ip("link set eqds0 down")
        left.run(f"{rmem.CLI} eqds set eqds0 --window 100")
        left.ip("link set eqds0 up")
        told, = json.loads(left.run(f"{rmem.CLI} eqds credit --json").out)
        assert told["window_mtus"] == 100 and told["window_bytes"] == 100 * told["mtu_bytes"], told
        for wrong in (0, 513):
            said = left.run(f"{rmem.CLI} eqds set eqds0 --window {wrong}", check=False)
            assert said.rc and "window" in said.err + said.out, said


TESTS = [test_ping, test_ipv6_inside_and_outside, test_host_of_two_addresses, test_rules,
         test_weights_divide_the_receivers_rate, test_traffic_class_and_hop_limit_of_outer_packets,
         test_congestion_seen_outside_is_told_inside, test_queue_without_credit_marks_ecn_capable_packets,
         test_segments_are_made_at_the_tunnel, test_lent_pages_are_not_kept_while_a_packet_waits, test_trace_events,
         test_many_tunnels, test_tcp_stream, test_two_senders_share_the_receivers_rate, test_loss_of_1_percent,
         test_loss_of_10_percent, test_reordering, test_jumbo_frames, test_device_down_and_up,
         test_namespace_destroyed_under_traffic, test_module_removed_under_traffic, test_wrong_use_is_explained,
         test_incast_through_a_trimming_switch, test_loss_of_control_packets_alone,
         test_window_is_what_the_operator_says, test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
