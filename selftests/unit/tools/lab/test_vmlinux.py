# SPDX-License-Identifier: GPL-2.0
"""The lab boots the kernel that the bzImage holds, or none."""

import lzma
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(REPO / "tools" / "lab"))

from remoralab import vmlinux  # noqa: E402
from remoralab.say import LabError  # noqa: E402

KERNEL = b"\x7fELF" + bytes(range(256)) * 40


def bzimage(packed, size=len(KERNEL), setup_sects=3, offset=0x2C0):
    """A bzImage as the boot protocol describes it, with code of its own before and after what it carries."""
    payload = packed + struct.pack("<I", size)
    head = bytearray((setup_sects + 1) * 512)
    head[0x1F1] = setup_sects
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", head, 0x248, offset, len(payload))
    return bytes(head) + b"\x90" * offset + payload + b"\xcc" * 1000


class Unpack(unittest.TestCase):
    def unpacked(self, image):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "vmlinuz"
            path.write_bytes(image)
            return vmlinux.unpack(path)

    def test_xz(self):
        self.assertEqual(self.unpacked(bzimage(lzma.compress(KERNEL))), KERNEL)

    def test_zstd(self):
        packed = subprocess.run(["zstd", "-c"], input=KERNEL, check=True, capture_output=True).stdout
        self.assertEqual(self.unpacked(bzimage(packed, setup_sects=27, offset=0)), KERNEL)

    def test_of_another_size_than_it_says(self):
        with self.assertRaisesRegex(LabError, "damaged"):
            self.unpacked(bzimage(lzma.compress(KERNEL), size=len(KERNEL) + 1))

    def test_packed_otherwise(self):
        with self.assertRaisesRegex(LabError, "nothing known here .425a68"):
            self.unpacked(bzimage(b"BZh91AY" + bytes(100)))

    def test_no_bzimage(self):
        with self.assertRaisesRegex(LabError, "no bzImage"):
            self.unpacked(KERNEL)


if __name__ == "__main__":
    unittest.main()
