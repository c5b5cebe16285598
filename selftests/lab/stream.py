#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""TCP streams that check themselves, in a guest.

    stream.py receive ADDRESS PORT CONNECTIONS     prints "listening", then a line per stream: peer bytes sha256
                                                   first_s last_s (of one clock, for the machine)
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


def receive(address, port, connections):
    listener = socket.create_server((address, port), backlog=64)
    print("listening", flush=True)
    lock = threading.Lock()

    def take(stream, peer):
        digest, count, first = hashlib.sha256(), 0, time.monotonic()
        while data := stream.recv(CHUNK):
            digest.update(data)
            count += len(data)
        with lock:
            print(peer[0], count, digest.hexdigest(), f"{first:.6f} {time.monotonic():.6f}", flush=True)

    threads = []
    for _ in range(connections):
        threads.append(threading.Thread(target=take, args=listener.accept()))
        threads[-1].start()
    for thread in threads:
        thread.join()


def send(address, port, count, seed):
    source, digest = random.Random(seed), hashlib.sha256()
    with socket.create_connection((address, port), timeout=120) as stream:
        left = count
        while left:
            data = source.randbytes(min(left, CHUNK))
            digest.update(data)
            stream.sendall(data)
            left -= len(data)
    print(count, digest.hexdigest())


def pour(address, port):
    with socket.create_connection((address, port)) as stream:
        stream.sendall(bytes(CHUNK))
        print("pouring", flush=True)
        while True:
            stream.sendall(bytes(CHUNK))


def main():
    verb, address, port, *rest = sys.argv[1:]
    {"receive": receive, "send": send, "pour": pour}[verb](address, int(port), *map(int, rest))


if __name__ == "__main__":
    main()
