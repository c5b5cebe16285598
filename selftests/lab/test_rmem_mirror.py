#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""One client of two nodes: a mirror outlives either of them."""

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack, wait_until

MIB = 1 << 20


def mirror_of(lab, rack, size):
    """raid1 over two nodes; how md is told of a dead one: fail_after."""
    nodes = [rack.node(name, "128M") for name in ("first", "second")]
    devices = [rack.attach("compute", node, size, "--fail-after", "5") for node in nodes]
    compute = lab["compute"]
    compute.run("modprobe -q raid1 || :")
    compute.run("mdadm --create /dev/md0 --level=1 --raid-devices=2 --metadata=1.2 --bitmap=none "
                f"--assume-clean --run {' '.join(device.path for device in devices)}", timeout=rmem.ACTION_S)
    return nodes, devices


@tap.bound(600)
def test_mirror_survives_a_node(lab):
    compute = lab["compute"]
    mib = rmemlab.scaled(lab, 8)
    with Rack(lab) as rack:
        nodes, devices = mirror_of(lab, rack, "96M")
        rmemlab.write_pattern(compute, "/dev/md0", mib, seed=41)
        load = compute.spawn(rmemlab.fio_command("/dev/md0", "mixed", "4k-64k", mib, seed=42,
                                                 extra=f"--offset={mib}M"))
        wait_until("the load is under way",
                   lambda: nodes[0].backed_bytes() > (mib + mib // 4) * MIB, rmemlab.LOAD_S)
        lab["first"].kill()
        result = load.wait(rmemlab.LOAD_S)
        assert result.rc == 0, result
        rmemlab.check_pattern(compute, "/dev/md0", mib, seed=41)
        wait_until("md has noticed", lambda: "[_U]" in compute.read("/proc/mdstat"))
        compute.run("mdadm --stop /dev/md0", timeout=rmem.ACTION_S)
        devices[0].detach("--force")
        devices[1].detach()
    for machine in (compute, lab["second"]):
        rmem.unload(machine)


TESTS = [test_mirror_survives_a_node]

if __name__ == "__main__":
    tap.main("twonodes", TESTS)
