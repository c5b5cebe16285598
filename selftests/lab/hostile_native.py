#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A program that breaks the rules of /dev/eqds (include/uapi/remora_eqds_native.h); run in a host of the rack.

    hostile_native.py setup DEVICE          setups that can't be: prints the errno of each
    hostile_native.py rings DEVICE PEER     entries and numbers that can't be: prints the completions' status words
    hostile_native.py scribble DEVICE PEER SEED     random bytes over the rings, and kicks
    hostile_native.py library DEVICE PEER   libeqds: sends a buffer twice in one call, one of its own beside one that is
                                            not, two good ones, one of them again, none; closes it twice, and
                                            sends once more: prints the results
"""

import ctypes
import errno
import fcntl
import mmap
import os
import pathlib
import random
import socket
import struct
import sys

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "out" / "lib" / "libeqds.so"
SETUP = struct.Struct("=IIQQIHHQIIIIII")
PACKET = struct.Struct("=QQIHH16s")
COMPLETION = struct.Struct("=QIIHHIII")
ENTRIES, AREA = 16, 1 << 16
RINGS = ("fill", "rx", "tx", "completion")


def request(number, size):
    return 3 << 30 | size << 16 | ord("Q") << 8 | number


KICK = ord("Q") << 8 | 0x11


class Native:
    def __init__(self, device):
        self.file = os.open("/dev/eqds", os.O_RDWR)
        self.device = socket.if_nametoindex(device)
        self.area = mmap.mmap(-1, AREA, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.area))

    def setup(self, **changed):
        fields = {"bytes": SETUP.size, "ifindex": self.device, "area": self.address, "area_bytes": AREA,
                  "entries": ENTRIES, "port": 0, "reserved": 0} | changed
        told = bytearray(SETUP.pack(*fields.values(), *[0] * 7))
        fcntl.ioctl(self.file, request(0x10, SETUP.size), told)
        _, _, _, _, _, self.port, _, size, self.most, *offsets, _ = SETUP.unpack(told)
        self.at = dict(zip(RINGS, offsets))
        self.rings = mmap.mmap(self.file, size)

    def produced(self, ring, value=None):
        return self._word(RINGS.index(ring) * 128, value)

    def consumed(self, ring, value=None):
        return self._word(RINGS.index(ring) * 128 + 64, value)

    def _word(self, offset, value):
        if value is not None:
            self.rings[offset:offset + 4] = struct.pack("=I", value)
        return struct.unpack("=I", self.rings[offset:offset + 4])[0]

    def send(self, to, **changed):
        fields = {"at": 0, "cookie": 5, "bytes": 64, "port": 7, "reserved": 0,
                  "peer": bytes(10) + b"\xff\xff" + socket.inet_aton(to)} | changed
        n = self.produced("tx")
        offset = self.at["tx"] + n % ENTRIES * PACKET.size
        self.rings[offset:offset + PACKET.size] = PACKET.pack(*fields.values())
        self.produced("tx", (n + 1) & 0xffffffff)
        self.kick()

    def kick(self):
        fcntl.ioctl(self.file, KICK)

    def completions(self):
        first, last = self.consumed("completion"), self.produced("completion")
        self.consumed("completion", last)
        return [COMPLETION.unpack_from(self.rings, self.at["completion"] + n % ENTRIES * COMPLETION.size)[:2]
                for n in range(first, last)]


def setups(device):
    for changed in ({"bytes": 8}, {"area": 1}, {"area_bytes": 5}, {"area_bytes": 0}, {"entries": 12}, {"entries": 4},
                    {"entries": 1 << 20}, {"reserved": 1}, {"area_bytes": 1 << 40}, {"ifindex": 1}, {"area": 4096}):
        native = Native(device)
        try:
            native.setup(**changed)
            print("accepted", changed)
        except OSError as error:
            print(errno.errorcode[error.errno])
        try:
            native.kick()
            print("kicked", changed)
        except OSError as error:
            # Without a device, the rest of the setup was right.
            assert error.errno in (errno.ENXIO, errno.ENODEV), error
    native = Native(device)
    native.setup(port=99)
    try:
        native.setup()
    except OSError as error:
        print(errno.errorcode[error.errno])
    try:
        Native(device).setup(port=99)
    except OSError as error:
        print(errno.errorcode[error.errno])


def rings(device, peer):
    native = Native(device)
    native.setup()
    for changed in ({"at": AREA}, {"at": AREA - 63}, {"at": (1 << 64) - 1}, {"bytes": 0}, {"bytes": native.most + 1},
                    {"bytes": 0xffffffff}, {"port": 0}, {"reserved": 1}, {"peer": bytes(16)},
                    {"peer": b"\xff" + bytes(15)}):
        native.send(peer, **changed)
        [(cookie, status)] = native.completions()
        assert cookie == 5, cookie
        print(status)
    # Numbers that can't be count as nothing.
    n = native.produced("tx")
    for value in (n - 1, n + ENTRIES + 1, n + (1 << 31)):
        native.produced("tx", value & 0xffffffff)
        native.kick()
    native.produced("tx", n)
    print(len(native.completions()), native.consumed("tx") == n)


def scribble(device, peer, seed):
    native, chance = Native(device), random.Random(int(seed))
    native.setup()
    for _ in range(2000):
        offset = chance.randrange(len(native.rings) - 8)
        if chance.getrandbits(1):
            offset = chance.randrange(8) * 64
        native.rings[offset:offset + 4] = struct.pack("=I", chance.choice((chance.getrandbits(32), chance.randrange(64))))
        native.kick()
        if chance.randrange(8) == 0:
            native.produced("tx", native.consumed("tx"))
            native.send(peer)
    print("done")


class Packet(ctypes.Structure):
    """struct eqds_packet"""

    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("cookie", ctypes.c_uint64),
                ("host", ctypes.c_uint8 * 16), ("port", ctypes.c_uint16)]


def library(device, peer):
    eqds = ctypes.CDLL(str(LIBRARY))
    handle = ctypes.c_void_p()
    assert eqds.eqds_open(ctypes.byref(handle), device.encode(), None) == 0

    def buffer():
        data = ctypes.c_void_p()
        assert eqds.eqds_buffer(handle, ctypes.byref(data)) == 0
        return data.value

    def send(*buffers):
        packets = (Packet * len(buffers))(*(Packet(data, 64) for data in buffers))
        for packet in packets:
            assert eqds.eqds_address_parse(peer.encode(), 7, ctypes.byref(packet, Packet.host.offset)) == 0
        print(eqds.eqds_send(handle, packets, len(buffers)))

    one, two = buffer(), buffer()
    send(one, one)
    send(one, two + 1)
    send(one, two)
    send(one)
    send()
    eqds.eqds_close(handle)
    eqds.eqds_close(handle)
    print(eqds.eqds_send(handle, None, 0), eqds.eqds_fd(handle))


if __name__ == "__main__":
    {"setup": setups, "rings": rings, "scribble": scribble, "library": library}[sys.argv[1]](*sys.argv[2:])
