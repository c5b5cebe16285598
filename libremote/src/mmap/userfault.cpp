// SPDX-License-Identifier: MIT
#include "src/mmap/userfault.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/failure.hpp"

namespace remora::lib {

namespace {

std::uint64_t number(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address);
}

[[noreturn]] void fail_with(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

// A descriptor that also sees faults of system calls needs privilege, or the right to open the
// device. Any program gets one that sees its own faults only.
int open_any() {
    constexpr int flags = O_CLOEXEC | O_NONBLOCK;
    auto fd = static_cast<int>(syscall(SYS_userfaultfd, flags));
    if (fd >= 0 || errno == EMFILE || errno == ENFILE)
        return fd;
    Descriptor device(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
    if (device && (fd = ioctl(device.get(), USERFAULTFD_IOC_NEW, flags)) >= 0)
        return fd;
    return static_cast<int>(syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY));
}

Descriptor open_userfault() {
    Descriptor fd(open_any());
    if (!fd) {
        if (errno == EMFILE || errno == ENFILE)
            fail_with("userfaultfd");
        throw Failure(EOPNOTSUPP,
                      "the system gives no userfaultfd ({}): it takes Linux 5.11, and a sandbox "
                      "that lets it through",
                      std::strerror(errno));
    }
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    if (ioctl(fd.get(), UFFDIO_API, &api))
        throw Failure(EOPNOTSUPP,
                      "the system's userfaultfd can't write-protect ({}): it takes Linux 5.7 on "
                      "x86-64",
                      std::strerror(errno));
    return fd;
}

} // namespace

Userfault::Userfault(std::size_t bytes, bool writable)
    : bytes_(bytes),
      page_bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
      protection_(writable ? PROT_READ | PROT_WRITE : PROT_READ),
      fd_(open_userfault()),
      hole_(memfd_create("remote_mmap", MFD_CLOEXEC)) {
    if (!hole_)
        fail_with("memfd_create");
    // Not to be accessed before it is attached, nor filled where all memory is to be locked.
    void* memory =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fail_with("mmap");
    memory_ = static_cast<std::uint8_t*>(memory);
    try {
        attach();
    } catch (...) {
        munmap(memory_, bytes_);
        throw;
    }
}

Userfault::~Userfault() {
    if (memory_)
        munmap(memory_, bytes_);
}

void Userfault::attach() {
    munlock(memory_, bytes_);
    // Pages come and go one at a time. A kernel without huge pages rejects the advice.
    madvise(memory_, bytes_, MADV_NOHUGEPAGE);
    uffdio_register range{};
    range.range = {number(memory_), bytes_};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (protection_ & PROT_WRITE)
        range.mode |= UFFDIO_REGISTER_MODE_WP;
    if (madvise(memory_, bytes_, MADV_DONTFORK) || ioctl(fd_.get(), UFFDIO_REGISTER, &range) ||
        mprotect(memory_, bytes_, protection_))
        fail_with("userfaultfd");
}

unsigned Userfault::take(std::span<Fault> faults) {
    std::array<uffd_msg, 16> messages;
    ssize_t got = read(fd_.get(), messages.data(),
                       std::min(faults.size(), messages.size()) * sizeof(uffd_msg));
    unsigned count = 0;
    for (ssize_t left = got / static_cast<ssize_t>(sizeof(uffd_msg)); left > 0; left--, count++) {
        const auto& fault = messages[count].arg.pagefault;
        faults[count] = {(fault.address - number(memory_)) / page_bytes_,
                         (fault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0,
                         (fault.flags & UFFD_PAGEFAULT_FLAG_WP) != 0};
    }
    return count;
}

int Userfault::place(const Run& run, const std::uint8_t* data, bool writable) {
    uffdio_copy copy{};
    bool told = !writable && (protection_ & PROT_WRITE);
    for (std::size_t done = 0; done < bytes_of(run);) {
        copy.dst = number(at(run.page)) + done;
        copy.src = number(data) + done;
        copy.len = bytes_of(run) - done;
        copy.mode = told ? UFFDIO_COPY_MODE_WP : 0;
        if (!ioctl(fd_.get(), UFFDIO_COPY, &copy))
            return 0;
        // Stopped on the way: some of it might be there.
        if (errno != EAGAIN)
            return errno;
        done += copy.copy > 0 ? static_cast<std::size_t>(copy.copy) : 0;
    }
    return 0;
}

int Userfault::set_protection(const Run& run, bool is_protected) {
    uffdio_writeprotect request{};
    request.range = {number(at(run.page)), bytes_of(run)};
    request.mode = is_protected ? UFFDIO_WRITEPROTECT_MODE_WP : 0;
    int error;
    do {
        error = ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &request) ? errno : 0;
    } while (error == EAGAIN);
    // A program that locks a part of it makes two areas of one, which older kernels don't take
    // together.
    if (error != ENOENT || run.pages == 1)
        return error;
    error = 0;
    for (std::uint64_t page = run.page; !error && page < run.end(); page++)
        error = set_protection({page, 1}, is_protected);
    return error;
}

int Userfault::drop(const Run& run) {
    // The other one is for memory that is locked, since Linux 5.18.
    for (int advice : {MADV_DONTNEED, MADV_DONTNEED_LOCKED}) {
        if (!madvise(at(run.page), bytes_of(run), advice))
            return 0;
    }
    return errno;
}

int Userfault::fail(std::uint64_t page) {
    // Holes beside each other are one to the kernel, for their offsets go on, too.
    // Not by mmap(), which ThreadSanitizer takes for a write.
    if (syscall(SYS_mmap, at(page), page_bytes_, protection_, MAP_SHARED | MAP_FIXED, hole_.get(),
                page * page_bytes_) < 0)
        return errno;
    madvise(at(page), page_bytes_, MADV_DONTFORK);
    wake({page, 1});
    return 0;
}

void Userfault::wake(const Run& run) {
    uffdio_range range{number(at(run.page)), bytes_of(run)};
    ioctl(fd_.get(), UFFDIO_WAKE, &range);
}

// ThreadSanitizer doesn't know that the kernel keeps writers out. No compiler turns a volatile loop
// into a call of memcpy(), which the sanitizer would check after all.
__attribute__((no_sanitize("thread"))) void Userfault::copy_out(const Run& run,
                                                                std::uint8_t* to) const {
    using Word __attribute__((may_alias)) = std::uint64_t;
    const auto* from = reinterpret_cast<const volatile Word*>(at(run.page));
    auto* word = reinterpret_cast<volatile Word*>(to);
    for (std::size_t words = bytes_of(run) / sizeof(*word); words; words--)
        *word++ = *from++;
}

void Userfault::disown() {
    fd_ = Descriptor();
    hole_ = Descriptor();
    memory_ = nullptr;
}

} // namespace remora::lib
