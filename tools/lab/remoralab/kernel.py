# SPDX-License-Identifier: GPL-2.0
"""Kernels for the machines of the lab, in the cache and never on the host.

    cache/kernel/NAME/
        vmlinuz      as its package or its build made it
        vmlinux      unpacked, what QEMU boots
        release      its uname -r
        config       its configuration
        root/        lib/modules/RELEASE (with depmod's files), and for stock kernels usr/src
        kdir         KDIR for building modules: headers, or the build directory

6.1 and 6.12 are Debian's own; the others are built here from linux-source-6.12: debug with the sanitizers
on, uml as a program of the host (arch/um), uml-debug as both. User Mode Linux has no vmlinuz; vmlinux is the program.
Debian's cloud flavour has no 9p, from which the guests live, so the generic flavour it is.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess

from . import cache, debian, say, vmlinux
from .say import LabError

STOCK = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}

SOURCE_PACKAGE = "linux-source-6.12"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A kernel built here."""

    arch: str
    fragments: list
    patches: list  # of the source; of no file that another recipe's kernel is made of
    image: str  # make's target, and the file below the build directory
    steps: int  # lines kbuild prints; only the progress bar depends on it


def _fragments(*patterns):
    """Configuration fragments in the order of their names' numbers."""
    found = [path for pattern in patterns for path in (cache.LAB / "config").glob(pattern)]
    return sorted(found, key=lambda path: path.name)


_UM_PATCHES = _fragments("um/*.patch")
BUILT = {
    "debug": Recipe("x86", _fragments("*.config"), [], "arch/x86/boot/bzImage", 2700),
    "uml": Recipe("um", _fragments("um/[03]*.config", "[123]*.config"), _UM_PATCHES, "linux", 1700),
    "uml-debug": Recipe("um", _fragments("um/*.config", "[1-9]*.config"), _UM_PATCHES, "linux", 1700),
}
NAMES = [*STOCK, *BUILT]


def directory(name):
    if name not in NAMES:
        raise LabError(f"no kernel '{name}': there are {', '.join(NAMES)}")
    return cache.root() / "kernel" / name


def is_uml(name):
    """Whether a kernel is a program of the host, and no machine's."""
    return name in BUILT and BUILT[name].arch == "um"


def is_debug(name):
    """Whether a kernel has the sanitizers."""
    return name.endswith("debug")


def path(name):
    """The kernel's directory in the cache; explains how to get it if it isn't there."""
    found = directory(name)
    if not (found / "release").exists():
        raise LabError(f"kernel {name} is not in the cache: run tools/lab/kernel fetch {name}")
    return found


def image(name):
    """The image that QEMU boots, or the program of a User Mode Linux."""
    home = path(name)
    unpacked = home / "vmlinux"
    with cache.locked(f"kernel-{name}"):
        if not unpacked.exists():
            fresh = home / f".vmlinux-{os.getpid()}"
            fresh.write_bytes(vmlinux.unpack(home / "vmlinuz"))
            fresh.replace(unpacked)
    return unpacked


@functools.cache
def _loadable(name):
    """The modules that come with a kernel, by name."""
    tree = path(name) / "root" / "lib" / "modules" / release(name)
    names = (line.partition(":")[0].rsplit("/", 1)[-1].split(".ko")[0]
             for line in (tree / "modules.dep").read_text().splitlines())
    return {each.replace("-", "_") for each in names}


def modules_needed(name, module):
    """The kernel's own modules that a module file depends on directly."""
    depends = subprocess.run([_tool("modinfo"), "-F", "depends", module], check=True, capture_output=True,
                             text=True).stdout
    return {each.replace("-", "_") for each in depends.strip().split(",")} & _loadable(name)


def kdir(name):
    return (path(name) / "kdir").resolve()


def release(name):
    return (path(name) / "release").read_text().strip()


def fetch(name, update=False):
    """Brings the kernel into the cache unless it is there; returns its directory."""
    target = directory(name)
    with cache.locked(f"kernel-{name}"):
        if name in BUILT:
            _fetch_built(name, target, update)
        elif update or not (target / "release").exists():
            _fetch_stock(name, target)
    return target


def _tool(name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not found:
        raise LabError(f"{name} is missing: run tools/lab/deps")
    return found


def _depmod(root, uname):
    subprocess.run([_tool("depmod"), "-b", str(root), uname], check=True)


def _fetch_stock(name, target):
    image = next((n for n in debian.direct_depends(STOCK[name]) if n.startswith("linux-image-")), None)
    if image is None:
        raise LabError(f"{STOCK[name]} depends on no kernel image: is apt's list current? try: apt-get update")
    headers = image.replace("linux-image-", "linux-headers-")
    packages = [image, headers]
    packages += [n for n in debian.direct_depends(headers)
                 if n.startswith(("linux-kbuild-", "linux-headers-"))]
    uname = image.removeprefix("linux-image-")
    say.stage(f"kernel {name}: downloading Debian's {uname} and its headers")
    with cache.filling(target) as scratch:
        root = scratch / "root"
        root.mkdir()
        for deb in debian.download(packages, scratch):
            debian.unpack(deb, root)
            deb.unlink()
        say.stage(f"kernel {name}: unpacked, indexing modules")
        shutil.copyfile(root / "boot" / f"vmlinuz-{uname}", scratch / "vmlinuz")
        shutil.copyfile(root / "boot" / f"config-{uname}", scratch / "config")
        _depmod(root, uname)
        _relocate_headers(root, target / "root")
        modules = root / "lib" / "modules" / uname
        for link in ("build", "source"):
            (modules / link).unlink(missing_ok=True)
        (modules / "build").symlink_to(f"../../../usr/src/linux-headers-{uname}")
        (scratch / "kdir").symlink_to(f"root/usr/src/linux-headers-{uname}")
        (scratch / "release").write_text(uname + "\n")
    say.stage(f"kernel {name}: {uname} ready in {target}")


def _relocate_headers(root, final_root):
    """Debian's header Makefiles include each other by absolute path; point them into the cache."""
    for makefile in (root / "usr" / "src").glob("linux-headers-*/Makefile"):
        text = makefile.read_text()
        if "/usr/src/linux-headers-" in text[:200]:
            makefile.write_text(text.replace("/usr/src/", f"{final_root}/usr/src/"))


def source():
    """The unpacked kernel source in the cache."""
    version = debian.candidate_version(SOURCE_PACKAGE)
    target = cache.root() / "kernel" / f"source-{version}"
    with cache.locked("kernel-source"):
        if not target.exists():
            say.stage(f"source: downloading {SOURCE_PACKAGE} {version}")
            with cache.filling(target) as scratch:
                [deb] = debian.download([SOURCE_PACKAGE], scratch)
                debian.unpack(deb, scratch / "deb")
                deb.unlink()
                say.stage("source: unpacking")
                tarball = scratch / "deb" / "usr" / "src" / f"{SOURCE_PACKAGE}.tar.xz"
                subprocess.run(["tar", "-C", str(scratch), "--strip-components=1", "-xf", str(tarball)],
                               check=True)
                shutil.rmtree(scratch / "deb")
    return target


def _apply(patches, src):
    """Applies them once, in the place of older versions of themselves."""
    for patch in patches:
        applied = src / f"{patch.name}.applied"
        with cache.locked("kernel-source"):
            if applied.exists() and applied.read_bytes() == patch.read_bytes():
                continue
            if applied.exists():
                subprocess.run(["patch", "-s", "-R", "-p1", "-d", str(src), "-i", str(applied)], check=True)
            subprocess.run(["patch", "-s", "-p1", "-d", str(src), "-i", str(patch)], check=True)
            shutil.copyfile(patch, applied)


def _inputs(recipe):
    """Names what a kernel is built of, apart from the unpatched source."""
    digest = hashlib.sha256(subprocess.run(["gcc", "--version"], capture_output=True, check=True).stdout)
    for part in recipe.fragments + recipe.patches:
        digest.update(part.read_bytes())
    return digest.hexdigest()


def _fetch_built(name, target, update):
    """Builds in kernel/NAME-KEY and points kernel/NAME at it: an interrupted build resumes."""
    inputs = _inputs(BUILT[name])
    if not update and (target / "inputs").exists() and (target / "inputs").read_text() == inputs:
        return
    src = source()
    _apply(BUILT[name].patches, src)
    key = hashlib.sha256((src.name + inputs).encode()).hexdigest()[:16]
    build_home = target.parent / f"{name}-{key}"
    if not (build_home / "release").exists():
        _build(name, src, build_home)
    (build_home / "inputs").write_text(inputs)
    fresh = target.parent / f".{name}-link-{os.getpid()}"
    fresh.symlink_to(build_home.name)
    fresh.replace(target)
    cache.keep_newest(target.parent, 2, f"{name}-{'[0-9a-f]' * 16}")


def _make(name, src, build, *goals, progress=None):
    argv = ["nice", "-n", "10", "make", "-C", str(src), f"O={build}", f"-j{os.cpu_count()}", f"ARCH={BUILT[name].arch}",
            "KBUILD_BUILD_USER=remora", "KBUILD_BUILD_HOST=lab", *goals]
    log = build / "build.log"
    with open(log, "a") as out, subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as child:
        for line in child.stdout:
            out.write(line)
            if progress:
                progress.step(line.strip())
    if child.returncode != 0:
        tail = "".join(log.read_text().splitlines(keepends=True)[-15:])
        raise LabError(f"building the {name} kernel failed; the end of {log}:\n{tail}")


def _check_config(recipe, src, config):
    """Kconfig drops silently what it can't satisfy; a sanitizer that stayed off must not pass unseen."""
    have = config.read_text()
    wanted = {}
    for fragment in recipe.fragments:
        for line in fragment.read_text().splitlines():
            match = re.match(r"(?:# )?(CONFIG_\w+)(?:=(.*)| is not set)$", line)
            if match:
                wanted[match[1]] = match[2]
    missing = []
    for symbol, value in wanted.items():
        present = re.search(rf"^{symbol}=(.*)$", have, re.M)
        if (present[1] if present else None) != (None if value == "n" else value):
            missing.append(f"{symbol}={value or 'n'}")
    if missing:
        raise LabError(f"{src.name} did not take from tools/lab/config: {', '.join(missing)}")


def _build(name, src, home):
    if platform.machine() != "x86_64":
        raise LabError(f"the {name} kernel is built for x86_64 hosts only")
    recipe = BUILT[name]
    build = home / "build"
    build.mkdir(parents=True, exist_ok=True)
    (build / "build.log").write_text("")
    say.stage(f"kernel {name}: configuring {src.name}")
    _make(name, src, build, "tinyconfig")
    merge = [str(src / "scripts/kconfig/merge_config.sh"), "-m", "-O", str(build), str(build / ".config"),
             *map(str, recipe.fragments)]
    subprocess.run(merge, check=True, cwd=src, stdout=subprocess.DEVNULL)
    _make(name, src, build, "olddefconfig")
    _check_config(recipe, src, build / ".config")
    say.stage(f"kernel {name}: building in {build} (4 to 8 minutes on 2 CPUs)")
    _make(name, src, build, pathlib.Path(recipe.image).name, "modules",
          progress=say.Progress(f"kernel {name}", recipe.steps))
    uname = (build / "include/config/kernel.release").read_text().strip()
    root = home / "root"
    shutil.rmtree(root, ignore_errors=True)
    _make(name, src, build, "modules_install", f"INSTALL_MOD_PATH={root}")
    _depmod(root, uname)
    shutil.copy(build / recipe.image, home / ("vmlinux" if is_uml(name) else "vmlinuz"))
    shutil.copyfile(build / ".config", home / "config")
    if not (home / "kdir").is_symlink():
        (home / "kdir").symlink_to("build")
    (home / "release").write_text(uname + "\n")
    say.stage(f"kernel {name}: {uname} ready in {home}")
