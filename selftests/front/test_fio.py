# SPDX-License-Identifier: GPL-2.0
"""fio's engine of tools/fio: it verifies its writes, many at a time, and finds a byte that was changed behind it."""

import json
import os
import subprocess
import tempfile

from served import ROOT, Served

ENGINE = "external:" + str(ROOT / "out/lib/fio/remora-fio.so")


class Fio(Served):
    def run_fio(self, *words, code=0, **options):
        with tempfile.TemporaryDirectory() as folder:  # fio leaves a file of state
            done = subprocess.run(["fio", "--output-format=json", *words], capture_output=True, text=True, timeout=120, check=False,
                                  cwd=folder, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def job(self, *words, **options):
        return self.run_fio("--name=job", f"--ioengine={ENGINE}", f"--target={self.node.target(self.transport)}", *words, **options)

    def test_verifies_many_operations_at_a_time(self):
        told = json.loads(self.job("--size=8M", "--bsrange=512-16k", "--rw=randrw", "--verify=crc32c", "--verify_fatal=1", "--iodepth=32",
                                   "--iodepth_batch=8", "--iodepth_batch_complete_max=8", "--fsync=100").stdout)
        [job] = told["jobs"]
        self.assertGreater(job["write"]["total_ios"], 100)
        self.assertGreaterEqual(job["read"]["io_bytes"], 8 << 20)
        self.assertGreater(job["iodepth_level"]["16"] + job["iodepth_level"]["32"], 50)
        self.assertEqual([*self.handle.regions()], [])

    def test_jobs_in_threads_have_memory_of_their_own(self):
        for words in (["--thread"], []):
            self.job("--size=1M", "--bs=4k", "--rw=randwrite", "--verify=md5", "--verify_fatal=1", "--iodepth=8", "--numjobs=4", *words)
        self.assertEqual([*self.handle.regions()], [])

    def test_a_changed_byte_in_a_named_region_is_found(self):
        words = ["--region=fio", "--size=1M", "--bs=4k", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1"]
        self.job("--rw=write", "--do_verify=0", *words)
        region = self.handle.lookup("fio")
        self.addCleanup(region.free)
        self.job("--rw=read", *words)
        region.write(bytes([region.read(1, 500_000)[0] ^ 1]), 500_000)
        self.assertIn("verify", self.job("--rw=read", *words, code=1).stderr)
        self.assertIn("region 'fio' has 1048576 bytes", self.job("--rw=read", "--region=fio", "--size=2M", code=1).stderr)

    def test_errors_say_why(self):
        self.assertIn("no target", self.run_fio("--name=job", f"--ioengine={ENGINE}", "--size=1M", "--rw=read", code=1).stderr)
        self.assertIn("not a target", self.run_fio("--name=job", f"--ioengine={ENGINE}", "--target=bogus", "--size=1M", "--rw=read",
                                                   code=1).stderr)
        self.job("--size=1M", "--bs=4k", "--rw=randtrim", code=1)

    def test_the_example_verifies(self):
        with open(ROOT / "tools/fio/verify.fio", encoding="utf-8") as file:
            text = file.read().replace("external:out", f"external:{ROOT}/out").replace("size=64M", "size=4M")
        with tempfile.NamedTemporaryFile("w", suffix=".fio") as job:
            job.write(text)
            job.flush()
            self.run_fio(job.name, env={**os.environ, "TARGET": self.node.target(self.transport)})


class FioByRings(Fio):
    transport = "shm"
