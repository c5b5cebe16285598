#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tunnels whose receivers clock every packet, under unmodified ping and TCP."""

import eqdslab
import rmemlab
from eqdslab import Racked, sink, start, transfer
from remoralab import tap
from remoralab.rmem import wait_until

MIB = 1 << 20


def test_ping(lab):
    with Racked(lab["compute"], 2) as (left, right):
        said = left.run(f"ping -c5 -i0.2 -W2 {right.inside}").out
        assert " 0% packet loss" in said, said
        tap.diag(said.splitlines()[-1])
        counted = left.counters()
        assert counted["tx_packets"] >= 5 and counted["rx_packets"] >= 5, counted
        assert counted["tx_tunnels"] == counted["rx_tunnels"] == 1, counted


def test_tcp_stream(lab):
    count = rmemlab.scaled(lab, 32) * MIB
    with Racked(lab["compute"], 2) as (left, right):
        seconds = transfer(left, right, count)
        tap.diag(f"{count * 8 / seconds / 1e6:.0f} Mbit/s")
        counted = left.counters()
        tap.diag(str({name: value for name, value in counted.items() if value}))
        assert counted["tx_packets"] > count // 1500, counted


TESTS = [test_ping, test_tcp_stream]

if __name__ == "__main__":
    tap.main("solo", TESTS)
