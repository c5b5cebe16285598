// SPDX-License-Identifier: GPL-2.0
#include "mh/host.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/signalfd.h>

#include "common/control.hpp"
#include "mh/say.hpp"
#include "support/failure.hpp"

namespace remora::mh {

namespace {

using Json = nlohmann::ordered_json;

// Members of a request beside its verb.
const std::map<std::string_view, std::vector<const char*>> request_members = {
    {"status", {}},        {"policy", {}},       {"join", {"machine"}},
    {"plug", {"machine"}}, {"standby", {}},      {"unplug", {"machine"}},
    {"stop", {}},          {"cut", {"machine"}}, {"pages", {"from", "to", "pages"}},
};

// A request whose members are all there; those that name a machine are strings.
Json parse_request(std::string_view line) {
    Json request = Json::parse(line, nullptr, false);
    if (!request.is_object() || !request.contains("verb") || !request["verb"].is_string())
        throw Failure("a request is a line with an object of JSON: {{\"verb\": \"status\"}}");
    auto known = request_members.find(request["verb"].get<std::string>());
    if (known == request_members.end())
        throw Failure("unknown verb: use status, policy, pages, join, plug, unplug, cut, "
                      "standby or stop");
    for (const char* member : known->second)
        if (!request.contains(member) ||
            (member != std::string_view("pages") && !request[member].is_string()))
            throw Failure("the request has no string \"{}\"", member);
    if (request.size() > known->second.size() + 1)
        throw Failure("the request has members that its verb doesn't know");
    return request;
}

std::string ok(Json answer = Json::object()) {
    Json whole{{"ok", true}};
    whole.update(answer);
    return whole.dump();
}

} // namespace

Descriptor signal_descriptor() {
    sigset_t set;
    sigemptyset(&set);
    for (int number : {SIGTERM, SIGINT})
        sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    // The host goes on when the reader of its output ends, or its terminal.
    for (int number : {SIGPIPE, SIGHUP})
        signal(number, SIG_IGN);
    return Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

Host::Host(Fabric fabric, UnixListener&& control, std::uint32_t takeovers)
    : fabric_(std::move(fabric)), control_(std::move(control)), takeovers_(takeovers) {
    // A host that died might have left the registers as they were before its last change.
    fabric_.write_policies();
    fabric_.tell_presence();
}

void Host::serve(const Descriptor& signals) {
    bool signalled = false;
    try {
        while (!signalled && !stopped_)
            wait(signals, signalled);
    } catch (...) {
        leave_to_standby();
        throw;
    }
    leave_to_standby();
}

// The standby goes on with the socket.
void Host::leave_to_standby() {
    if (standby_ && standby_->is_complete() && !stopped_)
        control_.socket().leave();
}

void Host::wait(const Descriptor& signals, bool& signalled) {
    std::vector<pollfd> fds{
        {signals.get(), POLLIN, 0},
        {control_.fd(), POLLIN, 0},
        {standby_ ? standby_->fd() : -1, standby_ ? standby_->events() : short{}, 0}};
    std::size_t doorbells = fds.size();
    for (std::size_t number = 0; number < fabric_.map().ports(); number++)
        fds.push_back({fabric_.port(number).doorbell.get(), POLLIN, 0});
    if (poll(fds.data(), fds.size(), -1) < 0) {
        if (errno == EINTR)
            return;
        throw Failure("can't wait for machines: {}", std::strerror(errno));
    }
    signalled = fds[0].revents;
    for (std::size_t number = 0; number < fabric_.map().ports(); number++)
        if (fds[doorbells + number].revents)
            look_after(number);
    if (fds[2].revents)
        look_after_standby(fds[2].revents);
    if (fds[1].revents)
        control_.ready(
            [&](std::string_view line, const Control::Answer& answer) { answer(execute(line)); });
}

void Host::look_after(std::size_t number) {
    Fabric::Heard heard = fabric_.hear(number);
    if (heard == Fabric::Heard::nothing)
        return;
    say(heard == Fabric::Heard::end
            ? "has left"
            : "wrote to its doorbell socket, which QEMU never does: cut off",
        number);
    fabric_.leave(number);
    changed(number);
}

void Host::look_after_standby(short events) {
    bool was_ready = standby_->is_ready();
    if (!standby_->ready(events, fabric_)) {
        standby_.reset();
        mh::say("the standby has gone");
    } else if (!was_ready && standby_->is_ready()) {
        mh::say("a standby is ready");
    }
}

// No request may end the host, so every failure is answered.
Control::Reply Host::execute(std::string_view line) {
    try {
        Json request = parse_request(line);
        std::string verb = request["verb"];
        std::size_t number = request.contains("machine")
                                 ? fabric_.map().port_of(request["machine"].get<std::string>())
                                 : 0;
        if (verb == "status")
            return ok(status());
        if (verb == "policy")
            return ok(policy());
        if (verb == "join")
            return join(number);
        if (verb == "plug" || verb == "unplug")
            return plug(number, verb == "plug"), ok();
        if (verb == "cut")
            return cut(number), ok();
        if (verb == "standby")
            return add_standby();
        if (verb == "pages")
            return set_pages(request), ok();
        if (standby_)
            standby_->end();
        stopped_ = true;
        return ok();
    } catch (const std::exception& failure) {
        return control_error(failure.what());
    }
}

Control::Reply Host::join(std::size_t number) {
    const Map& map = fabric_.map();
    std::vector<Descriptor> files = fabric_.join(number);
    // Before the answer: should this process die now, the standby knows of the machine.
    changed(number);
    Json peers = Json::array();
    for (std::size_t other = 0; other < map.ports(); other++)
        if (other != number)
            peers.push_back({{"port", other},
                             {"ram_bytes", map.machines()[other].ram_bytes},
                             {"may", access_text(map.access(number, other))}});
    say("has joined", number);
    return {
        ok({{"port", number}, {"ram_bytes", map.machines()[number].ram_bytes}, {"peers", peers}}),
        std::move(files)};
}

void Host::set_pages(const Json& request) {
    std::size_t from = fabric_.map().port_of(request["from"].get<std::string>());
    std::size_t to = fabric_.map().port_of(request["to"].get<std::string>());
    if (from == to)
        throw Failure("a machine reaches all of its own pages: name two machines");
    fabric_.set_pages(from, to, request["pages"]);
    if (standby_)
        keep_standby(standby_->pages_changed(fabric_));
}

void Host::plug(std::size_t number, bool plugged) {
    fabric_.plug(number, plugged);
    changed(number);
}

void Host::cut(std::size_t number) {
    fabric_.cut(number);
    changed(number);
}

Control::Reply Host::add_standby() {
    if (standby_)
        throw Failure("this management host has a standby already");
    standby_.emplace(fabric_, control_.socket(), takeovers_);
    std::vector<Descriptor> files;
    files.push_back(standby_->take_peer());
    return {ok(), std::move(files)};
}

Json Host::status() const {
    Json machines = Json::array();
    for (std::size_t number = 0; number < fabric_.map().ports(); number++) {
        const Machine& machine = fabric_.map().machines()[number];
        machines.push_back({{"name", machine.name},
                            {"port", number},
                            {"ram_bytes", machine.ram_bytes},
                            {"windows_base", machine.windows_base},
                            {"window_bytes", machine.window_bytes},
                            {"kernel_parameter", fabric_.map().kernel_parameter(number)},
                            {"joined", fabric_.has_joined(number)},
                            {"plugged", fabric_.port(number).plugged}});
    }
    return {{"machines", machines},
            {"standby", !standby_              ? "none"
                        : standby_->is_ready() ? "ready"
                                               : "learning"},
            {"takeovers", takeovers_}};
}

Json Host::policy() const {
    const Map& map = fabric_.map();
    Json access = Json::array();
    for (std::size_t from = 0; from < map.ports(); from++)
        for (std::size_t to = 0; to < map.ports(); to++)
            if (from != to)
                access.push_back({{"from", map.machines()[from].name},
                                  {"to", map.machines()[to].name},
                                  {"may", access_text(map.access(from, to))},
                                  {"link", map.linked(from, to)},
                                  {"pages", map.pages_json(from, to)},
                                  {"in_force", fabric_.is_in_force(from)}});
    return {{"access", access}};
}

// A standby that knew of everything but this would do harm, so it is no longer one.
void Host::keep_standby(bool knows) {
    if (knows)
        return;
    standby_.reset();
    mh::say("the standby takes no messages and was dropped: start another one");
}

void Host::changed(std::size_t number) {
    if (standby_)
        keep_standby(standby_->port_changed(number, fabric_));
}

void Host::say(std::string_view what, std::size_t number) const {
    mh::say("{} {}", fabric_.map().machines()[number].name, what);
}

} // namespace remora::mh
