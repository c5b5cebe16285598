// SPDX-License-Identifier: GPL-2.0
// tools/offloads/kv: its functions, its memory, and calls whose steps take turns.
#include <algorithm>
#include <cmath>
#include <list>
#include <random>
#include <set>
#include <unordered_map>

#include <gtest/gtest.h>

#define OFFLOAD_TEST_MEMORY
#include "kv_rig.hpp"

namespace {

using namespace offload_test;

constexpr uint64_t mib = 1 << 20;

std::string key_of(uint64_t n) {
    return "key-" + std::to_string(n);
}

// A value that tells its key and number, of so many bytes at least.
std::string value_of(const std::string& key, uint64_t number, size_t bytes = 0) {
    std::string value = key + "=" + std::to_string(number) + ";";
    while (value.size() < bytes)
        value += static_cast<char>('a' + (number + value.size()) % 26);
    return value;
}

uint64_t number_in(const std::string& value) {
    return std::stoull(value.substr(value.find('=') + 1));
}

// ---- functions ----

TEST(Kv, SetItemIsFound) {
    Store kv(4 * mib, 100);
    EXPECT_FALSE(kv.get("a"));
    Changed made = kv.set("a", "value", KV_MODE_SET, 0, 0, 77);
    EXPECT_TRUE(made == KV_OK);
    auto found = kv.find("a");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->value, "value");
    EXPECT_EQ(found->head.flags, 77u);
    EXPECT_EQ(found->head.version, made.version);
    EXPECT_TRUE(kv.remove("a") == KV_OK);
    EXPECT_TRUE(kv.remove("a") == KV_NOT_FOUND);
    EXPECT_FALSE(kv.get("a"));
    EXPECT_EQ(kv.stats().items, 0u);
    EXPECT_EQ(kv.stats().item_bytes, 0u);
}

TEST(Kv, ModeDecidesWhetherAnItemIsStored) {
    Store kv(4 * mib, 100);
    EXPECT_TRUE(kv.set("a", "x", KV_MODE_REPLACE) == KV_NOT_STORED);
    EXPECT_TRUE(kv.set("a", "x", KV_MODE_APPEND) == KV_NOT_STORED);
    EXPECT_TRUE(kv.set("a", "x", KV_MODE_ADD) == KV_OK);
    EXPECT_TRUE(kv.set("a", "y", KV_MODE_ADD) == KV_NOT_STORED);
    EXPECT_TRUE(kv.set("a", "yz", KV_MODE_APPEND) == KV_OK);
    EXPECT_TRUE(kv.set("a", "w", KV_MODE_PREPEND) == KV_OK);
    EXPECT_EQ(kv.get("a"), "wxyz");
    Changed made = kv.set("a", "r", KV_MODE_REPLACE);
    EXPECT_TRUE(kv.set("a", "s", KV_MODE_SET, made.version + 1) == KV_EXISTS);
    EXPECT_TRUE(kv.set("a", "s", KV_MODE_SET, made.version) == KV_OK);
    EXPECT_TRUE(kv.remove("a", made.version) == KV_EXISTS);
    EXPECT_TRUE(kv.set("b", "s", KV_MODE_SET, made.version) == KV_NOT_FOUND);
    EXPECT_TRUE(kv.set("b", std::string(970, 'b')) == KV_OK);
    EXPECT_TRUE(kv.set("b", "s", KV_MODE_APPEND) == KV_OK);
    EXPECT_TRUE(kv.set("b", std::string(900, 'b'), KV_MODE_APPEND) == KV_OK);
    EXPECT_EQ(kv.get("b")->size(), 970u + 1 + 900);
    EXPECT_TRUE(kv.set("b", "s", KV_MODE_APPEND) == KV_TOO_LARGE);
}

TEST(Kv, NumbersAreAdded) {
    Store kv(4 * mib, 100);
    EXPECT_TRUE(kv.add("n", 1) == KV_NOT_FOUND);
    EXPECT_EQ(kv.add("n", 1, KV_MODE_UP, 9).number, 9u);
    EXPECT_EQ(kv.add("n", 1).number, 10u);
    EXPECT_EQ(kv.get("n"), "10");
    EXPECT_EQ(kv.add("n", 3, KV_MODE_DOWN).number, 7u);
    EXPECT_EQ(kv.get("n"), "7");
    EXPECT_EQ(kv.add("n", 30, KV_MODE_DOWN).number, 0u);
    kv.set("n", "18446744073709551615");
    EXPECT_EQ(kv.add("n", 2).number, 1u);
    kv.set("n", "18446744073709551616");
    EXPECT_TRUE(kv.add("n", 2) == KV_NOT_A_NUMBER);
    EXPECT_EQ(kv.add("s", 0, KV_MODE_SIGNED, ~4ull).number, ~4ull);
    EXPECT_EQ(kv.get("s"), "-5");
    EXPECT_EQ(kv.add("s", 7, KV_MODE_SIGNED).number, 2u);
    kv.set("s", "9223372036854775807");
    EXPECT_TRUE(kv.add("s", 1, KV_MODE_SIGNED) == KV_OVERFLOW);
    kv.set("s", "-9223372036854775808");
    EXPECT_TRUE(kv.add("s", ~0ull, KV_MODE_SIGNED) == KV_OVERFLOW);
    EXPECT_EQ(kv.add("s", 1, KV_MODE_SIGNED).number, 1 - (1ull << 63));
    for (const char* wrong : {"", "-", "1x", "x", "--1"}) {
        kv.set("s", wrong);
        EXPECT_TRUE(kv.add("s", 1, KV_MODE_SIGNED) == KV_NOT_A_NUMBER) << wrong;
    }
}

TEST(Kv, ExpiredAndFlushedItemsAreGone) {
    Store kv(4 * mib, 100);
    kv.set("a", "x", KV_MODE_SET, 0, kv.now_s + 10);
    kv.set("b", "x", KV_MODE_SET, 0, kv.now_s + 10);
    kv.now_s += 9;
    EXPECT_TRUE(kv.touch("b", kv.now_s + 100) == KV_OK);
    EXPECT_TRUE(kv.get("a"));
    kv.now_s++;
    EXPECT_FALSE(kv.get("a"));
    EXPECT_TRUE(kv.touch("a", 0) == KV_NOT_FOUND);
    EXPECT_TRUE(kv.remove("a") == KV_NOT_FOUND);
    EXPECT_EQ(kv.stats().items, 1u) << "the memory of an expired item that was deleted is free";
    EXPECT_TRUE(kv.get("b"));
    kv.flush();
    EXPECT_FALSE(kv.get("b"));
    EXPECT_TRUE(kv.set("b", "y", KV_MODE_REPLACE) == KV_NOT_STORED);
    EXPECT_TRUE(kv.set("b", "y", KV_MODE_ADD) == KV_OK);
    EXPECT_EQ(kv.get("b"), "y");
}

TEST(Kv, TouchComparesTheVersion) {
    Store kv(4 * mib, 100);
    const uint64_t version = kv.set("a", "x").version;
    EXPECT_TRUE(kv.touch("a", kv.now_s + 10, version + 1) == KV_EXISTS);
    EXPECT_EQ(kv.find("a")->head.expiry_s, 0u);
    EXPECT_TRUE(kv.touch("a", kv.now_s + 10, version) == KV_OK);
    EXPECT_EQ(kv.find("a")->head.expiry_s, kv.now_s + 10);
    EXPECT_TRUE(kv.touch("none", 0, version) == KV_NOT_FOUND);
}

TEST(Kv, FlushedItemsAreNotCounted) {
    for (uint32_t options : {0u, uint32_t{KV_CACHE}}) {
        Store kv(1 * mib, 1000, options);
        unsigned stored = 0;
        for (; stored < 5000 && kv.set(key_of(stored), std::string(150, 'x')) == KV_OK; stored++) {
        }
        kv.flush();
        EXPECT_EQ(kv.stats().items, 0u);
        EXPECT_EQ(kv.stats().item_bytes, 0u);
        // Their memory is used again, their keys are stored again, and deleted.
        for (unsigned n = 0; n < 1000; n++)
            ASSERT_TRUE(kv.set(key_of(n), std::string(150, 'y')) == KV_OK);
        for (unsigned n = 500; n < stored; n++)
            kv.remove(key_of(n));
        EXPECT_EQ(kv.stats().items, 500u);
        uint64_t bytes = 0;
        for (unsigned n = 0; n < 500; n++)
            bytes += KV_ITEM_BYTES + key_of(n).size() + 150;
        EXPECT_EQ(kv.stats().item_bytes, bytes);
    }
}

TEST(Kv, ManyKeysAreAnsweredAsFarAsThereIsRoom) {
    Store kv(4 * mib, 100);
    std::vector<std::string> keys;
    for (unsigned n = 0; n < KV_KEYS_MAX; n++) {
        keys.push_back(key_of(n));
        if (n % 3)
            kv.set(keys[n], value_of(keys[n], n, 100));
    }
    Got all = kv.get_all(keys);
    ASSERT_EQ(all.error, 0);
    EXPECT_EQ(all.answered, ~0ull);
    EXPECT_EQ(all.found.size(), 42u);
    for (const auto& [n, found] : all.found)
        EXPECT_EQ(found.value, value_of(keys[n], n, 100));
    Got some = kv.get_all(keys, 1000);
    ASSERT_EQ(some.error, 0);
    EXPECT_EQ(some.found.size(), 7u);
    for (unsigned n = 0; n < KV_KEYS_MAX; n++)
        EXPECT_TRUE(n % 3 || some.answered >> n & 1) << "misses need no room";
    EXPECT_EQ(std::popcount(some.answered), 22 + 7);
}

TEST(Kv, InvalidArgumentsAreRefused) {
    Store kv(4 * mib, 100);
    kv_args with = kv.args("a");
    auto refused = [&](uint32_t function, const Bytes& bytes, int error) {
        Call call(kv.memory, function, bytes);
        EXPECT_EQ(call.run(), error) << function;
    };
    for (uint32_t function : {KV_SET, KV_DELETE, KV_ADD, KV_TOUCH, KV_STAGE, KV_PUBLISH, KV_USED,
                              KV_GET, KV_STATS, KV_FORMAT, KV_FLUSH, KV_SETS}) {
        refused(function, {}, -EINVAL);
        if (function != KV_STATS)
            refused(function, bytes_of(with), -EINVAL);
    }
    refused(12, {}, -ENOSYS);
    kv_args elsewhere = kv.args("");
    elsewhere.table = base + 65536;
    refused(KV_FLUSH, bytes_of(elsewhere), -ENOENT);
    elsewhere.table = base + 64 * mib;
    refused(KV_FLUSH, bytes_of(elsewhere), -EFAULT);
    elsewhere.table = base + 8;
    refused(KV_FLUSH, bytes_of(elsewhere), -EINVAL);
    for (Bytes keys : {Bytes{0}, Bytes{2, 'a'}, Bytes{1, 'a', 1}, Bytes{251}}) {
        Bytes bytes = bytes_of(kv_get_args{base, 0, 1, {}});
        bytes.insert(bytes.end(), keys.begin(), keys.end());
        refused(KV_GET, bytes, -EINVAL);
    }
    kv_format_args again{base, 4 * mib, {1, 2}, 100, 0};
    Call format(kv.memory, KV_FORMAT, bytes_of(again));
    format.run();
    EXPECT_TRUE(changed(format) == KV_EXISTS);
    again.buckets = 4 * mib / 64;
    refused(KV_FORMAT, bytes_of(again), -EINVAL);
}

TEST(Kv, SeveralItemsAreStoredByOneCall) {
    Store kv(2 * mib, 2000);
    kv.memory.scarce = true;
    std::vector<std::pair<std::string, std::string>> items;
    for (unsigned n = 0; n < 20; n++)
        items.emplace_back(key_of(n % 19), value_of(key_of(n), n, n));
    EXPECT_EQ(kv.sets(items).number, (1ull << 20) - 1);
    EXPECT_EQ(kv.get(key_of(0)), items[19].second) << "the last one of a key stays";
    for (unsigned n = 1; n < 19; n++)
        EXPECT_EQ(kv.get(key_of(n)), items[n].second);
    EXPECT_EQ(kv.find(key_of(1))->head.flags, 7u);
    EXPECT_EQ(kv.stats().items, 19u);
    for (unsigned n = 0; kv.set(key_of(100 + n), std::string(150, 'x')) == KV_OK; n++) {
    }
    // There is no memory for the second one, and the first one's old item makes some.
    Changed some = kv.sets({{key_of(200), "x"}, {key_of(201), std::string(150, 'y')}});
    EXPECT_EQ(some.error, 0);
    EXPECT_TRUE(some.number & 1);
    EXPECT_EQ(kv.sets({{"", "x"}}).error, -EINVAL);
    EXPECT_EQ(kv.sets({}).error, -EINVAL);
}

// ---- model ----

struct Model {
    struct Item {
        std::string value;
        uint32_t flags, expiry_s;
        uint64_t version;
    };
    std::map<std::string, Item> items;
    const Item* find(const std::string& key, uint32_t now_s) {
        auto it = items.find(key);
        if (it != items.end() && it->second.expiry_s && it->second.expiry_s <= now_s) {
            items.erase(it);
            it = items.end();
        }
        return it == items.end() ? nullptr : &it->second;
    }
};

class Random : public testing::TestWithParam<unsigned> {};

TEST_P(Random, OperationsAgreeWithAMap) {
    std::mt19937_64 random(GetParam());
    auto below = [&](uint64_t n) { return random() % n; };
    // Few buckets have long chains.
    Store kv(32 * mib, GetParam() % 2 ? 20 : 200, 0, GetParam());
    kv.memory.scarce = true;
    Model model;
    for (unsigned n = 0; n < 20'000; n++) {
        const std::string key = key_of(below(400));
        const Model::Item* old = model.find(key, kv.now_s);
        const uint64_t version = below(4) ? 0 : old && below(3) ? old->version : 1 + below(n + 1);
        auto expected = [&](unsigned mode) {
            if (version && !old)
                return KV_NOT_FOUND;
            if (version && version != old->version)
                return KV_EXISTS;
            if (mode == KV_MODE_ADD ? old != nullptr : mode != KV_MODE_SET && !old)
                return KV_NOT_STORED;
            return KV_OK;
        };
        switch (below(9)) {
        case 0:
        case 1:
        case 2: {
            auto mode = static_cast<kv_mode>(below(5));
            uint32_t expiry_s = below(4) ? 0 : kv.now_s + 1 + below(50);
            std::string value = below(4) ? value_of(key, n, below(300)) : std::to_string(n);
            Changed made = kv.set(key, value, mode, version, expiry_s, n);
            ASSERT_EQ(made.error, 0);
            if (mode >= KV_MODE_APPEND && made == KV_TOO_LARGE) {
                ASSERT_GT(old->value.size(), 500u);
                break;
            }
            ASSERT_EQ(made.status, expected(mode)) << "operation " << n;
            if (made.status)
                break;
            if (mode == KV_MODE_APPEND)
                model.items[key] = {old->value + value, old->flags, old->expiry_s, made.version};
            else if (mode == KV_MODE_PREPEND)
                model.items[key] = {value + old->value, old->flags, old->expiry_s, made.version};
            else
                model.items[key] = {value, n, expiry_s, made.version};
            break;
        }
        case 3: {
            Changed made = kv.remove(key, old ? version : 0);
            ASSERT_EQ(made.status, old ? expected(KV_MODE_SET) : KV_NOT_FOUND);
            if (made == KV_OK)
                model.items.erase(key);
            break;
        }
        case 4: {
            Changed made = kv.add(key, n);
            bool number = old && old->value.find_first_not_of("0123456789") == std::string::npos &&
                          old->value.size() < 18;
            ASSERT_EQ(made.error, 0);
            if (old && !number && old->value.size() >= 18)
                break; // of many digits: a test of its own
            ASSERT_EQ(made.status, !old ? KV_NOT_FOUND : number ? KV_OK : KV_NOT_A_NUMBER);
            if (made == KV_OK) {
                Model::Item& item = model.items[key];
                item.value = std::to_string(std::stoull(item.value) + n);
                item.version = made.version;
                ASSERT_EQ(std::to_string(made.number), item.value);
            }
            break;
        }
        case 5:
            ASSERT_EQ(kv.touch(key, kv.now_s + 30).status, old ? KV_OK : KV_NOT_FOUND);
            if (old)
                model.items[key].expiry_s = kv.now_s + 30;
            break;
        case 6: {
            std::string value = value_of(key, n, below(5) ? 2000 : 100'000);
            Changed made = kv.set_large(key, value);
            ASSERT_TRUE(made == KV_OK);
            model.items[key] = {value, 0, 0, made.version};
            break;
        }
        case 7:
            kv.now_s += below(20) ? 0 : 5;
            if (!below(500)) {
                kv.flush();
                model.items.clear();
            }
            break;
        default: {
            auto found = kv.find(key);
            ASSERT_EQ(found.has_value(), old != nullptr) << "operation " << n;
            if (!found)
                break;
            ASSERT_EQ(found->head.elsewhere ? kv.read(*found) : found->value, old->value);
            ASSERT_EQ(found->head.version, old->version);
            ASSERT_EQ(found->head.flags, old->flags);
        }
        }
    }
    unsigned alive = 0;
    for (unsigned n = 0; n < 400; n++) {
        bool there = model.find(key_of(n), kv.now_s);
        EXPECT_EQ(kv.get(key_of(n)).has_value(), there);
        alive += there;
        kv.remove(key_of(n));
    }
    EXPECT_GT(alive, 10u);
    EXPECT_EQ(kv.stats().items, 0u);
    EXPECT_EQ(kv.stats().item_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Random, testing::Range(1u, 5u));

// ---- collisions ----

// The tag of the key's slot, in a table of one bucket and one item.
uint64_t tag_of(Store& kv) {
    for (unsigned slot = 0; slot < 7; slot++) {
        uint64_t word;
        std::memcpy(&word, kv.memory.at(base + 4096 + 8 * slot), 8);
        if (word)
            return word >> 48;
    }
    return ~0ull;
}

TEST(Kv, KeysOfOneTagAndBucketAreTold) {
    Store kv(4 * mib, 1);
    std::map<uint64_t, std::vector<std::string>> by_tag;
    for (unsigned n = 0; n < 3000; n++) {
        kv.set(key_of(n), "x");
        by_tag[tag_of(kv)].push_back(key_of(n));
        kv.remove(key_of(n));
    }
    unsigned pairs = 0;
    for (const auto& [tag, keys] : by_tag) {
        if (keys.size() < 2)
            continue;
        pairs++;
        kv.set(keys[0], "first");
        kv.set(keys[1], "second");
        EXPECT_EQ(kv.get(keys[0]), "first");
        EXPECT_EQ(kv.get(keys[1]), "second");
        kv.remove(keys[0]);
        EXPECT_FALSE(kv.get(keys[0]));
        EXPECT_EQ(kv.get(keys[1]), "second");
        kv.remove(keys[1]);
    }
    EXPECT_GT(pairs, 20u);
}

// ---- calls that take turns ----

// Each key has one writer, so its readers can see a known range: anything between the last change
// that had ended when they began, and the last that had begun when they ended.
TEST_P(Random, ReadersBesideWritersSeeWholeItemsInOrder) {
    std::mt19937_64 random(GetParam());
    auto below = [&](uint64_t n) { return random() % n; };
    const bool cache = GetParam() % 2;
    Store kv(3 * mib, 16, cache ? KV_CACHE : 0, GetParam());
    kv.memory.scarce = true;
    constexpr unsigned keys = 24;
    struct Writer {
        std::optional<Call> call;
        uint64_t begun = 0, ended = 0; // numbers of changes
    };
    struct Reader {
        std::optional<Call> call;
        std::vector<unsigned> keys;
        std::vector<uint64_t> since;
    };
    std::vector<Writer> writers(keys);
    std::vector<Reader> readers(16);
    // By key: the changes that removed it.
    std::vector<std::set<uint64_t>> removals(keys);
    uint64_t reads = 0, hits = 0;
    for (unsigned turn = 0; turn < 150'000; turn++) {
        if (below(2)) {
            unsigned n = below(keys);
            Writer& writer = writers[n];
            if (!writer.call) {
                uint64_t number = ++writer.begun;
                if (below(4)) {
                    writer.call.emplace(
                        kv.begin_set(key_of(n), value_of(key_of(n), number, below(900))));
                } else {
                    writer.call.emplace(kv.begin(KV_DELETE, kv.args(key_of(n)), key_of(n)));
                    removals[n].insert(number);
                }
            } else if (!writer.call->step()) {
                ASSERT_EQ(writer.call->outcome(), 0);
                ASSERT_NE(changed(*writer.call).status, KV_NO_MEMORY);
                writer.ended = writer.begun;
                writer.call.reset();
            }
            continue;
        }
        Reader& reader = readers[below(readers.size())];
        if (!reader.call) {
            std::vector<std::string> names;
            reader.keys.clear();
            reader.since.clear();
            for (unsigned n = 0, count = 1 + below(20); n < count; n++) {
                unsigned key = below(keys);
                reader.keys.push_back(key);
                reader.since.push_back(writers[key].ended);
                names.push_back(key_of(key));
            }
            reader.call.emplace(kv.begin_get(names, 32768));
        } else if (!reader.call->step()) {
            Got all = got(*reader.call);
            ASSERT_EQ(all.error, 0);
            for (unsigned n = 0; n < reader.keys.size(); n++) {
                ASSERT_TRUE(all.answered >> n & 1);
                const unsigned key = reader.keys[n];
                auto found = all.found.find(n);
                reads++;
                if (found == all.found.end()) {
                    auto removed = removals[key].lower_bound(reader.since[n]);
                    ASSERT_TRUE(reader.since[n] == 0 || cache ||
                                (removed != removals[key].end() && *removed <= writers[key].begun))
                        << "a key that was there all the time wasn't found";
                    continue;
                }
                hits++;
                const std::string& value = found->second.value;
                const uint64_t number = number_in(value);
                ASSERT_EQ(value, value_of(key_of(key), number, value.size()));
                ASSERT_GE(number, reader.since[n]);
                ASSERT_LE(number, writers[key].begun);
                ASSERT_FALSE(removals[key].contains(number));
            }
            reader.call.reset();
        }
    }
    EXPECT_GT(reads, 30'000u);
    EXPECT_GT(hits, reads / 2);
}

// ---- large values ----

TEST(Kv, LargeValuesAreWrittenAsideAndReadInPlace) {
    Store kv(16 * mib, 100);
    for (size_t bytes : {1000ul, 9000ul, 65536ul - 24 - 1, 65536ul - 24, 70'000ul, 1ul << 20}) {
        std::string value = value_of("a", bytes, bytes).substr(0, bytes);
        for (unsigned round = 0; round < 40; round++)
            ASSERT_TRUE(kv.set_large("a", value) == KV_OK) << "old ones are freed";
        auto found = kv.find("a");
        ASSERT_TRUE(found);
        ASSERT_EQ(found->head.value_bytes, bytes);
        EXPECT_EQ(found->head.elsewhere, bytes > 8192 - 40 ? 1 : 0);
        EXPECT_EQ(found->head.elsewhere ? kv.read(*found) : found->value, value);
        EXPECT_EQ(kv.version_at(found->head.item), found->head.version);
        kv.remove("a");
        EXPECT_NE(kv.version_at(found->head.item), found->head.version);
    }
    EXPECT_TRUE(kv.stage("a", (1 << 20) + 1) == KV_TOO_LARGE);
}

TEST(Kv, ReaderOfALargeValueLearnsThatItChanged) {
    Store kv(16 * mib, 100);
    kv.set_large("a", std::string(100'000, 'a'));
    auto found = kv.find("a");
    kv.set_large("a", std::string(100'000, 'b'));
    EXPECT_NE(kv.version_at(found->head.item), found->head.version);
    Changed staged = kv.stage("b", 100'000); // in the memory of the first
    EXPECT_NE(kv.version_at(found->head.item), found->head.version);
    EXPECT_FALSE(kv.get("b")) << "it isn't published";
    EXPECT_TRUE(kv.publish(staged, KV_MODE_REPLACE) == KV_NOT_STORED);
    EXPECT_TRUE(kv.publish(staged) == KV_NOT_FOUND) << "it was freed";
}

TEST(Kv, StagedItemsOfClientsThatDiedAreFreed) {
    Store kv(3 * mib, 100);
    unsigned staged = 0;
    while (kv.stage(key_of(staged), 500'000) == KV_OK)
        staged++;
    EXPECT_GE(staged, 4u);
    EXPECT_TRUE(kv.stage("x", 500'000) == KV_NO_MEMORY);
    kv.now_s += KV_STAGE_S + 1;
    unsigned again = 0;
    for (unsigned n = 0; n < 200 && again < staged; n++)
        again += kv.set_large(key_of(n), std::string(500'000, 'x')) == KV_OK;
    EXPECT_EQ(again, staged);
}

// ---- memory ----

// Clients can write these: lengths and places that lead out of a slice.
TEST(Kv, DamagedLengthsAreNotFollowed) {
    Store store(1 << 20, 8);
    ASSERT_EQ(store.set("k", "5"), KV_OK);
    auto* item = reinterpret_cast<kv_item*>(store.memory.at(store.find("k")->head.item));
    item->value_bytes = 0xfffffff0;
    EXPECT_EQ(store.set("k", "tail", KV_MODE_APPEND), KV_TOO_LARGE);
    EXPECT_EQ(store.run(KV_ADD, store.args("k"), "k"), KV_NOT_A_NUMBER);
}

TEST(Kv, FreeItemThatTheSlabHasNoRoomForIsRefused) {
    constexpr uint64_t slabs_at = base + 32, classes = base + 120, class_bytes = 32;
    Store store(1 << 20, 8);
    ASSERT_EQ(store.set("k", "5"), KV_OK);
    const std::string key(KV_KEY_BYTES_MAX, 'x'); // class 6
    uint64_t last;
    std::memcpy(&last, store.memory.at(slabs_at), sizeof(last));
    last += KV_SLAB_BYTES - 64;
    std::memcpy(store.memory.at(classes + 6 * class_bytes), &last, sizeof(last));
    EXPECT_EQ(store.set(key, "").error, -EUCLEAN);
    EXPECT_EQ(store.set(key, ""), KV_OK) << "the damaged list is given up";
    EXPECT_EQ(store.get("k"), "5");
}

TEST(Kv, ItemsAreUsedWhereTheyBeginAlone) {
    Store store(1 << 20, 8, KV_CACHE);
    const std::string digits(200, '0');
    ASSERT_EQ(store.set("k", digits), KV_OK);
    const uint64_t item = store.find("k")->head.item;
    for (uint64_t at = 16; at < 160; at += 16)
        store.used({item + at});
    EXPECT_EQ(store.get("k"), digits);
}

TEST(Kv, ChainThatCantGrowRefusesAndIsSearched) {
    Store store(4 << 20, 1);
    unsigned stored = 0;
    while (store.set("key" + std::to_string(stored), "v") == KV_OK)
        stored++;
    EXPECT_EQ(stored, 32u * 7);
    EXPECT_EQ(store.get("key" + std::to_string(stored - 1)), "v");
    EXPECT_EQ(store.remove("key0"), KV_OK);
    EXPECT_EQ(store.set("another", "v"), KV_OK);
}

TEST(Kv, CacheOfSmallItemsTakesALargeValue) {
    Store store(2 << 20, 2048, KV_CACHE);
    for (unsigned n = 0; n < 20000; n++)
        ASSERT_EQ(store.set("key" + std::to_string(n), std::string(40, 'v')), KV_OK);
    const std::string large(200000, 'x');
    EXPECT_EQ(store.set_large("large", large), KV_OK);
    EXPECT_EQ(store.read(*store.find("large")), large);
}

TEST(Kv, CacheKeepsALargeValueThatIsRead) {
    Store store(4 << 20, 2048, KV_CACHE);
    const std::string large(300'000, 'x'); // of 5 pieces
    ASSERT_EQ(store.set_large("hot", large), KV_OK);
    for (unsigned n = 0; n < 200; n++) {
        const auto hot = store.find("hot");
        ASSERT_TRUE(hot) << n;
        store.used({hot->head.item});
        ASSERT_EQ(store.set_large("cold" + std::to_string(n), large), KV_OK);
    }
    EXPECT_GT(store.stats().evicted, 150u);
    EXPECT_EQ(store.read(*store.find("hot")), large);
}

TEST(Kv, FullStoreRefusesAndKeepsItsItems) {
    Store kv(2 * mib, 2000);
    unsigned stored = 0;
    while (kv.set(key_of(stored), value_of(key_of(stored), stored, 150)) == KV_OK)
        stored++;
    EXPECT_GT(stored, 7000u);
    EXPECT_TRUE(kv.set("more", std::string(150, 'x')) == KV_NO_MEMORY);
    for (unsigned n = 0; n < stored; n++)
        ASSERT_EQ(kv.get(key_of(n)), value_of(key_of(n), n, 150));
    kv.remove(key_of(7));
    EXPECT_TRUE(kv.set("more", std::string(150, 'x')) == KV_OK);
    EXPECT_TRUE(kv.set(key_of(8), std::string(150, 'x')) == KV_NO_MEMORY)
        << "a change needs memory aside";
    kv.flush();
    for (unsigned n = 0; n < stored; n++)
        ASSERT_TRUE(kv.set(key_of(n), value_of(key_of(n), n, 150)) == KV_OK) << n;
}

TEST(Kv, CacheTakesItemsOfAllSizesForever) {
    std::mt19937_64 random(1);
    Store kv(4 * mib, 3000, KV_CACHE);
    kv.memory.scarce = true;
    std::unordered_map<std::string, uint64_t> last;
    unsigned refused = 0;
    for (unsigned n = 0; n < 60'000; n++) {
        const std::string key = key_of(random() % 20'000);
        // The sizes move, so classes need the memory of others.
        const size_t bytes = 30 + n / 20'000 * 250 + random() % 200;
        Changed made;
        if (random() % 50) {
            made = kv.set(key, value_of(key, n, bytes));
        } else {
            made = kv.set_large(key, value_of(key, n, random() % 200'000));
        }
        ASSERT_EQ(made.error, 0) << n;
        refused += made.status != KV_OK;
        if (made == KV_OK)
            last[key] = n;
    }
    EXPECT_LT(refused, 300u);
    unsigned found = 0;
    for (const auto& [key, number] : last) {
        auto item = kv.find(key);
        if (!item)
            continue;
        found++;
        const std::string value = item->head.elsewhere ? kv.read(*item) : item->value;
        ASSERT_EQ(value, value_of(key, number, value.size())) << "an old value came back";
    }
    EXPECT_EQ(kv.stats().items, found);
    EXPECT_GT(found, 500u);
    EXPECT_GT(kv.stats().evicted, 10'000u);
}

// ---- figures that offloads are accepted by ----

TEST(Kv, AccessesAtFourFifthsLoad) {
    constexpr unsigned items = 56'000; // of 70,000 slots
    Store kv(32 * mib, 10'000);
    std::mt19937_64 random(3);
    for (unsigned n = 0; n < items; n++)
        ASSERT_TRUE(kv.set(key_of(n), "value of some bytes") == KV_OK);
    auto average = [&](auto&& one) {
        const uint64_t before = kv.memory.slices;
        for (unsigned n = 0; n < 20'000; n++)
            one(key_of(random() % items));
        return static_cast<double>(kv.memory.slices - before) / 20'000;
    };
    const double get = average([&](const std::string& key) { ASSERT_TRUE(kv.get(key)); });
    RecordProperty("get", std::to_string(get));
    EXPECT_LE(get, 3.1);
    const double put = average(
        [&](const std::string& key) { ASSERT_TRUE(kv.set(key, "value of some others") == KV_OK); });
    RecordProperty("put", std::to_string(put));
    EXPECT_LE(put, 4.1);
    std::printf("slices per GET %.3f, per PUT %.3f\n", get, put);
}

class Zipf {
public:
    Zipf(unsigned items, double skew) : cdf_(items) {
        double sum = 0;
        for (unsigned n = 0; n < items; n++)
            cdf_[n] = sum += 1 / std::pow(n + 1, skew);
        for (double& each : cdf_)
            each /= sum;
    }
    unsigned operator()(std::mt19937_64& random) const {
        double at = std::uniform_real_distribution<>()(random);
        return std::min<size_t>(std::ranges::lower_bound(cdf_, at) - cdf_.begin(), cdf_.size() - 1);
    }

private:
    std::vector<double> cdf_;
};

// Memory for half of the items: the same hits as an exact LRU of as many items.
TEST(Kv, CacheHitsAsOftenAsLru) {
    constexpr unsigned items = 20'000;
    std::mt19937_64 random(7);
    Zipf zipf(items, 0.99);
    Store kv(2 * mib + 192 * 1024, 3000, KV_CACHE);
    std::list<unsigned> order;
    std::unordered_map<unsigned, std::list<unsigned>::iterator> lru;
    std::vector<uint64_t> used;
    unsigned hits = 0, lru_hits = 0, counted = 0;
    for (unsigned n = 0; n < 200'000; n++) {
        const unsigned which = zipf(random);
        const std::string key = key_of(which);
        auto found = kv.find(key);
        if (!found) {
            ASSERT_TRUE(kv.set(key, std::string(140, 'x')) == KV_OK);
        } else if (!found->head.seen) {
            used.push_back(found->head.item);
            if (used.size() == KV_USED_MAX) {
                kv.used(used);
                used.clear();
            }
        }
        auto at = lru.find(which);
        const bool lru_hit = at != lru.end();
        if (lru_hit)
            order.splice(order.begin(), order, at->second);
        else
            lru[which] = order.insert(order.begin(), which);
        if (n == 60'000) {
            // The cache is full: so many items it holds.
            counted = 0;
            hits = lru_hits = 0;
        }
        while (lru.size() > std::max<uint64_t>(kv.stats().items, 1000)) {
            lru.erase(order.back());
            order.pop_back();
        }
        counted++;
        hits += found.has_value();
        lru_hits += lru_hit;
    }
    std::printf("%llu items: hits %.4f, LRU %.4f\n",
                static_cast<unsigned long long>(kv.stats().items), 1.0 * hits / counted,
                1.0 * lru_hits / counted);
    EXPECT_GT(kv.stats().evicted, 10'000u);
    EXPECT_NEAR(static_cast<double>(kv.stats().items), items / 2.0, items / 10.0);
    EXPECT_GE(hits, 0.99 * lru_hits);
}

} // namespace
