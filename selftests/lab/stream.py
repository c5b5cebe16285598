#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""TCP streams that check themselves, in a guest.

    stream.py receive ADDRESS PORT CONNECTIONS     prints "listening", lets all senders begin once the last has
                                                   connected, then prints a line per stream that ends: peer bytes
                                                   sha256 began_s ended_s (of one clock, for the machine) behind,
                                                   the bytes that the slowest stream had when this one ended
    stream.py send ADDRESS PORT BYTES SEED         prints: bytes sha256
    stream.py pour ADDRESS PORT [CONTROL]          sends until the connection ends or it is killed, by a congestion
                                                   control; prints "pouring"
    stream.py drain ADDRESS PORT CONNECTIONS SECONDS    prints "listening"; lets all senders begin once the last has
                                                   connected; after a second's ramp counts for SECONDS, and prints
                                                   "counting", and then a line per stream: peer bytes
    stream.py flood ADDRESS PORT BYTES             sends datagrams until it is killed; prints "flooding"
    stream.py swallow ADDRESS PORT                 takes datagrams until SIGTERM; prints "listening", and then the
                                                   bytes a second that came
    stream.py ask ADDRESS PORT COUNT               asks a memcached, one question at a time; prints the times in us
"""

import contextlib
import hashlib
import os
import random
import signal
import socket
import sys
import threading
import time

CHUNK = 1 << 16
SO_RCVBUFFORCE = 33  # asm-generic/socket.h; Python has no name for it
BEGIN = b"b"


def receive(address, port, connections):
    listener = socket.create_server((address, port), backlog=64,
                                    family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    print("listening", flush=True)
    streams = [listener.accept() for _ in range(connections)]
    counts = [0] * connections
    lock = threading.Lock()
    began = time.monotonic()

    def take(number, stream, peer):
        digest = hashlib.sha256()
        stream.sendall(BEGIN)
        while data := stream.recv(CHUNK):
            digest.update(data)
            counts[number] += len(data)
        with lock:
            print(peer[0], counts[number], digest.hexdigest(), f"{began:.6f} {time.monotonic():.6f}", min(counts),
                  flush=True)

    threads = [threading.Thread(target=take, args=(number, *each)) for number, each in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def send(address, port, count, seed):
    source, digest = random.Random(seed), hashlib.sha256()
    with socket.create_connection((address, port), timeout=120) as stream:
        assert stream.recv(1) == BEGIN
        left = count
        while left:
            data = source.randbytes(min(left, CHUNK))
            digest.update(data)
            stream.sendall(data)
            left -= len(data)
    print(count, digest.hexdigest())


def pour(address, port, control="cubic"):
    # In a User Mode Linux a system call costs as much as several packets: few and large ones.
    chunk = bytes(16 * CHUNK)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        stream.connect((address, port))
        assert stream.recv(1) == BEGIN
        print("pouring", flush=True)
        while True:
            stream.sendall(chunk)


def drain(address, port, connections, seconds):
    listener = socket.create_server((address, port), backlog=64)
    print("listening", flush=True)
    streams = [listener.accept() for _ in range(connections)]
    counts = [0] * connections

    def take(number, stream):
        # Not woken for every packet: in a User Mode Linux that costs more than the packet does.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, CHUNK // 4)
        stream.sendall(BEGIN)
        memory = bytearray(1 << 22)
        while got := stream.recv_into(memory):
            counts[number] += got

    for number, (stream, _) in enumerate(streams):
        threading.Thread(target=take, args=(number, stream), daemon=True).start()
    time.sleep(1)
    print("counting", flush=True)
    before = list(counts)
    time.sleep(seconds)
    for (_, peer), first, last in zip(streams, before, list(counts)):
        print(peer[0], last - first)
    sys.stdout.flush()
    os._exit(0)


def flood(address, port, size):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect((address, port))
        data = bytes(size)
        print("flooding", flush=True)
        while True:
            with contextlib.suppress(OSError):
                out.send(data)


def swallow(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taking:
        taking.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        taking.bind((address, port))
        print("listening", flush=True)
        count, began = len(taking.recv(1 << 16)), time.monotonic()

        def told(*_):
            print(f"{count / (time.monotonic() - began):.0f}", flush=True)
            os._exit(0)

        signal.signal(signal.SIGTERM, told)
        while True:
            count += len(taking.recv(1 << 16))


def ask(address, port, count):
    with socket.create_connection((address, port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(b"set k 0 0 1000\r\n" + bytes(1000) + b"\r\n")
        assert stream.recv(100) == b"STORED\r\n"
        for _ in range(count):
            began, got = time.monotonic(), b""
            stream.sendall(b"get k\r\n")
            while not got.endswith(b"END\r\n"):
                got += stream.recv(4096)
            print(f"{(time.monotonic() - began) * 1e6:.0f}", flush=True)


def main():
    verb, address, port, *rest = sys.argv[1:]
    numbers = [int(word) if word.isdigit() else word for word in rest]
    {"receive": receive, "send": send, "pour": pour, "drain": drain, "flood": flood, "swallow": swallow,
     "ask": ask}[verb](address, int(port), *numbers)


if __name__ == "__main__":
    main()
