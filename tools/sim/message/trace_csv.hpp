// SPDX-License-Identifier: GPL-2.0
// Traces of messages, as the authors of EDM (ASPLOS'25) write them:
//
//   id,type,src,dst,bytes,read_bytes,slot
//
// type 1 reads: src asks dst for read_bytes by a request of 16 bytes. type 3 writes bytes from src
// to dst; its read_bytes is -1. type 100 is other traffic, which is skipped. A slot is 0.64 ns.
#pragma once

#include <string>
#include <vector>

#include "sim/message/message.hpp"

namespace sim {

inline constexpr Time trace_slot = 640;

// Sorted by time. Throws remora::Failure.
std::vector<TraceLine> read_trace_csv(const std::string& file, std::uint32_t hosts);

} // namespace sim
