// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

// Programs may race on remote memory as on their own: a READ beside a PUT that raises its signal.
extern "C" const char* __tsan_default_suppressions() {
    return "race:remora::daemon::Reply::copy\n"
           "race:remora::daemon::Node::add(\n"
           "race:remora::node::Host::copy_in\n"
           "race:remora::node::Host::copy_inside\n"
           "race:rmem_atomic_apply\n";
}

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
