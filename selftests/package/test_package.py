# SPDX-License-Identifier: GPL-2.0
"""Packages as `make deb` leaves them in out/package: complete, without complaints of lintian, and their modules' source
builds by dkms for the kernels that they are for. Nothing is installed."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "out/package"
LIST = ROOT / "tools/package/list"
sys.path.insert(0, str(ROOT / "tools/lab"))
from remoralab import kernel  # noqa: E402


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def deb(name):
    [found] = PACKAGES.glob(f"{name}_*.deb")
    return found


def files(name):
    """The files of a package."""
    lines = run("dpkg-deb", "-c", deb(name)).splitlines()
    return {line.split()[5].removeprefix(".") for line in lines if not line.split()[5].endswith("/")}


class Package(unittest.TestCase):
    def test_lintian_has_no_errors_and_warnings(self):
        said = run("lintian", "--fail-on", "none", "--tag-display-limit", "0", *sorted(PACKAGES.glob("*.deb")))
        self.assertEqual([line for line in said.splitlines() if line.startswith(("E:", "W:"))], [], said)

    def test_programs_need_no_path_of_the_build(self):
        for name in ("remora", "remora-node", "remora-apps", "libremote0", "libeqds0", "libcmmc0", "nbdkit-remora-plugin"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                run("dpkg-deb", "-x", deb(name), folder)
                for path in pathlib.Path(folder).glob("usr/**/*"):
                    if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
                        self.assertNotIn("PATH)", run("readelf", "-d", path))
                        self.assertNotIn(str(ROOT).encode(), path.read_bytes(), path)

    def test_the_python_package_runs_with_the_librarys(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("python3-remora", "libremote0"):
                run("dpkg-deb", "-x", deb(name), folder)
            root = pathlib.Path(folder) / "usr"
            [library] = root.glob("lib/*/libremote.so.0")
            said = run("/usr/bin/python3", root / "share/doc/python3-remora/examples/hello.py",
                       env={**os.environ, "PYTHONPATH": root / "lib/python3/dist-packages", "LD_LIBRARY_PATH": library.parent})
            self.assertIn("64 chunks came back", said)

    def test_every_module_is_in_a_package(self):
        for package in PACKAGES.glob("remora-modules-*.deb"):
            modules = {pathlib.Path(path).stem for path in files(package.name.split("_")[0]) if path.endswith(".ko")}
            # Kbuild leaves these two out of kernels that lack BTF or DMA engines.
            self.assertEqual(modules | {"rmem_bpf", "softdma"}, set(run(LIST, "modules").split()))
        self.assertIn("rmem_marlin", run(LIST, "modules", "--marlin").split())

    def test_an_upgrade_stops_no_service(self):
        for name in ("remora", "remora-node"):
            with tempfile.TemporaryDirectory() as folder:
                run("dpkg-deb", "-e", deb(name), folder)
                for script in pathlib.Path(folder).iterdir():
                    self.assertNotIn("try-restart", script.read_text())

    def test_needrestart_leaves_the_daemon_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            run("dpkg-deb", "-x", deb("remora-node"), folder)
            conf = pathlib.Path(folder) / "etc/needrestart/conf.d/remora.conf"
            # As needrestart reads it and looks a service up.
            answer = run("perl", "-we", 'our %nrconf; eval do { local (@ARGV, $/) = $ARGV[0]; <> }; die $@ if $@;'
                         'for (keys %{$nrconf{override_rc}}) { print $nrconf{override_rc}{$_} if "remora-node.service" =~ /$_/ }',
                         conf)
            self.assertEqual(answer, "0")


class Dkms(unittest.TestCase):
    """Without root: dkms with trees of its own, against unpacked headers."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.version = run(LIST, "version").strip()
        for name in ("dkms", "modules"):
            (self.folder / name).mkdir()

    def dkms(self, verb, package, kernel_name, config=None):
        if not (self.folder / "usr").exists():
            for each in ("remora-dkms", "remora-marlin-dkms"):
                run("dpkg-deb", "-x", deb(each), self.folder)
        options = ["--dkmstree", self.folder / "dkms", "--sourcetree", self.folder / "usr/src", "--installtree",
                   self.folder / "modules", "--kernelsourcedir", kernel.kdir(kernel_name), "-k", kernel.release(kernel_name),
                   *(["--config", config] if config else [])]
        return subprocess.run(["dkms", verb, "-m", package, "-v", self.version, *options], capture_output=True, text=True,
                              check=False, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})

    def builds(self, kernel_name):
        kernel.fetch(kernel_name)
        done = self.dkms("build", "remora", kernel_name)
        log = self.folder / "dkms/remora" / self.version / "build/make.log"
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + (log.read_text() if log.exists() else ""))
        built = {path.stem for path in (self.folder / "dkms").glob("remora/*/*/x86_64/module/*.ko")}
        expected = set(run(LIST, "modules").split()) - ({"rmem_bpf"} if kernel_name == "6.1" else set())
        self.assertEqual(built, expected)

    def test_builds_for_6_12(self):
        self.builds("6.12")

    def test_builds_for_6_1(self):
        self.builds("6.1")

    def test_skips_kernels_without_ntb(self):
        done = self.dkms("build", "remora-marlin", "6.12")
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
