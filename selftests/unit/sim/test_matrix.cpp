// SPDX-License-Identifier: GPL-2.0
#include <sstream>

#include <gtest/gtest.h>

#include "sim/matrix.hpp"
#include "sim_rig.hpp"
#include "support/failure.hpp"

namespace {

using namespace sim;

Matrix parse(const std::string& text) {
    std::istringstream in(text);
    return parse_matrix(in, "m.cm");
}

std::string error_of(const std::string& text) {
    try {
        parse(text);
    } catch (const remora::Failure& failure) {
        return failure.what();
    }
    return "no error";
}

TEST(SimMatrix, ReadsConnectionsTriggersAndFailures) {
    Matrix m = parse("Nodes 16\nConnections 2\nTriggers 1\nFailures 1\n\n# a comment\n"
                     "0->5 id 7 start 1000 size 4096 send_done_trigger 1\n"
                     "5->0 id 8 trigger 1 size 10 prio 3\n"
                     "trigger id 1 oneshot\n"
                     "failure switch_type AGG switch_id 3 link_id 1\n");
    ASSERT_EQ(m.connections.size(), 2u);
    EXPECT_EQ(m.connections[0].id, 7u);
    EXPECT_EQ(m.connections[0].start, 1000u);
    EXPECT_EQ(m.connections[0].bytes, 4096u);
    EXPECT_EQ(m.connections[0].send_done, 1u);
    EXPECT_EQ(m.connections[1].start, never);
    EXPECT_EQ(m.failures[0], "agg:3:1");
}

TEST(SimMatrix, ErrorsNameFileLineAndCause) {
    EXPECT_EQ(error_of("Nodes 4\nConnections 1\n0->4 id 1 start 0 size 1\n"),
              "m.cm:3: node '4' isn't a number from 0 to 3");
    EXPECT_EQ(error_of("Nodes 4\n1->1 start 0\n"), "m.cm:2: node 1 would send to itself");
    EXPECT_EQ(error_of("0->1 start 0\n"), "m.cm:1: a line 'Nodes N' must come before connections");
    EXPECT_EQ(error_of("Nodes 4\nConnections 2\n0->1 start 0 size 5\n"),
              "m.cm: 'Connections 2', but there are 1");
    EXPECT_EQ(error_of("Nodes 4\n0->1 size 5\n"),
              "m.cm:2: a connection needs either start or trigger");
    EXPECT_EQ(error_of("Nodes 4\n0->1 id 1 start 0\n0->2 id 1 start 0\n"),
              "m.cm:3: id 1 is used twice");
    EXPECT_EQ(error_of("Nodes 4\n0->1 start 0 size\n"),
              "m.cm:2: size is missing at the end of the line");
    EXPECT_EQ(error_of("Nodes 4\n0->1 trigger 9 size 1\n"),
              "m.cm: trigger 9 is used but not described");
    EXPECT_EQ(error_of("Nodes 4\nhello\n"), "m.cm:2: 'hello' is none of Nodes, Connections, "
                                            "Triggers, Failures, trigger, failure, A->B");
}

TEST(SimSizes, DistributionsKeepTheirMeanAndRange) {
    for (const char* name : {"uniform", "web-search", "hadoop"}) {
        Sizes sizes(name, 1000);
        Rng rng(3);
        double sum = 0;
        for (int i = 0; i < 200'000; i++)
            sum += static_cast<double>(sizes.draw(rng));
        EXPECT_NEAR(sum / 200'000, static_cast<double>(sizes.mean_bytes()),
                    0.03 * static_cast<double>(sizes.mean_bytes()))
            << name;
    }
}

} // namespace
