// SPDX-License-Identifier: GPL-2.0
// QUERY and CALL messages at the node: sessions, turns, budgets, and the functions that a program
// calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "../node/node_test.hpp"

namespace {

using namespace rig;

// The program of these tests. Function 0 (QUERY) and 1 (CALL) take `steps` steps. Then 0 answers
// the integer of 8 bytes at addr, and 1 adds value to it and answers both. 2 (QUERY) tries to
// write, 3 (CALL) returns -value. 4 (CALL) locks the key `value`, then ends. 5 (CALL) forwards.
struct Args {
    uint64_t addr, value, steps;
};

int step(rmem_call* call) {
    auto* args = static_cast<const Args*>(rmem_args(call, sizeof(Args)));
    auto* taken = static_cast<uint64_t*>(rmem_scratch(call, sizeof(uint64_t)));
    if (!args)
        return rmem_error(call);
    if ((*taken)++ < args->steps)
        return RMEM_AGAIN;
    if (rmem_function(call) == 3)
        return -static_cast<int>(args->value);
    if (rmem_function(call) == 4)
        return rmem_key_lock(call, args->value);
    if (rmem_function(call) == 5)
        return rmem_forward(call, "next", 1, args, sizeof(*args));
    if (rmem_function(call) == 2)
        return rmem_at(call, args->addr, 8) ? 0 : rmem_error(call);
    uint64_t found;
    if (int error = rmem_read(call, args->addr, &found, sizeof(found)))
        return error;
    const uint32_t bytes = rmem_function(call) == 1 ? 16 : 8;
    auto* result = static_cast<uint64_t*>(rmem_result(call, bytes));
    if (!result)
        return rmem_error(call);
    result[0] = found;
    if (rmem_function(call) == 0)
        return 0;
    result[1] = found + args->value;
    return rmem_write(call, args->addr, &result[1], 8);
}

constexpr uint32_t id = 9;
constexpr rmem_offload_ops program{
    RMEM_OFFLOAD_VERSION, id, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5, 10, "test", step, nullptr};

class Run : public NodeTest {
protected:
    Run() { EXPECT_GE(node.load(program), 0); }

    rmem_head head(Client& who, uint8_t type, uint8_t function) {
        rmem_head h = who.head(type, id, sizeof(Args));
        h.op = function;
        h.piece = type == RMEM_QUERY ? 64 : 0;
        return h;
    }
    rmem_head call_head(uint8_t function = 1) { return head(client, RMEM_CALL, function); }
    rmem_head query_head(uint8_t function = 0) { return head(client, RMEM_QUERY, function); }

    rmem_answer ask(Client& who, const rmem_head& h, const Args& args) {
        Bytes payload = wire::bytes_of(args);
        return node.request(who, h, &payload);
    }
    rmem_answer ask(const rmem_head& h, const Args& args) { return ask(client, h, args); }

    void finish() {
        while (node.run_round()) {
        }
    }
    // Ends all calls; the answer of the last one.
    Node::Ended last() {
        finish();
        EXPECT_FALSE(node.ended.empty());
        return node.ended.empty() ? Node::Ended{} : node.ended.back();
    }
    uint64_t integer() { return base_load_le64(node.read(client, addr, 8).data()); }
    static uint64_t word(const Bytes& bytes, size_t at = 0) {
        return bytes.size() >= 8 * (at + 1) ? base_load_le64(bytes.data() + 8 * at) : ~0ull;
    }
};

// ---- once ----

TEST_F(Run, CopyOfARunningCallIsDropped) {
    const rmem_head h = call_head();
    EXPECT_EQ(ask(h, {addr, 5, 3}).action, RMEM_ACT_RUN);
    EXPECT_EQ(node.parts, 0u) << "the answer comes at its end";
    node.run_round();
    rmem_answer copy = ask(h, {addr, 5, 3});
    EXPECT_EQ(copy.action, RMEM_ACT_DROP);
    EXPECT_EQ(copy.reason, RMEM_NODE_RUNNING);
    EXPECT_EQ(word(last().result, 1), 5u);
    EXPECT_EQ(node.ended.size(), 1u);
    EXPECT_EQ(integer(), 5u);
}

TEST_F(Run, CopyOfAnEndedCallGetsTheSameAnswer) {
    const rmem_head h = call_head();
    ask(h, {addr, 5, 0});
    finish();
    ask(call_head(), {addr, 2, 0});
    finish();
    rmem_answer copy = ask(h, {addr, 5, 0});
    EXPECT_EQ(copy.reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(base_load_le64(&copy.found.value[1]), 5u);
    EXPECT_EQ(integer(), 7u);
}

TEST_F(Run, FailedCallStaysFailedWithItsErrno) {
    const rmem_head h = call_head(3);
    ask(h, {addr, ENOTTY, 1});
    rmem_answer answer = last().answer;
    EXPECT_EQ(answer.reply.status, RMEM_FAILED);
    EXPECT_EQ(answer.reply.offset, unsigned{ENOTTY});
    rmem_answer copy = ask(h, {addr, ENOTTY, 1});
    EXPECT_EQ(copy.reply.status, RMEM_FAILED);
    EXPECT_EQ(copy.reply.offset, unsigned{ENOTTY});
    EXPECT_FALSE(node.run_round()) << "not executed again";
}

TEST_F(Run, RefusedCallStaysRefusedWhenTheOffloadIsThere) {
    rmem_head h = call_head();
    h.addr = id + 1;
    EXPECT_EQ(ask(h, {addr, 5, 0}).reply.status, RMEM_NO_OFFLOAD);
    rmem_offload_ops other = program;
    other.id = id + 1;
    ASSERT_GE(node.load(other), 0);
    EXPECT_EQ(ask(h, {addr, 5, 0}).reply.status, RMEM_NO_OFFLOAD) << "its client went on";
    EXPECT_EQ(integer(), 0u);
}

TEST_F(Run, QueryRunsAgain) {
    const rmem_head h = query_head();
    ask(h, {addr, 0, 0});
    EXPECT_EQ(word(last().result), 0u);
    ask(call_head(), {addr, 5, 0});
    finish();
    EXPECT_EQ(ask(h, {addr, 0, 0}).action, RMEM_ACT_RUN);
    EXPECT_EQ(word(last().result), 5u);
}

TEST_F(Run, CallFarAboveTheFloorWaits) {
    rmem_head h = call_head();
    h.id = client.floor + RMEM_REPLAY;
    EXPECT_EQ(ask(h, {addr, 5, 0}).reply.status, RMEM_BUSY);
    client.floor++;
    h.floor = client.floor;
    EXPECT_EQ(ask(h, {addr, 5, 0}).action, RMEM_ACT_RUN) << "BUSY isn't kept";
}

TEST_F(Run, ResultOfACallBelowTheFloorIsForgotten) {
    const rmem_head h = call_head();
    ask(h, {addr, 5, 3});
    node.run_round();
    // The place of h's result belongs to this id, once the floor has passed h.
    rmem_head next = call_head();
    next.id = h.id + RMEM_REPLAY;
    next.floor = h.id + 1;
    client.floor = next.floor;
    ask(next, {addr, 7, 0});
    EXPECT_EQ(last().answer.action, RMEM_ACT_DROP) << "nobody waits for it";
    rmem_answer copy = ask(next, {addr, 7, 0});
    EXPECT_EQ(copy.reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(base_load_le64(&copy.found.value[1]), 7u) << "next's result, which ended first";
}

// A query of an id that was out of the window has no mark, and takes none away.
TEST_F(Run, QueryBeyondTheWindowLeavesTheMarkOfACall) {
    rmem_head query = query_head();
    query.id = client.floor + RMEM_WINDOW;
    ask(query, {addr, 0, 2});
    rmem_head call = call_head();
    call.id = query.id;
    call.floor = client.floor = query.id;
    EXPECT_EQ(ask(call, {addr, 5, 9}).action, RMEM_ACT_RUN);
    while (node.ended.empty())
        node.run_round();
    EXPECT_EQ(ask(call, {addr, 5, 9}).reason, RMEM_NODE_RUNNING);
    finish();
    client.next_id = call.id + 1;
    EXPECT_EQ(integer(), 5u);
}

// ---- views, kinds, clients ----

TEST_F(Run, ViewPermitsQueriesAlone) {
    ASSERT_TRUE(node.add_view(2, 1));
    Client reader(2, 2);
    ASSERT_EQ(node.open(reader, 200).reply.status, RMEM_OK);
    EXPECT_EQ(ask(reader, head(reader, RMEM_CALL, 1), {addr, 5, 0}).reply.status, RMEM_PERM);
    ask(reader, head(reader, RMEM_QUERY, 0), {addr, 0, 0});
    EXPECT_EQ(last().answer.reply.status, RMEM_OK);
}

TEST_F(Run, QueryWritesNothing) {
    ask(query_head(2), {addr, 0, 0});
    EXPECT_EQ(last().answer.reply.offset, unsigned{EACCES});
}

TEST_F(Run, FunctionOfTheOtherKindIsInvalid) {
    EXPECT_EQ(ask(query_head(1), {addr, 5, 0}).reply.status, RMEM_INVALID);
    EXPECT_EQ(ask(call_head(0), {addr, 5, 0}).reply.status, RMEM_INVALID);
    EXPECT_EQ(ask(query_head(RMEM_FUNCTIONS_MAX), {addr, 5, 0}).reply.status, RMEM_INVALID);
    rmem_head h = query_head();
    h.piece = node.core.config.piece_bytes + 1;
    EXPECT_EQ(ask(h, {addr, 5, 0}).reply.status, RMEM_INVALID);
    h = query_head();
    h.len = RMEM_ARGS_BYTES_MAX + 1;
    Bytes args(h.len);
    EXPECT_EQ(node.request(client, h, &args).reply.status, RMEM_INVALID);
}

TEST_F(Run, OtherSpacesCallByThePermissionOfTheOperatorAlone) {
    ASSERT_TRUE(node.add_space(2));
    Client other(2, 2);
    ASSERT_EQ(node.open(other, 200).reply.status, RMEM_OK);
    EXPECT_EQ(ask(other, head(other, RMEM_QUERY, 0), {addr, 0, 0}).reply.status, RMEM_NO_OFFLOAD);
    EXPECT_EQ(node.load(program, 1, {2}), RMEM_RUN_EXISTS);
    ASSERT_TRUE(rmem_run_unload(&node.table, 0, false));
    ASSERT_GE(node.load(program, 1, {2}), 0);
    ask(call_head(), {addr, 5, 0});
    finish();
    ask(other, head(other, RMEM_QUERY, 0), {addr, 0, 0});
    EXPECT_EQ(word(last().result), 5u) << "the offload's space, not the caller's";
    ASSERT_TRUE(node.remove_space(2));
    ASSERT_TRUE(node.add_space(2));
    ASSERT_EQ(node.open(other, 300).reply.status, RMEM_OK);
    other.next_id = other.floor = 1;
    EXPECT_EQ(ask(other, head(other, RMEM_QUERY, 0), {addr, 0, 0}).reply.status, RMEM_NO_OFFLOAD)
        << "another tenant's space of that id";
    EXPECT_EQ(node.load(program, 2, {7}), RMEM_RUN_NO_SPACE);
}

TEST_F(Run, MembersOfASpaceThatTheOperatorNamedCallViewsDoNot) {
    const uint8_t key[BASE_SIPHASH_KEY_BYTES] = {42};
    ASSERT_TRUE(node.add_space(2));
    ASSERT_EQ(rmem_node_space_add_member(&node.core, 3, key, 2), RMEM_SPACE_OK);
    ASSERT_TRUE(node.add_view(4, 2));
    Client member(3, 3), reader(4, 4);
    ASSERT_EQ(node.open(member, 200).reply.status, RMEM_OK);
    ASSERT_EQ(node.open(reader, 200).reply.status, RMEM_OK);
    ASSERT_TRUE(rmem_run_unload(&node.table, 0, false));
    ASSERT_GE(node.load(program, 1, {2}), 0);
    EXPECT_EQ(ask(member, head(member, RMEM_QUERY, 0), {addr, 0, 0}).action, RMEM_ACT_RUN);
    EXPECT_EQ(last().answer.reply.status, RMEM_OK);
    EXPECT_EQ(ask(reader, head(reader, RMEM_QUERY, 0), {addr, 0, 0}).reply.status, RMEM_NO_OFFLOAD);
}

TEST_F(Run, UnsoundProgramsAreRefused) {
    auto loads = [&](auto change) {
        rmem_offload_ops ops = program;
        ops.id = 77;
        change(ops);
        return node.load(ops);
    };
    EXPECT_EQ(loads([](auto& ops) { ops.version++; }), RMEM_RUN_INVALID);
    EXPECT_EQ(loads([](auto& ops) { ops.id = 0; }), RMEM_RUN_INVALID);
    EXPECT_EQ(loads([](auto& ops) { ops.step = nullptr; }), RMEM_RUN_INVALID);
    EXPECT_EQ(loads([](auto& ops) { ops.name[0] = 0; }), RMEM_RUN_INVALID);
    EXPECT_EQ(loads([](auto& ops) { ops.name[1] = '/'; }), RMEM_RUN_INVALID);
    EXPECT_EQ(loads([](auto& ops) { std::ranges::fill(ops.name, 'x'); }), RMEM_RUN_INVALID);
    EXPECT_EQ(loads([](auto& ops) { ops.budget_us = RMEM_BUDGET_US_MAX + 1; }), RMEM_RUN_INVALID);
    EXPECT_EQ(node.load(program, 3), RMEM_RUN_NO_SPACE);
    ASSERT_TRUE(node.add_view(2, 1));
    EXPECT_EQ(node.load(program, 2), RMEM_RUN_NO_SPACE) << "a view has no memory of its own";
}

TEST_F(Run, OffloadLeavesWhenItsCallsHaveEnded) {
    ask(query_head(), {addr, 0, 3});
    EXPECT_FALSE(rmem_run_unload(&node.table, 0, false));
    EXPECT_EQ(ask(query_head(), {addr, 0, 0}).reply.status, RMEM_NO_OFFLOAD);
    EXPECT_EQ(last().answer.reply.status, RMEM_OK);
    EXPECT_TRUE(rmem_run_unload(&node.table, 0, false));
}

TEST_F(Run, CallsOfAnOffloadThatMustLeaveAreStopped) {
    ask(query_head(), {addr, 0, ~0ull});
    EXPECT_FALSE(rmem_run_unload(&node.table, 0, true));
    node.run_round(1);
    ASSERT_EQ(node.ended.size(), 1u);
    EXPECT_EQ(node.ended[0].answer.reply.status, RMEM_OVER_BUDGET);
    EXPECT_TRUE(rmem_run_unload(&node.table, 0, true));
}

int newer_step(rmem_call* call) {
    auto* result = static_cast<uint64_t*>(rmem_result(call, sizeof(uint64_t)));
    if (result)
        *result = 77;
    return 0;
}

TEST_F(Run, CallsUnderWayEndWithTheProgramThatBeganThem) {
    rmem_offload_ops newer = program;
    newer.step = newer_step;
    ask(query_head(), {addr, 0, 3});
    rmem_run_replace(&node.table, &program, &newer);
    EXPECT_TRUE(rmem_run_uses(&node.table, &program));
    ask(query_head(), {addr, 0, 3});
    finish();
    ASSERT_EQ(node.ended.size(), 2u);
    EXPECT_EQ(word(node.ended[0].result), 77u) << "the newer one needs fewer steps";
    EXPECT_EQ(word(node.ended[1].result), integer());
    EXPECT_FALSE(rmem_run_uses(&node.table, &program));
    EXPECT_FALSE(rmem_run_uses(&node.table, &newer));
}

TEST_F(Run, NewerProgramHasItsOwnBudgetUnlessTheOperatorGaveOne) {
    rmem_offload_ops newer = program;
    newer.budget_us = 77;
    rmem_run_replace(&node.table, &program, &newer);
    EXPECT_EQ(node.table.offload[0].budget_us, 77u);
    node.table.offload[0].operators_budget = true;
    rmem_run_replace(&node.table, &newer, &program);
    EXPECT_EQ(node.table.offload[0].budget_us, 77u);
}

// ---- sleep ----

TEST_F(Run, ParkedCallTakesNoTurnUntilItIsWoken) {
    node.locked_key = 7;
    ask(call_head(4), {addr, 7, 0});
    EXPECT_TRUE(node.run_round());
    EXPECT_FALSE(rmem_run_any(&node.table));
    EXPECT_FALSE(node.run_round());
    ask(call_head(4), {addr, 8, 0});
    finish();
    EXPECT_EQ(node.ended.size(), 1u) << "another call went on";
    node.locked_key = 0;
    rmem_run_wake(&node.table, node.parked);
    EXPECT_EQ(last().answer.reply.status, RMEM_OK);
    EXPECT_EQ(node.ended.size(), 2u);
}

TEST_F(Run, CallThatIsWokenInItsStepDoesNotSleep) {
    node.locked_key = 7;
    node.wakes_early = true;
    ask(call_head(4), {addr, 7, 0});
    EXPECT_TRUE(node.run_round());
    EXPECT_TRUE(rmem_run_any(&node.table));
    node.locked_key = 0;
    EXPECT_EQ(last().answer.reply.status, RMEM_OK);
}

TEST_F(Run, ParkedCallIsStoppedWithItsOffload) {
    node.locked_key = 7;
    ask(call_head(4), {addr, 7, 0});
    node.run_round();
    rmem_run_rouse(&node.table);
    EXPECT_FALSE(rmem_run_any(&node.table)) << "it sleeps on";
    EXPECT_FALSE(rmem_run_unload(&node.table, 0, true));
    rmem_run_rouse(&node.table);
    EXPECT_EQ(last().answer.reply.status, RMEM_OVER_BUDGET);
    EXPECT_TRUE(rmem_run_unload(&node.table, 0, true));
}

TEST_F(Run, HostWithoutLinksRefusesThemAndTheirPrograms) {
    ask(call_head(5), {addr, 0, 0});
    EXPECT_EQ(last().answer.reply.offset, unsigned{EOPNOTSUPP});
    rmem_offload_ops starts = program;
    starts.id = id + 1;
    starts.start = step;
    EXPECT_EQ(node.load(starts), RMEM_RUN_NO_START);
}

TEST_F(Run, TwoOffloadsOfOneIdShareNoCaller) {
    ASSERT_TRUE(node.add_space(2));
    ASSERT_TRUE(node.add_view(3, 1));
    EXPECT_EQ(node.load(program, 2, {3}), RMEM_RUN_EXISTS) << "a view of the other one's space";
    EXPECT_GE(node.load(program, 2), 0);
}

TEST_F(Run, OffloadGoesWithItsSpace) {
    ASSERT_TRUE(node.add_space(2));
    ASSERT_GE(node.load(program, 2), 0);
    EXPECT_EQ(rmem_run_dead(&node.table), RMEM_RUN_OFFLOADS);
    ASSERT_TRUE(node.remove_space(2));
    ASSERT_TRUE(node.add_space(4)); // in its place
    EXPECT_EQ(rmem_run_dead(&node.table), 1u);
    EXPECT_GE(node.load(program, 4), 0) << "the dead one is in nobody's way";
}

// ---- slices ----

TEST_F(Run, ProgramReachesItsSpaceAlone) {
    ask(query_head(), {addr + 8 * page, 0, 0});
    EXPECT_EQ(last().answer.reply.offset, unsigned{EFAULT});
    const uint64_t fixed = node.alloc(client, page, 0, RMEM_PERM_READ);
    ask(call_head(), {fixed, 5, 0});
    EXPECT_EQ(last().answer.reply.offset, unsigned{EACCES});
    ask(call_head(), {addr + page - 4, 5, 0});
    EXPECT_EQ(last().answer.reply.status, RMEM_OK) << "copies cross pages";
    ASSERT_TRUE(node.add_space(2));
    ASSERT_TRUE(rmem_run_unload(&node.table, 0, false));
    ASSERT_GE(node.load(program, 2, {1}), 0);
    ask(query_head(), {addr, 0, 0});
    EXPECT_EQ(last().answer.reply.offset, unsigned{EFAULT}) << "another space's addresses";
}

TEST_F(Run, WriteWaitsForAZeroedPage) {
    while (rmem_pool_ready(&node.core.pool)) {
        uint32_t taken;
        ASSERT_TRUE(rmem_pool_take(&node.core.pool, 0, 1, &taken));
    }
    ask(call_head(), {addr, 5, 0});
    EXPECT_TRUE(node.run_round());
    EXPECT_TRUE(node.ended.empty());
    node.refill();
    EXPECT_EQ(last().answer.reply.status, RMEM_OK);
}

// ---- the end of sessions ----

TEST_F(Run, RenewalWaitsForTheSessionsCalls) {
    const rmem_head h = call_head();
    ask(h, {addr, 5, 3});
    rmem_head open = client.open_head(200);
    open.session = client.session;
    client.open.integrity = client.integrity;
    rmem_node_call renewal = node.begin(client, open, &client.open);
    unsigned waits = 0;
    while (node.step(renewal)) {
        waits += renewal.waits;
        if (renewal.waits)
            node.run_round();
    }
    EXPECT_GE(waits, 3u);
    EXPECT_EQ(renewal.answer.reply.status, RMEM_OK);
    EXPECT_EQ(renewal.out.opened.renewed, 1);
    EXPECT_EQ(ask(h, {addr, 5, 0}).reply.status, RMEM_NO_SESSION);
    rmem_head again = h;
    again.session = renewal.answer.reply.session;
    EXPECT_EQ(ask(again, {addr, 5, 0}).reason, RMEM_NODE_REPEATED);
    client.session = again.session;
    EXPECT_EQ(integer(), 5u);
}

TEST_F(Run, CloseAndClearedSpaceWaitForCalls) {
    ask(call_head(), {addr, 5, 3});
    rmem_node_call close = node.begin(client, client.head(RMEM_CLOSE, 0, 0));
    EXPECT_TRUE(node.step(close));
    EXPECT_TRUE(close.waits);
    EXPECT_TRUE(node.ended.empty());
    node.run(close);
    EXPECT_EQ(node.ended.size(), 1u);
    EXPECT_EQ(close.answer.reply.status, RMEM_OK);
    ASSERT_EQ(node.open(client, 300).reply.status, RMEM_OK);
    client.next_id = client.floor = 1;
    ask(call_head(), {addr, 5, 3});
    EXPECT_TRUE(node.remove_space(1));
    EXPECT_EQ(node.ended.size(), 2u);
}

// A client that asks for calls all the time can't keep others from ending its session.
TEST_F(Run, SessionDrainsBeforeItEnds) {
    ask(call_head(), {addr, 5, 40});
    rmem_node_call close = node.begin(client, client.head(RMEM_CLOSE, 0, 0));
    unsigned waits = 0;
    while (node.step(close)) {
        waits += close.waits;
        EXPECT_EQ(ask(query_head(), {addr, 0, 40}).reply.status, RMEM_BUSY);
        if (close.waits)
            node.run_round();
    }
    EXPECT_EQ(waits, RMEM_CALL_AWAITS);
    EXPECT_EQ(close.answer.action, RMEM_ACT_DROP) << "others want the call lock, too";
    finish();
    EXPECT_EQ(ask(query_head(), {addr, 0, 0}).reply.status, RMEM_BUSY);
    rmem_node_call again = node.begin(client, client.head(RMEM_CLOSE, 0, 0));
    EXPECT_EQ(node.run(again).reply.status, RMEM_OK);
    ASSERT_EQ(node.open(client, 300).reply.status, RMEM_OK);
    client.next_id = client.floor = 1;
    EXPECT_EQ(ask(query_head(), {addr, 0, 0}).action, RMEM_ACT_RUN);
}

TEST_F(Run, DrainedSessionAdmitsCallsAfterAWhile) {
    ask(call_head(), {addr, 5, 40});
    rmem_node_call close = node.begin(client, client.head(RMEM_CLOSE, 0, 0));
    while (node.step(close)) {
    }
    EXPECT_EQ(ask(query_head(), {addr, 0, 0}).reply.status, RMEM_BUSY);
    node.now_ns += RMEM_SESSION_DRAIN_NS;
    EXPECT_EQ(ask(query_head(), {addr, 0, 0}).action, RMEM_ACT_RUN);
}

TEST_F(Run, ClearedSpaceStopsItsCalls) {
    ask(call_head(), {addr, 5, ~0ull});
    ask(query_head(), {addr, 0, ~0ull});
    rmem_node_call clear;
    ASSERT_TRUE(rmem_node_call_clear(&node.core, &clear, 1));
    unsigned rounds = 0;
    while (node.step(clear)) {
        if (!clear.waits)
            continue;
        EXPECT_EQ(ask(query_head(), {addr, 0, ~0ull}).reply.status, RMEM_BUSY);
        rounds += node.run_round(1);
    }
    EXPECT_EQ(rounds, 1u);
    EXPECT_EQ(node.ended.size(), 2u);
    EXPECT_FALSE(rmem_run_any(&node.table));
}

TEST_F(Run, SessionWithACallIsNotEvicted) {
    ask(query_head(), {addr, 0, 3});
    node.now_ns += 10 * BASE_NSEC_PER_SEC;
    std::vector<Client> others;
    for (uint8_t n = 2; n < 6; n++) {
        others.emplace_back(n);
        node.open(others.back(), 100);
        node.now_ns += 10 * BASE_NSEC_PER_SEC;
    }
    EXPECT_EQ(last().answer.reply.status, RMEM_OK);
    EXPECT_EQ(node.read(client, addr, 8).size(), 8u) << "the session is there";
}

TEST_F(Run, FenceWaitsForCallsBegunBeforeAlone) {
    ask(call_head(), {addr, 5, 3});
    rmem_node_call fence = node.begin(client, client.head(RMEM_FENCE, 0, 0));
    while (node.step(fence) && !fence.waits) {
    }
    ASSERT_TRUE(fence.waits);
    ask(query_head(), {addr, 0, 40});
    while (node.step(fence)) {
        if (fence.waits)
            node.run_round();
    }
    EXPECT_EQ(fence.answer.reply.status, RMEM_OK);
    EXPECT_EQ(node.ended.size(), 1u) << "the later one runs still";
    EXPECT_TRUE(node.run_round());
}

// FENCEs that come again and again while calls begin all the time: each waits for those that had
// begun when it first came.
TEST_F(Run, FenceEndsHoweverManyCallsBegin) {
    ask(call_head(), {addr, 5, 60});
    const rmem_head h = client.head(RMEM_FENCE, 0, 0);
    unsigned tries = 0;
    rmem_answer answer;
    do {
        rmem_node_call fence = node.begin(client, h);
        while (node.step(fence)) {
            ask(query_head(), {addr, 0, 90});
            if (fence.waits)
                node.run_round(1);
        }
        answer = fence.answer;
        tries++;
    } while (answer.action == RMEM_ACT_DROP && tries < 100);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_GT(tries, 1u);
    EXPECT_EQ(integer(), 5u);
    EXPECT_TRUE(rmem_run_any(&node.table)) << "later calls run still";
    finish();
}

TEST_F(Run, FenceOfAnotherSessionWaitsToo) {
    Client other(2);
    ASSERT_EQ(node.open(other, 200).reply.status, RMEM_OK);
    ask(call_head(), {addr, 5, 3});
    rmem_node_call fence = node.begin(other, other.head(RMEM_FENCE, 0, 0));
    unsigned waits = 0;
    while (node.step(fence)) {
        if (fence.waits)
            waits += node.run_round();
    }
    EXPECT_GE(waits, 3u);
    EXPECT_EQ(fence.answer.reply.status, RMEM_OK);
    EXPECT_EQ(node.ended.size(), 1u);
}

// The later of two FENCEs of a session doesn't have the earlier one wait for more.
TEST_F(Run, FencesOfASessionWaitOneAfterTheOther) {
    ask(call_head(), {addr, 5, 40});
    const rmem_head first = client.head(RMEM_FENCE, 0, 0);
    const rmem_head second = client.head(RMEM_FENCE, 0, 0);
    auto is_answered = [&](const rmem_head& h) {
        rmem_node_call fence = node.begin(client, h);
        while (node.step(fence)) {
        }
        return fence.answer.action == RMEM_ACT_REPLY;
    };
    EXPECT_FALSE(is_answered(first));
    ask(query_head(), {addr, 0, ~0ull});
    EXPECT_FALSE(is_answered(second));
    while (node.ended.empty())
        node.run_round(1);
    EXPECT_TRUE(is_answered(first));
    EXPECT_FALSE(is_answered(second)) << "the query had begun before it";
    finish();
    EXPECT_TRUE(is_answered(second));
}

// ---- turns and budgets ----

TEST_F(Run, OperatorsBudgetCounts) {
    ASSERT_TRUE(rmem_run_unload(&node.table, 0, false));
    EXPECT_EQ(node.load(program, 1, {}, RMEM_BUDGET_US_MAX + 1), RMEM_RUN_INVALID);
    ASSERT_GE(node.load(program, 1, {}, 3), 0);
    ask(query_head(), {addr, 0, ~0ull});
    unsigned rounds = 0;
    while (node.run_round(1000))
        rounds++;
    EXPECT_EQ(rounds, 4u);
}

TEST_F(Run, CallThatFindsNoPageFailsInTheEnd) {
    while (rmem_pool_ready(&node.core.pool)) {
        uint32_t taken;
        ASSERT_TRUE(rmem_pool_take(&node.core.pool, 0, 1, &taken));
    }
    ask(call_head(), {addr, 5, 0});
    unsigned rounds = 0;
    while (node.run_round(1'000'000))
        rounds++;
    EXPECT_EQ(rounds, 21u) << "20 ms, though the budget is 10 us";
    EXPECT_EQ(last().answer.reply.status, RMEM_FAILED);
    EXPECT_EQ(last().answer.reply.offset, unsigned{ENOMEM});
}

TEST_F(Run, SpaceIsChargedForItsClientsCalls) {
    const rmem_space* space = rmem_spaces_find(&node.core.spaces, 1);
    ask(query_head(), {addr, 0, 3});
    finish();
    EXPECT_EQ(space->calls_ns, 400u) << "four steps of 100 ns";
}

TEST_F(Run, EndlessCallIsStopped) {
    const rmem_head h = call_head();
    ask(h, {addr, 5, ~0ull});
    unsigned rounds = 0;
    while (node.run_round(1000))
        rounds++;
    EXPECT_EQ(rounds, 11u) << "a budget of 10 us";
    rmem_answer answer = node.ended.back().answer;
    EXPECT_EQ(answer.reply.status, RMEM_OVER_BUDGET);
    EXPECT_EQ(answer.reply.offset, 11u);
    EXPECT_EQ(ask(h, {addr, 5, 0}).reply.status, RMEM_OVER_BUDGET);
    EXPECT_EQ(node.table.offload[0].over_budget, 1u);
    EXPECT_EQ(node.table.offload[0].used_ns, 11'000u);
}

class Shared : public Run {
protected:
    Shared() {
        EXPECT_TRUE(node.add_space(2));
        EXPECT_EQ(node.open(modest, 200).reply.status, RMEM_OK);
        rmem_offload_ops patient = program;
        patient.budget_us = RMEM_BUDGET_US_MAX;
        long_budget = patient;
        EXPECT_TRUE(rmem_run_unload(&node.table, 0, false));
        EXPECT_GE(node.load(long_budget, 1, {2}), 0);
    }
    // As many calls as the node takes.
    unsigned fill(uint64_t steps) {
        unsigned calls = 0;
        while (ask(query_head(), {addr, 0, steps}).action == RMEM_ACT_RUN)
            calls++;
        return calls;
    }
    rmem_offload_ops long_budget;
    Client modest{2, 2};
};

TEST_F(Shared, GreedySpaceLeavesRoomForOthers) {
    const unsigned greedy = fill(1000);
    EXPECT_LT(greedy, RMEM_RUN_CALLS);
    EXPECT_GE(greedy, RMEM_RUN_CALLS / 2);
    EXPECT_EQ(ask(modest, head(modest, RMEM_QUERY, 0), {addr, 0, 0}).action, RMEM_ACT_RUN);
}

TEST_F(Shared, SpacesTakeTurnsByTime) {
    fill(~0ull);
    ask(modest, head(modest, RMEM_QUERY, 0), {addr, 0, 3});
    // Steps of a microsecond, 16 in a round: of the greedy space's turns two rounds each.
    unsigned rounds = 0;
    while (node.ended.empty() && rounds < 100) {
        node.run_round(1000);
        rounds++;
    }
    EXPECT_LE(rounds, 8u) << "four steps of its own, in one turn after the other space's";
    EXPECT_EQ(node.ended.size(), 1u);
}

} // namespace
