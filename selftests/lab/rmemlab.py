# SPDX-License-Identifier: GPL-2.0
"""What the suites of remote memory share: sizes, load that checks itself, file trees, seeds."""

import contextlib
import hashlib
import io
import os
import pathlib
import random
import re
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools" / "lab"))

from remoralab import LabError, compiled, rmem, tap  # noqa: E402

# The whole length of what takes time by its nature (a minute's outage, say); else a part of it.
FULL = os.environ.get("REMORA_TEST_FULL", "") not in ("", "0")
# A random test prints its seed; this replays it.
SEED = int(os.environ.get("REMORA_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
# Bound of one load; emulation on a busy machine needs it.
LOAD_S = 300

FIO = ("fio --output-format=terse --name=verify --direct=1 --ioengine=libaio --thread --group_reporting "
       "--verify=crc32c --verify_fatal=1 --verify_dump=0 --randrepeat=1 --randseed={seed}")


def seeded(name):
    """A source of chance for a test, its seed in the output."""
    tap.diag(f"{name}: replay with REMORA_TEST_SEED={SEED}")
    return random.Random(SEED)


def is_debug(lab):
    return any(machine.spec.kernel == "debug" for machine in lab)


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


def write_pattern(machine, path, mib, seed=1, timeout=LOAD_S):
    """Leaves a pattern of fio's on a device; check_pattern() wants it back."""
    run_fio(machine, path, "write", "64k", mib, seed=seed, extra="--do_verify=0", timeout=timeout)


def check_pattern(machine, path, mib, seed=1, timeout=LOAD_S):
    run_fio(machine, path, "read", "64k", mib, seed=seed, timeout=timeout)


def cli_refused(machine, *words, says, timeout=rmem.ACTION_S):
    """`remora WORDS` must fail with an explanation: one that matches `says`."""
    result = rmem.remora(machine, *words, timeout=timeout, check=False)
    assert result.rc != 0, f"remora {' '.join(map(str, words))} succeeded: {result.out}"
    assert re.search(says, result.err, re.I), f"not an explanation of it (/{says}/): {result.err!r}"
    return result


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
    """The shell command that runs `command` in a cgroup with so much memory."""
    group = f"/sys/fs/cgroup/{name}"
    machine.run(f"echo +memory > /sys/fs/cgroup/cgroup.subtree_control; mkdir -p {group}; "
                f"echo {limit_mib}M > {group}/memory.max")
    return f"echo $$ > {group}/cgroup.procs && exec {command}"


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
def link_down(lab, link):
    """A link without carrier, for a while."""
    lab.link_down(link)
    try:
        yield
    finally:
        lab.link_up(link)


__all__ = ["FULL", "LOAD_S", "LabError", "Tree", "rmem", "tap"]
