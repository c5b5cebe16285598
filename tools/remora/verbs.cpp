// SPDX-License-Identifier: GPL-2.0
#include "remora/verbs.hpp"

#include <algorithm>

#include <fmt/ranges.h>

#include "common/nearest.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

std::vector<std::string> names_in(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; }))
        if (!each->get_group().empty()) // else it is hidden
            names.push_back(each->get_name());
    return names;
}

} // namespace

Walk walk_verbs(const CLI::App& program, const std::vector<std::string>& args) {
    Walk at{&program, program.get_name(), 0};
    while (at.words < args.size()) {
        const std::string& word = args[at.words];
        auto found =
            at.app->get_subcommands([&](const CLI::App* each) { return each->check_name(word); });
        if (found.empty())
            break;
        at = {found.front(), at.named + " " + word, at.words + 1};
    }
    return at;
}

std::vector<std::string> expand_help(std::vector<std::string> args) {
    if (args.empty() || args.front() != "help")
        return args;
    args.erase(args.begin());
    args.emplace_back("--help");
    return args;
}

void check_verbs(const CLI::App& program, const std::vector<std::string>& args) {
    const Walk at = walk_verbs(program, args);
    const std::vector<std::string> names = names_in(*at.app);
    if (names.empty())
        return;
    if (at.words == args.size())
        throw Misuse("{} needs one of {}: see '{} --help'", at.named, fmt::join(names, ", "),
                     at.named);
    const std::string& word = args[at.words];
    if (word.starts_with("-"))
        return;
    if (const std::string near = nearest(word, names); !near.empty())
        throw Misuse("there is no command '{} {}': is it '{} {}'? See '{} --help'", at.named, word,
                     at.named, near, at.named);
    throw Misuse("there is no command '{} {}': see '{} --help'", at.named, word, at.named);
}

std::string nearest_option(const CLI::App& program, const std::vector<std::string>& args) {
    const Walk at = walk_verbs(program, args);
    std::vector<std::string> names;
    for (const CLI::Option* each : at.app->get_options())
        for (const std::string& name : each->get_lnames())
            names.push_back("--" + name);
    for (std::size_t n = at.words; n < args.size() && args[n] != "--"; n++) {
        const std::string word = args[n].substr(0, args[n].find('='));
        if (!word.starts_with("--") || std::ranges::find(names, word) != names.end())
            continue;
        const std::string near = nearest(word, names);
        return near.empty() ? "" : fmt::format("is '{}' meant by '{}'? ", near, word);
    }
    return {};
}

std::string named_command(const CLI::App& program, const std::vector<std::string>& args) {
    return walk_verbs(program, args).named;
}

} // namespace remora
