// SPDX-License-Identifier: GPL-2.0
#include "remora/verbs.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "support/failure.hpp"

namespace remora {

namespace {

// Letters to change, add or drop.
std::size_t distance(const std::string& from, const std::string& to) {
    std::vector<std::size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), 0u);
    for (std::size_t i = 0; i < from.size(); i++) {
        std::size_t diagonal = row[0]++;
        for (std::size_t j = 0; j < to.size(); j++)
            diagonal = std::exchange(
                row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (from[i] != to[j])}));
    }
    return row.back();
}

std::vector<std::string> names_in(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; }))
        if (!each->get_group().empty()) // else it is hidden
            names.push_back(each->get_name());
    return names;
}

struct Walk {
    const CLI::App* app; // the last that a word names
    std::string named;   // "remora node"
    std::size_t words;   // of args
};

Walk walk(const CLI::App& program, const std::vector<std::string>& args) {
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

} // namespace

std::vector<std::string> expand_help(std::vector<std::string> args) {
    if (args.empty() || args.front() != "help")
        return args;
    args.erase(args.begin());
    args.emplace_back("--help");
    return args;
}

void check_verbs(const CLI::App& program, const std::vector<std::string>& args) {
    const Walk at = walk(program, args);
    const std::vector<std::string> names = names_in(*at.app);
    if (names.empty())
        return;
    if (at.words == args.size())
        throw Misuse("{} needs one of {}: see '{} --help'", at.named, fmt::join(names, ", "),
                     at.named);
    const std::string& word = args[at.words];
    if (word.starts_with("-"))
        return;
    auto far = [&](const std::string& name) { return distance(word, name); };
    const std::string& nearest = *std::ranges::min_element(names, {}, far);
    if (far(nearest) <= std::max<std::size_t>(1, word.size() / 3))
        throw Misuse("there is no command '{} {}': is it '{} {}'? See '{} --help'", at.named, word,
                     at.named, nearest, at.named);
    throw Misuse("there is no command '{} {}': see '{} --help'", at.named, word, at.named);
}

std::string named_command(const CLI::App& program, const std::vector<std::string>& args) {
    return walk(program, args).named;
}

} // namespace remora
