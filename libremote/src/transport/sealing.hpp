// SPDX-License-Identifier: MIT
// A transport seals the datagrams of one session by this, and opens those that come.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "seal/cipher.hpp"

extern "C" {
#include "core/rmem/wire.h"
}

namespace remora::lib {

struct Sealing {
    Cipher cipher;
    Salt salt{};
    std::array<std::uint8_t, RMEM_DATAGRAM_BYTES_MAX> plain; // of the last datagram opened

    // The datagram's header and plaintext, until the next call. Nothing: it does not verify.
    std::optional<std::span<const std::uint8_t>> open(std::span<const std::uint8_t> datagram,
                                                      const base_siphash_key& space_key,
                                                      const rmem_seal_key& key) {
        const auto bytes = static_cast<u32>(datagram.size());
        if (!rmem_seal_hdr_verifies(datagram.data(), &space_key) ||
            !rmem_seal_open(&cipher.core(), &key, datagram.data(), bytes, plain.data()))
            return std::nullopt;
        return std::span(plain).first(bytes - RMEM_SEAL_BYTES);
    }
};

} // namespace remora::lib
