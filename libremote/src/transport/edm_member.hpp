// SPDX-License-Identifier: MIT
/*
 * A program as a host of EDM's scheduler: core/edm/host.h over sockets, as kmod/edm/member.c has it
 * for a machine. The handles of a program that name one port share it.
 *
 *   submit(), done(), cancel() ---> [ core ] --- Turn's end ---> JOIN, DEMAND, REQUEST to the
 * scheduler take_in() <-- WELCOME, GRANT                            '--> EdmClient: ask(), sent()
 *
 * Nothing runs between calls. So the lease of a program that doesn't wait ends, and its next
 * message has it join anew, which takes two round trips.
 */
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "src/clock.hpp"
#include "support/descriptor.hpp"
#include "support/key.hpp"
#include "support/resolve.hpp"

extern "C" {
#include "core/edm/host.h"
}

namespace remora::lib {

class EdmClient;

// One that waits for the scheduler: a message of EDM, or a part of one.
struct EdmDatagram : edm_op {
    EdmClient* client; // null: its handle is closed
    std::list<EdmDatagram>::iterator place;
    std::vector<std::uint8_t> data;
    std::vector<std::uint64_t> ids; // of its messages
    std::uint64_t session;
    std::uint64_t since_ns;
    std::uint32_t left; // READs: bytes that their answers lack
};
using EdmList = std::list<EdmDatagram>;

// The owner of such datagrams. The member calls it at the end of a turn, in any thread.
class EdmClient {
public:
    // The request of a read, for the scheduler to forward.
    virtual std::span<const std::uint8_t> request(EdmDatagram& read) = 0;
    // Send the request of a read to its peer: it goes without a scheduler. The op goes on.
    virtual void ask(EdmDatagram& read) = 0;
    // The scheduler permits that the write leaves. It is the client's again.
    virtual void sent(EdmDatagram& write, bool unscheduled) = 0;

protected:
    ~EdmClient() = default;
};

struct EdmPort {
    Key key; // the rack's
    std::uint16_t number;
    std::uint32_t rate_mbps;
};

class EdmMember {
public:
    // This program's at that port of those schedulers: one, and perhaps its standby. Throws
    // Failure: no way to one; the program has the port already, with another key, rate or standby.
    static std::shared_ptr<EdmMember> of(const EdmPort& port,
                                         const std::vector<Resolved>& schedulers);

    // False: the scheduler has not welcomed this host by then.
    bool wait_welcome(Clock::time_point limit);

    // The rest is called during a turn. Its end sends all that the core permits by then.
    class Turn {
    public:
        explicit Turn(EdmMember& member) : member_(member), lock_(member.lock_) {}
        ~Turn() { member_.pump(); }

    private:
        EdmMember& member_;
        std::lock_guard<std::mutex> lock_;
    };

    // As in core/edm/host.h.
    void submit(EdmDatagram& op);
    void done(EdmDatagram& op);
    bool cancel(EdmDatagram& op);
    // Ends those of a closed handle; writes that can't be cancelled end later.
    void forget(EdmList& list);

    void take_in();

    // Any time: when to take a turn, while there are ops; never without.
    Clock::time_point timer() const { return timer_; }
    std::uint64_t lease_ns() const { return host_.link[0].lease_ns; }
    std::span<const Descriptor> sockets() const { return sockets_; }

    // In a child of the process that made it.
    void disown() { sockets_.clear(); }

    EdmMember(const EdmPort& port, const std::vector<Resolved>& schedulers); // of()'s

private:
    bool is_at(const std::vector<Resolved>& schedulers, std::uint16_t port) const;
    bool is_over();
    bool is_leased() const;
    bool serves(const EdmPort& port, const std::vector<Resolved>& schedulers) const;
    void start(std::uint64_t patience_ns);
    bool slept() const;
    void pump();
    void act();
    void sent(EdmDatagram& write);
    void tell(std::uint8_t link, std::span<const std::uint8_t> request);
    void receive(std::uint8_t link, std::span<const std::uint8_t> bytes);

    const pid_t process_; // a child of fork() has its own
    const EdmPort port_;
    const std::vector<Resolved> schedulers_;
    std::vector<Descriptor> sockets_; // by link

    std::mutex lock_; // of the rest. Lock order: a handle's, then this, then a ScratchTurn
    std::vector<std::uint64_t> memory_;
    edm_host host_{};
    edm_host_action action_{};
    EdmList forgotten_;
    bool unscheduled_ = false; // the bytes sent last had no grants
    std::size_t ops_ = 0;      // under way in the core
    std::atomic<Clock::time_point> timer_{never};
};

} // namespace remora::lib
