// SPDX-License-Identifier: GPL-2.0
#include "sim/cc.hpp"

#include <algorithm>

namespace sim {

std::uint64_t cube_root(Wide value) {
    std::uint64_t root = 0;
    for (int bit = 41; bit >= 0; bit--) {
        std::uint64_t next = root | std::uint64_t{1} << bit;
        if (Wide(next) * next * next <= value)
            root = next;
    }
    return root;
}

Cc::Cc(Transport kind_, std::uint32_t mss_bytes, std::uint32_t initial_window, CcGroup* group)
    : cwnd_bytes(std::uint64_t{mss_bytes} * initial_window),
      kind(kind_),
      mss_(mss_bytes),
      group_(group) {
    if (group)
        group->members.push_back(this);
}

void Cc::acked(Time now, std::uint64_t bytes, Time rtt) {
    srtt = rtt;
    if (cwnd_bytes < ssthresh_bytes) {
        cwnd_bytes += std::min<std::uint64_t>(bytes, 2 * mss_); // RFC 3465, L = 2
        return;
    }
    if (kind == Transport::cubic) {
        cubic_acked(now, bytes);
        return;
    }
    if (kind == Transport::mptcp) {
        cwnd_bytes += linked_increase(bytes);
        return;
    }
    // One MSS per window of acknowledged bytes.
    fraction_ += bytes * mss_;
    cwnd_bytes += fraction_ / cwnd_bytes;
    fraction_ %= cwnd_bytes;
}

// RFC 6356, section 3: min(alpha / total, 1 / own) * bytes * mss, where
// alpha = total * max(w / rtt^2) / (sum(w / rtt))^2.
std::uint64_t Cc::linked_increase(std::uint64_t bytes) const {
    double total = 0, best = 0, sum = 0;
    for (const Cc* one : group_->members) {
        double w = static_cast<double>(one->cwnd_bytes);
        double rtt = static_cast<double>(one->srtt ? one->srtt : srtt);
        total += w;
        best = std::max(best, w / rtt / rtt);
        sum += w / rtt;
    }
    double own = 1 / static_cast<double>(cwnd_bytes);
    double linked = best / (sum * sum);
    return static_cast<std::uint64_t>(std::min(own, linked) * static_cast<double>(bytes) * mss_);
}

void Cc::cubic_acked(Time now, std::uint64_t bytes) {
    // C = 0.4 segments / s^3, beta = 0.7.
    if (!epoch_) {
        epoch_ = now;
        w_epoch_ = cwnd_bytes;
        origin_ = std::max(w_max_, cwnd_bytes);
        // K^3 = (W_max - cwnd) / C, here in microseconds^3.
        Wide segments_million = Wide(origin_ - cwnd_bytes) * 1'000'000 / mss_;
        k_us_ = cube_root(segments_million * 5 / 2 * 1'000'000'000'000);
    }
    std::uint64_t t_us = (now - epoch_ + srtt) / us;
    std::uint64_t d = t_us > k_us_ ? t_us - k_us_ : k_us_ - t_us;
    d = std::min<std::uint64_t>(d, 1'000'000'000);
    Wide change = Wide(d) * d * d / 1'000'000'000'000 * mss_ * 2 / 5 / 1'000'000;
    std::uint64_t step = static_cast<std::uint64_t>(std::min<Wide>(change, Wide(1) << 40));
    std::uint64_t target = t_us > k_us_ ? origin_ + step : origin_ > step ? origin_ - step : mss_;
    target = std::min(target, cwnd_bytes + cwnd_bytes / 2);
    // The window NewReno would have: 3 (1 - beta) / (1 + beta) segments per round trip.
    std::uint64_t friendly = w_epoch_ + static_cast<std::uint64_t>(Wide(now - epoch_) * 9 * mss_ /
                                                                   17 / std::max<Time>(srtt, 1));
    target = std::max(target, friendly);
    if (target <= cwnd_bytes)
        return;
    fraction_ += (target - cwnd_bytes) * bytes;
    cwnd_bytes += fraction_ / cwnd_bytes;
    fraction_ %= cwnd_bytes;
}

void Cc::reduce(Time now, std::uint64_t in_flight) {
    if (kind == Transport::cubic) {
        epoch_ = 0;
        // Fast convergence: leave room when the window shrinks from one loss to the next.
        w_max_ = cwnd_bytes < w_last_max_ ? cwnd_bytes * 17 / 20 : cwnd_bytes;
        w_last_max_ = cwnd_bytes;
        ssthresh_bytes = std::max<std::uint64_t>(cwnd_bytes * 7 / 10, 2 * mss_);
        return;
    }
    ssthresh_bytes = std::max<std::uint64_t>(in_flight / 2, 2 * mss_);
}

void Cc::lost(Time now, std::uint64_t in_flight) {
    reduce(now, in_flight);
    cwnd_bytes = ssthresh_bytes;
    fraction_ = 0;
}

void Cc::timed_out(Time now, std::uint64_t in_flight) {
    reduce(now, in_flight);
    cwnd_bytes = mss_;
    fraction_ = 0;
}

void Cc::marked(std::uint64_t bytes, bool ce, bool window_end) {
    seen_bytes_ += bytes;
    if (ce)
        marked_bytes_ += bytes;
    if (ce && !reduced_) {
        // RFC 8257, section 3.3: at most one reduction per window, by alpha / 2.
        reduced_ = true;
        cwnd_bytes -= static_cast<std::uint64_t>(Wide(cwnd_bytes) * alpha_ >> 21);
        cwnd_bytes = std::max<std::uint64_t>(cwnd_bytes, 2 * mss_);
        ssthresh_bytes = cwnd_bytes;
        fraction_ = 0;
    }
    if (!window_end || !seen_bytes_)
        return;
    std::uint64_t share = (marked_bytes_ << 20) / seen_bytes_;
    alpha_ = alpha_ - alpha_ / 16 + share / 16; // g = 1/16
    seen_bytes_ = marked_bytes_ = 0;
    reduced_ = false;
}

} // namespace sim
