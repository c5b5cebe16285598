# SPDX-License-Identifier: GPL-2.0
"""Small C++ programs that run inside machines: compiled on the host, once for each version of their source."""

import hashlib
import subprocess

from . import cache, say
from .say import LabError

# Static: a machine under memory pressure has no shared libraries to read again from the host.
CXX = ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-pthread"]


def build(source):
    """The program made of one source file, as a path that machines see too."""
    digest = hashlib.sha256(" ".join(CXX).encode() + source.read_bytes()).hexdigest()[:16]
    target = cache.root() / "guest" / f"{source.stem}-{digest}"
    with cache.locked(f"guest-{source.stem}"):
        if not target.exists():
            say.stage(f"{source.stem}: compiling")
            with cache.filling(target) as scratch:
                built = subprocess.run([*CXX, "-o", str(scratch / source.stem), str(source)],
                                       text=True, capture_output=True)
                if built.returncode != 0:
                    raise LabError(f"{source.name} does not compile:\n{built.stderr}")
    return target / source.stem
