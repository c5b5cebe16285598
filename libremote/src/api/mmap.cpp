// SPDX-License-Identifier: MIT
// Memory as memory.
#include "remote/remote.h"

#include <cstddef>

#include <unistd.h>

#include "src/api/checked.hpp"

using remora::lib::check;
using remora::lib::fail;
using remora::lib::guarded;
using remora::lib::handle_of;
using remora::lib::opening;

namespace {

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
    return opening([&] {
        const remote_mmap_options chosen = remora::lib::options_of(options, "remote_mmap_options");
        int error = handle_of(r)->mappings().map(
            remora::lib::backend_of(handle_of(r)->epoch()), address, bytes, permission == REMOTE_RW,
            {chosen.cache_bytes, chosen.prefetch_bytes}, *memory);
        return error ? fail(error, "the first or the last page of the range can't be read") : 0;
    });
}

REMOTE_API int remote_msync(remote_t* r, void* memory, size_t bytes) {
    if (int error = check(r))
        return error;
    return guarded([&] { return handle_of(r)->mappings().sync(memory, bytes); });
}

REMOTE_API int remote_munmap(remote_t* r, void* memory) {
    if (int error = check(r))
        return error;
    return guarded([&] { return handle_of(r)->mappings().unmap(memory); });
}
