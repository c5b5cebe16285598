#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""/dev/rmbN as a block device: what is written is read back, what is given up is freed at the node."""

import contextlib
import json

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack, wait_until
from rmemlab import run_fio, scaled

MIB = 1 << 20
PAGE = 64 << 10  # of the node, unless it is started with others


def test_attach_status_detach(lab):
    with Rack(lab) as rack:
        compute = lab["compute"]
        node = rack.node("memory", "64M")
        for _ in range(3):
            device = rack.attach("compute", node, "48M")
            told = device.status()
            assert told["state"] == "up", told
            assert told["size_bytes"] == 48 * MIB, told
            assert int(compute.read(f"/sys/block/{device.name}/size")) * 512 == 48 * MIB
            assert node.status()["regions"] == 1
            assert node.status()["promised_bytes"] == 48 * MIB
            rmem.remora(compute, "status")
            rmem.remora(compute, "stats")
            device.detach()
            assert rmem.devices(compute) == []
            assert node.status()["regions"] == 0
            assert node.status()["promised_bytes"] == 0


def test_queue_limits(lab):
    """The queue limits that swap and file systems use."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        # A network that computes checksums while it sends needs pages that hold still no more than the
        # integrity level does; lo is such a one, and the lab's isn't.
        own = rack.node("compute", "32M")
        for host, level, stable in ((node, "digest", 1), (node, "full", 1), (own, "digest", 1), (own, "full", 1),
                                    (own, "link", 0)):
            words = ["--integrity", level]
            device = rack.attach("compute", host, "16M", *words, host="127.0.0.1" if host is own else None)
            wanted = {"rotational": 0, "discard_granularity": PAGE, "stable_writes": stable,
                      "logical_block_size": 4096, "add_random": 0, "nr_hw_queues": compute.spec.cpus}
            limits = (*list(wanted)[:-1], "discard_max_bytes", "write_zeroes_max_bytes")
            read = compute.run(f"cd /sys/block/{device.name}/queue && cat {' '.join(limits)} && ls ../mq | wc -l").out
            found = dict(zip((*limits, "nr_hw_queues"), map(int, read.split())))
            assert wanted.items() <= found.items(), f"{level}: {found}"
            assert found["discard_max_bytes"] >= MIB and found["write_zeroes_max_bytes"] >= MIB, found
            device.detach()


def test_reads_zero_before_written(lab):
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "32M")
        lab["compute"].run(f"cmp -n {32 * MIB} {device.path} /dev/zero", timeout=rmemlab.LOAD_S)
        assert node.backed_bytes() == 0, "reading took memory"


@tap.bound(600)
def test_block_sizes(lab):
    mib = scaled(lab, 8)
    with Rack(lab) as rack:
        node = rack.node("memory", "128M")
        device = rack.attach("compute", node, "64M")
        for block in ("4k", "20k", "64k", "256k", "1m"):
            size = mib // 4 if block == "4k" else mib
            for rw in ("write", "randwrite"):
                run_fio(lab["compute"], device.path, rw, block, size)


@tap.bound(600)
def test_mixed_with_trim(lab):
    mib = scaled(lab, 8)
    with Rack(lab) as rack:
        node = rack.node("memory", "128M")
        device = rack.attach("compute", node, "64M")
        for block, depth in (("4k", 32), ("4k-256k", 16)):
            run_fio(lab["compute"], device.path, "mixed", block, mib, depth)
        # Discards beside verified writes, in pages of the node that touch.
        trims = lab["compute"].spawn(f"fio --output-format=terse --name=trim --filename={device.path} --direct=1 "
                                     f"--rw=randtrim --bs=4k-256k --offset={mib}M --size={mib}M --loops=4")
        run_fio(lab["compute"], device.path, "mixed", "4k-64k", mib, 16)
        result = trims.wait(rmemlab.LOAD_S)
        assert result.rc == 0, result


@tap.bound(600)
def test_jobs_on_every_cpu(lab):
    mib = scaled(lab, 8)
    with Rack(lab) as rack:
        node = rack.node("memory", "128M")
        device = rack.attach("compute", node, "96M")
        run_fio(lab["compute"], device.path, "mixed", "4k-64k", mib, 16,
                extra=f"--numjobs=4 --offset_increment={mib}M")


def test_discard_frees(lab):
    mib = scaled(lab, 64)
    with Rack(lab) as rack:
        compute = lab["compute"]
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, f"{mib}M")
        rmemlab.write_pattern(compute, device.path, mib)
        assert node.backed_bytes() == mib * MIB, node.status()
        compute.run(f"blkdiscard --offset {mib // 4 * MIB} --length {mib // 2 * MIB} {device.path}")
        wait_until("half of it is free", lambda: node.backed_bytes() == mib // 2 * MIB)
        compute.run(f"blkdiscard {device.path}")
        wait_until("all of it is free", lambda: node.backed_bytes() == 0)
        # Freed memory can be allocated again, by other clients too.
        rmemlab.write_pattern(compute, device.path, mib, seed=2)
        rmemlab.check_pattern(compute, device.path, mib, seed=2)


def test_unaligned_discard_spares_neighbours(lab):
    """Outside of the range nothing changes, whole pages of the node in it read as zero and are free, and of
    the page that is only touched each block is as it was or zero."""
    with Rack(lab) as rack:
        compute = lab["compute"]
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, "32M")
        rmemlab.write_pattern(compute, device.path, 32)
        read = f"dd if={device.path} bs=1M count=32 iflag=direct status=none"
        compute.run(f"{read} of=/tmp/before")
        compute.run(f"blkdiscard --offset 4096 --length {MIB - 4096} {device.path}")
        wait_until("the whole pages in it are free", lambda: node.backed_bytes() <= 31 * MIB + PAGE)
        compute.run(f"{read} of=/tmp/after")
        compute.run("cmp -n 4096 /tmp/before /tmp/after")
        compute.run(f"cmp --ignore-initial={MIB} /tmp/before /tmp/after")
        compute.run(f"cmp --ignore-initial={PAGE}:0 -n {MIB - PAGE} /tmp/after /dev/zero")
        compute.run(f"for at in $(seq 4096 4096 {PAGE - 1}); do "
                    "cmp -i $at -n 4096 /tmp/before /tmp/after || cmp -i $at:0 -n 4096 /tmp/after /dev/zero || exit; done")
        compute.run("rm /tmp/before /tmp/after")


def test_write_zeroes(lab):
    with Rack(lab) as rack:
        compute = lab["compute"]
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, "32M")
        rmemlab.write_pattern(compute, device.path, 32)
        # Not at page boundaries: the ends are written, the middle freed.
        compute.run(f"blkdiscard -z --offset {MIB + 4096} --length {8 * MIB} {device.path}")
        compute.run(f"dd if={device.path} bs=4096 skip={MIB // 4096 + 1} count={8 * MIB // 4096} "
                    "iflag=direct status=none | cmp -n 8388608 - /dev/zero")
        wait_until("pages between the ends are free", lambda: node.backed_bytes() <= 25 * MIB)
        compute.run(f"blkdiscard -z {device.path}")
        compute.run(f"cmp -n {32 * MIB} {device.path} /dev/zero")
        wait_until("all of it is free", lambda: node.backed_bytes() == 0)


@tap.bound(600)
def test_ext4_tree(lab):
    tree = rmemlab.Tree(400 if rmemlab.is_debug(lab) else 700)
    with Rack(lab) as rack:
        compute = lab["compute"]
        node = rack.node("memory", "160M")
        device = rack.attach("compute", node, "128M")
        compute.run("modprobe -q ext4 || :")
        compute.run(f"mkfs.ext4 -q {device.path} && mkdir -p /mnt/rmb && mount -o discard {device.path} /mnt/rmb",
                    timeout=rmemlab.LOAD_S)
        tree.put(compute, "/mnt/rmb")
        compute.run("cp -r /mnt/rmb/tree /mnt/rmb/copy && mkdir /mnt/rmb/second && mv /mnt/rmb/copy /mnt/rmb/second/tree",
                    timeout=rmemlab.LOAD_S)
        compute.run(f"umount /mnt/rmb && e2fsck -fn {device.path} && mount -o discard {device.path} /mnt/rmb",
                    timeout=rmemlab.LOAD_S)
        compute.run("echo 3 > /proc/sys/vm/drop_caches")
        tree.check(compute, "/mnt/rmb")
        tree.check(compute, "/mnt/rmb/second")
        backed = node.backed_bytes()
        compute.run("rm -r /mnt/rmb/tree /mnt/rmb/second && fstrim /mnt/rmb", timeout=rmemlab.LOAD_S)
        wait_until("deleted files are free at the node", lambda: node.backed_bytes() < backed // 2)
        compute.run(f"umount /mnt/rmb && e2fsck -fn {device.path}", timeout=rmemlab.LOAD_S)


@tap.bound(600)
def test_integrity_levels(lab):
    mib = scaled(lab, 8)
    with Rack(lab) as rack:
        node = rack.node("memory", "128M")
        for level in ("link", "digest", "full", "sealed"):
            device = rack.attach("compute", node, "32M", "--integrity", level)
            assert device.status()["integrity"] == level, device.status()
            run_fio(lab["compute"], device.path, "mixed", "4k-128k", mib)
            device.detach()


def test_ipv6(lab):
    with Rack(lab) as rack:
        node = rack.node("memory", "128M")
        device = rack.attach("compute", node, "32M", version=6)
        run_fio(lab["compute"], device.path, "mixed", "4k-128k", scaled(lab, 8))


def test_addresses(lab):
    """A node's address with its transport's name is the kernel's to read."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        told = {}
        for version in (4, 6):
            host = rmem.address(lab["memory"], compute, version)
            bare = f"udp:{host}"
            for text in (bare, f"udp:[{host}]", f"udp:[{host}]:{rmem.PORT}"):
                device = rack.attach("compute", node, "16M", host=text)
                told.setdefault(version, set()).add(device.status()["node"])
                device.detach()
        assert [len(texts) for texts in told.values()] == [1, 1], f"one node has several names: {told}"
        for text in ("udp:10.0.0.2x", "udp:[::1", "udp:[::1]7", "udp:10.0.0.2:0", "udp:10.0.0.2:65536"):
            rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, "16M", host=text), says="no such ADDRESS: write")
        rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, "16M", host="none:10.0.0.2"), says="no transport .none.")
        rmemlab.cli_refused(compute, *rmem.attach_words(compute, node, "16M", host="udp:224.0.0.1"),
                            says="NODE is not a machine's address")


def test_mtu_1500(lab):
    compute, memory = lab["compute"], lab["memory"]
    for machine in (compute, memory):
        machine.run("ip link set eth0 mtu 1500")
    try:
        with Rack(lab) as rack:
            node = rack.node("memory", "128M")
            device = rack.attach("compute", node, "32M")
            piece = device.status()["piece_bytes"]
            assert piece <= 1500 - 20 - 8 - 80, f"piece of {piece} bytes doesn't fit the link"
            run_fio(compute, device.path, "mixed", "4k-256k", scaled(lab, 8))
            before = node.counters()
            compute.run(f"dd if=/dev/zero of={device.path} bs=4k count=200 oflag=direct status=none")
            grown = rmemlab.growth(node.counters, before)
            # Each write goes in three datagrams; when the third is there they are answered together.
            assert grown["write"] >= 600, f"4 KiB writes of pieces of {piece} bytes: {grown}"
            assert grown["answers"] <= 2 * 200, f"answers don't share datagrams: {grown}"
            device.detach()
            device = rack.attach("compute", node, "32M", version=6)
            run_fio(compute, device.path, "mixed", "4k-256k", scaled(lab, 4))
    finally:
        for machine in (compute, memory):
            if rmemlab.is_native(lab):
                machine.kill()  # its interface refuses a larger MTU than 1500 from now on
            elif machine.is_on():
                machine.run("ip link set eth0 mtu 9000")


def test_two_devices(lab):
    compute = lab["compute"]
    mib = scaled(lab, 8)
    with Rack(lab) as rack:
        node = rack.node("memory", "128M")
        first = rack.attach("compute", node, "32M")
        second = rack.attach("compute", node, "32M")
        assert first.path != second.path
        loads = [compute.spawn(rmemlab.fio_command(device.path, "mixed", "4k-64k", mib, seed=seed))
                 for seed, device in enumerate((first, second))]
        for load in loads:
            result = load.wait(rmemlab.LOAD_S)
            assert result.rc == 0, result
        # The content of one is not the other's, and detaching one leaves the other whole.
        rmemlab.write_pattern(compute, first.path, mib, seed=11)
        rmemlab.write_pattern(compute, second.path, mib, seed=12)
        rmemlab.check_pattern(compute, first.path, mib, seed=11)
        first.detach()
        rmemlab.check_pattern(compute, second.path, mib, seed=12)
        again = rack.attach("compute", node, "32M")
        compute.run(f"cmp -n {32 * MIB} {again.path} /dev/zero")


def test_remote_page_sizes(lab):
    for page in ("64K", "2M"):
        with Rack(lab) as rack:
            node = rack.node("memory", "128M", page=page)
            device = rack.attach("compute", node, "64M")
            assert device.status()["page_bytes"] == rmem.size_bytes(page), device.status()
            run_fio(lab["compute"], device.path, "mixed", "4k-256k", scaled(lab, 8))
            lab["compute"].run(f"blkdiscard {device.path}")
            wait_until("all of it is free", lambda: node.backed_bytes() == 0)


def test_sessions_come_and_go(lab):
    """Fewer sessions than channels, and short breaks: each evicts another, which opens a new one under I/O."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        cpus = compute.spec.cpus
        node = rack.node("memory", "96M", extra=("--sessions", str(cpus), "--session-idle", "0.1"))
        devices = [rack.attach("compute", node, "32M") for _ in range(2)]
        before = [device.counters() for device in devices]
        # A job on each CPU, so that every channel is used.
        extra = (f"--numjobs={cpus} --cpus_allowed=0-{cpus - 1} --cpus_allowed_policy=split --offset_increment=8M "
                 "--thinktime=250ms --thinktime_blocks=64")
        loads = [compute.spawn(rmemlab.fio_command(device.path, "mixed", "4k-64k", 4, seed=rmemlab.SEED, extra=extra))
                 for device in devices]
        for load in loads:
            result = load.wait(rmemlab.LOAD_S)
            assert result.rc == 0, result
        reopened = [rmemlab.growth(device.counters, known).get("reopened", 0)
                    for device, known in zip(devices, before)]
        tap.diag(f"sessions opened anew: {reopened}")
        # There is room for one device's alone, so the second's attach took the first's.
        assert reopened[0], "no session was evicted: the test shows nothing"


@contextlib.contextmanager
def traced(machine, system):
    """A set of (event, the first word it tells) of a system's events that were seen, once it's over."""
    trace = f"/sys/kernel/tracing/instances/{system}"
    machine.run(f"mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing; mkdir {trace}; "
                f"echo 8192 > {trace}/buffer_size_kb; echo 1 > {trace}/events/{system}/enable")
    seen = set()
    try:
        yield seen
        told = machine.run(f"sed -nE 's/^.* [0-9]+[.][0-9]+: ([a-z_]+): ([^ ]+).*/\\1 \\2/p' {trace}/trace | sort -u")
        seen.update(tuple(line.split()) for line in told.out.splitlines())
    finally:
        machine.run(f"echo 0 > {trace}/events/{system}/enable; rmdir {trace}")


def test_trace_events(lab):
    """Each decision of either end shows when it's taken."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        rmem.load(compute, rmem.CLIENT)
        rmem.load(memory, rmem.NODE)
        with traced(compute, "rmem") as client, traced(memory, "rmem_node") as node:
            lends = rack.node("memory", "64M")
            device = rack.attach("compute", lends, "32M", "--fail-after", "2")
            run_fio(compute, device.path, "randwrite", "64k", 8, depth=32)
            with rmemlab.netem(compute, "eth0", "loss 20%"):
                run_fio(compute, device.path, "randwrite", "4k", 1)
            memory.run(["bash", "-c", f"printf 'no message' > /dev/udp/127.0.0.1/{rmem.PORT}"])
            lends.stop()
            assert compute.run(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct", check=False).rc != 0
            device.wait_state("down")
            device.detach("--force")
            lends.start()
            rack.attach("compute", lends, None).detach()
        devices = {word.partition(".")[0] for _, word in client}
        assert devices == {"rmb0", "rmem0"}, f"events name {devices}"
        for seen, wanted in (
                (client, {"submit", "send", "wait", "receive", "shrink", "expire", "finish", "channel_state",
                          "device_state"}),
                (node, {"node_request", "node_decision", "node_drop", "node_session", "node_region"})):
            missing = {f"rmem_{name}" for name in wanted} - {event for event, _ in seen}
            assert not missing, f"never seen: {missing}"


def test_top(lab):
    """Both ends show what goes on, as JSON and as a table."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "32M")
        load = rmemlab.UntilTold(compute, "top", rmemlab.fio_command(device.path, "mixed", "4k", 2))
        wait_until("the load is under way", lambda: device.counters()["read"] > 10)
        used = json.loads(rmem.remora(compute, "top", "--json", "--interval", "3").out)
        lent = json.loads(rmem.remora(memory, "top", "--json", "--interval", "3").out)
        screen = compute.run(f"timeout -s INT 5 {rmem.CLI} top", timeout=rmem.ACTION_S, check=False).out
        load.stop()
        [shown] = used["devices"]
        assert shown["device"] == device.path and shown["state"] == "up" and used["nodes"] == [], used
        for what in ("read", "write"):
            assert shown[f"{what}_per_s"] > 0 and shown[f"{what}_bytes_per_s"] > 0, used
            assert 0 < shown[f"{what}_p50_ns"] <= shown[f"{what}_p99_ns"] < 60e9, used
        [shown] = lent["nodes"]
        assert shown["read_per_s"] > 0 and shown["write_bytes_per_s"] > 0 and lent["devices"] == [], lent
        assert [space["space"] for space in shown["spaces"]] == [node.SPACE], lent
        assert device.path in screen and "P99" in screen, screen
    rmem.unload(compute)
    rmemlab.cli_refused(compute, "top", says="none of rmem, rmem_node, eqds and edm is loaded, and no remora-node serves: modprobe one, or name "
                        "a --socket")


TESTS = [test_attach_status_detach, test_queue_limits, test_reads_zero_before_written, test_block_sizes,
         test_mixed_with_trim, test_jobs_on_every_cpu, test_discard_frees,
         test_unaligned_discard_spares_neighbours, test_write_zeroes, test_ext4_tree, test_integrity_levels,
         test_ipv6, test_addresses, test_mtu_1500, test_two_devices, test_remote_page_sizes, test_sessions_come_and_go,
         test_trace_events, test_top, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
