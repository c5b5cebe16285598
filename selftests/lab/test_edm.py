#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Remote memory by EDM: a scheduler grants a client's writes and a node's answers. Without it all goes on."""

import contextlib
import json

import rmemlab
from remoralab import rmem, tap

SIZE_MIB = 32
# In ms: machines of a busy host stand still for a while, and that is no silence of the scheduler's.
LONG_LEASE = ("--lease", "2000")
CLIENT_PORT, NODE_PORT = 1, 2
MODULES = {"client": "rmem_edm", "node": "rmem_node_edm"}


def edm(machine, *words, **options):
    return rmem.remora(machine, "edm", *words, **options)


def status(machine):
    return json.loads(edm(machine, "status", "--json").out)


def counters(machine):
    return status(machine)["counters"]


def wait_state(machine, state):
    rmem.wait_until(f"{machine.name} is {state}", lambda: status(machine)["state"] == state)


class Rack:
    """A scheduler, a client and a node of it, each on a machine."""

    def __init__(self, lab):
        self.client, self.node, self.scheduler = lab["compute"], lab["first"], lab["second"]
        self.key = None

    def start(self, *words):
        edm(self.scheduler, "start", "--key", "/run/edm.key", *words)

    def address(self, lent):
        node = rmem.address(self.node, self.client)
        return f"edm:{rmem.address(self.scheduler, self.client)}/{NODE_PORT}@{node}"

    def attach(self, lent, *words):
        line = rmem.attach_words(self.client, lent, f"{SIZE_MIB}M", *words)
        line[1] = self.address(lent)
        return rmem.Device(self.client, rmem.remora(self.client, *line).out.strip())


@contextlib.contextmanager
def racked(lab, *start, joined=True):
    """Scheduler, members and modules; without a trace afterwards."""
    rack = Rack(lab)
    key = rmem.new_key(rack.scheduler, "/run/edm.key")
    with rmem.Rack(lab) as memory:
        lent = memory.node("first", f"{2 * SIZE_MIB}M")
        rmem.load(rack.client, rmem.CLIENT)
        rmem.load(rack.scheduler)
        for machine, half in ((rack.scheduler, None), (rack.client, "client"), (rack.node, "node")):
            rmem.write_key(machine, "/run/edm.key", key)
            machine.insmod(*(rmem.module_path(machine, name) for name in ("edm", MODULES.get(half)) if name))
        rack.start(*start)
        for machine, port in ((rack.client, CLIENT_PORT), (rack.node, NODE_PORT)):
            edm(machine, "join", rmem.address(rack.scheduler, machine), "--as", str(port), "--rate", "1000",
                "--key", "/run/edm.key")
            if joined:
                wait_state(machine, "scheduled")
        yield rack, lent
        for each in rmem.attached(rack.client):
            each.detach()
        for machine, half in ((rack.client, "client"), (rack.node, "node")):
            machine.run(["rmmod", MODULES[half], "edm"])
        rack.scheduler.run("rmmod edm")


def test_one_write_and_one_read(lab):
    """Each asks the scheduler, is granted, and keeps its bytes."""
    with racked(lab, *LONG_LEASE) as (rack, lent):
        disk = rack.attach(lent)
        before = counters(rack.scheduler)["sched-grants"]
        rack.client.run(f"yes remora | head -c 4096 > /tmp/page; dd if=/tmp/page of={disk.path} bs=4k count=1 "
                        "oflag=direct status=none")
        written = counters(rack.scheduler)["sched-grants"]
        rack.client.run(f"dd if={disk.path} bs=4k count=1 iflag=direct status=none | cmp - /tmp/page")
        read = counters(rack.scheduler)["sched-grants"]
        counted = disk.counters()
        assert before < written < read, (before, written, read)
        assert not counted["unscheduled"] and not counted["retries"], counted
        assert disk.status()["node"] == rack.address(lent), disk.status()


def test_disk_keeps_what_is_written(lab):
    """At every level of integrity, many operations at a time."""
    with racked(lab, *LONG_LEASE) as (rack, lent):
        for integrity in ("link", "digest", "full"):
            disk = rack.attach(lent, "--integrity", integrity)
            rmemlab.run_fio(rack.client, disk.path, "write", "256k", 8)
            rmemlab.run_fio(rack.client, disk.path, "mixed", "4k-64k", 4, depth=32)
            counted, host = disk.counters(), counters(rack.client)
            tap.diag(f"{integrity}: {counted['sent']} messages, {counted['retries']} again, "
                     f"{counted['waiting']} of them still waited; {host}")
            assert not counted["unscheduled"], counted
            disk.detach()


def test_scheduler_that_stops_and_starts(lab):
    """Under a load that checks itself: messages go without grants after three leases, and with them again."""
    with racked(lab) as (rack, lent):
        disk = rack.attach(lent)
        load = rack.client.spawn(rmemlab.until_it_fails(rmemlab.fio_command(disk.path, "mixed", "4k-64k", 2, depth=32)))
        for _ in range(2):
            edm(rack.scheduler, "stop")
            wait_state(rack.client, "unscheduled")
            went = disk.counters()["unscheduled"]
            rmem.wait_until("messages go without grants", lambda: disk.counters()["unscheduled"] > went + 10)
            told = disk.status()
            assert told["scheduler"] == "unscheduled" and told["unscheduled_packets"] > went, told
            rack.start()
            wait_state(rack.client, "scheduled")
            wait_state(rack.node, "scheduled")
            granted = counters(rack.scheduler)["sched-grants"]
            rmem.wait_until("grants", lambda: counters(rack.scheduler)["sched-grants"] > granted + 10)
        assert load.running(), load.wait()
        load.kill()


def test_refusals(lab):
    """Each names the remedy."""
    with racked(lab) as (rack, lent):
        disk = rack.attach(lent)
        for words, said in ((("leave",), "detach them first"),
                            (("join", "10.0.0.9", "--as", "3", "--rate", "10", "--key", "/run/edm.key"), "leave that first")):
            refused = edm(rack.client, *words, check=False)
            assert refused.rc == 1 and said in refused.err, refused
        line = rmem.attach_words(rack.client, lent, "1M")
        for address, said in (("edm:10.0.0.9/2@10.0.0.2", "edm join"), ("edm:10.0.0.3/2", "edm:SCHEDULER/PORT@NODE"),
                              ("edm:10.0.0.3/512@10.0.0.2", "edm:SCHEDULER/PORT@NODE")):
            line[1] = address
            refused = rmem.remora(rack.client, *line, check=False)
            assert refused.rc == 1 and said in refused.err, refused
        disk.detach()


if __name__ == "__main__":
    tap.main("lan", [test_one_write_and_one_read, test_disk_keeps_what_is_written, test_scheduler_that_stops_and_starts,
                     test_refusals])
