// SPDX-License-Identifier: GPL-2.0
// A command under way, and what several protocols' commands do.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remora-kv/connection.hpp"
#include "remora-kv/worker.hpp"

namespace remora::kv {

// A wait for memory, that ends with true; false: the client has gone.
//
// For a large value, only a connection's first command exceeds the connection's share. The client
// takes its answer part by part, so it holds no other value. So commands that hold large
// values wait for clients alone, never for each other's memory.
struct Room {
    Flight& flight;
    std::size_t bytes;
    bool large;
    std::coroutine_handle<> waiter;

    bool await_ready() const;
    void await_suspend(std::coroutine_handle<> who);
    bool await_resume() const;
};

// A command under way keeps its connection, even if the client has gone.
class Flight {
public:
    // No keys: all of them. bytes: of values that the command holds.
    Flight(const std::shared_ptr<Connection>& connection, std::span<const std::string> keys,
           bool writes, std::size_t bytes = 0);
    ~Flight();
    Flight(const Flight&) = delete;

    Table& table() const { return connection_->table(); }
    Table::Asker& asker() const { return connection_->asker_; }
    Worker& worker() const { return connection_->worker(); }

    // Before values are read: so many bytes, in place of those of before.
    Room room(std::size_t bytes, bool large) { return {*this, bytes, large, {}}; }
    // Adds to the answer.
    void more(std::string_view text);
    // Adds the last part, perhaps none.
    void end(std::string_view text);

    // Items of the keys, in their order: each() gets them one by one, with the answer to add to.
    // 0, or a negative errno at the first item that couldn't be read.
    using Each = std::function<void(std::size_t, const Item&, std::string&)>;
    Task<int> read(std::vector<std::string> keys, bool values, Each each);
    // One item, with its value if it shall.
    Task<Item> get(std::string key, bool value);
    // The same, and sets the expiry of just this item.
    Task<Item> get_and_touch(std::string key, std::uint32_t expiry_s, bool value);
    // KV_SET of a value of any size, in any mode.
    Task<Changed> store(Change what);

private:
    friend struct Room;
    friend Connection;
    void reserve(std::size_t bytes);
    Task<Changed> join(Change what);

    std::shared_ptr<Connection> connection_;
    std::vector<std::size_t> hashes_;
    bool writes_;
    std::size_t bytes_, reserved_ = 0;
    Reply& reply_;
};

using Counter = std::atomic<std::uint64_t> Counts::*;

// A change of a key, whose outcome is the whole answer. counter: counts it, or NULL.
Detached run_change(std::shared_ptr<Connection> connection, kv_function function, Change what,
                    Counter counter, std::function<std::string(const Changed&)> text);
Detached run_flush(std::shared_ptr<Connection> connection,
                   std::function<std::string(const Changed&)> text);

} // namespace remora::kv
