# SPDX-License-Identifier: GPL-2.0
"""tools/style/names: a static function without its file's word is found, in every form of a definition."""

import pathlib
import subprocess
import tempfile
import unittest

NAMES = pathlib.Path(__file__).resolve().parents[4] / "tools/style/names"


def names(path, text):
    """FILE:LINE of each complaint about a tree of one file."""
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(["git", "init", "-q", tree], check=True)
        made = pathlib.Path(tree, path)
        made.parent.mkdir(parents=True)
        made.write_text(text)
        done = subprocess.run([str(NAMES), tree], capture_output=True, text=True, check=False)
    faults = [line.split(": ")[0] for line in done.stderr.splitlines()]
    assert done.returncode == bool(faults), done.stderr
    return faults


class Names(unittest.TestCase):
    def test_each_form_of_a_definition_is_found(self):
        for text in ("static void send(void)\n{\n}\n",
                     "static __always_inline struct a *send(struct b *b,\n\t\t\t\t\tint c)\n{\n}\n",
                     "static bool send(struct a *a) __must_hold(&a->lock)\n{\n}\n",
                     "static void send(void (*fn)(void *arg), void *arg)\n{\n}\n",
                     "static int __init send(void)\n{\n}\n"):
            with self.subTest(text=text):
                self.assertEqual(names("kmod/a/udp.c", text), ["kmod/a/udp.c:1"])

    def test_the_line_is_the_definition_s(self):
        text = "/*\n * static void a(void)\n * {\n */\nstatic int b(void);\n\nstatic int b(void)\n{\n}\n"
        self.assertEqual(names("kmod/a/udp.c", text), ["kmod/a/udp.c:7"])

    def test_stem_plural_and_first_words_pass(self):
        for path, name in (("kmod/a/udp.c", "udp_send"), ("kmod/a/message.c", "messages_send"),
                           ("kmod/a/chr_op.c", "chr_op_new"), ("kmod/a/chr_op.c", "chr_file_new"),
                           ("kmod/marlin/hrdma_engine.c", "engine_look")):
            with self.subTest(name=name):
                self.assertEqual(names(path, f"static void {name}(void)\n{{\n}}\n"), [])

    def test_other_words_of_the_stem_fail(self):
        for path, name in (("kmod/a/chr_op.c", "op_new"), ("kmod/a/udp.c", "udpx_new"),
                           ("kmod/marlin/hrdma_engine.c", "hrdma_look")):
            with self.subTest(name=name):
                self.assertEqual(names(path, f"static void {name}(void)\n{{\n}}\n"), [f"{path}:1"])

    def test_public_functions_data_and_attributes_are_exempt(self):
        self.assertEqual(names("kmod/a/udp.c", "void send(void)\n{\n}\n"
                                               "static const struct a table = { .send = 0 };\n"
                                               "static struct a list[] = {\n\tROW(1) {\n\t},\n};\n"
                                               "static ssize_t state_show(struct device *d)\n{\n}\n"), [])
        self.assertEqual(names("kmod/a/udp.h", "static inline void send(void)\n{\n}\n"), [])


if __name__ == "__main__":
    unittest.main()
