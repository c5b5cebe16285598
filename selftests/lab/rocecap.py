#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""RoCEv2 packets that a device hands to the stack, as JSON; run in a machine of the lab.

    rocecap.py DEVICE CNPS     ends when it has seen so many congestion notifications

Prints "capturing", and at the end {"cnp": [...], "other": [...]}, each packet by its addresses, opcode, destination queue
pair, BECN bit, and whether its invariant checksum is right.
"""

import json
import socket
import sys
import zlib

PORT, CNP = 4791, 0x81
PACKET_OUTGOING = 4


def icrc(packet, head):
    """Over IPv4: annex A17 of the InfiniBand Architecture Specification, with ones in what routers change."""
    masked = bytearray(packet)
    masked[1] = masked[8] = masked[head + 12] = 0xff
    masked[10:12] = masked[head + 6:head + 8] = b"\xff\xff"
    return zlib.crc32(b"\xff" * 8 + masked)


def parsed(packet):
    head = (packet[0] & 15) * 4
    bth = packet[head + 8:]
    return {"from": socket.inet_ntoa(packet[12:16]), "to": socket.inet_ntoa(packet[16:20]), "opcode": bth[0],
            "qpn": int.from_bytes(bth[5:8], "big"), "becn": bool(bth[4] & 0x40),
            "icrc_good": icrc(packet[:-4], head) == int.from_bytes(packet[-4:], "little")}


def main():
    device, wanted = sys.argv[1], int(sys.argv[2])
    seen = {"cnp": [], "other": []}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as tap:
        tap.bind((device, 0))
        print("capturing", flush=True)
        while len(seen["cnp"]) < wanted or not seen["other"]:
            frame, (_, protocol, kind, *_) = tap.recvfrom(16384)
            packet = frame[14:]
            if protocol != 0x0800 or kind == PACKET_OUTGOING or packet[9] != 17 or \
                    int.from_bytes(packet[22:24], "big") != PORT:
                continue
            told = parsed(packet[:int.from_bytes(packet[2:4], "big")])
            which = seen["cnp" if told["opcode"] == CNP else "other"]
            if len(which) < wanted:
                which.append(told)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
