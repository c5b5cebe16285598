# SPDX-License-Identifier: GPL-2.0
"""nbdkit's plug-in of tools/nbdkit, as nbdcopy, qemu and fio see it: bytes, zeros, holes, names, errors."""

import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time

from served import ROOT, Node, Served, new_key

PLUGIN = ROOT / "out/lib/nbdkit/plugins/nbdkit-remora-plugin.so"
MIB = 1 << 20
PAGE = 1 << 16
NAMES_MAX = 128  # of a space
# Says so on the serial port, writes itself to the disk's next sector by the BIOS, and ends qemu with 1, or 511 if that failed.
BOOT_SECTOR = """
	.code16
	xor %ax, %ax
	mov %ax, %ds
	mov %ax, %es
	cld
	mov $text, %si
1:	lodsb
	test %al, %al
	jz 2f
	mov $0x3f8, %dx
	out %al, %dx
	jmp 1b
2:	mov $0x0301, %ax
	mov $2, %cx
	mov $0x0080, %dx
	mov $0x7c00, %bx
	int $0x13
	sbb %al, %al
	mov $0xf4, %dx
	out %al, %dx
3:	hlt
	jmp 3b
text:	.asciz "a guest from remote memory"
	.org 510
	.word 0xaa55
"""


def run(*words, code=0, cwd=None):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=cwd)
    if done.returncode != code:
        raise AssertionError(f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class Disk:
    """An nbdkit in the background, as its command leaves it."""

    def __init__(self, folder, *words):
        self.socket, self.pid = (pathlib.Path(folder) / name for name in ("nbd", "pid"))
        self.uri = f"nbd+unix:///?socket={self.socket}"
        run("nbdkit", "-U", self.socket, "-P", self.pid, PLUGIN, *words, cwd=folder)
        while not self.pid.exists() or not self.pid.read_text():  # written behind the fork
            time.sleep(0.01)
        self.process = os.pidfd_open(int(self.pid.read_text()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        signal.pidfd_send_signal(self.process, signal.SIGTERM)
        if not select.select([self.process], [], [], 60)[0]:
            raise AssertionError("nbdkit didn't end")
        os.close(self.process)
        for path in (self.socket, self.pid):
            path.unlink()

    def io(self, *commands, code=0):
        """qemu-io's commands."""
        return run("qemu-io", "-f", "raw", *(word for command in commands for word in ("-c", command)), self.uri, code=code)


class Nbdkit(Served):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.view = pathlib.Path(folder.name) / "view"
        new_key(cls.view)
        cls.node = Node(folder.name, "--space", f"2={cls.view},read-only-of=1")
        cls.addClassCleanup(cls.node.stop)

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def disk(self, *words):
        return Disk(self.folder, self.node.target(self.transport), *words)

    def image(self, size=24 * MIB):
        """A file with data and holes."""
        path = self.folder / "image"
        with open(path, "wb") as file:
            file.truncate(size)
            for at in (0, 5 * MIB - 4097, 20 * MIB):
                file.seek(at)
                file.write(os.urandom(2 * MIB + 513))
        return path

    def test_an_image_comes_back(self):
        image, back = self.image(), self.folder / "back"
        with self.disk(f"size={image.stat().st_size}") as disk:
            run("nbdcopy", "--flush", image, disk.uri)
            run("nbdcopy", disk.uri, back)
            self.assertEqual(back.read_bytes(), image.read_bytes())
            run("qemu-img", "compare", "-f", "raw", "-F", "raw", image, disk.uri)
            run("nbdcopy", "--destination-is-zero", disk.uri, "null:")
            disk.io("write -P 7 9M 512")
            self.assertIn("Content mismatch", run("qemu-img", "compare", "-f", "raw", "-F", "raw", image, disk.uri, code=1))
        self.assertEqual([*self.handle.regions()], [])

    def test_parallel_requests_of_several_connections_verify(self):
        with self.disk("size=8M") as disk:
            run("fio", "--name=job", "--ioengine=nbd", f"--uri={disk.uri}", "--rw=randrw", "--bsrange=512-64k", "--size=8M", "--iodepth=32",
                "--verify=crc32c", "--verify_fatal=1", f"--aux-path={self.folder}", "--verify_state_save=0")
            disk.io("write -P 5 0 1M")
            writers = [subprocess.Popen(["qemu-io", "-f", "raw", "-c", f"write -P {i} {i}M 1M", disk.uri], stdout=subprocess.DEVNULL)
                       for i in range(1, 5)]
            for each in writers:
                self.assertEqual(each.wait(60), 0)
            disk.io(*(f"read -P {i} {i}M 1M" for i in range(1, 5)), "read -P 5 0 1M")

    def test_zeros_are_written_where_they_are_asked_for(self):
        with self.disk("size=8M") as disk:
            # Across chunks, inside one, and where nothing was written.
            said = disk.io("write -P 170 0 3M", "write -z 65000 2000000", "read -P 170 0 65000", "read -P 0 65000 2000000",
                           "read -P 170 2065000 1080728", "write -z 2100000 10", "read -P 0 2100000 10", "read -P 170 2100010 100",
                           "write -z 3M 5M", "read -P 0 3M 5M", "write -f -P 1 0 512", "flush", "read -P 1 0 512")
            self.assertNotIn("failed", said)

    def test_holes_are_where_nothing_was_written(self):
        with self.disk("size=4M") as disk:
            def extents():
                return [(each["offset"], each["length"], each["description"]) for each in json.loads(run("nbdinfo", "--json", "--map", disk.uri))]
            self.assertEqual(extents(), [(0, 4 * MIB, "hole,zero")])
            disk.io("write -P 1 1048575 2")
            self.assertEqual(extents(), [(0, MIB - 65536, "hole,zero"), (MIB - 65536, 131072, "data"),
                                         (MIB + 65536, 3 * MIB - 65536, "hole,zero")])

    def test_qemu_boots_a_guest_that_writes(self):
        built, sector = self.folder / "boot.o", self.folder / "boot"
        subprocess.run(["as", "--32", "-o", built, "-"], input=BOOT_SECTOR, text=True, check=True, timeout=60)
        run("ld", "-m", "elf_i386", "-e", "0", "-Ttext=0x7c00", "--oformat", "binary", "-o", sector, built)
        with self.disk("size=1M") as disk:
            run("nbdcopy", sector, disk.uri)
            said = run("qemu-system-x86_64", "-accel", "tcg", "-m", "16", "-display", "none", "-monitor", "none", "-serial", "stdio",
                       "-nic", "none", "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-drive",
                       f"file={disk.uri},format=raw,if=ide", code=1)
            self.assertIn("a guest from remote memory", said)
            run("nbdcopy", disk.uri, self.folder / "back")
        data = sector.read_bytes()
        self.assertEqual(len(data), 512)
        self.assertEqual((self.folder / "back").read_bytes(), data * 2 + bytes(MIB - 1024))

    def test_a_read_only_export_reads(self):
        with self.disk("-r", "size=1M") as disk:
            run("qemu-io", "-r", "-f", "raw", "-c", "read -P 0 0 1M", disk.uri)

    def test_a_named_disk_is_kept(self):
        with self.disk("size=1M", "name=disk", "keep=true") as disk:
            disk.io("write -P 3 0 1M")
        [kept] = self.handle.regions()
        self.assertEqual((kept.name, kept.bytes), ("disk", MIB))
        with self.disk("name=disk", "keep=true") as disk:
            disk.io("read -P 3 0 1M")
            self.assertEqual(json.loads(run("nbdinfo", "--json", "--map", disk.uri))[0]["description"], "data")
        target = self.node.target(self.transport)
        self.assertIn("'disk' has 1048576 bytes", run("nbdkit", PLUGIN, target, "name=disk", "keep=true", "size=2M", "--run", "true", code=1))
        with self.disk("size=2M", "name=disk") as disk:
            disk.io("read -P 0 0 2M")
        [fresh] = self.handle.regions()
        self.assertEqual((fresh.name, fresh.bytes), ("disk", 2 * MIB))
        self.handle.lookup("disk").free()

    def test_errors_end_the_command_with_a_line(self):
        target = self.node.target(self.transport)
        for words, line in (([], "no target"), ([target], "no size"), ([target, "keep=true"], "needs name=NAME"),
                            ([target, "size=1M", "bogus=1"], "unknown parameter 'bogus'"), ([target, "size=0"], "size=0"),
                            ([target, "name=absent", "keep=true"], "absent: "), (["bogus", "size=1M"], "not a target"),
                            (["embedded:", "size=1M", "name=disk"], "an embedded node ends with nbdkit"),
                            ([target, "size=1T"], "allocation of the disk")):
            self.assertIn(line, run("nbdkit", PLUGIN, *words, "--run", "true", code=1))
        self.assertEqual([*self.handle.regions()], [])

    def test_relative_paths_of_a_target_serve(self):
        target = self.node.target(self.transport)
        for path in (self.node.key, self.node.rings):
            target = target.replace(str(path), os.path.relpath(path, self.folder))
        with Disk(self.folder, target, "size=1M") as disk:
            disk.io("write -P 3 0 1M", "read -P 3 0 1M")

    def test_a_start_that_fails_leaves_no_memory(self):
        occupied = self.folder / "occupied"
        occupied.touch()
        for words in ((), ("-f",)):
            self.assertIn("occupied", run("nbdkit", *words, "-U", occupied, PLUGIN, self.node.target(self.transport), "size=1M", code=1))
            self.assertEqual([*self.handle.regions()], [])

    def test_a_command_that_fails_leaves_no_memory(self):
        run("nbdkit", PLUGIN, self.node.target(self.transport), "size=1M", "--run",
            "qemu-io -f raw -c 'write -P 9 0 1M' -c 'read -P 9 0 1M' $uri || exit 5; exit 3", code=3)
        while [*self.handle.regions()]:  # nbdkit's server ends after its command
            time.sleep(0.01)

    def test_a_disk_that_gets_no_name_leaves_no_memory(self):
        with self.handle.alloc(PAGE) as region:
            names = [f"name{i}" for i in range(NAMES_MAX)]
            for name in names:
                region.publish(name)
            said = run("nbdkit", PLUGIN, self.node.target(self.transport), "size=1M", "name=disk", "--run", "true", code=1)
            self.assertIn("disk: ", said)
            self.assertEqual([each.address for each in self.handle.regions()], [region.address])
            for name in names:
                self.handle.withdraw(name)

    def test_a_disk_in_a_read_only_view_is_read(self):
        with self.disk("size=1M", "name=disk", "keep=true") as disk:
            disk.io("write -P 3 0 1M")
        view = self.node.target(self.transport).replace(str(self.node.key), f"{self.view},space=2")
        with Disk(self.folder, view, "name=disk", "keep=true") as disk:
            self.assertTrue(json.loads(run("nbdinfo", "--json", disk.uri))["exports"][0]["is_read_only"])
            run("qemu-io", "-r", "-f", "raw", "-c", "read -P 3 0 1M", disk.uri)
        self.handle.lookup("disk").free()

    def test_an_embedded_node_serves(self):
        said = run("nbdkit", PLUGIN, "embedded:size=64M", "size=4M", "--run",
                   "qemu-io -f raw -c 'write -P 9 0 4M' -c 'write -z 1M 1M' -c 'read -P 0 1M 1M' -c 'read -P 9 2M 2M' $uri")
        self.assertNotIn("failed", said)

    def test_a_silent_node_is_an_error_in_time(self):
        with self.disk("size=1M", "timeout=1") as disk:
            disk.io("read -P 0 0 4k")
            self.node.pause()
            self.assertIn("Input/output error", disk.io("read 0 4k", code=1))
            self.node.go()
            disk.io("read -P 0 0 4k")

    def test_a_restarted_node_gives_no_zeros(self):
        with self.disk("size=1M") as disk:
            disk.io("write -P 4 0 1M")
            self.node.restart()
            self.assertIn("Input/output error", disk.io("read 0 4k", code=1))


class NbdkitByRings(Nbdkit):
    transport = "shm"
