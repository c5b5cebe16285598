#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""README's steps by hand do what it says: installed, loaded, attached, swapped on, off and detached, line
by line as they stand there, but for sizes."""

import os
import re
import subprocess

import rmemlab
from remoralab import cache, kernel, rmem, tap

SMALLER = {"16G": "256M", "8G": "128M"}


def steps(first_words):
    """The commands of README's block that begins with these words."""
    by_hand = (cache.REPO / "README.md").read_text().split("\n## By hand\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```", by_hand, re.M | re.S)
    text = next(block for block in blocks if block.startswith(first_words))
    for size, smaller in SMALLER.items():
        text = text.replace(size, smaller)
    return text


def install(lab, release):
    """Install below a directory, as `make install modules_install` does; the kernel's own modules are there, too."""
    stage = lab.log_dir / "stage"
    modules = stage / "lib/modules" / release
    own = kernel.directory(lab["compute"].spec.kernel) / "root/lib/modules" / release
    modules.parent.mkdir(parents=True)
    subprocess.run(["cp", "-rs", own, modules], check=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    result = subprocess.run(
        ["make", "install", "modules_install", f"DESTDIR={stage}", f"KERNEL={lab['compute'].spec.kernel}"],
        cwd=cache.REPO, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return stage


def by_hand(machine, stage, commands):
    """As somebody types them, who stops at the first that fails."""
    return machine.run(f"set -e; cd /root; PATH={stage}/usr/local/bin:$PATH\n{commands}", timeout=rmem.ACTION_S).out


@tap.bound(600)
def test_readme_by_hand(lab):
    compute, memory = lab["compute"], lab["memory"]
    release = kernel.release(compute.spec.kernel)
    stage = install(lab, release)
    for machine in (compute, memory):
        machine.run(f"mount --bind {stage}/lib/modules/{release} /lib/modules/{release}")
    try:
        by_hand(memory, stage, steps("remora key new rack.key"))
        ask, *use = steps("remora node status").splitlines(keepends=True)
        lends = by_hand(memory, stage, ask)
        assert re.search(r"256.?M", lends), lends
        compute.write("/root/rack.key", memory.read_bytes("/root/rack.key"))
        compute.run("chmod 600 /root/rack.key")
        used = by_hand(compute, stage, steps("remora attach") + "echo swaps: $(tail -n +2 /proc/swaps)\n" + "".join(use))
        assert re.search(r"^swaps: /dev/rmb0 ", used, re.M), used
        assert not rmem.devices(compute)
        assert (stage / "usr/local/share/man/man8/remora.8").exists()
    finally:
        compute.run("rm -f /root/rack.key; rmmod rmem", check=False)
        memory.run("rm -f /root/rack.key; "
                   f"{rmem.CLI} node stop; rmmod rmem_node", check=False, timeout=rmem.ACTION_S)
        for machine in (compute, memory):
            machine.run(f"rmmod remora_core; umount /lib/modules/{release}", check=False)


TESTS = [test_readme_by_hand]

if __name__ == "__main__":
    tap.main("pair", TESTS)
