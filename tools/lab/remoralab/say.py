# SPDX-License-Identifier: GPL-2.0
"""Messages to the person in front of the lab: a line per stage, with the time since the start.

Everything goes to stderr, so that stdout stays clean for TAP, paths and the output of commands.
"""

import os
import signal
import sys
import threading
import time

_START = time.monotonic()
_lock = threading.Lock()
_progress_shown = False


def elapsed_s():
    return time.monotonic() - _START


def _clear():
    global _progress_shown
    if _progress_shown:
        sys.stderr.write("\r\x1b[K" if sys.stderr.isatty() else "")
        _progress_shown = False


def stage(text):
    """One line: a stage that has begun or ended."""
    if os.environ.get("REMORA_LAB_QUIET"):
        return
    with _lock:
        _clear()
        sys.stderr.write(f"[{elapsed_s():6.1f}s] {text}\n")
        sys.stderr.flush()


class Progress:
    """A progress bar for a long stage: redrawn on a terminal, a line now and then in a log."""

    LOG_EVERY_S = 20

    def __init__(self, what, total):
        self.what, self.total, self.done = what, max(total, 1), 0
        self._next_s = 0.0

    def step(self, detail=""):
        global _progress_shown
        self.done += 1
        now = elapsed_s()
        if now < self._next_s:
            return
        tty = sys.stderr.isatty()
        self._next_s = now + (0.1 if tty else self.LOG_EVERY_S)
        percent = min(99, 100 * self.done // self.total)
        bar = "#" * (percent // 5)
        text = f"[{now:6.1f}s] {self.what} [{bar:<20}] {percent:2}% {detail[:40]}"
        with _lock:
            if tty:
                sys.stderr.write("\r\x1b[K" + text)
                _progress_shown = True
            else:
                sys.stderr.write(text + "\n")
            sys.stderr.flush()


class LabError(Exception):
    """Something the lab can explain: one line, what is wrong and what to do."""


# To take down what was started takes no longer.
TAKE_DOWN_S = 15


def exit_on_signals():
    """Has SIGTERM and SIGHUP end the process like Ctrl-C, so that what it started is taken down.

    An exception out of nowhere may leave a lock taken that the taking down wants. Then the alarm ends the
    process, and its machines end with it.
    """
    def interrupt(_signal, _frame):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(TAKE_DOWN_S)
        raise KeyboardInterrupt
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


# A signal that comes as the main thread is about to wait is handled when the wait ends: so each is as short as this.
WAIT_S = 1


def main_guard(main):
    """Runs main(), turning LabError into one line on stderr and exit status 1."""
    try:
        sys.exit(main())
    except LabError as error:
        with _lock:
            _clear()
        sys.stderr.write(f"{os.path.basename(sys.argv[0])}: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)


class Stream:
    """Prints a guest's output as it comes, a prefix on each line: '# compute| text'."""

    def __init__(self, name, write=None):
        self._prefix = f"# {name}| "
        self._write = write or (lambda text: (sys.stdout.write(text), sys.stdout.flush()))
        self._partial = {}

    def __call__(self, kind, payload):
        """A listener for Process: `kind` is a frame type of channel.py."""
        if kind in (65, 66):
            *lines, rest = (self._partial.get(kind, b"") + payload).split(b"\n")
            self._partial[kind] = rest
        elif kind == 67:
            lines = [rest for rest in self._partial.values() if rest]
            self._partial.clear()
        else:
            return
        for line in lines:
            self._write(f"{self._prefix}{line.decode(errors='replace').rstrip()}\n")
