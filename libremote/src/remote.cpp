// SPDX-License-Identifier: MIT
// The C functions: arguments are checked here, and nothing is thrown through them.
#include "remote/remote.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>
#include <system_error>

#include <unistd.h>

#include "src/handle.hpp"
#include "support/failure.hpp"

#define REMOTE_API extern "C" __attribute__((visibility("default")))

using remora::lib::Handle;

struct remote_handle {
    Handle handle;
};

namespace {

thread_local std::string why;

int fail(int error, const char* text) {
    try {
        why = text;
    } catch (const std::bad_alloc&) {
        why.clear();
    }
    return error;
}

// Of a size this library or an older one knows; or NULL.
remote_options options_of(const remote_options* given) {
    remote_options options{};
    options.size = sizeof(options);
    if (!given)
        return options;
    if (given->size < offsetof(remote_options, integrity))
        throw remora::Misuse("options.size is {}: set it to sizeof(struct remote_options)",
                             given->size);
    std::memcpy(&options, given, std::min(given->size, sizeof(options)));
    return options;
}

int check(const remote_t* r) {
    if (!r)
        return -EINVAL;
    return r->handle.is_foreign() ? -ECHILD : 0;
}

int check_range(const remote_t* r, raddr_t address, const void* buffer, std::size_t bytes) {
    if (int error = check(r))
        return error;
    if (!bytes || !buffer || address + bytes < address || remora::lib::is_mapped(buffer, bytes))
        return -EINVAL;
    return 0;
}

int allocate(remote_t* r, raddr_t wanted, uint64_t bytes, unsigned permission, raddr_t* address) {
    if (int error = check(r))
        return error;
    if (!address || !bytes || (permission != REMOTE_READ && permission != REMOTE_RW))
        return -EINVAL;
    try {
        return r->handle.alloc(bytes, permission, wanted, *address);
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

} // namespace

REMOTE_API int remote_open(remote_t** r, const char* target, const remote_options* options) {
    if (!r || !target)
        return fail(-EINVAL, "remote_open() wants a place for the handle, and a target");
    try {
        *r = new remote_handle{Handle(remora::lib::parse_target(target), options_of(options))};
        return 0;
    } catch (const remora::Misuse& misuse) {
        return fail(-EINVAL, misuse.what());
    } catch (const remora::Failure& failure) {
        return fail(-EHOSTUNREACH, failure.what());
    } catch (const std::bad_alloc&) {
        return fail(-ENOMEM, "no memory left here");
    } catch (const std::exception& other) {
        return fail(-EIO, other.what());
    }
}

REMOTE_API void remote_close(remote_t* r) {
    delete r;
}

REMOTE_API const char* remote_why(void) {
    return why.c_str();
}

REMOTE_API int ralloc(remote_t* r, uint64_t bytes, unsigned permission, raddr_t* address) {
    return allocate(r, 0, bytes, permission, address);
}

REMOTE_API int ralloc_at(remote_t* r, raddr_t wanted, uint64_t bytes, unsigned permission,
                         raddr_t* address) {
    return wanted ? allocate(r, wanted, bytes, permission, address) : -EINVAL;
}

REMOTE_API int rfree(remote_t* r, raddr_t address) {
    if (int error = check(r))
        return error;
    try {
        return r->handle.free(address);
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

REMOTE_API uint64_t remote_page_bytes(remote_t* r) {
    return r ? r->handle.backend().page_bytes() : 0;
}

REMOTE_API int rread(remote_t* r, raddr_t address, void* buffer, size_t bytes) {
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    return r->handle.backend().transfer(RMEM_READ, address, static_cast<uint8_t*>(buffer), bytes);
}

REMOTE_API int rwrite(remote_t* r, raddr_t address, const void* buffer, size_t bytes) {
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    auto* data = static_cast<uint8_t*>(const_cast<void*>(buffer));
    return r->handle.backend().transfer(RMEM_WRITE, address, data, bytes);
}

REMOTE_API int rread_async(remote_t* r, raddr_t address, void* buffer, size_t bytes, rop_t* op) {
    if (int error = op ? check_range(r, address, buffer, bytes) : -EINVAL)
        return error;
    return r->handle.start(RMEM_READ, address, buffer, bytes, *op);
}

REMOTE_API int rwrite_async(remote_t* r, raddr_t address, const void* buffer, size_t bytes,
                            rop_t* op) {
    if (int error = op ? check_range(r, address, buffer, bytes) : -EINVAL)
        return error;
    return r->handle.start(RMEM_WRITE, address, const_cast<void*>(buffer), bytes, *op);
}

REMOTE_API int rpoll(remote_t* r, rop_t* ops, size_t count, uint64_t timeout_us) {
    if (int error = check(r))
        return error;
    if (!ops && count)
        return -EINVAL;
    return r->handle.poll(ops, count, timeout_us);
}

REMOTE_API int rrelease(remote_t* r) {
    if (int error = check(r))
        return error;
    r->handle.backend().release();
    return 0;
}

// ---- memory as memory ----

namespace {

// As of remote_options, an older program's is shorter.
remora::lib::PagerLimits limits_of(const remote_mmap_options* given) {
    remote_mmap_options options{};
    if (given && given->size < offsetof(remote_mmap_options, prefetch_bytes))
        throw remora::Misuse("options.size is {}: set it to sizeof(struct remote_mmap_options)",
                             given->size);
    if (given)
        std::memcpy(&options, given, std::min(given->size, sizeof(options)));
    return {options.cache_bytes, options.prefetch_bytes};
}

bool is_whole_pages(uint64_t value) {
    return value % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) == 0;
}

} // namespace

REMOTE_API int remote_mmap(remote_t* r, raddr_t address, size_t bytes, unsigned permission,
                           const remote_mmap_options* options, void** memory) {
    if (int error = memory ? check(r) : -EINVAL)
        return error;
    if (!bytes || address + bytes < address || !is_whole_pages(address) || !is_whole_pages(bytes) ||
        (permission != REMOTE_READ && permission != REMOTE_RW))
        return fail(-EINVAL, "remote_mmap() wants whole pages, and REMOTE_READ or REMOTE_RW");
    try {
        int error = r->handle.mappings().map(r->handle.backend(), address, bytes,
                                             permission == REMOTE_RW, limits_of(options), *memory);
        return error ? fail(error, "the first or the last page of the range can't be read") : 0;
    } catch (const remora::Misuse& misuse) {
        return fail(-EINVAL, misuse.what());
    } catch (const remora::Failure& failure) {
        return fail(-EOPNOTSUPP, failure.what());
    } catch (const std::system_error& error) {
        return fail(-error.code().value(), error.what());
    } catch (const std::bad_alloc&) {
        return fail(-ENOMEM, "no memory left here");
    }
}

REMOTE_API int remote_msync(remote_t* r, void* memory, size_t bytes) {
    if (int error = check(r))
        return error;
    return r->handle.mappings().sync(memory, bytes);
}

REMOTE_API int remote_munmap(remote_t* r, void* memory) {
    if (int error = check(r))
        return error;
    return r->handle.mappings().unmap(memory);
}
