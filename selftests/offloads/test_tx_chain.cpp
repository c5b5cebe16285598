// SPDX-License-Identifier: GPL-2.0
// tools/offloads/tx in a chain of three replicas, over a model of nodes, links and persistent
// memory: transactions that were acknowledged are there once and in one order, whatever crashes.
//
// Everything happens in turns that a seed chooses: a call's step, a message's arrival, a client's
// try, a restart. A node crashes in the midst of a step: before any store, persist or drain. Then
// its process dies, or its power is cut and any part of the writes that weren't durable is left; or
// the power of all nodes is cut. A link sends a forward until it is answered, so a function can be
// executed twice, and late, or time out. An operator takes the head or the tail out of the chain
// and puts the node back behind the last one, with a copy of that one's file.
//
// REMORA_TX_CUTS=N: the least number of power cuts; default 1000. REMORA_TX_SEED=N: the first seed.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "offloads/tx/replica.h"

extern const rmem_offload_ops offload_tx;
}

#include "persistent.hpp"

namespace {

using persistent::Crash;
using persistent::Persistent;

constexpr u64 memory_bytes = 1 << 16; // with a log of 8 KiB, which wraps
constexpr u64 area_at = 4096, area_bytes = 8192, result_at = 4096; // of each client
constexpr unsigned clients = 4, pairs = 3;
constexpr u32 tag_bytes = 16, filler_bytes = 1500; // a record with a filler has two parts

struct Node;

// A forward, and its answer.
struct Message {
    int to;
    std::vector<u8> args;
    rmem_call* waiter; // null: it has ended
    bool done = false;
    int error = 0;
    std::array<u8, RMEM_FORWARDED_BYTES> answer{};
};
using MessageRef = std::shared_ptr<Message>;

} // namespace

struct rmem_call {
    Node* node;
    u32 function;
    std::vector<u8> args;
    std::array<u8, 64> result{};
    bool parked = false;
    std::vector<u64> keys{};
    std::deque<MessageRef> forwards{};
    MessageRef executes{}; // of another replica
    int client = -1;       // the client that waits for it; -1: none
    alignas(16) u8 scratch[RMEM_SCRATCH_BYTES_MAX] = {};
};

namespace {

struct Node {
    enum class State { down, starting, up };

    int index;
    Persistent memory{std::vector<u8>(memory_bytes)};
    bool has_drains = true;
    State state = State::down;
    std::unique_ptr<tx_replica> replica;
    std::vector<u8> area;
    std::list<rmem_call> calls;
    std::map<u64, std::deque<rmem_call*>> locks;
    int next = -1; // its link
    std::vector<MessageRef>* network;

    bool is_up() const { return state == State::up; }

    u8* at(u64 addr, u64 bytes) {
        return addr >= area_at && addr + bytes <= area_at + area.size() ? &area[addr - area_at]
                                                                        : nullptr;
    }
    void let_go(rmem_call& call) {
        for (u64 key : call.keys) {
            auto lock = locks.find(key);
            const bool had = lock->second.front() == &call;
            std::erase(lock->second, &call);
            if (lock->second.empty())
                locks.erase(lock);
            else if (had)
                lock->second.front()->parked = false;
        }
        for (const MessageRef& each : call.forwards)
            each->waiter = nullptr;
    }
};

} // namespace

// ---- the functions of a program ----

__u32 rmem_function(const rmem_call* call) {
    return call->function;
}
__u32 rmem_args_bytes(const rmem_call* call) {
    return static_cast<__u32>(call->args.size());
}
const void* rmem_args(rmem_call* call, __u32 bytes) {
    return bytes <= call->args.size() ? call->args.data() : nullptr;
}
void* rmem_result(rmem_call* call, __u32 bytes) {
    return bytes <= call->result.size() ? call->result.data() : nullptr;
}
void* rmem_scratch(rmem_call* call, __u32) {
    return call->scratch;
}
int rmem_error(const rmem_call*) {
    return -EINVAL;
}
int rmem_read(rmem_call* call, __u64 addr, void* to, __u32 bytes) {
    if (addr >= RMEM_PERSISTENT_ADDR) {
        call->node->memory.read(addr - RMEM_PERSISTENT_ADDR, to, bytes);
        return 0;
    }
    const u8* from = call->node->at(addr, bytes);
    if (!from)
        return -EFAULT;
    std::memcpy(to, from, bytes);
    return 0;
}
int rmem_write(rmem_call* call, __u64 addr, const void* from, __u32 bytes) {
    if (addr >= RMEM_PERSISTENT_ADDR) {
        call->node->memory.write(addr - RMEM_PERSISTENT_ADDR, from, bytes);
        return 0;
    }
    u8* to = call->node->at(addr, bytes);
    if (!to)
        return -EFAULT;
    std::memcpy(to, from, bytes);
    return 0;
}
__u64 rmem_persistent_bytes(const rmem_call*) {
    return memory_bytes;
}
// log.c's points are test_tx_log's.
int rmem_persist(rmem_call* call, __u64 addr, __u64 bytes) {
    call->node->memory.persist(TX_AT_FORMAT, addr - RMEM_PERSISTENT_ADDR, bytes);
    return 0;
}
int rmem_drain(rmem_call* call) {
    if (call->node->has_drains)
        call->node->memory.drain(TX_AT_FORMAT);
    return 0;
}
int rmem_key_lock(rmem_call* call, __u64 key) {
    auto& waiters = call->node->locks[key];
    if (std::ranges::find(call->keys, key) == call->keys.end()) {
        if (!call->keys.empty() && call->keys.back() > key)
            return -EDEADLK;
        call->keys.push_back(key);
        waiters.push_back(call);
    }
    if (waiters.front() == call)
        return 0;
    call->parked = true;
    return -EAGAIN;
}
int rmem_forward(rmem_call* call, const char*, __u32 function, const void* args, __u32 bytes) {
    if (call->node->next < 0)
        return -ENOLINK;
    if (function != TX_FORWARD || bytes > RMEM_FORWARD_BYTES_MAX)
        return -EINVAL;
    if (call->forwards.size() == RMEM_FORWARDS_MAX)
        return -ENOSPC;
    const auto* from = static_cast<const u8*>(args);
    auto made = std::make_shared<Message>(
        Message{call->node->next, std::vector<u8>(from, from + bytes), call});
    call->forwards.push_back(made);
    call->node->network->push_back(std::move(made));
    return 0;
}
int rmem_forwarded(rmem_call* call, void* answer) {
    if (call->forwards.empty())
        return -ENOENT;
    const MessageRef oldest = call->forwards.front();
    if (!oldest->done) {
        call->parked = true;
        return -EAGAIN;
    }
    call->forwards.pop_front();
    std::memcpy(answer, oldest->answer.data(), oldest->answer.size());
    return oldest->error;
}

namespace {

// ---- clients ----

// The content of a tuple: the transaction that wrote it last.
struct Tag {
    u64 client = 0, sequence = 0;
    bool operator==(const Tag&) const = default;
};

// A transaction reads the two tuples of a pair and writes both.
struct Transaction {
    Tag tag;
    unsigned pair = 0;
    bool has_filler = false;
    std::optional<std::array<Tag, 2>> read; // nothing: the answer was that of an earlier try
};

struct Client {
    Transaction next;
    rmem_call* call = nullptr;
    u64 done = 0;
    bool has_ended = false;
};

// Blocks of their own, so that the pairs have locks of their own.
u64 offset_of(unsigned pair, unsigned which) {
    return u64{pair * 4 + which} * 1024;
}
u64 filler_offset_of(unsigned pair) {
    return u64{pair * 4 + 2} * 1024;
}

template <typename T>
void append(std::vector<u8>& to, const T& value) {
    const auto* bytes = reinterpret_cast<const u8*>(&value);
    to.insert(to.end(), bytes, bytes + sizeof(value));
}

std::vector<u8> request_of(const Transaction& each) {
    std::vector<u8> request;
    for (unsigned which : {0, 1})
        append(request, tx_read{offset_of(each.pair, which), tag_bytes, 0});
    auto write = [&](u64 offset, u32 bytes) {
        append(request, tx_record_tuple{offset, bytes, 0});
        const std::size_t end = request.size() + bytes;
        while (request.size() < end)
            append(request, each.tag);
        request.resize(end + (-bytes & 7U));
        std::fill(request.begin() + std::ptrdiff_t(end), request.end(), u8{0});
    };
    for (unsigned which : {0, 1})
        write(offset_of(each.pair, which), tag_bytes);
    if (each.has_filler)
        write(filler_offset_of(each.pair), filler_bytes);
    return request;
}

// ---- the rack ----

class Rack {
public:
    Rack(u64 seed, bool has_drains) : random_(seed) {
        for (int n = 0; n < 3; n++) {
            nodes_[n].index = n;
            nodes_[n].network = &network_;
            nodes_[n].has_drains = has_drains;
        }
        for (unsigned n = 0; n < clients; n++)
            prepare(clients_[n], n);
    }

    u64 cuts = 0; // of power

    // The first fault; empty: none.
    std::string run(u64 transactions) {
        link();
        crashes_ = false;
        if (!start_chain())
            return fault("the chain doesn't start");
        crashes_ = true;
        for (Node& node : nodes_)
            arm(node);
        if (!turns_until([&] { return acknowledged_ >= transactions; }))
            return fault("the clients wait");
        crashes_ = false;
        for (Node& node : nodes_)
            arm(node);
        is_closing_ = true;
        if (!turns_until([&] { return is_quiet(); }))
            return fault("the end doesn't come");
        if (std::string wrong = check(); !wrong.empty())
            return wrong;
        // All of it is durable.
        for (Node& node : nodes_)
            crash(node, true);
        if (!turns_until([&] { return is_quiet(); }))
            return fault("the nodes don't start");
        return check();
    }

private:
    unsigned below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }

    // fault_; else the given one, with the state of the nodes.
    std::string fault(const std::string& what) const {
        if (!fault_.empty())
            return fault_;
        std::string text = what + ", " + std::to_string(network_.size()) + " messages, " +
                           std::to_string(changes_.size()) + " changes to epoch " +
                           std::to_string(epoch_) + ", last error " + std::to_string(error_);
        for (int index : chain_) {
            const Node& node = nodes_[index];
            text += "; node " + std::to_string(index) + ": ";
            if (!node.replica) {
                text += "down";
                continue;
            }
            const tx_replica& has = *node.replica;
            text += "epoch " + std::to_string(has.log.epoch) + " role " +
                    std::to_string(has.log.role) + (has.fenced ? " fenced" : "") + " log " +
                    std::to_string(has.log.begin) + " " + std::to_string(has.log.applied) + " " +
                    std::to_string(has.acked) + " " + std::to_string(has.log.end) + ", " +
                    std::to_string(node.calls.size()) + " calls";
        }
        return text;
    }

    void link() {
        for (std::size_t n = 0; n < chain_.size(); n++)
            nodes_[chain_[n]].next = n + 1 < chain_.size() ? chain_[n + 1] : -1;
    }
    bool is_in_chain(int index) const { return std::ranges::find(chain_, index) != chain_.end(); }
    Node& head() { return nodes_[chain_.front()]; }

    void prepare(Client& client, unsigned n) {
        client.next = {{100 + n, client.done + 1}, below(pairs), below(4) == 0, {}};
    }

    // ---- nodes ----

    void arm(Node& node) {
        static constexpr u64 events_max[] = {30, 300, 3000};
        node.memory.events = 0;
        node.memory.crash_at = crashes_ ? 1 + random_() % events_max[below(3)] : 0;
    }

    void crash(Node& node, bool cut) {
        cuts += cut;
        if (cut) {
            const unsigned keeps = below(4);
            node.memory = node.memory.after_crash([&](std::size_t count) -> std::size_t {
                return keeps == 0 ? count - 1 : keeps == 1 ? 0 : random_() % count;
            });
        } else {
            node.memory = node.memory.after_death();
        }
        for (rmem_call& call : node.calls)
            forget(call);
        node.calls.clear();
        node.locks.clear();
        node.replica.reset();
        node.state = Node::State::down;
    }

    // The node's calls are gone, and their senders try again.
    void forget(rmem_call& call) {
        for (const MessageRef& each : call.forwards)
            each->waiter = nullptr;
        if (call.executes && !call.executes->done)
            network_.push_back(call.executes);
        if (call.client >= 0)
            clients_[call.client].call = nullptr;
        if (operator_call_ == &call)
            operator_call_ = nullptr;
    }

    void start(Node& node) {
        arm(node);
        node.replica = std::make_unique<tx_replica>();
        node.area.assign(clients * area_bytes, 0);
        node.state = Node::State::starting;
        node.calls.push_back({&node, ~0U, {}});
    }

    rmem_call& add_call(Node& node, u32 function, std::vector<u8> args) {
        node.calls.push_back({&node, function, std::move(args)});
        return node.calls.back();
    }

    // ---- turns ----

    void step(Node& node, std::list<rmem_call>::iterator at) {
        rmem_call& call = *at;
        const bool starts = node.state == Node::State::starting;
        int error;
        tx = node.replica.get();
        try {
            error = starts ? offload_tx.start(&call) : offload_tx.step(&call);
        } catch (const Crash&) {
            if (below(8) == 0) {
                for (Node& each : nodes_)
                    crash(each, true);
            } else {
                crash(node, below(2));
            }
            return;
        }
        if (error == RMEM_AGAIN)
            return;
        node.let_go(call);
        if (starts)
            end_start(node, error);
        else if (call.executes)
            answer(*call.executes, error, call.result.data());
        else if (call.client >= 0)
            end_transaction(clients_[call.client], error, call);
        else if (operator_call_ == &call)
            end_operator(error);
        if (node.state != Node::State::down)
            node.calls.erase(at);
    }

    void end_start(Node& node, int error) {
        if (!error) {
            node.state = Node::State::up;
        } else if (error == -ETIMEDOUT) {
            crash(node, false); // the operator tries again
        } else {
            fault_ = "node " + std::to_string(node.index) + " can't start: error " +
                     std::to_string(error);
        }
    }

    void answer(Message& message, int error, const u8* result) {
        if (message.done)
            return;
        message.done = true;
        message.error = error;
        std::memcpy(message.answer.data(), result, message.answer.size());
        if (message.waiter)
            message.waiter->parked = false;
    }

    void deliver() {
        if (network_.empty())
            return;
        const unsigned which = below(static_cast<unsigned>(network_.size()));
        const MessageRef message = network_[which];
        Node& to = nodes_[message->to];
        if (!to.is_up()) {
            if (!is_in_chain(to.index) || !message->waiter || below(16) == 0)
                time_out(which);
            return;
        }
        // A try whose answer doesn't come in time is followed by another one.
        if (below(16) != 0)
            network_.erase(network_.begin() + which);
        add_call(to, TX_FORWARD, message->args).executes = message;
    }

    void time_out(unsigned which) {
        static constexpr u8 nothing[RMEM_FORWARDED_BYTES] = {};
        answer(*network_[which], -ETIMEDOUT, nothing);
        network_.erase(network_.begin() + which);
    }

    void send() {
        const unsigned n = below(clients);
        Client& client = clients_[n];
        Node& node = head();
        if (client.call && below(64) == 0) {
            client.call->client = -1; // the client asks again, while the node is at it
            client.call = nullptr;
        }
        if (client.call || client.has_ended || !node.is_up())
            return;
        const std::vector<u8> request = request_of(client.next);
        const u64 area = area_at + n * area_bytes;
        const bool is_inline = request.size() <= TX_INLINE_BYTES_MAX;
        tx_run_args args{};
        args.client = client.next.tag.client;
        args.sequence = client.next.tag.sequence;
        args.area = is_inline ? 0 : area;
        args.result = area + result_at;
        args.bytes = static_cast<u32>(request.size());
        args.sum =
            base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, request.data(), request.size()));
        args.reads = 2;
        args.writes = client.next.has_filler ? 3 : 2;
        std::vector<u8> bytes;
        append(bytes, args);
        if (is_inline)
            bytes.insert(bytes.end(), request.begin(), request.end());
        else
            std::memcpy(node.at(area, request.size()), request.data(), request.size());
        client.call = &add_call(node, TX_RUN, std::move(bytes));
        client.call->client = static_cast<int>(n);
    }

    void end_transaction(Client& client, int error, const rmem_call& call) {
        client.call = nullptr;
        error_ = error;
        if (error)
            return;
        tx_result result;
        std::memcpy(&result, call.result.data(), sizeof(result));
        Transaction done = client.next;
        if (result.done == TX_DONE) {
            const auto n = static_cast<u64>(&client - clients_.data());
            struct {
                tx_read_head head;
                std::array<Tag, 2> tags;
            } found;
            std::memcpy(&found, call.node->at(area_at + n * area_bytes + result_at, sizeof(found)),
                        sizeof(found));
            if (Tag{found.head.client, found.head.sequence} != done.tag)
                fault_ = "the tuples are those of another transaction";
            done.read = found.tags;
        }
        if (!history_.emplace(result.position, done).second)
            fault_ = "two transactions end at " + std::to_string(result.position);
        acknowledged_++;
        client.done++;
        client.has_ended = is_closing_;
        prepare(client, static_cast<unsigned>(&client - clients_.data()));
    }

    // ---- the operator ----

    // The next change of a node's place; -ESTALE: an earlier try was executed.
    struct Change {
        int node;
        u32 role;
    };

    void operate() {
        if (operator_call_ || changes_.empty())
            return;
        Node& node = nodes_[changes_.front().node];
        if (!node.is_up())
            return;
        std::vector<u8> args;
        append(args, tx_chain_args{epoch_, changes_.front().role});
        operator_call_ = &add_call(node, TX_CHAIN, std::move(args));
    }
    void end_operator(int error) {
        operator_call_ = nullptr;
        error_ = error;
        // The replica before it has given up the room of records that the copy lacks.
        if (error == -EXDEV)
            copy_file();
        if (!error ||
            (error == -ESTALE && nodes_[changes_.front().node].replica->log.epoch >= epoch_))
            changes_.pop_front();
    }
    // From the last node to the head, in a new epoch.
    void give_places() {
        epoch_++;
        link();
        for (std::size_t n = chain_.size(); n--;) {
            const u32 role = (n ? 0 : TX_CHAIN_HEAD) | (n + 1 < chain_.size() ? TX_CHAIN_NEXT : 0);
            changes_.push_back({chain_[n], role});
        }
    }

    bool start_chain() {
        for (Node& node : nodes_)
            start(node);
        give_places();
        return turns_until([&] { return changes_.empty(); });
    }

    void change_chain() {
        if (!changes_.empty() || is_closing_)
            return;
        if (chain_.size() == 3) {
            const bool tail = below(2);
            Node& node = nodes_[tail ? chain_.back() : chain_.front()];
            crash(node, false);
            std::erase(chain_, node.index);
            for (Client& each : clients_)
                each.call = nullptr;
            for (Node& each : nodes_)
                for (rmem_call& call : each.calls)
                    call.client = -1;
            give_places();
            return;
        }
        chain_.push_back(3 - chain_[0] - chain_[1]);
        copy_file();
        give_places();
    }

    // The last node gets the file of the one before it, while that is stopped.
    void copy_file() {
        Node &last = nodes_[chain_.back()], &before = nodes_[chain_[chain_.size() - 2]];
        crash(before, false);
        crash(last, false);
        last.memory = before.memory;
    }

    // ---- the end ----

    bool is_quiet() const {
        return network_.empty() && changes_.empty() &&
               std::ranges::all_of(clients_, &Client::has_ended) &&
               std::ranges::all_of(nodes_, [&](const Node& node) {
                   return node.calls.empty() && (node.is_up() || !is_in_chain(node.index));
               });
    }

    bool turns_until(const std::function<bool()>& over) {
        for (u64 turn = 0; turn < 2'000'000; turn++) {
            if (!fault_.empty())
                return false;
            if (over())
                return true;
            const unsigned what = below(32);
            if (what < 20) {
                Node& node = nodes_[below(3)];
                if (node.calls.empty())
                    continue;
                auto at = node.calls.begin();
                std::advance(at, below(static_cast<unsigned>(node.calls.size())));
                if (!at->parked)
                    step(node, at);
            } else if (what < 25) {
                deliver();
            } else if (what < 28) {
                send();
            } else if (what < 30) {
                Node& node = nodes_[below(3)];
                if (node.state == Node::State::down && is_in_chain(node.index))
                    start(node);
            } else if (what == 30) {
                operate();
            } else if (crashes_ && below(40) == 0) {
                if (below(8) == 0)
                    change_chain();
                else if (!network_.empty())
                    time_out(below(static_cast<unsigned>(network_.size())));
            }
        }
        return false;
    }

    Tag tag_at(Node& node, u64 offset) {
        Tag tag;
        tx_log_read_data(&node.replica->log, offset, &tag, sizeof(tag));
        return tag;
    }

    // The transactions in the order of their positions have read and written as one after the
    // other. Each client has ended with one that was acknowledged.
    std::string check() {
        std::array<Tag, pairs> last{};
        std::map<u64, u64> sequences;
        for (const auto& [position, each] : history_) {
            const std::string name = "transaction " + std::to_string(each.tag.sequence) +
                                     " of client " + std::to_string(each.tag.client);
            if (each.tag.sequence != ++sequences[each.tag.client])
                return name + " comes too early or too late";
            if (each.read && (*each.read)[0] != (*each.read)[1])
                return name + " read a torn pair";
            if (each.read && (*each.read)[0] != last[each.pair])
                return name + " read other tuples than those before it";
            last[each.pair] = each.tag;
        }
        for (int index : chain_) {
            Node& node = nodes_[index];
            node.memory.crash_at = 0;
            rmem_call call{&node, 0, {}};
            node.replica->log.memory = &call;
            for (unsigned pair = 0; pair < pairs; pair++) {
                const Tag tag = tag_at(node, offset_of(pair, 0));
                if (tag != tag_at(node, offset_of(pair, 1)))
                    return "node " + std::to_string(index) + " has a torn pair";
                if (tag != last[pair])
                    return "node " + std::to_string(index) + " lost a transaction";
                const u64 filler = filler_offset_of(pair);
                for (u64 at = tag_bytes; at + tag_bytes <= filler_bytes; at += tag_bytes)
                    if (tag_at(node, filler + at) != tag_at(node, filler))
                        return "node " + std::to_string(index) + " has a torn filler";
            }
        }
        return {};
    }
    std::mt19937_64 random_;
    std::array<Node, 3> nodes_;
    std::array<Client, clients> clients_;
    std::vector<MessageRef> network_; // forwards to come, and those that come again
    std::vector<int> chain_{0, 1, 2};
    u32 epoch_ = 0;
    std::deque<Change> changes_;
    rmem_call* operator_call_ = nullptr;
    std::map<u64, Transaction> history_; // by the position of their end
    u64 acknowledged_ = 0;
    bool crashes_ = false, is_closing_ = false;
    std::string fault_;
    int error_ = 0; // of the last transaction or change
};

u64 number_from(const char* name, u64 otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 0) : otherwise;
}

TEST(TxChain, CrashesOfThreeReplicasLoseTearAndRepeatNothing) {
    const u64 wanted = number_from("REMORA_TX_CUTS", 1000);
    u64 cuts = 0;
    for (u64 seed = number_from("REMORA_TX_SEED", 1); cuts < wanted; seed++) {
        Rack rack(seed, true);
        ASSERT_EQ(rack.run(60), "") << "again: REMORA_TX_SEED=" << seed
                                    << " REMORA_TX_CUTS=1 out/bin/offload/test_tx_chain";
        cuts += rack.cuts;
    }
    RecordProperty("cuts", std::to_string(cuts));
}

// The model finds a loss: memory whose drains do nothing.
TEST(TxChain, WithoutDrainsALossIsFound) {
    std::string fault;
    for (u64 seed = 1; fault.empty() && seed < 50; seed++)
        fault = Rack(seed, false).run(60);
    EXPECT_NE(fault, "");
}

class Environment : public testing::Environment {
    void SetUp() override { base_crc32c_setup(); }
};
const testing::Environment* const environment = testing::AddGlobalTestEnvironment(new Environment);

} // namespace
