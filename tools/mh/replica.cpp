// SPDX-License-Identifier: GPL-2.0
#include "mh/replica.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/control_client.hpp"
#include "support/failure.hpp"
#include "support/unix_socket.hpp"

namespace remora::mh {

namespace {

using Json = nlohmann::ordered_json;

// More than the longest map.
constexpr std::size_t message_bytes_max = 128 << 10;
constexpr char complete = 'r';
// How long the process of an active whose socket has closed can take to end.
constexpr int end_ms = 10'000;
// How long a standby looks for a management host that is being started: 2 s.
constexpr int reach_tries_max = 100;
constexpr std::chrono::milliseconds reach_pause{20};

bool send(const Descriptor& link, const Json& message, std::span<const int> files) {
    std::string text = message.dump();
    return send_files(link.get(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()},
                      files);
}

bool send_port(const Descriptor& link, const Fabric& fabric, std::size_t number, bool again) {
    const Port& port = fabric.port(number);
    std::vector<int> files;
    if (!again) {
        files.push_back(port.ram.get());
        for (const Descriptor& vector : port.vectors)
            files.push_back(vector.get());
    }
    bool joined = fabric.has_joined(number);
    if (joined)
        files.push_back(port.doorbell.get());
    return send(link, {{"port", number}, {"plugged", port.plugged}, {"joined", joined}}, files);
}

Json map_message(const Fabric& fabric, std::uint32_t takeovers) {
    return {{"map", fabric.map().json()}, {"takeovers", takeovers}, {"policy", fabric.policy()}};
}

// The active might have been started just before.
ControlClient reach_active(const std::string& path) {
    for (int tried = 1;; tried++) {
        try {
            return ControlClient("management host", path);
        } catch (const Failure& failure) {
            if ((failure.error() != ENOENT && failure.error() != ECONNREFUSED) ||
                tried == reach_tries_max)
                throw;
        }
        std::this_thread::sleep_for(reach_pause);
    }
}

Descriptor process_behind(const Descriptor& link) {
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    if (getsockopt(link.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes))
        throw Failure("can't tell which process is active: {}", std::strerror(errno));
    Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
    if (!process && errno != ESRCH)
        throw Failure("can't watch the active process {}: {}", peer.pid, std::strerror(errno));
    return process;
}

} // namespace

// ---- the active's end ----

Replica::Replica(const Fabric& fabric, const UnixListener& control, std::uint32_t takeovers)
    : takeovers_(takeovers), ports_(fabric.map().ports()) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        throw Failure("no socket for a standby: {}", std::strerror(errno));
    link_ = Descriptor(ends[0]);
    peer_ = Descriptor(ends[1]);
    int files[] = {control.fd(), fabric.registers().get()};
    if (!send(link_, map_message(fabric, takeovers), files))
        throw Failure("can't tell a standby the map: {}", std::strerror(errno));
    for (std::size_t number = 0; number < fabric.map().ports(); number++)
        changed_.set(number);
    send_changed(fabric);
}

short Replica::events() const {
    return static_cast<short>(changed_.any() || map_changed_ ? POLLIN | POLLOUT : POLLIN);
}

void Replica::send_changed(const Fabric& fabric) {
    if (map_changed_ && !send(link_, map_message(fabric, takeovers_), {}))
        return;
    map_changed_ = false;
    for (std::size_t number = 0; number < fabric.map().ports(); number++) {
        if (!changed_.test(number))
            continue;
        if (!send_port(link_, fabric, number, sent_.test(number)))
            return;
        changed_.reset(number);
        sent_.set(number);
    }
}

// Does the standby have everything, but not as it is now?
bool Replica::is_behind() const {
    return sent_.count() == ports_ && (changed_.any() || map_changed_);
}

bool Replica::port_changed(std::size_t number, const Fabric& fabric) {
    changed_.set(number);
    send_changed(fabric);
    return !is_behind();
}

bool Replica::pages_changed(const Fabric& fabric) {
    map_changed_ = true;
    send_changed(fabric);
    return !is_behind();
}

bool Replica::ready(short events, const Fabric& fabric) {
    if (events & POLLOUT)
        send_changed(fabric);
    if (!(events & ~POLLOUT))
        return true;
    char byte;
    ssize_t got = recv(link_.get(), &byte, sizeof(byte), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got != 1 || byte != complete || complete_)
        return false;
    complete_ = true;
    return true;
}

void Replica::end() {
    send(link_, {{"end", true}}, {});
}

// ---- the standby's end ----

Standby::Standby(std::string path) : path_(std::move(path)) {
    ControlClient client = reach_active(path_);
    client.call({{"verb", "standby"}});
    std::vector<Descriptor> files = client.take_files();
    if (files.size() != 1)
        throw Failure("the program that listens at {} is no management host", path_);
    link_ = std::move(files.front());
    active_ = process_behind(link_);
}

bool Standby::ready() {
    std::vector<std::uint8_t> text(message_bytes_max);
    std::vector<Descriptor> files;
    ssize_t got = receive_files(link_.get(), text, files);
    // The active died and left a message unread: the kernel tells that once, before the queued
    // messages.
    if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET))
        return true;
    if (got <= 0)
        return false;
    bool had_all = has_all();
    try {
        Json message = Json::parse(text.begin(), text.begin() + got);
        if (message.contains("map"))
            take_begin(message, files);
        else if (message.contains("port"))
            take_port(message, files);
        else
            over_ = message.at("end");
    } catch (const nlohmann::json::exception& error) {
        throw Failure("the active management host speaks another version: use the same release");
    }
    if (has_all() && !had_all)
        ::send(link_.get(), &complete, sizeof(complete), MSG_NOSIGNAL);
    return !over_;
}

void Standby::take_begin(const Json& message, std::vector<Descriptor>& files) {
    if (map_ && files.empty())
        return take_map(message);
    if (map_ || files.size() != 2)
        throw Failure("the active management host sent no map: use the same release");
    take_map(message);
    control_ = std::move(files[0]);
    registers_ = std::move(files[1]);
    ports_.resize(map_->ports());
    incomplete_ = map_->ports();
}

void Standby::take_map(const Json& message) {
    map_.emplace(message.at("map"));
    takeovers_ = message.at("takeovers");
    policy_ = message.at("policy");
}

void Standby::take_port(const Json& message, std::vector<Descriptor>& files) {
    std::size_t number = message.at("port");
    bool joined = message.at("joined");
    bool first = number < ports_.size() && !ports_[number].ram;
    if (number >= ports_.size() || files.size() != (first ? 1U + NTB_VECTORS : 0U) + joined)
        throw Failure("the active management host sent no port: use the same release");
    Port& port = ports_[number];
    port.plugged = message.at("plugged");
    port.doorbell = Descriptor();
    if (joined) {
        port.doorbell = std::move(files.back());
        files.pop_back();
    }
    if (!first)
        return;
    port.ram = std::move(files[0]);
    for (std::size_t i = 0; i < NTB_VECTORS; i++)
        port.vectors[i] = std::move(files[1 + i]);
    incomplete_--;
}

Standby::State Standby::take_over() {
    pollfd process{active_.get(), POLLIN, 0};
    if (active_ && poll(&process, 1, end_ms) != 1)
        throw Failure("the active management host lives and needs no standby: it has closed the "
                      "connection");
    if (!has_all())
        throw Failure("the active management host died before this standby knew everything");
    Fabric fabric(std::move(*map_), std::move(registers_), std::move(ports_), policy_);
    // The active might have taken it away when it ended. Requests that waited there are made again.
    if (access(path_.c_str(), F_OK))
        return {std::move(fabric), UnixListener("--socket", path_, control_mode), takeovers_ + 1};
    return {std::move(fabric), UnixListener(path_, std::move(control_)), takeovers_ + 1};
}

} // namespace remora::mh
