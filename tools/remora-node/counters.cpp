// SPDX-License-Identifier: GPL-2.0
#include "remora-node/counters.hpp"

namespace remora::daemon {

namespace {

constexpr std::array<const char*, counts> names = [] {
    std::array<const char*, counts> name{};
    auto wire = [&](rmem_wire_verdict verdict) -> const char*& {
        return name[count_wire + verdict];
    };
    auto reason = [&](rmem_node_reason why) -> const char*& { return name[count_reason + why]; };
    wire(RMEM_WIRE_GOOD) = "verified";
    wire(RMEM_WIRE_SHORT) = "drop-short";
    wire(RMEM_WIRE_VERSION) = "drop-version";
    wire(RMEM_WIRE_TYPE) = "drop-type";
    wire(RMEM_WIRE_MALFORMED) = "drop-malformed";
    wire(RMEM_WIRE_TAG) = "drop-tag";
    wire(RMEM_WIRE_DAMAGED) = "damaged";
    reason(RMEM_NODE_OK) = "executed";
    reason(RMEM_NODE_REPEATED) = "repeated";
    reason(RMEM_NODE_NO_SESSION) = "no-session";
    reason(RMEM_NODE_PEER) = "peer";
    reason(RMEM_NODE_LEVEL) = "level";
    reason(RMEM_NODE_REBOOTED) = "rebooted";
    reason(RMEM_NODE_STALE) = "stale";
    reason(RMEM_NODE_WINDOW) = "window";
    reason(RMEM_NODE_LENGTH) = "length";
    reason(RMEM_NODE_FAULT) = "fault";
    reason(RMEM_NODE_PERM) = "perm";
    reason(RMEM_NODE_BUSY) = "busy";
    reason(RMEM_NODE_NO_MEMORY) = "no-memory";
    reason(RMEM_NODE_CHALLENGE) = "challenge";
    reason(RMEM_NODE_EXISTS) = "name-exists";
    reason(RMEM_NODE_NO_NAME) = "no-name";
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
