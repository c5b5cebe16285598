# SPDX-License-Identifier: GPL-2.0
"""The kernel proper, out of a bzImage: Documentation/arch/x86/boot.rst says where it lies.

A bzImage unpacks itself each time it boots, which emulated takes 1 s (zstd) to 6 s (xz). QEMU starts an
unpacked kernel as well, by the PVH entry that Debian's kernels have.
"""

import lzma
import struct
import subprocess

from .say import LabError

SECTOR = 512
# Offsets in the setup header.
SETUP_SECTS, MAGIC, PAYLOAD = 0x1F1, 0x202, 0x248


def _zstd(packed):
    return subprocess.run(["zstd", "-dc"], input=packed, check=True, capture_output=True).stdout


UNPACKERS = {
    b"\xfd7zXZ\0": lambda packed: lzma.LZMADecompressor().decompress(packed),
    b"\x28\xb5\x2f\xfd": _zstd,
}


def unpack(path):
    """The ELF file that a bzImage holds."""
    image = path.read_bytes()
    if image[MAGIC:MAGIC + 4] != b"HdrS":
        raise LabError(f"{path} is no bzImage")
    offset, length = struct.unpack_from("<II", image, PAYLOAD)
    begin = (image[SETUP_SECTS] + 1) * SECTOR + offset
    # The last four bytes are the size of what is packed before them.
    packed, size = image[begin:begin + length - 4], image[begin + length - 4:begin + length]
    for magic, unpacker in UNPACKERS.items():
        if packed.startswith(magic):
            unpacked = unpacker(packed)
            if len(unpacked) != struct.unpack("<I", size)[0]:
                raise LabError(f"{path}: damaged")
            return unpacked
    raise LabError(f"{path}: packed as nothing known here ({packed[:6].hex()})")
