#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""IPv4 packets of sealed sessions at an interface; run in a machine of the lab.

    sealed_wire.py record INTERFACE FILE       packets from and to the node's port, until the input ends; says "records"
    sealed_wire.py search FILE TEXT            prints how many have the text in them, and how many there are
    sealed_wire.py replay FILE requests|answers  sends these again as they are, and prints how many
    sealed_wire.py flips FILE                  sends the last long request once for each bit of it, that bit turned,
                                               and prints how many
"""

import pathlib
import pickle
import select
import socket
import struct
import sys
import time

NODE_PORT = 7670
UDP, ETH_P_ALL = 17, 0x0003
HEADER_BYTES, SEAL_BYTES = 48, 24
SEALED = 3  # of the flags: level sealed, and not clear
LEVEL_AND_CLEAR = 0x0b


def udp_of(packet):
    """Source port, destination port and offset of the datagram; None: another packet."""
    head = (packet[0] & 15) * 4
    if packet[0] >> 4 != 4 or packet[9] != UDP or len(packet) < head + 8:
        return None
    source, to = struct.unpack_from("!HH", packet, head)
    return source, to, head + 8


def record(interface, path):
    packets = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        tap.bind((interface, ETH_P_ALL))
        print("records", flush=True)
        while True:
            ready, _, _ = select.select([tap, sys.stdin], [], [])
            if tap in ready:
                packet = tap.recv(1 << 16)
                found = udp_of(packet)
                if found and NODE_PORT in found[:2]:
                    packets.append(packet)
            elif sys.stdin in ready:
                break
    pathlib.Path(path).write_bytes(pickle.dumps(packets))


def recorded(path):
    return pickle.loads(pathlib.Path(path).read_bytes())


def search(path, text):
    packets = recorded(path)
    print(sum(text.encode() in packet for packet in packets), len(packets))


def is_sealed(packet):
    _, _, at = udp_of(packet)
    return len(packet) >= at + HEADER_BYTES + SEAL_BYTES and packet[at + 1] & LEVEL_AND_CLEAR == SEALED


class Sender:
    """Sends whole IP packets. The UDP checksum of a recorded one might have been left to the interface."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.sent = 0

    def send(self, packet):
        _, _, at = udp_of(packet)
        whole = bytearray(packet)
        whole[at - 2:at] = bytes(2)
        self.socket.sendto(whole, (socket.inet_ntoa(packet[16:20]), 0))
        self.sent += 1
        if self.sent % 32 == 0:
            time.sleep(0.001)  # the receiver's queue has room for some


def replay(path, which):
    sender = Sender()
    for packet in recorded(path):
        if is_sealed(packet) and (udp_of(packet)[1] == NODE_PORT) == (which == "requests"):
            sender.send(packet)
    print(sender.sent)


def flips(path):
    requests = [packet for packet in recorded(path) if is_sealed(packet) and udp_of(packet)[1] == NODE_PORT]
    packet = [each for each in requests if len(each) > 1000][-1]
    sender = Sender()
    for bit in range(udp_of(packet)[2] * 8, len(packet) * 8):
        turned = bytearray(packet)
        turned[bit // 8] ^= 1 << bit % 8
        sender.send(turned)
    print(sender.sent)


if __name__ == "__main__":
    {"record": record, "search": search, "replay": replay, "flips": flips}[sys.argv[1]](*sys.argv[2:])
