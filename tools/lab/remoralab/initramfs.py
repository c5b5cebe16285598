# SPDX-License-Identifier: GPL-2.0
"""The image that a machine boots from: an init, the few modules it needs to reach the host's root, its configuration.

A cpio archive in memory: nothing is written but the compiled init, which the cache keeps.
"""

import functools
import hashlib
import lzma
import shlex
import subprocess

from . import cache, compiled, kernel
from .topology import NICS

# Modules needed to mount the host's root, and the network card's come with it; built-in ones are skipped.
BOOT_MODULES = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"]


@functools.cache
def init_program():
    """The guest's first process: init, then agent."""
    return compiled.program("init", ["init.cpp", "agent.cpp", "agent.hpp", "frame.hpp"]).read_bytes()


def _decompress(path):
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", str(path)], check=True, capture_output=True).stdout
    return data


@functools.cache
def boot_modules(name, nic):
    """[(file name, contents)] in the order of insertion."""
    tree = kernel.path(name) / "root" / "lib" / "modules" / kernel.release(name)
    depends = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        own, _, others = line.partition(":")
        depends[own] = others.split()
    by_name = {path.rsplit("/", 1)[-1].split(".ko")[0].replace("-", "_"): path for path in depends}
    order = []
    for wanted in [*BOOT_MODULES, NICS[nic]]:
        path = by_name.get(wanted.replace("-", "_"))
        if path is None:
            continue  # built in; init reports a kernel that has it in neither form
        for each in [*reversed(depends[path]), path]:
            if each not in order:
                order.append(each)
    return [(path.rsplit("/", 1)[-1].split(".ko")[0] + ".ko", _decompress(tree / path)) for path in order]


def _entry(name, mode, data, inode):
    """One file of a cpio archive in the `newc` format (Documentation/driver-api/early-userspace)."""
    raw = name.encode() + b"\0"
    device = (5, 1) if name == "dev/console" else (0, 0)
    fields = [inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(raw), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + raw
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def archive(files):
    """A cpio archive of [(name, mode, contents)]; directories have a mode of 040755."""
    entries = [_entry(name, mode, data, number + 1) for number, (name, mode, data) in enumerate(files)]
    return b"".join(entries) + _entry("TRAILER!!!", 0, b"", 0)


def machine_id(name):
    """The id of a machine for machine-id(5): each boot has the same one, and no other machine, nor the host."""
    return hashlib.md5(name.encode()).hexdigest()


def setup_script(topology, machine):
    """Names and addresses, set once the guest's root is there."""
    own = "vec" if kernel.is_uml(machine.kernel) else "eth"
    quoted_hosts = shlex.quote(topology.hosts(machine.name))
    lines = ["set -e", f"hostname {machine.name}", f"printf %s {quoted_hosts} > /etc/hosts",
             f"echo {machine.name} > /etc/hostname", f"echo {machine_id(machine.name)} > /etc/machine-id", "ip -batch - <<'END'", "link set lo up"]
    for index, link in enumerate(topology.links_of(machine.name)):
        lines += [f"link set {own}{index} name eth{index}"] if own != "eth" else []
        for address in link.addresses[machine.name]:
            nodad = " nodad" if address.version == 6 else ""
            lines.append(f"addr add {address} dev eth{index}{nodad}")
        lines.append(f"link set eth{index} mtu {link.mtu} up")
    return "\n".join([*lines, "END"]) + "\n"


def build(topology, machine, layers):
    """The initramfs of one machine; `layers` are the shares that lie over the host's root, {name: directory}."""
    modules = boot_modules(machine.kernel, machine.nic)
    tree = kernel.path(machine.kernel).resolve() / "root" / "lib" / "modules" / kernel.release(machine.kernel)
    conf = [f"module {name}" for name, _ in modules]
    conf += ["native"] if kernel.is_uml(machine.kernel) else []
    conf += [f"lower {name} {path}" for name, path in layers.items()]
    conf.append(f"modules {tree}")
    for kept in (cache.REPO, cache.root()):
        if str(kept).startswith(("/tmp/", "/run/")):
            conf.append(f"keep {kept}")
    files = [("dev", 0o040755, b""), ("dev/console", 0o020600, b""), ("init", 0o100755, init_program()),
             ("lab.conf", 0o100644, ("\n".join(conf) + "\n").encode()),
             ("setup.sh", 0o100644, setup_script(topology, machine).encode())]
    files += [(name, 0o100644, data) for name, data in modules]
    return archive(files)
