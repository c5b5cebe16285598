# SPDX-License-Identifier: GPL-2.0
"""/dev/rmb0 beside nvme-tcp without emulation: CPU per I/O above what a RAM disk takes.

    one User Mode Linux, pinned to one CPU of the host
      /dev/rmb0      veth ---- namespace memory: rmem_node.ko
      /dev/nvme0n1   veth ---- namespace memory: nvmet-tcp over brd
      /dev/ram0      brd by itself, the floor

That CPU does all there is to do for an I/O, of both ends and of fio, so its time by I/Os is what one costs. Above
the floor is what fio, its system calls and the block layer don't take. nbd is left out: its server is a program, and
system calls are dear in a User Mode Linux.
"""

import json
import pathlib

import disks
from remoralab import Lab, rmem, say

REPO = pathlib.Path(__file__).resolve().parents[2]
SIZE_MIB = 256
# A system call costs as much as several I/Os: one for many.
FIO = ("fio --name=bench --filename={device} --direct=1 --ioengine=libaio --rw={rw} --bs=4k --iodepth=32 "
       "--iodepth_batch_submit=32 --iodepth_batch_complete_min=16 --runtime={seconds} --time_based --norandommap "
       "--randseed={seed} --output-format=json")
FLOOR = "brd"
NETWORK = """set -e
ip netns add memory
ip link add eth0 mtu 9000 type veth peer name eth0 netns memory
ip addr add 10.0.0.1/24 dev eth0
ip link set eth0 up mtu 9000
ip -n memory addr add 10.0.0.2/24 dev eth0
ip -n memory link set eth0 up mtu 9000
ip -n memory link set lo up
"""


def attach(machine, integrity):
    """The devices, by name of what serves them."""
    machine.run(NETWORK)
    machine.run(f"modprobe nvmet-tcp && modprobe brd rd_nr=2 rd_size={SIZE_MIB * 1024}")
    rmem.load(machine, rmem.NODE, rmem.CLIENT)
    rmem.new_key(machine, "/run/key")
    machine.run(["ip", "netns", "exec", "memory", rmem.CLI, "node", "start", "--memory", f"{SIZE_MIB + 32}M", "--space",
                 "1=/run/key"])
    machine.run(["ip", "netns", "exec", "memory", "sh", "-c", disks.NVMET.format(ram="/dev/ram1")])
    machine.run(disks.NVME_CONNECT)
    rmb = rmem.remora(machine, "attach", "10.0.0.2", "--size", f"{SIZE_MIB}M", "--key", "/run/key",
                      "--integrity", integrity).out.split()[-1]
    devices = {"rmb": rmb, "nvme-tcp": "/dev/nvme0n1", FLOOR: "/dev/ram0"}
    for device in devices.values():
        machine.run(f"dd if=/dev/urandom of={device} bs=1M count={SIZE_MIB} oflag=direct status=none", timeout=300)
    return devices


def measure(machine, device, rw, seconds, seed):
    """(I/Os a second, CPU microseconds an I/O) of a load under way."""
    begun = disks.done_ios(machine, device)
    load = machine.spawn(FIO.format(device=device, rw=rw, seconds=2 * seconds, seed=seed))
    rmem.wait_until("the load is under way", lambda: disks.done_ios(machine, device) > begun + 10_000)
    [us] = disks.cpu_per_io([machine], device, seconds)
    result = load.wait(120 + 10 * seconds)
    if result.rc != 0:
        raise SystemExit(f"fio on {device}: {result.err}")
    job = json.loads(result.out[result.out.index("{"):])["jobs"][0]
    return job["read" if "read" in rw else "write"]["iops"], us


def run(samples, rounds, seconds, integrity):
    with Lab(str(REPO / "tools" / "bench" / "native.topo")) as lab:
        machine = lab["rack"]
        devices = attach(machine, integrity)
        order = list(devices)
        for number in range(rounds):
            order = order[1:] + order[:1]
            for rw in ("randread", "randwrite"):
                say.stage(f"native, round {number + 1} of {rounds}: {rw}")
                figures = {who: measure(machine, devices[who], rw, seconds, number + 1) for who in order}
                for who, (iops, us) in figures.items():
                    samples.add(f"native-{rw}-4k-qd32", "iops", "1/s", "higher", who, iops)
                    samples.add(f"native-{rw}-4k-qd32", "cpu-per-io", "us", "lower", who, us)
                    if who != FLOOR:
                        samples.add(f"native-{rw}-4k-qd32", "above-floor", "us", "lower", who, us - figures[FLOOR][1])
