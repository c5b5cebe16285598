#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""EDM among hosts that lie, on networks that lose its datagrams, and with a scheduler that never stays: no byte is wrong,
nothing hangs, and the others are served."""

import contextlib
import statistics

import edmlab
import eqdslab
import rmemlab
from edmlab import KEY, READ_BYTES, EdmRack, Writing
from eqdslab import HERE
from remoralab import rmem, tap

HOSTILE = HERE / "hostile_edm.py"
WRITERS = 2
KINDS = ("sizes", "split", "keep", "joins")
# Bound on the p99 of reads beside a liar, to that without.
PART = 2
TURNS, SECONDS = 3, 2
PACKETS = 100_000
ROUND = "mixed", "4k-64k", 2


class Liar:
    """with Liar(rack, kind): the last of the writers' hosts does so, by a membership of its own."""

    def __init__(self, rack, kind):
        self.rack, self.kind = rack, kind

    def __enter__(self):
        rack, host = self.rack, self.rack.writers[-1]
        self.process = host.spawn(f"nice -n 19 python3 {HOSTILE} lie {self.kind} {rack.scheduler.under} {KEY} 60 "
                                  f"{rack.node.number}")
        self.process.wait_output("joined")

    def __exit__(self, *_):
        self.process.send(b"\n")
        result = self.process.wait(60)
        assert result.rc == 0, result
        tap.diag(f"{self.kind}: grants and refusals: {' '.join(result.out.split()[1:])}")


def liar(lab, kind):
    """Reads beside a writer, with the liar and without in turn."""
    with EdmRack(lab["compute"], WRITERS) as rack:
        rack.port("edm")
        reader, disk = rack.attach(rack.reader, "edm"), rack.attach(rack.writers[0], "edm")
        times = {True: [], False: []}
        with Writing(rack, [disk]):
            for number in range(TURNS):
                for lies in (False, True):
                    with Liar(rack, kind) if lies else contextlib.nullcontext():
                        times[lies].append(edmlab.times_us(rack.machine, reader, "randread", SECONDS, number + 1)[1])
        honest, beside = (statistics.median(times[lies]) for lies in (False, True))
        tap.diag(f"p99 of reads of {READ_BYTES} bytes: {honest / 1000:.2f} ms, beside the liar {beside / 1000:.2f} ms")
        assert beside <= PART * honest, times


@tap.bound(600)
def test_liar_about_sizes(lab):
    liar(lab, "sizes")


@tap.bound(600)
def test_liar_who_splits(lab):
    liar(lab, "split")


@tap.bound(600)
def test_liar_who_keeps_grants(lab):
    liar(lab, "keep")


@tap.bound(600)
def test_liar_who_joins(lab):
    liar(lab, "joins")


@contextlib.contextmanager
def loaded(rack, hosts):
    """Loads that check themselves, and must outlive the body of the with."""
    machine = rack.machine
    disks = [rack.attach(host, "edm") for host in hosts]
    loads = [rmemlab.UntilTold(machine, disk.name, rmemlab.fio_command(disk.path, *ROUND, depth=16, seed=number + 1))
             for number, disk in enumerate(disks)]
    yield disks
    for load in loads:
        load.stop()


def rounds(machine, disks, mib=2):
    """Waits until each disk has been read and written so much more, and its load checked that."""
    before = edmlab.written(machine, disks)
    rmem.wait_until("the loads go on", lambda: all(now > then + (mib << 20) for now, then in
                                                   zip(edmlab.written(machine, disks), before)), rmemlab.LOAD_S)


@tap.bound(600)
def test_network_that_loses_control(lab):
    """1 % of each of the scheduler's datagrams and of those to it are lost, 2 % are copied, some overtake others."""
    with EdmRack(lab["compute"], WRITERS) as rack:
        machine = rack.machine
        machine.run("modprobe -q sch_netem || :")
        how = "netem delay 200us 100us loss 1% duplicate 2% reorder 5%"
        machine.run(f"tc qdisc replace dev {rack.scheduler.port} root {how}")
        rack.scheduler.run(f"tc qdisc replace dev eth0 root {how}")
        with loaded(rack, [*rack.writers, rack.reader]) as disks:
            rounds(machine, disks, 8)
            # Leases run out, and each host joins anew by datagrams that are lost as well.
            for _ in range(3):
                rack.edm(rack.scheduler, "stop")
                rack.start()
                rounds(machine, disks)
            gaps = rack.status(rack.reader)["counters"]["host-gaps"]
            counted = rack.status(rack.scheduler)["counters"]
        tap.diag(f"the reader missed {gaps} datagrams; {counted}")
        assert gaps and counted["sched-retracted"], (gaps, counted)


@tap.bound(600)
def test_scheduler_restarted_each_50_ms(lab):
    with EdmRack(lab["compute"], WRITERS) as rack:
        with loaded(rack, [*rack.writers, rack.reader]) as disks:
            command = (f"{rmem.CLI} edm stop && {rmem.CLI} edm start --key {KEY} --lease 20 && sleep 0.05")
            restarts = rmemlab.UntilTold(rack.machine, "restarts", rack.scheduler.wrap(f"sh -c '{command}'"))
            rounds(rack.machine, disks, 4)
            restarts.stop()
            # The scheduler stays now, and its members follow it again.
            for host in rack.members():
                rack.wait_state(host, "scheduled")
            rounds(rack.machine, disks)


@tap.bound(900)
def test_hostile_packets(lab):
    """At the scheduler, at a member and at the node's membership, by the right key and without, under load."""
    with EdmRack(lab["compute"], WRITERS) as rack:
        with loaded(rack, [rack.reader]) as disks:
            host, each = rack.writers[-1], PACKETS // 4
            dropped = sum(rack.status(rack.scheduler)["counters"][name] for name in
                          ("sched-drop-short", "sched-drop-version", "sched-drop-range", "sched-drop-tag"))
            scheduler = (rack.scheduler, 7673, "")
            members = [(member, member_port(member), rack.scheduler.under) for member in (rack.reader, rack.node)]
            for to, port, source in (scheduler, *members, scheduler):
                said = host.run(f"python3 {HOSTILE} flood {to.under} {port} {KEY} {each} {tap.SEED} {source}",
                                timeout=600).out
                tap.diag(f"{said.strip()} packets to {to.name}:{port}")
                assert int(said) > each // 2, said
            counted = rack.status(rack.scheduler)["counters"]
            tap.diag(f"{counted}")
            assert sum(counted[name] for name in ("sched-drop-short", "sched-drop-version", "sched-drop-range",
                                                  "sched-drop-tag")) > dropped + each // 2, counted
            rounds(rack.machine, disks)
            for member in rack.members():
                rack.wait_state(member, "scheduled")


def member_port(host):
    """The UDP port of its membership's socket: one that is connected to the scheduler."""
    said = host.run("cat /proc/net/udp").out
    for line in said.splitlines()[1:]:
        local, remote = line.split()[1:3]
        if remote.endswith(f":{7673:04X}"):
            return int(local.split(":")[1], 16)
    raise AssertionError(f"{host.name} has no such socket: {said}")


def test_modules_go(lab):
    machine = lab["compute"]
    eqdslab.unload(machine)
    assert not eqdslab.loaded(machine)


if __name__ == "__main__":
    tap.main("solo", [test_network_that_loses_control, test_scheduler_restarted_each_50_ms, test_hostile_packets,
                      test_liar_about_sizes, test_liar_who_splits, test_liar_who_keeps_grants, test_liar_who_joins,
                      test_modules_go])
