// SPDX-License-Identifier: GPL-2.0
// remora key: the shared secret of a remote address space.
#include <memory>

#include <fmt/format.h>

#include "remora/commands.hpp"
#include "support/key.hpp"

namespace remora {

namespace {

void key_new(const std::string& file) {
    Key key = key_random();
    if (file.empty())
        fmt::print("{}\n", key_text(key));
    else
        key_write(key, file);
}

} // namespace

void add_key_commands(CLI::App& program) {
    CLI::App* key = program.add_subcommand("key", "Keys of remote address spaces");
    key->require_subcommand(1);
    CLI::App* fresh = key->add_subcommand("new", "Make a random key");
    auto file = std::make_shared<std::string>();
    fresh->add_option("FILE", *file, "New file to hold it, mode 0600; else it is printed");
    fresh->callback([file] { key_new(*file); });
}

} // namespace remora
