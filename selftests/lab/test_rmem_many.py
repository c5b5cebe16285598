#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Several clients of one node."""

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack, wait_until


@tap.bound(600)
def test_two_clients_of_one_node(lab):
    """Their devices are apart, and both work at once."""
    mib = rmemlab.scaled(lab, 24)
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        devices = {name: rack.attach(name, node, "64M") for name in ("left", "right")}
        assert node.status()["regions"] == 2
        loads = {name: lab[name].spawn(rmemlab.fio_command(device.path, "mixed", "4k-64k", mib, seed=len(name)))
                 for name, device in devices.items()}
        for load in loads.values():
            result = load.wait(rmemlab.LOAD_S)
            assert result.rc == 0, result
        rmemlab.write_pattern(lab["left"], devices["left"].path, mib, seed=21)
        rmemlab.write_pattern(lab["right"], devices["right"].path, mib, seed=22)
        rmemlab.check_pattern(lab["left"], devices["left"].path, mib, seed=21)
        rmemlab.check_pattern(lab["right"], devices["right"].path, mib, seed=22)
        devices["left"].detach()
        wait_until("one region is left", lambda: node.status()["regions"] == 1)
        rmemlab.check_pattern(lab["right"], devices["right"].path, mib, seed=22)


@tap.bound(300)
def test_client_that_vanishes(lab):
    """A client loses power: the other goes on, and the operator takes back what it held."""
    mib = rmemlab.scaled(lab, 16)
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        rack.attach("left", node, "64M")
        device = rack.attach("right", node, "64M")
        rmemlab.write_pattern(lab["right"], device.path, mib, seed=31)
        lab["left"].kill()
        rmemlab.run_fio(lab["right"], device.path, "mixed", "4k-64k", mib, extra="--offset=32M")
        rmemlab.check_pattern(lab["right"], device.path, mib, seed=31)
        device.detach()
        assert node.status()["regions"] == 1, "the vanished client's region is the operator's to end"
        memory = lab["memory"]
        rmemlab.cli_refused(memory, "node", "space", "del", str(node.SPACE), says=r"1 region.*--force")
        rmem.remora(memory, "node", "space", "del", "--force", str(node.SPACE))
        status = node.status()
        assert status["regions"] == 0 and status["promised_bytes"] == 0, status


@tap.bound(300)
def test_quota_of_a_node(lab):
    """What one client holds another can't get, and is told so."""
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("left", node, "64M")
        rmem.load(lab["right"], rmem.CLIENT)
        words = rmem.attach_words(lab["right"], node, "64M")
        rmemlab.cli_refused(lab["right"], *words, says=r"memory|left|free|large")
        device.detach()
        rack.attach("right", node, "64M")


TESTS = [test_two_clients_of_one_node, test_client_that_vanishes, test_quota_of_a_node]

if __name__ == "__main__":
    tap.main("triple", TESTS)
