// SPDX-License-Identifier: GPL-2.0
#include "backend.hpp"

#include <algorithm>
#include <chrono>
#include <cpuid.h>
#include <cstdlib>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "async.hpp"
#include "support/key.hpp"

namespace remora::test {

namespace {

constexpr Key key{1, 2, 3, 4, 5}, view_key{6, 7, 8};
constexpr std::uint32_t space = 1, view = 2, sealed_only = 3;
constexpr std::uint32_t ring_spin_us = 20;

rmem_node_config node_config(std::uint32_t sessions_max, std::uint32_t session_idle_ms) {
    static std::atomic<std::uint64_t> boot{0x1000};
    rmem_node_config config{};
    config.boot = ++boot;
    config.page_shift = RMEM_PAGE_SHIFT_MIN;
    config.pages = (std::uint64_t{32} << 20) >> config.page_shift;
    config.pool_pages = 64;
    config.piece_bytes = RMEM_PIECE_BYTES_MAX;
    config.spaces_max = 3;
    config.sessions_max = sessions_max;
    config.regions_max = 4096;
    config.session_idle_ms = session_idle_ms;
    config.challenges = true;
    return config;
}

bool has_message(const std::vector<std::uint8_t>& datagram, bool to_node,
                 const Relay::Which& which) {
    rmem_datagram in;
    if (rmem_datagram_open(&in, datagram.data(), static_cast<u32>(datagram.size()), !to_node) !=
        RMEM_WIRE_GOOD)
        return false;
    bool has = false; // which() sees all messages
    while (rmem_datagram_step(&in, datagram.data()))
        has |= which(in.head);
    return has;
}

} // namespace

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

daemon::Transports TestNode::transports(std::uint16_t port, const daemon::ShmOptions& shm) {
    daemon::Transports transports;
    transports.push_back(daemon::open_udp_transport({.port = port}));
    if (!shm.path.empty())
        transports.push_back(daemon::open_shm_transport(
            {.path = shm.path, .mode = shm.mode, .rings = shm.rings, .spin_us = ring_spin_us}));
    return transports;
}

TestNode::TestNode(std::uint16_t port, std::uint32_t sessions_max, std::uint32_t session_idle_ms,
                   const daemon::ShmOptions& shm)
    : transports_(transports(port, shm)),
      node_(node_config(sessions_max, session_idle_ms), false, daemon::threads_of(transports_)) {
    node_.add_space(space, key, 0);
    node_.add_view(view, view_key, space);
    node_.add_space(sealed_only, key, 0, true);
    node_.defer_slow();
    served_ = daemon::serve_by(transports_, node_);
    slow_.emplace(node_);
}

RingsWithoutWorker::RingsWithoutWorker(const daemon::ShmOptions& shm)
    : rings_(shm.rings),
      node_(node_config(64, 60'000), false, 1),
      listener_(rings_, shm.path, shm.mode) {
    node_.add_space(space, key, 0);
}

void RingsWithoutWorker::start_worker() {
    worker_.emplace(node_, rings_, 0U, ring_spin_us);
}

void RingsWithoutWorker::look() {
    if (!stepped_)
        stepped_.emplace(node_, rings_, 0U, 0U);
    stepped_->look();
}

Relay::Relay(std::uint16_t to, unsigned trouble_percent)
    : node_(to),
      trouble_percent_(trouble_percent),
      random_(trouble_percent),
      front_(udp_socket(0)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in address;
    socklen_t length = sizeof(address);
    getsockname(front_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    waited_for_ = {{stop_.get(), POLLIN, 0}, {front_.get(), POLLIN, 0}};
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

void Relay::change(Change how) {
    std::lock_guard lock(lock_);
    change_ = std::move(how);
}

std::size_t Relay::kept() {
    std::lock_guard lock(lock_);
    return kept_.size();
}

bool Relay::has_kept(const Which& which) {
    std::lock_guard lock(lock_);
    return std::ranges::any_of(kept_, [&](const Datagram& datagram) {
        return has_message(datagram.bytes, datagram.to_node, which);
    });
}

void Relay::send_kept() {
    std::lock_guard lock(lock_);
    for (const Datagram& datagram : kept_) {
        if (datagram.to_node)
            pass(datagram);
    }
    kept_.clear();
}

std::vector<Relay::Troubles> Relay::troubles() {
    std::lock_guard lock(lock_);
    std::vector<Troubles> troubles;
    for (const Flow& flow : flows_)
        troubles.push_back(flow.troubles);
    return troubles;
}

// ---- its thread, under the lock ----

Relay::Flow& Relay::flow_of(const sockaddr_in& client) {
    auto flow = std::find_if(flows_.begin(), flows_.end(), [&](const Flow& each) {
        return each.client.sin_port == client.sin_port;
    });
    if (flow != flows_.end())
        return *flow;
    flows_.push_back({client, udp_socket(node_), {}});
    waited_for_.push_back({flows_.back().back.get(), POLLIN, 0});
    return flows_.back();
}

void Relay::pass(const Datagram& datagram) {
    const auto& [flow, to_node, bytes] = datagram;
    if (to_node)
        send(flow->back.get(), bytes.data(), bytes.size(), 0);
    else
        sendto(front_.get(), bytes.data(), bytes.size(), 0,
               reinterpret_cast<const sockaddr*>(&flow->client), sizeof(flow->client));
}

bool Relay::strikes(std::uint64_t& count) {
    bool does = random_() % 100 < trouble_percent_;
    count += does;
    return does;
}

void Relay::take(Datagram datagram) {
    datagrams_++;
    if (change_)
        change_(datagram.to_node, datagram.bytes);
    Trouble& trouble =
        datagram.to_node ? datagram.flow->troubles.to_node : datagram.flow->troubles.to_client;
    if (cut_)
        return;
    if (which_ && has_message(datagram.bytes, datagram.to_node, which_)) {
        kept_.push_back(std::move(datagram));
        return;
    }
    if (strikes(trouble.lost))
        return;
    if (strikes(trouble.doubled))
        pass(datagram);
    if (strikes(trouble.delayed))
        late_.push(
            {Clock::now() + std::chrono::microseconds(random_() % 20'000), std::move(datagram)});
    else
        pass(datagram);
}

void Relay::take_from_client() {
    Bytes bytes(65536);
    sockaddr_in client{};
    socklen_t length = sizeof(client);
    ssize_t got = recvfrom(front_.get(), bytes.data(), bytes.size(), 0,
                           reinterpret_cast<sockaddr*>(&client), &length);
    if (got < 0)
        return;
    bytes.resize(static_cast<std::size_t>(got));
    take({&flow_of(client), true, std::move(bytes)});
}

void Relay::take_from_node(Flow& flow) {
    Bytes bytes(65536);
    ssize_t got = recv(flow.back.get(), bytes.data(), bytes.size(), 0);
    if (got < 0)
        return;
    bytes.resize(static_cast<std::size_t>(got));
    take({&flow, false, std::move(bytes)});
}

void Relay::run() {
    for (bool hurries = false;;) {
        poll(waited_for_.data(), waited_for_.size(), hurries ? 1 : -1);
        if (waited_for_[0].revents)
            return;
        std::lock_guard lock(lock_);
        std::size_t flows = flows_.size();
        if (waited_for_[1].revents)
            take_from_client();
        for (std::size_t i = 0; i < flows; i++) {
            if (waited_for_[2 + i].revents)
                take_from_node(flows_[i]);
        }
        for (; !late_.empty() && late_.top().due <= Clock::now(); late_.pop())
            pass(late_.top().datagram);
        hurries = !late_.empty();
    }
}

namespace {

// Gone when the program ends.
class KeyFile {
public:
    explicit KeyFile(const Key& key) {
        int fd = mkstemp(name_.data());
        std::string text = key_text(key) + "\n";
        if (fd < 0 || write(fd, text.data(), text.size()) < 0)
            std::abort();
        close(fd);
    }
    ~KeyFile() { unlink(name_.c_str()); }
    KeyFile(const KeyFile&) = delete;
    KeyFile& operator=(const KeyFile&) = delete;
    const std::string& name() const { return name_; }

private:
    std::string name_ = testing::TempDir() + "remora-lib-key-XXXXXX";
};

} // namespace

const std::string& key_file() {
    static const KeyFile file(key);
    return file.name();
}

std::string udp_target(std::uint16_t port) {
    return "udp:127.0.0.1:" + std::to_string(port) + ",key=" + key_file();
}

std::string sealed_only_target(std::uint16_t port) {
    return fmt::format("{},space={}", udp_target(port), sealed_only);
}

std::string view_target(std::uint16_t port) {
    static const KeyFile file(view_key);
    return fmt::format("udp:127.0.0.1:{},key={},space={}", port, file.name(), view);
}

std::string shm_path() {
    static std::atomic<unsigned> count{0};
    return fmt::format("{}remora-lib-shm-{}-{}", testing::TempDir(), getpid(), ++count);
}

std::string shm_target(const std::string& path) {
    return fmt::format("shm:{},key={}", path, key_file());
}

std::vector<Kind> kinds() {
    if (std::getenv("REMORA_TEST_TARGET"))
        return {Kind::given};
    return {Kind::embedded, Kind::udp, Kind::bad_network, Kind::sealed, Kind::shm, Kind::edm};
}

Backends::Backends() {
    if (GetParam() == Kind::udp || GetParam() == Kind::bad_network || GetParam() == Kind::sealed ||
        GetParam() == Kind::edm)
        node = std::make_unique<TestNode>();
    if (GetParam() == Kind::shm) {
        shm_path_ = shm_path();
        node = std::make_unique<TestNode>(daemon::ShmOptions{.path = shm_path_});
    }
    if (GetParam() == Kind::bad_network)
        relay = std::make_unique<Relay>(node->port(), 10);
    if (GetParam() == Kind::edm)
        rack = std::make_unique<EdmRack>(node->port());
    r = open();
}

Backends::~Backends() {
    for (raddr_t address : allocated_)
        rfree(r, address);
    remote_close(r);
}

std::string Backends::target() const {
    if (const char* given = std::getenv("REMORA_TEST_TARGET"))
        return given;
    if (!shm_path_.empty())
        return shm_target(shm_path_);
    if (rack)
        return rack->target();
    if (!node)
        return "embedded:size=32M";
    return udp_target(relay ? relay->port() : node->port()) +
           (GetParam() == Kind::sealed ? ",integrity=sealed" : "");
}

remote_t* Backends::open(std::uint32_t depth, std::uint64_t call_timeout_us) {
    remote_options options{};
    options.size = sizeof(options);
    options.call_timeout_us = call_timeout_us;
    remote_t* handle = nullptr;
    EXPECT_EQ(remote_open(&handle, target().c_str(), &options), 0) << remote_why();
    if (depth)
        set_depth(handle, depth);
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

Rows rows(raddr_t address, std::size_t stride, void* buffer, std::size_t bytes, std::size_t count) {
    Rows rows;
    for (std::size_t i = 0; i < count; i++)
        rows.push_back(
            {address + i * stride, static_cast<std::uint8_t*>(buffer) + i * bytes, bytes});
    return rows;
}

remote_counters counters_of(remote_t* r) {
    remote_counters counters{};
    counters.size = sizeof(counters);
    EXPECT_EQ(remote_stats(r, &counters), 0);
    return counters;
}

std::uint64_t page_bytes_of(remote_t* r) {
    remote_node node{};
    node.size = sizeof(node);
    EXPECT_EQ(remote_info(r, &node), 0) << remote_why();
    return node.page_bytes;
}

bool must_have_cas_16(Kind kind) {
    if (kind == Kind::given)
        return false;
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_CMPXCHG16B);
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) {
    static constexpr const char* names[] = {"Embedded", "Udp", "BadNetwork", "Sealed",
                                            "Shm",      "Edm", "Given"};
    return names[static_cast<int>(info.param)];
}

} // namespace remora::test
