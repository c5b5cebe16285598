// SPDX-License-Identifier: GPL-2.0
// The words of a command line that name a command: remora node space add.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace remora {

// "remora help node start" is "remora node start --help". args: without the program's name.
std::vector<std::string> expand_help(std::vector<std::string> args);

struct Walk {
    const CLI::App* app; // the last that a word names
    std::string named;   // "remora node"
    std::size_t words;   // of args
};

Walk walk_verbs(const CLI::App& program, const std::vector<std::string>& args);

// Throws Misuse if there is no such command, with the nearest one, or if one is missing, with all.
void check_verbs(const CLI::App& program, const std::vector<std::string>& args);

// The option that one of the words, which is unknown to its command, most likely stands for:
// "is '--size' meant by '--sise'? "; empty: none is near.
std::string nearest_option(const CLI::App& program, const std::vector<std::string>& args);

// The command that the words name, as far as they do: "remora node start".
std::string named_command(const CLI::App& program, const std::vector<std::string>& args);

} // namespace remora
