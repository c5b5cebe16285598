// SPDX-License-Identifier: MIT
// Requests of a process to eqds-run, and addresses as programs know them.
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "udp/wire.hpp"

namespace eqds_udp {

// The C library's functions, under the layer's.
struct Real {
    int (*socket)(int, int, int);
    int (*shutdown)(int, int);
    int (*accept4)(int, sockaddr*, socklen_t*, int);
    int (*bind)(int, const sockaddr*, socklen_t);
    int (*connect)(int, const sockaddr*, socklen_t);
    int (*getsockname)(int, sockaddr*, socklen_t*);
    int (*getpeername)(int, sockaddr*, socklen_t*);
    int (*getsockopt)(int, int, int, void*, socklen_t*);
    int (*setsockopt)(int, int, int, const void*, socklen_t);
    ssize_t (*send)(int, const void*, std::size_t, int);
    ssize_t (*sendmsg)(int, const msghdr*, int);
    ssize_t (*recvmsg)(int, msghdr*, int);
    int (*close)(int);
    int (*close_range)(unsigned, unsigned, int);
    int (*dup)(int);
    int (*dup2)(int, int);
    int (*dup3)(int, int, int);
    int (*fcntl)(int, int, ...);
    int (*ioctl)(int, unsigned long, ...);
    ssize_t (*read)(int, void*, std::size_t);
    ssize_t (*readv)(int, const iovec*, int);
    ssize_t (*write)(int, const void*, std::size_t);
    ssize_t (*writev)(int, const iovec*, int);
    int (*sendmmsg)(int, mmsghdr*, unsigned, int);
    int (*recvmmsg)(int, mmsghdr*, unsigned, int, timespec*);
};

const Real& real();

// The descriptor of requests; -1: the program was not started by eqds-run.
int requests();

// Returns 0, or -errno. passed: a descriptor that goes along, or -1.
int ask(const Request& request, Answer* answer, int passed = -1);

// errno of an address that can't be one of a socket of that family; 0: *to has it.
int parse(const sockaddr* from, socklen_t bytes, bool v6, Address* to);
// Writes as much as there is room for, and leaves in *bytes how long the whole is.
void format(const Address& from, bool v6, sockaddr* to, socklen_t* bytes);

} // namespace eqds_udp
