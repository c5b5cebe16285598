# SPDX-License-Identifier: GPL-2.0
"""Applications of remote memory (tools/apps) with a remora-node: they check their own results, and notice wrong ones."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from test_kv import BIN, ROOT, node

# Answers zeros for every sum.
LIAR = """
#include <remora/offload.h>

static int liar_step(struct rmem_call *call)
{
	const unsigned short *groups = (const unsigned short *)((const char *)rmem_args(call, 32) + 24);

	return rmem_result(call, *groups * 256) ? 0 : rmem_error(call);
}

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION, .id = 5, .name = "liar", .step = liar_step,
};
"""


class App(unittest.TestCase):
    def run_app(self, name, *words, code=0):
        """Its lines; of stderr if it fails."""
        done = subprocess.run([BIN / name, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done)
        return (done.stderr if code else done.stdout).splitlines()


class Dlrm(App):
    def test_sums_are_right_in_every_way(self):
        with node(offloads=["dlrm.so"]) as (targets, _):
            for target in targets.values():
                for rows in ("i8", "f32"):
                    lines = self.run_app("remora-dlrm", target, "--check", "--items", 5000, "--rows", rows, "--json")
                    found = {(line["by"], line["memo"]): line for line in map(json.loads, lines)}
                    self.assertEqual(set(found), {("query", False), ("query", True), ("read", False), ("local", False),
                                                  ("local", True), ("floor", False)})
                    # i8: the memo's entries are wider than rows, so that there are half as many
                    self.assertLess(found["query", True]["accesses"], 0.8 * found["query", False]["accesses"])
                    self.assertEqual(found["query", True]["accesses"], found["local", True]["accesses"])
                    self.assertEqual(found["query", False]["accesses"], found["read", False]["accesses"])

    def test_wrong_sums_are_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            source, built = pathlib.Path(folder, "liar.c"), pathlib.Path(folder, "liar.so")
            source.write_text(LIAR)
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-I", ROOT / "include", source, "-o", built], check=True)
            with node(offloads=[built]) as (targets, _):
                [line] = self.run_app("remora-dlrm", targets["shm"], "--check", "--items", 2000, "--by", "query", "--json",
                                      code=1)
                self.assertIn("was answered with a wrong sum", line)

    def test_missing_offload_and_misuse_are_named_in_a_line(self):
        with node(offloads=()) as (targets, _):
            [line] = self.run_app("remora-dlrm", targets["shm"], "--items", 2000, code=1)
            self.assertIn("the node has no offload dlrm for this space: run 'remora node offload load", line)
        for words, error in (((), "TARGET is required: see 'remora-dlrm --help'"),
                             (("udp:localhost", "--rows", "f16"), "--rows: 'f16' is no kind of numbers: use i8 or f32"),
                             (("udp:localhost", "--seconds", "0"), "--seconds: give a time above 0")):
            [line] = self.run_app("remora-dlrm", *words, code=2)
            self.assertIn(error, line)


class Image(App):
    def test_pictures_of_several_users_are_right(self):
        users = 4
        with node(offloads=(), spaces=users) as (targets, _):
            for target in targets.values():
                # each in a space of its own, or all in one
                for each in (target.replace("key1", "key{}") + ",space={}", target):
                    [line] = self.run_app("remora-image", each, "--users", users, "--pictures", 3, "--json")
                    figures = json.loads(line)
                    self.assertEqual((figures["users"], figures["pictures"]), (users, 3))
                    self.assertGreater(figures["cpu_us"], 0)

    def test_pictures_unlike_the_originals_are_noticed(self):
        with node(offloads=()) as (targets, _):
            [line] = self.run_app("remora-image", targets["shm"], "--pictures", 3, "--quality", 1, code=1)
            self.assertRegex(line, r"user 1: picture 0 has [0-9.]+ dB, less than 30: raise --quality")

    def test_a_user_without_a_space_ends_all(self):
        with node(offloads=(), spaces=2) as (targets, _):
            [line] = self.run_app("remora-image", targets["shm"].replace("key1", "key{}") + ",space={}", "--users", 3, code=1)
            self.assertIn("user 3 can't open", line)

    def test_misuse_is_named_in_a_line(self):
        for words, error in (((), "TARGET is required: see 'remora-image --help'"),
                             (("udp:localhost", "--users", "0"), "--users"),
                             (("udp:localhost", "--quality", "101"), "--quality")):
            [line] = self.run_app("remora-image", *words, code=2)
            self.assertIn(error, line)


if __name__ == "__main__":
    unittest.main()
