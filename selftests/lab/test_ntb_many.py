#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""ntb_hw_ivshmem among three machines: each pair has a link, and the calls that name a peer reach that one."""

import random

import ntblab
from ntblab import PINGPONG, TOOL, Tool
from remoralab import tap
from remoralab.rmem import wait_until

WINDOW_BYTES = 65536


def tools(lab):
    """ntb_tool in all machines, by port, when every pair has its link."""
    found = [Tool(machine) for machine in lab]
    for tool in found:
        tool.reset()
    for tool in found:
        for pidx in range(len(found) - 1):
            tool.wait_link(pidx, True)
    return found


def peer_of(own, port):
    """A port's index among the peers of another."""
    return port if port < own else port - 1


def pairs(count):
    return [(own, port) for own in range(count) for port in range(count) if own != port]


def test_each_has_the_two_others_as_peers(lab):
    with ntblab.modules(list(lab), TOOL):
        found = tools(lab)
        for own, port in pairs(len(found)):
            assert found[own].number("port") == own
            assert found[own].number(f"peer{peer_of(own, port)}/port") == port


def test_scratchpads_are_the_named_peers(lab):
    with ntblab.modules(list(lab), TOOL):
        found = tools(lab)
        for own, port in pairs(len(found)):
            found[own].write(f"peer{peer_of(own, port)}/spad{own}", own * 16 + port + 1)
        for own, port in pairs(len(found)):
            assert found[port].number(f"spad{own}") == own * 16 + port + 1


def test_message_names_its_sender(lab):
    with ntblab.modules(list(lab), TOOL):
        found = tools(lab)
        for own, port in pairs(len(found)):
            found[own].write(f"peer{peer_of(own, port)}/msg1", own + 1)
            wait_until("it has come", lambda o=own, p=port: found[p].read("msg1") == f"0x{o + 1:08x}<-{peer_of(p, o)}")
            third = 3 - own - port
            found[third].refused(f"peer{peer_of(third, port)}/msg1", "9", "busy")
            found[port].write("msg_sts", "c 0x2")


def test_doorbell_rings_at_all_peers(lab):
    with ntblab.modules(list(lab), TOOL):
        found = tools(lab)
        for own, tool in enumerate(found):
            tool.write("peer_db", f"s {1 << own:#x}")
        for own, tool in enumerate(found):
            wait_until("both have rung", lambda t=tool, o=own: t.number("db") == 7 & ~(1 << o))


def test_windows_lead_to_the_named_peer(lab):
    with ntblab.modules(list(lab), TOOL):
        found = tools(lab)
        for own, port in pairs(len(found)):
            here, there = found[own], found[port]
            # A window has the same number at both ends: the sender's for its peer.
            pidx = peer_of(own, port)
            address = there.open_window(peer_of(port, own), pidx, WINDOW_BYTES)
            other = 1 - pidx
            here.refused(f"peer{other}/peer_mw_trans{pidx}", f"{address:#x}:{WINDOW_BYTES}", "Invalid argument")
            there.refused(f"peer{peer_of(port, own)}/mw_trans{other}", WINDOW_BYTES, "Invalid argument")
            here.write(f"peer{pidx}/peer_mw_trans{pidx}", f"{address:#x}:{WINDOW_BYTES}")
            data = random.Random(own * 3 + port).randbytes(WINDOW_BYTES)
            here.put(f"peer{pidx}/peer_mw{pidx}", data)
        for own, port in pairs(len(found)):
            data = random.Random(own * 3 + port).randbytes(WINDOW_BYTES)
            assert found[port].get(f"peer{peer_of(port, own)}/mw{peer_of(own, port)}", WINDOW_BYTES) == data


def test_one_that_dies_takes_only_its_links(lab):
    machines = list(lab)
    with ntblab.modules(machines, TOOL):
        left, right, _ = tools(lab)
        machines[2].kill()
        left.wait_link(1, False)
        right.wait_link(1, False)
        assert (left.read("peer0/link"), right.read("peer0/link")) == ("Y", "Y")
        left.write("peer0/msg0", 7)
        wait_until("the others go on", lambda: right.read("msg0") == "0x00000007<-0")
        machines[2].boot()
        ntblab.insert(machines[2], ntblab.CORE, ntblab.DRIVER, TOOL)
        tools(lab)


def test_pingpong_goes_round(lab):
    with ntblab.modules(list(lab), PINGPONG, options="delay_ms=5"):
        ntblab.wait_pings(*lab)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    tap.main("ntb3", TESTS)
