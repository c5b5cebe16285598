// SPDX-License-Identifier: MIT
// udp:HOST[:PORT][,key=FILE][,space=N]
#include "src/transport/udp.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>

#include "remora/rmem.h"
#include "src/backend/client.hpp"
#include "src/backend/target.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::lib {

namespace {

// Keeps the key: when the node restarts, its file may have changed or be unreadable.
Open parse(std::string_view text, const remote_options& options) {
    std::string_view address = text.substr(0, text.find(','));
    text.remove_prefix(std::min(address.size() + 1, text.size()));
    Endpoint node = parse_endpoint(address, RMEM_PORT);
    std::string key_file;
    ClientOptions client{{}, 1, integrity_of(options), timeout_ns_of(options)};
    parse_settings(text, {{"key", [&](auto value) { key_file = value; }},
                          {"space", [&](auto value) {
                               client.space = static_cast<std::uint32_t>(parse_number(
                                   value, 1, std::numeric_limits<std::uint32_t>::max(), "space"));
                           }}});
    if (options.key && !key_file.empty())
        throw Misuse("target 'udp:{}' and the options both have a key: give one", address);
    if (options.key)
        std::copy_n(options.key, client.key.size(), client.key.begin());
    else if (key_file.empty())
        throw Failure(ENOKEY, "target 'udp:{}' has no key: add ,key=FILE", address);
    else
        client.key = key_read(key_file).key;
    return [node, client] {
        return std::make_unique<Client>(endpoint_text(node.host, node.port),
                                        udp_ways(node.host, node.port), client);
    };
}

} // namespace

constinit const Scheme udp_scheme{"udp", "udp:HOST,key=FILE", false, parse};

} // namespace remora::lib
