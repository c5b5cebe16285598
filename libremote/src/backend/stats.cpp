// SPDX-License-Identifier: MIT
#include "src/backend/stats.hpp"

namespace remora::lib {

remote_kind Tally::kind_of(Kind op) {
#define REMORA_KIND_COUNTED(kind, traits, counted, ...) counted,
    static constexpr remote_kind counted_as[] = {REMORA_KINDS(REMORA_KIND_COUNTED)};
#undef REMORA_KIND_COUNTED
    return counted_as[static_cast<std::size_t>(op)];
}

void Tally::add_to(remote_counters& counters) const {
    for (std::size_t i = 0; i < kinds_.size(); i++) {
        counters.kind[i].done += kinds_[i].done;
        counters.kind[i].failed += kinds_[i].failed;
        counters.kind[i].bytes += kinds_[i].bytes;
    }
}

} // namespace remora::lib
