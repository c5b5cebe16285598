#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A client that asks for what isn't its own; run in a machine of the lab.

    tenant.py HOST PORT SPACE KEYFILE OTHER_SPACE ADDRESS

Opens a session in its space, with its key. Reads the address there, then claims to be of the other space. Prints
the status of the first answer, and which of the requests was answered last: a forged one never is.
"""

import os
import pathlib
import socket
import struct
import sys

# struct rmem_hdr, but for its tag, and struct rmem_msg of include/remora/rmem.h.
HEADER, TAG_BYTES = struct.Struct("<BBBBIQQQQ"), 8
MESSAGE = struct.Struct("<BBBBIQQII")
OPEN, READ, RESPONSE = 1, 5, 0x80
LINK = 0
TRIES, ANSWER_S = 10, 3
MASK = (1 << 64) - 1


def siphash(key, data):
    """SipHash-2-4."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573]

    def rotate(word, by):
        return (word << by | word >> (64 - by)) & MASK

    def rounds(count):
        for _ in range(count):
            for a, b, by in ((0, 1, 13), (2, 3, 16)):
                v[a] = (v[a] + v[b]) & MASK
                v[b] = rotate(v[b], by) ^ v[a]
            v[0] = rotate(v[0], 32)
            for a, b, by in ((2, 1, 17), (0, 3, 21)):
                v[a] = (v[a] + v[b]) & MASK
                v[b] = rotate(v[b], by) ^ v[a]
            v[2] = rotate(v[2], 32)

    whole = len(data) // 8 * 8
    last = int.from_bytes(data[whole:], "little") | (len(data) & 0xff) << 56
    for word in (*struct.unpack(f"<{whole // 8}Q", data[:whole]), last):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xff
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def message(key, kind, payload=b"", **known):
    shared = {"version": 1, "flags": LINK, "messages": 1, "reserved": 0, "space": 0, "session": 0, "boot": 0,
              "floor": 1, "number": 0}
    own = {"type": kind, "status": 0, "attempt": 0, "op": 0, "len": len(payload), "id": 1, "addr": 0, "part": 0,
           "digest": 0}
    header = HEADER.pack(*(known.get(name, value) for name, value in shared.items()))
    head = MESSAGE.pack(*(known.get(name, value) for name, value in own.items()))
    return header + struct.pack("<Q", siphash(key, payload + head + header)) + head + payload


def ask(sock, *requests):
    """Sends the requests in a row, until something is answered; the answer's fields."""
    for _ in range(TRIES):
        for each in requests:
            sock.send(each)
        try:
            answer = sock.recv(65536)
            _, _, _, _, _, session, boot, *_ = HEADER.unpack_from(answer)
            _, status, _, _, _, ident, addr, *_ = MESSAGE.unpack_from(answer, HEADER.size + TAG_BYTES)
            return {"session": session, "boot": boot, "status": status, "id": ident, "addr": addr}
        except TimeoutError:
            continue
    raise SystemExit("the node doesn't answer")


def main(host, port, space, key_file, other, address):
    key = bytes.fromhex(pathlib.Path(key_file).read_text())
    space, other, address = int(space), int(other), int(address, 0)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(ANSWER_S)
    sock.connect((host, int(port)))
    wanted, nonce = os.urandom(16) + bytes([LINK]) + bytes(7), int.from_bytes(os.urandom(7), "little") + 1
    challenge = ask(sock, message(key, OPEN, wanted, space=space, id=nonce, floor=1))["addr"]
    opened = ask(sock, message(key, OPEN, wanted, space=space, id=nonce, floor=1, addr=challenge))
    known = {"session": opened["session"], "boot": opened["boot"], "addr": address, "len": 4096, "part": 4096}
    trespass = ask(sock, message(key, READ, space=space, id=1, floor=1, **known))
    # The node takes them in turn, so the answer to the second says that there is none to the first.
    forged = ask(sock, message(key, READ, space=other, id=2, floor=2, **known),
                 message(key, READ, space=space, id=3, floor=2, **known))
    print(trespass["status"], forged["id"])


if __name__ == "__main__":
    main(*sys.argv[1:])
