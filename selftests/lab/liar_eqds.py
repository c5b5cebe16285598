#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Ends of tunnels that keep the format and break the rules; run in a host of the rack, or beside its wire.

    liar_eqds.py crowd PEER NET N    opens a tunnel from each of N addresses of this host, NET.40 on, asks for all the
                                     credit it may, and sends no packet
    liar_eqds.py mute                answers a peer's packets with acknowledgements, and never gives credit
    liar_eqds.py floods              answers each packet with pulls far beyond what the peer asks for
    liar_eqds.py onpath PORT END     at the bridge's PORT: forges from the epochs and numbers that pass by. END
                                     sender: what its receiver never said; receiver: what its sender never sent;
                                     icmp: what no router ever said about the sender's packets

They work until their input ends; the first three need the port of a device that is down. Prints "lying" once it has
begun, and then one line of JSON with what it counted. onpath prints "all kinds" once it has sent a forgery of each kind.
"""

import contextlib
import json
import random
import select
import socket
import struct
import sys

from hostile_eqds import (ACK, CONTROL, DATA, EMPTY, FIN, ICMP_ERRORS, IPV4, KIND_CONTROL, KIND_DATA, NACK, NOTHING, PORT,
                          SYN, TRIM, datagram, icmp, parse)

TAKE = 65535
WORD = 1 << 32


def rts(epoch, target, cookie):
    return DATA.pack(KIND_DATA, SYN | EMPTY, NOTHING, 0, epoch, 0, target % WORD, 0, 0, 0, 0, 1, WORD - 1, cookie)


def answer(head, flags, pull):
    """To a data packet: that it and all before it have arrived."""
    after = (head["seq"] + (not head["flags"] & EMPTY)) % WORD
    return CONTROL.pack(KIND_CONTROL, flags | head["flags"] & SYN, 0, 0, head["epoch"], after, pull % WORD, head["sender"], 0,
                        0, 0, 0)


class Socket:
    """Datagrams of tunnels, until the program's input ends."""

    def __init__(self):
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("", PORT))
        print("lying", flush=True)

    def heads(self):
        """The head and the sender of each."""
        while True:
            ready, _, _ = select.select([self.udp, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            payload, peer = self.udp.recvfrom(TAKE)
            head = parse(payload)
            if head:
                yield head, peer[0]

    def send(self, payload, peer):
        self.udp.sendto(payload, (peer, PORT))


class Asker:
    """Asks from one address: anew for every pull, and in silence."""

    def __init__(self, source, peer):
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((source, PORT))
        self.peer, self.epoch, self.cookie, self.pulls = peer, random.getrandbits(32), 0, 0
        self.ask()

    def ask(self):
        self.udp.sendto(rts(self.epoch, self.pulls + 64, self.cookie), (self.peer, PORT))

    def hear(self):
        head = parse(self.udp.recv(TAKE))
        if not head or head["kind"] != KIND_CONTROL or head["epoch"] != self.epoch:
            return
        self.cookie = head["cookie"] or self.cookie
        if head["pull"] > self.pulls or head["flags"] & SYN and not self.pulls:
            self.pulls = max(self.pulls, head["pull"])
            self.ask()


def crowd(peer, net, count):
    askers = {each.udp: each for each in (Asker(f"{net}.{40 + n}", peer) for n in range(int(count)))}
    print("lying", flush=True)
    while True:
        ready, _, _ = select.select([*askers, sys.stdin], [], [], 1)
        if sys.stdin in ready:
            return {"pulls": sum(each.pulls for each in askers.values()),
                    "opened": sum(each.pulls > 0 for each in askers.values())}
        for each in ready:
            askers[each].hear()
        if not ready:
            for each in askers.values():
                each.ask()


def receives(flags, beyond):
    """A receiver: the packets it had, and how often it was asked for credit."""
    out, packets, asked = Socket(), 0, 0
    for head, peer in out.heads():
        if head["kind"] != KIND_DATA:
            continue
        packets += not head["flags"] & EMPTY
        asked += bool(head["flags"] & EMPTY)
        out.send(answer(head, flags, head["target"] + beyond if beyond else 0), peer)
    return {"packets": packets, "asked": asked}


def to_sender(kind, head):
    """A control packet that the sender of a data packet never caused."""
    seq, target = head["seq"], head["target"]
    flags, ack, pull, echo = {
        "bad_ack": (ACK, seq + 5000, 0, 0),
        "bad_pull": (ACK, seq, target + 5000, 0),
        "bad_nack": (ACK | NACK, seq, 0, seq - 5000),
        "rst": (NACK | FIN, head["epoch"], 0, seq),
    }[kind]
    return CONTROL.pack(KIND_CONTROL, flags, 0, 0, head["epoch"], ack % WORD, pull % WORD, head["sender"], 0, echo % WORD,
                        0, 0)


def to_receiver(kind, head):
    """A data packet that the sender never sent."""
    flags, seq, target, unacked, payload = {
        "receiver_beyond": (0, head["seq"] + 5000, head["target"], 0, b"x" * 60),
        "receiver_duplicate": (0, head["seq"] - 400, head["target"], 400, b"x" * 60),
        "receiver_trimmed": (TRIM, head["seq"] + 60, head["target"], 0, b""),
        "demand": (EMPTY, head["seq"], head["target"] + (1 << 30), 0, b""),
        "skip": (EMPTY, head["seq"] + 30, head["target"], 0, b""),
        "end": (FIN | EMPTY, head["seq"], head["target"], 0, b""),
    }[kind]
    return DATA.pack(KIND_DATA, flags, IPV4 if payload else NOTHING, 0, head["epoch"], seq % WORD, target % WORD, 0,
                     head["sender"], 100, unacked, 1, 0, head["cookie"]) + payload


# To the receiver: the counter there, or a word for what has none.
KINDS = {"sender": ("bad_ack", "bad_pull", "bad_nack", "rst"),
         "receiver": ("receiver_beyond", "receiver_duplicate", "receiver_trimmed", "demand", "skip", "end"),
         "icmp": ICMP_ERRORS}


def waiting(tap):
    """The frames that a socket has, but not all that come meanwhile."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(100):
            yield tap.recv(TAKE, socket.MSG_DONTWAIT)


def onpath(port, end):
    """Forges a packet for every fifth data packet that passes by, at most, of each kind in turn. A busy machine runs this
    program late, and then only the latest packet isn't acknowledged yet."""
    counts, seen, used = dict.fromkeys(KINDS[end], 0), 0, 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as tap:
        tap.bind((port, 0))
        print("lying", flush=True)
        while True:
            ready, _, _ = select.select([tap, sys.stdin], [], [])
            if sys.stdin in ready:
                return {str(kind): count for kind, count in counts.items()}
            for each in waiting(tap):
                head = parse(each[42:]) if each[12:14] == b"\x08\0" and each[23] == 17 and \
                    each[36:38] == struct.pack(">H", PORT) else None
                if head and head["kind"] == KIND_DATA and not head["flags"] & (SYN | EMPTY | TRIM | FIN):
                    seen, frame, latest = seen + 1, each, head
            if seen < used + 5:
                continue
            used = seen
            forged = sum(counts.values())
            kind = KINDS[end][forged % len(counts)]
            source, to = socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])
            if end == "sender":
                ethernet, packet = frame[6:12] + frame[:6], datagram(to, source, to_sender(kind, latest))
            elif end == "icmp":
                ethernet, packet = frame[6:12] + frame[:6], icmp(to, source, kind, frame[14:142])
            else:
                ethernet, packet = frame[:12], datagram(source, to, to_receiver(kind, latest))
            tap.send(ethernet + b"\x08\0" + packet)
            counts[kind] += 1
            if forged + 1 == len(counts):
                print("all kinds", flush=True)


def main():
    kind, *words = sys.argv[1:]
    told = {"crowd": crowd, "mute": lambda: receives(ACK, 0), "floods": lambda: receives(ACK, 100000),
            "onpath": onpath}[kind](*words)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
