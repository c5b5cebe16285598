# SPDX-License-Identifier: GPL-2.0
"""The example lmcache_connector.py with stand-ins for LMCache's classes, which isn't installed here: several clients of one
cache, eviction in a set and in a node that is full, a node that restarts."""

import asyncio
import os
import sys
import tempfile
import types
import unittest

from served import ROOT, Node, remora


class Metadata:
    """As lmcache.v1.protocol.RemoteMetadata, for one shape."""

    def __init__(self, length, shape, dtype, fmt):
        self.length, self.shape, self.dtype, self.fmt = length, shape, dtype, fmt

    def serialize(self):
        return self.length.to_bytes(28, "little")

    @classmethod
    def deserialize(cls, data):
        return cls(int.from_bytes(data, "little"), int.from_bytes(data, "little"), "u1", "flat")


class Adapter:
    """As lmcache.v1.storage_backend.connector.ConnectorAdapter."""

    def __init__(self, schema):
        self.schema = schema


class Memory:
    """As lmcache.v1.memory_management.MemoryObj."""

    def __init__(self, data):
        self.byte_array, self.references = bytearray(data), 1

    def get_shape(self):
        return len(self.byte_array)

    def get_dtype(self):
        return "u1"

    def get_memory_format(self):
        return "flat"

    def ref_count_down(self):
        self.references -= 1


class Backend:
    """As lmcache.v1.storage_backend.local_cpu_backend.LocalCPUBackend."""

    def allocate(self, shape, dtype, fmt):
        return Memory(shape)


class Key:
    """As lmcache.utils.CacheEngineKey."""

    def __init__(self, text):
        self.text = text

    def to_string(self):
        return self.text


def stand_in(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


for package in ("lmcache", "lmcache.v1", "lmcache.v1.storage_backend"):
    stand_in(package)
stand_in("lmcache.v1.protocol", RemoteMetadata=Metadata)
stand_in("lmcache.v1.storage_backend.connector", ConnectorAdapter=Adapter)
stand_in("lmcache.v1.storage_backend.connector.base_connector", RemoteConnector=type("RemoteConnector", (), {}))
sys.path.insert(0, str(ROOT / "libremote/python/examples"))
import lmcache_connector  # noqa: E402

SIZE = 200_000


def value(i):
    return bytes([i % 251]) * SIZE


class LMCache(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.node = Node(folder.name, memory="16M")
        self.addCleanup(lambda: self.node.stop())

    def client(self, sets):
        return lmcache_connector.RemoraConnector(self.node.target("udp"), Backend(), sets)

    def test_values_are_shared_replaced_and_removed(self):
        async def main():
            one, two = self.client(16), self.client(16)
            data = os.urandom(SIZE)
            self.assertIsNone(await two.get(Key("a")))
            await one.put(Key("a"), Memory(data))
            self.assertTrue(await two.exists(Key("a")))
            self.assertEqual((await two.get(Key("a"))).byte_array, data)
            await two.put(Key("a"), Memory(b"newer"))
            self.assertEqual((await one.get(Key("a"))).byte_array, b"newer")
            self.assertEqual(await one.list(), ["a"])
            self.assertEqual(len([*one.cache.handle.regions()]), 2)  # index and value: the older one is freed
            self.assertEqual(await one.ping(), 0)
            self.assertTrue(one.remove_sync(Key("a")))
            self.assertFalse(two.exists_sync(Key("a")))
            self.assertFalse(two.remove_sync(Key("a")))
            await one.close()
            await two.close()
        asyncio.run(main())

    def fill(self, sets, count):
        async def main():
            client = self.client(sets)
            for i in range(count):
                await client.put(Key(f"key {i}"), Memory(value(i)))
            self.assertIsNotNone(await client.get(Key(f"key {count - 1}")))
            kept = 0
            for i in range(count):
                found = await client.get(Key(f"key {i}"))
                kept += found is not None
                self.assertIn(found and found.byte_array, (None, value(i)))
            regions = len([*client.cache.handle.regions()])
            await client.close()
            return kept, regions
        return asyncio.run(main())

    def test_a_full_set_evicts(self):
        kept, regions = self.fill(sets=1, count=30)
        self.assertEqual((kept, regions), (8, 9))

    def test_a_full_node_evicts(self):
        kept, regions = self.fill(sets=64, count=120)  # of 64 that fit
        self.assertGreater(kept, 30)
        self.assertEqual(regions, kept + 1)

    def test_clients_that_race_read_whole_values(self):
        async def main():
            clients = [self.client(2) for _ in range(3)]

            async def work(client, seed):
                for i in range(30):
                    number = (i * seed) % 40
                    await client.put(Key(f"key {number}"), Memory(value(number)))
                    found = await client.get(Key(f"key {(number + 1) % 40}"))
                    self.assertIn(found and found.byte_array, (None, value((number + 1) % 40)))

            await asyncio.gather(*(work(client, seed) for client, seed in zip(clients, (1, 3, 7))))
            await asyncio.gather(*(client.close() for client in clients))
        asyncio.run(main())

    def test_a_restarted_node_is_an_empty_cache(self):
        async def main():
            client = self.client(16)
            await client.put(Key("a"), Memory(b"old"))
            self.node.restart()
            self.assertIsNone(await client.get(Key("a")))
            await client.put(Key("a"), Memory(b"new"))
            self.assertEqual((await client.get(Key("a"))).byte_array, b"new")
            await client.close()
        asyncio.run(main())

    def test_the_adapter_takes_its_target_from_the_configuration(self):
        adapter = lmcache_connector.RemoraAdapter()
        self.assertTrue(adapter.can_parse("plugin://remora.primary") and adapter.can_parse("plugin://remora"))
        self.assertFalse(adapter.can_parse("plugin://redis") or adapter.can_parse("fs://remora"))
        context = types.SimpleNamespace(config=types.SimpleNamespace(extra_config={}), plugin_name="remora.primary",
                                        local_cpu_backend=Backend())
        self.assertRaises(ValueError, adapter.create_connector, context)
        context.config.extra_config["remote_storage_plugin.remora.primary.target"] = "embedded:"
        connector = adapter.create_connector(context)
        self.assertIsInstance(connector.cache.handle, remora.Handle)
        asyncio.run(connector.close())
