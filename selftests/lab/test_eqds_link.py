#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A tunnel device and its link: packets that it captures there, translators behind it, changes of it and of its way."""

import contextlib
import json
import re

import eqdslab
import rmemlab
from eqdslab import Racked, sink, start, test_modules_go, transfer
from remoralab import rmem, tap
from remoralab.rmem import wait_until

MIB = 1 << 20


def test_packets_of_the_link_are_captured(lab):
    """Nothing is routed into the device: the hook after routing takes packets for a prefix, by rule."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        if left.run(f"{rmem.CLI} eqds map eqds0 {right.under} {right.under}").err:
            tap.skip("this kernel has no netfilter")
        right.run(f"{rmem.CLI} eqds map eqds0 {left.under} {left.under}")
        # Of all sizes: one that fits, one that the sender has to make smaller, one that becomes fragments.
        left.run(f"ping -c2 -i0.2 -W5 {right.under}")
        refused = left.run(f"ping -c2 -W5 -M do -s 1400 {right.under}", check=False)
        assert refused.rc != 0 and "mtu" in (refused.out + refused.err).lower(), refused
        left.run(f"ping -c1 -W5 -M dont -s 4000 {right.under}")
        before = left.counters()["tx_packets"]
        transfer(left, right, MIB, address=right.under)
        assert left.counters()["tx_packets"] - before >= MIB // 1412, left.counters()
        left.run(f"{rmem.CLI} eqds map eqds0 {right.under} --remove")
        before = left.counters()["tx_packets"]
        left.run(f"ping -c1 -W5 {right.under}")
        assert left.counters()["tx_packets"] == before, left.counters()


RDMA_PORT = 4791


def test_rdma_enters_by_the_link_only_where_a_rule_names_its_peer(lab):
    """A peer that is neither allowed nor mapped does not reach the link past the rules about eqds0."""
    with Racked(lab["compute"], 2) as (left, right):
        if left.run(f"{rmem.CLI} eqds map eqds0 {right.under} {right.under}").err:
            tap.skip("this kernel has no netfilter")

        def arrives():
            """Whether a datagram for RDMA's port reaches a socket of the right's."""
            before = right.counters()
            taking = right.spawn("python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
                                 f"s.bind((\"{right.under}\", {RDMA_PORT})); print(\"bound\", flush=True); "
                                 "print(s.recv(100))'")
            taking.wait_output("bound")
            left.run("python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(60), "
                     f"(\"{right.under}\", {RDMA_PORT}))'")
            grown = {}

            def counted():
                grown.update({name: right.counters()[name] - before[name] for name in ("rx_rdma", "rx_drop_rdma")})
                return any(grown.values())

            wait_until("the datagram is counted", counted)
            if grown["rx_rdma"]:
                assert taking.wait(60).rc == 0
            else:
                taking.signal(9)
                taking.wait(60)
            assert sum(grown.values()) == 1, grown
            return bool(grown["rx_rdma"])

        assert not arrives()
        for rule in (f"allow eqds0 {left.under}", f"map eqds0 {left.under} {left.under}"):
            right.run(f"{rmem.CLI} eqds {rule}")
            assert arrives(), rule
            right.run(f"{rmem.CLI} eqds {' '.join(rule.split()[:3])} --remove")
            assert not arrives(), rule
        # The rule leads to another host.
        right.run(f"{rmem.CLI} eqds map eqds0 {left.under} 10.0.0.77")
        assert not arrives()


def test_rule_for_all_hosts_leaves_the_link_its_own_packets(lab):
    """Neighbour discovery, which the tunnel itself needs, and what is for many hosts."""
    with Racked(lab["compute"], 2) as hosts:
        left, right = hosts
        for host, other in (hosts, hosts[::-1]):
            host.run(f"ip addr add fd00::{host.number}/64 dev eth0 nodad")
            if host.run(f"{rmem.CLI} eqds map eqds0 ::/0 fd00::{other.number}").err:
                tap.skip("this kernel has no netfilter")
            host.run(f"{rmem.CLI} eqds map eqds0 0.0.0.0/0 {other.under}")
            host.run("ip neigh flush dev eth0")
            host.run("sysctl -qw net.ipv4.icmp_echo_ignore_broadcasts=0")
            # Of its own accord eqds0 asks for routers, three times, and the rule gives that to the tunnel.
            host.run("sysctl -qw net.ipv6.conf.eqds0.router_solicitations=0")
        # By a tunnel, whose packets find their neighbour.
        before = left.counters()["tx_packets"]
        left.run("ping -c2 -i0.2 -W5 fd00::2")
        assert left.counters()["tx_packets"] > before, left.counters()
        before = left.counters()["tx_packets"]
        for words in ("-b 10.0.0.255", "-6 ff02::1%eth0"):
            left.run(f"ping -c1 -W5 {words}")
        # The answers come to one host, and so by its tunnel.
        assert left.counters()["tx_packets"] == before, left.counters()


def test_ipv6_packets_of_the_link_are_captured(lab):
    """By a rule for a prefix, and told the tunnel's MTU; the tunnel itself is over IPv4, and then over IPv6."""
    with Racked(lab["compute"], 2) as hosts:
        left, right = hosts
        for host in hosts:
            host.ip(f"addr add fd00::{host.number}/64 dev eth0 nodad", f"addr add fd01::{host.number}/64 dev eth0 nodad")
        for peers in ([host.under for host in hosts], [f"fd01::{host.number}" for host in hosts]):
            if left.run(f"{rmem.CLI} eqds map eqds0 fd00::/64 {peers[1]}").err:
                tap.skip("this kernel has no netfilter")
            right.run(f"{rmem.CLI} eqds map eqds0 fd00::/64 {peers[0]}")
            left.run(f"ping -c2 -i0.2 -W5 fd00::{right.number}")
            refused = left.run(f"ping -c2 -W5 -M do -s 1400 fd00::{right.number}", check=False)
            assert refused.rc != 0 and "mtu" in (refused.out + refused.err).lower(), refused
            left.run(f"ping -c1 -W5 -s 4000 fd00::{right.number}")
            before = left.counters()["tx_packets"]
            transfer(left, right, MIB, address=f"fd00::{right.number}")
            assert left.counters()["tx_packets"] - before >= MIB // 1412, left.counters()
            assert peers[1] in {each["peer"] for each in json.loads(left.run(f"{rmem.CLI} eqds peers --json").out)}
            for host in hosts:
                host.run(f"{rmem.CLI} eqds map eqds0 fd00::/64 --remove")
                host.ip("route flush cache")


@contextlib.contextmanager
def _translated(left, right, sport=None, drops=None):
    """A translator at the right's port gives the left's packets the address 10.0.0.50, and sends packets for that address to
    the left. sport: the port that all of the left's packets come from; drops: packets that it does not send back."""
    machine, port = left.machine, right.port
    back = f"tc filter add dev {port} ingress protocol ip"
    to_left = (f"action pedit ex munge ip dst set {left.under} {'munge udp dport set 7671 ' if sport else ''}"
               "pipe action csum ip and udp")
    machine.run("modprobe -a sch_ingress cls_u32 act_pedit act_csum act_gact && "
                f"tc qdisc add dev {port} clsact && tc filter add dev {port} egress protocol ip u32 "
                f"match ip src {left.under} match ip protocol 17 0xff action pedit ex munge ip src set 10.0.0.50 "
                f"{f'munge udp sport set {sport} ' if sport else ''}pipe action csum ip and udp && "
                + (f"{back} prio 1 u32 match ip dst 10.0.0.50 {drops} action drop && " if drops else "")
                + f"{back} prio 2 u32 match ip dst 10.0.0.50 {f'match ip dport {sport} 0xffff ' if sport else ''}{to_left}")
    mac = left.run("cat /sys/class/net/eth0/address").out.strip()
    right.ip(f"neigh replace 10.0.0.50 lladdr {mac} dev eth0",
             f"route replace {left.inside} via 10.0.0.50 dev eqds0 onlink src {right.inside}")
    yield
    machine.run(f"tc qdisc del dev {port} clsact")


def test_translated_addresses(lab):
    """Where NAT keeps a host's port, the tunnel opens. Where it does not, or keeps the answers, the sender learns it."""
    machine = lab["compute"]

    def told():
        return machine.run("dmesg").out.count("NAT between this host and")

    def refused(left, right):
        before = told()
        said = left.run(f"ping -c1 -W30 {right.inside}", check=False)
        assert said.rc and "Unreachable" in said.out, said
        assert left.counters()["tx_translated"] == 1 and not left.counters()["tx_given_up"], left.counters()
        assert right.counters()["rx_translated"] and not right.counters()["rx_tunnels"], right.counters()
        assert told() == before + 1

    # The port that a translator has chosen.
    with Racked(machine, 2) as (left, right), _translated(left, right, sport=5555):
        refused(left, right)
    # The tunnels' own port. The translator lets answers back only from the port that the packet went to.
    with Racked(machine, 2) as (left, right), _translated(left, right, drops="match ip sport 0xc000 0xfff0"):
        refused(left, right)
    with Racked(machine, 2) as (left, right), _translated(left, right):
        left.run(f"ping -c3 -i0.2 -W5 {right.inside}")
        assert not left.counters()["tx_translated"], left.counters()


def test_device_in_another_namespace_keeps_its_link(lab):
    """As a container's: packets inside are of the one namespace, those outside of the link's."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        machine.run("ip netns add inner && ip -n h1 link set eqds0 netns inner && ip -n inner link set lo up && "
                    f"ip -n inner addr add {left.inside}/24 dev eqds0 && ip -n inner link set eqds0 up && "
                    f"ip -n inner route add {right.inside} via {right.under} dev eqds0 onlink src {left.inside}")
        machine.run(f"ip netns exec inner ping -c3 -i0.2 -W5 {right.inside}")
        assert "link-netns" in machine.run("ip -n inner link show eqds0").out
        # Its rules capture nothing of the link's.
        machine.run(f"ip netns exec inner {rmem.CLI} eqds map eqds0 {right.under} {right.under}")
        before = eqdslab.counters_of(machine.run("ip netns exec inner ethtool -S eqds0").out)["tx_packets"]
        left.run(f"ping -c1 -W5 {right.under}")
        counted = eqdslab.counters_of(machine.run("ip netns exec inner ethtool -S eqds0").out)
        assert counted["tx_packets"] == before, counted
        # The device follows its link, and goes with it.
        left.ip("link set eth0 mtu 1400")
        assert "mtu 1312" in machine.run("ip -n inner link show eqds0").out
        left.ip("link del eth0")
        wait_until("the device is gone", lambda: "eqds0" not in machine.run("ip -n inner link").out)
        machine.run("ip netns del inner")
    # The namespace goes, and the link stays.
    with Racked(machine, 2) as (left, right):
        machine.run("ip netns add inner && ip -n h1 link add link eth0 netns inner name other type eqds && "
                    "ip netns del inner")
        left.run(f"ping -c1 -W5 {right.under}")


def test_link_flap(lab):
    # Several seconds of stream, so that it isn't over before the link is down.
    count, mbits = (64 * MIB, 100) if rmemlab.is_native(lab) else (8 * MIB, 20)
    with Racked(lab["compute"], 2, mbits=mbits) as (left, right):
        with sink(right, 1) as told:
            sending = start(left, right, count)
            wait_until("the stream runs", lambda: left.counters()["tx_packets"] > 200)
            lab["compute"].run(f"ip link set {right.port} down")
            before = left.counters()["tx_expired"]
            wait_until("tunnels time out", lambda: left.counters()["tx_expired"] > before + 4)
            assert sending.running(), sending.out
            lab["compute"].run(f"ip link set {right.port} up")
            sent = sending.wait(eqdslab.STREAM_S)
            assert sent.rc == 0, sent
        assert [str(told[0][1]), told[0][2]] == sent.out.split()


def test_mtu_of_the_link_is_followed(lab):
    """At run time, with tunnels open."""
    with Racked(lab["compute"], 2, mtu=9000) as hosts:
        left, right = hosts
        transfer(left, right, MIB)
        for mtu in (1500, 4000):
            for host in hosts:
                host.run(f"ip link set eth0 mtu {mtu}")
                assert int(host.run("cat /sys/class/net/eqds0/mtu").out) == mtu - 88
            transfer(left, right, MIB)
            left.run(f"ping -c1 -W5 -M do -s {mtu - 88 - 28} {right.inside}")
        # One that the operator made smaller stays.
        left.run("ip link set eqds0 mtu 1300")
        left.run("ip link set eth0 mtu 3000")
        assert int(left.run("cat /sys/class/net/eqds0/mtu").out) == 1300


# A bridge has the speed of its ports, while one of them is there; this one is there until the program's input ends.
PORT_OF_BRIDGE = """
import fcntl, struct, sys
tap = open("/dev/net/tun", "r+b", buffering=0)
fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH22x", b"tap0", 0x1002))
print("there", flush=True)
sys.stdin.read()
"""


def test_link_without_carrier_keeps_its_speed(lab):
    """No carrier, no speed: pulls go on at that of before."""
    with Racked(lab["compute"], 2) as (left, _):
        lab["compute"].run("modprobe -a tun bridge")
        left.ip("link add br0 type bridge", "link set br0 up")
        port = left.spawn(f"python3 -c '{PORT_OF_BRIDGE}'")
        port.wait_output("there")
        left.run("ethtool -s tap0 speed 1000 duplex full autoneg off")
        left.ip("link set tap0 up", "link set tap0 master br0")

        def speed(link):
            return re.search(r"Speed: (\S+)", left.run(f"ethtool {link}").out)[1]

        wait_until("the bridge has a speed", lambda: speed("br0") == "1000Mb/s")
        left.ip("link add link br0 name eqds1 type eqds", "link set eqds1 up")
        assert speed("eqds1") == "1000Mb/s"
        port.end_input()
        port.wait(60)
        wait_until("the bridge has none", lambda: speed("br0") == "Unknown!")
        # The notice of that comes before this one.
        left.ip("link set eqds1 mtu 1300")
        assert speed("eqds1") == "1000Mb/s"


def test_path_with_a_smaller_mtu(lab):
    """Behind a router: IPv4's makes fragments, IPv6's says how large packets may be, and then their sender makes them."""
    with Racked(lab["compute"], 3) as (left, right, router):
        machine = left.machine
        # Another link between router and right host, whose packets the router sends with 1300 bytes.
        machine.run(f"ip link add name far netns {router.name} mtu 1300 type veth peer name eth1 netns {right.name}")
        router.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
        router.ip("addr add 10.1.0.1/24 dev far", "addr add fd01::1/64 dev far nodad", "link set far up",
                  "addr add fd00::3/64 dev eth0 nodad")
        left.ip("addr add fd00::1/64 dev eth0 nodad", f"route add 10.1.0.0/24 via {router.under} dev eth0",
                "route add fd01::/64 via fd00::3 dev eth0", "addr add fd09::1/128 dev eqds0 nodad",
                "route add 10.9.1.0/24 dev eqds0", "route add fd09::/64 dev eqds0")
        right.ip("link set eqds0 down", "link set eth1 up", "addr add 10.1.0.2/24 dev eth1",
                 "addr add fd01::2/64 dev eth1 nodad", "route del 10.0.0.0/24 dev eth0",
                 "route add 10.0.0.0/24 via 10.1.0.1 dev eth1", "route add fd00::/64 via fd01::1 dev eth1",
                 "link add link eth1 name eqds1 type eqds", "link set eqds1 up", "addr add 10.9.1.2/32 dev eqds1",
                 "addr add fd09::2/128 dev eqds1 nodad", f"route add {left.inside} dev eqds1", "route add fd09::/64 dev eqds1")
        for inside, peer, back in (("10.9.1.2", "10.1.0.2", "10.0.0.1"), ("fd09::2", "fd01::2", "fd00::1")):
            left.run(f"{rmem.CLI} eqds map eqds0 {inside} {peer}")
            right.run(f"{rmem.CLI} eqds map eqds1 {'fd09::1' if ':' in inside else left.inside} {back}")
            transfer(left, right, MIB, address=inside)
        assert "mtu 1300" in left.run("ip -6 route get fd01::2").out
        counted = dict(line.split() for line in left.run("cat /proc/net/snmp6").out.splitlines())
        tap.diag(f"{counted['Icmp6InPktTooBigs']} packets were too big, {counted['Ip6FragCreates']} fragments were made")
        assert int(counted["Ip6FragCreates"]) > 2 * MIB // 1412, counted


def test_source_address_of_the_link_changes(lab):
    """The route of the packet before is kept, but for no longer than the namespace's routes stay as they are."""
    def senders(host):
        peers = json.loads(host.run(f"{rmem.CLI} eqds peers --json").out)
        return {each["peer"] for each in peers if each["way"] == "from"}

    with Racked(lab["compute"], 2) as (left, right):
        transfer(left, right, MIB)
        assert senders(right) == {left.under}, senders(right)
        new = left.under.rsplit(".", 1)[0] + ".77"
        left.ip(f"addr del {left.under}/24 dev eth0", f"addr add {new}/24 dev eth0")
        right.ip(f"route replace {left.inside} via {new} dev eqds0 onlink src {right.inside}")
        transfer(left, right, MIB)
        assert new in senders(right), senders(right)


TAKE = """
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(("fd09::2", 9))
print("taking", flush=True)
while s.recv(2000):
    pass
"""
SEND = """
import socket, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
while True:
    s.sendto(bytes(1000), ("fd09::2", 9))
    time.sleep(0.01)
"""


def test_dead_router_is_left(lab):
    """No route changes when a router dies; a look-up finds another one. The link's own packets do so as well."""
    with Racked(lab["compute"], 2) as (left, right):
        right.ip("addr add fd00::2/64 dev eth0 nodad", "addr add fd00::66/64 dev eth0 nodad",
                 "addr add fd77::2/128 dev lo nodad", "addr add fd09::2/128 dev eqds0 nodad")
        left.ip("addr add fd00::1/64 dev eth0 nodad", "addr add fd09::1/128 dev eqds0 nodad",
                "route add fd09::/64 dev eqds0", "route add fd77::2 via fd00::66 dev eth0 metric 1",
                "route add fd77::2 via fd00::2 dev eth0 metric 2")
        right.ip("route add fd09::/64 dev eqds0")
        left.run(f"{rmem.CLI} eqds map eqds0 fd09::2 fd77::2")
        right.run(f"{rmem.CLI} eqds map eqds0 fd09::1 fd00::1")
        # The link's own address changes routes when it is found to be unique.
        for host in (left, right):
            wait_until("addresses stand", lambda host=host: "tentative" not in host.run("ip -6 addr show dev eth0").out)
        # Linux leaves out a router that it knows nothing of.
        left.run("ping -6 -c1 -W5 fd00::66")
        assert "via fd00::66" in left.run("ip -6 route get fd77::2").out
        # One way alone, since an answer to the other end has a route of its own, which would be looked up between two packets.
        taking = right.spawn(f"python3 -c '{TAKE}'")
        taking.wait_output("taking")
        sending = left.spawn(f"python3 -c '{SEND}'")

        def arrived():
            return right.counters()["rx_packets"]

        def more_arrive():
            before = arrived()
            wait_until("packets arrive", lambda: arrived() >= before + 20, timeout=60)

        more_arrive()
        right.ip("addr del fd00::66/64 dev eth0")
        left.run("ip -6 neigh replace fd00::66 dev eth0 nud failed")
        more_arrive()
        for each in (sending, taking):
            each.signal(9)
            each.wait(60)


TESTS = [test_packets_of_the_link_are_captured, test_rdma_enters_by_the_link_only_where_a_rule_names_its_peer,
         test_rule_for_all_hosts_leaves_the_link_its_own_packets, test_ipv6_packets_of_the_link_are_captured,
         test_translated_addresses, test_device_in_another_namespace_keeps_its_link, test_link_flap,
         test_mtu_of_the_link_is_followed, test_link_without_carrier_keeps_its_speed, test_path_with_a_smaller_mtu,
         test_source_address_of_the_link_changes, test_dead_router_is_left, test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
