// SPDX-License-Identifier: GPL-2.0
/*
 * A client's connection: bytes in, commands, replies in the order of the commands, bytes out.
 *
 *   in ─> Protocol::next() ─> a Flight each, several under way ─> Reply ... Reply ─> out
 *
 * Commands on different keys are under way together. A command waits for earlier ones of its
 * connection that have a key in common, unless all of them only read.
 *
 * All memory that a connection holds is counted in its thread's Budget. Where that has no room, the
 * connection isn't read from, and begins no command, until others gave memory back.
 */
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "remora-kv/table.hpp"
#include "support/descriptor.hpp"

namespace remora::kv {

struct Worker;
class Connection;
class Flight;
struct Room;

// Result of a look at the bytes that came.
enum class Next {
    started,    // a command
    incomplete, // more bytes have to come
    blocked,    // the command waits for earlier ones
    close,      // no command can follow
};

// Bytes from the next command on.
struct Input {
    std::string_view bytes;
    std::size_t consumed = 0; // started: bytes of the command
    std::size_t need = 0;     // incomplete: look again once there are so many bytes
    std::size_t most = 0;     // incomplete: memory for the whole command, if more than `need`
};

class Protocol {
public:
    virtual ~Protocol() = default;
    // After `incomplete` and `blocked` the next call has the same bytes, and perhaps more.
    virtual Next next(const std::shared_ptr<Connection>& connection, Input& input) = 0;
};
std::unique_ptr<Protocol> make_memcached();
std::unique_ptr<Protocol> make_resp();

struct Reply {
    std::string text; // so far
    bool done = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
public:
    Connection(Worker& worker, Descriptor&& fd);
    ~Connection();

    Worker& worker() const { return worker_; }
    Table& table() const;
    int fd() const { return fd_.get(); }

    // An event of the socket. False: the connection has ended.
    bool readable();
    // Starts commands and sends replies. False as above.
    bool advance();
    bool wants_to_read() const { return read_bytes() > 0; }
    bool wants_to_write() const { return sent_ < out_.size(); }
    // The client has gone: commands under way end without an answer.
    void leave();
    // epoll's events that the worker waits for; nothing: the socket isn't in its set.
    std::optional<std::uint32_t> events;

    bool is_awake = false; // among the connections that the worker advances next
    // The worker has called this connection, which waited for memory.
    void unpause() { paused_ = false; }
    // Bytes beyond its share that it holds since the client stopped to read or to send, for so
    // many seconds at least. 0: it doesn't.
    std::size_t stalled_bytes(std::uint32_t seconds) const;

    void say(std::string text);
    // Can a command on these keys begin?
    bool may_begin(std::span<const std::string> keys, bool writes);
    bool may_begin(const std::string& key, bool writes) {
        return may_begin(std::span(&key, 1), writes);
    }
    // A command on all keys?
    bool may_begin_alone() const { return !under_way_; }

private:
    friend class Flight;
    friend struct Room;
    struct Use {
        unsigned readers = 0, writers = 0;
        bool forbids(bool writes) const { return writers || (writes && readers); }
    };
    struct Block {
        std::size_t hash;
        bool writes;
    };

    bool has_room() const;
    std::size_t read_bytes() const;
    bool is_blocked() const;
    bool fits(const Room& room) const;
    void grant_rooms();
    void parse();
    void trim_input();
    bool send();
    void account();
    void pause();

    Worker& worker_;
    Descriptor fd_;
    std::unique_ptr<Protocol> protocol_;
    std::string in_, out_;
    std::size_t taken_ = 0, sent_ = 0; // bytes of in_ and out_ that are done with
    std::size_t need_ = 0;             // bytes of in_ that a look makes sense from
    std::size_t most_ = 0;             // bytes of the command that is incomplete, at most
    std::deque<Reply> replies_;
    std::unordered_map<std::size_t, Use> keys_; // of commands under way, by hash
    std::size_t keys_count_ = 0;
    std::optional<Block> blocked_by_; // a key that the next command waits for
    std::vector<Room*> rooms_;        // memory for which commands wait
    Table::Asker asker_;
    unsigned whole_ = 0;     // commands under way on all keys
    unsigned under_way_ = 0; // commands
    std::size_t held_ = 0;   // bytes, as the budget knows
    std::size_t flight_bytes_ = 0, reply_bytes_ = 0;
    std::uint32_t progress_s_; // when the client last read or sent
    bool ended_ = false, closing_ = false, gone_ = false;
    bool paused_ = false;  // among the worker's paused ones
    bool starved_ = false; // the budget has no room for the rest of a command
};

} // namespace remora::kv
