#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Datagrams that no host or scheduler of EDM would send; run in a host of a rack.

    hostile_edm.py flood HOST PORT KEY COUNT SEED [SCHEDULER]   noise, malformed and forged datagrams, those of a host's and
                of a scheduler's kind, as from SCHEDULER if one is named. KEY: the operator's, for the tags of a part of
                them. Prints how many it sent
    hostile_edm.py lie KIND SCHEDULER KEY AS PEER      a host of port AS that joined with the right key, until its input
                ends; prints "joined", and at the end the grants and refusals that it got. KIND:
      sizes     announces messages of 4 GiB to PEER, and sends nothing
      split     announces as many as it can of 600 bytes, and when they are granted the next ones
      keep      announces messages of 1 MiB, keeps their grants, and says each time that none was accepted
      joins     joins in one go, under a new epoch each time, and tries the ports of others
"""

import random
import select
import socket
import struct
import sys

from hostile import ipv4, udp
from tenant import siphash

# include/remora/edm.h
HEAD = struct.Struct("<BBHIII8s")
JOIN_BODY = struct.Struct("<QIIIHBB")
LIST = struct.Struct("<IHH")
ENTRY = struct.Struct("<IIIHBB")
DERIVE = struct.Struct("<QQIIH6x")
VERSION, PORT, LABEL = 1, 7673, 0x45444d206b657900
JOIN, CHALLENGE, WELCOME, DEMAND, GRANT, REQUEST, FORWARD, DATA = range(1, 9)
WRITE, READ, ANSWER = 1, 2, 3
FOLLOWS = 1
RATE_MBPS = 100


def word(key, data):
    return siphash(key, data).to_bytes(8, "little")


def read_key(path):
    with open(path, encoding="ascii") as file:
        return bytes.fromhex(file.read().strip())


def sealed(key, kind, port, epoch, life, seq, body, flags=0):
    plain = HEAD.pack(VERSION << 4 | kind, flags, port, epoch, life, seq, bytes(8)) + body
    return plain[:16] + word(key, plain) + plain[24:]


# ---- without a membership ----

def any_entry(chance):
    return ENTRY.pack(chance.getrandbits(32), chance.choice((0, 1, 4096, 0xffffffff)), chance.choice((0, 1, 0xffffffff)),
                      chance.randrange(600), chance.randrange(5), chance.randrange(5))


def any_body(chance, kind):
    if kind in (JOIN, CHALLENGE, WELCOME):
        return JOIN_BODY.pack(chance.choice((0, chance.getrandbits(64))), chance.choice((0, 100, 0xffffffff)),
                              *(chance.choice((0, 1, chance.getrandbits(32))) for _ in range(2)),
                              chance.choice((0, 32, 0xffff)), chance.choice((0, 3, 255)), chance.choice((0, 0, 1)))
    if kind in (REQUEST, FORWARD):
        return struct.pack("<II", chance.getrandbits(32), chance.choice((0, 1))) + any_entry(chance) + \
            chance.randbytes(chance.choice((0, 1, 40, 140, 1400, 1401)))
    count = chance.randrange(66)
    return LIST.pack(chance.getrandbits(32), chance.choice((count, count, 0, 65, 0xffff)), chance.choice((0, 0, 1))) + \
        b"".join(any_entry(chance) for _ in range(count))


def any_datagram(chance, key):
    if not chance.randrange(8):
        return chance.randbytes(chance.choice((0, 1, 23, 24, 48, 200, 1472, 8000)))
    kind = chance.randint(0, 15) if not chance.randrange(8) else chance.randint(JOIN, DATA)
    return sealed(key if chance.randrange(2) else chance.randbytes(16), kind, chance.randrange(600),
                  chance.choice((0, 1, 2, 0xffffffff)), chance.choice((0, chance.getrandbits(32))),
                  chance.choice((0, 1, chance.getrandbits(32))), any_body(chance, kind),
                  chance.choice((0, 0, FOLLOWS, 0xff)))


def flood(host, port, key, count, seed, scheduler=None):
    chance, key = random.Random(int(seed)), read_key(key)
    # As many are made as differ enough; each is sent several times.
    some = [any_datagram(chance, key) for _ in range(min(int(count), 5000))]
    if scheduler:
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        some = [ipv4(scheduler, host, 0, 0, False, socket.IPPROTO_UDP, udp(PORT, int(port), each)) for each in some]
    else:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect((host, int(port)))
    sent = 0
    for number in range(int(count)):
        try:
            sock.send(some[number % len(some)])
            sent += 1
        except OSError:  # a full queue, a refusal of an earlier one, or it is too long: go on
            pass
    print(sent)


# ---- with one ----

class Host:
    """A host that has joined, and breaks the rules."""

    def __init__(self, scheduler, key, port):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.connect((scheduler, PORT))
        self.operator, self.port = read_key(key), port
        self.epoch, self.cookie, self.life, self.seq, self.seen, self.slots = 1, 0, 0, 0, 0, 0
        self.key = None

    def join(self):
        self.sock.send(sealed(self.operator, JOIN, self.port, self.epoch, 0, 0,
                              JOIN_BODY.pack(self.cookie, RATE_MBPS, 0, 0, 0, 0, 0)))

    def receive(self, seconds):
        """The kind of a datagram and its entries; (0, []) if none came."""
        if not select.select([self.sock], [], [], seconds)[0]:
            return 0, []
        try:
            data = self.sock.recv(2048)
        except OSError:
            return 0, []
        kind, _, _, epoch, life, seq, _ = HEAD.unpack_from(data)
        kind &= 15
        if kind == CHALLENGE:
            self.epoch, (self.cookie, *_) = epoch, JOIN_BODY.unpack_from(data, HEAD.size)
        elif kind == WELCOME:
            self.life, self.slots = life, JOIN_BODY.unpack_from(data, HEAD.size)[4]
            self.key = b"".join(word(self.operator, DERIVE.pack(LABEL + number, self.cookie, self.epoch, life, self.port))
                                for number in range(2))
        elif kind == GRANT:
            self.seen = max(self.seen, seq)
            count = LIST.unpack_from(data, HEAD.size)[1]
            return kind, [ENTRY.unpack_from(data, HEAD.size + LIST.size + n * ENTRY.size) for n in range(count)]
        return kind, []

    def enter(self):
        while self.key is None:
            self.join()
            self.receive(0.2)

    def demand(self, entries):
        self.seq += 1
        body = LIST.pack(self.seen, len(entries), 0) + b"".join(ENTRY.pack(*each) for each in entries)
        self.sock.send(sealed(self.key, DEMAND, self.port, self.epoch, self.life, self.seq, body, FOLLOWS))


SIZES = {"sizes": 0xffffffff, "split": 600, "keep": 1 << 20}
# Messages of a host to one peer, by the scheduler's word.
ACTIVE = 8
REPORT_S = 0.02


def lie(kind, scheduler, key, port, peer):
    host, grants, refusals = Host(scheduler, key, int(port)), 0, 0
    host.enter()
    print("joined", flush=True)
    ids, size = list(range(ACTIVE)), SIZES.get(kind)
    while not select.select([sys.stdin], [], [], 0)[0]:
        if kind == "joins":
            host.epoch += 1
            host.join()
            host.port = random.randrange(16) if random.randrange(2) else int(port)
            host.receive(0)
            continue
        host.demand([(each, size, 0, int(peer), WRITE, 0) for each in ids])
        answered, entries = host.receive(REPORT_S)
        while answered:
            for number, granted, _, _, _, status in entries:
                grants, refusals = grants + (not status), refusals + bool(status)
                # All of it is granted, or nothing more is: the slot's next message.
                if kind == "split" or status:
                    slot = number % host.slots
                    ids[slot % ACTIVE] = (ids[slot % ACTIVE] + host.slots) & 0xffffffff
            answered, entries = host.receive(0)
    print(grants, refusals)


if __name__ == "__main__":
    {"flood": flood, "lie": lie}[sys.argv[1]](*sys.argv[2:])
