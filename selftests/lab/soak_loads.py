# SPDX-License-Identifier: GPL-2.0
"""Loads of a soak that use remote memory: a disk, swap, and programs by a device or by UDP; and streams and datagrams.

Each repeats a command in rounds (rmemlab.UntilTold), which writes and reads back. A load knows which errors a fault
can excuse, and how its device comes back afterwards.
"""

import dataclasses
import pathlib
import random
import re

import rmemlab
from remoralab import rmem, tap
from remoralab.channel import MachineDied
from remoralab.rmem import wait_until
from soaklab import LOAD_S, Load, SoakFailed

# Exit statuses of shells.
SIGBUS, SIGKILL = 128 + 7, 128 + 9
# Reasons of excuses.
LOST, SILENT, FORCED, KILLED = "lost memory", "silence", "a forced detach", "SIGKILL"
ITS_MACHINE = "its machine's power"
INTEGRITY = ("link", "digest", "full")
# The longest that an attach can wait.
ATTACH_S = "30"
FIO_WRONG = re.compile(r"verify: bad|verify failed|bad magic|bad header|multibyte")
FIO_ERROR = re.compile(r"Input/output error|Link has been severed|No such file|No such device|allow_file_create|"
                       r"Cannot send after|Stale")


class Command(Load):
    """A load of a command of a shell; `n` counts its rounds there."""

    def __init__(self, name, machine, node):
        self.name, self.machine, self.node = name, machine, node
        self.machines = {machine, node.machine} if node else {machine}
        self.chance = random.Random(f"{tap.SEED} {name}")
        self.until = None

    def command(self):
        """Of one round."""
        raise NotImplementedError

    def start(self):
        log = f"/run/{self.name}.log"
        self.machine.run(["rm", "-f", log])
        one = f"({self.command()}) > {log} 2>&1 || {{ s=$?; tail -n 20 {log}; exit $s; }}; echo round $n"
        self.until = rmemlab.UntilTold(self.machine, self.name, one)

    def running(self):
        return self.until.process.running()

    def rounds(self):
        return self.until.process.out.count("round ")

    def stop(self, excuses=()):
        try:
            result = self.until.end(LOAD_S)
        except MachineDied:
            self.said = ITS_MACHINE
            return True
        if result.rc == 0:
            return False
        said = result.out.rpartition("round ")[2] + result.err
        self.said = f"status {result.rc}: {said.strip()}"
        if self.is_excusable(result.rc, said):
            return True
        raise SoakFailed(f"{self.name}: {self.said}")

    def is_excusable(self, status, said):
        """Whether the failure is an I/O error's or a signal's, as a fault can cause one."""
        raise NotImplementedError

    def kill(self):
        """SIGKILL, to the command and its shell."""
        self.until.process.signal(9)


class EitherVersion(rmem.Rack):
    """A rack whose nodes are reached by IPv4 or IPv6, by chance, at one of `levels` of integrity."""

    def __init__(self, lab, levels=INTEGRITY):
        super().__init__(lab)
        self.levels, self.chance = levels, random.Random(f"{tap.SEED} versions")

    def attach(self, machine, node, size, *words, **options):
        return super().attach(machine, node, size, *words, version=self.chance.choice((4, 6)), **options)


class OnDevice(Command):
    """A load on a device, which is lost with its node, and attached again then."""

    size, words, gives_up = None, (), False

    def __init__(self, name, rack, machine, node):
        super().__init__(name, rack.lab[machine], node)
        self.rack, self.device = rack, None
        self.attach()

    def attach(self):
        self.device = self.rack.attach(self.machine.name, self.node, self.size, *self.words,
                                       "--integrity", self.chance.choice(self.rack.levels), "--timeout", ATTACH_S)
        self.prepare()

    def prepare(self):
        """Makes a fresh device ready for the load."""

    def let_go(self):
        """Ends the use of the device, before a detach."""

    def still_good(self):
        """The device was not lost: what it kept is checked."""

    def force(self):
        if any(each["device"] == self.device.path for each in rmem.devices(self.machine)):
            self.device.detach("--force")

    def touch(self):
        """One access, by which a client learns of a node that has restarted; returns whether it went well."""
        return self.machine.run(f"dd if={self.device.path} of=/dev/null bs=4k count=1 iflag=direct status=none",
                                timeout=LOAD_S, check=False).rc == 0

    def mend(self, excuses, failed):
        if FORCED in excuses:
            wait_until(f"{self.device.name} is gone",
                       lambda: all(each["device"] != self.device.path for each in rmem.devices(self.machine)))
            self.attach()
            return
        touched = self.touch() if LOST in excuses else None
        state = wait_until(f"{self.device.name} is up or lost", self._settled, LOAD_S)
        counted = self.device.counters()
        if counted["timer-late"]:
            raise SoakFailed(f"{self.name}: {counted['timer-late']} timers were set for a time in the past")
        if state == "up":
            if touched is False:
                raise SoakFailed(f"{self.name}: the device is up, but an access failed")
            self.still_good()
            return
        if LOST not in excuses:
            raise SoakFailed(f"{self.name}: the device is lost, and no node was restarted")
        if touched or not failed:
            raise SoakFailed(f"{self.name}: an access to a lost device went well")
        self.let_go()
        self.device.detach()
        self.attach()

    def _settled(self):
        state = self.device.status()["state"]
        return state in ("up", "lost") and state

    def renew(self):
        self.let_go()
        self.device.detach()
        self.attach()

    def leave(self):
        self.let_go()
        self.device.detach()


class Disk(OnDevice):
    """fio writes one half and verifies it; the other half keeps what it was given, over all faults but a loss."""

    size = "32M"
    KEPT_AT_MIB = 24

    def __init__(self, name, rack, machine, node, *words):
        self.words, self.gives_up = words, "--fail-after" in words
        self.mib = 1 if rmemlab.is_debug(rack.lab) else 4
        # When a program with a ring of libaio is killed, arch/um looks its mappings up without their lock.
        self.engine = "--ioengine=io_uring" if rmemlab.is_native(rack.lab) else ""
        self.kept_seed = 0
        super().__init__(name, rack, machine, node)

    def command(self):
        depth, blocks = self.chance.choice((1, 8, 32)), self.chance.choice(("4k", "4k-64k", "512-16k", "256k"))
        return rmemlab.fio_command(self.device.path, "mixed", blocks, self.mib, depth, seed="$n",
                                   extra=f"--allow_file_create=0 {self.engine}")

    def is_excusable(self, status, said):
        return not FIO_WRONG.search(said) and (status == SIGKILL or bool(FIO_ERROR.search(said)))

    def prepare(self):
        self.kept_seed += 1
        self._fio_kept("write", "--do_verify=0")

    def still_good(self):
        self._fio_kept("read", "")

    def _fio_kept(self, rw, extra):
        rmemlab.run_fio(self.machine, self.device.path, rw, "64k", self.mib, seed=self.kept_seed,
                        timeout=LOAD_S, extra=f"--offset={self.KEPT_AT_MIB}M {extra}")


class Swap(OnDevice):
    """A program in a cgroup that holds two thirds of its memory; it checks every word. When its swap is lost the
    program gets SIGBUS, or is killed, since its cgroup has no memory left."""

    size = "96M"
    HOG_MIB, GROUP_MIB = 18, 12

    def __init__(self, name, rack, machine, node):
        # With several CPUs and a multi-generational LRU, the kernel ends programs of smaller cgroups without a try to swap.
        self.scale = 1 if rmemlab.is_native(rack.lab) else 3
        super().__init__(name, rack, machine, node)

    def prepare(self):
        self.machine.run(f"mkswap {self.device.path} >/dev/null && swapon {self.device.path}", timeout=LOAD_S)

    def let_go(self):
        # A killed program can outlive its shell, for minutes while the kernel tries to write its pages to a lost device.
        # swapoff of such a device marks them as poisoned, and arch/um has no handler for a program that touches one.
        wait_until("the cgroup is empty", lambda: "populated 0" in self.machine.read(f"{GROUP}/cgroup.events"), LOAD_S)
        self.machine.run(["swapoff", self.device.path], timeout=LOAD_S)

    def command(self):
        hog = f"{rmemlab.hog_path()} {self.HOG_MIB * self.scale} 1 $n 2"
        return rmemlab.in_cgroup(self.machine, GROUP.name, self.GROUP_MIB * self.scale, hog)

    def stop(self, excuses=()):
        # A cgroup whose swap is lost tries to write its pages out for minutes, before the kernel gives up.
        if LOST in excuses:
            self.kill()
        return super().stop(excuses)

    def is_excusable(self, status, said):
        return status in (SIGBUS, SIGKILL)


GROUP = pathlib.PurePosixPath("/sys/fs/cgroup/soak")
CHECK = rmemlab.HERE / "remote_check.py"


class Checks(Command):
    """A program of libremote, whose operations fail in time. Status 3 is an error of an operation."""

    gives_up, options = True, ""

    def target(self):
        raise NotImplementedError

    def command(self):
        return f"exec python3 {CHECK} {self.target()} {self.chance.randrange(1 << 30)}-$n /run/go-on-{self.name} {self.options}"

    def rounds(self):
        return self.log().count("round ")

    def start(self):
        super().start()
        wait_until(f"{self.name} has its memory", lambda: "begun" in self.log() or not self.running(), LOAD_S)

    def log(self):
        return self.machine.run(f"cat /run/{self.name}.log", check=False).out

    def is_excusable(self, status, said):
        return status in (3, SIGKILL) and "wrong bytes" not in said


class ByDevice(Checks, OnDevice):
    """By /dev/rmemN, in a space of its own."""

    SPACE = 2
    words = ("--space", str(SPACE))

    def attach(self):
        self.device = self.rack.attach(self.machine.name, self.node, None, *self.words, "--integrity",
                                       self.chance.choice(self.rack.levels), "--timeout", ATTACH_S,
                                       key=self.node.space_key(self.SPACE))

    def target(self):
        return f"dev:{self.device.path}"

    def touch(self):
        result = self.machine.run(f"python3 {CHECK} {self.target()} 1 once", timeout=LOAD_S, check=False)
        if not (result.rc == 0 or self.is_excusable(result.rc, result.out)):
            raise SoakFailed(f"{self.name}: {result}")
        return result.rc == 0

    def mend(self, excuses, failed):
        OnDevice.mend(self, excuses, failed)
        if failed:  # the program's region is still allocated
            self.renew()

    def renew(self):
        self.device.detach()
        self.node.clear(self.SPACE)
        self.attach()


class ByUdp(Checks):
    """A client in user space, which also calls the node's offload. `node` is the kernel's or a daemon."""

    options = "calls"

    def __init__(self, name, machine, node, space):
        super().__init__(name, machine, node)
        self.space = space

    def target(self):
        key = f"/run/{self.name}.key"
        rmem.write_key(self.machine, key, self.node.space_key(self.space))
        host = str(rmem.address(self.node.machine, self.machine, self.chance.choice((4, 6))))
        where = f"[{host}]" if ":" in host else host
        return f"udp:{where}:{self.node.port},key={key},space={self.space}"

    def mend(self, excuses, failed):
        if LOST in excuses and not failed:
            raise SoakFailed(f"{self.name}: went on though its node lost its memory")
        if failed:
            self.node.clear(self.space)

    def leave(self):
        pass


@dataclasses.dataclass(frozen=True)
class End:
    """Where a stream begins or ends: a machine, or a namespace in it; `wrap` makes a command one that runs there."""

    name: str
    machine: object
    addresses: tuple
    wrap: object = str


WIRE_CHECK, WIRE_PORT = rmemlab.HERE / "wire_check.py", 5005


class Wire(Command):
    """Streams or datagrams between two ends, sent back by an echo; to one of its addresses in turn, by chance."""

    gives_up = True

    def __init__(self, kind, source, to):
        super().__init__(f"{kind}-{source.name}-{to.name}", source.machine, None)
        self.kind, self.source, self.to = kind, source, to
        self.machines = {source.machine, to.machine}

    @staticmethod
    def start_echo(end):
        end.machine.spawn("exec " + end.wrap(f"python3 {WIRE_CHECK} echo {WIRE_PORT}")).wait_output("listening")

    def command(self):
        to = self.chance.choice(self.to.addresses)
        return "exec " + self.source.wrap(f"python3 {WIRE_CHECK} {self.kind} {to} {WIRE_PORT} "
                                          f"{self.chance.randrange(1 << 30)}-$n /run/go-on-{self.name}")

    def rounds(self):
        return self.machine.run(f"cat /run/{self.name}.log", check=False).out.count("round ")

    def is_excusable(self, status, said):
        return status in (3, SIGKILL) and "wrong bytes" not in said

    def mend(self, excuses, failed):
        """All is healed: the peer is reached again, after any faults."""
        for to in self.to.addresses:
            wait_until(f"{self.source.name} reaches {to}", lambda to=to: self._reaches(to), LOAD_S)

    def _reaches(self, to):
        return self.machine.run(self.source.wrap(f"ping -c1 -W5 {to}"), check=False, timeout=rmem.ACTION_S).rc == 0
