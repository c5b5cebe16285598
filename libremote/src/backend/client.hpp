// SPDX-License-Identifier: MIT
/*
 * A memory node that messages reach: the client's core (core/rmem/client/client.h) over a transport
 * (transport/transport.hpp).
 *
 *   start:  lock { order: can it begin? -> core -> messages -> Transport::send() }
 *   wait:   one waiter receives for all:
 *             Transport::wait() -> lock { deliver() -> core -> data to its buffer -> ended? ->
 * order }
 *
 * The library has no thread of its own: the waiting thread also retransmits messages that timed out
 * and ends calls whose limit has come. Data goes from the program's buffers into the transport and,
 * once verified, back into them. Data of many ranges is copied once more, for it is little.
 *
 * A handle is one session, with its own transport and windows. Credit comes back only where a
 * thread waits, so the debts of one handle must not stop another.
 */
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/queued.hpp"
#include "src/backend/target.hpp"
#include "src/transport/transport.hpp"
#include "support/key.hpp"

namespace remora::lib {

struct ClientOptions {
    Key key;
    std::uint32_t space;
    rmem_integrity integrity;
    std::uint64_t timeout_ns; // 0: never
};

// For the schemes' parsers. The text up to the first comma; the settings after it stay.
std::string_view take_place(std::string_view& text);
// key=FILE[,space=N], and the scheme's own. target: for people. Throws Misuse; Failure: no such key
// file.
ClientOptions client_options(std::string_view settings, std::string_view target,
                             const remote_options& options, Settings more = {});

// When opening has failed: within the options' timeout, and at most 5 s.
Clock::time_point open_limit(const ClientOptions& options, Clock::time_point limit);

class Client final : public Queued, private Messages {
public:
    // name: of the node, for people. Throws Failure: no way, no answer, refused.
    Client(const std::string& name, const std::vector<Connect>& candidates,
           const ClientOptions& options, Clock::time_point limit);
    ~Client() override;

    int alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
              Region& region) override;
    int dealloc(const Region& region) override;
    void stats(remote_counters& counters) override;
    std::uint32_t put_bytes() const override { return put_bytes_; }
    std::uint32_t vector_bytes() const override { return vector_bytes_; }
    std::uint64_t page_bytes() const override { return page_bytes_; }
    void info(remote_node& node, Clock::time_point limit) override;
    bool disown() override;
    bool can_detach() const override { return true; }
    bool can_run() const override { return true; }
    Watch watch() override;

private:
    void open_any(const std::string& name, const std::vector<Connect>& candidates,
                  const ClientOptions& options, Clock::time_point limit);
    void configure(const ClientOptions& options);
    bool opens(const std::string& name, Clock::time_point limit);
    bool is_refused() const;
    static Failure reason(const std::string& name,
                          const std::vector<std::unique_ptr<Transport>>& silent,
                          std::chrono::milliseconds patience, std::vector<Failure> failures);

    void begin(Op& op) noexcept override;
    void flush() noexcept override;
    bool expects() const override { return true; } // and retransmits
    Clock::time_point next_timer() const override;
    void receive(Lock& lock, Clock::time_point until) noexcept override;
    void take_in() noexcept override;
    void take_back(Call& call) noexcept override;

    bool next(rmem_client_tx& tx) override;
    void set_room(std::uint32_t messages) override;
    void unsent(const rmem_client_tx& tx) override;
    void take_response(const rmem_head& head, const std::uint8_t* payload, bool damaged) override;
    const rmem_seal_key& sealing_key() override { return client_->keys.from_client; }
    const rmem_seal_key* opening_key(std::uint64_t session) override {
        return rmem_client_opening_key(client_.get(), session);
    }

    // An alloc's, in its op.
    enum Stage : std::uint8_t { asked, got, claimed, undone };
    void send_for(Op& op, Stage stage);
    void go_on_allocating(Op& op, int error);
    void undo(Op& op, int error);
    void claim(Op& op);
    void claim_regions();
    void abandon(Op& op);
    void end_all(rmem_op* chain, rmem_client_result result);
    void expire_core(std::uint64_t now_ns);

    const ClientOptions options_;
    std::unique_ptr<Transport> transport_;
    std::uint64_t page_bytes_ = 0;   // from the node's first answer
    std::uint32_t put_bytes_ = 0;    // the same
    std::uint32_t vector_bytes_ = 0; // the same

    // lock_'s
    std::unique_ptr<rmem_client> client_;
    std::uint64_t event_ns_ = 0; // when the transport was last called
    Op* got_ = nullptr;          // allocs whose regions are to be claimed
    rmem_base base_;
    rmem_incast incast_;
};

} // namespace remora::lib
