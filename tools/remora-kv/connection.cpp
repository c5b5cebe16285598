// SPDX-License-Identifier: GPL-2.0
#include "remora-kv/connection.hpp"

#include <algorithm>
#include <cerrno>

#include <sys/socket.h>

#include "remora-kv/worker.hpp"

namespace remora::kv {

namespace {

constexpr std::size_t read_bytes = 65536;
// A client that sends and doesn't read, or has so much under way, waits from here on.
constexpr std::size_t replies_max = 1024;
constexpr std::size_t keys_max = 1024;
constexpr std::size_t out_bytes_max = 4 << 20;
// Bytes of commands that wait for earlier ones.
constexpr std::size_t in_bytes_max = 4 << 20;

} // namespace

Table& Connection::table() const {
    return worker_.table;
}

bool Connection::has_room() const {
    return replies_.size() < replies_max && keys_.size() < keys_max && out_.size() < out_bytes_max;
}

bool Connection::wants_to_read() const {
    return !ended_ && !closing_ && has_room() &&
           (incomplete_ || in_.size() - taken_ < in_bytes_max);
}

// Once an event, so that other clients have their turn.
bool Connection::readable() {
    if (!wants_to_read())
        return true;
    const std::size_t had = in_.size();
    in_.resize(had + read_bytes);
    const ssize_t n = recv(fd(), in_.data() + had, read_bytes, MSG_DONTWAIT);
    in_.resize(had + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return false;
    ended_ |= n == 0;
    return true;
}

// Replies that were sent make room for further commands.
bool Connection::advance() {
    bool had_room;
    do {
        parse();
        had_room = has_room();
        if (!send())
            return false;
    } while (!had_room && has_room());
    return true;
}

void Connection::parse() {
    const auto self = shared_from_this();
    bool more = true;
    incomplete_ = false;
    while (more && !closing_ && taken_ < in_.size() && has_room()) {
        if (!protocol_)
            protocol_ = in_[taken_] == '*' ? make_resp() : make_memcached();
        std::size_t consumed = 0;
        switch (protocol_->next(self, std::string_view(in_).substr(taken_), consumed)) {
        case Next::started:
            taken_ += consumed;
            break;
        case Next::incomplete:
            // The client won't send the rest.
            closing_ |= ended_;
            incomplete_ = true;
            more = false;
            break;
        case Next::blocked:
            more = false;
            break;
        case Next::close:
            closing_ = true;
        }
    }
    if (taken_ == in_.size()) {
        in_.clear();
        taken_ = 0;
        closing_ |= ended_;
    } else if (taken_ > read_bytes) {
        in_.erase(0, taken_);
        taken_ = 0;
    }
}

bool Connection::send() {
    while (!replies_.empty() && replies_.front().done) {
        out_ += replies_.front().text;
        replies_.pop_front();
    }
    while (sent_ < out_.size()) {
        const ssize_t n =
            ::send(fd(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
        sent_ += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    }
    out_.clear();
    sent_ = 0;
    return !closing_ || !replies_.empty();
}

bool Connection::may_begin(const std::vector<std::string>& keys, bool writes) const {
    if (whole_ || (keys.empty() && under_way_))
        return false;
    return keys_.empty() || std::ranges::none_of(keys, [&](const std::string& key) {
               const std::size_t hash = std::hash<std::string>()(key);
               return std::ranges::any_of(keys_, [&](const Key& other) {
                   return other.hash == hash && (writes || other.writes);
               });
           });
}

Flight::Flight(const std::shared_ptr<Connection>& connection, const std::vector<std::string>& keys,
               bool writes)
    : connection_(connection), writes_(writes), reply_(connection->reply()) {
    connection_->under_way_++;
    connection_->whole_ += keys.empty();
    for (const std::string& key : keys) {
        hashes_.push_back(std::hash<std::string>()(key));
        connection_->keys_.push_back({hashes_.back(), writes});
    }
}

Flight::~Flight() {
    Connection& of = *connection_;
    of.under_way_--;
    of.whole_ -= hashes_.empty();
    for (std::size_t hash : hashes_) {
        auto mine = std::ranges::find_if(of.keys_, [&](const Connection::Key& key) {
            return key.hash == hash && key.writes == writes_;
        });
        *mine = of.keys_.back();
        of.keys_.pop_back();
    }
    of.worker().wake(connection_);
}

} // namespace remora::kv
