# SPDX-License-Identifier: GPL-2.0
"""tools/check/run on programs that pass, fail, crash, hang or do nothing: none of them may pass for
another, and the last line and the exit status say the same."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import select
import sys
import tempfile
import unittest
from unittest import mock

RUN = pathlib.Path(__file__).resolve().parents[4] / "tools/check/run"


def load():
    loader = importlib.machinery.SourceFileLoader("check_run", str(RUN))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_run", loader))
    loader.exec_module(module)
    return module


check = load()

GOOD = ("tap", "1..1\nok 1 - a\n", "exit 0")
GTEST_GOOD = """\
[==========] Running 2 tests from 1 test suite.
[ RUN      ] A.B
[       OK ] A.B (0 ms)
[ RUN      ] A.C
[  SKIPPED ] A.C (0 ms)
[==========] 2 tests from 1 test suite ran. (0 ms total)
"""
GTEST_BAD = """\
[ RUN      ] A.B
a.cpp:1: Failure
[  FAILED  ] A.B (0 ms)
[==========] 1 test from 1 test suite ran. (0 ms total)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] A.B
"""
GTEST_CRASH = """\
[ RUN      ] A.A
[       OK ] A.A (0 ms)
[ RUN      ] A.B
==1==ERROR: AddressSanitizer
"""
GTEST_EMPTY = "[==========] 0 tests from 0 test suites ran. (0 ms total)\n"


def write_program(folder, name, script):
    program = pathlib.Path(folder, name)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def until(condition):
    """Shell commands that wait for CONDITION, and fail if it doesn't come."""
    return f"for turn in $(seq 1000); do {condition} && exit 0; sleep 0.01; done; exit 1"


class Check(unittest.TestCase):
    def run_suites(self, *suites, kernel=None, cpus=1, make=":"):
        """(exit status, last line, everything said) of suites given as (kind, output, exit status, target...). MAKE is
        a script in make's place: $1 is its target."""
        with tempfile.TemporaryDirectory() as folder:
            made = []
            for number, (kind, output, status, *targets) in enumerate(suites):
                program = write_program(folder, f"program{number}", f"cat <<'END'\n{output}END\n{status}")
                made.append(check.Suite(f"suite{number}", kind, targets, kernel, cpus, 5.0, [str(program)]))
            write_program(folder, "make", f"shift\n{make}")
            words = io.StringIO()
            with mock.patch.object(check, "read_suites", lambda: made), \
                    mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}), \
                    mock.patch.object(check, "LOGS", pathlib.Path(folder, "logs")), \
                    mock.patch.object(sys, "argv", ["run"]), contextlib.redirect_stdout(words):
                status = check.main()
        return status, words.getvalue().splitlines()[-1], words.getvalue()

    def expect(self, suite, status, last):
        got = self.run_suites(suite)
        self.assertEqual(got[:2], (status, last), got[2])

    def test_suites_run_beside_each_other_where_processors_are_free(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(os, "cpu_count", lambda: 2):
            def meets(mine, other):
                return ("tap", "1..1\nok 1 - a\n", f"touch {folder}/{mine}; "
                        f"until [ -e {folder}/{other} ]; do sleep 0.01; done")
            got = self.run_suites(meets("a", "b"), meets("b", "a"))
            self.assertEqual(got[:2], (0, "2 passed, 0 failed"), got[2])

    def test_one_that_wants_all_processors_is_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = ("tap", "1..1\nok 1 - a\n", f"mkdir {folder}/x && sleep 0.1 && rmdir {folder}/x")
            for processors, cpus in ((1, 1), (2, 2), (1, 2), (3, 2)):
                with mock.patch.object(os, "cpu_count", lambda processors=processors: processors):
                    got = self.run_suites(alone, alone, alone, kernel="6.12", cpus=cpus)
                self.assertEqual(got[:2], (0, "3 passed, 0 failed"), got[2])

    def test_a_target_is_made_once(self):
        with tempfile.TemporaryDirectory() as folder:
            got = self.run_suites((*GOOD, "good"), (*GOOD, "good", "bad"), (*GOOD, "bad"), GOOD,
                                  make=f'echo "$@" >>{folder}/made; [ $1 = good ]')
            self.assertEqual(got[:2], (1, "2 passed, 2 failed"), got[2])
            self.assertEqual(pathlib.Path(folder, "made").read_text(), "good\nbad\n")
        self.assertIn("FAIL suite1: make bad", got[2])
        self.assertIn("FAIL suite2: make bad", got[2][got[2].index("seconds that suites took"):])

    def test_a_suite_runs_while_a_later_ones_needs_are_made(self):
        with tempfile.TemporaryDirectory() as folder:
            got = self.run_suites(("tap", "1..1\nok 1 - a\n", f"touch {folder}/ran"), (*GOOD, "late"),
                                  make=until(f"[ -e {folder}/ran ]"))
            self.assertEqual(got[:2], (0, "2 passed, 0 failed"), got[2])

    def test_a_built_suite_passes_one_that_waits_for_make(self):
        with tempfile.TemporaryDirectory() as folder:
            got = self.run_suites((*GOOD, "late"), ("tap", "1..1\nok 1 - a\n", f"touch {folder}/ran"),
                                  make=until(f"[ -e {folder}/ran ]"))
            self.assertEqual(got[:2], (0, "2 passed, 0 failed"), got[2])

    def test_programs_kernels_and_downloads_are_made_beside_each_other(self):
        with tempfile.TemporaryDirectory() as folder:
            got = self.run_suites((*GOOD, "user", "modules-uml", "kernel-6.12"),
                                  make=f"touch {folder}/$1\n" + until(f'[ "$(ls {folder} | wc -l)" = 3 ]'))
            self.assertEqual(got[:2], (0, "1 passed, 0 failed"), got[2])

    def test_the_table_says_how_long_suites_took(self):
        burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.6: pass'"
        _, _, words = self.run_suites(("tap", "1..1\nok 1 - a\n", burn, "a"), GOOD, make=burn)
        rows = [line.split() for line in words[words.index("seconds that suites took"):].splitlines()[2:5]]
        self.assertEqual([row[0] for row in rows], ["suite0", "suite1", "all"])
        self.assertGreaterEqual(int(rows[0][2]), 1, words)
        self.assertGreaterEqual(int(rows[0][4]), 1, words)
        self.assertEqual(rows[1][1:3], ["0", "0"])

    def test_one_that_fails_fails_all(self):
        got = self.run_suites(("tap", "1..1\nok 1 - a\n", "exit 0"), ("tap", "1..1\nnot ok 1 - b\n", "exit 1"),
                              kernel="6.12")
        self.assertEqual(got[:2], (1, "1 passed, 1 failed"), got[2])

    def test_why_a_test_failed_is_said_again_at_the_end(self):
        why = "".join(f"# line {number}\n" for number in range(20))
        _, _, words = self.run_suites(("tap", f"1..2\nnot ok 1 - a\n{why}ok 2 - b\n# of b\n", "exit 1"))
        end = words[words.rindex("FAIL suite0: a"):]
        for line in ("line 0", "line 4", "line 15", "line 19"):
            self.assertIn(line, end)
        for line in ("line 5", "line 14", "of b"):
            self.assertNotIn(line, end)
        _, _, words = self.run_suites(("gtest", GTEST_BAD, "exit 1"))
        self.assertIn("a.cpp:1: Failure", words[words.rindex("FAIL suite0: A.B"):])

    def test_tap(self):
        self.expect(("tap", "1..2\nok 1 - a\nok 2 - b\n", "exit 0"), 0, "2 passed, 0 failed")
        self.expect(("tap", "ok 1 - a\nok 2 - b # SKIP no disk\n1..2\n", "exit 0"), 0,
                    "1 passed, 0 failed, 1 skipped")
        self.expect(("tap", "1..2\nok 1 - a\nnot ok 2 - b\n", "exit 1"), 1, "1 passed, 1 failed")

    def test_a_plan_not_kept_fails(self):
        self.expect(("tap", "1..3\nok 1 - a\n", "exit 0"), 1, "1 passed, 1 failed")
        self.expect(("tap", "ok 1 - a\n", "exit 0"), 1, "1 passed, 1 failed")

    def test_bail_out_fails(self):
        self.expect(("tap", "1..2\nok 1 - a\nBail out! no machine\n", "exit 1"), 1,
                    "1 passed, 1 failed")

    def test_a_bad_exit_fails(self):
        self.expect(("tap", "1..1\nok 1 - a\n", "exit 3"), 1, "1 passed, 1 failed")
        self.expect(("tap", "1..1\nok 1 - a\n", "kill -SEGV $$"), 1, "1 passed, 1 failed")

    def test_nothing_run_fails(self):
        for kind, output in (("tap", ""), ("tap", "1..0\n"), ("gtest", GTEST_EMPTY)):
            with self.subTest(kind=kind, output=output):
                self.expect((kind, output, "exit 0"), 1, "0 passed, 1 failed")

    def test_only_skipped_fails(self):
        self.expect(("tap", "1..1\nok 1 - a # SKIP no\n", "exit 0"), 1,
                    "0 passed, 1 failed, 1 skipped")

    def test_gtest(self):
        self.expect(("gtest", GTEST_GOOD, "exit 0"), 0, "1 passed, 0 failed, 1 skipped")
        self.expect(("gtest", GTEST_BAD, "exit 1"), 1, "0 passed, 1 failed")

    def test_a_crash_names_its_test(self):
        status, last, words = self.run_suites(("gtest", GTEST_CRASH, "exit 1"))
        self.assertEqual((status, last), (1, "1 passed, 1 failed"))
        self.assertIn("A.B did not end", words)
        self.assertIn("AddressSanitizer", words)

    def test_silent_programs_count_by_their_exit(self):
        self.expect(("programs", "hello\n", "exit 0"), 0, "1 passed, 0 failed")
        self.expect(("programs", "hello\n", "exit 1"), 1, "0 passed, 1 failed")

    def test_a_pattern_without_programs_fails(self):
        for kind in ("programs", "gtest"):
            missing = check.Suite("none", kind, [], None, 1, 5.0, ["out/no/such/*"])
            with tempfile.TemporaryDirectory() as folder, \
                    mock.patch.object(check, "LOGS", pathlib.Path(folder)), \
                    contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(list(check.run_suite(missing, check.Cost())), [0, 1, 0])

    def test_a_hung_program_is_ended_with_its_children(self):
        with tempfile.TemporaryDirectory() as folder:
            alive = pathlib.Path(folder, "alive")
            hung = check.Suite("hung", "tap", [], None, 1, 0.5,
                               ["sh", "-c", f"echo 1..1; sleep 60 & echo $! > {alive}; wait"])
            words = io.StringIO()
            with mock.patch.object(check, "LOGS", pathlib.Path(folder)), \
                    contextlib.redirect_stdout(words):
                self.assertEqual(list(check.run_suite(hung, check.Cost())), [0, 1, 0])
            self.assertIn("not done after", words.getvalue())
            try:
                child = os.pidfd_open(int(alive.read_text()))
            except ProcessLookupError:
                return
            self.addCleanup(os.close, child)
            ended, _, _ = select.select([child], [], [], 30)
            self.assertTrue(ended, "it sleeps for 60 s if nobody ends it")

    def test_suites_add_up(self):
        status, last, _ = self.run_suites(("tap", "1..1\nok 1 - a\n", "exit 0"),
                                          ("tap", "1..1\nnot ok 1 - a\n", "exit 1"),
                                          ("gtest", GTEST_GOOD, "exit 0"))
        self.assertEqual((status, last), (1, "2 passed, 1 failed, 1 skipped"))

    def test_failures_are_named_again_at_the_end(self):
        _, _, words = self.run_suites(("tap", "1..1\nnot ok 1 - a\n", "exit 1"),
                                      ("gtest", GTEST_CRASH, "exit 1"),
                                      ("tap", "1..1\nok 1 - a\n", "exit 0"))
        for failure in ("FAIL suite0: a", "FAIL suite1: A.B did not end"):
            self.assertEqual(words.count(failure), 2, words)


class TheList(unittest.TestCase):
    def test_every_suite_reads(self):
        suites = check.read_suites()
        self.assertTrue(suites)
        self.assertEqual(len({suite.name for suite in suites}), len(suites))
        for suite in suites:
            self.assertIn(suite.kind, ("tap", "gtest", "programs"))
            self.assertGreater(suite.bound_s, 0)
            self.assertFalse([target for target in suite.build if "KERNEL" in target])

    def test_an_unknown_suite_is_an_error(self):
        with self.assertRaises(SystemExit):
            check.choose(check.read_suites(), ["nosuch"])


if __name__ == "__main__":
    unittest.main()
