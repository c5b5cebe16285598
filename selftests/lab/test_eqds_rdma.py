#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Unmodified RDMA programs over soft-RoCE, whose packets wait in a tunnel for credit."""

import contextlib
import json
import pathlib

import eqdslab
import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import wait_until

CAPTURE = pathlib.Path(__file__).resolve().parent / "rocecap.py"
UNDER = {"compute": "10.0.0.1", "memory": "10.0.0.2"}
# rdma_rxe lets a queue pair have so many packets that have not left, and a few that it was about to send.
PACKETS_PER_QP = 64 + 2
# At RATE_MBITS their packets wait for half a second, less than a queue pair waits for an acknowledgement.
QPS, RATE_MBITS = 4, 20


class Pair:
    """with Pair(lab) as (compute, memory): a soft-RoCE device on eth0 of each, whose packets a rule captures."""

    def __init__(self, lab):
        self.machines = [lab["compute"], lab["memory"]]

    def __enter__(self):
        for machine, other in (self.machines, self.machines[::-1]):
            eqdslab.load(machine, eqdslab.CORE, eqdslab.MODULE)
            to = UNDER[other.name]
            machine.run("modprobe -a rdma_rxe rdma_ucm ib_uverbs && rdma link add rxe0 type rxe netdev eth0 && "
                        "ip link add link eth0 name eqds0 type eqds && ip link set eqds0 up && "
                        "ethtool --set-priv-flags eqds0 burst off && "
                        f"{rmem.CLI} eqds map eqds0 {to} {to}")
        return self.machines

    def __exit__(self, *_):
        for machine in self.machines:
            machine.run("rdma link del rxe0; ip link del eqds0", check=False)
            eqdslab.unload(machine)


def _counters(machine):
    return eqdslab.counters_of(machine.run("ethtool -S eqds0").out)


def _rate(machine, mbits):
    machine.run(f"ethtool -s eqds0 speed {mbits} duplex full autoneg off")


def _rxe(machine):
    """The counters of soft-RoCE."""
    return {each["name"]: int(each["value"]) for each in json.loads(
        machine.run("rdma -j statistic show link rxe0/1 | python3 -c 'import json, sys; "
                    "print(json.dumps([{\"name\": k, \"value\": v} for k, v in json.load(sys.stdin)[0].items() "
                    "if isinstance(v, int)]))'").out)}


@contextlib.contextmanager
def _server(machine, command, port):
    process = machine.spawn(f"exec {command}")
    wait_until("the server listens", lambda: f":{port}" in machine.run("rdma res show cm_id").out)
    yield process
    assert process.wait(240).rc == 0, (process.out, process.err)


def _tunnel(machine, way="to"):
    [told] = [each for each in json.loads(machine.run(f"{rmem.CLI} eqds peers --json").out)
              if (each["class"], each["way"]) == ("rdma", way)]
    return told


@contextlib.contextmanager
def _writing(client, server):
    """Writes of 64 KiB by QPS queue pairs that RDMA-CM connected; yields the client's process, and both succeed."""
    command = f"exec ib_write_bw -R -F -q {QPS} -s 65536 -n 20 -p 18515"
    both = [server.spawn(command)]
    try:
        wait_until("the server listens", lambda: ":18515" in server.run("rdma res show cm_id").out)
        both.append(client.spawn(f"{command} {UNDER[server.name]}"))
        yield both[1]
        for process in both:
            result = process.wait(240)
            assert result.rc == 0, result
    finally:
        for process in both:
            if process.running():
                process.signal(9)
                process.wait(60)


def test_rping_travels_by_a_tunnel_of_its_own(lab):
    with Pair(lab) as (compute, memory):
        with _server(memory, f"rping -s -a {UNDER['memory']} -C 50 -S 16384", 7174):
            said = compute.run(f"rping -c -a {UNDER['memory']} -C 50 -S 16384 -V", timeout=240)
        for machine in (compute, memory):
            counted = _counters(machine)
            assert counted["tx_rdma"] > 100 and counted["rx_rdma"] > 100 and not counted["rx_drop_rdma"], (counted, said)
        assert _tunnel(compute)["state"] == "open"
        # TCP between the same hosts has another one.
        compute.run(f"ping -c1 -W5 {UNDER['memory']}")
        classes = [each["class"] for each in json.loads(compute.run(f"{rmem.CLI} eqds peers --json").out)
                   if each["way"] == "to"]
        assert classes == ["tcp", "rdma"], classes


def test_packets_wait_for_credit_and_none_is_dropped(lab):
    """The receiver's link is slow: queue pairs stop at the packets that wait, and lose none."""
    with Pair(lab) as (compute, memory):
        _rate(memory, RATE_MBITS)
        seen = []
        with _writing(compute, memory) as running:
            def waits():
                with contextlib.suppress(ValueError):
                    seen.append(_tunnel(compute)["queued_packets"])
                return not running.running()

            wait_until("the writes are done", waits, timeout=240)
        counted = _counters(compute)
        tap.diag(f"at most {max(seen)} packets waited; {counted['tx_rdma']} were sent")
        # More packets waited than a window of the tunnel has, and no more than their queue pairs were allowed.
        assert eqdslab.WINDOW_MTUS < max(seen) <= QPS * PACKETS_PER_QP, seen
        assert not counted["tx_drop_class"] and not counted["tx_cnp"], counted
        # Nor did a queue pair send anything twice, for want of an answer in time.
        assert not _rxe(memory).get("duplicate_request", 0) and not _rxe(memory).get("out_of_seq_request", 0)


def test_cnps_name_the_queue_pair_that_sends(lab):
    with Pair(lab) as (compute, memory):
        for machine in (compute, memory):
            machine.run(f"{rmem.CLI} eqds set eqds0 --rdma cnp")
            [told] = json.loads(machine.run(f"{rmem.CLI} eqds credit --json").out)
            assert told["rdma"] == "cnp", told
        _rate(memory, RATE_MBITS)
        capture = compute.spawn(f"exec python3 {CAPTURE} eth0 20")
        capture.wait_output("capturing")
        with _writing(compute, memory):
            told = capture.wait(240)
            pairs = json.loads(compute.run("rdma -j res show qp").out)
        assert told.rc == 0, told
        seen = json.loads(told.out.removeprefix("capturing\n"))
        # The checksum of a packet of soft-RoCE's own says that the test computes it as that does.
        assert all(each["icrc_good"] for each in seen["other"]), seen["other"]
        mine = {each["lqpn"] for each in pairs if each["type"] == "RC"}
        tap.diag(f"{_counters(compute)['tx_cnp']} CNPs; queue pairs {sorted(mine)}; {seen['cnp'][0]}")
        for each in seen["cnp"]:
            assert (each["from"], each["to"]) == (UNDER["memory"], UNDER["compute"]), each
            assert each["qpn"] in mine and each["becn"] and each["icrc_good"], (each, mine)
        counted = _counters(compute)
        assert counted["tx_cnp"] >= 20 and not counted["tx_cnp_unknown"] and not counted["tx_drop_class"], counted


def test_other_packets_do_not_pass_as_rdma(lab):
    """A peer whose tunnel says it is RDMA's, and that carries something else, is not heard."""
    with Pair(lab) as (compute, memory):
        before = _counters(compute)["rx_drop_rdma"]
        forge = pathlib.Path(__file__).resolve().parent / "hostile_eqds.py"
        # With the rule, the hook would put the forgeries into a tunnel of this machine.
        memory.run(f"{rmem.CLI} eqds map eqds0 {UNDER['compute']} --remove && ip addr add 10.0.0.7/24 dev eth0")
        memory.run(f"python3 {forge} rdma 10.0.0.7 {UNDER['compute']} 10 {rmemlab.SEED}")
        assert _counters(compute)["rx_drop_rdma"] - before == 10, _counters(compute)
        memory.run("ip addr del 10.0.0.7/24 dev eth0")


TESTS = [test_rping_travels_by_a_tunnel_of_its_own, test_packets_wait_for_credit_and_none_is_dropped,
         test_cnps_name_the_queue_pair_that_sends, test_other_packets_do_not_pass_as_rdma]

if __name__ == "__main__":
    tap.main("pair", TESTS)
