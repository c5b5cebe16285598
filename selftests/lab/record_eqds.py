#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tunnel packets of a link, in the order in which they pass; run in a host of the rack.

    record_eqds.py DEVICE       prints "recording"; once its input ends, JSON: for each packet its way (in, out), the bytes
                                of the UDP payload, the tunnel's header in hex, the source port, the IP ID, and whether IP
                                says that it met congestion
"""

import json
import socket
import struct
import sys

from hostile_eqds import DATA, PORT, SO_RCVBUFFORCE, until_input_ends

IPV4 = b"\x08\0"


def main():
    told = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 27)
        tap.bind((sys.argv[1], 0))
        print("recording", flush=True)
        for frame, where in until_input_ends(tap):
            if frame[12:14] != IPV4 or frame[23] != socket.IPPROTO_UDP or frame[36:38] != struct.pack(">H", PORT):
                continue
            told.append({"way": "out" if where[2] == socket.PACKET_OUTGOING else "in",
                         "bytes": struct.unpack(">H", frame[38:40])[0] - 8, "header": frame[42:42 + DATA.size].hex(),
                         "port": struct.unpack(">H", frame[34:36])[0], "id": int.from_bytes(frame[18:20], "big"), "ce": frame[15] & 3 == 3})
    print(json.dumps(told))


if __name__ == "__main__":
    main()
