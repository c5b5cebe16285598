// SPDX-License-Identifier: GPL-2.0
// How the programs begin and end.
#pragma once

#include <cerrno>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "support/descriptor.hpp"
#include "support/failure.hpp"
#include "support/say.hpp"

namespace remora {

// run()'s exit code. For an exception one line, and 2 for wrong usage, else 1.
int run_program(const char* name, std::invocable auto&& run) {
    auto complain = [&](int code, const char* text) {
        warn("{}: {}", name, text);
        return code;
    };
    try {
        return run();
    } catch (const Misuse& misuse) {
        return complain(2, misuse.what());
    } catch (const std::exception& failure) {
        return complain(1, failure.what());
    }
}

// False: help or the version was asked for, and is printed. Throws Misuse.
inline bool parse_command_line(CLI::App& program, int argc, char** argv) {
    try {
        program.parse(argc, argv);
        return true;
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code())
            throw Misuse("{}: see '{} --help'", error.what(), program.get_name());
        program.exit(error);
        return false;
    }
}

// --ready-fd: tells the port to the parent, and closes the descriptor.
inline void tell_port(std::optional<int> ready_fd, std::uint16_t port) {
    if (!ready_fd)
        return;
    const std::string text = std::to_string(port) + "\n";
    const Descriptor fd(*ready_fd);
    if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        throw Failure("can't write to --ready-fd {}: {}", fd.get(), std::strerror(errno));
}

} // namespace remora
