// SPDX-License-Identifier: GPL-2.0
#include "common/control.hpp"

#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace remora {

std::string control_path_default(std::string_view daemon) {
    std::string name = fmt::format("/{}.sock", daemon);
    if (geteuid() == 0)
        return "/run" + name;
    const char* folder = std::getenv("XDG_RUNTIME_DIR");
    return folder && *folder ? std::string(folder) + name : "";
}

std::string control_error(std::string_view why) {
    return nlohmann::ordered_json{{"ok", false}, {"error", why}}.dump();
}

} // namespace remora
