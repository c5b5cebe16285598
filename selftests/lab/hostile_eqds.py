#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tunnel packets that no tunnel would send, from any source address; run in a host of the rack.

    hostile_eqds.py KIND SOURCE DESTINATION COUNT SEED

    syns        first packets of tunnels; SOURCE NET.0/24 stands for a random address of it
    control     ACK, NACK, PULL and RST of random epochs and numbers
    tagged      control packets and data with a tag by no key
    data        packets of random epochs and numbers, with and without SYN
    malformed   headers cut short, unknown kinds, flags that exclude each other, lengths that lie
    demand      one tunnel that asks for as much as its header can say
    rdma        a tunnel of the RDMA class whose packets are none of RDMA's
    nested      tunnel packets as the payload of a tunnel
    replay      the first COUNT packets of tunnels that pass by the port SOURCE, each again once its input ends:
                prints "recording" and "recorded"

Prints how many it sent, and their bytes, Ethernet's left out.
"""

import random
import socket
import struct
import sys

# struct eqds_data and struct eqds_control of include/remora/eqds.h.
DATA = struct.Struct(">BBBBIIIHHHHIIQ")
CONTROL = struct.Struct(">BBBBIIIHHIQQ")
PORT = 7671
KIND_DATA, KIND_CONTROL, TAGGED = 0x11, 0x12, 0x04
SYN, NACK, SACK, ACK, EMPTY, PAUSE, FIN, TRIM = (1 << bit for bit in range(8))
IPV4, NOTHING = 4, 59
SO_RCVBUFFORCE = 33  # asm-generic/socket.h; Python has no name for it


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def datagram(source, destination, payload, udp_bytes=None):
    length = 8 + len(payload)
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    udp = struct.pack(">HHHH", 0xc001, PORT, udp_bytes or length, 0) + payload
    total = checksum(ends + struct.pack(">BBH", 0, 17, length) + udp) or 0xffff
    udp = udp[:6] + struct.pack(">H", total) + udp[8:]
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + ends
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + udp


def data(chance, flags=0, payload=b"", **known):
    fields = {"next": IPV4 if payload else NOTHING, "attempt": 0, "epoch": chance.getrandbits(32),
              "seq": chance.choice((0, chance.getrandbits(32))), "target": chance.choice((1, chance.getrandbits(32))),
              "path": 0, "sender": chance.choice((0, 0, chance.getrandbits(16))), "bytes": 88 + len(payload),
              "unacked": chance.choice((0, 0, chance.getrandbits(16))), "stamp": 1,
              "backlog": chance.getrandbits(32), "cookie": chance.choice((0, chance.getrandbits(64)))} | known
    return DATA.pack(KIND_DATA, flags, *fields.values()) + payload


def control(chance):
    flags = chance.choice((ACK, ACK | SACK, ACK | NACK, NACK | FIN, ACK | SYN, PAUSE | SYN | NACK))
    return CONTROL.pack(KIND_CONTROL, flags, chance.getrandbits(1), 0, chance.getrandbits(32),
                        chance.choice((0, 1, chance.getrandbits(32))), chance.choice((1, chance.getrandbits(32))), 0,
                        65535, chance.getrandbits(32), chance.getrandbits(64), chance.getrandbits(64))


def malformed(chance):
    whole = chance.choice((data(chance, SYN, chance.randbytes(100)), control(chance)))
    return chance.choice((
        whole[:chance.randrange(40)],
        bytes([chance.getrandbits(8)]) + whole[1:],
        whole[:1] + bytes([chance.getrandbits(8)]) + whole[2:],
        data(chance, SYN | TRIM, chance.randbytes(chance.randrange(1, 1400))),
        data(chance, SYN, chance.randbytes(chance.randrange(1, 60)), next=chance.getrandbits(8)),
        data(chance, SYN, b"\x45\0\xff\xff" + chance.randbytes(60)),
        data(chance, SYN | EMPTY, chance.randbytes(1400))))


def source_of(chance, source):
    return source.removesuffix("0/24") + str(chance.randrange(100, 250)) if source.endswith("/24") else source


def payload_of(kind, chance, source, destination, number):
    if kind == "syns":
        return data(chance, SYN | EMPTY, bytes(80), seq=0, cookie=0, sender=chance.getrandbits(16), next=NOTHING)
    if kind == "control":
        return control(chance)
    if kind == "tagged":
        whole = chance.choice((control(chance), data(chance, chance.choice((0, SYN, SYN | EMPTY, FIN | EMPTY)))))
        return bytes([whole[0] | TAGGED]) + whole[1:] + chance.randbytes(16 + chance.choice((0, 100)))
    if kind == "data":
        return data(chance, chance.choice((0, SYN, EMPTY, FIN | EMPTY)), chance.randbytes(chance.randrange(20, 200)))
    if kind == "demand":
        return data(chance, SYN | EMPTY, bytes(80), epoch=77, seq=0, target=0x7fffffff, sender=9, backlog=0xffffffff,
                    unacked=0, cookie=0, next=NOTHING)
    if kind == "rdma":
        inner = datagram(source, destination, bytes(40))
        return data(chance, SYN, inner, epoch=101, seq=number, sender=1, unacked=0, cookie=0)
    if kind == "nested":
        inner = datagram(source, destination, data(chance, SYN, bytes(40)))
        return data(chance, SYN, inner, epoch=99, seq=0, sender=10, unacked=0, cookie=0)
    return malformed(chance)


def with_checksum(frame):
    """A captured frame has what its sender left to the NIC."""
    end = 14 + struct.unpack(">H", frame[16:18])[0]
    udp = frame[34:40] + b"\0\0" + frame[42:end]
    total = checksum(frame[26:34] + struct.pack(">BBH", 0, 17, len(udp)) + udp) or 0xffff
    return frame[:40] + struct.pack(">H", total) + udp[8:]


def replay(device, count):
    """Frames that pass by a port of the bridge, again to the host behind it."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as tap:
        # A busy machine runs this program late: what passes by waits for it.
        tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        tap.bind((device, 0))
        print("recording", flush=True)
        kept, memory = [], bytearray(16384)
        while len(kept) < count:
            frame = bytes(memory[:tap.recv_into(memory)])
            if frame[12:14] == b"\x08\0" and frame[23] == 17 and frame[36:38] == struct.pack(">H", PORT):
                kept.append(frame)
        print("recorded", flush=True)
        sys.stdin.readline()
        kept = [with_checksum(frame) for frame in kept]
        for frame in kept:
            tap.send(frame)
    return len(kept), sum(map(len, kept))


def main():
    kind, source, destination, count, seed = sys.argv[1:]
    chance, sent, total = random.Random(int(seed)), 0, 0
    if kind == "replay":
        sent, total = replay(source, int(count))
    else:
        out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        for _ in range(int(count)):
            at = source_of(chance, source)
            packet = datagram(at, destination, payload_of(kind, chance, at, destination, sent),
                              chance.choice((None, 8, 40, 65535)) if kind == "malformed" else None)
            out.sendto(packet, (destination, 0))
            sent, total = sent + 1, total + len(packet)
    print(sent, total)


if __name__ == "__main__":
    main()
