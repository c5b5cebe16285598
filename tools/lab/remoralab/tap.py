# SPDX-License-Identifier: GPL-2.0
"""Tests of the lab, in TAP, streamed as they go.

    from remoralab import tap

    def test_ping(lab):
        lab["compute"].run("ping -c1 memory")

    if __name__ == "__main__":
        tap.main("pair", [test_ping])

A test fails by raising (assert, a failed command, a bound) or by a kernel's complaint. Each has a time
bound; at the bound the consoles are shown and the machines lose power. A machine that is off, hung or
has complained is booted again before the next test, so that tests don't fail by each other.

Chance comes from SEED. With each failure goes the command that runs the test again, alike.
"""

import argparse
import contextlib
import os
import random
import shlex
import signal
import sys
import time
import traceback

from . import say
from .channel import CommandTimeout, MachineDied
from .lab import Lab
from .machine import settle
from .say import LabError

# The bound ends hung tests, not slow ones: a debug kernel on a busy machine takes ten times as long.
TEST_S = 300
# Of everything random in a run.
SEED = int(os.environ.get("REMORA_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
# How much of a console is shown with a failure; the log has all of it.
CONSOLE_TAIL = 25


class Skip(Exception):
    """Raised by skip()."""


class TestTimeout(Exception):
    """The running test's time bound."""


def skip(why):
    """Ends the running test as skipped."""
    raise Skip(why)


def bound(seconds):
    """Decorator: another time bound than TEST_S for this test."""
    def mark(test):
        test.bound_s = seconds
        return test
    return mark


class Tap:
    """A TAP stream on standard output."""

    def __init__(self):
        self.count = self.failed = 0

    def _line(self, text):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def plan(self, count):
        self._line(f"TAP version 13\n1..{count}")

    def ok(self, name, directive=""):
        self.count += 1
        self._line(f"ok {self.count} - {name}{directive}")

    def not_ok(self, name, why=""):
        self.count += 1
        self.failed += 1
        self._line(f"not ok {self.count} - {name}")
        if why:
            self.diag(why)

    def skipped(self, name, why):
        self.ok(name, f" # SKIP {why}")

    def diag(self, text):
        for line in str(text).splitlines() or [""]:
            self._line(f"# {line}")

    def bail_out(self, why):
        first, *rest = str(why).splitlines() or [""]
        if rest:
            self.diag("\n".join(rest))
        self._line(f"Bail out! {first}")


_current = Tap()


def diag(text):
    """A line of explanation in the running test's output."""
    _current.diag(text)


@contextlib.contextmanager
def _time_bound(seconds):
    def expire(_signal, _frame):
        raise TestTimeout(f"not done after {seconds} s")
    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _why(error):
    """An exception as an explanation: the lab's own in a line, others with the test's line."""
    if isinstance(error, (LabError, TestTimeout)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/remoralab/" not in f.filename]
    if frames:
        at = frames[-1]
        text += f"\n  at {os.path.relpath(at.filename)}:{at.lineno}: {at.line}"
    return text


class Runner:
    def __init__(self, lab, out, again):
        """again(name): the command that runs a test again."""
        self.lab, self.out, self.again = lab, out, again
        self.running = None

    def run(self, name, test):
        """One test, all of it inside its bound; never raises but for Ctrl-C."""
        seconds = getattr(test, "bound_s", TEST_S)
        self.running = name
        self.lab.revive()
        marks = {machine: machine.console.mark() for machine in self.lab}
        known = len(self.lab.complaints())
        began = time.monotonic()
        why = skipped = None
        try:
            with _time_bound(seconds):
                self._announce(f"begin {name}")
                test(self.lab)
        except Skip as reason:
            skipped = str(reason)
        except (TestTimeout, CommandTimeout) as error:
            why = _why(error)
            self._show_consoles(marks)
            self._kill_all()
        except Exception as error:  # a test may fail in any way; only Ctrl-C ends the run
            why = _why(error)
            self._show_consoles(marks)
        why = self._settle(name, why)
        complaints = self.lab.complaints()[known:]
        for complaint in complaints:
            self._show(complaint)
        if complaints:
            why = why or "a kernel complained"
        took = f"({time.monotonic() - began:.1f} s)"
        if why:
            self.out.not_ok(f"{name} {took}", f"{why}\n{self.again(name)}")
        elif skipped is not None:
            self.out.skipped(name, skipped)
        else:
            self.out.ok(f"{name} {took}")
        self.running = None
        for machine in {complaint.machine for complaint in complaints}:
            self.lab[machine].kill()

    def _announce(self, text):
        """Writes into each console where a test begins and ends."""
        settle([machine for machine in self.lab if machine.is_on()], text)

    def _settle(self, name, why):
        """Has every complaint of the test arrive before it is judged; finds machines that hang."""
        try:
            with _time_bound(60):
                self._announce(f"end {name}")
        except (TestTimeout, CommandTimeout, MachineDied) as error:
            self._kill_all()
            return why or f"after the test: {error}"
        return why

    def _kill_all(self):
        for machine in self.lab:
            machine.kill()

    def _show_consoles(self, marks):
        for machine, mark in marks.items():
            lines = machine.console.since(mark)[-CONSOLE_TAIL:]
            self.out.diag(f"console of {machine.name} (all of it: {os.path.relpath(machine.console.log_path)})")
            self.out.diag("\n".join(f"  {line}" for line in lines))

    def _show(self, complaint):
        self.out.diag(f"COMPLAINT of {complaint}")
        report = self.lab[complaint.machine].console.report(complaint)
        self.out.diag("\n".join(f"  {line}" for line in report))


def _arguments(topo):
    parser = argparse.ArgumentParser()
    parser.add_argument("only", nargs="*", help="run only tests whose name contains one of these")
    parser.add_argument("--topo", default=topo, help=f"another topology than {topo}")
    parser.add_argument("--kernel", help="6.12, 6.1, debug, uml or uml-debug instead of the topology's")
    parser.add_argument("--list", action="store_true", help="print the tests' names")
    return parser.parse_args()


def _again(args):
    """Names a test's command: with the same chance, in the same machines."""
    words = ["--topo", args.topo] if "--topo" in sys.argv else []
    kernel_name = args.kernel or os.environ.get("REMORA_KERNEL")
    words += ["--kernel", kernel_name] if kernel_name else []
    command = shlex.join(["python3", os.path.relpath(sys.argv[0])])
    return lambda name: f"again: REMORA_TEST_SEED={SEED} {command} {shlex.join([name, *words])}"


def main(topo, tests, on_boot=None):
    """The main of a test file: boots the topology, runs the tests in it, exits."""
    args = _arguments(topo)
    chosen = [(test.__name__.removeprefix("test_"), test) for test in tests]
    if args.only:
        chosen = [(name, test) for name, test in chosen if any(word in name for word in args.only)]
    if args.list:
        print("\n".join(name for name, _ in chosen))
        sys.exit(0)
    if not chosen:
        say.stage("no test of that name; --list names them")
        sys.exit(1)
    say.exit_on_signals()
    out = _current
    out.plan(len(chosen) + 1)
    runner = None
    status = 1
    try:
        lab = Lab(args.topo, args.kernel, on_boot)
        with lab:
            runner = Runner(lab, out, _again(args))
            for name, test in chosen:
                runner.run(name, test)
        late = lab.complaints()
        if late:
            out.not_ok("no kernel complained", "\n".join(map(str, late)))
        else:
            out.ok("no kernel complained")
        status = 1 if out.failed else 0
    except LabError as error:
        out.bail_out(error)
    except KeyboardInterrupt:
        out.bail_out("interrupted")
        status = 130
    if runner and runner.running:
        out.diag(runner.again(runner.running))
    sys.exit(status)
