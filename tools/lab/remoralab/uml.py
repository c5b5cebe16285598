# SPDX-License-Identifier: GPL-2.0
"""A machine as User Mode Linux runs it: the kernel is a program, its processes are the program's children.

    console      tty0, a passed descriptor      host's root  hostfs
    agent        ttyS0, a passed descriptor     user space   the host's programs, system calls by ptrace
    ethN         vecN, the wire's datagram socket, passed

One CPU each. Every machine of a lab is pinned to one CPU of the host, the same for all of them: a kernel and its
processes wake each other all the time, which across CPUs takes several times as long.
"""

import fcntl
import os
import pathlib
import shutil
import signal

from . import cache, kernel
from .child import start_bound

COMMAND_LINE = ("con=null ssl=null noreboot rdinit=/init loglevel=5 oops=panic panic=-1 net.ifnames=0 "
                "rcupdate.rcu_cpu_stall_timeout=150 watchdog_thresh=60 workqueue.watchdog_thresh=150 "
                "sysctl.kernel.hung_task_timeout_secs=120")

_claimed = []  # held by this process until it ends


def claim_cpu():
    """A CPU of the host that no other lab runs native machines on, if there is one."""
    cpus = sorted(os.sched_getaffinity(0))
    home = cache.root() / "lock"
    home.mkdir(parents=True, exist_ok=True)
    for cpu in cpus:
        lock = open(home / f"cpu-{cpu}", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _claimed.append(lock)
        return cpu
    return cpus[os.getpid() % len(cpus)]


class Uml:
    """One boot of a machine: from its power on to its end."""

    kind = "uml"

    def __init__(self, lab, spec, agent, console, initrd, _accelerator):
        self._name, self._wires = spec.name, lab.wires
        self.log_path = lab.log_dir / f"{spec.name}.uml"
        ends = lab.wires.ends(spec.name)
        state = lab.log_dir / f"{spec.name}.uml.d"  # files it would put into the user's home
        shutil.rmtree(state, ignore_errors=True)
        argv = ["prlimit", "--core=0", "taskset", "-c", str(lab.cpu), kernel.image(spec.kernel), *COMMAND_LINE.split(),
                f"mem={spec.ram_mib}M", f"initrd=/proc/self/fd/{initrd}", f"con0=null,fd:{console.fileno()}",
                f"ssl0=fd:{agent.fileno()}", f"uml_dir={state}", f"umid={spec.name}"]
        for number, (link, mac, end) in enumerate(ends):
            self.set_link(link.name, True)
            argv.append(f"vec{number}:transport=fd,fd={end.fileno()},mac={mac},mtu={link.mtu}")
        passed = [agent.fileno(), console.fileno(), initrd, *(end.fileno() for _link, _mac, end in ends)]
        self.process = start_bound(argv, passed, self.log_path)

    def set_link(self, link, up):
        """The wire loses everything, or no longer; the interface keeps its carrier."""
        self._wires.set_link(self._name, link, up)

    def set_paused(self, paused):
        """Stops the kernel's process, without which its programs don't run; the host's clock goes on."""
        self.process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def cpu_s(self):
        """The kernel's, and that of its processes."""
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ended_ticks = sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]))
        alive_ns = sum(int(pathlib.Path(f"/proc/{each}/schedstat").read_text().split()[0]) for each in [pid, *children])
        return alive_ns / 1e9 + ended_ticks / os.sysconf("SC_CLK_TCK")
