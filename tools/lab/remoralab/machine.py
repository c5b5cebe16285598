# SPDX-License-Identifier: GPL-2.0
"""One machine of the lab: a QEMU process, its console, its command channel.

Every socket to QEMU is one half of a socketpair passed by descriptor, and the initramfs is a memory
file: a machine leaves nothing in the file system but its console's log, and setpriv has the kernel
kill QEMU when the lab dies.
"""

import asyncio
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time

from . import accel, initramfs, kernel, say
from .channel import Channel, CommandFailed, MachineDied
from .console import Console
from .say import LabError

QEMU = "qemu-system-x86_64"
BOOT_S = 180
KMEMLEAK = "/sys/kernel/debug/kmemleak"

# Emulation under load is slow, and the kernel's watchdogs must not mistake that for a hang. norandmaps: QEMU
# translates code for the address it runs at, so a program that starts elsewhere each time is translated anew
# each time, which makes starting one three times as slow.
COMMAND_LINE = ("console=ttyS0 loglevel=5 oops=panic panic=-1 net.ifnames=0 nokaslr norandmaps mitigations=off "
                "random.trust_cpu=on no_timer_check 8250.nr_uarts=1 "
                "rcupdate.rcu_cpu_stall_timeout=150 watchdog_thresh=60 workqueue.watchdog_thresh=150 "
                "sysctl.kernel.hung_task_timeout_secs=120")


class Qmp(asyncio.Protocol):
    """QEMU's control socket: one command at a time, its answer awaited."""

    def __init__(self, pump, name, sock):
        self._pump, self._name = pump, name
        self._received = b""
        self._answers = []
        self._closed = False
        self._changed = threading.Condition()
        self._transport = pump.attach(sock, self)
        self.command("qmp_capabilities")

    def data_received(self, data):
        *lines, self._received = (self._received + data).split(b"\n")
        with self._changed:
            for message in map(json.loads, filter(None, (line.strip() for line in lines))):
                if "return" in message or "error" in message:
                    self._answers.append(message)
            self._changed.notify_all()

    def connection_lost(self, _error):
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def command(self, verb, **arguments):
        with self._changed:
            self._answers.clear()
            self._pump.soon(self._transport.write,
                            json.dumps({"execute": verb, "arguments": arguments}).encode() + b"\n")
            if not self._changed.wait_for(lambda: self._answers or self._closed, 30):
                raise LabError(f"{self._name}: QEMU did not answer {verb} in 30 s")
            if not self._answers:
                raise MachineDied(f"{self._name} went off during {verb}")
            answer = self._answers.pop(0)
        if "error" in answer:
            raise LabError(f"{self._name}: QEMU refused {verb}: {answer['error']['desc']}")
        return answer["return"]


class Machine:
    """What a test holds: lab['compute']."""

    def __init__(self, lab, spec):
        self.lab, self.spec, self.name, self.role = lab, spec, spec.name, spec.role
        self.console = Console(spec.name, lab.log_dir / f"{spec.name}.console")
        self.channel = None
        self._qmp = None
        self._qemu = None

    def __repr__(self):
        return f"<machine {self.name}>"

    # Power

    def power_on(self, accelerator=None):
        """Starts QEMU; wait_ready() says when it can be used."""
        if self.is_on():
            raise LabError(f"{self.name} is on already")
        pump = self.lab.pump
        agent, console, qmp = (socket.socketpair() for _ in range(3))
        image = initramfs.build(self.lab.topology, self.spec, list(self.lab.layers))
        initrd = os.memfd_create("initrd", os.MFD_CLOEXEC)
        os.truncate(initrd, len(image))
        os.pwrite(initrd, image, 0)
        passed = [agent[1].fileno(), console[1].fileno(), qmp[1].fileno(), initrd]
        network, ports = self.lab.wires.arguments(self.name)
        argv = [*self._base_arguments(accelerator or self.lab.accel), *network,
                "-initrd", f"/proc/self/fd/{initrd}",
                "-chardev", f"socket,id=agent,fd={passed[0]}",
                "-device", "virtserialport,chardev=agent,name=org.remora.lab",
                "-chardev", f"socket,id=console,fd={passed[1]}", "-serial", "chardev:console",
                "-chardev", f"socket,id=qmp,fd={passed[2]}", "-mon", "chardev=qmp,mode=control"]
        self.lab.wires.connect(self.name)
        self._booted_s = time.monotonic()
        self._qemu = start_bound(argv, [*passed, *ports], self.lab.log_dir / f"{self.name}.qemu")
        for mine in (agent[1], console[1], qmp[1]):
            mine.close()
        os.close(initrd)
        pump.attach(console[0], self.console)
        self.channel = self._qmp = None
        self.channel = Channel(pump, self.name, agent[0])
        self._qmp = Qmp(pump, self.name, qmp[0])

    def _base_arguments(self, accelerator):
        shares = []
        for tag, path in {"host": "/", **self.lab.layers}.items():
            shares += ["-fsdev", f"local,id={tag},path={path},security_model=none,readonly=on,multidevs=remap",
                       "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        return [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-name", self.name, "-machine", "pc,usb=off,vmport=off", *accel.arguments(accelerator),
                "-m", f"{self.spec.ram_mib}M",
                # A socket each: the BIOS's MP table, read without ACPI, lists one CPU a socket.
                "-smp", f"{self.spec.cpus},sockets={self.spec.cpus},cores=1",
                "-kernel", str(kernel.image(self.spec.kernel)),
                "-append", f"{COMMAND_LINE} {accel.command_line(accelerator)}",
                "-device", "virtio-serial-pci", "-device", "virtio-rng-pci", *shares]

    def wait_ready(self, timeout=BOOT_S):
        """Waits for the agent's first word; at the bound the machine is killed and its console shown."""
        if not self.channel.wait_hello(timeout):
            hung = not self.channel.closed
            self.kill()
            noise = (self.lab.log_dir / f"{self.name}.qemu").read_text(errors="replace").splitlines()[-5:]
            raise LabError(f"{self.name} {'hung' if hung else 'died'} at boot; QEMU and the console said:\n"
                           + "\n".join([*noise, *self.console.tail()]))
        self.boot_s = time.monotonic() - self._booted_s
        say.stage(f"{self.name}: up in {self.boot_s:.1f} s, {self.channel.hello}, "
                  f"{self.spec.ram_mib} MiB, {self.spec.cpus} CPU, {self.lab.accel}")
        if self.lab.on_boot:
            self.lab.on_boot(self)

    def boot(self, timeout=BOOT_S):
        """Powers on and waits until it can be used."""
        self.power_on()
        self.wait_ready(timeout)

    def kill(self):
        """Cuts its power."""
        if self._qemu is None:
            return
        self._qemu.kill()
        self._qemu.wait()
        self._qemu = None
        if self.channel:
            self.channel.close()
        self.lab.wires.disconnect(self.name)

    def is_on(self):
        return self._qemu is not None and self._qemu.poll() is None

    def qmp(self, verb, **arguments):
        """A command to QEMU itself."""
        return self._qmp.command(verb, **arguments)

    def cpu_s(self):
        """Seconds of the host's CPUs that its own CPUs took since it was powered on."""
        threads = [cpu["thread-id"] for cpu in self.qmp("query-cpus-fast")]
        stats = (pathlib.Path(f"/proc/{self._qemu.pid}/task/{thread}/schedstat") for thread in threads)
        return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9

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
        """What kmemleak_scan() found; a leak is a complaint, shown with its backtrace.
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


def start_bound(argv, passed, log_path):
    """Starts a process of the lab that the kernel kills when the lab's process dies."""
    for program in ("setpriv", argv[0]):
        if not shutil.which(program):
            raise LabError(f"{program} is missing: run tools/lab/deps")
    with open(log_path, "ab") as log:
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], pass_fds=passed,
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
