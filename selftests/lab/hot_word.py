#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A word of remote memory that one process adds to as fast as it can, while another reads it.

    hot_word.py TARGET READS     exit status 0 once the reader has seen the word READS times, never falling
"""

import os
import signal
import sys

import remote_check


def add_for_ever(target, address):
    remote = remote_check.Remote(target)
    while True:
        remote.add(address, 1)


def main():
    target, reads = sys.argv[1], int(sys.argv[2])
    remote = remote_check.Remote(target)
    address = remote.allocate(4096)
    adder = os.fork()
    if adder == 0:
        add_for_ever(target, address)
    last = 0
    try:
        for _ in range(reads):
            word = int.from_bytes(remote.read(address, remote_check.WORD_BYTES), "little")
            assert word >= last, f"{word} after {last}"
            last = word
    finally:
        os.kill(adder, signal.SIGKILL)
        os.waitpid(adder, 0)
        remote.free(address)
    assert last, "nothing was added"


if __name__ == "__main__":
    main()
