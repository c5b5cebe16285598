#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Streams and datagrams that check themselves, in a guest.

    wire_check.py echo PORT                        sends back all that comes by TCP and UDP; prints "listening"
    wire_check.py tcp ADDRESS PORT SEED GO_ON      rounds until the file GO_ON is gone; prints "round N" after each
    wire_check.py udp ADDRESS PORT SEED GO_ON      the same, by datagrams

A round by TCP is a connection whose bytes come back as they were sent. A round by UDP is some datagrams of all sizes:
an answer can be lost, come twice or late, but its digest is right. Exit status 0: told to stop. 1: wrong bytes.
3: a call failed, and the last line says which error. 4: nothing came for STUCK_S.
"""

import contextlib
import errno
import hashlib
import os
import random
import socket
import sys
import threading

STREAM_BYTES, CHUNK = 1 << 18, 1 << 16
DATAGRAMS, DATAGRAM_BYTES_MAX, ANSWER_S = 30, 4000, 0.3
DIGEST_BYTES = 16
STUCK_S = 150


def echo(port):
    listener = socket.create_server(("::", port), backlog=64, family=socket.AF_INET6, dualstack_ipv6=True)
    datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    datagrams.bind(("::", port))

    def answer_datagrams():
        while True:
            try:
                datagrams.sendto(*datagrams.recvfrom(1 << 16))
            except OSError:
                pass  # about an earlier answer

    def answer_stream(stream):
        with stream:
            try:
                while data := stream.recv(CHUNK):
                    stream.sendall(data)
            except OSError:
                pass  # the client sees it, too

    threading.Thread(target=answer_datagrams, daemon=True).start()
    print("listening", flush=True)
    while True:
        threading.Thread(target=answer_stream, args=(listener.accept()[0],), daemon=True).start()


def wrong(what):
    print(f"wrong bytes: {what}", flush=True)
    os._exit(1)


def tcp_round(address, port, chance):
    sent = chance.randbytes(chance.randint(1, STREAM_BYTES))
    with socket.create_connection((address, port), timeout=STUCK_S) as stream:
        def send():
            try:
                stream.sendall(sent)
                stream.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the receiver sees it, too

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        at = 0
        while data := stream.recv(CHUNK):
            if data != sent[at:at + len(data)]:
                wrong(f"a stream's at {at} to {at + len(data)} of {len(sent)}")
            at += len(data)
        if at != len(sent):
            raise ConnectionResetError(errno.ECONNRESET, f"closed after {at} of {len(sent)} bytes")
        sender.join()


def udp_round(datagrams, address, port, chance):
    answers = 0
    with contextlib.suppress(OSError):  # no way there for now
        datagrams.connect((address, port))
    for _ in range(DATAGRAMS):
        body = chance.randbytes(chance.randint(0, DATAGRAM_BYTES_MAX))
        try:
            datagrams.send(hashlib.sha256(body).digest()[:DIGEST_BYTES] + body)
            got = datagrams.recv(1 << 16)
        except OSError:
            continue  # lost, or no way there for now
        if hashlib.sha256(got[DIGEST_BYTES:]).digest()[:DIGEST_BYTES] != got[:DIGEST_BYTES]:
            wrong(f"a datagram's, of {len(got)} bytes")
        answers += 1
    return answers


def repeat(kind, address, port, seed, go_on):
    chance, number, answers = random.Random(seed), 0, 0
    datagrams = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.settimeout(ANSWER_S)
    while os.path.exists(go_on):
        try:
            if kind == "tcp":
                tcp_round(address, port, chance)
            else:
                answers += udp_round(datagrams, address, port, chance)
        except TimeoutError as error:
            print(f"stuck: {error}", flush=True)
            sys.exit(3 if error.errno == errno.ETIMEDOUT else 4)  # the kernel's own, or STUCK_S
        except OSError as error:
            print(f"failed: {error}", flush=True)
            sys.exit(3)
        number += 1
        print(f"round {number}", flush=True)
    if kind == "udp":
        print(f"answers {answers}", flush=True)


def main():
    kind, *rest = sys.argv[1:]
    if kind == "echo":
        echo(int(rest[0]))
    else:
        address, port, seed, go_on = rest
        repeat(kind, address, int(port), seed, go_on)


if __name__ == "__main__":
    main()
