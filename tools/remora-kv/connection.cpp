// SPDX-License-Identifier: GPL-2.0
#include "remora-kv/connection.hpp"

#include <algorithm>
#include <cerrno>

#include <sys/socket.h>

#include "remora-kv/flight.hpp"
#include "remora-kv/worker.hpp"

namespace remora::kv {

namespace {

// A client that sends and doesn't read, or has so much under way, waits from here on.
constexpr std::size_t replies_max = 1024;
constexpr std::size_t keys_max = 1024;
constexpr std::size_t out_bytes_max = 1 << 20;
// Bytes of commands that wait for earlier ones.
constexpr std::size_t waiting_bytes_max = 65536;
// A read of less isn't worth its system call.
constexpr std::size_t read_bytes_min = 4096;
// Buffers of an idle connection that are kept for its next command.
constexpr std::size_t idle_bytes_max = 16384;

void free_memory(std::string& text) {
    std::string().swap(text);
}

} // namespace

Connection::Connection(Worker& worker, Descriptor&& fd)
    : worker_(worker), fd_(std::move(fd)), progress_s_(worker.table.now_s()) {}

Connection::~Connection() {
    worker_.budget.change(held_, 0);
}

Table& Connection::table() const {
    return worker_.table;
}

void Connection::say(std::string text) {
    reply_bytes_ += text.size();
    replies_.push_back({std::move(text), true});
}

// ---- memory ----

void Connection::account() {
    const std::size_t now = in_.capacity() + out_.capacity() + flight_bytes_ + reply_bytes_;
    worker_.budget.change(held_, now);
    held_ = now;
}

void Connection::pause() {
    if (!std::exchange(paused_, true))
        worker_.paused.push_back(shared_from_this());
}

// A command can always begin where nothing else is under way: it is in memory already.
bool Connection::has_room() const {
    return (replies_.empty() && out_.empty()) ||
           (replies_.size() < replies_max && keys_count_ < keys_max &&
            out_.size() - sent_ < out_bytes_max && worker_.budget.room_behind(held_) > 0);
}

bool Connection::fits(const Room& room) const {
    const Budget& budget = worker_.budget;
    if (out_.size() - sent_ >= out_bytes_max)
        return false;
    if (&room.flight.reply_ == &replies_.front())
        return budget.permits(held_, room.bytes);
    return room.large ? !budget.exceeds_share(held_ + room.bytes)
                      : room.bytes <= budget.room_behind(held_);
}

void Connection::grant_rooms() {
    for (std::size_t n = 0; n < rooms_.size();) {
        Room& room = *rooms_[n];
        if (!fits(room)) {
            n++;
            continue;
        }
        rooms_.erase(rooms_.begin() + static_cast<std::ptrdiff_t>(n));
        room.flight.reserve(room.bytes);
        room.waiter.resume();
    }
    if (!rooms_.empty())
        pause();
}

std::size_t Connection::stalled_bytes(std::uint32_t seconds) const {
    const bool clients_turn = wants_to_write() || (need_ > in_.size() - taken_ && !starved_);
    return clients_turn && table().now_s() - progress_s_ >= seconds &&
                   worker_.budget.exceeds_share(held_)
               ? held_
               : 0;
}

void Connection::leave() {
    gone_ = true;
    free_memory(in_);
    free_memory(out_);
    taken_ = sent_ = 0;
    for (Reply& reply : replies_)
        free_memory(reply.text);
    reply_bytes_ = 0;
    while (!rooms_.empty()) {
        Room& room = *rooms_.back();
        rooms_.pop_back();
        room.waiter.resume();
    }
    account();
}

// ---- input ----

// How many bytes to read at once; 0: none now.
std::size_t Connection::read_bytes() const {
    const std::size_t unparsed = in_.size() - taken_;
    if (ended_ || closing_ || starved_)
        return 0;
    if (need_ <= unparsed && (unparsed >= waiting_bytes_max || !has_room()))
        return 0;
    // As much as the budget has room for, or the rest of a command that memory is reserved for.
    std::size_t bytes = std::max(worker_.budget.room_behind(held_), read_bytes_min);
    if (need_ > unparsed && in_.capacity() > waiting_bytes_max)
        bytes = in_.capacity() - in_.size();
    return std::min(bytes, worker_.buffer.size());
}

// Once an event, so that other clients have their turn.
bool Connection::readable() {
    const std::size_t most = read_bytes();
    if (!most)
        return true;
    const ssize_t n = recv(fd(), worker_.buffer.data(), most, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return false;
    ended_ |= n == 0;
    if (n > 0) {
        in_.append(worker_.buffer.data(), static_cast<std::size_t>(n));
        progress_s_ = table().now_s();
    }
    return true;
}

bool Connection::is_blocked() const {
    if (!blocked_by_)
        return false;
    auto use = keys_.find(blocked_by_->hash);
    return use != keys_.end() && use->second.forbids(blocked_by_->writes);
}

// Replies that were sent make room for further commands.
bool Connection::advance() {
    bool again;
    do {
        grant_rooms();
        parse();
        const bool waits = !has_room() || !rooms_.empty();
        const std::size_t before = replies_.size();
        if (!send())
            return false;
        again = waits && replies_.size() < before;
    } while (again);
    account();
    return true;
}

void Connection::parse() {
    const auto self = shared_from_this();
    bool more = true;
    while (more && !closing_ && in_.size() - taken_ >= std::max<std::size_t>(need_, 1)) {
        if (is_blocked())
            break;
        if (!has_room()) {
            if (!worker_.budget.room_behind(held_))
                pause();
            break;
        }
        if (!protocol_)
            protocol_ = in_[taken_] == '*' ? make_resp() : make_memcached();
        Input input{std::string_view(in_).substr(taken_)};
        blocked_by_.reset();
        need_ = 0;
        switch (protocol_->next(self, input)) {
        case Next::started:
            taken_ += input.consumed;
            break;
        case Next::incomplete:
            need_ = std::max(input.need, input.bytes.size() + 1);
            input.most = std::max(input.most, need_);
            most_ = input.most;
            more = false;
            break;
        case Next::blocked:
            more = false;
            break;
        case Next::close:
            closing_ = true;
        }
    }
    // The client won't send the rest, or more.
    closing_ |= ended_ && (need_ > in_.size() - taken_ || taken_ == in_.size());
    trim_input();
}

// Gives memory back, or takes it for the rest of a command.
void Connection::trim_input() {
    if (taken_ == in_.size()) {
        in_.clear();
        taken_ = 0;
        if (in_.capacity() > idle_bytes_max)
            free_memory(in_);
    } else if (taken_ >= in_.size() / 2 || need_ > in_.size() - taken_) {
        // A small rest needn't keep the memory of a large command.
        if (need_ <= in_.size() - taken_ && in_.capacity() > waiting_bytes_max)
            in_ = in_.substr(taken_);
        else
            in_.erase(0, taken_);
        taken_ = 0;
    }
    account();
    starved_ = false;
    if (need_ <= in_.size() - taken_ || most_ <= in_.capacity())
        return;
    starved_ = !worker_.budget.permits(held_, most_ - in_.capacity());
    if (starved_)
        return pause();
    in_.reserve(most_);
    account();
}

// ---- output ----

bool Connection::send() {
    while (!replies_.empty()) {
        Reply& first = replies_.front();
        reply_bytes_ -= first.text.size();
        if (out_.empty())
            out_ = std::exchange(first.text, {});
        else
            out_ += std::exchange(first.text, {});
        if (!first.done)
            break;
        replies_.pop_front();
    }
    while (sent_ < out_.size()) {
        const ssize_t n =
            ::send(fd(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0 && errno != EINTR)
            return false;
        sent_ += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
        progress_s_ = table().now_s();
    }
    if (sent_ == out_.size()) {
        sent_ = 0;
        out_.clear();
        if (out_.capacity() > idle_bytes_max)
            free_memory(out_);
    } else if (sent_ >= out_.size() / 2) {
        out_ = out_.substr(sent_);
        sent_ = 0;
    }
    account();
    return !closing_ || !replies_.empty() || wants_to_write();
}

// ---- order ----

bool Connection::may_begin(std::span<const std::string> keys, bool writes) {
    if (whole_)
        return false;
    if (keys_.empty())
        return true;
    for (const std::string& key : keys) {
        const std::size_t hash = std::hash<std::string>()(key);
        auto use = keys_.find(hash);
        if (use != keys_.end() && use->second.forbids(writes)) {
            blocked_by_ = {hash, writes};
            return false;
        }
    }
    return true;
}

} // namespace remora::kv
