# SPDX-License-Identifier: GPL-2.0
"""Debian packages, downloaded and unpacked without being installed (and without root)."""

import os
import pathlib
import subprocess

from .say import LabError

# apt downloads as the caller: its _apt user can't write into a cache under somebody's home.
_APT = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
_ENV = dict(os.environ, LC_ALL="C")


def output(argv, cwd=None):
    done = subprocess.run(argv, cwd=cwd, env=_ENV, text=True, capture_output=True)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise LabError(f"{' '.join(argv[:2])} failed: {last} (is apt's list current? try: apt-get update)")
    return done.stdout


def direct_depends(package):
    """Names in Depends and Pre-Depends: the first alternative of each, versions dropped."""
    names, skip_alternative = [], False
    for line in output(["apt-cache", "depends", package]).splitlines():
        text = line.strip()
        alternative = text.startswith("|")
        text = text.lstrip("|")
        if text.startswith(("Depends:", "PreDepends:")):
            if not skip_alternative:
                names.append(text.split(":", 1)[1].strip())
            skip_alternative = alternative
    return names


def candidate_version(package):
    for line in output(["apt-cache", "policy", package]).splitlines():
        if line.strip().startswith("Candidate:"):
            version = line.split(":", 1)[1].strip()
            if version != "(none)":
                return version
    raise LabError(f"no package {package} in apt's sources (a Debian 12 host with bookworm-security is expected)")


def download(packages, into):
    """Downloads the packages' newest .deb files into a directory; returns their paths."""
    output(["apt-get", *_APT, "-q", "download", *packages], cwd=into)
    return sorted(pathlib.Path(into).glob("*.deb"))


def unpack(deb, into):
    output(["dpkg-deb", "-x", str(deb), str(into)])


def installed():
    """Names of the packages installed on the host, with what they provide."""
    listing = output(["dpkg-query", "-W", "-f", "${db:Status-Status}\t${Package}\t${Provides}\n"])
    names = set()
    for line in listing.splitlines():
        status, package, provides = line.split("\t")
        if status != "installed":
            continue
        names.add(package)
        names.update(item.split("(")[0].strip() for item in provides.split(",") if item.strip())
    return names
