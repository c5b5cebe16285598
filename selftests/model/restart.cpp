// SPDX-License-Identifier: GPL-2.0
// A node's process is killed between any two instructions of an operation, and the next process
// goes on with its store (core/rmem/node/store.h).
//
//   the operation, step by step (the processor's trap flag) ── each state of the memory ──┐
//       its copy, at another address: rmem_store_take(), rmem_store_redo() <──────────────┘
//           └─ tables agree; another client changes the same; the request comes again, twice:
//              executed once, in one of the orders that the clients can have seen
//
// It is the node's own code, as it is compiled, that is cut. A state that equals the one before is
// tried once. Redo, the note of an integer, undo and the note of a call are left out once each, and
// have to be missed. Clients' requests are cut; what an operator does to spaces isn't.
//
// restart --large also cuts the recovery itself.
#include "explore.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

extern "C" {
#include "core/base/bytes.h"
#include "core/rmem/node/call.h"
#include "core/rmem/node/store.h"
}

namespace {

#if defined(__x86_64__)

constexpr std::uint32_t pages = 16, page_bytes = 1u << RMEM_PAGE_SHIFT_MIN;
constexpr std::size_t head_bytes = 256; // of each page that operations change
constexpr std::uint8_t key[BASE_SIPHASH_KEY_BYTES] = {1, 2, 3};

rmem_node_config config() {
    rmem_node_config c{};
    c.boot = 0x1122334455667788;
    c.seed[0] = 0x0123456789abcdef;
    c.seed[1] = 0xfedcba9876543210;
    c.pages = pages;
    c.page_shift = RMEM_PAGE_SHIFT_MIN;
    c.pool_pages = 8;
    c.piece_bytes = 4096;
    c.spaces_max = 3;
    c.sessions_max = 4;
    c.regions_max = 6;
    c.session_idle_ms = 1000;
    c.window_ids = 64;
    return c;
}

// ---- memory that outlives a process ----

struct Free {
    void operator()(void* at) const { std::free(at); }
};
using Block = std::unique_ptr<std::uint8_t, Free>;

Block block(std::size_t bytes) {
    Block made(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
    std::memset(made.get(), 0, bytes);
    return made;
}

const std::size_t store_bytes = [] {
    const rmem_node_config c = config();
    return rmem_store_bytes(&c);
}();
const std::size_t snapshot_bytes = store_bytes + pages * head_bytes;

struct Memory {
    Block state = block(store_bytes), data = block(std::size_t{pages} * page_bytes);

    rmem_store* store() const { return reinterpret_cast<rmem_store*>(state.get()); }
    std::uint8_t* page(std::uint32_t n) const { return data.get() + std::size_t{n} * page_bytes; }
    void copy(const Memory& from) const {
        std::memcpy(state.get(), from.state.get(), store_bytes);
        std::memcpy(data.get(), from.data.get(), std::size_t{pages} * page_bytes);
    }
    bool equals(const std::uint8_t* snapshot) const {
        if (std::memcmp(state.get(), snapshot, store_bytes) != 0)
            return false;
        for (std::uint32_t n = 0; n < pages; n++)
            if (std::memcmp(page(n), snapshot + store_bytes + n * head_bytes, head_bytes) != 0)
                return false;
        return true;
    }
    void save(std::uint8_t* snapshot) const {
        std::memcpy(snapshot, state.get(), store_bytes);
        for (std::uint32_t n = 0; n < pages; n++)
            std::memcpy(snapshot + store_bytes + n * head_bytes, page(n), head_bytes);
    }
    void restore(const std::uint8_t* snapshot) const {
        std::memcpy(state.get(), snapshot, store_bytes);
        for (std::uint32_t n = 0; n < pages; n++)
            std::memcpy(page(n), snapshot + store_bytes + n * head_bytes, head_bytes);
    }
};

// ---- steps ----

struct Trace {
    const Memory* memory = nullptr;
    std::vector<std::uint8_t> snapshots; // room for `most`
    std::size_t count = 0, most = 0;
    std::uint64_t steps = 0;

    std::uint8_t* at(std::size_t n) { return snapshots.data() + n * snapshot_bytes; }
};
Trace trace;

void on_step(int) {
    trace.steps++;
    if (trace.memory->equals(trace.at(trace.count - 1)))
        return;
    if (trace.count == trace.most)
        std::abort();
    trace.memory->save(trace.at(trace.count++));
}

// All states of memory while act() runs, the first and the last one included.
template <typename Act>
void run_in_steps(const Memory& memory, std::size_t most, const Act& act) {
    struct sigaction action {};
    action.sa_handler = on_step;
    sigaction(SIGTRAP, &action, nullptr);
    trace.memory = &memory;
    trace.most = most;
    trace.snapshots.resize(most * snapshot_bytes);
    memory.save(trace.at(0));
    trace.count = 1;
    asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    act();
    asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

// ---- a node, and what its carrier does ----

enum Mutation { none, no_redo, no_integer, no_undo, no_work, mutations };
const char* const mutation_names[] = {"", "changes aren't noted", "integers aren't noted",
                                      "nothing is undone", "calls aren't noted"};

struct Node {
    const Memory& memory;
    Mutation mutation = none;
    std::uint64_t now_ns = 1;
    const void* payload = nullptr;
    rmem_answer answer{};

    rmem_store* store() const { return memory.store(); }
    rmem_node* core() const { return &store()->node; }

    static const rmem_execute_ops ops;
    void refill() const {
        bool used;
        for (std::uint32_t page; (page = rmem_node_scrub_next(core(), &used)) != RMEM_PAGE_NONE;) {
            if (used)
                std::memset(memory.page(page), 0, page_bytes);
            rmem_node_scrub_done(core(), page);
        }
    }
    void fast(const rmem_head& head, const void* with, const rmem_peer& peer) {
        const bool changes = rmem_type_changes(head.type) && mutation != no_redo;
        rmem_redo& redo = store()->redo;
        if (changes)
            rmem_redo_begin(&redo, &head, with, rmem_wire_payload_bytes(&head), &peer);
        rmem_node_request(core(), now_ns, &head, with, &peer, &answer);
        if (mutation == no_redo || mutation == no_integer)
            answer.redo = nullptr;
        payload = with;
        rmem_execute(core(), &ops, this, &head, with, &answer);
        if (changes)
            rmem_redo_end(&redo);
    }
    void run(rmem_node_call& call) {
        while (rmem_node_call_step(core(), &call)) {
        }
        answer = call.answer;
    }
    const char* recover() {
        const rmem_node_config c = config();
        const char* why = rmem_store_take(store(), &c, now_ns);
        if (why)
            return why;
        refill();
        payload = store()->redo.payload;
        rmem_store_redo(store(), &ops, this, now_ns);
        return nullptr;
    }
};

constexpr rmem_execute_ops Node::ops{
    [](void* carrier, const rmem_extent* extent) -> void* {
        return static_cast<Node*>(carrier)->memory.page(extent->page) + extent->offset;
    },
    [](void* carrier, u32 offset, void* to, u32 bytes) {
        std::memcpy(to,
                    static_cast<const std::uint8_t*>(static_cast<Node*>(carrier)->payload) + offset,
                    bytes);
    },
    [](void*, rmem_answer*, rmem_execute_data*) { return true; }, nullptr};

// ---- clients ----

union Payload {
    std::uint8_t bytes[512];
    rmem_open open;
    rmem_alloc alloc;
    rmem_range range;
    rmem_named named;
    rmem_operands operands;
    rmem_put put;
    rmem_copy copy;
};

struct Message {
    rmem_head head{};
    Payload payload{};
};

struct Client {
    std::uint8_t name;
    std::uint64_t session = 0, next_id = 1, floor = 1;
    rmem_peer peer{};

    explicit Client(std::uint8_t its_name) : name(its_name) {
        peer.addr[15] = name;
        peer.port = 1000;
    }
    Message message(std::uint8_t type, std::uint64_t addr, std::uint32_t len) {
        Message m;
        m.head.type = type;
        m.head.integrity = RMEM_LINK;
        m.head.space = 1;
        m.head.session = session;
        m.head.boot = config().boot;
        m.head.id = next_id++;
        m.head.floor = floor;
        m.head.addr = addr;
        m.head.len = len;
        m.head.piece = 4096;
        m.head.op = rmem_type_has_integer(type) ? std::uint8_t(RMEM_ADD) : std::uint8_t(0);
        return m;
    }
    Message open(std::uint64_t nonce) const {
        Message m;
        m.head.type = RMEM_OPEN;
        m.head.integrity = RMEM_LINK;
        m.head.space = 1;
        m.head.session = session;
        m.head.id = nonce;
        m.head.len = sizeof(rmem_open);
        m.payload.open.integrity = RMEM_LINK;
        std::memset(m.payload.open.client, name, sizeof(m.payload.open.client));
        return m;
    }
    Message write(std::uint64_t addr, std::uint8_t value, std::uint32_t bytes) {
        Message m = message(RMEM_WRITE, addr, bytes);
        std::memset(m.payload.bytes, value, bytes);
        return m;
    }
    Message add(std::uint64_t addr, std::uint64_t value) {
        Message m = message(RMEM_ATOMIC, addr, 8);
        base_store_le64(&m.payload.operands.value[0], value);
        return m;
    }
    Message alloc(std::uint64_t bytes) {
        Message m = message(RMEM_ALLOC, 0, sizeof(rmem_alloc));
        base_store_le64(&m.payload.alloc.bytes, bytes);
        base_store_le32(&m.payload.alloc.perm, RMEM_PERM_READ | RMEM_PERM_WRITE);
        return m;
    }
    Message free(std::uint64_t addr, std::uint64_t bytes) {
        Message m = message(RMEM_FREE, 0, sizeof(rmem_range));
        base_store_le64(&m.payload.range.addr, addr);
        base_store_le64(&m.payload.range.bytes, bytes);
        return m;
    }
    Message name_of(std::uint8_t type, std::uint64_t addr, char first) {
        Message m = message(type, 0, sizeof(rmem_named));
        base_store_le64(&m.payload.named.addr, addr);
        m.payload.named.name[0] = static_cast<std::uint8_t>(first);
        return m;
    }
};

// Returns the status.
std::uint8_t send(Node& node, const Client& client, const Message& m, rmem_node_call* call) {
    if (rmem_node_is_slow(node.core(), &m.head)) {
        rmem_node_call_begin(node.core(), call, node.now_ns, &m.head, &client.peer, &m.payload);
        node.run(*call);
    } else {
        node.fast(m.head, &m.payload, client.peer);
    }
    return node.answer.reply.status;
}

// ---- the world before the operation ----

constexpr std::uint8_t old_bytes = 0x11, new_bytes = 0x22, other_bytes = 0x33;
constexpr std::uint32_t cut_bytes = 24;

struct World {
    Memory memory;
    Client a{1}, b{2}, c{3};
    std::uint64_t region = 0; // of a, three pages: bytes, bytes, integers
    rmem_node_call call{};

    std::uint64_t page_at(unsigned n) const { return region + std::uint64_t{n} * page_bytes; }

    void must(bool is, const char* what) const {
        if (!is) {
            std::fprintf(stderr, "the world can't be made: %s\n", what);
            std::abort();
        }
    }
    void open(Node& node, Client& client) {
        must(send(node, client, client.open(10), &call) == RMEM_OK, "open");
        client.session = node.answer.reply.session;
    }
    World() {
        Node node{memory};
        const rmem_node_config c1 = config();
        rmem_store_init(memory.store(), &c1);
        node.refill();
        must(rmem_node_space_add(node.core(), 1, key, 0) == RMEM_SPACE_OK, "space");
        open(node, a);
        open(node, b);
        must(send(node, a, a.alloc(3 * page_bytes), &call) == RMEM_OK, "alloc");
        region = base_load_le64(&call.out.range.addr);
        for (unsigned n = 0; n < 2; n++)
            must(send(node, a, a.write(page_at(n), old_bytes, 200), &call) == RMEM_OK, "write");
        must(send(node, a, a.add(page_at(2), 5), &call) == RMEM_OK, "add");
        must(send(node, a, a.name_of(RMEM_PUBLISH, region, 'x'), &call) == RMEM_OK, "publish");
        node.refill();
    }
};

// ---- judging a recovered node ----

struct Judge {
    std::string fault;

    void check(bool is, const char* what) {
        if (!is && fault.empty())
            fault = what;
    }
};

std::uint64_t integer(const rmem_node* core, const Memory& memory, std::uint64_t addr) {
    rmem_entry entry;
    const u32 pte = rmem_table_find(&core->table, 0, addr >> RMEM_PAGE_SHIFT_MIN, &entry);
    return pte & RMEM_PTE_BACKED
               ? base_load_le64(memory.page(pte & RMEM_PTE_PAGE) + addr % page_bytes)
               : 0;
}

// The byte that the range has from end to end, or -1.
int content(const rmem_node* core, const Memory& memory, std::uint64_t addr, std::uint32_t bytes) {
    rmem_entry entry;
    const u32 pte = rmem_table_find(&core->table, 0, addr >> RMEM_PAGE_SHIFT_MIN, &entry);
    if (!(pte & RMEM_PTE_BACKED))
        return pte ? 0 : -1;
    const std::uint8_t* at = memory.page(pte & RMEM_PTE_PAGE) + addr % page_bytes;
    for (std::uint32_t n = 1; n < bytes; n++)
        if (at[n] != at[0])
            return -1;
    return at[0];
}

void check_tables(const Node& node, Judge& judge) {
    const rmem_node* core = node.core();
    struct rmem_node_usage usage;
    rmem_node_usage(core, &usage);
    std::uint64_t promised = 0, backed = 0;
    std::uint32_t regions = 0;
    for (std::uint32_t n = 0; n < core->alloc.regions_max; n++) {
        const rmem_region* region = rmem_alloc_at(&core->alloc, n);
        if (!region)
            continue;
        regions++;
        promised += region->pages;
        judge.check(rmem_alloc_find(&core->alloc, region->space_index, region->vpn) == region,
                    "a region isn't found");
        judge.check(rmem_spans_next(&core->spaces.slot[region->space_index].spans, region->vpn,
                                    region->pages) >= region->vpn + region->pages,
                    "a region's addresses can be given out again");
        for (std::uint64_t page = 0; page < region->pages; page++) {
            rmem_entry entry;
            const u32 pte =
                rmem_table_find(&core->table, region->space_index, region->vpn + page, &entry);
            judge.check(pte, "a region's page isn't in the table");
            backed += pte & RMEM_PTE_BACKED ? 1 : 0;
        }
    }
    judge.check(usage.regions == regions && usage.pages_promised == promised, "regions miscounted");
    judge.check(usage.pages_backed == backed, "a page is lost, or lent twice");
    const rmem_spans& spans = core->spaces.slot[0].spans;
    for (std::uint32_t n = 0; n + 1 < spans.count; n++)
        judge.check(spans.at[n].begin < spans.at[n].end && spans.at[n].end < spans.at[n + 1].begin,
                    "spans overlap");
    for (std::uint32_t n = 0; n < RMEM_NAMES_MAX; n++) {
        const rmem_name& name = core->names.entry[n];
        judge.check(!name.vpn || rmem_alloc_find(&core->alloc, 0, name.vpn),
                    "a name without a region");
    }
}

// ---- operations ----

struct Operation {
    const char* name;
    // In the world before; messages are built here.
    std::function<Message(World&)> message;
    const Client& (*sender)(const World&);
    // Once recovered, before the request comes again; then after it came twice.
    std::function<void(World&, Node&, const Message&, Judge&)> before;
    std::function<void(World&, Node&, const Message&, Judge&)> after;
};

struct Seen {
    bool done; // recovered with the operation executed
};
Seen seen;

// The operation is all there or not at all, and another client's change after the recovery is
// either behind it or before it.
Operation bytes_operation(const char* name, std::function<Message(World&)> message, unsigned page,
                          int result) {
    return {name, std::move(message), [](const World& w) -> const Client& { return w.a; },
            [page, result](World& w, Node& node, const Message&, Judge& judge) {
                const int now = content(node.core(), w.memory, w.page_at(page), cut_bytes);
                seen.done = now == result;
                judge.check(now == old_bytes || now == result, "bytes are torn");
                rmem_node_call call;
                judge.check(send(node, w.b, w.b.write(w.page_at(page), other_bytes, cut_bytes),
                                 &call) == RMEM_OK,
                            "another client's write is refused");
            },
            [page, result](World& w, Node& node, const Message&, Judge& judge) {
                const int now = content(node.core(), w.memory, w.page_at(page), cut_bytes);
                judge.check(now == (seen.done ? other_bytes : result), "executed twice, or never");
            }};
}

Message put_message(World& w) {
    Message m = w.a.message(RMEM_PUT, w.page_at(0), cut_bytes);
    base_store_le64(&m.payload.put.addr, w.page_at(2));
    base_store_le64(&m.payload.put.value, 1);
    base_store_le32(&m.payload.put.bytes, 8);
    std::memset(m.payload.bytes + sizeof(rmem_put), new_bytes, cut_bytes);
    return m;
}

Operation integer_operation(const char* name, std::function<Message(World&)> message) {
    return {name, std::move(message), [](const World& w) -> const Client& { return w.a; },
            [](World& w, Node& node, const Message&, Judge& judge) {
                const std::uint64_t now = integer(node.core(), w.memory, w.page_at(2));
                seen.done = now == 6;
                judge.check(now == 5 || now == 6, "an integer has another value");
                rmem_node_call call;
                judge.check(send(node, w.b, w.b.add(w.page_at(2), 100), &call) == RMEM_OK,
                            "another client's add is refused");
            },
            [](World& w, Node& node, const Message& m, Judge& judge) {
                judge.check(integer(node.core(), w.memory, w.page_at(2)) == 106,
                            "added twice, or never");
                judge.check(base_load_le64(&node.answer.found.value[0]) == (seen.done ? 5 : 105),
                            "the value found is another one");
                if (m.head.type == RMEM_PUT)
                    judge.check(content(node.core(), w.memory, w.page_at(0), cut_bytes) ==
                                    new_bytes,
                                "a put's data is missing");
            }};
}

std::uint32_t regions_of(const Node& node) {
    return node.core()->alloc.in_use;
}

const Client& client_a(const World& w) {
    return w.a;
}

std::vector<Operation> operations() {
    std::vector<Operation> all;
    all.push_back(bytes_operation(
        "write", [](World& w) { return w.a.write(w.page_at(0), new_bytes, cut_bytes); }, 0,
        new_bytes));
    all.push_back(bytes_operation(
        "write to two pages",
        [](World& w) {
            Message m = w.a.message(RMEM_WRITE, w.page_at(0) + page_bytes - 8, 8 + cut_bytes);
            std::memset(m.payload.bytes, new_bytes, 8 + cut_bytes);
            return m;
        },
        1, new_bytes));
    all.push_back(bytes_operation(
        "writev",
        [](World& w) {
            Message m = w.a.message(RMEM_WRITEV, 0, 2 * cut_bytes);
            m.head.op = 2;
            rmem_range range[2];
            for (unsigned n = 0; n < 2; n++) {
                base_store_le64(&range[n].addr, w.page_at(n));
                base_store_le64(&range[n].bytes, cut_bytes);
            }
            std::memcpy(m.payload.bytes, range, sizeof(range));
            std::memset(m.payload.bytes + sizeof(range), new_bytes, 2 * cut_bytes);
            return m;
        },
        1, new_bytes));
    all.push_back(bytes_operation(
        "copy",
        [](World& w) {
            rmem_node_call call;
            Node node{w.memory};
            w.must(send(node, w.a, w.a.write(w.page_at(1), new_bytes, cut_bytes), &call) == RMEM_OK,
                   "source");
            Message m = w.a.message(RMEM_COPY, w.page_at(0), cut_bytes);
            base_store_le64(&m.payload.copy.from, w.page_at(1));
            return m;
        },
        0, new_bytes));
    all.push_back(bytes_operation(
        "discard", [](World& w) { return w.a.message(RMEM_DISCARD, w.page_at(0), page_bytes); }, 0,
        0));
    all.push_back(bytes_operation(
        "zero", [](World& w) { return w.a.message(RMEM_ZERO, w.page_at(0), cut_bytes); }, 0, 0));
    all.push_back(integer_operation("atomic", [](World& w) { return w.a.add(w.page_at(2), 1); }));
    all.push_back(integer_operation("put", put_message));
    all.push_back({"refused write",
                   [](World& w) { return w.a.write(w.page_at(0) + (1u << 28), new_bytes, 8); },
                   client_a, nullptr,
                   [](World&, Node& node, const Message&, Judge& judge) {
                       judge.check(node.answer.reply.status == RMEM_FAULT, "not refused");
                   }});
    // Ids 1 to 7 were executed; those that take their places in the window are fresh.
    all.push_back({"read that raises the floor",
                   [](World& w) {
                       Message m = w.a.message(RMEM_READ, w.page_at(0), cut_bytes);
                       m.head.floor = m.head.id;
                       return m;
                   },
                   client_a,
                   [](World& w, Node& node, const Message& m, Judge& judge) {
                       rmem_session* session =
                           &node.core()->sessions.slot[rmem_node_slot(node.core(), w.a.session)];
                       for (std::uint64_t id = 1; id < m.head.id; id++)
                           judge.check(id < session->floor || rmem_session_is_done(session, id) ||
                                           id == 2,
                                       "an executed id is fresh");
                       for (std::uint64_t id = session->floor; id < session->floor + 64; id++)
                           judge.check(id < m.head.id || !rmem_session_is_done(session, id),
                                       "an id that was never sent is executed");
                   },
                   [](World&, Node& node, const Message&, Judge& judge) {
                       judge.check(node.answer.reply.status == RMEM_OK, "a read is refused");
                   }});
    all.push_back({"alloc", [](World& w) { return w.a.alloc(2 * page_bytes); }, client_a, nullptr,
                   [](World& w, Node& node, const Message&, Judge& judge) {
                       judge.check(node.answer.reply.status == RMEM_OK, "an alloc is refused");
                       judge.check(regions_of(node) == 2, "two regions for one alloc, or none");
                       rmem_session* session =
                           &node.core()->sessions.slot[rmem_node_slot(node.core(), w.a.session)];
                       judge.check(rmem_session_owes(session), "a region that nobody undoes");
                   }});
    all.push_back({"free", [](World& w) { return w.a.free(w.region, 3 * page_bytes); }, client_a,
                   nullptr,
                   [](World& w, Node& node, const Message&, Judge& judge) {
                       judge.check(node.answer.reply.status == RMEM_OK, "a free is refused");
                       judge.check(!regions_of(node), "the region is there");
                       rmem_node_call call;
                       judge.check(send(node, w.b, w.b.write(w.region, 1, 1), &call) == RMEM_FAULT,
                                   "freed memory can be written");
                   }});
    all.push_back(
        {"publish", [](World& w) { return w.a.name_of(RMEM_PUBLISH, w.region, 'y'); }, client_a,
         nullptr,
         [](World& w, Node& node, const Message&, Judge& judge) {
             judge.check(node.answer.reply.status == RMEM_OK, "a publish is refused");
             rmem_node_call call;
             judge.check(send(node, w.b, w.b.name_of(RMEM_LOOKUP, 0, 'y'), &call) == RMEM_OK,
                         "a published name isn't there");
             judge.check(send(node, w.b, w.b.name_of(RMEM_LOOKUP, 0, 'x'), &call) == RMEM_OK,
                         "another name isn't there");
         }});
    all.push_back(
        {"withdraw", [](World& w) { return w.a.name_of(RMEM_PUBLISH, 0, 'x'); }, client_a, nullptr,
         [](World& w, Node& node, const Message&, Judge& judge) {
             judge.check(node.answer.reply.status == RMEM_OK, "a withdrawal is refused");
             rmem_node_call call;
             judge.check(send(node, w.b, w.b.name_of(RMEM_LOOKUP, 0, 'x'), &call) == RMEM_NO_NAME,
                         "a withdrawn name is there");
         }});
    all.push_back({"open", [](World& w) { return w.c.open(77); },
                   [](const World& w) -> const Client& { return w.c; }, nullptr,
                   [](World& w, Node& node, const Message&, Judge& judge) {
                       judge.check(node.answer.reply.status == RMEM_OK, "an open is refused");
                       judge.check(node.core()->sessions.in_use == 3, "sessions miscounted");
                       w.c.session = node.answer.reply.session;
                       rmem_node_call call;
                       judge.check(send(node, w.c, w.c.add(w.page_at(2), 1), &call) == RMEM_OK,
                                   "the session doesn't work");
                   }});
    all.push_back({"renewal", [](World& w) { return w.a.open(77); }, client_a, nullptr,
                   [](World& w, Node& node, const Message& m, Judge& judge) {
                       judge.check(node.answer.reply.status == RMEM_OK, "a renewal is refused");
                       judge.check(node.answer.reply.session != m.head.session,
                                   "a renewed session has its old name");
                       w.a.session = node.answer.reply.session;
                       rmem_node_call call;
                       Message again = w.a.add(w.page_at(2), 1);
                       again.head.id = 4; // as the world's add
                       judge.check(send(node, w.a, again, &call) == RMEM_OK &&
                                       integer(node.core(), w.memory, w.page_at(2)) == 5,
                                   "a renewed session forgot its ids");
                   }});
    all.push_back({"close", [](World& w) { return w.a.message(RMEM_CLOSE, 0, 0); }, client_a,
                   nullptr,
                   [](World&, Node& node, const Message&, Judge& judge) {
                       judge.check(node.answer.reply.status == RMEM_NO_SESSION, "not closed");
                       judge.check(!regions_of(node), "an alloc of nobody isn't undone");
                       judge.check(node.core()->sessions.in_use == 1, "sessions miscounted");
                   }});
    all.push_back({"open that ends a session",
                   [](World& w) {
                       Message m = w.a.open(77);
                       m.head.session = 0;
                       return m;
                   },
                   client_a, nullptr,
                   [](World&, Node& node, const Message&, Judge& judge) {
                       judge.check(node.answer.reply.status == RMEM_OK, "an open is refused");
                       judge.check(!regions_of(node), "an alloc of nobody isn't undone");
                       judge.check(node.core()->sessions.in_use == 2, "sessions miscounted");
                   }});
    return all;
}

// ---- all states of one operation ----

struct Result {
    std::size_t states = 0, recoveries = 0;
    std::string fault;
};

std::string judge_state(const Operation& operation, const World& before, const Message& message,
                        const Memory& recovered) {
    World world = World();
    world.a = before.a;
    world.b = before.b;
    world.c = before.c;
    world.region = before.region;
    world.memory.copy(recovered);
    Judge judge;
    Node node{world.memory};
    node.now_ns = 2;
    if (const char* why = node.recover())
        return std::string("the store is refused: ") + why;
    check_tables(node, judge);
    if (operation.before)
        operation.before(world, node, message, judge);
    rmem_node_call call;
    send(node, operation.sender(world), message, &call);
    send(node, operation.sender(world), message, &call);
    operation.after(world, node, message, judge);
    check_tables(node, judge);
    return judge.fault;
}

void cut_recovery(const Operation& operation, const World& world, const Message& message,
                  const Memory& at, Result& result) {
    Node node{at};
    node.now_ns = 2;
    Memory start;
    auto judge_all = [&] {
        for (std::size_t n = 0; n < trace.count && result.fault.empty(); n++) {
            start.restore(trace.at(n));
            result.recoveries++;
            result.fault = judge_state(operation, world, message, start);
        }
    };
    start.copy(at);
    const rmem_node_config c = config();
    run_in_steps(at, 4096, [&] { rmem_store_take(node.store(), &c, node.now_ns); });
    judge_all();
    node.refill();
    start.copy(at);
    node.payload = node.store()->redo.payload;
    run_in_steps(at, 4096, [&] { rmem_store_redo(node.store(), &Node::ops, &node, node.now_ns); });
    judge_all();
}

Result cut(const Operation& operation, Mutation mutation, bool in_recovery) {
    Result result;
    World world;
    const Message message = operation.message(world);
    Memory base;
    base.copy(world.memory);
    Node node{world.memory, mutation};
    if (mutation == no_undo)
        node.core()->alloc.undo = node.core()->sessions.undo = nullptr;
    rmem_node_call call;
    const Client& sender = operation.sender(world);
    run_in_steps(world.memory, 4096, [&] { send(node, sender, message, &call); });
    const std::size_t states = trace.count;
    std::vector<std::uint8_t> snapshots(
        trace.snapshots.begin(), trace.snapshots.begin() + std::ptrdiff_t(states * snapshot_bytes));
    Memory at;
    for (std::size_t n = 0; n < states && result.fault.empty(); n++) {
        at.copy(base);
        at.restore(&snapshots[n * snapshot_bytes]);
        if (mutation == no_work)
            at.store()->work.kind = RMEM_WORK_NONE;
        result.states++;
        result.fault = judge_state(operation, world, message, at);
        if (in_recovery && n % 4 == 1)
            cut_recovery(operation, world, message, at, result);
    }
    return result;
}

int run(bool large) {
    model::Report report;
    for (const Operation& operation : operations()) {
        const Result result = cut(operation, none, large);
        std::printf("# %s: %zu states, %zu of recoveries, %llu instructions so far%s%s\n",
                    operation.name, result.states, result.recoveries,
                    static_cast<unsigned long long>(trace.steps), result.fault.empty() ? "" : ": ",
                    result.fault.c_str());
        report.result(result.fault.empty() && result.states > 3,
                      std::string(operation.name) + ": executed once wherever it is cut");
    }
    for (int left_out = none + 1; left_out < mutations; left_out++) {
        std::string missed;
        for (const Operation& operation : operations()) {
            const Result result = cut(operation, static_cast<Mutation>(left_out), false);
            if (!result.fault.empty())
                missed +=
                    std::string(missed.empty() ? "" : "; ") + operation.name + ": " + result.fault;
        }
        std::printf("# as wanted: %s\n", missed.c_str());
        report.result(!missed.empty(), std::string("wrong: ") + mutation_names[left_out]);
    }
    return report.finish();
}

#else

int run(bool) {
    std::printf("1..0 # SKIP steps are those of an x86-64\n");
    return 0;
}

#endif

} // namespace

int main(int argc, char** argv) {
    return run(argc > 1 && std::string_view(argv[1]) == "--large");
}
