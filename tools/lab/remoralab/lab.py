# SPDX-License-Identifier: GPL-2.0
"""The lab: the machines of a topology, up together, down together.

    with Lab("pair") as lab:
        lab["compute"].run("ping -c1 memory")
"""

import atexit
import contextlib
import os
import shutil

from . import accel, cache, guesttools, kernel, say, topology, uml
from .channel import MachineDied, Pump
from .machine import Machine
from .ntb import Fabrics
from .say import LabError
from .wires import Wires

# Console logs of so many past runs are kept.
LOGS_KEPT = 12


class Lab:
    """A topology's machines. Use it in a `with`, or up() and down()."""

    def __init__(self, topo, kernel_name=None, on_boot=None):
        """`kernel_name` (or $REMORA_KERNEL) overrides every machine's kernel; `on_boot(machine)` runs
        after each boot of a machine."""
        self.topology = topology.load(topo)
        self.on_boot = on_boot
        override = kernel_name or os.environ.get("REMORA_KERNEL")
        for spec in self.topology.machines.values():
            spec.kernel = override or spec.kernel
            kernel.directory(spec.kernel)
            if kernel.is_uml(spec.kernel):
                spec.cpus = 1
            # KASAN keeps an eighth of what is mapped as its shadow: here of the RAM of all peers.
            if kernel.is_debug(spec.kernel) and self.topology.ntbs:
                spec.ram_mib *= 2
        self.layers = {}  # name of a share: directory, to lie over the host's root in the guests
        self.machines = {}
        self.accel = None
        self.cpu = None  # of the host, where native machines run

    def __getitem__(self, name):
        if name not in self.machines:
            raise LabError(f"no machine '{name}' in {self.topology.name}: there are {', '.join(self.machines)}")
        return self.machines[name]

    def __iter__(self):
        return iter(self.machines.values())

    def by_role(self, role):
        """The machines of a role, in the order of the file."""
        return [machine for machine in self if machine.role == role]

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        """Boots every machine; returns when all can be used."""
        names = {spec.kernel for spec in self.topology.machines.values()}
        for name in sorted(names):
            kernel.fetch(name)
        self.layers = {"tools": guesttools.layer()}
        self._prepare()
        say.stage(f"{self.topology.name}: booting {', '.join(self.machines)} ({self.accel or 'native'}), logs in "
                  f"{os.path.relpath(self.log_dir)}")
        for machine in self:
            machine.power_on()
        for machine in self:
            machine.wait_ready()

    def _prepare(self):
        atexit.register(self.down)
        self.pump = Pump()
        self.log_dir = _log_directory(self.topology.name)
        self.wires = Wires(self)
        self.ntbs = Fabrics(self)
        self.machines = {name: Machine(self, spec) for name, spec in self.topology.machines.items()}
        if not all(kernel.is_uml(machine.spec.kernel) for machine in self):
            self.accel = accel.choose(self._trial_boot)
        if any(kernel.is_uml(machine.spec.kernel) for machine in self):
            self.cpu = uml.claim_cpu()

    def _trial_boot(self, accelerator, bound):
        machine = next(iter(self))
        try:
            machine.power_on(accelerator)
            return machine.channel.wait_hello(bound)
        except MachineDied:
            return False
        finally:
            machine.kill()
            machine.console.complaints.clear()

    def revive(self):
        """Boots again whatever is off."""
        off = [machine for machine in self if not machine.is_on()]
        for machine in off:
            machine.kill()
            machine.power_on()
        for machine in off:
            machine.wait_ready()

    def down(self):
        """Cuts every machine's power. Nothing remains but the logs."""
        atexit.unregister(self.down)
        for machine in self:
            machine.kill()
        if getattr(self, "wires", None):
            self.wires.close()
            self.wires = None
        if getattr(self, "ntbs", None):
            self.ntbs.close()
            self.ntbs = None

    # Links

    def link_down(self, link, machine=None):
        """Takes the carrier off a link: at all ends, or at one machine's; or pulls the cables of an NTB."""
        self._set_link(link, machine, False)

    def link_up(self, link, machine=None):
        self._set_link(link, machine, True)

    def _set_link(self, link, only, up):
        fabric = self.ntbs.named(link)
        if fabric:
            for name in fabric.ports:
                if only in (None, name):
                    fabric.plug(name, up)
            return
        found = next((each for each in self.topology.links if each.name == link), None)
        if found is None:
            raise LabError(f"no link '{link}' in {self.topology.name}")
        for name in found.addresses:
            if only in (None, name) and self[name].is_on():
                self[name].set_link(link, up)

    # Complaints

    def complaints(self):
        """The kernels' complaints so far that no test expected."""
        return [complaint for machine in self for complaint in machine.console.complaints]

    @contextlib.contextmanager
    def expect_complaint(self, pattern):
        """Within it, complaints of any machine matching `pattern` are expected."""
        with contextlib.ExitStack() as stack:
            for machine in self:
                stack.enter_context(machine.expect_complaint(pattern))
            yield


def _log_directory(name):
    """out/lab/NAME-PID; the oldest logs of dead runs are removed."""
    home = cache.REPO / "out" / "lab"
    home.mkdir(parents=True, exist_ok=True)
    dead = [path for path in home.iterdir()
            if not os.path.exists(f"/proc/{path.name.rsplit('-', 1)[-1]}")]
    for old in sorted(dead, key=lambda path: path.stat().st_mtime)[:-LOGS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    fresh = home / f"{name}-{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    return fresh
