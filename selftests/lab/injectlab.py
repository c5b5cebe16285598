# SPDX-License-Identifier: GPL-2.0
"""The kernel's fault injection (debug kernels): allocations fail in calls from one of Remora's modules.

  - fail-nth: the n-th allocation of one command, for one n after the other, so that every failure label is visited
  - by chance, in every context, softirq too
"""

import contextlib
import random
import re
import subprocess

import rmemlab
from remoralab import compiled, rmem, tap

ATTRIBUTES = ("failslab", "fail_page_alloc")
# fail-nth visits about so many n, chosen by the seed.
VISITS = 2
# An upper bound on the allocations of one command.
NTH_MAX = 2000
# The kernel's report of an injected failure.
EXPECTED = r"page allocation failure|Unable to allocate memory"


def text_range(machine, name):
    """The module's code, as the stack filter of fault injection wants it."""
    start = int(machine.read(f"/sys/module/{name}/sections/.text"), 16)
    sections = subprocess.run(["readelf", "-SW", rmem.module_path(machine, name)], check=True,
                              capture_output=True, text=True).stdout
    size = int(re.search(r"\] \.text\s+PROGBITS\s+\S+\s+\S+\s+(\S+)", sections)[1], 16)
    return start, start + size


@contextlib.contextmanager
def injection(machine, module, percent=0):
    """Fault injection armed for calls from a module; by chance too, if `percent`."""
    start, end = text_range(machine, module)
    lines = []
    for attribute in ATTRIBUTES:
        settings = {"probability": percent, "interval": 1, "times": -1, "verbose": 1, "task-filter": "N",
                    "ignore-gfp-wait": "N", "stacktrace-depth": 32, "require-start": hex(start),
                    "require-end": hex(end)}
        if attribute == "fail_page_alloc":
            settings |= {"min-order": 0, "ignore-gfp-highmem": "N"}
        lines += [f"echo {value} > /sys/kernel/debug/{attribute}/{key}" for key, value in settings.items()]
    machine.run("set -e\n" + "\n".join(lines))
    try:
        with machine.expect_complaint(EXPECTED):
            yield
            machine.settle("end of the injection")
    finally:
        if machine.is_on():
            machine.run("\n".join(f"echo 0 > /sys/kernel/debug/{each}/probability; "
                                  f"echo 0 > /sys/kernel/debug/{each}/require-start; "
                                  f"echo 0 > /sys/kernel/debug/{each}/require-end" for each in ATTRIBUTES))


def nth_failing(machine, n, command):
    """Runs a command with its n-th allocation failing: (did one fail, status)."""
    runner = compiled.program("failnth", [rmemlab.HERE / "failnth.cpp"])
    out = machine.run([runner, str(n), *command], timeout=rmem.ACTION_S).out
    fired, _, status = out.splitlines()[-1].rpartition(" ")
    return fired == "fired", int(status)


def visit(machine, command, undo, clean, most=NTH_MAX):
    """fail-nth over a command, in steps that grow up to `most`. undo() after it succeeded; clean() says what must
    hold if it didn't."""
    chance = random.Random(rmemlab.SEED)
    n = visited = refused = 0
    step = 2
    while n < NTH_MAX:
        # The first allocations are the module's, the later ones mostly the block layer's for it.
        n += 1 if n < 10 else chance.randint(1, step)
        step = min(step + max(1, n // VISITS), most)
        fired, status = nth_failing(machine, n, command)
        if status == 0:
            undo()
        else:
            refused += 1
            clean()
        if not fired:
            assert status == 0, f"{command[1]} failed ({status}) although no allocation did"
            tap.diag(f"{' '.join(map(str, command[1:3]))}: {visited} of {n} allocations made to fail, {refused} refused")
            return
        visited += 1
    raise rmemlab.LabError(f"{command[1]} makes more than {NTH_MAX} allocations")


def debug_only(test):
    def run(lab):
        if not rmemlab.is_debug(lab):
            tap.skip("needs a kernel with fault injection")
        test(lab)
    run.__name__ = test.__name__
    run.bound_s = 1200
    return run


def check_leaks(lab, ignore=None):
    """No memory is lost, and lockdep watched to the end. The modules are unloaded: what a module's variables refer to is
    no leak before it is gone."""
    with lab.expect_complaint("kmemleak"):
        scans = [(machine, machine.kmemleak_scan()) for machine in lab]
        for machine, scan in scans:
            found = machine.kmemleak(scan, ignore=ignore)
            assert not found.strip(), found
    for machine in lab:
        stats = machine.read("/proc/lockdep_stats")
        assert re.search(r"debug_locks:\s+1", stats), f"{machine.name}: lockdep is off, it gave up earlier"


def scan_when_asked(machine):
    """No kmemleak scan but the last test's, which knows what to overlook."""
    machine.run("echo scan=off > /sys/kernel/debug/kmemleak 2>/dev/null || :")
