// SPDX-License-Identifier: GPL-2.0
// tools/offloads/kv over memory that its clients damage: any words of the header, of buckets, rings
// and items. Whatever stands there, a step ends, and no access leaves the arguments, the result,
// the scratch memory or a slice. Calls may answer anything.
//
// Input: steps of 8 bytes: a kind, a place, and a value that is often a likely one.
#define OFFLOAD_TEST_MEMORY
#include "../offloads/kv_rig.hpp"

namespace {

using namespace offload_test;

constexpr uint64_t bytes = 3 << 19;
constexpr uint32_t buckets = 8;
constexpr unsigned keys = 64;
constexpr unsigned steps_max = 2000;

struct step {
    uint8_t what;
    uint8_t key;
    uint16_t where;
    uint32_t value;
};
static_assert(sizeof(step) == 8);

std::string key_of(unsigned n) {
    return std::string(1 + n % 3 * 100, static_cast<char>('a' + n % 26)) + std::to_string(n);
}

// Words that the program could take for its own, and others.
uint64_t word_of(uint32_t value) {
    const uint64_t slabs = 65536;
    switch (value % 8) {
    case 0:
        return value >> 3;
    case 1:
        return ~uint64_t{value};
    case 2: // an offset of an item
        return slabs + (uint64_t{value} >> 3) % (bytes / 16) * 16;
    case 3: // a slot, of any tag
        return uint64_t{value} << 40 | (slabs + (value >> 3) % 65536 * 64);
    case 4: // a piece of a value
        return 1ull << 62 | (slabs + (value >> 3) % 4096 * 64);
    case 5: // a staged item
        return 1ull << 63 | value >> 3;
    case 6: // an address
        return base + slabs + (value >> 3) % 64 * slabs;
    default:
        return uint64_t{value} * 0x9e3779b97f4a7c15;
    }
}

void damage(Store& kv, const step& s) {
    uint64_t at;
    switch (s.what >> 4 & 3) {
    case 0: // the header, but its magic
        at = 8 + s.where * 8ull % 1016;
        break;
    case 1: // buckets and rings
        at = 4096 + s.where * 8ull % (buckets * 64 + 1024);
        break;
    case 2: // heads of items
        at = 65536 + s.where % 23 * 65536ull + s.where / 64 % 16 * 64 + s.value % 3 * 8;
        break;
    default:
        at = 65536 + s.where * 8ull;
    }
    const uint64_t word = word_of(s.value);
    if (kv.memory.has(base + at, 8))
        std::memcpy(kv.memory.at(base + at), &word, 8);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < sizeof(step))
        return 0;
    Store kv(bytes, buckets, data[0] & 1 ? KV_CACHE : 0);
    for (unsigned n = 0; n < keys; n++)
        kv.set(key_of(n), std::string(n * 13, 'v'));
    kv.set_large("large", std::string(200'000, 'v'));
    std::vector<Call> running;
    for (; size >= sizeof(step); data += sizeof(step), size -= sizeof(step)) {
        step s;
        std::memcpy(&s, data, sizeof(s));
        const std::string key = key_of(s.key % keys);
        kv_args with = kv.args(key);
        with.mode = s.where % 5;
        with.version = s.where & 8 ? s.value : 0;
        with.number = word_of(s.value);
        kv.now_s += s.where >> 15 ? 61 : 0;
        auto start = [&](Call&& call) { running.push_back(std::move(call)); };
        switch (s.what & 15) {
        case 0:
        case 1:
        case 2:
        case 3:
            damage(kv, s);
            continue;
        case 4:
        case 5:
            start(kv.begin_set(key, std::string(s.value % 900, 's'),
                               static_cast<kv_mode>(s.where % 5), with.version));
            break;
        case 6:
            start(kv.begin(KV_DELETE, with, key));
            break;
        case 7:
            start(kv.begin(KV_ADD, with, key));
            break;
        case 8:
            with.value_bytes = s.value % (1 << 20);
            start(kv.begin(KV_STAGE, with, key));
            break;
        case 9:
            with.key_bytes = 0;
            with.value_bytes = 8;
            start(kv.begin(KV_PUBLISH, with, "", std::string(8, static_cast<char>(s.key))));
            break;
        case 10: {
            kv_used_args used{base, 1, 0};
            Bytes all = bytes_of(used);
            append(all, {reinterpret_cast<const char*>(&with.number), 8});
            start(Call(kv.memory, KV_USED, all));
            break;
        }
        case 13:
            kv.sets({{key, std::string(s.value % 400, 's')}, {key_of((s.key + 1) % keys), "t"}});
            continue;
        case 11:
            start(kv.begin(KV_TOUCH, with, key));
            break;
        case 12: { // anything for arguments
            Bytes all = bytes_of(with);
            all.resize(s.value % 200, s.key);
            start(Call(kv.memory, s.where % 13, all, s.value % 8192));
            break;
        }
        default: {
            std::vector<std::string> names;
            for (unsigned n = 0; n < 1 + s.where % KV_KEYS_MAX % 8; n++)
                names.push_back(key_of((s.key + n) % keys));
            start(kv.begin_get(names, s.value % 8192));
        }
        }
        // The other calls have steps in between, and see the damage.
        for (Call& call : running)
            call.step();
        std::erase_if(running,
                      [](const Call& call) { return call.ended() || call.steps() > steps_max; });
    }
    for (Call& call : running)
        call.run(steps_max);
    return 0;
}
