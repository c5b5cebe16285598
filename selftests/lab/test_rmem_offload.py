#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Programs that run beside the memory: loaded into the kernel's node, called by libremote, removed. For remora-node see
selftests/conformance/test_daemon.py."""

import json
import signal

import rmemlab
from remoralab import cache, rmem, tap
from remoralab.rmem import Rack

KV = cache.REPO / "out" / "bin" / "remora-kv"
CHASER = cache.REPO / "out" / "bin" / "chaser"
TREE = cache.REPO / "out" / "bin" / "remora-tree"
DLRM = cache.REPO / "out" / "bin" / "remora-dlrm"


def offloads(machine):
    return json.loads(rmem.remora(machine, "node", "offload", "list", "--json").out)


def chase(lab, key):
    compute, memory = lab["compute"], lab["memory"]
    rmem.write_key(compute, "/run/chase.key", key)
    target = f"udp:{rmem.address(memory, compute)},key=/run/chase.key"
    before = compute.run([CHASER, target], check=False)
    assert before.rc == 1 and "the node has no such offload" in before.err, f"{before.out} {before.err}"
    rmem.remora(memory, "node", "offload", "load", "chase", "--space", "1")
    rmemlab.cli_refused(memory, "node", "offload", "load", "chase", "--space", "1", says="of that id")
    rmemlab.cli_refused(memory, "node", "offload", "load", "chase", "--space", "9", says="no such SPACE")
    rmemlab.cli_refused(memory, "node", "offload", "load", "/chase.so", "--space", "1", says="no name of a module's program")
    called = compute.run([CHASER, target], check=False)
    assert called.rc == 0, f"{called.out} {called.err}"
    listed, = offloads(memory)
    # Copies of queries can be executed again.
    assert listed["name"] == "chase" and listed["ended"] >= 205 and listed["over_budget"] >= 1, listed
    assert listed["running"] == 0 and listed["used_ns"] >= 10_000_000, listed
    counters = json.loads(rmem.remora(memory, "node", "status", "--json").out)["counters"]
    assert counters["over-budget"] >= 1 and counters["failed"] >= 2 and counters["no-offload"] >= 2, counters
    rmem.remora(memory, "node", "offload", "remove", "chase", "--space", "1")
    assert offloads(memory) == []
    rmemlab.cli_refused(memory, "node", "offload", "remove", "chase", "--space", "1", says="has no offload chase")


def greedy(lab, target):
    """A client with 64 calls under way that never end by themselves; once they are under way."""
    process = lab["compute"].spawn([CHASER, target, "greedy"])
    rmem.wait_until("endless calls are under way", lambda: process.out)
    return process


def beside_greedy(lab, key):
    """Beside them another client's calls, FENCE and CLOSE end, and the space can be deleted."""
    compute, memory = lab["compute"], lab["memory"]
    target = f"udp:{rmem.address(memory, compute)},key=/run/chase.key"
    first = greedy(lab, target)
    modest = compute.run([CHASER, target], check=False, timeout=300)
    assert modest.rc == 0, f"{modest.out} {modest.err}"
    first.signal(signal.SIGTERM)
    assert first.wait(60).rc == 0, first.err
    second = greedy(lab, target)
    rmem.remora(memory, "node", "space", "del", "--force", "1")
    second.signal(signal.SIGKILL)
    second.wait(60)
    status = json.loads(rmem.remora(memory, "node", "status", "--json").out)
    assert status["sessions"] == 0, status
    tap.diag(f"stopped: {status['counters']['over-budget']}")


def test_kernels_node(lab):
    memory = lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmemlab.cli_refused(memory, "node", "offload", "load", "chase", "--space", "1", says="no module has")
        memory.insmod(rmem.module_path(memory, "offload_chase"))
        chase(lab, node.key)
        rmem.remora(memory, "node", "offload", "load", "chase", "--space", "1", "--budget", "12000")
        listed, = offloads(memory)
        assert listed["budget_us"] == 12000, listed
        beside_greedy(lab, node.key)
        assert offloads(memory) == [], "a program goes with its space"
        rmem.remora(memory, "node", "space", "add", f"1={node.key_path}")
        # A module whose program is in use stays.
        rmem.remora(memory, "node", "offload", "load", "chase", "--space", "1")
        assert memory.run(["rmmod", "offload_chase"], check=False).rc != 0
        node.clear_space()
    memory.run(["rmmod", "offload_chase"])


# Values of all kinds of sizes, larger than a page's and than a packet's among them, one by one and then together.
KV_CLIENT = """
import socket
client = socket.create_connection(("127.0.0.1", 11211)).makefile("rwb")
values = {f"key{bytes}": bytes_ for bytes in (1, 100, 900, 3000, 7000, 20000, 300000) for bytes_ in [b"%d" % (bytes % 10) * bytes]}
for key, value in values.items():
    client.write(f"set {key} 0 0 {len(value)}\\r\\n".encode() + value + b"\\r\\n")
    client.flush()
    assert client.readline() == b"STORED\\r\\n", key
client.write(("get " + " ".join(values) + "\\r\\n").encode())
client.flush()
found = {}
while (line := client.readline()) != b"END\\r\\n":
    key, bytes = line.split()[1].decode(), int(line.split()[3])
    found[key] = client.read(bytes)
    client.readline()
assert found == values, {key: len(value) for key, value in found.items()}
"""


def test_kv_at_the_kernels_node(lab):
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        memory.insmod(rmem.module_path(memory, "offload_kv"))
        rmem.remora(memory, "node", "offload", "load", "kv", "--space", "1")
        rmem.write_key(compute, "/run/kv.key", node.key)
        door = compute.spawn([KV, f"udp:{rmem.address(memory, compute)},key=/run/kv.key", "--memory", "16M", "--ready-fd", "1"])
        rmem.wait_until("remora-kv serves", lambda: door.out)
        compute.run(["python3", "-c", KV_CLIENT])
        door.signal(signal.SIGTERM)
        assert door.wait(60).rc == 0, door.err
        node.clear_space()
        memory.run(["rmmod", "offload_kv"])


def test_node_stops_with_calls_under_way(lab):
    memory = lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        memory.insmod(rmem.module_path(memory, "offload_chase"))
        rmem.remora(memory, "node", "offload", "load", "chase", "--space", "1")
        rmem.write_key(lab["compute"], "/run/chase.key", node.key)
        process = greedy(lab, f"udp:{rmem.address(memory, lab['compute'])},key=/run/chase.key")
        node.stop()
        memory.run(["rmmod", "offload_chase"])
        process.signal(signal.SIGKILL)
        process.wait(60)
        node.start()


def test_applications_at_the_kernels_node(lab):
    """The applications check their answers."""
    compute, memory = lab["compute"], lab["memory"]
    names = ("tree", "dlrm", "versions", "filter")
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.write_key(compute, "/run/apps.key", node.key)
        target = f"udp:{rmem.address(memory, compute)},key=/run/apps.key"
        for name in names:
            memory.insmod(rmem.module_path(memory, f"offload_{name}"))
            rmem.remora(memory, "node", "offload", "load", name, "--space", "1")
        compute.run([TREE, target, "--keys", "20000", "--searches", "500"])
        compute.run([DLRM, target, "--check", "--items", "2000", "--rows", "i8", "--by", "query"])
        ended = {each["name"]: each["ended"] for each in offloads(memory)}
        assert ended["tree"] >= 500 and ended["dlrm"] >= 1, ended
        node.clear_space()
        memory.run(["rmmod", *(f"offload_{name}" for name in names)])


TESTS = [test_kernels_node, test_kv_at_the_kernels_node, test_applications_at_the_kernels_node, test_node_stops_with_calls_under_way, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
