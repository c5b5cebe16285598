# SPDX-License-Identifier: GPL-2.0
"""PCIe non-transparent bridges of the lab: machines that have each other's RAM in PCI BARs.

    QEMU of left                   remora mh, a process of the lab            QEMU of right
      RAM -------------------------- memory file ---------------------- ivshmem-plain BAR
      ivshmem-plain BAR ------------ memory file ---------------------- RAM
      ivshmem-doorbell  BAR -------- registers, a memory file --------- BAR  ivshmem-doorbell
                    '--- socket --- the switch: eventfds, presence --- socket ---'

The management host (tools/mh) makes memory and doorbells, and `remora mh join` starts each QEMU with its share of
them. Each bridge of a topology has a management host of its own, and a second one, its standby, if a test wants it. A
map of the bridge, in which every machine may reach every other one unless the topology says otherwise, is written
beside the consoles' logs, and the control socket is there, too. The processes end with the lab's.
"""

import json
import os
import subprocess

from . import cache, kernel
from .child import start_bound
from .say import LabError

REMORA = cache.REPO / "out" / "bin" / "remora"
BOUND_S = 60


class Fabric:
    """One NTB: its management host, and how machines join."""

    def __init__(self, spec, machines, log_dir):
        self.name, self.ports = spec.name, spec.ports
        self._log_dir = log_dir
        self._hosts = []  # processes: the active one, its standby
        # The shorter way to write it: a socket's path has 107 bytes.
        self._socket = min((str(log_dir / f"{spec.name}.mh"), os.path.relpath(log_dir / f"{spec.name}.mh")), key=len)
        if not REMORA.exists():
            raise LabError(f"{REMORA} is missing, which is the management host of [ntb {spec.name}]: run make out/bin/remora")
        file = log_dir / f"{spec.name}.map"
        window = {"window": f"{spec.window_mib}M"} if spec.window_mib else {}
        file.write_text(json.dumps({
            **window,
            "machines": [{"name": name, "ram": f"{machines[name].ram_mib}M"} for name in spec.ports],
            "access": [{"from": "*", "to": "*", "may": "write"}, *spec.access]}, indent=2))
        self._start("serve", file)
        self._machines = {each["name"]: each for each in self.status()["machines"]}

    def status(self):
        return json.loads(self._remora("status", "--json"))

    def plug(self, machine, plugged):
        """Pulls a machine's cable, or puts it in again: it has no links meanwhile, but the memory stays mapped."""
        self._remora("plug" if plugged else "unplug", machine)

    def cut(self, machine):
        """Pulls a machine's cable, and no machine is told before it is in again."""
        self._remora("cut", machine)

    def set_pages(self, machine, to, *ranges):
        """Which pages of `to` programs of a machine may copy to and from."""
        self._remora("pages", machine, to, *ranges)

    def policy(self, machine, to):
        rules = json.loads(self._remora("policy", "--json"))["access"]
        return next(each for each in rules if (each["from"], each["to"]) == (machine, to))

    def start_standby(self):
        """Returns once the standby could take over."""
        self._start("standby")

    def kill_host(self):
        """Kills the active management host."""
        host = self._hosts.pop(0)
        host.kill()
        host.wait()

    def command(self, machine, argv):
        """The command that starts a QEMU as that machine, with its share of memory and doorbells."""
        return [REMORA, "mh", "join", "--socket", self._socket, machine, "--", *argv]

    def command_line(self, machine):
        """The part of a machine's kernel command line that keeps the windows' memory free, and lets programs (those of
        a hostile machine) reach BARs that a driver has."""
        return f"{self._machines[machine]['kernel_parameter']} iomem=relaxed"

    def close(self):
        for host in self._hosts:
            host.kill()
            host.wait()
        self._hosts = []

    def _start(self, verb, *words):
        ready, theirs = os.pipe()
        log = self._log_dir / f"{self.name}.mh.log"
        try:
            self._hosts.append(start_bound([REMORA, "mh", verb, *words, "--socket", self._socket, "--ready-fd", theirs],
                                           [theirs], log))
            os.close(theirs)
            theirs = None
            if not os.read(ready, 1):
                raise LabError(f"[ntb {self.name}] has no management host: {log.read_text().strip()}")
        finally:
            for each in filter(None, (ready, theirs)):
                os.close(each)

    def _remora(self, *words):
        done = subprocess.run([REMORA, "mh", *words, "--socket", self._socket], text=True, capture_output=True, timeout=BOUND_S)
        if done.returncode != 0:
            raise LabError(f"[ntb {self.name}]: {done.stderr.strip()}")
        return done.stdout


class Fabrics:
    """All NTBs of a lab, from the view of one machine at a time: each is in one of them, or in none."""

    def __init__(self, lab):
        self.fabrics = []
        for ntb in lab.topology.ntbs:
            native = [name for name in ntb.ports if kernel.is_uml(lab.topology.machines[name].kernel)]
            if native:
                raise LabError(f"{lab.topology.name}: [ntb {ntb.name}] needs PCI, which User Mode Linux has not: boot "
                               f"{native[0]} with another kernel, 6.12 say")
        try:
            for ntb in lab.topology.ntbs:
                self.fabrics.append(Fabric(ntb, lab.topology.machines, lab.log_dir))
        except BaseException:
            self.close()
            raise

    def of(self, machine):
        return next((each for each in self.fabrics if machine in each.ports), None)

    def named(self, name):
        return next((each for each in self.fabrics if each.name == name), None)

    def close(self):
        for fabric in self.fabrics:
            fabric.close()
        self.fabrics = []
