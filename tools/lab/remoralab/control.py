# SPDX-License-Identifier: GPL-2.0
"""`lab up` holds a lab for other commands; they reach it by an abstract Unix socket.

    lab sh, exec, status, down  --@remora-lab-UID-TOPO-->  lab up (holder)  --virtio-serial-->  agent

A client says one line of JSON, {"do": ..., "machine": ...}. For `exec` the connection then carries the
frames of channel.py, as if the holder were the machine's agent. The socket has no file and dies with
the holder; only the same user may connect.
"""

import asyncio
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import tty

from . import say
from .channel import EXITED, HEADER, HELLO, INPUT, RESIZE, RUN, SIGNAL, Channel, Pump
from .lab import Lab
from .say import LabError


def _prefix():
    return f"remora-lab-{os.getuid()}-"


def labs_up():
    """Names of the labs this user holds up."""
    with open("/proc/net/unix") as table:
        words = [line.split()[-1] for line in table]
    return sorted({w[1 + len(_prefix()):] for w in words if w.startswith("@" + _prefix())})


class _Client(asyncio.Protocol):
    """The holder's side of one connection."""

    def __init__(self, holder):
        self._holder = holder
        self._received = bytearray()
        self._channel = None
        self._processes = {}
        self._transport = None

    def connection_made(self, transport):
        self._transport = transport
        credentials = transport.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.getuid():
            transport.abort()

    def data_received(self, data):
        self._received += data
        if self._channel is None:
            line, newline, rest = self._received.partition(b"\n")
            if not newline:
                return
            self._received = bytearray(rest)
            self._request(json.loads(line))
        while self._channel and len(self._received) >= HEADER.size:
            length, ident, kind = HEADER.unpack_from(self._received)
            if len(self._received) < HEADER.size + length:
                break
            self._frame(kind, ident, bytes(self._received[HEADER.size:HEADER.size + length]))
            del self._received[:HEADER.size + length]

    def _request(self, request):
        lab = self._holder.lab
        if request["do"] == "down":
            self._holder.ending.set()  # the connection ends when the holder does
        elif request["do"] == "status":
            state = [{"name": m.name, "on": m.is_on(), "ram_mib": m.spec.ram_mib, "kernel": m.spec.kernel,
                      "console": str(m.console.log_path)} for m in lab]
            self._answer({"machines": state, "complaints": [str(c) for c in lab.complaints()]})
        elif request["do"] == "exec":
            machine = lab.machines.get(request["machine"])
            if machine is None or not machine.is_on():
                self._answer({"error": f"no machine '{request['machine']}' is on; there are {', '.join(lab.machines)}"})
                return
            self._channel = machine.channel
            self._answer({})
            self._send(HELLO, 0, b"")

    def _answer(self, answer):
        self._transport.write(json.dumps(answer).encode() + b"\n")

    def _send(self, kind, ident, payload):
        self._transport.write(HEADER.pack(len(payload), ident, kind) + payload)

    def _frame(self, kind, ident, payload):
        if kind == RUN:
            rows, columns = struct.unpack_from("<HH", payload)
            words = [os.fsdecode(word) for word in payload[4:].split(b"\0")[:-1]]
            self._processes[ident] = self._channel.start(
                words, (rows, columns) if rows else None, lambda k, p: self._send(k, ident, p))
        elif ident in self._processes and kind in (INPUT, SIGNAL, RESIZE):
            self._channel.send(kind, self._processes[ident].ident, payload)

    def connection_lost(self, _error):
        for process in self._processes.values():
            process.signal(signal.SIGKILL)


class _Holder:
    def __init__(self, lab):
        self.lab, self.ending = lab, threading.Event()

    def serve(self, name):
        async def listen():
            loop = self.lab.pump.loop
            return await loop.create_unix_server(lambda: _Client(self), path=f"\0{_prefix()}{name}")
        self.lab.pump.call(listen())


def up(topo, kernel_name, foreground):
    """Brings a lab up. Returns when it is (a process in the background holds it), or, in the
    foreground, when it is taken down."""
    name = os.path.basename(topo).removesuffix(".topo")
    if name in labs_up():
        raise LabError(f"{name} is up already: lab sh MACHINE enters it, lab down ends it")
    if foreground:
        _hold(topo, name, kernel_name, None)
        return
    ready, report = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready)
        os.setsid()
        status = 1
        try:
            _hold(topo, name, kernel_name, report)
            status = 0
        except LabError as error:
            sys.stderr.write(f"lab: {error}\n")
        except (KeyboardInterrupt, BrokenPipeError):
            pass
        finally:
            os._exit(status)
    os.close(report)
    try:
        told = os.read(ready, 1)
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    if not told:
        os.waitpid(child, 0)
        raise LabError(f"{name} did not come up")


def _hold(topo, name, kernel_name, report):
    say.exit_on_signals()
    with Lab(topo, kernel_name) as lab:
        holder = _Holder(lab)
        holder.serve(name)
        say.stage(f"{name} is up: lab sh {next(iter(lab)).name} enters it, lab down ends it")
        if report is not None:
            os.write(report, b"1")
            os.close(report)
            log = os.open(lab.log_dir / "holder.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            null = os.open(os.devnull, os.O_RDONLY)
            for fd, target in ((null, 0), (log, 1), (log, 2)):
                os.dup2(fd, target)
        while not holder.ending.wait(say.WAIT_S):
            pass


def _connect(name, request):
    """A connection to the holder of lab `name` (or of the only one), its answer, and what came after."""
    running = labs_up()
    if name is None:
        if len(running) != 1:
            raise LabError(f"several labs are up ({', '.join(running)}): say which with --lab" if running
                           else "no lab is up: lab up TOPO")
        name = running[0]
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(f"\0{_prefix()}{name}")
    except ConnectionRefusedError:
        raise LabError(f"lab {name} is not up: lab up {name}") from None
    sock.sendall(json.dumps(request).encode() + b"\n")
    return sock


def _read_answer(sock):
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = sock.recv(1)  # bytes behind the line belong to the channel
        if not byte:
            raise LabError("the lab went down")
        line += byte
    answer = json.loads(line)
    if "error" in answer:
        raise LabError(answer["error"])
    return answer


def down(name=None):
    sock = _connect(name, {"do": "down"})
    while sock.recv(4096):
        pass


def status(name=None):
    with _connect(name, {"do": "status"}) as sock:
        return _read_answer(sock)


def execute(name, machine, words):
    """Runs a command in a machine of a lab that is up, with this terminal if there is one."""
    sock = _connect(name, {"do": "exec", "machine": machine})
    _read_answer(sock)
    channel = Channel(Pump(), machine, sock)
    if not channel.wait_hello(10):
        raise LabError(f"{machine} does not answer")
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    ended_r, ended_w = os.pipe()

    def show(kind, payload):
        if kind == EXITED:
            os.write(ended_w, b"1")
        elif kind in (65, 66):
            os.write(1 if kind == 65 else 2, payload)

    size = _terminal_size() if interactive else None
    process = channel.start(words, size, show)
    if not interactive:
        _pump_input(process, ended_r)
        return process.wait(None).rc
    before = termios.tcgetattr(0)
    signal.signal(signal.SIGWINCH, lambda *_: process.resize(*_terminal_size()))
    try:
        tty.setraw(0, termios.TCSADRAIN)
        _pump_input(process, ended_r)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
    return process.wait(10).rc


def _terminal_size():
    rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))
    return rows or 24, columns or 80


def _pump_input(process, ended):
    """Standard input to the process, until either ends."""
    sources = [0, ended]
    while True:
        readable, _, _ = select.select(sources, [], [])
        if ended in readable:
            return
        data = os.read(0, 16384)
        if data:
            process.send(data, None)
        else:
            process.end_input()
            sources = [ended]
