# SPDX-License-Identifier: GPL-2.0
"""A machine's serial console: logged, searched, and watched for the kernel's complaints.

A complaint is a line by which the kernel says that something is broken. It fails the run, whichever
test was going, unless a test announced it (Console.expecting).
"""

import asyncio
import contextlib
import re
import threading

from . import say
from .channel import CommandTimeout, MachineDied

# The kernel's ways to say that it, or a module in it, is broken.
COMPLAINTS = re.compile(r"""
    \bBUG:\s | \bWARNING:\s | KASAN:\s | UBSAN:\s | KCSAN:\s | ODEBUG:\s | refcount_t:\s
    | \bOops\b | kernel\ BUG\ at | general\ protection\ fault | Kernel\ panic
    | INFO:\ possible\ | possible\ circular\ locking | possible\ recursive\ locking
    | suspicious\ RCU\ usage | bad\ unlock\ balance | inconsistent\ lock\ state
    | INFO:\ task\ .*\ blocked\ for\ more | soft\ lockup | hard\ LOCKUP
    | rcu.*\ (?:self-)?detected\ .*stall
    | (?:list_add|list_del)\ corruption | Bad\ page\ state | Bad\ rss-counter | Freeing\ slab
    | kmemleak:\ [1-9]\d*\ new\ suspected | Objects\ remaining\ in\ | Slab\ cache\ still\ has\ objects
    | page\ allocation\ failure | invoked\ oom-killer | Out\ of\ memory:
    | unregister_netdevice:\ waiting | NETDEV\ WATCHDOG
    | segfault\ at\ | ^traps:\ | lab\ init:\s
""", re.X)
_STAMP = re.compile(r"^\[\s*\d+\.\d+\](?:\[\s*[TC]\d+\])?\s")
# Lines after a complaint that are shown with it: a KASAN report's two stacks fit.
REPORT_LINES = 60
LINES_MAX = 50_000


class Complaint:
    def __init__(self, machine, line, index):
        self.machine, self.line, self.index = machine, line, index

    def __str__(self):
        return f"{self.machine}: {self.line}"


class Console(asyncio.Protocol):
    """Methods of asyncio.Protocol run on the pump; the others are for tests."""

    def __init__(self, machine, log_path):
        self.machine, self.log_path = machine, log_path
        self.complaints = []
        self._log = open(log_path, "ab", buffering=0)
        self._partial = b""
        self._lines = []
        self._dropped = 0  # lines forgotten from the front, so that marks stay valid
        self._expected = []
        self._changed = threading.Condition()
        self._closed = False

    def data_received(self, data):
        self._log.write(data)
        *whole, self._partial = (self._partial + data).split(b"\n")
        with self._changed:
            for raw in whole:
                self._take(raw.decode(errors="replace").rstrip("\r"))
            self._changed.notify_all()

    def _take(self, line):
        self._lines.append(line)
        text = _STAMP.sub("", line)
        if COMPLAINTS.search(text) and not any(e.search(text) for e in self._expected):
            self.complaints.append(Complaint(self.machine, text, self._dropped + len(self._lines) - 1))
            say.stage(f"{self.machine}: the kernel complains: {text}")
        if len(self._lines) > LINES_MAX:
            del self._lines[:LINES_MAX // 2]
            self._dropped += LINES_MAX // 2

    def connection_made(self, transport):
        self._closed, self._transport = False, transport

    def type(self, pump, text):
        """Types on its keyboard."""
        pump.soon(self._transport.write, text.encode())

    def connection_lost(self, _error):
        with self._changed:
            if self._partial:
                self._take(self._partial.decode(errors="replace"))
                self._partial = b""
            self._closed = True
            self._changed.notify_all()

    def mark(self):
        """A place in the console: now."""
        with self._changed:
            return self._dropped + len(self._lines)

    def since(self, mark):
        with self._changed:
            return self._lines[max(0, mark - self._dropped):]

    def tail(self, count=30):
        with self._changed:
            return self._lines[-count:]

    def report(self, complaint):
        """The complaint with what the kernel printed after it."""
        return self.since(complaint.index)[:REPORT_LINES]

    def wait(self, pattern, timeout, mark):
        """The first match of a regular expression in a line since `mark`; bounded in seconds."""
        wanted = re.compile(pattern)
        found = None

        def search():
            nonlocal found, mark
            for line in self._lines[max(0, mark - self._dropped):]:
                found = wanted.search(line)
                if found:
                    return True
            mark = self._dropped + len(self._lines)
            return self._closed

        with self._changed:
            if not self._changed.wait_for(search, timeout):
                raise CommandTimeout(f"{self.machine}: console said no /{pattern}/ in {timeout} s")
        if not found:
            raise MachineDied(f"{self.machine} went off; its console never said /{pattern}/")
        return found

    @contextlib.contextmanager
    def expecting(self, pattern):
        """Within it, complaints matching `pattern` are expected and don't fail the run."""
        compiled = re.compile(pattern)
        with self._changed:
            self._expected.append(compiled)
        try:
            yield
        finally:
            with self._changed:
                self._expected.remove(compiled)
