#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Marlin over a bus as hardware has it: links that are down for an instant and lose the stores of that time, and loads
that are slow. The driver has both as faults (bus=1), the management host pulls a cable without an event."""

import ntblab
import test_eop
from ntblab import CORE, DRIVER, MARLIN
from remoralab import tap
from remoralab.rmem import wait_until
from test_cmmc import CMMCIO, COPY_S, MIB, Owner, copy
from test_cmmc_locks import Locker
from test_eop import address, configure, counters, ping, port_of, wait_up

POSTED, SIGNAL = 2, 1


def start(*machines):
    for machine in machines:
        if set(ntblab.loaded(machine)) != {CORE, DRIVER, MARLIN} or \
                machine.read(f"/sys/module/{DRIVER}/parameters/bus").strip() != "Y":
            ntblab.clear(machine)
            ntblab.insert(machine, CORE, DRIVER, options="ram=1 bus=1")
            ntblab.insert(machine, MARLIN)
        loads_take(machine, 0)
        configure(machine)


def network(lab):
    return test_eop.network(lab, start)


def loads_take(machine, nanoseconds):
    machine.run(f"echo {nanoseconds} > /sys/module/{DRIVER}/parameters/bus_load_ns")


def starts(machine, peer):
    return counters(machine)[f"port{port_of(peer)}_starts"]


def loads(machine, peer):
    return counters(machine)[f"port{port_of(peer)}_loads"]


def sleeps(machine, peer):
    port, all_of = port_of(peer), counters(machine)
    return sum(all_of[f"port{port}_{what}_sleeps"] for what in ("tx", "rx", "message"))


class Outage:
    """A cable that is out meanwhile, of which no interrupt tells before it is in again. Both ends then start anew."""

    def __init__(self, lab, machine, peer):
        self.fabric, self.machine, self.peer = lab.ntbs.named("fabric"), machine, peer

    def __enter__(self):
        self.before = starts(self.machine, self.peer), starts(self.peer, self.machine)
        self.fabric.cut(self.machine.name)

    def __exit__(self, kind, *_):
        self.fabric.plug(self.machine.name, True)
        if kind:
            return
        for (one, other), before in zip(((self.machine, self.peer), (self.peer, self.machine)), self.before):
            wait_until(f"the session of {one.name} has started again", lambda a=one, b=other, n=before: starts(a, b) > n,
                       ntblab.EVENT_S)
        wait_up(self.machine, self.peer)
        wait_up(self.peer, self.machine)


def test_lost_frames_do_not_halt_the_ring(lab):
    with network(lab) as (left, right, *_):
        ping(left, address(right))
        with Outage(lab, right, left):
            said = left.run(f"ping -c3 -i0.2 -W1 {address(right)}", check=False).out
            assert "100% packet loss" in said, said
        ping(left, address(right))
        assert not counters(left)[f"port{port_of(right)}_faults"], "an outage is no fault of the peer's"


def test_copy_without_a_link_is_told_so(lab):
    with network(lab) as (left, right, *_):
        owner = Owner(right, left, MIB)
        assert copy(left, "write", owner.handle, 0, MIB)[0] == "ok"
        with Outage(lab, right, left):
            for what in ("write", "read"):
                assert copy(left, what, owner.handle, 0, MIB)[0] == "ENOLINK", what
        owner.end()
        again = Owner(right, left, MIB)
        result, digest = copy(left, "write", again.handle, 0, MIB)
        assert result == "ok" and again.digest() == digest
        again.end()


def test_copy_beside_an_outage_never_ends_well_with_bytes_lost(lab):
    with network(lab) as (left, right, *_):
        loads_take(left, 1000)
        owner = Owner(right, left, 16 * MIB)
        reading = left.spawn(f"{CMMCIO} read {owner.handle} 0 {16 * MIB} 0 1")
        before = loads(left, right)
        wait_until("it reads", lambda: loads(left, right) > before + 100_000 or not reading.running(), COPY_S)
        assert reading.running(), reading.out
        with Outage(lab, right, left):
            pass
        assert "ENOLINK" in reading.wait(COPY_S).out, reading.out
        loads_take(left, 0)
        owner.end()


def test_revocation_does_not_wait_for_a_lost_word(lab):
    with network(lab) as (left, right, *_):
        owner = Owner(right, left, 4 * MIB)
        pour = left.spawn(f"exec {CMMCIO} pour {owner.handle} {4 * MIB}")
        pour.wait_output("pouring", timeout=COPY_S)
        with Outage(lab, right, left):
            pour.wait(COPY_S)
        assert pour.out.splitlines()[-1] == "refused ENOLINK", pour.out
        assert owner.ask("revoke")[-1] == "quiet"
        owner.end()


def test_lost_words_of_locks_keep_nobody_waiting(lab):
    with network(lab) as (left, right, *_):
        holder, waiter = Locker(right), Locker(left)
        assert holder.lock(right) == "ok"
        waiter.ask(right)
        with Outage(lab, right, left):
            # The grant word is lost.
            assert holder.unlock(right) == "ok"
        assert waiter.granted(right) in ("ENOLINK", "ok", "broken")
        holder.end()
        waiter.end()


def test_long_page_list_leaves_turns_to_other_copies(lab):
    with network(lab) as (left, right, *_):
        large, small = Owner(right, left, 48 * MIB), Owner(right, left, 4096)
        loads_take(left, 100_000)
        reading = left.spawn(f"{CMMCIO} write {large.handle} 0 1 0 1")
        before = loads(left, right)
        wait_until("it reads the list", lambda: loads(left, right) > before + 1000 or not reading.running(), COPY_S)
        assert copy(left, "write", small.handle, 0, 1)[0] == "ok"
        assert reading.running(), "the list was read before the other copy had its turn"
        loads_take(left, 0)
        assert reading.wait(COPY_S).out.split()[1] == "ok", reading.out
        for each in (large, small):
            each.end()


def test_copies_into_a_machine_that_goes_to_sleep_are_refused(lab):
    with network(lab) as (left, right, *_):
        owner = Owner(right, left, 4 * MIB)
        pour = left.spawn(f"exec {CMMCIO} pour {owner.handle} {4 * MIB}")
        pour.wait_output("pouring", timeout=COPY_S)
        # The machine freezes its programs for some seconds, and then goes on.
        right.run("echo freezer > /sys/power/pm_test && echo freeze > /sys/power/state", timeout=COPY_S)
        assert pour.wait(COPY_S).out.splitlines()[-1] in ("refused ENOLINK", "refused EKEYREVOKED"), pour.out
        wait_up(left, right)
        wait_up(right, left)
        assert owner.ask("revoke")[-1] == "quiet"
        owner.end()


def test_peer_whose_address_another_took_loses_no_copies(lab):
    """The other machine waits until a link restarts, and claims the address of its peer meanwhile."""
    with network(lab) as (left, right, third):
        fabric = lab.ntbs.named("fabric")
        mac = right.read("/sys/class/net/eop0/address").strip()
        own = third.read("/sys/class/net/eop0/address").strip()
        fabric.plug(right.name, False)
        wait_until("its link is down", lambda: not counters(left)[f"port{port_of(right)}_up"], ntblab.EVENT_S)
        third.run(f"ip link set eop0 down && ip link set eop0 address {mac}")
        before = starts(left, third)
        configure(third)
        wait_until("the other has started again", lambda: starts(left, third) > before, ntblab.EVENT_S)
        fabric.plug(right.name, True)
        wait_up(left, right)
        ping(left, address(right))
        for peer in (right, third):
            owner = Owner(left, peer, 4096)
            assert copy(peer, "write", owner.handle, 0, 4096)[0] == "ok", peer.name
            owner.end()
        third.run(f"ip link set eop0 down && ip link set eop0 address {own}")
        configure(third)
        wait_up(left, third)


def test_copies_of_a_known_grant_take_no_loads(lab):
    """A copy whose writer waits for its arrival takes one."""
    with network(lab) as (left, right, *_):
        owner, count = Owner(right, left, 4096), 200
        assert copy(left, "write", owner.handle, 0, 4096)[0] == "ok"
        for flags, least, most in ((POSTED, 0, 0), (SIGNAL | POSTED, 0, 0), (SIGNAL, 1, 1), (0, 1, 1)):
            # In this order, a sleep between the two looks counts as no load of a copy.
            slept, before = sleeps(left, right), loads(left, right)
            assert left.run(f"{CMMCIO} writes {owner.handle} 4 {count} {flags}", timeout=COPY_S).out.split()[1] == "ok"
            # An owner whose grant is signalled rings no bell, but polls of other causes sleep.
            each = (loads(left, right) - before - (sleeps(left, right) - slept)) / count
            tap.diag(f"flags {flags}: {each:.2f} loads a copy")
            assert each <= most, each
            assert each > least - 0.1, f"its bytes might not have arrived: {each}"
        slept, before = sleeps(right, left), loads(right, left)
        assert owner.ask("revoke")[-1] == "quiet"
        each = loads(right, left) - before - (sleeps(right, left) - slept)
        assert each <= 1, f"a revocation takes {each} loads"
        owner.end()


def test_posted_copies_are_certain_by_a_later_one(lab):
    with network(lab) as (left, right, *_):
        loads_take(left, 20_000)
        owner = Owner(right, left, 64)
        assert left.run(f"{CMMCIO} writes {owner.handle} 64 500 {POSTED}", timeout=COPY_S).out.split()[1] == "ok"
        result, digest = copy(left, "write", owner.handle, 0, 64)
        assert result == "ok" and owner.digest() == digest
        loads_take(left, 0)
        owner.end()


def test_frames_take_no_loads_but_for_sleep(lab):
    with network(lab) as (left, right, *_):
        before = [(loads(a, b), sleeps(a, b)) for a, b in ((left, right), (right, left))]
        left.run(f"ping -q -c300 -i0.002 -s20000 {address(right)}", timeout=COPY_S)
        for (a, b), (loaded, slept) in zip(((left, right), (right, left)), before):
            loaded, slept = loads(a, b) - loaded, sleeps(a, b) - slept
            tap.diag(f"{a.name}: {loaded} loads, {slept} sleeps")
            # One might be between its two counters at either look.
            assert loaded <= slept + 2, (loaded, slept)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")
         and callable(test) and test is not test_eop]

if __name__ == "__main__":
    tap.main("ntb3", TESTS)
