#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Bad days: a network that loses, bends and delays, a node that is away or dies, a user who errs."""

import contextlib
import json
import random
import re
import shlex
import signal
import time

import rmemlab
from remoralab import compiled, rmem, tap
from remoralab.rmem import Rack, wait_until
from rmemlab import run_fio, scaled

MIB = 1 << 20
TRACING = "/sys/kernel/tracing"
# How long a node stays away: longer than the block layer's own timeout, which must change nothing. That is 30 s unless
# someone sets another.
OUTAGE_S = 12
BLOCK_TIMEOUT_MS = 2000
FAIL_AFTER_S = 5
INTERRUPTS = 4
NETWORKS = {
    "loss": "loss 10%",
    "reordering": "delay 3ms 2ms reorder 30% 50%",
    "duplication": "duplicate 20%",
    "corruption": "corrupt 3%",
    "everything": "delay 2ms 1ms loss 3% duplicate 3% corrupt 1% reorder 10% 50%",
}
# The counters of client and node that must grow on a bad network.
SEEN = {
    "loss": (("retries", "lost"), ("repeated",)),
    "reordering": ((), ()),  # no counter for that: see reordered()
    "duplication": (("ignored",), ("repeated",)),
    "corruption": (("retries", "lost"), ()),
    "everything": (("retries", "lost", "ignored"), ("repeated",)),
}


@contextlib.contextmanager
def counted(device, node, at_client, at_node):
    """Within it, these counters must grow: or the test shows nothing."""
    before = device.counters(), node.counters()
    yield
    client, memory = rmemlab.growth(device.counters, before[0]), rmemlab.growth(node.counters, before[1])
    tap.diag("client: " + ", ".join(f"{name} {client[name]}" for name in
                                    ("sent", "retries", "lost", "timeouts", "damaged", "ignored") if name in client))
    tap.diag("node: " + ", ".join(f"{name} {memory[name]}" for name in
                                  ("verified", "repeated", "stale", "damaged", "drop-tag") if name in memory))
    for name in at_client:
        assert name in client, f"the client counted no {name}: {client}"
    for name in at_node:
        assert name in memory, f"the node counted no {name}: {memory}"


@contextlib.contextmanager
def reordered(machine):
    """Within it, first tries of requests of one session must come out of the order of their ids."""
    event = f"{TRACING}/events/rmem_node/rmem_node_request"
    machine.run(f"mount -t tracefs none {TRACING} 2>/dev/null; echo 'attempt == 0' > {event}/filter; "
                f"echo > {TRACING}/trace; echo 1 > {event}/enable")
    yield
    machine.run(f"echo 0 > {event}/enable")
    trace = re.findall(r"rmem_node_request: .*session=(\S+) id=(\d+) ", machine.read(f"{TRACING}/trace"))
    highest, late = {}, 0
    for session, number in trace:
        late += int(number) < highest.get(session, 0)
        highest[session] = max(int(number), highest.get(session, 0))
    tap.diag(f"of {len(trace)} requests {late} came late")
    assert late > len(trace) // 100, "the network didn't reorder"


def on_bad_network(lab, name, *words):
    compute, memory = lab["compute"], lab["memory"]
    how = NETWORKS[name]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, "64M", *words)
        with counted(device, node, *SEEN[name]), \
                rmemlab.netem(compute, "eth0", how), rmemlab.netem(memory, "eth0", how), \
                reordered(memory) if name == "reordering" else contextlib.nullcontext():
            for block in ("4k", "64k"):
                run_fio(compute, device.path, "mixed", block, scaled(lab, 4), depth=32, seed=rmemlab.SEED)
        run_fio(compute, device.path, "mixed", "16k", scaled(lab, 4))


@tap.bound(600)
def test_loss(lab):
    on_bad_network(lab, "loss")


@tap.bound(600)
def test_reordering(lab):
    on_bad_network(lab, "reordering")


@tap.bound(600)
def test_duplication(lab):
    on_bad_network(lab, "duplication")


@tap.bound(600)
def test_corruption(lab):
    """Bits flip in headers, which checksums find."""
    on_bad_network(lab, "corruption", "--integrity", "link")


@tap.bound(600)
def test_damaged_payload(lab):
    """Damage that no checksum of the network finds: digest and tag do, either way."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        for level, at_client, at_node in (("digest", ("damaged", "retries"), ("damaged",)),
                                          ("full", ("drop-tag", "lost"), ("drop-tag",))):
            device = rack.attach("compute", node, "64M", "--integrity", level)
            with counted(device, node, at_client, at_node), \
                    rmemlab.damaged_payload(compute, "eth0"), rmemlab.damaged_payload(memory, "eth0"):
                for block in ("4k", "64k"):
                    run_fio(compute, device.path, "mixed", block, scaled(lab, 4), depth=32, seed=rmemlab.SEED)
            device.detach()


@tap.bound(600)
def test_word_that_changes_on_its_way(lab):
    """Answers wait in the node's queue while another process changes the word they bring."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        for level in ("digest", "full"):
            device = rack.attach("compute", node, None, "--integrity", level)
            with rmemlab.netem(memory, "eth0", "delay 3ms"):
                compute.run([str(rmemlab.HERE / "hot_word.py"), f"dev:{device.path}", "200"], timeout=300)
            counters = device.counters()
            assert not counters["damaged"] and not counters["drop-tag"], counters
            device.detach()


@contextlib.contextmanager
def checksums_before_queue(machine, address, device="eth0"):
    """The address moves to a bridge over the device. The bridge computes checksums, and the device's queue, behind
    it, gets whole packets."""
    machine.run(f"""set -e
        modprobe -q bridge || :
        ip link add above address $(cat /sys/class/net/{device}/address) type bridge
        ip link set {device} master above
        ip link set above mtu $(cat /sys/class/net/{device}/mtu) up
        ip addr del {address} dev {device}
        ip addr add {address} dev above
        ethtool -K above tx-checksum-ip-generic off""")
    try:
        yield
    finally:
        if machine.is_on():
            machine.run(f"ip link del above; ip addr add {address} dev {device}")


WRITES_AND_CHANGES = """
import mmap, os, sys, threading
page = mmap.mmap(-1, 4096)
page[:] = b"a" * 4096
disk = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
writer = threading.Thread(target=os.pwritev, args=(disk, [page], 0))
writer.start()
sys.stdin.readline()
page[:] = b"b" * 4096
print("changed", flush=True)
writer.join()
"""


def test_page_that_changes_on_its_way(lab):
    """Packets refer to the pages of a write. Where the machine computes a checksum over one, the packet's bytes have
    to stay as they were then, though the program that owns the page changes it."""
    compute, memory = lab["compute"], lab["memory"]
    [address] = [str(each) for each in lab.topology.links[0].addresses["compute"] if each.version == 4]
    with checksums_before_queue(compute, address), Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "64M"), "16M", "--integrity", "link")
        copied = device.counters()["copied-packets"]
        compute.run(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct")  # finds the neighbour
        with rmemlab.netem(compute, "eth0", "delay 3s"):
            writer = compute.spawn(["python3", "-c", WRITES_AND_CHANGES, device.path])
            wait_until("its packet is in the queue", lambda: queued_packets(compute, "eth0"))
            writer.send(b"go\n")
            writer.wait_output("changed")
            assert writer.wait(rmem.ACTION_S).rc == 0, writer.err
        assert device.counters()["copied-packets"] == copied, "the packet was a copy: the test shows nothing"
        assert compute.run(f"head -c 4096 {device.path} | tr -d a | wc -c").out.strip() == "0", "it changed on its way"


def queued_packets(machine, device):
    return int(re.search(r"backlog \S+ (\d+)p", machine.run(f"tc -s qdisc show dev {device}").out)[1])


@tap.bound(600)
def test_everything_at_once(lab):
    on_bad_network(lab, "everything")


def verified_load(device, name, block, mib):
    """fio's, until told; other data each round."""
    return rmemlab.UntilTold(device.machine, name,
                             rmemlab.fio_command(device.path, "mixed", block, mib, 16, seed="$n"))


@tap.bound(600)
def test_stalls(lab):
    """200 ms of silence now and then, as a switch under repair has them."""
    memory = lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, "64M")
        load = verified_load(device, "stalls", "4k", scaled(lab, 16))
        wait_until("the load is under way", lambda: device_writes(device) > 100)
        memory.run("modprobe -q sch_netem || :")
        with counted(device, node, ("timeouts", "retries"), ("repeated",)):
            for _ in range(6):
                memory.netem("eth0", "delay 200ms")
                # Between two rounds fio sends nothing for up to a second.
                wait_until("requests are under way", lambda: under_way(device) > 0)
                time.sleep(0.4)  # the length of a stall is what is tested
                memory.netem("eth0", "")
                time.sleep(0.3)
            load.stop()


@contextlib.contextmanager
def kprobe(machine, name, where):
    """Events NAME, wherever kprobe_events(5) says."""
    machine.run(f"mount -t tracefs none {TRACING} 2>/dev/null; echo > {TRACING}/trace; "
                f"echo {shlex.quote(f'p:remora/{name} {where}')} > {TRACING}/kprobe_events && "
                f"echo 1 > {TRACING}/events/remora/{name}/enable")
    try:
        yield
    finally:
        if machine.is_on():
            machine.run(f"echo 0 > {TRACING}/events/remora/{name}/enable; echo > {TRACING}/kprobe_events")


@contextlib.contextmanager
def block_timeouts(machine):
    """Within it, the block layer must ask our driver what to do about a request that takes too long."""
    with kprobe(machine, "timeout", "rmem:blk_timeout"):
        yield
        asked = int(machine.run(f"grep -w timeout {TRACING}/kprobe_profile").out.split()[1])
        tap.diag(f"{asked} requests were found late by the block layer")
        assert asked, "the outage didn't outlast the block layer's patience"


@tap.bound(600)
@rmemlab.needs("kprobes")
def test_outage(lab):
    """The link goes down for long under three loads: fio, and a program whose memory is swapped, wait, and go
    on as if nothing had been; fio on a device with fail_after fails in time, and so does what comes later."""
    compute = lab["compute"]
    hog_mib = 32
    with Rack(lab) as rack:
        node = rack.node("memory", "256M")
        device, swap = (rack.attach("compute", node, size) for size in ("64M", "128M"))
        hasty = rack.attach("compute", node, "64M", "--fail-after", str(FAIL_AFTER_S))
        for each in (device, swap):
            compute.write(f"/sys/block/{each.name}/queue/io_timeout", str(BLOCK_TIMEOUT_MS))
        # Commands that patch the kernel's code come before the loads: emulation may trip over code that is patched
        # while another CPU runs it.
        hog = rmemlab.in_cgroup(compute, "away", hog_mib // 2, f"{rmemlab.hog_path()} {hog_mib} 1 $n 2")
        with rmemlab.swap_on(compute, swap), block_timeouts(compute):
            loads = [verified_load(device, "files", "4k-64k", scaled(lab, 4)),
                     rmemlab.UntilTold(compute, "swap", hog)]
            failing = verified_load(hasty, "hasty", "4k-64k", scaled(lab, 4))
            for each in (device, swap, hasty):
                wait_until("the loads are under way", lambda each=each: device_writes(each) > 100)
            with rmemlab.link_down(lab, "rack"):
                began = time.monotonic()
                fails_in_time(hasty, failing.process, began)
                # The devices share their machine's incast window: requests of one may fill it, and the other's wait.
                for each in (device, swap):
                    each.wait_state("down")
                while time.monotonic() - began < OUTAGE_S:
                    for load in loads:
                        load.check_running()
                    time.sleep(0.5)  # the outage's length is what is tested
                for each in (device, swap):
                    assert under_way(each), f"nothing waits for {each.name}: the test shows nothing"
                stood = [device_writes(each) for each in (device, swap)]
            for each, before in zip((device, swap), stood):
                each.wait_state("up")
                wait_until("the loads go on", lambda each=each, before=before: device_writes(each) > before + 100)
            for load in loads:
                load.stop()
            hasty.wait_state("up")
            run_fio(compute, hasty.path, "mixed", "4k-64k", scaled(lab, 8))


@rmemlab.needs("kprobes")
def test_events_hold_no_lock(lab):
    """The kernel sends events under a mutex of its own, under which others may wait for the silent swap. So our
    events must be sent without the lock that detach --force takes."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "64M"), "32M")
        # A mutex begins with its owner. Nobody else takes this one meanwhile: the test runs no command of remora's.
        where = "dev_uevent name=+0(+0(%di)):string owner=@rmem_devices_lock:x64"
        with kprobe(compute, "event", where):
            mark = compute.console_mark()
            with rmemlab.link_down(lab, "rack"):
                load = compute.spawn(f"dd if=/dev/zero of={device.path} bs=4k count=1 oflag=direct")
                compute.wait_console(rf"{device.name}: .* does not answer", rmem.ACTION_S, mark)
            compute.wait_console(rf"{device.name}: .* answers again", rmem.ACTION_S, mark)
            assert load.wait(rmem.ACTION_S).rc == 0
            owners = wait_until("both events are sent", lambda: two_events(compute, device.name))
        assert owners == ["0x0", "0x0"], f"rmem_devices_lock was held by {owners}"


def two_events(machine, name):
    """The owners of the lock when two events, DOWN and UP, were sent; or nothing."""
    owners = re.findall(rf'event: .* name="{name}" owner=(\S+)', machine.read(f"{TRACING}/trace"))
    return owners if len(owners) >= 2 else None


def fails_in_time(device, load, began):
    """A silent node's device with fail_after: its load ends with an error, and so does a write that comes now."""
    machine = device.machine
    assert load.running(), f"ended early, status {load.rc}: {load.err}"
    fails(machine, f"dd if=/dev/zero of={device.path} bs=4k count=1 oflag=direct")
    took = [time.monotonic() - began]
    assert load.wait(rmemlab.LOAD_S).rc != 0, "a load on a silent node ended well"
    took.append(time.monotonic() - began)
    tap.diag(f"a write failed after {took[0]:.1f} s, the load had ended after {took[1]:.1f} s")
    # Emulated, the programs take a few seconds to begin and to end, too.
    assert FAIL_AFTER_S <= took[0] <= took[1] <= 3 * FAIL_AFTER_S, "not in time"


def block_stat(device, field):
    """Documentation/block/stat.rst"""
    return int(device.machine.read(f"/sys/block/{device.name}/stat").split()[field])


def device_writes(device):
    return block_stat(device, 4)


def under_way(device):
    """Requests that haven't ended."""
    return block_stat(device, 8)


def fails(machine, command):
    """The command must end, and with an error of I/O: EIO, or ENOLINK for a node that is silent."""
    result = machine.run(command, check=False)
    assert result.rc != 0 and re.search("Input/output error|Link has been severed", result.err), result


def lose_the_node(lab, restart):
    """Whatever way the node restarts, its memory is gone: the device says so, and I/O ends in errors."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("compute", node, "64M")
        load = compute.spawn(rmemlab.until_it_fails(rmemlab.fio_command(device.path, "mixed", "4k-64k", 48, 16)))
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


def test_detach_from_a_dead_node(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "96M"), "64M")
        load = compute.spawn(rmemlab.until_it_fails(rmemlab.fio_command(device.path, "mixed", "4k", 32, 16)))
        wait_until("the load is under way", lambda: device_writes(device) > 100)
        lab["memory"].kill()
        device.wait_state("down")
        device.detach("--force")
        result = load.wait(rmemlab.LOAD_S)
        assert result.rc != 0, result
        rmem.unload(compute)


# Mistakes of users

NO_ANSWER = r"10\.0\.0\.\d+:7670: the node does not answer: is its UDP port open, do space and key match\?"


def test_wrong_key_and_unknown_space(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)
        words = rmem.attach_words(compute, node, "32M")
        rmem.remora(compute, "key", "new", "/run/wrong.key")
        wrong = [("/run/wrong.key" if str(word).endswith(".key") else word) for word in words]
        rmemlab.all_refused(compute, (wrong, [*words, "--space", "77"]), NO_ANSWER)
        assert rmem.devices(compute) == []
        assert node.status()["regions"] == 0


def test_sizes_that_are_wrong(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)
        for size, says in (("0", r"size 0 is not a multiple of 4096: use one, such as 512M"),
                           ("80M", r"no memory, quota or region left \(64 of 64 MiB free\): ask for less"),
                           ("1000T", r"no memory, quota or region left \(64 of 64 MiB free\): ask for less"),
                           ("12x", r"'12x' is not a size: use bytes, or a number with K, M, G or T"),
                           ("1000", r"size 1000 is not a multiple of 4096: use one, such as 512M")):
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
        rmemlab.all_refused(compute, [rmem.attach_words(compute, node, "32M", host=host)
                                      for host in (None, "10.0.0.77")], NO_ANSWER)


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
                            says=r"UDP port 7670 is in use: choose another PORT")
        taker.end_input()
        taker.wait()
        node.start()


def test_what_is_there_already(lab):
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "32M")
        rmemlab.cli_refused(memory, "node", "start", "--memory", "64M", "--space", f"1={node.key_path}",
                            says=r"the node is started already: 'remora node stop' first")
        rmemlab.cli_refused(memory, "node", "space", "add", f"1={node.key_path}",
                            says=r"SPACE exists already; delete it first or choose another id")
        rmemlab.cli_refused(memory, "key", "new", node.key_path,
                            says=r"exists already: choose another name, or remove it")
        words = rmem.attach_words(compute, node, "16M", "--index", device.name.removeprefix("rmb"))
        rmemlab.cli_refused(compute, *words, says=rf"{device.name} exists: choose another index, or none")
        for machine in (compute, memory):
            for name in rmem.loaded(machine):
                twice = machine.run(["insmod", rmem.module_path(machine, name)], check=False)
                assert twice.rc != 0 and "File exists" in twice.err, twice
        assert node.status()["started"] and device.status()["state"] == "up"


def test_node_asked_too_much(lab):
    memory = lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        node.stop()
        for words, says in ((("--memory", "64G"), r"65536 MiB do not fit, \d+ MiB are available; lower MEMORY"),
                            (("--memory", "4K"), r"MEMORY is less than a page; raise it"),
                            (("--memory", "64M", "--page", "12K"),
                             r"PAGE_BYTES 12288 is out of range: give 65536 \.\. 4194304")):
            rmemlab.cli_refused(memory, "node", "start", *words, "--space", f"1={node.key_path}", says=says)
        assert not node.status()["started"]
        node.start()


def test_module_that_is_not_loaded(lab):
    compute = lab["compute"]
    rmem.unload(compute)
    with Rack(lab):
        for words, says in ((["node", "status"], r"rmem_node is not loaded, and no remora-node serves at \S+: modprobe rmem_node"),
                            (["detach", "rmb0"], "rmem is not loaded: modprobe rmem")):
            rmemlab.cli_refused(compute, *words, says=says)


def rmmod_refused(machine, name):
    refused = machine.run(["rmmod", name], check=False)
    assert refused.rc != 0 and "is in use" in refused.err, refused


def test_in_use(lab):
    """Nothing goes from under its user: not the device, not the modules; --force does, with errors."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "32M")
        for machine, name in ((compute, rmem.CLIENT), (compute, rmem.CORE), (memory, rmem.NODE), (memory, rmem.CORE)):
            rmmod_refused(machine, name)
        holder = compute.spawn(f"exec 3<{device.path}; echo held; read wait")
        holder.wait_output("held")
        rmemlab.cli_refused(compute, "detach", device.name,
                            says=rf"{device.name} is in use: swapoff or unmount it first, or use force")
        device.detach("--force")
        holder.end_input()
        holder.wait()
        wait_until("the device is gone", lambda: rmem.devices(compute) == [])
        wait_until("its region is gone", lambda: node.status()["regions"] == 0)


def test_a_close_that_waits_delays_no_detach(lab):
    """The last close of a disk writes its pages, for as long as the node is silent. A detach is refused meanwhile
    without waiting, and --force ends the close."""
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "64M"), "32M")
        with rmemlab.netem(memory, "eth0", "loss 100%"):
            writer = compute.spawn(f"exec dd if=/dev/zero of={device.path} bs=64k count=4")
            wait_until("pages are being written", lambda: under_way(device) > 0)
            rmemlab.cli_refused(compute, "detach", device.name, says=rf"{device.name} is in use")
            assert writer.running(), writer.err
            device.detach("--force")
            writer.wait()


@rmemlab.needs("limits of CPU time")
def test_starting_node_delays_no_detach(lab):
    """While a node reserves its memory, for as long as that takes, `detach --force` on the same machine succeeds."""
    compute = lab["compute"]
    group = "/sys/fs/cgroup/slow"
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "32M")
        rmem.load(compute, rmem.NODE)
        compute.run(f"echo +cpu > /sys/fs/cgroup/cgroup.subtree_control; mkdir -p {group}; "
                    f"echo 5000 100000 > {group}/cpu.max")
        words = [rmem.CLI, "node", "start", "--memory", "256M", "--space", f"1={rmem.give_key(compute, node)}"]
        start = compute.spawn(f"echo 0 > {group}/cgroup.procs && exec {shlex.join(map(str, words))}")

        def reserves():
            stack = compute.run(f"cat /proc/$(cat {group}/cgroup.procs)/stack", check=False).out
            return start.running() and "node_mem_reserve" in stack

        wait_until("the start reserves memory", reserves)
        compute.run(f"echo 1000 1000000 > {group}/cpu.max")
        device.detach("--force")
        assert reserves(), "the start went on, so nothing had to wait for it"
        compute.run(f"echo max > {group}/cpu.max")
        assert start.wait(rmem.ACTION_S).rc == 0
        rmem.remora(compute, "node", "stop")


ANSWERS, FAILS = "is swap, and its node answers: swapoff it first", "is swap: its I/O fails from now on: swapoff, detach it"


def refused_swap(device, reason):
    said = device.detach("--force", check=False)
    assert (said.rc, said.err) == (1, f"remora: can't detach {device.name}: {device.name} {reason}\n"), said


def test_forced_from_active_swap(lab):
    """Removed, the disk would leave an area on the kernel's list that nothing takes off again."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "32M")
        compute.run(f"mkswap {device.path} >/dev/null && swapon {device.path}")
        refused_swap(device, ANSWERS)
        compute.run(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct")
        with rmemlab.link_down(lab, "rack"):
            waits = compute.spawn(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct")
            device.wait_state("down")
            refused_swap(device, FAILS)
            assert waits.wait(rmem.ACTION_S).rc == 1
            compute.run(f"swapoff {device.path}", timeout=rmem.ACTION_S)
        device.detach()
        assert device.path not in compute.read("/proc/swaps")
        node.clear_space()  # a device whose I/O fails doesn't ask the node to free its memory


def test_other_network_namespace(lab):
    """The devices are the machine's. From another namespace its administrator sees and detaches them, and nobody else."""
    with Rack(lab) as rack:
        compute = lab["compute"]
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "16M")
        said = compute.run(["unshare", "-n", rmem.CLI, *rmem.attach_words(compute, node, "16M")], check=False)
        assert said.rc == 1 and "no path to the node" in said.err, said
        assert device.path.rsplit("/", 1)[-1] in compute.run(f"unshare -n {rmem.CLI} status").out
        for words in ("status", "detach rmb0"):
            said = compute.run(f"unshare -n setpriv --reuid 65534 --clear-groups --bounding-set -all --inh-caps -all "
                               f"{rmem.CLI} {words}", check=False)
            assert said.rc == 1 and "only an administrator may" in said.err, (words, said)
        compute.run(f"unshare -n {rmem.CLI} detach {device.path}")


@contextlib.contextmanager
def another_address(machine, viewer, version, gone_first, device="eth0"):
    """The machine has another address of the network that it shares with the viewer."""
    address = str(rmem.address(machine, viewer, version))
    bits, tail = (24, "") if version == 4 else (64, " nodad")
    other = re.sub(r"[^.:]+$", "77", address)
    steps = [f"ip addr del {address}/{bits} dev {device}", f"ip addr add {other}/{bits} dev {device}{tail}"]
    machine.run("sysctl -qw net.ipv4.conf.all.promote_secondaries=1; " + "; ".join(steps if gone_first else reversed(steps)))
    try:
        yield
    finally:
        machine.run(f"ip addr add {address}/{bits} dev {device}{tail}; ip addr del {other}/{bits} dev {device}")


@tap.bound(600)
def test_address_of_the_client_changes(lab):
    """A lease ends, a privacy address expires: the device goes on from the new one, and so does a program."""
    compute, memory = lab["compute"], lab["memory"]
    for version in (4, 6):
        with Rack(lab) as rack:
            device = rack.attach("compute", rack.node("memory", "64M"), "16M", version=version)
            for gone_first in (True, False):
                with another_address(compute, memory, version, gone_first):
                    run_fio(compute, device.path, "mixed", "4k", 4)
                run_fio(compute, device.path, "mixed", "4k", 4)
        with rmem.Daemon(memory, "64M") as daemon:
            def reads():
                status = json.loads(rmem.remora(memory, "node", "status", "--json").out)
                return status["counters"]["read"]
            key = rmem.give_key(compute, daemon)
            program = compute.spawn([rmem.CLI, "ping", str(rmem.address(memory, compute, version)), "--key", key,
                                     "--count", "1000000", "--timeout", "60"])
            wait_until("it reads", lambda: reads() > 100)
            for gone_first in (True, False):
                with another_address(compute, memory, version, gone_first):
                    before = reads()
                    wait_until("it goes on", lambda before=before: reads() > before + 100)
                before = reads()
                wait_until("it goes on", lambda before=before: reads() > before + 100)
            assert program.running(), program.err
            program.kill()


@rmemlab.needs("memory pressure as machines have it")
def test_forced_from_under_its_users(lab):
    """--force takes a device from under a file system, and from under swap as far as that goes: the area has to be
    taken off the kernel's list first. Their users get errors, and nothing is left."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "256M")
        disk, swap = (rack.attach("compute", node, size) for size in ("64M", "128M"))
        compute.run(f"modprobe -q ext4; mkfs.ext4 -q {disk.path} && mkdir -p /mnt/rmb && mount {disk.path} /mnt/rmb && "
                    f"mkswap {swap.path} >/dev/null && swapon {swap.path}", timeout=rmemlab.LOAD_S)
        # A cgroup so small that all of it may be on its way out at once would make the kernel kill its program.
        hog_mib = max(32, scaled(lab, 64))
        hog = rmemlab.in_cgroup(compute, "bereft", hog_mib // 2, f"{rmemlab.hog_path()} {hog_mib} 1000 1 2")
        users = [compute.spawn("while dd if=/dev/zero of=/mnt/rmb/file bs=64k count=64 conv=fsync; do :; done"),
                 compute.spawn(hog)]
        for device, user in zip((disk, swap), users):
            wait_until("it is used", lambda device=device: device_writes(device) > 100)
            assert user.running(), user.err
            if device is disk:
                device.detach("--force")
                continue
            refused_swap(device, ANSWERS)
            with rmemlab.link_down(lab, "rack"):
                device.wait_state("down")
                refused_swap(device, FAILS)
        files, swapper = (user.wait(rmemlab.LOAD_S) for user in users)
        assert files.rc == 0, files  # dd fails, which alone ends its loop
        # A program whose page can't be read gets SIGBUS.
        assert swapper.rc == 128 + signal.SIGBUS, swapper
        compute.run(f"swapoff {swap.path}", timeout=rmem.ACTION_S)
        swap.detach()
        assert rmem.devices(compute) == []
        assert compute.run("ls -d /dev/rmb* /sys/block/rmb*", check=False).out == ""
        compute.run("umount /mnt/rmb", timeout=rmem.ACTION_S)
        assert swap.path not in compute.read("/proc/swaps")
        node.clear_space()  # a device whose I/O fails doesn't ask the node to free its memory


@rmemlab.needs("hibernation")
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


@rmemlab.needs("hibernation")
@tap.bound(600)
def test_hibernation_of_the_node(lab):
    """The kernel's own rehearsal, which ends once all tasks are frozen: to the node it is like a woken image."""
    if lab["memory"].run("echo freezer > /sys/power/pm_test", check=False).rc != 0:
        tap.skip("this kernel can't rehearse a hibernation")

    def rehearse(node):
        before = node.status()["boot"]
        node.machine.run("echo disk > /sys/power/state; echo none > /sys/power/pm_test", timeout=rmem.ACTION_S)
        assert node.status()["boot"] != before, "the boot epoch is still the one of before"
    lose_the_node(lab, rehearse)


def needs_snapshots(machine):
    if machine.run("grep -qw add_vmfork_randomness /proc/kallsyms", check=False).rc != 0:
        tap.skip("this kernel tells nobody of restored snapshots")


def restore_snapshot(machine):
    """The kernel is told that its machine is the copy of an earlier one."""
    told = machine.run(["insmod", compiled.module(rmemlab.HERE / "vmfork", machine.spec.kernel)], check=False)
    assert "canceled" in told.err, told  # the module's last word, when it has done it


@tap.bound(600)
def test_restored_snapshot_of_the_node(lab):
    """Told that its machine is the copy of an earlier one, the node serves no memory of then."""
    def restore(node):
        before = node.status()["boot"]
        restore_snapshot(node.machine)
        wait_until("it has another boot epoch", lambda: node.status()["boot"] != before)
    needs_snapshots(lab["memory"])
    lose_the_node(lab, restore)


@tap.bound(600)
def test_restored_snapshot_of_the_client(lab):
    """A machine of an earlier time must not go on with ids that the node has executed, nor with what it knew of the
    content: its devices are lost."""
    needs_snapshots(lab["compute"])
    lose_the_node(lab, lambda node: restore_snapshot(lab["compute"]))


@tap.bound(600)
def test_attach_beside_rmmod(lab):
    """Either the device keeps the module, or the attach is refused: no device is made by a module that goes."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        words = rmem.attach_words(compute, node, "8M")
        for number in range(8):
            rmem.load(compute, rmem.CLIENT)
            # Process starts take about as long as each other; by turns one of the two begins earlier.
            commands = [f"{rmem.CLI} {shlex.join(words)}; echo attach $?", f"rmmod {rmem.CLIENT}; echo rmmod $?"]
            first, second = commands if number % 2 else reversed(commands)
            out = compute.run(f"( {first} ) & ( {second} ) & wait").out
            attached = "attach 0" in out
            assert attached != ("rmmod 0" in out), out
            assert len(rmem.devices(compute) if attached else []) == attached
            for device in rmem.attached(compute):
                device.detach()


def interrupted(machine, chance, longest_s, *words):
    """Runs `remora WORDS` and interrupts it somewhere; its status."""
    process = machine.spawn([rmem.CLI, *words])
    time.sleep(chance.uniform(0, 1.2 * longest_s))  # the moment of the interrupt is what is tested
    process.signal(signal.SIGINT)
    return process.wait(rmem.ACTION_S).rc


def duration_s(function, *arguments):
    began = time.monotonic()
    function(*arguments)
    return time.monotonic() - began


@tap.bound(600)
def test_interrupted_attach_and_detach(lab):
    """Ctrl-C at any moment: either a device or none, at the node a region for it or none."""
    compute, memory = lab["compute"], lab["memory"]
    chance = random.Random(rmemlab.SEED)
    outcomes = dict.fromkeys(("attached", "not attached", "detached", "not detached"), 0)
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)
        words = rmem.attach_words(compute, node, "32M")
        # A distant node makes each step long enough to be hit.
        with rmemlab.netem(memory, "eth0", "delay 100ms"):
            attach_s = duration_s(rmem.remora, compute, *words)
            [device] = rmem.attached(compute)
            detach_s = duration_s(device.detach)
            for _ in range(2 * INTERRUPTS):
                if chance.random() < 0.3:
                    rmem.remora(compute, *words)
                else:
                    status = interrupted(compute, chance, attach_s, *words)
                    there = rmem.attached(compute)
                    outcomes["attached" if there else "not attached"] += 1
                    assert len(there) == (status == 0), f"ended with {status}, but there are {there}"
                for each in rmem.attached(compute):
                    status = interrupted(compute, chance, detach_s, "detach", each.name)
                    left = rmem.attached(compute)
                    outcomes["not detached" if left else "detached"] += 1
                    assert not (left and status == 0), "said detached, but it isn't"
                    for again in left:
                        assert again.status()["state"] == "up" and node.status()["regions"] == 1
                        again.detach()
                wait_until("no region is left at the node", lambda: node.status()["regions"] == 0)
        tap.diag(f"{outcomes}")


def interrupted_often(machine, chance, words, get_ready, is_done):
    """`remora WORDS`, from what get_ready() makes of any state, is done wholly or nothing of it; is_done() says
    which, and fails if neither."""
    get_ready()
    longest_s = duration_s(rmem.remora, machine, *words)
    assert is_done()
    times = 0
    for _ in range(INTERRUPTS):
        get_ready()
        status = interrupted(machine, chance, longest_s, *words)
        done = is_done()
        times += done
        assert done or status != 0, f"{words} ended well, but isn't done"
    tap.diag(f"{' '.join(words[:3])}: done {times} times of {INTERRUPTS}")


def test_interrupted_commands_of_a_node(lab):
    memory = lab["memory"]
    chance = random.Random(rmemlab.SEED)
    ids = [1, *range(10, 18)]
    with Rack(lab) as rack:
        node = rack.node("memory", "128M")
        node.stop()
        key = f"={node.key_path}"
        start = ["node", "start", "--memory", "128M", *(word for each in ids for word in ("--space", f"{each}{key}"))]

        def spaces():
            return sorted(each["space"] for each in
                          json.loads(rmem.remora(memory, "node", "space", "list", "--json").out))

        def started():
            status = node.status()
            assert not status["started"] or spaces() == ids, f"started with spaces {spaces()} of {ids}"
            return status["started"]

        def has_key():
            text = memory.run("cat /run/fresh.key", check=False)
            assert text.rc != 0 or re.fullmatch("[0-9a-f]{32}\n", text.out), f"part of a key: {text.out!r}"
            return text.rc == 0

        def has_space():
            return 5 in spaces()

        def make(wanted, is_so, *words):
            """The command to have is_so() be `wanted`."""
            return lambda: is_so() == wanted or rmem.remora(memory, *words)

        node_stop, add, delete = ["node", "stop"], ["node", "space", "add", f"5{key}"], ["node", "space", "del", "5"]
        interrupted_often(memory, chance, ["key", "new", "/run/fresh.key"],
                          lambda: memory.run("rm -f /run/fresh.key"), has_key)
        interrupted_often(memory, chance, start, make(False, started, *node_stop), started)
        interrupted_often(memory, chance, node_stop, make(True, started, *start), lambda: not started())
        make(True, started, *start)()
        interrupted_often(memory, chance, add, make(False, has_space, *delete), has_space)
        interrupted_often(memory, chance, delete, make(True, has_space, *add), lambda: not has_space())


TESTS = [test_loss, test_reordering, test_duplication, test_corruption, test_damaged_payload,
         test_word_that_changes_on_its_way, test_page_that_changes_on_its_way, test_everything_at_once, test_stalls, test_outage,
         test_events_hold_no_lock, test_node_stopped_and_started, test_node_power_cut, test_detach_from_a_dead_node,
         test_wrong_key_and_unknown_space, test_sizes_that_are_wrong, test_node_that_is_not_there, test_port_in_use,
         test_what_is_there_already, test_node_asked_too_much, test_module_that_is_not_loaded, test_in_use,
         test_a_close_that_waits_delays_no_detach, test_starting_node_delays_no_detach,
         test_forced_from_active_swap, test_address_of_the_client_changes, test_other_network_namespace,
         test_forced_from_under_its_users, test_hibernation_is_refused, test_hibernation_of_the_node,
         test_restored_snapshot_of_the_node, test_restored_snapshot_of_the_client, test_attach_beside_rmmod, test_interrupted_attach_and_detach,
         test_interrupted_commands_of_a_node, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
