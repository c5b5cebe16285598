#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Packages on a machine: installed, used, upgraded under load, removed.

The node is the machine's own, by loopback. Packages are those of `make deb`, of the machine's kernel. The machine's root is
the host's, whose dpkg takes the packages into the machine's own layer; no systemd runs there.
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "lab"))
from remoralab import cache, kernel, tap  # noqa: E402

# On a busy host dpkg and depmod take their time.
PACKAGE_S = 300
NEWER = "+newer"
KEY = "/root/rack.key"
BEFORE = "/root/before"
# Folders where packages put files.
PLACES = "/etc /usr/bin /usr/include /usr/share/man/man[38] /lib/modules/$(uname -r)"
DISKS = ("rmb0", "rmb1")


def version():
    return subprocess.run([cache.REPO / "tools/package/list", "version"], check=True, capture_output=True, text=True).stdout.strip()


def packages(machine):
    """The packages that such a machine needs; none that builds modules."""
    return ["remora", "remora-node", "remora-apps", "libremote0", "libeqds0", "libcmmc0", "libremote-dev",
            f"remora-modules-{kernel.release(machine.spec.kernel)}"]


def deb(name):
    [found] = (cache.REPO / "out/package").glob(f"{name}_*.deb")
    return found


def files(machine):
    return set(machine.run(f"find {PLACES} -xdev", timeout=PACKAGE_S).out.splitlines())


def dpkg(machine, *words):
    """Without triggers: those of the host's other packages look through all of its files."""
    machine.run(f"DEBIAN_FRONTEND=noninteractive dpkg --no-triggers {' '.join(map(str, words))}", timeout=PACKAGE_S)


def install(machine):
    """As a user does who has the files; once a boot."""
    if machine.run("dpkg-query -W remora", check=False).rc == 0:
        return
    # The kernel's modules are shared read-only with it.
    machine.run("""set -e
        own=/lib/modules/$(uname -r)
        mkdir -p /root /run/modules/upper /run/modules/work
        mount -t overlay -o lowerdir=$own,upperdir=/run/modules/upper,workdir=/run/modules/work lab $own""")
    machine.write(BEFORE, "\n".join(files(machine)))
    dpkg(machine, "-i", *(deb(name) for name in packages(machine)))


def newer(machine):
    """The same packages as a newer version, which other versions' packages don't fit."""
    old, debs = version(), {}
    with tempfile.TemporaryDirectory() as folder:
        for name in packages(machine):
            root = pathlib.Path(folder) / name
            subprocess.run(["dpkg-deb", "-R", deb(name), root], check=True)
            control = root / "DEBIAN/control"
            control.write_text(control.read_text().replace(f"Version: {old}", f"Version: {old}{NEWER}")
                               .replace(f"(= {old})", f"(= {old}{NEWER})"))
            made = root.with_suffix(".deb")
            subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", root, made], check=True, capture_output=True)
            debs[name] = made.read_bytes()
    return debs


class Lender:
    """A kernel's node and a daemon, and a disk of each. Modules load by themselves."""

    def __init__(self, machine):
        self.machine = machine

    def __enter__(self):
        self.machine.run(f"""set -e
            [ -e {KEY} ] || remora key new {KEY}
            remora node start --memory 64M --space 1={KEY}
            remora attach 127.0.0.1 --size 24M --key {KEY}""")
        self.daemon = self.machine.spawn(f"exec remora-node --memory 64M --port 7671 --space 1={KEY} --no-lock --ready-fd 1")
        self.daemon.wait_output("7671")
        self.machine.run(f"remora attach 127.0.0.1:7671 --size 24M --key {KEY}")
        assert {device["device"] for device in status(self.machine)} == {f"/dev/{disk}" for disk in DISKS}
        return self

    def __exit__(self, *_):
        if self.machine.is_on():
            self.machine.run("for disk in rmb0 rmb1; do remora detach $disk || remora detach --force $disk; done; "
                             "remora node stop", check=False)
            self.daemon.signal(signal.SIGTERM)
            self.daemon.wait()
            self.machine.run("modprobe -r rmem rmem_node || rmmod rmem rmem_node remora_core", check=False)

    def lives(self):
        """Nodes, devices and modules, which an upgrade must leave as they are."""
        assert self.daemon.running()
        return {"devices": [(device["device"], device["boot"], device["state"]) for device in status(self.machine)],
                "node": json.loads(self.machine.run("remora node status --json").out)["boot"],
                "modules": self.machine.run("cat /sys/module/rmem/srcversion /sys/module/rmem_node/srcversion").out}


def status(machine):
    return json.loads(machine.run("remora status --json").out)


@tap.bound(600)
def test_install(lab):
    """Programs, libraries and modules are where they are looked for, and serve."""
    machine = lab["compute"]
    install(machine)
    assert machine.run("remora --version").out.split()[-1] == version()
    assert machine.run("modinfo -F version rmem").out.strip() == version()
    with Lender(machine):
        for disk in DISKS:
            machine.run(f"""set -e
                dd if=/dev/urandom of=/root/random bs=1M count=16 status=none
                dd if=/root/random of=/dev/{disk} bs=1M oflag=direct status=none
                dd if=/dev/{disk} bs=1M count=16 iflag=direct status=none | cmp - /root/random""")


@tap.bound(600)
def test_upgrade_under_load(lab):
    """An upgrade neither stops a node nor detaches a disk, and the new command knows the old modules."""
    machine = lab["compute"]
    install(machine)
    debs = newer(machine)
    for name, content in debs.items():
        machine.write(f"/root/{name}.deb", content)
    with Lender(machine) as lender:
        before = lender.lives()
        loads = [machine.spawn(f"fio --name={disk} --filename=/dev/{disk} --rw=randwrite --bs=4k --size=16M --direct=1 "
                               f"--ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1 --loops=1000000 "
                               f"--output-format=json --output=/root/{disk}.json") for disk in DISKS]
        machine.run("until awk '$5 > 100 {busy++} END {exit busy != 2}' /sys/block/rmb[01]/stat; do sleep 0.1; done",
                    timeout=PACKAGE_S)
        dpkg(machine, "-i", *(f"/root/{name}.deb" for name in debs))
        assert all(load.running() for load in loads), "a load ended"
        assert lender.lives() == before
        for name in debs:
            assert machine.run(f"dpkg-query -W -f '${{Version}}' {name}").out == version() + NEWER
        for load in loads:
            load.signal(signal.SIGINT)
        for disk, load in zip(DISKS, loads):
            load.wait()
            text = machine.read(f"/root/{disk}.json")
            [job] = json.loads(text[text.index("{"):])["jobs"]
            assert job["error"] == 0, text
            slowest_ms = max(job[kind]["lat_ns"]["max"] for kind in ("read", "write")) / 1e6
            tap.diag(f"{disk}: {job['write']['total_ios']} writes, the slowest took {slowest_ms:.0f} ms")


@tap.bound(600)
def test_remove(lab):
    """Removed, packages leave a node that lends as it is; purged, they leave no file."""
    machine = lab["compute"]
    install(machine)
    with Lender(machine) as lender:
        before = lender.lives()
        dpkg(machine, "--remove", *(set(packages(machine)) - {"remora", "libeqds0"}))
        assert lender.lives() == before
    dpkg(machine, "--purge", *packages(machine))
    known = set(machine.read(BEFORE).splitlines())
    assert files(machine) == known, files(machine) ^ known
    assert machine.run("modprobe -n rmem", check=False).rc != 0


TESTS = [test_install, test_upgrade_under_load, test_remove]

if __name__ == "__main__":
    tap.main("solo", TESTS)
