// SPDX-License-Identifier: GPL-2.0
/*
 * Three ways to answer queries, each of which checks every answer:
 *
 *   by query   Memo::rewrite(), several queries in a message, sums at the node (offloads/dlrm)
 *   by read    READs of all rows, sums here
 *   local      rows in this process
 */
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include <remote/queue.h>

#include "apps/dlrm/table.hpp"

namespace remora::dlrm {

// Queries and their right answers.
struct Pool {
    Pool(Format format, Queries queries);
    void check(std::size_t query, const Sum& sum) const; // throws Failure
    const Format format;
    const Queries queries;
    std::vector<Sum> sums;
};

struct Limits {
    double seconds;
    std::size_t queries;
};

struct Tally {
    std::size_t queries = 0;
    std::size_t accesses = 0; // of rows and entries
    double seconds = 0;
};

// The pool's queries, over and over, until a limit is reached.
class Feed {
public:
    Feed(const Pool& pool, const Limits& limits);
    std::optional<std::size_t> next();
    // accesses: of all queries that were given
    Tally tally(std::size_t accesses) const;

private:
    using Clock = std::chrono::steady_clock;
    const Pool& pool_;
    const Limits limits_;
    const Clock::time_point begun_ = Clock::now();
    std::size_t given_ = 0;
};

// memo: NULL for rows alone.
Tally run_local(const Pool& pool, const LocalTable& table, Memo* memo, const Limits& limits);

// A queue of libremote's.
class Queue {
public:
    Queue(remote_t* node, std::size_t depth); // throws Failure
    ~Queue() { remote_queue_close(queue_); }
    Queue(const Queue&) = delete;
    void submit(std::span<const remote_op> ops);
    // The user_data of some that have ended, at least one; throws Failure if one has failed.
    std::span<const remote_completion> wait();

private:
    remote_queue_t* queue_ = nullptr;
    std::array<remote_completion, 256> ended_;
};

// READs of the rows of up to `slots` queries at once.
class Reader {
public:
    Reader(remote_t* node, const RemoteTable& table, const Pool& pool, std::size_t slots);
    Tally run(const Limits& limits);

private:
    struct Slot {
        std::size_t query, left;
        std::vector<std::byte> rows;
    };
    bool begin(Slot& slot, Feed& feed);
    void end(const Slot& slot);

    const RemoteTable& table_;
    const Pool& pool_;
    Queue queue_;
    std::vector<Slot> slots_;
    std::vector<remote_op> ops_;
    std::vector<std::uint32_t> first_; // 0, 1, 2 ...: the rows of a slot
    std::size_t accesses_ = 0;
};

// Query messages: up to `messages` messages at once, each with up to `groups` queries.
class Inference {
public:
    // The groups that a message to this node has room for: throws Failure.
    static unsigned groups_max(remote_t* node, const RemoteTable& table);
    Inference(remote_t* node, const RemoteTable& table, const Pool& pool, Memo* memo,
              std::size_t messages, unsigned groups);
    Tally run(const Limits& limits);
    // As many messages and groups, without ids: the cost of the messages alone. Nothing is checked.
    Tally run_empty(const Limits& limits);

private:
    // A group of a message: a whole query, or a part of one that is too long for a message.
    struct Part {
        std::size_t query;
        std::uint64_t split; // 0: whole
        std::size_t words;
    };
    struct Split {
        std::size_t left; // words
        Sum sum;
    };
    struct Message {
        std::array<std::byte, REMOTE_ARGS_BYTES_MAX> args;
        std::array<Sum, DLRM_GROUPS_MAX> sums;
        remote_function function;
        std::vector<Part> parts;
    };
    bool has_words(Feed& feed);
    bool begin(Message& message, Feed& feed);
    void pack(Message& message, std::span<const std::uint32_t> words);
    void end(const Message& message);
    void end_part(const Part& part, const Sum& sum);
    template <typename Begin, typename End>
    void turn(Begin&& begin, End&& end);

    const RemoteTable& table_;
    const Pool& pool_;
    Memo* memo_;
    Queue queue_;
    std::vector<Message> messages_;
    const unsigned groups_;
    std::vector<std::uint32_t> words_; // of the query that is next
    std::size_t sent_ = 0;             // number of words_ that are in messages
    std::size_t query_ = 0;
    std::uint64_t split_ = 0, splits_made_ = 0;
    std::unordered_map<std::uint64_t, Split> splits_;
    std::vector<std::uint32_t> packed_;
    std::vector<remote_op> ops_;
    std::size_t accesses_ = 0;
};

} // namespace remora::dlrm
