// SPDX-License-Identifier: GPL-2.0
/*
 * A client of the offload kv (offloads/kv/kv.h), for one thread. Its operations are coroutines.
 *
 *   look_up() ─> keys of all connections ─ submit(): up to 64 in a QUERY ─> node ─ reap() ─> the
 * waiters go on store(), change() ─> a CALL each ────────────────────────────────────────┘
 */
#pragma once

#include <array>
#include <coroutine>
#include <cstdint>
#include <ctime>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <remote/queue.h>
#include <remote/remote.hpp>

#include "offloads/kv/kv.h"
#include "remora-kv/task.hpp"
#include "remora-kv/turns.hpp"

namespace remora::kv {

struct Settings {
    std::string target, name;
    std::uint64_t memory_bytes, item_bytes;
    bool cache;
};

// Where the table is; whichever process comes first makes it. Throws Failure.
struct Place {
    raddr_t address;
    bool cache;
};
remote::handle open_node(const std::string& target);
Place find_table(const Settings& settings);

// Answer for a key.
struct Item {
    int error = 0; // negative errno: the node couldn't be asked
    bool found = false, seen = false;
    std::uint64_t version = 0;
    std::uint32_t flags = 0, expiry_s = 0, value_bytes = 0;
    std::string value;
    raddr_t elsewhere = 0; // the value isn't here: fetch() reads it from this item
};

// The end of a change.
struct Changed {
    int error = 0; // negative errno, and then the rest means nothing
    kv_status status = KV_OK;
    std::uint64_t version = 0, number = 0;
};

struct Change {
    std::string key;
    std::string value; // KV_SET
    std::uint32_t flags = 0, expiry_s = 0;
    std::uint64_t version = 0;
    kv_mode mode = KV_MODE_SET;
    std::uint64_t number = 0;           // KV_ADD: addend
    std::optional<std::uint64_t> first; // KV_ADD: number of a new item
    // The change can share a CALL with others; the version is then unknown.
    bool shared = false;
};

class Table {
    struct Lookup;
    struct Set;
    struct Key {
        Lookup* lookup;
        std::size_t index;
    };

public:
    // A user of the table, whose keys and changes take turns with others'.
    struct Asker {
        std::deque<Key> keys;  // to be asked for
        std::deque<Set*> sets; // to be stored
    };

    // Throws Failure.
    Table(const std::string& target, const Place& place);
    ~Table();
    Table(const Table&) = delete;

    // All keys together, up to KV_KEYS_MAX.
    Task<std::vector<Item>> look_up(Asker& asker, std::vector<std::string> keys);
    // The item with the value that is elsewhere, or as it is by now.
    Task<Item> fetch(Asker& asker, std::string key, Item item);
    // KV_SET of a value of any size. Appending and prepending: KV_TOO_LARGE, if the node can't.
    Task<Changed> store(Asker& asker, Change what);
    static bool fits_call(const Change& what);
    // Others of kv.h's CALLs on a key.
    Task<Changed> change(kv_function function, Change what);
    Task<Changed> flush();
    // error is negative if the node couldn't be asked.
    Task<std::pair<int, kv_stats>> stats();

    // For the thread's loop: submit() sends operations that were begun; reap() continues coroutines
    // whose operations have ended.
    void submit();
    void reap();
    // Bytes of a key's answer, on average.
    std::size_t entry_bytes() const { return entry_bytes_; }
    // Was something begun since submit()?
    bool has_begun() const {
        return keys_.size() > waiting_ || sets_.size() > waiting_sets_ || ops_.size() > kept_;
    }
    // As remote_queue_fd().
    int descriptor(std::uint64_t& next_us);
    std::uint32_t now_s() const { return now_s_; }
    void look_at_clock() { now_s_ = static_cast<std::uint32_t>(std::time(nullptr)); }
    // A negative errno after which nothing will succeed; 0: none.
    int broken() const { return broken_; }

private:
    class Operation;
    class Run;
    struct Query;
    struct Batch;

    kv_args args_of(const Change& what) const;
    Task<Changed> call(kv_function function, kv_args args, std::string_view key,
                       std::string_view data);
    Task<Changed> store_staged(const Change& what);
    Task<int> transfer(raddr_t item, std::uint32_t key_bytes, char* value,
                       std::uint32_t value_bytes, bool write);
    Task<int> read_value(std::uint32_t key_bytes, raddr_t item, Item& to);
    Detached tell_used(std::vector<std::uint64_t> items);
    void begin(const remote_op& op) { ops_.push_back(op); }
    void send_queries();
    void send_sets();
    void stored(Batch& batch, int result);
    void answered(Query& query, int result);
    void note(int error);
    std::size_t find_room() const;

    remote::handle node_;
    remote_queue_t* queue_ = nullptr;
    Place place_;
    std::size_t room_bytes_ = 0;    // for the result of a QUERY
    std::size_t entry_bytes_ = 128; // of a key's answer, on average
    std::uint32_t now_s_ = 0;
    int broken_ = 0;
    std::vector<remote_op> ops_; // begun, to be submitted
    std::size_t kept_ = 0;       // number of ops_ that the queue had no room for
    Turns<Asker, Key, &Asker::keys> keys_;
    std::size_t waiting_ = 0; // number of keys_ that wait for more
    Turns<Asker, Set*, &Asker::sets> sets_;
    std::size_t waiting_sets_ = 0;
    std::size_t sets_bytes_ = 0;         // in a CALL's arguments
    unsigned batches_ = 0, queries_ = 0; // under way
    std::size_t sets_under_way_ = 0, keys_under_way_ = 0;
    std::vector<std::unique_ptr<Query>> idle_;
    std::vector<std::uint64_t> used_; // items that were read, and aren't marked
};

} // namespace remora::kv
