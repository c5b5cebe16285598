// SPDX-License-Identifier: GPL-2.0
#include "apps/tx/client.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include <endian.h>

#include "common/transient.hpp"
#include "offloads/tx/log.h"
#include "support/crc32c.hpp"
#include "support/failure.hpp"

namespace remora::tx {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds pause{20};
// Longer than a head waits for its next replica.
constexpr std::uint64_t node_timeout_us = 15'000'000;
constexpr std::uint32_t result_bytes_max = sizeof(tx_read_head) + TX_READS_MAX * TX_TUPLE_BYTES_MAX;
constexpr std::uint32_t area_bytes = TX_REQUEST_BYTES_MAX + result_bytes_max;

std::size_t padded(std::size_t bytes) {
    return (bytes + 7) & ~std::size_t{7};
}

template <typename T>
void append(std::string& to, const T& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string request_of(const std::vector<Read>& reads, const std::vector<Write>& writes) {
    std::string request;
    for (const Read& each : reads)
        append(request, tx_read{htole64(each.offset), htole32(each.bytes), 0});
    for (const Write& each : writes) {
        append(request, tx_record_tuple{htole64(each.offset),
                                        htole32(static_cast<std::uint32_t>(each.data.size())), 0});
        request += each.data;
        request.resize(padded(request.size()));
    }
    return request;
}

remote_function function_of(tx_function function, const void* args, std::size_t args_bytes,
                            void* result, std::size_t result_bytes) {
    remote_function made{};
    made.offload = TX_ID;
    made.function = function;
    made.args = args;
    made.args_bytes = args_bytes;
    made.result = result;
    made.result_bytes = result_bytes;
    return made;
}

[[noreturn]] void fail(const char* what, int error, std::uint32_t detail) {
    if (error == -ENOSYS)
        throw Failure("{}: the node has no offload tx for this space: load it there, by 'remora "
                      "node offload load .../tx.so --space ID'",
                      what);
    if (error != -EREMOTEIO)
        throw Failure("{}: {}", what, remote_strerror(error));
    switch (detail) {
    case ENOTCONN:
        throw Failure("{}: this replica isn't its chain's head: 'remora-tx chain' makes it so",
                      what);
    case ESTALE:
        throw Failure("{}: the chain has a later epoch, or this client a later transaction", what);
    case EXDEV:
        throw Failure(
            "{}: the next replica's log isn't of this chain, or has another size: give it "
            "a copy of the file of the replica before it",
            what);
    case EUCLEAN:
        throw Failure("{}: a replica has a record that the chain doesn't have: give it a copy of "
                      "the file of the replica before it",
                      what);
    case ETIMEDOUT:
        throw Failure("{}: the next replica doesn't answer: start it, or change the chain", what);
    default:
        throw Failure("{}: the offload refuses: {}", what, std::strerror(static_cast<int>(detail)));
    }
}

bool is_worth_a_try(int error, std::uint32_t detail) {
    return is_transient(error) ||
           (error == -EREMOTEIO && (detail == ETIMEDOUT || detail == ENODATA));
}

} // namespace

Client::Client(const std::string& target, std::uint64_t id, std::uint64_t sequence)
    : id_(id), sequence_(sequence) {
    crc32c_setup_once();
    remote_options options{};
    options.size = sizeof(options);
    options.timeout_us = node_timeout_us;
    auto node = remote::handle::open(target.c_str(), &options);
    if (!node)
        throw Failure("can't open '{}': {}", target, remote_why());
    node_ = std::move(*node);
    if (int error = remote_queue_open(&queue_, node_.get(), nullptr))
        throw Failure("no queue: {}", remote_strerror(error));
}

Client::~Client() {
    remote_queue_close(queue_);
    if (area_)
        (void)remote_free(node_.get(), area_);
}

void Client::prepare() {
    if (area_)
        return;
    if (int error = remote_alloc(node_.get(), area_bytes, REMOTE_RW | REMOTE_OWN_PAGES, &area_))
        throw Failure("no memory at the node for requests and results: {}", remote_strerror(error));
}

// After a restart of the node, which loses the area.
void Client::forget() {
    raddr_t address;
    std::uint64_t bytes;
    int told;
    while ((told = remote_lost(node_.get(), &address, &bytes)) == 1) {
    }
    if (!told)
        area_ = 0;
}

/*
 * The request's WRITE, the transaction and the query for its tuples go at once. The node checks
 * that the WRITE came first, and the query waits for the transaction.
 */
Client::Outcome Client::try_once(const tx_run_args& args, const std::string& request,
                                 bool is_inline, std::uint32_t result_bytes, std::string& result) {
    std::string call_args;
    append(call_args, args);
    if (is_inline)
        call_args += request;
    tx_result done{};
    const tx_result_args query_args{args.client, args.sequence, args.result, htole32(result_bytes),
                                    0};
    result.resize(result_bytes);
    remote_function call =
        function_of(TX_RUN, call_args.data(), call_args.size(), &done, sizeof(done));
    remote_function query =
        function_of(TX_RESULT, &query_args, sizeof(query_args), result.data(), result.size());
    std::array<remote_op, 3> ops;
    std::size_t count = 0;
    enum { write, run, ask };
    if (!is_inline)
        ops[count++] = remote_op_write(area_, request.data(), request.size(), write);
    ops[count++] = remote_op_call(&call, run);
    if (result_bytes)
        ops[count++] = remote_op_query(&query, ask);
    int errors[3] = {};
    const int started = remote_queue_submit(queue_, ops.data(), count);
    if (started < 0)
        return {started, 0};
    std::array<remote_completion, 3> ended;
    for (int left = started; left > 0;) {
        const int took = remote_queue_wait(queue_, ended.data(), ended.size(), 1, UINT64_MAX);
        for (const remote_completion& each :
             std::span(ended).first(static_cast<std::size_t>(std::max(took, 0))))
            errors[each.user_data] = std::min(each.result, 0);
        left -= took;
        if (took > 0)
            continue;
        // Operations in flight use this function's buffers.
        remote_queue_close(std::exchange(queue_, nullptr));
        fail("can't wait for the transaction", took ? took : -EIO, 0);
    }
    if (static_cast<std::size_t>(started) != count)
        return {-EAGAIN, 0};
    if (errors[run])
        return {errors[run], call.detail};
    if (errors[write])
        return {errors[write], 0};
    repeated_ = le32toh(done.done) == TX_REPEATED;
    if (!result_bytes || repeated_ || !errors[ask])
        return {0, 0};
    // The query came before the transaction, or its answer is more than a packet.
    return {remote_read(node_.get(), le64toh(args.result), result.data(), result.size()), 0};
}

std::vector<std::string> Client::run(const std::vector<Read>& reads,
                                     const std::vector<Write>& writes) {
    const std::string request = request_of(reads, writes);
    if (reads.size() > TX_READS_MAX || writes.size() > TX_WRITES_MAX ||
        request.size() > TX_REQUEST_BYTES_MAX)
        throw Failure("a transaction has at most {} reads, {} writes and {} bytes: make it smaller",
                      TX_READS_MAX, TX_WRITES_MAX, TX_REQUEST_BYTES_MAX);
    std::uint32_t result_bytes = 0;
    for (const Read& each : reads)
        result_bytes += static_cast<std::uint32_t>(padded(each.bytes));
    if (result_bytes)
        result_bytes += sizeof(tx_read_head);
    const bool is_inline = request.size() <= TX_INLINE_BYTES_MAX;
    tx_run_args args{};
    args.client = htole64(id_);
    args.sequence = htole64(++sequence_);
    args.bytes = htole32(static_cast<std::uint32_t>(request.size()));
    args.sum = htole32(
        base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, request.data(), request.size())));
    args.reads = htole32(static_cast<std::uint32_t>(reads.size()));
    args.writes = htole32(static_cast<std::uint32_t>(writes.size()));
    const auto deadline = Clock::now() + patience;
    for (;;) {
        if (!is_inline || result_bytes)
            prepare();
        args.area = is_inline ? 0 : htole64(area_);
        args.result = result_bytes ? htole64(area_ + TX_REQUEST_BYTES_MAX) : 0;
        const auto [error, detail] = try_once(args, request, is_inline, result_bytes, result_);
        if (!error)
            break;
        if (!is_worth_a_try(error, detail) || Clock::now() > deadline)
            fail("can't run the transaction", error, detail);
        if (error == -ESTALE)
            forget();
        std::this_thread::sleep_for(pause);
    }
    std::vector<std::string> tuples;
    if (repeated_)
        return tuples;
    std::size_t at = sizeof(tx_read_head);
    for (const Read& each : reads) {
        tuples.push_back(result_.substr(at, each.bytes));
        at += padded(each.bytes);
    }
    return tuples;
}

Status Client::status() {
    tx_status status{};
    remote_function query = function_of(TX_STATUS, nullptr, 0, &status, sizeof(status));
    if (int error = remote_query(node_.get(), &query))
        fail("can't ask for the status", error, query.detail);
    return {le32toh(status.epoch),      le32toh(status.role), le64toh(status.begin),
            le64toh(status.applied),    le64toh(status.end),  le64toh(status.log_bytes),
            le64toh(status.data_bytes), le64toh(status.data)};
}

void Client::change_chain(std::uint32_t epoch, std::uint32_t role) {
    const tx_chain_args args{htole32(epoch), htole32(role)};
    tx_result done{};
    remote_function call = function_of(TX_CHAIN, &args, sizeof(args), &done, sizeof(done));
    if (int error = remote_call(node_.get(), &call))
        fail("can't change the chain", error, call.detail);
}

std::string Client::read(std::uint64_t offset, std::uint64_t bytes) {
    std::string data(bytes, 0);
    if (int error = remote_read(node_.get(), status().data + offset, data.data(), data.size()))
        throw Failure("can't read data: {}", remote_strerror(error));
    return data;
}

} // namespace remora::tx
