# SPDX-License-Identifier: GPL-2.0
"""How machines run: with KVM only where it has been seen to boot a kernel, else emulated.

A /dev/kvm can exist, answer, start the firmware and still hang at the kernel. So one trial boot
must reach the agent within a bound; the cache remembers the answer for this host kernel.
"""

import functools
import hashlib
import os
import pathlib
import platform
import subprocess

from . import cache, compiled, say
from .say import LabError

TRIAL_S = 20
# Without erms and fsrm the guest copies memory by words: emulation does `rep movsb` byte by byte.
# Without la57: an interrupt while the kernel reads anew what its processor can do finds five levels
# of page table gone for a moment, and KASAN takes every address of theirs for a wild one.
# Without cx16 the slab allocator keeps off cmpxchg16b, whose emulation in QEMU 7.2 leaves random bits in
# the flags: an interrupt right after it saves and restores them, and with TF or NT set the kernel oopses.
TCG = ["-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm,-la57,-cx16"]
KVM = ["-accel", "kvm", "-cpu", "host"]
# CONFIG_HZ of the lab's kernels.
HZ = 250


def _verdict_path():
    cpu = next((line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "")
    key = hashlib.sha256((platform.release() + cpu).encode()).hexdigest()[:16]
    return cache.root() / "accel" / key


def choose(trial_boot):
    """'kvm' or 'tcg'; `trial_boot(accel, bound)` boots a machine and says whether its agent answered."""
    forced = os.environ.get("REMORA_ACCEL")
    if forced:
        if forced not in ("kvm", "tcg"):
            raise LabError(f"REMORA_ACCEL={forced}: it is kvm or tcg")
        return forced
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    path = _verdict_path()
    with cache.locked("accel"):
        if not path.exists():
            say.stage(f"trying /dev/kvm once, at most {TRIAL_S} s")
            verdict = "kvm" if trial_boot("kvm", TRIAL_S) else "tcg"
            say.stage("KVM works" if verdict == "kvm" else "KVM does not boot a kernel here: emulating")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(verdict)
    return path.read_text()


def arguments(accel):
    return KVM if accel == "kvm" else TCG


@functools.cache
def command_line(accel):
    """Words for the guest kernel's command line.

    Without ACPI a stock kernel boots emulated a third faster and a debug kernel in half the time. But
    then it has no clock but the TSC (the host's, passed through) and nothing to calibrate that
    against: so it is told the frequency, and what follows from it for a delay loop (lpj), which the second CPU
    would else take a second to measure, in vain. Where the host's TSC is no clock, ACPI and its HPET stay.

    One CPU while it boots, the others from init.cpp: a kernel that starts patches much of its own code, and
    QEMU 7.2 at times goes on executing the breakpoint another CPU had put there for the moment
    (the oops is "int3", mostly at sched_clock_cpu). init.cpp holds what makes the
    kernel patch its code, so that it doesn't later, while packets come. One thing it can't hold: the kernel
    patches its receive path for the first device of rmem, and again after the last one.
    """
    if accel == "kvm":
        return ""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    if not ("constant_tsc" in flags and "nonstop_tsc" in flags):
        return "maxcpus=1"
    khz = int(subprocess.run([compiled.program("tsc_khz", ["tsc_khz.cpp"])], text=True, capture_output=True,
                             check=True).stdout)
    return f"maxcpus=1 acpi=off tsc=reliable tsc_early_khz={khz} lpj={khz * 1000 // HZ}"
