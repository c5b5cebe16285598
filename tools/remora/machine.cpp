// SPDX-License-Identifier: GPL-2.0
/*
 * machine-id(5) is confidential, and a node's operator sees the owners of names. So, as that page
 * asks: an HMAC of an id of this application's own, keyed by the machine's id.
 */
#include "remora/machine.hpp"

#include <array>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "support/failure.hpp"
#include "uapi/remora_rmem.h"

namespace remora {

namespace {

using Id = std::array<unsigned char, 16>;

// Any other application has another one.
constexpr Id application = {0x8b, 0x3d, 0x6e, 0x51, 0xf2, 0x07, 0x4c, 0x9a,
                            0xa5, 0x60, 0x1e, 0xd4, 0x77, 0xbc, 0x29, 0xe8};

int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Nothing: systemd hasn't made one yet, and the file is empty or says "uninitialized".
std::optional<Id> parse_id(const std::string& text) {
    Id id;
    if (text.size() != 2 * id.size())
        return std::nullopt;
    for (std::size_t i = 0; i < id.size(); i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return std::nullopt;
        id[i] = static_cast<unsigned char>(high << 4 | low);
    }
    return id;
}

std::optional<Id> machine_id() {
    // The first one: of a machine whose /etc/machine-id is a new one at each boot, or a clone's.
    for (const char* path : {"/etc/remora/machine-id", "/etc/machine-id"}) {
        std::string text;
        if (std::ifstream file(path); std::getline(file, text))
            return parse_id(text);
    }
    return std::nullopt;
}

} // namespace

std::optional<std::string> machine_owner() {
    const std::optional<Id> id = machine_id();
    std::array<unsigned char, EVP_MAX_MD_SIZE> hash;
    unsigned bytes = 0;
    if (!id)
        return std::nullopt;
    if (!HMAC(EVP_sha256(), id->data(), id->size(), application.data(), application.size(),
              hash.data(), &bytes) ||
        bytes < RMEM_OWNER_MAX / 2)
        throw Failure("libcrypto has no HMAC of SHA-256: install OpenSSL 3 with its default "
                      "provider");
    return fmt::format("{:02x}", fmt::join(hash.begin(), hash.begin() + RMEM_OWNER_MAX / 2, ""));
}

} // namespace remora
