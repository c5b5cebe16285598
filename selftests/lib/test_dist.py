# SPDX-License-Identifier: GPL-2.0
"""The library as its users get it: built, installed, found by pkg-config."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "libremote/examples/quickstart.c"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def flags(pc_folder, **environment):
    return run("pkg-config", "--cflags", "--libs", "libremote",
               env=os.environ | {"PKG_CONFIG_PATH": str(pc_folder)} | environment).split()


def declared():
    """Functions of the header."""
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "include/remote/remote.h").read_text(), flags=re.S)
    return set(re.findall(r"^[a-z].*?\b(\w+)\(", header, flags=re.M))


class Dist(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_quickstart_runs_without_installation(self):
        program = self.folder / "quickstart"
        run("gcc", "-std=c99", *STRICT, QUICKSTART, *flags(ROOT / "out/lib/pkgconfig"), "-o", program)
        self.assertEqual(run(program), "hello, remote memory\n")
        self.assertEqual(run(program, "embedded:size=128M,page=4M"), "hello, remote memory\n")

    def test_quickstart_is_short_and_readme_shows_it(self):
        lines = QUICKSTART.read_text().splitlines()
        body = lines[lines.index("int main(int argc, char **argv)"):]
        self.assertLessEqual(len(body), 20)
        self.assertIn("\n".join(lines[1:]), (ROOT / "README.md").read_text())

    def test_installed(self):
        run("make", "-s", "install", f"DESTDIR={self.folder}", "PREFIX=/usr", cwd=ROOT)
        where = flags(self.folder / "usr/lib/pkgconfig", PKG_CONFIG_SYSROOT_DIR=str(self.folder),
                      PKG_CONFIG_ALLOW_SYSTEM_CFLAGS="1", PKG_CONFIG_ALLOW_SYSTEM_LIBS="1")
        program = self.folder / "quickstart"
        run("gcc", QUICKSTART, *where, "-o", program)
        text = run(program, env={"LD_LIBRARY_PATH": str(self.folder / "usr/lib")})
        self.assertEqual(text, "hello, remote memory\n")
        run("gcc", QUICKSTART, f"-I{self.folder}/usr/include", f"{self.folder}/usr/lib/libremote.a", "-lfmt", "-luring",
            "-lstdc++", "-lm", "-lpthread", "-o", program)
        self.assertEqual(run(program), "hello, remote memory\n")

    def test_a_man_page_for_each_function(self):
        pages = {page.stem: page.read_text() for page in (ROOT / "libremote/man").glob("*.3")}
        self.assertEqual(set(pages), declared())
        for name, text in pages.items():
            link = re.search(r"^\.so man3/(\w+)\.3$", text, flags=re.M)
            self.assertIn(name, pages[link[1] if link else name].split(".SH SYNOPSIS")[0])

    def test_examples_of_the_man_pages_run(self):
        examples = 0
        for page in (ROOT / "libremote/man").glob("*.3"):
            for text in re.findall(r"^\.EX\n(.*?)^\.EE$", page.read_text(), flags=re.M | re.S):
                source = self.folder / f"{page.stem}.c"
                source.write_text(text.replace("\\e", "\\"))
                run("gcc", *STRICT, source, *flags(ROOT / "out/lib/pkgconfig"), "-o", self.folder / page.stem)
                run(self.folder / page.stem)
                examples += 1
        self.assertGreaterEqual(examples, 4)

    def test_exports_what_the_header_declares(self):
        symbols = run("nm", "-D", "--defined-only", ROOT / "out/lib/libremote.so").split("\n")
        exported = {line.split()[2].split("@")[0] for line in symbols if " T " in line}
        self.assertEqual(declared(), exported)

    def test_probes_are_there(self):
        notes = run("readelf", "-n", "--wide", ROOT / "out/lib/libremote.so")
        self.assertEqual(set(re.findall(r"Provider: remote\n\s+Name: (\w+)", notes)), {"start", "end"})

    def test_header_by_itself(self):
        for compiler, language in (("gcc", "c99"), ("gcc", "c11"), ("g++", "c++11"), ("g++", "c++20")):
            suffix = "c" if language.startswith("c9") or language == "c11" else "cpp"
            source = self.folder / f"header.{suffix}"
            source.write_text("#include <remote/remote.h>\nint main(void) { return 0; }\n")
            run(compiler, f"-std={language}", *STRICT, f"-I{ROOT}/include", "-c", source, "-o", self.folder / "header.o")


if __name__ == "__main__":
    unittest.main()
