#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The lab tested in itself: commands, wires, power, the kernel's complaints, and that nothing remains."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "lab"))
from remoralab import CommandFailed, CommandTimeout, LabError, MachineDied, tap, topology  # noqa: E402
from remoralab import cache, guesttools, kernel  # noqa: E402
from remoralab.rmem import wait_until  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parents[2]
LAB = REPO / "tools" / "lab" / "lab"
NOBODY = 65534


def raises(kind, function, *args, **named):
    try:
        function(*args, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


# Commands

def test_status_and_output(lab):
    m = lab["compute"]
    result = m.run("echo out; echo err >&2; exit 3", check=False)
    assert (result.rc, result.out, result.err) == (3, "out\n", "err\n"), result
    assert "status 3" in raises(CommandFailed, m.run, "exit 3")
    assert m.run(["printf", "%s|", "a b", "$HOME"]).out == "a b|$HOME|"
    assert m.run("kill -9 $$", check=False).rc == 128 + 9
    assert m.run(["no-such-program"], check=False).rc == 127


def test_output_streams(lab):
    m = lab["compute"]
    process = m.spawn("echo one; read line; echo got $line")
    process.wait_output("one")
    assert process.running()
    process.send(b"two\n")
    process.wait_output("got two")
    assert process.wait().rc == 0


def test_concurrent_commands(lab):
    m = lab["compute"]
    sleepers = [m.spawn("read x; echo $x") for _ in range(20)]
    assert m.run("echo quick").out == "quick\n"
    for number, process in enumerate(sleepers):
        process.send(f"{number}\n".encode())
    assert [p.wait().out for p in sleepers] == [f"{n}\n" for n in range(20)]


def test_bounds_kill(lab):
    m = lab["compute"]
    raises(CommandTimeout, m.run, "sleep 1000 & sleep 1000", timeout=1)
    assert m.run("pgrep -x sleep", check=False).rc == 1, "the children of a killed command live on"


def test_daemons_do_not_hold_a_command(lab):
    m = lab["compute"]
    m.run("sleep 1000 & echo started")
    m.run("pkill -x sleep")


def test_bulk_both_ways(lab):
    m = lab["compute"]
    data = os.urandom(3_000_017)
    m.write("/tmp/bulk", data)
    assert m.read_bytes("/tmp/bulk") == data
    # A reader slower than the window: sending waits, nothing is lost.
    process = m.spawn("sleep 1; wc -c")
    process.send(data)
    process.end_input()
    assert process.wait().out.strip() == str(len(data))


def test_terminal(lab):
    process = lab["compute"].spawn(["/bin/bash", "--norc", "-i"], terminal=(33, 77))
    process.send(b"stty size; tty; exit 5\n")
    result = process.wait()
    assert result.rc == 5 and "33 77" in result.out and "/dev/pts/" in result.out, result


# The guest's world

def test_root_is_the_hosts_but_private(lab):
    m = lab["compute"]
    assert m.read(REPO / "tools/lab/README.md") == (REPO / "tools/lab/README.md").read_text()
    marker = f"/var/tmp/lab-test-{os.getpid()}"
    m.write(marker, "guest only")
    assert not os.path.exists(marker)
    assert lab["memory"].run(["test", "-e", marker], check=False).rc == 1
    assert m.run("cat /proc/1/comm").out.strip() == "init"
    assert m.run("uname -r").out.strip() == kernel.release(m.spec.kernel)
    assert "tmpfs" in m.run("findmnt -no FSTYPE /tmp").out


def test_cpus_and_clock(lab):
    for m in lab:
        assert int(m.run("nproc").out) == m.spec.cpus
        clock = m.read("/sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
        native = kernel.is_uml(m.spec.kernel)
        assert clock == "timer" if native else clock in ("tsc", "kvm-clock", "hpet", "acpi_pm"), clock
    # A second of the guest is one of the host: neither counts ticks, of which emulation loses some.
    began = time.monotonic()
    guest_s = float(lab["compute"].run("a=$(cut -d' ' -f1 /proc/uptime); sleep 2; b=$(cut -d' ' -f1 /proc/uptime); "
                                       "echo $a $b | awk '{print $2 - $1}'").out)
    assert 2 <= guest_s <= time.monotonic() - began + 0.1, guest_s


def test_modules_and_tools(lab):
    m = lab["compute"]
    m.run("modprobe nbd && modprobe nvme-tcp && modprobe raid1 && modprobe vxlan && modprobe sch_netem")
    m.run("set -e; fio --version; mkfs.ext4 -V; nvme version; mdadm --version; redis-server --version; ping -V", timeout=120)
    assert not [name for name in guesttools.missing() if name.startswith("linux-image")]


# Wires

def test_ping_9000(lab):
    for host in ("memory", "memory-rack", "memory6", "fd00::2"):
        lab["compute"].run(f"ping -c2 -i0.2 -W5 {host}")
    lab["compute"].run("ping -c2 -i0.2 -W5 -M do -s 8972 memory")
    assert lab["compute"].read("/sys/class/net/eth0/mtu").strip() == "9000"


def test_link_down_and_up(lab):
    c = lab["compute"]
    lab.link_down("rack")
    if not kernel.is_uml(c.spec.kernel):
        c.run("until [ $(cat /sys/class/net/eth0/carrier) = 0 ]; do sleep 0.1; done")
    assert c.run("ping -c1 -W1 memory", check=False).rc != 0
    lab.link_up("rack")
    c.run("until ping -c1 -W1 memory; do :; done")


def test_netem(lab):
    c = lab["compute"]
    c.netem("eth0", "loss 100%")
    assert c.run("ping -c1 -W1 memory", check=False).rc != 0
    c.netem("eth0", "")
    c.run("ping -c1 -W5 memory")


# Power

def test_kill_and_boot(lab):
    c, m = lab["compute"], lab["memory"]
    waiting = m.spawn("sleep 1000")
    m.kill()
    raises(MachineDied, waiting.wait)
    raises(MachineDied, m.run, "true")
    # A dead machine's wire swallows frames; it must not stall the sender.
    assert c.run("ping -c1 -W1 memory", check=False).rc != 0
    c.run("ping -i0 -c300 -W1 memory || :", timeout=60)
    m.boot()
    c.run("until ping -c1 -W1 memory; do :; done")


def test_console(lab):
    m = lab["compute"]
    mark = m.console_mark()
    m.write("/dev/kmsg", "<6>remora: hello 42\n")
    assert m.wait_console(r"remora: hello (\d+)", 10, mark)[1] == "42"
    raises(CommandTimeout, m.wait_console, "never said", 0.2)


# Complaints

def test_expected_complaint(lab):
    m = lab["compute"]
    with m.expect_complaint("BUG: on purpose"):
        mark = m.console_mark()
        m.write("/dev/kmsg", "<4>BUG: on purpose\n")
        m.wait_console("BUG: on purpose", 10, mark)
    assert not lab.complaints()


def _failing_run(source, *arguments):
    """A test file of its own: what it printed, its status, and how long it took."""
    path = REPO / "out" / "lab" / f"inner-{os.getpid()}.py"
    path.write_text(f"import sys; sys.path.insert(0, {str(REPO / 'tools/lab')!r})\n"
                    f"from remoralab import tap\n{source}")
    try:
        done = subprocess.run([sys.executable, path, *arguments], text=True, capture_output=True, timeout=200)
    finally:
        path.unlink()
    return done


def test_complaints_and_hangs_fail_the_run(lab):
    done = _failing_run('''
def test_complaint(lab):
    lab["compute"].write("/dev/kmsg", "<4>BUG: test\\n")

def test_fine(lab):
    lab["compute"].run("true")

def test_skipped(lab):
    tap.skip("no reason")

@tap.bound(3)
def test_hang(lab):
    lab["compute"].run("echo the last words > /dev/kmsg; sleep 100")

tap.main("solo", [test_complaint, test_fine, test_skipped, test_hang])
''', "--kernel", lab["compute"].spec.kernel)
    text = done.stdout
    assert done.returncode == 1, done
    assert "1..5" in text and "not ok 1 - complaint" in text and "COMPLAINT of compute: BUG: test" in text, text
    assert "\nok 2 - fine" in text and "\nok 3 - skipped # SKIP no reason" in text, text
    assert "not ok 4 - hang" in text and "the last words" in text, text
    assert "not ok 5 - no kernel complained" in text, text
    for name in ("complaint", "hang"):
        again = rf"^# again: REMORA_TEST_SEED=\d+ python3 \S*inner-{os.getpid()}\.py {name}\b"
        assert re.search(again, text, re.M), text


def test_oops_is_caught(lab):
    """A real crash: the whole report reaches the test, and the machine is off."""
    m = lab["memory"]
    with m.expect_complaint("sysrq|Kernel panic|Oops|BUG: kernel NULL"):
        process = m.spawn("echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger")
        raises(MachineDied, process.wait)
        m.wait_console("Kernel panic", 30)
    wait_until("a machine that panicked is off", lambda: not m.is_on(), 30)


# Nothing remains

def _machines_of(pid):
    """Processes whose log belongs to the lab of process `pid`: QEMU's, User Mode Linux's and its children."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/fd/2"):
        try:
            if f"-{pid}/" in os.readlink(path):
                found.append(path.parts[2])
        except OSError:
            continue
    return [each for each in found if each != str(pid)]


def _alive(pid):
    """A process that has ended may wait for a parent to take note."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_outlives_its_lab(lab):
    signals = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
    words = [sys.executable, LAB, "run", "solo", "--kernel", lab["compute"].spec.kernel, "--", "echo up; sleep 1000"]
    children = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in signals]
    for number, child in zip(signals, children):
        assert child.stdout.readline() == "up\n"
        assert _machines_of(child.pid), "this test doesn't see the machines"
        child.send_signal(number)
        child.wait(60)
        wait_until(f"no machine outlives signal {number}", lambda: not _machines_of(child.pid), 60)


def _cli(*words, check=True):
    return subprocess.run([sys.executable, LAB, *words], text=True, capture_output=True, check=check, timeout=200)


def test_up_status_exec_down(lab):
    """Three machines on one LAN, held up for other commands, and down again with nothing left."""
    name = f"lan{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        topo = shutil.copy(topology.DIRECTORY / "lan.topo", f"{folder}/{name}.topo")
        _cli("up", topo, "--kernel", lab["compute"].spec.kernel)
    try:
        status = _cli("status", name).stdout
        assert re.findall(r"^  (\w+) +on ", status, re.M) == ["compute", "first", "second"], status
        holder = int(re.search(rf"/{name}-(\d+)/", status)[1])
        logs = {os.readlink(f"/proc/{each}/fd/2") for each in _machines_of(holder)}
        assert len(logs) == 3 + 1, f"three machines and their hub: {logs}"
        assert "is up already" in _cli("up", f"{name}.topo", check=False).stderr
        done = _cli("exec", "compute", "--lab", name, "--",
                    "ping -c1 -W5 first >&2 && ping -c1 -W5 second >&2 && cat /proc/sys/kernel/hostname; exit 7",
                    check=False)
        assert (done.returncode, done.stdout) == (7, "compute\n"), done
        _cli("exec", "first", "--lab", name, "--", "ping", "-c1", "-W5", "second6")
        assert "no machine 'third'" in _cli("exec", "third", "--lab", name, "--", "true", check=False).stderr
    finally:
        _cli("down", name, check=False)
    # The holder's sockets close, so that `down` returns, an instant before it is gone.
    wait_until("nothing of the lab is left", lambda: not _alive(holder) and not _machines_of(holder), 10)
    assert "is not up" in _cli("status", name, check=False).stderr


def test_run_by_anybody(lab):
    """No privilege, no group, nothing to write to but a home of one's own."""
    if os.geteuid() != 0:
        tap.skip("all of this runs without privilege already")
    name = lab["compute"].spec.kernel
    with tempfile.TemporaryDirectory() as home:
        home = pathlib.Path(home)
        home.chmod(0o755)
        own = home / "cache"
        (own / "lock").mkdir(parents=True)
        (own / "kernel").mkdir()
        for entry in (f"kernel/{name}", "guest-tools", "compiled", "accel"):
            source = (cache.root() / entry).resolve()
            # By links where that can be: it is only read.
            if source.exists() and subprocess.run(["cp", "-al", source, own / entry], capture_output=True).returncode:
                subprocess.run(["cp", "-a", source, own / entry], check=True)
        shutil.copytree(REPO / "tools" / "lab", home / "repo" / "tools" / "lab")
        for writable in (home, home / "repo", own, own / "lock"):
            os.chown(writable, NOBODY, NOBODY)
        done = subprocess.run(
            ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "env", "-i",
             "PATH=/usr/bin:/bin:/usr/sbin:/sbin", f"HOME={home}", f"TMPDIR={home}", f"REMORA_CACHE={own}",
             home / "repo/tools/lab/lab", "run", "solo", "--kernel", name, "--", "echo up; id -u"],
            text=True, capture_output=True, cwd=home, timeout=200)
        assert (done.returncode, done.stdout) == (0, "up\n0\n"), done


def test_topology_errors_explain(lab):
    def load(text):
        path = REPO / "out" / "lab" / f"bad-{os.getpid()}.topo"
        path.write_text(text)
        try:
            return raises(LabError, topology.load, str(path))
        finally:
            path.unlink()
    assert "no topology 'nosuch'" in raises(LabError, topology.load, "nosuch")
    assert "512M or 1G" in load("[machine a]\nram = 12\n")
    assert "names 'b'" in load("[machine a]\nram = 1G\n[link l]\na = 10.0.0.1/24\nb = 10.0.0.2/24\n")
    assert "fewer than two" in load("[machine a]\nram = 1G\n[link l]\na = 10.0.0.1/24\n")
    assert "no kernel 'x'" in raises(LabError, kernel.directory, "x")


if __name__ == "__main__":
    tap.main("pair", [test for name, test in list(globals().items()) if name.startswith("test_")])
