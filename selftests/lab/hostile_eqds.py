#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tunnel packets that no tunnel would send, from any source address; run in a host of the rack.

    hostile_eqds.py KIND SOURCE DESTINATION COUNT SEED

    syns        first packets of tunnels; SOURCE NET.0/24 or NET.0.0/16 stands for a random address of it
    control     ACK, NACK, PULL and RST of random epochs and numbers
    tagged      control packets and data with a tag by no key
    data        packets of random epochs and numbers, with and without SYN
    malformed   headers cut short, unknown kinds, flags that exclude each other, lengths that lie
    demand      one tunnel that asks for as much as its header can say
    counted     one tunnel's packets whose numbers are counted by IP ID: IDs, counts and lengths that are good, or lie
    rdma        a tunnel of the RDMA class whose packets are none of RDMA's
    nested      tunnel packets as the payload of a tunnel
    icmp        errors that quote packets from DESTINATION to SOURCE, of random epochs and numbers, cut off anywhere
    FORM        each packet of a malformed form, see FORMS; prints their number
    replay      the first COUNT packets of tunnels that pass by the port SOURCE, each again once its input ends:
                prints "recording" and "recorded"

Prints how many it sent, and their bytes, Ethernet's left out.

    hostile_eqds.py sequence DESTINATION COUNT [AT_ONCE]    data packets with numbers from 0 on, of a kilobyte each; the
                stack gets so many in one piece
    hostile_eqds.py watch DEVICE                       prints "watching", and once its input ends, as JSON for each data
                packet that arrived: number, whether it was trimmed, bytes of the datagram by its header and as they came,
                traffic class and hop limit outside, and inside
    hostile_eqds.py probe DEVICE SOURCE DESTINATION    packets of every kind, each from an address of its own at SOURCE's
                NET.0/24, which DEVICE has; once its input ends, prints for each kind the bytes sent and those that came
                back, as JSON
"""

import contextlib
import json
import random
import select
import socket
import struct
import sys

# struct eqds_data and struct eqds_control of include/remora/eqds.h.
DATA = struct.Struct(">BBBBIIIHHHHIIQ")
CONTROL = struct.Struct(">BBBBIIIHHIQQ")
PORT = 7671
KIND_DATA, KIND_CONTROL, TAGGED, COUNTED = 0x11, 0x12, 0x04, 0x08
SYN, NACK, SACK, ACK, EMPTY, PAUSE, FIN, TRIM = (1 << bit for bit in range(8))
IPV4, NOTHING = 4, 59
# asm-generic/socket.h, linux/udp.h; Python has no names for them
SO_RCVBUFFORCE, UDP_SEGMENT = 33, 103


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def parse(payload):
    """A tunnel's header by name, or None."""
    if len(payload) < DATA.size or payload[0] not in (KIND_DATA, KIND_CONTROL):
        return None
    names = (("kind", "flags", "next", "attempt", "epoch", "seq", "target", "path", "sender", "bytes", "unacked", "stamp",
              "backlog", "cookie") if payload[0] == KIND_DATA else
             ("kind", "flags", "marks", "attempt", "epoch", "ack", "pull", "sender", "busy_us", "echo", "sack", "cookie"))
    return dict(zip(names, (DATA if payload[0] == KIND_DATA else CONTROL).unpack_from(payload)))


def datagram(source, destination, payload, udp_bytes=None, behind=b"", ip_id=0):
    """udp_bytes: a length that lies; behind: bytes in the IP packet behind the datagram."""
    length = 8 + len(payload)
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    udp = struct.pack(">HHHH", 0xc001, PORT, udp_bytes or length, 0) + payload
    total = checksum(ends + struct.pack(">BBH", 0, 17, length) + udp) or 0xffff
    udp = udp[:6] + struct.pack(">H", total) + udp[8:] + behind
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), ip_id, 0, 64, 17, 0) + ends
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + udp


def icmp(source, destination, error, quoted):
    """error: type, code, and what an error of that code has in its last four bytes."""
    said = struct.pack(">BBHI", *error[:2], 0, error[2]) + quoted
    said = said[:2] + struct.pack(">H", checksum(said)) + said[4:]
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(said), 0, 0, 64, socket.IPPROTO_ICMP, 0) + \
        socket.inet_aton(source) + socket.inet_aton(destination)
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + said


def data(chance, flags=0, payload=b"", **known):
    fields = {"next": IPV4 if payload else NOTHING, "attempt": 0, "epoch": chance.getrandbits(32),
              "seq": chance.choice((0, chance.getrandbits(32))), "target": chance.choice((1, chance.getrandbits(32))),
              "path": 0, "sender": chance.choice((0, 0, 1, 2, chance.getrandbits(16))), "bytes": 88 + len(payload),
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


def counted(chance, source, destination):
    """A packet of a tunnel whose header is for some after seq; what it is differs from what it says in every second."""
    seq, after, length = chance.randrange(chance.choice((600, 70000))), chance.choice((0, 1, 9, 255)), chance.randrange(20, 1400)
    lies = chance.randrange(8)
    head = data(chance, chance.choice((0, SYN, SYN | TRIM, SYN | EMPTY)) if lies == 1 else SYN, ipv4(20 + length, bytes(length)),
                attempt=after, epoch=103, seq=seq, sender=0, unacked=chance.choice((0, seq & 0xffff)) if lies == 2 else 0, cookie=0,
                bytes=chance.randrange(65536) if lies == 3 else 108 + length)
    at = chance.getrandbits(16) if lies == 0 else seq + chance.randrange(after + 1) & 0xffff
    return datagram(source, destination, bytes([head[0] | COUNTED]) + head[1:], ip_id=at)


def syn(chance, payload=b"", **known):
    return data(chance, known.pop("flags", SYN), payload, **({"seq": 0, "sender": 0, "unacked": 0, "cookie": 0} | known))


def ipv4(total, payload):
    return bytes([0x45, 0]) + struct.pack(">H", total) + bytes([0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 9, 10, 9, 0, 8]) + payload


# Malformed packets by form: (payload, more arguments of datagram()) each.
FORMS = {
    "truncated": lambda chance: [(whole[:length], {}) for whole in (syn(chance, bytes(60)), control(chance))
                                 for length in range(DATA.size)],
    "kinds": lambda chance: [(bytes([kind]) + syn(chance)[1:], {}) for kind in range(256)
                             if kind not in (KIND_DATA, KIND_DATA | COUNTED, KIND_CONTROL) and not kind & TAGGED],
    "flags": lambda chance: [(syn(chance, flags=SYN | more), {}) for more in (NACK, SACK, ACK, PAUSE, FIN, TRIM | EMPTY)] +
             [(CONTROL.pack(KIND_CONTROL, flags, *bytes(10)), {}) for flags in
              (0, SYN, ACK | EMPTY, ACK | TRIM, NACK | SACK, ACK | FIN, PAUSE | SYN, PAUSE | NACK)],
    # The datagram ends within the header, and its packet does not.
    "short_udp": lambda chance: [(syn(chance)[:length], {"behind": syn(chance)[length:]}) for length in range(DATA.size)],
    # Dropped by UDP.
    "long_udp": lambda chance: [(syn(chance), {"udp_bytes": length}) for length in (49, 100, 65535)],
    # A switch that trims leaves the header alone.
    "trimmed": lambda chance: [(syn(chance, bytes(length), flags=SYN | TRIM), {}) for length in (0, 1, 39, 40, 1400)],
    "empty": lambda chance: [(syn(chance, bytes(length), flags=SYN | EMPTY), {}) for length in (1, 39, 81, 1400)],
    # One byte more than fits into the MTU, and datagrams of many fragments.
    "overlong": lambda chance: [(syn(chance, bytes(length)), {}) for length in (1413, 1432, 3000, 60000)],
    # The payload contradicts the tunnel's header.
    "inner": lambda chance: [(syn(chance, payload, next=proto), {}) for proto, payload in
                             ((IPV4, b""), (IPV4, ipv4(19, b"")[:19]), (IPV4, b"\x65" + ipv4(40, bytes(20))[1:]),
                              (41, bytes([0x60]) + bytes(38)), (41, ipv4(60, bytes(40))), (6, ipv4(40, bytes(20))),
                              (NOTHING, ipv4(40, bytes(20))), (255, bytes(100)))],
    # Good ones, but for IP's length.
    "inner_length": lambda chance: [(syn(chance, ipv4(total, bytes(20)), next=IPV4), {}) for total in (41, 1500, 65535)],
}


def probes(chance):
    """Packets by what an address has proven that they come from: nothing."""
    whole = bytes(96)
    return {
        "rts": [syn(chance, whole, flags=SYN | EMPTY, target=64, backlog=WORD_MAX)],
        "rts_without_padding": [syn(chance, flags=SYN | EMPTY, target=64)],
        "rts_again": [syn(chance, whole, flags=SYN | EMPTY, target=64, epoch=epoch) for epoch in range(5, 15)],
        "data": [syn(chance, bytes(60), target=64)],
        "data_of_an_epoch": [syn(chance, bytes(60), target=64, epoch=7, seq=seq) for seq in range(5)],
        "data_of_no_tunnel": [syn(chance, bytes(60), flags=0)],
        "trimmed": [syn(chance, flags=SYN | TRIM, target=64, epoch=7, seq=seq) for seq in range(5)],
        "epochs_that_fall": [syn(chance, flags=SYN | EMPTY, epoch=epoch) for epoch in range(20, 10, -1)],
        "end": [syn(chance, flags=FIN | EMPTY)],
        "control": [control(chance) for _ in range(10)],
        "class_of_programs": [syn(chance, whole, flags=SYN | EMPTY, target=64, sender=2)],
    }


WORD_MAX = (1 << 32) - 1


# No network, no host, no port, fragmentation needed, another router is nearer, time exceeded.
ICMP_ERRORS = ((3, 0, 0), (3, 1, 0), (3, 3, 0), (3, 4, 68), (5, 1, 0x0a000063), (11, 0, 0))


def until_input_ends(tap):
    """The packets that a socket receives, to the last one that is there when the input ends."""
    ends = False
    while not ends or select.select([tap], [], [], 0)[0]:
        ready, _, _ = select.select([tap] + [sys.stdin] * (not ends), [], [])
        ends = ends or sys.stdin in ready
        if tap in ready:
            yield tap.recvfrom(65535)


def probe(device, source, destination):
    """Its own host answers with ICMP, which the bytes leave out."""
    chance, told, kind_of = random.Random(1), {}, {}
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as tap:
        tap.bind((device, 0))
        for number, (kind, payloads) in enumerate(probes(chance).items()):
            address = source.removesuffix("0/24") + str(100 + number)
            kind_of[address], told[kind] = kind, {"sent": 0, "got": 0}
            for payload in payloads:
                packet = datagram(address, destination, payload)
                raw.sendto(packet, (destination, 0))
                told[kind]["sent"] += len(packet)
        print("probed", flush=True)
        for packet, where in until_input_ends(tap):
            to = kind_of.get(socket.inet_ntoa(packet[16:20]))
            if where[2] == socket.PACKET_HOST and to and packet[9] == socket.IPPROTO_UDP:
                told[to]["got"] += struct.unpack(">H", packet[2:4])[0]
    print(json.dumps(told))


def sequence(destination, count, at_once="1"):
    chance, many = random.Random(1), int(at_once)
    with socket.socket(socket.AF_INET6 if ":" in destination else socket.AF_INET, socket.SOCK_DGRAM) as out:
        if many > 1:
            out.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, DATA.size + 1000)
        packets = [data(chance, 0, bytes(1000), seq=number) for number in range(int(count))]
        for first in range(0, len(packets), many):
            out.sendto(b"".join(packets[first:first + many]), (destination, PORT))


def class_and_hops(packet):
    """Of an IP packet; None if there is none."""
    if len(packet) < 20:
        return None
    return (packet[1], packet[8]) if packet[0] >> 4 == 4 else ((packet[0] & 15) << 4 | packet[1] >> 4, packet[7])


def watch(device):
    told = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003)) as tap:
        tap.bind((device, 0))
        print("watching", flush=True)
        for packet, where in until_input_ends(tap):
            if where[2] != socket.PACKET_HOST or where[1] not in (0x0800, 0x86dd):
                continue
            udp = packet[20:] if where[1] == 0x0800 else packet[40:]
            if (packet[9] if where[1] == 0x0800 else packet[6]) != 17 or udp[2:4] != struct.pack(">H", PORT):
                continue
            head = parse(udp[8:])
            if head and head["kind"] == KIND_DATA:
                told.append((head["seq"], bool(head["flags"] & TRIM), struct.unpack(">H", udp[4:6])[0], len(udp),
                             class_and_hops(packet), class_and_hops(udp[8 + DATA.size:])))
    print(json.dumps(told))


def cookie_of(raw, chance, source, destination):
    """The cookie that the destination tells this host, whose tunnel device is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as answers:
        answers.bind((source, PORT))
        answers.settimeout(1)
        for _ in range(30):
            raw.sendto(datagram(source, destination, syn(chance, flags=SYN | EMPTY)), (destination, 0))
            with contextlib.suppress(TimeoutError):
                return parse(answers.recv(2048))["cookie"]
    raise SystemExit("no cookie came")


def forms(form, source, destination):
    """Forms that need a tunnel share one: each packet begins a later epoch of it."""
    chance = random.Random(1)
    packets = FORMS[form](chance)
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    if form in FORMS_OF_TUNNELS:
        cookie = struct.pack(">Q", cookie_of(raw, chance, source, destination))
        packets = [(payload[:4] + struct.pack(">I", 100 + number) + payload[8:32] + cookie + payload[40:], more)
                   for number, (payload, more) in enumerate(packets)]
    for payload, more in packets:
        if form == "overlong":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                out.sendto(payload, (destination, PORT))
            continue
        raw.sendto(datagram(source, destination, payload, **more), (destination, 0))
    print(len(packets))


FORMS_OF_TUNNELS = ("trimmed", "empty", "inner", "inner_length")


def source_of(chance, source):
    if source.endswith("/16"):
        return source.removesuffix("0.0/16") + f"{chance.randrange(1, 250)}.{chance.randrange(100, 250)}"
    return source.removesuffix("0/24") + str(chance.randrange(100, 250)) if source.endswith("/24") else source


def payload_of(kind, chance, source, destination, number):
    if kind == "syns":
        return data(chance, SYN | EMPTY, bytes(96), seq=0, cookie=0, sender=chance.randrange(3), next=NOTHING)
    if kind == "control":
        return control(chance)
    if kind == "tagged":
        whole = chance.choice((control(chance), data(chance, chance.choice((0, SYN, SYN | EMPTY, FIN | EMPTY)))))
        return bytes([whole[0] | TAGGED]) + whole[1:] + chance.randbytes(16 + chance.choice((0, 100)))
    if kind == "data":
        return data(chance, chance.choice((0, SYN, EMPTY, FIN | EMPTY)), chance.randbytes(chance.randrange(20, 200)))
    if kind == "demand":
        return data(chance, SYN | EMPTY, bytes(96), epoch=77, seq=0, target=0x7fffffff, sender=1, backlog=0xffffffff,
                    unacked=0, cookie=0, next=NOTHING)
    if kind == "rdma":
        inner = datagram(source, destination, bytes(40))
        return data(chance, SYN, inner, epoch=101, seq=number, sender=1, unacked=0, cookie=0)
    if kind == "nested":
        inner = datagram(source, destination, data(chance, SYN, bytes(40)))
        return data(chance, SYN, inner, epoch=99, seq=0, sender=2, unacked=0, cookie=0)
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
    alone = {"probe": probe, "sequence": sequence, "watch": watch}.get(sys.argv[1])
    if alone:
        return alone(*sys.argv[2:])
    if sys.argv[1] in FORMS:
        return forms(*sys.argv[1:])
    kind, source, destination, count, seed = sys.argv[1:]
    chance, sent, total = random.Random(int(seed)), 0, 0
    if kind == "replay":
        sent, total = replay(source, int(count))
    else:
        out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        for _ in range(int(count)):
            at = source_of(chance, source)
            if kind == "icmp":
                quoted = datagram(destination, at, data(chance, chance.choice((0, SYN)), bytes(100), sender=0))
                # A router quotes eight bytes behind the IP header, at least.
                packet = icmp(at, destination, chance.choice(ICMP_ERRORS), quoted[:chance.randrange(28, len(quoted))])
            elif kind == "counted":
                packet = counted(chance, at, destination)
            else:
                packet = datagram(at, destination, payload_of(kind, chance, at, destination, sent),
                                  chance.choice((None, 8, 40, 65535)) if kind == "malformed" else None)
            out.sendto(packet, (destination, 0))
            sent, total = sent + 1, total + len(packet)
    return print(sent, total)


if __name__ == "__main__":
    main()
