# SPDX-License-Identifier: GPL-2.0
"""Declared state without modules: remora apply --check, systemd's generator of units, and systemd's check of these."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLI = ROOT / "out/bin/remora"

GOOD = """[node]
memory = 16G
[space 1]
key = /etc/remora/a.key
[device db]
node = 10.0.0.2
key = /etc/remora/a.key
size = 8G
swap = yes
[device a-b.c]
node = host
key = /etc/remora/a.key
programs = yes
[eqds eq0]
link = eth-0
"""


class Declared(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="declared-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "remora.conf.d").mkdir()

    def declare(self, text, file="remora.conf"):
        (self.folder / file).write_text(text)

    def apply(self, *words):
        return subprocess.run([CLI, "apply", "--config", self.folder, *words], capture_output=True, text=True, timeout=60,
                              check=False)

    @unittest.skipIf(pathlib.Path("/sys/module/rmem").exists(), "this machine has the module")
    def test_check_lists_changes_and_makes_none(self):
        self.declare(GOOD)
        done = self.apply("--check")
        self.assertEqual(done.returncode, 4, done)
        self.assertEqual(done.stdout, "node: to be started\nspace/1: to be added\neqds/eq0: to be added\n"
                                      "device/db: to be attached\ndevice/db: to be made swap\n"
                                      "device/a-b.c: to be attached\n")
        some = self.apply("--check", "--json", "node", "device/db")
        self.assertEqual([(each["resource"], each["state"]) for each in json.loads(some.stdout)],
                         [("node", "to-be-changed"), ("device/db", "to-be-changed")])

    def test_nothing_is_declared_and_nothing_to_be_done(self):
        self.declare("# nothing yet\n")
        done = self.apply("--check")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_folder_without_files_is_a_mistake_and_takes_nothing_down(self):
        done = self.apply()
        self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        self.assertIn(f"there is no {self.folder}/remora.conf", done.stderr)

    @unittest.skipIf(pathlib.Path("/sys/module/rmem").exists(), "this machine has the module")
    def test_mistake_elsewhere_keeps_no_named_resource_back(self):
        self.declare(GOOD)
        self.declare("[eqds other]\nbogus = 3\n", "remora.conf.d/b.conf")
        done = self.apply("--check", "device/db")
        self.assertEqual(done.returncode, 4, done)
        self.assertEqual(done.stdout, "device/db: to be attached\ndevice/db: to be made swap\n")
        self.assertIn("b.conf:2: [eqds] has no key 'bogus'", done.stderr)
        self.assertEqual(self.apply("--check", "eqds/other").returncode, 2)

    def test_mistakes_are_lines_with_their_place(self):
        self.declare("[node]\nmemry = 1G\n")
        self.declare("size = 1\n", "remora.conf.d/b.conf")
        for words in ((), ("--check",)):
            done = self.apply(*words)
            self.assertEqual(done.returncode, 2, done)
            self.assertEqual(done.stderr.splitlines(),
                             [f"remora: {self.folder}/remora.conf:2: [node] has no key 'memry': is it 'memory'?",
                              f"remora: {self.folder}/remora.conf.d/b.conf:1: the line belongs to no section: write [node], "
                              "[device NAME] ... before"])

    def test_unknown_resource_is_refused(self):
        self.declare(GOOD)
        done = self.apply("--check", "device/other")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'device/other' is not declared in", done.stderr)

    def generate(self):
        units = self.folder / "normal"
        done = subprocess.run([CLI, "generator", "--config", self.folder, "--units", "/u", units, units, units],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return units

    def test_generator_wants_a_unit_for_each_resource(self):
        self.declare(GOOD)
        units = self.generate()
        wants = units / "multi-user.target.wants"
        self.assertEqual({each: os.readlink(wants / each) for each in os.listdir(wants)},
                         {"remora-device@db.service": "/u/remora-device@.service",
                          "remora-device@a-b.c.service": "/u/remora-device@.service",
                          "remora-lend.service": "/u/remora-lend.service"})
        # An absent link starts no job that a boot would wait for.
        link = "sys-subsystem-net-devices-eth\\x2d0.device"
        self.assertEqual(os.readlink(units / f"{link}.wants/remora-eqds@eq0.service"), "/u/remora-eqds@.service")
        self.assertIn(f"After={link}\n", (units / "remora-eqds@eq0.service.d/link.conf").read_text())

    def test_generator_leaves_out_sections_with_mistakes(self):
        self.declare(GOOD + "colour = red\n")
        units = self.generate()
        self.assertEqual(os.listdir(units), ["multi-user.target.wants"])
        self.assertIn("remora-lend.service", os.listdir(units / "multi-user.target.wants"))

    def test_generator_makes_nothing_of_nothing(self):
        self.assertFalse(self.generate().exists())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "this machine has no systemd")
    def test_systemd_accepts_the_units(self):
        (self.folder / "bin").mkdir()
        for program in ("remora", "remora-node"):
            (self.folder / "bin" / program).symlink_to(CLI.with_name(program))
        subprocess.run([ROOT / "tools/systemd/install", "", self.folder], check=True)
        units = self.folder / "lib/systemd/system"
        for template, instance in (("remora-device@", "db"), ("remora-eqds@", "eq0")):
            shutil.copy(units / f"{template}.service", units / f"{template}{instance}.service")
        names = ["remora-device@db.service", "remora-eqds@eq0.service", "remora-lend.service", "remora-node.service"]
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *(units / name for name in names)],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        exposure_max = "25"  # 2.5, OK
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={exposure_max}",
                               units / "remora-node.service"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # The generator that is installed is the one that was tested above.
        self.assertTrue(os.access(self.folder / "lib/systemd/system-generators/remora-generator", os.X_OK))


if __name__ == "__main__":
    unittest.main()
