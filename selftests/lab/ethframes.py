#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Frames of the experimental type, in a guest.

    ethframes.py send INTERFACE TO VERDICT WHERE BYTES COUNT   see xdp.bpf.c
    ethframes.py listen INTERFACE            prints "listening", then for each frame its fifteenth byte, length, source
"""

import socket
import sys

TYPE = 0x88B5


def address(text):
    return bytes.fromhex(text.replace(":", ""))


def main(verb, interface, *rest):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(TYPE))
    port.bind((interface, TYPE))
    if verb == "send":
        to, verdict, where, count_bytes, count = rest
        frame = address(to) + port.getsockname()[4] + TYPE.to_bytes(2, "big") + bytes([int(verdict)]) + address(where)
        for _ in range(int(count)):
            port.send(frame.ljust(int(count_bytes), b"x"))
        return
    print("listening", flush=True)
    while True:
        frame, (_, _, kind, _, _) = port.recvfrom(1 << 16)
        if kind != socket.PACKET_OUTGOING:
            print(frame[14], len(frame), frame[6:12].hex(":"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
