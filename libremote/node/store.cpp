// SPDX-License-Identifier: MIT
#include "node/store.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::node {

Store::Store(const std::string& folder) : path_(folder + "/remora-node.store") {
    // A disk's file outlives a reboot, after which some of its pages can be older than others.
    struct statfs status {};
    if (statfs(folder.c_str(), &status))
        throw Failure("can't look at the store's folder {}: {}", folder, std::strerror(errno));
    if (status.f_type != TMPFS_MAGIC && status.f_type != HUGETLBFS_MAGIC)
        throw Failure("{} is on a disk: name a folder of a tmpfs for the store", folder);
    // The process that has just ended might have removed the file between open() and flock().
    struct stat opened {};
    do {
        fd_ = Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!fd_ || fstat(fd_.get(), &opened))
            throw Failure("can't open the store {}: {}", path_, std::strerror(errno));
        check_owner(opened);
        if (flock(fd_.get(), LOCK_EX | LOCK_NB))
            throw Failure(
                "{} is the store of another process: stop that one, or name another folder", path_);
    } while (!is_at_path(opened));
}

// The store's content is trusted.
void Store::check_owner(const struct stat& opened) const {
    if (!S_ISREG(opened.st_mode) || opened.st_uid != geteuid() || opened.st_mode & 077 ||
        opened.st_nlink > 1)
        throw Failure("{} is not this user's alone, so its content can't be trusted: remove it, or "
                      "name another folder",
                      path_);
}

bool Store::is_at_path(const struct stat& opened) const {
    struct stat found {};
    return !lstat(path_.c_str(), &found) && found.st_dev == opened.st_dev &&
           found.st_ino == opened.st_ino;
}

std::uint64_t Store::bytes() const {
    struct stat status {};
    return fstat(fd_.get(), &status) ? 0 : static_cast<std::uint64_t>(status.st_size);
}

void Store::renew(std::uint64_t bytes, const char* option) {
    const auto size = static_cast<off_t>(bytes);
    if (!ftruncate(fd_.get(), 0) && !ftruncate(fd_.get(), size) &&
        !fallocate(fd_.get(), 0, 0, size))
        return;
    const int error = errno;
    end(); // or another size would be taken for a slip
    throw Failure(error, "no {} for the store: {}: lower {}, or raise the file system's limit",
                  size_text(bytes), std::strerror(error), option);
}

void* Store::map(std::uint64_t offset, std::uint64_t bytes) const {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(),
                    static_cast<off_t>(offset));
    if (at == MAP_FAILED)
        throw Failure(errno, "can't map the store: {}", std::strerror(errno));
    return at;
}

void Store::end() {
    // Without its pages the file holds nothing, so a failure to remove it does no harm.
    if (!ftruncate(fd_.get(), 0) && !path_.empty())
        unlink(path_.c_str());
}

} // namespace remora::node
