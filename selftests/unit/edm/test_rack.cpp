// SPDX-License-Identifier: GPL-2.0
// Hosts and schedulers together: a write, a read, loss, restarts, a standby.
#include "rig.hpp"

namespace edm {

namespace {

constexpr uint64_t ms = 1'000'000;

TEST(EdmRack, LoneWriteIsSentHalfARoundTripAfterItsDemand) {
    Rig rig(Options{});
    ASSERT_TRUE(rig.run(10 * ms, [&] { return rig.all_follow(); }));
    rig.run(ms);
    Op& op = rig.submit(0, 1, 4096);
    EXPECT_TRUE(rig.run(ms, [&] { return rig.all_ended(); }));
    EXPECT_EQ(op.end_ns - op.start_ns, 2 * rig.opt.delay_ns);
    EXPECT_FALSE(op.unscheduled);
}

TEST(EdmRack, LoneReadIsAnsweredAfterOnePassageOfTheScheduler) {
    Rig rig(Options{});
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    rig.run(ms);
    Op& op = rig.submit(0, 1, 4096, EDM_READ);
    EXPECT_TRUE(rig.run(ms, [&] { return rig.all_ended(); }));
    // Request to the scheduler, forward and grant to the source, data.
    EXPECT_EQ(op.end_ns - op.start_ns, 3 * rig.opt.delay_ns);
    EXPECT_EQ(op.executed, 1u);
}

TEST(EdmRack, WritersToOneDestinationAreNeverGrantedTogether) {
    Options options;
    options.hosts = 9;
    Rig rig(options);
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    for (uint16_t writer = 1; writer < 9; writer++)
        for (int n = 0; n < 4; n++)
            rig.submit(writer, 0, 100'000);
    EXPECT_TRUE(rig.run(100 * ms, [&] { return rig.all_ended(); }));
    EXPECT_EQ(rig.unscheduled_bytes, 0u);
    // The destination's link was never idle for long.
    EXPECT_LT(rig.now, 1'000'000 + 10 * ms);
}

TEST(EdmRack, MoreThanXOpsOfAPairWaitAtTheHost) {
    Rig rig(Options{});
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    for (int n = 0; n < 50; n++)
        rig.submit(0, 1, 20'000);
    EXPECT_EQ(rig.hosts[0]->core.active[1], 3);
    EXPECT_TRUE(rig.run(100 * ms, [&] { return rig.all_ended(); }));
    EXPECT_EQ(rig.schedulers[0]->core.counts.refused, 0u);
}

TEST(EdmRack, SmallWritesThatWaitShareOneMessage) {
    Options options;
    options.mega_bytes = 8192;
    Rig rig(options);
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    const uint64_t before = rig.schedulers[0]->core.counts.grants;
    for (int n = 0; n < 100; n++)
        rig.submit(0, 1, 64);
    EXPECT_TRUE(rig.run(100 * ms, [&] { return rig.all_ended(); }));
    EXPECT_LE(rig.schedulers[0]->core.counts.grants - before, 8u);
}

TEST(EdmRack, LostGrantIsBookedAgainAndSentOnce) {
    Rig rig(Options{});
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    uint32_t lost = 0;
    rig.lose = [&](const edm_message& m, bool to_scheduler) {
        return !to_scheduler && m.kind == EDM_GRANT && m.count && lost++ % 4 == 1;
    };
    rig.submit(0, 1, 20 * rig.opt.chunk_bytes);
    rig.submit(2, 1, 20 * rig.opt.chunk_bytes, EDM_READ);
    EXPECT_TRUE(rig.run(500 * ms, [&] { return rig.all_ended(); }));
    EXPECT_GT(rig.schedulers[0]->core.counts.retracted, 2u);
    EXPECT_EQ(rig.unscheduled_bytes, 0u);
}

TEST(EdmRack, HostWithoutSchedulerSendsUnscheduledAfterItsPatience) {
    Rig rig(Options{});
    rig.schedulers[0]->up = false;
    Op& write = rig.submit(0, 1, 4096);
    Op& read = rig.submit(1, 2, 4096, EDM_READ);
    EXPECT_TRUE(rig.run(10 * ms, [&] { return rig.all_ended(); }));
    EXPECT_TRUE(write.unscheduled && read.unscheduled);
    EXPECT_GE(write.end_ns - write.start_ns, rig.opt.patience_ns);
    EXPECT_TRUE(edm_host_is_unscheduled(&rig.hosts[0]->core));
}

TEST(EdmRack, SilentSchedulerIsGivenUpAfterThreeLeasesAndFollowedAgain) {
    Rig rig(Options{});
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    rig.run(5 * ms);
    rig.schedulers[0]->up = false;
    Op& op = rig.submit(0, 1, 4096);
    EXPECT_TRUE(rig.run(10 * ms, [&] { return rig.all_ended(); }));
    EXPECT_TRUE(op.unscheduled);
    EXPECT_LE(op.end_ns - op.start_ns, 3 * rig.opt.lease_us * 1000 + 1000);
    EXPECT_EQ(rig.hosts[0]->core.counts.silences, 1u);
    rig.start_scheduler(0);
    EXPECT_TRUE(rig.run(10 * ms, [&] { return rig.all_follow(); }));
    rig.run(ms);
    Op& again = rig.submit(0, 1, 4096);
    EXPECT_TRUE(rig.run(10 * ms, [&] { return rig.all_ended(); }));
    EXPECT_FALSE(again.unscheduled);
}

TEST(EdmRack, HostThatReadsAndNothingElseKeepsItsScheduler) {
    Rig rig(Options{});
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    const uint64_t until = rig.now + 10 * EDM_SILENT_LEASES * rig.opt.lease_us * 1000ULL;
    while (rig.now < until) {
        const Op& op = rig.submit(0, 1, 4096, EDM_READ);
        ASSERT_TRUE(rig.run(ms, [&] { return op.ended; }));
    }
    EXPECT_EQ(rig.hosts[0]->core.counts.silences, 0u);
    EXPECT_EQ(rig.unscheduled_bytes, 0u);
}

TEST(EdmRack, StandbyServesWithinThreeLeasesAndARoundTrip) {
    Options options;
    options.schedulers = 2;
    options.hosts = 6;
    Rig rig(options);
    rig.run(10 * ms);
    const uint8_t first = rig.hosts[0]->core.follow;
    ASSERT_TRUE(rig.all_follow(first));
    Op& op = rig.submit(0, 1, 400 * options.chunk_bytes);
    Op& read = rig.submit(2, 3, 400 * options.chunk_bytes, EDM_READ);
    rig.run(ms);
    const uint64_t died = rig.now;
    rig.schedulers[first]->up = false;
    const size_t before = rig.chunks.size();
    EXPECT_TRUE(rig.run(100 * ms, [&] { return rig.chunks.size() > before; }));
    // Its last datagram might have arrived after it died; the ports then wait for a chunk's time.
    EXPECT_LE(rig.now - died, 3 * options.lease_us * 1000 + 2 * options.delay_ns +
                                  options.chunk_bytes + options.delay_ns + 100);
    EXPECT_TRUE(rig.run(100 * ms, [&] { return rig.all_ended(); }));
    EXPECT_FALSE(op.unscheduled);
    EXPECT_FALSE(read.unscheduled);
    EXPECT_TRUE(rig.all_follow(!first));
    EXPECT_EQ(rig.unscheduled_bytes, 0u);
}

TEST(EdmRack, PartitionedHostIsNotBookedByTwoSchedulers) {
    Options options;
    options.schedulers = 2;
    options.hosts = 4;
    Rig rig(options);
    rig.run(10 * ms);
    const uint8_t first = rig.hosts[0]->core.follow;
    // Grants of the followed scheduler reach nobody, but it hears and grants on.
    for (uint16_t n = 1; n < 4; n++)
        rig.submit(n, 0, 1000 * options.chunk_bytes);
    rig.run(ms);
    const uint32_t life = rig.schedulers[first]->core.config.life;
    rig.lose = [&](const edm_message& m, bool to_scheduler) {
        return !to_scheduler && m.life == life;
    };
    EXPECT_TRUE(rig.run(200 * ms, [&] { return rig.all_ended(); }));
    EXPECT_TRUE(rig.all_follow(!first));
}

TEST(EdmRack, AbsentPeerIsReachedUnscheduledAtOnce) {
    Rig rig(Options{});
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    rig.run(ms);
    // Host 2 is silent: its lease ends.
    rig.lose = [&](const edm_message& m, bool to_scheduler) { return m.port == 2; };
    rig.run(5 * ms);
    Op& op = rig.submit(0, 2, 4096);
    EXPECT_TRUE(rig.run(ms, [&] { return op.ended; }));
    EXPECT_TRUE(op.unscheduled);
    EXPECT_EQ(rig.hosts[0]->core.counts.refused, 1u);
}

TEST(EdmRack, RestartedHostBeginsItsIdsAnew) {
    Rig rig(Options{});
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    for (int n = 0; n < 5; n++)
        rig.submit(0, 1, 4096, n % 2 ? EDM_READ : EDM_WRITE);
    rig.run(2 * rig.opt.delay_ns);
    rig.start_host(0, 2);
    rig.drain_host(0);
    EXPECT_TRUE(rig.run(10 * ms, [&] { return rig.all_follow(); }));
    rig.run(ms);
    Op& read = rig.submit(0, 1, 4096, EDM_READ);
    Op& write = rig.submit(0, 1, 4096);
    EXPECT_TRUE(rig.run(10 * ms, [&] { return rig.all_ended(); }));
    EXPECT_FALSE(read.unscheduled || write.unscheduled);
    EXPECT_EQ(read.executed, 1u);
}

// All return, or hosts that join later would have peers that follow another scheduler.
TEST(EdmRack, HostsOfTheStandbyReturnToTheFirstScheduler) {
    Options options;
    options.schedulers = 2;
    Rig rig(options);
    ASSERT_TRUE(rig.run(10 * ms, [&] { return rig.all_follow(); }));
    rig.schedulers[0]->up = false;
    ASSERT_TRUE(rig.run(10 * ms, [&] { return rig.all_follow(1); }));
    for (int n = 0; n < 20; n++)
        rig.submit(static_cast<uint16_t>(n % 3), static_cast<uint16_t>((n + 1) % 3), 50'000,
                   n % 2 ? EDM_READ : EDM_WRITE);
    rig.start_scheduler(0);
    ASSERT_TRUE(rig.run(10 * ms, [&] { return rig.all_follow(); }));
    EXPECT_TRUE(rig.run(10 * ms, [&] { return rig.all_ended(); }));
    EXPECT_EQ(rig.unscheduled_bytes, 0u);
}

// The standby's welcome is faster.
TEST(EdmRack, HostThatJoinsWaitsForItsFirstScheduler) {
    Options options;
    options.schedulers = 2;
    Rig rig(options);
    const uint64_t until = rig.now + ms / 2;
    rig.lose = [&](const edm_message& m, bool) {
        return m.kind == EDM_WELCOME && m.life == rig.schedulers[0]->core.config.life &&
               rig.now < until;
    };
    bool strayed = false;
    ASSERT_TRUE(rig.run(10 * ms, [&] {
        for (const auto& host : rig.hosts)
            strayed |= host->core.follow == 1;
        return rig.all_follow();
    }));
    EXPECT_FALSE(strayed);
}

// A machine without a clock of its own, that starts again.
TEST(EdmRack, HostWithTakenEpochJoinsWithAGreaterOne) {
    Options options;
    options.schedulers = 2;
    Rig rig(options);
    rig.start_host(1, 7);
    ASSERT_TRUE(rig.run(100 * ms, [&] { return rig.all_follow(); }));
    rig.start_host(1, 3);
    rig.drain_host(1);
    ASSERT_TRUE(rig.run(100 * ms, [&] { return rig.all_follow(); }));
    EXPECT_EQ(rig.hosts[1]->core.config.link.epoch, 8u);
    const Op& op = rig.submit(1, 2, 50'000);
    const Op& read = rig.submit(1, 2, 50'000, EDM_READ);
    EXPECT_TRUE(rig.run(100 * ms, [&] { return op.ended && read.ended; }));
    EXPECT_FALSE(op.unscheduled || read.unscheduled);
}

TEST(EdmRack, EpochFollowsTheClockAndTheLifeBefore) {
    EXPECT_EQ(edm_link_epoch(0, 100), 100u);
    EXPECT_EQ(edm_link_epoch(0, 0x90000000), 0x90000000u); // after 2038
    EXPECT_EQ(edm_link_epoch(100, 100), 101u);
    EXPECT_EQ(edm_link_epoch(100, 3), 101u); // the clock went back
    EXPECT_EQ(edm_link_epoch(100, 200), 200u);
    // The clock's 32 bits wrap, and 0 is no epoch.
    EXPECT_EQ(edm_link_epoch(~0u - 1, 1ULL << 32), ~0u);
    EXPECT_EQ(edm_link_epoch(~0u, 1ULL << 32), 1u);
    EXPECT_EQ(edm_link_epoch(~0u, (1ULL << 32) + 5), 5u);
    EXPECT_EQ(edm_link_epoch(5, ~0u), 6u);
    EXPECT_EQ(edm_link_epoch(0, 0), 1u);
}

TEST(EdmRack, HostJoinsAcrossTheWrapOfEpochs) {
    Rig rig(Options{});
    // The clock goes on, wraps, and goes back across the wrap.
    const std::pair<uint32_t, uint32_t> lives[] = {
        {0x70000000, 0x70000000}, {0x90000000, 0x90000000}, {~0u, ~0u}, {5, 5}, {~0u, 6}};
    for (const auto& [epoch, joined] : lives) {
        rig.start_host(1, epoch);
        rig.drain_host(1);
        ASSERT_TRUE(rig.run(100 * ms, [&] { return rig.all_follow(); }));
        EXPECT_EQ(rig.hosts[1]->core.config.link.epoch, joined);
        const Op& op = rig.submit(1, 2, 50'000);
        const Op& read = rig.submit(1, 2, 50'000, EDM_READ);
        EXPECT_TRUE(rig.run(100 * ms, [&] { return op.ended && read.ended; }));
        EXPECT_FALSE(op.unscheduled || read.unscheduled);
    }
}

TEST(EdmRack, EpochAfterTheLastIsNotZero) {
    Rig rig(Options{});
    rig.start_host(1, 0x80000000);
    ASSERT_TRUE(rig.run(100 * ms, [&] { return rig.all_follow(); }));
    rig.start_host(1, ~0u);
    rig.drain_host(1);
    ASSERT_TRUE(rig.run(100 * ms, [&] { return rig.all_follow(); }));
    rig.start_host(1, ~0u - 1);
    rig.drain_host(1);
    ASSERT_TRUE(rig.run(100 * ms, [&] { return rig.all_follow(); }));
    EXPECT_EQ(rig.hosts[1]->core.config.link.epoch, 1u);
}

// No scheduler has named the peer to it before.
TEST(EdmRack, HostTakesARequestByItsStandbyAfter2038) {
    Options options;
    options.schedulers = 2;
    Rig rig(options);
    ASSERT_TRUE(rig.run(100 * ms, [&] { return rig.all_follow(); }));
    rig.run(5 * ms);
    edm_host& host = rig.hosts[1]->core;
    edm_message forward{};
    forward.kind = EDM_FORWARD;
    forward.port = 1;
    forward.epoch = host.config.link.epoch;
    forward.life = host.link[1].life;
    forward.seq = host.link[1].seq_in + 1;
    forward.peer_epoch = 0x90000000;
    forward.item.size = 4096;
    forward.item.type = EDM_ANSWER;
    EXPECT_EQ(edm_host_request(&host, rig.now, 1, &forward), EDM_HOST_NEW);
}

TEST(EdmRack, CancelledReadKeepsItsIdUntilItsAnswerIsTooLate) {
    Options options;
    options.slots = 1;
    Rig rig(options);
    rig.run(10 * ms, [&] { return rig.all_follow(); });
    rig.run(ms);
    Op& read = rig.submit(0, 1, 4096, EDM_READ);
    rig.run(rig.opt.delay_ns / 2);
    ASSERT_TRUE(edm_host_cancel(&rig.hosts[0]->core, rig.now, &read.op));
    read.ended = true;
    rig.drain_host(0);
    const uint64_t cancelled = rig.now;
    Op& next = rig.submit(0, 1, 4096, EDM_READ);
    EXPECT_TRUE(rig.run(10 * ms, [&] { return rig.all_ended(); }));
    EXPECT_GE(next.end_ns - cancelled, rig.opt.late_ns);
    EXPECT_EQ(next.landed, 4096u);
}

struct Weather {
    double loss, copies;
    uint64_t jitter_ns;
    bool restarts;
    uint8_t schedulers;
};

class EdmWeather : public testing::TestWithParam<std::tuple<uint32_t, int>> {};

const Weather weathers[] = {
    {0.01, 0.02, 0, false, 1}, {0, 0, 20'000, false, 1},      {0.2, 0.2, 20'000, false, 1},
    {0.01, 0.02, 0, true, 1},  {0.05, 0.05, 20'000, true, 2},
};

TEST_P(EdmWeather, EveryOpEndsOnce) {
    const auto [seed, number] = GetParam();
    const Weather& weather = weathers[number];
    Options options;
    options.hosts = 5;
    options.seed = seed;
    options.loss = weather.loss;
    options.copies = weather.copies;
    options.jitter_ns = weather.jitter_ns;
    options.schedulers = weather.schedulers;
    options.mega_bytes = seed % 2 ? 4096 : 0;
    Rig rig(options);
    std::mt19937 random(seed);
    for (uint32_t n = 0; n < 200; n++) {
        const auto host = static_cast<uint16_t>(random() % options.hosts);
        const auto peer = static_cast<uint16_t>((host + 1 + random() % 4) % options.hosts);
        rig.submit(host, peer, 1 + random() % (random() % 3 ? 2'000 : 60'000),
                   random() % 2 ? EDM_READ : EDM_WRITE);
        rig.run(random() % 100'000);
        if (weather.restarts && n % 40 == 20)
            rig.start_scheduler(static_cast<uint8_t>(random() % weather.schedulers));
    }
    EXPECT_TRUE(rig.run(2'000 * ms, [&] { return rig.all_ended(); }))
        << "replay: --gtest_filter=*EdmWeather*/" << seed << "_" << number;
    // A scheduler that did not restart books no byte twice. A refused message may have been booked.
    uint64_t refused = 0;
    for (const auto& host : rig.hosts)
        refused += host->core.counts.refused + host->core.counts.silences;
    if (!weather.restarts && !refused) {
        EXPECT_EQ(rig.wasted, 0u);
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EdmWeather,
                         testing::Combine(testing::Range(1u, 21u), testing::Range(0, 5)),
                         [](const auto& each) {
                             return std::to_string(std::get<0>(each.param)) + "_" +
                                    std::to_string(std::get<1>(each.param));
                         });

} // namespace

} // namespace edm
