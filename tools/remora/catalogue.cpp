// SPDX-License-Identifier: GPL-2.0
#include "remora/catalogue.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "common/version.hpp"
#include "uapi/remora_eqds.h"

namespace remora {

namespace {

using netlink::Attributes;
using enum MetricType;

constexpr CounterRow of_devices[] = {
    {"read", "Reads that programs or the block layer asked for."},
    {"read-bytes", "Bytes of those reads."},
    {"write", "Writes that programs or the block layer asked for."},
    {"write-bytes", "Bytes of those writes."},
    {"discard", "Discards, which give pages back to the node."},
    {"discard-bytes", "Bytes of those discards."},
    {"zero", "Requests to clear a range."},
    {"zero-bytes", "Bytes of those ranges."},
    {"atomic", "Atomic changes of an integer."},
    {"fence", "Fences of programs."},
    {"put", "Puts: data, and an integer that tells of it."},
    {"put-bytes", "Bytes of the data of puts."},
    {"copy", "Copies inside the node."},
    {"copy-bytes", "Bytes of those copies."},
    {"publish", "Names given to regions, or taken from them."},
    {"lookup", "Look-ups of a region by its name."},
    {"list", "Steps through the list of regions."},
    {"query", "Calls of an offload that change nothing."},
    {"query-bytes", "Bytes of the answers of those calls."},
    {"call", "Calls of an offload that can change memory."},
    {"call-bytes", "Bytes of the data of those calls."},
    {"failed", "Operations that ended with an error."},
    {"copied-packets", "Packets of writes whose pages could not be lent to the network."},
    {"spare-packets", "Packets that had to be in one piece and took the buffer kept for that."},
    {"kicked", "Times the incast window opened for a channel that waited."},
    {"timer-late", "Deadlines that had passed before the timer ran and were past after it; 0 on a "
                   "sound machine."},
    {"reserve-given", "Blocks of the memory reserve that the module gave to the kernel."},
    {"no-buffer", "Packets put off for want of memory."},
    {"no-route", "Packets put off because no route leads to the node."},
    {"unscheduled", "Packets of EDM that left without a grant."},
    {"waiting", "Packets not sent again because the first copy had not left yet."},
    {"drop-short", "Packets dropped: no whole header, or fewer messages than it says."},
    {"drop-version", "Packets dropped: another protocol, or another version of it."},
    {"drop-type", "Packets dropped: an unknown type of message."},
    {"drop-malformed", "Packets dropped: a field or a length that can't be."},
    {"drop-tag", "Packets dropped: the tag doesn't verify by the space's key."},
    {"drop-seal", "Packets dropped: encrypted, and they don't open by the session's key."},
    {"drop-stranger", "Packets dropped: not from the node."},
    {"drop-no-checksum", "Packets dropped: nothing protected the payload at level link."},
    {"drop-stopped", "Packets dropped because the device was being detached."},
    {"sent", "Messages sent, repeated ones included."},
    {"received", "Answers received."},
    {"retries", "Messages sent again."},
    {"timeouts", "Messages whose answer didn't come in time."},
    {"lost", "Messages found lost because later ones were answered."},
    {"damaged", "Answers whose payload doesn't match its digest."},
    {"busy", "Answers by which the node asks to come again later."},
    {"reopened", "Sessions opened anew."},
    {"ignored", "Answers that came twice or too late."},
    {"bad", "Answers that verified and don't fit the request; a sign of different versions."},
};

constexpr CounterRow of_nodes[] = {
    {"verified", "Datagrams that verified by their space's key."},
    {"drop-short", "Datagrams dropped: no whole header, or fewer messages than it says."},
    {"drop-version", "Datagrams dropped: another protocol, or another version of it."},
    {"drop-type", "Datagrams dropped: an unknown type of message."},
    {"drop-malformed", "Datagrams dropped: a field or a length that can't be."},
    {"drop-tag", "Datagrams dropped: the tag doesn't verify by the space's key."},
    {"drop-seal", "Datagrams dropped: encrypted, and they don't open by the session's key."},
    {"damaged", "Requests whose payload doesn't match its digest."},
    {"answers", "Datagrams with answers that the network took."},
    {"drop-no-checksum", "Datagrams dropped: nothing protected the payload at level link."},
    {"drop-not-unicast", "Datagrams dropped: sent to a broadcast or multicast address."},
    {"drop-reserve", "Datagrams dropped: they came in memory that is kept for swap."},
    {"drop-no-buffer", "Answers dropped for want of memory."},
    {"drop-no-route", "Answers dropped because no route leads to the client."},
    {"drop-xmit", "Answers that the network refused."},
    {"executed", "Requests executed."},
    {"repeated", "Requests that were executed before, and only answered again."},
    {"no-session", "Requests refused: their session is unknown, evicted or closed."},
    {"peer", "Requests refused: their session belongs to another address."},
    {"level", "Requests refused: not of the session's integrity level or space."},
    {"rebooted", "Requests refused: they name an earlier start of the node."},
    {"stale", "Requests refused: their sender has gone on since."},
    {"window", "Requests refused: too far ahead of the oldest outstanding one."},
    {"length", "Requests refused: a length or a field that can't be."},
    {"fault", "Requests refused: the memory isn't allocated."},
    {"perm", "Requests refused: the memory, or the space, is read-only."},
    {"busy", "Requests to come again later: no zeroed page, no session, or no room."},
    {"no-memory", "Allocations and names refused: memory, quota or names are used up."},
    {"challenge", "Requests for a session that were challenged first."},
    {"name-exists", "Names refused because the space has them already."},
    {"no-name", "Look-ups of a name that the space doesn't have."},
    {"running", "Copies of a call that still runs."},
    {"no-offload", "Calls of an offload that isn't loaded for the caller."},
    {"failed", "Calls of offloads that ended with an error."},
    {"over-budget", "Calls of offloads that were stopped, as they had used up their budget."},
    {"open", "Requests for a session."},
    {"close", "Requests to end a session."},
    {"alloc", "Allocations of regions."},
    {"free", "Requests to free a region."},
    {"read", "Reads of one range."},
    {"write", "Writes of one range."},
    {"discard", "Discards."},
    {"zero", "Requests to clear a range."},
    {"atomic", "Atomic changes of an integer."},
    {"fence", "Fences."},
    {"put", "Puts."},
    {"readv", "Reads of several ranges."},
    {"writev", "Writes of several ranges."},
    {"copy", "Copies inside the node."},
    {"publish", "Names given to regions, or taken from them."},
    {"lookup", "Look-ups of a region by its name."},
    {"list", "Steps through the list of regions."},
    {"query", "Calls of an offload that change nothing."},
    {"call", "Calls of an offload that can change memory."},
    {"read-bytes", "Bytes of the answers to reads."},
    {"write-bytes", "Bytes that writes brought."},
    {"scrubbed-pages", "Pages zeroed before another use."},
    {"held-pages", "Pages whose zeroing was put off while packets referred to them."},
    {"drop-space", "Datagrams dropped: they name an unknown space."},
    {"drop-hibernating", "Datagrams dropped while the machine hibernates."},
    {"drop-queue-full", "Slow requests dropped because too many waited."},
    {"rings-closed", "Rings of shared memory closed because their client broke a rule."},
    {"alloc-retries", "Address ranges not taken, as the page table would have overflowed."},
    {"alloc-retries-worst", "Most of those in one allocation."},
    {"allocs-undone", "Allocations undone because their session had ended before the answer."},
};

constexpr CounterRow of_edm[] = {
    {"sched-drop-short", "Scheduler: datagrams dropped, no whole header."},
    {"sched-drop-version", "Scheduler: datagrams dropped, another protocol or version."},
    {"sched-drop-range", "Scheduler: datagrams dropped, a field that can't be."},
    {"sched-drop-tag", "Scheduler: datagrams dropped, the tag doesn't verify by the key."},
    {"sched-no-buffer", "Scheduler: datagrams not sent for want of memory."},
    {"sched-timer-late", "Scheduler: times its timer ran late."},
    {"sched-grants", "Scheduler: grants given."},
    {"sched-retracted", "Scheduler: grants taken back."},
    {"sched-refused", "Scheduler: demands refused."},
    {"sched-stale", "Scheduler: demands of an earlier membership."},
    {"sched-expired", "Scheduler: memberships that ended because the host was silent."},
    {"sched-joins", "Scheduler: hosts that joined."},
    {"host-drop-short", "Host: datagrams dropped, no whole header."},
    {"host-drop-version", "Host: datagrams dropped, another protocol or version."},
    {"host-drop-range", "Host: datagrams dropped, a field that can't be."},
    {"host-drop-tag", "Host: datagrams dropped, the tag doesn't verify by the key."},
    {"host-no-buffer", "Host: datagrams not sent for want of memory."},
    {"host-timer-late", "Host: times its timer ran late."},
    {"host-unscheduled", "Host: messages sent without a grant."},
    {"host-refused", "Host: demands that the scheduler refused."},
    {"host-gaps", "Host: gaps in the scheduler's datagrams."},
    {"host-silences", "Host: times the scheduler was silent for too long."},
    {"host-duplicates", "Host: datagrams of the scheduler that came twice."},
};

double seconds(std::uint64_t ns) {
    return static_cast<double>(ns) / 1e9;
}

template <std::uint16_t type>
double number(const Attributes& attributes) {
    return static_cast<double>(attributes.number(type));
}

template <std::uint16_t type>
double device_number(const Device& device) {
    return number<type>(device.attributes);
}

template <auto member>
constexpr auto field = [](const auto& of) { return static_cast<double>(of.*member); };

constexpr MetricRow<Device> about_devices[] = {
    {"up", gauge, "1 if the node answers, 0 if it doesn't or its content is lost.",
     [](const Device& device) {
         return device.number(RMEM_A_STATE) == RMEM_DEVICE_UP ? 1.0 : 0.0;
     }},
    {"content_lost", gauge, "1 if the node restarted, so that the device's content is lost.",
     [](const Device& device) {
         return device.number(RMEM_A_STATE) == RMEM_DEVICE_LOST ? 1.0 : 0.0;
     }},
    {"size_bytes", gauge, "Size of a disk; 0 for a device of programs.",
     device_number<RMEM_A_BYTES>},
    {"openers", gauge, "Programs and file systems that have the device open; swap is one.",
     device_number<RMEM_A_OPENERS>},
    {"space", gauge, "Id of the address space.", device_number<RMEM_A_SPACE>},
    {"piece_bytes", gauge, "Payload of a packet.", device_number<RMEM_A_PIECE>},
    {"round_trip_seconds", gauge, "Smoothed round trip to the node.",
     [](const Device& device) { return seconds(device.number(RMEM_A_RTT_NS)); }},
    {"window_packets", gauge, "Sum of the congestion windows of the device's channels.",
     [](const Device& device) { return device_number<RMEM_A_CWND>(device) / 1024; }},
};

constexpr MetricRow<NodeReport> about_nodes[] = {
    {"boot", gauge, "A random number, another one after each start: a change is a loss of memory.",
     [](const NodeReport& node) { return static_cast<double>(node.boot >> 11); }},
    {"memory_bytes", gauge, "Memory that the node lends.", field<&NodeReport::memory_bytes>},
    {"promised_bytes", gauge, "Memory in regions.", field<&NodeReport::promised_bytes>},
    {"backed_bytes", gauge, "Memory in regions that was written to.",
     field<&NodeReport::backed_bytes>},
    {"ready_bytes", gauge, "Memory zeroed and ready for a first touch.",
     field<&NodeReport::ready_bytes>},
    {"page_bytes", gauge, "Size of a page, the unit of allocation.",
     field<&NodeReport::page_bytes>},
    {"spaces", gauge, "Address spaces.", field<&NodeReport::spaces>},
    {"spaces_max", gauge, "Limit of address spaces.", field<&NodeReport::spaces_max>},
    {"sessions", gauge, "Sessions of clients.", field<&NodeReport::sessions>},
    {"sessions_max", gauge, "Limit of sessions.", field<&NodeReport::sessions_max>},
    {"regions", gauge, "Regions.", field<&NodeReport::regions>},
    {"regions_max", gauge, "Limit of regions.", field<&NodeReport::regions_max>},
};

constexpr MetricRow<SpaceReport> about_spaces[] = {
    {"promised_bytes", gauge, "Memory in the space's regions.",
     field<&SpaceReport::promised_bytes>},
    {"quota_bytes", gauge, "Quota of the space; 0 without one.", field<&SpaceReport::quota_bytes>},
    {"regions", gauge, "Regions of the space.", field<&SpaceReport::regions>},
    {"operations", counter, "Requests of the space's clients that were executed, without calls.",
     field<&SpaceReport::operations>},
    {"read_bytes", counter, "Bytes that the space's clients read.",
     field<&SpaceReport::read_bytes>},
    {"written_bytes", counter, "Bytes that the space's clients wrote.",
     field<&SpaceReport::written_bytes>},
    {"calls_seconds", counter, "The node's time for offload calls of the space's clients.",
     [](const SpaceReport& space) { return seconds(space.calls_ns); }},
};

constexpr MetricRow<OffloadReport> about_offloads[] = {
    {"running", gauge, "Calls that run.", field<&OffloadReport::running>},
    {"calls", counter, "Calls that have ended.", field<&OffloadReport::ended>},
    {"failed", counter, "Calls that ended with an error.", field<&OffloadReport::failed>},
    {"over_budget", counter, "Calls that were stopped, as they had used up their budget.",
     field<&OffloadReport::over_budget>},
    {"seconds", counter, "The node's time for the calls.",
     [](const OffloadReport& offload) { return seconds(offload.used_ns); }},
};

constexpr MetricRow<Attributes> about_eqds[] = {
    {"tunnels_to", gauge, "Tunnels by which packets leave.", number<EQDS_A_TX_TUNNELS>},
    {"tunnels_from", gauge, "Tunnels by which packets arrive.", number<EQDS_A_RX_TUNNELS>},
    {"active_tunnels", gauge, "Tunnels whose senders wait for credit.", number<EQDS_A_ACTIVE>},
    {"held_bytes", gauge, "Memory of packets that wait or are in flight.", number<EQDS_A_HELD>},
    {"held_max_bytes", gauge, "Memory after which packets that would wait are dropped.",
     number<EQDS_A_HELD_MAX>},
    {"sent_packets", counter, "Packets sent, repeated ones included.", number<EQDS_A_TX_PACKETS>},
    {"repeated_packets", counter, "Packets sent again.", number<EQDS_A_TX_AGAIN>},
    {"received_packets", counter, "Packets received.", number<EQDS_A_RX_PACKETS>},
    {"refused_packets", counter, "Packets dropped for their tag, or for want of one.",
     number<EQDS_A_REFUSED>},
};

// ---- the page ----

std::string roff(std::string_view text) {
    std::string out;
    for (const char c : text)
        out += c == '-' ? "\\-" : std::string(1, c);
    return out;
}

std::string item(const std::string& name, const char* help) {
    return fmt::format(".TP\n.B {}\n{}\n", roff(name), roff(help));
}

std::string counters_text(const char* title, const char* prefix, std::span<const CounterRow> rows) {
    std::string text =
        fmt::format(".SH {}\nMetric: \\fB{}\\fINAME\\fB_total\\fR.\n", title, prefix);
    for (const CounterRow& row : rows)
        text += item(row.name, row.help);
    return text;
}

template <typename Row>
std::string metrics_text(const char* prefix, std::span<const Row> rows) {
    std::string text;
    for (const Row& row : rows)
        text += item(fmt::format("{}{}{}", prefix, row.name, row.type == counter ? "_total" : ""),
                     row.help);
    return text;
}

} // namespace

std::span<const CounterRow> device_counters() {
    return of_devices;
}

std::span<const CounterRow> node_counters() {
    return of_nodes;
}

std::span<const CounterRow> edm_counters() {
    return of_edm;
}

std::span<const MetricRow<Device>> device_metrics() {
    return about_devices;
}

std::span<const MetricRow<NodeReport>> node_metrics() {
    return about_nodes;
}

std::span<const MetricRow<SpaceReport>> space_metrics() {
    return about_spaces;
}

std::span<const MetricRow<OffloadReport>> offload_metrics() {
    return about_offloads;
}

std::span<const MetricRow<Attributes>> eqds_metrics() {
    return about_eqds;
}

std::string metric_part(std::string_view counter) {
    std::string part(counter);
    std::ranges::replace(part, '-', '_');
    return part;
}

std::string counter_help(std::span<const CounterRow> rows, const std::string& name) {
    const auto row =
        std::ranges::find_if(rows, [&](const CounterRow& each) { return each.name == name; });
    if (row != rows.end())
        return row->help;
    return fmt::format("Counter '{}', which remora {} doesn't describe.", name, version);
}

std::string catalogue_page() {
    return fmt::format(
               ".\\\" SPDX-License-Identifier: GPL-2.0\n"
               ".TH REMORA\\-COUNTERS 7 \"\" \"Remora {}\" \"Miscellaneous\"\n"
               ".SH NAME\n"
               "remora\\-counters \\- counters and metrics of Remora\n"
               ".SH DESCRIPTION\n"
               "The counters that \\fBremora stats\\fR and \\fBremora node status\\fR print, and "
               "the metrics of \\fBremora export\\fR. A counter's metric has its name with each "
               "\\- as _, between a prefix and \\fB_total\\fR: the device's counter "
               "\\fBread\\-bytes\\fR is \\fBremora_device_read_bytes_total\\fR. Counters of "
               "devices "
               "begin at the attach, those of the kernel's node when the module is loaded, those "
               "of a daemon at its start.\n",
               version) +
           counters_text("COUNTERS OF DEVICES", "remora_device_", device_counters()) +
           counters_text("COUNTERS OF NODES", "remora_node_", node_counters()) +
           "alloc\\-retries\\-worst is a maximum, so its metric is a gauge without _total.\n" +
           counters_text("COUNTERS OF EDM", "remora_edm_", edm_counters()) +
           ".SH OTHER METRICS\n"
           "Metrics of devices have the labels \\fBdevice\\fR and \\fBnode\\fR, its address. Those "
           "of nodes have \\fBservice\\fR: kernel, or a daemon's socket; those of spaces and "
           "offloads \\fBspace\\fR and \\fBoffload\\fR, too. Clients choose no label.\n" +
           item("remora_build_info", build_info_help) +
           item("remora_device_latency_seconds", latency_help) +
           metrics_text("remora_device_", device_metrics()) + item("remora_node_up", node_up_help) +
           metrics_text("remora_node_", node_metrics()) +
           metrics_text("remora_space_", space_metrics()) +
           metrics_text("remora_offload_", offload_metrics()) +
           metrics_text("remora_eqds_", eqds_metrics()) +
           ".SH SEE ALSO\n.BR remora (8),\n.BR remora\\-node (8)\n";
}

} // namespace remora
