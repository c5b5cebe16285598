// SPDX-License-Identifier: GPL-2.0
//
// Prints the frequency of the host's time stamp counter in kHz. Emulated machines see that counter
// as their own, but find nothing to calibrate it against, and would fall back to counting timer
// ticks.
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <x86intrin.h>

namespace {

struct Sample {
    uint64_t tsc, ns;
};

// The counter and the clock at one moment: of several tries the one in which least time passed.
Sample sample() {
    Sample best = {};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 100; i++) {
        timespec now;
        uint64_t before = __rdtsc();
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t passed = __rdtsc() - before;
        if (passed < least) {
            least = passed;
            best = {before + passed / 2,
                    static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec};
        }
    }
    return best;
}

} // namespace

int main() {
    const timespec interval = {0, 200'000'000};
    Sample first = sample();
    nanosleep(&interval, nullptr);
    Sample last = sample();
    double khz =
        static_cast<double>(last.tsc - first.tsc) * 1e6 / static_cast<double>(last.ns - first.ns);
    std::printf("%.0f\n", khz);
    return 0;
}
