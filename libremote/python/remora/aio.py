# SPDX-License-Identifier: MIT
"""Operations that asyncio's tasks await. The event loop sleeps on the queue's descriptor: there is no thread."""

import asyncio
import errno
from collections import deque
from typing import Any, Deque, Dict, Iterable, Optional, Set, Tuple, Union

from . import queue as ops
from ._library import Buffer, Error, error_of
from .handle import Change, Handle, Region, Signal, Swapped

At = Union[int, Region]


class AsyncQueue:
    """The operations of a Handle as coroutines, at most `depth` at once; more wait for their turn, in order.

        async with handle.async_queue() as queue:
            await asyncio.gather(queue.write(a, data), queue.readinto(b, buffer))

    It belongs to one event loop. Operations that tasks start before the loop looks for events travel as one batch. A
    task that is cancelled cancels its operation: a change was then executed once, in part, or never. Its buffers are the
    caller's again when the task ends.
    """

    def __init__(self, handle: Handle, depth: int = 256) -> None:
        """Called in the loop's thread."""
        self._loop = asyncio.get_running_loop()
        self._queue = ops.Queue(handle, depth)
        self._batch: Deque[ops.Op] = deque()  # not submitted yet
        self._futures: Dict[ops.Op, "asyncio.Future[Any]"] = {}
        self._running: Set[ops.Op] = set()  # in run(), also those that wait for room
        self._room = asyncio.Semaphore(depth)
        self._timer: Optional[asyncio.TimerHandle] = None
        self._soon: Optional[asyncio.Handle] = None
        try:
            self._descriptor = self._queue.fileno()
        except BaseException:
            self._queue.close()
            raise
        self._loop.add_reader(self._descriptor, self._turn)
        handle._queues.discard(self._queue)  # closed by close()
        handle._queues.add(self)

    async def __aenter__(self) -> "AsyncQueue":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the operations in flight: their tasks get Error (ECANCELED). Called in the loop's thread."""
        if self._loop.is_running() and asyncio._get_running_loop() is not self._loop:
            raise RuntimeError("the queue is in use by the event loop of another thread: close it there")
        if self._soon:
            self._soon.cancel()
        if self._timer:
            self._timer.cancel()
        if not self._queue._native.closed and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        self._queue.close()
        for op in self._batch:
            op._end(-errno.ECANCELED)
        self._batch.clear()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(error_of(-errno.ECANCELED))
        self._futures.clear()

    # ---- operations ----

    async def run(self, op: ops.Op) -> Any:
        """Awaits an operation of remora.queue. Linked ones need Queue, for each here has a turn of its own."""
        if op._fields.get("flags", 0) & ops.LINK:
            raise ValueError("an operation is awaited by itself: submit linked ones to a Queue")
        if op._token or op.done or op in self._running:
            raise ValueError("the operation was submitted before: make another one")
        self._running.add(op)
        try:
            async with self._room:
                return await self._run(op)
        finally:
            self._running.discard(op)
            if not op._token and not op.done:
                op._end(-errno.ECANCELED)  # the library never had its buffers

    async def _run(self, op: ops.Op) -> Any:
        if self._queue._native.closed:
            raise error_of(-errno.EBADF)
        future = self._futures[op] = self._loop.create_future()
        self._batch.append(op)
        if not self._soon:
            self._soon = self._loop.call_soon(self._turn)
        try:
            await future
        except asyncio.CancelledError:
            self._give_up(op)
            raise
        return op.result()

    async def read(self, at: At, bytes: int) -> bytes:
        """Reads into a new bytes object, which costs a copy; readinto() has none."""
        data = bytearray(bytes)
        await self.readinto(at, data)
        return _bytes(data)

    async def readinto(self, at: At, buffer: Buffer) -> None:
        """Fills a writable buffer, at most 1 GiB."""
        await self.run(ops.read(at, buffer))

    async def write(self, at: At, buffer: Buffer) -> None:
        """Writes a buffer of at most 1 GiB."""
        await self.run(ops.write(at, buffer))

    async def readv(self, pieces: Iterable[Tuple[int, Buffer]]) -> None:
        await self.run(ops.readv(pieces))

    async def writev(self, pieces: Iterable[Tuple[int, Buffer]]) -> None:
        await self.run(ops.writev(pieces))

    async def copy(self, to: At, source: At, bytes: int) -> None:
        await self.run(ops.copy(to, source, bytes))

    async def fetch(self, at: At, change: Change, value: int, *, size: int = 8) -> int:
        found: int = await self.run(ops.fetch(at, change, value, size=size))
        return found

    async def add(self, at: At, value: int, *, size: int = 8) -> int:
        return await self.fetch(at, Change.ADD, value, size=size)

    async def cas(self, at: At, expected: int, desired: int, *, size: int = 8) -> Swapped:
        swapped: Swapped = await self.run(ops.cas(at, expected, desired, size=size))
        return swapped

    async def put(self, at: At, buffer: Buffer, signal: Signal) -> None:
        await self.run(ops.put(at, buffer, signal))

    async def publish(self, name: str, at: At) -> None:
        await self.run(ops.publish(name, at))

    async def lookup(self, name: str) -> Region:
        address, size = await self.run(ops.lookup(name))
        return Region(self._queue.handle, address, size, allocated=False)

    async def release(self) -> None:
        await self.run(ops.release())

    async def fence(self) -> None:
        await self.run(ops.fence())

    async def query(self, offload: int, function: int, args: Buffer = b"", result_bytes: int = 0) -> bytes:
        result: bytes = await self.run(ops.query(offload, function, args, result_bytes))
        return result

    async def call(self, offload: int, function: int, args: Buffer = b"", result_bytes: int = 16) -> bytes:
        result: bytes = await self.run(ops.call(offload, function, args, result_bytes))
        return result

    # ---- the loop's part ----

    def _turn(self) -> None:
        """Submits the batch, takes completions, and sets the timer for the next message that is due."""
        if self._soon:
            self._soon.cancel()
            self._soon = None
        if self._queue._native.closed:
            return
        try:
            self._take()
            self._submit()
            self._take()
            due = self._queue.next_due()
        except Error as error:  # the handle was closed, or the process forked
            self._fail(error)
            return
        if self._timer:
            self._timer.cancel()
        self._timer = None if due is None else self._loop.call_later(due, self._turn)

    def _submit(self) -> None:
        alone = False
        while self._batch:
            listed = [self._batch[0]] if alone else list(self._batch)
            try:
                started = self._queue.submit(listed)
            except Exception as error:
                if not isinstance(error, Error) and len(listed) > 1:
                    alone = True  # one of them doesn't fit struct remote_op, not necessarily the first
                    continue
                # The first isn't valid; there is room for it, as _room is the queue's depth.
                self._batch.popleft()
                listed[0]._end(-(error.errno or errno.EIO) if isinstance(error, Error) else -errno.EINVAL)
                self._end(listed[0], error)
                continue
            for _ in range(started):
                self._batch.popleft()

    def _take(self) -> None:
        while taken := self._queue.wait(0):
            for op in taken:
                self._end(op)

    def _end(self, op: ops.Op, error: Optional[Exception] = None) -> None:
        future = self._futures.pop(op, None)
        if not future or future.done():
            return  # its task was cancelled
        if error:
            future.set_exception(error)
        else:
            future.set_result(None)

    def _fail(self, error: Error) -> None:
        self._batch.clear()
        for op in list(self._futures):
            self._end(op, error)

    def _give_up(self, op: ops.Op) -> None:
        """The task of an operation was cancelled."""
        self._futures.pop(op, None)
        if self._queue._native.closed or op.done:
            return
        if op in self._batch:
            self._batch.remove(op)
            op._end(-errno.ECANCELED)
            return
        self._queue.cancel(op)
        # Takes the completion now: until then it has a place in the queue, which its successor needs.
        self._turn()


_bytes = bytes  # methods have parameters of that name
