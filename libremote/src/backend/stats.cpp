// SPDX-License-Identifier: MIT
#include "src/backend/stats.hpp"

extern "C" {
#include "core/rmem/types.h"
}

namespace remora::lib {

remote_kind Tally::kind_of(std::uint8_t type) {
    if (rmem_type_reads(type))
        return REMOTE_KIND_READ;
    if (rmem_type_writes(type) || rmem_type_copies(type))
        return REMOTE_KIND_WRITE;
    return rmem_type_is_exactly_once(type) ? REMOTE_KIND_INTEGER : REMOTE_KIND_OTHER;
}

void Tally::add_to(remote_counters& counters) const {
    for (std::size_t i = 0; i < kinds_.size(); i++) {
        counters.kind[i].done += kinds_[i].done;
        counters.kind[i].failed += kinds_[i].failed;
        counters.kind[i].bytes += kinds_[i].bytes;
    }
}

} // namespace remora::lib
