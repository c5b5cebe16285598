// SPDX-License-Identifier: MIT
// udp:HOST[:PORT][,key=FILE][,space=N]
#include "src/transport/udp.hpp"

#include <fmt/format.h>

#include "remora/rmem.h"
#include "src/backend/client.hpp"
#include "src/backend/target.hpp"
#include "support/parse.hpp"

namespace remora::lib {

namespace {

Open parse(std::string_view text, const remote_options& options) {
    std::string_view address = take_place(text);
    Endpoint node = parse_endpoint(address, RMEM_PORT);
    ClientOptions client = client_options(text, fmt::format("udp:{}", address), options);
    return [node, client](Clock::time_point limit) {
        limit = open_limit(client, limit);
        return std::make_unique<Client>(endpoint_text(node.host, node.port),
                                        udp_candidates(node.host, node.port, limit), client, limit);
    };
}

} // namespace

constinit const Scheme udp_scheme{"udp", "udp:HOST,key=FILE", false, parse};

} // namespace remora::lib
