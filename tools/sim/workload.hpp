// SPDX-License-Identifier: GPL-2.0
// Flows to simulate: from a connection matrix, or generated.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/matrix.hpp"
#include "sim/sim.hpp"

namespace sim {

// Flow sizes: a piecewise linear distribution function.
class Sizes {
public:
    // fixed, uniform, web-search, hadoop, or a file of lines "BYTES PERCENT".
    Sizes(const std::string& name, std::uint64_t mean_bytes);

    std::uint64_t draw(Rng& rng) const;
    std::uint64_t mean_bytes() const;

private:
    struct Point {
        std::uint64_t bytes;
        std::uint64_t permille_10; // of 10,000
    };
    std::vector<Point> points_;
};

class Workload {
public:
    // Creates the flows of sim.params.
    explicit Workload(Sim& sim);

    // Hosts that the parameters' workload needs, or 0. Reads the matrix.
    static std::uint32_t hosts_needed(Params& params);

private:
    void from_matrix();
    void permutation();
    void incast();
    void all_to_all();
    void poisson();
    void closed_loop();
    void next_closed(std::uint32_t client);
    void extra_flows();
    Flow& add(std::uint32_t src, std::uint32_t dst, std::uint64_t bytes);
    Flow& add(std::uint32_t src, std::uint32_t dst, std::uint64_t bytes, Transport transport);
    std::uint32_t client_host(std::uint32_t client) const;
    Time start_time();
    void activate(std::uint32_t trigger);
    void done(Flow& flow);
    Transport transport_of(std::uint32_t src) const;

    Sim& sim_;
    Sizes sizes_;
    Matrix matrix_;
    Transport default_transport_;
    std::vector<std::pair<std::pair<std::uint32_t, std::uint32_t>, Transport>> transports_;
    std::map<std::uint32_t, std::uint32_t> activations_; // by trigger
    std::vector<std::uint32_t> clients_;                 // by flow, of a closed loop
    bool closed_ = false;
    std::uint32_t closed_clients_ = 0;
};

// Throws remora::Misuse.
Transport parse_transport(const std::string& name);
const char* transport_name(Transport transport);

} // namespace sim
