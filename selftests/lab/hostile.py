#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Datagrams no client or node would send, as many as go in a time; run in a machine of the lab.

    hostile.py flood     HOST PORT SECONDS SEED            at a node, from a socket
    hostile.py fragments SOURCE HOST PORT SECONDS SEED     at a node: IPv4 fragments that overlap
    hostile.py forge     SOURCE HOST PORTS SECONDS SEED    at a client: answers nobody gave

Prints how many it sent.
"""

import random
import socket
import struct
import sys
import time

# struct rmem_hdr and struct rmem_msg of include/remora/rmem.h.
HEADER = struct.Struct("<BBBBIQQQQ8s")
MESSAGE = struct.Struct("<BBBBIQQII")
NODE_PORT = 7670
RESPONSE = 0x80


def header(chance, known):
    """A well-formed header but for its tag; known: fields that aren't as they come."""
    fields = {"version": 1, "flags": chance.randint(0, 2), "messages": 1, "reserved": 0, "space": 1,
              "session": chance.getrandbits(64), "boot": chance.getrandbits(64), "floor": 1,
              "number": chance.getrandbits(64), "tag": chance.randbytes(8)}
    return HEADER.pack(*(known.get(name, value) for name, value in fields.items()))


def message(chance, known):
    fields = {"type": chance.randint(1, 8), "status": 0, "attempt": 0, "op": 0,
              "len": chance.choice((0, 1, 4096, 0xffffffff)), "id": chance.getrandbits(32) + 1,
              "addr": chance.getrandbits(40), "part": 0, "digest": 0}
    return MESSAGE.pack(*(known.get(name, value) for name, value in fields.items()))


def heads(chance, **known):
    return header(chance, known) + message(chance, known)


def noise(chance):
    return chance.randbytes(chance.choice((0, 1, 47, 48, 79, 80, 81, 500, 4176, 8900)))


def forged(chance):
    return heads(chance) + chance.randbytes(chance.choice((0, 24, 4096)))


def stranger(chance):
    return heads(chance, space=chance.randint(2, 1 << 32) & 0xffffffff or 2)


def malformed(chance):
    return heads(chance, **chance.choice(({"version": 2}, {"type": 0}, {"type": 99}, {"flags": 0xff},
                                           {"type": RESPONSE | 5}, {"reserved": 1}, {"floor": (1 << 64) - 1})))


def bundle(chance):
    """Heads that go on and on, with too little or too much behind them; as many as are told, or not."""
    count = chance.randint(2, 40)
    told = header(chance, {"messages": chance.choice((count, 0, 1, 16, 255)), "session": 1, "boot": 1, "flags": 0})
    return told + b"".join(message(chance, {"type": 6, "len": chance.choice((8, 4096, 0xffffff00))})
                           for _ in range(count)) + chance.randbytes(chance.randint(0, 4000))


def datagrams(chance):
    while True:
        yield chance.choice((noise, forged, stranger, malformed, bundle))(chance)


def for_a_while(seconds, send):
    sent, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(64):
            try:
                send()
                sent += 1
            except OSError:  # a full queue, or a refusal of an earlier one: go on
                pass
    print(sent)


def flood(host, port, seconds, seed):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect((host, int(port)))
    source = datagrams(random.Random(int(seed)))
    for_a_while(float(seconds), lambda: sock.send(next(source)))


def ipv4(source, host, ident, offset, more, protocol, payload):
    return struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), ident, (0x2000 if more else 0) | offset // 8, 64,
                       protocol, 0, socket.inet_aton(source), socket.inet_aton(host)) + payload


def udp(source_port, port, payload):
    """Without a checksum."""
    return struct.pack(">HHHH", source_port, port, 8 + len(payload), 0) + payload


def fragments(source, host, port, seconds, seed):
    """Two requests under one IP id, each in fragments that cover the other's."""
    chance = random.Random(int(seed))
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def send():
        ident = chance.randint(1, 65535)
        pieces = []
        for _ in range(2):
            whole = udp(chance.randint(1024, 65535), int(port), forged(chance))
            cut = chance.randrange(8, max(9, len(whole) - 8)) & ~7
            overlap = chance.choice((0, 8, 64)) if cut > 64 else 0
            pieces += [(0, True, whole[:cut]), (cut - overlap, False, whole[cut - overlap:])]
        chance.shuffle(pieces)
        for offset, more, payload in pieces:
            sock.sendto(ipv4(source, host, ident, offset, more, socket.IPPROTO_UDP, payload), (host, 0))
    for_a_while(float(seconds), send)


def forge(source, host, ports, seconds, seed):
    chance = random.Random(int(seed))
    ports = [int(port) for port in ports.split(",")]
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def send():
        one = heads(chance, type=RESPONSE | chance.randint(1, 8), status=chance.randint(0, 9),
                     id=chance.randint(1, 5000), floor=chance.choice((0, 0, 0, 1)), flags=chance.choice((0, 1, 2, 0xff)))
        answer = chance.choice((noise(chance), bundle(chance), one + chance.randbytes(chance.choice((0, 24, 4096)))))
        sock.sendto(ipv4(source, host, 0, 0, False, socket.IPPROTO_UDP,
                         udp(NODE_PORT, chance.choice(ports), answer)), (host, 0))
    for_a_while(float(seconds), send)


if __name__ == "__main__":
    {"flood": flood, "fragments": fragments, "forge": forge}[sys.argv[1]](*sys.argv[2:])
