// SPDX-License-Identifier: MIT
// The parsed target of remote_open().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace remora::lib {

struct Target {
    enum class Backend { embedded, udp, dev };
    Backend backend;
    // embedded
    std::uint64_t memory_bytes = std::uint64_t{64} << 20;
    std::uint64_t page_bytes = std::uint64_t{64} << 10;
    // dev
    std::string path;
    // udp
    std::string host;
    std::uint16_t port = 0;
    std::string key_file;
    std::uint32_t space = 1;
};

// Throws Misuse with the valid forms.
Target parse_target(std::string_view text);

} // namespace remora::lib
