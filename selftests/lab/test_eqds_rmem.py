#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Remote memory by tunnels, unchanged: a disk that reaches its node at the inside address."""

import eqdslab
import rmemlab
from eqdslab import Lending, Racked
from remoralab import tap

SIZE_MIB = 32


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


def test_modules_go(lab):
    machine = lab["compute"]
    eqdslab.unload(machine)
    assert not eqdslab.loaded(machine)


TESTS = [test_disk_keeps_what_is_written, test_modules_go]

if __name__ == "__main__":
    tap.main("solo", TESTS)
