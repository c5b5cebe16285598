// SPDX-License-Identifier: MIT
// The target of remote_open(): SCHEME:REST. Each scheme is parsed beside the backend that it opens.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "remora/rmem.h"
#include "src/backend/backend.hpp"

namespace remora::lib {

// Opens a backend, by the limit; again when its node has restarted. Throws Failure.
using Open = std::function<std::unique_ptr<Backend>(Clock::time_point limit)>;

struct Scheme {
    std::string_view name;
    std::string_view form; // for people
    bool lasts;            // the node never restarts
    // Throws Misuse with the valid forms; Failure: no such key file.
    Open (*parse)(std::string_view rest, const remote_options& options);
};

extern const Scheme embedded_scheme, udp_scheme, shm_scheme, edm_scheme, dev_scheme;

struct Target {
    Open open;
    bool lasts;
};

Target parse_target(std::string_view text, const remote_options& options);

// For the schemes' parsers. Throw Misuse.
rmem_integrity integrity_of(const remote_options& options);
// link, digest, full or sealed.
rmem_integrity parse_integrity(std::string_view text);
std::uint64_t timeout_ns_of(const remote_options& options); // 0: never

// NAME=VALUE,NAME=VALUE
using Settings = std::map<std::string_view, std::function<void(std::string_view)>>;
void parse_settings(std::string_view text, const Settings& settings);

} // namespace remora::lib
