# SPDX-License-Identifier: GPL-2.0
"""tools/style/spdx: the licence is there, first, and the folder's."""

import pathlib
import subprocess
import tempfile
import unittest

SPDX = pathlib.Path(__file__).resolve().parents[4] / "tools/style/spdx"
TAG = "SPDX-License-Identifier:"


def spdx(files):
    """The names complained about in a tree of FILES (name: text)."""
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(["git", "init", "-q", tree], check=True)
        for name, text in files.items():
            made = pathlib.Path(tree, name)
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(text)
        done = subprocess.run([str(SPDX), tree], capture_output=True, text=True, check=False)
    named = [line.split(":")[0] for line in done.stderr.splitlines()]
    assert done.returncode == bool(named), done.stderr
    return named


class Spdx(unittest.TestCase):
    def test_the_folder_s_licence(self):
        good = {
            "kmod/rmem/a.c": f"// {TAG} GPL-2.0\n",
            "kmod/core/rmem/a.h": f"/* {TAG} GPL-2.0 OR MIT */\n",
            "include/remora/a.h": f"/* {TAG} GPL-2.0 OR MIT */\n",
            "include/uapi/linux/a.h": f"/* {TAG} GPL-2.0 WITH Linux-syscall-note */\n",
            "include/remote/a.h": f"/* {TAG} MIT */\n",
            "libremote/a.cpp": f"// {TAG} MIT\n",
            "tools/a.py": f"#!/usr/bin/env python3\n# {TAG} GPL-2.0\n",
        }
        self.assertEqual(spdx(good), [])
        # Each of them with its neighbour's licence.
        texts = list(good.values())
        for (name, _), text in zip(good.items(), [texts[1], texts[0], texts[0], texts[1],
                                                   texts[0], texts[0], texts[5]]):
            with self.subTest(name=name):
                self.assertEqual(spdx({name: text}), [name])

    def test_missing_or_late(self):
        for text in ("", "int a;\n", f"\n// {TAG} GPL-2.0\n", f"// first\n// {TAG} GPL-2.0\n"):
            with self.subTest(text=text):
                self.assertEqual(spdx({"tools/a.cpp": text}), ["tools/a.cpp"])

    def test_files_without_comments_are_exempt(self):
        self.assertEqual(spdx({"selftests/fuzz/corpus/wire/1": "x", "README.md": "x",
                               "LICENSES/MIT": "x"}), [])


if __name__ == "__main__":
    unittest.main()
