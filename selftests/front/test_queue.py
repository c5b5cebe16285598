# SPDX-License-Identifier: GPL-2.0
"""The package remora: operations that run together, and buffers that are under way; with asyncio, too."""

import asyncio
import errno
import gc
import select
import threading
import weakref

import numpy
from served import Served, remora

from remora import queue

PAGE = 1 << 16


class Queues(Served):
    def setUp(self):
        super().setUp()
        self.region = self.handle.alloc(4 * PAGE)
        self.addCleanup(self.region.free)

    def test_results_fit_the_operations(self):
        buffer, at = bytearray(8), self.region.address
        ops = [queue.write(at, b"12345678"), queue.read(at, buffer), queue.fetch(at + 8, remora.Change.ADD, 3),
               queue.cas(at + 16, 0, 9), queue.cas(at + 24, 1, 9), queue.copy(at + PAGE, at, 8),
               queue.put(at + 64, b"data", remora.Signal(at + 128, 1)), queue.lookup("absent"), queue.fence(),
               queue.read(at + (1 << 40), bytearray(1))]
        ops[2].tag = "mine"
        with self.handle.queue() as operations:
            self.assertEqual(operations.submit(ops), len(ops))
            ended = operations.wait(len(ops))
            self.assertCountEqual(ended, ops)
        self.assertEqual(buffer, b"12345678")
        self.assertEqual([op.result() for op in ops[2:5]], [0, (True, 0), (False, 0)])
        self.assertEqual(ops[2].tag, "mine")
        self.assertEqual(self.region.read(8, PAGE), b"12345678")
        self.assertEqual(self.region.read(4, 64), b"data")
        self.fails(errno.ENOENT, ops[7].result)
        self.fails(errno.EFAULT, ops[9].result)

    def test_strided_buffers_travel_as_pieces(self):
        table = numpy.arange(100, dtype="u4").reshape(10, 10)
        back = numpy.zeros_like(table)
        with self.handle.queue() as operations:
            operations.submit([queue.write(self.region, table[:, 3:5]).link(), queue.read(self.region, back[:, 3:5])])
            for op in operations.wait(2):
                op.result()
        self.assertTrue((back[:, 3:5] == table[:, 3:5]).all())

    def test_a_buffer_under_way_can_be_neither_resized_nor_freed(self):
        buffer, array = bytearray(100), numpy.zeros(100, dtype="u1")
        kept = weakref.ref(array)
        self.region.write(b"\7" * 100)
        with self.handle.queue() as operations:
            self.node.pause()
            ops = [queue.read(self.region, buffer), queue.read(self.region, array)]
            self.assertEqual(operations.submit(ops), 2)
            del array
            gc.collect()
            self.assertIsNotNone(kept())
            self.assertRaises(BufferError, buffer.extend, b"x")
            self.assertRaises(BufferError, buffer.clear)
            self.assertRaises(RuntimeError, ops[0].result)
            self.node.go()
            self.assertCountEqual(operations.wait(2), ops)
            self.assertEqual(buffer, b"\7" * 100)
            buffer.extend(b"x")
            self.assertIsNone(kept())

    def test_close_gives_buffers_back(self):
        buffer = bytearray(100)
        operations = self.handle.queue()
        self.node.pause()
        operations.submit([queue.read(self.region, buffer)])
        operations.close()
        buffer.clear()
        self.fails(errno.EBADF, operations.wait)
        self.fails(errno.EBADF, operations.submit, [queue.fence()])

    def test_a_dropped_queue_ends_before_its_buffers(self):
        array = numpy.zeros(PAGE, dtype="u1")
        kept = weakref.ref(array)
        operations = self.handle.queue()
        self.node.pause()
        operations.submit([queue.read(self.region, array)])
        del array
        self.assertIsNotNone(kept())
        del operations
        gc.collect()
        self.assertIsNone(kept())
        self.node.go()
        self.region.read(1)

    def test_a_cancelled_operation_gives_its_buffer_back(self):
        buffer = bytearray(100)
        with self.handle.queue() as operations:
            self.node.pause()
            op = queue.read(self.region, buffer)
            operations.submit([op])
            self.assertTrue(operations.cancel(op))
            self.assertEqual(operations.wait(), [op])
            self.fails(errno.ECANCELED, op.result)
            buffer.clear()
            self.assertFalse(operations.cancel(op))

    def test_a_limit_ends_an_operation(self):
        with self.handle.queue() as operations:
            self.node.pause()
            op = queue.read(self.region, bytearray(1)).timeout(0.05)
            operations.submit([op])
            self.assertEqual(operations.wait(), [op])
            self.fails(errno.ETIMEDOUT, op.result)

    def test_a_full_queue_starts_the_first_ones(self):
        with self.handle.queue(depth=2) as operations:
            self.node.pause()
            ops = [queue.read(self.region, bytearray(1)) for _ in range(3)]
            self.assertEqual(operations.submit(ops), 2)
            self.assertEqual(len(operations), 2)
            self.fails(errno.EAGAIN, operations.submit, ops[2:])
            self.assertRaises(ValueError, operations.submit, ops[:1])
            self.node.go()
            self.assertEqual(len(operations.wait(2)), 2)
            self.assertEqual(operations.submit(ops[2:]), 1)
            operations.wait()[0].result()

    def test_linked_operations_stop_at_a_failure(self):
        ops = [queue.write(self.region, b"first").link(), queue.read(1 << 40, bytearray(1)).link(), queue.write(self.region, b"third")]
        with self.handle.queue() as operations:
            operations.submit(ops)
            operations.wait(3)
        ops[0].result()
        self.fails(errno.EFAULT, ops[1].result)
        self.fails(errno.ECANCELED, ops[2].result)
        self.assertEqual(self.region.read(5), b"first")

    def test_the_descriptor_tells_when_to_look(self):
        with self.handle.queue() as operations:
            operations.submit([queue.read(self.region, bytearray(1))])
            ended = []
            while not ended:
                select.select([operations], [], [], operations.next_due())
                ended = operations.wait(0)
            ended[0].result()

    def test_closing_wakes_a_waiter(self):
        operations, ends = self.handle.queue(), []
        self.node.pause()
        operations.submit([queue.read(self.region, bytearray(1))])
        waiter = threading.Thread(target=lambda: ends.append(operations.wait()))
        waiter.start()
        while not operations._native._calls:
            pass
        operations.close()
        waiter.join()
        self.fails(errno.ECANCELED, ends[0][0].result)


    def test_a_wait_that_a_signal_ended_loses_no_operation(self):
        with self.handle.queue() as operations:
            self.node.pause()
            ops = [queue.read(self.region, bytearray(1)) for _ in range(3)]
            operations.submit(ops)
            self.assertTrue(self.interrupted(operations._native, lambda: operations.wait(3), self.node.go))
            self.assertEqual(len(operations), 3)
            ended = operations.wait(1, most=1) + operations.wait(2)
            self.assertCountEqual(ended, ops)
            for op in ops:
                op.result()
            self.assertEqual((len(operations), operations.wait()), (0, []))

    def test_close_waits_until_a_wait_has_ended_its_operations(self):
        operations = self.handle.queue()
        ops = [queue.read(self.region, bytearray(1)) for _ in range(2)]
        closer, end = threading.Thread(target=operations.close), ops[0]._end

        def close_then_end(code):
            ops[0]._end = end
            closer.start()
            while not operations._native.closed:
                pass
            closer.join(0.1)
            end(code)

        ops[0]._end = close_then_end
        operations.submit(ops)
        self.assertEqual(operations.wait(2), ops)
        closer.join()
        for op in ops:
            op.result()

    def test_an_operation_that_is_no_struct_fails_its_batch(self):
        with self.handle.queue() as operations:
            ops = [queue.write(self.region, b"good"), queue.write(-8, b"bad")]
            self.assertRaises(OverflowError, operations.submit, ops)
            self.assertEqual(len(operations), 0)
            self.assertEqual(operations.submit(ops[:1]), 1)
            self.assertEqual(operations.wait(), ops[:1])
            ops[0].result()

    def test_an_operation_is_submitted_once(self):
        with self.handle.queue() as operations:
            op = queue.read(self.region, bytearray(1))
            self.assertRaises(ValueError, operations.submit, [op, op])
            operations.submit([op])
            self.assertRaises(ValueError, operations.submit, [op])
            operations.wait()
            self.assertRaises(ValueError, operations.submit, [op])

    def test_the_handle_closes_after_the_calls_of_its_queues(self):
        handle = self.open()
        operations, calls, end = handle.queue(), [], handle._native._end

        def count_then_end(pointer):
            calls.append(operations._native._calls)
            end(pointer)

        handle._native._end = count_then_end
        closers = [threading.Thread(target=each.close) for each in (operations, handle)]
        with operations._native:
            closers[0].start()
            while not operations._native.closed:
                pass
            closers[1].start()
            while not handle.closed:
                pass
            closers[1].join(0.1)
        for each in closers:
            each.join()
        self.assertEqual(calls, [0])


class Interrupted(Served):
    def test_a_submission_that_a_signal_ended_keeps_its_buffers(self):
        handle = remora.open("embedded:size=256M")
        self.addCleanup(handle.close)
        region, data = handle.alloc(64 << 20), bytearray(64 << 20)
        with handle.queue() as operations:
            for _ in range(50):
                op = queue.write(region, data)
                if not self.interrupted(operations._native, lambda op=op: operations.submit([op])):
                    continue
                # Unless the signal came before the library's call.
                started = len(operations)
                if started:
                    self.assertRaises(BufferError, data.clear)
                self.assertEqual(operations.wait(), [op][:started])
                if started:
                    op.result()
                    return
        self.fail("no signal came during the library's call")


class Awaited(Served):
    def setUp(self):
        super().setUp()
        self.region = self.handle.alloc(4 * PAGE)
        self.addCleanup(self.region.free)

    def run_in_loop(self, work, depth=256):
        async def main():
            async with self.handle.async_queue(depth) as operations:
                return await asyncio.wait_for(work(operations), 60)
        return asyncio.run(main())

    def test_many_tasks_run_together_in_few_places(self):
        async def work(operations):
            await asyncio.gather(*(operations.write(self.region.at(64 * i), i.to_bytes(64, "little")) for i in range(1000)))
            back = await asyncio.gather(*(operations.read(self.region.at(64 * i), 64) for i in range(1000)))
            return [int.from_bytes(each, "little") for each in back]
        self.assertEqual(self.run_in_loop(work, depth=8), [*range(1000)])

    def test_results_fit_the_operations(self):
        async def work(operations):
            at = self.region.address
            self.assertEqual(await operations.add(at, 5), 0)
            self.assertEqual(await operations.cas(at, 5, 6), (True, 5))
            await operations.put(at + 64, b"data", remora.Signal(at + 128, 1))
            await operations.copy(at + PAGE, at + 64, 4)
            self.assertEqual(await operations.read(at + PAGE, 4), b"data")
            await operations.publish("awaited", self.region)
            found = await operations.lookup("awaited")
            self.assertEqual((found.address, found.bytes), (at, 4 * PAGE))
            await operations.publish("awaited", 0)
            with self.assertRaises(FileNotFoundError):
                await operations.lookup("awaited")
            await operations.fence()
            with self.assertRaises(ValueError):
                await operations.run(queue.fence().link())
        self.run_in_loop(work)

    def test_an_operation_that_is_not_valid_fails_alone(self):
        async def work(operations):
            return await asyncio.gather(operations.add(self.region.at(8), 1), operations.write(self.region.address, b""),
                                        operations.read(self.region.address, 1), return_exceptions=True)
        results = self.run_in_loop(work)
        self.assertEqual((results[0], results[1].errno, results[2]), (0, errno.EINVAL, b"\0"))

    def test_an_operation_that_is_no_struct_fails_alone(self):
        async def work(operations):
            used = queue.write(self.region, b"x")
            await operations.run(used)
            results = await asyncio.gather(operations.add(self.region.at(8), 1), operations.write(-8, b"x"), operations.run(used),
                                           operations.write("8", b"x"), operations.read(self.region.address, 1), return_exceptions=True)
            self.assertEqual(await operations.read(self.region.address, 1), b"x")
            return results
        results = self.run_in_loop(work)
        self.assertEqual((results[0], results[4]), (0, b"x"))
        self.assertEqual([*map(type, results[1:4])], [OverflowError, ValueError, TypeError])

    def test_one_operation_in_two_tasks_is_refused(self):
        async def work(operations):
            op = queue.write(self.region, b"x")
            return await asyncio.gather(operations.run(op), operations.run(op), return_exceptions=True)
        results = self.run_in_loop(work, depth=1)
        self.assertEqual((results[0], type(results[1])), (None, ValueError))

    def test_a_task_that_never_had_room_gives_its_buffer_back(self):
        async def work(operations):
            buffer = bytearray(100)
            self.node.pause()
            first = asyncio.ensure_future(operations.read(self.region.address, 1))
            second = asyncio.ensure_future(operations.readinto(self.region.address, buffer))
            await asyncio.sleep(0)
            self.assertRaises(BufferError, buffer.clear)
            second.cancel()
            try:
                await second
                self.fail("the task wasn't cancelled")
            except asyncio.CancelledError:
                buffer.clear()  # though the exception's traceback holds the operation
            self.node.go()
            await first
            operations.close()
            buffer.extend(b"x")
            try:
                await operations.readinto(self.region.address, buffer)
                self.fail("the queue is closed")
            except remora.Error as error:
                self.assertEqual(error.errno, errno.EBADF)
                buffer.clear()
        self.run_in_loop(work, depth=1)

    def test_a_cancelled_task_gives_its_buffer_back(self):
        async def work(operations):
            buffer = bytearray(100)
            self.node.pause()
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(operations.readinto(self.region.address, buffer), 0.05)
            buffer.clear()
            self.node.go()
            self.assertEqual(await operations.read(self.region.address, 1), b"\0")
        self.run_in_loop(work, depth=1)

    def test_other_tasks_run_while_the_node_is_silent(self):
        async def work(operations):
            self.node.pause()
            waiting = asyncio.ensure_future(operations.read(self.region.address, 1))
            for _ in range(10):
                await asyncio.sleep(0.001)
            self.assertFalse(waiting.done())
            self.node.go()
            return await waiting
        self.assertEqual(self.run_in_loop(work), b"\0")

    def test_closing_the_handle_ends_the_tasks(self):
        async def main():
            handle = self.open()
            operations = handle.async_queue()
            self.node.pause()
            waiting = asyncio.ensure_future(operations.read(self.region.address, 1))
            await asyncio.sleep(0.001)
            handle.close()
            with self.assertRaises(remora.Error) as caught:
                await waiting
            self.assertEqual(caught.exception.errno, errno.ECANCELED)
            with self.assertRaises(remora.Error) as caught:
                await operations.fence()
            self.assertEqual(caught.exception.errno, errno.EBADF)
            self.node.go()
        asyncio.run(main())

    def test_another_thread_cannot_close_a_running_loops_queue(self):
        async def main():
            handle = self.open()
            async with handle.async_queue():
                with self.assertRaises(RuntimeError):
                    await asyncio.to_thread(handle.close)
                self.assertFalse(handle.closed)
            await asyncio.to_thread(handle.close)
        asyncio.run(main())


class QueuesByRings(Queues):
    transport = "shm"


class AwaitedByRings(Awaited):
    transport = "shm"
