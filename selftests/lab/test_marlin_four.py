#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Four machines of a bridge at once: frames of all pairs, copies between programs of two of them meanwhile, locks, and
one that dies and comes back."""

import ntblab
import test_cmmc as cmmc
import test_cmmc_locks as locks
import test_eop as eop
from remoralab import tap
from remoralab.rmem import wait_until


@tap.bound(900)
def test_all_pairs_ping_each_other(lab):
    # With the driver that the tests below need, too.
    with cmmc.network(lab):
        eop.test_machines_ping_each_other_by_ipv4_and_ipv6(lab)


@tap.bound(900)
def test_two_machines_copy_while_all_exchange_frames(lab):
    with cmmc.network(lab) as (left, right, third, fourth):
        owner = cmmc.Owner(right, left, 2 * cmmc.MIB)
        pour = left.spawn(f"exec {cmmc.CMMCIO} pour {owner.handle} {owner.count}")
        pour.wait_output("pouring", timeout=cmmc.COPY_S)
        eop.transfer([(machine, other) for machine in lab for other in eop.others(machine)], count=eop.MIB)
        assert pour.running(), pour.out
        pour.kill()
        pour.wait(cmmc.COPY_S)
        other = cmmc.Owner(third, fourth, cmmc.MIB)
        for machine, each in ((left, owner), (fourth, other)):
            result, digest = cmmc.copy(machine, "write", each.handle, 0, each.count, seed=3)
            assert result == "ok" and each.digest() == digest
            each.end()


@tap.bound(900)
def test_one_program_of_four_machines_at_a_time_has_a_lock(lab):
    locks.test_one_program_at_a_time_has_a_lock(lab)


@tap.bound(900)
def test_one_that_dies_leaves_the_others_their_links_and_comes_back(lab):
    with cmmc.network(lab) as (left, right, third, fourth):
        starts = {machine: eop.counters(left)[f"port{eop.port_of(machine)}_starts"] for machine in (right, third)}
        fourth.kill()
        for machine in (left, right, third):
            wait_until("the link is down", lambda m=machine: not eop.counters(m)["port3_up"], ntblab.EVENT_S)
        eop.transfer([(left, right), (right, third), (third, left)], count=eop.MIB)
        for machine, count in starts.items():
            assert eop.counters(left)[f"port{eop.port_of(machine)}_starts"] == count
        fourth.boot()
        cmmc.start(fourth)
        for machine in lab:
            eop.wait_up(machine, *eop.others(machine))
        eop.transfer([(fourth, left), (right, fourth)], count=eop.MIB)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_") and callable(test)]

if __name__ == "__main__":
    tap.main("ntb4", TESTS)
