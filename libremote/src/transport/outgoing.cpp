// SPDX-License-Identifier: MIT
#include "src/transport/outgoing.hpp"

#include <algorithm>
#include <cerrno>

#include "support/crc32c.hpp"

namespace remora::lib {

void Outgoing::add(const rmem_client_tx& tx) {
    bool joined = bundle_.messages && rmem_type_may_share(tx_[messages_ - 1].head.type) &&
                  rmem_type_may_share(tx.head.type) && joins(tx.head);
    if (!joined) {
        close();
        if (!has_room())
            flush();
        begin_datagram();
        joins(tx.head);
    }
    rmem_client_tx& mine = tx_[messages_] = tx;
    std::size_t first = iovecs_;
    if (mine.payload_bytes)
        add_piece(const_cast<void*>(rmem_client_tx_payload(&mine)), mine.payload_bytes);
    if (mine.data_bytes)
        add_piece(data_of(mine), mine.data_bytes);
    seal(heads_.data() + messages_ * RMEM_HDR_BYTES, mine.head,
         std::span(vector_).subspan(first, iovecs_ - first), mine.payload_bytes + mine.data_bytes);
    messages_++;
}

void Outgoing::flush() {
    close();
    send();
    gso_batch_ = {};
    messages_ = iovecs_ = gathered_bytes_ = datagrams_ = sent_ = 0;
}

// Completes the datagram. If it doesn't join the train before it, that train is sent.
void Outgoing::close() {
    if (bundle_.messages == 0)
        return;
    Datagram& whole = datagram_[datagrams_];
    whole.messages_end = messages_;
    whole.iovecs_end = iovecs_;
    std::size_t heads_bytes = std::size_t{bundle_.messages} * RMEM_HDR_BYTES;
    whole.bytes += heads_bytes;
    vector_[whole.iovec] = {heads_.data() + whole.message * RMEM_HDR_BYTES, heads_bytes};
    bundle_ = {};
    if (!gso_batch_.add(whole.bytes) || !endpoint_->trains_may_go)
        send();
    datagrams_++;
}

// Sends the complete datagrams that haven't been sent.
void Outgoing::send() {
    std::span train = std::span(datagram_).subspan(sent_, datagrams_ - sent_);
    sent_ = datagrams_;
    if (train.empty() || went(train))
        return;
    bool many = train.size() > 1;
    // The device leaves checksums to software, and then can't send trains.
    if (many && errno == EIO)
        endpoint_->trains_may_go = false;
    for (const Datagram& each : train) {
        if (many && went({&each, 1}))
            continue;
        for (std::size_t i = each.message; i < each.messages_end; i++)
            rmem_client_unsent(&endpoint_->client, &tx_[i], now_ns_);
    }
}

bool Outgoing::went(std::span<const Datagram> train) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control;
    msghdr message{};
    message.msg_iov = &vector_[train.front().iovec];
    message.msg_iovlen = train.back().iovecs_end - train.front().iovec;
    if (train.size() > 1) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        set_control(CMSG_FIRSTHDR(&message), SOL_UDP, UDP_SEGMENT,
                    static_cast<std::uint16_t>(train.front().bytes));
    }
    ssize_t sent = sendmsg(endpoint_->fd, &message, MSG_DONTWAIT);
    // The error reports an earlier datagram that was refused, once; so try again.
    if (sent < 0 && errno == ECONNREFUSED)
        sent = sendmsg(endpoint_->fd, &message, MSG_DONTWAIT);
    return sent >= 0;
}

std::uint8_t* Outgoing::data_of(const rmem_client_tx& tx) {
    const Op& op = op_of(tx.op);
    if (op.ranges.empty())
        return op.data + tx.data_offset;
    std::uint8_t* begin = gathered_.data() + gathered_bytes_;
    std::uint8_t* to = begin;
    for (const Range& range : op.now)
        to = std::copy_n(range.data, range.bytes, to);
    gathered_bytes_ += tx.data_bytes;
    return begin;
}

// rmem_wire_build() of a payload in pieces.
void Outgoing::seal(std::uint8_t* header, rmem_head& head, std::span<const iovec> payload,
                    std::uint32_t bytes) {
    if (rmem_wire_has_digest(&head)) {
        std::uint32_t crc = BASE_CRC32C_SEED;
        for (const iovec& piece : payload)
            crc = base_crc32c_update(crc, piece.iov_base, piece.iov_len);
        head.digest = base_crc32c_final(crc);
    }
    rmem_wire_encode(header, &head);
    struct base_siphash hash;
    rmem_wire_hash_begin(&hash, &endpoint_->client.config.key, header);
    std::size_t tagged = rmem_wire_tagged_bytes(&head, bytes);
    for (const iovec& piece : payload) {
        base_siphash_update(&hash, piece.iov_base, std::min(piece.iov_len, tagged));
        tagged -= std::min(piece.iov_len, tagged);
    }
    rmem_wire_seal(header, base_siphash_final(&hash));
}

} // namespace remora::lib
