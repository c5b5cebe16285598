// SPDX-License-Identifier: GPL-2.0
// The backends a test is run against.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <poll.h>

#include <gtest/gtest.h>

#include "edm_rack.hpp"
#include "remora-node/ring_listener.hpp"
#include "remora-node/ring_worker.hpp"
#include "remora-node/running.hpp"
#include "remora-node/shm_transport.hpp"
#include "remora-node/udp_transport.hpp"
#include "remora-node/worker.hpp"
#include "remote/lock.h"
#include "remote/remote.h"
#include "support/descriptor.hpp"

extern "C" {
#include "core/rmem/datagram.h"
}

namespace remora::test {

sockaddr_in loopback(std::uint16_t port);
// Connected to that port of this machine; 0: bound to a free one.
Descriptor udp_socket(std::uint16_t to);

// A daemon's node in this process.
class TestNode {
public:
    explicit TestNode(std::uint16_t port = 0, std::uint32_t sessions_max = 64,
                      std::uint32_t session_idle_ms = 60'000)
        : TestNode(port, sessions_max, session_idle_ms, {}) {}
    // Also with rings in shared memory.
    explicit TestNode(const daemon::ShmOptions& shm) : TestNode(0, 64, 60'000, shm) {}
    std::uint16_t port() const { return transports_.front()->port(); }
    NodeReport report() { return node_.report(port()); }

private:
    TestNode(std::uint16_t port, std::uint32_t sessions_max, std::uint32_t session_idle_ms,
             const daemon::ShmOptions& shm);

    static daemon::Transports transports(std::uint16_t port, const daemon::ShmOptions& shm);

    daemon::Transports transports_;
    daemon::Node node_;
    std::vector<std::unique_ptr<daemon::Serving>> served_;
    std::optional<daemon::Running<daemon::SlowWorker>> slow_;
};

// A node's rings, served only from start_worker() on, or a round at a time.
class RingsWithoutWorker {
public:
    explicit RingsWithoutWorker(const daemon::ShmOptions& shm);
    void start_worker();
    void look();
    unsigned in_use() const { return rings_.in_use(); }

private:
    daemon::Rings rings_;
    daemon::Node node_;
    std::optional<daemon::RingWorker> stepped_;
    std::optional<daemon::Running<daemon::RingWorker>> worker_;
    daemon::Running<daemon::RingListener> listener_;
};

// A relay between clients and a node: loses, doubles and delays some or all datagrams, or keeps
// back those that a test names. Each client is a flow, with a socket of its own to the node.
class Relay {
public:
    Relay(std::uint16_t to, unsigned trouble_percent);
    ~Relay();
    std::uint16_t port() const { return port_; }
    void cut(bool cut) { cut_ = cut; }
    // Keeps back, from now on, datagrams with a message for which which() is true; NULL: none.
    // Datagrams kept before stay.
    using Which = std::function<bool(const rmem_head&)>;
    void keep(Which which);
    std::size_t kept();
    bool has_kept(const Which& which);
    // Sends the kept datagrams that go to the node.
    void send_kept();
    // From now on each datagram passes through `how`, in the relay's thread; NULL: none does. It
    // can look at it, and change it.
    using Change = std::function<void(bool to_node, std::vector<std::uint8_t>& datagram)>;
    void change(Change how);
    // Number of datagrams received, in both directions.
    std::uint64_t datagrams() const { return datagrams_; }
    void count_from_now() { datagrams_ = 0; }
    // Faults done to a flow's datagrams, for each direction.
    struct Trouble {
        std::uint64_t lost = 0, doubled = 0, delayed = 0;

        Trouble& operator+=(const Trouble& other) {
            lost += other.lost;
            doubled += other.doubled;
            delayed += other.delayed;
            return *this;
        }
    };
    struct Troubles {
        Trouble to_node, to_client;
    };
    // Faults of each flow, in the order in which the clients came.
    std::vector<Troubles> troubles();

private:
    using Clock = std::chrono::steady_clock;
    using Bytes = std::vector<std::uint8_t>;
    struct Flow {
        sockaddr_in client;
        Descriptor back; // to the node
        Troubles troubles;
    };
    struct Datagram {
        Flow* flow;
        bool to_node;
        Bytes bytes;
    };
    struct Late {
        Clock::time_point due;
        Datagram datagram;
        bool operator<(const Late& other) const { return due > other.due; }
    };

    void run();
    Flow& flow_of(const sockaddr_in& client);
    void take_from_client();
    void take_from_node(Flow& flow);
    void take(Datagram datagram);
    void pass(const Datagram& datagram);
    bool strikes(std::uint64_t& count);

    const std::uint16_t node_;
    const unsigned trouble_percent_;
    std::uint16_t port_ = 0;
    std::atomic<bool> cut_{false};
    std::atomic<std::uint64_t> datagrams_{0};
    std::mutex lock_; // all below, but for thread_ and what it waits for
    Which which_;
    Change change_;
    std::vector<Datagram> kept_;
    std::deque<Flow> flows_;
    std::priority_queue<Late> late_;
    std::mt19937 random_;
    Descriptor front_, stop_;
    std::vector<pollfd> waited_for_; // the thread's: stop, front, then flows
    std::thread thread_;
};

// The key of all tests' nodes, as a file.
const std::string& key_file();

// The target of remote_open() for a node at this port.
std::string udp_target(std::uint16_t port);
// The same of a space whose clients have to seal.
std::string sealed_only_target(std::uint16_t port);
// A path for the socket of a node's rings, another one each time.
std::string shm_path();
std::string shm_target(const std::string& path);
// The target of a read-only view of the same memory.
std::string view_target(std::uint16_t port);

enum class Kind { embedded, udp, bad_network, sealed, shm, edm, given };

// All kinds that need no setup; or the target in REMORA_TEST_TARGET, for a lab's machines.
std::vector<Kind> kinds();

class Backends : public testing::TestWithParam<Kind> {
protected:
    Backends();
    ~Backends() override;

    // Opens another handle; of embedded, to another node. depth: of its queue for asynchronous
    // operations (async.hpp).
    remote_t* open(std::uint32_t depth = 0, std::uint64_t call_timeout_us = 0);
    // The target of open().
    std::string target() const;
    // May other handles be opened to the same memory?
    bool is_shared() const { return GetParam() != Kind::embedded; }
    // Should the test run fewer rounds?
    bool is_slow() const {
        return GetParam() == Kind::bad_network || GetParam() == Kind::edm ||
               GetParam() == Kind::given;
    }
    // Fails the test on an error. Any thread.
    raddr_t alloc(std::uint64_t bytes, unsigned permission = REMOTE_RW);

    std::unique_ptr<TestNode> node;
    std::unique_ptr<Relay> relay;
    std::unique_ptr<EdmRack> rack;
    remote_t* r = nullptr;

private:
    std::string shm_path_;
    std::mutex lock_;
    std::vector<raddr_t> allocated_; // to be freed if the node outlives the test
};

// As remote_cas() of an integer, but desired is a value.
inline int cas(remote_t* r, raddr_t address, std::size_t bytes, std::uint64_t* expected,
               std::uint64_t desired) {
    return remote_cas(r, address, bytes, expected, &desired);
}

// count remote ranges, stride bytes apart, whose local ones lie one after the other.
using Rows = std::vector<remote_vec>;
Rows rows(raddr_t address, std::size_t stride, void* buffer, std::size_t bytes, std::size_t count);

inline int read_rows(remote_t* r, const Rows& rows) {
    return ::remote_readv(r, rows.data(), rows.size());
}
inline int write_rows(remote_t* r, const Rows& rows) {
    return ::remote_writev(r, rows.data(), rows.size());
}

remote_counters counters_of(remote_t* r);
std::uint64_t page_bytes_of(remote_t* r);

// Does the node change integers of 16 bytes? Unknown of a node that was given.
bool must_have_cas_16(Kind kind);

std::string kind_name(const testing::TestParamInfo<Kind>& info);

} // namespace remora::test
