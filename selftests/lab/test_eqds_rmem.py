#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Remote memory by tunnels, unchanged: disk, swap, file system and library reach the node at its inside address."""

import eqdslab
import rmemlab
from eqdslab import Lending, Racked
from remoralab import tap
from test_rmem_programs import run_suite
from test_rmem_swap import squeeze

SIZE_MIB, SWAP_MIB = 32, 128


def _fragments(hosts):
    """Of IPv4, made by the hosts so far."""
    told = [[line.split() for line in host.run("cat /proc/net/snmp").out.splitlines() if line.startswith("Ip:")]
            for host in hosts]
    return sum(int(dict(zip(*lines))["FragCreates"]) for lines in told)


def _by_tunnel(hosts):
    return sum(host.counters()["tx_packets"] for host in hosts)


def test_disk_keeps_what_is_written(lab):
    """In messages that fit into the tunnel's MTU, whatever the link's is."""
    mib = 2
    for mtu, integrity in ((1500, "link"), (9000, "digest"), (1500, "full")):
        with Racked(lab["compute"], 2, mtu=mtu, home=True) as hosts, Lending(hosts[0], 2 * SIZE_MIB) as lent:
            node, client = hosts
            disk = lent.disk(node.inside, SIZE_MIB, "--integrity", integrity)
            fragments, packets = _fragments(hosts), _by_tunnel(hosts)
            rmemlab.run_fio(client.machine, disk.path, "write", "256k", mib)
            rmemlab.run_fio(client.machine, disk.path, "mixed", "4k-64k", mib, depth=64)
            counted, grown = disk.counters(), _by_tunnel(hosts) - packets
            tap.diag(f"MTU {mtu}, {integrity}: {grown} packets by tunnels, {counted['sent']} messages sent, "
                     f"{counted['retries']} again")
            # Written and read once each, at least.
            assert grown > 4 * (mib << 20) // mtu, hosts[0].counters()
            assert _fragments(hosts) == fragments and not counted["damaged"], counted
            disk.detach()


@tap.bound(600)
def test_program_swaps_through_a_tunnel(lab):
    """And finds every word. A tunnel's packets need memory while memory is what is lacking."""
    with Racked(lab["compute"], 2, home=True) as (node, client), Lending(node, 2 * SWAP_MIB) as lent:
        disk, packets = lent.disk(node.inside, SWAP_MIB), _by_tunnel([node, client])
        with rmemlab.swap_on(client.machine, disk):
            squeeze(client.machine, 48, rounds=1, threads=1, group="tunnelled", local=1 / 2)
        assert _by_tunnel([node, client]) - packets > (24 << 20) // 1500 and not disk.counters()["damaged"]
        disk.detach()


@tap.bound(600)
def test_files_are_kept_under_loss(lab):
    """Files in ext4, whose packets the network loses and turns around."""
    tree = rmemlab.Tree(300, rmemlab.SEED)
    with Racked(lab["compute"], 2, home=True) as (node, client), Lending(node, 2 * SWAP_MIB) as lent:
        machine = client.machine
        disk = lent.disk(node.inside, 64)
        for host in (node, client):
            machine.netem(host.port, "delay 1ms loss 1% reorder 10%")
        machine.run(f"modprobe -q ext4; mkfs.ext4 -q {disk.path} && mkdir -p /mnt/rmb && mount {disk.path} /mnt/rmb",
                    timeout=rmemlab.LOAD_S)
        tree.put(machine, "/mnt/rmb")
        machine.run(f"umount /mnt/rmb && echo 3 > /proc/sys/vm/drop_caches && mount {disk.path} /mnt/rmb",
                    timeout=rmemlab.LOAD_S)
        tree.check(machine, "/mnt/rmb")
        machine.run("umount /mnt/rmb")
        assert sum(host.counters()["tx_retransmits"] for host in (node, client))
        disk.detach()


@tap.bound(1500)
def test_library(lab):
    """The suite of libremote, whose target is an address inside; litmus tests, which take longest, run without tunnels."""
    with Racked(lab["compute"], 2, home=True) as (node, client), Lending(node, SWAP_MIB) as lent:
        packets = _by_tunnel([node, client])
        run_suite(client.machine, lent.target(node.inside), "*/Given:-*Litmus*:*Heap*:*Mapped*")
        assert _by_tunnel([node, client]) - packets > 1000
        lent.clear()


def test_modules_go(lab):
    machine = lab["compute"]
    eqdslab.unload(machine)
    assert not eqdslab.loaded(machine)


TESTS = [test_disk_keeps_what_is_written, test_program_swaps_through_a_tunnel, test_files_are_kept_under_loss, test_library,
         test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
