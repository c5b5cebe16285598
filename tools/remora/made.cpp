// SPDX-License-Identifier: GPL-2.0
#include "remora/made.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fcntl.h>
#include <sys/file.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

const std::string folder = "/run/remora";
const std::string path = folder + "/made";

// One of POSIX's locks: the kernel knows its holder, and a child doesn't inherit it.
enum Part : off_t { making, removing };

struct flock lock_of(Part part) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = part;
    lock.l_len = 1;
    return lock;
}

// The process that has this part of the file; 0: none.
pid_t holder(int file, Part part) {
    struct flock lock = lock_of(part);
    return fcntl(file, F_GETLK, &lock) || lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

void wait_for(int file, Part part, const std::string& resource) {
    struct flock lock = lock_of(part);
    if (fcntl(file, F_SETLKW, &lock))
        throw Failure("can't wait for another process at {}: {}", resource, std::strerror(errno));
}

using Made = std::map<std::string, std::string>;

Made read_made() {
    Made all;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (const std::size_t space = line.find(' '); space != line.npos)
            all[line.substr(0, space)] = line.substr(space + 1);
    return all;
}

void change(const std::function<void(Made&)>& how) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const Descriptor lock(open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock || flock(lock.get(), LOCK_EX))
        throw Failure("can't lock {}: {}", folder, std::strerror(errno));
    Made all = read_made();
    how(all);
    const std::string fresh = path + ".new";
    {
        std::ofstream file(fresh);
        for (const auto& [resource, identity] : all)
            file << resource << ' ' << identity << '\n';
        if (!file.flush())
            throw Failure("can't write {}: {}", fresh, std::strerror(errno));
    }
    std::filesystem::rename(fresh, path, error);
    if (error)
        throw Failure("can't write {}: {}", path, error.message());
}

} // namespace

std::map<std::string, std::string> made() {
    return read_made();
}

void note_made(const std::string& resource, const std::string& identity) {
    change([&](Made& all) { all[resource] = identity; });
}

void forget_made(const std::string& resource) {
    change([&](Made& all) { all.erase(resource); });
}

Turn::Turn(const std::string& resource) {
    std::string name = "lock-" + resource;
    std::ranges::replace(name, '/', ':');
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    file_ = Descriptor(open((folder + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file_)
        throw Failure("can't open {}/{}: {}", folder, name, std::strerror(errno));
}

Turn Turn::to_make(const std::string& resource) {
    Turn turn(resource);
    struct flock lock = lock_of(making);
    if (!fcntl(turn.file_.get(), F_SETLK, &lock))
        return turn;
    throw Failure("process {} is at work on it: wait for it, or end it by --undo",
                  holder(turn.file_.get(), making));
}

Turn Turn::to_remove(const std::string& resource) {
    Turn turn(resource);
    wait_for(turn.file_.get(), removing, resource);
    if (const pid_t maker = holder(turn.file_.get(), making); maker > 0)
        kill(maker, SIGTERM);
    wait_for(turn.file_.get(), making, resource);
    return turn;
}

} // namespace remora
