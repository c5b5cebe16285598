// SPDX-License-Identifier: GPL-2.0
#include "remora/daemon.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "common/control.hpp"
#include "remora/nodes.hpp"
#include "support/failure.hpp"
#include "support/unix_address.hpp"

namespace remora {

namespace {

using Json = nlohmann::ordered_json;

// A deletion may have to free millions of pages.
constexpr timeval patience{60, 0};
// More than the list of all spaces that a node can have.
constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;

} // namespace

Daemon::Daemon(const std::string& path)
    : path_(path), fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = unix_address(path);
    if (!fd_ || setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
        connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)))
        throw Failure("no memory node listens at {}: {}", path, std::strerror(errno));
}

// False: the node has closed the connection.
bool Daemon::read_some() {
    std::array<char, 65536> bytes;
    ssize_t got = read(fd_.get(), bytes.data(), bytes.size());
    if (got < 0 && errno != ECONNRESET)
        throw Failure("the memory node at {} doesn't answer: {}", path_, std::strerror(errno));
    text_.append(bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    if (text_.size() > answer_bytes_max)
        throw Failure("the program that listens at {} is no memory node: its answer has no end",
                      path_);
    return got > 0;
}

Json Daemon::call(const Json& request) {
    std::string line = request.dump() + "\n";
    // If this fails, so does reading the answer; but a status socket doesn't read, and answers.
    [[maybe_unused]] ssize_t sent = send(fd_.get(), line.data(), line.size(), MSG_NOSIGNAL);
    explicit_bzero(line.data(), line.size()); // the line may have a key
    while (text_.find('\n') == text_.npos) {
        if (!read_some())
            throw Failure("the memory node at {} closed the connection: has it ended?", path_);
    }
    Json answer = Json::parse(text_.substr(0, text_.find('\n')), nullptr, false);
    text_.erase(0, text_.find('\n') + 1);
    if (!answer.is_object())
        throw Failure("the program that listens at {} is no memory node: its answer is no JSON",
                      path_);
    if (answer.value("ok", true))
        return answer;
    throw Failure("{}", answer.value("error", "the memory node gave no reason"));
}

NodeReport Daemon::report() {
    Json answer = call({{"verb", "status"}});
    try {
        return node_report_parse(answer.contains("ok") ? answer.at("status") : answer);
    } catch (const nlohmann::json::exception&) {
        throw Failure(
            "the program that listens at {} is no memory node: its answer is not a status", path_);
    }
}

std::vector<SpaceReport> Daemon::spaces() {
    Json answer = call({{"verb", "space list"}});
    std::vector<SpaceReport> spaces;
    try {
        for (const Json& space : answer.at("spaces"))
            spaces.push_back(space_parse(space));
    } catch (const nlohmann::json::exception&) {
        throw Failure("{} is not the control socket of a memory node: it lists no spaces", path_);
    }
    return spaces;
}

void Daemon::add_space(const SpaceOption& option, const Key& key) {
    Json request{{"verb", "space add"}, {"space", option.id}, {"key", key_text(key)}};
    if (option.quota_bytes)
        request["quota_bytes"] = option.quota_bytes;
    if (option.read_only_of)
        request["read_only_of"] = option.read_only_of;
    change(request);
}

void Daemon::del_space(std::uint32_t id, bool force) {
    change({{"verb", "space del"}, {"space", id}, {"force", force}});
}

void Daemon::stop() {
    change({{"verb", "stop"}});
    while (read_some()) {
    }
}

void Daemon::change(const Json& request) {
    if (!call(request).contains("ok"))
        throw Failure("{} is not the control socket of a memory node: it shows its status only",
                      path_);
}

std::string daemon_socket(const std::string& named) {
    if (!named.empty())
        return named;
    try {
        node_family();
        return "";
    } catch (const netlink::NoFamily&) {
        std::string path = control_path_default();
        if (path.empty() || access(path.c_str(), F_OK))
            throw;
        return path;
    }
}

} // namespace remora
