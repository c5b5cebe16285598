// SPDX-License-Identifier: GPL-2.0
#include "sim/message/table1.hpp"

#include "sim/message/budget.hpp"
#include "sim/message/lone.hpp"
#include "sim/packet.hpp"

namespace sim {

namespace {

constexpr std::uint32_t data_bytes = 64, request_bytes = 8, ip_tcp_bytes = 40;
// Blocks behind the first: a read's request is taken in whole twice, data pass as they come.
constexpr Time edm_read_rest = 2 * (2 - 1) + 9 - 1, edm_write_rest = 10 - 1;

// A packet is stored once, in the switch.
Time packet_time(const Params& params, std::uint32_t bytes) {
    return static_cast<Time>(2 * 8000 * static_cast<double>(ethernet_bytes(bytes + ip_tcp_bytes)) /
                             params.host_gbps);
}

void add_packets(std::vector<Table1Row>& rows, const Params& params, const std::string& stack,
                 const std::string& transport) {
    const Budget& b = budget_of(stack);
    auto add = [&](const char* line, Time passages, Time time) {
        rows.push_back({stack, line, 2 * passages * time, passages * time});
    };
    add("protocol stack of hosts", 2, b.stack);
    add("layer 2 forwarding", 1, b.forward);
    add("MAC", 4, b.mac);
    add("PCS", 4, b.pcs);
    add("PMA, PMD, transceiver", 4, b.pma);
    add("propagation", 2, b.wire);
    rows.push_back({stack, "total", 2 * b.one_way(), b.one_way()});
    Params lone = params;
    lone.message.stack = stack;
    Lone alone(lone, transport);
    const Time request = packet_time(params, request_bytes), data = packet_time(params, data_bytes);
    rows.push_back({stack, "simulated", alone.of(true, data_bytes) - request - data,
                    alone.of(false, data_bytes) - data});
}

void add_edm(std::vector<Table1Row>& rows, const Params& params) {
    const Budget& b = budget_edm;
    auto add = [&](const char* line, Time read, Time write) {
        rows.push_back({"edm", line, read, write});
    };
    add("compute node: cycles", 5 * edm_cycle, 11 * edm_cycle);
    add("compute node: PCS", 2 * b.pcs, 3 * b.pcs);
    add("switch: cycles", 11 * edm_cycle, 11 * edm_cycle);
    add("switch: PCS", 4 * b.pcs, 4 * b.pcs);
    add("memory node: cycles", 10 * edm_cycle, 3 * edm_cycle);
    add("memory node: PCS", 2 * b.pcs, b.pcs);
    add("PMA, PMD, transceiver", 8 * b.pma, 8 * b.pma);
    add("propagation", 4 * b.wire, 4 * b.wire);
    add("total", 4 * b.link() + 26 * edm_cycle, 4 * b.link() + 25 * edm_cycle);
    const auto block = static_cast<Time>(64e3 / params.host_gbps);
    Lone alone(params, "edm");
    add("simulated", alone.of(true, data_bytes) - edm_read_rest * block,
        alone.of(false, data_bytes) - edm_write_rest * block);
}

} // namespace

std::vector<Table1Row> table1(const Params& params) {
    std::vector<Table1Row> rows;
    add_packets(rows, params, "tcp", "floor");
    add_packets(rows, params, "roce", "floor");
    add_packets(rows, params, "raw", "floor");
    add_edm(rows, params);
    return rows;
}

} // namespace sim
