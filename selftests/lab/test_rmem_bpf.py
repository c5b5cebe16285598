#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Programs in BPF beside the kernel's memory: loaded, called, ended by their budget, replaced under load, removed. The kernel
refuses unsound ones, and an older kernel has none."""

import errno
import json
import subprocess

import rmemlab
from remoralab import cache, kernel, rmem, tap
from remoralab.rmem import Rack

CALLER = cache.REPO / "out" / "bin" / "caller"
CHASER = cache.REPO / "out" / "bin" / "chaser"
CHASE = cache.REPO / "out" / "lib" / "offload" / "chase.bpf.o"

# A macro of bpf/refused.bpf.c, and the words of its refusal.
REFUSED = {
    "NO_NULL_CHECK": "verifier refuses it: .* at:.*scratch = 1",
    "BEYOND_SLICE": r"verifier refuses it: .*outside of the allowed memory.* at:.*scratch\[1\]",
    "WRITES_ARGUMENTS": "verifier refuses it: .*rdonly",
    "VARIABLE_SIZE": "verifier refuses it: .*is not a const",
    "FORGED_CALL": "verifier refuses it: .*(arg#0|R1)",
    "WRITES_CALL": "verifier refuses it: .*only read",
    "PLAIN_ENDLESS": "verifier refuses it: .*(infinite loop|too large|complex)",
    "KERNELS_LOOP": "it calls a function of the kernel's own",
    "MAY_GOTO": "it uses may_goto",
    "HELPER": "verifier refuses it: .*cannot use helper",
    "NO_LICENSE": "GPL compatible",
    "GLOBAL_FUNCTION": "a global function beside its step: make it static",
    "SLEEPABLE": "it can sleep",
    "ID=0": "its id is 0",
    'NAME="a/b"': "'a/b' is no name of a program",
}


def offloads(machine):
    return json.loads(rmem.remora(machine, "node", "offload", "list", "--json").out)


def prepare(lab, rack, load=True):
    node = rack.node("memory", "64M")
    return node, rmemlab.bpf_ready(lab, node, load)


def call(lab, target, function, check=True):
    return lab["compute"].run([CALLER, target, "100", str(function)], check=check)


def needs_bpf(lab, needed=True):
    if kernel.release(lab["memory"].spec.kernel).startswith("6.1.") == needed:
        tap.skip("of a newer kernel" if needed else "of an older kernel")


def test_old_kernel_says_so(lab):
    needs_bpf(lab, False)
    with Rack(lab) as rack:
        prepare(lab, rack, load=False)
        rmemlab.cli_refused(lab["memory"], "node", "offload", "load", CHASE, "--space", "1",
                            says="need Linux 6.11 or later, this is 6.1.*as a module")


def test_chase(lab):
    """The same source as the module's, called by the same program."""
    needs_bpf(lab)
    memory = lab["memory"]
    with Rack(lab) as rack:
        _node, target = prepare(lab, rack, load=False)
        bare = lab.log_dir / "bare.ko"
        subprocess.run(["objcopy", "-R", ".BTF", rmem.module_path(memory, "rmem_bpf"), bare], check=True)
        assert "not supported" in memory.run(["insmod", bare], check=False).err
        rmemlab.cli_refused(memory, "node", "offload", "load", CHASE, "--space", "1", says="modprobe rmem_bpf")
        types = lab.log_dir / "types"
        subprocess.run(["objcopy", "--dump-section", f".BTF={types}", rmem.module_path(memory, "rmem_bpf"), "/dev/null"], check=True)
        assert b"rmem_offload_ops" in types.read_bytes()
        for hidden in (b"rmem_space", b"siphash", b"rmem_run"):
            assert hidden not in types.read_bytes(), "a program could read others' keys and calls"
        memory.insmod(rmem.module_path(memory, "rmem_bpf"))
        rmem.remora(memory, "node", "offload", "load", CHASE, "--space", "1")
        called = lab["compute"].run([CHASER, target], check=False)
        assert called.rc == 0, f"{called.out} {called.err}"
        listed, = offloads(memory)
        assert listed["name"] == "chase" and listed["ended"] >= 205 and listed["over_budget"] >= 1, listed
        rmemlab.cli_refused(memory, "node", "offload", "load", CHASE, "--space", "1", says="a program chase is loaded")
        assert memory.run(["rmmod", "rmem_bpf"], check=False).rc != 0
        rmem.remora(memory, "node", "offload", "remove", "chase", "--space", "1")
        assert not memory.run("ls /sys/fs/bpf/remora").out.split()
        # A refused binding leaves nothing behind.
        rmemlab.cli_refused(memory, "node", "offload", "load", CHASE, "--space", "9", says="no such SPACE")
        assert not memory.run("ls /sys/fs/bpf/remora").out.split()


def test_budget(lab):
    """Loops of all kinds end, and other calls go on beside them."""
    needs_bpf(lab)
    memory, compute = lab["memory"], lab["compute"]
    turns = rmemlab.bpf_program(lab, "turns", "turns")
    with Rack(lab) as rack:
        node, target = prepare(lab, rack)
        # In a machine that is emulated, the clock counts the host's other work.
        rmem.remora(memory, "node", "offload", "load", turns, "--space", "1", "--budget", "50000")
        assert call(lab, target, 0).out == "1\n"
        assert call(lab, target, 3).out == "10000\n"
        # A slice of 0 bytes is none, and a step that takes long gets no more.
        for function, error in ((7, errno.EINVAL), (6, errno.ETIME)):
            assert call(lab, target, function, check=False).err.endswith(f" {error}\n")
        for endless in (1, 2, 5):
            beside = compute.spawn([CALLER, target, "100", str(endless)])
            while beside.running():
                assert call(lab, target, 0).out == "1\n"
            ended = beside.wait(60)
            assert ended.rc == 1 and int(ended.err.split()[-1]) >= 50000, ended.err
            tap.diag(f"budget of 50,000 us: {ended.err.strip()}")
        # A space more, and the pin's removal under load.
        rmem.remora(memory, "node", "space", "add", f"2={node.key_path}")
        rmem.remora(memory, "node", "offload", "load", "turns", "--space", "2")
        assert len(offloads(memory)) == 2
        asks = compute.spawn([CALLER, target, "100", "0", "until", "2"])
        rmem.wait_until("answers come", lambda: asks.out)
        memory.run("rm /sys/fs/bpf/remora/turns")
        rmem.wait_until("the node loses it in both", lambda: not offloads(memory))
        assert "no such offload" in asks.wait(60).err


def test_replaced_under_load(lab):
    needs_bpf(lab)
    memory, compute = lab["memory"], lab["compute"]
    old, new = rmemlab.bpf_program(lab, "turns", "turns1"), rmemlab.bpf_program(lab, "turns", "turns2", "-DANSWER=2")
    other = rmemlab.bpf_program(lab, "refused", "other", "-DID=102")
    with Rack(lab) as rack:
        _node, target = prepare(lab, rack)
        rmemlab.cli_refused(memory, "node", "offload", "replace", old, says="no program turns in BPF is loaded")
        rmem.remora(memory, "node", "offload", "load", old, "--space", "1")
        asks = compute.spawn([CALLER, target, "100", "0", "until", "2"])
        rmem.wait_until("answers come", lambda: asks.out)
        # Calls of 10 ms or more: one is under way nearly always. It fails if another program ends it.
        long = compute.spawn([CALLER, target, "100", "4", "until", "2"])
        rmem.wait_until("long calls come to their end", lambda: long.out)
        rmem.remora(memory, "node", "offload", "replace", new)
        for process in (asks, long):
            ended = process.wait(60)
            assert ended.rc == 0 and ended.out == "1\n2\n", f"{ended.out} {ended.err}"
        listed, = offloads(memory)
        assert listed["name"] == "turns" and listed["running"] == 0, listed
        rmem.remora(memory, "node", "offload", "load", other, "--space", "1")
        refused = rmemlab.bpf_program(lab, "refused", "other103", "-DID=103")
        rmemlab.cli_refused(memory, "node", "offload", "replace", refused, says="its id or its functions")
        # The kernel forgets programs that are unpinned, and the node loses them.
        memory.run("rm /sys/fs/bpf/remora/*")
        rmem.wait_until("the node loses them", lambda: not offloads(memory))


def test_refused(lab):
    needs_bpf(lab)
    memory = lab["memory"]
    with Rack(lab) as rack:
        prepare(lab, rack)
        for number, (macro, says) in enumerate(REFUSED.items()):
            bad = rmemlab.bpf_program(lab, "refused", f"refused{number}", f"-D{macro}")
            rmemlab.cli_refused(memory, "node", "offload", "load", bad, "--space", "1", says=says)
        rmemlab.cli_refused(memory, "node", "offload", "load", "/etc/hostname.o", "--space", "1", says="no such file")
        assert offloads(memory) == []


def test_node_stops_with_programs(lab):
    needs_bpf(lab)
    memory = lab["memory"]
    turns = rmemlab.bpf_program(lab, "turns", "turns3")
    with Rack(lab) as rack:
        node, target = prepare(lab, rack)
        rmem.remora(memory, "node", "offload", "load", turns, "--space", "1")
        under_way = lab["compute"].spawn([CALLER, target, "100", "1"])
        node.stop()
        under_way.signal(9)
        under_way.wait(60)
        # The program stays loaded without a node, can be replaced, and is removed as ever.
        rmem.remora(memory, "node", "offload", "replace", rmemlab.bpf_program(lab, "turns", "turns4", "-DANSWER=2"))
        node.start()
        assert offloads(memory) == []
        rmem.remora(memory, "node", "offload", "load", "turns", "--space", "1")
        assert call(lab, target, 0).out == "2\n"
        node.stop()
        rmem.remora(memory, "node", "offload", "remove", "turns", "--space", "1")
        assert not memory.run("ls /sys/fs/bpf/remora").out.split()
        node.start()
    # Programs are given up after a grace period.
    rmem.wait_until("rmem_bpf goes", lambda: memory.run(["rmmod", "rmem_bpf"], check=False).rc == 0)


TESTS = [test_old_kernel_says_so, test_chase, test_budget, test_replaced_under_load, test_refused, test_node_stops_with_programs,
         rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
