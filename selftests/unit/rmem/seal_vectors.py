#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Computes the test vectors of sealed sessions, with implementations that share nothing with this project's.

    selftests/unit/rmem/seal_vectors.py > selftests/unit/rmem/seal_vectors.hpp

It follows include/remora/rmem.h, "Sealed sessions", by libsodium 1.0.18 (X25519, XChaCha20-Poly1305, SipHash) and
Python's hashlib (BLAKE2s). Debian's package of libsodium is libsodium23; the tests need only the result.
"""

import ctypes
import hashlib
import struct

sodium = ctypes.CDLL("libsodium.so.23")
if sodium.sodium_init() < 0:
    raise SystemExit("libsodium doesn't start")

CLIENT, NODE = 1, 2
SPACE_KEY = bytes(range(0x40, 0x50))
SPACE, BOOT, SESSION, RENEWS, NONCE = 7, 0xB007B007B007B007, 0x1122334455660005, 0x0102030405060005, 0x7777000000000001
CLIENT_NAME = bytes(range(0xC0, 0xD0))
CLIENT_SECRET = hashlib.sha256(b"the client's secret").digest()
NODE_SECRET = hashlib.sha256(b"the node's secret").digest()


def x25519(secret, point=None):
    result = ctypes.create_string_buffer(32)
    if point is None:
        failed = sodium.crypto_scalarmult_curve25519_base(result, secret)
    else:
        failed = sodium.crypto_scalarmult_curve25519(result, secret, point)
    assert not failed
    return result.raw


def siphash(key, data):
    result = ctypes.create_string_buffer(8)
    sodium.crypto_shorthash_siphash24(result, data, ctypes.c_ulonglong(len(data)), key)
    return result.raw


def xchacha20poly1305(key, nonce, data, text):
    result = ctypes.create_string_buffer(len(text) + 16)
    length = ctypes.c_ulonglong()
    failed = sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(
        result, ctypes.byref(length), text, ctypes.c_ulonglong(len(text)), data, ctypes.c_ulonglong(len(data)), None,
        nonce, key)
    assert not failed and length.value == len(text) + 16
    return result.raw


def keying(sender):
    shared = x25519(CLIENT_SECRET, x25519(NODE_SECRET))
    assert shared == x25519(NODE_SECRET, x25519(CLIENT_SECRET))
    return (shared + x25519(CLIENT_SECRET) + x25519(NODE_SECRET) + CLIENT_NAME
            + struct.pack("<QQQQIB", NONCE, RENEWS, SESSION, BOOT, SPACE, sender) + b"rmem sealed")


def session_key(sender):
    return hashlib.blake2s(keying(sender), key=SPACE_KEY, digest_size=32).digest()


def datagram(sender, number, floor, flags, heads, payloads, salt):
    header = struct.pack("<BBBBIQQQQ", 1, 3 | flags, len(heads), 0, SPACE, SESSION, BOOT, floor, number)
    text = b"".join(heads) + b"".join(payloads)
    sealed = xchacha20poly1305(session_key(sender), salt + bytes(8) + struct.pack("<Q", number), header, text)
    header += siphash(SPACE_KEY, header)
    return header + text, header + sealed[:-16] + salt + sealed[-16:]


def head(kind, ident, addr, length, part=0, status=0, attempt=0, op=0):
    return struct.pack("<BBBBIQQII", kind, status, attempt, op, length, ident, addr, part, 0)


def define(name, value):
    text = value.hex()
    lines = [text[at:at + 80] for at in range(0, len(text), 80)]
    print(f"inline constexpr const char* {name} =\n    " + "\n    ".join(f'"{line}"' for line in lines) + ";")


def main():
    print("// SPDX-License-Identifier: GPL-2.0")
    print("// Made by seal_vectors.py: don't edit.")
    print("#pragma once\n\nnamespace seal_vectors {\n")
    print("// clang-format off")
    define("space_key", SPACE_KEY)
    define("client_secret", CLIENT_SECRET)
    define("client_public", x25519(CLIENT_SECRET))
    define("node_secret", NODE_SECRET)
    define("node_public", x25519(NODE_SECRET))
    define("keying_client", keying(CLIENT))
    define("keying_node", keying(NODE))
    define("key_client", session_key(CLIENT))
    define("key_node", session_key(NODE))
    data = bytes((7 * n + 1) & 0xFF for n in range(100))
    plain, sealed = datagram(CLIENT, 0x0000000100000002, 5, 0x04, [head(6, 9, 0x10000, 100), head(5, 10, 0x20000, 64, 8704)],
                             [data], bytes.fromhex("a1a2a3a4a5a6a7a8"))
    define("request", plain)
    define("request_sealed", sealed)
    plain, sealed = datagram(NODE, 3 << 48 | 12, 0, 0, [head(0x86, 9, 0x10000, 100), head(0x85, 10, 0x20000, 64)],
                             [data[:64]], bytes.fromhex("0102030405060708"))
    define("answer", plain)
    define("answer_sealed", sealed)
    print("// clang-format on\n\n} // namespace seal_vectors")


if __name__ == "__main__":
    main()
