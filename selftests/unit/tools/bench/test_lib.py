# SPDX-License-Identifier: GPL-2.0
"""bench-lib refuses invalid arguments before it measures anything."""

import os
import pathlib
import resource
import subprocess
import unittest

RUN = pathlib.Path(__file__).resolve().parents[4] / "tools/bench/lib/run"


class Lib(unittest.TestCase):
    @unittest.skipUnless({0, 1} <= os.sched_getaffinity(0), "it wants two processors")
    def test_too_few_files(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1000))
        done = subprocess.run([RUN, "--peers", "/nowhere", "--cases", "sessions"], preexec_fn=limit, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, "sessions wants 1175 open files, and this process may have 1000")


if __name__ == "__main__":
    unittest.main()
