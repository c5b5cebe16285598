// SPDX-License-Identifier: GPL-2.0
// Time in picoseconds and the random numbers. Both are integers with a fixed algorithm, so that a
// seed gives the same run on every machine.
#pragma once

#include <cstdint>

namespace sim {

using Time = std::uint64_t; // picoseconds

inline constexpr Time ns = 1000;
inline constexpr Time us = 1000 * ns;
inline constexpr Time ms = 1000 * us;
inline constexpr Time sec = 1000 * ms;
inline constexpr Time never = ~Time{0};

using Wide = unsigned __int128;

// Scrambles 64 bits (the finalizer of splitmix64).
inline std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// xoshiro256**.
class Rng {
public:
    explicit Rng(std::uint64_t seed) {
        for (std::uint64_t& word : s_)
            word = seed = mix(seed);
    }

    std::uint64_t next() {
        std::uint64_t result = rotl(s_[1] * 5, 7) * 9, t = s_[1] << 17;
        s_[2] ^= s_[0];
        s_[3] ^= s_[1];
        s_[1] ^= s_[2];
        s_[0] ^= s_[3];
        s_[2] ^= t;
        s_[3] = rotl(s_[3], 45);
        return result;
    }

    // Uniform in [0, n); n > 0.
    std::uint64_t below(std::uint64_t n) {
        return static_cast<std::uint64_t>(Wide(next()) * n >> 64);
    }

    bool coin() { return next() >> 63; }

    // Exponentially distributed with this mean, by von Neumann's comparisons: no logarithm, whose
    // last bit differs among C libraries.
    std::uint64_t exponential(std::uint64_t mean) {
        for (std::uint64_t whole = 0;; whole++) {
            std::uint64_t first = next(), last = first;
            bool accepted = true;
            for (std::uint64_t draw; (draw = next()) < last; last = draw)
                accepted = !accepted;
            if (accepted)
                return whole * mean + static_cast<std::uint64_t>(Wide(first) * mean >> 64);
        }
    }

private:
    static std::uint64_t rotl(std::uint64_t x, int k) { return x << k | x >> (64 - k); }

    std::uint64_t s_[4];
};

} // namespace sim
