// SPDX-License-Identifier: GPL-2.0
#pragma once

namespace remora {

inline constexpr char version[] = "0.1.0";

} // namespace remora
