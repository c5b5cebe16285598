#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The management host with real machines: killed under traffic, and the way out of the rack."""

import re

import ntblab
import test_cmmc as cmmc
from remoralab import tap
from remoralab.rmem import wait_until
from test_eop import address, counters, ping, start, wait_up

OUTSIDE = "192.0.2.2"


def test_ping_goes_on_when_the_management_host_is_killed(lab):
    fabric = lab.ntbs.named("fabric")
    left, right, third = connect(lab)
    fabric.start_standby()
    third.kill()
    wait_until("third has left", lambda: not counters(left)["port2_up"], ntblab.EVENT_S)
    pinging = left.spawn(f"exec ping -i0.2 {address(right)}")
    pinging.wait_output("icmp_seq=3 ", timeout=ntblab.EVENT_S)
    fabric.kill_host()
    pinging.wait_output("icmp_seq=20 ", timeout=ntblab.EVENT_S)
    third.boot()
    connect(lab)
    ping(third, address(left))
    assert fabric.status()["takeovers"] == 1
    pinging.kill()
    seen = [int(each) for each in re.findall(r"icmp_seq=(\d+) ", pinging.wait(ntblab.EVENT_S).out)]
    assert seen == list(range(1, len(seen) + 1)), seen


def connect(lab):
    """eop0 in the machines of the fabric, with links between all; returns them."""
    rack = [each for each in lab if each.name != "outside"]
    start(*rack)
    for machine in rack:
        wait_up(machine, *[each for each in rack if each is not machine])
    return rack


def set_pages(fabric, machine, to, *ranges):
    """Returns once the machine's kernel keeps to it."""
    fabric.set_pages(machine.name, to.name, *ranges)
    wait_until(f"{machine.name} keeps to it", lambda: fabric.policy(machine.name, to.name)["in_force"], ntblab.EVENT_S)
    wait_up(machine, to)


def test_pages_that_the_management_host_closes_are_not_copied(lab):
    fabric = lab.ntbs.named("fabric")
    left, right, third = [each for each in lab if each.name != "outside"]
    cmmc.start(left, right, third)
    for machine in (left, right):
        wait_up(machine, *[each for each in (left, right, third) if each is not machine])
    owner = cmmc.Owner(right, left, cmmc.MIB)
    assert cmmc.copy(left, "write", owner.handle, 0, cmmc.MIB)[0] == "ok"
    set_pages(fabric, left, right, "none")
    # The rule ends the session, and with it the grant.
    assert cmmc.copy(left, "write", owner.handle, 0, 1)[0] != "ok"
    closed, other = cmmc.Owner(right, left, cmmc.MIB), cmmc.Owner(third, left, cmmc.MIB)
    before = closed.digest()
    for what in ("write", "read"):
        assert cmmc.copy(left, what, closed.handle, 0, cmmc.MIB)[0] == "EACCES"
    assert closed.digest() == before
    assert cmmc.copy(left, "write", other.handle, 0, cmmc.MIB)[0] == "ok", "the rule is of right's pages"
    ping(left, address(right))
    set_pages(fabric, left, right, "all")
    again = cmmc.Owner(right, left, cmmc.MIB)
    result, digest = cmmc.copy(left, "write", again.handle, 0, cmmc.MIB)
    assert (result, digest) == ("ok", again.digest())
    for each in (owner, closed, other, again):
        each.process.kill()
        each.process.wait(ntblab.EVENT_S)
    for machine in (left, right, third):
        ntblab.clear(machine)


def route(lab):
    lab["right"].run("sysctl -w net.ipv4.ip_forward=1")
    lab["outside"].run("ip route replace 10.8.0.0/24 via 192.0.2.1")
    for machine in (lab["left"], lab["third"]):
        machine.run(f"ip route replace default via {address(lab['right'])}")


def test_machines_reach_ethernet_through_the_one_that_has_it(lab):
    connect(lab)
    route(lab)
    for machine in (lab["left"], lab["third"]):
        tap.diag(ping(machine, OUTSIDE).splitlines()[-1])
        ping(lab["outside"], address(machine))


def test_machine_has_an_address_of_the_ethernet_by_proxy_arp(lab):
    left, right, _third = connect(lab)
    outside = lab["outside"]
    right.run("sysctl -w net.ipv4.ip_forward=1 net.ipv4.conf.all.proxy_arp=1 && ip route replace 192.0.2.77 dev eop0")
    left.run("ip addr replace 192.0.2.77/32 dev eop0 && ip route replace 192.0.2.0/24 dev eop0 src 192.0.2.77")
    ping(outside, "192.0.2.77")
    ping(left, OUTSIDE)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    tap.main("ntbout", TESTS)
