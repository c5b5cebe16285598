#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Locks across three machines, or two (--topo ntb): exclusion, turns, and holders that die, by every way to die."""

import itertools

import ntblab
from ntblab import CORE, DRIVER, MARLIN
from remoralab import tap
from remoralab.rmem import wait_until
from test_cmmc import CMMCIO, COPY_S, Owner, network, start
from test_eop import others, port_of, wait_up

ROUNDS = 60


class Locker:
    """A program with one file, which locks and unlocks as it is told."""

    def __init__(self, machine):
        self.process = machine.spawn(f"exec {CMMCIO} locks")
        self.lines = 0
        self.held = []

    def tell(self, what, home, number=0, *more):
        self.process.send(f"{what} {port_of(home)} {number} {' '.join(map(str, more))}\n".encode())

    def answer(self):
        wait_until("it answers", lambda: self.process.out.count("\n") > self.lines or not self.process.running(), COPY_S)
        self.lines += 1
        return self.process.out.splitlines()[self.lines - 1].split()[1]

    def ask(self, home, number=0, timeout_ms=0):
        self.tell("lock", home, number, timeout_ms)

    def lock(self, home, number=0, timeout_ms=0):
        self.ask(home, number, timeout_ms)
        return self.granted(home, number)

    def granted(self, home, number=0):
        """The answer to ask()."""
        answer = self.answer()
        if answer in ("ok", "broken"):
            self.held.append((home, number))
        return answer

    def unlock(self, home, number=0):
        self.tell("unlock", home, number)
        answer = self.answer()
        if answer != "EPERM":
            self.held.remove((home, number))
        return answer

    def end(self):
        """Gives all locks back, so that the next test finds none broken."""
        for home, number in list(self.held):
            assert self.unlock(home, number) == "ok"
        self.process.end_input()
        assert self.process.wait(COPY_S).rc == 0


def is_held(by, home, number=0):
    """Asks for a lock that it must not get."""
    return by.lock(home, number, 100) == "ETIMEDOUT"


def counts(process):
    """The figures that a counting program printed at its end, by name."""
    words = process.wait(COPY_S).out.splitlines()[-1].split()
    assert words[0] == "counted", process.out
    return dict(zip(words[::2], map(int, words[1::2])))


def counting(machine, handle, home, number, files, rounds):
    return machine.spawn(f"{CMMCIO} count {handle} {port_of(home)} {number} {files} {rounds}")


def test_one_program_at_a_time_has_a_lock(lab):
    with network(lab) as machines:
        for home, number in ((machines[0], 0), (machines[1], 63)):
            first, *rest = others(home)
            owner = Owner(home, first, 4096)
            assert owner.ask("zero") == ["ok"]
            handles = {first: owner.handle, **{machine: owner.ask(f"also {port_of(machine)}")[0] for machine in rest}}
            programs = [counting(machine, handle, home, number, files, ROUNDS)
                        for machine, handle in handles.items() for files in (1, 3)]
            for program in programs:
                said = counts(program)
                assert said["counted"] == ROUNDS and not said["torn"] and not said["broken"], said
            owner.end()


def test_each_machine_excludes_all_others(lab):
    with network(lab) as machines:
        for home in machines[:2]:
            lockers = [Locker(machine) for machine in machines]
            for order in itertools.permutations(lockers):
                assert order[0].lock(home) == "ok"
                for each in order[1:]:
                    assert is_held(each, home)
                assert order[0].lock(home, 1) == "ok", "another lock"
                order[1].ask(home)
                assert order[0].unlock(home) == "ok"
                assert order[1].granted(home) == "ok"
                assert is_held(order[0], home)
                assert order[1].unlock(home) == "ok" and order[0].unlock(home, 1) == "ok"
            for each in lockers:
                each.end()


def test_modest_machine_has_its_turn_beside_a_greedy_one(lab):
    with network(lab) as machines:
        home, greedy, *rest = machines
        modest = rest[0] if rest else home
        if modest is home:
            tap.skip("takes three machines")
        owner = Owner(home, greedy, 4096)
        assert owner.ask("zero") == ["ok"]
        handle = owner.ask(f"also {port_of(modest)}")[0]
        programs = [counting(greedy, owner.handle, home, 5, 6, 0) for _ in range(2)]
        for program in programs:
            program.wait_output("counting", timeout=COPY_S)
        said = counts(counting(modest, handle, home, 5, 1, ROUNDS))
        for program in programs:
            program.end_input()
        taken = sum(counts(program)["counted"] for program in programs)
        tap.diag(f"modest: {said}, greedy: {taken} by 12 files")
        # One turn of the greedy machine, and those between the look at the counter and the request's arrival.
        assert said["counted"] == ROUNDS and not said["torn"] and said["overtaken"] <= 3, said
        owner.end()


REFUSALS = """no-port EINVAL; no-lock EINVAL; not-held EPERM; lock ok; lock-twice EDEADLK; other-lock ok; other-file ETIMEDOUT;
    not-its-own EPERM; signal EINTR; flags EINVAL; reserved EINVAL; size EINVAL; unlock ok; unlock-twice EPERM; now-its ok;
    after-close broken"""


def test_what_is_wrong_is_refused_by_its_own_error(lab):
    with network(lab) as machines:
        for home in machines[:2]:
            said = machines[0].run(f"{CMMCIO} lock-refusals {port_of(home)}", timeout=COPY_S).out.splitlines()
            assert said == [" ".join(each.split()) for each in REFUSALS.split(";")], said


def test_threads_of_a_program_may_unlock_each_others_locks(lab):
    with network(lab) as (home, other, *_):
        for machine in (home, other):
            said = machine.run(f"{CMMCIO} lock-threads {port_of(home)} 2 300", timeout=COPY_S).out
            assert said == "locked 300 unlocked 300\n", said


def test_lock_of_a_killed_program_is_broken_once(lab):
    with network(lab) as machines:
        home, other = machines[0], machines[1]
        for holder, heir in ((other, home), (home, other), (other, other)):
            killed, waits = Locker(holder), Locker(heir)
            assert killed.lock(home) == "ok"
            waits.ask(home)
            killed.process.kill()
            assert waits.granted(home) == "broken"
            assert waits.unlock(home) == "ok" and waits.lock(home) == "ok"
            waits.end()


def test_killed_waiter_does_not_keep_its_turn(lab):
    with network(lab) as machines:
        home, other = machines[0], machines[1]
        holder, killed, waits = Locker(home), Locker(other), Locker(other)
        assert holder.lock(home) == "ok"
        killed.ask(home)
        waits.ask(home)
        killed.process.kill()
        killed.process.wait(COPY_S)
        assert holder.unlock(home) == "ok"
        assert waits.granted(home) == "ok"
        for each in (holder, waits):
            each.end()


def test_killed_machine_loses_its_locks(lab):
    with network(lab) as machines:
        home, killed, *rest = machines
        heir = Locker(rest[0] if rest else home)
        own = Locker(home)
        owner = Owner(home, killed, 4096)
        pours = killed.spawn(f"{CMMCIO} pour {owner.handle} 4096")
        pours.wait_output("pouring", timeout=COPY_S)
        assert Locker(killed).lock(home) == "ok"
        # The machine that will be killed has a waiter, too.
        assert own.lock(home, 1) == "ok"
        waits = Locker(killed)
        waits.ask(home, 1)
        heir.ask(home)
        assert own.lock(killed, 2) == "ok"
        killed.kill()
        assert heir.granted(home) == "broken"
        assert heir.unlock(home) == "ok" and heir.lock(home) == "ok"
        wait_until("the lock of a dead home is lost", lambda: own.lock(killed, 3) in ("ENOLINK", "ENODEV"), COPY_S)
        assert own.unlock(killed, 2) == "ENOLINK"
        assert own.unlock(home, 1) == "ok"
        assert own.lock(home, 1) == "ok", "no dead machine is in the queue"
        killed.boot()
        start(killed)
        for machine in others(killed):
            wait_up(machine, killed)
            wait_up(killed, machine)
        again = Locker(killed)
        assert heir.unlock(home) == "ok" and again.lock(home) == "ok" and own.lock(killed, 2) == "ok"
        for each in (heir, own, again):
            each.end()
        owner.end()


def test_machine_that_leaves_under_its_locks_gives_them_up(lab):
    with network(lab) as machines:
        home, leaves = machines[0], machines[1]
        for leave, unlocked in (("ip link set eop0 down", "ENOLINK"), (None, "ENOLINK")):
            heir, holder, waits = Locker(home), Locker(leaves), Locker(leaves)
            assert holder.lock(home) == "ok" and heir.lock(home, 1) == "ok"
            waits.ask(home, 1)
            heir.ask(home)
            if leave:
                leaves.run(leave)
            else:
                ntblab.remove(leaves, DRIVER)
            assert heir.granted(home) == "broken"
            assert waits.answer() in ("ENOLINK", "ENODEV")
            assert holder.unlock(home) == unlocked
            assert holder.lock(home) in ("ENOLINK", "ENODEV")
            if leave:
                leaves.run("ip link set eop0 up")
            else:
                ntblab.insert(leaves, DRIVER, options="ram=1")
                start(leaves)
            for machine in others(leaves):
                wait_up(machine, leaves)
                wait_up(leaves, machine)
            assert heir.unlock(home) == "ok" and holder.lock(home) == "ok"
            for each in (heir, holder, waits):
                each.end()


def test_cable_pulled_between_holder_and_home_loses_the_lock(lab):
    with network(lab) as machines:
        home, holder_at = machines[0], machines[1]
        for number in range(3):
            holder, heir = Locker(holder_at), Locker(home)
            assert holder.lock(home, number) == "ok"
            heir.ask(home, number)
            lab.link_down("fabric", holder_at.name)
            assert heir.granted(home, number) == "broken"
            wait_until("the holder heard", lambda h=holder: h.lock(home, 63) == "ENOLINK", COPY_S)
            assert holder.unlock(home, number) == "ENOLINK"
            lab.link_up("fabric", holder_at.name)
            for machine in lab:
                wait_up(machine, *others(machine))
            for each in (holder, heir):
                each.end()


def test_locks_need_no_windows_into_whole_ram(lab):
    for machine in lab:
        ntblab.clear(machine)
        ntblab.insert(machine, CORE, DRIVER, MARLIN)
        machine.run("ip link set eop0 up")
    home, other, *_ = lab
    wait_up(home, other)
    wait_up(other, home)
    lockers = [Locker(machine) for machine in (home, other)]
    assert lockers[1].lock(home) == "ok" and is_held(lockers[0], home)
    assert lockers[1].unlock(home) == "ok" and lockers[0].lock(home) == "ok"
    for each in lockers:
        each.end()
    for machine in lab:
        ntblab.clear(machine)


def test_one_user_leaves_locks_to_others(lab):
    with network(lab) as (left, right, *_):
        left.run("chmod 666 /dev/cmmc")
        for home, port in ((left, port_of(left)), (right, port_of(right))):
            greedy = left.spawn(f"{CMMCIO} lock-greedy {port}")
            greedy.wait_output("holds", timeout=COPY_S)
            modest = left.spawn(f"setpriv --reuid 1234 --regid 1234 --clear-groups {CMMCIO} lock-greedy {port}")
            modest.wait_output("holds", timeout=COPY_S)
            tap.diag(f"at {home.name}: greedy {greedy.out.strip()}, modest {modest.out.strip()}")
            assert greedy.out.split() == ["holds", "32", "ENOSPC"], greedy.out
            assert 0 < int(modest.out.split()[1]) < 32 and modest.out.split()[2] == "ENOSPC", modest.out
            for each in (greedy, modest):
                each.end_input()
                assert each.wait(COPY_S).rc == 0
        # The programs ended without giving their locks back.
        lockers = [Locker(left) for _ in range(2)]
        for number in range(64):
            locker = lockers[number % 2]
            if number < 32:
                assert locker.lock(left, number) in ("ok", "broken")
                assert locker.unlock(left, number) == "ok"
        for each in lockers:
            each.end()


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    tap.main("ntb3", TESTS)
