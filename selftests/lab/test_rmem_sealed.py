#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Sealed sessions of the kernel's client and node, and of either with its counterpart in user space."""

import contextlib
import signal

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Daemon, Rack, wait_until
from rmemlab import run_fio, scaled

SEALED = ("--integrity", "sealed")
WIRE = rmemlab.HERE / "sealed_wire.py"
RECORD = "/run/sealed.record"
TEXT = "a line that nobody on the wire may read"


@contextlib.contextmanager
def recording(machine):
    """Within it, the packets at the machine's interface are recorded."""
    process = machine.spawn([WIRE, "record", "eth0", RECORD])
    process.wait_output("records")
    yield
    process.end_input()
    ended = process.wait(rmem.ACTION_S)
    assert ended.rc == 0, ended


def write_text(machine, device, text):
    """Fills the device's first 64 KiB with the text, and reads it back."""
    machine.run(f"yes '{text}' | head -c 65536 > /run/text; dd if=/run/text of={device.path} bs=4k oflag=direct status=none; "
                f"dd if={device.path} bs=4k count=16 iflag=direct status=none | cmp - /run/text")


def reads_text(machine, device, text):
    machine.run(f"yes '{text}' | head -c 65536 > /run/text; "
                f"dd if={device.path} bs=4k count=16 iflag=direct status=none | cmp - /run/text")


def remote_check(machine, target):
    """A program that checks each byte it reads."""
    machine.run(["python3", rmemlab.HERE / "remote_check.py", target, str(rmemlab.SEED), "once"], timeout=rmemlab.LOAD_S)


@tap.bound(600)
def test_disk(lab):
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        before = node.counters()
        for version in (4, 6):
            device = rack.attach("compute", node, "32M", *SEALED, version=version)
            assert device.status()["integrity"] == "sealed", device.status()
            for block in ("4k", "4k-256k"):
                run_fio(lab["compute"], device.path, "mixed", block, scaled(lab, 8))
            lab["compute"].run(f"blkdiscard {device.path}")
            device.detach()
        assert not {"drop-seal", "drop-tag"} & rmemlab.growth(node.counters, before).keys(), node.counters()


@tap.bound(600)
def test_programs(lab):
    """/dev/rmemN, which sends all types of messages."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "96M"), None, *SEALED)
        remote_check(compute, f"dev:{device.path}")


@tap.bound(600)
def test_libremote_at_the_kernels_node(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        before = node.counters()
        key = rmem.give_key(compute, node)
        target = f"udp:{rmem.address(node.machine, compute)},key={key},integrity=sealed"
        remote_check(compute, target)
        assert "drop-seal" not in rmemlab.growth(node.counters, before), node.counters()
        wait_until("its region is freed", lambda: node.status()["regions"] == 0)


@tap.bound(600)
def test_kernel_at_remora_node(lab):
    compute = lab["compute"]
    with Rack(lab) as rack, Daemon(lab["memory"], "96M") as daemon:
        device = rack.attach("compute", daemon, "32M", *SEALED)
        run_fio(compute, device.path, "mixed", "4k-128k", scaled(lab, 4))
        device.detach()


@tap.bound(600)
def test_bad_network(lab):
    compute, memory = lab["compute"], lab["memory"]
    how = "delay 2ms 1ms loss 3% duplicate 3% reorder 10% 50%"
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, "64M", *SEALED)
        before = device.counters(), node.counters()
        with rmemlab.netem(compute, "eth0", how), rmemlab.netem(memory, "eth0", how):
            for block in ("4k", "64k"):
                run_fio(compute, device.path, "mixed", block, scaled(lab, 4), depth=32, seed=rmemlab.SEED)
        at_client = rmemlab.growth(device.counters, before[0])
        at_node = rmemlab.growth(node.counters, before[1])
        assert {"retries", "lost", "ignored"} <= at_client.keys() and "repeated" in at_node, (at_client, at_node)


@tap.bound(600)
def test_damage_that_no_checksum_finds(lab):
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, "64M", *SEALED)
        before = node.counters()
        with rmemlab.damaged_payload(compute, "eth0"), rmemlab.damaged_payload(memory, "eth0"):
            for block in ("4k", "64k"):
                run_fio(compute, device.path, "mixed", block, scaled(lab, 4), depth=32, seed=rmemlab.SEED)
        assert device.counters()["drop-seal"] and "drop-seal" in rmemlab.growth(node.counters, before), node.counters()


def test_wire_shows_no_data(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        seen = {}
        for level in ("digest", "sealed"):
            device = rack.attach("compute", node, "16M", "--integrity", level)
            with recording(compute):
                write_text(compute, device, TEXT)
            found, packets = map(int, compute.run([WIRE, "search", RECORD, TEXT]).out.split())
            assert packets > 16, f"{packets} packets were recorded"
            seen[level] = found
            device.detach()
        assert seen["digest"] > 16 and seen["sealed"] == 0, seen


def test_recorded_packets_do_nothing(lab):
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "16M", *SEALED)
        with recording(compute):
            write_text(compute, device, TEXT)
        write_text(compute, device, "newer")
        before = device.counters(), node.counters()
        sent = int(compute.run([WIRE, "replay", RECORD, "requests"]).out)
        wait_until("the node has seen them all",
                   lambda: rmemlab.growth(node.counters, before[1]).get("verified", 0) >= sent)
        grown = rmemlab.growth(node.counters, before[1])
        assert sent > 16 and "executed" not in grown, (sent, grown)
        memory.run(f"base64 -d > {RECORD}", input=compute.run(["base64", RECORD]).out)
        sent = int(memory.run([WIRE, "replay", RECORD, "answers"]).out)
        wait_until("the client has seen them all", lambda: rmemlab.growth(device.counters, before[0]).get("ignored", 0) >= sent)
        assert sent > 16, sent
        reads_text(compute, device, "newer")


def test_each_flipped_bit_is_refused(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "16M", *SEALED)
        with recording(compute):
            write_text(compute, device, TEXT)
        before = node.counters()
        sent = int(compute.run([WIRE, "flips", RECORD], timeout=rmemlab.LOAD_S).out)

        def refused():
            grown = rmemlab.growth(node.counters, before)
            assert "verified" not in grown, grown
            return sum(count for name, count in grown.items() if name.startswith("drop-")) == sent
        wait_until(f"{sent} packets are refused", refused)
        assert node.counters()["drop-seal"] - before["drop-seal"] > sent * 9 // 10, node.counters()
        reads_text(compute, device, TEXT)


def test_lower_levels_are_refused(lab):
    """A space that requires the level, and a client that was told it, take no other."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        key = node.add_space(7, ",require=sealed")
        rmem.load(compute, rmem.CLIENT)
        for level in ("link", "digest", "full"):
            words = rmem.attach_words(compute, node, "16M", "--space", "7", "--integrity", level, key=key)
            rmemlab.cli_refused(compute, *words, says="the space is for clients that seal: use INTEGRITY sealed")
        device = rack.attach("compute", node, "16M", "--space", "7", *SEALED, key=key)
        write_text(compute, device, TEXT)
        device.detach()
        rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, "16M", *SEALED, host="marlin:1"), says="only messages by udp can be sealed|no transport .marlin.")


def test_revoked_key_ends_its_sessions_alone(lab):
    """Two clients share a space's memory by keys of their own."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        key = node.add_space(2, f",member-of={node.SPACE}")
        kept = rack.attach("compute", node, "16M", *SEALED)
        lost = rack.attach("compute", node, "16M", "--space", "2", "--fail-after", "2", *SEALED, key=key)
        write_text(compute, kept, TEXT)
        write_text(compute, lost, TEXT)
        rmem.remora(memory, "node", "space", "revoke", "2")
        reads_text(compute, kept, TEXT)
        write_text(compute, kept, "and goes on")
        failed = compute.run(f"dd if={lost.path} bs=4k count=1 iflag=direct status=none of=/dev/null", check=False)
        assert failed.rc, failed
        assert not failed.out, failed
        lost.detach("--force")
        rmemlab.cli_refused(memory, "node", "space", "revoke", "2", says="no such SPACE")
        # The memory that it had is the space's: so a new client of the space can use or free it.
        listed = rmem.remora(memory, "node", "regions", str(node.SPACE), "--json").out
        assert listed.count('"address"') == 2, listed
        kept.detach()
        node.clear_space()


@tap.bound(600)
def test_keys_change_under_load(lab):
    """A program that is killed takes back changes that are under way, so the session gets another name, and with it
    other keys. Another program's operations go on in it."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, None, *SEALED)
        compute.write("/run/go-on", "")
        load = compute.spawn(["python3", rmemlab.HERE / "remote_check.py", f"dev:{device.path}", str(rmemlab.SEED), "/run/go-on"])
        load.wait_output("begun")
        before = device.counters()["reopened"], node.counters()
        with rmemlab.netem(memory, "eth0", "delay 300ms"):
            for _ in range(8):
                killed = rmemlab.Lingering(compute, device)
                killed.begin()
                killed.process.signal(signal.SIGKILL)
                killed.process.wait(rmem.ACTION_S)
        renewed = device.counters()["reopened"] - before[0]
        assert load.running(), load
        compute.run("rm /run/go-on")
        ended = load.wait(rmemlab.LOAD_S)
        assert ended.rc == 0 and renewed >= 4, (ended, renewed)
        assert "drop-seal" not in rmemlab.growth(node.counters, before[1]), node.counters()
        device.detach()
        node.clear_space()  # the killed programs' regions


def test_node_that_restarted_is_told_by_a_notice(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "16M", *SEALED)
        before = node.counters()
        write_text(compute, device, TEXT)
        node.stop()
        node.start()
        compute.run(f"dd if={device.path} bs=4k count=1 iflag=direct status=none of=/dev/null", check=False,
                    timeout=rmem.ACTION_S)
        device.wait_state("lost")
        assert "rebooted" in rmemlab.growth(node.counters, before), node.counters()


TESTS = [test_disk, test_programs, test_libremote_at_the_kernels_node, test_kernel_at_remora_node, test_bad_network,
         test_damage_that_no_checksum_finds, test_wire_shows_no_data, test_recorded_packets_do_nothing,
         test_each_flipped_bit_is_refused, test_lower_levels_are_refused, test_revoked_key_ends_its_sessions_alone,
         test_keys_change_under_load, test_node_that_restarted_is_told_by_a_notice, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
