#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A machine of the bridge that breaks Marlin's rules on purpose, beside honest ones: no harm but to its own link.

right is hostile: its kernel makes the handshake, and hostile_marlin.cpp then writes garbage into what the bridge shows it
of left, at random, for a while. left, its victim, serves third all the while."""

import contextlib
import pathlib
import re

import ntblab
import rmemlab
import test_cmmc as cmmc
import test_eop as eop
import test_marlin_rmem as marlin_rmem
from remoralab import compiled, rmem, tap
from remoralab.rmem import wait_until
from test_hrdma import parameter

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SPECIFIED = [ROOT / "include" / "remora" / f"{name}.h" for name in ("marlin", "marlin_grants", "marlin_locks", "ntb", "ring")]
HOSTILE = compiled.program("hostile_marlin", [HERE / "hostile_marlin.cpp", *SPECIFIED], [f"-I{ROOT / 'include'}"])
GARBAGE_S = 20
CANARY = "/run/canary"
CANARY_MIB = 16
# A kernel's line of why it has no link to port 1.
REASON = r"port 1(?: broke a rule: (.*); its link starts again| is not served: (.*)|: (version word) )"
RULES = {
    "frames-tail": "its tail ran backwards, past the last frame, or off a line",
    "frames-word": "a record's word is not valid",
    "frames-position": "a record is not the one that is due",
    "frames-bytes": "a frame is too short or too long",
    "ring-pointer": "its pointer ran backwards, or beyond the ring",
    "ring-word": "an entry is not the one that is due",
    "ring-bytes": "a record is longer than an entry",
    "ring-absent": "an entry was signalled and is not there",
    "grants-table": "its grants are invalid",
}
RULES_OF_MESSAGES = {
    "ring-credit": "its credit ran backwards, or beyond the entries posted",
    "message": "a record is no message",
}


def hostile(machine, victim, *words):
    process = machine.spawn(f"exec {HOSTILE} {eop.port_of(victim)} {' '.join(map(str, words))}")
    process.wait_output("begun", timeout=ntblab.EVENT_S)
    return process


def reasons(machine, mark):
    """Why a machine has no link with right, as its kernel has told since the mark."""
    return {"".join(each) for each in re.findall(REASON, "\n".join(machine.console.since(mark)))}


def check_rule(victim, machine, rule, text):
    mark = victim.console_mark()
    before = eop.counters(victim)[f"port{eop.port_of(machine)}_faults"]
    breaking = hostile(machine, victim, "rule", rule)
    victim.wait_console(re.escape(f"broke a rule: {text}; its link starts again"), ntblab.EVENT_S, mark)
    assert eop.counters(victim)[f"port{eop.port_of(machine)}_faults"] > before
    eop.end(breaking)


@contextlib.contextmanager
def canaries(*machines):
    """Memory that is no peer's business stays as it is."""
    for machine in machines:
        machine.run(f"head -c {CANARY_MIB}M /dev/urandom > {CANARY} && sha256sum {CANARY} > {CANARY}.sum",
                    timeout=ntblab.EVENT_S)
    yield
    for machine in machines:
        machine.run(f"sha256sum -c {CANARY}.sum && rm {CANARY}", timeout=ntblab.EVENT_S)


class Bystander:
    """third pings left and exchanges streams with it, again and again. None may fail."""

    def __init__(self, left, third):
        self.left, self.third = left, third
        self.pinging = third.spawn(f"exec ping -i0.2 -W{ntblab.EVENT_S} {eop.address(left)}")
        self.rounds = 0

    def look(self):
        eop.transfer([(self.left, self.third), (self.third, self.left)], seed=self.rounds, count=eop.MIB)
        self.rounds += 1

    def end(self):
        assert self.pinging.running(), self.pinging
        self.pinging.kill()
        seen = [int(each) for each in re.findall(r"icmp_seq=(\d+) ", self.pinging.wait(ntblab.EVENT_S).out)]
        assert seen and seen == list(range(1, len(seen) + 1)), f"a ping was lost: {seen}"
        tap.diag(f"third: {len(seen)} pings, {2 * self.rounds} MiB of TCP")


@contextlib.contextmanager
def garbage(left, right, *kinds, seconds=GARBAGE_S):
    """right writes it; when that has ended and the body, too, the two start anew."""
    mark = left.console_mark()
    before = eop.counters(left)[f"port{eop.port_of(right)}_faults"]
    writing = hostile(right, left, "garbage", seconds, tap.SEED, *kinds)
    yield writing
    result = writing.wait(ntblab.EVENT_S)
    assert result.rc == 0, result
    faults, told = eop.counters(left)[f"port{eop.port_of(right)}_faults"] - before, reasons(left, mark)
    tap.diag(f"{', '.join(kinds)}: {result.out.splitlines()[-1]}; {faults} faults: {'; '.join(sorted(told))}")
    assert told, "no reason was told"
    # Some words that right wrote stay until its interface starts.
    right.run("ip link set eop0 down && ip link set eop0 up")
    eop.configure(right)
    eop.wait_up(left, right)
    eop.wait_up(right, left)
    eop.transfer([(left, right), (right, left)], count=eop.MIB)


def check_garbage(lab, *kinds):
    """Datagrams between left and right keep the rings busy, and may be lost."""
    with cmmc.network(lab) as (left, right, third), canaries(left, third):
        bystander = Bystander(left, third)
        with garbage(left, right, *kinds) as writing:
            floods = [machine.spawn(f"exec python3 {eop.STREAM} flood {eop.address(to)} {eop.PORT + 1} 1400")
                      for machine, to in ((left, right), (right, left))]
            while writing.running():
                bystander.look()
            eop.end(*floods)
        bystander.end()


@tap.bound(900)
def test_each_rule_that_is_broken_is_told_and_the_link_starts_again(lab):
    with cmmc.network(lab) as (left, right, third):
        floods = [machine.spawn(f"exec python3 {eop.STREAM} flood {eop.address(to)} {eop.PORT} 60000")
                  for machine, to in ((left, right), (right, left))]
        # The first entry of right's grants to left, as hostile_marlin.cpp makes it.
        fake = f"{0x31484d52 | eop.port_of(right) << 48 | eop.port_of(left) << 56:x}.4d.1234.5678"
        reading = left.spawn(f"while :; do {cmmc.CMMCIO} read {fake} 0 10 0 0; done")
        for rule, text in RULES.items():
            check_rule(left, right, rule, text)
        eop.ping(left, eop.address(third))
        eop.end(*floods, reading)
        eop.wait_up(left, right)
        eop.transfer([(left, right), (right, left)], count=eop.MIB)


@tap.bound(900)
def test_garbage_in_rings_of_frames_harms_its_writer_alone(lab):
    check_garbage(lab, "frames", "bells")


@tap.bound(900)
def test_garbage_in_words_of_links_harms_its_writer_alone(lab):
    check_garbage(lab, "pair", "bells")


@tap.bound(900)
def test_garbage_in_rings_of_messages_that_no_module_wants_harms_its_writer_alone(lab):
    check_garbage(lab, "messages", "bells")


@tap.bound(900)
def test_garbage_in_grants_and_locks_harms_its_writer_alone(lab):
    with cmmc.network(lab) as (left, right, third), canaries(left, third):
        bystander = Bystander(left, third)
        # Of left to third, and of third to left, which right has nothing to do with.
        mine, others = cmmc.Owner(left, third, eop.MIB), cmmc.Owner(third, left, eop.MIB)
        kept = cmmc.Owner(left, third, 4096), cmmc.Owner(third, left, 4096)
        digests = [each.digest() for each in kept]
        with garbage(left, right, "grants", "locks", "bells") as writing:
            fakes = re.findall(r"handle (\S+)", writing.out)
            copying = left.spawn("while :; do for h in " + " ".join(fakes) + f"; do {cmmc.CMMCIO} write $h 5 70000 3 1; "
                                 f"{cmmc.CMMCIO} read $h 0 9000 0 1; {cmmc.CMMCIO} ring $h 1 3; done; done")
            while writing.running():
                bystander.look()
                for machine, owner in ((third, mine), (left, others)):
                    result, digest = cmmc.copy(machine, "write", owner.handle, 0, eop.MIB, seed=bystander.rounds)
                    assert result == "ok" and owner.digest() == digest, result
                granted = cmmc.Owner(left, right, 4096)
                assert granted.ask("revoke")[0] in ("ok", "EBUSY")
                granted.process.kill()
            copying.kill()
            said = re.findall(r"(write|read|rang \d+) (\w+)", copying.wait(ntblab.EVENT_S).out)
        tap.diag(f"left's copies by grants that are none: {dict((each, said.count(each)) for each in sorted(set(said)))}")
        assert ("write", "EREMOTEIO") in said or ("read", "EREMOTEIO") in said, said
        assert [each.digest() for each in kept] == digests
        for each in (mine, others, *kept):
            assert each.ask("revoke") == ["ok", "quiet"]
            each.end()
        bystander.end()


@contextlib.contextmanager
def remote_memory(lab, nodes, clients):
    """Nodes, with the halves of the transport loaded; machines that it was in lose their power after it."""
    with cmmc.network(lab):
        started = {}
        for machine in clients:
            ntblab.load_half(machine, rmem.CLIENT)
            parameter(machine, "loans", 16384, ntblab.HALVES[rmem.CLIENT])
        for machine in nodes:
            ntblab.load_half(machine, rmem.NODE)
            parameter(machine, "loans", 1, ntblab.HALVES[rmem.NODE])
            started[machine.name] = rmem.Node(machine, "64M").start()
        try:
            yield started
        finally:
            for machine in lab:
                machine.kill()


def check_messages(lab, nodes, clients, disks):
    """disks: (client, node, options); the first is right's business, and may fail but not lie. The second is not. The
    third is right's, too, and its requests lend their pages. So garbage is made of such requests and answers."""
    left, right, third = lab
    with remote_memory(lab, nodes, clients) as started:
        disturbed, kept, lent = [rmem.attach(client, started[node.name], "16M", *options, host=marlin_rmem.target(node))
                           for client, node, options in disks]
        for disk in (disturbed, kept):
            rmemlab.write_pattern(disk.machine, disk.path, 16)
        for rule, text in RULES_OF_MESSAGES.items():
            reading = disturbed.machine.spawn(rmemlab.until_it_fails(rmemlab.fio_command(disturbed.path, "read", "64k", 16)))
            check_rule(left, right, rule, text)
            eop.end(reading)
        going = rmemlab.UntilTold(kept.machine, "kept", rmemlab.fio_command(kept.path, "read", "64k", 16))
        reading = disturbed.machine.spawn(rmemlab.until_it_fails(rmemlab.fio_command(disturbed.path, "read", "64k", 16)))
        lends = rmemlab.fio_command(lent.path, "randrw", "64k", 16, extra="--verify=0")
        lending = lent.machine.spawn(f"while :; do {lends}; done")
        bystander = Bystander(left, third)
        with canaries(left, third):
            with garbage(left, right, "messages", "bells") as writing:
                while writing.running():
                    bystander.look()
                    going.check_running()
            bystander.end()
        going.stop()
        eop.end(reading)
        eop.end(lending)
        rmemlab.check_pattern(kept.machine, kept.path, 16)
        counted = disturbed.counters()
        tap.diag(f"right's: {dict((name, count) for name, count in counted.items() if count)}")
        node = started[disks[2][1].name]
        copied = [marlin_rmem.counter(node.machine, lent.machine, f"loans_{name}") for name in ("copied", "fetched")]
        tap.diag(f"copied to lent pages, and from: {copied}")
        assert all(copied), "no request lent its pages: the test shows less"
        # Nothing that it forged has come between: the disk still has what was written.
        disturbed.wait_state("up", ntblab.EVENT_S)
        rmemlab.check_pattern(disturbed.machine, disturbed.path, 16)


@tap.bound(1200)
def test_garbage_of_a_client_changes_no_memory_of_the_node(lab):
    left, right, third = lab
    check_messages(lab, [left], [right, third], [(right, left, ("--integrity", "full")), (third, left, ()), (right, left, ("--integrity", "link"))])


@tap.bound(1200)
def test_garbage_of_a_node_is_no_data_for_its_client(lab):
    left, right, third = lab
    check_messages(lab, [right, third], [left], [(left, right, ("--integrity", "full")), (left, third, ()), (left, right, ("--integrity", "link"))])


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_") and callable(test)]

if __name__ == "__main__":
    tap.main("ntb3", TESTS)
