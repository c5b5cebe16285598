#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""One set of requests, two memory nodes: the kernel's and the daemon answer them alike.

node-conformance is a GoogleTest program that knows what the protocol's header says; each of its
tests shows up here as a line of this test's output.
"""

import re
import signal

import rmemlab
from remoralab import cache, rmem, tap
from remoralab.rmem import Rack

# Counters of what is refused for a reason that those requests give.
REFUSALS = ["drop-short", "drop-version", "drop-type", "drop-malformed", "drop-tag", "drop-space",
            "damaged", "repeated", "no-session", "peer", "level", "rebooted", "stale", "window", "length", "fault",
            "perm", "no-memory", "name-exists", "no-name"]

VIEW = 2  # a space
PROGRAM = cache.REPO / "out" / "bin" / "node-conformance"


def what_failed(result):
    """The output of each failed GoogleTest test, its last lines, and the command that repeats the run."""
    said = re.findall(r"^[^\n]*: Failure\n.*?(?=^\[)", result.out, re.M | re.S)
    seeds = re.findall(r"^.*--seed.*$", result.out, re.M)
    return "\n".join([*said[:5], *(result.out + result.err).splitlines()[-10:], *seeds])


def conform(machine, *words):
    if not PROGRAM.exists():
        raise rmemlab.LabError("out/bin/node-conformance is not built: make conformance")
    # The suite sends the longest reads and doesn't retry: a slow machine's socket must hold an answer.
    machine.run(f"echo {4 << 20} | tee /proc/sys/net/core/rmem_max > /proc/sys/net/core/rmem_default")
    words = [PROGRAM, *words, f"--seed={tap.SEED}"]
    result = machine.run(words, timeout=rmemlab.LOAD_S, check=False)
    passed = re.findall(r"\[       OK \] (\S+)", result.out)
    tap.diag(f"{len(passed)} passed")
    assert result.rc == 0, what_failed(result)
    assert passed, "no test ran"
    return passed


@tap.bound(600)
def test_kernel_node(lab):
    with Rack(lab) as rack:
        node = rack.node("compute", "64M")
        node.add_view(VIEW)
        before = node.counters()
        conform(lab["compute"], "--node", f"127.0.0.1:{rmem.PORT}", "--space", str(node.SPACE), "--key", node.key_path,
                "--view", str(VIEW), "--view-key", node.space_key_path(VIEW))
        grown = rmemlab.growth(node.counters, before)
        assert not set(REFUSALS) - set(grown), f"refused, but not counted: {set(REFUSALS) - set(grown)}"
        assert node.status()["regions"] == 0, "regions are left, though every test gives back what it takes"


@tap.bound(600)
def test_daemon_of_two_threads(lab):
    conform(lab["compute"], "--daemon", rmem.DAEMON, "--threads", "2")


def test_daemon_is_locked_and_shielded(lab):
    """Lent memory is neither swapped nor taken by the OOM killer."""
    machine = lab["compute"]
    machine.run("rm -f /run/daemon.key")
    rmem.remora(machine, "key", "new", "/run/daemon.key")
    daemon = machine.spawn([rmem.DAEMON, "--memory", "64M", "--space", "1=/run/daemon.key", "--ready-fd", "1"])
    daemon.wait_output(str(rmem.PORT))
    [pid] = machine.run(["pidof", rmem.DAEMON.name]).out.split()
    locked_kib = int(re.search(r"VmLck:\s+(\d+) kB", machine.read(f"/proc/{pid}/status"))[1])
    assert locked_kib >= 64 << 10, f"{locked_kib} KiB are locked"
    assert machine.read(f"/proc/{pid}/oom_score_adj").strip() == "-1000"
    daemon.signal(signal.SIGTERM)
    assert daemon.wait().rc == 0, daemon.err


TESTS = [test_kernel_node, test_daemon_of_two_threads, test_daemon_is_locked_and_shielded,
         rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
