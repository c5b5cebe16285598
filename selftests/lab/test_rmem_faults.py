#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Bad days: a network that loses, bends and delays, a node that is away or dies, a user who errs."""

import re
import signal
import time

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack, wait_until
from rmemlab import run_fio, scaled

MIB = 1 << 20
# How long a node stays away. Neither end may care whether that is seconds or a minute.
OUTAGE_S = 60 if rmemlab.FULL else 8
NETWORKS = {
    "loss": "loss 10%",
    "reordering": "delay 3ms 2ms reorder 30% 50%",
    "duplication": "duplicate 20%",
    "corruption": "corrupt 3%",
    "everything": "delay 2ms 1ms loss 3% duplicate 3% corrupt 1% reorder 10% 50%",
}


def on_bad_network(lab, name, *words):
    compute, memory = lab["compute"], lab["memory"]
    how = NETWORKS[name]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "96M"), "64M", *words)
        with rmemlab.netem(compute, "eth0", how), rmemlab.netem(memory, "eth0", how):
            for block in ("4k", "64k"):
                run_fio(compute, device.path, "mixed", block, scaled(lab, 8), depth=32, seed=rmemlab.SEED)
        run_fio(compute, device.path, "mixed", "16k", scaled(lab, 8))


@tap.bound(600)
def test_loss(lab):
    on_bad_network(lab, "loss")


@tap.bound(600)
def test_reordering(lab):
    on_bad_network(lab, "reordering")


@tap.bound(600)
def test_duplication(lab):
    on_bad_network(lab, "duplication")


@tap.bound(900)
def test_corruption(lab):
    for level in ("link", "digest", "full"):
        on_bad_network(lab, "corruption", "--integrity", level)


@tap.bound(600)
def test_everything_at_once(lab):
    on_bad_network(lab, "everything")


@tap.bound(600)
def test_stalls(lab):
    """200 ms of silence now and then, as a switch under repair has them."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "96M"), "64M")
        load = compute.spawn(rmemlab.fio_command(device.path, "mixed", "4k", scaled(lab, 16), 32))
        memory.run("modprobe -q sch_netem || :")
        for _ in range(6):
            memory.netem("eth0", "delay 200ms")
            time.sleep(0.4)  # the length of a stall is what is tested
            memory.netem("eth0", "")
            time.sleep(0.3)
        result = load.wait(rmemlab.LOAD_S)
        assert result.rc == 0, result


@tap.bound(600)
def test_outage_is_waited_for(lab):
    """The link goes down under load, and comes back: no error reaches the load."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "96M"), "64M")
        load = compute.spawn(rmemlab.fio_command(device.path, "mixed", "4k-64k", scaled(lab, 32), 16))
        wait_until("the load is under way", lambda: device_writes(device) > 100)
        with rmemlab.link_down(lab, "rack"):
            device.wait_state("down")
            began = time.monotonic()
            while time.monotonic() - began < OUTAGE_S:
                assert load.running(), load.err
                time.sleep(0.5)  # the outage's length is what is tested
        device.wait_state("up")
        result = load.wait(rmemlab.LOAD_S)
        assert result.rc == 0, result


def device_writes(device):
    return int(device.machine.read(f"/sys/block/{device.name}/stat").split()[4])


def fails(machine, command):
    """The command must end, and with an error of I/O: EIO, or ENOLINK for a node that is silent."""
    result = machine.run(command, check=False)
    assert result.rc != 0 and re.search("Input/output error|Link has been severed", result.err), result


@tap.bound(300)
def test_fail_after(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "96M"), "64M", "--fail-after", "5")
        with rmemlab.link_down(lab, "rack"):
            began = time.monotonic()
            fails(compute, f"dd if=/dev/zero of={device.path} bs=4k count=1 oflag=direct")
            took = time.monotonic() - began
            tap.diag(f"failed after {took:.1f} s")
            assert 4 <= took <= 25, "not in time"
        device.wait_state("up")
        run_fio(compute, device.path, "mixed", "4k-64k", scaled(lab, 8))


def lose_the_node(lab, restart):
    """Whatever way the node restarts, its memory is gone: the device says so, and I/O ends in errors."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, "64M")
        load = compute.spawn(rmemlab.fio_command(device.path, "mixed", "4k-64k", 48, 16))
        wait_until("the load is under way", lambda: device_writes(device) > 100)
        restart(node)
        device.wait_state("lost", 120)
        result = load.wait(rmemlab.LOAD_S)
        assert result.rc != 0, "a load on memory that is gone ended well"
        fails(compute, f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct")
        device.detach()
        again = rack.attach("compute", node, "64M")
        run_fio(compute, again.path, "mixed", "4k-64k", scaled(lab, 8))


@tap.bound(600)
def test_node_stopped_and_started(lab):
    def restart(node):
        node.stop()
        node.start()
    lose_the_node(lab, restart)


@tap.bound(600)
def test_node_power_cut(lab):
    def restart(node):
        node.machine.kill()
        node.machine.boot()
        node.start()
    lose_the_node(lab, restart)


@tap.bound(300)
def test_detach_from_a_dead_node(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "96M"), "64M")
        load = compute.spawn(rmemlab.fio_command(device.path, "mixed", "4k", 32, 16))
        wait_until("the load is under way", lambda: device_writes(device) > 100)
        lab["memory"].kill()
        device.wait_state("down")
        device.detach("--force")
        result = load.wait(rmemlab.LOAD_S)
        assert result.rc != 0, result
        rmem.unload(compute)


# What users do

def test_wrong_key_and_unknown_space(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)
        words = rmem.attach_words(compute, node, "32M")
        rmem.remora(compute, "key", "new", "/run/wrong.key")
        wrong = [("/run/wrong.key" if str(word).endswith(".key") else word) for word in words]
        rmemlab.cli_refused(compute, *wrong, says=r"key|answer")
        rmemlab.cli_refused(compute, *words, "--space", "77", says=r"space|key|answer")
        assert rmem.devices(compute) == []
        assert node.status()["regions"] == 0


def test_sizes_that_are_wrong(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)
        for size, says in (("0", r"size|bytes|0"), ("80M", r"memory|left|free|large"), ("16E", r"size|large|memory"),
                           ("12x", r"size"), ("1000", r"multiple|4096|4K")):
            rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, size), says=says)
        assert rmem.devices(compute) == []
        assert node.status()["regions"] == 0
        device = rack.attach("compute", node, "64M")
        device.detach()


def test_node_that_is_not_there(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)
        node.stop()
        rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, "32M"), says=r"answer|node|reach|timed")
        rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, "32M", host="10.0.0.77"),
                            says=r"answer|node|reach|timed")


def test_port_in_use(lab):
    """Another process has the port: the node says so and starts elsewhere, or there later."""
    memory = lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        node.stop()
        taker = memory.spawn(["python3", "-c", "import socket, sys\n"
                              "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                              f"s.bind(('0.0.0.0', {rmem.PORT}))\nprint('bound', flush=True)\nsys.stdin.read()"])
        taker.wait_output("bound")
        rmemlab.cli_refused(memory, "node", "start", "--memory", "64M", "--space", f"1={node.key_path}",
                            says=r"port|address|in use")
        taker.end_input()
        taker.wait()
        node.start()


def test_started_or_loaded_twice(lab):
    memory = lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmemlab.cli_refused(memory, "node", "start", "--memory", "64M", "--space", f"1={node.key_path}",
                            says=r"already|runs|started")
        for name in rmem.loaded(memory):
            assert memory.run(["insmod", rmem.module_path(memory, name)], check=False).rc != 0
        assert node.status()["started"]


def test_node_asked_too_much(lab):
    memory = lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        node.stop()
        rmemlab.cli_refused(memory, "node", "start", "--memory", "64G", "--space", f"1={node.key_path}",
                            says=r"memory")
        rmemlab.cli_refused(memory, "node", "start", "--memory", "64M", "--page", "12K", "--space",
                            f"1={node.key_path}", says=r"page")
        assert not node.status()["started"]
        node.start()


def test_in_use(lab):
    """Nothing goes from under its user: not the device, not the modules; --force does, with errors."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "32M")
        assert compute.run("rmmod rmem", check=False).rc != 0, "rmem unloaded with a device attached"
        assert memory.run("rmmod rmem_node", check=False).rc != 0, "rmem_node unloaded while it lends memory"
        holder = compute.spawn(f"exec 3<{device.path}; echo held; read wait")
        holder.wait_output("held")
        refused = device.detach(check=False)
        assert refused.rc != 0 and "use" in refused.err, refused
        device.detach("--force")
        holder.end_input()
        holder.wait()
        wait_until("the device is gone", lambda: rmem.devices(compute) == [])
        wait_until("its region is gone", lambda: node.status()["regions"] == 0)


def test_hibernation_is_refused(lab):
    """An image of this machine could not be woken: what it swapped lies elsewhere."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "64M"), "32M")
        mark = compute.console_mark()
        refused = compute.run("echo disk > /sys/power/state", check=False)
        assert refused.rc != 0, "hibernated with a device attached"
        compute.wait_console("no hibernation with remote memory attached: detach", 30, mark)
        run_fio(compute, device.path, "mixed", "4k", 4)


@tap.bound(600)
def test_interrupted_attach(lab):
    """Ctrl-C at any moment: either a device or none, at the node a region for it or none."""
    compute, memory = lab["compute"], lab["memory"]
    chance = rmemlab.seeded("interrupted attach")
    outcomes = {"attached": 0, "interrupted": 0}
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)
        words = rmem.attach_words(compute, node, "32M")
        # A distant node makes each step of an attach long enough to be hit.
        with rmemlab.netem(memory, "eth0", "delay 200ms"):
            began = time.monotonic()
            device = rack.attach("compute", node, "32M")
            longest_s = time.monotonic() - began
            device.detach()
            for _ in range(40 if rmemlab.FULL else 15):
                attach = compute.spawn([rmem.CLI, *words])
                time.sleep(chance.uniform(0, longest_s))  # the moment of the interrupt is what is tested
                attach.signal(signal.SIGINT)
                attach.wait(rmem.ACTION_S)
                there = rmem.attached(compute)
                outcomes["attached" if there else "interrupted"] += 1
                if attach.rc == 0:
                    assert len(there) == 1, f"said attached, but there are {there}"
                for each in there:
                    each.detach()
                wait_until("no region is left at the node", lambda: node.status()["regions"] == 0)
        tap.diag(f"{outcomes}")


TESTS = [test_loss, test_reordering, test_duplication, test_corruption, test_everything_at_once, test_stalls,
         test_outage_is_waited_for, test_fail_after, test_node_stopped_and_started, test_node_power_cut,
         test_detach_from_a_dead_node, test_wrong_key_and_unknown_space, test_sizes_that_are_wrong,
         test_node_that_is_not_there, test_port_in_use, test_started_or_loaded_twice,
         test_node_asked_too_much, test_in_use,
         test_hibernation_is_refused, test_interrupted_attach]

if __name__ == "__main__":
    tap.main("pair", TESTS)
