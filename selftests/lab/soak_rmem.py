#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Remote memory under faults of chance: disks, swap and programs of a client, and a kernel's node beside a daemon.

    soak_rmem.py --kernel uml-debug --seconds 60 --seed 7
"""

import random

import soaklab  # first: it reads --seed
import rmemlab
import soak_faults
import soak_loads
import soak_nodes
from remoralab import tap
from remoralab.rmem import wait_until
from soak_faults import ClockStep, DamagedPayload, InterfaceDown, Killed, LinkDown, Mtu, Mute, Netem, Paused, Suspended
from soak_loads import FORCED, INTEGRITY, KILLED
from soak_nodes import DAEMON_SPACE, DEVICE_SPACE, UDP_SPACE, AttachedAgain, ForcedDetach
from soaklab import Soak

MEMORY = "448M"
# Below soaklab.LONG_S.
FAIL_AFTER_S = 5
# With half of the seeds payloads are damaged, and no device trusts UDP's checksum.
DAMAGE = random.Random(f"{tap.SEED} damage").random() < 0.5


def faults_of(lab, soak, rack, node, daemon, loads):
    compute, memory = both = lab["compute"], lab["memory"]
    [link] = lab.topology.links
    disk, hasty, lent, swap, program, *_ = loads
    devices = [disk, hasty, lent, swap, program]
    nodes_devices = [each for each in devices if each.node is node]
    faults = [kind(machine, "eth0") for machine in both for kind in (Netem, Mute, *([DamagedPayload] if DAMAGE else []))]
    faults += [ClockStep(machine) for machine in both]
    faults += [Paused(machine, soak.away) for machine in both]
    faults += [LinkDown(lab, link.name), soak_nodes.PowerCut(memory, [node, daemon])]
    faults += [kind(node) for kind in (soak_nodes.NodeStopped, soak_nodes.NodeRestarted)]
    faults += [kind(daemon) for kind in (soak_nodes.DaemonKilled, soak_nodes.DaemonStandsStill)]
    faults += [Killed(load, KILLED) for load in loads]
    # Swap that was forced away stays on the kernel's list, and keeps the module: README.md.
    faults += [ForcedDetach(load) for load in devices if load is not swap]
    faults += [AttachedAgain(load) for load in devices]
    faults += [soak_nodes.ModulesAgain(compute, devices)]
    faults += [kind(node, nodes_devices) for kind in (soak_nodes.NodeRestartsAtRest, soak_nodes.ModulesOfNode)]
    # A User Mode Linux can neither sleep, open its wire again nor raise its MTU, and its memory is never short.
    if not rmemlab.is_native(lab):
        faults += [Suspended(machine, soak.away) for machine in both]
        faults += [soak_nodes.Hibernated(memory, soak.away, node)]
        faults += [InterfaceDown(machine, "eth0") for machine in both]
        faults += [Mtu(machine, "eth0", link.mtu) for machine in both]
        faults.append(soak_faults.Pressure(compute, rack, node, rmemlab.hog_path(), 2 * rmemlab.LOAD_S))
    return faults


def test_soak(lab):
    soak = Soak(lab)
    with soak_loads.EitherVersion(lab, [each for each in INTEGRITY if each != "link" or not DAMAGE]) as rack:
        node = soak_nodes.Node(lab["memory"], MEMORY).start()
        rack.nodes.append(node)
        daemon = soak_nodes.Daemon(lab["memory"]).start()
        loads = [soak_loads.Disk("disk", rack, "compute", node),
                 soak_loads.Disk("hasty", rack, "compute", node, "--fail-after", str(FAIL_AFTER_S)),
                 soak_loads.Disk("lent", rack, "compute", daemon),
                 soak_loads.Swap("swap", rack, "compute", node),
                 soak_loads.ByDevice("program", rack, "compute", node),
                 soak_loads.ByUdp("udp", lab["compute"], node, UDP_SPACE),
                 soak_loads.ByUdp("daemon", lab["compute"], daemon, DAEMON_SPACE)]
        soak.run(loads, faults_of(lab, soak, rack, node, daemon, loads))
        for space in (DEVICE_SPACE, UDP_SPACE):
            node.clear(space)
        if FORCED in soak.reasons:
            node.clear_space()
        wait_until("no region is left", lambda: node.status()["regions"] == 0)
        daemon.stop()
    soaklab.check_leaks(lab)


if __name__ == "__main__":
    soaklab.main("pair", test_soak)
