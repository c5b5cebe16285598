// SPDX-License-Identifier: GPL-2.0
// A client of tools/offloads/tx: transactions through libremote.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <remote/queue.h>
#include <remote/remote.hpp>

#include "offloads/tx/tx.h"

namespace remora::tx {

struct Read {
    std::uint64_t offset;
    std::uint32_t bytes;
};
struct Write {
    std::uint64_t offset;
    std::string data;
};

struct Status {
    std::uint32_t epoch, role;
    std::uint64_t begin, applied, end, log_bytes, data_bytes, data;
};

// One transaction at a time. Not for several threads.
class Client {
public:
    // Throws Failure.
    Client(const std::string& target, std::uint64_t id, std::uint64_t sequence);
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // A node that was restarted, or doesn't answer, is asked again for so long.
    std::chrono::milliseconds patience{0};

    // The tuples read, before the writes. Throws Failure. `repeated` tells whether it was executed
    // by an earlier try; then the reads are empty.
    std::vector<std::string> run(const std::vector<Read>& reads, const std::vector<Write>& writes);
    bool repeated() const { return repeated_; }
    // The last transaction's.
    std::uint64_t sequence() const { return sequence_; }

    Status status();
    void change_chain(std::uint32_t epoch, std::uint32_t role);
    // Data by READs, which are not atomic if they take several packets.
    std::string read(std::uint64_t offset, std::uint64_t bytes);
    const remote::handle& node() const { return node_; }

private:
    // 0 or -errno, and the function's errno.
    struct Outcome {
        int error;
        std::uint32_t detail;
    };
    Outcome try_once(const tx_run_args& args, const std::string& request, bool is_inline,
                     std::uint32_t result_bytes, std::string& result);
    void prepare();
    void forget();

    remote::handle node_;
    remote_queue_t* queue_ = nullptr;
    std::uint64_t id_, sequence_;
    bool repeated_ = false;
    raddr_t area_ = 0; // a request, and the tuples read behind it; 0: none yet
    std::string result_;
};

} // namespace remora::tx
