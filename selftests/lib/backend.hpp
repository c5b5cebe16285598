// SPDX-License-Identifier: GPL-2.0
// The backends a test is run against.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "remora-node/worker.hpp"
#include "remote/remote.h"
#include "support/descriptor.hpp"

extern "C" {
#include "core/rmem/datagram.h"
}

namespace remora::test {

// A daemon's node in this process.
class TestNode {
public:
    explicit TestNode(std::uint16_t port = 0, std::uint32_t sessions_max = 64,
                      std::uint32_t session_idle_ms = 60'000);
    ~TestNode();
    std::uint16_t port() const { return socket_.port(); }

private:
    daemon::Socket socket_;
    daemon::Node node_;
    daemon::Worker worker_;
    std::thread thread_;
};

// Between one client and a node: loses, doubles and delays a part of the datagrams, or all, or
// keeps those back that a test names.
class Relay {
public:
    Relay(std::uint16_t to, unsigned trouble_percent);
    ~Relay();
    std::uint16_t port() const { return port_; }
    void cut(bool cut) { cut_ = cut; }
    // From now on: datagrams with a message of which it's true. NULL: none. What has been kept
    // stays.
    using Which = std::function<bool(const rmem_head&)>;
    void keep(Which which);
    std::size_t kept();
    // Those to the node go there now.
    void send_kept();
    // Received, both ways.
    std::uint64_t datagrams() const { return datagrams_; }
    void count_from_now() { datagrams_ = 0; }

private:
    void run();
    bool keeps(bool to_node, const std::vector<std::uint8_t>& bytes);

    unsigned trouble_percent_;
    std::uint16_t port_ = 0;
    std::atomic<bool> cut_{false};
    std::atomic<std::uint64_t> datagrams_{0};
    std::mutex lock_; // which_, kept_
    Which which_;
    std::vector<std::pair<bool, std::vector<std::uint8_t>>> kept_; // to the node?
    Descriptor front_, back_, stop_;
    std::thread thread_;
};

// The key of all tests' nodes, as a file.
const std::string& key_file();

// What remote_open() is given for a node at this port.
std::string udp_target(std::uint16_t port);

enum class Kind { embedded, udp, bad_network, given };

// All that need nothing; or what REMORA_TEST_TARGET gives to remote_open(), for a lab's machines.
std::vector<Kind> kinds();

class Backends : public testing::TestWithParam<Kind> {
protected:
    Backends();
    ~Backends() override;

    // Another handle; of embedded, to another node.
    remote_t* open(std::uint32_t async_max = 0);
    // May other handles be opened to the same memory?
    bool is_shared() const { return GetParam() != Kind::embedded; }
    // Fewer rounds will do.
    bool is_slow() const { return GetParam() == Kind::bad_network || GetParam() == Kind::given; }
    // Fails the test if it can't be. Any thread.
    raddr_t alloc(std::uint64_t bytes, unsigned permission = REMOTE_RW);

    std::unique_ptr<TestNode> node;
    std::unique_ptr<Relay> relay;
    remote_t* r = nullptr;

private:
    std::mutex lock_;
    std::vector<raddr_t> allocated_; // given back to a node that outlives the test
};

std::string kind_name(const testing::TestParamInfo<Kind>& info);

} // namespace remora::test
