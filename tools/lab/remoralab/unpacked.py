# SPDX-License-Identifier: GPL-2.0
"""Debian packages unpacked into the cache, never installed: what a list names and the host lacks.

A server package installed on the host would start there. So each package of the list, and each
dependency that the host lacks, is downloaded and unpacked into one directory; what the host has is
taken from there.
"""

import hashlib
import os
import re
import shutil

from . import cache, debian, say

DPKG_STATUS = "/var/lib/dpkg/status"


class Unpacked:
    """The packages of a list, a file of names, under a name in the cache."""

    def __init__(self, name, listed):
        self.name, self.listed = name, listed

    def wanted(self):
        lines = (line.split("#", 1)[0] for line in self.listed.read_text().splitlines())
        return [word for line in lines for word in line.split()]

    def missing(self):
        """The packages to unpack: those of the list and their dependencies that the host hasn't installed."""
        have = debian.installed()
        graph, providers = _graph(self.wanted())
        chosen, queue = set(), [name for name in self.wanted() if name not in have]
        while queue:
            name = queue.pop()
            if name.startswith("<") and providers.get(name):
                name = providers[name][0]
            if name in chosen or name in have or name.startswith("<"):
                continue
            chosen.add(name)
            for alternatives in graph.get(name, []):
                if not any(_satisfied(each, have, providers) for each in alternatives):
                    queue.append(alternatives[0])
        return sorted(chosen)

    def directory(self):
        """Where they are; worked out anew when the list or what the host has installed changed."""
        stamp = hashlib.sha256(self.listed.read_bytes() + str(os.stat(DPKG_STATUS).st_mtime_ns).encode()).hexdigest()
        home = cache.root() / self.name
        memo = home / "memo"  # the stamp, and the directory it led to
        with cache.locked(self.name):
            if memo.exists():
                known, name = memo.read_text().split()
                if known == stamp and (home / name).exists():
                    return home / name
            packages = self.missing()
            target = home / hashlib.sha256(" ".join(packages).encode()).hexdigest()[:16]
            if not target.exists():
                self._unpack(packages, target)
                cache.keep_newest(home, 2)
            if os.access(home, os.W_OK):  # else the directory is worked out each time
                fresh = memo.with_suffix(".new")
                fresh.write_text(f"{stamp} {target.name}")
                fresh.rename(memo)
        return target

    def _unpack(self, packages, target):
        say.stage(f"{self.name}: unpacking {len(packages)} packages the host lacks")
        with cache.filling(target) as scratch:
            (scratch / "usr").mkdir()
            for deb in debian.download(packages, scratch) if packages else []:
                debian.unpack(deb, scratch)
                deb.unlink()
            _merge_usr(scratch)


def _graph(packages):
    """{package: [[alternative, ...], ...]} over everything reachable by dependencies, and {virtual: providers}."""
    text = debian.output(["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests",
                          "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", *packages])
    graph, providers, package, target, joined = {}, {}, None, None, False
    for line in text.splitlines():
        if not line.startswith(" "):
            package = line.strip()
            graph[package], joined = [], False
            continue
        match = re.match(r"\s+(\|?)(?:Pre)?Depends: (\S+)$", line)
        if match:
            target = match[2]
            if joined:
                graph[package][-1].append(target)
            else:
                graph[package].append([target])
            joined = bool(match[1])
        elif target:
            providers.setdefault(target, []).append(line.strip())
    return graph, providers


def _satisfied(name, have, providers):
    return name.strip("<>") in have or any(each in have for each in providers.get(name, []))


def _merge_usr(root):
    """Moves bin, sbin, lib* below usr: the host's are links there, which a directory would hide."""
    for top in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if (root / top).is_dir() and not (root / top).is_symlink():
            shutil.copytree(root / top, root / "usr" / top, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(root / top)
