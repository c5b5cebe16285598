# SPDX-License-Identifier: GPL-2.0
"""Shared by the suites of remote memory: sizes, load that checks itself, file trees, seeds."""

import contextlib
import functools
import hashlib
import io
import pathlib
import random
import re
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools" / "lab"))

from remoralab import LabError, cache, compiled, kernel, rmem, tap  # noqa: E402

SEED = tap.SEED
# Bound of one load; emulation on a busy machine needs it.
LOAD_S = 300

FIO = ("fio --output-format=terse --name=verify --direct=1 --ioengine=libaio --thread --group_reporting "
       "--verify=crc32c --verify_fatal=1 --verify_dump=0 --randrepeat=1 --randseed={seed}")


def is_debug(lab):
    return any(kernel.is_debug(machine.spec.kernel) for machine in lab)


def is_native(lab):
    """Whether machines are User Mode Linux: fast, of one CPU, without kprobes."""
    return any(kernel.is_uml(machine.spec.kernel) for machine in lab)


def is_emulated_debug(lab):
    """Whether machines are the slowest that there are."""
    return is_debug(lab) and not is_native(lab)


def needs(what):
    """Decorator: skips on User Mode Linux, which lacks `what`."""
    def mark(test):
        @functools.wraps(test)
        def run(lab):
            if is_native(lab):
                tap.skip(f"User Mode Linux has no {what}")
            test(lab)
        return run
    return mark


def scaled(lab, mib):
    """A size in MiB: a quarter of it on the debug kernel, which is four times slower and needs memory."""
    return max(4, mib // 4) if is_debug(lab) else mib


def run_fio(machine, path, rw, block, mib, depth=16, seed=1, extra="", timeout=LOAD_S):
    """Writes with patterns and reads them back; fails at the first byte that isn't what was written."""
    machine.run(fio_command(path, rw, block, mib, depth, seed, extra), timeout=timeout)


def fio_command(path, rw, block, mib, depth=16, seed=1, extra=""):
    """`rw` as fio's, or "mixed": reads back while it writes. (fio 3.33 loses count of the seeds it verifies
    by in a randrw of several block sizes, on any device.)"""
    if rw == "mixed":
        rw, extra = "randwrite", f"--verify_backlog=32 {extra}"
    return (f"{FIO.format(seed=seed)} --filename={path} --rw={rw} --bs={block} --size={mib}M "
            f"--iodepth={depth} {extra}")


def until_it_fails(command):
    """The command again and again, so that no load ends before what is to end it."""
    return f"while :; do ({command}) || exit; done"


def write_pattern(machine, path, mib, seed=1, timeout=LOAD_S):
    """Leaves a pattern of fio's on a device; check_pattern() wants it back."""
    run_fio(machine, path, "write", "64k", mib, seed=seed, extra="--do_verify=0", timeout=timeout)


def check_pattern(machine, path, mib, seed=1, timeout=LOAD_S):
    run_fio(machine, path, "read", "64k", mib, seed=seed, timeout=timeout)


def bpf_program(lab, source, name, *flags):
    """A program of selftests/lab/bpf, compiled where guests see it."""
    repo = cache.REPO
    built = lab.log_dir / f"{name}.bpf.o"
    subprocess.run(["clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", f"-I{repo}/include",
                    f"-I{repo}/tools", "-idirafter", "/usr/include/x86_64-linux-gnu", *flags, "-c",
                    repo / "selftests/lab/bpf" / f"{source}.bpf.c", "-o", built], check=True)
    return built


def bpf_ready(lab, node, load=True):
    """Prepares a node for programs in BPF. Returns what its clients open."""
    compute, memory = lab["compute"], node.machine
    if load and memory.run("[ -e /sys/module/rmem_bpf ]", check=False).rc:
        memory.insmod(rmem.module_path(memory, "rmem_bpf"))
    memory.run("mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf")
    rmem.write_key(compute, "/run/bpf.key", node.key)
    return f"udp:{rmem.address(memory, compute)},key=/run/bpf.key"


def cli_refused(machine, *words, says):
    """`remora WORDS` must fail and say in one line why and what to do: what matches `says`."""
    all_refused(machine, [words], says)


def all_refused(machine, commands, says):
    """Several such commands at once, for those that wait for a node in vain."""
    processes = [machine.spawn([rmem.CLI, *words]) for words in commands]
    for words, process in zip(commands, processes):
        process.end_input()
        result = process.wait(rmem.ACTION_S)
        assert result.rc != 0, f"remora {' '.join(map(str, words))} succeeded: {result.out}"
        assert re.fullmatch(rf"remora: .*({says}).*\n", result.err), f"not /{says}/ in a line: {result.err!r}"


def growth(read, before):
    """By how much counters grew since `before`; read() is a node's or a device's counters."""
    return {name: value - before[name] for name, value in read().items() if value > before[name]}


class UntilTold:
    """A command that a machine repeats until told to stop, $n counting the rounds: no load ends before
    what it is to live through. It must not fail."""

    def __init__(self, machine, name, command):
        self.machine, self.go_on = machine, f"/run/go-on-{name}"
        machine.write(self.go_on, "")
        self.process = machine.spawn(f"n=0; while [ -e {self.go_on} ]; do n=$((n + 1)); ({command}) || exit; done")

    def check_running(self):
        assert self.process.running(), f"ended early, status {self.process.rc}: {self.process.out}{self.process.err}"

    def end(self, timeout=LOAD_S):
        """The round under way is the last, unless it has failed already; returns the command's result."""
        self.machine.run(["rm", "-f", self.go_on])
        return self.process.wait(timeout)

    def stop(self, timeout=LOAD_S):
        """The round under way is the last."""
        self.check_running()
        result = self.end(timeout)
        assert result.rc == 0, result


def test_modules_go(lab):
    """A suite's last: the modules, which its tests left loaded, can be removed, and no kernel minds."""
    for machine in lab:
        rmem.unload(machine)
        assert rmem.loaded(machine) == []


# Programs

def rmemio_path():
    sources = [HERE / name for name in ("rmemio.cpp", "rmemio_refusals.cpp", "rmemio.hpp")]
    return compiled.program("rmemio", [*sources, cache.REPO / "include/uapi/remora_rmem_io.h"], [f"-I{cache.REPO}/include", "-luring"])


class Lingering:
    """A program that begins 32 operations when told, and says how each has ended."""

    def __init__(self, machine, device):
        self.process = machine.spawn([rmemio_path(), "linger", device.path])
        self.process.wait_output("ready")

    def begin(self):
        self.process.send(b"go\n")
        self.process.wait_output("under way")

    def expect(self, error):
        result = self.process.wait(rmem.ACTION_S)
        ends = re.findall(r"ended (-?\d+)", result.out)
        assert ends == [str(-error)] * 32, f"{result.out} {result.err}"


# Swap

def hog_path():
    return compiled.program("hog", [HERE / "hog.cpp"])


@contextlib.contextmanager
def swap_on(machine, device, options=""):
    """The device as the machine's swap; afterwards swapoff, which brings everything back."""
    machine.run(f"mkswap {device.path} >/dev/null && swapon {options} {device.path}", timeout=rmem.ACTION_S)
    yield
    machine.run(["swapoff", device.path], timeout=LOAD_S)


def vmstat(machine):
    return {name: int(value) for name, value in
            (line.split() for line in machine.read("/proc/vmstat").splitlines())}


def in_cgroup(machine, name, limit_mib, command):
    """The shell command that runs `command` in a cgroup with so much memory, and swaps to the machine's /dev/rmbN."""
    group = f"/sys/fs/cgroup/{name}"
    # The kernel ends a cgroup's program when all of its memory waits to be written. A queue may hold 128 requests of
    # 256 KiB, more than these cgroups have: 16 are 4 MiB.
    machine.run(f"echo +memory > /sys/fs/cgroup/cgroup.subtree_control; mkdir -p {group}; "
                f"echo {limit_mib}M > {group}/memory.max; "
                "for queue in /sys/block/rmb*/queue; do echo 16 > $queue/nr_requests || exit; done")
    return f"echo 0 > {group}/cgroup.procs && exec {command}"


# Files

class Tree:
    """Small files in many folders, as a source tree has them; the host keeps their checksums."""

    def __init__(self, files, seed=1):
        chance = random.Random(seed)
        packed = io.BytesIO()
        sums = []
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for number in range(files):
                data = chance.randbytes(min(int(chance.lognormvariate(8, 1.3)), 200_000))
                name = f"tree/{number % 23:02}/{number % 7}/file-{number}"
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
                sums.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
        self.archive, self.sums, self.files = packed.getvalue(), "".join(sums), files

    def put(self, machine, folder, timeout=LOAD_S):
        machine.run(f"tar -C {folder} -xf -", timeout=timeout, input=self.archive)

    def check(self, machine, folder, timeout=LOAD_S):
        machine.run(f"cd {folder} && sha256sum --quiet -c -", timeout=timeout, input=self.sums)


# Failing on purpose

@contextlib.contextmanager
def netem(machine, device, how):
    """tc-netem(8) on what leaves a machine by a device, for a while."""
    machine.run("modprobe -q sch_netem || :")
    machine.netem(device, how)
    try:
        yield
    finally:
        if machine.is_on():
            machine.netem(device, "")


@contextlib.contextmanager
def damaged_payload(machine, device):
    """Of what leaves a machine, one packet in 16 (by its datagram's tag, which is as good as chance)
    has bytes of its payload turned, under a UDP checksum made right again. netem can't do that: it damages
    headers alone where payload lies in fragments, and leaves the checksum wrong, so that UDP drops the packet."""
    ipv4, udp, hdr, heads_max = 20, 8, 48, 48 + 16 * 32
    last_of_tag, payload = ipv4 + udp + hdr - 1, (ipv4 + udp + heads_max + 1000) & ~3
    machine.run(f"""set -e
        modprobe -a sch_ingress cls_u32 act_pedit act_csum
        tc qdisc add dev {device} clsact
        tc filter add dev {device} egress protocol ip u32 match ip protocol 17 0xff \\
            match u8 0 0x0f at {last_of_tag} action pedit munge offset {payload} u32 invert pipe action csum udp""")
    try:
        yield
    finally:
        if machine.is_on():
            machine.run(f"tc qdisc del dev {device} clsact")


@contextlib.contextmanager
def link_down(lab, link):
    """A link without carrier, for a while."""
    lab.link_down(link)
    try:
        yield
    finally:
        lab.link_up(link)


__all__ = ["LOAD_S", "SEED", "LabError", "Tree", "rmem", "tap"]
