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
import os
import select
import socket
import sys

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
    """Options whose ancillary data the layer can't bring."""
    with fresh() as s:
        assert refuses(errno.ENOPROTOOPT, s.setsockopt, socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)
        assert s.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 9


def to_nobody(to):
    """ICMP's error about a connected socket's peer, by the kernel's UDP on this machine."""
    with fresh() as s:
        s.connect(("127.0.0.1", 4))
        s.send(b"x")
        assert refuses(errno.ECONNREFUSED, s.recv, 100)


def numbers_come_again(to):
    """A descriptor's number that was a UDP socket's is a file's next."""
    s = fresh()
    number = s.fileno()
    s.close()
    with open(__file__, "rb") as file:
        assert file.fileno() == number and os.read(number, 2) == b"#!"


HABITS = [unconnected, connected, empty_and_cut, larger_than_a_packet, waits, at_a_port_of_its_own, forked, through_exec,
          many_at_once, refused_loudly, to_nobody, numbers_come_again]


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
