#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""TCP streams that check themselves, in a guest.

    stream.py receive ADDRESS PORT CONNECTIONS     prints "listening", lets all senders begin once the last has
                                                   connected, then prints a line per stream that ends: peer bytes
                                                   sha256 began_s ended_s (of one clock, for the machine) behind,
                                                   the bytes that the slowest stream had when this one ended
    stream.py send ADDRESS PORT BYTES SEED         prints: bytes sha256
    stream.py pour ADDRESS PORT                    sends until the connection ends or it is killed; prints "pouring"
"""

import hashlib
import random
import socket
import sys
import threading
import time

CHUNK = 1 << 16
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


def pour(address, port):
    with socket.create_connection((address, port)) as stream:
        assert stream.recv(1) == BEGIN
        stream.sendall(bytes(CHUNK))
        print("pouring", flush=True)
        while True:
            stream.sendall(bytes(CHUNK))


def main():
    verb, address, port, *rest = sys.argv[1:]
    {"receive": receive, "send": send, "pour": pour}[verb](address, int(port), *map(int, rest))


if __name__ == "__main__":
    main()
