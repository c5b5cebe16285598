# SPDX-License-Identifier: GPL-2.0
"""Marlin at work: three machines with each other's RAM in PCI BARs, joined by marlin.ko.

`make demo-marlin` boots ntb3.topo and calls main(). The machines ping each other over eop0, and iperf3 runs. While it
does, the management host is killed, and its standby takes over. A program copies a file from its memory into the memory
of a program on another machine by /dev/cmmc. Then one machine swaps to another's memory.
"""

import pathlib
import re

from remoralab import cache, ntbmodules, rmem, say
from remoralab.rmem import wait_until
from remoralab.say import LabError

COPY_FILE = cache.REPO / "out" / "bin" / "remora-cmmc-file"
FILE_BYTES = 16 << 20
IPERF_S = 3
# The management host is killed in the second of these.
KILL_S = 6
PORT = 5000
BOUND_S = 240
# Copies of the file, more than the cgroup's memory holds; the size of the disk that takes the rest.
SWAPPED_FILES, GROUP_MIB, DISK = 3, 24, "64M"


def port_of(machine):
    return [each.name for each in machine.lab].index(machine.name)


def address(machine):
    return f"10.8.0.{port_of(machine) + 1}"


def start(machine):
    """The driver with windows into whole RAM, and marlin.ko with its interface."""
    core = ntbmodules.directory(machine.spec.kernel) / "ntb.ko"
    machine.run(f"insmod {core} && insmod {rmem.module_path(machine, 'ntb_hw_ivshmem')} ram=1 && "
                f"insmod {rmem.module_path(machine, 'marlin')} && ip addr add {address(machine)}/24 dev eop0 && "
                "ip link set eop0 up", timeout=BOUND_S)


def wait_links(machine, count):
    wait_until(f"{machine.name} has its links",
               lambda: len(re.findall(r"port\d+_up: 1", machine.run("ethtool -S eop0").out)) == count, BOUND_S)


def ping(machine, to):
    said = machine.run(f"ping -c5 -i0.2 -W20 {address(to)}", timeout=BOUND_S).out
    if " 0% packet loss" not in said:
        raise LabError(f"{machine.name} to {to.name}: {said}")
    return float(re.search(r"= [\d.]+/([\d.]+)/", said)[1]) * 1e3


def serve_iperf(to):
    server = to.spawn(f"exec iperf3 -s -1 -B {address(to)} --forceflush")
    server.wait_output("Server listening", timeout=BOUND_S)
    return server


def received_mbps(text):
    return float(re.search(r"([\d.]+) Mbits/sec\s+receiver", text)[1])


def iperf(machine, to):
    server = serve_iperf(to)
    said = machine.run(f"iperf3 -c {address(to)} -t {IPERF_S} -f m", timeout=BOUND_S).out
    server.wait(BOUND_S)
    return received_mbps(said)


def describe(status):
    joined = [each["name"] for each in status["machines"] if each["joined"]]
    return f"{', '.join(joined)} joined; standby: {status['standby']}; takeovers: {status['takeovers']}"


def kill_management_host(fabric, machine, to):
    """While iperf3 runs, whose Mbit/s are returned, with what the management host said before, and says after."""
    fabric.start_standby()
    before = fabric.status()
    server = serve_iperf(to)
    client = machine.spawn(f"iperf3 -c {address(to)} -t {KILL_S} -f m")
    server.wait_output(" sec ", timeout=BOUND_S)
    fabric.kill_host()
    after = fabric.status()
    if after["takeovers"] != before["takeovers"] + 1 or not client.running():
        raise LabError(f"no standby took over while iperf3 ran: {after}")
    done = client.wait(BOUND_S)
    said = server.wait(BOUND_S).out
    idle = re.findall(r" 0\.00 Mbits/sec", done.out)
    if done.rc or idle:
        raise LabError(f"traffic stopped with the management host: {done.err}{done.out}{said}")
    return received_mbps(done.out), describe(before), describe(after)


def copy_file(machine, to):
    """(digest at the sender, digest at the receiver, microseconds)"""
    source = pathlib.PurePath("/tmp/demo-file")
    machine.run(f"head -c {FILE_BYTES} /dev/urandom > {source}", timeout=BOUND_S)
    receiver = to.spawn(f"exec {COPY_FILE} receive {port_of(machine)} {address(to)} {PORT} {FILE_BYTES}")
    receiver.wait_output("ready", timeout=BOUND_S)
    sent = machine.run(f"{COPY_FILE} send {address(to)} {PORT} {source}", timeout=BOUND_S).out.split()
    got = receiver.wait(BOUND_S)
    if got.rc != 0:
        raise LabError(f"{to.name}: {got.err}")
    return sent[0], got.out.split()[1], float(sent[2])


def swap(machine, node):
    """MiB that were swapped out to the node's memory, of files in memory that came back whole."""
    for each, module in ((node, rmem.NODE), (machine, rmem.CLIENT)):
        rmem.load(each, module)
        each.run(["insmod", rmem.module_path(each, {rmem.NODE: "rmem_node_marlin", rmem.CLIENT: "rmem_marlin"}[module])])
    lends = rmem.Node(node, "96M").start()
    disk = rmem.attach(machine, lends, DISK, host=f"marlin:{port_of(node)}")
    files = f"for n in $(seq {SWAPPED_FILES}); do cat /tmp/demo-file; done"
    said = machine.run(f"""set -e
        mkswap {disk.path} > /dev/null; swapon {disk.path}
        mkdir -p /run/swapped; mount -t tmpfs swapped /run/swapped
        echo +memory > /sys/fs/cgroup/cgroup.subtree_control; mkdir -p /sys/fs/cgroup/small
        echo {GROUP_MIB}M > /sys/fs/cgroup/small/memory.max
        ({files}) | sha256sum
        (read self rest < /proc/self/stat; echo $self > /sys/fs/cgroup/small/cgroup.procs; {files}) > /run/swapped/file
        awk '$1 ~ /rmb/ {{ print $4 }}' /proc/swaps
        sha256sum < /run/swapped/file
        umount /run/swapped; swapoff {disk.path}""", timeout=BOUND_S).out.split()
    before, swapped_kib, after = said[0], int(said[2]), said[3]
    if before != after:
        raise LabError(f"what was swapped has another checksum: {before} and {after}")
    disk.detach()
    lends.stop()
    return swapped_kib // 1024


def main(lab, _arguments):
    machines = list(lab)
    for machine in machines:
        start(machine)
    for machine in machines:
        wait_links(machine, len(machines) - 1)
    say.stage("three machines have links to each other, without a network card")
    left, right, third = machines
    fabric = lab.ntbs.named("fabric")
    print(f"\n  remora mh, which owns their memory and doorbells: {describe(fabric.status())}\n", flush=True)
    rows = []
    for machine in machines:
        for to in machines:
            if to is not machine:
                rows.append((f"ping {machine.name} to {to.name}", f"{ping(machine, to):.0f} us"))
    say.stage("each has pinged each other over eop0")
    rows.append((f"iperf3 {left.name} to {right.name}", f"{iperf(left, right):.0f} Mbit/s"))
    rows.append((f"iperf3 {right.name} to {third.name}", f"{iperf(right, third):.0f} Mbit/s"))
    say.stage("iperf3 is done")
    mbps, before, after = kill_management_host(fabric, third, left)
    print(f"\n  remora mh before: {before}\n  remora mh killed: {after}\n", flush=True)
    rows.append((f"the same, {third.name} to {left.name}, management host killed", f"{mbps:.0f} Mbit/s"))
    say.stage("the management host was killed under traffic, and its standby took over")
    sent, got, took_us = copy_file(left, right)
    print(f"\n  {left.name}: a program's memory   {sent}\n  {right.name}: another's memory    {got}")
    if sent != got:
        raise LabError("the two checksums differ")
    rows.append((f"copy of {FILE_BYTES >> 20} MiB by /dev/cmmc", f"{FILE_BYTES * 8 / took_us:.0f} Mbit/s, same checksum"))
    rows.append((f"{left.name} swaps to {right.name}'s memory", f"{swap(left, right)} MiB out and back, same checksum"))
    print("\n  what                                               measured   (emulated machines are several times slower than real ones)")
    for name, text in rows:
        print(f"  {name:50} {text}")
    print("\ndemo: ok", flush=True)
    return 0
