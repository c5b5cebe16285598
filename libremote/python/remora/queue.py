# SPDX-License-Identifier: MIT
"""Operations that run together: a thread submits them and takes them back as they end."""

import errno
import itertools
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from ._library import (UINT64_MAX, Buffer, Error, Native, Pieces, c_name, call_kept, check, error_of, export, ffi, halves, lib,
                       microseconds, pieces_of, unexport)
from .handle import Change, Handle, Region, Signal, Swapped, failed_function, function_of, place

(KIND_READ, KIND_WRITE, KIND_READV, KIND_WRITEV, KIND_FETCH, KIND_CAS, KIND_PUT, KIND_COPY, KIND_PUBLISH, KIND_LOOKUP,
 KIND_RELEASE, KIND_FENCE, KIND_LIST, KIND_QUERY, KIND_CALL) = range(1, 16)
LINK, UNORDERED = 1, 2
TAKEN_AT_ONCE = 256

At = Union[int, Region]


class Op:
    """An operation to submit, made by read(), write() and the like below; each is submitted once.

    While it is under way it holds its buffers: their owners can neither free nor resize them, and must not touch them.
    """

    def __init__(self, kind: int, address: int = 0, *, exports: Optional[List[Any]] = None, held: Tuple[Any, ...] = (),
                 answer: Optional[Callable[[int], Any]] = None, failure: Callable[[int], Error] = error_of, **fields: Any) -> None:
        self._fields = {"size": ffi.sizeof("struct remote_op"), "kind": kind, "address": address, **fields}
        self._exports, self._held, self._answer, self._failure = exports or [], held, answer, failure
        self._token = 0
        self._code: Optional[int] = None
        #: The caller's, for any purpose.
        self.tag: Any = None

    def link(self) -> "Op":
        """The next operation of the batch begins when this one has succeeded, else it ends with ECANCELED."""
        self._fields["flags"] = self._fields.get("flags", 0) | LINK
        return self

    def unordered(self) -> "Op":
        """The library keeps no order with overlapping operations: the caller makes sure that there are none."""
        self._fields["flags"] = self._fields.get("flags", 0) | UNORDERED
        return self

    def timeout(self, seconds: Optional[float]) -> "Op":
        """A limit from its submission."""
        self._fields["timeout_us"] = 0 if seconds is None else max(microseconds(seconds, none=0), 1)
        return self

    @property
    def done(self) -> bool:
        return self._code is not None

    def result(self) -> Any:
        """The operation's result, as that of the Handle's method. Raises its Error."""
        if self._code is None:
            raise RuntimeError("the operation hasn't ended: take it from its queue first")
        if self._code < 0:
            raise self._failure(self._code)
        return self._answer(self._code) if self._answer else None

    def _end(self, code: int) -> None:
        """The buffers are the caller's again; a result stays."""
        self._code = code
        self._fields.clear()
        self._held = ()
        unexport(self._exports)


def _moved(one: int, many: int, at: At, buffer: Buffer, writable: bool) -> Op:
    exports = pieces_of(buffer, writable)
    if len(exports) == 1:
        return Op(one, place(at), exports=exports, buffer=exports[0], bytes=len(exports[0]))
    return _listed(many, Pieces(place(at), exports))


def _listed(kind: int, pieces: Pieces) -> Op:
    return Op(kind, exports=pieces.exports, held=(pieces,), pieces=pieces.native, count=pieces.count)


def read(at: At, buffer: Buffer) -> Op:
    """Fills a writable buffer of at most 1 GiB. The result is None."""
    return _moved(KIND_READ, KIND_READV, at, buffer, True)


def write(at: At, buffer: Buffer) -> Op:
    """Writes a buffer of at most 1 GiB."""
    return _moved(KIND_WRITE, KIND_WRITEV, at, buffer, False)


def readv(pieces: Iterable[Tuple[int, Buffer]]) -> Op:
    """Reads pairs of an address and a contiguous, writable buffer."""
    return _listed(KIND_READV, Pieces.listed(pieces, writable=True))


def writev(pieces: Iterable[Tuple[int, Buffer]]) -> Op:
    """Writes pairs of an address and a contiguous buffer."""
    return _listed(KIND_WRITEV, Pieces.listed(pieces, writable=False))


def copy(to: At, source: At, bytes: int) -> Op:
    """Copies at most 1 GiB inside the node."""
    fields: Dict[str, Any] = {"from": place(source), "bytes": bytes}
    return Op(KIND_COPY, place(to), **fields)


def fetch(at: At, change: Change, value: int, *, size: int = 8) -> Op:
    """Changes an integer. The result is the integer before."""
    found = ffi.new("uint64_t *")
    return Op(KIND_FETCH, place(at), held=(found,), answer=lambda _: found[0], bytes=size, change=change,
              value=[halves(value, size)[0], 0], found=found)


def cas(at: At, expected: int, desired: int, *, size: int = 8) -> Op:
    """Compares and swaps an integer. The result is a Swapped."""
    found = ffi.new("uint64_t[2]")
    return Op(KIND_CAS, place(at), held=(found,),
              answer=lambda code: Swapped(bool(code), found[0] | (found[1] << 64 if size == 16 else 0)), bytes=size,
              value=list(halves(desired, size)), expected=list(halves(expected, size)), found=found)


def put(at: At, buffer: Buffer, signal: Signal) -> Op:
    """Writes a contiguous buffer, then changes the signal's integer."""
    native, memory = signal.native(), export(buffer, writable=False)
    return Op(KIND_PUT, place(at), exports=[memory], held=(native,), buffer=memory, bytes=len(memory), signal=native)


def publish(name: str, at: At) -> Op:
    """Names an allocation. An address of 0 withdraws the name."""
    held = ffi.new("char[]", c_name(name))
    return Op(KIND_PUBLISH, place(at), held=(held,), buffer=held)


def lookup(name: str) -> Op:
    """Finds the allocation of a name. The result is a pair of its address and its bytes."""
    held, found = ffi.new("char[]", c_name(name)), ffi.new("uint64_t[2]")
    return Op(KIND_LOOKUP, held=(held, found), answer=lambda _: (found[0], found[1]), buffer=held, found=found)


def release() -> Op:
    """Ends when all earlier operations of the handle have ended."""
    return Op(KIND_RELEASE)


def fence() -> Op:
    """As release(), and the node has executed the operations it was executing."""
    return Op(KIND_FENCE)


def _function(kind: int, offload: int, function: int, args: Buffer, result_bytes: int) -> Op:
    native, held, result = function_of(offload, function, args, result_bytes)
    return Op(kind, held=(native, held, result), buffer=native, answer=lambda _: bytes(ffi.buffer(result, native.result_bytes)),
              failure=lambda code: failed_function(code, native))


def query(offload: int, function: int, args: Buffer = b"", result_bytes: int = 0) -> Op:
    """Runs a function that changes nothing. The result is its bytes."""
    return _function(KIND_QUERY, offload, function, args, result_bytes)


def call(offload: int, function: int, args: Buffer = b"", result_bytes: int = 16) -> Op:
    """Runs a function that changes memory."""
    return _function(KIND_CALL, offload, function, args, result_bytes)


class Queue:
    """A bounded queue of operations in flight and of those that nobody has taken. It is a context manager.

        with handle.queue() as queue:
            queue.submit([remora.queue.write(a, data), remora.queue.read(b, buffer)])
            for op in queue.wait(2):
                op.result()

    Any number of threads can use it at once. Operations make progress while some thread is in a call of the handle or
    its queues. close() cancels the operations in flight; then their buffers are the caller's again.
    """

    def __init__(self, handle: Handle, depth: int = 256) -> None:
        options = ffi.new("struct remote_queue_options *", {"size": ffi.sizeof("struct remote_queue_options"), "depth": depth})
        pointer = ffi.new("remote_queue_t **")
        with handle._native as r:
            check(lib.remote_queue_open(pointer, r, options))
        self.handle, self.depth = handle, depth
        self._native = Native(pointer[0], lib.remote_queue_close, handle._native)
        self._tokens = itertools.count(1)
        # Keeps operations, and so their buffers, while the library can use them.
        self._under_way: Dict[int, Op] = {}
        # Ended operations whose wait() raised before it could return them.
        self._left: Dict[int, Op] = {}
        # Also when the queue is dropped without close(), and before the interpreter ends.
        self._finalizer = weakref.finalize(self, _close, self._native, self._under_way, at_exit=True)
        handle._queues.add(self)

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the operations in flight and ends the queue. A thread in wait() returns."""
        _close(self._native, self._under_way)

    def __len__(self) -> int:
        """Operations that were submitted and not taken."""
        return len(self._under_way)

    def submit(self, ops: Iterable[Op]) -> int:
        """Starts operations in their order, as one batch. Returns how many: the first ones. The others aren't valid, or
        the queue has no room. If that holds for the first, it raises its error: Timeout (EAGAIN): no room, wait() first.
        If a signal's exception ends it, such as Ctrl-C's, wait() returns the operations that it has started."""
        listed = list(ops)
        if not listed:
            return 0
        if any(op._token or op.done for op in listed) or len({*listed}) < len(listed):
            raise ValueError("an operation was submitted before: make another one")
        native = ffi.new("struct remote_op[]", len(listed))
        results: List[int] = []
        try:
            for slot, op in zip(native, listed):
                op._token = next(self._tokens)
                for name, value in op._fields.items():
                    setattr(slot, name, value)
                slot.user_data = op._token
                self._under_way[op._token] = op  # before an end of it can come
            with self._native as q:
                call_kept(results, lib.remote_queue_submit, q, native, len(listed))
            return check(results[0])
        finally:
            for op in listed[max(results[0], 0) if results else 0:]:
                self._under_way.pop(op._token, None)
                op._token = 0

    def wait(self, at_least: int = 1, *, timeout: Optional[float] = None, most: Optional[int] = None) -> List[Op]:
        """Takes up to `most` operations that have ended, in that order. Waits until there are at_least, or none is in
        flight any more, for `timeout` seconds. at_least 0 doesn't wait. If it raises, for instance because of
        Ctrl-C, the next wait() returns its operations."""
        room = max(at_least, TAKEN_AT_ONCE) if most is None else most
        completions = ffi.new("struct remote_completion[]", max(room, 1))
        with self._native as q:  # to the end: close() ends operations, too
            ended = list(self._left.values())[:room]
            try:
                check(lib.remote_queue_wait(q, completions, room - len(ended), max(min(at_least, room) - len(ended), 0),
                                            microseconds(timeout, none=UINT64_MAX)))
                ended += self._ended(completions)
                taken = [op for op in ended if self._under_way.pop(op._token, None)]
            except BaseException:
                self._left.update((op._token, op) for op in self._ended(completions))
                raise
            for op in ended:
                self._left.pop(op._token, None)
            return taken

    def _ended(self, completions: Any) -> List[Op]:
        """Ends the operations of an array of completions. Token 0: no completion from here on."""
        ended = []
        for each in completions:
            if not each.user_data:
                break
            op = self._under_way.get(each.user_data)
            if op:
                op._end(each.result)
                ended.append(op)
        return ended

    def cancel(self, op: Op) -> bool:
        """Cancels an operation in flight. wait() still returns it. False: it had ended."""
        with self._native as q:
            return bool(lib.remote_queue_cancel(q, op._token) > 0)

    def fileno(self) -> int:
        """A descriptor for poll(): readable when wait() has something to do. next_due() bounds the sleep."""
        return self._descriptor()[0]

    def next_due(self) -> Optional[float]:
        """Seconds after which wait() has to be called also if the descriptor isn't readable; None: no such time."""
        return self._descriptor()[1]

    def _descriptor(self) -> Tuple[int, Optional[float]]:
        next_us = ffi.new("uint64_t *")
        with self._native as q:
            descriptor = check(lib.remote_queue_fd(q, next_us))
        return descriptor, None if next_us[0] == UINT64_MAX else next_us[0] / 1e6


def _close(native: Native, under_way: Dict[int, Op], *, at_exit: bool = False) -> None:
    """Not a method: it also runs when the queue is gone."""
    def cancel_all(q: Any) -> None:
        for token in list(under_way):
            lib.remote_queue_cancel(q, token)

    if native.close(hurry=cancel_all, at_exit=at_exit):
        for op in list(under_way.values()):
            if not op.done:
                op._end(-errno.ECANCELED)
        under_way.clear()
