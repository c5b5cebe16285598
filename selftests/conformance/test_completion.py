# SPDX-License-Identifier: GPL-2.0
"""Completion of remora's command line: what bash offers at a tab, and nearest words for mistyped ones."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REMORA = ROOT / "out/bin/remora"
COMPLETION = ROOT / "tools/remora/completion"
# Completes the words given, as readline calls a completion function.
DRIVER = """
source "$1"; shift
compopt() { asked_for_files=yes; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_remora
[[ -z ${asked_for_files-} ]] || echo FILES
[[ ${#COMPREPLY[@]} == 0 ]] || printf '%s\\n' "${COMPREPLY[@]}"
"""


def bash(*words):
    done = subprocess.run(["bash", "-c", DRIVER, "bash", COMPLETION / "remora.bash", REMORA, *words], capture_output=True,
                          text=True, timeout=60, check=True)
    assert done.stderr == "", done
    return done.stdout.split()


def refused(*words):
    done = subprocess.run([REMORA, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    return done.stderr


class Completion(unittest.TestCase):
    def test_commands_are_offered(self):
        self.assertEqual(bash("at"), ["attach"])
        self.assertEqual(bash("node", "st"), ["start", "stop", "status"])
        self.assertEqual(bash("node", "space", ""), ["add", "del", "revoke", "list"])
        self.assertTrue({"attach", "doctor", "export", "help", "node"} <= set(bash("")))
        self.assertEqual(bash("help", "node", "space", "a"), ["add"])

    def test_hidden_commands_are_not(self):
        self.assertEqual(bash("__"), [])

    def test_options_are_offered(self):
        self.assertEqual(bash("attach", "--s"), ["--size", "--space"])
        self.assertEqual(bash("node", "start", "--mem"), ["--memory"])
        self.assertIn("--help", bash("key", "new", "--"))

    def test_files_are_asked_for(self):
        self.assertEqual(bash("attach", "10.0.0.2", "--key", ""), ["FILES"])
        self.assertEqual(bash("key", "new", "ra"), ["FILES"])
        self.assertEqual(bash("attach", "10.0.0.2", "--size", ""), [])

    def test_each_command_of_the_help_is_completed(self):
        """bash offers the commands that --help lists, as both have them from the same declarations."""
        def walk(words):
            text = subprocess.run([REMORA, *words, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
            listed = []
            if "Subcommands:" in text:
                listed = [line.split()[0] for line in text.split("Subcommands:")[1].splitlines() if line.startswith("  ")
                          and not line.startswith("   ")]
            self.assertEqual([word for word in bash(*words, "") if word not in ("help", "FILES")], listed, words)
            for word in listed:
                if [*words, word] != ["mh", "pages"]:
                    walk([*words, word])
        offered = subprocess.run([REMORA, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        for word in ("node", "edm", "eqds", "mh"):
            self.assertIn(word, offered)
            walk([word])

    def test_nearest_option_is_told(self):
        self.assertIn("is '--size' meant by '--sise'? see 'remora attach --help'", refused("attach", "n", "--key", "k", "--sise", "5M"))
        self.assertIn("is '--memory' meant by '--memmory'?", refused("node", "start", "--memory=1G", "--memmory=5"))
        self.assertIn("is '--json' meant by '--jsn'?", refused("status", "--jsn"))
        self.assertNotIn("meant", refused("status", "--unlike-all"))

    @unittest.skipUnless(shutil.which("zsh"), "zsh isn't installed")
    def test_script_for_zsh_is_sound(self):
        subprocess.run(["zsh", "-n", COMPLETION / "_remora"], check=True, timeout=60)

    def test_install_puts_it_where_shells_look(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["make", "-n", "install", f"DESTDIR={folder}", "PREFIX=/usr"], cwd=ROOT, capture_output=True,
                                  text=True, timeout=300, check=True, env={**os.environ, "MAKEFLAGS": ""})
            self.assertIn(f"{folder}/usr/share/bash-completion/completions/remora", done.stdout)
            self.assertIn(f"{folder}/usr/share/zsh/vendor-completions/_remora", done.stdout)


if __name__ == "__main__":
    unittest.main()
