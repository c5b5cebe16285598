# SPDX-License-Identifier: GPL-2.0
"""Loads of a soak between programs of two machines: copies by /dev/cmmc, and a lock that is fought for."""

import random
import re

import test_eop as eop
from remoralab import tap
from remoralab.channel import MachineDied
from soak_loads import ITS_MACHINE, SIGKILL
from soaklab import LOAD_S, Load, SoakFailed
from test_cmmc import CMMCIO, COPY_S, Owner
from test_cmmc_locks import counting

BYTES, SKEW_MAX = 300_000, 4096


def wait_linked(*machines):
    for machine in machines:
        eop.wait_up(machine, *(other for other in machines if other is not machine))


class OfGrant(Load):
    """A load on memory that a program of `home` grants to programs of others."""

    gives_up = True

    def __init__(self, name, home, users):
        self.name, self.home, self.users = name, home, users
        self.machine = users[0]
        self.machines = {home, *users}
        self.chance = random.Random(f"{tap.SEED} {name}")
        self.owner, self.processes = None, []

    def running(self):
        return all(process.running() for process in (self.owner.process, *self.processes))

    def stop(self, excuses=()):
        try:
            self.said = self.end(excuses)
        except MachineDied:
            self.said = ITS_MACHINE
        if self.owner.process.running():
            self.owner.end()
        elif not self.said:
            self.said = "the owner's program ended"
        return bool(self.said)

    def end(self, excuses):
        """Ends the programs; returns what failed, in words, or nothing."""
        raise NotImplementedError

    def mend(self, excuses, failed):
        wait_linked(*self.machines)

    def kill(self):
        """A program in the middle of a call."""
        self.processes[0].signal(9)

    def kill_owner(self):
        self.owner.process.signal(9)


class Copies(OfGrant):
    """A program copies pieces into a peer's memory and back. At the end all of that memory is as it has to be."""

    def __init__(self, machine, home):
        super().__init__(f"copies-{machine.name}-{home.name}", home, [machine])
        self.go_on = f"/run/go-on-{self.name}"

    def start(self):
        self.owner = Owner(self.home, self.machine, BYTES, self.chance.randrange(SKEW_MAX))
        self.machine.write(self.go_on, "")
        checker = self.machine.spawn(f"exec {CMMCIO} check {self.owner.handle} {BYTES} {self.chance.randrange(1 << 30)} "
                                     f"{self.go_on}")
        checker.wait_output("begun", timeout=COPY_S)
        self.processes = [checker]

    def end(self, excuses):
        if self.machine.is_on():
            self.machine.run(["rm", "-f", self.go_on])
        result = self.processes[0].wait(LOAD_S)
        last = (result.out.splitlines() or [""])[-1]
        if result.rc == 0 and self.owner.process.running():
            if last.split() != ["digest", self.owner.digest()]:
                raise SoakFailed(f"{self.name}: wrong bytes in the owner's memory: {last}, not {self.owner.digest()}")
            return ""
        if result.rc not in (0, 3, SIGKILL):
            raise SoakFailed(f"{self.name}: status {result.rc}: {last}{result.err}")
        return f"status {result.rc}: {last}"

    def rounds(self):
        return self.processes[0].out.count("round ")


class Locks(OfGrant):
    """Programs of several machines add 1 to two words of a peer's memory, which have to stay alike, under its lock."""

    NUMBER, FILES = 7, 2
    FAILED = re.compile(r"^(lock|unlock|read|write|open) E[A-Z]+$", re.M)

    def __init__(self, home, *users):
        super().__init__("locks", home, list(users))
        self.counted = 0

    def start(self):
        self.owner = Owner(self.home, self.users[0], 4096)
        assert self.owner.ask("zero") == ["ok"]
        handles = [self.owner.handle, *(self.owner.ask(f"also {eop.port_of(user)}")[0] for user in self.users[1:])]
        self.processes = [counting(user, handle, self.home, self.NUMBER, self.FILES, 0)
                          for user, handle in zip(self.users, handles)]
        for process in self.processes:
            process.wait_output("counting", timeout=COPY_S)

    def end(self, excuses):
        self.counted, failed = 0, []
        for process in self.processes:
            if process.running():
                process.end_input()
        for process in self.processes:
            failed.append(self._end_one(process, excuses))
        return "; ".join(filter(None, failed))

    def _end_one(self, process, excuses):
        try:
            result = process.wait(LOAD_S)
        except MachineDied:
            return ITS_MACHINE
        found = re.search(r"^counted (\d+) torn (\d+) broken (\d+)", result.out, re.M)
        if result.rc == 0 and found:
            counted, torn, broken = map(int, found.groups())
            self.counted += counted
            if (torn or broken) and not excuses:
                raise SoakFailed(f"{self.name}: {torn} times the words differed, {broken} times the lock was broken")
            return ""
        if result.rc == SIGKILL or (result.rc == 1 and self.FAILED.search(result.out)):
            return f"status {result.rc}: {result.out.splitlines()[-1:]}"
        raise SoakFailed(f"{self.name}: {result}")

    def rounds(self):
        return self.counted
