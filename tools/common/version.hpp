// SPDX-License-Identifier: GPL-2.0
#pragma once

#include "remora/version.h"

namespace remora {

inline constexpr char version[] = REMORA_VERSION;

} // namespace remora
