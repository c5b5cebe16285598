// SPDX-License-Identifier: MIT
#include "support/shared_memory.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/failure.hpp"

namespace remora {

namespace {

// Since Linux 5.1; Debian's C library has the number under another header, which the kernel's
// clashes with.
constexpr int seal_future_write = 0x0010;

struct alignas(cmsghdr) Control : std::array<char, CMSG_SPACE(files_max * sizeof(int))> {};

void seal(const Descriptor& file, int seals) {
    if (fcntl(file.get(), F_ADD_SEALS, seals))
        throw Failure("can't seal shared memory: {}", std::strerror(errno));
}

} // namespace

Descriptor shared_file(const char* name, std::size_t bytes) {
    Descriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)))
        throw Failure("no {} bytes of shared memory: {}", bytes, std::strerror(errno));
    seal(file, F_SEAL_SHRINK | F_SEAL_GROW);
    return file;
}

void close_to_writers(const Descriptor& file) {
    seal(file, seal_future_write);
}

Mapping::Mapping(const Descriptor& file, std::size_t bytes, int protection, void* at)
    : bytes_(bytes) {
    void* got = mmap(at, bytes, protection, MAP_SHARED | (at ? MAP_FIXED : 0), file.get(), 0);
    if (got == MAP_FAILED)
        throw Failure("can't map {} bytes of shared memory: {}", bytes, std::strerror(errno));
    madvise(got, bytes, MADV_DONTFORK);
    at_ = got;
}

bool keeps_its_size(const Descriptor& file, std::size_t bytes) {
    struct stat found {};
    int seals = fcntl(file.get(), F_GET_SEALS);
    return !fstat(file.get(), &found) && static_cast<std::size_t>(found.st_size) >= bytes &&
           seals >= 0 && (seals & F_SEAL_SHRINK);
}

bool send_files(int fd, std::span<const std::uint8_t> message, std::span<const int> files) {
    iovec vector{const_cast<std::uint8_t*>(message.data()), message.size()};
    Control control{};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    if (!files.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(files.size_bytes());
        cmsghdr* item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(files.size_bytes());
        std::memcpy(CMSG_DATA(item), files.data(), files.size_bytes());
    }
    return sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           static_cast<ssize_t>(message.size());
}

ssize_t receive_files(int fd, std::span<std::uint8_t> message, std::vector<Descriptor>& files) {
    iovec vector{message.data(), message.size()};
    Control control{};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return got;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(&header, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS)
            continue;
        std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; i++) {
            int each;
            std::memcpy(&each, CMSG_DATA(item) + i * sizeof(int), sizeof(each));
            files.emplace_back(each);
        }
    }
    return got;
}

} // namespace remora
