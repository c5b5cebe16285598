// SPDX-License-Identifier: GPL-2.0
#include "remora-node/store.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "remora-node/notify.hpp"
#include "support/failure.hpp"

namespace remora::daemon {

namespace {

constexpr char name[] = "remora-node-store";
constexpr int first_passed = 3;

std::string variable(const char* of) {
    const char* value = std::getenv(of);
    return value ? value : "";
}

// sd_listen_fds_with_names(3). None: this is the service's first process.
Descriptor passed_descriptor() {
    if (variable("LISTEN_PID") != std::to_string(getpid()))
        return {};
    std::istringstream names(variable("LISTEN_FDNAMES"));
    const int count = std::atoi(variable("LISTEN_FDS").c_str());
    std::string each;
    for (int n = 0; n < count && std::getline(names, each, ':'); n++) {
        if (each != name)
            continue;
        fcntl(first_passed + n, F_SETFD, FD_CLOEXEC);
        return Descriptor(first_passed + n);
    }
    return {};
}

} // namespace

node::Store open_store(const std::string& where) {
    if (where != store_of_systemd)
        return node::Store(where);
    if (Descriptor passed = passed_descriptor())
        return node::Store(std::move(passed));
    Descriptor made(memfd_create(name, MFD_CLOEXEC));
    if (!made)
        throw Failure("can't make the store: {}", std::strerror(errno));
    if (!notify(std::string("FDSTORE=1\nFDNAME=") + name, made.get()))
        throw Failure("systemd doesn't take the store: start remora-node by its unit, or give "
                      "--store a folder of a tmpfs");
    return node::Store(std::move(made));
}

void drop_store(const std::string& where) {
    if (where == store_of_systemd)
        passed_descriptor(); // and closed
    forget_store(where);
}

void forget_store(const std::string& where) {
    if (where == store_of_systemd)
        notify(std::string("FDSTOREREMOVE=1\nFDNAME=") + name);
}

} // namespace remora::daemon
