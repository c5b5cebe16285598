// SPDX-License-Identifier: GPL-2.0
// remora apply: makes this machine what /etc/remora declares, and removes what it made before and
// is no longer declared. Each resource by itself: one that fails doesn't keep the others back.
#include "remora/apply.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <ranges>

#include <nlohmann/json.hpp>

#include "remora/commands.hpp"
#include "remora/made.hpp"
#include "support/say.hpp"

namespace remora {

using declared::Section;

void Applying::begin(const std::string& resource) {
    if (entries_.empty() || entries_.back().resource != resource)
        entries_.push_back({resource, {}, {}});
}

void Applying::change(const std::string& done, const std::function<void()>& how) {
    if (!only_checks_)
        how();
    entries_.back().changes.push_back(done);
}

void Applying::fail(const std::string& why) {
    entries_.back().error = why;
}

namespace {

// In the order in which they are made; they are removed backwards.
const std::array kinds = {&apply_node, &apply_space, &apply_eqds, &apply_device};

struct ApplyOptions {
    std::string folder = "/etc/remora";
    std::vector<std::string> resources; // none: all
    bool check = false, json = false, wait = false, take = false, undo = false;

    bool is_meant(const std::string& resource) const {
        return resources.empty() || std::ranges::any_of(resources, [&](const std::string& each) {
                   return resource == each || resource.starts_with(each + "/");
               });
    }
};

// Each mistake is a line on standard error. One elsewhere doesn't keep resources back that are
// named and have none: a mistake about tunnels must not cost a boot its swap. Else the last mistake
// is the error that ends the program. So does a folder without files: it would declare nothing, and
// all that was made would go.
declared::State declared_state(const ApplyOptions& options) {
    const std::vector<declared::Source> sources = declared::read(options.folder);
    if (sources.empty())
        throw Misuse("there is no {0}/remora.conf: write it, name its folder by --config, or take "
                     "down what was made by --undo",
                     options.folder);
    declared::State state = declared::parse(sources);
    if (state.mistakes.empty())
        return state;
    const bool all_named_are_sound =
        !options.resources.empty() &&
        std::ranges::all_of(options.resources,
                            [&](const std::string& each) { return state.find(each) != nullptr; });
    const std::size_t warnings = state.mistakes.size() - (all_named_are_sound ? 0 : 1);
    for (std::size_t i = 0; i < warnings; i++)
        warn("remora: {}", state.mistakes[i].text());
    if (!all_named_are_sound)
        throw Misuse("{}", state.mistakes.back().text());
    return state;
}

template <typename Act>
void attempt(Applying& applying, const std::string& resource, const std::string& place, Act act) {
    applying.begin(resource);
    try {
        act();
    } catch (const Failure& failure) {
        applying.fail(place.empty() ? failure.what()
                                    : fmt::format("{}: {}", place, failure.what()));
    }
}

// A view or member of a space comes after the space.
std::vector<const Section*> in_order(std::vector<const Section*> sections) {
    std::ranges::stable_partition(sections, [](const Section* section) {
        return !section->find("read-only-of") && !section->find("member-of");
    });
    return sections;
}

void make_all(Applying& applying, const ApplyOptions& options, const declared::State& state) {
    for (const ApplyKind* kind : kinds)
        for (const Section* section : in_order(state.of(kind->name)))
            if (options.is_meant(section->resource()))
                attempt(applying, section->resource(),
                        fmt::format("{}:{}", section->place.file, section->place.line), [&] {
                            std::optional<Turn> turn;
                            if (!applying.only_checks())
                                turn = Turn::to_make(section->resource());
                            kind->make(applying, *section);
                        });
}

// Another process might be making it, or have taken it down meanwhile.
void remove_in_turn(Applying& applying, const ApplyKind& kind, const std::string& name) {
    const std::string resource = name.empty() ? kind.name : kind.name + "/" + name;
    std::optional<Turn> turn;
    if (!applying.only_checks())
        turn = Turn::to_remove(resource);
    if (const auto all = made(); all.contains(resource))
        kind.remove(applying, name, all.at(resource));
}

// Removes the resources that apply has made and `state` doesn't have.
void remove_all(Applying& applying, const ApplyOptions& options, const declared::State& state) {
    const auto all = made();
    for (auto kind = kinds.rbegin(); kind != kinds.rend(); kind++) {
        for (const std::string& resource : std::views::keys(all)) {
            const std::size_t slash = resource.find('/');
            const std::string name = slash == resource.npos ? "" : resource.substr(slash + 1);
            if (resource.substr(0, slash) != (*kind)->name || name.find('/') != name.npos ||
                !options.is_meant(resource) || state.find(resource))
                continue;
            attempt(applying, resource, "", [&] { remove_in_turn(applying, **kind, name); });
        }
    }
}

void check_resources(const ApplyOptions& options, const declared::State& state) {
    const auto all = made();
    for (const std::string& resource : options.resources)
        if (!state.find(resource) && !all.contains(resource) &&
            std::ranges::find(kinds, resource, &ApplyKind::name) == kinds.end())
            throw Misuse("'{}' is not declared in {}: write node, space/ID, device/NAME or "
                         "eqds/DEV",
                         resource, options.folder);
}

void print_json(const Applying& applying) {
    auto list = nlohmann::ordered_json::array();
    for (const Applying::Entry& entry : applying.entries()) {
        const char* state = !entry.error.empty()     ? "failed"
                            : entry.changes.empty()  ? "same"
                            : applying.only_checks() ? "to-be-changed"
                                                     : "changed";
        list.push_back(
            {{"resource", entry.resource}, {"state", state}, {"changes", entry.changes}});
        if (!entry.error.empty())
            list.back()["error"] = entry.error;
    }
    fmt::print("{}\n", list.dump(2));
}

void print_text(const Applying& applying) {
    for (const Applying::Entry& entry : applying.entries())
        for (const std::string& change : entry.changes)
            fmt::print("{}: {}{}\n", entry.resource, applying.only_checks() ? "to be " : "",
                       change);
}

void apply(const ApplyOptions& options) {
    if (options.undo && options.check)
        throw Misuse("--undo and --check: give one of them");
    Applying applying(options.check, options.wait, options.take);
    // --undo needs no file: at a shutdown a mistake there must not keep anything back.
    const declared::State state = options.undo ? declared::State{} : declared_state(options);
    if (!options.undo)
        check_resources(options, state);
    remove_all(applying, options, state);
    make_all(applying, options, state);
    if (options.json)
        print_json(applying);
    else
        print_text(applying);
    const auto failed = [](const Applying::Entry& entry) { return !entry.error.empty(); };
    for (const Applying::Entry& entry : applying.entries())
        if (failed(entry))
            warn("remora: {}: {}", entry.resource, entry.error);
    if (std::ranges::any_of(applying.entries(), failed))
        throw Ended{1};
    if (options.check && std::ranges::any_of(applying.entries(), [](const Applying::Entry& entry) {
            return !entry.changes.empty();
        }))
        throw Ended{4};
}

} // namespace

void add_apply_command(CLI::App& program) {
    CLI::App* command = program.add_subcommand("apply", "Make the machine what /etc/remora says");
    auto options = std::make_shared<ApplyOptions>();
    command->add_option("RESOURCE", options->resources,
                        "node, space/ID, device/NAME or eqds/DEV, or space, device, eqds for "
                        "each of those; default all");
    command->add_flag("--check", options->check,
                      "Change nothing; exit code 4: something would be changed");
    command->add_flag("--undo", options->undo, "Take down what was made");
    command->add_flag("--wait", options->wait, "Wait for nodes that don't answer");
    command->add_flag("--take", options->take,
                      "Take names of disks over from another machine, which is gone");
    command->add_flag("--json", options->json, "Print JSON");
    command->add_option("--config", options->folder, "FOLDER; default /etc/remora");
    command->callback([options] { apply(*options); });
}

} // namespace remora
