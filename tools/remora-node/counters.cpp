// SPDX-License-Identifier: GPL-2.0
#include "remora-node/counters.hpp"

namespace remora::daemon {

namespace {

constexpr std::array<const char*, counts> names = [] {
    std::array<const char*, counts> name{};
#define WIRE_NAME(verdict, called) name[count_wire + RMEM_WIRE_##verdict] = called;
    RMEM_WIRE_ROWS(WIRE_NAME)
#undef WIRE_NAME
#define REASON_NAME(reason, status, called) name[count_reason + RMEM_NODE_##reason] = called;
    RMEM_NODE_REASON_ROWS(REASON_NAME)
#undef REASON_NAME
#define TYPE_NAME(type, called, ...) name[count_type + RMEM_##type - RMEM_OPEN] = called;
    RMEM_TYPES(TYPE_NAME)
#undef TYPE_NAME
    name[count_read_bytes] = "read-bytes";
    name[count_write_bytes] = "write-bytes";
    name[count_answers] = "answers";
    name[count_scrubbed] = "scrubbed-pages";
    name[count_drop_space] = "drop-space";
    name[count_drop_xmit] = "drop-xmit";
    name[count_drop_queue_full] = "drop-queue-full";
    name[count_ring_closed] = "rings-closed";
    for (const char* each : name) {
        if (!each)
            throw "a counter has no name"; // at compile time
    }
    return name;
}();

} // namespace

const char* count_name(unsigned which) {
    return names[which];
}

} // namespace remora::daemon
