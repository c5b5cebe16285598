// SPDX-License-Identifier: GPL-2.0
// The node as its callers run it: requests on several CPUs under slot locks, one slow thread that
// allocates, frees and scrubs. For ThreadSanitizer; and no tenant ever sees another one's bytes.
//
//      fast 0 --.                    .-- slot lock per session
//      fast 1 ---+-- request, copy --+
//      fast 2 --'                    '-- epoch odd while in here: what a grace period waits for
//
//      slow -- slow lock: FREE, ALLOC, a step at a time; take dirty pages, wait for the epochs,
//              zero, give back
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "../../core.hpp"
#include "node_rig.hpp"

namespace {

constexpr uint32_t tenants = 3;
constexpr uint32_t fast_threads = 3;
constexpr uint32_t region_pages = 8;
constexpr uint32_t unit = 1024; // bytes of a request
constexpr uint64_t page = 1ull << RMEM_PAGE_SHIFT_MIN;

// How page bytes are touched: plainly, so that ThreadSanitizer judges who may when, or word by
// word if two sessions write the same page, as their owner's programs might.
struct Plain {
    static void fill(uint8_t* at, uint32_t bytes, uint8_t mark) { std::memset(at, mark, bytes); }
    static bool holds(const uint8_t* at, uint32_t bytes, uint8_t mark) {
        for (uint32_t n = 0; n < bytes; n++)
            if (at[n] && at[n] != mark)
                return false;
        return true;
    }
};

struct Words {
    static std::atomic_ref<uint64_t> word(const uint8_t* at, uint32_t n) {
        return std::atomic_ref<uint64_t>(
            *reinterpret_cast<uint64_t*>(const_cast<uint8_t*>(at) + n));
    }
    static void fill(uint8_t* at, uint32_t bytes, uint8_t mark) {
        for (uint32_t n = 0; n < bytes; n += 8)
            word(at, n).store(mark * 0x0101010101010101ull, std::memory_order_relaxed);
    }
    static bool holds(const uint8_t* at, uint32_t bytes, uint8_t mark) {
        for (uint32_t n = 0; n < bytes; n += 8) {
            uint64_t value = word(at, n).load(std::memory_order_relaxed);
            if (value && value != mark * 0x0101010101010101ull)
                return false;
        }
        return true;
    }
};

template <typename Access>
class Machine {
public:
    explicit Machine(uint32_t sessions_per_tenant) : per_tenant(sessions_per_tenant) {
        rmem_node_config config = rig::small_config();
        config.pages = tenants * region_pages + 4; // few: pages and entries change hands often
        config.pool_pages = 8;
        config.sessions_max = tenants * per_tenant;
        config.window_ids = 64;
        config.step_pages = 3;
        state.reset(static_cast<uint8_t*>(std::aligned_alloc(64, rmem_node_state_bytes(&config))));
        memory.reset(static_cast<uint8_t*>(std::aligned_alloc(64, config.pages * page)));
        std::memset(memory.get(), rig::garbage, config.pages * page);
        rmem_node_init(&node, &config, state.get());
        for (uint32_t t = 0; t < tenants; t++)
            rmem_node_space_add(&node, t + 1, rig::key_bytes, 0);
        for (uint32_t n = 0; n < tenants * per_tenant; n++)
            clients.emplace_back(open(n));
    }

    void run(uint32_t requests) {
        std::vector<std::thread> threads;
        std::atomic<uint32_t> running{fast_threads};
        for (uint32_t n = 0; n < fast_threads; n++)
            threads.emplace_back([this, n, requests, &running] {
                fast(n, requests);
                running--;
            });
        std::mt19937 random(99);
        while (running.load()) {
            uint32_t tenant = random() % tenants;
            if (random() % 4 == 0)
                move_region(tenant);
            scrub(random() % 4 == 0);
        }
        for (std::thread& thread : threads)
            thread.join();
    }

    // Nothing is lost, once everything is given back.
    void finish() {
        for (uint32_t t = 0; t < tenants; t++)
            if (region[t].load())
                give_back(t);
        struct rmem_node_usage usage;
        rmem_node_usage(&node, &usage);
        EXPECT_EQ(usage.pages_promised, 0u);
        EXPECT_EQ(usage.pages_backed, 0u);
        EXPECT_FALSE(foreign.load());
        EXPECT_GT(written.load(), 0u);
        EXPECT_GT(read.load(), 0u);
    }

    std::atomic<bool> foreign{false};
    std::atomic<uint64_t> written{0}, read{0};

private:
    rig::Client open(uint32_t n) {
        rig::Client client(n + 1, n % tenants + 1);
        rmem_head h{};
        h.type = RMEM_OPEN;
        h.space = client.space;
        h.id = 1;
        h.len = sizeof(rmem_open);
        rmem_node_call call;
        call_run(call, client, h, &client.open);
        client.session = call.answer.reply.session;
        client.boot = call.answer.reply.boot;
        return client;
    }

    std::mutex& lock_of(const rig::Client& client) {
        return slot_lock[rmem_node_slot(&node, client.session)];
    }

    // One thread calls, so it is as good as a call lock.
    void call_run(rmem_node_call& call, const rig::Client& client, const rmem_head& h,
                  const void* payload) {
        rmem_node_call_begin(&node, &call, 1, &h, &client.peer, payload);
        for (bool more = true; more;) {
            std::lock_guard slow(slow_lock);
            std::unique_lock<std::mutex> slot;
            if (call.slot >= 0)
                slot = std::unique_lock(slot_lock[call.slot]);
            more = rmem_node_call_step(&node, &call);
        }
    }

    // One call of a tenant; its session's other requests tell no floor beyond it until it ended.
    rmem_node_reason call_of(uint32_t tenant, uint8_t type, const void* payload, uint32_t bytes,
                             rmem_node_call& call) {
        rig::Client& client = clients[tenant];
        rmem_head h;
        {
            std::lock_guard slot(lock_of(client));
            client.floor = client.next_id;
            h = client.head(type, 0, bytes);
            calling[tenant] = true;
        }
        call_run(call, client, h, payload);
        std::lock_guard slot(lock_of(client));
        calling[tenant] = false;
        return call.answer.reason;
    }

    uint8_t* at(const rmem_extent& e) { return memory.get() + e.page * page + e.offset; }

    void check(const rmem_extent& e, uint8_t mark) {
        if (e.page != RMEM_PAGE_NONE && !Access::holds(at(e), e.bytes, mark))
            foreign = true;
    }

    void fast(uint32_t self, uint32_t requests) {
        std::mt19937 random(self);
        for (uint32_t n = 0; n < requests; n++) {
            size_t index = random() % clients.size();
            rig::Client& client = clients[index];
            uint64_t base = region[client.space - 1].load(std::memory_order_relaxed);
            std::lock_guard slot(lock_of(client));
            epoch[self].fetch_add(1); // a grace period that didn't see this is over for us
            one_request(client, index < tenants && calling[index], base, random);
            epoch[self].fetch_add(1);
        }
    }

    static uint64_t somewhere(uint64_t base, std::mt19937& random) {
        return base + random() % region_pages * page + random() % (page / unit) * unit;
    }

    // Pages may go between its check and each of its ranges.
    void vector_request(rig::Client& client, uint8_t type, uint64_t base, std::mt19937& random) {
        constexpr uint8_t ranges = 3;
        const uint8_t mark = client.space;
        uint8_t payload[ranges * sizeof(rmem_range)];
        for (uint32_t n = 0; n < ranges; n++) {
            base_store_le64(payload + n * sizeof(rmem_range), somewhere(base, random));
            base_store_le64(payload + n * sizeof(rmem_range) + 8, unit);
        }
        rmem_head h = client.head(type, 0, ranges * unit);
        h.op = ranges;
        rmem_answer answer;
        rmem_node_request(&node, 1, &h, payload, &client.peer, &answer);
        if (answer.action != RMEM_ACT_GATHER && answer.action != RMEM_ACT_SCATTER)
            return;
        for (uint32_t n = 0; n < ranges; n++) {
            rmem_node_range(&node, payload, n, &answer);
            const rmem_extent& e = answer.extent[0];
            check(e, mark);
            if (type == RMEM_WRITEV && e.page != RMEM_PAGE_NONE)
                Access::fill(at(e), unit, mark);
        }
        if (type == RMEM_WRITEV)
            rmem_node_done(&answer);
        (type == RMEM_WRITEV ? written : read)++;
    }

    void copy_request(rig::Client& client, uint64_t base, std::mt19937& random) {
        const uint8_t mark = client.space;
        const rmem_copy payload = wire::copy_of(somewhere(base, random));
        rmem_head h = client.head(RMEM_COPY, somewhere(base, random), unit);
        rmem_answer answer;
        rmem_node_request(&node, 1, &h, &payload, &client.peer, &answer);
        if (answer.action != RMEM_ACT_COPY)
            return;
        rmem_extent to, from;
        while (rmem_node_stretch(&answer, &to, &from)) {
            check(from, mark);
            check(to, mark);
            Access::fill(at(to), to.bytes, mark);
        }
        rmem_node_done(&answer);
        written++;
    }

    void one_request(rig::Client& client, bool is_calling, uint64_t base, std::mt19937& random) {
        static const uint8_t types[] = {RMEM_READ,  RMEM_READ,   RMEM_WRITE,
                                        RMEM_WRITE, RMEM_WRITE,  RMEM_DISCARD,
                                        RMEM_READV, RMEM_WRITEV, RMEM_COPY};
        const uint8_t mark = client.space;
        uint8_t type = types[random() % std::size(types)];
        uint64_t addr =
            type == RMEM_DISCARD ? base + random() % region_pages * page : somewhere(base, random);
        if (!is_calling)
            client.floor = client.next_id;
        if (rmem_type_has_ranges(type))
            return vector_request(client, type, base, random);
        if (type == RMEM_COPY)
            return copy_request(client, base, random);
        rmem_head h = client.head(type, addr, type == RMEM_DISCARD ? page : unit);
        rmem_answer answer;
        rmem_node_request(&node, 1, &h, nullptr, &client.peer, &answer);
        if (answer.action == RMEM_ACT_COPY_IN) {
            check(answer.extent[0], mark);
            Access::fill(at(answer.extent[0]), unit, mark);
            written++;
        }
        if (answer.action == RMEM_ACT_COPY_IN || answer.action == RMEM_ACT_FILL)
            rmem_node_done(&answer);
        if (answer.action == RMEM_ACT_SEND_OUT) {
            rmem_node_read_part(&node, &h, 0, &answer);
            if (!answer.extents)
                return; // freed meanwhile
            check(answer.extent[0], mark);
            read++;
        }
    }

    void give_back(uint32_t tenant) {
        rmem_range range{};
        rmem_node_call call;
        base_store_le64(&range.addr, region[tenant].load());
        base_store_le64(&range.bytes, region_pages * page);
        EXPECT_EQ(call_of(tenant, RMEM_FREE, &range, sizeof(range), call), RMEM_NODE_OK);
    }

    void move_region(uint32_t tenant) {
        rmem_alloc wanted{};
        rmem_node_call call;
        if (region[tenant].load())
            give_back(tenant);
        base_store_le64(&wanted.bytes, region_pages * page);
        base_store_le32(&wanted.perm, RMEM_PERM_READ | RMEM_PERM_WRITE);
        EXPECT_EQ(call_of(tenant, RMEM_ALLOC, &wanted, sizeof(wanted), call), RMEM_NODE_OK);
        region[tenant] = base_load_le64(&call.out.range.addr);
    }

    // Every request that was under way at the call has ended.
    void grace_period() {
        for (std::atomic<uint64_t>& each : epoch) {
            uint64_t seen = each.fetch_add(0);
            while (seen % 2 && each.load() == seen)
                std::this_thread::yield();
        }
    }

    void scrub(bool still_referred_to) {
        std::vector<uint32_t> batch;
        bool used, any_used = false;
        {
            std::lock_guard slow(slow_lock);
            for (uint32_t p; (p = rmem_node_scrub_next(&node, &used)) != RMEM_PAGE_NONE;) {
                any_used |= used;
                batch.push_back(p);
            }
        }
        if (any_used)
            grace_period();
        for (uint32_t p : batch) {
            bool later = any_used && still_referred_to;
            if (!later)
                Access::fill(at({p, 0, 0}), page, 0);
            std::lock_guard slow(slow_lock);
            if (later)
                rmem_node_scrub_later(&node, p);
            else
                rmem_node_scrub_done(&node, p);
        }
    }

    struct Free {
        void operator()(uint8_t* p) const { std::free(p); }
    };

    uint32_t per_tenant;
    std::unique_ptr<uint8_t, Free> state, memory;
    rmem_node node;
    std::vector<rig::Client> clients; // each under its slot's lock
    std::mutex slow_lock, slot_lock[2 * tenants];
    std::atomic<uint64_t> epoch[fast_threads] = {};
    std::atomic<uint64_t> region[tenants] = {};
    bool calling[tenants] = {}; // the tenant's first client; under its slot's lock
};

TEST(TsanNode, TenantsOnOneNode) {
    Machine<Plain> machine(1);
    machine.run(20000);
    machine.finish();
}

// Two sessions of a tenant meet on its pages: first touches race one another and FREE.
TEST(TsanNode, TwoSessionsPerTenant) {
    Machine<Words> machine(2);
    machine.run(20000);
    machine.finish();
}

// Data is written plainly, without a lock that its reader has, too: the integer alone must order
// the two.
TEST(TsanNode, PutsReleaseTheirData) {
    constexpr uint64_t rounds = 3000;
    rig::Node node;
    rig::Client client;
    ASSERT_TRUE(node.add_space(1));
    ASSERT_EQ(node.open(client, 100).reply.status, RMEM_OK);
    uint64_t addr = node.alloc(client, 2 * page);
    node.refill();
    node.write(client, addr, {0});
    node.write(client, addr + page, {0});
    auto place_of = [&](uint64_t at) {
        rmem_answer answer;
        EXPECT_EQ(rmem_node_access(&node.core, 0, RMEM_READ, at, 8, &answer), RMEM_NODE_OK);
        return node.at(answer.extent[0]);
    };
    const uint8_t* data = place_of(addr);
    auto& integer = *reinterpret_cast<uint64_t*>(place_of(addr + page));
    std::atomic_ref<uint64_t> made(integer);
    std::atomic<uint64_t> used{0};
    bool whole = true;
    std::thread reader([&] {
        for (uint64_t i = 1; i <= rounds; i++) {
            while (made.load(std::memory_order_acquire) < i)
                std::this_thread::yield();
            for (uint32_t n = 0; n < 100; n++)
                whole &= data[n] == uint8_t(i);
            used.store(i, std::memory_order_release);
        }
    });
    for (uint64_t i = 1; i <= rounds; i++) {
        std::vector<uint8_t> payload(sizeof(rmem_put) + 100, uint8_t(i));
        base_store_le64(payload.data(), addr + page);
        base_store_le64(payload.data() + offsetof(rmem_put, value), 1);
        base_store_le32(payload.data() + offsetof(rmem_put, bytes), 8);
        base_store_le32(payload.data() + offsetof(rmem_put, reserved), 0);
        client.floor = client.next_id;
        rmem_head head = client.head(RMEM_PUT, addr, 100);
        ASSERT_EQ(node.request(client, head, &payload).reason, RMEM_NODE_OK);
        while (used.load(std::memory_order_acquire) < i)
            std::this_thread::yield();
    }
    reader.join();
    EXPECT_TRUE(whole);
}

TEST(TsanRing, ManyProducersManyConsumers) {
    constexpr uint32_t threads = 2, each = 20000;
    std::vector<base_ring_cell> cells(16);
    std::vector<uint32_t> payload(threads * each), taken(threads * each);
    std::atomic<uint32_t> left{threads * each};
    base_ring ring;
    base_ring_init(&ring, cells.data(), cells.size());
    auto produce = [&](uint32_t self) {
        for (uint32_t n = self * each; n < (self + 1) * each; n++) {
            payload[n] = ~n;
            while (!base_ring_push(&ring, n))
                std::this_thread::yield();
        }
    };
    auto consume = [&] {
        while (left.load()) {
            uint32_t n;
            if (!base_ring_pop(&ring, &n)) {
                std::this_thread::yield();
                continue;
            }
            EXPECT_EQ(payload[n], ~n);
            taken[n]++;
            left--;
        }
    };
    std::vector<std::thread> all;
    for (uint32_t n = 0; n < threads; n++) {
        all.emplace_back(produce, n);
        all.emplace_back(consume);
    }
    for (std::thread& thread : all)
        thread.join();
    for (uint32_t count : taken)
        ASSERT_EQ(count, 1u);
}

} // namespace
