# SPDX-License-Identifier: GPL-2.0
"""tools/style/layers on trees made for it: each forbidden direction is found, each allowed one isn't."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

LAYERS = pathlib.Path(__file__).resolve().parents[4] / "tools/style/layers"

# Files there are in every tree, so that an include finds its target.
TARGETS = [
    "include/remora/rmem.h", "include/remora/eqds.h", "include/uapi/linux/rmem.h",
    "include/remote/remote.h", "kmod/core/base/bits.h", "kmod/core/rmem/wire.h",
    "kmod/core/eqds/credit.h", "kmod/compat/compat.h", "kmod/rmem/client/channel.h",
    "kmod/rmem/client/device.h", "kmod/rmem/client/new.h",
    "kmod/eqds_ops.h", "kmod/eqds/netdev.h", "libremote/src/ring.h", "tools/remora/table.hpp",
    "libremote/src/api/handle.hpp", "libremote/src/async/queue.hpp", "libremote/src/backend/backend.hpp",
    "libremote/src/transport/udp.hpp", "libremote/src/transport/scratch.hpp", "libremote/node/host.hpp",
]

FORBIDDEN = [
    ("include/remora/rmem.h", "<linux/skbuff.h>"),
    ("include/remora/rmem.h", "<stdint.h>"),
    ("include/remora/rmem.h", '"eqds.h"'),
    ("include/uapi/linux/rmem.h", "<remora/rmem.h>"),
    ("include/uapi/linux/rmem.h", "<stdint.h>"),
    ("include/remote/remote.h", "<linux/rmem.h>"),
    ("include/remote/remote.h", "<fmt/core.h>"),
    ("kmod/core/base/bits.h", "<linux/kernel.h>"),
    ("kmod/core/base/bits.h", "<string.h>"),
    ("kmod/core/base/bits.h", '"core/rmem/wire.h"'),
    ("kmod/core/rmem/wire.c", "<linux/slab.h>"),
    ("kmod/core/rmem/wire.c", "<stdio.h>"),
    ("kmod/core/rmem/wire.c", "<remora/eqds.h>"),
    ("kmod/core/rmem/wire.c", "<core/eqds/credit.h>"),
    ("kmod/core/rmem/wire.c", '"../eqds/credit.h"'),
    ("kmod/core/rmem/wire.c", "<linux/rmem.h>"),
    ("kmod/compat/compat.h", "<core/rmem/wire.h>"),
    ("kmod/rmem/client/main.c", '"eqds/netdev.h"'),
    ("kmod/rmem/client/main.c", "<core/eqds/credit.h>"),
    ("kmod/rmem/client/main.c", "<stdio.h>"),
    ("kmod/rmem/client/main.c", "HEADER"),
    ("kmod/rmem/client/main.c", '"nowhere.h"'),
    # Floors: the same one, a higher one, and a file that has none.
    ("kmod/rmem/client/channel.c", '"rmem/client/device.h"'),
    ("kmod/rmem/client/chr_op.c", '"rmem/client/device.h"'),
    ("kmod/rmem/client/new.c", '"rmem/client/device.h"'),
    ("kmod/rmem/client/main.c", '"rmem/client/new.h"'),
    ("libremote/src/op.hpp", "<core/rmem/wire.h>"),
    ("libremote/src/op.hpp", "<remora/rmem.h>"),
    ("libremote/src/async/queue.cpp", "<core/rmem/wire.h>"),
    ("libremote/src/mmap/pager.cpp", "<core/rmem/wire.h>"),
    ("libremote/src/sync/lock.cpp", "<core/rmem/wire.h>"),
    ("libremote/src/transport/shm.c", '"../../../kmod/rmem/channel.h"'),
    ("libremote/src/api/remote.cpp", '"src/transport/udp.hpp"'),
    ("libremote/src/api/remote.cpp", '"node/host.hpp"'),
    ("libremote/src/api/remote.cpp", "<core/rmem/wire.h>"),
    ("libremote/src/async/task.cpp", '"src/api/handle.hpp"'),
    ("libremote/src/mmap/pager.cpp", '"src/api/handle.hpp"'),
    ("libremote/src/mmap/pager.cpp", '"src/transport/udp.hpp"'),
    ("libremote/src/sync/lock.cpp", '"src/async/queue.hpp"'),
    ("libremote/src/backend/embedded.cpp", '"src/async/queue.hpp"'),
    ("libremote/src/transport/udp.cpp", '"src/backend/backend.hpp"'),
    ("libremote/node/host.cpp", '"src/backend/backend.hpp"'),
    ("tools/remora/main.cpp", "<remora/rmem.h>"),
    ("tools/remora/main.cpp", "<core/rmem/wire.h>"),
    ("tools/bench/main.cpp", '"../remora/table.hpp"'),
    ("extra/main.c", "<stdio.h>"),
]

ALLOWED = [
    ("include/remora/rmem.h", "<linux/types.h>"),
    ("include/uapi/linux/rmem.h", "<linux/types.h>"),
    ("include/remote/remote.h", "<stdint.h>"),
    ("include/remote/remote.h", "<span>"),
    ("kmod/core/base/bits.h", "<stddef.h>"),
    ("kmod/core/rmem/wire.c", '"wire.h"'),
    ("kmod/core/rmem/wire.c", "<remora/rmem.h>"),
    ("kmod/core/rmem/wire.c", '"core/base/bits.h"'),
    ("kmod/rmem/client/main.c", "<linux/blk-mq.h>"),
    ("kmod/rmem/client/main.c", '"eqds_ops.h"'),
    ("kmod/rmem/client/main.c", '"compat/compat.h"'),
    ("kmod/rmem/client/main.c", "<linux/rmem.h>"),
    ("kmod/rmem/client/device.c", '"rmem/client/channel.h"'),
    ("kmod/rmem/client/device.c", '"rmem/client/device.h"'),
    ("kmod/rmem/client/trace.h", "TRACE_INCLUDE(TRACE_INCLUDE_FILE)"),
    ("libremote/src/transport/shm.c", "<core/rmem/wire.h>"),
    ("libremote/src/api/remote.cpp", '"src/async/queue.hpp"'),
    ("libremote/src/mmap/mapping.hpp", '"src/transport/scratch.hpp"'),
    ("libremote/src/backend/embedded.cpp", '"node/host.hpp"'),
    ("libremote/src/backend/udp.cpp", '"src/transport/udp.hpp"'),
    ("tools/sim/main.cpp", '"core/eqds/credit.h"'),
    ("tools/remora-node/main.cpp", '"core/rmem/wire.h"'),
    ("tools/remora/main.cpp", "<fmt/core.h>"),
    ("selftests/unit/base/test_ring.cpp", '"../../kmod/core/rmem/wire.h"'),
]


def load():
    loader = importlib.machinery.SourceFileLoader("layers", str(LAYERS))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("layers", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


layers = load()


def fill(tree, path, text):
    for name in [*TARGETS, path]:
        made = tree / name
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text if name == path else "")


def faults(path, text):
    """The findings about PATH holding TEXT."""
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name).resolve()
        fill(tree, path, text)
        return layers.check_file(tree, path)


class Layers(unittest.TestCase):
    def test_forbidden(self):
        for path, header in FORBIDDEN:
            with self.subTest(path=path, header=header):
                found = faults(path, f"/* first */\n#include {header}\n")
                self.assertEqual(len(found), 1)
                if not path.startswith("extra"):
                    self.assertTrue(found[0].startswith(f"{path}:2: "), found[0])

    def test_allowed(self):
        for path, header in ALLOWED:
            with self.subTest(path=path, header=header):
                self.assertEqual(faults(path, f"#include {header}\n"), [])

    def test_comments_do_not_count_and_do_not_shift_lines(self):
        text = "/*\n#include <linux/slab.h>\n*/\n// #include <stdio.h>\n  #  include  <linux/slab.h>\n"
        found = faults("kmod/core/rmem/wire.c", text)
        self.assertEqual(len(found), 1)
        self.assertIn("wire.c:5: ", found[0])

    def test_an_include_after_a_comment_counts(self):
        self.assertEqual(len(faults("kmod/core/rmem/wire.c", "/* x */ #include <linux/slab.h>\n")), 1)

    def test_program(self):
        for header, status in (("<linux/slab.h>", 1), ("<stddef.h>", 0)):
            with self.subTest(header=header), tempfile.TemporaryDirectory() as tree:
                subprocess.run(["git", "init", "-q", tree], check=True)
                fill(pathlib.Path(tree), "kmod/core/rmem/wire.c", f"#include {header}\n")
                done = subprocess.run([str(LAYERS), tree], capture_output=True, check=False)
                self.assertEqual(done.returncode, status)


if __name__ == "__main__":
    unittest.main()
