# SPDX-License-Identifier: GPL-2.0
"""Linux' NTB core and its clients, which Debian's kernels leave out, built for one of them from Debian's source.

    cache/ntb/RELEASE-KEY/  ntb.ko ntb_transport.ko ntb_netdev.ko ntb_pingpong.ko ntb_tool.ko ntb_perf.ko ntb_msi_test.ko
                            Module.symvers, for the hardware driver that uses what ntb.ko exports
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from . import cache, kernel, say
from .say import LabError

# Kernels of the version that the source package has.
KERNELS = ("6.12",)
SOURCES = {
    "drivers/ntb": ["core.c", "msi.c", "ntb_transport.c"],
    "drivers/ntb/test": ["ntb_pingpong.c", "ntb_tool.c", "ntb_perf.c", "ntb_msi_test.c"],
    "drivers/net": ["ntb_netdev.c"],
}
MODULES = ["ntb", "ntb_transport", "ntb_netdev", "ntb_pingpong", "ntb_tool", "ntb_perf", "ntb_msi_test"]
# NTB_MSI is a part of ntb.ko; as options of a kernel that has neither, both must be told to the headers.
KBUILD = f"""obj-m := {' '.join(f'{name}.o' for name in MODULES)}
ntb-y := core.o msi.o
ccflags-y := -DCONFIG_NTB_MSI=1
"""
KEPT = 2


def directory(name):
    """Where a kernel's modules are, built if need be; None if the lab builds none for it."""
    if name not in KERNELS:
        return None
    kernel.fetch(name)
    src, release = kernel.source(), kernel.release(name)
    _say_difference(src, release)
    digest = hashlib.sha256(KBUILD.encode())
    for folder, files in SOURCES.items():
        for file in files:
            digest.update((src / folder / file).read_bytes())
    target = cache.root() / "ntb" / f"{release}-{digest.hexdigest()[:16]}"
    with cache.locked(f"ntb-{release}"):
        if not target.exists():
            _build(name, src, target)
    return target


def _say_difference(src, release):
    """Debian releases the two packages apart; this code changes seldom, and a change of its interface stops the build."""
    version = src.name.removeprefix("source-").partition("-")[0]
    if release.partition("+")[0].partition("-")[0] != version:
        say.stage(f"ntb: the source is {version}, the kernel {release}: tools/lab/kernel fetch --update brings the newest")


def _build(name, src, target):
    say.stage(f"ntb: building Linux' NTB core and clients for {kernel.release(name)}")
    with cache.filling(target) as scratch, tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for where, files in SOURCES.items():
            for file in files:
                shutil.copy(src / where / file, work)
        (work / "Kbuild").write_text(KBUILD)
        done = subprocess.run(["nice", "-n", "10", "make", "-C", str(kernel.kdir(name)), f"M={work}",
                               f"-j{os.cpu_count()}", "modules"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        if done.returncode != 0:
            tail = "\n".join(done.stdout.splitlines()[-15:])
            raise LabError(f"building the NTB modules for {name} failed:\n{tail}")
        for each in MODULES:
            subprocess.run(["strip", "--strip-debug", "-o", scratch / f"{each}.ko", work / f"{each}.ko"], check=True)
        shutil.copy(work / "Module.symvers", scratch)
    cache.keep_newest(target.parent, KEPT)
