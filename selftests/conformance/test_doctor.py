# SPDX-License-Identifier: GPL-2.0
"""remora doctor: each fault, put alone into the files of a healthy machine, is named with its remedy."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REMORA = ROOT / "out/bin/remora"
NOBODY = 65534
VERSION = subprocess.run([REMORA, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout.split()[1]
SWAPS = "Filename\tType\tSize\tUsed\tPriority\n"
CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
HEALTHY = {
    "proc/swaps": SWAPS + "/dev/rmb0\tpartition\t1048572\t0\t100\n/dev/sda2\tpartition\t1048572\t0\t-2\n",
    "proc/sys/vm/min_free_kbytes": "16384\n",
    "proc/sys/kernel/osrelease": "6.12.9-test\n",
    "sys/module/rmem/version": VERSION + "\n",
    "sys/block/rmb0/rmem/state": "up\n",
    "sys/block/rmb0/rmem/node": "10.0.0.2:7670\n",
    "sys/block/rmb0/queue/nr_requests": "128\n",
    "sys/block/rmb0/queue/max_sectors_kb": "256\n",
    "sys/block/sda/queue/nr_requests": "64\n",
    "sys/fs/cgroup/memory.max": "max\n",
    "sys/fs/cgroup/large.slice/memory.max": f"{1 << 30}\n",
    "sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
    "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled": "always inherit madvise [never]\n",
    "sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled": "[always] inherit madvise never\n",
    "lib/modules/6.12.9-test/modules.dep": "updates/dkms/rmem.ko: updates/dkms/remora_core.ko\n",
    "lib/modules/6.12.9-test/updates/dkms/rmem.ko": "ELF...~Module signature appended~\n",
    "etc/remora/rack.key": "00112233445566778899aabbccddeeff\n",
    CLOCK: "tsc\n",
    "var/lib/kubelet/config.yaml": "failSwapOn: false\n",
}
KO = "lib/modules/6.12.9-test/updates/dkms/rmem.ko"
SWAPPED = "/dev/rmb0\tpartition\t1048572\t0\t100\n"
# The check's name: the files that differ (None: it isn't there), and a part of the remedy.
FAULTS = {
    "module": ({"sys/module/rmem/version": None, "sys/block/rmb0/rmem/state": None}, "modprobe rmem"),
    "module, not built": ({"sys/module/rmem/version": None, "sys/block/rmb0/rmem/state": None, KO: None,
                           "lib/modules/6.12.9-test/modules.dep": None}, "build and install the modules"),
    "module, unsupported kernel": ({"sys/module/rmem/version": None, "sys/block/rmb0/rmem/state": None,
                                    "proc/sys/kernel/osrelease": "6.18.1-test\n"}, "boot one of these kernels"),
    "version": ({"sys/module/rmem/version": "0.0.9\n"}, "reboot"),
    "signature": ({"sys/kernel/security/lockdown": "none [integrity] confidentiality\n", KO: "ELF..."}, "mokutil --import"),
    "content-lost": ({"sys/block/rmb0/rmem/state": "lost\n"}, "remora detach --force rmb0"),
    "min-free": ({"proc/sys/vm/min_free_kbytes": "2048\n"}, "sysctl vm.min_free_kbytes=8192"),
    "cgroup": ({"sys/fs/cgroup/small.slice/job/memory.max": f"{16 << 20}\n"},
               "echo 8 > /sys/block/rmb0/queue/nr_requests"),
    "throttled-swap": ({"sys/block/rmb0/queue/wbt_lat_usec": "2000\n"}, "echo 0 > /sys/block/rmb0/queue/wbt_lat_usec"),
    "swap-deleted": ({"proc/swaps": SWAPS + "/dev/rmb1\\040(deleted)\tpartition\t8\t0\t100\n" + SWAPPED}, "reboot"),
    "swap-priority": ({"proc/swaps": SWAPS + "/dev/sda2\tpartition\t8\t0\t200\n" + SWAPPED},
                      "swapon --discard --priority 100 /dev/rmb0"),
    "mthp": ({"sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled": "[always] inherit madvise never\n"},
             "echo madvise > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"),
    "kubelet": ({"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"},
                "set failSwapOn: false in /var/lib/kubelet/config.yaml"),
    "clock": ({CLOCK: "hpet\n"}, "echo tsc"),
}


def written(root, files):
    for name, text in files.items():
        path = pathlib.Path(root) / name
        if text is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o600)


class Doctor(unittest.TestCase):
    def doctor(self, files, *words):
        """The exit code and output for a machine with these files."""
        with tempfile.TemporaryDirectory() as root:
            written(root, files)
            return self.doctor_at(root, *words)

    def doctor_at(self, root, *words):
        began = time.monotonic()
        done = subprocess.run([REMORA, "doctor", "--root", root, *words], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stderr, "")
        self.assertLess(time.monotonic() - began, 30)  # 5 s are asked for; the host is busy
        return done.returncode, done.stdout

    def test_healthy_machine_prints_nothing(self):
        self.assertEqual(self.doctor(HEALTHY), (0, ""))
        self.assertEqual(self.doctor(HEALTHY, "--json"), (0, "[]\n"))

    def test_each_fault_is_named_with_its_remedy(self):
        for name, (differs, remedy) in FAULTS.items():
            with self.subTest(name):
                code, text = self.doctor(HEALTHY | differs, "--json")
                faults = json.loads(text)
                self.assertEqual((code, [fault["check"] for fault in faults]), (1, [name.split(",")[0]]), faults)
                self.assertIn(remedy, faults[0]["command"])
                code, line = self.doctor(HEALTHY | differs)
                self.assertEqual((code, line), (1, "{what}: {why}: {command}\n".format(**faults[0])))

    def test_key_that_others_can_read_is_named(self):
        with tempfile.TemporaryDirectory() as root:
            written(root, HEALTHY)
            os.chmod(pathlib.Path(root) / "etc/remora/rack.key", 0o640)
            code, text = self.doctor_at(root)
            self.assertEqual(code, 1)
            self.assertIn("chmod 600 /etc/remora/rack.key", text)
            _, text = self.doctor_at(root, "--key", "/nowhere/x.key")
            self.assertIn("there is no key file /nowhere/x.key", text)

    def test_it_ends_in_time_beside_a_silent_daemon(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = f"{folder}/remora-node.sock"
            listener.bind(path)
            listener.listen()
            os.chmod(folder, 0o755)
            os.chmod(path, 0o777)
            # A user's daemon; root's would be at a path that all of this machine share.
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
            done = subprocess.run([REMORA, "doctor", "--json"], capture_output=True, text=True, timeout=5, check=False,
                                  env=os.environ | {"XDG_RUNTIME_DIR": folder}, **user)
        self.assertIn("node-still", [fault["check"] for fault in json.loads(done.stdout)], done)

    def test_machine_that_does_not_swap_may_have_any_swap_setting(self):
        quiet = {"proc/swaps": SWAPS, "sys/fs/cgroup/small.slice/memory.max": "1048576\n",
                 "var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}
        self.assertEqual(self.doctor(HEALTHY | quiet), (0, ""))


if __name__ == "__main__":
    unittest.main()
