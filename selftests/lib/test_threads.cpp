// SPDX-License-Identifier: GPL-2.0
// What a thread has of its own to send from and receive into: it may get no memory for it, and it
// may end before its handles do.
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <pthread.h>

#include "async.hpp"
#include "backend.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace {

thread_local bool is_poor = false;

} // namespace

// Only what is aligned to lines of the cache is asked for in this way.
void* operator new(std::size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
    return is_poor ? nullptr : ::operator new(bytes, align);
}

namespace remora::test {

namespace {

// The calling thread gets no memory, as long as this lives.
class Poor {
public:
    Poor() { is_poor = true; }
    ~Poor() { is_poor = false; }
};

remote_t* open_one(std::uint16_t port) {
    remote_t* r = nullptr;
    EXPECT_EQ(remote_open(&r, udp_target(port).c_str(), nullptr), 0) << remote_why();
    return r;
}

TEST(Threads, WithoutMemoryOperationsStillSucceed) {
    TestNode node;
    std::thread([&] {
        Poor poor;
        remote_t* r = open_one(node.port());
        raddr_t a = 0;
        ASSERT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &a), 0);
        std::vector<std::uint8_t> data(1 << 20, 7), back(1 << 20);
        AsyncOp op;
        EXPECT_EQ(write_async(r, a, data.data(), data.size(), &op), 0);
        EXPECT_EQ(rread(r, a, back.data(), back.size()), 0);
        EXPECT_EQ(poll_all(r, &op, 1, 20'000'000), 0);
        EXPECT_EQ(back, data);
        remote_close(r);
    }).join();
}

// Each receives for both, by turns.
TEST(Threads, WithoutMemoryAndWithShareAHandle) {
    TestNode node;
    remote_t* r = open_one(node.port());
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 16, REMOTE_RW, &a), 0);
    auto count = [&](raddr_t at, bool poor) {
        std::unique_ptr<Poor> one(poor ? new Poor : nullptr);
        for (std::uint64_t i = 0; i < 500; i++) {
            std::uint64_t found = 0;
            ASSERT_EQ(remote_fetch(r, at, 8, REMOTE_ADD, 1, &found), 0);
            ASSERT_EQ(found, i);
        }
    };
    std::thread one(count, a, true), two(count, a + 8, false);
    one.join();
    two.join();
    remote_close(r);
}

// By a key's destructor, so when what objects the thread has are gone.
TEST(Threads, CloseTheirHandlesAsTheyEnd) {
    TestNode node;
    pthread_key_t key;
    ASSERT_EQ(pthread_key_create(&key, [](void* r) { remote_close(static_cast<remote_t*>(r)); }),
              0);
    std::thread([&] { pthread_setspecific(key, open_one(node.port())); }).join();
    pthread_key_delete(key);
#ifdef __SANITIZE_ADDRESS__
    EXPECT_EQ(__lsan_do_recoverable_leak_check(), 0);
#endif
}

} // namespace

} // namespace remora::test
