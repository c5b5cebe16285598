#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A program of libremote in a guest that checks each byte it reads.

    remote_check.py TARGET SEED GO_ON [calls]
                                          rounds until the file GO_ON is gone, or one if it is "once"; prints
                                          "begun" in each, and "round N" after it

A round allocates a region, writes pieces of all sizes at places of chance, copies some from one place to another,
counts in a word, also by CALLs of the offload chase, reads other pieces back, and gives the region back. Exit status 0: told to stop. 1: wrong bytes.
3: an operation failed, and the last line says which and with what error.
"""

import ctypes
import errno
import os
import pathlib
import random
import struct
import sys

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "out/lib/libremote.so.0"
REGION_BYTES, PIECE_BYTES_MAX = 1 << 20, 1 << 16
PIECES = 40
READ_WRITE, ADD = 3, 3
WORD_BYTES = 8
# A list of one element: the word, its key, and no next one.
KEY = 0x6b6579
ELEMENT_BYTES = 3 * WORD_BYTES
CHASE_ID, CHASE_ADD = 1, 1


class Function(ctypes.Structure):
    _fields_ = [("offload", ctypes.c_uint64), ("function", ctypes.c_uint32), ("detail", ctypes.c_uint32), ("args", ctypes.c_char_p),
                ("args_bytes", ctypes.c_size_t), ("result", ctypes.c_void_p), ("result_bytes", ctypes.c_size_t)]


class Failed(Exception):
    """An operation that returned an error."""


class Remote:
    """A handle; each call raises Failed."""

    def __init__(self, target):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.handle = ctypes.c_void_p()
        self.call("remote_open", ctypes.byref(self.handle), target.encode(), None, handle=False)

    def call(self, name, *arguments, handle=True):
        status = getattr(self.library, name)(*([self.handle] if handle else []), *arguments)
        if status < 0:
            raise Failed(f"{name}: {errno.errorcode.get(-status, status)}")

    def allocate(self, count):
        address = ctypes.c_uint64()
        self.call("remote_alloc", ctypes.c_uint64(count), ctypes.c_uint(READ_WRITE), ctypes.byref(address))
        return address.value

    def free(self, address):
        self.call("remote_free", ctypes.c_uint64(address))

    def write(self, address, data):
        self.call("remote_write", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address, count):
        buffer = ctypes.create_string_buffer(count)
        self.call("remote_read", ctypes.c_uint64(address), buffer, ctypes.c_size_t(count))
        return buffer.raw

    def copy(self, to, source, count):
        self.call("remote_copy", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(count))

    def add(self, address, value):
        found = ctypes.c_uint64()
        self.call("remote_fetch", ctypes.c_uint64(address), ctypes.c_size_t(WORD_BYTES), ctypes.c_int(ADD),
                  ctypes.c_uint64(value), ctypes.byref(found))
        return found.value


    def add_by_call(self, address, value):
        result = (ctypes.c_uint64 * 2)()
        args = struct.pack("<QQIIQIIQ", address, KEY, WORD_BYTES, 2 * WORD_BYTES, 0, 0, 0, value)
        self.call("remote_call", ctypes.byref(Function(CHASE_ID, CHASE_ADD, 0, args, len(args), ctypes.addressof(result), 16)))
        expect("an element found", result[0], address)
        return result[1]


def expect(what, found, wanted):
    if found != wanted:
        at = next((i for i, pair in enumerate(zip(found, wanted)) if pair[0] != pair[1]), 0) if isinstance(found, bytes) else 0
        print(f"wrong bytes: {what}, first at {at}: {found[at:at + 16] if isinstance(found, bytes) else found}, "
              f"not {wanted[at:at + 16] if isinstance(wanted, bytes) else wanted}", flush=True)
        sys.exit(1)


def piece(chance):
    """(place, length) behind the element with the counted word."""
    count = chance.randint(1, PIECE_BYTES_MAX) if chance.random() < 0.3 else chance.randint(1, 5000)
    return chance.randrange(ELEMENT_BYTES, REGION_BYTES - count), count


def play_round(remote, chance, calls):
    region = remote.allocate(REGION_BYTES)
    print("begun", flush=True)
    mirror, counted = bytearray(REGION_BYTES), 0
    mirror[:ELEMENT_BYTES] = element = struct.pack("<QQQ", 0, KEY, 0)
    remote.write(region, element)
    for _ in range(PIECES):
        at, count = piece(chance)
        mirror[at:at + count] = data = chance.randbytes(count)
        remote.write(region + at, data)
        if chance.random() < 0.3:
            source, count = piece(chance)
            to = chance.randrange(ELEMENT_BYTES, REGION_BYTES - count)
            if source + count <= to or to + count <= source:  # only such copies are defined
                remote.copy(region + to, region + source, count)
                mirror[to:to + count] = mirror[source:source + count]
        add = remote.add_by_call if calls and chance.random() < 0.5 else remote.add
        expect("a word counted in", add(region, 7), counted)
        counted += 7
        at, count = piece(chance)
        expect(f"{count} bytes at {at}", remote.read(region + at, count), bytes(mirror[at:at + count]))
    mirror[:WORD_BYTES] = counted.to_bytes(WORD_BYTES, "little")
    for at in range(0, REGION_BYTES, PIECE_BYTES_MAX):
        expect(f"the end's bytes at {at}", remote.read(region + at, PIECE_BYTES_MAX), bytes(mirror[at:at + PIECE_BYTES_MAX]))
    remote.free(region)


def main():
    target, seed, go_on, *options = sys.argv[1:]
    chance, number = random.Random(seed), 0
    try:
        remote = Remote(target)
        while os.path.exists(go_on) or (go_on == "once" and number == 0):
            play_round(remote, chance, "calls" in options)
            number += 1
            print(f"round {number}", flush=True)
    except Failed as error:
        print(f"failed: {error}", flush=True)
        sys.exit(3)


if __name__ == "__main__":
    main()
