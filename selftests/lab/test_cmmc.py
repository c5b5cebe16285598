#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Copies between programs of three machines by /dev/cmmc: every alignment, revocation, and bad days."""

import pathlib

import ntblab
import test_eop
from ntblab import CORE, DRIVER, MARLIN
from remoralab import compiled, tap
from remoralab.rmem import wait_until
from test_eop import configure, others, port_of, wait_up

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = [*sorted(HERE.glob("cmmcio*.[ch]pp")), *sorted((ROOT / "libremote" / "cmmc").glob("*.cpp")),
           ROOT / "include" / "uapi" / "remora_cmmc.h", ROOT / "include" / "remote" / "cmmc.h"]
CMMCIO = compiled.program("cmmcio", SOURCES, [f"-I{ROOT / 'include'}", f"-I{ROOT / 'include' / 'uapi'}", "-luring"])
MIB = 1 << 20
COPY_S = 240
READ, WRITE = 1, 2


def start(*machines):
    for machine in machines:
        if set(ntblab.loaded(machine)) != {CORE, DRIVER, MARLIN} or \
                machine.read(f"/sys/module/{DRIVER}/parameters/ram").strip() != "Y":
            ntblab.clear(machine)
            ntblab.insert(machine, CORE, DRIVER, options="ram=1")
            ntblab.insert(machine, MARLIN)
        configure(machine)


def network(lab):
    """Three machines with links, whose whole RAM is in each other's windows."""
    return test_eop.network(lab, start)


class Owner:
    """A program that grants its memory to a peer, and does what it is told."""

    def __init__(self, machine, peer, count, skew=0, rights=READ | WRITE, prefix="exec"):
        self.process = machine.spawn(f"{prefix} {CMMCIO} own {port_of(peer)} {count} {skew} {rights}")
        self.lines = 0
        first = self.next_line()
        assert first[0] == "handle", first
        self.handle, self.count = first[1], count

    def next_line(self):
        wait_until("it answers", lambda: self.process.out.count("\n") > self.lines or not self.process.running(), COPY_S)
        self.lines += 1
        return self.process.out.splitlines()[self.lines - 1].split()

    def tell(self, line):
        self.process.send(f"{line}\n".encode())

    def ask(self, line):
        self.tell(line)
        return self.next_line()[1:]

    def digest(self, at=0, count=None):
        return self.ask(f"digest {at} {self.count if count is None else count}")[0]

    def end(self):
        self.process.end_input()
        assert self.process.wait(COPY_S).rc == 0


def mem_locked(machine):
    """Pages that are pinned: neither free nor to be reclaimed."""
    counts = dict(line.split() for line in machine.read("/proc/vmstat").splitlines())
    return int(counts["nr_foll_pin_acquired"]) - int(counts["nr_foll_pin_released"])


def copy(machine, what, handle, offset, count, skew=0, seed=1, more=""):
    """(result, digest of own memory)"""
    said = machine.run(f"{CMMCIO} {what} {handle} {offset} {count} {skew} {seed} {more}", timeout=COPY_S).out.split()
    return said[1:] if said[0] == what else said


def test_written_bytes_arrive_whole(lab):
    with network(lab) as (left, right, _):
        owner = Owner(right, left, MIB)
        result, digest = copy(left, "write", owner.handle, 0, MIB)
        assert result == "ok" and owner.digest() == digest
        owner.end()


def test_every_alignment_and_length_arrives(lab):
    with network(lab) as (left, right, _):
        owner = Owner(right, left, 3 * 4096 + 77, skew=1000)
        for offset, count, skew in ((0, 1, 0), (1, 1, 4095), (3095, 2, 1), (17, 4096, 33), (4095, 4098, 4094),
                                    (5, 3 * 4096, 63), (0, owner.count, 1), (owner.count - 1, 1, 7)):
            for more in ("", "buffer"):
                case = (offset, count, skew, more)
                around = owner.digest(0, offset), owner.digest(offset + count, owner.count - offset - count)
                result, digest = copy(left, "write", owner.handle, offset, count, skew, seed=offset + 3, more=more)
                assert result == "ok" and owner.digest(offset, count) == digest, case
                assert around == (owner.digest(0, offset),
                                  owner.digest(offset + count, owner.count - offset - count)), case
                result, digest = copy(left, "read", owner.handle, offset, count, skew + 1, seed=0, more=more)
                assert result == "ok" and owner.digest(offset, count) == digest, case
        owner.end()


def test_megabytes_arrive_in_both_directions_at_once(lab):
    with network(lab) as machines:
        count = 6 * MIB + 5
        pairs = [(machine, other) for machine in machines for other in others(machine)]
        owners = [Owner(other, machine, count, skew=n) for n, (machine, other) in enumerate(pairs)]
        copies = [machine.spawn(f"{CMMCIO} write {owner.handle} 0 {count} {2 * n} {n}")
                  for n, ((machine, _), owner) in enumerate(zip(pairs, owners))]
        for owner, process in zip(owners, copies):
            what, result, digest = process.wait(COPY_S).out.split()
            assert (what, result) == ("write", "ok") and owner.digest() == digest
            owner.end()


def test_signal_comes_after_the_bytes(lab):
    with network(lab) as (left, right, _):
        owner = Owner(right, left, MIB)
        for seed in range(5):
            owner.tell("wait")
            result, digest = copy(left, "write", owner.handle, 0, MIB, seed=seed)
            assert result == "ok" and owner.next_line()[1] == digest
        owner.tell("wait")
        assert left.run(f"{CMMCIO} signal {owner.handle}").out == "signal ok\n"
        assert owner.next_line()[1] == digest
        owner.end()


REFUSALS = """forged-key EACCES; forged-key-high EACCES; other-epoch ESTALE; no-handle EINVAL; index EINVAL;
    other-machine EACCES; all ok; one-more ERANGE; behind ERANGE; offset-wraps ERANGE; bytes-wrap EFAULT; none-at-end ok;
    unmapped EFAULT; kernel-memory EFAULT; not-readable EPERM; not-mine EPERM; no-buffer EBADF; buffer-number EBADF;
    beyond-buffer EFAULT; buffer-wraps EFAULT; unregister ok; unregister-twice EBADF; other-file-buffer EBADF;
    no-rights EINVAL; no-port EINVAL; no-bytes EINVAL; too-many-bytes EINVAL; address-wraps EINVAL;
    grant-unmapped EFAULT; no-eventfd EINVAL; size EINVAL; flags EINVAL; command ENOTTY; grants-64 more ENOSPC"""


def test_what_is_wrong_is_refused_by_its_own_error(lab):
    with network(lab) as (left, right, third):
        owner = Owner(left, right, 10000, skew=5, rights=WRITE)
        said = right.run(f"{CMMCIO} refusals {owner.handle} 10000", timeout=COPY_S).out.splitlines()
        assert said == [" ".join(each.split()) for each in REFUSALS.split(";")], said
        # The handle is right's.
        assert copy(third, "write", owner.handle, 0, 1)[0] == "EACCES"
        readable = Owner(left, right, 10000, rights=READ)
        assert copy(right, "write", readable.handle, 0, 1)[0] == "EPERM"
        assert copy(right, "read", readable.handle, 0, 1)[0] == "ok"
        readable.end()
        assert owner.ask("revoke") == ["ok", "quiet"]
        assert copy(right, "write", owner.handle, 0, 1)[0] == "EKEYREVOKED"
        assert owner.ask("revoke")[0] == "EPERM", "it was revoked already"
        owner.end()


def test_handle_is_stale_when_another_grant_has_its_place(lab):
    with network(lab) as (left, right, _):
        first = Owner(right, left, 100)
        first.end()
        # A place is used again after all the others: 64 grants of a file at a time.
        for _ in range(9):
            right.run(f"{CMMCIO} refusals {first.handle} 1", timeout=COPY_S)
        assert copy(left, "write", first.handle, 0, 1)[0] == "ESTALE"


def test_revocation_waits_for_copies_under_way(lab):
    with network(lab) as (left, right, _):
        for _ in range(3):
            owner = Owner(right, left, 2 * MIB)
            pours = [left.spawn(f"{CMMCIO} pour {owner.handle} {2 * MIB}") for _ in range(3)]
            for pour in pours:
                pour.wait_output("pouring", timeout=COPY_S)
            assert owner.ask("revoke") == ["ok", "quiet"]
            for pour in pours:
                assert pour.wait(COPY_S).out.endswith("refused EKEYREVOKED\n")
            owner.end()


def test_grants_of_a_killed_program_end(lab):
    with network(lab) as (left, right, _):
        free = mem_locked(right)
        owner = Owner(right, left, 2 * MIB)
        pour = left.spawn(f"{CMMCIO} pour {owner.handle} {2 * MIB}")
        pour.wait_output("pouring", timeout=COPY_S)
        owner.process.kill()
        assert pour.wait(COPY_S).out.endswith("refused EKEYREVOKED\n")
        wait_until("its pages are given back", lambda: mem_locked(right) <= free, COPY_S)


def test_program_killed_in_a_copy_leaves_the_grant_usable(lab):
    with network(lab) as (left, right, _):
        owner = Owner(right, left, 4 * MIB)
        for _ in range(3):
            pour = left.spawn(f"exec {CMMCIO} pour {owner.handle} {4 * MIB}")
            pour.wait_output("pouring", timeout=COPY_S)
            pour.kill()
        result, digest = copy(left, "write", owner.handle, 0, 4 * MIB)
        assert result == "ok" and owner.digest() == digest
        assert owner.ask("revoke") == ["ok", "quiet"]
        owner.end()


def test_locked_memory_has_its_limit(lab):
    with network(lab) as (left, right, _):
        said = right.run(f"ulimit -l 64; setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "
                         f"{CMMCIO} lock {port_of(left)} {128 << 10}").out.splitlines()
        # Half of it and a page more, at most: memory of mmap() is page-aligned.
        assert said == ["grant ENOMEM", "register ENOMEM", "half ok", "other-half ENOMEM", "revoke ok"], said


def test_copies_by_io_uring_arrive_whole(lab):
    with network(lab) as (left, right, _):
        owner = Owner(right, left, 3 * MIB + 77, skew=1000)
        for n, (offset, count, skew, pieces) in enumerate(((0, 1, 4095, 1), (3095, 8190, 1, 2), (17, 3 * MIB, 33, 7),
                                                           (0, owner.count, 0, 1), (1, MIB, 2, 60))):
            for place in ("memory", "buffer", "fixed"):
                case = (offset, count, skew, pieces, place)
                around = owner.digest(0, offset), owner.digest(offset + count, owner.count - offset - count)
                for what, seed in (("write", n + 3), ("read", 0)):
                    said = left.run(f"{CMMCIO} uring-copy {what} {owner.handle} {offset} {count} {skew} {seed} {place} {pieces}",
                                    timeout=COPY_S).out.split()
                    assert said == [what, "ok", owner.digest(offset, count)], (case, said)
                assert around == (owner.digest(0, offset),
                                  owner.digest(offset + count, owner.count - offset - count)), case
        owner.end()


def test_entries_of_io_uring_may_be_reused_while_their_copies_wait(lab):
    with network(lab) as (left, right, _):
        # Workers take longer for a piece than the program for the next entries.
        owner = Owner(right, left, 16 * MIB)
        for seed in range(2):
            said = left.run(f"{CMMCIO} uring-copy write {owner.handle} 0 {owner.count} 0 {seed} memory 60 2",
                            timeout=COPY_S).out.split()
            assert said == ["write", "ok", owner.digest()], (seed, said)
        owner.end()


URING_REFUSALS = """all ok; all-fixed ok; forged-key EACCES; size EINVAL; flags EINVAL; no-such-flags EINVAL;
    no-such-flags EINVAL; reserved EINVAL; command ENOTTY; one-more ERANGE; offset-wraps ERANGE; bytes-wrap EFAULT;
    no-buffer EBADF; fixed-and-buffer EINVAL; before-fixed EFAULT; behind-fixed EFAULT; fixed-wraps ERANGE;
    fixed-number EFAULT; small-entries EINVAL"""


def test_what_is_wrong_by_io_uring_completes_with_its_error(lab):
    with network(lab) as (left, right, _):
        owner = Owner(left, right, 10000, skew=5)
        said = right.run(f"{CMMCIO} uring-refusals {owner.handle} 10000", timeout=COPY_S).out.splitlines()
        assert said == [" ".join(each.split()) for each in URING_REFUSALS.split(";")], said
        owner.end()


def test_io_uring_submitter_does_not_wait_for_a_copy(lab):
    with network(lab) as (left, right, _):
        owner = Owner(right, left, 4096)
        process = left.spawn(f"{CMMCIO} fault-uring {owner.handle}")
        process.wait_output("blocked", timeout=COPY_S)
        assert process.out == "2 ok\nblocked\n", process.out
        # Nor does the owner's revocation wait for the page fault.
        assert owner.ask("revoke") == ["ok", "quiet"]
        process.send(b"answer\n")
        assert process.wait(COPY_S).out.endswith("1 EKEYREVOKED\n"), process.out
        owner.end()


def test_revocation_and_death_end_copies_of_io_uring(lab):
    with network(lab) as (left, right, _):
        free = mem_locked(left)
        owner = Owner(right, left, 4 * MIB)
        killed = left.spawn(f"exec {CMMCIO} uring-pour {owner.handle} {4 * MIB}")
        pour = left.spawn(f"exec {CMMCIO} uring-pour {owner.handle} {4 * MIB}")
        for each in (killed, pour):
            each.wait_output("pouring", timeout=COPY_S)
        killed.kill()
        killed.wait(COPY_S)
        assert owner.ask("revoke") == ["ok", "quiet"]
        assert pour.wait(COPY_S).out.endswith("refused EKEYREVOKED\n")
        owner.end()
        wait_until("their pages are given back", lambda: mem_locked(left) <= free, COPY_S)


def test_page_faults_of_programs_do_not_hold_up_removal(lab):
    with network(lab) as (left, right, third):
        owner = Owner(right, left, 4096)
        process = left.spawn(f"{CMMCIO} fault-calls {port_of(right)} {owner.handle}")
        process.wait_output("blocked", timeout=COPY_S)
        ntblab.remove(left, DRIVER)
        assert process.running()
        process.send(b"answer\n")
        assert process.wait(COPY_S).out.endswith("translate ENODEV\nwrite ENODEV\nread ENODEV\n"), process.out
        owner.end()
        start(left)
        for machine in (right, third):
            wait_up(left, machine)
            wait_up(machine, left)


def test_one_user_leaves_grants_to_others(lab):
    with network(lab) as (left, right, _):
        greedy = left.spawn(f"{CMMCIO} greedy {port_of(right)}")
        greedy.wait_output("holds", timeout=COPY_S)
        left.run("chmod 666 /dev/cmmc")
        modest = left.spawn(f"setpriv --reuid 1234 --regid 1234 --clear-groups {CMMCIO} greedy {port_of(right)}")
        modest.wait_output("holds", timeout=COPY_S)
        tap.diag(f"greedy {greedy.out.strip()}, modest {modest.out.strip()}")
        assert greedy.out == "holds 256 ENOSPC\n", greedy.out
        assert modest.out == "holds 128 ENOSPC\n", modest.out
        for each in (greedy, modest):
            each.end_input()
            assert each.wait(COPY_S).rc == 0


def test_peer_killed_in_a_copy_gives_its_grants_back(lab):
    with network(lab) as (left, right, third):
        free = mem_locked(left)
        owner = Owner(left, right, 4 * MIB)
        pour = right.spawn(f"exec {CMMCIO} pour {owner.handle} {4 * MIB}")
        pour.wait_output("pouring", timeout=COPY_S)
        right.kill()
        assert owner.ask("revoke") == ["ok", "quiet"]
        owner.end()
        wait_until("its pages are given back", lambda: mem_locked(left) <= free, COPY_S)
        other = Owner(left, third, MIB)
        result, digest = copy(third, "write", other.handle, 0, MIB)
        assert result == "ok" and other.digest() == digest
        other.end()
        right.boot()
        start(right)
        for machine in (left, third):
            wait_up(machine, right)
            wait_up(right, machine)
        assert copy(right, "write", owner.handle, 0, 1)[0] in ("EKEYREVOKED", "ESTALE")
        again = Owner(left, right, MIB)
        result, digest = copy(right, "write", again.handle, 0, MIB)
        assert result == "ok" and again.digest() == digest
        again.end()


def test_cable_pulled_in_a_copy_ends_it(lab):
    with network(lab) as (left, right, third):
        owner = Owner(left, right, 4 * MIB)
        pour = right.spawn(f"{CMMCIO} pour {owner.handle} {4 * MIB}")
        pour.wait_output("pouring", timeout=COPY_S)
        lab.link_down("fabric", "left")
        assert pour.wait(COPY_S).out.splitlines()[-1] in ("refused ENOLINK", "refused EKEYREVOKED")
        assert owner.ask("revoke") == ["ok", "quiet"]
        owner.end()
        lab.link_up("fabric", "left")
        for machine in lab:
            wait_up(machine, *others(machine))
        assert copy(right, "write", owner.handle, 0, 1)[0] in ("EKEYREVOKED", "ESTALE")


class Teller:
    """A program that prints its handle, and then a line for each that it reads or each event."""

    def __init__(self, machine, words):
        self.process = machine.spawn(f"exec {CMMCIO} {words}")
        self.lines = 0
        first = self.next_line()
        assert first[0] == "handle", first
        self.handle = first[1]

    next_line, tell, ask, end = Owner.next_line, Owner.tell, Owner.ask, Owner.end


def ring(machine, bell, first, count):
    return machine.run(f"{CMMCIO} ring {bell.handle} {first} {count}", timeout=COPY_S).out.split()[1:]


def test_numbers_reach_a_doorbell_in_order_and_each_once(lab):
    with network(lab) as (left, right, _):
        bell = Teller(right, f"bell {port_of(left)}")
        bell.tell("wait")
        assert ring(left, bell, 1 << 40, 1) == ["1", "ok"]
        assert bell.next_line() == ["waited", "ok"]
        assert bell.ask("take") == [str(1 << 40), "EAGAIN"]
        # Longer than its queue, several times.
        for first in range(7, 7 + 5 * 200, 200):
            assert ring(left, bell, first, 200) == ["200", "ok"]
            assert bell.ask("take") == [*map(str, range(first, first + 200)), "EAGAIN"]
        # A number that the program can't have stays the next one.
        assert ring(left, bell, 7, 2) == ["2", "ok"]
        assert bell.ask("misplace") == ["EFAULT"]
        assert bell.ask("take") == ["7", "8", "EAGAIN"]
        assert ring(left, bell, 5, 300) == ["256", "EAGAIN"]
        assert bell.ask("take") == [*map(str, range(5, 261)), "EAGAIN"]
        # Programs of a machine share it, and lose none.
        rings = [left.spawn(f"{CMMCIO} ring {bell.handle} {first} 50") for first in (1000, 2000, 3000)]
        for each in rings:
            assert each.wait(COPY_S).out == "rang 50 ok\n"
        taken = [int(word) for word in bell.ask("take")[:-1]]
        for first in (1000, 2000, 3000):
            assert [n for n in taken if n // 1000 == first // 1000] == list(range(first, first + 50))
        bell.end()


RING_REFUSALS = """forged-key EACCES; write EPERM; read EPERM; not-mine EPERM; memory ok; take-memory EINVAL; flags EINVAL;
    bell-and-read EINVAL; bell-with-bytes EINVAL"""


def test_doorbell_refuses_what_is_wrong_and_ends_with_its_owner(lab):
    with network(lab) as (left, right, third):
        bell = Teller(left, f"bell {port_of(right)}")
        said = right.run(f"{CMMCIO} ring-refusals {bell.handle}", timeout=COPY_S).out.splitlines()
        assert said == [" ".join(each.split()) for each in RING_REFUSALS.split(";")], said
        assert ring(third, bell, 1, 1) == ["0", "EACCES"], "it is right's"
        assert ring(right, bell, 1, 1) == ["1", "ok"]
        assert bell.ask("revoke") == ["ok"]
        assert ring(right, bell, 1, 1) == ["0", "EKEYREVOKED"]
        assert bell.ask("take") == ["EPERM"]
        bell.end()
        killed = Teller(left, f"bell {port_of(right)}")
        killed.process.kill()
        killed.process.wait(COPY_S)
        assert ring(right, killed, 1, 1) == ["0", "EKEYREVOKED"]


def test_signal_wakes_a_futex_in_granted_memory(lab):
    with network(lab) as (left, right, _):
        waits = Teller(right, f"futex {port_of(left)} 4096")
        for word in (5, 17, 99):
            assert left.run(f"{CMMCIO} tell {waits.handle} {word}", timeout=COPY_S).out == "tell ok\n"
            assert waits.next_line() == ["word", str(word)]
        waits.end()


def test_device_that_goes_under_a_copy_that_stands_still_keeps_the_pages(lab):
    with network(lab) as (left, right, third):
        held = mem_locked(left)
        for _ in range(5):
            owner = Owner(left, right, 2 * MIB)
            crowd = [right.spawn(f"{CMMCIO} pour {owner.handle} {2 * MIB}") for _ in range(3)]
            for pour in crowd:
                pour.wait_output("pouring", timeout=COPY_S)
            right.qmp("stop")  # its processors stand still
            try:
                ntblab.remove(left, DRIVER)
                result = owner.ask("revoke")
            finally:
                right.qmp("cont")
            for pour in crowd:
                pour.wait(COPY_S)
            owner.end()
            start(left)
            for machine in (right, third):
                wait_up(left, machine)
                wait_up(machine, left)
            # Without a copy at that moment they are the program's again.
            lost = mem_locked(left) >= held + 512
            assert result[0] == ("EBUSY" if lost else "ok"), result
            if lost:
                return
        tap.skip("no copy was under way at any of the moments")


def test_driver_without_ram_windows_offers_no_copies(lab):
    for machine in lab:
        ntblab.clear(machine)
        ntblab.insert(machine, CORE, DRIVER, MARLIN)
        configure(machine)
    left, right, _ = lab
    wait_up(left, right)
    said = left.run(f"{CMMCIO} own 1 100 0 1", timeout=COPY_S).out
    assert said == "translate EOPNOTSUPP\n", said
    for machine in lab:
        ntblab.clear(machine)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_") and callable(test)]

if __name__ == "__main__":
    tap.main("ntb3", TESTS)
