// SPDX-License-Identifier: MIT
// Makes the checksum's tables once: a second thread that made them would write while others read.
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
