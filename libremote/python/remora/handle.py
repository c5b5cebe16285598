# SPDX-License-Identifier: MIT
"""Handles to a remote address space, regions of it, and locks in it."""

import contextlib
import enum
import types
import weakref
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Type, Union

from ._library import (UINT64_MAX, Buffer, Error, Native, Pieces, c_name, call_kept, check, error_of, export, ffi, halves,
                       lib, microseconds, pieces_of, text, unexport)

if TYPE_CHECKING:
    from .aio import AsyncQueue
    from .queue import Queue

READ, RW = 1, 3
OWN_PAGES = 8
LISTED_AT_ONCE = 16


class Integrity(enum.IntEnum):
    """Protection of payloads. A keyed tag protects headers at every level."""

    DIGEST, LINK, FULL, SEALED = range(4)


class Change(enum.IntEnum):
    """Changes of an integer at the node. MIN and MAX are unsigned, SMIN and SMAX signed."""

    SWAP, ADD, AND, OR, XOR, MIN, MAX, SMIN, SMAX = 1, 3, 4, 5, 6, 7, 8, 9, 10


class Compare(enum.IntEnum):
    """Unsigned comparisons of Handle.wait()."""

    EQ, NE, GT, GE, LT, LE = range(1, 7)


class Node(NamedTuple):
    """A node's memory, as Handle.info() tells it."""

    page_bytes: int
    memory_bytes: int
    free_bytes: Optional[int]  #: None: unknown
    round_trip_s: Optional[float]  #: None: unknown
    result_bytes: int  #: Most room for the result of Handle.query(); 0: the target runs no functions


class Listed(NamedTuple):
    """A region of the space, as Handle.regions() tells it."""

    address: int
    bytes: int
    writable: bool
    names: int
    name: Optional[str]


class Swapped(NamedTuple):
    """The end of a compare-and-swap. It is true if the integer was changed."""

    swapped: bool
    found: int  #: The integer before

    def __bool__(self) -> bool:
        return self.swapped


class Counted(NamedTuple):
    """Operations of one kind."""

    done: int
    failed: int
    bytes: int


class Counters(NamedTuple):
    """Counts of a handle since it was opened: operations by kind, and messages."""

    read: Counted
    write: Counted
    integer: Counted
    other: Counted
    sent: int
    received: int
    retries: int
    timeouts: int
    damaged: int
    busy: int
    reopened: int
    unscheduled: int


class Signal(NamedTuple):
    """An integer of `size` bytes at a multiple of that, and its change, for put()."""

    address: int
    value: int
    change: Change = Change.SWAP
    size: int = 8

    def native(self) -> Any:
        return ffi.new("struct remote_signal *",
                       {"address": self.address, "bytes": self.size, "what": self.change,
                        "value": halves(self.value, self.size)[0]})


def function_of(offload: int, function: int, args: Buffer, result_bytes: int) -> Tuple[Any, Any, Any]:
    """struct remote_function, and the memory that it points to."""
    held = ffi.new("char[]", bytes(args))
    result = ffi.new("char[]", max(result_bytes, 1))
    return ffi.new("struct remote_function *", {"offload": offload, "function": function, "args": held, "args_bytes": len(held) - 1,
                                                "result": result, "result_bytes": result_bytes}), held, result


def failed_function(result: int, function: Any) -> Error:
    error = error_of(result)
    if function.detail:
        error.detail = function.detail
    return error


def place(at: "Union[int, Region]") -> int:
    return at.address if isinstance(at, Region) else at


class Handle:
    """An address space at a node: `remora.open()` makes one. It is a context manager, which closes it.

    Any number of threads can use a handle at once; each call lets other threads run meanwhile. A call can't be
    interrupted, also not by Ctrl-C, before its time limit. close() waits for the calls of other threads. Memory at the
    node outlives the handle.
    """

    def __init__(self, target: str, *, timeout: Optional[float] = 10, call_timeout: Optional[float] = None,
                 integrity: Optional[Integrity] = None, key: Optional[bytes] = None) -> None:
        """target: as for remote_open(3). timeout: seconds for a silent node, None: no limit. call_timeout: seconds for
        each call as a whole, None: no limit. integrity: None: the target's, else DIGEST. key: 16 bytes, instead of
        key=FILE in the target."""
        options = ffi.new("struct remote_options *")
        options.size = ffi.sizeof(options[0])
        options.timeout_us = max(microseconds(timeout, none=UINT64_MAX), 1)
        options.call_timeout_us = 0 if call_timeout is None else max(microseconds(call_timeout, none=0), 1)
        options.integrity = integrity or 0
        held = None
        if key is not None:
            if len(key) != 16:
                raise ValueError(f"a key has 16 bytes, not {len(key)}")
            held = ffi.new("uint8_t[16]", bytes(key))
            options.key = held
        pointer = ffi.new("remote_t **")
        result = lib.remote_open(pointer, c_name(target), options)
        if result:
            raise error_of(result, text(lib.remote_why()))
        del held
        self.target = target
        self._native = Native(pointer[0], lib.remote_close)
        self._queues: "weakref.WeakSet[Union[Queue, AsyncQueue]]" = weakref.WeakSet()
        self._registered: Dict[int, Any] = {}
        self._told: List[Tuple[int, int]] = []  # losses that lost() hasn't returned yet
        self._finalizer = weakref.finalize(self, self._native.close, at_exit=True)

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<remora.Handle {self.target}{' closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        return self._native.closed

    def close(self) -> None:
        """Ends the handle's queues, waits for the calls of other threads, and closes the handle."""
        for queue in list(self._queues):
            queue.close()
        if self._native.close():
            unexport([*self._registered.values()])
            self._registered.clear()

    # ---- memory ----

    def info(self) -> Node:
        """Asks the node for its memory."""
        node = ffi.new("struct remote_node *")
        node.size = ffi.sizeof(node[0])
        with self._native as r:
            check(lib.remote_info(r, node))
        return Node(node.page_bytes, node.memory_bytes, None if node.free_bytes == UINT64_MAX else node.free_bytes,
                    node.round_trip_ns / 1e9 if node.round_trip_ns else None, node.result_bytes)

    def alloc(self, bytes: int, *, writable: bool = True, own_pages: bool = False) -> "Region":
        """Allocates zeroed memory. own_pages: it gets pages of its own even if it is small, so that it can be published
        and other handles can free it."""
        address = ffi.new("raddr_t *")
        with self._native as r:
            check(lib.remote_alloc(r, bytes, (RW if writable else READ) | (OWN_PAGES if own_pages else 0), address))
        return Region(self, address[0], bytes, allocated=True)

    def free(self, at: "Union[int, Region]", bytes: Optional[int] = None) -> None:
        """Frees memory of this handle, or, with its size, memory that any handle of the space has allocated."""
        with self._native as r:
            check(lib.remote_free(r, place(at)) if bytes is None else lib.remote_free_sized(r, place(at), bytes))

    def lost(self) -> List[Tuple[int, int]]:
        """After Lost: addresses and sizes of this handle's memory that the node's restart has lost. The handle then goes
        on with the restarted node. The library tells each loss once: after an exception, call lost() again for all of them."""
        address, size = ffi.new("raddr_t *"), ffi.new("uint64_t *")
        with self._native as r:
            while True:
                result = lib.remote_lost(r, address, size)
                if result < 0:
                    raise error_of(result, text(lib.remote_why()))
                if not result:
                    told, self._told = self._told, []
                    return told
                self._told.append((address[0], size[0]))

    def publish(self, name: str, at: "Union[int, Region]") -> None:
        """Names an allocation, so that every client of the space finds it by lookup()."""
        with self._native as r:
            check(lib.remote_publish(r, c_name(name), place(at)))

    def withdraw(self, name: str) -> None:
        """Takes a name away. The memory stays."""
        with self._native as r:
            check(lib.remote_publish(r, c_name(name), 0))

    def lookup(self, name: str) -> "Region":
        """The allocation of a name. Raises NotFound."""
        address, size = ffi.new("raddr_t *"), ffi.new("uint64_t *")
        with self._native as r:
            check(lib.remote_lookup(r, c_name(name), address, size))
        return Region(self, address[0], size[0], allocated=False)

    def regions(self) -> Iterator[Listed]:
        """Lists all regions of the space, in the order of their addresses."""
        listed, start = ffi.new("struct remote_region[]", LISTED_AT_ONCE), 0
        while True:
            with self._native as r:
                count = check(lib.remote_list(r, start, listed, LISTED_AT_ONCE))
            for each in listed[0:count]:
                yield Listed(each.address, each.bytes, each.permission == RW, each.names, text(each.name) or None)
            if count < LISTED_AT_ONCE:
                return
            start = listed[count - 1].address + 1

    # ---- data ----

    def read(self, at: "Union[int, Region]", bytes: int) -> bytes:
        """Reads into a new bytes object, which costs a copy; readinto() has none."""
        data = bytearray(bytes)
        self.readinto(at, data)
        return _bytes(data)

    def readinto(self, at: "Union[int, Region]", buffer: Buffer) -> None:
        """Fills a writable buffer: bytearray, memoryview, numpy array or slice. There is no copy beside the library's."""
        self._move(lib.remote_read, lib.remote_readv, place(at), buffer, True)

    def write(self, at: "Union[int, Region]", buffer: Buffer) -> None:
        """Writes a buffer of any kind, without a copy."""
        self._move(lib.remote_write, lib.remote_writev, place(at), buffer, False)

    def _move(self, call: Any, gathered: Any, address: int, buffer: Buffer, writable: bool) -> None:
        exports = pieces_of(buffer, writable)
        try:
            with self._native as r:
                if len(exports) == 1:
                    check(call(r, address, exports[0], len(exports[0])))
                else:
                    pieces = Pieces(address, exports)
                    check(gathered(r, pieces.native, pieces.count))
        finally:
            unexport(exports)

    def _move_listed(self, call: Any, pieces: Iterable[Tuple[int, Buffer]], writable: bool) -> None:
        listed = Pieces.listed(pieces, writable)
        try:
            with self._native as r:
                check(call(r, listed.native, listed.count))
        finally:
            unexport(listed.exports)

    def readv(self, pieces: Iterable[Tuple[int, Buffer]]) -> None:
        """Reads several pieces at once: pairs of an address and a contiguous, writable buffer. Small ones that are
        adjacent share messages."""
        self._move_listed(lib.remote_readv, pieces, True)

    def writev(self, pieces: Iterable[Tuple[int, Buffer]]) -> None:
        """Writes several pieces at once, as readv() reads."""
        self._move_listed(lib.remote_writev, pieces, False)

    def copy(self, to: "Union[int, Region]", source: "Union[int, Region]", bytes: int) -> None:
        """Copies inside the node: no byte crosses the network."""
        with self._native as r:
            check(lib.remote_copy(r, place(to), place(source), bytes))

    def release(self) -> None:
        """Waits for all earlier operations of the handle (remote_release(3))."""
        with self._native as r:
            check(lib.remote_release(r))

    def fence(self) -> None:
        """As release(), then waits for the operations that the node is executing for others (remote_fence(3))."""
        with self._native as r:
            check(lib.remote_fence(r))

    def register(self, buffer: Buffer) -> None:
        """Pins a buffer for a `dev:` target, until unregister() or close(). It can't be resized meanwhile."""
        exports = [export(buffer, writable=True)]
        try:
            with self._native as r:
                check(lib.remote_register(r, exports[0], len(exports[0])))
            held = exports.pop()
            self._registered[int(ffi.cast("uintptr_t", held))] = held
        finally:
            unexport(exports)

    def unregister(self, buffer: Buffer) -> None:
        """Ends a registration."""
        exports = [export(buffer, writable=True)]
        try:
            with self._native as r:
                check(lib.remote_unregister(r, exports[0]))
            exports.append(self._registered.pop(int(ffi.cast("uintptr_t", exports[0]))))
        finally:
            unexport(exports)

    # ---- integers ----

    def fetch(self, at: "Union[int, Region]", change: Change, value: int, *, size: int = 8) -> int:
        """Changes an integer of 4 or 8 bytes at the node, and returns the integer before. It is executed once."""
        found = ffi.new("uint64_t *")
        with self._native as r:
            check(lib.remote_fetch(r, place(at), size, change, halves(value, size)[0], found))
        return int(found[0])

    def add(self, at: "Union[int, Region]", value: int, *, size: int = 8) -> int:
        """Adds modulo 2^64, or 2^32, and returns the integer before."""
        return self.fetch(at, Change.ADD, value, size=size)

    def swap(self, at: "Union[int, Region]", value: int, *, size: int = 8) -> int:
        """Stores an integer and returns the one before."""
        return self.fetch(at, Change.SWAP, value, size=size)

    def cas(self, at: "Union[int, Region]", expected: int, desired: int, *, size: int = 8) -> Swapped:
        """Stores `desired` if the integer of 4, 8 or 16 bytes is `expected`. The result is true if it was."""
        found = ffi.new("uint64_t[2]", halves(expected, size))
        with self._native as r:
            swapped = check(lib.remote_cas(r, place(at), size, found, ffi.new("uint64_t[2]", halves(desired, size))))
        return Swapped(bool(swapped), found[0] | (found[1] << 64 if size == 16 else 0))

    def put(self, at: "Union[int, Region]", buffer: Buffer, signal: Signal) -> None:
        """Writes a contiguous buffer, then changes the signal's integer, once. A client that sees the changed integer
        sees the bytes."""
        exports = [export(buffer, writable=False)]
        try:
            with self._native as r:
                check(lib.remote_put(r, place(at), exports[0], len(exports[0]), signal.native()))
        finally:
            unexport(exports)

    def wait(self, at: "Union[int, Region]", compare: Compare, value: int, *, timeout: Optional[float] = None,
             size: int = 8) -> int:
        """Polls until the integer compares so with value, and returns it. Raises Timeout after `timeout` seconds."""
        found = ffi.new("uint64_t *")
        with self._native as r:
            check(lib.remote_wait(r, place(at), size, compare, halves(value, size)[0], microseconds(timeout, none=UINT64_MAX),
                                  found))
        return int(found[0])

    def lock(self, at: "Union[int, Region]") -> "Lock":
        """The lock in 16 bytes of zeroed remote memory."""
        return Lock(self, place(at))

    # ---- functions at the node ----

    def query(self, offload: int, function: int, args: Buffer = b"", result_bytes: int = 0) -> bytes:
        """Has the node run a function that changes nothing, beside the memory. Error.detail tells the function's errno."""
        return self._run(lib.remote_query, offload, function, args, result_bytes)

    def call(self, offload: int, function: int, args: Buffer = b"", result_bytes: int = 16) -> bytes:
        """Has the node run a function that changes memory, once."""
        return self._run(lib.remote_call, offload, function, args, result_bytes)

    def _run(self, way: Any, offload: int, function: int, args: Buffer, result_bytes: int) -> bytes:
        native, held, result = function_of(offload, function, args, result_bytes)
        with self._native as r:
            code = way(r, native)
        if code < 0:
            raise failed_function(code, native)
        del held
        return _bytes(ffi.buffer(result, native.result_bytes))

    # ---- queues, counters ----

    def queue(self, depth: int = 256) -> "Queue":
        """A queue of up to `depth` operations that run together. A program with asyncio uses async_queue()."""
        from .queue import Queue
        return Queue(self, depth)

    def async_queue(self, depth: int = 256) -> "AsyncQueue":
        """A queue whose operations are awaited in the running event loop, which sleeps on its descriptor."""
        from .aio import AsyncQueue
        return AsyncQueue(self, depth)

    def stats(self) -> Counters:
        """Counts since the handle was opened."""
        native = ffi.new("struct remote_counters *")
        native.size = ffi.sizeof(native[0])
        with self._native as r:
            check(lib.remote_stats(r, native))
        kinds = [Counted(each.done, each.failed, each.bytes) for each in native.kind[0:4]]
        return Counters._make([*kinds, *(getattr(native, name) for name in Counters._fields[4:])])


_bytes = bytes  # methods have parameters of that name


class Region:
    """Remote memory of a known size. As a context manager it frees the memory at the end.

    A region that is dropped without that stays allocated: memory outlives handles.
    """

    def __init__(self, handle: Handle, address: int, bytes: int, *, allocated: bool) -> None:
        """allocated: this handle's own; else free() tells the node the size."""
        self.handle, self.address, self.bytes = handle, address, bytes
        self._allocated = allocated

    def __enter__(self) -> "Region":
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def __repr__(self) -> str:
        return f"<remora.Region {self.address:#x}+{self.bytes:#x}>"

    def __len__(self) -> int:
        return self.bytes

    def at(self, offset: int, bytes: int = 1) -> int:
        """The address of bytes inside the region. Raises IndexError beyond its end."""
        if not 0 <= offset <= self.bytes - bytes:
            raise IndexError(f"{bytes} bytes at {offset} aren't in a region of {self.bytes}")
        return self.address + offset

    def read(self, bytes: int, offset: int = 0) -> bytes:
        return self.handle.read(self.at(offset, bytes), bytes)

    def readinto(self, buffer: Buffer, offset: int = 0) -> None:
        self.handle.readinto(self.at(offset, memoryview(buffer).nbytes), buffer)

    def write(self, buffer: Buffer, offset: int = 0) -> None:
        self.handle.write(self.at(offset, memoryview(buffer).nbytes), buffer)

    def publish(self, name: str) -> None:
        self.handle.publish(name, self.address)

    def free(self) -> None:
        self.handle.free(self.address, None if self._allocated else self.bytes)


class Lock:
    """A lock in remote memory, held by a thread with a lease: `with handle.lock(address) as lock: ...`

    The thread that took it gives it back. If it doesn't before its lease ends, the next waiter gets the lock.
    """

    BYTES = 16

    def __init__(self, handle: Handle, address: int) -> None:
        self.handle, self.address = handle, address
        #: The lease of the previous holder had expired, so the protected data might be half changed.
        self.passed_over = False

    def init(self, lease: float) -> "Lock":
        """Sets the lease in seconds, before any use of the lock. Without it a lease is 10 s."""
        with self.handle._native as r:
            check(lib.remote_lock_init(r, self.address, microseconds(lease, none=UINT64_MAX)))
        return self

    def acquire(self) -> bool:
        """Waits until this thread holds the lock. True: the lease of the previous holder had expired. If a
        signal's exception ends it, such as Ctrl-C's, it gives the lock back."""
        results: List[int] = []
        try:
            with self.handle._native as r:
                call_kept(results, lib.remote_lock, r, self.address)
            self.passed_over = bool(check(results[0]))
        except BaseException:
            # If the previous lease had expired, this one expires, too: thus the next holder is told.
            if results == [0]:
                with contextlib.suppress(Error):
                    self.release()
            raise
        return self.passed_over

    def extend(self) -> None:
        """Begins the lease anew. Raises Denied if this thread no longer holds the lock."""
        with self.handle._native as r:
            check(lib.remote_lock_extend(r, self.address))

    def release(self) -> None:
        """Raises Denied if the lease had ended and another thread got the lock."""
        with self.handle._native as r:
            check(lib.remote_unlock(r, self.address))

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[types.TracebackType]) -> None:
        self.release()
