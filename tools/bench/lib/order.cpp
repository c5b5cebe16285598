// SPDX-License-Identifier: GPL-2.0
// How many operations wait for others that don't concern them, were order told by pages: Clio's way
// (ASPLOS'22, section 4.5), beside the library's, which compares bytes.
//
// So many are under way; the oldest ends whenever another comes, at a place by chance, and every
// second is a change. Order itself says who waits; what a granule makes of an operation is all
// bytes of the granules it meets.
#include "measure.hpp"

#include <deque>

#include "src/backend/order.hpp"

namespace remora::bench {

namespace {

constexpr std::uint64_t base = 1 << 30; // where the region is
constexpr std::uint32_t rounds = 1'000'000;

struct Waits {
    double share; // of all operations
    double ns;    // time of entering and leaving
};

void begin(lib::Op& op, Random& random, const OrderLoad& load, std::uint64_t granule) {
    std::uint64_t at =
        base + std::uint64_t{random.below(load.region_bytes / load.bytes)} * load.bytes;
    op.kind = random.below(2) ? remora::lib::Kind::read : remora::lib::Kind::write;
    op.from = at / granule * granule;
    op.end = (at + load.bytes + granule - 1) / granule * granule;
}

Waits waits(const OrderLoad& load, std::uint64_t granule) {
    lib::Order order;
    Random random;
    std::vector<lib::Op> ops(load.depth);
    std::uint64_t waiting = 0;
    auto from = Clock::now();
    for (std::uint32_t i = 0; i < rounds; i++) {
        lib::Op& op = ops[i % load.depth];
        if (i >= load.depth)
            order.leave(op);
        begin(op, random, load, granule);
        waiting += !order.enter(op);
    }
    double ns = static_cast<double>((Clock::now() - from).count());
    for (lib::Op& op : ops)
        order.leave(op);
    return {static_cast<double>(waiting) / rounds, ns / rounds};
}

} // namespace

Figures order(const OrderLoad& load) {
    Waits bytes = waits(load, 1);
    return {{"by-bytes", 100 * bytes.share},
            {"by-4k", 100 * waits(load, 4 << 10).share},
            {"by-64k", 100 * waits(load, 64 << 10).share},
            {"ns", bytes.ns}};
}

} // namespace remora::bench
