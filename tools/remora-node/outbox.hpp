// SPDX-License-Identifier: GPL-2.0
/*
 * Answers on their way out, in batches:
 *
 *   add() ─> datagrams that wait ─ flush ─> trains ─ sendmmsg() ─> the network cuts them apart
 *
 * An answer leaves from the address its request came to. Answers to reads at level link are sent
 * straight out of the pages. When a full call's worth waits, all are sent.
 *
 * Trains (support/train.hpp) are of datagrams that follow each other to one client.
 */
#pragma once

#include <array>
#include <span>
#include <vector>

#include <sys/socket.h>

#include "remora-node/node.hpp"

namespace remora::daemon {

class SocketOutbox final : public Outbox {
public:
    SocketOutbox(int fd, Counters& counters);
    ~SocketOutbox() override;
    Reply& add(const Path& path) override;
    void flush() override;

private:
    struct Slot;
    struct Train;
    void lay_out();
    unsigned int together_from(unsigned int first) const;
    void couple(Train& train, msghdr& header);
    void send(unsigned int trains);
    void failed(unsigned int train);

    int fd_;
    Counters& counters_;
    bool trains_may_go_ = true;
    unsigned int waiting_ = 0;
    std::vector<Slot> slots_;
    std::vector<iovec> vectors_; // of the slots, one behind the other
    std::vector<Train> trains_;
    std::vector<mmsghdr> messages_; // of the trains
};

} // namespace remora::daemon
