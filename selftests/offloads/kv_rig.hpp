// SPDX-License-Identifier: GPL-2.0
// A client of tools/offloads/kv for its tests.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#define OFFLOAD offload_kv
#include "memory.hpp"
#include "offloads/kv/kv.h"

namespace offload_test {

using Bytes = std::vector<uint8_t>;

template <typename T>
Bytes bytes_of(const T& value) {
    Bytes bytes(sizeof(value));
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
}

inline void append(Bytes& to, std::string_view text) {
    to.insert(to.end(), text.begin(), text.end());
}

struct Changed {
    int error = 0;
    kv_status status = KV_OK;
    uint64_t version = 0, number = 0;
    bool operator==(kv_status other) const { return !error && status == other; }
};

inline Changed changed(const Call& call) {
    Changed made;
    made.error = call.outcome();
    if (made.error)
        return made;
    kv_result result{};
    require(call.result().size() == sizeof(result));
    std::memcpy(&result, call.result().data(), sizeof(result));
    made.status = static_cast<kv_status>(result.status);
    std::memcpy(&made.version, result.version, sizeof(result.version));
    made.number = result.number;
    return made;
}

struct Found {
    kv_found head;
    std::string value;
};
struct Got {
    int error = 0;
    uint64_t answered = 0;
    std::map<unsigned, Found> found;
};

inline Got got(const Call& call) {
    Got all;
    all.error = call.outcome();
    if (all.error)
        return all;
    const auto result = call.result();
    require(result.size() >= sizeof(kv_get_result));
    std::memcpy(&all.answered, result.data(), sizeof(all.answered));
    size_t at = sizeof(kv_get_result);
    while (at < result.size()) {
        Found each;
        require(result.size() - at >= sizeof(each.head));
        std::memcpy(&each.head, result.data() + at, sizeof(each.head));
        at += sizeof(each.head);
        if (!each.head.elsewhere) {
            require(each.head.value_bytes <= result.size() - at);
            each.value.assign(reinterpret_cast<const char*>(result.data()) + at,
                              each.head.value_bytes);
            at += (each.head.value_bytes + 7) & ~size_t{7};
        }
        require(all.answered >> each.head.key & 1);
        require(all.found.emplace(each.head.key, each).second);
    }
    require(at == result.size());
    return all;
}

struct Store {
    explicit Store(uint64_t bytes, uint32_t buckets, uint32_t options = 0, uint64_t seed = 5)
        : memory(bytes) {
        kv_format_args args{base, bytes, {seed, ~seed}, buckets, options};
        Call call(memory, KV_FORMAT, bytes_of(args));
        require(!call.run() && changed(call) == KV_OK);
    }

    kv_args args(std::string_view key) const {
        kv_args made{};
        made.table = base;
        made.now_s = now_s;
        made.key_bytes = static_cast<uint8_t>(key.size());
        return made;
    }
    Call begin(kv_function function, kv_args with, std::string_view key,
               std::string_view value = {}) {
        Bytes bytes = bytes_of(with);
        append(bytes, key);
        append(bytes, value);
        return Call(memory, function, std::move(bytes));
    }
    Changed run(kv_function function, const kv_args& with, std::string_view key,
                std::string_view value = {}) {
        Call call = begin(function, with, key, value);
        call.run();
        return changed(call);
    }
    Call begin_set(std::string_view key, std::string_view value, kv_mode mode = KV_MODE_SET,
                   uint64_t version = 0, uint32_t expiry_s = 0, uint32_t flags = 0) {
        kv_args with = args(key);
        with.mode = mode;
        with.version = version;
        with.expiry_s = expiry_s;
        with.flags = flags;
        with.value_bytes = static_cast<uint32_t>(value.size());
        return begin(KV_SET, with, key, value);
    }
    template <typename... Rest>
    Changed set(std::string_view key, std::string_view value, Rest... rest) {
        Call call = begin_set(key, value, rest...);
        call.run();
        return changed(call);
    }
    Changed remove(std::string_view key, uint64_t version = 0) {
        kv_args with = args(key);
        with.version = version;
        return run(KV_DELETE, with, key);
    }
    Changed add(std::string_view key, uint64_t by, uint8_t mode = KV_MODE_UP,
                std::optional<uint64_t> first = {}) {
        kv_args with = args(key);
        with.mode = mode;
        with.number = by;
        with.value_bytes = first ? 8 : 0;
        std::string value(first ? 8 : 0, 0);
        if (first)
            std::memcpy(value.data(), &*first, 8);
        return run(KV_ADD, with, key, value);
    }
    Changed touch(std::string_view key, uint32_t expiry_s, uint64_t version = 0) {
        kv_args with = args(key);
        with.expiry_s = expiry_s;
        with.version = version;
        return run(KV_TOUCH, with, key);
    }
    Changed flush() { return run(KV_FLUSH, args(""), ""); }

    Call begin_get(const std::vector<std::string>& keys, uint32_t room = 8192) {
        kv_get_args with{base, now_s, static_cast<uint8_t>(keys.size()), {}};
        Bytes bytes = bytes_of(with);
        for (const auto& key : keys) {
            bytes.push_back(static_cast<uint8_t>(key.size()));
            append(bytes, key);
        }
        return Call(memory, KV_GET, std::move(bytes), room);
    }
    Got get_all(const std::vector<std::string>& keys, uint32_t room = 8192) {
        Call call = begin_get(keys, room);
        call.run();
        return got(call);
    }
    std::optional<Found> find(const std::string& key) {
        Got all = get_all({key});
        require(!all.error && all.answered == 1);
        return all.found.empty() ? std::nullopt : std::optional(all.found.begin()->second);
    }
    std::optional<std::string> get(const std::string& key) {
        auto found = find(key);
        return found ? std::optional(found->value) : std::nullopt;
    }
    void used(const std::vector<uint64_t>& items) {
        kv_used_args with{base, static_cast<uint32_t>(items.size()), 0};
        Bytes bytes = bytes_of(with);
        for (uint64_t item : items)
            append(bytes, {reinterpret_cast<const char*>(&item), 8});
        Call call(memory, KV_USED, std::move(bytes));
        require(!call.run());
    }
    // The bits of those that were stored.
    Changed sets(const std::vector<std::pair<std::string, std::string>>& items) {
        Bytes bytes = bytes_of(kv_sets_args{base, now_s, static_cast<uint8_t>(items.size()), {}});
        for (const auto& [key, value] : items) {
            Bytes head = bytes_of(kv_sets_item{7, 0, static_cast<uint16_t>(value.size()),
                                               static_cast<uint8_t>(key.size()), 0});
            bytes.insert(bytes.end(), head.begin(), head.end());
            append(bytes, key);
            append(bytes, value);
        }
        Call call(memory, KV_SETS, std::move(bytes));
        call.run();
        return changed(call);
    }
    kv_stats stats() {
        kv_args with = args("");
        Call call(memory, KV_STATS, bytes_of(with));
        kv_stats result{};
        require(!call.run());
        std::memcpy(&result, call.result().data(), sizeof(result));
        return result;
    }

    // As a client stores a large value.
    Changed stage(std::string_view key, uint32_t value_bytes) {
        kv_args with = args(key);
        with.value_bytes = value_bytes;
        return run(KV_STAGE, with, key);
    }
    // The parts of a value: address and bytes.
    std::vector<std::pair<uint64_t, uint32_t>> parts(uint64_t item, uint32_t key_bytes,
                                                     uint32_t value_bytes) {
        if (KV_IN_ONE(key_bytes, value_bytes))
            return {{item + KV_ITEM_BYTES + key_bytes, value_bytes}};
        std::vector<std::pair<uint64_t, uint32_t>> all;
        for (uint32_t n = 0; n < KV_PIECES(value_bytes); n++) {
            uint64_t addr;
            std::memcpy(&addr, memory.at(item + KV_PIECES_AT(key_bytes) + 8 * n), 8);
            all.emplace_back(addr + KV_ITEM_BYTES,
                             std::min(KV_PIECE_BYTES, value_bytes - n * KV_PIECE_BYTES));
        }
        return all;
    }
    void write(const Changed& staged, uint32_t key_bytes, std::string_view value) {
        for (auto [addr, bytes] :
             parts(staged.number, key_bytes, static_cast<uint32_t>(value.size()))) {
            require(memory.has(addr, bytes));
            std::memcpy(memory.at(addr), value.data(), bytes);
            value.remove_prefix(bytes);
        }
    }
    Changed publish(const Changed& staged, kv_mode mode = KV_MODE_SET, uint64_t version = 0) {
        kv_args with = args("");
        with.number = staged.number;
        with.value_bytes = 8;
        with.mode = mode;
        with.version = version;
        return run(KV_PUBLISH, with, "",
                   {reinterpret_cast<const char*>(&staged.version), sizeof(staged.version)});
    }
    Changed set_large(std::string_view key, std::string_view value) {
        Changed staged = stage(key, static_cast<uint32_t>(value.size()));
        if (!(staged == KV_OK))
            return staged;
        write(staged, static_cast<uint32_t>(key.size()), value);
        return publish(staged);
    }
    std::string read(const Found& found) {
        std::string value;
        for (auto [addr, bytes] :
             parts(found.head.item, found.head.key_bytes, found.head.value_bytes))
            value.append(reinterpret_cast<const char*>(memory.at(addr)), bytes);
        return value;
    }
    uint64_t version_at(uint64_t item) {
        uint64_t version;
        std::memcpy(&version, memory.at(item), 8);
        return version;
    }

    Memory memory;
    uint32_t now_s = 1'000'000;
};

} // namespace offload_test
