// SPDX-License-Identifier: GPL-2.0
#include "remora/complete.hpp"

#include <algorithm>

#include "remora/doctor.hpp"
#include "remora/verbs.hpp"

namespace remora {

namespace {

constexpr const char* files = ":files\n";

std::string candidate(const std::string& word, const std::string& begun, const std::string& text) {
    return word.starts_with(begun) ? word + "\t" + text + "\n" : "";
}

std::string device_names(const std::string& begun) {
    const bool with_folder = begun.starts_with("/");
    std::string text;
    for (const SeenDevice& device : Machine("/").devices())
        text += candidate((with_folder ? "/dev/" : "") + device.name, begun,
                          device.node + ", " + device.state);
    return text;
}

// A value's kind is the word in capitals that stands for it in the help.
bool names(const std::string& help, std::string_view kind) {
    const std::size_t at = help.find(kind);
    const auto is_capital = [&](std::size_t n) { return n < help.size() && std::isupper(help[n]); };
    return at != help.npos && !is_capital(at + kind.size()) && !(at && is_capital(at - 1));
}

std::string values(const CLI::Option& option, const std::string& begun) {
    const std::string help = option.get_name() + " " + option.get_description();
    if (names(option.get_name(), "DEVICE"))
        return device_names(begun);
    if (names(help, "FILE") || names(help, "PATH") || names(help, "MAP") ||
        names(help, "DIRECTORY") || names(help, "KEYFILE"))
        return files;
    return {};
}

std::string commands(const CLI::App& app, const std::string& begun) {
    std::string text;
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; }))
        if (!each->get_group().empty()) // else it is hidden
            text += candidate(each->get_name(), begun, each->get_description());
    return text;
}

std::string options(const CLI::App& app, const std::string& begun) {
    std::string text;
    for (const CLI::Option* each : app.get_options())
        for (const std::string& name : each->get_lnames())
            text += candidate("--" + name, begun, each->get_description());
    return text;
}

bool takes_value(const CLI::Option& option) {
    return option.get_items_expected_max() > 0;
}

// The option of that word; nullptr: it is none.
const CLI::Option* option_of(const CLI::App& app, const std::string& word) {
    for (const CLI::Option* each : app.get_options())
        if (word.starts_with("-") && each->check_name(word))
            return each;
    return nullptr;
}

// The positional that the next word is for; nullptr: there is none left.
const CLI::Option* positional_after(const CLI::App& app, const std::vector<std::string>& words) {
    std::size_t given = 0;
    for (std::size_t n = 0; n < words.size(); n++) {
        const CLI::Option* option = option_of(app, words[n]);
        if (option && takes_value(*option))
            n++;
        else if (!option)
            given++;
    }
    for (const CLI::Option* each : app.get_options())
        if (each->get_positional() && (each->get_items_expected_max() > 1 || given-- == 0))
            return each;
    return nullptr;
}

} // namespace

std::string completions(const CLI::App& program, const std::vector<std::string>& words) {
    if (words.empty())
        return commands(program, {});
    const std::string& begun = words.back();
    std::vector<std::string> before(words.begin(), words.end() - 1);
    const bool help = !before.empty() && before.front() == "help";
    if (help)
        before.erase(before.begin());
    const Walk at = walk_verbs(program, before);
    before.erase(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(at.words));
    if (!before.empty())
        if (const CLI::Option* option = option_of(*at.app, before.back());
            option && takes_value(*option))
            return values(*option, begun);
    if (begun.starts_with("-"))
        return options(*at.app, begun);
    if (const std::string text = commands(*at.app, begun); !text.empty() || help)
        return text + (words.size() == 1 ? candidate("help", begun, "Help of a command") : "");
    const CLI::Option* positional = positional_after(*at.app, before);
    return positional ? values(*positional, begun) : "";
}

} // namespace remora
