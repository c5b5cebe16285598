# SPDX-License-Identifier: GPL-2.0
"""The library as its users get it: built, installed, found by pkg-config."""

import errno
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools/lab"))
from remoralab.unpacked import Unpacked  # noqa: E402

QUICKSTART = ROOT / "libremote/examples/quickstart.c"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
# Text that the examples in the headers' comments leave out: functions, and main() before and after the example.
FRAMES = {
    "remote.h": [
        ("", "char buffer[5];", "return buffer[0] != 'h';"),
        ("static void forget(raddr_t address, uint64_t bytes) { (void)address, (void)bytes; }",
         'remote_t *r; raddr_t address; uint64_t bytes; int told; if (remote_open(&r, "embedded:", NULL)) return 1;',
         "remote_close(r); return told;"),
        ("static void show(const struct remote_region *regions, int n) { (void)regions, (void)n; }",
         'remote_t *r; raddr_t from; int n; struct remote_region regions[16]; if (remote_open(&r, "embedded:", NULL)) return 1;',
         "remote_close(r); return n;"),
    ],
    "remote.hpp": [
        ("#include <cstdio>\nstatic int fail(const char* why) { std::puts(why); return 1; }", "", "return seven != 42;"),
        ("", 'auto opened = remote::handle::open("embedded:"); if (!opened) return 1; remote::handle& handle = *opened;'
         "raddr_t lock = *handle.alloc(REMOTE_LOCK_BYTES);", "return held.passed_over();"),
    ],
    "pmr.hpp": [
        ("#include <cstdio>\n#include <memory_resource>\n#include <string>\n#include <unordered_map>\n"
         "static int fail(const char* why) { std::puts(why); return 1; }",
         'auto opened = remote::handle::open("embedded:"); if (!opened) return 1; remote::handle& handle = *opened;'
         "std::size_t bytes = 1 << 20; raddr_t address = *handle.alloc(bytes);",
         'table[1] = "one"; return table.size() != 1;'),
    ],
    "queue.h": [
        ("", 'char buffer[5]; remote_t *r; raddr_t a, b; if (remote_open(&r, "embedded:", NULL)) return 1;'
         "if (remote_alloc(r, 64, REMOTE_RW, &a) || remote_alloc(r, 64, REMOTE_RW, &b)) return 1;",
         "remote_close(r); return 0;"),
    ],
    "async.hpp": [
        ("#include <array>\n#include <cstdio>\nstatic int fail(const char* why) { std::puts(why); return 1; }",
         'auto handle = remote::handle::open("embedded:"); if (!handle) return 1; std::array<int, 4> in{}, out{};'
         "auto a = *handle->alloc(64), b = *handle->alloc(64);",
         "return in != out;"),
    ],
    "coroutine.hpp": [
        ("#include <array>\n#include <cstddef>\n#include <vector>",
         'auto handle = remote::handle::open("embedded:"); if (!handle) return 1; remote_t* r = handle->get();'
         "raddr_t a, b, c; for (raddr_t* each : {&a, &b, &c}) if (remote_alloc(r, 8192, REMOTE_RW, each)) return 1;",
         "return both.error();"),
    ],
}


PLUGIN = """
#include <dlfcn.h>
#include <remote/remote.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL, *memory;
	int (*open)(remote_t **, const char *, const struct remote_options *);
	int (*alloc)(remote_t *, uint64_t, unsigned int, raddr_t *);
	int (*map)(remote_t *, raddr_t, size_t, unsigned int, const struct remote_mmap_options *, void **);
	remote_t *r;
	raddr_t a;
	size_t i;

	if (!library)
		return 2;
	*(void **)&open = dlsym(library, "remote_open");
	*(void **)&alloc = dlsym(library, "remote_alloc");
	*(void **)&map = dlsym(library, "remote_mmap");
	if (open(&r, "embedded:size=16M", NULL) || alloc(r, 1 << 20, REMOTE_RW, &a) ||
	    map(r, a, 1 << 20, REMOTE_RW, NULL, &memory))
		return 2;
	dlclose(library);
	for (i = 0; i < 1 << 20; i += 4096)
		((volatile char *)memory)[i] = 1; /* the mapping's thread fetches each page */
	puts("still there");
	return 0;
}
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def flags(pc_folder, *more, name="libremote", **environment):
    return run("pkg-config", *([] if "--cflags-only-I" in more else ["--cflags", "--libs"]), *more, name,
               env=os.environ | {"PKG_CONFIG_PATH": str(pc_folder)} | environment).split()


def declared(prefix=""):
    """Functions of the C headers that a library exports: remote_* libremote, cmmc_* libcmmc, eqds_* libeqds."""
    headers = "".join(header.read_text() for folder in ("remote", "eqds")
                      for header in sorted((ROOT / "include" / folder).glob("*.h")))
    code = re.sub(r"/\*.*?\*/", "", headers, flags=re.S)
    names = re.findall(r"^(?:REMOTE_OP_FUNCTION |(?!static|typedef)[a-z]).*?\b(\w+)\(", code, flags=re.M)
    return [name for name in names if name.startswith(prefix)]


def inline():
    """Functions that the C headers define: short names."""
    headers = "".join(header.read_text() for header in sorted((ROOT / "include/remote").glob("*.h")))
    return set(re.findall(r"^static inline .*?\b(r[a-z]+)\(", headers, flags=re.M))


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

    def test_a_table_larger_than_its_cache_counts_right(self):
        program = self.folder / "words"
        run("g++", "-std=c++20", "-O1", *STRICT, ROOT / "libremote/examples/words.cpp", *flags(ROOT / "out/lib/pkgconfig"), "-o", program)
        # Some 2.5 MiB of nodes and strings; each word twice, and one more often.
        text = " ".join(f"word-number-{i}-that-needs-memory" for i in range(12_000)) + "\n"
        self.assertEqual(run(program, input=text + "often " + text + "often often"), "24003 words, 12001 different; 'often' 3 times\n")

    def test_quickstart_says_why_it_fails(self):
        key, programs = self.folder / "key", [self.folder / "shared", self.folder / "static"]
        run("gcc", QUICKSTART, *flags(ROOT / "out/lib/pkgconfig"), "-o", programs[0])
        run("gcc", QUICKSTART, f"-I{ROOT / 'include'}", ROOT / "out/lib/libremote.a", "-luring", "-lcrypto", "-lstdc++", "-lm",
            "-lpthread", "-o", programs[1])
        run(ROOT / "out/bin/remora", "key", "new", key)
        for target, why in ((f"udp:127.0.0.1:1,key={key}", "no node at 127.0.0.1:1"), ("udp:127.0.0.1", "key=FILE"),
                            (f"udp:127.0.0.1,key={key}-none", f"{key}-none"), (f"shm:{key}-none,key={key}", f"no node at {key}-none"),
                            ("dev:/dev/rmem-none", "/dev/rmem-none"), ("tcp:host", "tcp:host"), ("embedded:size=1K", "less than a page"),
                            ("embedded:size=1M,page=64K", None)):
            for program in programs:
                done = subprocess.run([program, target], capture_output=True, text=True, timeout=60, check=False)
                said = done.stdout + done.stderr
                self.assertEqual((done.returncode, len(said.splitlines())), (1, 1), f"{program.name} {target}: {said}")
                self.assertIn(why or "full", said)

    def test_quickstart_runs_with_a_daemon(self):
        """By UDP and by shared memory, as the README says it."""
        udp, shm = re.search(r"^\./quickstart udp:10\.0\.0\.2,(key=rack\.key) .*\n\./quickstart shm:/run/rings,(key=rack\.key) ",
                             (ROOT / "README.md").read_text(), flags=re.M).groups()
        rings = self.folder / "rings"
        run("gcc", QUICKSTART, *flags(ROOT / "out/lib/pkgconfig"), "-o", self.folder / "quickstart")
        run(ROOT / "out/bin/remora", "key", "new", "rack.key", cwd=self.folder)
        ready, given = os.pipe()
        with subprocess.Popen([ROOT / "out/bin/remora-node", "--memory", "64M", "--no-lock", "--bind", "127.0.0.1",
                               "--port", "0", "--shm", rings, "--space", "1=rack.key", "--ready-fd", str(given)], pass_fds=[given],
                              cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as node:
            os.close(given)
            try:
                with os.fdopen(ready) as pipe:
                    targets = [f"udp:127.0.0.1:{pipe.readline().strip()},{udp}", f"shm:{rings},{shm}"]
                for target in targets:
                    self.assertEqual(run(self.folder / "quickstart", target, cwd=self.folder), "hello, remote memory\n")
            finally:
                node.terminate()
        self.assertEqual(node.returncode, 0)

    def test_programs_build_with_libeqds(self):
        """Here, and installed. Without the module its first call says that there is no device."""
        source, program = self.folder / "e.c", self.folder / "e"
        source.write_text('#include <eqds/eqds.h>\nint main(void) { eqds_t *e; return -eqds_open(&e, "lo", 0); }\n')
        run("make", "-s", "install", f"DESTDIR={self.folder}", "PREFIX=/usr", cwd=ROOT)
        for where, more, libraries in ((ROOT / "out/lib/pkgconfig", {}, ""),
                                       (self.folder / "usr/lib/pkgconfig", {"PKG_CONFIG_SYSROOT_DIR": str(self.folder)},
                                        str(self.folder / "usr/lib"))):
            run("gcc", *STRICT, source, *flags(where, name="libeqds", PKG_CONFIG_ALLOW_SYSTEM_CFLAGS="1",
                                               PKG_CONFIG_ALLOW_SYSTEM_LIBS="1", **more), "-o", program)
            done = subprocess.run([program], env={"LD_LIBRARY_PATH": libraries}, check=False)
            self.assertIn(done.returncode, (errno.ENOENT, errno.EACCES, errno.ENODEV, errno.EINVAL))

    def test_operations_are_made_by_functions_that_other_languages_can_call(self):
        """The library's symbols and the header's inline functions make the same operation."""
        source, program = self.folder / "twin.c", self.folder / "twin"
        source.write_text('#include <remote/queue.h>\n#include <stdio.h>\nint main(void)\n{\n'
                          '\tstruct remote_op op = remote_op_fetch(4096, 8, REMOTE_ADD, 5, NULL, 77);\n'
                          '\treturn fwrite(&op, sizeof(op), 1, stdout) != 1;\n}\n')
        run("gcc", *STRICT, source, *flags(ROOT / "out/lib/pkgconfig"), "-o", program)
        inline_made = subprocess.run([program], capture_output=True, check=True).stdout
        made = ("import ctypes, sys\nclass Op(ctypes.Structure):\n    _fields_ = [('words', ctypes.c_uint64 * %d)]\n"
                "call = ctypes.CDLL('out/lib/libremote.so').remote_op_fetch\ncall.restype = Op\n"
                "call.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, "
                "ctypes.c_uint64]\nsys.stdout.buffer.write(bytes(call(4096, 8, 3, 5, None, 77)))\n" % (len(inline_made) // 8))
        done = subprocess.run([sys.executable, "-c", made], capture_output=True, check=True, cwd=ROOT)
        self.assertEqual(done.stdout, inline_made)

    def test_libeqds_recognises_handles_that_are_closed(self):
        program = ("import ctypes; e = ctypes.CDLL('out/lib/libeqds.so'); stale = ctypes.c_void_p(1 << 32);"
                   "e.eqds_close(None); e.eqds_close(stale); print(e.eqds_wait(stale, 0), e.eqds_fd(stale))")
        self.assertEqual(run(sys.executable, "-c", program, cwd=ROOT).split(), [str(-errno.EBADF)] * 2)

    def test_quickstart_is_short_and_readme_shows_it(self):
        lines = QUICKSTART.read_text().splitlines()
        body = lines[lines.index("int main(int argc, char **argv)"):]
        self.assertLess(len(body), 20)
        self.assertIn("\n".join(lines[1:]), (ROOT / "README.md").read_text())

    def test_installed(self):
        run("make", "-s", "install", f"DESTDIR={self.folder}", "PREFIX=/usr", cwd=ROOT)
        def where(*more):
            return flags(self.folder / "usr/lib/pkgconfig", *more, PKG_CONFIG_SYSROOT_DIR=str(self.folder),
                         PKG_CONFIG_ALLOW_SYSTEM_CFLAGS="1", PKG_CONFIG_ALLOW_SYSTEM_LIBS="1")
        program = self.folder / "quickstart"
        run("gcc", QUICKSTART, *where(), "-o", program)
        text = run(program, env={"LD_LIBRARY_PATH": str(self.folder / "usr/lib")})
        self.assertEqual(text, "hello, remote memory\n")
        for shared in self.folder.glob("usr/lib/libremote.so*"):
            shared.unlink()
        run("gcc", QUICKSTART, *where("--static"), "-o", program)
        self.assertEqual(run(program), "hello, remote memory\n")

    def test_program_links_statically(self):
        program = self.folder / "quickstart"
        run("gcc", "-static", QUICKSTART, *flags(ROOT / "out/lib/pkgconfig", "--static"), "-o", program)
        self.assertEqual(run(program), "hello, remote memory\n")

    def test_library_stays_when_a_plugin_unloads_it(self):
        """A mapping's thread runs on, and the mapping is used."""
        source, program = self.folder / "plugin.c", self.folder / "plugin"
        source.write_text(PLUGIN)
        run("gcc", "-std=c99", *STRICT, source, *flags(ROOT / "out/lib/pkgconfig", "--cflags-only-I"), "-o", program)
        self.assertEqual(run(program, ROOT / "out/lib/libremote.so"), "still there\n")

    def test_a_man_page_for_each_function(self):
        named = []
        for page in ROOT.glob("libremote/**/man/*.3"):
            text = page.read_text()
            names = re.search(r"^\.SH NAME\n(.*?) \\-", text, flags=re.M)[1].split(", ")
            self.assertEqual(names[0], page.stem)
            synopsis = text.split(".SH SYNOPSIS")[1].split(".SH DESCRIPTION")[0]
            for name in names:
                self.assertIn(name, synopsis if name.startswith(("remote_", "cmmc_", "eqds_")) else text)
            named += names
        self.assertEqual(sorted(named), sorted(set(declared()) | inline()))

    def test_manual_finds_every_name(self):
        pages = {page.stem: page.read_text() for page in (ROOT / "out/man/man3").glob("*.3")}
        self.assertEqual(set(pages), set(declared()) | inline())
        for name, text in pages.items():
            link = re.search(r"^\.so man3/(\w+)\.3$", text, flags=re.M)
            self.assertIn(name, pages[link[1] if link else name].split(".SH SYNOPSIS")[0])

    def test_examples_of_the_man_pages_run(self):
        for page in ROOT.glob("libremote/**/man/*.3"):
            text = page.read_text()
            examples = re.findall(r"^\.EX\n(.*?)^\.EE$", text, flags=re.M | re.S)
            self.assertEqual(len(examples), text.count("\n.SH EXAMPLE"), page.name)
            for example in examples:
                self.run_example(page.stem, example.replace("\\e", "\\"))

    def test_examples_of_the_headers_run(self):
        for header, frames in FRAMES.items():
            text = (ROOT / "include/remote" / header).read_text()
            examples = re.findall(r"^ \*\n((?: \*\t.*\n(?: \*\n(?= \*\t))?)+)", text, flags=re.M)
            self.assertEqual(len(examples), len(frames), header)
            for example, (functions, before, after) in zip(examples, frames):
                example = re.sub(r"^ \*\t?", "", example, flags=re.M)
                its_functions, statements = re.fullmatch(r"((?:.*^}\n\n)?)(.*)", example, flags=re.M | re.S).groups()
                source = [f"#include <remote/{header}>", functions, its_functions, "int main(void)", "{", before, statements,
                          after, "}\n"]
                self.run_example(header.replace(".", "_"), "\n".join(source), cpp=header.endswith("pp"))

    def run_example(self, name, text, cpp=False):
        source, program = self.folder / f"{name}.{'cpp' if cpp else 'c'}", self.folder / name
        source.write_text(text)
        compiler = ["g++", "-std=c++20"] if cpp else ["gcc"]
        run(*compiler, *STRICT, source, *flags(ROOT / "out/lib/pkgconfig"), "-o", program)
        run(program)

    def test_archive_has_no_names_but_the_interfaces(self):
        lines = [line.split() for line in run("nm", "--extern-only", "--defined-only", ROOT / "out/lib/libremote.a").split("\n")]
        names = [line[2] for line in lines if len(line) == 3]
        self.assertEqual(sorted(names), sorted(declared("remote_")))

    def test_exports_are_the_declarations_of_the_headers(self):
        for library in ("remote", "cmmc"):
            symbols = run("nm", "-D", "--defined-only", ROOT / f"out/lib/lib{library}.so").split("\n")
            exported = [line.split()[2].split("@")[0] for line in symbols if " T " in line]
            self.assertEqual(sorted(declared(f"{library}_")), sorted(exported))

    def test_interfaces_are_as_recorded(self):
        """Programs that were built before still run: no function, type or value is changed or gone. A change on purpose is
        recorded by `make abi`."""
        for library, headers in (("libremote", "remote"), ("libcmmc", "remote"), ("libeqds", "eqds")):
            compared = subprocess.run(
                ["abidiff", "--exported-interfaces-only", "--no-added-syms", "--headers-dir2", ROOT / "include" / headers,
                 HERE / "abi" / f"{library}.xml", ROOT / f"out/lib/{library}.so"], capture_output=True, text=True, check=False)
            self.assertEqual(compared.returncode, 0, f"{library} has changed; `make abi` records it, CHANGES.md tells it\n"
                             + compared.stdout + compared.stderr)

    def test_structs_have_their_size_or_never_change_it(self):
        """A program of another version tells by the size which members it knows."""
        found = []
        for header in sorted((ROOT / "include/remote").glob("*.h")):
            for comment, name, members in re.findall(
                    r"(/\*(?:[^*]|\*(?!/))*\*/\n)?struct (remote_\w+) \{(.*?)\n\};", header.read_text(), flags=re.S):
                found.append(name)
                text = re.sub(r"[\s*]+", " ", comment)
                if not re.match(r"\s*(size_t|uint32_t) size;", members):
                    self.assertIn("Never changes its size.", text, name)
        self.assertGreater(len(found), 5)

    def test_version_map_lists_at_most_64_symbols_one_by_one(self):
        text = re.sub(r"/\*.*?\*/", "", (ROOT / "libremote/libremote.map").read_text(), flags=re.S)
        listed = re.search(r"global:(.*?)local:", text, flags=re.S)[1].replace(";", " ").split()
        self.assertEqual(sorted(listed), sorted(declared("remote_")))
        self.assertEqual([name for name in listed if not name.startswith("remote_")], [])
        self.assertLessEqual(len(listed), 64)

    def test_a_program_uses_rsocket_too(self):
        """Both libraries' headers in one file, both linked: their rread() and rpoll() are rdma-core's."""
        rdma = Unpacked("rdma", HERE / "rdma.list").directory() / "usr"
        libraries = rdma / "lib/x86_64-linux-gnu"
        for compiler, standard in (("gcc", "c99"), ("g++", "c++20")):
            program = self.folder / f"both-{compiler}"
            language = "c" if compiler == "gcc" else "c++"
            run(compiler, "-x", language, f"-std={standard}", *STRICT, "-isystem", rdma / "include", HERE / "rsocket.c", "-x", "none",
                *flags(ROOT / "out/lib/pkgconfig"), f"-L{libraries}", f"-Wl,-rpath-link,{libraries}",
                "-l:librdmacm.so.1", "-o", program)
            run(program, env=os.environ | {"LD_LIBRARY_PATH": str(libraries)})

    def test_probes_are_there(self):
        notes = run("readelf", "-n", "--wide", ROOT / "out/lib/libremote.so")
        self.assertEqual(set(re.findall(r"Provider: remote\n\s+Name: (\w+)", notes)), {"start", "end"})

    def test_each_header_by_itself(self):
        for compiler, language in (("gcc", "c99"), ("gcc", "c11"), ("g++", "c++11"), ("g++", "c++20")):
            suffix = "c" if language.startswith("c9") or language == "c11" else "cpp"
            source = self.folder / f"header.{suffix}"
            for header in sorted((ROOT / "include/remote").glob("*.h")):
                source.write_text(f"#include <remote/{header.name}>\nint main(void) {{ return 0; }}\n")
                run(compiler, f"-std={language}", *STRICT, f"-I{ROOT}/include", "-c", source, "-o",
                    self.folder / "header.o")


if __name__ == "__main__":
    unittest.main()
