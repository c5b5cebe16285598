# SPDX-License-Identifier: MIT
"""A remote connector for LMCache (https://lmcache.ai): KV caches of language models in a memory node.

LMCache's configuration:

    remote_storage_plugins: ["remora"]
    extra_config:
      remote_storage_plugin.remora.module_path: lmcache_connector
      remote_storage_plugin.remora.class_name: RemoraAdapter
      remote_storage_plugin.remora.target: "udp:10.0.0.2,key=/etc/remora/rack.key"

It is written for the connectors of LMCache 0.3 and 0.4. The project's tests run it with stand-ins for LMCache's classes
(selftests/front/test_lmcache.py), not with LMCache itself.

All clients of a space share one cache. Its index is a region with a name: sets of 8 entries, each a fingerprint of a key
and the address of its value. A value is a region of its own, written before its entry points to it and never changed,
so a reader gets a whole value or none. A node doesn't give a freed address out again, so reading an evicted value fails
(EFAULT), and that is a miss. When a set or the node is full, a chosen value makes room. A node that restarts has lost
the cache: the connector begins an empty one. A client that dies between two steps of put() leaves one region behind.
"""

import asyncio
import errno
import hashlib
import random
import struct
import threading
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from lmcache.v1.protocol import RemoteMetadata
from lmcache.v1.storage_backend.connector import ConnectorAdapter
from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

import remora

INDEX = "lmcache.index.1"
SETS, WAYS = 4096, 8
ENTRY = struct.Struct("<QQ")  # the key's fingerprint, the value's address; 0, 0: free
SET_BYTES = WAYS * ENTRY.size
HEADER = struct.Struct("<QII")  # bytes of the payload, the key and the metadata; key and metadata follow, then the payload
HEAD_BYTES = 1024  # read at once: header, key, metadata
EVICTIONS_MAX = 64
DEPTH = 64


class Value(NamedTuple):
    address: int
    bytes: int  # of the region
    payload: int  # its address
    payload_bytes: int
    key: str
    metadata: bytes


class Cache:
    """The index and the values of a space. Its methods can be called in any thread."""

    def __init__(self, target: str, sets: int = SETS) -> None:
        self.handle = remora.open(target)
        self.sets = sets
        self.page_bytes = self.handle.info().page_bytes
        self.index = self._find()
        self._restart = threading.Lock()

    def _find(self) -> int:
        try:
            return self.handle.lookup(INDEX).address
        except remora.NotFound:
            region = self.handle.alloc(self.sets * SET_BYTES, own_pages=True)
        try:
            region.publish(INDEX)
            return region.address
        except remora.Exists:  # another client was quicker
            region.free()
            return self.handle.lookup(INDEX).address

    def again(self) -> None:
        """After remora.Lost: an empty cache in the restarted node."""
        with self._restart:
            self.handle.lost()
            self.index = self._find()

    def place(self, key: str) -> Tuple[int, int]:
        """The fingerprint of a key and the address of its set."""
        fingerprint, chosen = struct.unpack("<QQ", hashlib.blake2b(key.encode(), digest_size=16).digest())
        return fingerprint | 1, self.index + chosen % self.sets * SET_BYTES

    def entries(self, at: int) -> List[Tuple[int, int, int]]:
        """The entries of a set: address, fingerprint, value."""
        found = ENTRY.iter_unpack(self.handle.read(at, SET_BYTES))
        return [(at + way * ENTRY.size, fingerprint, value) for way, (fingerprint, value) in enumerate(found)]

    def value(self, address: int) -> Optional[Value]:
        """None: it was evicted meanwhile."""
        try:
            head = self.handle.read(address, HEAD_BYTES)
        except remora.Error as error:
            if error.errno == errno.EFAULT:
                return None
            raise
        payload_bytes, key_bytes, metadata_bytes = HEADER.unpack_from(head)
        begin = HEADER.size + key_bytes
        end = begin + metadata_bytes
        return Value(address, self.region_bytes(end + payload_bytes), address + end, payload_bytes,
                     head[HEADER.size:begin].decode(), head[begin:end])

    def region_bytes(self, data_bytes: int) -> int:
        """A region's size: whole pages, for other clients free it."""
        return -(-max(data_bytes, HEAD_BYTES) // self.page_bytes) * self.page_bytes

    def find(self, key: str) -> Optional[Tuple[int, Value]]:
        """A key's entry and value."""
        fingerprint, at = self.place(key)
        for entry, found, address in self.entries(at):
            value = self.value(address) if found == fingerprint else None
            if value and value.key == key:
                return entry, value
        return None

    def alloc(self, size: int) -> remora.Region:
        """Memory for a value; of a full node, after evictions."""
        for _ in range(EVICTIONS_MAX):
            try:
                return self.handle.alloc(size, own_pages=True)
            except remora.Error as error:
                if error.errno != errno.ENOSPC:
                    raise
            self.evict_any()
        return self.handle.alloc(size, own_pages=True)

    def evict_any(self) -> None:
        """Evicts a random value of a run of 64 sets chosen at random, or of the next run that has any."""
        step = 64
        runs = -(-self.sets // step)
        start = random.randrange(runs)
        for offset in range(runs):
            first = (start + offset) % runs * step
            count = min(step, self.sets - first)
            data = self.handle.read(self.index + first * SET_BYTES, count * SET_BYTES)
            used = [(way, pair) for way, pair in enumerate(ENTRY.iter_unpack(data)) if pair[1]]
            if used:
                way, (fingerprint, value) = random.choice(used)
                self.replace(self.index + first * SET_BYTES + way * ENTRY.size, fingerprint, value, 0, 0)
                return

    def replace(self, entry: int, fingerprint: int, value: int, new_fingerprint: int, new_value: int) -> bool:
        """Changes an entry if it is still as it was, and frees the value that it had."""
        old = self.value(value) if value else None
        if not self.handle.cas(entry, fingerprint | value << 64, new_fingerprint | new_value << 64, size=16):
            return False
        if old:
            self.free(old.address, old.bytes)
        return True

    def free(self, address: int, size: int) -> None:
        try:
            self.handle.free(address, size)
        except remora.Error as error:
            if error.errno != errno.EFAULT:  # another client was quicker
                raise

    def publish(self, key: str, address: int) -> None:
        """Points the key's entry to its new value: the key's own entry, a free one, or one that makes room."""
        fingerprint, at = self.place(key)
        while True:
            entries = self.entries(at)
            chosen = ([each for each in entries if each[1] == fingerprint] or [each for each in entries if not each[2]]
                      or [random.choice(entries)])[0]
            if self.replace(*chosen, fingerprint, address):
                return

    def remove(self, key: str) -> bool:
        found = self.find(key)
        return bool(found) and self.replace(found[0], self.place(key)[0], found[1].address, 0, 0)

    def keys(self) -> Iterator[str]:
        for each in range(self.sets):
            for _, _, address in self.entries(self.index + each * SET_BYTES):
                value = self.value(address) if address else None
                if value:
                    yield value.key


class RemoraConnector(RemoteConnector):
    """LMCache's remote connector over a Cache."""

    def __init__(self, target: str, local_cpu_backend: Any, sets: int = SETS) -> None:
        self.cache = Cache(target, sets)
        self.local_cpu_backend = local_cpu_backend
        self.queue: Optional[remora.AsyncQueue] = None

    def _queue(self) -> remora.AsyncQueue:
        """Made in LMCache's event loop, which runs the coroutines."""
        if not self.queue:
            self.queue = self.cache.handle.async_queue(DEPTH)
        return self.queue

    async def exists(self, key: Any) -> bool:
        return await asyncio.to_thread(self.exists_sync, key)

    def exists_sync(self, key: Any) -> bool:
        try:
            return self.cache.find(key.to_string()) is not None
        except remora.Lost:
            self.cache.again()
            return False

    async def get(self, key: Any) -> Optional[Any]:
        try:
            return await self._get(key)
        except remora.Lost:
            await asyncio.to_thread(self.cache.again)
            return None

    async def _get(self, key: Any) -> Optional[Any]:
        found = await asyncio.to_thread(self.cache.find, key.to_string())
        if not found:
            return None
        value = found[1]
        metadata = RemoteMetadata.deserialize(value.metadata)
        memory = self.local_cpu_backend.allocate(metadata.shape, metadata.dtype, metadata.fmt)
        if memory is None:
            return None
        try:
            await self._queue().readinto(value.payload, memoryview(memory.byte_array)[:value.payload_bytes])
        except remora.Error as error:
            memory.ref_count_down()
            if error.errno == errno.EFAULT:  # evicted meanwhile
                return None
            raise
        except BaseException:
            memory.ref_count_down()
            raise
        return memory

    async def put(self, key: Any, memory_obj: Any) -> None:
        payload = memoryview(memory_obj.byte_array)
        name = key.to_string().encode()
        metadata = RemoteMetadata(payload.nbytes, memory_obj.get_shape(), memory_obj.get_dtype(),
                                  memory_obj.get_memory_format()).serialize()
        head = HEADER.pack(payload.nbytes, len(name), len(metadata)) + name + metadata
        if len(head) > HEAD_BYTES:
            raise ValueError(f"the key '{key.to_string()}' is too long for this cache: {HEAD_BYTES} bytes with its metadata")
        size = self.cache.region_bytes(len(head) + payload.nbytes)
        try:
            region = await asyncio.to_thread(self.cache.alloc, size)
            try:
                await self._queue().writev([(region.address, head), (region.address + len(head), payload)])
                await asyncio.to_thread(self.cache.publish, key.to_string(), region.address)
            except BaseException:
                await asyncio.to_thread(self.cache.free, region.address, size)
                raise
        except remora.Lost:  # a cache can forget
            await asyncio.to_thread(self.cache.again)

    async def list(self) -> List[str]:
        return await asyncio.to_thread(lambda: [*self.cache.keys()])

    def remove_sync(self, key: Any) -> bool:
        return self.cache.remove(key.to_string())

    def support_ping(self) -> bool:
        return True

    async def ping(self) -> int:
        try:
            await asyncio.to_thread(self.cache.handle.info)
        except remora.Error as error:
            return error.errno or errno.EIO
        return 0

    async def close(self) -> None:
        if self.queue:
            self.queue.close()
        self.cache.handle.close()


class RemoraAdapter(ConnectorAdapter):
    """Makes the connector of a plug-in `remora` or `remora.NAME`."""

    def __init__(self) -> None:
        super().__init__("remora://")

    def can_parse(self, url: str) -> bool:
        scheme, _, name = url.partition("://")
        return scheme == "remora" or scheme == "plugin" and name.split(".")[0] == "remora"

    def create_connector(self, context: Any) -> RemoteConnector:
        extra = context.config.extra_config or {}
        option = f"remote_storage_plugin.{context.plugin_name}.target"
        if option not in extra:
            raise ValueError(f"extra_config has no {option}: name the node, 'udp:HOST,key=FILE' for instance")
        return RemoraConnector(extra[option], context.local_cpu_backend)
