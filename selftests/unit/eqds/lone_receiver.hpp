// SPDX-License-Identifier: GPL-2.0
// A receiver of the extended profile without a network: the test makes what arrives.
#pragma once

#include <vector>

#include "core.hpp"

namespace eqds {

struct LoneReceiver {
    eqds_config config;
    std::vector<eqds_packet*> slots;
    eqds_asl asl;
    eqds_receiver r;

    // cookie: what the sender has to send back; 0: none.
    explicit LoneReceiver(uint64_t cookie) {
        eqds_config_init(&config, &eqds_profile_extended, 1500, 15000);
        slots.resize(config.window_packets);
        eqds_asl_init(&asl, EQDS_ASL_FIFO, 1500, 10'000'000'000, 1);
        eqds_receiver_init(&r, &config, &asl, slots.data(), 1, cookie);
    }
    LoneReceiver(const LoneReceiver&) = delete;
    LoneReceiver& operator=(const LoneReceiver&) = delete;
};

} // namespace eqds
