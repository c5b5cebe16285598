// SPDX-License-Identifier: MIT
// Messages over a connected UDP socket: outgoing.hpp, incoming.hpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/socket.h>

#include "src/transport/transport.hpp"
#include "support/descriptor.hpp"
#include "support/resolve.hpp"

namespace remora::lib {

class Gate;
class Incoming;

class Udp final : public Transport {
public:
    // name: of the node, for people. gate: or null; it stays as long as this. Throws Failure.
    Udp(const std::string& name, const Resolved& node, Gate* gate = nullptr);

    Limits limits() const override { return limits_; }
    const rmem_cipher& seal() override;
    void send(const rmem_client_config& session, Messages& messages) override;
    void wait(Clock::time_point until, std::uint64_t spin_ns) override;
    void deliver(const rmem_client_config& session, Messages& messages) override;
    void take_in(const rmem_client_config& session, Messages& messages) override;
    Watch watch() override { return {.fd = socket_.get()}; }
    void unanswered() override;
    Failure silence(const std::string& name, std::chrono::milliseconds patience) const override;
    void disown() override { socket_ = Descriptor(); }

    int fd() const { return socket_.get(); }
    // How often the socket was connected: each time it can have got another address.
    unsigned connections() const { return connections_; }

private:
    bool connects(int fd) const;
    unsigned listen(Incoming& incoming, Clock::time_point until, std::uint64_t spin_ns);
    bool sleep(Clock::time_point until);

    const Resolved node_;
    Gate* const gate_;
    Descriptor socket_;
    Limits limits_{};
    unsigned connections_ = 1;
    bool trains_may_go_ = true;
    std::unique_ptr<Sealing> sealing_; // null: the session isn't sealed
    // Between wait() and deliver(): the thread's buffers and their packets. Null: no memory.
    Incoming* waited_ = nullptr;
    unsigned got_ = 0;
};

// A way for each address of the host. Throws Failure: it has none, or none is known by the limit.
std::vector<Connect> udp_candidates(const std::string& host, std::uint16_t port,
                                    Clock::time_point limit);

} // namespace remora::lib
