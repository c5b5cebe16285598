// SPDX-License-Identifier: GPL-2.0
/*
 * A client's connection: bytes in, commands, replies in the order of the commands, bytes out.
 *
 *   in ─> Protocol::next() ─> a coroutine each, several under way ─> Reply ... Reply ─> out
 *
 * Commands on different keys are under way together. A command waits for earlier ones of its
 * connection that have a key in common, unless all of them only read.
 */
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "remora-kv/table.hpp"
#include "support/descriptor.hpp"

namespace remora::kv {

struct Worker;
class Connection;

// Result of a look at the bytes that came.
enum class Next {
    started,    // a command; `consumed` says its bytes
    incomplete, // more bytes have to come
    blocked,    // the command waits for earlier ones
    close,      // no command can follow
};

class Protocol {
public:
    virtual ~Protocol() = default;
    virtual Next next(const std::shared_ptr<Connection>& connection, std::string_view input,
                      std::size_t& consumed) = 0;
};
std::unique_ptr<Protocol> make_memcached();
std::unique_ptr<Protocol> make_resp();

struct Reply {
    std::string text;
    bool done = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
public:
    Connection(Worker& worker, Descriptor&& fd) : worker_(worker), fd_(std::move(fd)) {}

    Worker& worker() const { return worker_; }
    Table& table() const;
    int fd() const { return fd_.get(); }

    // Events of the socket. False: the connection has ended.
    bool readable();
    // Starts commands and sends replies.
    bool advance();
    bool wants_to_write() const { return sent_ < out_.size(); }
    bool wants_to_read() const;
    std::uint32_t events = 0; // epoll's, that the worker waits for

    // The place of a command's reply.
    Reply& reply() { return replies_.emplace_back(); }
    void say(std::string text) {
        Reply& made = reply();
        made.text = std::move(text);
        made.done = true;
    }
    // Once all replies are sent.
    void close_later() { closing_ = true; }

    // Can a command on these keys begin? Without keys: on all of them.
    bool may_begin(const std::vector<std::string>& keys, bool writes) const;

private:
    friend class Flight;
    struct Key {
        std::size_t hash;
        bool writes;
    };

    bool has_room() const;
    void parse();
    bool send();

    Worker& worker_;
    Descriptor fd_;
    std::unique_ptr<Protocol> protocol_;
    std::string in_, out_;
    std::size_t taken_ = 0, sent_ = 0; // bytes of in_ and out_ that are done with
    std::deque<Reply> replies_;
    std::vector<Key> keys_;  // of commands under way
    unsigned whole_ = 0;     // commands under way on all keys
    unsigned under_way_ = 0; // commands
    bool ended_ = false, closing_ = false;
    bool incomplete_ = false; // the last command's bytes have yet to come
};

// A command under way. It keeps the connection, even if the client has gone.
class Flight {
public:
    // No keys: all of them.
    Flight(const std::shared_ptr<Connection>& connection, const std::vector<std::string>& keys,
           bool writes);
    ~Flight();
    Flight(const Flight&) = delete;

    Table& table() const { return connection_->table(); }
    Connection& connection() const { return *connection_; }
    // The answer; "" for none.
    void end(std::string text) {
        reply_.text = std::move(text);
        reply_.done = true;
    }

private:
    std::shared_ptr<Connection> connection_;
    std::vector<std::size_t> hashes_;
    bool writes_;
    Reply& reply_;
};

} // namespace remora::kv
