# SPDX-License-Identifier: GPL-2.0
"""disk.h calls each kernel's own functions: also those of kernels that the lab has not, where modules can't be built.

kernel.h declares what those kernels declare; a call of another kernel's form doesn't compile.
"""

import pathlib
import re
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
DISK = HERE.parents[2] / "kmod/compat/disk.h"


def compile_for(release):
    """The compiler's errors for disk.h in a kernel, 6.9 say; "" if there are none."""
    major, minor = map(int, release.split("."))
    with tempfile.TemporaryDirectory() as folder:
        for name in {*re.findall(r"#include <(.*)>", DISK.read_text())} | {"linux/version.h"}:
            header = pathlib.Path(folder, name)
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text("#define KERNEL_VERSION(a, b, c) ((a) << 16 | (b) << 8 | (c))\n" if "version" in name else "")
        built = subprocess.run(["gcc", "-std=gnu11", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused-function", f"-I{folder}",
                                f"-DLINUX_VERSION_CODE={major << 16 | minor << 8}", "-include", HERE / "kernel.h",
                                "-x", "c", DISK], capture_output=True, text=True)
    return built.stderr


class Compat(unittest.TestCase):
    def test_each_kernel_compiles_its_own_branch(self):
        for release in ("6.1", "6.8", "6.9", "6.10", "6.11", "6.12"):
            with self.subTest(release):
                self.assertEqual(compile_for(release), "")
