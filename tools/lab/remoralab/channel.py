# SPDX-License-Identifier: GPL-2.0
"""The command channel to one machine: the host's end of tools/lab/guest/frame.hpp.

Descriptors are served by one background thread, the pump. Tests call from their own thread; they
wait on conditions with a bound, and the pump wakes them.
"""

import asyncio
import math
import os
import signal
import struct
import threading
import time

from . import say
from .say import LabError

HEADER = struct.Struct("<IIB3x")
PAYLOAD_MAX = 64 * 1024
INPUT_WINDOW = 256 * 1024
SERIAL_WINDOW = 3 * 1024
RUN, INPUT, SIGNAL, RESIZE = 1, 2, 3, 4
HELLO, OUTPUT, ERROR, EXITED, CONSUMED, TAKEN = 64, 65, 66, 67, 68, 69

# Seconds for a killed process, or an answering agent under load, before the machine counts as hung.
GRACE_S = 20


class MachineDied(LabError):
    """The machine went off while something waited for it."""


class CommandTimeout(LabError):
    """A command outlived its time bound and was killed."""


class CommandFailed(LabError):
    """A command ended with a status other than 0."""


class Pump:
    """An event loop in a thread of its own; it lives as long as the lab's process."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True, name="lab-pump").start()

    def call(self, coroutine):
        """Runs a coroutine on the pump and waits for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout=60)

    def soon(self, function, *args):
        self.loop.call_soon_threadsafe(function, *args)

    def attach(self, sock, protocol):
        """Serves a connected stream socket with an asyncio protocol; returns the transport."""
        async def connect():
            transport, _ = await self.loop.create_connection(lambda: protocol, sock=sock)
            return transport
        return self.call(connect())


class Result:
    """Output and exit status of a command."""

    def __init__(self, out, err, rc):
        self.out, self.err, self.rc = out, err, rc

    def __repr__(self):
        return f"Result(rc={self.rc}, out={self.out!r}, err={self.err!r})"


class Process:
    """A command running in a machine."""

    def __init__(self, channel, ident, words, on_output=None):
        self.channel, self.ident, self.words = channel, ident, words
        self.rc = None
        self._out, self._err = bytearray(), bytearray()
        self._on_output = on_output
        self._unconsumed = 0
        self._changed = threading.Condition()
        self._died = False

    def __repr__(self):
        return f"<{self.channel.name}: {self.describe()}>"

    def describe(self):
        words = self.words[2:] if self.words[:2] == ["/bin/sh", "-c"] else self.words
        text = " ".join(words).replace("\n", "; ")
        return text if len(text) <= 100 else text[:97] + "..."

    @property
    def out(self):
        """Standard output so far, as text."""
        return bytes(self._out).decode(errors="replace")

    @property
    def out_bytes(self):
        return bytes(self._out)

    @property
    def err(self):
        return bytes(self._err).decode(errors="replace")

    # Called by the pump.
    def take(self, kind, payload):
        with self._changed:
            if kind == OUTPUT:
                self._out += payload
            elif kind == ERROR:
                self._err += payload
            elif kind == EXITED:
                self.rc = struct.unpack("<i", payload)[0]
            elif kind == CONSUMED:
                self._unconsumed -= struct.unpack("<I", payload)[0]
            self._changed.notify_all()
        if self._on_output:
            self._on_output(kind, payload)

    def lost(self):
        with self._changed:
            self._died = True
            self._changed.notify_all()
        if self._on_output:
            self._on_output(EXITED, struct.pack("<i", 255))

    def _await(self, ready, timeout):
        """Waits until ready(); False at the bound."""
        deadline_s = math.inf if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not ready() and not self._died:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, say.WAIT_S))
            if not ready():
                raise MachineDied(f"{self.channel.name} went off while running: {self.describe()}")
            return True

    def wait(self, timeout=60):
        """Waits for its end; kills it and raises CommandTimeout at the bound (seconds)."""
        if not self._await(lambda: self.rc is not None, timeout):
            self.kill()
            raise CommandTimeout(f"{self.channel.name}: not done after {timeout} s, killed: {self.describe()}"
                                 f"\n{self._tail()}")
        return Result(self.out, self.err, self.rc)

    def wait_output(self, text, timeout=60):
        """Waits until its standard output or error contains `text`."""
        wanted = text.encode()
        if not self._await(lambda: wanted in self._out or wanted in self._err or self.rc is not None, timeout):
            raise CommandTimeout(f"{self.channel.name}: no '{text}' after {timeout} s: {self.describe()}"
                                 f"\n{self._tail()}")
        if wanted not in self._out and wanted not in self._err:
            raise CommandFailed(f"{self.channel.name}: ended with {self.rc} without '{text}': "
                                f"{self.describe()}\n{self._tail()}")

    def _tail(self):
        return "\n".join((self.out + self.err).splitlines()[-20:])

    def running(self):
        return self.rc is None and not self._died

    def signal(self, number):
        """Sends a signal to the command and the children in its process group."""
        if self.running():
            self.channel.send(SIGNAL, self.ident, struct.pack("<I", int(number)))

    def kill(self):
        """Kills it and waits for its end."""
        self.signal(signal.SIGKILL)
        if self.running() and not self._await(lambda: self.rc is not None, GRACE_S):
            raise CommandTimeout(f"{self.channel.name}: survives SIGKILL (stuck in the kernel?): {self.describe()}")

    def send(self, data, timeout=60):
        """Writes to its standard input; waits while the window is full."""
        for at in range(0, len(data), PAYLOAD_MAX):
            piece = data[at:at + PAYLOAD_MAX]
            if not self._await(lambda: self._unconsumed + len(piece) <= INPUT_WINDOW or self.rc is not None,
                               timeout):
                raise CommandTimeout(f"{self.channel.name}: takes no input: {self.describe()}")
            if self.rc is not None:
                return
            with self._changed:
                self._unconsumed += len(piece)
            self.channel.send(INPUT, self.ident, piece)

    def end_input(self):
        self.channel.send(INPUT, self.ident, b"")

    def resize(self, rows, columns):
        self.channel.send(RESIZE, self.ident, struct.pack("<HH", rows, columns))


class Channel(asyncio.Protocol):
    """The frames of one machine's port. Methods of asyncio.Protocol run on the pump."""

    def __init__(self, pump, name, sock, serial=False):
        self.pump, self.name = pump, name
        self.hello = None
        self._received = bytearray()
        self._serial = serial
        self._unsent, self._untaken = bytearray(), 0  # of a serial line
        self._processes = {}
        self._next_id = 1
        self.closed = False
        self._changed = threading.Condition()
        self._transport = pump.attach(sock, self)

    def data_received(self, data):
        self._received += data
        at = 0
        while len(self._received) - at >= HEADER.size:
            length, ident, kind = HEADER.unpack_from(self._received, at)
            end = at + HEADER.size + length
            if len(self._received) < end:
                break
            self._frame(kind, ident, bytes(self._received[at + HEADER.size:end]))
            at = end
        del self._received[:at]

    def _frame(self, kind, ident, payload):
        with self._changed:
            if kind == HELLO:
                self.hello = payload.decode()
                self._changed.notify_all()
                return
            if kind == TAKEN:
                self._untaken -= struct.unpack("<I", payload)[0]
                self._write(b"")
                return
            process = self._processes.get(ident)
            if kind == EXITED:
                self._processes.pop(ident, None)
        if process:
            process.take(kind, payload)

    def connection_lost(self, _error):
        with self._changed:
            self.closed = True
            lost, self._processes = self._processes, {}
            self._changed.notify_all()
        for process in lost.values():
            process.lost()

    def wait_hello(self, timeout):
        """Waits for the agent's first word; False at the bound or if the machine died."""
        with self._changed:
            self._changed.wait_for(lambda: self.hello or self.closed, timeout)
            return self.hello is not None

    def send(self, kind, ident, payload):
        self.pump.soon(self._write, HEADER.pack(len(payload), ident, kind) + payload)

    def _write(self, data):
        """On the pump. A serial line gets no more than its window has room for."""
        if self._serial:
            self._unsent += data
            data = bytes(self._unsent[:SERIAL_WINDOW - self._untaken])
            del self._unsent[:len(data)]
            self._untaken += len(data)
        if data:
            self._transport.write(data)

    def start(self, words, terminal=None, on_output=None):
        """Starts a command; `terminal` is (rows, columns), or None for pipes."""
        with self._changed:
            if self.closed or self.hello is None:
                raise MachineDied(f"{self.name} is off")
            process = Process(self, self._next_id, words, on_output)
            self._processes[self._next_id] = process
            self._next_id += 1
        payload = struct.pack("<HH", *(terminal or (0, 0))) + b"".join(os.fsencode(w) + b"\0" for w in words)
        if len(payload) > PAYLOAD_MAX:
            raise LabError(f"{self.name}: command longer than {PAYLOAD_MAX} bytes; write it to a file first")
        self.send(RUN, process.ident, payload)
        return process

    def close(self):
        self.pump.soon(self._transport.abort)
