# SPDX-License-Identifier: GPL-2.0
"""A machine as QEMU runs it, with KVM or emulated."""

import asyncio
import json
import pathlib
import socket
import threading

from . import accel, kernel
from .channel import MachineDied
from .child import start_bound
from .say import LabError

QEMU = "qemu-system-x86_64"

# Emulation under load is slow, and the kernel's watchdogs must not mistake that for a hang. norandmaps: QEMU
# translates code for the address it runs at, so a program that starts elsewhere each time is translated anew
# each time, which makes starting one three times as slow.
COMMAND_LINE = ("console=ttyS0 loglevel=5 oops=panic panic=-1 net.ifnames=0 nokaslr norandmaps mitigations=off "
                "random.trust_cpu=on no_timer_check 8250.nr_uarts=1 "
                "rcupdate.rcu_cpu_stall_timeout=150 watchdog_thresh=60 workqueue.watchdog_thresh=150 "
                "sysctl.kernel.hung_task_timeout_secs=120 sysctl.kernel.sysrq=1")


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


class Qemu:
    """One boot of a machine: from its power on to its end."""

    def __init__(self, lab, spec, agent, console, initrd, accelerator):
        self._name, self._wires, self.kind = spec.name, lab.wires, accelerator
        self.log_path = lab.log_dir / f"{spec.name}.qemu"
        qmp, theirs = socket.socketpair()
        argv, ports = self._network(spec.nic)
        fabric = lab.ntbs.of(spec.name)
        argv = [*_base_arguments(lab, spec, accelerator, fabric), *argv,
                "-initrd", f"/proc/self/fd/{initrd}",
                "-chardev", f"socket,id=agent,fd={agent.fileno()}",
                "-device", "virtserialport,chardev=agent,name=org.remora.lab",
                "-chardev", f"socket,id=console,fd={console.fileno()}", "-serial", "chardev:console",
                "-chardev", f"socket,id=qmp,fd={theirs.fileno()}", "-mon", "chardev=qmp,mode=control"]
        if fabric:
            argv = fabric.command(spec.name, argv)
        passed = [agent.fileno(), console.fileno(), theirs.fileno(), initrd, *ports]
        self.process = start_bound(argv, passed, self.log_path)
        theirs.close()
        try:
            self._qmp = Qmp(lab.pump, spec.name, qmp)
        except LabError:
            self.process.kill()
            raise

    def _network(self, nic):
        """QEMU's arguments for a machine's links, and the descriptors it must inherit."""
        argv, ports = [], []
        for index, (link, mac, end) in enumerate(self._wires.ends(self._name)):
            card = f"virtio-net-pci,host_mtu={link.mtu}" if nic == "virtio" else nic
            argv += ["-netdev", f"dgram,id=wire{index},local.type=fd,local.str={end.fileno()}",
                     "-device", f"{card},id=nic{index},netdev=wire{index},mac={mac},romfile="]
            ports.append(end.fileno())
        return argv, ports

    def qmp(self, verb, **arguments):
        return self._qmp.command(verb, **arguments)

    def set_link(self, link, up):
        """Gives or takes an interface's carrier."""
        names = [each.name for each, _mac, _end in self._wires.ends(self._name)]
        self.qmp("set_link", name=f"nic{names.index(link)}", up=up)

    def set_paused(self, paused):
        self.qmp("stop" if paused else "cont")

    def send_break(self):
        """A break on the console's line: the kernel takes the next key there for a SysRq."""
        self.qmp("chardev-send-break", id="console")

    def cpu_s(self):
        threads = [cpu["thread-id"] for cpu in self.qmp("query-cpus-fast")]
        stats = (pathlib.Path(f"/proc/{self.process.pid}/task/{thread}/schedstat") for thread in threads)
        return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9


def _base_arguments(lab, spec, accelerator, fabric):
    shares = []
    for tag, path in {"host": "/", **lab.layers}.items():
        shares += ["-fsdev", f"local,id={tag},path={path},security_model=none,readonly=on,multidevs=remap",
                   "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-name", spec.name, "-machine", "pc,usb=off,vmport=off",
            *accel.arguments(accelerator),
            "-m", f"{spec.ram_mib}M",
            # A socket each: the BIOS's MP table, read without ACPI, lists one CPU a socket.
            "-smp", f"{spec.cpus},sockets={spec.cpus},cores=1",
            "-kernel", str(kernel.image(spec.kernel)),
            "-append", f"{COMMAND_LINE} {accel.command_line(accelerator)} "
                       f"{fabric.command_line(spec.name) if fabric else ''}",
            "-device", "virtio-serial-pci", "-device", "virtio-rng-pci", *shares]
