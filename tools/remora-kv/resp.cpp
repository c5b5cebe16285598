// SPDX-License-Identifier: GPL-2.0
// Redis' protocol (RESP2), and those of its commands on strings that caches use.
#include <algorithm>
#include <functional>
#include <map>

#include <endian.h>

#include <fmt/format.h>

#include "common/version.hpp"
#include "remora-kv/connection.hpp"
#include "remora-kv/times.hpp"
#include "remora-kv/worker.hpp"

namespace remora::kv {

namespace {

constexpr std::size_t words_max = 65536;
constexpr std::size_t command_bytes_max = 64 << 20;
constexpr std::size_t line_bytes_max = 32;

using Words = std::vector<std::string>;
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

std::string upper(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
    return text;
}

// ---- reads ----

Detached run_find(std::shared_ptr<Connection> connection, Words keys, bool values,
                  std::function<std::string(const std::vector<Item>&)> text) {
    Flight flight(connection, keys, false);
    Counts& counts = connection->worker().counts;
    const std::vector<Item> items = co_await flight.table().find(std::move(keys), values);
    Counts::add(counts.gets, items.size());
    for (const Item& item : items) {
        if (item.error) {
            flight.end(node_error(item.error));
            co_return;
        }
        if (item.found)
            Counts::add(counts.hits);
    }
    flight.end(text(items));
}

std::string value_text(const Item& item) {
    return item.found ? bulk(item.value) : std::string(nil);
}

std::string many_text(const std::vector<Item>& items) {
    std::string text = fmt::format("*{}\r\n", items.size());
    for (const Item& item : items)
        text += value_text(item);
    return text;
}

std::string count_text(const std::vector<Item>& items) {
    return integer(std::ranges::count_if(items, &Item::found));
}

// ---- changes ----

Detached run_set(std::shared_ptr<Connection> connection, Change what,
                 std::function<std::string(const Changed&)> text) {
    Words keys{what.key};
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.sets);
    const Changed made = co_await flight.table().store(std::move(what));
    flight.end(text(made));
}

std::string set_text(const Changed& made) {
    if (!made.error && made.status == KV_OK)
        return "+OK\r\n";
    return !made.error && made.status == KV_NOT_STORED ? std::string(nil) : status_error(made);
}

// Keys and values by turns, in their order.
Detached run_mset(std::shared_ptr<Connection> connection, Words words) {
    Words keys;
    for (std::size_t n = 1; n < words.size(); n += 2)
        keys.push_back(words[n]);
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.sets, keys.size());
    for (std::size_t n = 0; n < keys.size(); n++) {
        Change what;
        what.key = keys[n];
        what.value = std::move(words[2 * n + 2]);
        const Changed made = co_await flight.table().store(std::move(what));
        if (made.error || made.status) {
            flight.end(status_error(made));
            co_return;
        }
    }
    flight.end("+OK\r\n");
}

Detached run_del(std::shared_ptr<Connection> connection, Words keys) {
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.deletes, keys.size());
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

Detached run_add(std::shared_ptr<Connection> connection, std::string key, std::uint64_t by) {
    Words keys{key};
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.sets);
    Change what;
    what.key = key;
    what.mode = KV_MODE_SIGNED;
    const Changed made = co_await flight.table().change(KV_ADD, std::move(what), by, &by);
    flight.end(!made.error && made.status == KV_OK ? integer(static_cast<std::int64_t>(made.number))
                                                   : status_error(made));
}

Detached run_expire(std::shared_ptr<Connection> connection, std::string key,
                    std::uint32_t expiry_s) {
    Words keys{key};
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.touches);
    Change what;
    what.key = key;
    what.expiry_s = expiry_s;
    const Changed made = co_await flight.table().change(KV_TOUCH, std::move(what));
    flight.end(made.error ? node_error(made.error) : integer(made.status == KV_OK));
}

// To an item, or as one, whichever is there.
Detached run_append(std::shared_ptr<Connection> connection, Change what) {
    Words keys{what.key};
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.sets);
    Changed made;
    for (bool append = true;; append = !append) {
        Change one = what;
        one.mode = append ? KV_MODE_APPEND : KV_MODE_ADD;
        made = co_await flight.table().store(std::move(one));
        if (made.error || made.status != KV_NOT_STORED)
            break;
    }
    if (made.error || made.status) {
        flight.end(status_error(made));
        co_return;
    }
    const std::vector<Item> items = co_await flight.table().find(std::move(keys), false);
    flight.end(items[0].error ? node_error(items[0].error) : integer(items[0].value_bytes));
}

// The value of before.
Detached run_swap(std::shared_ptr<Connection> connection, Change what, bool removes) {
    Words keys{what.key};
    Flight flight(connection, keys, true);
    for (;;) {
        Words one{what.key};
        const std::vector<Item> items = co_await flight.table().find(std::move(one));
        const Item& old = items[0];
        if (old.error) {
            flight.end(node_error(old.error));
            co_return;
        }
        if (!old.found && removes) {
            flight.end(std::string(nil));
            co_return;
        }
        Change next = what;
        next.version = old.version;
        next.mode = old.found ? KV_MODE_SET : KV_MODE_ADD;
        const Changed made = removes ? co_await flight.table().change(KV_DELETE, std::move(next))
                                     : co_await flight.table().store(std::move(next));
        const bool late = !made.error && (made.status == KV_EXISTS || made.status == KV_NOT_FOUND ||
                                          made.status == KV_NOT_STORED);
        if (late)
            continue;
        flight.end(made.error || made.status ? status_error(made) : value_text(old));
        co_return;
    }
}

Detached run_flush(std::shared_ptr<Connection> connection) {
    const std::vector<std::string> whole;
    Flight flight(connection, whole, true);
    Counts::add(connection->worker().counts.flushes);
    const Changed made = co_await flight.table().flush();
    flight.end(made.error ? node_error(made.error) : "+OK\r\n");
}

Detached run_stats(std::shared_ptr<Connection> connection, bool size) {
    const std::vector<std::string> whole;
    Flight flight(connection, whole, false);
    const Shared& shared = connection->worker().shared;
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
    std::function<void(Ref, Words&)> run;
};

void say(Ref connection, std::string_view text) {
    connection->say(std::string(text));
}

// EX and the like: a time from now, or Unix time. 0: it isn't one.
std::uint32_t expiry_by(std::string_view unit, std::string_view text, std::uint32_t now_s) {
    const auto number = number_of<std::int64_t>(text);
    if (!number || *number <= 0)
        return 0;
    const std::int64_t seconds = unit[0] == 'P' ? *number / 1000 + (*number % 1000 != 0) : *number;
    const std::int64_t at = unit.ends_with("AT") ? seconds : now_s + std::min(seconds, 1L << 33);
    return static_cast<std::uint32_t>(std::min<std::int64_t>(at, UINT32_MAX));
}

void set(Ref connection, Words& words) {
    Change what;
    what.key = words[1];
    what.value = std::move(words[2]);
    bool sound = true;
    for (std::size_t n = 3; n < words.size(); n++) {
        const std::string option = upper(words[n]);
        const bool timed = option == "EX" || option == "PX" || option == "EXAT" || option == "PXAT";
        if (timed && n + 1 < words.size() && !what.expiry_s) {
            what.expiry_s = expiry_by(option, words[++n], connection->table().now_s());
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
    run_set(connection, std::move(what), set_text);
}

void set_expiring(Ref connection, Words& words, std::string_view unit) {
    Change what;
    what.key = words[1];
    what.value = std::move(words[3]);
    what.expiry_s = expiry_by(unit, words[2], connection->table().now_s());
    if (!what.expiry_s)
        return say(connection, "-ERR invalid expire time\r\n");
    run_set(connection, std::move(what), set_text);
}

void add(Ref connection, Words& words, bool down) {
    const auto by = words.size() > 2 ? number_of<std::int64_t>(words[2]) : 1;
    if (!by || (down && *by == INT64_MIN))
        return say(connection, not_integer);
    run_add(connection, words[1], static_cast<std::uint64_t>(down ? -*by : *by));
}

void expire(Ref connection, Words& words, std::string_view unit) {
    const auto number = number_of<std::int64_t>(words[2]);
    if (!number)
        return say(connection, not_integer);
    if (*number <= 0)
        run_del(connection, {words[1]});
    else
        run_expire(connection, words[1], expiry_by(unit, words[2], connection->table().now_s()));
}

void ttl(Ref connection, Words& words, std::int64_t by) {
    const std::uint32_t now_s = connection->table().now_s();
    run_find(connection, {words[1]}, false, [now_s, by](const std::vector<Item>& items) {
        if (!items[0].found)
            return integer(-2);
        const std::int64_t left = std::int64_t{items[0].expiry_s} - now_s;
        return integer(items[0].expiry_s ? left * by : -1);
    });
}

Words keys_of(const Words& words) {
    return {words.begin() + 1, words.end()};
}

const std::map<std::string, Command, std::less<>>& commands() {
    constexpr std::size_t any = words_max;
    using C = Command;
    static const std::map<std::string, Command, std::less<>> table{
        {"PING",
         {1, 2, C::none, false,
          [](Ref c, Words& w) { say(c, w.size() > 1 ? bulk(w[1]) : "+PONG\r\n"); }}},
        {"ECHO", {2, 2, C::none, false, [](Ref c, Words& w) { say(c, bulk(w[1])); }}},
        {"SELECT",
         {2, 2, C::none, false,
          [](Ref c, Words& w) {
              say(c, w[1] == "0" ? "+OK\r\n" : "-ERR DB index is out of range\r\n");
          }}},
        {"CLIENT", {2, any, C::none, false, [](Ref c, Words&) { say(c, "+OK\r\n"); }}},
        {"COMMAND", {1, any, C::none, false, [](Ref c, Words&) { say(c, "*0\r\n"); }}},
        {"CONFIG",
         {2, any, C::none, false,
          [](Ref c, Words& w) {
              say(c, upper(w[1]) == "GET" ? "*0\r\n" : "-ERR only CONFIG GET is supported\r\n");
          }}},
        {"GET",
         {2, 2, C::one, false,
          [](Ref c, Words& w) {
              run_find(c, {w[1]}, true, [](const auto& items) { return value_text(items[0]); });
          }}},
        {"MGET",
         {2, any, C::all, false,
          [](Ref c, Words& w) { run_find(c, keys_of(w), true, many_text); }}},
        {"EXISTS",
         {2, any, C::all, false,
          [](Ref c, Words& w) { run_find(c, keys_of(w), false, count_text); }}},
        {"STRLEN",
         {2, 2, C::one, false,
          [](Ref c, Words& w) {
              run_find(c, {w[1]}, false,
                       [](const auto& items) { return integer(items[0].value_bytes); });
          }}},
        {"TYPE",
         {2, 2, C::one, false,
          [](Ref c, Words& w) {
              run_find(c, {w[1]}, false, [](const auto& items) {
                  return std::string(items[0].found ? "+string\r\n" : "+none\r\n");
              });
          }}},
        {"TTL", {2, 2, C::one, false, [](Ref c, Words& w) { ttl(c, w, 1); }}},
        {"PTTL", {2, 2, C::one, false, [](Ref c, Words& w) { ttl(c, w, 1000); }}},
        {"SET", {3, 8, C::one, true, set}},
        {"SETNX",
         {3, 3, C::one, true,
          [](Ref c, Words& w) {
              Change what;
              what.key = w[1];
              what.value = std::move(w[2]);
              what.mode = KV_MODE_ADD;
              run_set(c, std::move(what), [](const Changed& made) {
                  const bool known =
                      !made.error && (made.status == KV_OK || made.status == KV_NOT_STORED);
                  return known ? integer(made.status == KV_OK) : status_error(made);
              });
          }}},
        {"SETEX", {4, 4, C::one, true, [](Ref c, Words& w) { set_expiring(c, w, "EX"); }}},
        {"PSETEX", {4, 4, C::one, true, [](Ref c, Words& w) { set_expiring(c, w, "PX"); }}},
        {"GETSET",
         {3, 3, C::one, true,
          [](Ref c, Words& w) {
              Change what;
              what.key = w[1];
              what.value = std::move(w[2]);
              run_swap(c, std::move(what), false);
          }}},
        {"GETDEL",
         {2, 2, C::one, true,
          [](Ref c, Words& w) {
              Change what;
              what.key = w[1];
              run_swap(c, std::move(what), true);
          }}},
        {"APPEND",
         {3, 3, C::one, true,
          [](Ref c, Words& w) {
              Change what;
              what.key = w[1];
              what.value = std::move(w[2]);
              run_append(c, std::move(what));
          }}},
        {"MSET", {3, any, C::pairs, true, [](Ref c, Words& w) { run_mset(c, std::move(w)); }}},
        {"DEL", {2, any, C::all, true, [](Ref c, Words& w) { run_del(c, keys_of(w)); }}},
        {"UNLINK", {2, any, C::all, true, [](Ref c, Words& w) { run_del(c, keys_of(w)); }}},
        {"INCR", {2, 2, C::one, true, [](Ref c, Words& w) { add(c, w, false); }}},
        {"DECR", {2, 2, C::one, true, [](Ref c, Words& w) { add(c, w, true); }}},
        {"INCRBY", {3, 3, C::one, true, [](Ref c, Words& w) { add(c, w, false); }}},
        {"DECRBY", {3, 3, C::one, true, [](Ref c, Words& w) { add(c, w, true); }}},
        {"EXPIRE", {3, 3, C::one, true, [](Ref c, Words& w) { expire(c, w, "EX"); }}},
        {"PEXPIRE", {3, 3, C::one, true, [](Ref c, Words& w) { expire(c, w, "PX"); }}},
        {"EXPIREAT", {3, 3, C::one, true, [](Ref c, Words& w) { expire(c, w, "EXAT"); }}},
        {"PERSIST", {2, 2, C::one, true, [](Ref c, Words& w) { run_expire(c, w[1], 0); }}},
        {"FLUSHALL", {1, 2, C::whole, true, [](Ref c, Words&) { run_flush(c); }}},
        {"FLUSHDB", {1, 2, C::whole, true, [](Ref c, Words&) { run_flush(c); }}},
        {"DBSIZE", {1, 1, C::whole, false, [](Ref c, Words&) { run_stats(c, true); }}},
        {"INFO", {1, any, C::whole, false, [](Ref c, Words&) { run_stats(c, false); }}},
    };
    return table;
}

class Resp final : public Protocol {
public:
    Next next(Ref connection, std::string_view input, std::size_t& consumed) override;

private:
    // The words of a command. started: `consumed` bytes; close: connection was told why.
    Next parse(Ref connection, std::string_view input, std::size_t& consumed, Words& words);
};

// A line of a mark and a number.
Next take_number(std::string_view input, std::size_t& at, char mark, std::int64_t& number) {
    const std::size_t end = input.find("\r\n", at);
    if (end == input.npos)
        return input.size() - at > line_bytes_max ? Next::close : Next::incomplete;
    const std::string_view line = input.substr(at, end - at);
    if (line.empty() || line[0] != mark)
        return Next::close;
    const auto value = number_of<std::int64_t>(line.substr(1));
    if (!value)
        return Next::close;
    number = *value;
    at = end + 2;
    return Next::started;
}

Next Resp::parse(Ref connection, std::string_view input, std::size_t& consumed, Words& words) {
    std::int64_t count = 0;
    std::size_t at = 0;
    auto fails = [&](Next why) {
        if (why == Next::close)
            connection->say("-ERR Protocol error: invalid bulk or multibulk length\r\n");
        return why;
    };
    if (const Next made = take_number(input, at, '*', count); made != Next::started)
        return fails(made);
    if (count > static_cast<std::int64_t>(words_max))
        return fails(Next::close);
    for (std::int64_t n = 0; n < count; n++) {
        std::int64_t bytes = 0;
        if (const Next made = take_number(input, at, '$', bytes); made != Next::started)
            return fails(made);
        if (bytes < 0 || bytes > static_cast<std::int64_t>(command_bytes_max) ||
            at > command_bytes_max)
            return fails(Next::close);
        if (input.size() < at + static_cast<std::size_t>(bytes) + 2)
            return Next::incomplete;
        words.emplace_back(input.substr(at, static_cast<std::size_t>(bytes)));
        at += static_cast<std::size_t>(bytes) + 2;
    }
    consumed = at;
    return Next::started;
}

Next Resp::next(Ref connection, std::string_view input, std::size_t& consumed) {
    Words words;
    if (const Next made = parse(connection, input, consumed, words); made != Next::started)
        return made;
    if (words.empty())
        return Next::started;
    const std::string name = upper(words[0]);
    if (name == "QUIT") {
        connection->say("+OK\r\n");
        return Next::close;
    }
    const auto found = commands().find(name);
    if (found == commands().end()) {
        connection->say(fmt::format("-ERR unknown command '{}'\r\n", words[0].substr(0, 64)));
        return Next::started;
    }
    const Command& command = found->second;
    if (words.size() < command.least || words.size() > command.most ||
        (command.keys == Command::pairs && words.size() % 2 == 0)) {
        connection->say(
            fmt::format("-ERR wrong number of arguments for '{}' command\r\n", words[0]));
        return Next::started;
    }
    Words keys;
    const std::size_t step = command.keys == Command::pairs ? 2 : 1;
    const bool has_keys = command.keys != Command::none && command.keys != Command::whole;
    const std::size_t end = command.keys == Command::one ? 2 : words.size();
    for (std::size_t n = 1; has_keys && n < end; n += step) {
        if (words[n].empty() || words[n].size() > KV_KEY_BYTES_MAX) {
            connection->say("-ERR a key has 1 to 250 bytes\r\n");
            return Next::started;
        }
        keys.push_back(words[n]);
    }
    if (command.keys != Command::none && !connection->may_begin(keys, command.writes)) {
        consumed = 0;
        return Next::blocked;
    }
    command.run(connection, words);
    return Next::started;
}

} // namespace

std::unique_ptr<Protocol> make_resp() {
    return std::make_unique<Resp>();
}

} // namespace remora::kv
