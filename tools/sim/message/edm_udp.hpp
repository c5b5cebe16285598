// SPDX-License-Identifier: GPL-2.0
// EDM as its modules carry it, with failures: hosts (edm_host), a scheduler and its standby
// (edm_sched) as machines at one switch, and sealed datagrams between them. Links lose datagrams, a
// scheduler dies, a host's port goes down and up.
//
//   Messages -> EdmUdp -> Member (edm_host) -- DEMAND, REQUEST --> Scheduler (edm_sched)
//                 |           ^                <- GRANT, FORWARD --
//                 |           '-- data --> Member: landed, by offset
//                 '-- no answer for --message-rto-us: the operation begins anew
//
// Acknowledgements of writes and repeats stand for the protocol above, as over UDP. A byte that
// arrives has to belong to the operation that its headers name, or the run fails.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/message/star.hpp"

extern "C" {
#include "core/edm/host.h"
#include "core/edm/sched.h"
}

namespace sim {

class EdmUdp final : public Star {
public:
    EdmUdp(Sim& sim, Messages& messages);
    ~EdmUdp() override;

    void check(bool idle) const override;
    std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

protected:
    void send(Leg leg) override;
    void receive(Packet* packet) override;

private:
    struct Member final : Handler {
        void fire(std::uint64_t) override;
        EdmUdp* rack;
        std::uint16_t port;
        std::vector<std::uint64_t> memory;
        edm_host core;
        Time wake_at = never;
        // Requests that it has executed: their operation, by announcer and slot.
        std::map<std::uint32_t, std::pair<std::uint32_t, std::uint64_t>> answers;
    };
    struct Scheduler final : Handler {
        void fire(std::uint64_t) override;
        EdmUdp* rack;
        std::uint32_t number; // 0; 1: the standby
        std::vector<std::uint64_t> memory;
        edm_sched core;
        base_siphash_key secret;
        bool dead = false;
        Time wake_at = never;
    };
    // A message until it has ended. Its number names it in packets.
    struct Operation {
        edm_op core; // first: a pointer to it is one to the operation
        std::uint64_t number;
        std::uint32_t message, repeats;
        std::uint32_t left;       // bytes that have not arrived
        std::vector<bool> landed; // by byte
        bool complete;            // a write's bytes are there; the acknowledgement is under way
    };
    struct Repeat final : Handler {
        void fire(std::uint64_t number) override; // of an operation
        EdmUdp* rack;
    };
    struct Failures final : Handler {
        enum : std::uint64_t { scheduler_dies, port_down, port_up };
        void fire(std::uint64_t what) override;
        EdmUdp* rack;
    };

    void make_scheduler(std::uint32_t number);
    void make_member(std::uint16_t port);
    void join_all();
    u64 now_ns() const { return (sim_.now() + us) / ns; }
    void wake(Handler& handler, Time& wake_at, u64 deadline_ns);
    bool is_lost(const Packet& packet);

    void post(std::uint32_t from, std::uint32_t to, const edm_message& message,
              const edm_item* items, std::uint64_t operation, const base_siphash_key& key);
    void deliver(Packet* packet);
    void to_member(Member& member, std::uint32_t link, const Bytes& bytes, std::uint64_t operation);
    void to_scheduler(Scheduler& scheduler, std::uint16_t from, const Bytes& bytes,
                      std::uint64_t operation);
    void drain(Member& member);
    void drain(Scheduler& scheduler);
    void act(Member& member, const edm_host_action& action);
    void send_data(std::uint16_t from, std::uint16_t to, std::uint64_t operation,
                   const edm_host_action* action, std::uint32_t offset, std::uint32_t bytes);
    void data(const Packet& packet);
    void acknowledged(std::uint64_t operation);
    void finish(Operation& operation);
    void try_again(Operation& operation);

    u64 start_ns_ = 0;
    bool joining_ = true;
    std::deque<Packet*> joins_;
    std::deque<Scheduler> schedulers_;
    std::deque<Member> members_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Operation>> operations_;
    std::vector<std::unique_ptr<Operation>> ended_; // the core still has their bytes to send
    Repeat repeat_;
    Failures failures_;
    Rng rng_;
    bool port_is_down_ = false;
    std::uint64_t next_ = 1, lost_ = 0, repeats_ = 0, late_ = 0, standby_grants_ = 0;
    Time died_at_ = never, standby_heard_ = never, standby_granted_ = never;
};

} // namespace sim
