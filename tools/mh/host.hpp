// SPDX-License-Identifier: GPL-2.0
/*
 * The management host: one thread, which waits for
 *
 *   signals           SIGTERM, SIGINT: this process ends; a standby takes over
 *   control socket    requests of operators, machines that join, a standby
 *   doorbell sockets  machines that leave
 *   standby           its state (replica.hpp)
 *
 * A request is a line of JSON, and so is its answer (common/control_server.hpp):
 *
 *   {"verb": "status"}                     {"ok": true, "machines": [...], "standby": ...}
 *   {"verb": "policy"}                     {"ok": true, "access": [...]}
 *   {"verb": "pages", "from": NAME, "to": NAME, "pages": LIST}
 *                                          {"ok": true}; which pages `from` may reach now
 *   {"verb": "join", "machine": NAME}      {"ok": true, "port": ...}, and descriptors: join.hpp
 *   {"verb": "plug", "machine": NAME}      {"ok": true}; the cable, in or out
 *   {"verb": "unplug", "machine": NAME}    the same
 *   {"verb": "cut", "machine": NAME}       the same, and no machine is told
 *   {"verb": "standby"}                    {"ok": true}, and a descriptor: replica.hpp
 *   {"verb": "stop"}                       {"ok": true}; the standby ends, too
 *   a request that fails                   {"ok": false, "error": "one line"}
 */
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/control_server.hpp"
#include "mh/fabric.hpp"
#include "mh/replica.hpp"

namespace remora::mh {

class Host {
public:
    Host(Fabric fabric, UnixListener&& control, std::uint32_t takeovers = 0);

    // Returns when a signal or an operator ends it. signals: of signalfd(). Throws Failure.
    void serve(const Descriptor& signals);

private:
    void wait(const Descriptor& signals, bool& signalled);
    void look_after(std::size_t number);
    void look_after_standby(short events);
    Control::Reply execute(std::string_view line);
    Control::Reply join(std::size_t number);
    void set_pages(const nlohmann::ordered_json& request);
    Control::Reply add_standby();
    void plug(std::size_t number, bool plugged);
    void cut(std::size_t number);
    nlohmann::ordered_json status() const;
    nlohmann::ordered_json policy() const;
    void changed(std::size_t number);
    void keep_standby(bool knows);
    void leave_to_standby();
    void say(std::string_view what, std::size_t number) const;

    Fabric fabric_;
    Control control_;
    std::optional<Replica> standby_;
    std::uint32_t takeovers_;
    bool stopped_ = false;
};

// SIGTERM and SIGINT, which are blocked from now on.
Descriptor signal_descriptor();

} // namespace remora::mh
