// SPDX-License-Identifier: GPL-2.0
// remora: control of the memory node and of the devices. An error is one line on stderr.
// Exit code 0: success, 1: failure, 2: wrong usage.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/version.hpp"
#include "remora/commands.hpp"
#include "remora/verbs.hpp"
#include "support/failure.hpp"
#include "support/say.hpp"

namespace {

int complain(int code, const char* text) {
    remora::warn("remora: {}", text);
    return code;
}

// CLI11's texts can have several lines. command: as far as the user has named one.
int misuse(const CLI::ParseError& error, const std::string& command) {
    std::string text = error.what();
    for (char& c : text)
        c = c == '\n' ? ' ' : c;
    return complain(2, fmt::format("{}: see '{} --help'", text, command).c_str());
}

int run(int argc, char** argv) {
    CLI::App program("Remote memory: lend it, use that of others.", "remora");
    program.set_version_flag("--version", std::string("remora ") + remora::version);
    program.require_subcommand(1);
    remora::add_key_commands(program);
    remora::add_node_commands(program);
    remora::add_device_commands(program);
    remora::add_report_commands(program);
    remora::add_top_command(program);
    remora::add_eqds_commands(program);
    remora::add_edm_commands(program);
    remora::add_ping_command(program);
    remora::add_mh_commands(program);
    std::vector<std::string> args = remora::expand_help({argv + 1, argv + argc});
    remora::check_verbs(program, args);
    try {
        program.parse(
            std::vector<std::string>(args.rbegin(), args.rend())); // CLI11 takes the last one first
    } catch (const CLI::ParseError& error) {
        // Help and version come this way, too.
        return error.get_exit_code() ? misuse(error, remora::named_command(program, args))
                                     : program.exit(error);
    }
    if (std::fflush(stdout))
        throw remora::Failure("can't write to standard output");
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const remora::Misuse& misuse) {
        return complain(2, misuse.what());
    } catch (const std::exception& failure) {
        return complain(1, failure.what());
    }
}
