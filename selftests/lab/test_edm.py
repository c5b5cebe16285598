#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Remote memory by EDM: a scheduler grants a client's writes and a node's answers. Without it all goes on."""

import contextlib
import json
import re

import rmemlab
import test_rmem_programs
import test_rmem_swap
from remoralab import rmem, tap

SIZE_MIB = 32
# In ms: machines of a busy host stand still for a while, and that is no silence of the scheduler's.
LONG_LEASE = ("--lease", "2000")
STANDBY_LEASE = ("--lease", "300")
CLIENT_PORT, NODE_PORT, PROGRAM_PORT = 1, 2, 3
# A machine whose clock stands still.
FROZEN_S = 1_000_000_000
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
    """A scheduler, a client and a node of it, each on a machine. The node's machine can have the standby."""

    def __init__(self, lab):
        self.client, self.node, self.scheduler = lab["compute"], lab["first"], lab["second"]
        self.key = rmem.new_key(self.scheduler, "/run/edm.key")

    def start(self, *words, on=None):
        edm(on or self.scheduler, "start", "--key", "/run/edm.key", *words)

    def join(self, machine, port, *words):
        edm(machine, "join", rmem.address(self.scheduler, machine), "--as", str(port), "--rate", "1000", "--key",
            "/run/edm.key", *words)

    def prepare_scheduler(self):
        rmem.load(self.scheduler)
        rmem.write_key(self.scheduler, "/run/edm.key", self.key)
        self.scheduler.insmod(rmem.module_path(self.scheduler, "edm"))

    def cut_power(self):
        self.scheduler.kill()

    def restore(self, *words):
        """The scheduler's machine, and a new life of the scheduler."""
        self.scheduler.boot()
        self.prepare_scheduler()
        self.start(*words)

    def client_comes_back(self, clock):
        """The client's machine as after a boot, with its clock at that."""
        modules = " && ".join(f"insmod {rmem.module_path(self.client, name)}" for name in ("edm", MODULES["client"]))
        self.client.run(f"date -s @{clock} >/dev/null && rmmod {MODULES['client']} edm && {modules}")
        self.join(self.client, CLIENT_PORT)

    def wait_scheduled(self):
        for machine in (self.client, self.node):
            wait_state(machine, "scheduled")

    def wait_grants(self, machine):
        """More of them, by the scheduler of that machine."""
        granted = counters(machine)["sched-grants"]
        rmem.wait_until("grants", lambda: counters(machine)["sched-grants"] > granted + 10)

    def address(self, lent):
        node = rmem.address(self.node, self.client)
        return f"edm:{rmem.address(self.scheduler, self.client)}/{NODE_PORT}@{node}"

    def attach(self, lent, *words):
        line = rmem.attach_words(self.client, lent, f"{SIZE_MIB}M", *words)
        line[1] = self.address(lent)
        return rmem.Device(self.client, rmem.remora(self.client, *line).out.strip())


@contextlib.contextmanager
def racked(lab, *start, standby=False):
    """Scheduler, members and modules; without a trace afterwards."""
    rack = Rack(lab)
    with rmem.Rack(lab) as memory:
        lent = memory.node("first", f"{2 * SIZE_MIB}M")
        rmem.load(rack.client, rmem.CLIENT)
        rack.prepare_scheduler()
        for machine, half in ((rack.client, "client"), (rack.node, "node")):
            rmem.write_key(machine, "/run/edm.key", rack.key)
            machine.insmod(*(rmem.module_path(machine, name) for name in ("edm", MODULES[half])))
        rack.start(*start)
        if standby:
            rack.start(*start, on=rack.node)
        for machine, port in ((rack.client, CLIENT_PORT), (rack.node, NODE_PORT)):
            rack.join(machine, port, *(["--standby", rmem.address(rack.node, rack.client)] if standby else []))
        rack.wait_scheduled()
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


def test_programs_without_modules(lab):
    """The library is a host of the scheduler by itself, beside the machine's membership."""
    with racked(lab, *LONG_LEASE) as (rack, lent):
        rmem.write_key(rack.client, "/run/suite.key", lent.key)
        target = f"{rack.address(lent)},as={PROGRAM_PORT},rate=1000,rack=/run/edm.key,key=/run/suite.key"
        before = counters(rack.scheduler)["sched-grants"]
        test_rmem_programs.run_suite(rack.client, target, "Lib/Data.*/Given:Lib/Pieces.*/Given")
        granted = counters(rack.scheduler)["sched-grants"] - before
        tap.diag(f"{granted} grants")
        assert granted > 100, granted
        lent.clear_space()


@contextlib.contextmanager
def loaded(rack, disk):
    """A load that checks itself, and must outlive the body of the with."""
    load = rack.client.spawn(rmemlab.until_it_fails(rmemlab.fio_command(disk.path, "mixed", "4k-64k", 2, depth=32)))
    yield
    assert load.running(), load.wait()
    load.kill()


def test_scheduler_that_stops_and_starts(lab):
    """Under a load that checks itself: messages go without grants after three leases, and with them again."""
    with racked(lab) as (rack, lent):
        disk = rack.attach(lent)
        with loaded(rack, disk):
            stop_and_start(rack, disk)


def stop_and_start(rack, disk):
    for _ in range(2):
        edm(rack.scheduler, "stop")
        wait_state(rack.client, "unscheduled")
        went = disk.counters()["unscheduled"]
        rmem.wait_until("messages go without grants", lambda: disk.counters()["unscheduled"] > went + 10)
        told = disk.status()
        assert told["scheduler"] == "unscheduled" and told["unscheduled_packets"] > went, told
        rack.start()
        rack.wait_scheduled()
        rack.wait_grants(rack.scheduler)


def test_scheduler_that_restarts_within_a_second(lab):
    """Nine times, and each is a new life: grants of the lives before it count no more."""
    with racked(lab) as (rack, lent):
        disk = rack.attach(lent)
        with loaded(rack, disk):
            for _ in range(3):
                rack.scheduler.run(f"for n in 1 2 3; do {rmem.CLI} edm stop && {rmem.CLI} edm start --key /run/edm.key || "
                                   "exit; done")
                rack.wait_scheduled()
                rack.wait_grants(rack.scheduler)


def test_standby_takes_over(lab):
    """The scheduler loses power under a load that checks itself, and the standby grants the messages that wait."""
    with racked(lab, *STANDBY_LEASE, standby=True) as (rack, lent):
        disk = rack.attach(lent)
        with loaded(rack, disk):
            rack.wait_grants(rack.scheduler)
            assert not counters(rack.node)["sched-grants"]
            rack.cut_power()
            for machine in (rack.client, rack.node):
                wait_state(machine, "standby")
            rack.wait_grants(rack.node)
            assert disk.status()["scheduler"] == "standby", disk.status()
            tap.diag(f"{disk.counters()['unscheduled']} packets went without grants")
            # Once the scheduler is back, all return to it.
            rack.restore(*STANDBY_LEASE)
            rack.wait_scheduled()
            rack.wait_grants(rack.scheduler)


@tap.bound(600)
def test_scheduler_killed_while_swapping(lab):
    """A program swaps with the least reserve. The scheduler stops and starts, loses power and is back; each word is found."""
    with racked(lab) as (rack, lent):
        machine, disk = rack.client, rack.attach(lent)
        mib = SIZE_MIB * 3 // 4
        command = rmemlab.in_cgroup(machine, "scheduled", mib // 4, f"{rmemlab.hog_path()} {mib} 1000 {rmemlab.SEED} 1")
        # The least that README.md asks for; test_rmem_swap.py says why a debug kernel needs more.
        min_free_kib = (12 if rmemlab.is_debug(lab) else 8) * 1024
        with rmemlab.swap_on(machine, disk), test_rmem_swap.knob(machine, "min_free_kbytes", min_free_kib):
            swapped = rmemlab.vmstat(machine)
            hog = machine.spawn(command)
            for action, state in ((lambda: edm(rack.scheduler, "stop"), "unscheduled"), (rack.start, "scheduled"),
                                  (rack.cut_power, "unscheduled"), (rack.restore, "scheduled")):
                action()
                wait_state(machine, state)
                before = rmemlab.vmstat(machine)["pswpin"]
                rmem.wait_until("it swaps on", lambda: rmemlab.vmstat(machine)["pswpin"] > before + 1000, rmemlab.LOAD_S)
            assert hog.running(), hog.wait()
            hog.kill()
            assert rmemlab.vmstat(machine)["pswpout"] > swapped["pswpout"] + 1000
        assert disk.counters()["unscheduled"]


def test_member_that_comes_back_at_once(lab):
    """Its clock has not gone on, and its port is another: the scheduler tells it which epoch to take."""
    with racked(lab, *LONG_LEASE) as (rack, lent):
        now_s = rack.client.run("date +%s").out.strip()
        for _ in range(2):
            rack.client_comes_back(FROZEN_S)
            wait_state(rack.client, "scheduled")
        rack.client.run(f"date -s @{now_s} >/dev/null")
        use_without_trouble(rack, lent)


def test_member_and_scheduler_that_come_back(lab):
    """The member's clock was set back. The scheduler doesn't know its epoch of before, but the node does."""
    with racked(lab, *LONG_LEASE) as (rack, lent):
        now_s = rack.client.run("date +%s").out.strip()
        use_without_trouble(rack, lent)
        edm(rack.scheduler, "stop")
        rack.start(*LONG_LEASE)
        rack.client_comes_back(FROZEN_S)
        rack.wait_scheduled()
        # The node has not yet heard of the restart, perhaps.
        rmem.wait_until("both have joined", lambda: status(rack.scheduler)["members"] == 2)
        rack.client.run(f"date -s @{now_s} >/dev/null")
        use_without_trouble(rack, lent)


def use_without_trouble(rack, lent):
    """Writes and reads, each with a grant, on a disk of its own."""
    disk = rack.attach(lent, "--fail-after", "5")
    rmemlab.run_fio(rack.client, disk.path, "write", "64k", 4)
    counted = {name: value for name, value in disk.counters().items() if value}
    assert "unscheduled" not in counted, (counted, counters(rack.client), counters(rack.node))
    disk.detach()


def band_bytes(machine, device, band):
    """Sent by that band of the queues of a device."""
    return int(re.search(rf"ed00:{band} .*\n Sent (\d+) bytes", machine.run(f"tc -s class show dev {device}").out)[1])


def test_memory_messages_go_first(lab):
    """By priority, since these devices have no frame preemption: requests, data, answers and the scheduler's datagrams."""
    with racked(lab, *LONG_LEASE) as (rack, lent):
        disk = rack.attach(lent)
        machines = (rack.client, rack.node, rack.scheduler)
        device = "eth0"
        for machine in machines:
            machine.run("modprobe -q sch_prio || :")
            for _ in range(2):
                said = edm(machine, "port", device).out
                assert "no frame preemption" in said and "by priority" in said, said
        before = {machine.name: [band_bytes(machine, device, band) for band in (1, 2)] for machine in machines}
        rack.client.run(f"dd if=/dev/zero of={disk.path} bs=64k count=64 oflag=direct status=none && "
                        f"dd if={disk.path} of=/dev/null bs=64k count=64 iflag=direct status=none")
        grew = {machine.name: [band_bytes(machine, device, band) - old for band, old in zip((1, 2), before[machine.name])]
                for machine in machines}
        assert grew[rack.client.name][0] > 4 << 20 and grew[rack.node.name][0] > 4 << 20, grew
        assert grew[rack.scheduler.name][0] > 64 * 64, grew
        # Acknowledgements and short answers, too: the node sends some for each write.
        assert all(second < first / 16 for first, second in grew.values()), grew
        edm(rack.scheduler, "stop")
        for machine in machines[:2]:
            wait_state(machine, "unscheduled")
        before = {machine.name: band_bytes(machine, device, 2) for machine in machines[:2]}
        rack.client.run(f"dd if=/dev/zero of={disk.path} bs=64k count=16 oflag=direct status=none && "
                        f"dd if={disk.path} of=/dev/null bs=64k count=16 iflag=direct status=none")
        for machine in machines[:2]:
            assert band_bytes(machine, device, 2) - before[machine.name] > 1 << 20, "messages without grants go first"
        for machine in machines:
            edm(machine, "port", device, "--undo")
            refused = edm(machine, "port", device, "--undo", check=False)
            assert refused.rc == 1 and "has no queues" in refused.err, refused
        rack.client.run(f"tc qdisc add dev {device} root handle 1: prio")
        refused = edm(rack.client, "port", device, check=False)
        assert refused.rc == 1 and "tc qdisc del" in refused.err, refused
        rack.client.run(f"tc qdisc del dev {device} root")
        refused = edm(rack.client, "port", "eth9", check=False)
        assert refused.rc == 1 and "no network device" in refused.err, refused
        disk.detach()


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
    tap.main("lan", [test_one_write_and_one_read, test_disk_keeps_what_is_written,
                     test_programs_without_modules, test_scheduler_that_stops_and_starts,
                     test_scheduler_that_restarts_within_a_second, test_standby_takes_over,
                     test_scheduler_killed_while_swapping, test_member_that_comes_back_at_once,
                     test_member_and_scheduler_that_come_back,
                     test_memory_messages_go_first, test_refusals])
