// SPDX-License-Identifier: GPL-2.0
// A machine of a bridge that breaks Marlin's rules on purpose, for test_marlin_hostile.py. The
// machine's own marlin.ko makes the handshake; this program then writes what it likes into the
// victim's memory, through the same BARs. The two machines start again together after each fault,
// so that there are always rings to write into.
//
//   hostile_marlin PORT rule NAME           breaks one rule, about a hundred times a second
//   hostile_marlin PORT garbage SECONDS SEED KIND...
//                                           garbage of these kinds, at random: frames, messages,
//                                           grants, locks, pair, bells; prints how often
//
// PORT is the victim's. It writes into what a bridge shows a peer: its windows in the victim's
// memory, the victim's message registers and doorbells, and its own registers. It prints "begun"
// first; with the kind grants, handles before that, of grants that no machine made.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "remora/marlin.h"
#include "remora/marlin_grants.h"
#include "remora/marlin_locks.h"
#include "remora/ntb.h"
#include "remora/ring.h"

namespace fs = std::filesystem;
using Word = volatile uint32_t;
using Word64 = volatile uint64_t;

namespace {

constexpr uint32_t POSITION_AT = 8, DOORBELL_AT = 12; // registers of an ivshmem device's BAR 0
constexpr unsigned FAKES = 16;                        // grants that were never made

[[noreturn]] void fail(const std::string& what) {
    perror(what.c_str());
    exit(1);
}

std::mt19937_64 chance;

uint64_t below(uint64_t n) {
    return chance() % n;
}

bool one_in(uint64_t n) {
    return !below(n);
}

// Numbers at which checks go wrong.
uint32_t odd_word(uint32_t near) {
    const uint32_t words[] = {0,
                              1,
                              near - 1,
                              near + 1,
                              near + 64,
                              near - 64,
                              near ^ 0x80000000,
                              64,
                              0x7fffffff,
                              0x80000000,
                              0xffffffff,
                              0xffffffc0,
                              near,
                              static_cast<uint32_t>(chance()),
                              static_cast<uint32_t>(chance()) & ~63u,
                              static_cast<uint32_t>(below(1 << 20))};
    return words[below(std::size(words))];
}

// No page of a machine with so much RAM.
uint64_t odd_address(uint64_t ram_bytes) {
    const uint64_t all[] = {1,
                            ~0ULL,
                            ~0ULL << 12,
                            ram_bytes,
                            ram_bytes + 4096,
                            ram_bytes - 1,
                            chance() | 1,
                            1ULL << 63,
                            below(ram_bytes) | 1,
                            chance() & ~4095ULL & ~(ram_bytes - 1)};
    return all[below(std::size(all))] ?: 1;
}

// ---- what the machine can reach ----

std::string text_of(const fs::path& path) {
    std::ifstream in(path);
    std::string text;
    std::getline(in, text);
    return text;
}

uint8_t* map(const fs::path& path, size_t bytes, uint64_t offset = 0) {
    int file = open(path.c_str(), O_RDWR | O_SYNC);
    void* at = file < 0 ? MAP_FAILED
                        : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                               static_cast<off_t>(offset));
    if (at == MAP_FAILED)
        fail(path);
    close(file);
    return static_cast<uint8_t*>(at);
}

struct Victim {
    uint8_t* control; // BAR 0 of the own device
    volatile ntb_switch_page* fabric;
    volatile ntb_port_page *own, *its; // registers
    uint8_t* window;                   // this machine's, in the victim's memory
    uint64_t ram_bytes;                // of this machine
    uint32_t port, own_port;

    explicit Victim(uint32_t victim) : port(victim) {
        fs::path home;
        for (const auto& each : fs::directory_iterator("/sys/bus/pci/devices"))
            if (text_of(each.path() / "device") == "0x1110" &&
                fs::exists(each.path() / "resource1"))
                home = each.path();
        if (home.empty())
            fail("no ivshmem-doorbell device");
        control = map(home / "resource0", 4096);
        own_port = *reinterpret_cast<Word*>(control + POSITION_AT);
        uint8_t* registers = map(home / "resource2", NTB_PAGE_BYTES * (1 + NTB_PORTS_MAX));
        fabric = reinterpret_cast<volatile ntb_switch_page*>(registers);
        own =
            reinterpret_cast<volatile ntb_port_page*>(registers + NTB_PAGE_BYTES * (1 + own_port));
        its = reinterpret_cast<volatile ntb_port_page*>(registers + NTB_PAGE_BYTES * (1 + port));
        ram_bytes = fabric->map[own_port].ram_bytes;
        // Device of port q is in slot of port 0 + q.
        unsigned slot =
            static_cast<unsigned>(std::stoul(home.filename().string().substr(8, 2), nullptr, 16));
        char name[16];
        snprintf(name, sizeof(name), "0000:00:%02x.0", slot - own_port + port);
        uint32_t number = own_port < port ? own_port : own_port - 1;
        uint64_t bytes = fabric->map[port].window_bytes;
        window = map(home.parent_path() / name / "resource2", bytes,
                     fabric->map[port].windows_base + number * bytes);
    }

    void ring(unsigned vector) const {
        *reinterpret_cast<Word*>(control + DOORBELL_AT) = port << 16 | vector;
    }

    // Of the rings in the victim's memory that this machine fills.
    uint32_t word() const { return its->scratchpad[MARLIN_SPAD_PAIR + own_port]; }
    uint32_t rings() const {
        return 1u << (word() >> MARLIN_RINGS_LOG_SHIFT & MARLIN_RINGS_LOG_MASK);
    }
    uint32_t ring_bytes() const {
        return MARLIN_RING_BYTES_MIN << (word() >> MARLIN_RING_LOG_SHIFT & MARLIN_RING_LOG_MASK);
    }
    bool ready() const { return word() >> MARLIN_STAGE_SHIFT == MARLIN_STAGE_READY; }
    volatile marlin_window* head(uint32_t k) const {
        return reinterpret_cast<volatile marlin_window*>(window + k * MARLIN_WINDOW_BYTES);
    }
    uint8_t* frames(uint32_t k) const { return window + MARLIN_RING_OFFSET + k * ring_bytes(); }
    volatile marlin_messages* messages() const {
        return reinterpret_cast<volatile marlin_messages*>(window + MARLIN_RING_OFFSET +
                                                           rings() * ring_bytes());
    }
    volatile marlin_grants_window* grants() const {
        return reinterpret_cast<volatile marlin_grants_window*>(window + MARLIN_GRANTS_OFFSET);
    }
    volatile marlin_grant* table() const {
        return reinterpret_cast<volatile marlin_grant*>(window + MARLIN_TABLE_OFFSET);
    }
    volatile marlin_locks* locks() const {
        return reinterpret_cast<volatile marlin_locks*>(window + MARLIN_LOCKS_OFFSET);
    }
};

// ---- frames ----

uint32_t record_bytes(uint32_t bytes) {
    return (MARLIN_RECORD_BYTES + bytes + MARLIN_LINE_BYTES - 1) / MARLIN_LINE_BYTES *
           MARLIN_LINE_BYTES;
}

// Position of the record that is due, as far as a walk from the ring's start can tell.
uint32_t frames_due(const Victim& victim, uint32_t k) {
    const uint32_t mask = victim.ring_bytes() - 1;
    uint32_t at = 0;
    for (uint32_t n = 0; n < mask / MARLIN_LINE_BYTES; n++) {
        uint64_t word = *reinterpret_cast<Word64*>(victim.frames(k) + (at & mask));
        uint32_t bytes = static_cast<uint32_t>(word) & ~MARLIN_VALID;
        if (!n && word && !(word >> 32 & mask))
            at = static_cast<uint32_t>(word >> 32);
        if (!(word & MARLIN_VALID) || word >> 32 != at || bytes > MARLIN_FRAME_BYTES_MAX)
            break;
        at += record_bytes(bytes);
    }
    return at;
}

void frames_word(const Victim& victim, uint32_t k, uint32_t at, uint32_t position, uint32_t bytes) {
    *reinterpret_cast<Word64*>(victim.frames(k) + (at & (victim.ring_bytes() - 1))) =
        static_cast<uint64_t>(position) << 32 | bytes;
}

// A record that is valid, whose frame and offload are not.
void frames_forge(const Victim& victim, uint32_t k) {
    const uint32_t at = frames_due(victim, k), offset = at & (victim.ring_bytes() - 1);
    const uint32_t lengths[] = {MARLIN_FRAME_BYTES_MIN,
                                15,
                                33,
                                34,
                                60,
                                54,
                                1514,
                                2048,
                                2049,
                                2304,
                                65535,
                                MARLIN_FRAME_BYTES_MAX,
                                static_cast<uint32_t>(14 + below(MARLIN_FRAME_BYTES_MAX - 13))};
    uint32_t bytes = lengths[below(std::size(lengths))];
    if (offset + record_bytes(bytes) + MARLIN_LINE_BYTES > victim.ring_bytes())
        return;
    std::vector<uint8_t> frame(MARLIN_RECORD_BYTES + bytes);
    for (uint8_t& each : frame)
        each = static_cast<uint8_t>(chance());
    auto* record = reinterpret_cast<marlin_record*>(frame.data());
    const uint8_t kinds[] = {0, 1, 3, 4, 5, 0x81, 0x84, static_cast<uint8_t>(chance())};
    record->offload.flags = static_cast<uint8_t>(below(4));
    record->offload.gso_type = kinds[below(std::size(kinds))];
    auto odd = [&] { return static_cast<uint16_t>(one_in(3) ? odd_word(bytes) : below(100)); };
    record->offload.header_bytes = odd();
    record->offload.gso_bytes = odd();
    record->offload.checksum_start = odd();
    record->offload.checksum_offset = odd();
    // To the victim or to all, so that the stack looks at it: IPv4, IPv6, VLAN, ARP, or anything.
    uint8_t* ethernet = frame.data() + MARLIN_RECORD_BYTES;
    const uint32_t low = victim.its->scratchpad[MARLIN_SPAD_MAC_LOW],
                   high = victim.its->scratchpad[MARLIN_SPAD_MAC_HIGH];
    memset(ethernet, 0xff, 6);
    if (!one_in(4)) {
        memcpy(ethernet, &low, 4);
        memcpy(ethernet + 4, &high, 2);
    }
    const uint16_t types[] = {0x0008, 0xdd86, 0x0081,
                              0xa888, 0x0608, static_cast<uint16_t>(chance())};
    memcpy(ethernet + 12, &types[below(std::size(types))], 2);
    if (bytes > 60 && one_in(2)) {
        ethernet[14] =
            ethernet[13] == 0xdd ? 0x60 : static_cast<uint8_t>(0x40 | (one_in(4) ? below(16) : 5));
        ethernet[23] = one_in(2) ? 6 : 17; // of IPv4
        ethernet[20] = one_in(2) ? 6 : 17; // of IPv6
        ethernet[46] = static_cast<uint8_t>(below(16) << 4);
    }
    memcpy(victim.frames(k) + offset + 8, frame.data() + 8, frame.size() - 8);
    *reinterpret_cast<Word64*>(victim.frames(k) + offset + record_bytes(bytes)) = 0;
    __sync_synchronize();
    frames_word(victim, k, at, at, MARLIN_VALID | bytes);
    victim.ring(static_cast<unsigned>(below(NTB_DOORBELLS)));
}

void frames_garbage(const Victim& victim) {
    const uint32_t k = static_cast<uint32_t>(below(victim.rings()));
    switch (below(8)) {
    case 0:
        victim.head(k)->tail = odd_word(victim.head(k)->tail);
        break;
    case 1:
        victim.head(k)->reader_sleeps = odd_word(1);
        victim.head(k)->writer_sleeps = odd_word(1);
        break;
    case 2: {
        uint32_t due = frames_due(victim, k);
        frames_word(victim, k, due, odd_word(due), odd_word(MARLIN_VALID | 1000));
        break;
    }
    case 3: {
        uint64_t at = below(victim.ring_bytes() / 64) * 64;
        size_t bytes = std::min<size_t>(below(1 << 16), victim.ring_bytes() - at);
        memset(victim.frames(k) + at, static_cast<int>(below(3) * 127), bytes);
        break;
    }
    default:
        frames_forge(victim, k);
    }
}

// ---- messages ----

// The record of an entry that was taken stays there: changed in some bits, it is almost a message.
void entry_garbage(volatile uint8_t* entry, uint32_t number) {
    const uint32_t lengths[] = {0,
                                8,
                                47,
                                48,
                                49,
                                56,
                                100,
                                112,
                                4176,
                                MARLIN_ENTRY_BYTES - RING_HEAD_BYTES,
                                MARLIN_ENTRY_BYTES - RING_HEAD_BYTES + 1,
                                static_cast<uint32_t>(below(MARLIN_ENTRY_BYTES))};
    for (uint64_t n = below(12); n; n--)
        entry[RING_HEAD_BYTES + below(one_in(4) ? MARLIN_ENTRY_BYTES - RING_HEAD_BYTES : 128)] =
            static_cast<uint8_t>(one_in(2) ? odd_word(4) : chance());
    if (one_in(8))
        for (uint32_t n = RING_HEAD_BYTES; n < 256; n++)
            entry[n] = static_cast<uint8_t>(chance());
    __sync_synchronize();
    *reinterpret_cast<Word64*>(const_cast<uint8_t*>(entry)) =
        static_cast<uint64_t>(number) << 32 | RING_VALID | lengths[below(std::size(lengths))];
}

// Highest number of a response that was seen in its entry, by places.
uint32_t response_seen;

void response_garbage(volatile marlin_messages* all) {
    for (uint32_t n = 0; n < MARLIN_RESPONSES; n++) {
        uint64_t word = *reinterpret_cast<Word64*>(const_cast<uint8_t*>(all->response[n]));
        if (word & RING_VALID && (word >> 32) % MARLIN_RESPONSES == n)
            response_seen = static_cast<uint32_t>(word >> 32);
    }
    uint32_t number = one_in(4) ? 0 : response_seen + static_cast<uint32_t>(below(4));
    entry_garbage(all->response[number % MARLIN_RESPONSES], number);
}

void request_garbage(volatile marlin_messages* all) {
    uint32_t number = all->request_pointer;
    entry_garbage(all->request[number % MARLIN_REQUESTS], number);
    __sync_synchronize();
    all->request_pointer = number + 1;
}

void messages_garbage(const Victim& victim) {
    volatile marlin_messages* all = victim.messages();
    switch (below(10)) {
    case 0:
        all->request_pointer = odd_word(all->request_pointer);
        break;
    case 1:
        all->request_credit = odd_word(all->request_credit);
        all->response_credit = odd_word(all->response_credit);
        break;
    case 2:
        all->message_sleeps = odd_word(1);
        all->copies[below(MARLIN_LOANS)] = odd_word(all->lent[below(MARLIN_LOANS)]);
        if (one_in(4))
            all->lent[below(MARLIN_LOANS)] = odd_word(1);
        break;
    case 3:
        *reinterpret_cast<Word64*>(const_cast<uint8_t*>(all->request[below(MARLIN_REQUESTS)])) =
            chance();
        break;
    case 4:
        *reinterpret_cast<Word64*>(const_cast<uint8_t*>(all->response[below(MARLIN_RESPONSES)])) =
            chance();
        break;
    case 5:
    case 6:
    case 7:
        response_garbage(all);
        break;
    default:
        request_garbage(all);
    }
    victim.ring(static_cast<unsigned>(below(NTB_DOORBELLS)));
}

// ---- grants ----

// Pages of this program, which the victim's copies may reach.
struct Pages {
    static constexpr unsigned COUNT = 8;
    uint8_t* at;
    uint64_t address[COUNT];

    Pages() {
        at = static_cast<uint8_t*>(mmap(nullptr, COUNT * 4096, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED | MAP_POPULATE, -1,
                                        0));
        int map = open("/proc/self/pagemap", O_RDONLY);
        for (unsigned n = 0; n < COUNT; n++) {
            uint64_t entry = 0;
            auto where = static_cast<off_t>((reinterpret_cast<uintptr_t>(at) / 4096 + n) * 8);
            if (pread(map, &entry, 8, where) != 8 || !(entry >> 63))
                fail("pagemap");
            address[n] = (entry & ((1ULL << 55) - 1)) * 4096;
        }
        close(map);
        fill();
    }
    // All pages that a grant may name are those for data.
    void fill() const {
        std::fill_n(directory(), 512, address[2]);
        std::fill_n(list(), 512, address[3]);
    }
    // Page 1 is a directory, 2 a list or a doorbell; the rest is for data.
    uint64_t* directory() const { return reinterpret_cast<uint64_t*>(at + 4096); }
    uint64_t* list() const { return reinterpret_cast<uint64_t*>(at + 2 * 4096); }
};

constexpr uint64_t FAKE_EPOCH = 77, FAKE_KEY[2] = {0x1234, 0x5678};

void grants_print(const Victim& victim) {
    for (unsigned index = 0; index < FAKES; index++) {
        marlin_handle handle = {MARLIN_HANDLE_MAGIC,
                                static_cast<uint16_t>(index),
                                static_cast<uint8_t>(victim.own_port),
                                static_cast<uint8_t>(victim.port),
                                FAKE_EPOCH,
                                {FAKE_KEY[0], FAKE_KEY[1]}};
        uint64_t word[4];
        memcpy(word, &handle, sizeof(word));
        printf("handle %lx.%lx.%lx.%lx\n", word[0], word[1], word[2], word[3]);
    }
}

// Entries in the victim's table whose keys are right. Addresses of memory are never others than the
// program's.
void grants_fake(const Victim& victim, const Pages& pages) {
    const unsigned index = static_cast<unsigned>(below(FAKES));
    volatile marlin_grant* entry = &victim.table()[index];
    const uint64_t sizes[] = {0,
                              1,
                              4096,
                              5 * 4096,
                              600 * 4096,
                              MARLIN_GRANT_PAGES_MAX * 4096ULL,
                              (1ULL << 30) + 1,
                              ~0ULL,
                              chance()};
    for (unsigned half = 0; half < 2; half++)
        entry->key[half] = FAKE_KEY[half];
    const uint64_t directories[] = {odd_address(victim.ram_bytes), pages.address[1],
                                    pages.address[1], pages.address[2]};
    entry->directory = directories[below(std::size(directories))];
    entry->bytes = sizes[below(std::size(sizes))];
    entry->offset = one_in(3) ? odd_word(4096) : static_cast<uint32_t>(below(4096));
    entry->rights =
        one_in(4) ? odd_word(3) : MARLIN_GRANT_READ | MARLIN_GRANT_WRITE | MARLIN_GRANT_BELL;
    entry->word =
        FAKE_EPOCH << MARLIN_GRANT_EPOCH_SHIFT | (one_in(6) ? below(4) : MARLIN_GRANT_LIVE);
    pages.directory()[below(4)] = one_in(3) ? odd_address(victim.ram_bytes) : pages.address[2];
    pages.list()[below(512)] =
        one_in(8) ? odd_address(victim.ram_bytes) : pages.address[3 + below(Pages::COUNT - 3)];
    if (one_in(4))
        pages.fill();
}

void grants_garbage(const Victim& victim, const Pages& pages) {
    volatile marlin_grants_window* at = victim.grants();
    switch (below(4)) {
    case 0:
        at->copy[below(MARLIN_COPIES)] =
            chance() << 16 | (one_in(3) ? chance() & 0xffff : below(8));
        break;
    case 1:
        at->signal[below(MARLIN_GRANTS)] = odd_word(1);
        break;
    default:
        grants_fake(victim, pages);
    }
    victim.ring(static_cast<unsigned>(below(NTB_DOORBELLS)));
}

void locks_garbage(const Victim& victim) {
    volatile marlin_locks* at = victim.locks();
    uint32_t number = static_cast<uint32_t>(below(MARLIN_LOCKS));
    at->want[number] = odd_word(at->want[number] + 4);
    at->grant[number] = odd_word(at->grant[number] + 4);
    at->changed = odd_word(at->changed);
    victim.ring(static_cast<unsigned>(below(NTB_DOORBELLS)));
}

// ---- registers ----

// The own word for a while. The machine's kernel may have written another meanwhile: that stays.
void lie(Word& word, uint32_t value, const Victim& victim) {
    const uint32_t honest = word;
    word = value;
    victim.ring(NTB_VECTOR_EVENT);
    victim.ring(NTB_DOORBELLS - 1);
    usleep(static_cast<useconds_t>(below(20000)));
    if (word == value)
        word = honest;
    victim.ring(NTB_VECTOR_EVENT);
    victim.ring(NTB_DOORBELLS - 1);
}

void pair_garbage(const Victim& victim) {
    Word* pads = const_cast<Word*>(victim.own->scratchpad);
    Word& pair = pads[MARLIN_SPAD_PAIR + victim.port];
    switch (below(6)) {
    case 0: { // sizes of rings, stages, sessions
        const uint32_t bits = static_cast<uint32_t>(chance());
        lie(pair, one_in(2) ? bits : pair ^ (1u << (bits % 32)), victim);
        break;
    }
    case 1:
        lie(pads[MARLIN_SPAD_VERSION], odd_word(MARLIN_MAGIC | MARLIN_VERSION), victim);
        break;
    case 2: { // addresses: none, a group's, the victim's
        const uint32_t macs[] = {0, 0xffffffff, 1, victim.its->scratchpad[MARLIN_SPAD_MAC_LOW],
                                 static_cast<uint32_t>(chance())};
        lie(pads[MARLIN_SPAD_MAC_LOW], macs[below(std::size(macs))], victim);
        break;
    }
    case 3:
        lie(pads[MARLIN_SPAD_MAC_HIGH], odd_word(victim.its->scratchpad[MARLIN_SPAD_MAC_HIGH]),
            victim);
        break;
    case 4:
        lie(*const_cast<Word*>(&victim.own->link), odd_word(victim.own->link), victim);
        break;
    default: // of no sender, of others
        victim.its->message[below(NTB_MESSAGES)] =
            one_in(2) ? chance() : below(20) << NTB_MESSAGE_SENDER_SHIFT | 5;
        victim.ring(NTB_VECTOR_EVENT);
    }
}

void bells_garbage(const Victim& victim) {
    for (uint64_t n = below(20); n; n--)
        victim.ring(static_cast<unsigned>(below(NTB_VECTORS)));
}

// ---- rules, one at a time ----

using Act = std::function<void(const Victim&)>;

// Records too short for any message: a request, and in the place of each response that is found on
// its way.
void no_message(const Victim& victim) {
    constexpr uint32_t BYTES = RING_VALID | 5;
    volatile marlin_messages* all = victim.messages();
    const uint32_t number = all->request_pointer;
    *reinterpret_cast<Word64*>(const_cast<uint8_t*>(all->request[number % MARLIN_REQUESTS])) =
        static_cast<uint64_t>(number) << 32 | BYTES;
    all->request_pointer = number + 1;
    for (uint32_t n = 0; n < 1000 * MARLIN_RESPONSES; n++) {
        auto* word =
            reinterpret_cast<Word64*>(const_cast<uint8_t*>(all->response[n % MARLIN_RESPONSES]));
        const uint64_t found = *word;
        if (found & RING_VALID)
            *word = found >> 32 << 32 | BYTES;
    }
}

const std::map<std::string, Act> rules = {
    // Of each ring: the victim reads a tail only where its ring is full.
    {"frames-tail",
     [](const Victim& v) {
         for (uint32_t k = 0; k < v.rings(); k++)
             v.head(k)->tail = 0x80000000;
     }},
    {"frames-word",
     [](const Victim& v) { frames_word(v, 0, frames_due(v, 0), frames_due(v, 0), 1000); }},
    {"frames-position",
     [](const Victim& v) {
         frames_word(v, 0, frames_due(v, 0), frames_due(v, 0) + 64, MARLIN_VALID | 1000);
     }},
    {"frames-bytes",
     [](const Victim& v) {
         frames_word(v, 0, frames_due(v, 0), frames_due(v, 0), MARLIN_VALID | 13);
     }},
    {"ring-pointer",
     [](const Victim& v) { v.messages()->request_pointer = v.messages()->request_pointer + 100; }},
    {"ring-credit",
     [](const Victim& v) {
         v.messages()->request_credit = 0x40000000;
         v.messages()->response_credit = 0x40000000;
     }},
    {"ring-word",
     [](const Victim& v) {
         volatile marlin_messages* all = v.messages();
         uint32_t number = all->request_pointer;
         *reinterpret_cast<Word64*>(const_cast<uint8_t*>(all->request[number % MARLIN_REQUESTS])) =
             7;
         all->request_pointer = number + 1;
     }},
    {"ring-bytes",
     [](const Victim& v) {
         volatile marlin_messages* all = v.messages();
         uint32_t number = all->request_pointer;
         *reinterpret_cast<Word64*>(const_cast<uint8_t*>(all->request[number % MARLIN_REQUESTS])) =
             static_cast<uint64_t>(number) << 32 | RING_VALID | MARLIN_ENTRY_BYTES;
         all->request_pointer = number + 1;
     }},
    {"ring-absent",
     [](const Victim& v) { v.messages()->request_pointer = v.messages()->request_pointer + 1; }},
    {"message", no_message},
    {"grants-table",
     [](const Victim& v) {
         // Of a handle that the test knows.
         volatile marlin_grant* entry = v.table();
         entry->key[0] = FAKE_KEY[0];
         entry->key[1] = FAKE_KEY[1];
         entry->bytes = MARLIN_PAGE_BYTES;
         entry->offset = MARLIN_PAGE_BYTES;
         entry->rights = MARLIN_GRANT_READ;
         entry->word = FAKE_EPOCH << MARLIN_GRANT_EPOCH_SHIFT | MARLIN_GRANT_LIVE;
     }},
};

int break_rule(const Victim& victim, const Act& act) {
    printf("begun\n");
    fflush(stdout);
    for (;;) {
        if (victim.ready()) {
            act(victim);
            for (unsigned vector = 0; vector < NTB_DOORBELLS; vector++)
                victim.ring(vector);
        }
        usleep(10000);
    }
}

int garbage(const Victim& victim, unsigned seconds, const std::vector<std::string>& kinds) {
    Pages pages;
    const std::map<std::string, Act> all = {
        {"frames", frames_garbage},
        {"messages", messages_garbage},
        {"grants", [&](const Victim& v) { grants_garbage(v, pages); }},
        {"locks", locks_garbage},
        {"pair", pair_garbage},
        {"bells", bells_garbage},
    };
    if (std::find(kinds.begin(), kinds.end(), "grants") != kinds.end())
        grants_print(victim);
    printf("begun\n");
    fflush(stdout);
    uint64_t rounds = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    for (; std::chrono::steady_clock::now() < end; rounds++) {
        const std::string& kind = kinds[below(kinds.size())];
        // Rings are where the pair word says only while it says so.
        if (victim.ready() || kind == "pair" || kind == "bells")
            all.at(kind)(victim);
        usleep(static_cast<useconds_t>(below(2000)));
    }
    printf("%lu times\n", rounds);
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 3 && words[1] == "rule" && rules.count(words[2]))
        return break_rule(Victim(static_cast<uint32_t>(std::stoul(words[0]))), rules.at(words[2]));
    if (words.size() > 4 && words[1] == "garbage") {
        chance.seed(std::stoull(words[3]));
        return garbage(Victim(static_cast<uint32_t>(std::stoul(words[0]))),
                       static_cast<unsigned>(std::stoul(words[2])),
                       {words.begin() + 4, words.end()});
    }
    fprintf(stderr, "hostile_marlin: see the head of its source\n");
    return 2;
}
