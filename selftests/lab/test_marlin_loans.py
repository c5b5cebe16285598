#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""READs and WRITEs whose pages the client lends, for the node to copy the data there or from there: cases of
test_marlin_rmem.py run again so, and copies that are under way when the request ends, the node dies or the link goes."""

import contextlib

import ntblab
import rmemlab
import test_cmmc
import test_eop as eop
import test_marlin_rmem as marlin_rmem
from remoralab import rmem, tap
from remoralab.rmem import wait_until
from test_hrdma import ENGINE, let_go, parameter, take
from test_marlin_rmem import SIZE_MIB, counter

# Bytes of the smallest READ or WRITE that lends its pages.
LENDS = 16384
# How long a copy by the slow engine takes: longer than a client waits before it sends a request again.
COPY_NS = 900_000_000
CANCELLED_COPY_NS = 4_000_000_000

plain_rack, plain_attach = marlin_rmem.rack, marlin_rmem.attach


@contextlib.contextmanager
def rack(lab, memory="64M"):
    """As test_marlin_rmem's. The windows show all RAM, and left lends the pages of large READs and WRITEs."""
    with test_cmmc.network(lab), plain_rack(lab, memory) as (left, node):
        parameter(left, "loans", LENDS, ntblab.HALVES[rmem.CLIENT])
        parameter(node.machine, "loans", 1, ntblab.HALVES[rmem.NODE])
        yield left, node


def attach(left, node, size=f"{SIZE_MIB}M", *words):
    """At level link, for only plain messages name loans."""
    level = () if "--integrity" in words else ("--integrity", "link")
    return plain_attach(left, node, size, *words, *level)


class Loans:
    """How many requests have lent their pages, and of how many the node has copied the data, since this was made."""

    def __init__(self, left, node):
        self.left, self.right = left, node.machine
        self.before = self.lent(), self.copied(), self.fetched()

    def lent(self):
        return counter(self.left, self.right, "loans_lent")

    def copied(self):
        """Of READs."""
        return counter(self.right, self.left, "loans_copied")

    def fetched(self):
        """Of WRITEs."""
        return counter(self.right, self.left, "loans_fetched")

    def grown(self):
        return self.lent() - self.before[0], self.copied() - self.before[1] + self.fetched() - self.before[2]


@contextlib.contextmanager
def slow_engine(machine, copy_ns):
    """An engine takes all of the machine's copies, and long for each."""
    machine.run(f"insmod {rmem.module_path(machine, ENGINE)} transaction_ns={copy_ns}", timeout=ntblab.EVENT_S)
    try:
        parameter(machine, "hrdma_bytes_min", 0, ntblab.MARLIN)
        take(machine)
        yield
    finally:
        if machine.is_on() and machine.run(f"test -e /sys/module/{ENGINE}", check=False).rc == 0:
            let_go(machine)
            machine.run(["rmmod", ENGINE], timeout=ntblab.EVENT_S)
            parameter(machine, "hrdma_bytes_min", 32768, ntblab.MARLIN)


@contextlib.contextmanager
def slow_copies(lab, copy_ns=COPY_NS):
    """with slow_copies(lab) as (left, node, disk, loans): a disk with a pattern on it, whose data a slow engine copies."""
    with rack(lab) as (left, node):
        disk = attach(left, node)
        rmemlab.write_pattern(left, disk.path, 1)
        with slow_engine(node.machine, copy_ns):
            yield left, node, disk, Loans(left, node)


def asking(how, left, disk, loans):
    """A READ or WRITE of 64 KiB, around the page cache, that has lent its pages."""
    words = {"read": f"if={disk.path} of=/dev/null iflag=direct", "write": f"if=/dev/zero of={disk.path} oflag=direct"}[how]
    asked = left.spawn(f"dd {words} bs=64k count=1 status=none")
    wait_until("pages are lent", lambda: loans.lent() > loans.before[0], ntblab.EVENT_S)
    return asked


@tap.bound(900)
def test_lent_pages_get_what_was_written(lab):
    with rack(lab) as (left, node):
        disk = attach(left, node)
        loans = Loans(left, node)
        rmemlab.run_fio(left, disk.path, "write", "256k", SIZE_MIB)
        rmemlab.run_fio(left, disk.path, "write", "20k", SIZE_MIB // 4)
        lent, _ = loans.grown()
        copied, fetched = loans.copied() - loans.before[1], loans.fetched() - loans.before[2]
        tap.diag(f"{lent} lent, {copied} copied to, {fetched} from, {disk.counters()['retries']} requests again")
        wanted = SIZE_MIB * 4 + SIZE_MIB * 1024 // 4 // 20
        assert lent >= 2 * wanted and copied >= wanted and fetched >= wanted, (lent, copied, fetched, wanted)
        rmemlab.run_fio(left, disk.path, "mixed", "4k-64k", SIZE_MIB // 2, depth=64)
        assert not disk.counters()["damaged"], disk.counters()


def test_node_that_stops_copying_gets_and_sends_data(lab):
    """The client learns it when it opens a session, so what it lends until then is refused, or answered with data."""
    with rack(lab) as (left, node):
        disk = attach(left, node)
        parameter(node.machine, "loans", 0, ntblab.HALVES[rmem.NODE])
        loans = Loans(left, node)
        rmemlab.run_fio(left, disk.path, "write", "256k", SIZE_MIB // 4)
        lent, copied = loans.grown()
        assert lent >= SIZE_MIB and not copied, (lent, copied)
        counters = disk.counters()
        assert counters["retries"] >= SIZE_MIB and not counters["timeouts"], counters


def test_small_requests_other_levels_and_disks_that_give_up_lend_nothing(lab):
    with rack(lab) as (left, node):
        loans = Loans(left, node)
        for block, words in (("8k", ()), ("64k", ("--integrity", "digest")), ("64k", ("--fail-after", "60"))):
            disk = attach(left, node, "16M", *words)
            rmemlab.run_fio(left, disk.path, "write", block, 4)
            disk.detach()
        assert loans.grown() == (0, 0), loans.grown()


@tap.bound(900)
def test_requests_sent_again_while_their_copy_is_under_way_are_done_once(lab):
    """READs beyond those that a node copies at once are answered with data, so they are fewer. WRITEs wait for their turns;
    they are read back, too."""
    for how, depth in (("read", 4), ("write", 12)):
        with slow_copies(lab) as (left, _, disk, loans):
            before = disk.counters()["retries"]
            rmemlab.run_fio(left, disk.path, how, "64k", 1, depth=depth)
            retries = disk.counters()["retries"] - before
            assert retries, "no request was sent again: the test shows nothing"
            lent, _ = loans.grown()
            copied = {"read": loans.copied() - loans.before[1], "write": loans.fetched() - loans.before[2]}[how]
            assert lent == {"read": 16, "write": 32}[how] and 16 <= copied < 16 + retries, (how, lent, copied, retries)


@tap.bound(900)
def test_request_that_is_cancelled_ends_after_its_copy(lab):
    """The copy takes longer than a forced detach is expected to; the request's end tells whether it did."""
    for how in ("read", "write"):
        with slow_copies(lab, CANCELLED_COPY_NS) as (left, node, disk, loans):
            asked = asking(how, left, disk, loans)
            disk.detach("--force")
            assert asked.wait(rmemlab.LOAD_S).rc, f"the {how} wasn't cancelled in its copy: the test shows nothing"
            lent, copied = loans.grown()
            assert lent == copied, f"the {how} ended before its copy: {lent} lent, {copied} copied"
            node.clear_space()


@tap.bound(900)
def test_link_that_goes_in_a_copy_loses_nothing(lab):
    for how in ("read", "write"):
        with slow_copies(lab) as (left, node, disk, loans):
            checking = left.spawn(rmemlab.until_it_fails(rmemlab.fio_command(disk.path, how, "64k", 1)))
            for machine in (left, node.machine):
                wait_until("pages are lent", lambda: loans.grown()[0] > loans.grown()[1], ntblab.EVENT_S)
                marlin_rmem.cable_out_and_in(lab, machine, disk, checking)
            eop.end(checking)


@tap.bound(900)
def test_node_killed_in_a_copy_keeps_the_request_until_it_is_known(lab):
    for how in ("read", "write"):
        with slow_copies(lab) as (left, node, disk, loans):
            asked = asking(how, left, disk, loans)
            node.machine.kill()
            # Forced off, the disk waits for nothing but the copy, of which the dead node tells nothing.
            disk.detach("--force")
            assert asked.wait(rmemlab.LOAD_S).rc, f"a {how} of a device that was forced off ended well"
            node.machine.boot()
            test_cmmc.start(node.machine)
            ntblab.load_half(node.machine, rmem.NODE)
            node.start()
            again = attach(left, node)
            rmemlab.run_fio(left, again.path, "write", "64k", 4)
            again.detach()


# These use rack() and attach() of their module.
AGAIN = (marlin_rmem.test_two_disks_and_a_deep_queue_share_the_rings,
         marlin_rmem.test_cable_out_and_in_again_loses_nothing,
         marlin_rmem.test_machine_swaps,
         # The last one: the driver comes again with windows that show no RAM, so the node sends data instead.
         marlin_rmem.test_interface_down_and_driver_away_hold_io)

TESTS = [test for name, test in list(globals().items()) if name.startswith("test_") and callable(test)] + list(AGAIN)

if __name__ == "__main__":
    marlin_rmem.rack, marlin_rmem.attach = rack, attach
    tap.main("ntb3", TESTS)
