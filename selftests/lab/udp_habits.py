#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Habits of UDP programs with their sockets; run under eqds-run, in a host of the rack.

    udp_habits.py serve PORT            answers each datagram by itself until it gets "end", from a process that it forks,
                                        by a duplicate of the socket
    udp_habits.py ask HOST PORT         one habit after the other, each against that server; prints their names
    udp_habits.py exec HOST PORT FD     of a process that got a connected socket by exec()
"""

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import threading

WAIT_S = 20


def fresh(**more):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(more.get("timeout", WAIT_S))
    return s


def serve(port):
    s = fresh(timeout=None)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", port))
    print("serving", flush=True)
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return
    mine = s.dup()
    s.close()
    while True:
        data, peer = mine.recvfrom(65535)
        mine.sendto(data, peer)
        if data == b"end":
            os._exit(0)


def refuses(code, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno == code
    return False


def unconnected(to):
    with fresh() as s:
        assert refuses(errno.EDESTADDRREQ, s.send, b"x")
        s.sendto(b"hello", to)
        assert s.recvfrom(100) == (b"hello", to)
        assert s.getsockname()[1]
        assert refuses(errno.ENOTCONN, s.getpeername)


def connected(to):
    with fresh() as s:
        s.connect(to)
        assert s.getpeername() == to and s.getsockname()[0] != "0.0.0.0"
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_DGRAM
        s.setblocking(True)
        os.write(s.fileno(), b"one")
        assert os.read(s.fileno(), 100) == b"one"
        s.sendmsg([b"tw", b"o"])
        first, second = bytearray(1), bytearray(9)
        count, _, flags, peer = s.recvmsg_into([first, second])
        assert (count, flags, peer, first, second[:2]) == (3, 0, to, b"t", b"wo"), (count, flags, peer)
        s.shutdown(socket.SHUT_WR)


def empty_and_cut(to):
    with fresh() as s:
        s.connect(to)
        s.send(b"")
        assert s.recv(100) == b""
        s.send(b"0123456789")
        assert s.recv(4, socket.MSG_PEEK) == b"0123"
        data, _, flags, _ = s.recvmsg(4)
        assert data == b"0123" and flags & socket.MSG_TRUNC
        s.send(b"next")
        assert s.recv(100) == b"next"


def larger_than_a_packet(to):
    with fresh() as s:
        s.connect(to)
        s.send(b"L" * 9000)
        assert s.recv(65535) == b"L" * 9000
        assert refuses(errno.EMSGSIZE, s.send, bytes(65508))


def waits(to):
    """poll, select, epoll, and without blocking."""
    with fresh() as s, select.epoll() as e:
        s.connect(to)
        s.setblocking(False)
        assert refuses(errno.EAGAIN, s.recv, 100)
        e.register(s.fileno(), select.EPOLLIN)
        p = select.poll()
        p.register(s, select.POLLIN)
        assert not e.poll(0) and not p.poll(0) and not select.select([s], [], [], 0)[0]
        assert select.select([], [s], [], WAIT_S)[1]
        s.send(b"waits")
        assert e.poll(WAIT_S) and p.poll(0) and select.select([s], [], [], 0)[0]
        assert s.recv(100) == b"waits" and not p.poll(0)


def at_a_port_of_its_own(to):
    with fresh() as a, fresh() as b, fresh() as other:
        for s in (a, b):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        a.bind(("0.0.0.0", 4242))
        assert refuses(errno.EADDRINUSE, other.bind, ("0.0.0.0", 4242))
        assert refuses(errno.EINVAL, a.bind, ("0.0.0.0", 4243))
        a.connect(to)
        # As iperf3's server: the port again, while a connected socket has its own peer's datagrams.
        b.bind(("0.0.0.0", 4242))
        a.send(b"mine")
        assert a.recv(100) == b"mine"
        assert a.getsockname()[1] == b.getsockname()[1] == 4242


def forked(to):
    with fresh() as s:
        s.connect(to)
        child = os.fork()
        if not child:
            s.send(b"child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert s.recv(100) == b"child"


def through_exec(to):
    s = fresh()
    s.connect(to)
    copy = os.dup(s.fileno())
    os.set_inheritable(copy, True)
    s.close()
    child = os.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, __file__, "exec", to[0], str(to[1]), str(copy)])
    assert os.waitpid(child, 0)[1] == 0
    os.close(copy)


def after_exec(to, fd):
    libc = ctypes.CDLL(None, use_errno=True)
    os.set_blocking(fd, True)
    assert os.write(fd, b"heir") == 4 and os.read(fd, 100) == b"heir"
    address = ctypes.create_string_buffer(16)
    assert libc.getpeername(fd, address, ctypes.byref(ctypes.c_int(16))) == 0
    assert address.raw[2:8] == to[1].to_bytes(2, "big") + socket.inet_aton(to[0])


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_bytes", ctypes.c_uint), ("vectors", ctypes.POINTER(Vector)),
                ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_bytes", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("padding", ctypes.c_int), ("bytes", ctypes.c_uint)]


def messages(count):
    rooms = [ctypes.create_string_buffer(8) for _ in range(count)]
    made = (Message * count)()
    for each, room in zip(made, rooms):
        vector = Vector(ctypes.addressof(room), 8)
        each.vectors, each.count = ctypes.pointer(vector), 1
    return made, rooms


def many_at_once(to):
    """sendmmsg(), recvmmsg()."""
    libc = ctypes.CDLL(None, use_errno=True)
    with fresh() as s:
        s.connect(to)
        s.setblocking(True)
        out, rooms = messages(3)
        for i, room in enumerate(rooms):
            room.value = b"many%d" % i
        assert libc.sendmmsg(s.fileno(), out, 3, 0) == 3
        into, rooms = messages(3)
        assert libc.recvmmsg(s.fileno(), into, 3, 0, None) == 3
        assert [room.raw[:5] for room in rooms] == [b"many0", b"many1", b"many2"]
        assert [each.bytes for each in into] == [8, 8, 8]
        assert libc.recvmmsg(s.fileno(), into, 3, socket.MSG_DONTWAIT, None) == -1


def refused_loudly(to):
    """Options whose ancillary data the layer can't bring, and what would make another datagram."""
    with fresh() as s:
        assert refuses(errno.EOPNOTSUPP, s.sendto, b"a part", socket.MSG_MORE, to)
        segments = [(socket.IPPROTO_UDP, 103, b"\x64\0")]  # UDP_SEGMENT
        assert refuses(errno.EOPNOTSUPP, s.sendmsg, [b"many"], segments, 0, to)
        assert refuses(errno.ENOPROTOOPT, s.setsockopt, socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)
        assert s.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 9


def to_nobody(to):
    """ICMP's error about a connected socket's peer, by the kernel's UDP on this machine."""
    with fresh() as s:
        s.connect(("127.0.0.1", 4))
        s.send(b"x")
        assert refuses(errno.ECONNREFUSED, s.recv, 100)


def after_a_child_of_vfork(to):
    """subprocess' child closes all descriptors, in its parent's memory."""
    with fresh() as s:
        subprocess.run(["true"], check=True)
        s.sendto(b"parent", to)
        assert s.recvfrom(100) == (b"parent", to)


def connected_by_a_duplicate(to):
    with fresh() as s, s.dup() as copy:
        s.connect(to)
        assert copy.send(b"copy") == 4 and s.recv(100) == b"copy"


def shut_down(to):
    """A thread that receives wakes up; the socket still sends."""
    with fresh(timeout=None) as s:
        s.connect(to)
        said = []
        reader = threading.Thread(target=lambda: said.append(s.recv(100)), daemon=True)
        reader.start()
        s.shutdown(socket.SHUT_RD)
        reader.join(WAIT_S)
        assert said == [b""] and s.send(b"still") == 5


def by_stdio(to):
    """stdio writes inside the C library: texts shorter and longer than the layer's head."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fdopen.restype = ctypes.c_void_p
    with fresh() as s:
        s.connect(to)
        file = ctypes.c_void_p(libc.fdopen(os.dup(s.fileno()), b"w"))
        for text in (b"short", b"longer than the head of the layer's messages", b"L" * 4000):
            assert libc.fputs(text, file) >= 0 and libc.fflush(file) == 0
            assert s.recv(5000) == text
        libc.fclose(file)


def families_share_a_port(to):
    with fresh() as s, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other:
        s.bind(("", 4243))
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", 4243))
        s.sendto(b"four", to)
        assert s.recvfrom(100) == (b"four", to)


def addresses_of_the_other_family(to):
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
        s.settimeout(WAIT_S)
        s.sendto(b"six", ("::ffff:" + to[0], to[1]))
        assert s.recvfrom(100) == (b"six", ("::ffff:" + to[0], to[1], 0, 0))
        libc = ctypes.CDLL(None, use_errno=True)
        address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(to[1]), socket.inet_aton(to[0]))
        assert libc.sendto(s.fileno(), b"four", 4, 0, address, len(address)) == 4 and s.recv(100) == b"four"


def to_all_hosts(to):
    with fresh() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.sendto(b"all", (to[0].rpartition(".")[0] + ".255", to[1]))
        assert s.recvfrom(100) == (b"all", to)


def asks_for_an_interface(to):
    with fresh() as s:
        request = fcntl.ioctl(s.fileno(), 0x8915, struct.pack("32s", b"lo"))  # SIOCGIFADDR
        assert socket.inet_ntoa(request[20:24]) == "127.0.0.1"


def reads_nothing(to):
    with fresh() as s:
        s.connect(to)
        s.setblocking(True)
        s.send(b"kept")
        select.select([s], [], [], WAIT_S)
        assert os.read(s.fileno(), 0) == b"" and s.recv(100) == b"kept"


def numbers_come_again(to):
    """A descriptor's number that was a UDP socket's is a file's next."""
    s = fresh()
    number = s.fileno()
    s.close()
    with open(__file__, "rb") as file:
        assert file.fileno() == number and os.read(number, 2) == b"#!"


HABITS = [unconnected, connected, empty_and_cut, larger_than_a_packet, waits, at_a_port_of_its_own, forked,
          through_exec, many_at_once, refused_loudly, to_nobody, numbers_come_again, after_a_child_of_vfork,
          connected_by_a_duplicate, shut_down, by_stdio, families_share_a_port, addresses_of_the_other_family,
          to_all_hosts, asks_for_an_interface, reads_nothing]


def main():
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
        return
    to = (sys.argv[2], int(sys.argv[3]))
    if sys.argv[1] == "exec":
        after_exec(to, int(sys.argv[4]))
        return
    for habit in HABITS:
        habit(to)
        print(habit.__name__, flush=True)
    with fresh() as s:
        s.sendto(b"end", to)
        assert s.recv(100) == b"end"


if __name__ == "__main__":
    main()
