// SPDX-License-Identifier: GPL-2.0
// The thread that turns an eventfd's signals into wake-ups (libremote/cmmc/wake.cpp).
#include <sys/eventfd.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "remote/cmmc.h"

namespace remora::test {

namespace {

// Both threads see each signal, and one of them is too late to read it: it must not wait there.
TEST(Wake, SignalThatAnotherReaderTookDoesNotBlockTheThread) {
    int event = eventfd(0, EFD_CLOEXEC);
    std::uint32_t word = 0;
    for (int round = 0; round < 100; round++) {
        cmmc_wake_t *one, *other;
        ASSERT_EQ(cmmc_wake_start(&one, event, &word), 0);
        ASSERT_EQ(cmmc_wake_start(&other, event, &word), 0);
        for (int i = 0; i < 20; i++) {
            eventfd_write(event, 1);
            usleep(10);
        }
        cmmc_wake_stop(one);
        cmmc_wake_stop(other);
    }
    close(event);
}

} // namespace

} // namespace remora::test
