// SPDX-License-Identifier: GPL-2.0
// The other end of a daemon's control socket (common/control_server.hpp).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "support/descriptor.hpp"
#include "support/failure.hpp"

namespace remora {

class ControlClient {
public:
    using Clock = std::chrono::steady_clock;

    // For an answer that the daemon has at once, and for one that can take the freeing of millions
    // of pages.
    static constexpr std::chrono::seconds brief{5}, lengthy{60};

    // Errors call the daemon by the name "what", such as "memory node". Throws Failure, as all
    // functions do: nobody listens there; no answer; the daemon refuses the request. Its error() is
    // ECONNRESET if the daemon closed the connection.
    // None of its waits goes on beyond until.
    ControlClient(std::string what, std::string path,
                  Clock::time_point until = Clock::time_point::max());

    // The answer to a request: an object whose "ok" is true or missing. error() is ETIMEDOUT if
    // there is none.
    nlohmann::ordered_json call(const nlohmann::ordered_json& request,
                                std::chrono::seconds patience = brief);
    // Returns when the daemon has closed the connection.
    void wait_end();
    // The descriptors that came with answers.
    std::vector<Descriptor> take_files() { return std::move(files_); }
    const std::string& path() const { return path_; }

private:
    Failure no_answer() const;
    bool read_some(Clock::time_point until);

    std::string what_, path_;
    const Clock::time_point until_;
    Descriptor fd_;
    std::string text_; // received, and not used yet
    std::vector<Descriptor> files_;
};

// Does a daemon serve at path, if only for others?
bool control_serves(const std::string& path,
                    std::chrono::milliseconds patience = ControlClient::brief);

} // namespace remora
