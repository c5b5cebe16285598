// SPDX-License-Identifier: MIT
// Ops in the memory protocol's terms (remora/rmem.h), for transports.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "src/op.hpp"

extern "C" {
#include "core/base/bytes.h"
#include "core/rmem/client/client.h"
}

namespace remora::lib {

static_assert(op_bytes_max == RMEM_OP_BYTES_MAX && copy_op_bytes_max == RMEM_COPY_BYTES_MAX);
static_assert(node_page_bytes_min == 1U << RMEM_PAGE_SHIFT_MIN);
static_assert(REMOTE_ARGS_BYTES_MAX == RMEM_ARGS_BYTES_MAX);
static_assert(ranges_max == RMEM_RANGES_MAX && REMOTE_NAME_BYTES_MAX == RMEM_NAME_BYTES);
static_assert(int{Change::cas} == RMEM_CAS && int{REMOTE_SWAP} == RMEM_SWAP &&
              int{REMOTE_SMAX} == RMEM_SMAX);

inline std::uint8_t type_of(Kind kind) {
#define REMORA_KIND_WIRE(kind, traits, counted, wire, ...) wire,
    static constexpr std::uint8_t types[] = {REMORA_KINDS(REMORA_KIND_WIRE)};
#undef REMORA_KIND_WIRE
    return types[static_cast<std::size_t>(kind)];
}

// The client's core has this of an op, in the op's room.
struct Out {
    rmem_op core; // first, since the core knows only this
    rmem_named named;
    rmem_listed listed;
    Op* op;
    std::uint8_t claimed; // an alloc's: the first byte of its region
};

static_assert(offsetof(Out, core) == 0);

inline Out& out_of(rmem_op* core) {
    return *reinterpret_cast<Out*>(core);
}

inline Op& op_of(rmem_op* core) {
    return *out_of(core).op;
}

// A region (address 0: none) and its name.
inline rmem_named named_of(const RegionName& name, std::uint64_t address) {
    rmem_named named;
    base_store_le64(&named.addr, address);
    std::copy_n(name.text, sizeof(named.name), named.name);
    return named;
}

// The region that a LIST has found.
inline remote_region region_of(const rmem_listed& listed) {
    remote_region region{};
    region.address = base_load_le64(&listed.addr);
    region.bytes = base_load_le64(&listed.bytes);
    region.permission = base_load_le32(&listed.perm);
    region.names = base_load_le32(&listed.names);
    std::copy_n(listed.name, sizeof(listed.name), region.name);
    return region;
}

// -errno of a refusal.
inline int status_error(std::uint8_t status) {
    switch (status) {
    case RMEM_OK:
        return 0;
    case RMEM_FAULT:
        return -EFAULT;
    case RMEM_PERM:
        return -EACCES;
    case RMEM_INVALID:
        return -EINVAL;
    case RMEM_NO_MEMORY:
        return -ENOSPC;
    case RMEM_REBOOTED:
        return -ESTALE;
    case RMEM_EXISTS:
        return -EEXIST;
    case RMEM_NO_NAME:
        return -ENOENT;
    case RMEM_NO_OFFLOAD:
        return -ENOSYS;
    case RMEM_FAILED:
        return -EREMOTEIO;
    case RMEM_OVER_BUDGET:
        return -ETIME;
    default:
        return -EIO;
    }
}

} // namespace remora::lib
