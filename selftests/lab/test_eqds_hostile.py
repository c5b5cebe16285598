#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tunnels beside forgers, floods, replays, and peers that lie; with a key and without."""

import json
import pathlib

import eqdslab
import rmemlab
from eqdslab import Racked, sink, start, test_modules_go, transfer
from remoralab import rmem, tap
from remoralab.rmem import wait_until

MIB = 1 << 20
HERE = pathlib.Path(__file__).resolve().parent
HOSTILE, LIAR = HERE / "hostile_eqds.py", HERE / "liar_eqds.py"


def _forge(host, kind, source, destination, count):
    """Packets and their bytes, as sent."""
    said = host.run(f"python3 {HOSTILE} {kind} {source} {destination} {count} {tap.SEED}", timeout=300).out
    return tuple(map(int, said.split()))


def _growth(host, before):
    return {name: value - before[name] for name, value in host.counters().items() if value > before.get(name, 0)}


def _liar(machine, *words):
    """liar_eqds.py, in a host or beside a wire; what it counted is in its output once its input ends."""
    process = machine.spawn(f"python3 {LIAR} {' '.join(words)}")
    process.wait_output("lying")
    return process


def _told(process):
    process.end_input()
    result = process.wait(60)
    assert result.rc == 0, result
    return json.loads(result.out.splitlines()[-1])


def _device(host, counter):
    return int(host.run(f"cat /sys/class/net/eqds0/statistics/{counter}").out)


def test_malformed_packets_are_counted_by_reason(lab):
    """Each form alone, all of its packets under the one counter for it, and none of them delivered."""
    with Racked(lab["compute"], 2) as (attacker, right):
        attacker.run("ip link set eqds0 down")
        for form, counter in (("truncated", "rx_drop_wire"), ("kinds", "rx_drop_wire"), ("flags", "rx_drop_wire"),
                              ("short_udp", "rx_drop_wire"), ("long_udp", None), ("overlong", "rx_drop_size"),
                              ("trimmed", "receiver_trimmed"), ("empty", "rx_packets"), ("inner", "rx_packets"),
                              ("inner_length", "rx_packets")):
            before, had, errors = right.counters(), _device(right, "rx_packets"), _device(right, "rx_errors")
            count = int(attacker.run(f"python3 {HOSTILE} {form} {attacker.under} {right.under}").out)
            grown = _growth(right, before)
            tap.diag(f"{form}: {count} sent, {grown}")
            assert grown.get(counter, 0) == (count if counter else 0), (form, count, grown)
            if counter in (None, "rx_drop_wire", "rx_drop_size"):
                assert "rx_packets" not in grown and "tx_control" not in grown, (form, grown)
            # The device has no word of it, or an error for each. Only IP can see that its own length lies.
            assert _device(right, "rx_errors") - errors == (count if form == "inner" else 0), form
            assert _device(right, "rx_packets") - had == (count if form == "inner_length" else 0), form
            right.run("ip link set eqds0 down && ip netns exec " + right.name + " ip link set eqds0 up")


def test_answers_are_not_longer_than_questions(lab):
    """Bytes of IP, per address that has proven nothing, whatever it sends."""
    with Racked(lab["compute"], 3, mbits=20) as (victim, right, third):
        for host in (victim, third):
            host.run("ip link set eqds0 down")
        # Another tunnel asks for pulls, so each pull of the victim's is an answer of its own.
        third.ip("addr add 10.0.0.40/24 dev eth0")
        busy = _liar(third, "crowd", right.under, "10.0.0", "1")
        wait_until("credit is asked for", lambda: right.counters()["pulls"])
        for number in range(20):
            victim.run(f"ip addr add 10.0.0.{100 + number}/24 dev eth0")
        probe = victim.spawn(f"python3 {HOSTILE} probe eth0 10.0.0.0/24 {right.under}")
        probe.wait_output("probed")
        wait_until("the other tunnel alone is left", lambda: right.counters()["rx_tunnels"] == 1)
        told = _told(probe)
        _told(busy)
        tap.diag(str(told))
        assert all(each["got"] <= each["sent"] for each in told.values()), told
        assert told["rts"]["got"] and told["data"]["got"] and told["data_of_no_tunnel"]["got"], told
        assert not told["control"]["got"] and not told["end"]["got"], told


def test_forger_on_the_path_stops_no_stream(lab):
    """A forger that sees epochs and numbers is heard. The two ends refuse each kind of forgery, or repair what it did."""
    machine, lies = lab["compute"], ("receiver_beyond", "receiver_duplicate", "receiver_trimmed")
    # Slower than any machine of the lab, so that packets wait for credit at any time: for a tunnel without packets, a
    # forger is too late.
    with Racked(machine, 2, mbits=3) as (left, right):
        before = left.counters(), right.counters()
        forgers = [_liar(machine, "onpath", left.port, "sender"), _liar(machine, "onpath", right.port, "receiver")]

        def grown():
            return _growth(left, before[0]), _growth(right, before[1])

        def heard():
            # Numbers that cannot be, and RSTs, make the sender begin a later epoch. Forgeries of the tunnel's end leave
            # some of the others to an epoch that has passed.
            at_left, at_right = grown()
            return at_left.get("sender_restarted") and at_right.get("receiver_restarted") and any(map(at_right.get, lies))

        # A busy machine may run a forger when the stream is over, so another one goes on until forgeries were heard.
        with sink(right, 2) as told:
            pouring = left.spawn(f"python3 {eqdslab.STREAM} pour {right.inside} {eqdslab.PORT}")
            sent = start(left, right, MIB).wait(eqdslab.STREAM_S)
            assert sent.rc == 0, sent
            for forger in forgers:
                forger.wait_output("all kinds")
            wait_until("forgeries are heard", heard, timeout=120)
            pouring.signal(9)
            tap.diag(f"at the sender {_told(forgers[0])}, at the receiver {_told(forgers[1])}: {grown()}")
            # The bytes that the other socket still holds leave sooner at this rate.
            right.run("ethtool -s eqds0 speed 1000 duplex full autoneg off")
        assert sent.out.split() in [[str(each[1]), each[2]] for each in told], (told, sent)
        # And afterwards the tunnel works as before.
        transfer(left, right, MIB)


def test_peers_that_ask_and_never_send_leave_a_stream_its_share(lab):
    """Two hundred that proved their addresses: each is given two windows of credit, and then hardly any."""
    # A rate that a stream can use up: else the liars get its leftovers, too.
    mbits, liars = (3, 30) if rmemlab.is_debug(lab) else (20, 200)
    with Racked(lab["compute"], 3, mbits=mbits) as (left, right, third):
        third.run("ip link set eqds0 down")
        third.ip(*(f"addr add 10.0.0.{40 + n}/24 dev eth0" for n in range(liars)))
        liar = _liar(third, "crowd", right.under, "10.0.0", str(liars))
        taking = right.spawn(f"python3 {eqdslab.STREAM} receive {right.inside} {eqdslab.PORT} 1")
        taking.wait_output("listening")
        pouring = left.spawn(f"python3 {eqdslab.STREAM} pour {right.inside} {eqdslab.PORT}")
        pouring.wait_output("pouring")

        def at():
            return left.counters()["tx_packets"], right.counters()["pulls"]

        wait_until("the liars have what they get", lambda: at()[1] > liars * 2 * eqdslab.WINDOW_MTUS, timeout=120)
        ramp = at()
        wait_until("the stream runs", lambda: at()[0] > ramp[0] + 500)
        # A host that has other work can hold the stream up, so it has some chances.
        for _ in range(5):
            began = at()
            wait_until("the stream ran on", lambda began=began: at()[0] > began[0] + 1500)
            sent, pulls = (now - before for now, before in zip(at(), began))
            tap.diag(f"of {pulls} pulls, the stream used {sent}")
            if sent > 0.9 * pulls:
                break
        assert sent > 0.9 * pulls, (sent, pulls)
        for process in (pouring, taking):
            process.signal(9)
            process.wait(eqdslab.STREAM_S)
        told = _told(liar)
        assert told["opened"] == liars and told["pulls"] >= liars * 2 * eqdslab.WINDOW_MTUS, told


def _queue(host, peer):
    return next((each for each in json.loads(host.run(f"{rmem.CLI} eqds queues --json").out) if each["peer"] == peer.under),
                {"packets": 0, "in_flight_packets": 0})


def test_receivers_that_lie_about_credit_hold_up_only_their_own_packets(lab):
    """One never gives credit, one gives what was not asked for: neither gets a packet, and others go on."""
    for lie in ("mute", "floods"):
        with Racked(lab["compute"], 3) as (left, right, third):
            left.run("ethtool --set-priv-flags eqds0 burst off")
            third.run("ip link set eqds0 down")
            liar = _liar(third, lie)
            flood = left.spawn(f"python3 {eqdslab.STREAM} flood {third.inside} 9 1000")
            flood.wait_output("flooding")
            # The program that floods stops where its socket's memory ends.
            wait_until("packets wait for the liar", lambda: _queue(left, third)["packets"] > 50)  # noqa: B023
            if lie == "floods":
                wait_until("lies are heard", lambda: left.counters()["sender_restarted"] > 3)  # noqa: B023
            transfer(left, right, MIB)
            queue = _queue(left, third)
            assert 50 < queue["packets"] < 2000, queue
            flood.signal(9)
            flood.wait(60)
            told = _told(liar)
            tap.diag(f"{lie}: {told}, {queue}")
            assert told["asked"] and not told["packets"], told


def test_forgeries_stop_no_stream(lab):
    """From an address of the bridge: what the two ends of a tunnel would never send each other."""
    with Racked(lab["compute"], 3) as (left, right, attacker):
        left.run(f"ping -c1 -W5 {right.inside}")
        # The first two would open tunnels of classes that are not in use yet.
        for kind, source, target in (("nested", left, right), ("demand", left, right), ("control", right, left),
                                     ("data", left, right), ("malformed", left, right)):
            before, had = target.counters(), _device(right, "rx_packets")
            count, _ = _forge(attacker, kind, source.under, target.under, eqdslab.many(lab, 2000))
            grown = _growth(target, before)
            tap.diag(f"{kind}: {count} sent, {grown}")
            # A forger without the peer's cookie does not end the peer's tunnel.
            assert "receiver_restarted" not in grown, grown
            if kind == "nested":
                # The forger lacks the cookie, which goes to the kernel of the address: no tunnel, and nothing delivered.
                assert grown["rx_refused"] == count and "rx_tunnels" not in grown, grown
                assert _device(right, "rx_packets") == had, grown
            if kind == "control":
                # An epoch has 32 bits: of these guesses, hardly one is right.
                assert grown.get("sender_wrong_epoch", 0) + grown.get("sender_no_tunnel", 0) > count // 2, grown
            if kind == "malformed":
                assert grown.get("rx_drop_wire"), grown
        transfer(left, right, MIB)


def _fragments(host):
    """Of IPv4, made by the host."""
    names, values = (line.split() for line in host.run("cat /proc/net/snmp").out.splitlines() if line.startswith("Ip:"))
    return int(dict(zip(names, values))["FragCreates"])


def test_forged_icmp_is_refused(lab):
    """Off the path: an attacker does not know what is under way, and neither ends a tunnel nor makes its packets smaller."""
    with Racked(lab["compute"], 3) as (left, right, attacker):
        with sink(right, 1) as told:
            sending = start(left, right, 2 * MIB)
            before = left.counters()
            count, _ = _forge(attacker, "icmp", right.under, left.under, 500)
            grown = _growth(left, before)
            sent = sending.wait(eqdslab.STREAM_S)
            assert sent.rc == 0, sent
        assert [str(told[0][1]), told[0][2]] == sent.out.split()
        assert grown["icmp_refused"] == count and not left.counters()["icmp_heard"], (count, left.counters())
        # The stack may have noted a smaller MTU. The tunnel takes the link's.
        transfer(left, right, MIB)
        assert not left.counters()["tx_unreachable"] and not _fragments(left), left.counters()


def test_icmp_forged_on_the_path_stops_no_stream(lab):
    """Errors quote packets that are under way. The tunnel stays, and its packets are as large as before."""
    machine = lab["compute"]
    with Racked(machine, 2, mbits=3) as (left, right):
        left.run(f"ping -c1 -W5 {right.inside}")
        # So long is a packet under way, and the forger may quote it.
        machine.netem(right.port, "delay 20ms")
        forger = _liar(machine, "onpath", left.port, "icmp")
        with sink(right, 2) as told:
            pouring = left.spawn(f"python3 {eqdslab.STREAM} pour {right.inside} {eqdslab.PORT}")
            sent = start(left, right, MIB).wait(eqdslab.STREAM_S)
            assert sent.rc == 0, sent
            forger.wait_output("all kinds")
            wait_until("a forgery is heard", lambda: left.counters()["icmp_heard"])
            pouring.signal(9)
            counted = left.counters()
            tap.diag(f"{_told(forger)}: {counted['icmp_heard']} heard, {counted['icmp_refused']} refused")
            right.run("ethtool -s eqds0 speed 1000 duplex full autoneg off")
        assert sent.out.split() in [[str(each[1]), each[2]] for each in told], (told, sent)
        assert counted["icmp_heard"] and not counted["tx_unreachable"] and not counted["sender_restarted"], counted
        transfer(left, right, MIB)
        assert not _fragments(left)


def test_flood_of_spoofed_syns_is_bounded(lab):
    """Forged SYNs open nothing. Their receiver answers nobody with more bytes than it got, and others go on."""
    with Racked(lab["compute"], 4) as (left, right, victim, attacker):
        def received():
            return int(victim.machine.run(f"cat /sys/class/net/{victim.port}/statistics/tx_bytes").out)

        left.run(f"ping -c1 -W5 {right.inside}")
        before = received()
        count, total = _forge(attacker, "syns", victim.under, right.under, eqdslab.many(lab, 3000))
        # Ethernet's headers are in the counter, and address resolution.
        echoed = received() - before - 14 * count
        assert right.counters()["rx_tunnels"] == 1, right.counters()
        assert echoed <= total, (echoed, total)
        tap.diag(f"{total} bytes in another's name brought it {echoed}")
        _forge(attacker, "syns", "10.0.0.0/16", right.under, 3000)
        assert right.counters()["rx_tunnels"] == 1, right.counters()
        transfer(left, right, MIB)


def test_tunnel_whose_peer_is_silent_leaves_room_at_the_cap(lab):
    """The tunnel used longest ago has packets, which its peer never acknowledges. Another one goes for the new one."""
    with Racked(lab["compute"], 4) as (left, silent, *others):
        left.run(f"{rmem.CLI} eqds set eqds0 --tunnels 2")
        for host in others:
            left.run(f"ping -c1 -W5 {host.under}")
        silent.silence()
        left.run(f"ping -c1 -W1 {silent.inside}", check=False)
        for host in others:
            left.run(f"ping -c3 -W5 {host.inside}")
        counted = left.counters()
        assert counted["tx_evicted"] and not counted["tx_drop_tunnels"], counted


def test_replayed_capture_changes_nothing(lab):
    """At both ends: data comes again to the receiver, and what it answered to the sender."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        recorders = [machine.spawn(f"python3 {HOSTILE} replay {host.port} - 200 1") for host in (left, right)]
        for recorder in recorders:
            recorder.wait_output("recording")
        transfer(left, right, MIB)
        for recorder in recorders:
            recorder.wait_output("recorded", timeout=60)
        before = right.counters()
        with sink(right, 1) as told:
            sending = start(left, right, 2 * MIB, seed=3)
            for recorder in recorders:
                recorder.end_input()
                assert recorder.wait(120).rc == 0, recorder.err
            sent = sending.wait(eqdslab.STREAM_S)
            assert sent.rc == 0, sent
        assert [str(told[0][1]), told[0][2]] == sent.out.split()
        tap.diag(str(_growth(right, before)))


def _keyed(host, *keys):
    """The host's device gets a key; keys: [] for a new one. Returns its file."""
    file = keys[0] if keys else host.machine.run("mktemp -u /tmp/eqds.XXXXXX").out.strip()
    if not keys:
        host.run(f"{rmem.CLI} key new {file}")
    host.run(f"{rmem.CLI} eqds key eqds0 --key {file}")
    return file


def _reachable(host, other, seconds=5):
    return host.run(f"ping -c3 -i0.2 -W{seconds} {other.inside}", check=False).rc == 0


def test_key_alike_at_both_ends_lets_packets_through(lab):
    """Over IPv4 and IPv6, in large and small packets, at run time and back."""
    with Racked(lab["compute"], 2) as hosts:
        left, right = hosts
        file = _keyed(left)
        _keyed(right, file)
        assert [int(host.run("cat /sys/class/net/eqds0/mtu").out) for host in hosts] == [1396, 1396]
        transfer(left, right, 4 * MIB)
        transfer(right, left, MIB)
        for host, other in (hosts, hosts[::-1]):
            batch = [f"addr add fd00::{host.number}/64 dev eth0 nodad",
                     f"addr add fd09::{host.number}/128 dev eqds0 nodad", "route add fd09::/64 dev eqds0"]
            host.machine.run(f"ip -n {host.name} -batch -", input="\n".join(batch) + "\n")
            host.run(f"{rmem.CLI} eqds map eqds0 fd09::{other.number} fd00::{other.number}")
        transfer(left, right, MIB, address=f"fd09::{right.number}")
        [told] = json.loads(left.run(f"{rmem.CLI} eqds credit --json").out)
        assert told["key"] is True and told["mtu_bytes"] == 1500 and told["refused_packets"] == 0, told
        for host in hosts:
            host.run(f"{rmem.CLI} eqds key eqds0 --remove")
        assert [int(host.run("cat /sys/class/net/eqds0/mtu").out) for host in hosts] == [1412, 1412]
        transfer(left, right, MIB)
        for words, says in (("key eqds0", "--remove"), ("key eqds0 --remove --key " + file, "--remove"),
                            ("key eth0 --remove", "no such eqds device"), ("key eqds0 --key /none", "/none")):
            result = left.run(f"{rmem.CLI} eqds {words}", check=False)
            assert result.rc != 0 and says in result.err, (words, result)


def test_key_that_differs_or_lacks_lets_nothing_through(lab):
    """And the log of the end that drops says why, once."""
    machine = lab["compute"]

    def lines(text):
        return machine.run("dmesg").out.count(text)

    with Racked(machine, 3) as (left, right, other):
        file = _keyed(right)
        _keyed(other)
        for sender, receiver, counter, says in ((left, right, "rx_drop_untagged", "have no tag"),
                                                (right, left, "rx_drop_tagged", "this device has no key"),
                                                (other, right, "rx_drop_tag", "have a wrong tag")):
            before, said = receiver.counters(), lines(says)
            assert not _reachable(sender, receiver, seconds=1), (sender.name, receiver.name)
            grown = _growth(receiver, before)
            assert grown.get(counter, 0) >= 3 and "rx_packets" not in grown and not receiver.counters()["rx_tunnels"], \
                (counter, grown)
            assert lines(says) == said + 1, machine.run("dmesg | tail").out
        for host in (left, other):
            _keyed(host, file)
        assert _reachable(left, right, 20) and _reachable(right, other, 20)


def test_forgeries_without_the_key_are_not_heard(lab):
    with Racked(lab["compute"], 3) as (left, right, attacker):
        _keyed(right, _keyed(left))
        assert _reachable(left, right)
        # Tunnels that end for idleness meanwhile would count, too.
        wait_until("no tunnel is left", lambda: not any(host.counters()[name] for host in (left, right)
                                                        for name in ("tx_tunnels", "rx_tunnels")))
        for kind, counter in (("control", "rx_drop_untagged"), ("data", "rx_drop_untagged"), ("tagged", "rx_drop_tag")):
            before = left.counters()
            count, _ = _forge(attacker, kind, right.under, left.under, 1000)
            # The stack looks for neighbours meanwhile, say: what it sends is no matter.
            grown = {name: more for name, more in _growth(left, before).items() if not name.startswith("tx_drop_")}
            assert grown.pop(counter) == count and not grown, (kind, grown)
        transfer(left, right, MIB)


def test_replay_to_keyed_tunnels_delivers_nothing(lab):
    """While the tunnel is there, when it is gone, and when the receiver's device has come anew."""
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        file = _keyed(left)
        _keyed(right, file)

        def delivered():
            return int(right.run("cat /sys/class/net/eqds0/statistics/rx_packets").out)

        def gone(how):
            how()
            wait_until("the tunnel is gone", lambda: not right.counters()["rx_tunnels"])

        for how in (lambda: None,
                    lambda: gone(lambda: left.run("ip link set eqds0 down")),
                    lambda: gone(lambda: right.run("ip link set eqds0 down && ip netns exec "
                                                   f"{right.name} ip link set eqds0 up"))):
            left.run("ip link set eqds0 up")
            for host, other in ((left, right), (right, left)):
                host.run(f"ip route replace {other.inside} via {other.under} dev eqds0 onlink src {host.inside}")
            # The right's own packets are recorded, too: up to one for each that it had.
            recorder = machine.spawn(f"python3 {HOSTILE} replay {right.port} - 400 1")
            recorder.wait_output("recording")
            transfer(left, right, MIB)
            recorder.wait_output("recorded", timeout=60)
            how()
            before, counted, tunnels = delivered(), right.counters(), right.counters()["rx_tunnels"]
            recorder.end_input()
            assert recorder.wait(120).rc == 0, recorder.err
            grown = _growth(right, counted)
            tap.diag(str(grown))
            assert delivered() == before and right.counters()["rx_tunnels"] == tunnels, grown
            assert grown.get("rx_packets", 0) + grown.get("rx_refused", 0) >= 150, grown


def test_trimmed_packets_of_keyed_tunnels_verify(lab):
    machine, senders = lab["compute"], 4
    if not rmemlab.is_native(lab):
        tap.skip("emulated senders are too slow to fill the queue of the port")
    # Sanitizers slow the senders, which would leave the queue empty.
    mbits = 4 if rmemlab.is_debug(lab) else 20
    with Racked(machine, senders + 1, mbits=mbits * 9 // 10) as (*hosts, receiver):
        eqdslab.load(machine, eqdslab.TRIM)
        machine.run("modprobe sch_tbf")
        machine.run(f"tc qdisc add dev {receiver.port} root handle 1: tbf rate {mbits}mbit burst 4k limit 1m && "
                    f"tc qdisc add dev {receiver.port} parent 1:1 handle 2: trim")
        file = _keyed(receiver)
        for host in hosts:
            _keyed(host, file)
        with sink(receiver, senders) as told:
            running = [start(host, receiver, MIB, seed) for seed, host in enumerate(hosts)]
            sent = [process.wait(eqdslab.STREAM_S) for process in running]
        assert all(result.rc == 0 for result in sent), sent
        assert sorted(each[2] for each in told) == sorted(result.out.split()[1] for result in sent)
        heard = receiver.counters()
        assert heard["receiver_trimmed"] and not heard["rx_drop_tag"], heard


TESTS = [test_forgeries_stop_no_stream, test_malformed_packets_are_counted_by_reason, test_answers_are_not_longer_than_questions,
         test_forger_on_the_path_stops_no_stream, test_peers_that_ask_and_never_send_leave_a_stream_its_share,
         test_receivers_that_lie_about_credit_hold_up_only_their_own_packets, test_forged_icmp_is_refused,
         test_icmp_forged_on_the_path_stops_no_stream, test_flood_of_spoofed_syns_is_bounded,
         test_tunnel_whose_peer_is_silent_leaves_room_at_the_cap,
         test_replayed_capture_changes_nothing, test_key_alike_at_both_ends_lets_packets_through,
         test_key_that_differs_or_lacks_lets_nothing_through, test_forgeries_without_the_key_are_not_heard,
         test_replay_to_keyed_tunnels_delivers_nothing, test_trimmed_packets_of_keyed_tunnels_verify, test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
