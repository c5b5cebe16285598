// SPDX-License-Identifier: GPL-2.0
#include "remora-kv/flight.hpp"

#include <algorithm>
#include <cerrno>

namespace remora::kv {

namespace {

// A coroutine's frame, its strings and its place among the replies.
constexpr std::size_t frame_bytes = 1024;
// Text of an answer that is worth a system call before the rest is there.
constexpr std::size_t part_bytes = 16384;
// Changes of an item that others come before.
constexpr unsigned tries_max = 100;

// Another client changed the item since this one read it.
bool is_late(const Changed& made) {
    return !made.error && (made.status == KV_EXISTS || made.status == KV_NOT_FOUND);
}

} // namespace

bool Room::await_ready() const {
    const Connection& of = *flight.connection_;
    if (of.gone_)
        return true;
    if (!of.fits(*this))
        return false;
    flight.reserve(bytes);
    return true;
}

void Room::await_suspend(std::coroutine_handle<> who) {
    waiter = who;
    flight.connection_->rooms_.push_back(this);
    flight.connection_->pause();
}

bool Room::await_resume() const {
    return !flight.connection_->gone_;
}

Flight::Flight(const std::shared_ptr<Connection>& connection, std::span<const std::string> keys,
               bool writes, std::size_t bytes)
    : connection_(connection),
      writes_(writes),
      bytes_(frame_bytes + bytes),
      reply_(connection->replies_.emplace_back()) {
    Connection& of = *connection_;
    of.under_way_++;
    of.whole_ += keys.empty();
    of.keys_count_ += keys.size();
    hashes_.reserve(keys.size());
    for (const std::string& key : keys) {
        hashes_.push_back(std::hash<std::string>()(key));
        Connection::Use& use = of.keys_[hashes_.back()];
        (writes ? use.writers : use.readers)++;
        bytes_ += key.size() + sizeof(Connection::Use) + sizeof(hashes_[0]);
    }
    of.flight_bytes_ += bytes_;
    of.account();
}

Flight::~Flight() {
    Connection& of = *connection_;
    of.under_way_--;
    of.whole_ -= hashes_.empty();
    of.keys_count_ -= hashes_.size();
    for (std::size_t hash : hashes_) {
        auto use = of.keys_.find(hash);
        (writes_ ? use->second.writers : use->second.readers)--;
        if (!use->second.readers && !use->second.writers)
            of.keys_.erase(use);
    }
    of.flight_bytes_ -= bytes_ + reserved_;
    of.account();
    of.worker().wake(connection_);
}

void Flight::reserve(std::size_t bytes) {
    connection_->flight_bytes_ += bytes - reserved_;
    reserved_ = bytes;
    connection_->account();
}

void Flight::more(std::string_view text) {
    if (!connection_->gone_) {
        reply_.text += text;
        connection_->reply_bytes_ += text.size();
    }
    reserve(0);
    if (reply_.text.size() >= part_bytes)
        connection_->worker().wake(connection_);
}

void Flight::end(std::string_view text) {
    more(text);
    reply_.done = true;
}

Task<int> Flight::read(std::vector<std::string> keys, bool values, Each each) {
    for (std::size_t at = 0; at < keys.size(); at += KV_KEYS_MAX) {
        const auto part =
            std::span(keys).subspan(at, std::min<std::size_t>(keys.size() - at, KV_KEYS_MAX));
        if (!co_await room(part.size() * table().entry_bytes(), false))
            co_return -ECONNRESET;
        std::vector<Item> items =
            co_await table().look_up(asker(), std::vector<std::string>(part.begin(), part.end()));
        std::string text;
        for (std::size_t n = 0; n < items.size(); n++) {
            Item item = std::move(items[n]);
            if (values && item.elsewhere) {
                more(std::exchange(text, {}));
                if (!co_await room(item.value_bytes, true))
                    co_return -ECONNRESET;
                item = co_await table().fetch(asker(), part[n], std::move(item));
            }
            if (item.error) {
                more(text);
                co_return item.error;
            }
            each(at + n, item, text);
        }
        more(text);
    }
    co_return 0;
}

Task<Item> Flight::get(std::string key, bool value) {
    std::vector<std::string> keys{key};
    std::vector<Item> items = co_await table().look_up(asker(), std::move(keys));
    Item item = std::move(items[0]);
    if (!value || !item.elsewhere)
        co_return item;
    if (co_await room(item.value_bytes, true))
        co_return co_await table().fetch(asker(), key, std::move(item));
    item.error = -ECONNRESET;
    co_return item;
}

Task<Item> Flight::get_and_touch(std::string key, std::uint32_t expiry_s, bool value) {
    for (unsigned tries = 0; tries < tries_max; tries++) {
        Item item = co_await get(key, value);
        if (item.error || !item.found)
            co_return item;
        Change what;
        what.key = key;
        what.expiry_s = expiry_s;
        what.version = item.version;
        const Changed touched = co_await table().change(KV_TOUCH, std::move(what));
        item.error = touched.error;
        if (!is_late(touched))
            co_return item;
    }
    Item busy;
    busy.error = -EBUSY;
    co_return busy;
}

Task<Changed> Flight::store(Change what) {
    const bool joins = what.mode >= KV_MODE_APPEND;
    if (!joins || Table::fits_call(what)) {
        Change first = joins ? what : std::move(what);
        const Changed made = co_await table().store(asker(), std::move(first));
        if (!joins || made.error || made.status != KV_TOO_LARGE)
            co_return made;
    }
    co_return co_await join(std::move(what));
}

// Appends or prepends here, and stores the result if nobody was faster.
Task<Changed> Flight::join(Change what) {
    for (unsigned tries = 0; tries < tries_max; tries++) {
        const Item old = co_await get(what.key, true);
        if (old.error)
            co_return Changed{old.error, KV_OK, 0, 0};
        if (!old.found)
            co_return Changed{0, what.version ? KV_NOT_FOUND : KV_NOT_STORED, 0, 0};
        if (what.version && what.version != old.version)
            co_return Changed{0, KV_EXISTS, 0, 0};
        Change whole;
        whole.key = what.key;
        whole.value = what.mode == KV_MODE_APPEND ? old.value + what.value : what.value + old.value;
        whole.flags = old.flags;
        whole.expiry_s = old.expiry_s;
        whole.version = old.version;
        const Changed made = co_await table().store(asker(), std::move(whole));
        if (!is_late(made))
            co_return made;
    }
    co_return Changed{-EBUSY, KV_OK, 0, 0};
}

Detached run_change(std::shared_ptr<Connection> connection, kv_function function, Change what,
                    Counter counter, std::function<std::string(const Changed&)> text) {
    const std::string key = what.key;
    Flight flight(connection, std::span(&key, 1), true, what.value.size());
    if (counter)
        Counts::add(flight.worker().counts.*counter);
    const Changed made = function == KV_SET
                             ? co_await flight.store(std::move(what))
                             : co_await flight.table().change(function, std::move(what));
    flight.end(text(made));
}

Detached run_flush(std::shared_ptr<Connection> connection,
                   std::function<std::string(const Changed&)> text) {
    Flight flight(connection, {}, true);
    Counts::add(flight.worker().counts.flushes);
    const Changed made = co_await flight.table().flush();
    flight.end(text(made));
}

} // namespace remora::kv
