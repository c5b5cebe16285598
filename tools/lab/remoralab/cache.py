# SPDX-License-Identifier: GPL-2.0
"""The cache outside the tree: kernels, guest tools, the guest's agent.

Every entry is a directory that appears whole or not at all: it is filled under a temporary name
and renamed into place, under a lock, so that two labs started at once build it once.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[3]
LAB = REPO / "tools" / "lab"


def root():
    explicit = os.environ.get("REMORA_CACHE")
    if explicit:
        return pathlib.Path(explicit).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base).absolute() / "remora"


@contextlib.contextmanager
def locked(name):
    """Holds the named lock of the cache; released by the kernel when the holder dies."""
    lock_dir = root() / "lock"
    lock_dir.mkdir(parents=True, exist_ok=True)
    with open(lock_dir / name, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def filling(target):
    """Yields a scratch directory that becomes `target` if the body succeeds."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield scratch
        scratch.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def keep_newest(home, count, pattern="*"):
    """Removes all but the newest entries: one more than the current stays for a lab that runs on it."""
    entries = [path for path in home.glob(pattern) if path.is_dir() and not path.is_symlink()]
    for old in sorted(entries, key=lambda path: path.stat().st_mtime)[:-count]:
        shutil.rmtree(old, ignore_errors=True)
