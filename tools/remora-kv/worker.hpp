// SPDX-License-Identifier: GPL-2.0
// A thread: its connections, and its client of the table.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "remora-kv/budget.hpp"
#include "remora-kv/connection.hpp"

namespace remora::kv {

// Counters of a thread, which all threads read.
struct Counts {
    std::atomic<std::uint64_t> gets{0}, hits{0}, sets{0}, deletes{0}, touches{0}, flushes{0},
        accepted{0}, open{0};
    static void add(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) {
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
};

struct Shared {
    std::vector<std::unique_ptr<Counts>> counts; // by thread
    std::size_t buffers_bytes = 0;               // of all threads
    std::uint32_t started_s = 0, connections_max = 0, threads = 0;
    int stop_fd = -1; // readable: end
    std::uint64_t sum(std::atomic<std::uint64_t> Counts::*which) const {
        std::uint64_t total = 0;
        for (const auto& each : counts)
            total += ((*each).*which).load(std::memory_order_relaxed);
        return total;
    }
};

struct Worker {
    Worker(Shared& all, Counts& mine, const std::string& target, const Place& place,
           int listener_fd);
    // Until the stop descriptor is readable. Throws Failure if the table is lost.
    void run();
    // The connection's commands might go on.
    void wake(const std::shared_ptr<Connection>& connection) {
        if (!std::exchange(connection->is_awake, true))
            awake.push_back(connection);
    }

    Shared& shared;
    Counts& counts;
    Table table;
    Budget budget;
    std::vector<std::shared_ptr<Connection>> paused; // waiting for the budget
    std::array<char, 65536> buffer;                  // a connection reads into it

private:
    void watch(int fd, std::uint32_t events, bool again);
    void watch_connection(Connection& connection);
    void accept_all();
    void advance_all();
    void end(const std::shared_ptr<Connection>& connection);
    void resume_paused();
    void end_stalled();
    void watch_queue(std::uint64_t& next_us);

    int listener;
    std::uint32_t looked_s = 0; // for stalled connections
    std::uint32_t paused_s = 0; // not listened to since then, for want of descriptors
    Descriptor poll;
    int queue_fd = -1;
    std::unordered_map<int, std::shared_ptr<Connection>> connections; // by descriptor
    std::vector<std::shared_ptr<Connection>> awake;
};

} // namespace remora::kv
