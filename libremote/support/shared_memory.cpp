// SPDX-License-Identifier: MIT
#include "support/shared_memory.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/failure.hpp"

namespace remora {

Descriptor shared_file(const char* name, std::size_t bytes) {
    Descriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)))
        throw Failure(errno, "no {} bytes of shared memory: {}", bytes, std::strerror(errno));
    if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        throw Failure("can't seal shared memory: {}", std::strerror(errno));
    return file;
}

Mapping::Mapping(const Descriptor& file, std::size_t bytes, int protection, void* at)
    : bytes_(bytes) {
    void* got = mmap(at, bytes, protection, MAP_SHARED | (at ? MAP_FIXED : 0), file.get(), 0);
    if (got == MAP_FAILED)
        throw Failure(errno, "can't map {} bytes of shared memory: {}", bytes,
                      std::strerror(errno));
    madvise(got, bytes, MADV_DONTFORK);
    at_ = got;
}

bool keeps_its_size(const Descriptor& file, std::size_t bytes) {
    struct stat found {};
    int seals = fcntl(file.get(), F_GET_SEALS);
    return !fstat(file.get(), &found) && static_cast<std::size_t>(found.st_size) >= bytes &&
           seals >= 0 && (seals & F_SEAL_SHRINK);
}

} // namespace remora
