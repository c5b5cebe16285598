#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""ntb_hw_ivshmem between two machines, seen through Linux' own NTB clients."""

import pathlib
import random
import re

import ntblab
from ntblab import CORE, DRIVER, MSI_TEST, NETDEV, PERF, PINGPONG, TOOL, TRANSPORT, Tool
from remoralab import tap
from remoralab.rmem import wait_until

STREAM = pathlib.Path(__file__).resolve().parent / "stream.py"
SCRIBBLE = pathlib.Path(__file__).resolve().parent / "ntbscribble.py"
PORT = 5001
MIB = 1 << 20
WINDOW_BYTES = 4 * MIB
SCRIBBLE_ROUNDS = 3000


def both(lab):
    return lab["left"], lab["right"]


def tools(lab):
    """ntb_tool in both, when the link is up."""
    left, right = (Tool(machine) for machine in both(lab))
    for tool in (left, right):
        tool.reset()
    for tool in (left, right):
        tool.wait_link(0, True)
    return left, right


def test_pingpong_counts(lab):
    with ntblab.modules(both(lab), PINGPONG, options="delay_ms=5"):
        ntblab.wait_pings(*both(lab))


def test_ports_are_numbered_as_in_the_topology(lab):
    with ntblab.modules(both(lab), TOOL):
        left, right = tools(lab)
        assert (left.number("port"), left.number("peer0/port")) == (0, 1)
        assert (right.number("port"), right.number("peer0/port")) == (1, 0)


def test_scratchpads_are_seen_by_the_peer(lab):
    with ntblab.modules(both(lab), TOOL):
        left, right = tools(lab)
        for here, there in ((left, right), (right, left)):
            values = [random.Random(n).getrandbits(32) for n in range(ntblab.SCRATCHPADS)]
            here.machine.run("; ".join(f"echo {value} > {here.home}/peer0/spad{n}" for n, value in enumerate(values)))
            for mine, yours in (("spad", "peer0/spad"),):
                seen = there.machine.run(f"cd {there.home}; for n in $(seq 0 {len(values) - 1}); do cat {mine}$n; done")
                assert [int(word, 0) for word in seen.out.split()] == values
                back = here.machine.run(f"cd {here.home}; for n in $(seq 0 {len(values) - 1}); do cat {yours}$n; done")
                assert [int(word, 0) for word in back.out.split()] == values


def test_doorbell_is_pending_until_cleared_and_told_when_unmasked(lab):
    with ntblab.modules(both(lab), TOOL):
        left, right = tools(lab)
        assert right.number("db_valid_mask") == right.number("db_mask") == 0xffff
        right.write("db_mask", "c 0x8008")
        told = right.start_wait("db_event", "0x8008")
        left.write("peer_db", "s 0x8008")
        assert told.wait(ntblab.EVENT_S).rc == 0
        right.write("db", "c 0x8000")
        assert right.number("db") == 8
        right.write("db", "c 0x8")
        # A masked one is pending, and told when it is unmasked.
        left.write("peer_db", "s 0x10")
        wait_until("it is pending", lambda: right.number("db") == 0x10)
        told = right.start_wait("db_event", "0x10")
        right.write("db_mask", "c 0x10")
        assert told.wait(ntblab.EVENT_S).rc == 0
        left.refused("peer_db", "s 0x10000", "Invalid argument")
        assert left.number("db") == 0, "a machine rings its own bell"


def test_message_register_is_full_until_cleared(lab):
    with ntblab.modules(both(lab), TOOL):
        left, right = tools(lab)
        inbits, outbits = right.number("msg_inbits"), left.number("msg_outbits")
        right.write("msg_mask", f"c {inbits:#x}")
        told = right.start_wait("msg_event", "0x4")
        left.write("peer0/msg2", "0x01020304")
        assert told.wait(ntblab.EVENT_S).rc == 0
        assert right.read("msg2") == "0x01020304<-0"
        left.refused("peer0/msg2", "5", "busy")
        assert left.number("msg_sts") == outbits & -outbits << 2
        assert right.read("msg2") == "0x01020304<-0"
        right.write("msg_sts", "c 0x4")
        left.write("msg_sts", f"c {outbits:#x}")
        left.write("peer0/msg2", "5")
        wait_until("it has come", lambda: right.read("msg2") == "0x00000005<-0")
        assert (left.number("msg_sts"), right.number("msg_sts")) == (0, 4)


def test_windows_reach_the_peers_memory(lab):
    with ntblab.modules(both(lab), TOOL):
        left, right = tools(lab)
        for here, there in ((left, right), (right, left)):
            address = there.open_window(0, 0, WINDOW_BYTES)
            here.write("peer0/peer_mw_trans0", f"{address:#x}:{WINDOW_BYTES}")
            data, answer = (random.Random(n).randbytes(WINDOW_BYTES) for n in (1, 2))
            here.put("peer0/peer_mw0", data)
            assert there.get("peer0/mw0", WINDOW_BYTES) == data
            there.put("peer0/mw0", answer)
            assert here.get("peer0/peer_mw0", WINDOW_BYTES) == answer


def test_window_elsewhere_is_refused(lab):
    with ntblab.modules(both(lab), TOOL):
        left, right = tools(lab)
        address = right.open_window(0, 0, 16384)
        for wrong in (address + 4096, 0, 1 << 40):
            left.refused("peer0/peer_mw_trans0", f"{wrong:#x}:16384", "Invalid argument")
        left.refused("peer0/peer_mw_trans0", f"{address:#x}:{2 * WINDOW_BYTES}", "Invalid argument")
        # Freed memory can be had again.
        right.write("peer0/mw_trans0", 0)
        assert right.open_window(0, 0, 4096) == address


def test_perf_copies_into_the_peer(lab):
    with ntblab.modules(both(lab), PERF, options="total_order=26"):
        for machine in both(lab):
            run = f"{ntblab.device(machine, PERF)}/run"
            machine.run(f"echo 0 > {run}")
            said = machine.read(run)
            tap.diag(f"{machine.name}: {said.splitlines()[-1].strip()}")
            assert re.search(rf"^0: copied {1 << 26} bytes", said, re.M), said


@tap.bound(900)
def test_msi_finds_no_window_to_the_interrupt_controller(lab):
    """ntb_msi has peers write to the machine's interrupt controller, at 0xfee00000; windows here show memory."""
    marks = [machine.console_mark() for machine in both(lab)]
    with ntblab.modules(both(lab), MSI_TEST):
        for machine, mark in zip(both(lab), marks):
            machine.wait_console("Unable to setup MSI windows: -22", ntblab.EVENT_S, mark)


@tap.bound(900)
def test_netdev_carries_ping_and_tcp(lab):
    left, right = both(lab)
    with ntblab.modules(both(lab), TRANSPORT, NETDEV):
        interface = "eth0"  # these machines have no other
        for number, machine in enumerate((left, right)):
            machine.run(f"ip addr add 10.7.0.{number + 1}/24 dev {interface} && ip link set {interface} up")
        for machine in (left, right):
            wait_until("carrier", lambda m=machine: m.read(f"/sys/class/net/{interface}/carrier").strip() == "1")
        left.run("ping -c3 -i0.2 -W10 10.7.0.2")
        left.run("ping -c3 -i0.2 -W10 -s 30000 10.7.0.2")
        taking = right.spawn(f"python3 {STREAM} receive 10.7.0.2 {PORT} 1")
        taking.wait_output("listening")
        sent = left.run(f"python3 {STREAM} send 10.7.0.2 {PORT} {8 * MIB} 7", timeout=120).out.split()
        assert taking.wait(60).rc == 0 and taking.out.splitlines()[-1].split()[1:3] == sent, (taking.out, sent)


def test_link_follows_the_peers_power(lab):
    left, right = both(lab)
    with ntblab.modules(both(lab), TOOL):
        mine, _ = tools(lab)
        right.kill()
        mine.wait_link(0, False)
        mine.refused("peer0/msg0", "1", "severed")
        right.boot()
        ntblab.insert(right, CORE, DRIVER, TOOL)
        Tool(right).write("link", "Y")
        mine.wait_link(0, True)


def test_link_follows_the_peers_module_and_cable(lab):
    _, right = both(lab)
    with ntblab.modules(both(lab), TOOL):
        mine, theirs = tools(lab)
        theirs.write("link", "N")
        mine.wait_link(0, False)
        theirs.write("link", "Y")
        mine.wait_link(0, True)
        ntblab.remove(right, TOOL, DRIVER)
        mine.wait_link(0, False)
        ntblab.insert(right, DRIVER, TOOL)
        Tool(right).write("link", "Y")
        mine.wait_link(0, True)
        lab.link_down("fabric", "right")
        mine.wait_link(0, False)
        Tool(right).wait_link(0, False)
        lab.link_up("fabric", "right")
        mine.wait_link(0, True)


def test_pingpong_goes_on_after_the_peers_reboot(lab):
    left, right = both(lab)
    with ntblab.modules(both(lab), PINGPONG, options="delay_ms=5"):
        ntblab.wait_pings(left, right)
        right.kill()
        right.boot()
        ntblab.insert(right, CORE, DRIVER, PINGPONG, options="delay_ms=5")
        ntblab.wait_pings(left, right)


def test_modules_come_and_go_in_any_order(lab):
    left, right = both(lab)
    clients = [PINGPONG, TOOL, PERF, TRANSPORT]
    chance = random.Random(tap.SEED)
    for machine in (left, right):
        ntblab.clear(machine)
        ntblab.insert(machine, CORE)
    try:
        for _ in range(3):
            order = chance.sample(clients, len(clients))
            for machine in (left, right):
                # A device has one client: the first to be there.
                names = [*order[:2], DRIVER]
                chance.shuffle(names)
                ntblab.insert(machine, *names)
                chance.shuffle(names)
                ntblab.remove(machine, *names)
    finally:
        for machine in (left, right):
            ntblab.clear(machine)


def test_driver_goes_under_a_running_client(lab):
    left, right = both(lab)
    with ntblab.modules(both(lab), PINGPONG, options="delay_ms=1"):
        ntblab.wait_pings(left, right)
        ntblab.remove(right, DRIVER)
        ntblab.insert(right, DRIVER)
        ntblab.wait_pings(left, right)


def scribble(lab, client, options, look):
    """right writes at random into all registers and rings all bells, while left's client works."""
    left, right = both(lab)
    ntblab.clear(right)
    with ntblab.modules((left,), client, options=options):
        scribbling = right.spawn(f"python3 {SCRIBBLE} {SCRIBBLE_ROUNDS} {tap.SEED}")
        while scribbling.running():
            left.run(look(left), check=False)
        assert scribbling.wait(ntblab.EVENT_S).rc == 0, scribbling.err


def test_garbage_in_the_registers_does_no_harm(lab):
    left, right = both(lab)
    scribble(lab, TOOL, "", lambda machine: f"cd {ntblab.device(machine, TOOL)}; echo Y > link; cat port link peer0/port msg? "
             "msg_sts db spad0 peer0/spad0; echo 'c 0xffff' > db_mask; echo 'c 0xffff' > db; echo 1 > peer0/msg1; "
             "echo 's 0xffff' > peer_db; echo 'c 0xf' > msg_mask; echo 'c 0xf' > msg_sts")
    scribble(lab, PINGPONG, "delay_ms=1", lambda machine: "true")
    # Honest again, it works again: the scribbler's power is cut, which clears its registers and its links.
    right.kill()
    right.boot()
    with ntblab.modules((left, right), PINGPONG, options="delay_ms=5"):
        ntblab.wait_pings(left, right)


def test_impossible_fabric_is_refused(lab):
    """The driver reads the switch's page once; what it can't be is refused in a line."""
    left, right = both(lab)
    for machine in (left, right):
        ntblab.clear(machine)
    ntblab.insert(left, CORE)
    try:
        for words, says in (("magic 1", "no NTB's of version"), ("ports 1", "makes no sense"),
                            ("ports 16", "makes no sense"), ("window 4095", "make no sense"),
                            ("window 0", "make no sense"), ("base 0", "boot it with memmap="),
                            ("ram 4096", "make no sense")):
            mark = left.console_mark()
            right.run(f"python3 {SCRIBBLE} switch {words}")
            try:
                ntblab.insert(left, DRIVER)
                left.wait_console(says, ntblab.EVENT_S, mark)
                assert not left.run("ls /sys/bus/ntb/devices").out, words
            finally:
                ntblab.remove(left, DRIVER)
                right.run(f"python3 {SCRIBBLE} switch restore")
    finally:
        ntblab.clear(left)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    tap.main("ntb", TESTS)
