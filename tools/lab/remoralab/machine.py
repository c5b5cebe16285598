# SPDX-License-Identifier: GPL-2.0
"""One machine of the lab: a process (qemu.py, uml.py), its console, its command channel.

Every socket to that process is one half of a socketpair passed by descriptor, and the initramfs is a memory
file: a machine leaves nothing in the file system but its console's log, and setpriv has the kernel
kill the process when the lab dies.
"""

import os
import re
import shlex
import socket
import time

from . import initramfs, kernel, say
from .channel import Channel, CommandFailed, MachineDied
from .console import Console
from .qemu import Qemu
from .say import LabError
from .uml import Uml

BOOT_S = 180
KMEMLEAK = "/sys/kernel/debug/kmemleak"


class Machine:
    """A machine as tests see it: lab['compute']."""

    def __init__(self, lab, spec):
        self.lab, self.spec, self.name, self.role = lab, spec, spec.name, spec.role
        self.console = Console(spec.name, lab.log_dir / f"{spec.name}.console")
        self.channel = None
        self._power = None

    def __repr__(self):
        return f"<machine {self.name}>"

    # Power

    def power_on(self, accelerator=None):
        """Starts its QEMU or User Mode Linux; wait_ready() says when it can be used."""
        if self.is_on():
            raise LabError(f"{self.name} is on already")
        pump = self.lab.pump
        agent, console = (socket.socketpair() for _ in range(2))
        image = initramfs.build(self.lab.topology, self.spec, self.lab.layers)
        initrd = os.memfd_create("initrd", os.MFD_CLOEXEC)
        os.truncate(initrd, len(image))
        os.pwrite(initrd, image, 0)
        self.lab.wires.connect(self.name)
        self._booted_s = time.monotonic()
        native = kernel.is_uml(self.spec.kernel)
        self._power = (Uml if native else Qemu)(self.lab, self.spec, agent[1], console[1], initrd,
                                                accelerator or self.lab.accel)
        for passed in (agent[1], console[1]):
            passed.close()
        os.close(initrd)
        pump.attach(console[0], self.console)
        self.channel = Channel(pump, self.name, agent[0], serial=native)

    def wait_ready(self, timeout=BOOT_S):
        """Waits for the agent's first word; at the bound the machine is killed and its console shown."""
        power = self._power
        if not self.channel.wait_hello(timeout):
            hung = not self.channel.closed
            self.kill()
            noise = power.log_path.read_text(errors="replace").splitlines()[-5:]
            raise LabError(f"{self.name} {'hung' if hung else 'died'} at boot; its process and the console said:\n"
                           + "\n".join([*noise, *self.console.tail()]))
        self.boot_s = time.monotonic() - self._booted_s
        say.stage(f"{self.name}: up in {self.boot_s:.1f} s, {self.channel.hello}, "
                  f"{self.spec.ram_mib} MiB, {self.spec.cpus} CPU, {power.kind}")
        if self.lab.on_boot:
            self.lab.on_boot(self)

    def boot(self, timeout=BOOT_S):
        """Powers on and waits until it can be used."""
        self.power_on()
        self.wait_ready(timeout)

    def kill(self):
        """Cuts its power."""
        if self._power is None:
            return
        self._power.process.kill()
        self._power.process.wait()
        self._power = None
        if self.channel:
            self.channel.close()
        self.lab.wires.disconnect(self.name)

    def is_on(self):
        return self._power is not None and self._power.process.poll() is None

    def qmp(self, verb, **arguments):
        """A command to QEMU itself."""
        return self._power.qmp(verb, **arguments)

    def set_link(self, link, up):
        """Plugs its end of a link in or out."""
        self._power.set_link(link, up)

    def pause(self):
        """Its processors stand still until resume(), as in a machine that is moved or saved."""
        self._power.set_paused(True)

    def resume(self):
        self._power.set_paused(False)

    def cpu_s(self):
        """Seconds of the host's CPUs that its own CPUs took since it was powered on."""
        return self._power.cpu_s()

    # Commands

    def spawn(self, command, terminal=None, on_output=None):
        """Starts a shell command (a string) or a program (a list of words); returns its Process."""
        if self.channel is None:
            raise MachineDied(f"{self.name} is off")
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else [str(w) for w in command]
        return self.channel.start(words, terminal, on_output)

    def run(self, command, timeout=60, check=True, stream=False, input=None):
        """Runs a command to its end. With `check` a status other than 0 raises CommandFailed."""
        process = self.spawn(command, on_output=say.Stream(self.name) if stream else None)
        if input is not None:
            process.send(input.encode() if isinstance(input, str) else input, timeout)
        process.end_input()
        result = process.wait(timeout)
        if check and result.rc != 0:
            shown = "\n".join((result.out + result.err).splitlines()[-20:])
            raise CommandFailed(f"{self.name}: status {result.rc}: {process.describe()}\n{shown}")
        return result

    def read(self, path, timeout=60):
        """A file of the guest, as text."""
        return self.run(["cat", path], timeout).out

    def read_bytes(self, path, timeout=60):
        process = self.spawn(["cat", path])
        if process.wait(timeout).rc != 0:
            raise CommandFailed(f"{self.name}: {process.err.strip()}")
        return process.out_bytes

    def write(self, path, data, timeout=60):
        """Writes a file of the guest (also one of /proc or /sys)."""
        self.run(f"cat > {shlex.quote(str(path))}", timeout, input=data)

    def insmod(self, *paths, timeout=60):
        """Inserts modules built in the repository, one after the other, the kernel's own that they depend on first."""
        wanted = set().union(*(kernel.modules_needed(self.spec.kernel, path) for path in paths))
        first = [f"modprobe -a {' '.join(sorted(wanted))}"] if wanted else []
        if paths:
            self.run(" && ".join([*first, *(f"insmod {shlex.quote(str(path))}" for path in paths)]), timeout)

    # Console and the kernel's checkers

    def console_mark(self):
        return self.console.mark()

    def wait_console(self, pattern, timeout=60, mark=0):
        """Waits for a line of the console (since `mark`) matching a regular expression; the match."""
        return self.console.wait(pattern, timeout, mark)

    def show_stuck_tasks(self, timeout=60):
        """Prints where tasks wait, and the memory, on the console. Works in a QEMU that runs no command any more."""
        for key, done in (("8", "Loglevel set"), ("m", "pages hwpoisoned"), ("w", "Show Blocked State")):
            mark = self.console_mark()
            self._power.send_break()
            self.console.type(self.lab.pump, key)
            self.wait_console(done, timeout, mark)
        time.sleep(2)  # the stacks follow; nothing tells their end

    def settle(self, note, timeout=30):
        """Writes a note into the kernel's log and waits for it on the console: what the kernel said
        before it has arrived too."""
        settle([self], note, timeout)

    def expect_complaint(self, pattern):
        """with m.expect_complaint(r'BUG: ...'): such complaints of the kernel don't fail the run."""
        return self.console.expecting(pattern)

    def kmemleak_scan(self):
        """Begins to look for leaked memory (debug kernel), which takes its time."""
        # An object must be unreferenced in two scans, and older than 5 s, to count.
        return self.spawn(f"echo scan > {KMEMLEAK} && sleep 6 && echo scan > {KMEMLEAK}")

    def kmemleak(self, scan, timeout=300, ignore=None):
        """The leaks that kmemleak_scan() found; a leak is a complaint, shown with its backtrace.
        ignore: a regular expression; objects whose report it is found in don't count."""
        result = scan.wait(timeout)
        if result.rc != 0:
            raise CommandFailed(f"{self.name}: no scan by kmemleak: {result.err.strip()}")
        reports = re.split(r"^(?=unreferenced object)", self.read(KMEMLEAK, timeout), flags=re.M)
        found = "".join(report for report in reports if not (ignore and re.search(ignore, report)))
        leaks = len(re.findall(r"^unreferenced object", found, re.M))
        if leaks:
            self.write("/dev/kmsg", f"<4>kmemleak: {leaks} new suspected memory leaks\n")
            for line in found.splitlines()[:40]:
                self.write("/dev/kmsg", f"<4>{line}\n")
            self.run(f"echo clear > {KMEMLEAK}")
        return found

    # Network

    def netem(self, device, how, timeout=60):
        """Delays, drops or reorders what leaves by `device`: tc-netem(8)'s words; '' ends it."""
        if how:
            self.run(f"tc qdisc replace dev {device} root netem {how}", timeout)
        else:
            self.run(f"tc qdisc del dev {device} root", timeout, check=False)


def settle(machines, note, timeout=30):
    """Machine.settle() of several at once."""
    marks = [machine.console.mark() for machine in machines]
    writers = [machine.spawn(f"echo {shlex.quote('<5>lab: ' + note)} > /dev/kmsg") for machine in machines]
    for machine, mark, writer in zip(machines, marks, writers):
        if writer.wait(timeout).rc != 0:
            raise CommandFailed(f"{machine.name}: can't write to the kernel's log: {writer.err.strip()}")
        machine.wait_console(re.escape(f"lab: {note}"), timeout, mark)
