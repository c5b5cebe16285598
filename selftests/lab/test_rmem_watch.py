#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""An operator watches: remora doctor names the faults of a network, remora export has each counter of the modules."""

import json
import re
import time

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack

MIB = 1 << 20
# Of remora doctor, whatever is silent.
DOCTOR_S = 5


def doctor(machine):
    """The checks that found a fault, and the commands that mend them."""
    done = rmem.remora(machine, "doctor", "--json", check=False)
    faults = json.loads(done.out)
    assert done.rc == (1 if faults else 0), done
    return {fault["check"]: fault["command"] for fault in faults}


def healthy(machine):
    """A setting that kernels of the lab lack; the rest must be healthy."""
    machine.run("sysctl -q vm.min_free_kbytes=8192")
    assert doctor(machine) == {}, doctor(machine)
    assert rmem.remora(machine, "doctor").out == ""


def test_doctor_names_the_faults_of_a_network(lab):
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "16M")
        healthy(compute)
        healthy(memory)
        for feature in ("gro", "gso"):
            compute.run(f"ethtool -K eth0 {feature} off")
            assert doctor(compute) == {feature: f"ethtool -K eth0 {feature} on"}, feature
            compute.run(f"ethtool -K eth0 {feature} on")
        healthy(compute)
        # A switch that passes no packet of the interface's size: a bucket that holds less.
        compute.run("modprobe -q sch_tbf || :; tc qdisc replace dev eth0 root tbf rate 1gbit burst 1450 latency 50ms")
        found = doctor(compute)
        assert list(found) == ["mtu"] and found["mtu"].startswith("ip link set eth0 mtu 1400"), found
        compute.run("tc qdisc del dev eth0 root")
        healthy(compute)
        with rmemlab.link_down(lab, "rack"):
            waits = compute.spawn(f"dd if={device.path} of=/dev/null bs=4k count=1 iflag=direct")
            device.wait_state("down")
            began = time.monotonic()
            found = doctor(compute)
            assert time.monotonic() - began < DOCTOR_S
            assert set(found) <= {"unreachable", "no-route"} and found, found
        assert waits.wait(rmem.ACTION_S).rc == 0
        device.wait_state("up")


def test_doctor_names_a_lost_device(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "16M")
        healthy(compute)
        node.stop()
        node.start()
        compute.run(f"dd if={device.path} of=/dev/null bs=4096 count=1 iflag=direct", check=False)
        device.wait_state("lost")
        assert doctor(compute) == {"content-lost": f"remora detach --force {device.name}"}
        device.detach("--force")


def test_doctor_names_a_node_that_swaps(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("compute", "64M")
        device = rack.attach("compute", node, "16M", host="127.0.0.1")
        compute.run(f"mkswap {device.path} && swapon {device.path}")
        try:
            compute.run("sysctl -q vm.min_free_kbytes=8192")
            assert "node-and-client" in doctor(compute), doctor(compute)
        finally:
            compute.run(f"swapoff {device.path}")


def test_export_describes_each_counter(lab):
    compute, memory = lab["compute"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "16M")
        compute.run(f"dd if=/dev/zero of={device.path} bs=4096 count=50 oflag=direct")
        texts = [rmem.remora(machine, "export").out for machine in (compute, memory)]
        for text in texts:
            assert "doesn't describe" not in text, text
        told = dict(line.rsplit(" ", 1) for text in texts for line in text.splitlines() if not line.startswith("#"))
        labels = f'device="{device.name}",node="{device.status()["node"]}"'
        assert float(told[f"remora_device_write_bytes_total{{{labels}}}"]) >= 50 * 4096, told
        assert float(told[f'remora_device_latency_seconds_bucket{{{labels},op="write",le="+Inf"}}']) >= 50, told
        assert float(told[f'remora_device_latency_seconds_sum{{{labels},op="write"}}']) > 0, told
        assert float(told['remora_space_written_bytes_total{service="kernel",space="1"}']) >= 50 * 4096, told
        for name in device.counters():
            assert f"remora_device_{name.replace('-', '_')}_total{{" in texts[0], name
        for name in node.counters():
            assert f"remora_node_{name.replace('-', '_')}" in texts[1], name
        nobody = "setpriv --reuid 65534 --clear-groups --bounding-set -all --inh-caps -all"
        memory.run(f"{nobody} {rmem.CLI} export | grep -q remora_space_operations")
        # A container has another network namespace.
        for words in ("node space list", "node offload list"):
            memory.run(f"unshare -n {rmem.CLI} {words}")
            said = memory.run(f"unshare -n {nobody} {rmem.CLI} {words}", check=False)
            assert said.rc == 1 and "only an administrator may" in said.err, (words, said)


def test_bench_measures_a_disk_and_spares_one_in_use(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, "16M")
        told = json.loads(rmem.remora(compute, "bench", device.path, "--seconds", "0.5", "--json").out)
        assert [run["depth"] for run in told["runs"]] == [1, 32] and told["runs"][0]["p50_ns"] > 0, told
        line = rmem.remora(compute, "bench", device.path, "--io-cost", "--write", "--seconds", "0.1", timeout=60).out
        number = compute.run(f"stat -c '%Hr:%Lr' {device.path}").out.strip()
        found = re.fullmatch(rf"{number} ctrl=user model=linear rbps=\d+ rseqiops=\d+ rrandiops=\d+ wbps=\d+ "
                             r"wseqiops=\d+ wrandiops=\d+\n", line)
        assert found, line
        compute.run(f"mkswap {device.path} && swapon {device.path}")
        try:
            refused = rmem.remora(compute, "bench", device.path, "--write", check=False)
            assert refused.rc == 1 and "is in use" in refused.err, refused
        finally:
            compute.run(f"swapoff {device.path}")


def test_log_lines_belong_to_the_device(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        mark = compute.console_mark()
        device = rack.attach("compute", node, "16M")
        compute.wait_console(rf"block {device.name}: 16 MiB at udp:", rmem.ACTION_S, mark)
        # The device's number, by which journalctl finds the line.
        number = compute.run(f"stat -c 'b%Hr:%Lr' {device.path}").out.strip()
        records = compute.run("dd if=/dev/kmsg iflag=nonblock bs=8192 2>/dev/null", check=False).out
        assert re.search(rf"block {device.name}: 16 MiB.*\n SUBSYSTEM=block\n DEVICE={number}\n", records), records[-2000:]


TESTS = [test_bench_measures_a_disk_and_spares_one_in_use, test_log_lines_belong_to_the_device,
         test_doctor_names_the_faults_of_a_network, test_doctor_names_a_lost_device, test_doctor_names_a_node_that_swaps,
         test_export_describes_each_counter]

if __name__ == "__main__":
    tap.main("pair", TESTS)
