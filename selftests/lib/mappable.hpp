// SPDX-License-Identifier: GPL-2.0
// Can the kernel beneath a test do what remote_mmap() takes?
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support/descriptor.hpp"

namespace remora::test {

// User Mode Linux's userfaultfd can't write-protect pages.
inline bool write_protects() {
    Descriptor fd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    return fd && ioctl(fd.get(), UFFDIO_API, &api) == 0;
}

} // namespace remora::test

#define SKIP_UNLESS_MAPPABLE()                                                                     \
    if (!write_protects())                                                                         \
    GTEST_SKIP() << "this kernel's userfaultfd can't write-protect"
