// SPDX-License-Identifier: GPL-2.0
// memcached's text and meta protocols (its doc/protocol.txt).
#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <span>

#include <endian.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/version.hpp"
#include "remora-kv/connection.hpp"
#include "remora-kv/times.hpp"
#include "remora-kv/worker.hpp"

namespace remora::kv {

namespace {

constexpr std::size_t line_bytes_max = 65536;
constexpr std::size_t reply_bytes_max = 64 << 20;
constexpr std::size_t meta_flag_bytes_max = 32;

using Words = std::vector<std::string_view>;

Words words_of(std::string_view line) {
    Words words;
    while (true) {
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        if (line.empty())
            return words;
        const std::size_t end = std::min(line.find(' '), line.size());
        words.push_back(line.substr(0, end));
        line.remove_prefix(end);
    }
}

bool is_key(std::string_view key) {
    return !key.empty() && key.size() <= KV_KEY_BYTES_MAX;
}

std::string server_error(int error) {
    return fmt::format("SERVER_ERROR {}\r\n", remote_strerror(error));
}

constexpr std::string_view bad_format = "CLIENT_ERROR bad command line format\r\n";

// ---- text ----

std::string stored_text(const Changed& made) {
    if (made.error)
        return server_error(made.error);
    switch (made.status) {
    case KV_OK:
        return "STORED\r\n";
    case KV_NOT_FOUND:
        return "NOT_FOUND\r\n";
    case KV_EXISTS:
        return "EXISTS\r\n";
    case KV_NO_MEMORY:
        return "SERVER_ERROR out of memory storing object\r\n";
    case KV_TOO_LARGE:
        return "SERVER_ERROR object too large for cache\r\n";
    default:
        return "NOT_STORED\r\n";
    }
}

Detached run_get(std::shared_ptr<Connection> connection, std::vector<std::string> keys, bool cas) {
    Flight flight(connection, keys, false);
    Counts& counts = connection->worker().counts;
    std::string text;
    Counts::add(counts.gets, keys.size());
    // Some keys at a time: their values can have 1 MiB each.
    for (std::size_t at = 0; at < keys.size(); at += KV_KEYS_MAX) {
        const auto part =
            std::span(keys).subspan(at, std::min<std::size_t>(keys.size() - at, KV_KEYS_MAX));
        const std::vector<Item> items =
            co_await flight.table().find(std::vector<std::string>(part.begin(), part.end()));
        for (std::size_t n = 0; n < items.size(); n++) {
            if (items[n].error) {
                flight.end(server_error(items[n].error));
                co_return;
            }
            if (!items[n].found)
                continue;
            Counts::add(counts.hits);
            text += fmt::format("VALUE {} {} {}", part[n], items[n].flags, items[n].value.size());
            if (cas)
                text += fmt::format(" {}", items[n].version);
            text += "\r\n";
            text += items[n].value;
            text += "\r\n";
        }
        if (text.size() > reply_bytes_max) {
            flight.end("SERVER_ERROR out of memory writing get response\r\n");
            co_return;
        }
    }
    flight.end(text + "END\r\n");
}

Detached run_get_and_touch(std::shared_ptr<Connection> connection, std::vector<std::string> keys,
                           std::uint32_t expiry_s, bool cas) {
    Flight flight(connection, keys, true);
    Counts& counts = connection->worker().counts;
    std::string text;
    for (const std::string& key : keys) {
        Change what;
        what.key = key;
        what.expiry_s = expiry_s;
        const Changed touched = co_await flight.table().change(KV_TOUCH, std::move(what));
        std::vector<std::string> one{key};
        const std::vector<Item> items = co_await flight.table().find(std::move(one));
        Counts::add(counts.gets);
        Counts::add(counts.touches);
        if (touched.error || items[0].error) {
            flight.end(server_error(touched.error ? touched.error : items[0].error));
            co_return;
        }
        if (!items[0].found)
            continue;
        Counts::add(counts.hits);
        text += fmt::format("VALUE {} {} {}", key, items[0].flags, items[0].value.size());
        if (cas)
            text += fmt::format(" {}", items[0].version);
        text += "\r\n" + items[0].value + "\r\n";
    }
    flight.end(text + "END\r\n");
}

Detached run_store(std::shared_ptr<Connection> connection, Change what, bool quiet) {
    std::vector<std::string> keys{what.key};
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.sets);
    const Changed made = co_await flight.table().store(std::move(what));
    flight.end(quiet ? "" : stored_text(made));
}

Detached run_delete(std::shared_ptr<Connection> connection, std::string key, bool quiet) {
    std::vector<std::string> keys{key};
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.deletes);
    Change what;
    what.key = key;
    const Changed made = co_await flight.table().change(KV_DELETE, std::move(what));
    flight.end(quiet                  ? ""
               : made.error           ? server_error(made.error)
               : made.status == KV_OK ? "DELETED\r\n"
                                      : "NOT_FOUND\r\n");
}

Detached run_touch(std::shared_ptr<Connection> connection, std::string key, std::uint32_t expiry_s,
                   bool quiet) {
    std::vector<std::string> keys{key};
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.touches);
    Change what;
    what.key = key;
    what.expiry_s = expiry_s;
    const Changed made = co_await flight.table().change(KV_TOUCH, std::move(what));
    flight.end(quiet                  ? ""
               : made.error           ? server_error(made.error)
               : made.status == KV_OK ? "TOUCHED\r\n"
                                      : "NOT_FOUND\r\n");
}

Detached run_add(std::shared_ptr<Connection> connection, std::string key, std::uint64_t by,
                 kv_mode mode, bool quiet) {
    std::vector<std::string> keys{key};
    Flight flight(connection, keys, true);
    Change what;
    what.key = key;
    what.mode = mode;
    const Changed made = co_await flight.table().change(KV_ADD, std::move(what), by);
    std::string text = stored_text(made);
    if (!made.error && made.status == KV_OK)
        text = fmt::format("{}\r\n", made.number);
    else if (!made.error && made.status == KV_NOT_A_NUMBER)
        text = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    flight.end(quiet ? "" : std::move(text));
}

Detached run_flush(std::shared_ptr<Connection> connection, bool quiet) {
    const std::vector<std::string> whole;
    Flight flight(connection, whole, true);
    Counts::add(connection->worker().counts.flushes);
    const Changed made = co_await flight.table().flush();
    flight.end(quiet ? "" : made.error ? server_error(made.error) : "OK\r\n");
}

Detached run_stats(std::shared_ptr<Connection> connection) {
    const std::vector<std::string> whole;
    Flight flight(connection, whole, false);
    const Shared& shared = connection->worker().shared;
    const auto [error, stats] = co_await flight.table().stats();
    if (error) {
        flight.end(server_error(error));
        co_return;
    }
    std::string text;
    auto row = [&](std::string_view name, auto value) {
        text += fmt::format("STAT {} {}\r\n", name, value);
    };
    const std::uint64_t gets = shared.sum(&Counts::gets), hits = shared.sum(&Counts::hits);
    row("pid", getpid());
    row("uptime", flight.table().now_s() - shared.started_s);
    row("time", flight.table().now_s());
    row("version", version);
    row("pointer_size", 64);
    row("curr_connections", shared.sum(&Counts::open));
    row("total_connections", shared.sum(&Counts::accepted));
    row("cmd_get", gets);
    row("cmd_set", shared.sum(&Counts::sets));
    row("cmd_flush", shared.sum(&Counts::flushes));
    row("cmd_touch", shared.sum(&Counts::touches));
    row("cmd_delete", shared.sum(&Counts::deletes));
    row("get_hits", hits);
    row("get_misses", gets - hits);
    row("threads", shared.threads);
    row("limit_maxbytes", le64toh(stats.bytes));
    row("bytes", le64toh(stats.item_bytes));
    row("curr_items", le64toh(stats.items));
    row("evictions", le64toh(stats.evicted));
    row("reclaimed", le64toh(stats.reclaimed));
    row("hash_buckets", le32toh(stats.buckets));
    row("slabs", le32toh(stats.slabs));
    row("slabs_used", le32toh(stats.slabs_used));
    flight.end(text + "END\r\n");
}

// ---- meta ----

std::optional<std::string> base64_decoded(std::string_view text) {
    static constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    std::uint32_t bits = 0;
    unsigned count = 0;
    while (!text.empty() && text.back() == '=')
        text.remove_suffix(1);
    for (char each : text) {
        const std::size_t digit = digits.find(each);
        if (digit == digits.npos)
            return std::nullopt;
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        count += 6;
        if (count >= 8) {
            count -= 8;
            bytes += static_cast<char>(bits >> count & 0xff);
        }
    }
    return bytes;
}

// A meta command, its flags read.
struct Meta {
    std::string key;   // of the table
    std::string shown; // as the client wrote it
    std::vector<std::string> flags;
    bool quiet = false, base64 = false;
    std::uint64_t compare = 0; // C
    bool compares = false;
    std::uint32_t flags_value = 0; // F
    std::optional<std::int64_t> ttl, create;
    std::uint64_t by = 1, first = 0; // D, J
    char mode = 0;
};

bool has(const Meta& meta, char flag) {
    return std::ranges::any_of(meta.flags,
                               [&](const std::string& each) { return each[0] == flag; });
}

// False: a flag that isn't known, or has no sound value.
bool read_flags(Meta& meta, std::string_view known, const Words& words, std::size_t from) {
    for (std::size_t n = from; n < words.size(); n++) {
        const std::string_view value = words[n].substr(1);
        if (known.find(words[n][0]) == known.npos || words[n].size() > meta_flag_bytes_max)
            return false;
        bool sound = true;
        auto take = [&](auto& to) {
            auto number = number_of<std::remove_reference_t<decltype(to)>>(value);
            sound = number.has_value();
            to = number.value_or(0);
        };
        std::int64_t time = 0;
        switch (words[n][0]) {
        case 'q':
            meta.quiet = true;
            break;
        case 'b':
            meta.base64 = true;
            break;
        case 'C':
            meta.compares = true;
            take(meta.compare);
            break;
        case 'F':
            take(meta.flags_value);
            break;
        case 'D':
            take(meta.by);
            break;
        case 'J':
            take(meta.first);
            break;
        case 'T':
            take(time);
            meta.ttl = time;
            break;
        case 'N':
            take(time);
            meta.create = time;
            break;
        case 'M':
            sound = value.size() == 1;
            meta.mode = sound ? static_cast<char>(std::toupper(value[0])) : 0;
            break;
        default:
            break;
        }
        if (!sound)
            return false;
        meta.flags.emplace_back(words[n]);
    }
    // A version is never 0, so the comparison with it fails.
    if (meta.compares && !meta.compare)
        meta.compare = ~0ull;
    return true;
}

// The flags that a reply returns. item: NULL where there is none.
std::string flags_text(const Meta& meta, const Item* item, std::uint64_t version,
                       std::uint32_t now_s) {
    std::string text;
    for (const std::string& flag : meta.flags) {
        switch (flag[0]) {
        case 'O':
            text += " " + flag;
            break;
        case 'k':
            text += " k" + meta.shown;
            break;
        case 'b':
            if (has(meta, 'k'))
                text += " b";
            break;
        case 'c':
            text += fmt::format(" c{}", version);
            break;
        case 'f':
            if (item)
                text += fmt::format(" f{}", item->flags);
            break;
        case 's':
            if (item)
                text += fmt::format(" s{}", item->value_bytes);
            break;
        case 'h':
            if (item)
                text += item->seen ? " h1" : " h0";
            break;
        case 't':
            if (item)
                text += item->expiry_s ? fmt::format(" t{}", item->expiry_s - now_s) : " t-1";
            break;
        default:
            break;
        }
    }
    return text;
}

std::string with_flags(std::string_view code, const Meta& meta, std::uint64_t version) {
    return fmt::format("{}{}\r\n", code, flags_text(meta, nullptr, version, 0));
}

std::string meta_text(const Changed& made, const Meta& meta) {
    if (made.error)
        return server_error(made.error);
    switch (made.status) {
    case KV_OK:
        return meta.quiet ? "" : with_flags("HD", meta, made.version);
    case KV_NOT_FOUND:
        return with_flags("NF", meta, 0);
    case KV_EXISTS:
        return with_flags("EX", meta, 0);
    case KV_NOT_STORED:
        return with_flags("NS", meta, 0);
    default:
        return stored_text(made);
    }
}

Detached run_mg(std::shared_ptr<Connection> connection, Meta meta) {
    std::vector<std::string> keys{meta.key};
    Flight flight(connection, keys, meta.ttl.has_value());
    Counts& counts = connection->worker().counts;
    if (meta.ttl) {
        Change what;
        what.key = meta.key;
        what.expiry_s = expiry_of(*meta.ttl, flight.table().now_s());
        const Changed touched = co_await flight.table().change(KV_TOUCH, std::move(what));
        if (touched.error) {
            flight.end(server_error(touched.error));
            co_return;
        }
    }
    const bool wants_value = has(meta, 'v');
    const std::vector<Item> items = co_await flight.table().find(std::move(keys), wants_value);
    const Item& item = items[0];
    Counts::add(counts.gets);
    if (item.error) {
        flight.end(server_error(item.error));
        co_return;
    }
    if (!item.found) {
        flight.end(meta.quiet ? "" : "EN\r\n");
        co_return;
    }
    Counts::add(counts.hits);
    const std::string flags = flags_text(meta, &item, item.version, flight.table().now_s());
    flight.end(wants_value ? fmt::format("VA {}{}\r\n{}\r\n", item.value.size(), flags, item.value)
                           : fmt::format("HD{}\r\n", flags));
}

Detached run_ms(std::shared_ptr<Connection> connection, Meta meta, std::string value,
                kv_mode mode) {
    std::vector<std::string> keys{meta.key};
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.sets);
    Change what;
    what.key = meta.key;
    what.value = std::move(value);
    what.flags = meta.flags_value;
    what.expiry_s = expiry_of(meta.ttl.value_or(0), flight.table().now_s());
    what.version = meta.compare;
    what.mode = mode;
    const Changed made = co_await flight.table().store(std::move(what));
    flight.end(meta_text(made, meta));
}

Detached run_md(std::shared_ptr<Connection> connection, Meta meta) {
    std::vector<std::string> keys{meta.key};
    Flight flight(connection, keys, true);
    Counts::add(connection->worker().counts.deletes);
    Change what;
    what.key = meta.key;
    what.version = meta.compare;
    const Changed made = co_await flight.table().change(KV_DELETE, std::move(what));
    const bool missed = !made.error && made.status == KV_NOT_FOUND;
    flight.end(missed && meta.quiet ? "" : meta_text(made, meta));
}

Detached run_ma(std::shared_ptr<Connection> connection, Meta meta) {
    std::vector<std::string> keys{meta.key};
    Flight flight(connection, keys, true);
    Change what;
    what.key = meta.key;
    what.version = meta.compare;
    what.mode = meta.mode == 'D' || meta.mode == '-' ? KV_MODE_DOWN : KV_MODE_UP;
    what.expiry_s = meta.create ? expiry_of(*meta.create, flight.table().now_s()) : 0;
    Changed made = co_await flight.table().change(KV_ADD, std::move(what), meta.by,
                                                  meta.create ? &meta.first : nullptr);
    if (made.error || made.status) {
        const bool missed = !made.error && made.status == KV_NOT_FOUND;
        flight.end(missed && meta.quiet ? ""
                   : !made.error && made.status == KV_NOT_A_NUMBER
                       ? "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
                       : meta_text(made, meta));
        co_return;
    }
    if (meta.ttl) {
        Change touch;
        touch.key = meta.key;
        touch.expiry_s = expiry_of(*meta.ttl, flight.table().now_s());
        const Changed touched = co_await flight.table().change(KV_TOUCH, std::move(touch));
        if (touched.error) {
            flight.end(server_error(touched.error));
            co_return;
        }
    }
    Item item;
    if (has(meta, 't')) {
        const std::vector<Item> items = co_await flight.table().find(std::move(keys), false);
        item = items[0];
        if (item.error) {
            flight.end(server_error(item.error));
            co_return;
        }
    }
    const std::string flags = flags_text(meta, &item, made.version, flight.table().now_s());
    const std::string value = std::to_string(made.number);
    flight.end(has(meta, 'v') ? fmt::format("VA {}{}\r\n{}\r\n", value.size(), flags, value)
               : meta.quiet   ? ""
                              : fmt::format("HD{}\r\n", flags));
}

Detached run_me(std::shared_ptr<Connection> connection, Meta meta) {
    std::vector<std::string> keys{meta.key};
    Flight flight(connection, keys, false);
    const std::vector<Item> items = co_await flight.table().find(std::move(keys), false);
    const Item& item = items[0];
    if (item.error)
        flight.end(server_error(item.error));
    else if (!item.found)
        flight.end("EN\r\n");
    else
        flight.end(fmt::format(
            "ME {} exp={} cas={} fetch={} size={}\r\n", meta.shown,
            item.expiry_s ? std::to_string(item.expiry_s - flight.table().now_s()) : "-1",
            item.version, item.seen ? "yes" : "no",
            KV_ITEM_BYTES + meta.key.size() + item.value_bytes));
}

// ---- commands ----

class Memcached final : public Protocol {
public:
    Next next(const std::shared_ptr<Connection>& connection, std::string_view input,
              std::size_t& consumed) override;

private:
    Next run(const std::shared_ptr<Connection>& connection, const Words& words,
             std::string_view rest, std::size_t& data);
    Next retrieve(const std::shared_ptr<Connection>& connection, const Words& words);
    Next storage(const std::shared_ptr<Connection>& connection, const Words& words,
                 std::string_view rest, std::size_t& data, kv_mode mode);
    Next arithmetic(const std::shared_ptr<Connection>& connection, const Words& words);
    Next others(const std::shared_ptr<Connection>& connection, const Words& words);
    Next meta(const std::shared_ptr<Connection>& connection, const Words& words,
              std::string_view rest, std::size_t& data);
    Next meta_set(const std::shared_ptr<Connection>& connection, Meta&& meta,
                  std::string_view length, std::string_view rest, std::size_t& data);
    Next take_data(const std::shared_ptr<Connection>& connection, std::uint64_t bytes,
                   std::string_view rest, std::size_t& data);
    Next say(const std::shared_ptr<Connection>& connection, std::string_view text) {
        connection->say(std::string(text));
        return Next::started;
    }

    std::uint64_t skip_ = 0; // bytes of a value that is refused
};

Next Memcached::next(const std::shared_ptr<Connection>& connection, std::string_view input,
                     std::size_t& consumed) {
    if (skip_) {
        consumed = std::min<std::uint64_t>(skip_, input.size());
        skip_ -= consumed;
        return Next::started;
    }
    if (static_cast<unsigned char>(input[0]) == 0x80) {
        connection->say("CLIENT_ERROR the binary protocol isn't supported\r\n");
        return Next::close;
    }
    const std::size_t end = input.find('\n');
    if (end == input.npos || end > line_bytes_max) {
        if (input.size() <= line_bytes_max)
            return Next::incomplete;
        connection->say("CLIENT_ERROR line too long\r\n");
        return Next::close;
    }
    std::string_view line = input.substr(0, end);
    if (!line.empty() && line.back() == '\r')
        line.remove_suffix(1);
    std::size_t data = 0;
    const Next made = run(connection, words_of(line), input.substr(end + 1), data);
    consumed = made == Next::started ? end + 1 + data : 0;
    return made;
}

Next Memcached::run(const std::shared_ptr<Connection>& connection, const Words& words,
                    std::string_view rest, std::size_t& data) {
    static constexpr std::array<std::pair<std::string_view, kv_mode>, 6> stores{
        {{"set", KV_MODE_SET},
         {"add", KV_MODE_ADD},
         {"replace", KV_MODE_REPLACE},
         {"append", KV_MODE_APPEND},
         {"prepend", KV_MODE_PREPEND},
         {"cas", KV_MODE_SET}}};
    if (words.empty())
        return say(connection, "ERROR\r\n");
    const std::string_view verb = words[0];
    for (const auto& [name, mode] : stores) {
        if (verb == name)
            return storage(connection, words, rest, data, mode);
    }
    if (verb == "get" || verb == "gets" || verb == "gat" || verb == "gats")
        return retrieve(connection, words);
    if (verb == "incr" || verb == "decr")
        return arithmetic(connection, words);
    if (verb.size() == 2 && verb[0] == 'm')
        return meta(connection, words, rest, data);
    return others(connection, words);
}

Next Memcached::retrieve(const std::shared_ptr<Connection>& connection, const Words& words) {
    const bool touches = words[0].starts_with("gat"), cas = words[0].ends_with('s');
    const std::size_t first = touches ? 2 : 1;
    if (words.size() <= first)
        return say(connection, "ERROR\r\n");
    std::vector<std::string> keys(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
    if (!std::ranges::all_of(keys, is_key))
        return say(connection, bad_format);
    const auto exptime = touches ? number_of<std::int64_t>(words[1]) : 0;
    if (!exptime)
        return say(connection, "CLIENT_ERROR invalid exptime argument\r\n");
    if (!connection->may_begin(keys, touches))
        return Next::blocked;
    if (touches)
        run_get_and_touch(connection, std::move(keys),
                          expiry_of(*exptime, connection->table().now_s()), cas);
    else
        run_get(connection, std::move(keys), cas);
    return Next::started;
}

// A value of so many bytes, and the end of its line. Then data is both; else it has been answered.
Next Memcached::take_data(const std::shared_ptr<Connection>& connection, std::uint64_t bytes,
                          std::string_view rest, std::size_t& data) {
    if (bytes > KV_VALUE_BYTES_MAX) {
        skip_ = bytes + 2;
        say(connection, "SERVER_ERROR object too large for cache\r\n");
        return Next::close;
    }
    if (rest.size() < bytes + 2)
        return Next::incomplete;
    if (rest.substr(bytes, 2) == "\r\n") {
        data = bytes + 2;
        return Next::started;
    }
    // To the end of the line, where the next command can begin.
    const std::size_t end = rest.find('\n', bytes);
    data = end == rest.npos ? rest.size() : end + 1;
    say(connection, "CLIENT_ERROR bad data chunk\r\n");
    return Next::close;
}

Next Memcached::storage(const std::shared_ptr<Connection>& connection, const Words& words,
                        std::string_view rest, std::size_t& data, kv_mode mode) {
    const bool compares = words[0] == "cas";
    const std::size_t least = compares ? 6 : 5;
    if (words.size() < least || words.size() > least + 1)
        return say(connection, "ERROR\r\n");
    const auto flags = number_of<std::uint32_t>(words[2]);
    const auto exptime = number_of<std::int64_t>(words[3]);
    const auto bytes = number_of<std::uint32_t>(words[4]);
    const auto version = compares ? number_of<std::uint64_t>(words[5]) : 0;
    if (!is_key(words[1]) || !flags || !exptime || !bytes || !version) {
        // Its value isn't a command.
        if (bytes)
            skip_ = std::uint64_t{*bytes} + 2;
        return say(connection, bad_format);
    }
    const Next taken = take_data(connection, *bytes, rest, data);
    if (taken != Next::started)
        return taken == Next::close ? Next::started : taken;
    Change what;
    what.key = words[1];
    if (!connection->may_begin({what.key}, true))
        return Next::blocked;
    what.value = rest.substr(0, *bytes);
    what.flags = *flags;
    what.expiry_s = expiry_of(*exptime, connection->table().now_s());
    what.version = compares && !*version ? ~0ull : *version;
    what.mode = mode;
    what.shared = mode == KV_MODE_SET && !what.version;
    run_store(connection, std::move(what), words.size() > least && words[least] == "noreply");
    return Next::started;
}

Next Memcached::arithmetic(const std::shared_ptr<Connection>& connection, const Words& words) {
    if (words.size() < 3 || words.size() > 4 || !is_key(words[1]))
        return say(connection, words.size() < 3 ? "ERROR\r\n" : bad_format);
    const auto by = number_of<std::uint64_t>(words[2]);
    if (!by)
        return say(connection, "CLIENT_ERROR invalid numeric delta argument\r\n");
    if (!connection->may_begin({std::string(words[1])}, true))
        return Next::blocked;
    run_add(connection, std::string(words[1]), *by, words[0] == "incr" ? KV_MODE_UP : KV_MODE_DOWN,
            words.size() == 4 && words[3] == "noreply");
    return Next::started;
}

Next Memcached::others(const std::shared_ptr<Connection>& connection, const Words& words) {
    const std::string_view verb = words[0];
    const bool quiet = words.back() == "noreply";
    if (verb == "delete") {
        // Old clients send a time of 0.
        const std::size_t most = 2U + quiet + (words.size() > 2 && words[2] == "0");
        if (words.size() < 2 || words.size() > most)
            return say(connection, words.size() < 2
                                       ? "ERROR\r\n"
                                       : "CLIENT_ERROR bad command line format.  Usage: delete "
                                         "<key> [noreply]\r\n");
        if (!is_key(words[1]))
            return say(connection, bad_format);
        if (!connection->may_begin({std::string(words[1])}, true))
            return Next::blocked;
        run_delete(connection, std::string(words[1]), quiet);
        return Next::started;
    }
    if (verb == "touch") {
        const auto exptime = words.size() > 2 ? number_of<std::int64_t>(words[2]) : std::nullopt;
        if (words.size() < 3 || !is_key(words[1]))
            return say(connection, words.size() < 3 ? "ERROR\r\n" : bad_format);
        if (!exptime)
            return say(connection, "CLIENT_ERROR invalid exptime argument\r\n");
        if (!connection->may_begin({std::string(words[1])}, true))
            return Next::blocked;
        run_touch(connection, std::string(words[1]),
                  expiry_of(*exptime, connection->table().now_s()), quiet);
        return Next::started;
    }
    if (verb == "flush_all") {
        if (words.size() > 1U + quiet && words[1] != "0")
            return say(connection, "CLIENT_ERROR a delay isn't supported\r\n");
        if (!connection->may_begin({}, true))
            return Next::blocked;
        run_flush(connection, quiet);
        return Next::started;
    }
    if (verb == "stats") {
        static constexpr std::array<std::string_view, 4> empty{"settings", "items", "slabs",
                                                               "sizes"};
        if (words.size() > 1)
            return say(connection, words[1] == "reset"                   ? "RESET\r\n"
                                   : std::ranges::count(empty, words[1]) ? "END\r\n"
                                                                         : "ERROR\r\n");
        if (!connection->may_begin({}, false))
            return Next::blocked;
        run_stats(connection);
        return Next::started;
    }
    const bool alone = words.size() == 1;
    if (verb == "version" && alone)
        return say(connection, fmt::format("VERSION {}\r\n", version));
    if (verb == "verbosity") {
        const bool sound = (quiet && words.size() == 2) ||
                           (words.size() == 2U + quiet && number_of<std::uint32_t>(words[1]));
        return say(connection, !sound ? "ERROR\r\n" : quiet ? "" : "OK\r\n");
    }
    if (verb == "quit" && alone)
        return Next::close;
    return say(connection, "ERROR\r\n");
}

Next Memcached::meta(const std::shared_ptr<Connection>& connection, const Words& words,
                     std::string_view rest, std::size_t& data) {
    static constexpr std::array<std::pair<char, std::string_view>, 5> known{{{'g', "bcfhkOqstTv"},
                                                                             {'s', "bcCFkOqTM"},
                                                                             {'d', "bCkOq"},
                                                                             {'a', "bcCDJkMNOqtTv"},
                                                                             {'e', "b"}}};
    const char verb = words[0][1];
    if (verb == 'n')
        return say(connection, "MN\r\n");
    const auto* flags = std::ranges::find(known, verb, &std::pair<char, std::string_view>::first);
    if (flags == known.end() || words.size() < (verb == 's' ? 3U : 2U))
        return say(connection, flags == known.end() ? "ERROR\r\n" : bad_format);
    Meta made;
    // A value behind a line that is refused is no command.
    auto refuse = [&](std::string_view text) {
        if (auto bytes = verb == 's' ? number_of<std::uint32_t>(words[2]) : std::nullopt)
            skip_ = std::uint64_t{*bytes} + 2;
        return say(connection, text);
    };
    if (!read_flags(made, flags->second, words, verb == 's' ? 3 : 2))
        return refuse("CLIENT_ERROR invalid flag\r\n");
    made.shown = words[1];
    made.key = made.base64 ? base64_decoded(words[1]).value_or("") : std::string(words[1]);
    if (!is_key(made.key))
        return refuse(bad_format);
    if (verb == 's')
        return meta_set(connection, std::move(made), words[2], rest, data);
    const bool writes = verb == 'd' || verb == 'a' || made.ttl;
    if (!connection->may_begin({made.key}, writes))
        return Next::blocked;
    if (verb == 'g')
        run_mg(connection, std::move(made));
    else if (verb == 'd')
        run_md(connection, std::move(made));
    else if (verb == 'a')
        run_ma(connection, std::move(made));
    else
        run_me(connection, std::move(made));
    return Next::started;
}

Next Memcached::meta_set(const std::shared_ptr<Connection>& connection, Meta&& made,
                         std::string_view length, std::string_view rest, std::size_t& data) {
    const auto bytes = number_of<std::uint32_t>(length);
    if (!bytes)
        return say(connection, "CLIENT_ERROR bad data chunk\r\n");
    kv_mode mode;
    switch (made.mode) {
    case 0:
    case 'S':
        mode = KV_MODE_SET;
        break;
    case 'E':
        mode = KV_MODE_ADD;
        break;
    case 'R':
        mode = KV_MODE_REPLACE;
        break;
    case 'A':
        mode = KV_MODE_APPEND;
        break;
    case 'P':
        mode = KV_MODE_PREPEND;
        break;
    default:
        skip_ = std::uint64_t{*bytes} + 2;
        return say(connection, "CLIENT_ERROR invalid mode for set: use S, E, A, P or R\r\n");
    }
    const Next taken = take_data(connection, *bytes, rest, data);
    if (taken != Next::started)
        return taken == Next::close ? Next::started : taken;
    if (!connection->may_begin({made.key}, true))
        return Next::blocked;
    run_ms(connection, std::move(made), std::string(rest.substr(0, *bytes)), mode);
    return Next::started;
}

} // namespace

std::unique_ptr<Protocol> make_memcached() {
    return std::make_unique<Memcached>();
}

} // namespace remora::kv
