#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Several clients of one node."""

import errno
import json

import rmemlab
from remoralab import rmem, tap
from remoralab.rmem import Rack, wait_until

OTHER = 2  # a space
FAULT = 6  # RMEM_FAULT


@tap.bound(600)
def test_two_clients_of_one_node(lab):
    """Their devices are apart, and both work at once."""
    mib = rmemlab.scaled(lab, 12)
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        devices = {name: rack.attach(name, node, "64M") for name in ("left", "right")}
        assert node.status()["regions"] == 2
        loads = {name: lab[name].spawn(rmemlab.fio_command(device.path, "mixed", "4k-64k", mib, seed=len(name)))
                 for name, device in devices.items()}
        for load in loads.values():
            result = load.wait(rmemlab.LOAD_S)
            assert result.rc == 0, result
        rmemlab.write_pattern(lab["left"], devices["left"].path, mib, seed=21)
        rmemlab.write_pattern(lab["right"], devices["right"].path, mib, seed=22)
        rmemlab.check_pattern(lab["left"], devices["left"].path, mib, seed=21)
        rmemlab.check_pattern(lab["right"], devices["right"].path, mib, seed=22)
        devices["left"].detach()
        wait_until("one region is left", lambda: node.status()["regions"] == 1)
        rmemlab.check_pattern(lab["right"], devices["right"].path, mib, seed=22)


def test_client_that_vanishes(lab):
    """A client loses power: the other goes on, and the operator takes back what it held."""
    mib = rmemlab.scaled(lab, 8)
    with Rack(lab) as rack:
        node = rack.node("memory", "192M")
        rack.attach("left", node, "64M")
        device = rack.attach("right", node, "64M")
        rmemlab.write_pattern(lab["right"], device.path, mib, seed=31)
        lab["left"].kill()
        rmemlab.run_fio(lab["right"], device.path, "mixed", "4k-64k", mib, extra="--offset=32M")
        rmemlab.check_pattern(lab["right"], device.path, mib, seed=31)
        device.detach()
        assert node.status()["regions"] == 1, "the vanished client's region is the operator's to end"
        memory = lab["memory"]
        rmemlab.cli_refused(memory, "node", "space", "del", str(node.SPACE), says=r"1 region.*--force")
        rmem.remora(memory, "node", "space", "del", "--force", str(node.SPACE))
        status = node.status()
        assert status["regions"] == 0 and status["promised_bytes"] == 0, status


def test_quota_of_a_node(lab):
    """A client is refused, with the reason, when another holds the memory."""
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("left", node, "64M")
        rmem.load(lab["right"], rmem.CLIENT)
        words = rmem.attach_words(lab["right"], node, "64M")
        rmemlab.cli_refused(lab["right"], *words, says=r"no memory, quota or region left \(32 of 96 MiB free\): ask for less")
        device.detach()
        rack.attach("right", node, "64M")


def test_two_tenants(lab):
    """A tenant neither reads nor inherits memory of another."""
    left, right, memory = lab["left"], lab["right"], lab["memory"]
    page, mib = 64 << 10, 48
    with Rack(lab) as rack:
        # Both can't have pages of their own: what the second gets, the first had.
        node = rack.node("memory", f"{mib}M")
        key = node.add_space(OTHER)
        device = rack.attach("left", node, f"{mib}M")
        left.run(f"tr '\\0' '\\252' < /dev/zero | dd of={device.path} bs=1M count={mib} iflag=fullblock oflag=direct "
                 "status=none")
        assert node.backed_bytes() == mib << 20, node.status()

        before = node.counters()
        said = right.run(["python3", rmemlab.HERE / "tenant.py", rmem.address(memory, right), str(node.port),
                          str(OTHER), rmem.give_key(right, node, key), str(node.SPACE), device.status()["address"]])
        assert said.out.split() == [str(FAULT), "3"], f"status, id of the last answer: {said.out}"
        assert {"fault", "drop-tag"} <= set(rmemlab.growth(node.counters, before)), "refused, but not counted"

        device.detach()
        heir = rack.attach("right", node, f"{mib}M", "--space", str(OTHER), key=key)
        right.run(f"cmp -n {mib << 20} {heir.path} /dev/zero", timeout=rmemlab.LOAD_S)
        # A block written to each page has the node back it, with a page that was the other's. Each program's
        # end empties the page cache of the device, so that the second reads from the node.
        python(right, f"""
with open("{heir.path}", "wb", buffering=0) as device:
    for at in range(0, {mib << 20}, {page}):
        device.seek(at)
        device.write(bytes([1]) * 4096)
""")
        assert node.backed_bytes() == mib << 20, node.status()
        python(right, f"""
with open("{heir.path}", "rb") as device:
    for number in range({(mib << 20) // page}):
        data = device.read({page})
        assert data[:4096] == bytes([1]) * 4096, f"page {{number}} isn't as written"
        assert not any(data[4096:]), f"page {{number}} shows another tenant's bytes"
""")


def test_readers(lab):
    """A client with the key of a read-only view reads the data, and changes nothing."""
    left, right, memory = lab["left"], lab["right"], lab["memory"]
    with Rack(lab) as rack:
        node = rack.node("memory", "96M")
        device = rack.attach("left", node, "16M")
        key = node.add_view(OTHER)
        add, delete = ["node", "space", "add"], ["node", "space", "del"]
        spare = f"3={node.space_key_path(OTHER)}"
        for wanted, says in [(f"{spare},read-only-of={OTHER}", "has no memory"),
                             (f"{spare},read-only-of=9", "is no space"),
                             (f"3={node.key_path},read-only-of={node.SPACE}", "another client of the space"),
                             (f"{spare},quota=1M,read-only-of={node.SPACE}", "has two of"),
                             (f"{OTHER}={node.key_path},read-only-of=9", "is no space")]:
            rmemlab.cli_refused(memory, *add, wanted, says=says)
        for words in ([], ["--force"]):
            rmemlab.cli_refused(memory, *delete, *words, str(node.SPACE), says="read-only views")
        said = json.loads(rmem.remora(memory, "node", "space", "list", "--json").out)
        assert {each["space"]: each["read_only_of"] for each in said} == {node.SPACE: 0, OTHER: node.SPACE}, said
        assert f"read-only of {node.SPACE} " in rmem.remora(memory, "node", "space", "list").out

        rmem.load(right, rmem.CLIENT)
        of_view = ["--space", str(OTHER)]
        rmemlab.cli_refused(right, *rmem.attach_words(right, node, "16M", *of_view, key=key), says="SPACE is read-only")
        reader = rack.attach("right", node, None, *of_view, key=key)
        address = device.status()["address"]
        for value in (1, 2):
            left.run(f"head -c 1M /dev/zero | tr '\\0' '\\{value}' | dd of={device.path} bs=1M iflag=fullblock "
                     "oflag=direct status=none")
            python(right, READER.format(path=reader.path, address=address, value=value, eacces=errno.EACCES))
        reader.detach()
        rmem.remora(memory, *delete, str(OTHER))
        left.run(f"head -c 1M {device.path} | tr -d '\\2' | cmp - /dev/null")


# Operations by hand, of include/uapi/remora_rmem_io.h.
READER = """
import ctypes, fcntl, os, struct

READ, WRITE, ZERO = 1, 2, 3
IO, ALLOC, FREE = 0x4050ba01, 0xc018ba02, 0x4010ba03
data = ctypes.create_string_buffer(4096)
device = os.open("{path}", os.O_RDWR)

def io(kind):
    fcntl.ioctl(device, IO, struct.pack("<BBHIQQ56x", kind, 0, 0, 4096, {address}, ctypes.addressof(data)
                                        if kind != ZERO else 0))

def refused(call, *args):
    try:
        call(*args)
    except OSError as error:
        assert error.errno == {eacces}, error
    else:
        raise SystemExit("not refused")

for _ in range(2):
    io(READ)
    assert data.raw == bytes([{value}]) * 4096, data.raw[:16]
    refused(io, WRITE)
    refused(io, ZERO)
    refused(fcntl.ioctl, device, ALLOC, struct.pack("<QQII", 65536, 0, 3, 0))
    refused(fcntl.ioctl, device, FREE, struct.pack("<QQ", {address}, 16 << 20))
"""


def python(machine, text):
    machine.run(["python3", "-c", text], timeout=rmemlab.LOAD_S)


TESTS = [test_two_clients_of_one_node, test_client_that_vanishes, test_quota_of_a_node, test_two_tenants,
         test_readers, rmemlab.test_modules_go]

if __name__ == "__main__":
    tap.main("triple", TESTS)
