// SPDX-License-Identifier: GPL-2.0
/*
 * remora generator: systemd's generator (systemd.generator(7)), by which a boot applies
 * /etc/remora. It runs before any unit, so it only reads files, and never fails: a mistake is a
 * line in the kernel's log, and the boot makes the resources without one.
 *
 *   NORMAL/multi-user.target.wants/remora-device@NAME.service    [device NAME]
 *   NORMAL/LINK.device.wants/remora-eqds@DEV.service             [eqds DEV], when its link is there
 *   NORMAL/multi-user.target.wants/remora-lend.service           [node], [space ID]
 *
 * The units are in tools/systemd, whose README says why they are as they are.
 */
#include <cctype>
#include <filesystem>
#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "common/declared.hpp"
#include "remora/commands.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

namespace fs = std::filesystem;
using declared::Section;

struct GeneratorOptions {
    std::vector<std::string> folders; // systemd gives three; the first is for these units
    std::string units = "/usr/lib/systemd/system", config = "/etc/remora";
};

void log_mistake(const std::string& text) {
    constexpr int error_level = 3;
    if (std::ofstream kernel_log("/dev/kmsg"); kernel_log)
        kernel_log << fmt::format("<{}>remora-generator: {}\n", error_level, text) << std::flush;
}

// As systemd-escape(1) writes it.
std::string escaped(const std::string& text) {
    std::string out;
    for (unsigned char c : text)
        out += std::isalnum(c) || c == '_' || c == ':' || (c == '.' && !out.empty())
                   ? std::string(1, static_cast<char>(c))
                   : fmt::format("\\x{:02x}", c);
    return out;
}

// by: the unit that starts it.
void want(const fs::path& normal, const fs::path& units, const std::string& unit,
          const std::string& by = "multi-user.target") {
    const fs::path wants = normal / (by + ".wants");
    const std::size_t at = unit.find('@');
    const std::string file =
        at == unit.npos ? unit : unit.substr(0, at + 1) + unit.substr(unit.rfind('.'));
    fs::create_directories(wants);
    fs::create_symlink(units / file, wants / unit);
}

// A boot that wanted the unit itself would wait for the link, 90 s if it is absent.
void want_with_link(const fs::path& normal, const fs::path& units, const std::string& unit,
                    const std::string& link) {
    const std::string device = fmt::format("sys-subsystem-net-devices-{}.device", escaped(link));
    const fs::path folder = normal / (unit + ".d");
    want(normal, units, unit, device);
    fs::create_directories(folder);
    std::ofstream file(folder / "link.conf");
    file << fmt::format("[Unit]\nBindsTo={}\nAfter={}\n", device, device);
    if (!file.flush())
        throw Failure("can't write {}", folder.string());
}

void generate(const GeneratorOptions& options) {
    const fs::path normal = options.folders.front();
    const declared::State state = declared::parse(declared::read(options.config));
    for (const declared::Mistake& mistake : state.mistakes)
        log_mistake(mistake.text());
    for (const Section& section : state.sections) {
        if (section.kind == "node")
            want(normal, options.units, "remora-lend.service");
        if (section.kind == "device")
            want(normal, options.units, fmt::format("remora-device@{}.service", section.name));
        if (section.kind == "eqds")
            want_with_link(normal, options.units,
                           fmt::format("remora-eqds@{}.service", section.name),
                           *section.find("link"));
    }
}

} // namespace

void add_generator_command(CLI::App& program) {
    CLI::App* command = program.add_subcommand("generator", "systemd's generator of units");
    command->group(""); // hidden: systemd calls it
    auto options = std::make_shared<GeneratorOptions>();
    command->add_option("FOLDER", options->folders)->required()->expected(1, 3);
    command->add_option("--units", options->units);
    command->add_option("--config", options->config);
    command->callback([options] {
        try {
            generate(*options);
        } catch (const std::exception& failure) {
            log_mistake(failure.what());
        }
    });
}

} // namespace remora
