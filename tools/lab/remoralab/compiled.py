# SPDX-License-Identifier: GPL-2.0
"""Small programs and modules for machines, compiled once for each version of their source."""

import hashlib
import shutil
import subprocess

from . import cache, kernel, say
from .say import LabError

CXX = ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-static", "-s"]


def program(name, sources, libraries=()):
    """The path of the program in the cache; sources are names in tools/lab/guest, or paths; headers count, too."""
    paths = [cache.LAB / "guest" / source for source in sources]
    digest = hashlib.sha256(" ".join([*CXX, *libraries]).encode())
    for path in paths:
        digest.update(path.read_bytes())
    target = cache.root() / "compiled" / f"{name}-{digest.hexdigest()[:16]}"
    with cache.locked("compiled"):
        if not target.exists():
            say.stage(f"compiling the lab's {name}")
            with cache.filling(target) as scratch:
                units = [str(path) for path in paths if path.suffix == ".cpp"]
                built = subprocess.run([*CXX, "-o", str(scratch / name), *units, *libraries], text=True, capture_output=True)
                if built.returncode != 0:
                    raise LabError(f"{name} does not compile:\n{built.stderr}")
            cache.keep_newest(target.parent, 4, f"{name}-*")
    return target / name


def module(folder, kernel_name):
    """The path of the module in the cache that a folder's Kbuild makes of its one source, for a kernel of the lab."""
    name, kdir = folder.name, kernel.kdir(kernel_name)
    digest = hashlib.sha256(str(kdir).encode())
    for path in sorted(folder.iterdir()):
        digest.update(path.read_bytes())
    target = cache.root() / "compiled" / f"{name}-{digest.hexdigest()[:16]}"
    with cache.locked("compiled"):
        if not target.exists():
            say.stage(f"compiling the lab's {name}.ko")
            with cache.filling(target) as scratch:
                shutil.copytree(folder, scratch, dirs_exist_ok=True)
                built = subprocess.run(["make", "-s", "-C", kdir, f"M={scratch}", "modules"], text=True, capture_output=True)
                if built.returncode != 0:
                    raise LabError(f"{name}.ko does not compile:\n{built.stderr}")
            cache.keep_newest(target.parent, 4, f"{name}-*")
    return target / f"{name}.ko"
