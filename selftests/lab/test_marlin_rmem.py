#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Remote memory over Marlin: /dev/rmb0 and /dev/rmem0 whose node is a peer of the bridge, and bad days."""

import contextlib
import random

import ntblab
import rmemlab
import test_eop as eop
import test_rmem_programs as programs
from ntblab import DRIVER, HALVES, MARLIN
from remoralab import rmem, tap
from remoralab.rmem import wait_until

SIZE_MIB = 32
# In a ring of 16 requests, where the node has taken all, and 3 are untold.
ROOM_LEAST = 13
# To READs of 8 pieces, where 15 of 64 are untold: as many as leave too little room for the next.
ANSWERS_LEAST = 40
# Of a load that is to live through something.
LOAD_MIB = 4


def target(machine):
    return f"marlin:{eop.port_of(machine)}"


def start(machine):
    """eop0 is up, for messages go while it is."""
    ntblab.insert(machine, ntblab.CORE, DRIVER, MARLIN)
    eop.configure(machine)


@contextlib.contextmanager
def rack(lab, memory="64M"):
    """left is the client, right the node; third is a peer beside them. Nothing of remote memory is left in them."""
    left, right = lab["left"], lab["right"]
    node = rmem.Node(right, memory)
    try:
        with eop.network(lab):
            ntblab.load_half(left, rmem.CLIENT)
            ntblab.load_half(right, rmem.NODE)
            node.start()
            yield left, node
            for each in rmem.attached(left):
                each.detach()
            assert not node.status()["regions"], node.status()
            node.stop()
            for machine in (left, right):
                ntblab.unload_halves(machine)
    except BaseException:
        for machine in (left, right):
            machine.kill()
        raise


def attach(left, node, size=f"{SIZE_MIB}M", *words):
    return rmem.attach(left, node, size, *words, host=target(node.machine))


def counter(machine, peer, name):
    return eop.counters(machine)[f"port{eop.port_of(peer)}_{name}"]


def load(left, disk):
    """A load that ends with its first error, or when it is told to."""
    command = rmemlab.fio_command(disk.path, "mixed", "4k-64k", LOAD_MIB)
    return rmemlab.UntilTold(left, "load", command)


@tap.bound(900)
def test_disk_keeps_what_is_written(lab):
    with rack(lab) as (left, node):
        for integrity in ("link", "digest", "full"):
            disk = attach(left, node, f"{SIZE_MIB}M", "--integrity", integrity)
            assert disk.status()["node"] == target(node.machine), disk.status()
            rmemlab.run_fio(left, disk.path, "randwrite", "4k", SIZE_MIB // 4)
            rmemlab.run_fio(left, disk.path, "write", "256k", SIZE_MIB)
            rmemlab.run_fio(left, disk.path, "mixed", "4k-64k", SIZE_MIB // 2, depth=64)
            counted = disk.counters()
            tap.diag(f"{integrity}: {counted['sent']} sent, {counted['retries']} again")
            assert not counted["damaged"], counted
            disk.detach()


def test_two_disks_and_a_deep_queue_share_the_rings(lab):
    with rack(lab) as (left, node):
        disks = [attach(left, node, "16M") for _ in range(2)]
        loads = [left.spawn(rmemlab.fio_command(disk.path, "mixed", "4k-64k", 16, 128, seed=n))
                 for n, disk in enumerate(disks)]
        for each in loads:
            result = each.wait(rmemlab.LOAD_S)
            assert result.rc == 0, result
        for disk in disks:
            tap.diag(f"{disk.name}: {disk.counters()['sent']} sent, {disk.counters()['retries']} again")


def test_machine_swaps(lab):
    with rack(lab, "96M") as (left, node):
        disk = attach(left, node, "80M")
        with rmemlab.swap_on(left, disk):
            before = rmemlab.vmstat(left)
            command = rmemlab.in_cgroup(left, "hog", 24, f"{rmemlab.hog_path()} 64 2 {tap.SEED} 2")
            left.run(command, timeout=rmemlab.LOAD_S)
            after = rmemlab.vmstat(left)
        assert after["pswpin"] > before["pswpin"] and after["pswpout"] > before["pswpout"]


@tap.bound(900)
def test_library_passes_its_suite_by_the_device(lab):
    with rack(lab) as (left, node):
        device = attach(left, node, None)
        programs.run_suite(left, f"dev:{device.path}", "*/Given:-*Litmus*:*Heap*")
        device.detach()
        node.clear_space()


def cable_out_and_in(lab, machine, disk, load):
    lab.link_down("fabric", machine.name)
    disk.wait_state("down")
    lab.link_up("fabric", machine.name)
    disk.wait_state("up", ntblab.EVENT_S)
    assert load.running(), load.err


def test_cable_out_and_in_again_loses_nothing(lab):
    with rack(lab) as (left, node):
        disk = attach(left, node)
        rmemlab.write_pattern(left, disk.path, SIZE_MIB)
        boot = disk.status()["boot"]
        reading = left.spawn(rmemlab.until_it_fails(rmemlab.fio_command(disk.path, "read", "64k", SIZE_MIB)))
        wait_until("bytes flow", lambda: disk.counters()["received"] > 1000, rmemlab.LOAD_S)
        for machine in (node.machine, left):
            cable_out_and_in(lab, machine, disk, reading)
        eop.end(reading)
        rmemlab.check_pattern(left, disk.path, SIZE_MIB)
        assert disk.status()["boot"] == boot and disk.counters()["reopened"] == 0, disk.counters()


def under_way(disk):
    """Requests that haven't ended: Documentation/block/stat.rst."""
    return int(disk.machine.read(f"/sys/block/{disk.name}/stat").split()[8])


@contextlib.contextmanager
def stands_still(machine):
    """Its processors do."""
    machine.qmp("stop")
    try:
        yield
    finally:
        machine.qmp("cont")


def test_channels_that_wait_for_room_are_all_let_go_with_the_link(lab):
    """right takes nothing, and the requests of a disk that gives up fill the ring. Two others' have nothing under way
    whose timeout would look for room again."""
    with rack(lab) as (left, node):
        hasty = attach(left, node, "16M", "--fail-after", "2")
        disks = [attach(left, node, "16M") for _ in range(2)]
        before = counter(left, node.machine, "requests_out")
        with stands_still(node.machine):
            filling = left.spawn(rmemlab.fio_command(hasty.path, "randread", "4k", 4, 64))
            assert filling.wait(rmemlab.LOAD_S).rc, "reads of a node that stands still ended well"
            assert counter(left, node.machine, "requests_out") >= before + ROOM_LEAST
            reading = [left.spawn(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
                       for disk in disks]
            for disk in disks:
                wait_until(f"{disk.name} waits", lambda d=disk: under_way(d), rmemlab.LOAD_S)
            lab.link_down("fabric", left.name)
            wait_until("the link is down", lambda: not counter(left, node.machine, "up"), ntblab.EVENT_S)
        lab.link_up("fabric", left.name)
        for each in reading:
            result = each.wait(rmemlab.LOAD_S)
            assert result.rc == 0, result


def polls(machine):
    """Softirqs of received frames and messages."""
    return [line for line in machine.read("/proc/softirqs").splitlines() if "NET_RX" in line]


def test_node_whose_answers_are_not_taken_rests(lab):
    """left stands still with its requests in right's ring, and for the answers to all of them there is no room."""
    with rack(lab) as (left, node):
        right = node.machine
        disk = attach(left, node)
        rmemlab.write_pattern(left, disk.path, SIZE_MIB)
        sent, taken = (counter(left, right, "requests_out"), counter(right, left, "requests_in"))
        answered = counter(right, left, "responses_out")
        with contextlib.ExitStack() as still:
            with stands_still(right):
                reading = left.spawn(rmemlab.fio_command(disk.path, "read", "64k", SIZE_MIB, 64))
                wait_until("the ring is full", lambda: counter(left, right, "requests_out") >= sent + ROOM_LEAST,
                           rmemlab.LOAD_S)
                still.enter_context(stands_still(left))
            wait_until("answers have no room",
                       lambda: counter(right, left, "responses_out") >= answered + ANSWERS_LEAST, ntblab.EVENT_S)
            wait_until("right polls no more", lambda: polls(right) == polls(right), ntblab.EVENT_S)
            assert counter(right, left, "requests_in") < taken + ROOM_LEAST, "no request waits: the test shows nothing"
        result = reading.wait(rmemlab.LOAD_S)
        assert result.rc == 0, result


def looks(machine):
    """How often the poll of messages looked for an answer before it slept."""
    return eop.counters(machine)["message_spins"]


def set_spin(machines, microseconds):
    for machine in machines:
        machine.run(f"ethtool -C eop0 rx-usecs {microseconds}")


def test_machines_look_for_messages_while_there_are_some(lab):
    with rack(lab) as (left, node):
        machines = (left, node.machine)
        disk = attach(left, node)
        one_by_one = f"dd if={disk.path} of=/dev/null bs=4k count=256 iflag=direct status=none"
        set_spin(machines, 0)
        before = [looks(machine) for machine in machines]
        left.run(one_by_one, timeout=rmemlab.LOAD_S)
        assert before == [looks(machine) for machine in machines], "a machine that may not look did"
        set_spin(machines, 1000)
        reading = left.spawn(rmemlab.until_it_fails(one_by_one))
        for machine, count in zip(machines, before):
            wait_until(f"{machine.name} looks for messages", lambda m=machine, c=count: looks(m) > c + 100, rmemlab.LOAD_S)
        eop.end(reading)
        for machine in machines:
            wait_until(f"{machine.name} rests", lambda m=machine: looks(m) == looks(m), ntblab.EVENT_S)
        # Another program on its processors comes first.
        busy = [left.spawn("exec sh -c 'while :; do :; done'") for _ in range(int(left.run("nproc").out))]
        left.run(one_by_one, timeout=rmemlab.LOAD_S)
        for each in busy:
            eop.end(each)
        set_spin(machines, 500)


def test_interface_down_and_driver_away_hold_io(lab):
    """Neither is refused by a device that is attached: its I/O waits."""
    with rack(lab) as (left, node):
        disk = attach(left, node)
        going = load(left, disk)
        for machine in (left, node.machine):
            machine.run("ip link set eop0 down")
            disk.wait_state("down")
            machine.run("ip link set eop0 up")
            disk.wait_state("up", ntblab.EVENT_S)
        for machine in (left, node.machine):
            ntblab.remove(machine, DRIVER)
            disk.wait_state("down")
            ntblab.insert(machine, DRIVER)
            eop.configure(machine)
            disk.wait_state("up", ntblab.EVENT_S)
        going.stop()


def test_node_killed_is_lost_and_its_machine_serves_again(lab):
    with rack(lab) as (left, node):
        disk = attach(left, node)
        rmemlab.write_pattern(left, disk.path, 4)
        reading = left.spawn(rmemlab.until_it_fails(f"dd if={disk.path} of=/dev/null bs=64k iflag=direct status=none"))
        node.machine.kill()
        disk.wait_state("down")
        node.machine.boot()
        start(node.machine)
        ntblab.load_half(node.machine, rmem.NODE)
        node.start()
        disk.wait_state("lost", ntblab.EVENT_S)
        assert "error" in reading.wait(rmemlab.LOAD_S).err, reading.err
        disk.detach()
        again = attach(left, node)
        rmemlab.run_fio(left, again.path, "write", "64k", 8)


def test_peers_that_are_none_are_refused(lab):
    with rack(lab) as (left, node):
        words = ["--size", "16M", "--key", rmem.give_key(left, node)]
        for text, says in (("marlin:0", "this machine's own port"), ("marlin:9", "no such port: .*ethtool"),
                           ("marlin:", "write marlin:PORT"), ("marlin:1x", "write marlin:PORT"),
                           ("marlin:2", "the node is silent")):
            rmemlab.cli_refused(left, "attach", text, *words, "--timeout", "2", says=says)
        ntblab.remove(left, HALVES[rmem.CLIENT])
        rmemlab.cli_refused(left, "attach", "marlin:1", *words, says="no transport 'marlin'")


def test_modules_in_use_are_kept(lab):
    with rack(lab) as (left, node):
        disk = attach(left, node)
        for machine, module in ((left, HALVES[rmem.CLIENT]), (left, MARLIN), (left, rmem.CLIENT),
                                (node.machine, HALVES[rmem.NODE]), (node.machine, rmem.NODE)):
            result = machine.run(["rmmod", module], check=False)
            assert result.rc and "in use" in result.err, result
        disk.detach()
        node.stop()
        ntblab.remove(node.machine, HALVES[rmem.NODE])
        # Started without that module it serves by UDP alone, and by both as soon as the module is loaded.
        node.start()
        rmemlab.cli_refused(left, *rmem.attach_words(left, node, "16M", "--timeout", "2", host=target(node.machine)),
                            says="the node is silent")
        ntblab.load_half(node.machine, rmem.NODE)
        attach(left, node)


# Each may be loaded once these are.
NEEDS = {ntblab.CORE: (), DRIVER: (ntblab.CORE,), MARLIN: (ntblab.CORE,), rmem.CORE: (), rmem.CLIENT: (rmem.CORE,),
         rmem.NODE: (rmem.CORE,), HALVES[rmem.CLIENT]: (rmem.CLIENT, MARLIN), HALVES[rmem.NODE]: (rmem.NODE, MARLIN)}


def any_order(chance):
    """The modules, in one of the orders that their symbols allow."""
    order, rest = [], list(NEEDS)
    while rest:
        order.append(chance.choice([name for name in rest if set(NEEDS[name]) <= set(order)]))
        rest.remove(order[-1])
    return order


@tap.bound(900)
def test_modules_come_and_go_in_any_order(lab):
    chance = random.Random(tap.SEED)
    left, right = lab["left"], lab["right"]
    for machine in lab:
        ntblab.unload_halves(machine)
        ntblab.clear(machine)
    try:
        for _ in range(2):
            for machine in (left, right):
                order = any_order(chance)
                tap.diag(f"{machine.name}: {' '.join(order)}")
                for name in order:
                    path = ntblab.path_of(machine, name) if name == ntblab.CORE else rmem.module_path(machine, name)
                    # The kernel's own that they depend on are there, or come first.
                    machine.insmod(path, timeout=ntblab.EVENT_S)
                eop.configure(machine)
            for machine in (left, right):
                eop.wait_up(machine, left if machine is right else right)
            node = rmem.Node(right, "64M").start()
            disk = attach(left, node, "16M")
            rmemlab.run_fio(left, disk.path, "write", "64k", 4)
            disk.detach()
            node.stop()
            for machine in (left, right):
                ntblab.remove(machine, *reversed(any_order(chance)))
    except BaseException:
        for machine in (left, right):
            machine.kill()
        raise


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    tap.main("ntb3", TESTS)
