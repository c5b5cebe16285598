// SPDX-License-Identifier: GPL-2.0
/*
 * The standby of a management host has duplicates of its memory, doorbells and sockets.
 *
 *   active   Replica ── a pair of sockets, each message an object of JSON ──> Standby
 *
 *   {"map": {...}, "takeovers": N, "policy": N}
 *                                            files: control socket, registers; none when it comes
 *                                            again, because the map's pages have changed
 *   {"port": N, "plugged": B, "joined": B}   files: RAM and vectors, the first time; the doorbell
 *                                            socket, if the machine has joined
 *   {"end": true}                            the service ends: do not take over
 *
 * A port's message comes again at each change. The standby says "r" once it has everything, and
 * nothing else.
 *
 * The standby holds each QEMU's doorbell socket and the listening control socket, too. So the death
 * of the active closes none of them: no QEMU notices, and a request that waits for its turn waits
 * until the standby serves.
 *
 * A standby that doesn't read costs the active nothing. At first, messages without room in its
 * socket wait. If a change has no room later, the standby would not know it when it took over: so
 * it is dropped, and learns from its process's end of the socket that the active lives.
 */
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/listener.hpp"
#include "mh/fabric.hpp"

namespace remora::mh {

// The control socket's.
constexpr mode_t control_mode = 0600;

// The active's end.
class Replica {
public:
    // Throws Failure.
    Replica(const Fabric& fabric, const UnixListener& control, std::uint32_t takeovers);

    // The standby's end of the socket, to be given once.
    Descriptor take_peer() { return std::move(peer_); }
    int fd() const { return link_.get(); }
    // Events to wait for at fd().
    short events() const;
    // False: the standby has gone, or said something that a standby doesn't say.
    bool ready(short events, const Fabric& fabric);
    // False: the standby can't be told, and would take over with something that is no longer so.
    [[nodiscard]] bool port_changed(std::size_t number, const Fabric& fabric);
    [[nodiscard]] bool pages_changed(const Fabric& fabric);
    // The standby ends, too.
    void end();
    // The standby can take over.
    bool is_complete() const { return complete_; }
    // The standby can take over, and every change is on its way to it.
    bool is_ready() const { return complete_ && changed_.none() && !map_changed_; }

private:
    void send_changed(const Fabric& fabric);
    bool is_behind() const;

    Descriptor link_, peer_;
    std::bitset<NTB_PORTS_MAX> changed_; // ports whose state the standby lacks
    std::bitset<NTB_PORTS_MAX> sent_;    // ports whose memory and vectors it was sent
    bool map_changed_ = false;
    std::uint32_t takeovers_ = 0;
    std::size_t ports_;
    bool complete_ = false; // the standby says that it has everything
};

// The standby's end.
class Standby {
public:
    struct State {
        Fabric fabric;
        UnixListener control;
        std::uint32_t takeovers;
    };

    // Asks the management host that serves at the control socket. Throws Failure: there is none, it
    // has a standby already.
    explicit Standby(std::string path);

    int fd() const { return link_.get(); }
    // Takes a message. False: the active has ended.
    bool ready();
    bool has_all() const { return map_ && ports_.size() == map_->ports() && !incomplete_; }
    // The operator has ended the service.
    bool is_over() const { return over_; }
    std::size_t ports() const { return ports_.size(); }
    // Once ready() was false. Throws Failure: it lacks something; the active lives.
    State take_over();

private:
    void take_begin(const nlohmann::ordered_json& message, std::vector<Descriptor>& files);
    void take_map(const nlohmann::ordered_json& message);
    void take_port(const nlohmann::ordered_json& message, std::vector<Descriptor>& files);

    std::string path_;
    Descriptor link_, active_; // a descriptor of the active's process
    std::optional<Map> map_;
    Descriptor control_, registers_;
    std::vector<Port> ports_;
    std::size_t incomplete_ = 0; // ports of which nothing has come yet
    std::uint32_t takeovers_ = 0, policy_ = 0;
    bool over_ = false;
};

} // namespace remora::mh
