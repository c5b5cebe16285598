# SPDX-License-Identifier: GPL-2.0
"""The engine of a soak: faults of chance under loads that check every byte.

    rounds(SEED)   round: [step, step, ...]     a step: pause, fault, parameters, how long it lasts
       |
      play         steps begin and end, and overlap; a load that ends is an error unless a fault excuses it
       |
      calm         all faults are healed: machines answer, loads end their round, devices come back,
       |           and machines that have nothing to do spend next to no CPU time
      idle step    now and then a fault while no load runs: modules unloaded, devices detached
       |
      loads start again

The steps are a function of the seed alone, never of time, so a failing run is played again by its seed. A fault
says which loads it excuses and why; a load says what it is that an excused error leaves to be mended.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def _options():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seed", type=int, help="of all steps; without: REMORA_TEST_SEED, or chance")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("REMORA_SOAK_SECONDS", 100)))
    parser.add_argument("--steps", type=int, default=None, help="end after that many steps")
    parser.add_argument("--faults", default="", help="only faults whose name contains one of these, joined by commas")
    options, rest = parser.parse_known_args()
    if {"-h", "--help"} & set(rest):
        parser.print_help()
    sys.argv[1:] = rest
    if options.seed is not None:
        os.environ["REMORA_TEST_SEED"] = str(options.seed)
    return options


# The seed has to be in the environment before remoralab.tap reads it.
OPTIONS = _options()

import rmemlab  # noqa: E402
from remoralab import rmem, tap  # noqa: E402

# Longer than each timer of what is tested: a tunnel whose peer is silent goes after 15 s, a program's operation fails
# after 10 s, a tunnel at rest goes after 10 s, and soak_rmem.py makes the others shorter.
LONG_S = 17
LONG_SHARE = 1 / 6
ROUND_STEPS_MIN, ROUND_STEPS_MAX = 2, 8
PAUSE_S_MAX = 2.0
IDLE_SHARE = 0.6
# Bound of an answer, natively. A host that has other work can delay some of ANSWER_TRIES.
ANSWER_S, ANSWER_TRIES = 1, 5
WATCH_EVERY_S = 2
# Bound of a load's round and of what mends it: a busy host takes a machine's processors away for minutes.
LOAD_S = 4 * rmemlab.LOAD_S
# Bounds of the kernel's time, softirqs included, in a machine without load, and of the time until it is at rest.
REST_SHARE_MAX, REST_WATCH_S, REST_BOUND_S = 0.1, 3, 60
TICKS = os.sysconf("SC_CLK_TCK")
STAT_KERNEL = (3, 6, 7)  # system, irq, softirq: proc(5)


class SoakFailed(Exception):
    """A load, a machine or a device is not as it has to be."""


class Fault:
    """Base of faults. One object serves all steps of its kind, one at a time."""

    name = ""
    uses = ()            # steps that use the same thing never overlap
    lasts_s = (0.3, 4)
    can_be_long = True   # with a share of LONG_SHARE it lasts for LONG_S
    idle = False         # begins only while no load runs
    weight = 1

    def draw(self, chance):
        """Returns the parameters of a step: a function of `chance` alone."""
        return {}

    def excuses(self, loads, **params):
        """Returns {load: reason} for loads that can see errors."""
        return {}

    def begin(self, **params):
        pass

    def end(self, **params):
        """Heals it."""


class Load:
    """Base of loads: a command in a machine, in rounds, each of which checks every byte it wrote."""

    name = ""
    said = ""         # the last words of one that failed
    gives_up = False  # fails if its peer is silent for long
    machines = ()     # all that take part

    def start(self):
        raise NotImplementedError

    def running(self):
        raise NotImplementedError

    def stop(self, excuses=()):
        """Ends it at the end of the round under way; returns True if it ended by an error that a fault can excuse.
        Raises for wrong bytes and for any other error. `excuses`: the reasons that faults have given."""
        raise NotImplementedError

    def rounds(self):
        """Rounds done since start()."""
        return 0

    def mend(self, excuses, failed):
        """All faults are healed and the load is stopped: brings back what it needs."""

    def renew(self):
        """Gives its device back in order, and takes another."""

    def leave(self):
        """The soak is over."""


@dataclasses.dataclass
class Step:
    number: int
    fault: Fault
    params: dict
    pause_s: float
    lasts_s: float

    def __str__(self):
        params = " ".join(f"{name}={value}" for name, value in self.params.items())
        return f"{self.number} {self.fault.name} {params}".rstrip()


def _draw(chance, faults, number):
    fault = chance.choices(faults, [each.weight for each in faults])[0]
    params = fault.draw(chance)
    pause_s, lasts_s = chance.uniform(0, PAUSE_S_MAX), chance.uniform(*fault.lasts_s)
    is_long = chance.random() < LONG_SHARE
    return Step(number, fault, params, pause_s, LONG_S if is_long and fault.can_be_long else lasts_s)


def rounds(seed, faults):
    """Yields the rounds of a seed: (steps under load, steps without load)."""
    chance, number = random.Random(seed), 0
    loaded, idle = ([each for each in faults if each.idle == wanted] for wanted in (False, True))
    while True:
        steps = []
        for _ in range(chance.randint(ROUND_STEPS_MIN, ROUND_STEPS_MAX) if loaded else 0):
            number += 1
            steps.append(_draw(chance, loaded, number))
        resting = []
        if idle and (chance.random() < IDLE_SHARE or not loaded):
            number += 1
            resting.append(_draw(chance, idle, number))
        yield steps, resting


def clash(one, other):
    """Whether two faults use the same thing; "memory" is all of that machine, "memory.eth0" a part of it."""
    return any(f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.") for a in one.uses for b in other.uses)


def slowness(lab):
    """How much longer than natively a command takes: emulated, with sanitizers, or both."""
    return (1 if rmemlab.is_native(lab) else 5) * (4 if rmemlab.is_debug(lab) else 1)


class Soak:
    """A soak's course. `machines_away` is a set of machines that faults have paused or switched off."""

    def __init__(self, lab, expects=()):
        """`expects`: patterns of what kernels say while a fault excuses errors."""
        self.lab, self.expects = lab, expects
        self.loads, self.faults = [], []
        self.away = set()
        self.excused = {}     # load: {reasons}, since the last calm
        self.reasons = set()  # all so far
        self.done_rounds = {}
        self.steps = self.rests = 0
        self._open = []       # (when it ends, step)
        self._expected = None
        self._watched_s = 0
        self._loaded = False  # the loads were started

    def run(self, loads, faults, seconds=None):
        """Plays rounds until the time is up. Each part of a failure is told; then it is raised."""
        chosen = [word for word in OPTIONS.faults.split(",") if word]
        self.loads = loads
        self.faults = [each for each in faults if not chosen or any(word in each.name for word in chosen)]
        self.began_s = time.monotonic()
        self._say(f"seed {tap.SEED}, {len(self.faults)} kinds of faults")
        deadline_s = self.began_s + (seconds or OPTIONS.seconds)
        try:
            self._start()
            for steps, resting in rounds(tap.SEED, self.faults):
                last = OPTIONS.steps is not None and max(each.number for each in steps + resting) >= OPTIONS.steps
                if last:
                    steps, resting = ([each for each in some if each.number <= OPTIONS.steps] for some in (steps, resting))
                self.play(steps)
                self.calm()
                for step in resting:
                    self._begin(step)
                    self._end_all()
                    self._end_excuses()
                    self.check_answers()
                if last or time.monotonic() >= deadline_s:
                    break
                self._start()
            for load in self.loads:
                load.leave()
        except BaseException:
            self._tell_failure()
            raise
        self._say(f"done: {self.steps} steps, {self.rests} rests; rounds of loads: "
                  + ", ".join(f"{name} {count}" for name, count in self.done_rounds.items()))

    # Steps

    def play(self, steps):
        at_s = time.monotonic()
        for step in steps:
            at_s += step.pause_s
            self._until(at_s)
            for end_s, other in sorted(self._open, key=lambda each: each[0]):
                if clash(other.fault, step.fault):
                    self._until(end_s)
            self._begin(step)
            at_s = time.monotonic()
        self._end_all()

    def _begin(self, step):
        self._say(f"begin {step} for {step.lasts_s:.1f} s")
        self.steps += 1
        for load, reason in step.fault.excuses(self.loads, **step.params).items():
            self.excused.setdefault(load, set()).add(reason)
            self.reasons.add(reason)
        if self.excused and not self._expected:
            # A program whose swap is gone finds no page, or its cgroup has no memory left for it.
            self._expected = contextlib.ExitStack()
            self._expected.enter_context(self.lab.expect_complaint("|".join(
                [r"invoked oom-killer|^Memory cgroup out of memory|^hog\[\d+\]: segfault at", *self.expects])))
        self._open.append((time.monotonic() + step.lasts_s, step))
        step.fault.begin(**step.params)

    def _end(self, entry):
        self._open.remove(entry)
        entry[1].fault.end(**entry[1].params)
        self._say(f"end {entry[1]}")

    def _until(self, at_s):
        """Ends the steps that are due until then, in their order, and watches."""
        while True:
            first = min(self._open, key=lambda each: each[0], default=None)
            now = time.monotonic()
            if first and first[0] <= min(now, at_s):
                self._end(first)
            elif now >= at_s:
                return
            else:
                self.watch()
                time.sleep(max(0, min(0.1, at_s - now)))  # a step's length is what is played

    def _end_all(self):
        while self._open:
            self._until(max(each[0] for each in self._open))

    def watch(self):
        """No load ends but by a fault's excuse; machines that are there answer; no kernel complains."""
        for load in self.loads:
            if self._loaded and not load.running() and load not in self.excused:
                load.stop()
                raise SoakFailed(f"{load.name} ended, and no fault excuses it: {load.said}")
        complaints = self.lab.complaints()
        if complaints:
            raise SoakFailed(f"a kernel complains: {complaints[0]}")
        if time.monotonic() > self._watched_s + WATCH_EVERY_S:
            for machine in self.present():
                machine.run(["true"], timeout=rmem.ACTION_S)
            self._watched_s = time.monotonic()

    def present(self):
        return [machine for machine in self.lab if machine not in self.away and machine.is_on()]

    # Between rounds

    def calm(self):
        self.check_answers()
        self._loaded = False
        for load in self.loads:
            reasons = self.excused.get(load, set())
            failed = load.stop(reasons)
            self.done_rounds[load.name] = self.done_rounds.get(load.name, 0) + load.rounds()
            if failed and not reasons:
                raise SoakFailed(f"{load.name} failed, and no fault excuses it: {load.said}")
            load.mend(reasons, failed)
            if reasons:
                self._say(f"{load.name}: {'failed' if failed else 'lived'} through {', '.join(sorted(reasons))}")
        self._end_excuses()
        self.check_rest()

    def _end_excuses(self):
        """All errors that faults excused have arrived."""
        for machine in self.lab:
            machine.settle("soak: calm")
        self.excused.clear()
        if self._expected:
            self._expected.close()
            self._expected = None

    def _start(self):
        # Programs, the last ones, start slowly beside others.
        for load in reversed(self.loads):
            load.start()
        self._loaded = True

    def check_answers(self):
        """Each machine answers a command within a second, times what the lab's kernel is slower."""
        bound_s = ANSWER_S * slowness(self.lab)
        for machine in self.present():
            took = []
            while not took or took[-1] > bound_s:
                if len(took) == ANSWER_TRIES:
                    raise SoakFailed(f"{machine.name} takes {min(took):.1f} s to answer a command")
                began_s = time.monotonic()
                machine.run(["true"], timeout=rmem.ACTION_S)
                took.append(time.monotonic() - began_s)
            self._say(f"{machine.name} answers in {', '.join(f'{each:.2f} s' for each in took)}")

    def check_rest(self):
        """Without load each machine's kernel comes to rest: its figure is printed."""
        self.rests += 1
        began_s, busy = time.monotonic(), self.present()
        while busy:
            shares = dict(zip(busy, _kernel_shares(busy)))
            late_s = time.monotonic() - began_s
            self._say("at rest: " + ", ".join(f"{machine.name} {share:.1%} of a CPU" for machine, share in shares.items()))
            busy = [machine for machine, share in shares.items() if share >= REST_SHARE_MAX]
            if busy and late_s > REST_BOUND_S:
                raise SoakFailed(f"{busy[0].name} has nothing to do, and its kernel takes {shares[busy[0]]:.0%} of a CPU")

    # Words

    def _say(self, text):
        tap.diag(f"soak {time.monotonic() - self.began_s:6.1f}s: {text}")

    def _tell_failure(self):
        under_way = "; ".join(str(step) for _, step in self._open) or "none"
        self._say(f"failed: seed {tap.SEED}, {self.steps} steps, under way: {under_way}")
        tap.diag(f"again: {self.again()}")
        for machine in list(self.away):
            machine.kill()  # cleaning up would wait for it
        for machine in self.present():
            with contextlib.suppress(rmemlab.LabError):
                self._tell_blocked(machine)

    def _tell_blocked(self, machine):
        """Stacks of tasks that wait in the kernel, into a file beside the consoles' logs."""
        said = machine.run("ps -eo pid,stat,time,args; echo w > /proc/sysrq-trigger; dmesg | tail -n 400; "
                           "cat /proc/stat /proc/softirqs; "
                           f"[ ! -e /sys/module/rmem ] || {rmem.CLI} status; [ ! -e /sys/module/rmem ] || {rmem.CLI} stats; "
                           f"{rmem.CLI} node status", timeout=2 * rmem.ACTION_S, check=False)
        path = self.lab.log_dir / f"{machine.name}.failed"
        path.write_text(said.out + said.err)
        tap.diag(f"state of {machine.name}: {os.path.relpath(path)}")

    def again(self):
        script = os.path.relpath(sys.argv[0])
        name = next(iter(self.lab)).spec.kernel
        only = f" --faults {OPTIONS.faults}" if OPTIONS.faults else ""
        return (f"python3 {script} --seed {tap.SEED} --seconds {OPTIONS.seconds:.0f} --steps {self.steps}{only} "
                f"--kernel {name}")


def _kernel_shares(machines):
    """How much of a CPU each machine's kernel takes, watched at once."""
    command = f"read -r a < /proc/stat; sleep {REST_WATCH_S}; read -r b < /proc/stat; echo $a; echo $b"
    watches = [machine.spawn(command) for machine in machines]
    for watch in watches:
        before, after = (list(map(int, line.split()[1:])) for line in watch.wait(rmem.ACTION_S).out.splitlines())
        took = [late - early for early, late in zip(before, after)]
        yield sum(took[field - 1] for field in STAT_KERNEL) / TICKS / REST_WATCH_S


def check_leaks(lab):
    """On kernels with the sanitizers: no memory is lost. A leak is a complaint."""
    if rmemlab.is_debug(lab):
        for machine, scan in [(machine, machine.kmemleak_scan()) for machine in lab]:
            machine.kmemleak(scan)


def main(topo, test, modules_go=rmemlab.test_modules_go):
    """The main of a soak: `test(lab)` builds loads and faults, and runs them."""
    test.bound_s = OPTIONS.seconds * 3 + 900
    tap.main(topo, [test, modules_go])
