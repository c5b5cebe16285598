// SPDX-License-Identifier: GPL-2.0
#include "apps/dlrm/inference.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include <endian.h>

#include "support/failure.hpp"

namespace remora::dlrm {

namespace {

constexpr std::size_t clock_each = 32; // queries between two looks at the clock

remote_function function_of(const Shape& shape, const void* args, std::size_t args_bytes,
                            std::span<Sum> sums) {
    remote_function function{};
    function.offload = DLRM_ID;
    function.function = shape.function();
    function.args = args;
    function.args_bytes = args_bytes;
    function.result = sums.data();
    function.result_bytes = sums.size_bytes();
    return function;
}

dlrm_args args_of(const RemoteTable& table, std::size_t groups, std::size_t ids) {
    dlrm_args args{};
    args.rows = htole64(table.rows());
    args.memo = htole64(table.memo());
    args.row_count = htole32(table.shape.rows);
    args.memo_count = htole32(table.entries());
    args.groups = htole16(static_cast<std::uint16_t>(groups));
    args.ids = htole16(static_cast<std::uint16_t>(ids));
    return args;
}

// Groups of no ids: their sums are 0.
std::vector<std::byte> empty_args(const RemoteTable& table, unsigned groups) {
    std::vector<std::byte> bytes(sizeof(dlrm_args) + DLRM_COUNTS_BYTES(groups));
    const dlrm_args args = args_of(table, groups, 0);
    std::memcpy(bytes.data(), &args, sizeof(args));
    return bytes;
}

} // namespace

Pool::Pool(Format format, Queries queries) : format(format), queries(std::move(queries)) {
    for (std::size_t n = 0; n < this->queries.size(); n++)
        sums.push_back(plain_sum(format, this->queries[n]));
}

void Pool::check(std::size_t query, const Sum& sum) const {
    if (sum != sums[query])
        throw Failure("query {}, of {} ids, was answered with a wrong sum", query,
                      queries[query].size());
}

Feed::Feed(const Pool& pool, const Limits& limits) : pool_(pool), limits_(limits) {}

std::optional<std::size_t> Feed::next() {
    if (given_ == limits_.queries)
        return {};
    const std::chrono::duration<double> elapsed =
        given_ % clock_each ? std::chrono::duration<double>(0) : Clock::now() - begun_;
    if (elapsed.count() > limits_.seconds)
        return {};
    return given_++ % pool_.queries.size();
}

Tally Feed::tally(std::size_t accesses) const {
    return {given_, accesses, std::chrono::duration<double>(Clock::now() - begun_).count()};
}

Tally run_local(const Pool& pool, const LocalTable& table, Memo* memo, const Limits& limits) {
    Feed feed(pool, limits);
    std::vector<std::uint32_t> words;
    std::size_t accesses = 0;
    while (const auto query = feed.next()) {
        std::span<const std::uint32_t> rows = pool.queries[*query];
        if (memo) {
            words.clear();
            memo->rewrite(rows, words);
            rows = words;
        }
        pool.check(*query, table.sum(rows));
        accesses += rows.size();
    }
    return feed.tally(accesses);
}

Queue::Queue(remote_t* node, std::size_t depth) {
    remote_queue_options options{};
    options.size = sizeof(options);
    options.depth = static_cast<std::uint32_t>(depth);
    if (int error = remote_queue_open(&queue_, node, &options))
        throw Failure("no queue: {}", remote_strerror(error));
}

void Queue::submit(std::span<const remote_op> ops) {
    if (ops.empty())
        return;
    const int begun = remote_queue_submit(queue_, ops.data(), ops.size());
    if (begun != static_cast<int>(ops.size()))
        throw Failure("can't submit: {}", remote_strerror(begun < 0 ? begun : -EAGAIN));
}

std::span<const remote_completion> Queue::wait() {
    const int got = remote_queue_wait(queue_, ended_.data(), ended_.size(), 1, UINT64_MAX);
    if (got < 0)
        throw Failure("can't wait: {}", remote_strerror(got));
    const auto ended = std::span(ended_).first(static_cast<std::size_t>(got));
    for (const remote_completion& each : ended)
        if (each.result < 0)
            throw Failure("the node refused a query: {}", remote_strerror(each.result));
    return ended;
}

// ---- by read ----

Reader::Reader(remote_t* node, const RemoteTable& table, const Pool& pool, std::size_t slots)
    : table_(table),
      pool_(pool),
      queue_(node, slots * Data::length_max),
      slots_(slots),
      first_(Data::length_max) {
    for (Slot& slot : slots_)
        slot.rows.resize(Data::length_max * table.shape.row_bytes());
    std::iota(first_.begin(), first_.end(), 0);
}

Tally Reader::run(const Limits& limits) {
    Feed feed(pool_, limits);
    std::size_t busy = 0;
    accesses_ = 0;
    ops_.clear();
    for (Slot& slot : slots_)
        busy += begin(slot, feed);
    while (busy) {
        queue_.submit(ops_);
        ops_.clear();
        for (const remote_completion& each : queue_.wait()) {
            Slot& slot = slots_[each.user_data];
            if (--slot.left)
                continue;
            end(slot);
            busy -= !begin(slot, feed);
        }
    }
    return feed.tally(accesses_);
}

bool Reader::begin(Slot& slot, Feed& feed) {
    const auto query = feed.next();
    if (!query)
        return false;
    slot.query = *query;
    slot.left = 0;
    const std::size_t bytes = table_.shape.row_bytes();
    const auto number = static_cast<std::uint64_t>(&slot - slots_.data());
    for (std::uint32_t id : pool_.queries[slot.query]) {
        ops_.push_back(remote_op_read(table_.rows() + id * bytes,
                                      slot.rows.data() + slot.left++ * bytes, bytes, number));
        ops_.back().flags = REMOTE_OP_UNORDERED; // no client writes to the rows
    }
    accesses_ += slot.left;
    return true;
}

void Reader::end(const Slot& slot) {
    const auto rows = std::span(first_).first(pool_.queries[slot.query].size());
    pool_.check(slot.query, sum_rows(pool_.format, slot.rows.data(), nullptr, rows));
}

// ---- by query ----

unsigned Inference::groups_max(remote_t* node, const RemoteTable& table) {
    std::array<Sum, DLRM_GROUPS_MAX> sums;
    int error = 0;
    for (unsigned groups = DLRM_GROUPS_MAX; groups; groups--) {
        const std::vector<std::byte> args = empty_args(table, groups);
        remote_function function =
            function_of(table.shape, args.data(), args.size(), std::span(sums).first(groups));
        error = remote_query(node, &function);
        if (!error)
            return groups;
        if (error == -ENOSYS)
            throw Failure("the node has no offload dlrm for this space: run 'remora node offload "
                          "load .../dlrm.so --space ID' there");
        if (error == -EREMOTEIO && function.detail == ENOSYS)
            throw Failure("this node, a kernel's, has no floats: give --rows i8");
        if (error != -EINVAL) // a packet has room for fewer
            break;
    }
    throw Failure("can't ask the node: {}", remote_strerror(error));
}

Inference::Inference(remote_t* node, const RemoteTable& table, const Pool& pool, Memo* memo,
                     std::size_t messages, unsigned groups)
    : table_(table),
      pool_(pool),
      memo_(memo),
      queue_(node, messages),
      messages_(messages),
      groups_(groups) {}

// begin(message): false: there is nothing more.
template <typename Begin, typename End>
void Inference::turn(Begin&& begin, End&& end) {
    std::size_t busy = 0;
    ops_.clear();
    auto go_on = [&](Message& message) {
        if (!begin(message))
            return false;
        const auto number = static_cast<std::uint64_t>(&message - messages_.data());
        ops_.push_back(remote_op_query(&message.function, number));
        return true;
    };
    for (Message& message : messages_)
        busy += go_on(message);
    while (busy) {
        queue_.submit(ops_);
        ops_.clear();
        for (const remote_completion& each : queue_.wait()) {
            Message& message = messages_[each.user_data];
            end(message);
            busy -= !go_on(message);
        }
    }
}

Tally Inference::run(const Limits& limits) {
    Feed feed(pool_, limits);
    accesses_ = 0;
    turn([&](Message& message) { return begin(message, feed); },
         [&](const Message& message) { end(message); });
    if (!splits_.empty())
        throw Failure("a query of many ids was answered in part");
    return feed.tally(accesses_);
}

Tally Inference::run_empty(const Limits& limits) {
    Feed feed(pool_, limits);
    const std::vector<std::byte> args = empty_args(table_, groups_);
    turn(
        [&](Message& message) {
            message.function = function_of(table_.shape, args.data(), args.size(),
                                           std::span(message.sums).first(groups_));
            unsigned queries = 0;
            while (queries < groups_ && feed.next())
                queries++;
            return queries > 0;
        },
        [](const Message&) {});
    return feed.tally(0);
}

// Are there words of a query to be sent? Takes the next one if not.
bool Inference::has_words(Feed& feed) {
    if (sent_ < words_.size())
        return true;
    const auto query = feed.next();
    if (!query)
        return false;
    const std::span<const std::uint32_t> ids = pool_.queries[*query];
    query_ = *query;
    sent_ = 0;
    words_.clear();
    if (memo_)
        memo_->rewrite(ids, words_);
    else
        words_.assign(ids.begin(), ids.end());
    accesses_ += words_.size();
    split_ = words_.size() > DLRM_IDS_MAX ? ++splits_made_ : 0;
    if (split_)
        splits_[split_] = {words_.size(), {}};
    return true;
}

// Packs as many queries as fit.
bool Inference::begin(Message& message, Feed& feed) {
    message.parts.clear();
    packed_.clear();
    while (message.parts.size() < groups_ && has_words(feed)) {
        const auto groups = static_cast<unsigned>(message.parts.size() + 1);
        const std::size_t ids_max =
            (REMOTE_ARGS_BYTES_MAX - sizeof(dlrm_args) - DLRM_COUNTS_BYTES(groups)) /
            sizeof(__le32);
        const std::size_t room = ids_max - std::min(ids_max, packed_.size());
        const std::size_t left = words_.size() - sent_;
        if (groups > 1 && (left > room || packed_.size() > ids_max))
            break;
        const std::size_t words = std::min(left, room);
        packed_.insert(packed_.end(), words_.begin() + static_cast<std::ptrdiff_t>(sent_),
                       words_.begin() + static_cast<std::ptrdiff_t>(sent_ + words));
        sent_ += words;
        message.parts.push_back({query_, split_, words});
    }
    if (message.parts.empty())
        return false;
    pack(message, packed_);
    return true;
}

void Inference::pack(Message& message, std::span<const std::uint32_t> words) {
    const dlrm_args args = args_of(table_, message.parts.size(), words.size());
    std::byte* at = message.args.data();
    std::memcpy(at, &args, sizeof(args));
    at += sizeof(args);
    const std::size_t counts_bytes = DLRM_COUNTS_BYTES(static_cast<unsigned>(message.parts.size()));
    std::memset(at, 0, counts_bytes);
    for (std::size_t n = 0; n < message.parts.size(); n++) {
        const __le16 count = htole16(static_cast<std::uint16_t>(message.parts[n].words));
        std::memcpy(at + n * sizeof(count), &count, sizeof(count));
    }
    at += counts_bytes;
    for (std::uint32_t word : words) {
        const __le32 id = htole32(word);
        std::memcpy(at, &id, sizeof(id));
        at += sizeof(id);
    }
    message.function = function_of(table_.shape, message.args.data(),
                                   static_cast<std::size_t>(at - message.args.data()),
                                   std::span(message.sums).first(message.parts.size()));
}

void Inference::end(const Message& message) {
    if (message.function.result_bytes != message.parts.size() * sizeof(Sum))
        throw Failure("the node answered {} bytes for {} sums: load the dlrm.so of this version",
                      message.function.result_bytes, message.parts.size());
    for (std::size_t n = 0; n < message.parts.size(); n++)
        end_part(message.parts[n], message.sums[n]);
}

void Inference::end_part(const Part& part, const Sum& sum) {
    if (!part.split)
        return pool_.check(part.query, sum);
    Split& split = splits_.at(part.split);
    add_sum(pool_.format, sum, split.sum);
    split.left -= part.words;
    if (split.left)
        return;
    pool_.check(part.query, split.sum);
    splits_.erase(part.split);
}

} // namespace remora::dlrm
