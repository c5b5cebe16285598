// SPDX-License-Identifier: GPL-2.0
// remora: control of the memory node and of the devices. An error is one line on stderr.
// Exit code 0: success, 1: failure, 2: wrong usage.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/version.hpp"
#include "remora/commands.hpp"
#include "remora/complete.hpp"
#include "remora/verbs.hpp"
#include "support/failure.hpp"
#include "support/say.hpp"

namespace {

int complain(int code, const char* text) {
    remora::warn("remora: {}", text);
    return code;
}

// CLI11's texts can have several lines.
int misuse(const CLI::ParseError& error, const CLI::App& program,
           const std::vector<std::string>& args) {
    std::string text = error.what();
    for (char& c : text)
        c = c == '\n' ? ' ' : c;
    return complain(2, fmt::format("{}: {}see '{} --help'", text,
                                   remora::nearest_option(program, args),
                                   remora::named_command(program, args))
                           .c_str());
}

int run(int argc, char** argv) {
    CLI::App program("Remote memory: lend it, use that of others.", "remora");
    program.set_version_flag("--version", std::string("remora ") + remora::version);
    program.require_subcommand(1);
    remora::add_key_commands(program);
    remora::add_node_commands(program);
    remora::add_device_commands(program);
    remora::add_apply_command(program);
    remora::add_generator_command(program);
    remora::add_report_commands(program);
    remora::add_top_command(program);
    remora::add_export_command(program);
    remora::add_bench_command(program);
    remora::add_doctor_command(program);
    remora::add_eqds_commands(program);
    remora::add_edm_commands(program);
    remora::add_ping_command(program);
    remora::add_mh_commands(program);
    if (argc > 1 && argv[1] == std::string_view("__complete")) {
        fmt::print("{}", remora::completions(program, {argv + 2, argv + argc}));
        return 0;
    }
    std::vector<std::string> args = remora::expand_help({argv + 1, argv + argc});
    remora::check_verbs(program, args);
    try {
        program.parse(
            std::vector<std::string>(args.rbegin(), args.rend())); // CLI11 takes the last one first
    } catch (const CLI::ParseError& error) {
        // Help and version come this way, too.
        return error.get_exit_code() ? misuse(error, program, args) : program.exit(error);
    }
    if (std::fflush(stdout))
        throw remora::Failure("can't write to standard output");
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const remora::Ended& ended) {
        return std::fflush(stdout) ? complain(1, "can't write to standard output") : ended.code;
    } catch (const remora::Misuse& misuse) {
        return complain(2, misuse.what());
    } catch (const std::exception& failure) {
        return complain(1, failure.what());
    }
}
