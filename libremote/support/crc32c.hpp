// SPDX-License-Identifier: MIT
// The checksum's tables, made once: whoever makes them again writes where others read.
#pragma once

extern "C" {
#include "core/base/crc32c.h"
}

namespace remora {

inline void crc32c_setup_once() {
    static const bool ready = (base_crc32c_setup(), true);
    static_cast<void>(ready);
}

} // namespace remora
