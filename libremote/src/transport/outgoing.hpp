// SPDX-License-Identifier: MIT
/*
 * Sends the messages of the client's core: messages go into datagrams, datagrams into trains
 * (support/train.hpp). Every added message is sent by flush() at the latest, out of the program's
 * buffers. Data of many ranges is copied.
 *
 *   [heads][data .. data] [heads][data .. data] [heads][data]     one sendmsg()
 *    a datagram            of the same size      or smaller: the last
 *
 * A datagram that is sealed is copied first, so that the program can't change it then.
 */
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <sys/uio.h>

#include "src/op.hpp"
#include "src/transport/gate.hpp"
#include "src/transport/transport.hpp"
#include "support/train.hpp"

extern "C" {
#include "core/rmem/datagram.h"
}

namespace remora::lib {

class Outgoing {
public:
    // Messages added until flush() go to fd, those that can't to messages.unsent(). A datagram that
    // the gate takes is the gate's; null: there is none. sealing: null if the session isn't sealed.
    void begin(int fd, const rmem_client_config& session, Messages& messages, bool& trains_may_go,
               Sealing* sealing, Gate* gate) {
        fd_ = fd;
        gate_ = gate;
        sealing_ = sealing;
        may_seal_ = sealing && draw_salt(sealing->salt);
        session_ = &session;
        messages_ = &messages;
        trains_may_go_ = &trains_may_go;
        error_ = 0;
    }
    // tx's data must stay until flush().
    void add(const rmem_client_tx& tx);
    void flush();
    // Why the last datagram that couldn't be sent since begin() wasn't: an errno; 0: all were.
    int error() const { return error_; }

private:
    struct Datagram {
        std::size_t message, iovec; // its first
        std::size_t head;           // where its header is in heads_
        std::size_t messages_end, iovecs_end;
        std::size_t bytes;
    };
    // Limits of a train. The arrays have room for one more datagram behind them.
    static constexpr std::size_t messages_max = 128;
    static constexpr std::size_t gathered_bytes_max = train_bytes_max;

    bool has_room() const {
        return count_ <= messages_max && gathered_bytes_ <= gathered_bytes_max &&
               datagrams_ < train_datagrams_max && sealed_bytes_ <= train_bytes_max;
    }
    void begin_datagram(const rmem_head& first);
    void close();
    void restart();
    bool seal(Datagram& whole);
    void give_back(const Datagram& datagram, int error);
    void add_piece(void* data, std::size_t bytes) {
        vector_[iovecs_++] = {data, bytes};
        datagram_[datagrams_].bytes += bytes;
    }
    void send();
    bool went(std::span<const Datagram> train);
    bool gate_takes(const Datagram& whole);
    std::uint8_t* data_of(const rmem_client_tx& tx);
    void add_head(rmem_head& head, std::span<const iovec> payload);
    bool joins(const rmem_head& head) {
        return rmem_bundle_joins(&bundle_, session_->datagram_bytes, &head);
    }

    int fd_ = -1;
    int error_ = 0;
    const rmem_client_config* session_ = nullptr;
    Messages* messages_ = nullptr;
    Gate* gate_ = nullptr;
    bool* trains_may_go_ = nullptr; // the socket's
    rmem_bundle bundle_{};          // of the incomplete datagram,
    struct base_siphash hash_ {};   // and for its tag
    std::size_t heads_bytes_ = 0;   // in heads_
    unsigned datagrams_ = 0, sent_ = 0;
    GsoBatch gso_batch_;    // of the complete datagrams that haven't been sent
    std::size_t count_ = 0; // messages
    std::size_t iovecs_ = 0;
    std::size_t gathered_bytes_ = 0; // of WRITEVs
    std::array<Datagram, train_datagrams_max> datagram_;
    std::array<rmem_client_tx, messages_max + RMEM_BUNDLE_MAX> tx_;
    std::array<iovec, train_datagrams_max + 2 * (messages_max + RMEM_BUNDLE_MAX)> vector_;
    // For each datagram: its header, then its messages' heads.
    std::array<std::uint8_t, (train_datagrams_max + 1) * RMEM_HDR_BYTES +
                                 (messages_max + RMEM_BUNDLE_MAX) * RMEM_MSG_BYTES>
        heads_;
    std::array<std::uint8_t, gathered_bytes_max + RMEM_PIECE_BYTES_MAX> gathered_;
    Sealing* sealing_ = nullptr;
    bool may_seal_ = false;
    std::size_t sealed_bytes_ = 0;
    std::array<std::uint8_t, train_bytes_max + RMEM_DATAGRAM_BYTES_MAX + RMEM_SEAL_BYTES> sealed_;
};

} // namespace remora::lib
