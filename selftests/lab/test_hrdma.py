#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Copies by a DMA engine among three machines: the software engine (softdma), in order and not, with faults, and taken
away under load. Cases of test_cmmc.py run again with an engine."""

import contextlib
import re

import test_cmmc
from ntblab import EVENT_S
from remoralab import rmem, tap
from remoralab.rmem import wait_until
from test_cmmc import CMMCIO, COPY_S, MIB, Owner, copy
from test_eop import counters, port_of
from test_marlin_bus import POSTED, loads, sleeps

ENGINE, PERF = "softdma", "marlin_perf"
DRIVERS = "/sys/bus/platform/drivers/softdma"
CHANNELS = 4
TRACING = "/sys/kernel/tracing"


def parameter(machine, name, value, module=ENGINE):
    machine.write(f"/sys/module/{module}/parameters/{name}", str(value))


def has_engine(machine):
    return machine.run(["test", "-e", f"/sys/module/{ENGINE}"], check=False).rc == 0


def let_go(machine):
    """The machine's channels are given back."""
    parameter(machine, "hrdma_channels", 0, "marlin")


def take(machine, count=CHANNELS):
    parameter(machine, "hrdma_channels", count, "marlin")


@contextlib.contextmanager
def engine(lab, options=""):
    """Links among all, and in the first machine an engine that takes all transactions, however small."""
    with test_cmmc.network(lab) as machines:
        left = machines[0]
        left.run(f"insmod {rmem.module_path(left, ENGINE)} {options}", timeout=EVENT_S)
        try:
            parameter(left, "hrdma_bytes_min", 0, "marlin")
            take(left)
            yield machines
        finally:
            let_go(left)
            left.run(["rmmod", ENGINE], timeout=EVENT_S)
            parameter(left, "hrdma_bytes_min", 32768, "marlin")


class Counts:
    """How much counters of bulk data have grown."""

    def __init__(self, machine):
        self.machine, self.first = machine, counters(machine)

    def __getitem__(self, name):
        return counters(self.machine)[f"hrdma_{name}"] - self.first[f"hrdma_{name}"]


def loads_of_copies(left, right, owner, posted, count=8):
    """Loads for each copy by an engine, but for those before sleep. posted: each comes after posted ones of the CPU."""
    before = loads(left, right) - sleeps(left, right)
    for _ in range(count):
        if posted:
            assert left.run(f"{CMMCIO} writes {owner.handle} 4 3 {POSTED}", timeout=COPY_S).out.split()[1] == "ok"
        assert copy(left, "write", owner.handle, 0, 65536)[0] == "ok"
    return (loads(left, right) - sleeps(left, right) - before) / count


def test_engine_starts_behind_posted_bytes(lab):
    """Stores of the CPU can still be on their way, and an engine doesn't wait for them; a load does."""
    with engine(lab) as (left, right, *_):
        parameter(left, "hrdma_bytes_min", 4096, "marlin")
        owner, counts = Owner(right, left, 65536), Counts(left)
        assert copy(left, "write", owner.handle, 0, 65536)[0] == "ok"
        without, behind = (loads_of_copies(left, right, owner, posted) for posted in (False, True))
        tap.diag(f"{without} loads a copy, {behind} behind posted ones")
        assert counts["engine_bytes"] == 17 * 65536
        assert without + 0.7 < behind < without + 1.3
        owner.end()


def check_both_ways(left, right, count=2 * MIB + 5, skew=3):
    """A write and a read arrive, byte by byte; the grant's bytes around them stay."""
    owner = Owner(right, left, count + 100, skew=skew)
    before, after = owner.digest(0, 40), owner.digest(40 + count, 60)
    for seed in (1, 2):
        result, digest = copy(left, "write", owner.handle, 40, count, skew=40 + skew, seed=seed)
        assert result == "ok" and owner.digest(40, count) == digest
    assert (owner.digest(0, 40), owner.digest(40 + count, 60)) == (before, after)
    result, digest = copy(left, "read", owner.handle, 40, count, skew=17)
    assert result == "ok" and owner.digest(40, count) == digest
    owner.end()


def test_engine_moves_what_programs_copy(lab):
    with engine(lab) as (left, right, _):
        counts = Counts(left)
        check_both_ways(left, right)
        moved = counts["engine_bytes"]
        # Three copies. The CPU has the first bytes of some, to bring both sides to a multiple of 64.
        assert moved > 3 * (2 * MIB) - 4096, moved
        assert counts["cpu_bytes"] < 1024
        assert not counts["failed"] and not counts["late"] and not counts["refused"] and not counts["no_channel"]


def test_small_copies_are_the_cpus(lab):
    with engine(lab) as (left, right, _):
        parameter(left, "hrdma_bytes_min", 32768, "marlin")
        counts = Counts(left)
        owner = Owner(right, left, MIB)
        assert copy(left, "write", owner.handle, 0, 32767)[0] == "ok"
        assert counts["engine_bytes"] == 0 and counts["cpu_bytes"] == 32767 and counts["small"] == 1
        assert copy(left, "write", owner.handle, 0, 32768)[0] == "ok"
        assert counts["engine_bytes"] == 32768
        owner.end()


def test_every_alignment_and_length_arrives_by_the_engine(lab):
    with engine(lab) as (left, _, _):
        counts = Counts(left)
        test_cmmc.test_every_alignment_and_length_arrives(lab)
        assert counts["engine_parts"] > 30


def test_completions_in_any_order_end_the_right_copies(lab):
    with engine(lab, "shuffle=1") as (left, right, _):
        counts = Counts(left)
        test_cmmc.test_megabytes_arrive_in_both_directions_at_once(lab)
        check_both_ways(left, right)
        assert counts["engine_bytes"] > 16 * MIB and not counts["late"]


def test_failed_descriptors_are_copied_by_the_cpu(lab):
    with engine(lab, "fail_every=7") as (left, right, _):
        counts = Counts(left)
        check_both_ways(left, right)
        assert counts["failed"] > 30 and counts["engine_bytes"] > 0, counts["failed"]


def test_engine_that_hangs_is_stopped_and_taken_again(lab):
    with engine(lab, "hang_every=100") as (left, right, _):
        parameter(left, "hrdma_timeout_ms", 100, "marlin")
        counts = Counts(left)
        check_both_ways(left, right)
        assert counts["late"] > 0
        parameter(left, "hang_every", 0)
        take(left)
        moved = counts["engine_bytes"]
        check_both_ways(left, right)
        assert counts["engine_bytes"] > moved + 3 * MIB
        parameter(left, "hrdma_timeout_ms", 1000, "marlin")


def test_full_ring_leaves_the_rest_to_the_cpu(lab):
    with engine(lab, "ring=8") as (left, right, _):
        counts = Counts(left)
        check_both_ways(left, right)
        assert counts["refused"] > 0 and counts["engine_parts"] > 0 and not counts["late"]


@contextlib.contextmanager
def perf(*machines):
    """marlin_perf in the machines; the directory of its files."""
    for machine in machines:
        machine.run(["insmod", rmem.module_path(machine, PERF)], timeout=EVENT_S)
    try:
        yield f"/sys/kernel/debug/{PERF}"
    finally:
        for machine in machines:
            machine.run(["rmmod", PERF], timeout=EVENT_S)


def test_transaction_without_interrupt_ends_behind_one_with(lab):
    # Of two transactions of 256 parts the second gets 44 descriptors: the last has no interrupt. 51 ms, and 9 more.
    with engine(lab, "channels=1 ring=300 descriptor_ns=200000") as (left, right, _), perf(left, right) as files:
        counts = Counts(left)
        address = right.read(f"{files}/memory").split()[0]
        took_ns = []
        for _ in range(3):
            left.write(f"{files}/run", f"{port_of(right)} {address} 16384 2 2 64 1 1 0 0 1")
            took_ns.append(int(left.read(f"{files}/run").split()[0]))
        assert counts["refused"] == 3 * 212 and counts["engine_parts"] == 3 * 300, counts["refused"]
        # Otherwise it waits for the time limit of the first: 1 s.
        assert min(took_ns) < 500_000_000, took_ns


def test_signals_without_data_leave_the_engine_its_channels(lab):
    with engine(lab) as (left, right, _):
        owner = Owner(right, left, MIB)
        counts = Counts(left)
        left.run(f"for n in $(seq {20 * CHANNELS}); do {CMMCIO} signal {owner.handle}; done", timeout=COPY_S)
        assert copy(left, "write", owner.handle, 0, MIB)[0] == "ok"
        assert counts["engine_bytes"] > MIB - 4096 and not counts["no_channel"]
        owner.end()


def pour(left, owner):
    process = left.spawn(f"exec {CMMCIO} pour {owner.handle} {owner.count}")
    process.wait_output("pouring", timeout=COPY_S)
    return process


def wait_moved(machine, name, more=4 * MIB):
    counts = Counts(machine)
    wait_until(f"{name} grows", lambda: counts[name] >= more, COPY_S)


def test_engine_unbound_under_traffic_leaves_it_to_the_cpu(lab):
    with engine(lab) as (left, right, _):
        owner = Owner(right, left, 2 * MIB)
        process = pour(left, owner)
        wait_moved(left, "engine_bytes")
        left.run(f"echo softdma > {DRIVERS}/unbind", timeout=EVENT_S)
        wait_moved(left, "cpu_bytes")
        check_both_ways(left, right)
        left.run(f"echo softdma > {DRIVERS}/bind", timeout=EVENT_S)
        let_go(left)
        take(left)
        wait_moved(left, "engine_bytes")
        process.kill()
        assert owner.ask("revoke") == ["ok", "quiet"]
        owner.end()


def test_channels_given_back_under_traffic_let_the_module_go(lab):
    with engine(lab) as (left, right, _):
        owner = Owner(right, left, 2 * MIB)
        process = pour(left, owner)
        assert left.run(["rmmod", ENGINE], check=False).rc != 0, "its channels are held"
        for _ in range(5):
            let_go(left)
            take(left)
            wait_moved(left, "engine_bytes", MIB)
        let_go(left)
        left.run(["rmmod", ENGINE], timeout=EVENT_S)
        wait_moved(left, "cpu_bytes")
        left.run(["insmod", rmem.module_path(left, ENGINE)], timeout=EVENT_S)
        take(left)
        wait_moved(left, "engine_bytes")
        process.kill()
        owner.end()


def test_user_with_many_threads_leaves_the_engine_to_others(lab):
    # 256 KiB take 17 ms, and the ring has room for all, so the first user's transactions wait for each other.
    with engine(lab, "mbps=125 ring=8192") as (left, right, _):
        owner = Owner(right, left, MIB)
        crowd = left.spawn(f"exec {CMMCIO} crowd {owner.handle} {MIB // 4} 100")
        crowd.wait_output("pouring", timeout=COPY_S)
        left.run("chmod 666 /dev/cmmc")
        counts = Counts(left)
        said = left.run(f"setpriv --reuid 1234 --regid 1234 --clear-groups {CMMCIO} writes {owner.handle} 4096 30",
                        timeout=COPY_S).out
        begun = counts["requests"]
        tap.diag(f"{begun} transactions were begun during 30 of another user")
        assert said == "writes ok\n", said
        # Each waits for 16 of the first user's, not for a hundred. Others began while the program did.
        assert begun < 30 * 50, begun
        assert not counts["late"]
        crowd.kill()
        owner.end()


def test_doorbells_do_not_wait_for_copies_of_many_users(lab):
    # The four have 60 transactions between them, twice as many as run at once, and each takes 2 ms.
    with engine(lab, "mbps=125 ring=8192") as (left, right, _):
        owner, bell = Owner(right, left, MIB), test_cmmc.Teller(right, f"bell {port_of(left)}")
        left.run("chmod 666 /dev/cmmc")
        crowds = [left.spawn(f"exec setpriv --reuid {user} --regid {user} --clear-groups {CMMCIO} crowd {owner.handle} "
                             f"{MIB // 4} 40") for user in range(1234, 1238)]
        for each in crowds:
            each.wait_output("pouring", timeout=COPY_S)
        counts = Counts(left)
        assert test_cmmc.ring(left, bell, 1, 240) == ["240", "ok"]
        begun = counts["requests"]
        tap.diag(f"{begun} transactions were begun during 240 rings")
        # Behind those that wait, 30 for each ring. Others began while the program did.
        assert begun < 240 * 15, begun
        for each in crowds:
            each.kill()
        owner.process.kill()
        bell.process.kill()


def test_revocation_waits_for_the_engine(lab):
    # So slow that the revocation meets transactions under way: 1 MiB takes 16 ms.
    with engine(lab, "mbps=500") as (left, _, _):
        counts = Counts(left)
        test_cmmc.test_revocation_waits_for_copies_under_way(lab)
        assert counts["engine_bytes"] > MIB and not counts["late"]


@contextlib.contextmanager
def traced(*machines):
    """Marlin's trace events in the machines."""
    for machine in machines:
        machine.run(f"mountpoint -q {TRACING} || mount -t tracefs none {TRACING}; cd {TRACING} && echo > trace && "
                    "echo 1 > events/marlin/enable")
    try:
        yield
    finally:
        for machine in machines:
            machine.write(f"{TRACING}/events/marlin/enable", "0")


def events(machine, name):
    """Each event of that name since traced(): its fields."""
    return [dict(re.findall(r"(\w+)=(\w+)", line))
            for line in re.findall(rf" {name}: (.*)", machine.read(f"{TRACING}/trace"))]


def under_way(machine):
    """Transactions that have begun and not ended."""
    said = machine.read(f"{TRACING}/trace")
    return said.count(" hrdma_start: ") - said.count(" hrdma_done: ")


def revoke_under_a_copy(left, right):
    """Revokes while left, whose engine has a transaction, stands still. False: none was under way at that moment."""
    owner = Owner(right, left, 6 * MIB)
    with traced(left, right):
        write = left.spawn(f"exec {CMMCIO} write {owner.handle} 0 {owner.count} 0 1")
        wait_until("the engine has a transaction", lambda: under_way(left) > 0, COPY_S)
        left.qmp("stop")
        try:
            owner.tell("revoke")
            wait_until("the grant is revoked", lambda: events(right, "cmmc_revoke"), COPY_S)
            copies = int(events(right, "cmmc_revoke")[0]["copies"])
            # The copy goes on only with its machine, however long that stands still.
            early = copies and any(events(right, "cmmc_free") or owner.process.out.count("\n") > owner.lines
                                   for _ in range(10))
        finally:
            left.qmp("cont")
        assert owner.next_line() == ["revoked", "ok", "quiet"]
        assert not early, "the revocation ended under a copy"
        assert under_way(left) == 0, "a transaction outlives the revocation"
        mine = owner.digest()
        said = write.wait(COPY_S).out.split()
        # A copy whose last transaction was under way ends whole.
        assert said[:2] in (["write", "EKEYREVOKED"], ["write", "ok"]), said
        tap.diag(f"{copies} transactions were under way; {said[1]}; parts of all: "
                 f"{[int(each['parts']) for each in events(left, 'hrdma_issue')]}")
    assert owner.digest() == mine, "a byte came after the revocation"
    owner.end()
    return copies > 0


def test_revocation_returns_after_the_transaction_under_way_and_no_byte_comes_later(lab):
    # 1 MiB takes 200 ms. Descriptors complete one by one, so bytes come during all of that.
    with engine(lab, "channels=1 shuffle=1 mbps=42") as (left, right, _):
        counts, met = Counts(left), 0
        for _ in range(10):
            # A host that is so busy that the engine was late has stopped it.
            let_go(left)
            take(left)
            met += revoke_under_a_copy(left, right)
            if met == 2:
                break
        assert met == 2, "no revocation met a transaction"
        assert counts["engine_bytes"] > 2 * MIB


def test_program_killed_while_the_engine_copies_leaves_the_grant_usable(lab):
    with engine(lab, "mbps=500"):
        test_cmmc.test_program_killed_in_a_copy_leaves_the_grant_usable(lab)


def test_cable_pulled_while_the_engine_copies_ends_it(lab):
    with engine(lab, "mbps=500") as (left, right, _):
        owner = Owner(right, left, 4 * MIB)
        process = pour(left, owner)
        lab.link_down("fabric", "right")
        assert process.wait(COPY_S).out.splitlines()[-1] in ("refused ENOLINK", "refused EKEYREVOKED")
        assert owner.ask("revoke") == ["ok", "quiet"]
        owner.end()
        lab.link_up("fabric", "right")
    with engine(lab) as (left, right, _):
        check_both_ways(left, right)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_") and callable(test)]

if __name__ == "__main__":
    tap.main("ntb3", TESTS)
