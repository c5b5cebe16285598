// SPDX-License-Identifier: GPL-2.0
// Messages over every transport: lone ones take their stack's budget, all of them end, the same
// seed gives the same latencies, and transports that may not lose lose nothing.
#include <gtest/gtest.h>

#include <fstream>

#include "sim/message/budget.hpp"
#include "sim/message/lone.hpp"
#include "sim/message/message.hpp"
#include "sim/message/table1.hpp"
#include "sim/message/trace_csv.hpp"
#include "support/failure.hpp"

namespace {

using namespace sim;

Params rack(const std::string& transport) {
    Params params;
    params.topology = "star";
    params.hosts = 8;
    params.host_gbps = 100;
    params.workload = "messages";
    params.transport = transport;
    params.flow_bytes = 64;
    params.load = 0.6;
    params.message.count = 2000;
    params.message.slots = 64;
    return params;
}

// Messages that have run; their carrier's books balance, or run() throws.
struct Ran {
    explicit Ran(const Params& params) : sim(message_params(params)), messages(sim) {
        messages.run([&] { messages.carrier().check(false); });
    }
    std::uint64_t count(const std::string& name) {
        for (const auto& [known, value] : messages.carrier().counts()) {
            if (known == name)
                return value;
        }
        return ~std::uint64_t{0};
    }
    Sim sim;
    Messages messages;
};

std::string digest(const Messages& messages) {
    std::string text;
    for (const Sample& sample : messages.samples())
        text += std::to_string(sample.latency) + (sample.read ? "r " : "w ");
    return text;
}

struct Stack {
    const char* transport;
    const Budget& budget;
    // On the wire, of a message and of a request; and times that it is stored.
    std::uint64_t data_bytes, request_bytes;
};

void PrintTo(const Stack& stack, std::ostream* out) {
    *out << stack.transport;
}

struct EveryMessageTransport : testing::TestWithParam<Stack> {};

TEST_P(EveryMessageTransport, LoneMessageTakesItsBudget) {
    const Stack& stack = GetParam();
    Lone lone(rack(stack.transport), stack.transport);
    const auto passage = static_cast<double>(stack.budget.one_way());
    const double data = 2 * 80 * static_cast<double>(stack.data_bytes);
    const double request = 2 * 80 * static_cast<double>(stack.request_bytes);
    EXPECT_NEAR(static_cast<double>(lone.of(false, 64)), passage + data, passage / 100);
    EXPECT_NEAR(static_cast<double>(lone.of(true, 64)), 2 * passage + data + request, passage / 50);
}

// Two links and two switches more each way, and the packet is stored in both.
TEST_P(EveryMessageTransport, LoneMessageBetweenLeavesTakesTwoHopsMore) {
    const Stack& stack = GetParam();
    Lone lone(rack(stack.transport), stack.transport);
    if (!std::string(stack.transport).find("cxl") || !std::string(stack.transport).find("dcqcn")) {
        EXPECT_THROW(lone.of(false, 64, true), remora::Misuse);
        return;
    }
    const auto near = static_cast<double>(lone.of(false, 64));
    const double more =
        2 * (static_cast<double>(stack.budget.hop()) + 80 * static_cast<double>(stack.data_bytes));
    EXPECT_NEAR(static_cast<double>(lone.of(false, 64, true)), near + more, more / 50);
}

TEST_P(EveryMessageTransport, AllMessagesEnd) {
    Ran run(rack(GetParam().transport));
    EXPECT_EQ(run.messages.samples().size(), 2000u);
    EXPECT_EQ(run.messages.in_flight(), 0u);
}

TEST_P(EveryMessageTransport, NoMessageIsFasterThanALoneOne) {
    const Params params = rack(GetParam().transport);
    Ran run(params);
    Lone lone(params, params.transport);
    for (const Sample& sample : run.messages.samples())
        ASSERT_GE(sample.latency, lone.of(sample.read, sample.bytes));
}

TEST_P(EveryMessageTransport, SameSeedSameLatencies) {
    Params params = rack(GetParam().transport);
    const std::string first = digest(Ran(params).messages);
    EXPECT_EQ(digest(Ran(params).messages), first);
    params.seed = 2;
    EXPECT_NE(digest(Ran(params).messages), first);
}

TEST_P(EveryMessageTransport, MessagesOfManySizesEnd) {
    Params params = rack(GetParam().transport);
    params.sizes = "edm-memcached";
    params.message.count = 200;
    params.message.rto_us = 200;
    Ran run(params);
    EXPECT_EQ(run.messages.samples().size(), 200u);
}

INSTANTIATE_TEST_SUITE_P(
    Sim, EveryMessageTransport,
    testing::Values(Stack{"dctcp", budget_tcp, 142, 86}, Stack{"eqds", budget_raw, 166, 110},
                    Stack{"ndp", budget_raw, 166, 110}, Stack{"pfabric", budget_tcp, 142, 86},
                    Stack{"floor", budget_raw, 142, 86}, Stack{"ird", budget_raw, 142, 86},
                    Stack{"homa", budget_raw, 142, 86}, Stack{"dcqcn", budget_roce, 142, 86},
                    Stack{"cxl", budget_cxl, 85, 17}, Stack{"cxl-voq", budget_cxl, 85, 17}),
    [](const auto& instance) {
        std::string name = instance.param.transport;
        std::erase(name, '-');
        return name;
    });

// N, G and data each pass a spine; a read's request and data do.
TEST(EdmMessages, LoneMessageBetweenLeavesPassesSpines) {
    Lone lone(rack("edm"), "edm");
    constexpr Time hop = budget_edm.link() + 5 * edm_cycle, cross = hop + budget_edm.link();
    const Time write = lone.of(false, 64, true) - lone.of(false, 64);
    const Time read = lone.of(true, 64, true) - lone.of(true, 64);
    EXPECT_NEAR(static_cast<double>(write), 3.0 * (cross + 6 * edm_cycle), 6 * edm_cycle);
    EXPECT_NEAR(static_cast<double>(read), 2.0 * (cross + 6 * edm_cycle), 6 * edm_cycle);
}

TEST(EdmMessages, LeavesDeliverAllMessagesOfAllSizes) {
    Params params = rack("edm");
    params.topology = "leaf-spine";
    params.leaves = 3;
    params.hosts_per_leaf = 4;
    params.spines = params.links_per_spine = 2;
    for (const char* sizes : {"fixed", "edm-memcached"}) {
        params.sizes = sizes;
        params.message.count = 1000;
        Ran run(params);
        EXPECT_EQ(run.messages.samples().size(), 1000u);
        EXPECT_GT(run.count("offers"), 500u);
    }
}

TEST(EdmMessages, Table1HoldsToAHundredthOfANanosecond) {
    Params params = rack("edm");
    params.host_gbps = 25;
    std::map<std::string, Table1Row> total, simulated;
    std::map<std::string, std::pair<Time, Time>> sum;
    for (const Table1Row& row : table1(params)) {
        if (row.line == "total") {
            total[row.stack] = row;
        } else if (row.line == "simulated") {
            simulated[row.stack] = row;
        } else {
            sum[row.stack].first += row.read;
            sum[row.stack].second += row.write;
        }
    }
    const std::map<std::string, std::pair<Time, Time>> paper = {{"tcp", {3'779'680, 1'889'840}},
                                                                {"roce", {2'035'680, 1'017'840}},
                                                                {"raw", {1'114'880, 557'440}},
                                                                {"edm", {299'520, 296'960}}};
    for (const auto& [stack, ns] : paper) {
        EXPECT_EQ(sum[stack], ns) << stack;
        EXPECT_EQ(std::pair(total[stack].read, total[stack].write), ns) << stack;
        EXPECT_NEAR(static_cast<double>(simulated[stack].read), static_cast<double>(ns.first), 10);
        EXPECT_NEAR(static_cast<double>(simulated[stack].write), static_cast<double>(ns.second),
                    10);
    }
}

TEST(FastpassMessages, LoneMessageAsksTheArbiterFirst) {
    Lone lone(rack("fastpass"), "fastpass");
    // Request and grant of 84 B, then the data; each is stored in the switch.
    const double passages = 3 * static_cast<double>(budget_raw.one_way());
    EXPECT_NEAR(static_cast<double>(lone.of(false, 64)), passages + 2 * 80 * (84 + 84 + 142),
                passages / 100);
}

TEST(FastpassMessages, LinkOfTheArbiterIsTheBottleneckOfShortMessages) {
    Params params = rack("fastpass");
    params.hosts = 16;
    Ran run(params);
    Lone lone(params, "fastpass");
    const Sample& last = run.messages.samples().back();
    EXPECT_GT(last.latency, 2 * lone.of(last.read, last.bytes));
}

TEST(DcqcnMessages, ManyWritersIntoOneHostArePausedAndSlowedButLoseNothing) {
    Params params = rack("dcqcn");
    params.flow_bytes = 500'000;
    params.load = 2;
    params.message.memory_hosts = 1;
    params.message.read_percent = 0;
    params.message.count = 200;
    Ran run(params);
    EXPECT_EQ(run.count("switch_drops"), 0u);
    EXPECT_GT(run.count("pauses"), 0u);
    EXPECT_GT(run.count("cnps"), 0u);
}

TEST(EdmMessages, AllMessagesEndUnderEachRule) {
    for (const char* rule : {"srpt", "fcfs", "order", "paper", "pim", "mega"}) {
        Params params = rack("edm");
        const std::string name = rule;
        params.load = 0.8;
        params.sizes = "edm-memcached";
        params.message.count = 300;
        params.message.policy = name == "fcfs" ? "fcfs" : "srpt";
        params.message.in_order = name == "order" || name == "paper";
        params.message.unit_bytes = name == "paper" ? 256 : 64;
        params.message.matcher = name == "pim" ? "pim" : "event";
        params.message.mega_bytes = name == "mega" ? 65'536 : 0;
        Ran run(params);
        EXPECT_EQ(run.messages.samples().size(), 300u) << rule;
    }
}

TEST(EdmMessages, EgressQueueKeepsItsBound) {
    Params params = rack("edm");
    params.load = 0.9;
    params.message.count = 20'000;
    params.message.egress_blocks = 32;
    Ran run(params);
    // Beyond the bound: chunks that were granted before, for the time of a grant and its data.
    const std::uint64_t granted = (2 * 58'240 + 14 * 2560) / 640;
    EXPECT_LE(run.messages.carrier().egress_peak_bytes() / 8, 32 + granted);
}

TEST(EdmMessages, WireLoadCountsEveryBlock) {
    Params params = rack("edm");
    Sim sim(message_params(params));
    Messages messages(sim);
    // N, G and 10 blocks of data; RREQ and 9 blocks.
    const Wire write = messages.carrier().wire(false, 64), read = messages.carrier().wire(true, 64);
    EXPECT_EQ(write.requester_tx, 88);
    EXPECT_EQ(write.requester_rx, 8);
    EXPECT_EQ(write.memory_rx, 80);
    EXPECT_EQ(read.requester_tx, 16);
    EXPECT_EQ(read.memory_rx, 16);
    EXPECT_EQ(read.memory_tx, 72);
    EXPECT_EQ(read.requester_rx, 72);
}

TEST(EdmMessages, BusiestDirectionOfALinkCarriesTheLoad) {
    Params params = rack("edm");
    params.load = 0.5;
    params.message.count = 50'000;
    Ran run(params);
    // 88 bytes a message and host, in either role: 7.04 ns.
    const double messages = 50'000.0 / 8;
    const double busy = messages * 7.04 / (static_cast<double>(run.messages.measured_time()) / ns);
    EXPECT_NEAR(busy, 0.5, 0.01);
}

TEST(CxlMessages, HeadOfLineBlockingCostsMoreThanVirtualQueues) {
    Params params = rack("cxl");
    params.load = 0.8;
    params.message.count = 20'000;
    auto mean = [](const Messages& messages) {
        double sum = 0;
        for (const Sample& sample : messages.samples())
            sum += static_cast<double>(sample.latency);
        return sum / static_cast<double>(messages.samples().size());
    };
    const double fifo = mean(Ran(params).messages);
    params.transport = "cxl-voq";
    EXPECT_GT(fifo, 1.2 * mean(Ran(params).messages));
}

TEST(PfabricMessages, LostPacketsAreSentAgain) {
    Params params = rack("pfabric");
    params.sizes = "fixed";
    params.flow_bytes = 200'000;
    params.load = 0.95;
    params.message.memory_hosts = 1;
    params.message.read_percent = 0;
    params.message.count = 100;
    Ran run(params);
    EXPECT_GT(run.count("switch_drops"), 0u);
    EXPECT_GE(run.count("retransmissions"), run.count("switch_drops"));
}

// ---- traces ----

struct TraceFile : testing::Test {
    std::string file = testing::TempDir() + "messages.csv";
    std::vector<TraceLine> read(const std::string& lines) {
        std::ofstream(file) << lines;
        return read_trace_csv(file, 4);
    }
};

TEST_F(TraceFile, ReadsAndWritesAreReadOthersAreSkipped) {
    auto trace = read("id,type,src,dst,bytes,read_bytes,slot\n"
                      "7,3,1,2,100,-1,20\n"
                      "8,100,0,1,1500,-1,3\n"
                      "9,1,3,0,16,4096,10\r\n");
    ASSERT_EQ(trace.size(), 2u);
    EXPECT_EQ(trace[0].number, 9u);
    EXPECT_EQ(trace[0].issued, 6400u);
    EXPECT_EQ(trace[0].bytes, 4096u);
    EXPECT_TRUE(trace[0].read);
    EXPECT_EQ(trace[0].requester, 3);
    EXPECT_EQ(trace[0].memory, 0);
    EXPECT_EQ(trace[1].bytes, 100u);
    EXPECT_FALSE(trace[1].read);
}

TEST_F(TraceFile, BadLinesAreRefused) {
    for (const char* line : {"1,3,1,2,100,-1", "1,3,1,2,100,-1,5,6", "1,2,1,2,100,-1,5",
                             "1,3,1,1,100,-1,5", "1,3,1,4,100,-1,5", "1,3,1,2,0,-1,5",
                             "1,1,1,2,16,-1,5", "1,3,1,2,100,-1,-5", "1,3,1,2,100,-1,x", ""})
        EXPECT_THROW(read(std::string(line) + "\n"), remora::Failure) << line;
}

TEST_F(TraceFile, ItsMessagesRunAtTheirTimes) {
    read("1,3,1,2,64,-1,100000\n2,1,3,0,16,64,0\n");
    Params params = rack("edm");
    params.hosts = 4;
    params.message.trace = file;
    Ran run(params);
    ASSERT_EQ(run.messages.samples().size(), 2u);
    EXPECT_EQ(run.messages.samples()[0].trace_line, 2u);
    EXPECT_GE(run.sim.now(), 100'000 * trace_slot);
}

} // namespace
