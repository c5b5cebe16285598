// SPDX-License-Identifier: GPL-2.0
// A probe of a port that is silent, when the time for it is over.
#include "support/reach.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include "support/descriptor.hpp"

namespace remora {

namespace {

// poll() takes a negative time for no limit, and would wait for ever.
TEST(Reach, TimeThatIsOverIsNone) {
    Descriptor silent(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    auto& in = reinterpret_cast<sockaddr_in&>(address);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(in);
    ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    ASSERT_EQ(getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    EXPECT_NE(reach(address, bytes, std::chrono::seconds(-1)), Reach::refused);
}

} // namespace

} // namespace remora
