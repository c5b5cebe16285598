#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""remora apply: machines get the state that their files declare, once, and are taken down even if their node is dead."""

import contextlib
import json
import time

import eqdslab
import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack, wait_until

FOLDER = "/run/declared"
SWAPPED_MIB = 100
# Bounds of a shutdown, which nothing but this is part of here.
ALIVE_S, DEAD_S = 30, 60


def declare(machine, text, file="remora.conf"):
    machine.run(f"mkdir -p {FOLDER}/remora.conf.d")
    machine.write(f"{FOLDER}/{file}", text)


def apply(machine, *words, rc=0, timeout=rmem.ACTION_S):
    result = rmem.remora(machine, "apply", "--config", FOLDER, *words, check=False, timeout=timeout)
    assert result.rc == rc, f"apply {' '.join(words)}: not {rc}: {result}"
    return result


def states(machine, *words, rc=0):
    return {each["resource"]: each["state"] for each in json.loads(apply(machine, *words, "--json", rc=rc).out)}


def disk_text(machine, node, *lines, name="db", size="128M"):
    key = rmem.give_key(machine, node)
    return "\n".join([f"[device {name}]", f"node = {rmem.address(node.machine, machine)}", f"key = {key}",
                      f"size = {size}", *lines, ""])


@contextlib.contextmanager
def declared_disk(lab, *lines, **options):
    """compute declares a disk of a node of memory's, which serves."""
    with Rack(lab) as rack:
        node = rack.node("memory", "256M")
        rmem.load(lab["compute"], rmem.CLIENT)
        declare(lab["compute"], disk_text(lab["compute"], node, *lines, **options))
        yield rack, node


def waiting_apply(machine, *words):
    """An apply whose node doesn't answer yet."""
    waits = machine.spawn([rmem.CLI, "apply", "--config", FOLDER, "--wait", *words])
    waits.wait_output("waiting")
    return waits


def swaps(machine):
    return [line.split()[0] for line in machine.read("/proc/swaps").splitlines()[1:]]


def swap_used_kib(machine):
    return sum(int(line.split()[3]) for line in machine.read("/proc/swaps").splitlines()[1:])


@tap.bound(300)
def test_both_machines_are_made_as_declared(lab):
    """A second apply changes nothing; resources that are no longer declared go, and no others."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        rmem.load(memory, rmem.NODE)
        rmem.load(compute, rmem.CLIENT)
        key = rmem.new_key(memory, "/run/rack.key")
        rmem.write_key(compute, "/run/rack.key", key)
        rmem.new_key(memory, "/run/view.key")
        declare(memory, "[space 2]\nkey = /run/view.key\nread-only-of = 1\n"
                        "[node]\nmemory = 256M\nsessions = 64\n[space 1]\nkey = /run/rack.key\nquota = 200M\n")
        node_resources = {"node", "space/1", "space/2"}
        assert states(memory, "--check", rc=4) == dict.fromkeys(node_resources, "to-be-changed")
        assert states(memory) == dict.fromkeys(node_resources, "changed")
        assert states(memory) == states(memory, "--check") == dict.fromkeys(node_resources, "same")
        rmem.remora(memory, "node", "space", "revoke", "2")
        for words in ((), ("--check",)):  # the key that was revoked doesn't come back
            said = apply(memory, *words, rc=1)
            assert "it was revoked or deleted since it was added" in said.out + said.err, said
        assert [each["space"] for each in json.loads(rmem.remora(memory, "node", "space", "list", "--json").out)] == [1]

        node = rmem.Node(memory, "256M")
        node.key, node.key_path = key, "/run/rack.key"
        rack.nodes.append(node)
        declare(compute, disk_text(compute, node, "swap = yes", "priority = 7"))
        declare(compute, disk_text(compute, node, "keep = yes", name="kept", size="32M"), "remora.conf.d/more.conf")
        by_hand = rack.attach("compute", node, "16M", "--name", "by-hand")
        assert states(compute, "--check", rc=4) == {"device/db": "to-be-changed", "device/kept": "to-be-changed"}
        assert states(compute) == {"device/db": "changed", "device/kept": "changed"}
        assert states(compute) == {"device/db": "same", "device/kept": "same"}
        names = {each["name"]: each["device"] for each in rmem.devices(compute)}
        assert swaps(compute) == [names["db"]]
        assert compute.read("/proc/swaps").splitlines()[1].split()[-1] == "7"

        # Another declaration of a device in use is told, and changes nothing.
        declare(compute, disk_text(compute, node, "swap = yes", size="64M"))
        told = apply(compute, rc=1).err
        assert "device/db" in told and "size is 128M, declared as 64M" in told and f"{FOLDER}/remora.conf:1" in told, told

        declare(compute, "")
        assert states(compute) == {"device/db": "changed", "device/kept": "same"}
        assert swaps(compute) == []
        assert {each["name"] for each in rmem.devices(compute)} == {"kept", "by-hand"}
        apply(compute, "--undo")
        assert [each["name"] for each in rmem.devices(compute)] == ["by-hand"]
        by_hand.detach()

        # The node lends a region still, the kept one: it isn't stopped for a line that went.
        declare(memory, "")
        assert "regions" in apply(memory, rc=1).err
        assert node.status()["started"]
        rack.attach("compute", node, "32M", "--name", "kept").detach()
        for machine in (compute, memory):
            machine.run(["rm", "-r", FOLDER])


@tap.bound(300)
def test_lost_device_is_attached_anew(lab):
    compute = lab["compute"]
    with declared_disk(lab) as (_rack, node):
        apply(compute)
        device, = rmem.attached(compute)
        node.stop()
        node.start()
        compute.run(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct", check=False)
        device.wait_state("lost")
        assert states(compute) == {"device/db": "changed"}
        rmemlab.run_fio(compute, rmem.attached(compute)[0].path, "mixed", "4k-64k", 8)
        apply(compute, "--undo")


@tap.bound(300)
def test_mistakes_are_told_with_their_lines(lab):
    compute = lab["compute"]
    declare(compute, "[device db]\nnode = 10.0.0.2\nsise = 8G\n")
    declare(compute, "[devise]\n", "remora.conf.d/more.conf")
    result = apply(compute, "--check", rc=2)
    assert result.err == (f"remora: {FOLDER}/remora.conf:3: [device] has no key 'sise': is it 'size'?\n"
                          f"remora: {FOLDER}/remora.conf.d/more.conf:1: there is no section [devise]: is it 'device'?\n")
    compute.run(["rm", "-r", FOLDER])
    assert "there is no" in apply(compute, rc=2).err


def swap_out(machine):
    """Random bytes in a tmpfs, most of it on /dev/rmbN: the kernel writes no pages of zeros there."""
    fill = f"dd if=/dev/urandom of=/run/swapped/file bs=1M count={SWAPPED_MIB + 16} status=none"
    machine.run("mkdir -p /run/swapped && mount -t tmpfs -o size=256M swapped /run/swapped")
    machine.run(rmemlab.in_cgroup(machine, "swapped", 16, fill), timeout=rmemlab.LOAD_S)
    used_kib = swap_used_kib(machine)
    tap.diag(f"{used_kib >> 10} MiB are swapped")
    assert used_kib >= (SWAPPED_MIB - 8) << 10
    machine.write("/sys/fs/cgroup/swapped/memory.max", "max")


def take_down(lab, limit_s, dies=None):
    """The ExecStop of the unit ends in time, while systemd swaps off by itself. dies: when the node loses power."""
    compute, memory = lab["compute"], lab["memory"]
    with declared_disk(lab, "swap = yes", size="192M") as (_rack, node):
        apply(compute)
        swap_out(compute)
        path, = swaps(compute)
        if dies == "before":
            memory.kill()
        used = swap_used_kib(compute)
        systemd = compute.spawn(["swapoff", path])
        began = time.monotonic()
        stop = compute.spawn([rmem.CLI, "apply", "--undo"])
        if dies == "meanwhile":
            wait_until("some is back", lambda: swap_used_kib(compute) < used - 1024)
            memory.kill()
            assert swap_used_kib(compute), "all was back before the node lost power: the test shows nothing"
        result = stop.wait(rmemlab.LOAD_S)
        assert result.rc == 0, result
        took_s = time.monotonic() - began
        tap.diag(f"took {took_s:.1f} s")
        assert took_s < limit_s
        assert swaps(compute) == [] and rmem.devices(compute) == []
        systemd.wait(rmem.ACTION_S)
        compute.run(["umount", "/run/swapped"])


@tap.bound(300)
def test_taken_down_with_its_node_alive(lab):
    take_down(lab, ALIVE_S)


@tap.bound(300)
def test_taken_down_with_its_node_dead(lab):
    take_down(lab, DEAD_S, "before")


@tap.bound(300)
def test_taken_down_as_its_node_dies(lab):
    take_down(lab, DEAD_S, "meanwhile")


@tap.bound(300)
def test_waits_for_an_absent_node(lab):
    """The node is absent: the unit's program waits for it, and then the swap is there."""
    compute = lab["compute"]
    with declared_disk(lab, "swap = yes") as (_rack, node):
        node.stop()
        waits = waiting_apply(compute, "device/db")
        node.start()
        assert waits.wait(rmem.ACTION_S).rc == 0
        assert len(swaps(compute)) == 1
        apply(compute, "--undo", "device/db")


@tap.bound(300)
def test_device_of_a_killed_apply_is_taken_down(lab):
    """apply notes the device that it is about to attach. So one of an apply that was killed is its own, as no other is."""
    compute = lab["compute"]
    with declared_disk(lab, "swap = yes") as (_rack, _node):
        # A mkswap that stands still.
        compute.run("mkdir -p /run/bin && mkfifo /run/bin/never && printf '#!/bin/sh\nread x </run/bin/never\n' >/run/bin/mkswap "
                    "&& chmod +x /run/bin/mkswap")
        stands = compute.spawn(["env", "PATH=/run/bin:/usr/bin:/bin", rmem.CLI, "apply", "--config", FOLDER])
        wait_until("mkswap runs", lambda: compute.run("pgrep -x mkswap", check=False).rc == 0)
        stands.signal(9)
        stands.wait(rmem.ACTION_S)
        compute.run("pkill -x mkswap; rm -r /run/bin")
        device, = rmem.attached(compute)
        assert states(compute) == {"device/db": "changed"}
        assert swaps(compute) == [device.path]
        apply(compute, "--undo")
        assert rmem.devices(compute) == []


@tap.bound(300)
def test_device_of_another_is_left_alone(lab):
    """A device that a user attached under the name is neither taken down nor made swap."""
    compute = lab["compute"]
    with declared_disk(lab, "swap = yes") as (rack, node):
        node.stop()
        waits = waiting_apply(compute)
        waits.signal(9)
        waits.wait(rmem.ACTION_S)
        node.start()
        device = rack.attach("compute", node, "128M", "--name", "db")
        rmemlab.write_pattern(compute, device.path, 16)
        told = apply(compute, rc=1).err
        assert "was not attached by 'remora apply'" in told, told
        apply(compute, "--undo")
        assert swaps(compute) == [] and [each["name"] for each in rmem.devices(compute)] == ["db"]
        rmemlab.check_pattern(compute, device.path, 16)


@tap.bound(300)
def test_content_is_not_made_swap(lab):
    """A device gets content before it is declared as swap: apply refuses. A swap that was switched off is on again."""
    compute = lab["compute"]
    with declared_disk(lab) as (_rack, node):
        apply(compute)
        device, = rmem.attached(compute)
        rmemlab.write_pattern(compute, device.path, 16)
        declare(compute, disk_text(compute, node, "swap = yes"))
        told = apply(compute, rc=1).err
        assert "has content that isn't swap" in told, told
        rmemlab.check_pattern(compute, device.path, 16)
        apply(compute, "--undo")
        apply(compute)
        device, = rmem.attached(compute)
        header = compute.run(f"swapoff {device.path} && head -c 4096 {device.path} | md5sum").out
        assert states(compute) == {"device/db": "changed"}
        assert swaps(compute) == [device.path]
        assert compute.run(f"head -c 4096 {device.path} | md5sum").out == header
        apply(compute, "--undo")


@tap.bound(300)
def test_one_process_at_a_time_makes_a_device(lab):
    """A second apply beside a waiting one says so and leaves its note. --undo ends the waiting one."""
    compute = lab["compute"]
    with declared_disk(lab) as (_rack, node):
        node.stop()
        waits = waiting_apply(compute)
        note = compute.read("/run/remora/made")
        assert "device/db cookie " in note, note
        told = apply(compute, rc=1).err
        assert "is at work on it" in told and compute.read("/run/remora/made") == note, told
        node.start()
        assert waits.wait(rmem.ACTION_S).rc == 0
        assert compute.read("/run/remora/made") == note
        apply(compute, "--undo")
        assert rmem.devices(compute) == []

        node.stop()
        waits = waiting_apply(compute)
        apply(compute, "--undo", "device/db")
        ended = waits.wait(rmem.ACTION_S)
        assert ended.rc == 1 and "nothing is attached" in ended.err, ended
        assert compute.read("/run/remora/made") == ""
        node.start()


@tap.bound(300)
def test_replaced_machine_takes_its_disk(lab):
    compute = lab["compute"]
    with declared_disk(lab) as (rack, node):
        rack.attach("memory", node, "128M", "--name", "db", "--keep", host="127.0.0.1").detach()
        assert "another machine owns NAME" in apply(compute, rc=1).err
        apply(compute, "--take")
        assert states(compute) == {"device/db": "same"}
        apply(compute, "--undo")


@tap.bound(300)
def test_tunnels_follow_their_declaration(lab):
    """A rule that was declared and is so no longer goes; one that a user made stays."""
    compute = lab["compute"]

    def rules():
        listed = json.loads(rmem.remora(compute, "eqds", "rules", "--json").out)
        return {(each["rule"], each["prefix"], each.get("peer") or each.get("weight")) for each in listed}

    text = ("[eqds eq0]\nlink = eth0\nttl = 9\ntunnels = 100\nmap = 10.7.0.0/16 10.0.0.2\nallow = 10.0.0.0/24\n"
            "share = 10.0.0.2 1 4\n")
    eqdslab.load(compute, eqdslab.CORE, eqdslab.MODULE)
    declare(compute, text)
    assert states(compute, "--check", rc=4) == {"eqds/eq0": "to-be-changed"}
    assert states(compute) == {"eqds/eq0": "changed"}
    assert states(compute) == states(compute, "--check") == {"eqds/eq0": "same"}
    rmem.remora(compute, "eqds", "allow", "eq0", "10.6.0.0/24")
    declare(compute, text.replace("map = 10.7.0.0/16", "map = 10.5.0.0/16").replace("10.0.0.2 1 4", "10.0.0.2 1 5"))
    assert states(compute) == {"eqds/eq0": "changed"}
    assert rules() == {("map", "10.5.0.0/16", "10.0.0.2"), ("allow", "10.0.0.0/24", None),
                       ("allow", "10.6.0.0/24", None), ("share", "10.0.0.2/32", 5)}
    device, = json.loads(rmem.remora(compute, "eqds", "credit", "--json").out)
    assert (device["link"], device["tunnels_max"]) == ("eth0", 100)
    declare(compute, text.replace("eth0", "lo"))
    assert "its link is eth0, declared as lo" in apply(compute, rc=1).err
    declare(compute, "")
    assert states(compute) == {"eqds/eq0": "changed"}
    assert compute.run("ip link show eq0", check=False).rc != 0
    eqdslab.unload(compute)


TESTS = [test_both_machines_are_made_as_declared, test_lost_device_is_attached_anew,
         test_mistakes_are_told_with_their_lines, test_taken_down_with_its_node_alive,
         test_taken_down_with_its_node_dead, test_taken_down_as_its_node_dies, test_waits_for_an_absent_node,
         test_device_of_a_killed_apply_is_taken_down, test_device_of_another_is_left_alone, test_content_is_not_made_swap,
         test_one_process_at_a_time_makes_a_device, test_replaced_machine_takes_its_disk, test_tunnels_follow_their_declaration, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
