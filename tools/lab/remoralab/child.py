# SPDX-License-Identifier: GPL-2.0
"""Processes of the lab, none of which outlives it."""

import shutil
import subprocess

from .say import LabError


def start_bound(argv, passed, log_path):
    """Starts a process of the lab that the kernel kills when the lab's process dies."""
    for program in ("setpriv", argv[0]):
        if not shutil.which(program):
            raise LabError(f"{program} is missing: run tools/lab/deps")
    with open(log_path, "ab") as log:
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, argv)], pass_fds=passed,
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
