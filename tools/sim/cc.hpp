// SPDX-License-Identifier: GPL-2.0
// Congestion control of one TCP (sub)flow: NewReno, Cubic, DCTCP, and MPTCP's linked increases.
//
// The window is in bytes. Arithmetic is in integers, or in double additions, products and quotients
// that IEEE 754 defines to the last bit (built without contraction); no libm.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/params.hpp"
#include "sim/units.hpp"

namespace sim {

class Cc;

// The subflows of one MPTCP connection (RFC 6356).
struct CcGroup {
    std::vector<Cc*> members;
};

class Cc {
public:
    Cc(Transport kind, std::uint32_t mss_bytes, std::uint32_t initial_window, CcGroup* group);

    // New data was acknowledged outside recovery.
    void acked(Time now, std::uint64_t bytes, Time srtt);
    // Loss found by duplicate acknowledgements, or an ECN echo of a transport other than DCTCP.
    void lost(Time now, std::uint64_t in_flight);
    void timed_out(Time now, std::uint64_t in_flight);
    // DCTCP: every acknowledgement; window_end: one round trip of data has been acknowledged.
    void marked(std::uint64_t bytes, bool ce, bool window_end);

    std::uint64_t cwnd_bytes, ssthresh_bytes = ~std::uint64_t{0};
    Transport kind;
    Time srtt = 0; // of the last acked(); for the group

private:
    void reduce(Time now, std::uint64_t in_flight);
    void cubic_acked(Time now, std::uint64_t bytes);
    std::uint64_t linked_increase(std::uint64_t bytes) const;

    std::uint32_t mss_;
    CcGroup* group_;
    std::uint64_t fraction_ = 0; // of a byte of increase times cwnd
    // Cubic (RFC 8312).
    std::uint64_t w_max_ = 0, w_last_max_ = 0;
    Time epoch_ = 0;
    std::uint64_t k_us_ = 0, origin_ = 0, w_epoch_ = 0;
    // DCTCP (RFC 8257): alpha in 1 / 2^20.
    std::uint64_t alpha_ = 1 << 20, seen_bytes_ = 0, marked_bytes_ = 0;
    bool reduced_ = false;
};

// Largest x with x^3 <= value.
std::uint64_t cube_root(Wide value);

} // namespace sim
