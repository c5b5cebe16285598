// SPDX-License-Identifier: GPL-2.0
// memcached's text and meta protocols (its doc/protocol.txt).
#include <algorithm>
#include <array>
#include <cstring>

#include <endian.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/version.hpp"
#include "remora-kv/flight.hpp"
#include "remora-kv/times.hpp"

namespace remora::kv {

namespace {

constexpr std::size_t line_bytes_max = 65536;
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
constexpr std::string_view too_large = "SERVER_ERROR object too large for cache\r\n";

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
        return std::string(too_large);
    default:
        return "NOT_STORED\r\n";
    }
}

void add_value(std::string& text, std::string_view key, const Item& item, bool cas) {
    text += fmt::format("VALUE {} {} {}", key, item.flags, item.value.size());
    if (cas)
        text += fmt::format(" {}", item.version);
    text += "\r\n";
    text += item.value;
    text += "\r\n";
}

Detached run_get(std::shared_ptr<Connection> connection, std::vector<std::string> keys, bool cas) {
    Flight flight(connection, keys, false);
    Counts& counts = flight.worker().counts;
    Counts::add(counts.gets, keys.size());
    const int error =
        co_await flight.read(keys, true, [&](std::size_t n, const Item& item, std::string& text) {
            if (!item.found)
                return;
            Counts::add(counts.hits);
            add_value(text, keys[n], item, cas);
        });
    flight.end(error ? server_error(error) : "END\r\n");
}

Detached run_get_and_touch(std::shared_ptr<Connection> connection, std::vector<std::string> keys,
                           std::uint32_t expiry_s, bool cas) {
    Flight flight(connection, keys, true);
    Counts& counts = flight.worker().counts;
    for (const std::string& key : keys) {
        const Item item = co_await flight.get_and_touch(key, expiry_s, true);
        Counts::add(counts.gets);
        Counts::add(counts.touches);
        if (item.error) {
            flight.end(server_error(item.error));
            co_return;
        }
        if (!item.found)
            continue;
        Counts::add(counts.hits);
        std::string text;
        add_value(text, key, item, cas);
        flight.more(text);
    }
    flight.end("END\r\n");
}

// "" if the client wants no answer.
std::string unless(bool quiet, std::string_view text) {
    return std::string(quiet ? "" : text);
}

std::string flushed_text(const Changed& made) {
    return made.error ? server_error(made.error) : "OK\r\n";
}

// The answer of delete and touch.
std::string found_text(const Changed& made, std::string_view done) {
    if (made.error)
        return server_error(made.error);
    return std::string(made.status == KV_OK ? done : "NOT_FOUND\r\n");
}

std::string sum_text(const Changed& made) {
    if (!made.error && made.status == KV_OK)
        return fmt::format("{}\r\n", made.number);
    if (!made.error && made.status == KV_NOT_A_NUMBER)
        return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    return stored_text(made);
}

Detached run_stats(std::shared_ptr<Connection> connection) {
    Flight flight(connection, {}, false);
    const Shared& shared = flight.worker().shared;
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

// Seconds until the item expires; -1: it stays.
std::string left_text(const Item& item) {
    return item.expiry_s ? std::to_string(left_ms(item.expiry_s, clock_ms()) / 1000) : "-1";
}

// The flags that a reply returns. item: NULL where there is none.
std::string flags_text(const Meta& meta, const Item* item, std::uint64_t version) {
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
                text += " t" + left_text(*item);
            break;
        default:
            break;
        }
    }
    return text;
}

std::string with_flags(std::string_view code, const Meta& meta, std::uint64_t version) {
    return fmt::format("{}{}\r\n", code, flags_text(meta, nullptr, version));
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
    Flight flight(connection, std::span(&meta.key, 1), meta.ttl.has_value());
    Counts& counts = flight.worker().counts;
    const bool wants_value = has(meta, 'v');
    Item item;
    if (meta.ttl) {
        const std::uint32_t expiry_s = expiry_of(*meta.ttl, clock_ms());
        item = co_await flight.get_and_touch(meta.key, expiry_s, wants_value);
        item.expiry_s = expiry_s;
    } else {
        item = co_await flight.get(meta.key, wants_value);
    }
    Counts::add(counts.gets);
    if (item.error) {
        flight.end(server_error(item.error));
        co_return;
    }
    if (!item.found) {
        flight.end(unless(meta.quiet, "EN\r\n"));
        co_return;
    }
    Counts::add(counts.hits);
    const std::string flags = flags_text(meta, &item, item.version);
    if (!wants_value) {
        flight.end(fmt::format("HD{}\r\n", flags));
        co_return;
    }
    flight.more(fmt::format("VA {}{}\r\n", item.value.size(), flags));
    flight.more(item.value);
    flight.end("\r\n");
}

void start_ms(const std::shared_ptr<Connection>& connection, Meta meta, std::string_view value,
              kv_mode mode) {
    Change what;
    what.key = meta.key;
    what.value = value;
    what.flags = meta.flags_value;
    what.expiry_s = expiry_of(meta.ttl.value_or(0), clock_ms());
    what.version = meta.compare;
    what.mode = mode;
    run_change(connection, KV_SET, std::move(what), &Counts::sets,
               [meta = std::move(meta)](const Changed& made) { return meta_text(made, meta); });
}

void start_md(const std::shared_ptr<Connection>& connection, Meta meta) {
    Change what;
    what.key = meta.key;
    what.version = meta.compare;
    run_change(connection, KV_DELETE, std::move(what), &Counts::deletes,
               [meta = std::move(meta)](const Changed& made) {
                   const bool missed = !made.error && made.status == KV_NOT_FOUND;
                   return unless(missed && meta.quiet, meta_text(made, meta));
               });
}

Detached run_ma(std::shared_ptr<Connection> connection, Meta meta) {
    Flight flight(connection, std::span(&meta.key, 1), true);
    Change what;
    what.key = meta.key;
    what.version = meta.compare;
    what.mode = meta.mode == 'D' || meta.mode == '-' ? KV_MODE_DOWN : KV_MODE_UP;
    what.expiry_s = meta.create ? expiry_of(*meta.create, clock_ms()) : 0;
    what.number = meta.by;
    what.first = meta.create ? std::optional(meta.first) : std::nullopt;
    const Changed made = co_await flight.table().change(KV_ADD, std::move(what));
    if (made.error || made.status) {
        const bool missed = !made.error && made.status == KV_NOT_FOUND;
        const bool is_text = !made.error && made.status == KV_NOT_A_NUMBER;
        flight.end(unless(missed && meta.quiet, is_text ? sum_text(made) : meta_text(made, meta)));
        co_return;
    }
    if (meta.ttl) {
        Change touch;
        touch.key = meta.key;
        touch.expiry_s = expiry_of(*meta.ttl, clock_ms());
        const Changed touched = co_await flight.table().change(KV_TOUCH, std::move(touch));
        if (touched.error) {
            flight.end(server_error(touched.error));
            co_return;
        }
    }
    Item item;
    if (has(meta, 't')) {
        item = co_await flight.get(meta.key, false);
        if (item.error) {
            flight.end(server_error(item.error));
            co_return;
        }
    }
    const std::string flags = flags_text(meta, &item, made.version);
    const std::string value = std::to_string(made.number);
    flight.end(has(meta, 'v') ? fmt::format("VA {}{}\r\n{}\r\n", value.size(), flags, value)
                              : unless(meta.quiet, fmt::format("HD{}\r\n", flags)));
}

Detached run_me(std::shared_ptr<Connection> connection, Meta meta) {
    Flight flight(connection, std::span(&meta.key, 1), false);
    const Item item = co_await flight.get(meta.key, false);
    if (item.error)
        flight.end(server_error(item.error));
    else if (!item.found)
        flight.end("EN\r\n");
    else
        flight.end(fmt::format("ME {} exp={} cas={} fetch={} size={}\r\n", meta.shown,
                               left_text(item), item.version, item.seen ? "yes" : "no",
                               KV_ITEM_BYTES + meta.key.size() + item.value_bytes));
}

// ---- commands ----

using Ref = const std::shared_ptr<Connection>&;

// A line that a browser sends: a page could have it write commands into a request's body.
bool is_http(std::string_view line) {
    auto begins = [&](std::string_view word) {
        return line.size() >= word.size() &&
               std::ranges::equal(line.substr(0, word.size()), word,
                                  [](char a, char b) { return std::toupper(a) == b; });
    };
    return begins("POST ") || begins("HOST:");
}

class Memcached final : public Protocol {
public:
    Next next(Ref connection, Input& input) override;

private:
    // A command's line, and the bytes behind it.
    struct Line {
        Words words;
        std::string_view rest;
        std::size_t data = 0; // bytes of rest that are the command's, or that it needs
        bool quiet = false;   // noreply
    };

    Next run(Ref connection, Line& line);
    Next retrieve(Ref connection, const Words& words);
    Next storage(Ref connection, Line& line, kv_mode mode);
    Next arithmetic(Ref connection, const Line& line);
    Next others(Ref connection, const Line& line);
    Next meta(Ref connection, Line& line);
    Next meta_set(Ref connection, Meta&& meta, Line& line);
    Next take_data(Ref connection, std::uint64_t bytes, Line& line);
    Next refuse_large(Ref connection, const std::string& key, std::uint64_t bytes, bool removes,
                      bool quiet);
    Next say(Ref connection, std::string_view text, bool quiet = false) {
        if (!quiet)
            connection->say(std::string(text));
        return Next::started;
    }

    std::uint64_t skip_ = 0; // bytes of a value that is refused
};

Next Memcached::next(Ref connection, Input& input) {
    if (skip_) {
        input.consumed = std::min<std::uint64_t>(skip_, input.bytes.size());
        skip_ -= input.consumed;
        return Next::started;
    }
    if (static_cast<unsigned char>(input.bytes[0]) == 0x80) {
        connection->say("CLIENT_ERROR the binary protocol isn't supported\r\n");
        return Next::close;
    }
    const std::size_t end = input.bytes.find('\n');
    if (end == input.bytes.npos || end > line_bytes_max) {
        if (input.bytes.size() <= line_bytes_max)
            return Next::incomplete;
        connection->say("CLIENT_ERROR line too long\r\n");
        return Next::close;
    }
    std::string_view text = input.bytes.substr(0, end);
    if (is_http(text))
        return Next::close;
    if (!text.empty() && text.back() == '\r')
        text.remove_suffix(1);
    Line line{words_of(text), input.bytes.substr(end + 1)};
    line.quiet = line.words.size() > 1 && line.words.back() == "noreply";
    const Next made = run(connection, line);
    input.consumed = input.need = end + 1 + line.data;
    return made;
}

Next Memcached::run(Ref connection, Line& line) {
    static constexpr std::array<std::pair<std::string_view, kv_mode>, 6> stores{
        {{"set", KV_MODE_SET},
         {"add", KV_MODE_ADD},
         {"replace", KV_MODE_REPLACE},
         {"append", KV_MODE_APPEND},
         {"prepend", KV_MODE_PREPEND},
         {"cas", KV_MODE_SET}}};
    if (line.words.empty())
        return say(connection, "ERROR\r\n");
    const std::string_view verb = line.words[0];
    for (const auto& [name, mode] : stores) {
        if (verb == name)
            return storage(connection, line, mode);
    }
    if (verb == "get" || verb == "gets" || verb == "gat" || verb == "gats")
        return retrieve(connection, line.words);
    if (verb == "incr" || verb == "decr")
        return arithmetic(connection, line);
    if (verb.size() == 2 && verb[0] == 'm')
        return meta(connection, line);
    return others(connection, line);
}

Next Memcached::retrieve(Ref connection, const Words& words) {
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
        run_get_and_touch(connection, std::move(keys), expiry_of(*exptime, clock_ms()), cas);
    else
        run_get(connection, std::move(keys), cas);
    return Next::started;
}

// A value of so many bytes and the end of its line are the line's data. close: it was refused.
Next Memcached::take_data(Ref connection, std::uint64_t bytes, Line& line) {
    line.data = bytes + 2;
    if (line.rest.size() < line.data)
        return Next::incomplete;
    if (line.rest.substr(bytes, 2) == "\r\n")
        return Next::started;
    say(connection, "CLIENT_ERROR bad data chunk\r\n", line.quiet);
    return Next::close;
}

// A set removes the item of before, which would be stale.
Next Memcached::refuse_large(Ref connection, const std::string& key, std::uint64_t bytes,
                             bool removes, bool quiet) {
    if (removes && !connection->may_begin(key, true))
        return Next::blocked;
    skip_ = bytes + 2;
    if (!removes)
        return say(connection, too_large, quiet);
    Change what;
    what.key = key;
    run_change(connection, KV_DELETE, std::move(what), nullptr, [quiet](const Changed& made) {
        return unless(quiet, made.error ? server_error(made.error) : std::string(too_large));
    });
    return Next::started;
}

Next Memcached::storage(Ref connection, Line& line, kv_mode mode) {
    const Words& words = line.words;
    const bool compares = words[0] == "cas";
    const std::size_t least = compares ? 6 : 5;
    if (words.size() < least || words.size() > least + 1)
        return say(connection, "ERROR\r\n");
    line.quiet &= words.size() > least;
    const auto flags = number_of<std::uint32_t>(words[2]);
    const auto exptime = number_of<std::int64_t>(words[3]);
    const auto bytes = number_of<std::uint32_t>(words[4]);
    const auto version = compares ? number_of<std::uint64_t>(words[5]) : 0;
    if (!is_key(words[1]) || !flags || !exptime || !bytes || !version) {
        // Its value isn't a command.
        if (bytes)
            skip_ = std::uint64_t{*bytes} + 2;
        return say(connection, bad_format, line.quiet);
    }
    Change what;
    what.key = words[1];
    if (*bytes > KV_VALUE_BYTES_MAX)
        return refuse_large(connection, what.key, *bytes, mode == KV_MODE_SET && !compares,
                            line.quiet);
    const Next taken = take_data(connection, *bytes, line);
    if (taken != Next::started)
        return taken == Next::close ? Next::started : taken;
    if (!connection->may_begin(what.key, true))
        return Next::blocked;
    what.value = line.rest.substr(0, *bytes);
    what.flags = *flags;
    what.expiry_s = expiry_of(*exptime, clock_ms());
    what.version = compares && !*version ? ~0ull : *version;
    what.mode = mode;
    what.shared = mode == KV_MODE_SET && !what.version;
    run_change(
        connection, KV_SET, std::move(what), &Counts::sets,
        [quiet = line.quiet](const Changed& made) { return quiet ? "" : stored_text(made); });
    return Next::started;
}

Next Memcached::arithmetic(Ref connection, const Line& line) {
    const Words& words = line.words;
    if (words.size() < 3 || words.size() > 4 || !is_key(words[1]))
        return words.size() < 3 ? say(connection, "ERROR\r\n")
                                : say(connection, bad_format, line.quiet);
    const auto by = number_of<std::uint64_t>(words[2]);
    if (!by)
        return say(connection, "CLIENT_ERROR invalid numeric delta argument\r\n", line.quiet);
    Change what;
    what.key = words[1];
    if (!connection->may_begin(what.key, true))
        return Next::blocked;
    what.mode = words[0] == "incr" ? KV_MODE_UP : KV_MODE_DOWN;
    what.number = *by;
    run_change(connection, KV_ADD, std::move(what), nullptr,
               [quiet = line.quiet](const Changed& made) { return quiet ? "" : sum_text(made); });
    return Next::started;
}

Next Memcached::others(Ref connection, const Line& line) {
    const Words& words = line.words;
    const std::string_view verb = words[0];
    const bool quiet = line.quiet;
    if (verb == "delete" || verb == "touch") {
        const bool touches = verb == "touch";
        // Old clients send a delete with a time of 0.
        const std::size_t least = touches ? 3 : 2;
        const std::size_t most =
            least + quiet + (!touches && words.size() > 2 && words[2] == "0" ? 1 : 0);
        if (words.size() < least)
            return say(connection, "ERROR\r\n");
        if (words.size() > most || !is_key(words[1]))
            return say(connection, bad_format, quiet);
        const auto exptime = touches ? number_of<std::int64_t>(words[2]) : 0;
        if (!exptime)
            return say(connection, "CLIENT_ERROR invalid exptime argument\r\n", quiet);
        Change what;
        what.key = words[1];
        if (!connection->may_begin(what.key, true))
            return Next::blocked;
        what.expiry_s = expiry_of(*exptime, clock_ms());
        run_change(
            connection, touches ? KV_TOUCH : KV_DELETE, std::move(what),
            touches ? &Counts::touches : &Counts::deletes, [quiet, touches](const Changed& made) {
                return unless(quiet, found_text(made, touches ? "TOUCHED\r\n" : "DELETED\r\n"));
            });
        return Next::started;
    }
    if (verb == "flush_all") {
        if (words.size() > 1U + quiet && words[1] != "0")
            return say(connection, "CLIENT_ERROR a delay isn't supported\r\n", quiet);
        if (!connection->may_begin_alone())
            return Next::blocked;
        run_flush(connection,
                  [quiet](const Changed& made) { return unless(quiet, flushed_text(made)); });
        return Next::started;
    }
    if (verb == "stats") {
        static constexpr std::array<std::string_view, 4> empty{"settings", "items", "slabs",
                                                               "sizes"};
        if (words.size() > 1)
            return say(connection, words[1] == "reset"                   ? "RESET\r\n"
                                   : std::ranges::count(empty, words[1]) ? "END\r\n"
                                                                         : "ERROR\r\n");
        if (!connection->may_begin_alone())
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
        return say(connection, sound ? "OK\r\n" : "ERROR\r\n", sound && quiet);
    }
    if (verb == "quit" && alone)
        return Next::close;
    return say(connection, "ERROR\r\n");
}

Next Memcached::meta(Ref connection, Line& line) {
    const Words& words = line.words;
    line.quiet = false; // a meta command has q for that
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
        return meta_set(connection, std::move(made), line);
    const bool writes = verb == 'd' || verb == 'a' || made.ttl;
    if (!connection->may_begin(made.key, writes))
        return Next::blocked;
    if (verb == 'g')
        run_mg(connection, std::move(made));
    else if (verb == 'd')
        start_md(connection, std::move(made));
    else if (verb == 'a')
        run_ma(connection, std::move(made));
    else
        run_me(connection, std::move(made));
    return Next::started;
}

Next Memcached::meta_set(Ref connection, Meta&& made, Line& line) {
    const auto bytes = number_of<std::uint32_t>(line.words[2]);
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
    if (*bytes > KV_VALUE_BYTES_MAX)
        return refuse_large(connection, made.key, *bytes, mode == KV_MODE_SET, false);
    const Next taken = take_data(connection, *bytes, line);
    if (taken != Next::started)
        return taken == Next::close ? Next::started : taken;
    if (!connection->may_begin(made.key, true))
        return Next::blocked;
    start_ms(connection, std::move(made), line.rest.substr(0, *bytes), mode);
    return Next::started;
}

} // namespace

std::unique_ptr<Protocol> make_memcached() {
    return std::make_unique<Memcached>();
}

} // namespace remora::kv
