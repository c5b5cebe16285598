// SPDX-License-Identifier: GPL-2.0
// A writer and a reader in threads of their own, under TSan: every frame arrives once, in order and
// whole.
#include <thread>

#include <gtest/gtest.h>

#include "frames.hpp"

namespace remora::test {

namespace {

constexpr std::uint32_t frames = 20'000;

Frame frame_of(std::uint32_t number) {
    return Frame(MARLIN_FRAME_BYTES_MIN + number * 37 % 3000, static_cast<std::uint8_t>(number));
}

TEST(FramesThreads, EachFrameArrivesOnce) {
    FramesRig rig;
    std::thread writer([&] {
        for (std::uint32_t n = 0; n < frames;) {
            if (rig.write(frame_of(n)))
                n++;
            else
                std::this_thread::yield();
        }
    });
    for (std::uint32_t n = 0; n < frames;) {
        Frame found = rig.read();
        if (found.empty()) {
            EXPECT_EQ(rig.fault, FRAMES_OK);
            std::this_thread::yield();
            continue;
        }
        EXPECT_EQ(found, frame_of(n));
        n++;
    }
    writer.join();
}

} // namespace

} // namespace remora::test
