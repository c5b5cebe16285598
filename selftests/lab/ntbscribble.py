#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A hostile machine of an NTB, in a guest whose driver isn't loaded: it has the registers through sysfs.

    ntbscribble.py ROUNDS SEED             random words into all ports' registers, and every bell of everybody
    ntbscribble.py window TO FROM ROUNDS SEED   garbage into the window that port FROM has into port TO
    ntbscribble.py grants TO FROM ROUNDS SEED   garbage into its words of grants and copies (include/remora/marlin_grants.h)
    ntbscribble.py switch FIELD VALUE      one word of the switch's page: magic, ports; or of port 0's: base, window, ram
    ntbscribble.py switch restore          as it was before
"""

import mmap
import pathlib
import random
import struct
import sys

PAGE_BYTES, PORTS, VECTORS, DOORBELL_AT = 4096, 2, 17, 12
FIELDS = {"magic": (0, "<I"), "ports": (8, "<I"), "ram": (64, "<Q"), "base": (72, "<Q"), "window": (80, "<Q")}
SAVED = pathlib.Path("/run/ntb-switch-page")
# Registers of a port end here.
USED_BYTES = 256
# Of a ring, at once: so much that the place where the reader looks is often in it.
BLOCK_BYTES = 1 << 20
# struct marlin_grants_window: the table's address, copy words, signal words.
GRANTS_AT, COPIES_AT, COPIES, SIGNALS_AT, SIGNALS = 1024, 64, 32, 64 + 32 * 8, 512


def bar(number):
    for home in pathlib.Path("/sys/bus/pci/devices").iterdir():
        if (home / "device").read_text().strip() == "0x1110" and (home / "resource1").exists():
            (home / "enable").write_text("1")
            with open(home / f"resource{number}", "r+b") as opened:
                return mmap.mmap(opened.fileno(), 0)
    sys.exit("no ivshmem-doorbell device")


def scribble(rounds, seed):
    chance = random.Random(seed)
    registers, control = bar(2), bar(0)
    for _ in range(rounds):
        page = PAGE_BYTES * (1 + chance.randrange(PORTS))
        word = chance.choice([0, 1, 2, 0xffffffff, chance.getrandbits(32), chance.getrandbits(2)])
        struct.pack_into("<I", registers, page + chance.randrange(USED_BYTES // 4) * 4, word)
        struct.pack_into("<I", control, DOORBELL_AT, chance.randrange(PORTS) << 16 | chance.randrange(VECTORS))


def window_of(to, from_):
    """The RAM of `to`, and where in that the window is."""
    _, base, size = struct.unpack_from("<3Q", bar(2), 64 + 32 * to)
    base += (from_ if from_ < to else from_ - 1) * size
    home = pathlib.Path(f"/sys/bus/pci/devices/0000:00:{0x10 + to:02x}.0")
    (home / "enable").write_text("1")
    with open(home / "resource2", "r+b") as opened:
        return mmap.mmap(opened.fileno(), 0), base, size


def window(to, from_, rounds, seed):
    """Words at the head of a window, and blocks of its ring (see include/remora/marlin.h)."""
    chance = random.Random(seed)
    memory, base, size = window_of(to, from_)
    garbage = chance.randbytes(BLOCK_BYTES)
    for _ in range(rounds):
        at = base + chance.choice([0, 64, 128, 4096])
        struct.pack_into("<I", memory, at, chance.choice([0, 1, 64, 0xffffffff, chance.getrandbits(32)]))
        at = base + chance.randrange(4096, size, 64)
        block = chance.choice([garbage, struct.pack("<2I", 0x80000040, at) * (BLOCK_BYTES // 8)])
        block = block[:base + size - at]
        memory[at:at + len(block)] = block


def grants(to, from_, rounds, seed):
    chance = random.Random(seed)
    memory, base, _ = window_of(to, from_)
    base += GRANTS_AT
    for _ in range(rounds):
        address = chance.choice([0, 1, chance.getrandbits(64), chance.getrandbits(28), chance.getrandbits(22) << 6])
        struct.pack_into("<Q", memory, base, address)
        copy = chance.getrandbits(48) << 16 | chance.choice([0, chance.randrange(1, 8), chance.getrandbits(16)])
        struct.pack_into("<Q", memory, base + COPIES_AT + 8 * chance.randrange(COPIES), copy)
        struct.pack_into("<I", memory, base + SIGNALS_AT + 4 * chance.randrange(SIGNALS), chance.getrandbits(32))


def switch(words):
    registers = bar(2)
    if words == ["restore"]:
        registers[:PAGE_BYTES] = SAVED.read_bytes()
        return
    SAVED.write_bytes(registers[:PAGE_BYTES])
    at, form = FIELDS[words[0]]
    struct.pack_into(form, registers, at, int(words[1]))


if __name__ == "__main__":
    if sys.argv[1] == "switch":
        switch(sys.argv[2:])
    elif sys.argv[1] in ("window", "grants"):
        {"window": window, "grants": grants}[sys.argv[1]](*map(int, sys.argv[2:]))
    else:
        scribble(*map(int, sys.argv[1:]))
