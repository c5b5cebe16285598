// SPDX-License-Identifier: GPL-2.0
// Table 1 of EDM (ASPLOS'25): the latency of a lone read and write of 64 B over four stacks, line
// by line, and the same from the simulator. Serialisation is not part of the table: it is
// subtracted.
#pragma once

#include <string>
#include <vector>

#include "sim/params.hpp"

namespace sim {

struct Table1Row {
    std::string stack, line;
    Time read, write;
};

// The last rows of a stack are "total", the sum, and "simulated", of a lone message.
std::vector<Table1Row> table1(const Params& params);

} // namespace sim
