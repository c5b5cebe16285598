# SPDX-License-Identifier: GPL-2.0
"""tools/style/prose: sentences without an actor, unclear names of tests and long subjects are found."""

import pathlib
import subprocess
import tempfile
import unittest

PROSE = pathlib.Path(__file__).resolve().parents[4] / "tools/style/prose"
CHECK = "tools/style/prose"  # the file whose first commit the subjects are counted from
GOOD = "/* Frees the page. */\n"


def git(tree, *args):
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", "-C", tree, *args], check=True,
                   capture_output=True)


def write(tree, files):
    for name, text in files.items():
        made = pathlib.Path(tree, name)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)


def run(tree):
    done = subprocess.run([str(PROSE), tree], capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == bool(lines), done.stderr
    return lines


def prose(files, ratchet=""):
    """What is found in a tree of FILES (name: text) under RATCHET."""
    with tempfile.TemporaryDirectory() as tree:
        git(tree, "init", "-q")
        write(tree, {"tools/style/prose.ratchet": ratchet, **files})
        return run(tree)


def subjects(*messages):
    """What is found after commits with these messages, the first of which brings the check."""
    with tempfile.TemporaryDirectory() as tree:
        git(tree, "init", "-q")
        write(tree, {CHECK: "", "tools/style/prose.ratchet": ""})
        git(tree, "add", "-A")
        for message in messages:
            git(tree, "commit", "-q", "--allow-empty", "-m", message)
        return run(tree)


class Sentences(unittest.TestCase):
    def test_good_sentence_passes_in_every_format(self):
        self.assertEqual(prose({
            "a/x.c": GOOD, "a/x.cpp": "// Frees the page.\n", "a/x.py": '"""Frees the page."""\n# And more.\n',
            "a/x.sh": "# Frees the page.\n", "a/README.md": "The node frees it.\n", "a/x.3": "The node frees it.\n"}), [])

    def test_sentence_without_an_actor_fails_in_every_format(self):
        for name, text in {
                "c": "int a; /* what is left */\n", "h": "/*\n * Reads it.\n * Who reads, waits.\n */\n",
                "cpp": "// Those that end.\n", "py": "def f():\n    '''Whoever calls.'''\n", "sh": "# Nobody waits.\n",
                "md": "| a | b |\n|---|---|\n| a | what it is |\n", "3": ".SH X\nWho calls it waits.\n"}.items():
            self.assertEqual(len(prose({f"a/x.{name}": text})), 1, name)

    def test_each_opener_and_masculine_pronoun_fails(self):
        for text in ("Who waits.", "Whoever waits.", "What waits.", "Those wait.", "Nobody waits.", "Somebody waits.",
                     "Such waits.", "But for one.", "It waits.", "That waits.", "The node sends his tag.",
                     "The client waits when he must.", "None is ours."):
            self.assertEqual(len(prose({"a/x.c": f"/* {text} */\n"})), 1, text)

    def test_question_and_later_pronoun_pass(self):
        self.assertEqual(prose({"a/x.c": "/* What is left? */\n/* Frees the page. It was taken by open(). */\n"}), [])

    def test_code_and_strings_pass(self):
        self.assertEqual(prose({"a/x.c": 'char *s = "/* what is left */";\n', "a/README.md": "```\nWho calls.\n```\n"}), [])


class Ratchet(unittest.TestCase):
    def test_folder_at_its_share_passes_and_above_it_fails(self):
        files = {"a/x.c": GOOD * 3 + "/* Who waits. */\n"}
        self.assertEqual(prose(files, "a 25.00 0\n"), [])
        self.assertEqual(len(prose(files, "a 24.99 0\n")), 1)

    def test_folder_without_a_row_may_have_none(self):
        self.assertEqual(len(prose({"a/b/x.c": "/* Who waits. */\n"}, "a 100.00 9\n")), 1)

    def test_lower_never_raises_an_entry(self):
        with tempfile.TemporaryDirectory() as tree:
            git(tree, "init", "-q")
            rows = "# head\na 10.00 0\nb 50.00 2\n"
            write(tree, {"tools/style/prose": PROSE.read_text(), "tools/style/prose.ratchet": rows,
                         "a/x.c": "/* Who waits. */\n", "b/x.c": GOOD})
            subprocess.run(["python3", f"{tree}/tools/style/prose", "--lower"], check=True)
            left = pathlib.Path(tree, "tools/style/prose.ratchet").read_text().split()
        self.assertEqual(left, ["#", "head", "a", "10.00", "0"])


class Names(unittest.TestCase):
    def test_banned_word_fails_and_row_allows_it(self):
        for name, text in {"x.cpp": "TEST_P(Pieces, WhatCantBe)\n", "y.cpp": "TEST(IntegersWhoseTimeIsUp, Ends)\n",
                           "test_x.py": "class X:\n    def test_nobody_waits(self):\n        pass\n"}.items():
            self.assertEqual(len(prose({f"selftests/a/{name}": text})), 1, name)
            self.assertEqual(prose({f"selftests/a/{name}": text}, "selftests/a 0.00 1\n"), [], name)

    def test_condition_and_result_passes(self):
        self.assertEqual(prose({"selftests/a/x.cpp": "TEST(Vectored, RejectsInvalidArguments)\n"
                                                     "TEST(Page, WhatsoeverIsAWordOfItsOwn)\n"}), [])


class Subjects(unittest.TestCase):
    def test_long_subject_after_the_check_fails(self):
        self.assertEqual(len(subjects("check", "a" * 73)), 1)

    def test_subject_of_72_and_long_body_pass(self):
        self.assertEqual(subjects("check", "a" * 72, "short\n\n" + "b" * 100), [])

    def test_commits_before_the_check_are_left_alone(self):
        self.assertEqual(subjects("a" * 80), [])

    def test_only_the_last_twenty_count(self):
        self.assertEqual(subjects("check", "a" * 80, *["short"] * 20), [])
