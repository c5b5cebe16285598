# SPDX-License-Identifier: GPL-2.0
"""Remote memory in the machines of a lab: modules, nodes, devices, and nothing of it left afterwards.

    with Rack(lab) as rack:
        node = rack.node("memory", "256M")
        device = rack.attach("compute", node, "128M")
        lab["compute"].run(f"mkfs.ext4 {device.path}")
"""

import ipaddress
import json
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from . import cache, kernel
from .channel import CommandFailed
from .say import LabError

CLI = cache.REPO / "out" / "bin" / "remora"
DAEMON = cache.REPO / "out" / "bin" / "remora-node"
CORE, NODE, CLIENT = "remora_core", "rmem_node", "rmem"
CHASE = "offload_chase"  # of the offloads, the one that tests leave loaded
PORT = 7670
# Emulated and under load, what takes milliseconds elsewhere may take this long.
ACTION_S = 60
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_bytes(text):
    """"64K" as a number; a number as itself."""
    match = re.fullmatch(r"(\d+)([KMG]?)", str(text))
    if not match:
        raise LabError(f"size '{text}': write it as 64K, 128M or 1G")
    return int(match[1]) * UNITS[match[2]]


def wait_until(what, ready, timeout=ACTION_S):
    """Asks until ready() answers something true, and returns that; for what sends no event."""
    deadline = time.monotonic() + timeout
    while True:
        answer = ready()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise LabError(f"not so after {timeout} s: {what}")
        time.sleep(0.05)


# Modules

def module_path(machine, name):
    """A module as this lab uses it: a copy, so that a build meanwhile doesn't change what is tested, and
    without debug information, which is most of the file and would have to pass through 9p."""
    release = kernel.release(machine.spec.kernel)
    built = cache.REPO / "out" / "modules" / release / f"{name}.ko"
    if not built.exists():
        raise LabError(f"{name}.ko is not built for {release}: make modules KDIR={machine.spec.kernel}")
    copy = machine.lab.log_dir / release / f"{name}.ko"
    if not copy.exists():
        copy.parent.mkdir(exist_ok=True)
        stripped = subprocess.run(["strip", "--strip-debug", "-o", copy, built], capture_output=True, text=True)
        if stripped.returncode != 0:
            raise LabError(f"{built}: {stripped.stderr.strip()}")
    return copy


# A program takes 20 ms to start in an emulated machine, 150 ms in one with a debug kernel; so what is done all the
# time is done by the shell's own words.

def loaded(machine):
    """Our modules in a machine."""
    return machine.run(f"cd /sys/module; for m in {CHASE} {CLIENT} {NODE} {CORE}; do [ ! -e $m ] || echo $m; done").out.split()


def load(machine, *names):
    """Inserts modules, the core they share first, unless they are there."""
    present = loaded(machine)
    machine.insmod(*(module_path(machine, name) for name in (CORE, *names) if name not in present))


def unload(machine):
    present = loaded(machine)
    if present:
        machine.run(["rmmod", *present], timeout=ACTION_S)


def left_behind(machine):
    """Leftovers, once everything was given back: disks, and modules of Remora that anything but another module
    uses."""
    lines = machine.run("while read -r line; do echo \"$line\"; done < /proc/modules; "
                        "for f in /sys/block/rmb* /sys/class/rmem/*; do [ ! -e $f ] || echo $f; done").out.splitlines()
    disks = [line for line in lines if line.startswith("/sys")]
    modules = [line.split()[:4] for line in lines if line not in disks]
    # Each module listed as using it counts as one user.
    return disks + [name for name, _size, users, names in modules
                    if name in (CLIENT, NODE, CORE) and int(users) != names.count(",")]


# The CLI

def remora(machine, *words, timeout=ACTION_S, check=True):
    if not CLI.exists():
        raise LabError("out/bin/remora is not built: make user")
    return machine.run([CLI, *words], timeout=timeout, check=check)


def devices(machine):
    """The output of `remora status` for each device of a machine."""
    return json.loads(machine.run(f"[ ! -e /sys/module/{CLIENT} ] || exec {CLI} status --json",
                                  timeout=ACTION_S).out or "[]")


def address(machine, viewer, version=4, link=None):
    """The address of a machine on the link (the first, or the one named) it shares with another."""
    for each in machine.lab.topology.links:
        if {machine.name, viewer.name} <= set(each.addresses) and link in (None, each.name):
            for interface in each.addresses[machine.name]:
                if interface.version == version:
                    return interface.ip
    raise LabError(f"{machine.name} has no IPv{version} address on a link with {viewer.name}")


def interface(machine, link):
    """The name of a machine's end of a link."""
    names = [each.name for each in machine.lab.topology.links_of(machine.name)]
    return f"eth{names.index(link)}"


def new_key(machine, path):
    """A key file made by the CLI; the file."""
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "key"
        subprocess.run([CLI, "key", "new", made], check=True)
        key = made.read_text()
    write_key(machine, path, key)
    return key


def write_key(machine, path, key):
    machine.run(f"umask 077; echo {key.strip()} > {path}")


class Node:
    """A machine's memory lent out by its kernel."""

    SPACE = 1

    def __init__(self, machine, memory, page=None, port=PORT, extra=()):
        self.machine, self.memory, self.page, self.port, self.extra = machine, memory, page, port, extra
        self.key_path = f"/run/rmem-{port}.key"
        self.key = None

    def start(self):
        load(self.machine, NODE)
        if self.key is None:
            self.key = new_key(self.machine, self.key_path)
        else:
            write_key(self.machine, self.key_path, self.key)
        words = ["node", "start", "--memory", self.memory, "--space", f"{self.SPACE}={self.key_path}"]
        words += ["--page", self.page] if self.page else []
        words += ["--port", str(self.port)] if self.port != PORT else []
        remora(self.machine, *words, *self.extra)
        return self

    def stop(self):
        remora(self.machine, "node", "stop")

    def space_key_path(self, space):
        return f"/run/rmem-{self.port}-{space}.key"

    def add_space(self, space, options=""):
        """Another tenant's; its key."""
        path = self.space_key_path(space)
        key = new_key(self.machine, path)
        remora(self.machine, "node", "space", "add", f"{space}={path}{options}")
        return key

    def add_view(self, space):
        """A read-only one; its key."""
        return self.add_space(space, f",read-only-of={self.SPACE}")

    def clear_space(self):
        """Takes back what clients left allocated."""
        remora(self.machine, "node", "space", "del", "--force", str(self.SPACE))

    def status(self):
        return json.loads(remora(self.machine, "node", "status", "--json").out)

    def backed_bytes(self):
        return self.status()["backed_bytes"]

    def counters(self):
        return self.status()["counters"]


class Daemon:
    """A machine's memory lent out by remora-node, until the end of a `with`."""

    def __init__(self, machine, memory, port=PORT):
        self.machine, self.memory, self.port = machine, memory, port
        self.key = self.process = None

    def __enter__(self):
        key_path = "/run/daemon.key"
        self.key = new_key(self.machine, key_path)
        self.process = self.machine.spawn([DAEMON, "--memory", self.memory, "--port", str(self.port),
                                           "--space", f"{Node.SPACE}={key_path}"])
        try:
            self.process.wait_output("ready on port")
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(self, *_):
        if self.machine.is_on():
            self.process.signal(signal.SIGTERM)
            ended = self.process.wait()
            assert ended.rc == 0, f"remora-node: {ended}"


class Device:
    """A /dev/rmbN or /dev/rmemN."""

    def __init__(self, machine, path):
        self.machine, self.path, self.name = machine, path, path.removeprefix("/dev/")

    def status(self):
        return next(each for each in devices(self.machine) if each["device"] == self.path)

    def counters(self):
        return json.loads(remora(self.machine, "stats", "--json", self.name).out)[self.name]

    def wait_state(self, state, timeout=ACTION_S):
        wait_until(f"{self.name} is {state}", lambda: self.status()["state"] == state, timeout)

    def detach(self, *words, timeout=ACTION_S, check=True):
        return remora(self.machine, "detach", self.name, *words, timeout=timeout, check=check)


def attached(machine):
    """The devices of a machine."""
    return [Device(machine, each["device"]) for each in devices(machine)]


def give_key(machine, node, key=None):
    """Copies a key of a node's to a client; the path there."""
    path = f"/run/{node.machine.name}-{node.port}.key"
    write_key(machine, path, key or node.key)
    return path


def attach_words(machine, node, size, *words, host=None, version=4, key=None):
    """The command line that attaches a device; size None: one for programs."""
    host = str(host or address(node.machine, machine, version))
    if node.port != PORT:
        host = f"[{host}]:{node.port}" if ipaddress.ip_address(host).version == 6 else f"{host}:{node.port}"
    kind = ["--size", size] if size else ["--programs"]
    return ["attach", host, *kind, "--key", give_key(machine, node, key), *words]


def attach(machine, node, size, *words, host=None, version=4, key=None, timeout=ACTION_S):
    """A new device of a machine, of memory of a node; `words` are further options of remora attach."""
    load(machine, CLIENT)
    out = remora(machine, *attach_words(machine, node, size, *words, host=host, version=version, key=key),
                 timeout=timeout).out
    found = re.fullmatch(r"(/dev/r(?:mb|mem)\d+)\n", out)
    if not found:
        raise LabError(f"remora attach named no device: {out!r}")
    return Device(machine, found[1])


class Rack:
    """The nodes and devices of a piece of work. After it: no device, no region, and modules that could be
    removed, but stay for the next one, for that takes seconds. If it fails they are removed, and what can't be
    cleaned up loses power."""

    def __init__(self, lab):
        self.lab = lab
        self.nodes = []

    def node(self, machine, memory, **options):
        node = Node(self.lab[machine], memory, **options).start()
        self.nodes.append(node)
        return node

    def attach(self, machine, node, size, *words, **options):
        return attach(self.lab[machine], node, size, *words, **options)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self._leave()
            return
        for machine in self.lab:
            try:
                self._abandon(machine)
            except LabError:
                machine.kill()

    def _leave(self):
        """Everything given back in order, and every step of it checked."""
        for machine in self.lab:
            if machine.is_on():
                for each in attached(machine):
                    each.detach()
        for node in self.nodes:
            status = node.status() if node.machine.is_on() else {"started": False}
            if status["started"]:
                if status["regions"]:
                    raise LabError(f"{node.machine.name}: {status['regions']} regions left though every device is "
                                   "detached")
                node.stop()
        for machine in self.lab:
            if machine.is_on():
                left = left_behind(machine)
                if left:
                    raise LabError(f"{machine.name}: left behind: {' '.join(left)}")

    def _abandon(self, machine):
        if not machine.is_on():
            return
        mounted = r"awk '$1 ~ /^.dev.rmb/ { print $2 }' /proc/mounts | xargs -r umount -l"
        machine.run(f"{mounted}; tc qdisc del dev eth0 root; tc qdisc del dev eth1 root; true", timeout=20)
        for each in attached(machine):
            each.detach("--force", timeout=20)
        if NODE in loaded(machine):
            remora(machine, "node", "stop", timeout=20, check=False)
        unload(machine)


__all__ = ["Rack", "Node", "Daemon", "Device", "CommandFailed"]
