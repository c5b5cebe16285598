// SPDX-License-Identifier: GPL-2.0
#include "remora-node/outbox.hpp"

#include <cerrno>
#include <climits>
#include <cstring>

#include "remora-node/socket.hpp"
#include "support/train.hpp"

namespace remora::daemon {

namespace {

constexpr unsigned int send_batch = 64;
constexpr std::size_t slot_iovecs = 1 + Reply::pieces_max;

} // namespace

struct SocketOutbox::Slot {
    Reply reply;
    Path path;
    // Once it's laid out:
    std::span<iovec> vector;
    std::size_t bytes;
};

struct SocketOutbox::Train {
    unsigned int first, count; // slots
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(in6_pktinfo)) +
                                          CMSG_SPACE(sizeof(std::uint16_t))> control;
};

SocketOutbox::SocketOutbox(int fd, Counters& counters)
    : fd_(fd),
      counters_(counters),
      slots_(send_batch),
      vectors_(send_batch * slot_iovecs),
      trains_(send_batch),
      messages_(send_batch) {}

SocketOutbox::~SocketOutbox() = default;

Reply& SocketOutbox::add(const Path& path) {
    if (waiting_ == send_batch)
        flush();
    Slot& slot = slots_[waiting_++];
    slot.path = path;
    return slot.reply;
}

void SocketOutbox::lay_out() {
    std::span<iovec> room = vectors_;
    for (Slot& slot : std::span(slots_).first(waiting_)) {
        Reply& reply = slot.reply;
        slot.vector = room.first(1 + reply.pieces);
        room = room.subspan(slot.vector.size());
        slot.vector[0] = {reply.head.data(), reply.head_bytes};
        slot.bytes = reply.head_bytes;
        for (unsigned int i = 0; i < reply.pieces; i++) {
            std::span<const std::uint8_t> data = reply.data[i];
            slot.vector[i + 1] = {const_cast<std::uint8_t*>(data.data()), data.size()};
            slot.bytes += data.size();
        }
    }
}

// Number of datagrams from that one on that make a train.
unsigned int SocketOutbox::together_from(unsigned int first) const {
    const Slot& head = slots_[first];
    GsoBatch batch;
    batch.add(head.bytes);
    std::size_t iovecs = head.vector.size();
    unsigned int count = 1;
    for (; trains_may_go_ && first + count < waiting_; count++) {
        const Slot& next = slots_[first + count];
        iovecs += next.vector.size();
        if (!batch.add(next.bytes) || iovecs > IOV_MAX || !(next.path == head.path))
            break;
    }
    return count;
}

void SocketOutbox::couple(Train& train, msghdr& header) {
    Slot& head = slots_[train.first];
    const Slot& last = slots_[train.first + train.count - 1];
    header = {};
    SocketPlace& place = head.path.place_as<SocketPlace>();
    header.msg_name = &place.peer;
    header.msg_namelen = sizeof(place.peer);
    header.msg_iov = head.vector.data();
    header.msg_iovlen =
        static_cast<std::size_t>(last.vector.data() + last.vector.size() - head.vector.data());
    header.msg_control = train.control.data();
    header.msg_controllen = train.control.size();
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    set_control(control, SOL_IPV6, IPV6_PKTINFO, place.local);
    if (train.count > 1)
        set_control(CMSG_NXTHDR(&header, control), SOL_UDP, UDP_SEGMENT,
                    static_cast<std::uint16_t>(head.bytes));
    else
        header.msg_controllen = CMSG_SPACE(sizeof(in6_pktinfo));
}

void SocketOutbox::flush() {
    close();
    lay_out();
    unsigned int trains = 0;
    for (unsigned int first = 0; first < waiting_; trains++) {
        Train& train = trains_[trains];
        train.first = first;
        train.count = together_from(first);
        couple(train, messages_[trains].msg_hdr);
        first += train.count;
    }
    send(trains);
    waiting_ = 0;
}

void SocketOutbox::send(unsigned int trains) {
    unsigned int done = 0;
    while (done < trains) {
        int sent = sendmmsg(fd_, &messages_[done], trains - done, MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            failed(done++);
        for (int i = 0; i < sent; i++)
            counters_.add(count_answers, trains_[done++].count);
    }
}

// A datagram that can't be sent is dropped and counted: its client retransmits. But datagrams that
// can't go as a train go one by one if they can: the path's MTU might be too small for one of them,
// or its device leaves checksums to software, and then can't send trains.
void SocketOutbox::failed(unsigned int index) {
    Train train = trains_[index];
    if (train.count == 1)
        return counters_.add(count_drop_xmit);
    if (errno == EIO)
        trains_may_go_ = false;
    for (unsigned int i = 0; i < train.count; i++) {
        Train& single = trains_[index];
        single.first = train.first + i;
        single.count = 1;
        msghdr& header = messages_[index].msg_hdr;
        couple(single, header);
        bool sent = sendmsg(fd_, &header, MSG_DONTWAIT) >= 0;
        counters_.add(sent ? count_answers : count_drop_xmit);
    }
}

} // namespace remora::daemon
