// SPDX-License-Identifier: GPL-2.0
#include "remora-kv/table.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <endian.h>

#include "support/failure.hpp"
#include "support/random.hpp"

namespace remora::kv {

namespace {

constexpr std::uint32_t depth = 8192;
constexpr std::size_t room_bytes_max = 8192;
// With so many queries under way, further ones wait until they are full: the node needs little more
// time for many keys than for one.
constexpr unsigned partial_max = 2;
// Keys, and sets, at the node: enough to keep it busy. Others wait here, where connections take
// turns, for the node knows one client alone.
constexpr std::size_t under_way_max = 1024;
// Changes of a joined value that others come before.
constexpr unsigned tries_max = 100;

std::string_view bytes_of(const auto& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

Changed changed_of(int error, const kv_result& result) {
    Changed made;
    made.error = error;
    made.status = static_cast<kv_status>(le16toh(result.status));
    std::uint64_t version = 0;
    std::memcpy(&version, result.version, sizeof(result.version));
    made.version = le64toh(version);
    made.number = le64toh(result.number);
    return made;
}

remote_function function_of(kv_function function, std::string_view args, void* result,
                            std::size_t result_bytes) {
    remote_function what{};
    what.offload = KV_ID;
    what.function = function;
    what.args = args.data();
    what.args_bytes = args.size();
    what.result = result;
    what.result_bytes = result_bytes;
    return what;
}

kv_args args_at(raddr_t table) {
    kv_args args{};
    args.table = htole64(table);
    return args;
}

[[noreturn]] void fail(const std::string& what, int error) {
    if (error == -ENOSYS)
        throw Failure("the node has no offload kv for this space: load it there, by "
                      "'remora node offload load .../kv.so --space ID'");
    throw Failure("{}: {}", what, remote_strerror(error));
}

} // namespace

// ---- the table ----

remote::handle open_node(const std::string& target) {
    auto node = remote::handle::open(target.c_str());
    if (!node)
        throw Failure("can't open '{}': {}", target, remote_why());
    return std::move(*node);
}

Place find_table(const Settings& settings) {
    const remote::handle node = open_node(settings.target);
    for (;;) {
        raddr_t address = 0;
        std::uint64_t bytes = 0;
        int error = remote_lookup(node.get(), settings.name.c_str(), &address, &bytes);
        if (!error) {
            kv_stats stats{};
            const kv_args args = args_at(address);
            remote_function what = function_of(KV_STATS, bytes_of(args), &stats, sizeof(stats));
            error = remote_query(node.get(), &what);
            if (error == -EREMOTEIO)
                throw Failure("'{}' is the name of other memory: choose another --table",
                              settings.name);
            if (error)
                fail("can't use the table", error);
            return {address, (le32toh(stats.options) & KV_CACHE) != 0};
        }
        if (error != -ENOENT)
            fail("can't look for the table", error);
        error =
            remote_alloc(node.get(), settings.memory_bytes, REMOTE_RW | REMOTE_OWN_PAGES, &address);
        if (error)
            fail("can't allocate the table's memory", error);
        kv_format_args args{};
        args.table = htole64(address);
        args.bytes = htole64(settings.memory_bytes);
        args.seed[0] = random_value<std::uint64_t>();
        args.seed[1] = random_value<std::uint64_t>();
        const std::uint64_t buckets = settings.memory_bytes / settings.item_bytes * 10 / 56 + 1;
        args.buckets = htole32(static_cast<std::uint32_t>(
            std::min<std::uint64_t>(buckets, std::numeric_limits<std::uint32_t>::max())));
        args.options = htole32(settings.cache ? KV_CACHE : 0);
        kv_result result{};
        remote_function what = function_of(KV_FORMAT, bytes_of(args), &result, sizeof(result));
        error = remote_call(node.get(), &what);
        if (!error)
            error = remote_publish(node.get(), settings.name.c_str(), address);
        if (!error)
            return {address, settings.cache};
        (void)remote_free(node.get(), address);
        if (error == -EREMOTEIO && what.detail == EINVAL)
            throw Failure("--memory is too small, or --item too large: try --memory 64M");
        // Another process published its table first.
        if (error != -EEXIST)
            fail("can't make the table", error);
    }
}

// ---- operations ----

class Table::Operation {
public:
    virtual void ended(int result) = 0;

protected:
    ~Operation() = default;
};

// An operation that a coroutine waits for. It lies in the coroutine's frame.
class Table::Run final : Table::Operation {
public:
    Run(Table& table, const remote_op& op) : table_(table), op_(op) {}
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> waiter) {
        waiter_ = waiter;
        op_.user_data = reinterpret_cast<std::uint64_t>(static_cast<Operation*>(this));
        table_.begin(op_);
    }
    int await_resume() const { return result_; }

private:
    void ended(int result) override {
        result_ = result;
        waiter_.resume();
    }

    Table& table_;
    remote_op op_;
    std::coroutine_handle<> waiter_;
    int result_ = 0;
};

// The keys of one look_up().
struct Table::Lookup {
    Table& table;
    Asker& asker;
    const std::vector<std::string>& keys;
    std::vector<Item>& items;
    std::size_t left = 0;
    std::coroutine_handle<> waiter;

    bool await_ready() const { return keys.empty(); }
    void await_suspend(std::coroutine_handle<> who) {
        waiter = who;
        left = keys.size();
        for (std::size_t n = 0; n < keys.size(); n++)
            table.keys_.add(asker, {this, n});
    }
    void await_resume() const {}
};

struct Table::Query final : Table::Operation {
    explicit Query(Table& of) : table(of), result(of.room_bytes_) {}
    void ended(int error) override { table.answered(*this, error); }

    Table& table;
    remote_function function{};
    std::array<char, REMOTE_ARGS_BYTES_MAX> args;
    std::vector<char> result;
    std::vector<Key> keys;
};

// A change that shares a CALL. It lies in its coroutine's frame.
struct Table::Set {
    Table& table;
    Asker& asker;
    const Change& what;
    int error = 0;
    bool stored = false;
    std::coroutine_handle<> waiter;

    std::size_t bytes() const { return sizeof(kv_sets_item) + what.key.size() + what.value.size(); }
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> who) {
        waiter = who;
        table.sets_.add(asker, this);
        table.sets_bytes_ += bytes();
    }
    void await_resume() const {}
};

struct Table::Batch final : Table::Operation {
    explicit Batch(Table& of) : table(of) {}
    void ended(int error) override { table.stored(*this, error); }

    Table& table;
    remote_function function{};
    std::array<char, REMOTE_ARGS_BYTES_MAX> args;
    kv_result result{};
    std::vector<Set*> sets;
};

Table::Table(const std::string& target, const Place& place)
    : node_(open_node(target)), place_(place) {
    remote_queue_options options{};
    options.size = sizeof(options);
    options.depth = depth;
    if (int error = remote_queue_open(&queue_, node_.get(), &options))
        throw Failure("no queue: {}", remote_strerror(error));
    room_bytes_ = find_room();
    look_at_clock();
}

Table::~Table() {
    remote_queue_close(queue_);
}

// The most that a packet takes.
std::size_t Table::find_room() const {
    remote_node node{};
    node.size = sizeof(node);
    if (int error = remote_info(node_.get(), &node))
        throw Failure("can't ask the node: {}", remote_strerror(error));
    return std::min<std::size_t>(node.result_bytes, room_bytes_max);
}

void Table::note(int error) {
    if (error == -ESTALE || error == -EBADF || error == -ENOSYS)
        broken_ = error;
}

void Table::submit() {
    send_queries();
    send_sets();
    std::size_t begun = 0;
    while (begun < ops_.size()) {
        const int n = remote_queue_submit(queue_, &ops_[begun], ops_.size() - begun);
        if (n == -EAGAIN)
            break; // the queue is full: the rest goes when completions were taken
        if (n < 0) {
            const remote_op op = ops_[begun++];
            note(n);
            reinterpret_cast<Operation*>(op.user_data)->ended(n);
            continue;
        }
        begun += static_cast<std::size_t>(n);
    }
    ops_.erase(ops_.begin(), ops_.begin() + static_cast<std::ptrdiff_t>(begun));
    kept_ = ops_.size();
}

void Table::reap() {
    std::array<remote_completion, 256> done;
    look_at_clock();
    for (;;) {
        const int n = remote_queue_wait(queue_, done.data(), done.size(), 0, 0);
        if (n < 0)
            note(n);
        for (int i = 0; i < n; i++) {
            if (done[i].result < 0)
                note(done[i].result);
            reinterpret_cast<Operation*>(done[i].user_data)->ended(done[i].result);
        }
        if (n < static_cast<int>(done.size()))
            return;
    }
}

int Table::descriptor(std::uint64_t& next_us) {
    return remote_queue_fd(queue_, &next_us);
}

// ---- GET ----

// As many keys in a QUERY as it has arguments for, and its result probably room.
void Table::send_queries() {
    const std::size_t fits = std::clamp<std::size_t>(
        (room_bytes_ - sizeof(kv_get_result)) / entry_bytes_, 1, KV_KEYS_MAX);
    while (keys_.size() && keys_under_way_ < under_way_max &&
           (queries_ < partial_max || keys_.size() >= fits)) {
        std::unique_ptr<Query> query;
        if (idle_.empty()) {
            query = std::make_unique<Query>(*this);
        } else {
            query = std::move(idle_.back());
            idle_.pop_back();
        }
        kv_get_args head{};
        std::size_t bytes = sizeof(head);
        query->keys.clear();
        while (keys_.size() && query->keys.size() < fits) {
            const std::string& key = keys_.next().lookup->keys[keys_.next().index];
            if (bytes + 1 + key.size() > query->args.size())
                break;
            query->args[bytes] = static_cast<char>(key.size());
            std::memcpy(&query->args[bytes + 1], key.data(), key.size());
            bytes += 1 + key.size();
            query->keys.push_back(keys_.take());
        }
        head.table = htole64(place_.address);
        head.now_s = htole32(now_s_);
        head.count = static_cast<std::uint8_t>(query->keys.size());
        std::memcpy(query->args.data(), &head, sizeof(head));
        query->function = function_of(KV_GET, {query->args.data(), bytes}, query->result.data(),
                                      query->result.size());
        // ended() takes the query back.
        Query* raw = query.release();
        queries_++;
        keys_under_way_ += raw->keys.size();
        begin(remote_op_query(&raw->function,
                              reinterpret_cast<std::uint64_t>(static_cast<Operation*>(raw))));
    }
    waiting_ = keys_.size();
}

void Table::answered(Query& query, int error) {
    std::unique_ptr<Query> owned(&query);
    std::uint64_t answers = 0;
    queries_--;
    keys_under_way_ -= query.keys.size();
    waiting_ = 0; // the keys can go now
    std::vector<std::coroutine_handle<>> ready;
    auto end = [&](std::size_t n) {
        Lookup& lookup = *query.keys[n].lookup;
        if (!--lookup.left)
            ready.push_back(lookup.waiter);
    };
    const std::size_t bytes = query.function.result_bytes;
    if (!error && bytes >= sizeof(kv_get_result)) {
        std::memcpy(&answers, query.result.data(), sizeof(answers));
        answers = le64toh(answers);
        std::size_t at = sizeof(kv_get_result);
        kv_found found;
        while (at + sizeof(found) <= bytes) {
            std::memcpy(&found, &query.result[at], sizeof(found));
            at += sizeof(found);
            const std::size_t value_bytes = found.elsewhere ? 0 : le32toh(found.value_bytes);
            if (found.key >= query.keys.size() || value_bytes > bytes - at)
                break;
            const Key& key = query.keys[found.key];
            Item& item = key.lookup->items[key.index];
            item.found = true;
            item.seen = found.seen;
            item.version = le64toh(found.version);
            item.flags = le32toh(found.flags);
            item.expiry_s = le32toh(found.expiry_s);
            item.value_bytes = le32toh(found.value_bytes);
            item.value.assign(&query.result[at], value_bytes);
            if (found.elsewhere)
                item.elsewhere = le64toh(found.item);
            at += (value_bytes + 7) & ~std::size_t{7};
            if (place_.cache && !found.seen)
                used_.push_back(found.item);
        }
        const std::size_t each = bytes / std::max<std::size_t>(std::popcount(answers), 1);
        entry_bytes_ = std::max<std::size_t>((entry_bytes_ * 7 + each) / 8, 16);
    } else if (!error) {
        error = -EIO;
    }
    for (std::size_t n = 0; n < query.keys.size(); n++) {
        const Key key = query.keys[n];
        if (error)
            key.lookup->items[key.index].error = error;
        if (error || answers >> n & 1)
            end(n);
        else
            keys_.add(key.lookup->asker, key); // the result had no room for the key
    }
    idle_.push_back(std::move(owned));
    if (used_.size() >= KV_USED_MAX) {
        used_.resize(KV_USED_MAX);
        tell_used(std::exchange(used_, {}));
    }
    for (auto waiter : ready)
        waiter.resume();
}

Detached Table::tell_used(std::vector<std::uint64_t> items) {
    kv_used_args head{};
    head.table = htole64(place_.address);
    head.count = htole32(static_cast<std::uint32_t>(items.size()));
    std::string args(bytes_of(head));
    args.append(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(items[0]));
    kv_result result{};
    remote_function what = function_of(KV_USED, args, &result, sizeof(result));
    // A cache that isn't told evicts the wrong items; nothing else depends on it.
    (void)co_await Run(*this, remote_op_call(&what, 0));
}

Task<std::vector<Item>> Table::look_up(Asker& asker, std::vector<std::string> keys) {
    std::vector<Item> items(keys.size());
    co_await Lookup{*this, asker, keys, items, 0, {}};
    co_return items;
}

Task<Item> Table::fetch(Asker& asker, std::string key, Item item) {
    for (unsigned tries = 0; item.elsewhere && tries < tries_max; tries++) {
        const int error =
            co_await read_value(static_cast<std::uint32_t>(key.size()), item.elsewhere, item);
        if (error != -EAGAIN) {
            item.error = error;
            co_return item;
        }
        // The value was replaced while it was read: where is it now?
        std::vector<std::string> again{key};
        std::vector<Item> now = co_await look_up(asker, std::move(again));
        item = std::move(now[0]);
    }
    if (item.elsewhere)
        item.error = -EBUSY;
    co_return item;
}

// The value, then the version. -EAGAIN: it was another one by then.
Task<int> Table::read_value(std::uint32_t key_bytes, raddr_t item, Item& to) {
    std::uint64_t version = 0;
    if (to.value_bytes > KV_VALUE_BYTES_MAX)
        co_return -EIO;
    to.value.resize(to.value_bytes);
    int error = co_await transfer(item, key_bytes, to.value.data(), to.value_bytes, false);
    if (!error)
        error = co_await Run(*this, remote_op_read(item, &version, sizeof(version), 0));
    if (!error && le64toh(version) != to.version)
        error = -EAGAIN;
    // The pieces of an item that was freed can be anywhere.
    co_return error == -EFAULT ? -EAGAIN : error;
}

// Reads or writes the value of an item, where kv.h says it is.
Task<int> Table::transfer(raddr_t item, std::uint32_t key_bytes, char* value,
                          std::uint32_t value_bytes, bool write) {
    std::vector<remote_vec> parts;
    if (KV_IN_ONE(key_bytes, value_bytes)) {
        parts.push_back({item + KV_ITEM_BYTES + key_bytes, value, value_bytes});
    } else {
        std::array<std::uint64_t, KV_PIECES_MAX> pieces{};
        const std::size_t count = KV_PIECES(value_bytes);
        const int error =
            co_await Run(*this, remote_op_read(item + KV_PIECES_AT(key_bytes), pieces.data(),
                                               count * sizeof(pieces[0]), 0));
        if (error)
            co_return error;
        for (std::size_t n = 0; n < count; n++) {
            const std::size_t at = n * KV_PIECE_BYTES;
            parts.push_back({le64toh(pieces[n]) + KV_ITEM_BYTES, value + at,
                             std::min<std::size_t>(KV_PIECE_BYTES, value_bytes - at)});
        }
    }
    co_return co_await Run(*this, write ? remote_op_writev(parts.data(), parts.size(), 0)
                                        : remote_op_readv(parts.data(), parts.size(), 0));
}

// ---- changes ----

// As many as the arguments take in a CALL; a CALL that isn't full waits while others are under way.
void Table::send_sets() {
    auto fits = [&](std::size_t count, std::size_t bytes) {
        return count <= 64 && sizeof(kv_sets_args) + bytes <= REMOTE_ARGS_BYTES_MAX;
    };
    while (sets_.size() && sets_under_way_ < under_way_max &&
           (batches_ < partial_max || !fits(sets_.size(), sets_bytes_))) {
        auto batch = std::make_unique<Batch>(*this);
        char* to = batch->args.data() + sizeof(kv_sets_args);
        auto put = [&](std::string_view text) { to = std::ranges::copy(text, to).out; };
        std::size_t bytes = 0;
        while (sets_.size() && fits(batch->sets.size() + 1, bytes + sets_.next()->bytes())) {
            Set* set = sets_.take();
            const Change& what = set->what;
            kv_sets_item item{};
            item.flags = htole32(what.flags);
            item.expiry_s = htole32(what.expiry_s);
            item.value_bytes = htole16(static_cast<std::uint16_t>(what.value.size()));
            item.key_bytes = static_cast<std::uint8_t>(what.key.size());
            put(bytes_of(item));
            put(what.key);
            put(what.value);
            bytes += set->bytes();
            batch->sets.push_back(set);
        }
        sets_bytes_ -= bytes;
        kv_sets_args head{};
        head.table = htole64(place_.address);
        head.now_s = htole32(now_s_);
        head.count = static_cast<std::uint8_t>(batch->sets.size());
        std::memcpy(batch->args.data(), &head, sizeof(head));
        batch->function = function_of(KV_SETS, {batch->args.data(), sizeof(head) + bytes},
                                      &batch->result, sizeof(batch->result));
        batches_++;
        sets_under_way_ += batch->sets.size();
        // ended() takes the batch back.
        Batch* raw = batch.release();
        begin(remote_op_call(&raw->function,
                             reinterpret_cast<std::uint64_t>(static_cast<Operation*>(raw))));
    }
    waiting_sets_ = sets_.size();
}

void Table::stored(Batch& batch, int error) {
    const std::unique_ptr<Batch> owned(&batch);
    const std::uint64_t bits = error ? 0 : le64toh(batch.result.number);
    batches_--;
    sets_under_way_ -= batch.sets.size();
    waiting_sets_ = 0; // the sets can go now
    for (std::size_t n = 0; n < batch.sets.size(); n++) {
        batch.sets[n]->error = error;
        batch.sets[n]->stored = bits >> n & 1;
        batch.sets[n]->waiter.resume();
    }
}

kv_args Table::args_of(const Change& what) const {
    kv_args args = args_at(place_.address);
    args.now_s = htole32(now_s_);
    args.version = htole64(what.version);
    args.expiry_s = htole32(what.expiry_s);
    args.flags = htole32(what.flags);
    args.mode = static_cast<std::uint8_t>(what.mode);
    args.key_bytes = static_cast<std::uint8_t>(what.key.size());
    return args;
}

Task<Changed> Table::call(kv_function function, kv_args args, std::string_view key,
                          std::string_view data) {
    std::array<char, REMOTE_ARGS_BYTES_MAX> bytes;
    kv_result result{};
    char* end = bytes.data();
    for (std::string_view part : {bytes_of(args), key, data})
        end = std::ranges::copy(part, end).out;
    remote_function what = function_of(function, {bytes.data(), end}, &result, sizeof(result));
    const int error = co_await Run(*this, remote_op_call(&what, 0));
    co_return changed_of(error, result);
}

Task<Changed> Table::change(kv_function function, Change what) {
    kv_args args = args_of(what);
    args.number = htole64(what.number);
    const std::uint64_t first = htole64(what.first.value_or(0));
    args.value_bytes = htole32(what.first ? sizeof(first) : 0);
    co_return co_await call(function, args, what.key,
                            what.first ? bytes_of(first) : std::string_view());
}

Task<Changed> Table::flush() {
    const Change none;
    const kv_args args = args_of(none);
    co_return co_await call(KV_FLUSH, args, std::string_view(), std::string_view());
}

Task<std::pair<int, kv_stats>> Table::stats() {
    kv_stats stats{};
    const Change none;
    const kv_args args = args_of(none);
    remote_function what = function_of(KV_STATS, bytes_of(args), &stats, sizeof(stats));
    const int error = co_await Run(*this, remote_op_query(&what, 0));
    co_return std::pair(error, stats);
}

bool Table::fits_call(const Change& what) {
    return sizeof(kv_args) + what.key.size() + what.value.size() <= REMOTE_ARGS_BYTES_MAX;
}

Task<Changed> Table::store(Asker& asker, Change what) {
    if (what.value.size() > KV_VALUE_BYTES_MAX)
        co_return Changed{0, KV_TOO_LARGE, 0, 0};
    if (what.shared &&
        sizeof(kv_sets_args) + sizeof(kv_sets_item) + what.key.size() + what.value.size() <=
            REMOTE_ARGS_BYTES_MAX) {
        Set set{*this, asker, what};
        co_await set;
        // A call of its own tells why an item wasn't stored.
        if (set.stored || set.error)
            co_return Changed{set.error, KV_OK, 0, what.value.size()};
    }
    if (!fits_call(what))
        co_return what.mode >= KV_MODE_APPEND ? Changed{0, KV_TOO_LARGE, 0, 0}
                                              : co_await store_staged(what);
    kv_args args = args_of(what);
    args.value_bytes = htole32(static_cast<std::uint32_t>(what.value.size()));
    co_return co_await call(KV_SET, args, what.key, what.value);
}

Task<Changed> Table::store_staged(const Change& what) {
    kv_args args = args_of(what);
    args.version = 0;
    args.expiry_s = args.flags = 0;
    args.mode = 0;
    args.value_bytes = htole32(static_cast<std::uint32_t>(what.value.size()));
    const std::uint32_t begun_s = now_s_;
    Changed staged = co_await call(KV_STAGE, args, what.key, std::string_view());
    if (staged.error || staged.status)
        co_return staged;
    // The node might have freed the item by now.
    if (now_s_ - begun_s > KV_STAGE_S / 2)
        co_return Changed{-ETIMEDOUT, KV_OK, 0, 0};
    const int error = co_await transfer(staged.number, static_cast<std::uint32_t>(what.key.size()),
                                        const_cast<char*>(what.value.data()),
                                        static_cast<std::uint32_t>(what.value.size()), true);
    // The node frees staged items after a time; a client publishes them well before.
    if (error || now_s_ - begun_s > KV_STAGE_S / 2)
        co_return Changed{error ? error : -ETIMEDOUT, KV_OK, 0, 0};
    kv_args publish = args_of(what);
    const std::uint64_t version = htole64(staged.version);
    publish.number = htole64(staged.number);
    publish.key_bytes = 0;
    publish.value_bytes = htole32(sizeof(version));
    Changed made = co_await call(KV_PUBLISH, publish, std::string_view(), bytes_of(version));
    made.number = what.value.size();
    co_return made;
}

} // namespace remora::kv
