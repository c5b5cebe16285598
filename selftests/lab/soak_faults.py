# SPDX-License-Identifier: GPL-2.0
"""Faults of networks and machines, for every soak.

`uses` names the parts that a fault takes: "memory" is the whole machine, "memory.qdisc" a part of it.
"""

import re
import time

import rmemlab
from remoralab import rmem
from soaklab import LONG_S, Fault
from soak_loads import ATTACH_S, SILENT

NETWORKS = ("loss 1%", "loss 20%", "loss gemodel 2% 20%", "delay 20ms 10ms", "delay 200ms", "duplicate 30%",
            "delay 3ms 2ms reorder 30% 50%", "corrupt 3%", "rate 20mbit delay 5ms",
            "delay 2ms 1ms loss 3% duplicate 3% corrupt 1% reorder 10% 50%")


def silence(loads):
    """The excuses of a silence: loads that give up can fail."""
    return {load: SILENT for load in loads if load.gives_up}


class OfMachine(Fault):
    """A fault of one machine, named after it, that uses a part of it."""

    part = None

    def __init__(self, machine):
        self.machine = machine
        self.name = f"{self.name} {machine.name}"
        self.uses = (f"{machine.name}.{self.part}" if self.part else machine.name,)


class OfDevice(OfMachine):
    """A fault of a network device."""

    def __init__(self, machine, device):
        super().__init__(machine)
        self.device = device
        self.name = f"{self.name} {device}"
        self.uses = (f"{machine.name}.{device}.{self.part}",)


class Netem(OfDevice):
    """A bad network for packets that leave by a device."""

    name, part, weight = "netem", "qdisc", 4

    def draw(self, chance):
        return {"how": chance.choice(NETWORKS)}

    def begin(self, how):
        self.machine.run("modprobe -q sch_netem || :")
        self.machine.netem(self.device, how)

    def end(self, how):
        self.machine.netem(self.device, "")


class Mute(OfDevice):
    """All packets that leave by a device are lost: the machine hears, and is not heard."""

    name, part = "mute", "qdisc"

    def excuses(self, loads):
        return silence(loads)

    def begin(self):
        self.machine.run("modprobe -q sch_netem || :")
        self.machine.netem(self.device, "loss 100%")

    def end(self):
        self.machine.netem(self.device, "")


class DamagedPayload(OfDevice):
    """Some payloads arrive other than they were sent, with a right checksum. Level "link" does not see that."""

    name, part = "damaged-payload", "ingress"

    def begin(self):
        self.damage = rmemlab.damaged_payload(self.machine, self.device)
        self.damage.__enter__()

    def end(self):
        self.damage.__exit__(None, None, None)


class Mtu(OfDevice):
    """An MTU below the link's, at one end or, by two steps, at both. Larger packets from the other end can be lost."""

    name, part = "mtu", "mtu"

    def __init__(self, machine, device, usual):
        super().__init__(machine, device)
        self.usual = usual

    def draw(self, chance):
        return {"mtu": chance.choice([mtu for mtu in (1400, 1500, 4000, self.usual - 1) if mtu < self.usual])}

    def excuses(self, loads, mtu):
        return silence(loads)

    def begin(self, mtu):
        self.machine.run(f"ip link set {self.device} mtu {mtu}")

    def end(self, mtu):
        self.machine.run(f"ip link set {self.device} mtu {self.usual}")


class InterfaceDown(OfDevice):
    name, part = "interface-down", "up"

    def excuses(self, loads):
        return silence(loads)

    def begin(self):
        # Without this the interface forgets its IPv6 addresses.
        self.machine.run(f"echo 1 > /proc/sys/net/ipv6/conf/{self.device}/keep_addr_on_down; "
                         f"ip link set {self.device} down")

    def end(self):
        self.machine.run(f"ip link set {self.device} up")


class LinkDown(Fault):
    """A link without carrier; flaps come first."""

    FLAP_S = 0.1

    def __init__(self, lab, link):
        self.lab, self.link = lab, link
        self.name = f"link-down {link}"
        self.uses = tuple(f"{machine.name}.carrier" for machine in lab)

    def draw(self, chance):
        return {"flaps": chance.choice((0, 0, 1, 5))}

    def excuses(self, loads, flaps):
        return silence(loads)

    def begin(self, flaps):
        for _ in range(flaps):
            self.lab.link_down(self.link)
            time.sleep(self.FLAP_S)  # the length of a flap is what is played
            self.lab.link_up(self.link)
            time.sleep(self.FLAP_S)
        self.lab.link_down(self.link)

    def end(self, flaps):
        self.lab.link_up(self.link)


class Paused(OfMachine):
    """A machine whose processors stand still, as while it is saved or moved. `away` is the soak's set of machines that
    can't be asked. A User Mode Linux finds the time gone when it wakes."""

    name = "paused"

    def __init__(self, machine, away):
        super().__init__(machine)
        self.away = away

    def excuses(self, loads):
        return silence(loads)

    def begin(self):
        self.away.add(self.machine)
        self.machine.pause()

    def end(self):
        self.machine.resume()
        self.away.discard(self.machine)


class Suspended(OfMachine):
    """All tasks are frozen for a while, as before a machine sleeps; the kernel's own rehearsal of it. Devices go on, since
    those that connect the machine to the lab can't be suspended. A task that waits for a silent node can't be frozen, and
    the kernel then gives up."""

    name, part, can_be_long, STATE, GIVES_UP = "suspend", "tasks", False, "freeze", "busy"

    def __init__(self, machine, away):
        super().__init__(machine)
        self.away = away

    def draw(self, chance):
        return {"for_s": chance.choice((1, 4, LONG_S))}

    def excuses(self, loads, for_s):
        return silence(loads)

    def begin(self, for_s):
        self.machine.run(f"echo {for_s} > /sys/module/suspend/parameters/pm_test_delay; echo freezer > /sys/power/pm_test; "
                         "echo 5000 > /sys/power/pm_freeze_timeout")
        self.away.add(self.machine)
        self.process = self.machine.spawn(f"echo {self.STATE} | cat > /sys/power/state")  # cat names the error

    def end(self, for_s):
        result = self.process.wait(LONG_S + rmem.ACTION_S)
        self.away.discard(self.machine)
        self.machine.write("/sys/power/pm_test", "none")
        assert result.rc == 0 or self.GIVES_UP in result.err, f"{self.name}: {result}"


class ClockStep(OfMachine):
    """The clock of day is set, and set back."""

    name, part = "clock", "clock"

    def draw(self, chance):
        return {"by_s": chance.choice((-86400 * 365, -3600, 3600, 86400 * 365))}

    def begin(self, by_s):
        self._step(by_s)

    def end(self, by_s):
        self._step(-by_s)

    def _step(self, by_s):
        self.machine.run(f"date -s @$(($(date +%s) + {by_s})) > /dev/null")


class Killed(Fault):
    """SIGKILL to a load's programs in the middle of a round."""

    can_be_long = False

    def __init__(self, load, reason):
        self.load, self.reason = load, reason
        self.name, self.uses = f"kill {load.name}", (f"{load.machine.name}.{load.name}",)

    def excuses(self, loads):
        return {self.load: self.reason}

    def begin(self):
        if self.load.running():
            self.load.kill()


class Pressure(OfMachine):
    """A program wants more memory than the whole machine has, and swaps to a device of its own. The reserve is the
    kernel's own size, half of it, or README's."""

    name = "pressure"
    SWAP, OVER_MIB, README_KIB = "192M", 8, 8192

    def __init__(self, machine, rack, node, hog, bound_s):
        super().__init__(machine)
        self.rack, self.node, self.hog, self.bound_s = rack, node, hog, bound_s
        self.uses = (f"{machine.name}.pressure", f"{node.machine.name}.node")

    def draw(self, chance):
        return {"reserve": chance.choice(("default", "small", "readme")), "seed": chance.randrange(1000)}

    def begin(self, reserve, seed):
        self.swap = self.rack.attach(self.machine.name, self.node, self.SWAP, "--timeout", ATTACH_S)
        self.before = int(self.machine.read("/proc/sys/vm/min_free_kbytes"))
        kib = {"default": self.before, "small": self.before // 2, "readme": max(self.README_KIB, self.before)}[reserve]
        self.machine.write("/proc/sys/vm/min_free_kbytes", str(kib))
        self.machine.run(f"mkswap {self.swap.path} > /dev/null && swapon -p 10 {self.swap.path}", timeout=self.bound_s)
        free_kib = int(re.search(r"^MemAvailable: +(\d+) kB$", self.machine.read("/proc/meminfo"), re.M)[1])
        self.process = self.machine.spawn([self.hog, free_kib // 1024 + self.OVER_MIB, 1, seed, 2])

    def end(self, reserve, seed):
        result = self.process.wait(self.bound_s)
        assert result.rc == 0, f"the program that takes all memory: {result}"
        self.machine.run(["swapoff", self.swap.path], timeout=self.bound_s)
        self.machine.write("/proc/sys/vm/min_free_kbytes", str(self.before))
        self.swap.detach()
