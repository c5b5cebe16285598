// SPDX-License-Identifier: GPL-2.0
// remora: control of the memory node and of the devices. An error is one line on stderr.
// Exit code 0: success, 1: failure, 2: wrong usage.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "common/version.hpp"
#include "remora/commands.hpp"
#include "support/failure.hpp"
#include "support/say.hpp"

namespace {

int complain(int code, const char* text) {
    remora::warn("remora: {}", text);
    return code;
}

// CLI11's texts can have several lines.
int misuse(const CLI::ParseError& error) {
    std::string text = error.what();
    for (char& c : text)
        c = c == '\n' ? ' ' : c;
    return complain(2, (text + ": see 'remora --help'").c_str());
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
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        // Help and version come this way, too.
        return error.get_exit_code() ? misuse(error) : program.exit(error);
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
