# SPDX-License-Identifier: MIT
"""The C library as Python sees it: declarations, errors, buffers.

cffi's ABI mode: nothing is compiled, so one copy of this package serves every interpreter of a machine, also those of
virtual environments that Debian didn't build. selftests/front has a C compiler compare DECLARATIONS with the headers.
"""

import contextlib
import errno
import os
import re
import threading
from typing import Any, Callable, List, Optional, Tuple, Union

import cffi

DECLARATIONS = """
typedef struct remote_handle remote_t;
typedef struct remote_queue remote_queue_t;
typedef uint64_t raddr_t;

struct remote_options {
    size_t size;
    uint64_t timeout_us;
    uint32_t integrity;
    uint32_t reserved;
    uint64_t call_timeout_us;
    const uint8_t *key;
};
struct remote_node {
    size_t size;
    uint64_t page_bytes;
    uint64_t memory_bytes;
    uint64_t free_bytes;
    uint64_t round_trip_ns;
    uint64_t result_bytes;
};
struct remote_region {
    raddr_t address;
    uint64_t bytes;
    uint32_t permission;
    uint32_t names;
    char name[72];
};
struct remote_function {
    uint64_t offload;
    uint32_t function;
    uint32_t detail;
    const void *args;
    size_t args_bytes;
    void *result;
    size_t result_bytes;
};
struct remote_vec {
    raddr_t address;
    void *buffer;
    size_t bytes;
};
struct remote_signal {
    raddr_t address;
    size_t bytes;
    unsigned int what; /* enum remote_change */
    uint64_t value;
};
struct remote_kind_stats {
    uint64_t done, failed;
    uint64_t bytes;
};
struct remote_counters {
    size_t size;
    struct remote_kind_stats kind[16];
    uint64_t sent, received;
    uint64_t retries, timeouts;
    uint64_t damaged;
    uint64_t busy;
    uint64_t reopened;
    uint64_t unscheduled;
};

int remote_open(remote_t **r, const char *target, const struct remote_options *options);
void remote_close(remote_t *r);
const char *remote_why(void);
const char *remote_strerror(int error);
unsigned int remote_version(void);
int remote_info(remote_t *r, struct remote_node *node);
int remote_alloc(remote_t *r, uint64_t bytes, unsigned int permission, raddr_t *address);
int remote_free(remote_t *r, raddr_t address);
int remote_free_sized(remote_t *r, raddr_t address, uint64_t bytes);
int remote_lost(remote_t *r, raddr_t *address, uint64_t *bytes);
int remote_publish(remote_t *r, const char *name, raddr_t address);
int remote_lookup(remote_t *r, const char *name, raddr_t *address, uint64_t *bytes);
int remote_list(remote_t *r, raddr_t from, struct remote_region *regions, size_t max);
int remote_query(remote_t *r, struct remote_function *function);
int remote_call(remote_t *r, struct remote_function *function);
int remote_read(remote_t *r, raddr_t address, void *buffer, size_t bytes);
int remote_write(remote_t *r, raddr_t address, const void *buffer, size_t bytes);
int remote_copy(remote_t *r, raddr_t to, raddr_t from, size_t bytes);
int remote_release(remote_t *r);
int remote_fence(remote_t *r);
int remote_register(remote_t *r, void *buffer, size_t bytes);
int remote_unregister(remote_t *r, void *buffer);
int remote_readv(remote_t *r, const struct remote_vec *pieces, size_t count);
int remote_writev(remote_t *r, const struct remote_vec *pieces, size_t count);
int remote_fetch(remote_t *r, raddr_t address, size_t bytes, unsigned int what, uint64_t value, uint64_t *found);
int remote_cas(remote_t *r, raddr_t address, size_t bytes, uint64_t *expected, const uint64_t *desired);
int remote_put(remote_t *r, raddr_t address, const void *buffer, size_t bytes, const struct remote_signal *signal);
int remote_wait(remote_t *r, raddr_t address, size_t bytes, unsigned int compare, uint64_t value, uint64_t timeout_us,
                uint64_t *found);
int remote_stats(remote_t *r, struct remote_counters *counters);

int remote_lock_init(remote_t *r, raddr_t lock, uint64_t lease_us);
int remote_lock(remote_t *r, raddr_t lock);
int remote_lock_extend(remote_t *r, raddr_t lock);
int remote_unlock(remote_t *r, raddr_t lock);

struct remote_queue_options {
    size_t size;
    uint32_t depth;
    uint32_t reserved;
};
struct remote_op {
    uint32_t size;
    uint32_t kind;
    uint64_t user_data;
    uint64_t timeout_us;
    raddr_t address;
    raddr_t from;
    void *buffer;
    size_t bytes;
    const struct remote_vec *pieces;
    size_t count;
    const struct remote_signal *signal;
    uint64_t *found;
    uint64_t value[2];
    uint64_t expected[2];
    uint32_t change;
    uint32_t flags;
};
struct remote_completion {
    uint64_t user_data;
    int32_t result;
    uint32_t reserved;
};
int remote_queue_open(remote_queue_t **q, remote_t *r, const struct remote_queue_options *options);
void remote_queue_close(remote_queue_t *q);
int remote_queue_submit(remote_queue_t *q, const struct remote_op *ops, size_t count);
int remote_queue_wait(remote_queue_t *q, struct remote_completion *completions, size_t max, size_t at_least,
                      uint64_t timeout_us);
int remote_queue_cancel(remote_queue_t *q, uint64_t user_data);
int remote_queue_fd(remote_queue_t *q, uint64_t *next_us);
"""

PIECES_MAX = 4096
UINT64_MAX = (1 << 64) - 1

ffi = cffi.FFI()
ffi.cdef(DECLARATIONS)
lib: Any = ffi.dlopen("libremote.so.0")


# ---- errors ----


class Error(OSError):
    """An operation that failed: `errno`, and `strerror` with the library's words.

    Subclasses are also Python's own exceptions of that meaning: `except TimeoutError` catches Timeout.
    """

    #: Of a function at the node: its own errno (EREMOTEIO), or the microseconds it has used (ETIME).
    detail: Optional[int] = None


class Timeout(Error, TimeoutError):
    """ETIMEDOUT, EAGAIN: the node was silent too long, or the call took longer than its limit."""


class Denied(Error, PermissionError):
    """EACCES, EPERM: the region, the space or the lock doesn't permit it."""


class Lost(Error):
    """ESTALE: the node restarted, so its memory is lost. Handle.lost() tells which, then the handle goes on."""


class Uncertain(Error, ConnectionResetError):
    """ECONNRESET: the session ended before the answer came. The change was executed once or never."""


class Refused(Error, ConnectionRefusedError):
    """ECONNREFUSED: no node is there."""


class NotFound(Error, FileNotFoundError):
    """ENOENT: the space has no such name."""


class Exists(Error, FileExistsError):
    """EEXIST: the space has that name, or the memory is registered."""


class Forked(Error, ChildProcessError):
    """ECHILD: the handle belongs to the parent process. Open one in this process."""


CLASSES = {
    errno.ETIMEDOUT: Timeout, errno.EAGAIN: Timeout, errno.EACCES: Denied, errno.EPERM: Denied, errno.ESTALE: Lost,
    errno.ECONNRESET: Uncertain, errno.ECONNREFUSED: Refused, errno.ENOENT: NotFound, errno.EEXIST: Exists,
    errno.ECHILD: Forked,
}


def text(pointer: Any) -> str:
    return str(ffi.string(pointer), errors="replace")


def error_of(result: int, why: Optional[str] = None) -> Error:
    """The exception of a call's negative result."""
    return CLASSES.get(-result, Error)(-result, why or text(lib.remote_strerror(result)))


def check(result: int) -> int:
    if result < 0:
        raise error_of(result)
    return result


def microseconds(seconds: Optional[float], none: int) -> int:
    """A limit in seconds. None and infinity mean `none`."""
    if seconds is None or seconds == float("inf"):
        return none
    if not seconds >= 0:
        raise ValueError(f"{seconds!r} is not a time in seconds")
    return min(round(seconds * 1e6), UINT64_MAX - 1)


def call_kept(results: List[int], function: Any, *words: Any) -> None:
    """Calls the library and appends the result to a list of the caller. It is there even if a signal handler raises when
    the call returns: map() and extend() run no Python code between the call and the append."""
    results.extend(map(function, *([word] for word in words)))


# ---- buffers ----


Buffer = Any  # typing has no name for objects with the buffer protocol before Python 3.12


def export(buffer: Buffer, writable: bool) -> Any:
    """The memory of a contiguous buffer. Until unexport() its owner can neither free nor resize that memory."""
    view = memoryview(buffer)
    if "O" in re.sub(":[^:]*:", "", view.format):  # without the names of a structure's fields
        raise TypeError("the buffer holds Python objects: their addresses mean nothing elsewhere")
    if writable and view.readonly:
        raise BufferError("the buffer can't be written: use a bytearray or a writable array")
    return ffi.from_buffer("char[]", buffer, require_writable=writable)


def unexport(exports: List[Any]) -> None:
    """At once, for the traceback of an exception could keep them."""
    while exports:
        ffi.release(exports.pop())


def pieces_of(buffer: Buffer, writable: bool) -> List[Any]:
    """A strided buffer, such as a numpy slice, as contiguous pieces in order. It isn't copied."""
    if memoryview(buffer).c_contiguous:
        return [export(buffer, writable)]
    pieces: List[Any] = []
    inner = memoryview(buffer).ndim > 1
    try:
        for i in range(len(buffer)):
            pieces += pieces_of(buffer[i] if inner else buffer[i:i + 1], writable)
            if len(pieces) > PIECES_MAX:
                raise ValueError(f"the buffer has more than {PIECES_MAX} contiguous pieces: copy it to a contiguous one")
    except BaseException:
        unexport(pieces)
        raise
    return pieces


class Pieces:
    """struct remote_vec for a buffer, beginning at a remote address."""

    def __init__(self, address: int, buffers: List[Any]) -> None:
        self.exports = buffers
        self.count = len(buffers)
        self.native = ffi.new("struct remote_vec[]", self.count)
        for vec, memory in zip(self.native, buffers):
            vec.address, vec.buffer, vec.bytes = address, memory, len(memory)
            address += len(memory)

    @classmethod
    def listed(cls, pieces: Any, writable: bool) -> "Pieces":
        """For pairs of an address and a contiguous buffer."""
        addresses: List[int] = []
        exports: List[Any] = []
        try:
            for address, buffer in pieces:
                exports.append(export(buffer, writable))
                addresses.append(address)
        except BaseException:
            unexport(exports)
            raise
        made = cls(0, exports)
        for vec, address in zip(made.native, addresses):
            vec.address = address
        return made


# ---- native objects ----


class Native:
    """A pointer of the library and the calls that use it.

    A closed one raises EBADF. The library forbids to close one that a call is using, so close() waits for the calls of
    other threads. A call of a queue, and its close(), is also one of its handle: `parent`.
    """

    def __init__(self, pointer: Any, end: Callable[[Any], None], parent: Optional["Native"] = None) -> None:
        self._pointer, self._end, self._parent = pointer, end, parent
        self._process = os.getpid()
        self._calls = 0
        self._closing = False
        # Reentrant, for a signal handler can run in the middle of a method.
        self._idle = threading.Condition(threading.RLock())

    def __enter__(self) -> Any:
        if self._parent:
            self._parent.__enter__()
        try:
            with self._idle:
                if self._closing:
                    raise error_of(-errno.EBADF)
                self._calls += 1
        except BaseException:
            if self._parent:
                self._parent.__exit__()
            raise
        return self._pointer

    def __exit__(self, *_: object) -> None:
        with self._idle:
            self._calls -= 1
            if self._closing and not self._calls:
                self._idle.notify_all()
        if self._parent:
            self._parent.__exit__()

    @property
    def closed(self) -> bool:
        return self._closing

    def close(self, hurry: Optional[Callable[[Any], None]] = None, *, at_exit: bool = False) -> bool:
        """True: it was open and is closed. hurry: ends the operations that calls of other threads wait for. at_exit: the
        interpreter ends or the object is dropped. Then nothing waits: a call that is still under way, which only a daemon
        thread's can be, keeps the object open."""
        if os.getpid() != self._process:
            return self._close_in_child()
        with contextlib.ExitStack() as held:
            if self._parent and not self._parent.closed:
                with contextlib.suppress(Error):  # closed just now; the library permits to close a queue after its handle
                    held.enter_context(self._parent)
            ended = self._close(hurry, at_exit)
        return ended

    def _close_in_child(self) -> bool:
        """Calls that were under way at fork() are of threads that this process doesn't have. One might hold the lock."""
        if self._closing:
            return False
        self._closing = True
        self._end(self._pointer)
        return True

    def _close(self, hurry: Optional[Callable[[Any], None]], at_exit: bool) -> bool:
        with self._idle:
            if self._closing:
                return False
            self._closing = True
        if hurry:
            hurry(self._pointer)
        with self._idle:
            if at_exit and self._calls:
                return False
            self._idle.wait_for(lambda: not self._calls)
        self._end(self._pointer)
        return True


def c_name(name: Union[str, bytes]) -> bytes:
    """A name or a path as the library takes it."""
    encoded = os.fsencode(name)
    if b"\0" in encoded:
        raise ValueError("a zero byte ends a name for the library: leave it out")
    return encoded


def halves(number: int, size: int) -> Tuple[int, int]:
    """An integer of `size` bytes, signed or not, as the library takes it: the lower 64 bits and the upper ones."""
    if size not in (4, 8, 16):
        raise ValueError(f"{size} is not the size of an integer: use 4 or 8, or 16 for cas()")
    if not -(1 << (8 * size - 1)) <= number < 1 << (8 * size):
        raise OverflowError(f"{number} has more than {size} bytes")
    number &= (1 << (8 * size)) - 1
    return number & UINT64_MAX, number >> 64
