# SPDX-License-Identifier: GPL-2.0
"""Shared by the suites of the NTB: modules, and Linux' ntb_tool, which shows every register in debugfs."""

import contextlib
import re

import rmemlab  # noqa: F401  sets the path to remoralab
from remoralab import LabError, kernel, ntbmodules, rmem
from remoralab.rmem import wait_until

CORE, DRIVER = "ntb", "ntb_hw_ivshmem"
TRANSPORT, NETDEV, PINGPONG, TOOL, PERF = "ntb_transport", "ntb_netdev", "ntb_pingpong", "ntb_tool", "ntb_perf"
MSI_TEST = "ntb_msi_test"
MARLIN = "marlin"
# The halves of remote memory's transport over Marlin, by the module that each belongs to.
HALVES = {rmem.CLIENT: "rmem_marlin", rmem.NODE: "rmem_node_marlin"}
# Each before those it uses.
ALL = [NETDEV, TRANSPORT, PINGPONG, TOOL, PERF, MSI_TEST, MARLIN, DRIVER, CORE]
BASE = "/sys/kernel/debug"
SCRATCHPADS, MESSAGES = 32, 4
# Bound of one event: generous, since an emulated machine on a busy host is slow.
EVENT_S = 240
CLOSE_WINDOWS = "for w in peer*/mw_trans*; do echo 0 > $w; done; for w in peer*/peer_mw_trans*; do echo 0:0 > $w; done"


def path_of(machine, name):
    """Returns the path of a module's file: of our own build, or Linux' from the cache."""
    if name in (DRIVER, MARLIN):
        return rmem.module_path(machine, name)
    directory = ntbmodules.directory(machine.spec.kernel)
    if directory:
        return directory / f"{name}.ko"
    # The debug kernel has them.
    return next((kernel.path(machine.spec.kernel) / "root" / "lib" / "modules").rglob(f"{name}.ko"))


def insert(machine, *names, options=""):
    """Modules in this order, the last with options."""
    steps = [f"insmod {path_of(machine, name)} {options if name == names[-1] else ''}" for name in names]
    machine.run(" && ".join(steps), timeout=EVENT_S)


def insert_missing(machines, *names):
    """The driver and clients, in machines that have other modules or none."""
    wanted = (CORE, DRIVER, *names)
    for machine in machines:
        if set(loaded(machine)) != set(wanted):
            clear(machine)
            insert(machine, *wanted)


def load_half(machine, module):
    """A half of remote memory's transport over Marlin, with the module it belongs to."""
    rmem.load(machine, module)
    if not has_module(machine, HALVES[module]):
        machine.run(["insmod", rmem.module_path(machine, HALVES[module])], timeout=EVENT_S)


def unload_halves(machine):
    """Both halves, and all of remote memory."""
    present = [half for half in HALVES.values() if has_module(machine, half)]
    if present:
        remove(machine, *present)
    rmem.unload(machine)


def has_module(machine, name):
    return machine.run(["test", "-e", f"/sys/module/{name}"], check=False).rc == 0


def loaded(machine):
    return machine.run(f"cd /sys/module; for m in {' '.join(ALL)}; do [ ! -e $m ] || echo $m; done").out.split()


def remove(machine, *names):
    machine.run(["rmmod", *names], timeout=EVENT_S)


@contextlib.contextmanager
def modules(machines, *names, options=""):
    """The driver and clients, the last with options, in several machines. They stay for the next test, unless it
    needs others or this one fails."""
    wanted = (CORE, DRIVER, *names)
    try:
        for machine in machines:
            present = loaded(machine)
            if set(present) != set(wanted) or _options.get(machine.name) != options:
                clear(machine)
                insert(machine, *wanted, options=options)
                _options[machine.name] = options
        yield
    except BaseException:
        for machine in machines:
            try:
                if machine.is_on():
                    clear(machine)
            except LabError:
                machine.kill()
        raise


# Of the last module that modules() loaded in a machine.
_options = {}


def clear(machine):
    present = loaded(machine)
    if TOOL in present:
        # Linux' ntb_tool removes the files of open windows twice when it goes, the second time after they were freed.
        machine.run(f"for d in {BASE}/{TOOL}/*; do [ ! -e $d/link ] || {{ cd $d; {CLOSE_WINDOWS}; }}; done")
    if present:
        remove(machine, *present)


def device(machine, client):
    """A client's directory in debugfs."""
    return machine.run(f"echo {BASE}/{client}/*").out.strip()


class Tool:
    """ntb_tool in a machine."""

    def __init__(self, machine):
        self.machine, self.home = machine, device(machine, TOOL)

    def reset(self):
        """As after loading: masked, nothing pending, no windows; and it wants links."""
        self.machine.run(f"cd {self.home}; echo Y > link; echo 's 0xffff' > db_mask; echo 'c 0xffff' > db; "
                         "echo \"s $(cat msg_inbits)\" > msg_mask; echo \"c $(cat msg_inbits)\" > msg_sts; "
                         f"echo \"c $(cat msg_outbits)\" > msg_sts; {CLOSE_WINDOWS}; true")

    def read(self, name):
        return self.machine.run(f"cat {self.home}/{name}").out.strip()

    def number(self, name):
        return int(self.read(name), 0)

    def write(self, name, value):
        self.machine.run(f"echo '{value}' > {self.home}/{name}")

    def refused(self, name, value, why):
        """Writing must fail for that reason."""
        result = self.machine.run(f"cat > {self.home}/{name}", check=False, input=str(value))
        assert result.rc != 0 and why in result.err, (name, value, result)

    def wait_link(self, pidx, up):
        """Until the client was told that the link to a peer is up, or down."""
        self.machine.run(f"echo {'Y' if up else 'N'} > {self.home}/peer{pidx}/link_event", timeout=EVENT_S)

    def start_wait(self, name, value):
        """Begins to wait for an event; the process that ends with it."""
        return self.machine.spawn(f"echo '{value}' > {self.home}/{name}")

    def open_window(self, pidx, number, size):
        """An inbound window's memory; its address, as peers see it."""
        self.write(f"peer{pidx}/mw_trans{number}", size)
        told = self.read(f"peer{pidx}/mw_trans{number}")
        return int(re.search(r"DMA Address\s+(\w+)", told)[1], 16)

    def put(self, name, data):
        self.machine.run(f"dd of={self.home}/{name} bs=64k conv=notrunc status=none", input=data)

    def get(self, name, count):
        process = self.machine.spawn(f"head -c {count} {self.home}/{name}")
        process.end_input()
        assert process.wait(EVENT_S).rc == 0, process.err
        return process.out_bytes


def pings(machine):
    return int(machine.run(f"cat {device(machine, PINGPONG)}/count").out)


def wait_pings(*machines, more=20):
    """Until the ball has come back so often to each."""
    goals = {machine: pings(machine) + more for machine in machines}
    for machine, goal in goals.items():
        wait_until(f"{machine.name} has {goal} pings", lambda m=machine, g=goal: pings(m) >= g, EVENT_S)
