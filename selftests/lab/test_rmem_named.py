#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Disks with a name: a client that loses power leaves one region at its node, however often, and finds it again."""

import json
import re

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack

CUTS = 20
MIB = 16


def cut_power(machine):
    machine.kill()
    machine.boot()


def owned_regions(node):
    """[(name, its owner's mark or "")] of the space's regions."""
    listed = json.loads(rmem.remora(node.machine, "node", "regions", "--json", str(node.SPACE)).out)
    names = [re.fullmatch(r"([^@]*)(?:@([0-9a-f]{10}))?", each["name"]) for each in listed]
    return [(name[1], name[2] or "") for name in names]


def regions(node):
    return [name for name, _ in owned_regions(node)]


def read_is_zero(machine, path):
    return machine.run(f"cmp -n {MIB << 20} {path} /dev/zero", check=False, timeout=rmemlab.LOAD_S).rc == 0


@tap.bound(900)
def test_power_cuts_leave_one_region(lab):
    """Without a name each leaves another one."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        for _ in range(2):
            rack.attach("compute", node, f"{MIB}M")
            cut_power(compute)
        assert regions(node) == ["", ""]
        node.clear_space()
        rmem.remora(node.machine, "node", "space", "add", f"{node.SPACE}={node.key_path}")
        for _ in range(CUTS):
            rack.attach("compute", node, f"{MIB}M", "--name", "db")
            assert regions(node) == ["disk/db"]
            cut_power(compute)
        device = rack.attach("compute", node, f"{MIB}M", "--name", "db")
        assert regions(node) == ["disk/db"]
        assert device.status()["name"] == "db"
        assert compute.read(f"/sys/block/{device.name}/rmem/name") == "db\n"


@tap.bound(600)
def test_fresh_has_nothing_of_before(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        first = rack.attach("compute", node, f"{MIB}M", "--name", "db")
        rmemlab.write_pattern(compute, first.path, MIB)
        cut_power(compute)
        # Another size is as good: nothing is kept.
        second = rack.attach("compute", node, f"{2 * MIB}M", "--name", "db")
        assert read_is_zero(compute, second.path)
        rmemlab.run_fio(compute, second.path, "mixed", "4k-64k", MIB)


@tap.bound(600)
def test_kept_content_outlives_power_cut_and_detach(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        words = ["--name", "db", "--keep"]
        first = rack.attach("compute", node, f"{MIB}M", *words)
        rmemlab.write_pattern(compute, first.path, MIB)
        cut_power(compute)
        second = rack.attach("compute", node, f"{MIB}M", *words)
        rmemlab.check_pattern(compute, second.path, MIB)
        second.detach()
        assert regions(node) == ["disk/db"]
        rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, f"{2 * MIB}M", *words),
                            says=f"keeps {MIB} MiB as db")
        third = rack.attach("compute", node, f"{MIB}M", *words)
        rmemlab.check_pattern(compute, third.path, MIB)
        third.detach()
        # Without --keep it is the client's own, and goes with it.
        rack.attach("compute", node, f"{MIB}M", "--name", "db").detach()
        assert regions(node) == []


@tap.bound(600)
def test_name_belongs_to_its_machine(lab):
    """Another machine is refused, and changes nothing. If it takes the name, the first one's I/O fails."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        first = rack.attach("compute", node, f"{MIB}M", "--name", "db")
        owned = owned_regions(node)
        assert [name for name, owner in owned if owner] == ["disk/db"], owned
        rmemlab.write_pattern(compute, first.path, MIB)
        rmem.load(memory, rmem.CLIENT)
        for words in ([], ["--keep"]):
            rmemlab.cli_refused(memory, *rmem.attach_words(memory, node, f"{MIB}M", "--name", "db", *words, host="127.0.0.1"),
                                says="another machine owns NAME")
        assert owned_regions(node) == owned
        rmemlab.check_pattern(compute, first.path, MIB)

        second = rack.attach("memory", node, f"{MIB}M", "--name", "db", "--take", host="127.0.0.1")
        write = compute.run(f"dd if=/dev/urandom of={first.path} bs=64k count=16 oflag=direct", check=False,
                            timeout=rmemlab.LOAD_S)
        assert write.rc != 0, "a write of a client that is fenced off ended well"
        assert read_is_zero(memory, second.path)
        (name, owner), = owned_regions(node)
        assert name == "disk/db" and owner and (name, owner) not in owned
        # The node did answer: that region is gone.
        assert first.detach().err == ""


@tap.bound(600)
def test_kept_disk_is_taken_over(lab):
    """With its content; the machine that had it before can't come back unasked."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        words = ["--name", "db", "--keep"]
        first = rack.attach("compute", node, f"{MIB}M", *words)
        rmemlab.write_pattern(compute, first.path, MIB)
        first.detach()
        before = owned_regions(node)
        second = rack.attach("memory", node, f"{MIB}M", *words, "--take", host="127.0.0.1")
        rmemlab.check_pattern(memory, second.path, MIB)
        second.detach()
        after = owned_regions(node)
        assert regions(node) == ["disk/db"] and after != before
        for more in ([], ["--keep"]):
            rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, f"{MIB}M", "--name", "db", *more),
                                says="another machine owns NAME")
        rack.attach("memory", node, f"{MIB}M", "--name", "db", host="127.0.0.1").detach()
        assert regions(node) == []


@tap.bound(300)
def test_machines_without_an_id_share_their_names(lab):
    """An attach without an owner doesn't take the name of a machine that has one; one with an owner does the reverse."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        identity = memory.read("/etc/machine-id")
        try:
            memory.write("/etc/machine-id", "uninitialized\n")
            nobodys = rack.attach("memory", node, f"{MIB}M", "--name", "db", "--keep", host="127.0.0.1")
            rmemlab.write_pattern(memory, nobodys.path, MIB)
            nobodys.detach()
            assert owned_regions(node) == [("disk/db", "")]
            device = rack.attach("compute", node, f"{MIB}M", "--name", "db", "--keep")
            rmemlab.check_pattern(compute, device.path, MIB)
            device.detach()
            assert [name for name, owner in owned_regions(node) if owner] == ["disk/db"]
            refused = memory.run([rmem.CLI, *rmem.attach_words(memory, node, f"{MIB}M", "--name", "db", host="127.0.0.1")],
                                 check=False)
            assert "no machine-id" in refused.err and "another machine owns NAME" in refused.err, refused
        finally:
            memory.write("/etc/machine-id", identity)
        # A file of its own can say that it is the machine that it replaces.
        memory.run("mkdir -p /etc/remora")
        memory.write("/etc/remora/machine-id", compute.read("/etc/machine-id"))
        rack.attach("memory", node, f"{MIB}M", "--name", "db", host="127.0.0.1").detach()
        memory.run("rm -r /etc/remora")


@rmemlab.needs("second CPU, and so no second channel")
@tap.bound(300)
def test_kept_region_outlives_an_attach_that_fails_late(lab):
    """Its second session is refused. Another client can have found the region by its name by then."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M", extra=("--sessions", "1"))
        rmem.load(compute, rmem.CLIENT)
        rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, f"{MIB}M", "--name", "db", "--keep",
                                                        "--queues", "2", "--timeout", "2"), says="")
        assert regions(node) == ["disk/db"]
        rack.attach("compute", node, f"{MIB}M", "--name", "db", "--queues", "1").detach()
        assert regions(node) == []


@tap.bound(300)
def test_refusals(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        rack.attach("compute", node, f"{MIB}M", "--name", "a-b_c.1")
        for words, says in [(["--name", "a-b_c.1"], "has the name a-b_c.1: choose another"),
                            (["--name", "a/b"], "NAME has letters"),
                            (["--name", ".a"], "NAME has letters"),
                            (["--name", ""], "NAME has letters"),
                            (["--name", "x" * 49], "."),
                            (["--keep"], "--keep is for disks with a --name"),
                            (["--take"], "--take is for disks with a --name")]:
            rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, f"{MIB}M", *words), says=says)
        programs = rack.attach("compute", node, None, "--name", "prog")
        assert programs.status()["name"] == "prog"
        rmem.remora(compute, "detach", "/dev/remora/prog")
        assert regions(node) == ["disk/a-b_c.1"]


@tap.bound(300)
def test_waits_for_its_node(lab):
    """attach --wait outlasts a node that isn't there, and a signal ends it with nothing attached."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        words = rmem.attach_words(compute, node, f"{MIB}M", "--wait", "--timeout", "1")
        node.stop()
        rmem.load(compute, rmem.CLIENT)
        first, second = (compute.spawn([rmem.CLI, *words, "--name", name]) for name in ("db", "other"))
        for process in (first, second):
            process.wait_output("waiting")
        second.signal(15)
        ended = second.wait(rmem.ACTION_S)
        assert ended.rc == 1 and "nothing is attached" in ended.err, ended
        node.start()
        result = first.wait(rmem.ACTION_S)
        assert result.rc == 0 and re.fullmatch(r"/dev/rmb\d+\n", result.out), result


TESTS = [test_power_cuts_leave_one_region, test_fresh_has_nothing_of_before,
         test_kept_content_outlives_power_cut_and_detach, test_name_belongs_to_its_machine, test_kept_disk_is_taken_over,
         test_machines_without_an_id_share_their_names, test_kept_region_outlives_an_attach_that_fails_late,
         test_refusals, test_waits_for_its_node, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
