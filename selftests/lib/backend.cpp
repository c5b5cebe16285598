// SPDX-License-Identifier: GPL-2.0
#include "backend.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <queue>
#include <random>
#include <vector>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "support/key.hpp"

namespace remora::test {

namespace {

constexpr Key key{1, 2, 3, 4, 5};

rmem_node_config node_config(std::uint32_t sessions_max, std::uint32_t session_idle_ms) {
    static std::atomic<std::uint64_t> boot{0x1000};
    rmem_node_config config{};
    config.boot = ++boot;
    config.page_shift = RMEM_PAGE_SHIFT_MIN;
    config.pages = (std::uint64_t{32} << 20) >> config.page_shift;
    config.pool_pages = 64;
    config.piece_bytes = RMEM_PIECE_BYTES_MAX;
    config.spaces_max = 2;
    config.sessions_max = sessions_max;
    config.regions_max = 4096;
    config.session_idle_ms = session_idle_ms;
    return config;
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

Descriptor udp_socket(std::uint16_t to) {
    Descriptor fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int bytes = 1 << 20;
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    sockaddr_in address = loopback(to);
    auto* at = reinterpret_cast<sockaddr*>(&address);
    if (to ? connect(fd.get(), at, sizeof(address)) : bind(fd.get(), at, sizeof(address)))
        std::abort();
    return fd;
}

} // namespace

TestNode::TestNode(std::uint16_t port, std::uint32_t sessions_max, std::uint32_t session_idle_ms)
    : socket_("", port, false),
      node_(node_config(sessions_max, session_idle_ms), false, 1),
      worker_(node_, socket_, 0) {
    node_.add_space(1, key, 0);
    thread_ = std::thread(&daemon::Worker::run, &worker_);
}

TestNode::~TestNode() {
    worker_.stop();
    thread_.join();
}

Relay::Relay(std::uint16_t to, unsigned trouble_percent)
    : trouble_percent_(trouble_percent),
      front_(udp_socket(0)),
      back_(udp_socket(to)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in address;
    socklen_t length = sizeof(address);
    getsockname(front_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
}

void Relay::keep(Which which) {
    std::lock_guard lock(lock_);
    which_ = std::move(which);
}

std::size_t Relay::kept() {
    std::lock_guard lock(lock_);
    return kept_.size();
}

void Relay::send_kept() {
    std::lock_guard lock(lock_);
    for (const auto& [to_node, bytes] : kept_) {
        if (to_node)
            send(back_.get(), bytes.data(), bytes.size(), 0);
    }
    kept_.clear();
}

bool Relay::keeps(bool to_node, const std::vector<std::uint8_t>& bytes) {
    std::lock_guard lock(lock_);
    rmem_datagram in;
    if (!which_ || rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()),
                                      !to_node) != RMEM_WIRE_GOOD)
        return false;
    while (rmem_datagram_step(&in, bytes.data())) {
        if (which_(in.head)) {
            kept_.emplace_back(to_node, bytes);
            return true;
        }
    }
    return false;
}

void Relay::run() {
    using Clock = std::chrono::steady_clock;
    struct Late {
        Clock::time_point due;
        bool to_node;
        std::vector<std::uint8_t> bytes;
        bool operator<(const Late& other) const { return due > other.due; }
    };
    std::priority_queue<Late> late;
    std::mt19937 random(trouble_percent_);
    sockaddr_in client{};
    auto pass = [&](bool to_node, const std::vector<std::uint8_t>& bytes) {
        if (to_node)
            send(back_.get(), bytes.data(), bytes.size(), 0);
        else
            sendto(front_.get(), bytes.data(), bytes.size(), 0,
                   reinterpret_cast<sockaddr*>(&client), sizeof(client));
    };
    auto take = [&](bool to_node) {
        std::vector<std::uint8_t> bytes(65536);
        socklen_t length = sizeof(client);
        ssize_t got = to_node ? recvfrom(front_.get(), bytes.data(), bytes.size(), 0,
                                         reinterpret_cast<sockaddr*>(&client), &length)
                              : recv(back_.get(), bytes.data(), bytes.size(), 0);
        if (got < 0)
            return;
        bytes.resize(static_cast<std::size_t>(got));
        datagrams_++;
        auto unlucky = [&] { return random() % 100 < trouble_percent_; };
        if (cut_ || keeps(to_node, bytes) || unlucky())
            return;
        if (unlucky())
            pass(to_node, bytes);
        if (unlucky())
            late.push(
                {Clock::now() + std::chrono::microseconds(random() % 20'000), to_node, bytes});
        else
            pass(to_node, bytes);
    };
    for (;;) {
        pollfd fds[] = {
            {front_.get(), POLLIN, 0}, {back_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
        poll(fds, 3, late.empty() ? -1 : 1);
        if (fds[2].revents)
            return;
        if (fds[0].revents)
            take(true);
        if (fds[1].revents)
            take(false);
        for (; !late.empty() && late.top().due <= Clock::now(); late.pop())
            pass(late.top().to_node, late.top().bytes);
    }
}

const std::string& key_file() {
    static const std::string file = [] {
        std::string name = testing::TempDir() + "remora-lib-key-XXXXXX";
        int fd = mkstemp(name.data());
        std::string text = key_text(key) + "\n";
        if (fd < 0 || write(fd, text.data(), text.size()) < 0)
            std::abort();
        close(fd);
        static std::string kept = name;
        std::atexit([] { unlink(kept.c_str()); });
        return name;
    }();
    return file;
}

std::string udp_target(std::uint16_t port) {
    return "udp:127.0.0.1:" + std::to_string(port) + ",key=" + key_file();
}

std::vector<Kind> kinds() {
    if (std::getenv("REMORA_TEST_TARGET"))
        return {Kind::given};
    return {Kind::embedded, Kind::udp, Kind::bad_network};
}

Backends::Backends() {
    if (GetParam() == Kind::udp || GetParam() == Kind::bad_network)
        node = std::make_unique<TestNode>();
    if (GetParam() == Kind::bad_network)
        relay = std::make_unique<Relay>(node->port(), 10);
    r = open();
}

Backends::~Backends() {
    for (raddr_t address : allocated_)
        rfree(r, address);
    remote_close(r);
}

remote_t* Backends::open(std::uint32_t async_max) {
    const char* given = std::getenv("REMORA_TEST_TARGET");
    std::string target = given ? given : "embedded:size=32M";
    if (node)
        target = udp_target(relay ? relay->port() : node->port());
    remote_options options{};
    options.size = sizeof(options);
    options.async_max = async_max;
    remote_t* handle = nullptr;
    EXPECT_EQ(remote_open(&handle, target.c_str(), &options), 0) << remote_why();
    return handle;
}

raddr_t Backends::alloc(std::uint64_t bytes, unsigned permission) {
    raddr_t address = 0;
    EXPECT_EQ(ralloc(r, bytes, permission, &address), 0);
    if (GetParam() == Kind::given) {
        std::lock_guard lock(lock_);
        allocated_.push_back(address);
    }
    return address;
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) {
    static constexpr const char* names[] = {"Embedded", "Udp", "BadNetwork", "Given"};
    return names[static_cast<int>(info.param)];
}

} // namespace remora::test
