// SPDX-License-Identifier: MIT
#include "src/transport/outgoing.hpp"

#include <algorithm>
#include <cerrno>

#include "src/transport/protocol.hpp"
#include "support/crc32c.hpp"

namespace remora::lib {

void Outgoing::add(const rmem_client_tx& tx) {
    bool joined = bundle_.messages && rmem_type_may_share(tx_[count_ - 1].head.type) &&
                  rmem_type_may_share(tx.head.type) && joins(tx.head);
    if (!joined) {
        close();
        if (!has_room())
            flush();
        begin_datagram(tx.head);
        joins(tx.head);
    }
    rmem_client_tx& mine = tx_[count_] = tx;
    std::size_t first = iovecs_;
    if (mine.payload_bytes)
        add_piece(const_cast<void*>(rmem_client_tx_payload(&mine)), mine.payload_bytes);
    if (mine.data_bytes)
        add_piece(data_of(mine), mine.data_bytes);
    add_head(mine.head, std::span(vector_).subspan(first, iovecs_ - first));
    count_++;
}

void Outgoing::flush() {
    close();
    send();
    restart();
}

void Outgoing::restart() {
    gso_batch_ = {};
    count_ = iovecs_ = gathered_bytes_ = heads_bytes_ = datagrams_ = sent_ = sealed_bytes_ = 0;
}

void Outgoing::begin_datagram(const rmem_head& first) {
    datagram_[datagrams_] = {count_, iovecs_, heads_bytes_, 0, 0, 0};
    iovecs_++; // for header and heads
    rmem_wire_encode_hdr(heads_.data() + heads_bytes_, &first);
    heads_bytes_ += RMEM_HDR_BYTES;
    base_siphash_init(&hash_, &session_->key);
}

// Completes the datagram. If it doesn't join the train before it, that train is sent.
void Outgoing::close() {
    if (bundle_.messages == 0)
        return;
    Datagram& whole = datagram_[datagrams_];
    whole.messages_end = count_;
    whole.iovecs_end = iovecs_;
    std::uint8_t* heads = heads_.data() + whole.head;
    std::size_t heads_bytes = RMEM_HEADS_BYTES(bundle_.messages);
    whole.bytes += heads_bytes;
    vector_[whole.iovec] = {heads, heads_bytes};
    if (sealing_ && !tx_[whole.message].head.clear) {
        if (!seal(whole)) {
            bundle_ = {};
            iovecs_ = whole.iovec;
            heads_bytes_ = whole.head;
            give_back(whole, EIO);
            count_ = whole.message;
            return;
        }
    } else {
        rmem_wire_seal(heads, bundle_.messages, tx_[count_ - 1].head.more, &hash_);
    }
    bundle_ = {};
    if (gate_ && gate_takes(whole)) {
        // A train's datagrams are adjacent, so those before it go.
        send();
        restart();
        return;
    }
    if (!gso_batch_.add(whole.bytes) || !*trains_may_go_)
        send();
    datagrams_++;
}

bool Outgoing::gate_takes(const Datagram& whole) {
    return gate_->takes(std::span(tx_).subspan(whole.message, whole.messages_end - whole.message),
                        std::span(vector_).subspan(whole.iovec, whole.iovecs_end - whole.iovec));
}

// The datagram's pieces become one, which is sealed. False: it can't be.
bool Outgoing::seal(Datagram& whole) {
    std::uint8_t* begin = sealed_.data() + sealed_bytes_;
    std::uint8_t* to = begin;
    for (const iovec& piece :
         std::span(vector_).subspan(whole.iovec, whole.iovecs_end - whole.iovec))
        to = std::copy_n(static_cast<const std::uint8_t*>(piece.iov_base), piece.iov_len, to);
    if (!may_seal_ ||
        !rmem_seal_close(&sealing_->cipher.core(), &session_->key, &messages_->sealing_key(),
                         sealing_->salt.data(), begin, static_cast<u32>(whole.bytes),
                         bundle_.messages, tx_[count_ - 1].head.more))
        return false;
    whole.bytes += RMEM_SEAL_BYTES;
    sealed_bytes_ += whole.bytes;
    vector_[whole.iovec] = {begin, whole.bytes};
    iovecs_ = whole.iovecs_end = whole.iovec + 1;
    return true;
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
        *trains_may_go_ = false;
    for (const Datagram& each : train) {
        if (many && went({&each, 1}))
            continue;
        give_back(each, errno);
    }
}

void Outgoing::give_back(const Datagram& datagram, int error) {
    error_ = error;
    for (std::size_t i = datagram.message; i < datagram.messages_end; i++)
        messages_->unsent(tx_[i]);
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
    ssize_t sent = sendmsg(fd_, &message, MSG_DONTWAIT);
    // The error reports an earlier datagram that was refused, once; so try again.
    if (sent < 0 && errno == ECONNREFUSED)
        sent = sendmsg(fd_, &message, MSG_DONTWAIT);
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

// The head of the message whose payload is these pieces.
void Outgoing::add_head(rmem_head& head, std::span<const iovec> payload) {
    if (rmem_wire_has_digest(&head)) {
        std::uint32_t crc = BASE_CRC32C_SEED;
        for (const iovec& piece : payload)
            crc = base_crc32c_update(crc, piece.iov_base, piece.iov_len);
        head.digest = base_crc32c_final(crc);
    }
    rmem_wire_encode_msg(heads_.data() + heads_bytes_, &head);
    heads_bytes_ += RMEM_MSG_BYTES;
    std::size_t tagged = rmem_wire_tagged_bytes(&head);
    for (const iovec& piece : payload) {
        base_siphash_update(&hash_, piece.iov_base, std::min(piece.iov_len, tagged));
        tagged -= std::min(piece.iov_len, tagged);
    }
}

} // namespace remora::lib
