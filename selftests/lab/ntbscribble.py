#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A hostile machine of an NTB, in a guest whose driver isn't loaded: it has the registers through sysfs.

    ntbscribble.py ROUNDS SEED             random words into all ports' registers, and every bell of everybody
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
    else:
        scribble(*map(int, sys.argv[1:]))
