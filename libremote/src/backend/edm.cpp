// SPDX-License-Identifier: MIT
// edm:SCHEDULER[:UDPPORT]/PORT@NODE[:UDPPORT],as=PORT,rate=MBIT,rack=FILE,key=FILE
//     [,standby=SCHEDULER[:UDPPORT]][,space=N]
#include "src/transport/edm.hpp"

#include <memory>
#include <optional>

#include <fmt/format.h>

#include "remora/edm.h"
#include "remora/rmem.h"
#include "src/backend/client.hpp"
#include "src/backend/target.hpp"
#include "support/parse.hpp"

namespace remora::lib {

namespace {

std::uint16_t port_number(std::string_view text, std::string_view what) {
    return static_cast<std::uint16_t>(parse_number(text, 0, EDM_PORTS_MAX - 1, what));
}

// Where things are, as the target has them.
struct Places {
    Endpoint scheduler, node;
    std::optional<Endpoint> standby;
    std::uint16_t node_port;
    EdmPort port;
};

Places parse_places(std::string_view address) {
    const auto at = address.find('@'), slash = address.substr(0, at).rfind('/');
    if (at == std::string_view::npos || slash == std::string_view::npos)
        throw Misuse("'{}' has no scheduler or no node: write edm:SCHEDULER/PORT@NODE", address);
    Places places{};
    places.scheduler = parse_endpoint(address.substr(0, slash), EDM_PORT);
    places.node_port = port_number(address.substr(slash + 1, at - slash - 1), "the node's port");
    places.node = parse_endpoint(address.substr(at + 1), RMEM_PORT);
    return places;
}

// own: this program's port, if the target has one.
void check(const Places& places, const std::optional<std::uint16_t>& own, bool has_key,
           std::string_view target) {
    if (!own)
        throw Misuse("target '{}' has no port of its own: add ,as=PORT", target);
    if (!places.port.rate_mbps)
        throw Misuse("target '{}' has no rate: add ,rate=MBIT, of this machine's link", target);
    if (!has_key)
        throw Failure(ENOKEY, "target '{}' has no key of its rack: add ,rack=FILE", target);
    if (*own == places.node_port)
        throw Misuse("target '{}': the node is at port {}, so this program needs another", target,
                     *own);
}

std::vector<Resolved> schedulers_of(const Places& places, Clock::time_point limit) {
    std::vector<Resolved> all{resolve(places.scheduler.host, places.scheduler.port, limit).front()};
    if (places.standby)
        all.push_back(resolve(places.standby->host, places.standby->port, limit).front());
    return all;
}

Open parse(std::string_view text, const remote_options& options) {
    const std::string address(take_place(text));
    const std::string target = "edm:" + address;
    Places places = parse_places(address);
    std::optional<std::uint16_t> own;
    std::string rack;
    ClientOptions client = client_options(
        text, target, options,
        {{"as", [&](auto value) { own = port_number(value, "as"); }},
         {"rate",
          [&](auto value) {
              places.port.rate_mbps =
                  static_cast<std::uint32_t>(parse_number(value, 1, EDM_RATE_MBPS_MAX, "rate"));
          }},
         {"rack", [&](auto value) { rack = value; }},
         {"standby", [&](auto value) { places.standby = parse_endpoint(value, EDM_PORT); }}});
    check(places, own, !rack.empty(), target);
    places.port.number = *own;
    places.port.key = key_read(rack).key;
    // Once it has opened, a silent scheduler doesn't keep the handle from its restarted node.
    auto opened = std::make_shared<bool>(false);
    return [places, client, opened](Clock::time_point limit) {
        limit = open_limit(client, limit);
        const EdmWay way{places.port, schedulers_of(places, limit), places.node_port};
        auto backend = std::make_unique<Client>(
            endpoint_text(places.node.host, places.node.port),
            edm_candidates(places.node.host, places.node.port, way, !*opened, limit), client,
            limit);
        *opened = true;
        return backend;
    };
}

} // namespace

constinit const Scheme edm_scheme{
    "edm", "edm:SCHEDULER/PORT@NODE,as=PORT,rate=MBIT,rack=FILE,key=FILE", false, parse};

} // namespace remora::lib
