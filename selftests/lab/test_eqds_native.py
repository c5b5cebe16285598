#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Packets of programs through tunnels, by /dev/eqds: libeqds and eqdsperf, and a program that breaks the rules."""

import json
import pathlib

import eqdslab
import rmemlab
from eqdslab import Racked, transfer
from remoralab import rmem, tap
from remoralab.rmem import wait_until

PERF = rmem.CLI.parent / "eqdsperf"
HOSTILE = pathlib.Path(__file__).resolve().parent / "hostile_native.py"
MIB = 1 << 20


def _serve(host, *words):
    process = host.spawn(f"{PERF} serve --json {' '.join(words)} 2>&1")
    process.wait_output("serving")
    return process


def _told(process):
    result = process.wait(120)
    assert result.rc == 0, result
    return json.loads(result.out.removeprefix("serving\n"))


def _send(host, to, *words, check=True):
    result = host.run(f"{PERF} send {to.under} --json {' '.join(words)}", check=check, timeout=120)
    return json.loads(result.out) if check else result


def _users(machine):
    return int(machine.run("cat /sys/module/eqds/refcnt").out)


def test_packets_arrive_in_order_and_complete(lab):
    count = rmemlab.scaled(lab, 20000)
    with Racked(lab["compute"], 2) as (left, right):
        server = _serve(right, f"--count {count}")
        sent = _send(left, right, f"--count {count}")
        told = _told(server)
        tap.diag(str(sent))
        assert sent["packets"] == count and not sent["dropped"], sent
        # A packet that a program does not take in time is lost, and eqds.ko counts it.
        taken = told["packets"]
        assert taken and taken + told["missed"] == count, told
        assert told["in_order"] == taken and told["bytes"] == taken * sent["packet_bytes"], told
        assert sent["packet_bytes"] == 1412 - 8 and sent["rtt_p50_ns"] and sent["tunnel_rtt_ns"], sent
        assert sum(sent["by_path"]) == count and all(sent["by_path"]), sent
        assert left.counters()["tx_native"] == count and right.counters()["rx_native"] == taken


def test_ping(lab):
    with Racked(lab["compute"], 2) as (left, right):
        _serve(right)
        told = json.loads(left.run(f"{PERF} ping {right.under} --count 200 --json", timeout=120).out)
        assert told["pings"] == 200 and not told["lost"] and told["p50_ns"] <= told["max_ns"], told
        tap.diag(str(told))


def test_ping_without_an_answer_is_lost(lab):
    """No program has the port, so no answer comes, and eqdsperf does not wait for ever."""
    with Racked(lab["compute"], 2) as (left, right):
        told = json.loads(left.run(f"{PERF} ping {right.under} --count 2 --json", timeout=120).out)
        assert told["pings"] == 0 and told["lost"] == 2, told


def test_library_refuses_a_buffer_twice(lab):
    """In one call of eqds_send(): none is sent, and all stay the caller's. A closed handle is recognised."""
    with Racked(lab["compute"], 2) as (left, right):
        before = left.counters()["tx_native"]
        said = left.run(f"python3 {HOSTILE} library eqds0 {right.under}").out.split()
        assert said == ["-22", "-22", "2", "-22", "0", "-9", "-9"], said
        assert left.counters()["tx_native"] == before + 2, left.counters()


def test_large_packets_and_a_key(lab):
    """Of several pages, which the tag covers."""
    with Racked(lab["compute"], 2, mtu=9000) as hosts:
        left, right = hosts
        file = left.machine.run("mktemp -u /tmp/eqds.XXXXXX").out.strip()
        left.run(f"{rmem.CLI} key new {file}")
        for host in hosts:
            host.run(f"{rmem.CLI} eqds key eqds0 --key {file}")
        server = _serve(right, "--count 2000")
        sent = _send(left, right, "--count 2000")
        assert sent["packets"] == 2000 and sent["packet_bytes"] == 9000 - 104 - 8, sent
        told = _told(server)
        assert told["in_order"] == told["packets"] and told["packets"] + told["missed"] == 2000, told


def test_sender_is_told_the_pull_queue_of_its_destination(lab):
    """How long the receiver's link is busy with what is asked of it, at that link's rate: up to a window."""
    # The wire says 65 ms or longer; a window takes 384 ms of the slow link, and 77 us of the other.
    for mbits, count, least, most in ((2, 100, 30000, 65535), (10000, 2000, 0, 77)):
        with Racked(lab["compute"], 2, mbits=mbits) as (left, right):
            left.run("ethtool --set-priv-flags eqds0 burst off")
            server = _serve(right, f"--count {count}")
            sent = _send(left, right, f"--count {count} --window {eqdslab.WINDOW_MTUS}")
            _told(server)
            tap.diag(f"{mbits} Mbit/s: busy for {sent['busy_us_max']} us, {sent['pulls_max']} pulls, {sent['queued_max']} queued")
            assert least <= sent["busy_us_max"] <= most and sent["pulls_max"] <= eqdslab.WINDOW_MTUS, sent
            assert bool(least) <= sent["pulls_max"] and bool(least) <= sent["queued_max"] < eqdslab.WINDOW_MTUS, sent


def test_loss_is_repaired(lab):
    with Racked(lab["compute"], 2) as (left, right):
        # Where the question for the peer's MAC address is lost, packets wait for a second. Meanwhile the tunnel begins
        # anew, and packets may come twice (eqds.h).
        left.run(f"ping -c1 -W5 {right.under}")
        for host in (left, right):
            lab["compute"].netem(host.port, "loss 5%")
        server = _serve(right, "--count 2000")
        sent = _send(left, right, "--count 2000")
        assert sent["packets"] == 2000 and sent["retransmissions"], sent
        told = _told(server)
        assert told["in_order"] == told["packets"] and told["packets"] + told["missed"] == 2000, told


def test_beside_tcp(lab):
    with Racked(lab["compute"], 2) as (left, right):
        server = _serve(right, "--count 5000")
        sending = left.spawn(f"{PERF} send {right.under} --count 5000 --window 32")
        transfer(left, right, MIB)
        assert sending.wait(120).rc == 0, sending.err
        told = _told(server)
        assert told["packets"] + told["missed"] == 5000, told


def test_peer_that_is_not_there_is_told(lab):
    """No program has the port: the peer's kernel has the packet, and drops it. No machine: it is given up."""
    with Racked(lab["compute"], 2) as (left, right):
        sent = _send(left, right, "--count 100")
        assert sent["packets"] == 100 and right.counters()["rx_drop_native"] == 100, (sent, right.counters())
        right.run("ip link set eqds0 down")
        sent = _send(left, right, "--count 20")
        assert sent["dropped"] == 20 and not sent["packets"], sent


def test_program_that_dies_leaves_nothing(lab):
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        idle = _users(machine)
        for _ in range(2):
            server = _serve(right)
            sending = left.spawn(f"{PERF} send {right.under} --count 100000000")
            wait_until("packets come", lambda: right.counters()["rx_native"] > 1000)
            before = right.counters()["rx_native"]
            sending.signal(9)
            server.signal(9)
            sending.wait(60)
            server.wait(60)
            wait_until("the files are closed", lambda: _users(machine) == idle)
            assert before
        # The port is free again, and packets of the dead sender did no harm.
        server = _serve(right, "--count 100")
        assert _send(left, right, "--count 100")["packets"] == 100
        _told(server)


def test_device_that_goes_ends_the_program(lab):
    machine = lab["compute"]
    with Racked(machine, 2) as (left, right):
        server = _serve(right)
        sending = left.spawn(f"{PERF} send {right.under} --count 100000000 2>&1")
        wait_until("packets come", lambda: right.counters()["rx_native"] > 1000)
        left.run("ip link del eqds0")
        right.run("ip link del eqds0")
        for process in (sending, server):
            result = process.wait(60)
            assert result.rc == 1 and "No such device" in result.out, result


def test_setups_that_cannot_be_are_refused(lab):
    with Racked(lab["compute"], 1) as (host,):
        said = host.run(f"python3 {HOSTILE} setup eqds0").out.split()
        assert said == ["EINVAL"] * 9 + ["ENODEV", "EFAULT", "EBUSY", "EADDRINUSE"], said
        missing = host.run(f"{PERF} send 10.0.0.2 --device eth0", check=False)
        assert missing.rc == 1 and "No such device" in missing.err, missing


def test_entries_that_cannot_be_are_refused(lab):
    with Racked(lab["compute"], 2) as (left, right):
        said = left.run(f"python3 {HOSTILE} rings eqds0 {right.under}").out.split()
        assert said == ["2"] * 10 + ["0", "True"], said
        for seed in range(4):
            said = left.run(f"python3 {HOSTILE} scribble eqds0 {right.under} {tap.SEED + seed}", timeout=120).out
            assert said.strip() == "done", said
        server = _serve(right, "--count 100")
        assert _send(left, right, "--count 100")["packets"] == 100
        _told(server)


def test_area_counts_as_locked_memory(lab):
    with Racked(lab["compute"], 2) as (left, right):
        def limited(kib):
            return left.run("setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "
                            f"prlimit --memlock={kib * 1024} {PERF} send {right.under} --count 1", check=False)

        result = limited(512)
        assert result.rc == 1 and "Cannot allocate memory" in result.err, result
        result = limited(2048)
        assert result.rc == 0, result


def test_modules_go(lab):
    machine = lab["compute"]
    eqdslab.unload(machine)
    assert not eqdslab.loaded(machine) and machine.run("[ ! -e /dev/eqds ]", check=False).rc == 0


TESTS = [test_packets_arrive_in_order_and_complete, test_ping, test_ping_without_an_answer_is_lost,
         test_library_refuses_a_buffer_twice, test_large_packets_and_a_key,
         test_sender_is_told_the_pull_queue_of_its_destination, test_loss_is_repaired, test_beside_tcp,
         test_peer_that_is_not_there_is_told, test_program_that_dies_leaves_nothing,
         test_device_that_goes_ends_the_program, test_setups_that_cannot_be_are_refused,
         test_entries_that_cannot_be_are_refused, test_area_counts_as_locked_memory, test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
