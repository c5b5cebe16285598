#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Copies by a DMA engine among three machines: the software engine (softdma), in order and not, with faults, and taken
away under load. Cases of test_cmmc.py run again with an engine."""

import contextlib

import test_cmmc
from ntblab import EVENT_S
from remoralab import rmem, tap
from remoralab.rmem import wait_until
from test_cmmc import CMMCIO, COPY_S, MIB, Owner, copy
from test_eop import counters

ENGINE = "softdma"
DRIVERS = "/sys/bus/platform/drivers/softdma"
CHANNELS = 4


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


def test_revocation_waits_for_the_engine(lab):
    # So slow that the revocation meets transactions under way: 1 MiB takes 16 ms.
    with engine(lab, "mbps=500") as (left, _, _):
        counts = Counts(left)
        test_cmmc.test_revocation_waits_for_copies_under_way(lab)
        assert counts["engine_bytes"] > MIB and not counts["late"]


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
