// SPDX-License-Identifier: GPL-2.0
// Times of passages through hosts, links and switches (EDM, ASPLOS'25, table 1). Serialisation and
// memory are not in them.
//
//   host stack | MAC, PCS | PMA+PMD | wire | PMA+PMD | PCS, MAC | forwarding | MAC, PCS | ... |
//   host stack
#pragma once

#include <string>

#include "sim/units.hpp"

namespace sim {

struct Budget {
    Time stack; // protocol stack of a host, either way
    Time mac;   // one passage of it, either way
    Time pcs;
    Time pma;     // PMA, PMD and transceiver
    Time wire;    // propagation on one link
    Time forward; // layer 2 forwarding of a switch

    // From one end of a link to the other, without stacks.
    constexpr Time link() const { return 2 * (mac + pcs + pma) + wire; }
    constexpr Time one_way() const { return 2 * stack + 2 * link() + forward; }
    // A further switch on a packet's way.
    constexpr Time hop() const { return link() + forward; }
};

// A clock cycle of EDM's hosts and switch.
inline constexpr Time edm_cycle = 2560;

inline constexpr Budget budget_edm{0, 0, 5120, 19'000, 10'000, 0};
inline constexpr Budget budget_raw{0, 7680, 7680, 19'000, 10'000, 400'000};
inline constexpr Budget budget_roce{230'200, 7680, 7680, 19'000, 10'000, 400'000};
inline constexpr Budget budget_tcp{666'200, 7680, 7680, 19'000, 10'000, 400'000};
// Not in the table: a CXL port's transaction and link layer and its PHY, 12.5 ns a passage, and 20
// ns of arbitration in the switch, as Pond (ASPLOS'23) counts them, and the same wire.
inline constexpr Budget budget_cxl{0, 6'250, 6'250, 0, 10'000, 20'000};

static_assert(2 * budget_raw.one_way() == 1'114'880 && budget_raw.one_way() == 557'440);
static_assert(2 * budget_roce.one_way() == 2'035'680 && budget_roce.one_way() == 1'017'840);
static_assert(2 * budget_tcp.one_way() == 3'779'680 && budget_tcp.one_way() == 1'889'840);
static_assert(budget_edm.link() == 58'240);
static_assert(4 * budget_edm.link() + 26 * edm_cycle == 299'520); // read
static_assert(4 * budget_edm.link() + 25 * edm_cycle == 296'960); // write

// edm, raw, roce, tcp or cxl. Throws remora::Misuse.
const Budget& budget_of(const std::string& name);

} // namespace sim
