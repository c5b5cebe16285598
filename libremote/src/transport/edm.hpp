// SPDX-License-Identifier: MIT
/*
 * Messages whose datagrams a scheduler grants (remora/rmem_edm.h), for programs of machines without
 * modules. The datagrams are UDP's, by UDP's socket; a gate decides when each leaves, as
 * kmod/rmem/transport/edm/client.c does.
 *
 *   takes() --- small ---------------------------------------------------------> leaves
 *     |-- WRITEs --> held_  ---> EdmMember::submit(), granted --> sent() ------> leaves
 *     '-- READs ---> reads_ ---> EdmMember::submit() --> request(): by the scheduler
 *                      '<---- answered in full: EdmMember::done()
 */
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "remora/rmem_edm.h"
#include "src/transport/edm_member.hpp"
#include "src/transport/gate.hpp"
#include "src/transport/udp.hpp"

namespace remora::lib {

struct EdmWay {
    EdmPort port; // this program's
    std::vector<Resolved> schedulers;
    std::uint16_t node_port; // at the scheduler
};

class Edm final : public Transport, private Gate, private EdmClient {
public:
    // name: of the node, for people. Throws Failure.
    Edm(const std::string& name, const Resolved& node, const EdmWay& way);
    ~Edm() override;

    // False: the scheduler doesn't welcome this program by then.
    bool wait_welcome(Clock::time_point limit) { return member_->wait_welcome(limit); }

    Limits limits() const override { return udp_.limits(); }
    const rmem_cipher& seal() override;
    void send(const rmem_client_config& session, Messages& messages) override;
    void wait(Clock::time_point until, std::uint64_t spin_ns) override;
    void deliver(const rmem_client_config& session, Messages& messages) override;
    void take_in(const rmem_client_config& session, Messages& messages) override;
    Watch watch() override { return {.fd = epoll_.get()}; }
    Clock::time_point timer() const override { return member_->timer(); }
    std::uint64_t unscheduled() const override;
    void unanswered() override;
    Failure silence(const std::string& name, std::chrono::milliseconds patience) const override {
        return udp_.silence(name, patience);
    }
    void disown() override;

private:
    bool takes(std::span<const rmem_client_tx> messages,
               std::span<const iovec> datagram) noexcept override;
    bool hold(std::span<const rmem_client_tx> messages, std::span<const iovec> datagram);
    bool is_under_way(std::span<const rmem_client_tx> messages, bool reads);
    bool is_early(const EdmDatagram& first) const;
    void answered(const rmem_head& head);
    void end_read(EdmDatagram& read);
    void end_old_reads();

    std::span<const std::uint8_t> request(EdmDatagram& read) override;
    void ask(EdmDatagram& read) override;
    void sent(EdmDatagram& write, bool unscheduled) override;
    void leave(std::span<const std::uint8_t> datagram, bool unscheduled);

    void learn_addresses();

    Udp udp_;
    const std::uint32_t header_bytes_; // of UDP, IP and the frame
    const std::uint16_t node_port_;
    Descriptor epoll_; // all sockets

    const std::shared_ptr<EdmMember> member_;

    // The member's turn guards these.
    rmem_edm_prefix prefix_{};
    unsigned connections_ = 0; // of the socket, when prefix_ was set
    EdmList held_,
        reads_; // WRITEs until they leave; READs until they are answered, the oldest first
    std::uint64_t unscheduled_ = 0;
};

// A way for each address of the node. insist: opening fails if the scheduler is silent. Throws
// Failure.
std::vector<Connect> edm_candidates(const std::string& host, std::uint16_t port, const EdmWay& way,
                                    bool insist, Clock::time_point limit);

} // namespace remora::lib
