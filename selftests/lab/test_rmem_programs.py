#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Programs in machines: the library's suite by /dev/rmemN and by UDP, and the device asked by hand.

out/bin/lib-lab is the library's GoogleTest program; REMORA_TEST_TARGET tells it what to open.
"""

import contextlib
import errno
import itertools
import json
import re
import signal

import rmemlab
from remoralab import cache, rmem, tap
from remoralab.rmem import Rack

SUITE_S = 1200  # a kernel with KASAN takes some ten times as long

BIN = cache.REPO / "out" / "bin"
QUICKSTART = BIN / "quickstart"


def run_suite(machine, target, only="*/Given", environment="", program="lib-lab", bound_s=SUITE_S):
    """The library's suite, which every backend must pass."""
    if not (BIN / program).exists():
        raise rmemlab.LabError(f"out/bin/{program} is not built: make out/bin/{program}")
    command = f"{environment} REMORA_TEST_TARGET={target} {BIN / program} --gtest_filter='{only}'"
    result = machine.run(command, timeout=bound_s, check=False)
    passed = re.findall(r"\[       OK \] (\S+) \((\d+) ms\)", result.out)
    slowest = sorted(passed, key=lambda each: -int(each[1]))[:5]
    tap.diag(f"{len(passed)} passed; the slowest: " + ", ".join(f"{name} {ms} ms" for name, ms in slowest))
    failed = re.findall(r"^[^\n]*: Failure\n.*?(?=^\[)", result.out, re.M | re.S)
    told = re.search(r"(ERROR|WARNING): \w+Sanitizer|runtime error:", result.err)
    if told:
        failed.insert(0, "\n".join(result.err[told.start():].splitlines()[:80]))
    assert result.rc == 0, "\n".join([*failed[:5], *(result.out + result.err).splitlines()[-10:]])
    assert passed, "no test ran"


def through_device(lab, only="*/Given", **how):
    with Rack(lab) as rack:
        node = rack.node("memory", "128M")
        device = rack.attach("compute", node, None)
        run_suite(lab["compute"], f"dev:{device.path}", only, **how)
        device.detach()
        node.clear_space()


@tap.bound(1500)
def test_device(lab):
    through_device(lab)


@contextlib.contextmanager
def without_io_uring(machine):
    switch = "/proc/sys/kernel/io_uring_disabled"
    if machine.run(["test", "-e", switch], check=False).rc != 0:
        tap.skip("this kernel can't refuse io_uring")
    machine.run(f"echo 2 > {switch}")
    try:
        yield
    finally:
        machine.run(f"echo 0 > {switch}")


@tap.bound(1500)
def test_device_without_io_uring(lab):
    """Where a program gets no io_uring, each operation is an ioctl(). Layers above them are the same."""
    with without_io_uring(lab["compute"]):
        # A submission waits for its lock there.
        through_device(lab, "*/Given:-*Litmus*:*Lock*:*Heap*:*Mapped*:*Contended*")


@tap.bound(1500)
def test_device_to_the_daemon(lab):
    with Rack(lab) as rack, rmem.Daemon(lab["memory"], "128M") as node:
        device = rack.attach("compute", node, None)
        run_suite(lab["compute"], f"dev:{device.path}", "*/Given:-*Litmus*:*Heap*:*Mapped*")
        device.detach()


def by_udp(lab, host, key):
    compute = lab["compute"]
    rmem.write_key(compute, "/run/suite.key", key)
    # Tests of layers above operations reach no node, and ran already.
    run_suite(compute, f"udp:{host},key=/run/suite.key", "*/Given:-*Heap*:*Mapped*")


@tap.bound(1500)
def test_udp_to_the_kernels_node(lab):
    with Rack(lab) as rack:
        node = rack.node("memory", "128M")
        by_udp(lab, rmem.address(lab["memory"], lab["compute"]), node.key)
        node.clear_space()


def test_child_closes_the_devices_descriptors_once(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "64M"), None)
        run_suite(compute, f"dev:{device.path}", "Device.*")
        device.detach()


def test_quickstart(lab):
    """README's, by the device; elsewhere it runs in selftests/lib/test_dist.py."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "64M"), None)
        assert compute.run([QUICKSTART, f"dev:{device.path}"]).out == "hello, remote memory\n"
        other = compute.run(["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", QUICKSTART, f"dev:{device.path}"],
                            check=False)
        assert other.rc == 1 and f"this user may not read and write {device.path}: be root" in other.err, f"{other.out} {other.err}"
        device.detach()
    failed = compute.run([QUICKSTART, f"dev:{device.path}"], check=False)
    assert failed.rc == 1 and device.path in failed.err, f"{failed.out} {failed.err}"


def test_ping_tells_that_the_machine_is_unreachable(lab):
    """A machine that is there answers, or refuses a port. While the link has no carrier, nothing comes back."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.write_key(compute, "/run/ping.key", node.key)
        words = [rmem.CLI, "ping", str(rmem.address(lab["memory"], compute)), "--key", "/run/ping.key", "--json"]
        assert json.loads(compute.run(words).out)["state"] == "ok"
        with rmemlab.link_down(lab, "rack"):
            result = compute.run([*words, "--timeout", "1"], check=False)
        said = json.loads(result.out)
        assert (result.rc, said["state"]) == (1, "unreachable"), f"{result.out} {result.err}"
        assert result.err == f"remora: {said['error']}\n", result.err


# Asked by hand

def test_refusals(lab):
    """Malformed commands, which no library issues, are refused with the right errno and change nothing."""
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None)
        for what in ("refusals", "fixed", "threads"):
            lab["compute"].run([rmemlab.rmemio_path(), what, device.path], timeout=rmemlab.LOAD_S)
        assert node.status()["regions"] == 0


def test_vectors(lab):
    """Many ranges are one message, by each way to ask the device, and that's how the library's pieces go."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None)
        program = compute.spawn([rmemlab.rmemio_path(), "vectors", device.path])
        program.wait_output("ready")
        before = device.counters()
        program.send(b"go\n")
        program.wait_output("done")
        more = {name: value - before[name] for name, value in device.counters().items()}
        assert (more["read"], more["write"], more["sent"] - more["retries"]) == (2, 2, 4), more
        program.send(b"go\n")
        result = program.wait(rmem.ACTION_S)
        assert result.rc == 0, f"{result.out} {result.err}"

        before = device.counters()
        run_suite(compute, f"dev:{device.path}", "Lib/Pieces.Strided/Given")
        more = {name: value - before[name] for name, value in device.counters().items()}
        assert more["sent"] - more["retries"] < 100, f"of 2000 pieces: {more}"


def test_silent_node(lab):
    """Operations fail in time; a program that is killed while some are under way goes, and leaves nothing."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None, "--fail-after", "3")
        patient, killed = rmemlab.Lingering(compute, device), rmemlab.Lingering(compute, device)
        with rmemlab.link_down(lab, "rack"):
            patient.begin()
            killed.begin()
            killed.process.signal(signal.SIGKILL)
            patient.expect(errno.ETIMEDOUT)
            killed.process.wait(rmem.ACTION_S)
        device.wait_state("up")
        late = rmemlab.Lingering(compute, device)
        late.begin()
        late.expect(0)
        device.detach()
        node.clear_space()


def test_killed_while_silent(lab):
    """A program that is killed takes back what it had under way, and nothing of what others have."""
    gone_s = 20  # a third of what the device would wait
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None, "--fail-after", "60")
        killed, other = rmemlab.Lingering(compute, device), rmemlab.Lingering(compute, device)
        asking = compute.spawn([rmemlab.rmemio_path(), "alloc", device.path])
        asking.wait_output("ready")
        with rmemlab.link_down(lab, "rack"):
            sent = device.counters()["sent"]
            asking.send(b"go\n")
            rmem.wait_until("it has asked", lambda: device.counters()["sent"] > sent)
            killed.begin()
            other.begin()
            for process in (asking, killed.process):
                process.signal(signal.SIGKILL)
                process.wait(gone_s)
            rmem.wait_until("only the other one has it open", lambda: device.status()["openers"] == 1, gone_s)
        other.expect(0)
        device.wait_state("up")
        device.detach()
        node.clear_space()


def test_limits_while_silent(lab):
    """The library's limits and cancelling, which are shorter than the device's patience."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None, "--fail-after", "60")
        with rmemlab.link_down(lab, "rack"):
            run_suite(compute, f"dev:{device.path}", "Lib/Silent.*", "REMORA_TEST_SILENT=1")
            with without_io_uring(compute):
                run_suite(compute, f"dev:{device.path}", "Lib/Silent.OperationsOfThreads*", "REMORA_TEST_SILENT=1")
        device.wait_state("up")
        assert node.status()["regions"] == 0


def cancel_while_silent(lab, command):
    """Runs rmemio's COMMAND, which cancels while the node is silent and then looks at what came."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None, "--fail-after", "60")
        program = compute.spawn([rmemlab.rmemio_path(), command, device.path])
        program.wait_output("ready")
        with rmemlab.link_down(lab, "rack"):
            program.send(b"go\n")
            program.wait_output("cancelled")
        device.wait_state("up")
        program.send(b"go\n")
        result = program.wait(rmem.ACTION_S)
        assert result.rc == 0, f"{result.out} {result.err}"
        assert node.status()["regions"] == 0


def test_taken_back(lab):
    """Cancelled operations end though the node is silent, and are not executed later."""
    cancel_while_silent(lab, "cancel")


def test_cancel_ends_though_others_ask_again(lab):
    cancel_while_silent(lab, "crowd")


def test_retried_free_is_refused(lab):
    """A region that isn't there can't be given back, however often the node has to be told."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        device = rack.attach("compute", rack.node("memory", "64M"), None, "--fail-after", "60")
        program = compute.spawn([rmemlab.rmemio_path(), "bogus", device.path])
        program.wait_output("ready")
        retries = device.counters()["retries"]
        with rmemlab.link_down(lab, "rack"):
            program.send(b"go\n")
            rmem.wait_until("it was sent again", lambda: device.counters()["retries"] > retries)
        result = program.wait(rmem.ACTION_S)
        assert result.rc == 0, f"{result.out} {result.err}"


def lose(machine, node, device):
    """Restarts the node, and has a program notice."""
    program = rmemlab.Lingering(machine, device)
    node.stop()
    node.start()
    program.begin()
    program.expect(errno.ESTALE)
    device.wait_state("lost")


def test_restarted_node(lab):
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None)
        lose(lab["compute"], node, device)


def test_opened_anew(lab):
    """After the node's restart the next who opens the device has it connected; who had it open has lost it."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None)
        sent = device.counters()["sent"]
        for _ in range(2):
            program = compute.spawn([rmemlab.rmemio_path(), "restart", device.path])
            program.wait_output("ready")
            node.stop()
            node.start()
            program.send(b"go\n")
            program.wait_output("lost")
            assert device.status()["state"] == "lost"
            program.send(b"go\n")
            result = program.wait(rmem.ACTION_S)
            assert result.rc == 0, f"{result.out} {result.err}"
            assert device.status()["state"] == "up"
            assert (now := device.counters()["sent"]) > sent, "counters go on"
            sent = now


def test_opened_anew_by_many(lab):
    """The openers connect it once, and all of them can use it."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None)
        lose(compute, node, device)
        connected = f"dmesg | grep -c '{device.name}: .* is connected again' || true"
        before = int(compute.run(connected).out)
        for each in [compute.spawn([rmemlab.rmemio_path(), "fixed", device.path]) for _ in range(8)]:
            result = each.wait(rmemlab.LOAD_S)
            assert result.rc == 0, f"{result.out} {result.err}"
        assert int(compute.run(connected).out) == before + 1
        assert device.status()["state"] == "up"
        assert node.status()["regions"] == 0


def test_detached_while_opened_anew(lab):
    """A program that waits for an absent node can be killed, and holds up no other."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None, "--timeout", "30")
        lose(compute, node, device)
        node.stop()
        killed = compute.spawn([rmemlab.rmemio_path(), "fixed", device.path])
        rmem.wait_until("it is opening it", lambda: device.status()["openers"])
        killed.signal(signal.SIGKILL)
        killed.wait(rmem.ACTION_S)
        assert device.status()["openers"] == 0
        two = [compute.spawn([rmemlab.rmemio_path(), "fixed", device.path]) for _ in range(2)]
        rmem.wait_until("one is opening it", lambda: device.status()["openers"])
        rmemlab.cli_refused(compute, "detach", device.name, says=rf"{device.name} is in use: end the programs")
        device.detach("--force")
        for each in two:
            result = each.wait(rmem.ACTION_S)
            assert "No such" in result.err, f"{result.out} {result.err}"  # device, or file by then
        assert rmem.devices(compute) == []


def test_node_away_when_opened_anew(lab):
    """The open fails in time, and the next one succeeds when the node is there."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None, "--timeout", "2")
        lose(compute, node, device)
        node.stop()
        result = compute.run([rmemlab.rmemio_path(), "fixed", device.path], check=False)
        assert "Host is down" in result.err, f"{result.out} {result.err}"
        assert device.status()["state"] == "lost"
        node.start()
        compute.run([rmemlab.rmemio_path(), "fixed", device.path], timeout=rmemlab.LOAD_S)
        assert device.status()["state"] == "up"


@tap.bound(1500)
def test_library_goes_on(lab):
    """The library's tests of restarts, which ask for one when they want it."""
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None)
        program = lab["compute"].spawn(f"REMORA_TEST_RESTART=1 REMORA_TEST_TARGET=dev:{device.path} {BIN / 'lib-lab'} "
                                       "--gtest_filter='Lost.*'")
        for number in itertools.count(1):
            rmem.wait_until("it asks, or ends", lambda: f"node {number}\n" in program.out or not program.running(),
                            SUITE_S)
            if not program.running():
                break
            (node.stop if number % 2 else node.start)()
            program.send(b"done\n")
        result = program.wait()
        assert result.rc == 0, result.out + result.err
        device.detach()
        node.clear_space()


def test_in_use(lab):
    """A device that is open stays, but for --force: then what is under way ends, and so does what comes later."""
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        device = rack.attach("compute", node, None)
        under_way, later = rmemlab.Lingering(compute, device), rmemlab.Lingering(compute, device)
        rmemlab.cli_refused(compute, "detach", device.name, says=rf"{device.name} is in use: end the programs")
        rmemlab.cli_refused(compute, "detach", device.name.replace("rmem", "rmb"), says=r"there is no rmb\d+")
        with rmemlab.link_down(lab, "rack"):
            under_way.begin()
            device.detach("--force")
            under_way.expect(errno.ENODEV)
            later.begin()
            later.expect(errno.ENODEV)
        assert rmem.devices(compute) == []
        node.clear_space()


def test_wishes_that_are_wrong(lab):
    compute = lab["compute"]
    with Rack(lab) as rack:
        node = rack.node("memory", "64M")
        rmem.load(compute, rmem.CLIENT)
        words = rmem.attach_words(compute, node, None)
        rmemlab.cli_refused(compute, *words, "--size", "8M", says="write --size SIZE for a disk, or --programs")
        rmemlab.cli_refused(compute, *words, "--fail-after", "61", says="--fail-after '61' is not 0.001 to 60 seconds")
        first = rack.attach("compute", node, None)
        second = rack.attach("compute", node, "8M")
        assert (first.path, second.path) == ("/dev/rmem0", "/dev/rmb1"), "one row of numbers for both"
        rmemlab.cli_refused(compute, *words, "--index", "1", says="rmb1 exists: choose another index")


TESTS = [test_device, test_device_without_io_uring, test_device_to_the_daemon, test_udp_to_the_kernels_node,
         test_child_closes_the_devices_descriptors_once, test_quickstart,
         test_ping_tells_that_the_machine_is_unreachable, test_refusals, test_vectors, test_silent_node, test_killed_while_silent, test_limits_while_silent,
         test_taken_back, test_cancel_ends_though_others_ask_again, test_retried_free_is_refused, test_restarted_node, test_opened_anew, test_opened_anew_by_many,
         test_detached_while_opened_anew, test_node_away_when_opened_anew, test_library_goes_on, test_in_use,
         test_wishes_that_are_wrong, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("pair", TESTS)
