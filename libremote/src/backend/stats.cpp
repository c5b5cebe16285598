// SPDX-License-Identifier: MIT
#include "src/backend/stats.hpp"

namespace remora::lib {

remote_kind Tally::kind_of(Kind op) {
    switch (op) {
    case Kind::read:
    case Kind::readv:
        return REMOTE_KIND_READ;
    case Kind::write:
    case Kind::writev:
    case Kind::put:
    case Kind::copy:
        return REMOTE_KIND_WRITE;
    case Kind::integer:
        return REMOTE_KIND_INTEGER;
    default:
        return REMOTE_KIND_OTHER;
    }
}

void Tally::add_to(remote_counters& counters) const {
    for (std::size_t i = 0; i < kinds_.size(); i++) {
        counters.kind[i].done += kinds_[i].done;
        counters.kind[i].failed += kinds_[i].failed;
        counters.kind[i].bytes += kinds_[i].bytes;
    }
}

} // namespace remora::lib
