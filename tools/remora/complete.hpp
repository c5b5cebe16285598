// SPDX-License-Identifier: GPL-2.0
/*
 * Completion of a command line, for shells: remora __complete WORD... prints the candidates
 * for the last word, each on a line with a tab and its description. The line ":files" asks the
 * shell for names of files instead. It walks the commands as they are declared, so a new option
 * needs nothing here.
 */
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace remora {

// The text to print. words: those behind the program's name; the last can be empty.
std::string completions(const CLI::App& program, const std::vector<std::string>& words);

} // namespace remora
