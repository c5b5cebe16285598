#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Remote memory from Python: hello.py [TARGET], by default a node inside the process."""

import asyncio
import sys

import remora

CHUNKS, CHUNK_BYTES = 64, 4096


async def fill(handle: remora.Handle, region: remora.Region) -> int:
    """Writes chunks together, reads them back together, and returns how many are as they were."""
    chunks = [bytes([i]) * CHUNK_BYTES for i in range(CHUNKS)]
    back = [bytearray(CHUNK_BYTES) for _ in chunks]
    places = [region.at(i * CHUNK_BYTES, CHUNK_BYTES) for i in range(CHUNKS)]
    async with handle.async_queue(depth=32) as queue:
        await asyncio.gather(*map(queue.write, places, chunks))
        await asyncio.gather(*map(queue.readinto, places, back))
    return sum(map(bytes.__eq__, chunks, map(bytes, back)))


def main(target: str = "embedded:size=64M") -> None:
    with remora.open(target) as handle, handle.alloc(CHUNKS * CHUNK_BYTES) as region:
        region.write(b"hello, remote memory")
        print(region.read(20).decode())
        print(asyncio.run(fill(handle, region)), "chunks came back")
        handle.swap(region, 41)
        print("the counter was", handle.add(region, 1), "and is", handle.add(region, 0))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:  # remora.Error, or no library
        sys.exit(f"hello: {error.strerror or error}")
