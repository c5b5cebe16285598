// SPDX-License-Identifier: GPL-2.0
// The client's part of an I/O: submit, the message to send, its answer, the op's end. The node
// answers at once and without a network; headers are handed over parsed, as the carrier does.
#include <cstdint>
#include <memory>
#include <stdexcept>

#include <benchmark/benchmark.h>

#include "core.hpp"

namespace {

constexpr uint32_t block_bytes = 4096;
constexpr uint64_t round_ns = 50'000;

class Channel {
public:
    Channel() {
        rmem_client_config config{};
        config.space = 1;
        config.key = bench::key();
        config.piece_bytes = block_bytes;
        config.seed = 1;
        rmem_base_init(&base_);
        rmem_incast_init(&incast_, RMEM_IWND_BYTES);
        rmem_client_init(&client_, &config, &base_, &incast_, 0);
        open();
    }

    // False: the op didn't end well.
    bool round(uint8_t type) {
        rmem_client_tx tx;
        op_.type = type;
        op_.addr = 1 << 20;
        op_.len = block_bytes;
        rmem_client_submit(&client_, &op_, now_ns_);
        rmem_client_tx none;
        if (!rmem_client_next(&client_, now_ns_, &tx) || rmem_client_next(&client_, now_ns_, &none))
            return false;
        now_ns_ += round_ns;
        rmem_client_rx rx = receive(tx.head, nullptr);
        return rx.finished == &op_ && rx.result == RMEM_CLIENT_OK;
    }

private:
    void open() {
        rmem_client_tx tx;
        rmem_opened opened{};
        base_store_le64(&opened.memory_bytes, 1 << 30);
        base_store_le64(&opened.free_bytes, 1 << 30);
        base_store_le32(&opened.page_bytes, 1 << RMEM_PAGE_SHIFT_MIN);
        base_store_le32(&opened.piece_bytes, RMEM_PIECE_BYTES_MAX);
        rmem_client_open(&client_, now_ns_);
        if (rmem_client_next(&client_, now_ns_, &tx)) {
            tx.head.session = 2;
            tx.head.boot = 3;
            receive(tx.head, &opened);
        }
        if (client_.state != RMEM_CHANNEL_OPEN)
            throw std::logic_error("the channel doesn't open");
    }

    // The answer to a message of this head.
    rmem_client_rx receive(rmem_head head, const void* payload) {
        rmem_client_rx rx;
        head.type |= RMEM_RESPONSE;
        head.floor = 0;
        head.piece = 0;
        rmem_client_receive(&client_, now_ns_, &head, payload, false, &rx);
        return rx;
    }

    uint64_t now_ns_ = 1'000'000;
    rmem_client client_;
    rmem_base base_;
    rmem_incast incast_;
    rmem_op op_{};
};

void round(benchmark::State& state, uint8_t type) {
    auto channel = std::make_unique<Channel>();
    for (auto _ : state) {
        if (!channel->round(type))
            return state.SkipWithError("an op doesn't end well");
    }
}

BENCHMARK_CAPTURE(round, read, RMEM_READ)->Name("client-read-4k");
BENCHMARK_CAPTURE(round, write, RMEM_WRITE)->Name("client-write-4k");

} // namespace
