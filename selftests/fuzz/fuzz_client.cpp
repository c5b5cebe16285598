// SPDX-License-Identifier: GPL-2.0
// The client before a node that answers anything: the input is a script of calls, and of
// responses whose headers verify but say what they like, by themselves or several in a datagram.
// Whatever comes, data stays within its op, an op ends once, the windows hold what flying parts
// owe, and there is a time or an answer that each op waits for.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "../common/messages.hpp"

extern "C" {
#include "core/rmem/client/client.h"
}

namespace {

constexpr int ops_max = 24;
constexpr uint8_t answers_from = 240; // an act that isn't one of the ten

void require(bool good) {
    if (!good)
        __builtin_trap();
}

// Zeros when it is used up.
class Script {
public:
    Script(const uint8_t* data, size_t bytes) : data_(data), left_(bytes) {}

    template <class T>
    T take() {
        T value{};
        size_t bytes = left_ < sizeof(T) ? left_ : sizeof(T);
        std::memcpy(&value, data_, bytes);
        data_ += bytes;
        left_ -= bytes;
        return value;
    }

    bool empty() const { return !left_; }

private:
    const uint8_t* data_;
    size_t left_;
};

class Fuzz {
public:
    Fuzz(const uint8_t* data, size_t bytes) : script_(data, bytes) {
        rmem_base_init(&base_);
        rmem_incast_init(&incast_, script_.take<uint8_t>() % 2 ? RMEM_IWND_BYTES : 70000);
        rmem_client_config config{};
        config.space = 1;
        config.piece_bytes = 1024 + script_.take<uint16_t>() % 8000;
        constexpr uint32_t datagrams[] = {0, 1472, 8972, RMEM_DATAGRAM_BYTES_MAX};
        uint8_t how = script_.take<uint8_t>();
        config.fail_after_ns = how % 2 * BASE_NSEC_PER_SEC;
        config.datagram_bytes = datagrams[how / 2 % 4];
        config.seed = 1;
        client_ = std::make_unique<rmem_client>();
        rmem_client_init(client_.get(), &config, &base_, &incast_, 0);
        rmem_client_open(client_.get(), now_ns_);
    }

    void run() {
        while (!script_.empty()) {
            act();
            check();
        }
        end(rmem_client_cancel_all(client_.get()));
        check();
        require(!client_->window.in_flight && !rmem_incast_used_bytes(&incast_));
        require(!client_->outstanding_ops);
    }

private:
    void act() {
        uint8_t what = script_.take<uint8_t>();
        if (what >= answers_from)
            return answers(what - answers_from + 1);
        switch (what % 10) {
        case 0:
            submit();
            break;
        case 1:
        case 2:
            send();
            break;
        case 3:
            if (script_.take<uint8_t>() % 2)
                now_ns_ = std::max(now_ns_, rmem_client_deadline(client_.get()));
            else
                now_ns_ += uint64_t(script_.take<uint16_t>()) << script_.take<uint8_t>() % 20;
            expire(what / 10 % 2);
            break;
        case 4:
            if (sent_)
                rmem_client_unsent(client_.get(), &tx_, now_ns_);
            break;
        case 5:
            cancel(script_.take<uint8_t>());
            break;
        case 6:
            if (!client_->outstanding_ops && script_.take<uint8_t>() % 8 == 0)
                rmem_client_close(client_.get(), now_ns_);
            rmem_client_open(client_.get(), now_ns_);
            break;
        default:
            answer();
        }
    }

    // drains: the script calls next() afterwards, as a timer does. The next deadline is later then,
    // unless a message was sent.
    void expire(bool drains) {
        rmem_client_result result;
        uint64_t sent = client_->count.sent;
        rmem_incast_next(&incast_);
        end(rmem_client_expire(client_.get(), now_ns_, &result));
        if (!drains)
            return;
        send();
        uint64_t deadline_ns = rmem_client_deadline(client_.get());
        require(!deadline_ns || deadline_ns > now_ns_ || client_->count.sent > sent);
    }

    void submit() {
        rmem_op* op = nullptr;
        for (auto& each : op_) {
            if (!each.out)
                op = &each.op;
        }
        if (!op || client_->closing)
            return;
        constexpr uint8_t types[] = {RMEM_READ,  RMEM_WRITE,  RMEM_READ, RMEM_WRITE,   RMEM_DISCARD,
                                     RMEM_ZERO,  RMEM_ALLOC,  RMEM_FREE, RMEM_ATOMIC,  RMEM_PUT,
                                     RMEM_READV, RMEM_WRITEV, RMEM_COPY, RMEM_PUBLISH, RMEM_LOOKUP,
                                     RMEM_LIST,  RMEM_QUERY,  RMEM_CALL};
        std::memset(static_cast<void*>(op), 0xcd, sizeof(*op)); // needs no clearing
        op->type = types[script_.take<uint8_t>() % sizeof(types)];
        op->addr = script_.take<uint64_t>();
        op->len = script_.take<uint32_t>() % RMEM_OP_BYTES_MAX + 1;
        op->alloc.bytes = script_.take<uint16_t>();
        if (op->type == RMEM_FREE)
            op->range.undoes = op->len % 2;
        if (op->type == RMEM_ATOMIC) {
            op->len = 4u << op->len % 3;
            op->atomic.op = 1 + op->len % (RMEM_ATOMIC_OP_END - 1);
        }
        if (op->type == RMEM_PUT) {
            op->len = 1 + op->len % (RMEM_PIECE_BYTES_MIN - sizeof(rmem_put));
            op->put = {op->addr + op->len, op->len, 0, 8, RMEM_ADD};
        }
        if (op->type == RMEM_COPY) {
            op->len = 1 + op->len % RMEM_COPY_BYTES_MAX;
            op->copy.from = op->addr + op->len;
        }
        if (rmem_type_runs(op->type)) {
            op->call.room_bytes = op->len % RMEM_PIECE_BYTES_MIN;
            op->call.function = static_cast<uint8_t>(op->len % RMEM_FUNCTIONS_MAX);
            op->len %= RMEM_PIECE_BYTES_MIN;
        }
        if (rmem_type_has_ranges(op->type)) {
            static constexpr rmem_range range[RMEM_RANGES_MAX] = {};
            op->len = 1 + op->len % (RMEM_PIECE_BYTES_MIN / 2);
            op->vector = {range, static_cast<uint8_t>(1 + op->len % 32)};
        }
        if (rmem_type_has_name(op->type)) {
            static constexpr rmem_named named = {.addr = 0, .name = {'a'}};
            op->name.named = &named;
            op->name.listed = &listed_;
        }
        reinterpret_cast<Mine*>(op)->out = true;
        rmem_client_submit(client_.get(), op, now_ns_);
    }

    void cancel(uint8_t which) {
        if (which % 8 == 0)
            return end(rmem_client_cancel_all(client_.get()));
        Mine& mine = op_[which % ops_max];
        if (!mine.out)
            return;
        rmem_client_cancel(client_.get(), &mine.op, now_ns_);
        mine.op.next = nullptr;
        end(&mine.op);
    }

    void send() {
        while (rmem_client_next(client_.get(), now_ns_, &tx_)) {
            sent_ = true;
            uint32_t row = rmem_client_row(client_.get(), &tx_);
            require(row >= 1 && row <= RMEM_BUNDLE_MAX);
            history_[history_next_++ % RMEM_BUNDLE_MAX] = tx_.head;
            require(tx_.head.floor <= tx_.head.id && tx_.head.id);
            require(tx_.payload_bytes <= payload_room());
            require(tx_.payload_bytes + tx_.data_bytes == rmem_wire_payload_bytes(&tx_.head));
            if (!tx_.op)
                continue;
            require(reinterpret_cast<Mine*>(tx_.op)->out);
            require(!tx_.data_bytes || uint64_t(tx_.data_offset) + tx_.data_bytes <= tx_.op->len);
        }
        require(!tx_.head.more);
        check_waits();
    }

    // Bytes behind rmem_client_tx_payload(tx_).
    std::size_t payload_room() const {
        if (rmem_type_has_ranges(tx_.head.type))
            return tx_.op->vector.ranges * sizeof(rmem_range);
        return rmem_type_has_name(tx_.head.type) ? sizeof(*tx_.op->name.named)
                                                 : sizeof(tx_.payload);
    }

    // Nothing may go now: so something that is under way, or time, lets it go later.
    void check_waits() {
        const rmem_client& c = *client_;
        if (c.state != RMEM_CHANNEL_OPEN || c.closing || !c.outstanding_ops)
            return;
        // An ALLOC that was cancelled holds the floor until its session ends, as its caller is to
        // see to; so what waits for the floor may wait for that.
        if (rmem_seq_owner(&c.seq, rmem_seq_floor(&c.seq)) == &c.abandoned)
            return;
        require(rmem_client_deadline(&c));
        // A row has ended, and what it left goes in the next, which is due now.
        if (c.yield_ns)
            return require(rmem_client_deadline(&c) <= now_ns_);
        // An ATOMIC or PUT may wait for the oldest id, whatever that is.
        if (c.sending || rmem_seq_span(&c.seq) >= RMEM_REPLAY || !(c.waiting.ops || c.again.ops))
            return;
        require(c.flying.ops && c.config.datagram_bytes);
    }

    // An answer to a message, or to an older id of the session; then a few fields as the script has
    // it.
    rmem_head answer_to(const rmem_head& request) {
        rmem_head head = request;
        head.type |= RMEM_RESPONSE;
        head.boot = client_->boot ? client_->boot : 77;
        if (head.type == (RMEM_OPEN | RMEM_RESPONSE))
            head.session = script_.take<uint8_t>();
        head.id -= script_.take<uint8_t>() % 8;
        uint8_t change = script_.take<uint8_t>();
        if (change & 1)
            head.status = script_.take<uint8_t>() % RMEM_STATUS_COUNT;
        if (change & 2)
            head.offset = script_.take<uint32_t>();
        else if (request.piece)
            head.offset = script_.take<uint8_t>() * request.piece;
        if (request.piece && head.offset < request.len)
            head.len = std::min<uint32_t>(request.len - head.offset, request.piece);
        if (change & 4)
            head.len = script_.take<uint32_t>();
        if (change & 8)
            head.addr = script_.take<uint64_t>();
        if (change & 16)
            head.id = script_.take<uint64_t>();
        if (change & 32)
            head.boot = script_.take<uint8_t>() + 1;
        if (change & 64)
            head.attempt = script_.take<uint8_t>();
        if (change & 128)
            head.type = RMEM_RESPONSE | (1 + script_.take<uint8_t>() % (RMEM_TYPE_END - 1));
        return head;
    }

    void answer() {
        rmem_head head = answer_to(tx_.head);
        uint8_t payload[std::max(sizeof(rmem_opened), sizeof(rmem_listed))];
        for (auto& byte : payload)
            byte = script_.take<uint8_t>();
        now_ns_ += script_.take<uint8_t>() * 1000;
        receive(head, payload, script_.take<uint8_t>() % 8 == 7);
    }

    // To the messages sent last, in one datagram, which may be cut, longer, or have a bit flipped.
    void answers(size_t count) {
        wire::Datagram all;
        for (size_t n = 0; n < count; n++) {
            rmem_head head = answer_to(history_[(history_next_ - count + n) % RMEM_BUNDLE_MAX]);
            size_t bytes = std::min(rmem_wire_payload_bytes(&head), RMEM_PIECE_BYTES_MAX + 1);
            all.add(head, client_->config.key, wire::Bytes(bytes, script_.take<uint8_t>()));
        }
        wire::Bytes datagram = all.take();
        uint8_t damage = script_.take<uint8_t>();
        if (damage % 8 == 5)
            datagram.resize(datagram.size() + damage / 8);
        if (damage % 8 == 6)
            datagram.resize(script_.take<uint16_t>() % datagram.size());
        if (damage % 8 == 7)
            datagram[script_.take<uint16_t>() % datagram.size()] ^= 1 << damage / 8 % 8;
        now_ns_ += script_.take<uint8_t>() * 1000;
        take(datagram);
    }

    // Handles a datagram as a carrier does.
    void take(const wire::Bytes& datagram) {
        auto key_of = [&](uint32_t) { return &client_->config.key; };
        for (const wire::Received& in : wire::received(datagram, true, key_of)) {
            if (in.verdict == RMEM_WIRE_TAG)
                continue;
            receive(in.head, in.payload.data(), in.verdict == RMEM_WIRE_DAMAGED);
            check();
        }
    }

    void receive(const rmem_head& head, const uint8_t* payload, bool damaged) {
        rmem_client_rx rx;
        rmem_client_receive(client_.get(), now_ns_, &head, payload, damaged, &rx);
        if (rx.op) {
            require(reinterpret_cast<Mine*>(rx.op)->out && rmem_type_answers_data(rx.op->type));
            // A QUERY has room of its own for its result, which can be empty.
            bool runs = rmem_type_runs(rx.op->type);
            uint32_t room = runs ? rx.op->call.room_bytes : rx.op->len;
            require(uint64_t(rx.data_offset) + rx.data_bytes <= room && (rx.data_bytes || runs));
            require(rx.data_bytes == head.len && !damaged);
        }
        require(!rx.finished || rx.accepted);
        end(rx.finished);
    }

    void end(rmem_op* chain) {
        while (chain) {
            rmem_op* next = chain->next;
            auto* mine = reinterpret_cast<Mine*>(chain);
            require(mine->out);
            mine->out = false;
            std::memset(static_cast<void*>(chain), 0xab, sizeof(*chain)); // the caller's again
            chain = next;
        }
    }

    void check() const {
        uint64_t packets = 0, bytes = 0, out = 0;
        for (const auto& mine : op_) {
            if (!mine.out)
                continue;
            const rmem_op& op = mine.op;
            uint32_t flying = 0, flying_bytes = 0;
            out++;
            require(op.parts <= RMEM_OP_PARTS_MAX);
            for (uint32_t part = 0; part < op.parts; part++) {
                if (!(op.flying[part / 64] >> part % 64 & 1))
                    continue;
                flying++;
                require(!(op.done[part / 64] >> part % 64 & 1));
                if (op.type == RMEM_READ)
                    flying_bytes += std::min(op.piece, op.len - part * op.piece);
                if (op.type == RMEM_READV)
                    flying_bytes += op.len;
                if (rmem_type_runs(op.type))
                    flying_bytes += op.call.room_bytes;
            }
            require(flying == op.flying_parts);
            require(op.iwnd_bytes <= flying_bytes);
            bytes += op.iwnd_bytes;
            packets += flying;
        }
        require(packets == client_->window.in_flight);
        require(bytes == rmem_incast_used_bytes(&incast_));
        require(out == client_->outstanding_ops);
        require(client_->seq.floor <= client_->seq.next &&
                client_->seq.next <= client_->seq.floor + RMEM_WINDOW);
    }

    struct Mine {
        rmem_op op;
        bool out;
    };

    Script script_;
    uint64_t now_ns_ = BASE_NSEC_PER_SEC;
    rmem_base base_;
    rmem_incast incast_;
    std::unique_ptr<rmem_client> client_;
    Mine op_[ops_max] = {};
    rmem_client_tx tx_ = {};
    rmem_listed listed_ = {};
    rmem_head history_[RMEM_BUNDLE_MAX] = {}; // sent last
    size_t history_next_ = RMEM_BUNDLE_MAX;
    bool sent_ = false;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    base_crc32c_setup();
    std::make_unique<Fuzz>(data, bytes)->run();
    return 0;
}
