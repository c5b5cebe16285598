# SPDX-License-Identifier: GPL-2.0
"""tools/style/prose: sentences to decode, unclear names of tests and long subjects are found."""

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


def row(folder, actor=0, what=0, of=0, may=0, names=0):
    """A folder's row of the ratchet."""
    return f"{folder} {actor} {what} {of} {may} {names}\n"


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
            self.assertEqual(len(prose({f"a/x.{name}": text}, row("a", 0, 100, 100, 100))), 1, name)

    def test_each_opener_and_masculine_pronoun_fails(self):
        for text in ("Who waits.", "Whoever waits.", "What waits.", "Those wait.", "Nobody waits.", "Somebody waits.",
                     "Such waits.", "But for one.", "It waits.", "That waits.", "The node sends his tag.",
                     "The client waits when he must.", "None is ours."):
            self.assertEqual(len(prose({"a/x.c": f"/* {text} */\n"}, row("a", 0, 100, 100, 100))), 1, text)

    def test_question_and_later_pronoun_pass(self):
        self.assertEqual(prose({"a/x.c": "/* What is left? */\n/* Frees the page. It was taken by open(). */\n"}), [])

    def test_code_and_strings_pass(self):
        self.assertEqual(prose({"a/x.c": 'char *s = "/* what is left */";\n', "a/README.md": "```\nWho calls.\n```\n"}), [])


class Columns(unittest.TestCase):
    """Each text is in a folder whose limits are 0."""

    def faults(self, text, name="x.c"):
        return prose({f"a/{name}": f"/* {text} */\n" if name == "x.c" else text}, row("a"))

    def test_nominal_what_fails(self):
        for text in ("Frees what is left.", "It frees whatever is left, as what came last says.",
                     "Asks \"is it free?\" of what is left."):
            found = self.faults("Frees it. " + text)
            self.assertEqual(len(found), 1, text)
            self.assertIn("50.00 % of its sentences have a nominal what", found[0])

    def test_what_of_a_question_and_of_code_pass(self):
        for text in ("Asks: what is left?", "Frees `what`.", "Frees \"what\".", "Prints what() and may().",
                     "Frees a somewhat large page."):
            self.assertEqual(self.faults(text), [], text)

    def test_sentence_that_begins_with_of_fails(self):
        self.assertIn("100.00 % of its sentences begin with Of", self.faults("Of a GOOD datagram: verify the tag.")[0])
        self.assertEqual(self.faults("of the home"), [])
        self.assertEqual(self.faults("Offers a page of the space."), [])

    def test_lower_case_may_fails_and_specifications_may_passes(self):
        for name in ("x.c", "x.md", "x.3"):
            self.assertIn("100.00 % of its sentences have a may", self.faults("A page may be free.\n", name)[0])
        self.assertEqual(self.faults("A client MAY free it. This is May. It calls `may`, maybe."), [])

    def test_each_column_has_a_limit_of_its_own(self):
        text = "/* Frees the page. Of what may be. */\n"
        for limits, found in {(50, 50, 50): 0, (49, 50, 50): 1, (50, 49, 50): 1, (50, 50, 49): 1, (0, 0, 0): 3}.items():
            self.assertEqual(len(prose({"a/x.c": text}, row("a", 0, *limits))), found, limits)


class Ratchet(unittest.TestCase):
    def test_folder_at_its_share_passes_and_above_it_fails(self):
        files = {"a/x.c": GOOD * 3 + "/* Who waits. */\n"}
        self.assertEqual(prose(files, row("a", 25)), [])
        self.assertEqual(len(prose(files, row("a", 24.99))), 1)

    def test_new_folder_has_the_limits_of_the_anchors(self):
        for text, most in {"Who waits.": 0, "Frees what is left.": 6, "Of a page.": 0, "A page may go.": 35}.items():
            for count in (most, most + 1):
                files = {"a/b/x.c": GOOD * (1000 - count) + f"/* {text} */\n" * count}
                self.assertEqual(len(prose(files, row("a", 100, 100, 100, 100, 9))), count > most, f"{count} {text}")

    def test_row_that_lacks_a_column_is_an_error(self):
        with tempfile.TemporaryDirectory() as tree:
            git(tree, "init", "-q")
            write(tree, {"tools/style/prose.ratchet": "a 25.00 0\n", "a/x.c": GOOD})
            self.assertNotEqual(subprocess.run([str(PROSE), tree], capture_output=True, check=False).returncode, 0)

    def test_lower_never_raises_a_limit(self):
        with tempfile.TemporaryDirectory() as tree:
            git(tree, "init", "-q")
            rows = "# head\n" + row("a", 10) + row("b", 50, 9, 9, 9, 2) + row("gone", 50)
            write(tree, {"tools/style/prose": PROSE.read_text(), "tools/style/prose.ratchet": rows,
                         "a/x.c": "/* Who waits. */\n", "b/x.c": GOOD * 199 + "/* A page may go. */\n",
                         "new/x.c": GOOD * 99 + "/* A page may go. */\n"})
            subprocess.run(["python3", f"{tree}/tools/style/prose", "--lower"], check=True)
            left = [line.split() for line in pathlib.Path(tree, "tools/style/prose.ratchet").read_text().splitlines()]
        self.assertEqual(left, [["#", "head"], ["a", "10.00", "0.00", "0.00", "0.00", "0"],
                                ["b", "0.00", "0.00", "0.00", "0.50", "0"], ["new", "0.00", "0.00", "0.00", "1.00", "0"]])


class Names(unittest.TestCase):
    def test_banned_word_fails_and_row_allows_it(self):
        for name, text in {"x.cpp": "TEST_P(Pieces, WhatCantBe)\n", "y.cpp": "TEST(IntegersWhoseTimeIsUp, Ends)\n",
                           "test_x.py": "class X:\n    def test_nobody_waits(self):\n        pass\n"}.items():
            self.assertEqual(len(prose({f"selftests/a/{name}": text})), 1, name)
            self.assertEqual(prose({f"selftests/a/{name}": text}, row("selftests/a", names=1)), [], name)

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
