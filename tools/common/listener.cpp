// SPDX-License-Identifier: GPL-2.0
#include "common/listener.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/failure.hpp"
#include "support/unix_address.hpp"

namespace remora {

namespace {

struct stat at(const std::string& path) {
    struct stat found {};
    lstat(path.c_str(), &found);
    return found;
}

Descriptor unix_socket(int type) {
    return Descriptor(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool is_abandoned(const sockaddr_un& address, int type) {
    Descriptor probe = unix_socket(type);
    return probe &&
           connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) &&
           errno == ECONNREFUSED;
}

// Keeps other processes from looking for a stale socket at the path, and replacing it, meanwhile.
class StartLock {
public:
    explicit StartLock(const std::string& path) : path_(path + ".lock") {
        do {
            file_ =
                Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
            if (!file_ || flock(file_.get(), LOCK_EX))
                throw Failure("can't lock {}: {}", path_, std::strerror(errno));
        } while (!is_there()); // the one before has removed it
    }
    StartLock(const StartLock&) = delete;
    StartLock& operator=(const StartLock&) = delete;
    ~StartLock() { unlink(path_.c_str()); }

private:
    bool is_there() const {
        struct stat mine {};
        return !fstat(file_.get(), &mine) && mine.st_ino == at(path_).st_ino;
    }

    std::string path_;
    Descriptor file_;
};

} // namespace

UnixListener::UnixListener(const char* option, std::string path, mode_t mode, int type)
    : path_(std::move(path)), fd_(unix_socket(type)) {
    sockaddr_un address = unix_address(path_);
    struct stat found = at(path_);
    if (found.st_mode && !S_ISSOCK(found.st_mode))
        throw Failure("{} {} is there and is no socket: choose another path", option, path_);
    StartLock lock(path_);
    if (found.st_mode && is_abandoned(address, type))
        unlink(path_.c_str());
    // bind() creates the file with the mode of the socket.
    if (!fd_ || fchmod(fd_.get(), mode) ||
        bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) ||
        listen(fd_.get(), SOMAXCONN))
        throw Failure("can't listen at {}: {}: choose another path for {}", path_,
                      std::strerror(errno), option);
    inode_ = at(path_).st_ino;
}

UnixListener::UnixListener(std::string path, Descriptor&& fd)
    : path_(std::move(path)), fd_(std::move(fd)), inode_(at(path_).st_ino) {}

UnixListener::~UnixListener() {
    remove();
}

void UnixListener::remove() {
    if (fd_ && inode_ && at(path_).st_ino == inode_) // else it is another's by now
        unlink(path_.c_str());
    inode_ = 0;
}

Descriptor UnixListener::accept() const {
    return Descriptor(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

} // namespace remora
