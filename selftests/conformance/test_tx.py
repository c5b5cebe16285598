# SPDX-License-Identifier: GPL-2.0
"""tools/offloads/tx in chains of two and three remora-nodes, whose processes are killed under load."""

import contextlib
import os
import pathlib
import secrets
import signal
import subprocess
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "out/bin"
OFFLOAD = ROOT / "out/lib/offload/tx.so"


def run(*words, code=0):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != code:
        raise AssertionError(f"{words} ended with {done.returncode}: {done.stdout} {done.stderr}")
    return done.stdout + done.stderr


class Replica:
    """A remora-node with a memory file, and the offload. It can be killed and started again, at the same port."""

    def __init__(self, folder, name, port=0, size="4M"):
        self.folder, self.name, self.port, self.size = pathlib.Path(folder), name, port, size
        self.key = self.folder / f"{name}.key"
        self.key.write_text(secrets.token_hex(16) + "\n")
        self.key.chmod(0o600)
        self.control, self.rings, self.file = (str(self.folder / f"{name}.{end}") for end in ("control", "rings", "memory"))
        self.process = None

    def words(self, *more, file=None):
        """A node's command line with this replica's space. file: --memory-file."""
        return [BIN / "remora-node", "--memory", "16M", "--no-lock", "--bind", "127.0.0.1", "--port", str(self.port), "--space",
                f"1={self.key}", "--memory-file", file or f"1={self.file},size={self.size}", *more]

    def start(self, *links, load=True):
        ready, given = os.pipe()
        self.process = subprocess.Popen(
            self.words("--socket", self.control, "--shm", self.rings, "--ready-fd", str(given)), pass_fds=[given],
            stdout=subprocess.PIPE, text=True)
        os.close(given)
        with os.fdopen(ready) as pipe:
            line = pipe.readline()
        assert line, "remora-node didn't start"
        self.port = int(line)
        if load:
            self.load(*links)

    def refused(self, *more, file=None):
        """Why another node with this command line doesn't start."""
        return run(*self.words("--socket", self.control + "2", *more, file=file), code=1)

    def load(self, *links, code=0):
        words = [word for link in links for word in ("--link", link)]
        return run(BIN / "remora", "node", "offload", "load", OFFLOAD, "--space", "1", "--socket", self.control, *words, code=code)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
            self.process.stdout.close()

    def udp(self):
        return f"udp:127.0.0.1:{self.port},key={self.key}"

    def shm(self):
        return f"shm:{self.rings},key={self.key}"


class Chain(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        # Without a disk, that msync() would wait for.
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))

    def replica(self, name, **options):
        made = Replica(self.folder, name, **options)
        self.stack.callback(made.stop)
        return made

    def chain(self):
        """Head and tail, by UDP."""
        tail = self.replica("tail")
        tail.start()
        head = self.replica("head")
        head.start(f"next={tail.udp()}")
        self.tx("chain", head.udp(), "--epoch", "1", "--head", "--next")
        return head, tail

    def tx(self, *words, code=0):
        return run(BIN / "remora-tx", *map(str, words), code=code)

    def status(self, replica):
        words = self.tx("status", replica.udp()).split()
        return dict(zip(words[::2], words[1::2]))

    @contextlib.contextmanager
    def load(self, target, *words):
        """A load whose numbers are read while it runs."""
        with subprocess.Popen([BIN / "remora-tx", "load", target, "--report", *map(str, words)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as running:
            try:
                yield running
            finally:
                running.kill()

    def test_transactions_by_all_sizes(self):
        head, tail = self.chain()
        for target in (head.udp(), head.shm()):
            for n, size in enumerate((8, 64, 1000, 1024, 4096)):
                sequence = 0 if target == head.udp() else 100
                self.tx("load", target, "--bytes", size, "--count", 100, "--pairs", 4, "--slot", 1 + n * 400_000 // (8 * size),
                        "--sequence", sequence, "--client", size)
        self.tx("compare", head.udp(), tail.udp(), "--bytes", 2_500_000)
        self.assertEqual(self.status(head)["end"], self.status(tail)["end"])

    def test_log_wraps(self):
        head, tail = self.chain()
        out = self.tx("load", head.shm(), "--bytes", 4000, "--count", 400, "--pairs", 4)
        self.assertEqual(out, "400 transactions, 0 of them repeated\n")
        status = self.status(head)
        self.assertGreater(int(status["begin"]), 4 * int(status["log"]))
        self.tx("compare", head.udp(), tail.udp(), "--bytes", 40_000)

    def kill_under_load(self, which):
        head, tail = self.chain()
        count = 3000
        with self.load(head.udp(), "--count", count, "--pairs", 5) as running:
            last = 0
            for stop in (500, 1200, 2000):
                while last < stop:
                    line = running.stdout.readline()
                    self.assertTrue(line, running.poll() is not None and running.stderr.read())
                    last = int(line)
                victim = {"head": head, "tail": tail}[which]
                victim.kill()
                victim.start(*([f"next={tail.udp()}"] if victim is head else []))
            for line in running.stdout:
                last = int(line)
            self.assertEqual(running.wait(120), 0, running.stderr.read())
        self.assertEqual(last, count)
        self.assertEqual(self.tx("check", head.udp(), "--pairs", 5, "--acked", count), f"{count}\n")
        self.tx("compare", head.udp(), tail.udp())

    def test_head_is_killed_under_load(self):
        self.kill_under_load("head")

    def test_tail_is_killed_under_load(self):
        self.kill_under_load("tail")

    def test_each_of_three_replicas_is_killed_under_load(self):
        replicas = tail, middle, head = [self.replica(name) for name in ("tail", "middle", "head")]
        links = {tail: []}
        tail.start()
        for each, behind in ((middle, tail), (head, middle)):
            links[each] = [f"next={behind.udp()}"]
            each.start(*links[each])
        self.tx("chain", middle.udp(), "--epoch", 1, "--next")
        self.tx("chain", head.udp(), "--epoch", 1, "--head", "--next")
        count, last = 1500, 0
        with self.load(head.udp(), "--count", count, "--pairs", 5) as running:
            for victim in replicas:
                for _ in range(300):
                    line = running.stdout.readline()
                    self.assertTrue(line, running.poll() is not None and running.stderr.read())
                    last = int(line)
                victim.kill()
                victim.start(*links[victim])
            for line in running.stdout:
                last = int(line)
            self.assertEqual(running.wait(120), 0, running.stderr.read())
        self.assertEqual(last, count)
        self.assertEqual(self.tx("check", head.udp(), "--pairs", 5, "--acked", count), f"{count}\n")
        for each in (middle, tail):
            self.tx("compare", head.udp(), each.udp())
            self.assertEqual(self.status(each)["end"], self.status(head)["end"])

    def test_client_is_killed_and_its_last_transaction_is_there_once(self):
        head, _ = self.chain()
        with self.load(head.udp(), "--count", 100_000, "--pairs", 5, "--client", 77) as running:
            while int(running.stdout.readline()) < 300:
                pass
            running.kill()
            last = [line for line in running.stdout if line.endswith("\n")]
        acked = int(last[-1]) if last else 300
        highest = int(self.tx("check", head.udp(), "--pairs", 5, "--acked", acked))
        self.assertLessEqual(highest, acked + 1)
        # The same number again: it is answered as repeated if it was executed.
        out = self.tx("load", head.udp(), "--count", 1, "--pairs", 5, "--client", 77, "--sequence", highest - 1)
        self.assertEqual(out, "1 transactions, 1 of them repeated\n")

    def test_tail_becomes_the_head_and_the_old_epoch_is_refused(self):
        head, tail = self.chain()
        self.tx("load", head.udp(), "--count", 200, "--client", 5)
        self.assertIn("isn't its chain's head", self.tx("load", tail.udp(), "--count", 1, code=1))
        self.tx("chain", tail.udp(), "--epoch", 2, "--head")
        # The old head can't commit any more.
        self.assertIn("later epoch", self.tx("load", head.udp(), "--count", 1, "--slot", 3, "--patience", 0, code=1))
        self.assertIn("later epoch", self.tx("chain", tail.udp(), "--epoch", 2, "--head", code=1))
        self.tx("load", tail.udp(), "--count", 100, "--client", 5, "--sequence", 200)
        self.tx("check", tail.udp(), "--acked", 300, "--sequence", 200)
        # A restart doesn't give it its epoch back.
        head.kill()
        head.start(f"next={tail.udp()}")
        before = self.status(head)
        self.assertEqual((before["epoch"], before["role"]), ("1", "head+next+fenced"))
        self.assertIn("isn't its chain's head", self.tx("load", head.udp(), "--count", 1, "--slot", 3, code=1))
        self.assertEqual(self.status(head), before)

    def test_copy_of_the_heads_file_is_a_next_replica(self):
        head, tail = self.chain()
        self.tx("load", head.udp(), "--count", 50, "--client", 5)
        tail.kill()
        self.tx("chain", head.udp(), "--epoch", 2, "--head")
        self.tx("load", head.udp(), "--count", 50, "--client", 5, "--sequence", 50)
        head.kill()
        pathlib.Path(tail.file).write_bytes(pathlib.Path(head.file).read_bytes())
        tail.start()
        head.start(f"next={tail.udp()}")
        self.tx("chain", head.udp(), "--epoch", 3, "--head", "--next")
        self.tx("load", head.udp(), "--count", 50, "--client", 5, "--sequence", 100)
        self.assertEqual(self.status(tail)["epoch"], "3")
        self.tx("compare", head.udp(), tail.udp())

    def lone_head(self, count):
        """A head that executed so many transactions without its tail, and then got it."""
        tail = self.replica("tail")
        tail.start()
        head = self.replica("head")
        head.start(f"next={tail.udp()}")
        self.tx("chain", head.udp(), "--epoch", 1, "--head")
        self.tx("load", head.udp(), "--count", count, "--client", 5)
        self.tx("chain", head.udp(), "--epoch", 2, "--head", "--next")
        return head, tail

    def test_restarted_head_sends_many_records_that_the_tail_lacks(self):
        head, tail = self.lone_head(400)
        head.kill()
        head.start(f"next={tail.udp()}")
        self.assertEqual(self.status(head)["end"], self.status(tail)["end"])
        self.tx("compare", head.udp(), tail.udp())

    def test_gained_tail_gets_the_records_that_it_lacks(self):
        head, tail = self.lone_head(100)
        self.tx("load", head.udp(), "--count", 1, "--client", 5, "--sequence", 100)
        self.assertEqual(self.status(head)["end"], self.status(tail)["end"])
        self.tx("compare", head.udp(), tail.udp())

    def test_emptied_tail_gets_the_records_that_it_had(self):
        head, tail = self.chain()
        self.tx("load", head.udp(), "--count", 100, "--client", 5)
        tail.kill()
        pathlib.Path(tail.file).unlink()
        tail.start()
        self.tx("load", head.udp(), "--count", 1, "--client", 5, "--sequence", 100)
        self.assertEqual(self.status(head)["end"], self.status(tail)["end"])
        self.tx("compare", head.udp(), tail.udp())

    def test_replica_of_another_size_is_refused(self):
        tail = self.replica("tail", size="8M")
        tail.start()
        head = self.replica("head")
        head.start(f"next={tail.udp()}")
        self.assertIn("another size", self.tx("chain", head.udp(), "--epoch", 1, "--head", "--next", code=1))
        self.assertEqual(self.status(tail)["epoch"], "0")
        # The same at the start of a head.
        same = self.replica("same")
        same.start()
        head.kill()
        head.start(f"next={same.udp()}")
        self.tx("chain", head.udp(), "--epoch", 1, "--head", "--next")
        head.kill()
        head.start(load=False)
        self.assertIn("cross-device", head.load(f"next={tail.udp()}", code=1))
        self.assertEqual(self.status(tail)["epoch"], "0")

    def test_replica_with_other_records_is_refused(self):
        other = self.replica("other")
        other.start()
        head = self.replica("head")
        head.start(f"next={other.udp()}")
        for client, replica in enumerate((head, other)):
            self.tx("chain", replica.udp(), "--epoch", 1, "--head")
            self.tx("load", replica.udp(), "--count", 5, "--client", 5 + client)
        self.assertEqual(self.status(head)["end"], self.status(other)["end"])
        self.assertIn("doesn't have", self.tx("chain", head.udp(), "--epoch", 2, "--head", "--next", code=1))
        self.assertEqual(self.status(other)["epoch"], "1")

    def test_head_with_an_unacknowledged_record_is_not_demoted(self):
        head, tail = self.chain()
        self.tx("load", head.udp(), "--count", 5, "--client", 5)
        tail.kill()
        self.assertIn("next replica", self.tx("load", head.udp(), "--count", 1, "--client", 5, "--sequence", 5, "--patience", 0,
                                              code=1))
        before = self.status(head)
        self.assertNotEqual(before["applied"], before["end"])
        self.assertIn("doesn't have", self.tx("chain", head.udp(), "--epoch", 2, code=1))
        self.assertEqual(self.status(head), before)

    def test_transactions_of_many_clients_are_in_one_order(self):
        head, tail = self.chain()
        failures = []

        def load(slot):
            try:
                self.tx("load", head.shm(), "--slot", slot, "--count", 300, "--pairs", 2, "--shared")
            except AssertionError as failure:
                failures.append(str(failure))
        threads = [threading.Thread(target=load, args=(slot,)) for slot in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(failures, [])
        self.tx("compare", head.udp(), tail.udp())

    def test_modest_client_ends_beside_greedy_ones_of_its_key(self):
        head, tail = self.chain()
        with contextlib.ExitStack() as greedy:
            # Each writes the tuple that the modest client writes, too, and has work for much longer.
            running = [greedy.enter_context(self.load(head.udp(), "--slot", slot, "--count", 1_000_000, "--shared"))
                       for slot in range(4)]
            for each in running:
                self.assertTrue(each.stdout.readline())
            readers = [threading.Thread(target=each.stdout.read) for each in running]
            for each in readers:
                each.start()
            self.tx("load", head.udp(), "--slot", 9, "--count", 100, "--shared")
            for each in running:
                self.assertIsNone(each.poll())
                each.kill()
            for each in readers:
                each.join()
        # Transactions of clients that were killed end, too.
        self.tx("load", head.udp(), "--slot", 9, "--count", 10, "--shared", "--sequence", 100)
        self.tx("compare", head.udp(), tail.udp())

    def test_file_of_another_kind_is_refused(self):
        replica = self.replica("alone")
        other = pathlib.Path(replica.file)
        other.write_bytes(b"not a log".ljust(4 << 20, b"\0"))
        replica.start(load=False)
        self.assertIn("another format", replica.load(code=1))
        replica.kill()
        other.write_bytes(bytes(1 << 20))
        self.assertIn("has 1M, not 4M", replica.refused())

    def test_holes_of_the_file_are_filled(self):
        replica = self.replica("alone")
        with open(replica.file, "wb") as file:
            file.truncate(4 << 20)
        replica.start()
        self.assertGreaterEqual(os.stat(replica.file).st_blocks * 512, 4 << 20)

    def test_file_of_a_view_is_refused(self):
        replica, reader = self.replica("alone"), self.replica("reader")
        self.assertIn("is a view", replica.refused("--space", f"2={reader.key},read-only-of=1", file=f"2={replica.file},size=4M"))

    def test_second_process_is_refused_the_file(self):
        replica = self.replica("alone")
        replica.start()
        self.assertIn("another process", self.replica("alone").refused())

    def test_space_of_a_memory_file_is_not_deleted(self):
        replica = self.replica("alone")
        replica.start()
        out = run(BIN / "remora", "node", "space", "del", "1", "--force", "--socket", replica.control, code=1)
        self.assertIn("memory file", out)
        self.assertEqual(self.status(replica)["end"], "0")

    def test_replica_that_lost_its_next_one_is_given_another_place(self):
        head, tail = self.chain()
        self.tx("load", head.udp(), "--count", 20, "--client", 5)
        tail.kill()
        head.kill()
        head.start()
        self.assertEqual(self.status(head)["role"], "head+next+fenced")
        self.assertIn("isn't its chain's head", self.tx("load", head.udp(), "--count", 1, "--client", 5, "--sequence", 20, code=1))
        self.tx("chain", head.udp(), "--epoch", 2, "--head")
        self.assertEqual(self.status(head)["role"], "head")
        self.tx("load", head.udp(), "--count", 10, "--client", 5, "--sequence", 20)
        self.tx("check", head.udp(), "--acked", 30, "--sequence", 20)

    def test_replica_that_cannot_reach_its_next_one_does_not_start(self):
        head, _ = self.chain()
        head.kill()
        head.start(load=False)
        empty = self.replica("empty")
        empty.start(load=False)
        self.assertIn("doesn't answer", head.load(f"next={empty.udp()}", code=1))


if __name__ == "__main__":
    unittest.main()
