# SPDX-License-Identifier: GPL-2.0
"""Faults of Marlin's links, and of the machines at their ends.

A fault of a machine excuses the loads that need that machine, and no others.
"""

import time

import ntblab
from ntblab import DRIVER, MARLIN
from remoralab import rmem
from soak_faults import Killed, OfDevice, OfMachine, Paused
from soak_loads import LOST
from soak_marlin_loads import wait_linked
from soaklab import Fault
from test_eop import configure
from test_hrdma import CHANNELS, ENGINE, let_go, parameter, take

LINK = "a link that started again"
# A peer that stands still stops its queue; the kernel names it before it tells the driver.
WATCHDOG = r"NETDEV WATCHDOG: (?:CPU: \d+: )?eop0"


def touching(loads, machine):
    return {load: LINK for load in loads if load.gives_up and machine in load.machines}


class Cable(OfMachine):
    """A machine's cable is out; flaps come first."""

    name, part, FLAP_S = "cable", "cable", 0.1

    def __init__(self, lab, machine):
        super().__init__(machine)
        self.lab = lab

    def draw(self, chance):
        return {"flaps": chance.choice((0, 0, 1, 5))}

    def excuses(self, loads, flaps):
        return touching(loads, self.machine)

    def begin(self, flaps):
        for _ in range(flaps):
            self.lab.link_down("fabric", self.machine.name)
            time.sleep(self.FLAP_S)  # the length of a flap is what is played
            self.lab.link_up("fabric", self.machine.name)
            time.sleep(self.FLAP_S)
        self.lab.link_down("fabric", self.machine.name)

    def end(self, flaps):
        self.lab.link_up("fabric", self.machine.name)


class EopDown(OfDevice):
    name, part = "interface-down", "up"

    def excuses(self, loads):
        return touching(loads, self.machine)

    def begin(self):
        self.machine.run(f"ip link set {self.device} down")

    def end(self):
        configure(self.machine)  # its addresses of IPv6 are gone


class DriverAway(OfMachine):
    """The bridge's driver is removed under load, and loaded again."""

    name, part = "driver-away", "eop0"

    def __init__(self, _lab, machine):
        super().__init__(machine)

    def excuses(self, loads):
        return touching(loads, self.machine)

    def begin(self):
        ntblab.remove(self.machine, DRIVER)

    def end(self):
        ntblab.insert(self.machine, DRIVER, options="ram=1")
        configure(self.machine)


class StandsStill(Paused):
    def excuses(self, loads):
        return touching(loads, self.machine)


class PowerCut(OfMachine):
    name = "power-cut"

    def __init__(self, rig, machine):
        super().__init__(machine)
        self.rig = rig

    def excuses(self, loads):
        return {**touching(loads, self.machine),
                **{load: LOST for load in loads if getattr(load, "node", None) and load.node.machine is self.machine}}

    def begin(self):
        self.machine.kill()

    def end(self):
        self.rig.boot(self.machine)


class Settings(OfDevice):
    """Rings, looks before sleep and offloads are changed under load. Links start again for other rings."""

    name, part = "settings", "settings"
    CHANGES = (("ethtool -L eop0 combined 1", "ethtool -L eop0 combined 2"),
               ("ethtool -G eop0 rx 2048", "ethtool -G eop0 rx 16384"),
               ("ethtool -C eop0 rx-usecs 0", "ethtool -C eop0 rx-usecs 500"),
               ("ethtool -K eop0 tso off gso off tx off", "ethtool -K eop0 tx on tso on gso on"))

    def draw(self, chance):
        return {"change": chance.randrange(len(self.CHANGES))}

    def excuses(self, loads, change):
        return touching(loads, self.machine)

    def begin(self, change):
        self.machine.run(self.CHANGES[change][0])

    def end(self, change):
        self.machine.run(self.CHANGES[change][1])


class Engine(OfMachine):
    """A DMA engine comes, which is slow, late or fails, and is taken away under load."""

    name, part = "engine", "engine"
    KINDS = ("shuffle=1", "fail_every=7", "hang_every=40", "transaction_ns=20000000", "channels=1 ring=16")

    def draw(self, chance):
        return {"kind": chance.choice(self.KINDS)}

    def begin(self, kind):
        self.machine.run(f"insmod {rmem.module_path(self.machine, ENGINE)} {kind}", timeout=ntblab.EVENT_S)
        parameter(self.machine, "hrdma_bytes_min", 0, MARLIN)
        take(self.machine, CHANNELS)

    def end(self, kind):
        let_go(self.machine)
        self.machine.run(["rmmod", ENGINE], timeout=ntblab.EVENT_S)
        parameter(self.machine, "hrdma_bytes_min", 32768, MARLIN)


class PagesClosed(Fault):
    """The management host closes a machine's pages to programs of another, and opens them again."""

    def __init__(self, lab, machine, to):
        self.fabric, self.machine, self.to = lab.ntbs.named("fabric"), machine, to
        self.name = f"pages-closed {machine.name} {to.name}"
        self.uses = (f"{machine.name}.pages", f"{to.name}.pages")

    def excuses(self, loads):
        return {load: LINK for load in loads if load.gives_up and {self.machine, self.to} <= set(load.machines)}

    def begin(self):
        self.fabric.set_pages(self.machine.name, self.to.name, "none")

    def end(self):
        self.fabric.set_pages(self.machine.name, self.to.name, "all")


class OwnerKilled(Killed):
    """SIGKILL to the program whose memory it is."""

    def __init__(self, load, reason):
        super().__init__(load, reason)
        self.name = f"kill-owner {load.name}"

    def begin(self):
        self.load.kill_owner()


class AllModulesAgain(OfMachine):
    """All of Marlin and of remote memory is unloaded in a machine, and loaded, while nothing is under way."""

    name, idle, can_be_long, lasts_s = "all-modules-again", True, False, (0, 0)

    def __init__(self, rig, machine, devices):
        super().__init__(machine)
        self.rig, self.devices = rig, devices

    def begin(self):
        if self.machine is not self.rig.third:  # client or node
            for load in self.devices:
                load.leave()
        self.rig.stop(self.machine)
        self.rig.start(self.machine)
        wait_linked(*self.rig.lab)
        if self.machine is not self.rig.third:
            for load in self.devices:
                load.attach()
