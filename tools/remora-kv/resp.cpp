// SPDX-License-Identifier: GPL-2.0
// Redis' protocol (RESP2), and those of its commands on strings that caches use.
#include <algorithm>
#include <functional>
#include <map>

#include <endian.h>

#include <fmt/format.h>

#include "common/version.hpp"
#include "remora-kv/flight.hpp"
#include "remora-kv/times.hpp"

namespace remora::kv {

namespace {

constexpr std::size_t words_max = 65536;
constexpr std::size_t command_bytes_max = 4 << 20;
constexpr std::size_t name_bytes_max = 32; // of a command
constexpr std::size_t line_bytes_max = 32;

using Words = std::vector<std::string_view>;
using Keys = std::vector<std::string>;
using Ref = const std::shared_ptr<Connection>&;

std::string bulk(std::string_view text) {
    return fmt::format("${}\r\n{}\r\n", text.size(), text);
}

constexpr std::string_view nil = "$-1\r\n";

std::string integer(std::int64_t number) {
    return fmt::format(":{}\r\n", number);
}

std::string node_error(int error) {
    return fmt::format("-ERR {}\r\n", remote_strerror(error));
}

// KV_OK has no text of its own.
std::string status_error(const Changed& made) {
    if (made.error)
        return node_error(made.error);
    switch (made.status) {
    case KV_NO_MEMORY:
        return "-OOM the table's memory is full\r\n";
    case KV_TOO_LARGE:
        return "-ERR a value has up to 1 MiB\r\n";
    case KV_NOT_A_NUMBER:
        return "-ERR value is not an integer or out of range\r\n";
    case KV_OVERFLOW:
        return "-ERR increment or decrement would overflow\r\n";
    default:
        return "-ERR the key changed meanwhile\r\n";
    }
}

constexpr std::string_view syntax_error = "-ERR syntax error\r\n";
constexpr std::string_view not_integer = "-ERR value is not an integer or out of range\r\n";

// A client's word in an error.
std::string printable(std::string_view text) {
    std::string made(text.substr(0, name_bytes_max));
    std::ranges::replace_if(
        made, [](unsigned char c) { return !std::isprint(c); }, '?');
    return made;
}

std::string upper(std::string_view text) {
    std::string made(text.substr(0, name_bytes_max));
    std::ranges::transform(made, made.begin(), [](unsigned char c) { return std::toupper(c); });
    return made;
}

// ---- reads ----

void add_value(std::string& text, const Item& item) {
    text += item.found ? bulk(item.value) : std::string(nil);
}

// One key: GET and others that tell something of its item.
Detached run_find(std::shared_ptr<Connection> connection, std::string key, bool value,
                  std::function<std::string(const Item&)> text) {
    Flight flight(connection, std::span(&key, 1), false);
    Counts& counts = flight.worker().counts;
    const Item item = co_await flight.get(key, value);
    Counts::add(counts.gets);
    if (item.found)
        Counts::add(counts.hits);
    flight.end(item.error ? node_error(item.error) : text(item));
}

std::string value_text(const Item& item) {
    std::string text;
    add_value(text, item);
    return text;
}

Detached run_mget(std::shared_ptr<Connection> connection, Keys keys) {
    Flight flight(connection, keys, false);
    Counts& counts = flight.worker().counts;
    std::size_t done = 0;
    Counts::add(counts.gets, keys.size());
    flight.more(fmt::format("*{}\r\n", keys.size()));
    const int error =
        co_await flight.read(keys, true, [&](std::size_t, const Item& item, std::string& text) {
            done++;
            if (item.found)
                Counts::add(counts.hits);
            add_value(text, item);
        });
    // Values that went out can't be called back.
    for (; error && done < keys.size(); done++)
        flight.more(node_error(error));
    flight.end("");
}

Detached run_exists(std::shared_ptr<Connection> connection, Keys keys) {
    Flight flight(connection, keys, false);
    std::int64_t found = 0;
    Counts::add(flight.worker().counts.gets, keys.size());
    const int error = co_await flight.read(
        keys, false, [&](std::size_t, const Item& item, std::string&) { found += item.found; });
    Counts::add(flight.worker().counts.hits, static_cast<std::uint64_t>(found));
    flight.end(error ? node_error(error) : integer(found));
}

// ---- changes ----

void start_set(Ref connection, Change what) {
    run_change(connection, KV_SET, std::move(what), &Counts::sets, [](const Changed& made) {
        if (!made.error && made.status == KV_OK)
            return std::string("+OK\r\n");
        return !made.error && made.status == KV_NOT_STORED ? std::string(nil) : status_error(made);
    });
}

// In their order.
Detached run_mset(std::shared_ptr<Connection> connection, Keys keys, Keys values,
                  std::size_t bytes) {
    Flight flight(connection, keys, true, bytes);
    Counts::add(flight.worker().counts.sets, keys.size());
    for (std::size_t n = 0; n < keys.size(); n++) {
        Change what;
        what.key = keys[n];
        what.value = std::move(values[n]);
        const Changed made = co_await flight.store(std::move(what));
        if (made.error || made.status) {
            flight.end(status_error(made));
            co_return;
        }
    }
    flight.end("+OK\r\n");
}

Detached run_del(std::shared_ptr<Connection> connection, Keys keys) {
    Flight flight(connection, keys, true);
    Counts::add(flight.worker().counts.deletes, keys.size());
    std::int64_t count = 0;
    for (const std::string& key : keys) {
        Change what;
        what.key = key;
        const Changed made = co_await flight.table().change(KV_DELETE, std::move(what));
        if (made.error) {
            flight.end(node_error(made.error));
            co_return;
        }
        count += made.status == KV_OK;
    }
    flight.end(integer(count));
}

Detached run_persist(std::shared_ptr<Connection> connection, std::string key) {
    Flight flight(connection, std::span(&key, 1), true);
    Counts::add(flight.worker().counts.touches);
    const Item before = co_await flight.get_and_touch(key, 0, false);
    flight.end(before.error ? node_error(before.error) : integer(before.expiry_s != 0));
}

// To an item, or as one, whichever is there.
Detached run_append(std::shared_ptr<Connection> connection, Change what) {
    Flight flight(connection, std::span(&what.key, 1), true, what.value.size());
    Counts::add(flight.worker().counts.sets);
    Changed made;
    for (bool append = true;; append = !append) {
        Change one = what;
        one.mode = append ? KV_MODE_APPEND : KV_MODE_ADD;
        made = co_await flight.store(std::move(one));
        if (made.error || made.status != KV_NOT_STORED)
            break;
    }
    flight.end(made.error || made.status ? status_error(made)
                                         : integer(static_cast<std::int64_t>(made.number)));
}

// The value of before.
Detached run_swap(std::shared_ptr<Connection> connection, Change what, bool removes) {
    Flight flight(connection, std::span(&what.key, 1), true, what.value.size());
    for (;;) {
        const Item old = co_await flight.get(what.key, true);
        if (old.error || (!old.found && removes)) {
            flight.end(old.error ? node_error(old.error) : std::string(nil));
            co_return;
        }
        Change next = what;
        next.version = old.version;
        next.mode = old.found ? KV_MODE_SET : KV_MODE_ADD;
        const Changed made = removes ? co_await flight.table().change(KV_DELETE, std::move(next))
                                     : co_await flight.store(std::move(next));
        const bool late = !made.error && (made.status == KV_EXISTS || made.status == KV_NOT_FOUND ||
                                          made.status == KV_NOT_STORED);
        if (late)
            continue;
        flight.end(made.error || made.status ? status_error(made) : value_text(old));
        co_return;
    }
}

std::string flushed_text(const Changed& made) {
    return made.error ? node_error(made.error) : "+OK\r\n";
}

Detached run_stats(std::shared_ptr<Connection> connection, bool size) {
    Flight flight(connection, {}, false);
    const Shared& shared = flight.worker().shared;
    const auto [error, stats] = co_await flight.table().stats();
    if (error)
        flight.end(node_error(error));
    else if (size)
        flight.end(integer(static_cast<std::int64_t>(le64toh(stats.items))));
    else
        flight.end(bulk(fmt::format(
            "# Server\r\nredis_version:7.0.0\r\nremora_version:{}\r\nuptime_in_seconds:{}\r\n"
            "# Clients\r\nconnected_clients:{}\r\n# Memory\r\nused_memory:{}\r\nmaxmemory:{}\r\n"
            "# Stats\r\nkeyspace_hits:{}\r\nkeyspace_misses:{}\r\nevicted_keys:{}\r\n"
            "# Keyspace\r\ndb0:keys={},expires=0,avg_ttl=0\r\n",
            version, flight.table().now_s() - shared.started_s, shared.sum(&Counts::open),
            le64toh(stats.item_bytes), le64toh(stats.bytes), shared.sum(&Counts::hits),
            shared.sum(&Counts::gets) - shared.sum(&Counts::hits), le64toh(stats.evicted),
            le64toh(stats.items))));
}

// ---- commands ----

struct Command {
    std::size_t least, most; // words, with the name
    enum Keys { none, one, all, pairs, whole } keys;
    bool writes;
    std::function<void(Ref, const Words&)> run;
};

void say(Ref connection, std::string_view text) {
    connection->say(std::string(text));
}

Change change_of(const Words& words, std::size_t value) {
    Change what;
    what.key = words[1];
    what.value = words[value];
    return what;
}

void set(Ref connection, const Words& words) {
    Change what = change_of(words, 2);
    bool sound = true;
    for (std::size_t n = 3; n < words.size(); n++) {
        const std::string option = upper(words[n]);
        const bool timed = option == "EX" || option == "PX" || option == "EXAT" || option == "PXAT";
        if (timed && n + 1 < words.size() && !what.expiry_s) {
            what.expiry_s = expiry_by(option, words[++n], clock_ms());
            if (!what.expiry_s)
                return say(connection, "-ERR invalid expire time in 'set' command\r\n");
        } else if ((option == "NX" || option == "XX") && what.mode == KV_MODE_SET) {
            what.mode = option == "NX" ? KV_MODE_ADD : KV_MODE_REPLACE;
        } else {
            sound = false;
        }
    }
    if (!sound)
        return say(connection, syntax_error);
    what.shared = what.mode == KV_MODE_SET;
    start_set(connection, std::move(what));
}

void set_expiring(Ref connection, const Words& words, std::string_view unit) {
    Change what = change_of(words, 3);
    what.expiry_s = expiry_by(unit, words[2], clock_ms());
    if (!what.expiry_s)
        return say(connection, "-ERR invalid expire time\r\n");
    start_set(connection, std::move(what));
}

void set_new(Ref connection, const Words& words) {
    Change what = change_of(words, 2);
    what.mode = KV_MODE_ADD;
    run_change(connection, KV_SET, std::move(what), &Counts::sets, [](const Changed& made) {
        const bool known = !made.error && (made.status == KV_OK || made.status == KV_NOT_STORED);
        return known ? integer(made.status == KV_OK) : status_error(made);
    });
}

void add(Ref connection, const Words& words, bool down) {
    const auto by = words.size() > 2 ? number_of<std::int64_t>(words[2]) : 1;
    if (!by || (down && *by == INT64_MIN))
        return say(connection, not_integer);
    Change what;
    what.key = words[1];
    what.mode = KV_MODE_SIGNED;
    what.number = static_cast<std::uint64_t>(down ? -*by : *by);
    what.first = what.number;
    run_change(connection, KV_ADD, std::move(what), &Counts::sets, [](const Changed& made) {
        return !made.error && made.status == KV_OK ? integer(static_cast<std::int64_t>(made.number))
                                                   : status_error(made);
    });
}

void expire(Ref connection, const Words& words, std::string_view unit) {
    const auto number = number_of<std::int64_t>(words[2]);
    if (!number)
        return say(connection, not_integer);
    const bool removes = *number <= 0;
    Change what;
    what.key = words[1];
    what.expiry_s = expiry_by(unit, words[2], clock_ms());
    run_change(connection, removes ? KV_DELETE : KV_TOUCH, std::move(what),
               removes ? &Counts::deletes : &Counts::touches, [](const Changed& made) {
                   return made.error ? node_error(made.error) : integer(made.status == KV_OK);
               });
}

void ttl(Ref connection, const Words& words, std::int64_t unit_ms) {
    run_find(connection, std::string(words[1]), false, [unit_ms](const Item& item) {
        if (!item.found)
            return integer(-2);
        return integer(item.expiry_s ? left_ms(item.expiry_s, clock_ms()) / unit_ms : -1);
    });
}

void client(Ref connection, const Words& words) {
    const std::string name = upper(words[1]);
    if ((name == "SETNAME" && words.size() == 3) || (name == "SETINFO" && words.size() == 4))
        return say(connection, "+OK\r\n");
    say(connection, fmt::format("-ERR Unknown subcommand or wrong number of arguments for '{}'. "
                                "SETNAME and SETINFO are known.\r\n",
                                printable(words[1])));
}

void mset(Ref connection, const Words& words) {
    Keys keys, values;
    std::size_t bytes = 0;
    for (std::size_t n = 1; n < words.size(); n += 2) {
        keys.emplace_back(words[n]);
        values.emplace_back(words[n + 1]);
        bytes += words[n + 1].size() + sizeof(values[0]);
    }
    run_mset(connection, std::move(keys), std::move(values), bytes);
}

Keys keys_of(const Words& words) {
    return {words.begin() + 1, words.end()};
}

const std::map<std::string, Command, std::less<>>& commands() {
    constexpr std::size_t any = words_max;
    using C = Command;
    static const std::map<std::string, Command, std::less<>> table{
        {"PING",
         {1, 2, C::none, false,
          [](Ref c, const Words& w) { say(c, w.size() > 1 ? bulk(w[1]) : "+PONG\r\n"); }}},
        {"ECHO", {2, 2, C::none, false, [](Ref c, const Words& w) { say(c, bulk(w[1])); }}},
        {"SELECT",
         {2, 2, C::none, false,
          [](Ref c, const Words& w) {
              say(c, w[1] == "0" ? "+OK\r\n" : "-ERR DB index is out of range\r\n");
          }}},
        {"CLIENT", {2, any, C::none, false, client}},
        {"COMMAND", {1, any, C::none, false, [](Ref c, const Words&) { say(c, "*0\r\n"); }}},
        {"CONFIG",
         {2, any, C::none, false,
          [](Ref c, const Words& w) {
              say(c, upper(w[1]) == "GET" ? "*0\r\n" : "-ERR only CONFIG GET is supported\r\n");
          }}},
        {"GET",
         {2, 2, C::one, false,
          [](Ref c, const Words& w) { run_find(c, std::string(w[1]), true, value_text); }}},
        {"MGET", {2, any, C::all, false, [](Ref c, const Words& w) { run_mget(c, keys_of(w)); }}},
        {"EXISTS",
         {2, any, C::all, false, [](Ref c, const Words& w) { run_exists(c, keys_of(w)); }}},
        {"STRLEN",
         {2, 2, C::one, false,
          [](Ref c, const Words& w) {
              run_find(c, std::string(w[1]), false,
                       [](const Item& item) { return integer(item.value_bytes); });
          }}},
        {"TYPE",
         {2, 2, C::one, false,
          [](Ref c, const Words& w) {
              run_find(c, std::string(w[1]), false, [](const Item& item) {
                  return std::string(item.found ? "+string\r\n" : "+none\r\n");
              });
          }}},
        {"TTL", {2, 2, C::one, false, [](Ref c, const Words& w) { ttl(c, w, 1000); }}},
        {"PTTL", {2, 2, C::one, false, [](Ref c, const Words& w) { ttl(c, w, 1); }}},
        {"SET", {3, 8, C::one, true, set}},
        {"SETNX", {3, 3, C::one, true, set_new}},
        {"SETEX", {4, 4, C::one, true, [](Ref c, const Words& w) { set_expiring(c, w, "EX"); }}},
        {"PSETEX", {4, 4, C::one, true, [](Ref c, const Words& w) { set_expiring(c, w, "PX"); }}},
        {"GETSET",
         {3, 3, C::one, true, [](Ref c, const Words& w) { run_swap(c, change_of(w, 2), false); }}},
        {"GETDEL",
         {2, 2, C::one, true,
          [](Ref c, const Words& w) {
              Change what;
              what.key = w[1];
              run_swap(c, std::move(what), true);
          }}},
        {"APPEND",
         {3, 3, C::one, true, [](Ref c, const Words& w) { run_append(c, change_of(w, 2)); }}},
        {"MSET", {3, any, C::pairs, true, mset}},
        {"DEL", {2, any, C::all, true, [](Ref c, const Words& w) { run_del(c, keys_of(w)); }}},
        {"UNLINK", {2, any, C::all, true, [](Ref c, const Words& w) { run_del(c, keys_of(w)); }}},
        {"INCR", {2, 2, C::one, true, [](Ref c, const Words& w) { add(c, w, false); }}},
        {"DECR", {2, 2, C::one, true, [](Ref c, const Words& w) { add(c, w, true); }}},
        {"INCRBY", {3, 3, C::one, true, [](Ref c, const Words& w) { add(c, w, false); }}},
        {"DECRBY", {3, 3, C::one, true, [](Ref c, const Words& w) { add(c, w, true); }}},
        {"EXPIRE", {3, 3, C::one, true, [](Ref c, const Words& w) { expire(c, w, "EX"); }}},
        {"PEXPIRE", {3, 3, C::one, true, [](Ref c, const Words& w) { expire(c, w, "PX"); }}},
        {"EXPIREAT", {3, 3, C::one, true, [](Ref c, const Words& w) { expire(c, w, "EXAT"); }}},
        {"PERSIST",
         {2, 2, C::one, true, [](Ref c, const Words& w) { run_persist(c, std::string(w[1])); }}},
        {"FLUSHALL",
         {1, 2, C::whole, true, [](Ref c, const Words&) { run_flush(c, flushed_text); }}},
        {"FLUSHDB",
         {1, 2, C::whole, true, [](Ref c, const Words&) { run_flush(c, flushed_text); }}},
        {"DBSIZE", {1, 1, C::whole, false, [](Ref c, const Words&) { run_stats(c, true); }}},
        {"INFO", {1, any, C::whole, false, [](Ref c, const Words&) { run_stats(c, false); }}},
    };
    return table;
}

// Reads a command's words as their bytes come.
class Resp final : public Protocol {
public:
    Next next(Ref connection, Input& input) override;

private:
    struct Word {
        std::size_t at, bytes;
    };

    Next take_number(Input& input, char mark, std::int64_t& number);
    Next parse(Input& input);
    Next start(Ref connection, std::string_view bytes);

    std::int64_t count_ = -1; // words of the command; negative: it isn't known yet
    std::vector<Word> words_; // words whose bytes are there
    std::size_t at_ = 0;      // offset of the next one
};

// A line of a mark and a number. at_ goes behind it.
Next Resp::take_number(Input& input, char mark, std::int64_t& number) {
    const std::string_view bytes = input.bytes.substr(std::min(at_, input.bytes.size()));
    const std::size_t end = bytes.substr(0, line_bytes_max).find("\r\n");
    if (end == bytes.npos)
        return bytes.size() >= line_bytes_max ? Next::close : Next::incomplete;
    const auto value =
        bytes[0] == mark ? number_of<std::int64_t>(bytes.substr(1, end - 1)) : std::nullopt;
    if (!value)
        return Next::close;
    number = *value;
    at_ += end + 2;
    return Next::started;
}

// The words up to the end of the command, or of the bytes.
Next Resp::parse(Input& input) {
    if (count_ < 0) {
        if (const Next made = take_number(input, '*', count_); made != Next::started)
            return made;
        count_ = std::max<std::int64_t>(count_, 0);
        if (count_ > static_cast<std::int64_t>(words_max))
            return Next::close;
    }
    while (static_cast<std::int64_t>(words_.size()) < count_) {
        const std::size_t line = at_;
        std::int64_t bytes = 0;
        if (const Next made = take_number(input, '$', bytes); made != Next::started)
            return made;
        if (bytes < 0 || bytes > static_cast<std::int64_t>(command_bytes_max) ||
            at_ + static_cast<std::size_t>(bytes) > command_bytes_max)
            return Next::close;
        const Word word{at_, static_cast<std::size_t>(bytes)};
        const std::size_t end = word.at + word.bytes + 2;
        if (input.bytes.size() < end) {
            at_ = line;
            input.need = end;
            // Memory for all words at once, so that no two commands wait for each other's.
            if (end > at_ + line_bytes_max + KV_KEY_BYTES_MAX &&
                static_cast<std::int64_t>(words_.size()) + 1 < count_)
                input.most = command_bytes_max;
            return Next::incomplete;
        }
        words_.push_back(word);
        at_ = end;
    }
    return Next::started;
}

Next Resp::next(Ref connection, Input& input) {
    Next made = parse(input);
    if (made == Next::close)
        connection->say("-ERR Protocol error: invalid bulk or multibulk length\r\n");
    if (made == Next::started)
        made = start(connection, input.bytes);
    if (made != Next::started)
        return made;
    input.consumed = at_;
    count_ = -1;
    at_ = 0;
    words_.clear();
    if (words_.capacity() * sizeof(Word) > line_bytes_max * KV_KEYS_MAX)
        words_.shrink_to_fit();
    return made;
}

Next Resp::start(Ref connection, std::string_view bytes) {
    if (words_.empty())
        return Next::started;
    Words words;
    words.reserve(words_.size());
    for (const Word& word : words_)
        words.push_back(bytes.substr(word.at, word.bytes));
    const std::string name = upper(words[0]);
    if (name == "QUIT") {
        connection->say("+OK\r\n");
        return Next::close;
    }
    const auto found = commands().find(name);
    if (found == commands().end()) {
        connection->say(fmt::format("-ERR unknown command '{}'\r\n", printable(words[0])));
        return Next::started;
    }
    const Command& command = found->second;
    if (words.size() < command.least || words.size() > command.most ||
        (command.keys == Command::pairs && words.size() % 2 == 0)) {
        connection->say(
            fmt::format("-ERR wrong number of arguments for '{}' command\r\n", words[0]));
        return Next::started;
    }
    Keys keys;
    const std::size_t step = command.keys == Command::pairs ? 2 : 1;
    const bool has_keys = command.keys != Command::none && command.keys != Command::whole;
    const std::size_t end = command.keys == Command::one ? 2 : words.size();
    for (std::size_t n = 1; has_keys && n < end; n += step) {
        if (words[n].empty() || words[n].size() > KV_KEY_BYTES_MAX) {
            connection->say("-ERR a key has 1 to 250 bytes\r\n");
            return Next::started;
        }
        keys.emplace_back(words[n]);
    }
    if (command.keys == Command::whole ? !connection->may_begin_alone()
                                       : !connection->may_begin(keys, command.writes))
        return Next::blocked;
    command.run(connection, words);
    return Next::started;
}

} // namespace

std::unique_ptr<Protocol> make_resp() {
    return std::make_unique<Resp>();
}

} // namespace remora::kv
