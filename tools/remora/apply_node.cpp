// SPDX-License-Identifier: GPL-2.0
// [node], [space ID]: the kernel's node. apply never restarts a node, nor deletes a space that has
// regions, since clients would lose their memory.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "remora/apply.hpp"
#include "remora/made.hpp"
#include "remora/nodes.hpp"
#include "support/parse.hpp"

namespace remora {

namespace {

using declared::Section;

// The kernel's node, if there is one that is started.
std::optional<NodeReport> started_node() {
    try {
        NodeReport report = kernel_report();
        if (report.started)
            return report;
    } catch (const netlink::NoFamily&) {
    }
    return std::nullopt;
}

std::string identity(const NodeReport& node) {
    return fmt::format("{:016x}", node.boot);
}

std::optional<std::string> text_of(const Section& section, std::string_view key) {
    const std::string* text = section.find(key);
    return text ? std::optional(*text) : std::nullopt;
}

StartOptions start_options(const Section& node) {
    StartOptions options;
    options.memory = *node.find("memory");
    options.page = text_of(node, "page").value_or("");
    options.idle = text_of(node, "session-idle").value_or("");
    options.port = text_of(node, "port");
    options.pool = text_of(node, "pool");
    options.sessions = text_of(node, "sessions");
    options.regions = text_of(node, "regions");
    options.spaces_max = text_of(node, "spaces");
    return options;
}

// The memory that START reserves for this size: whole pages.
std::uint64_t whole_pages(std::uint64_t bytes, std::uint64_t page_bytes) {
    return page_bytes ? bytes / page_bytes * page_bytes : bytes;
}

void check_node(const NodeReport& is, const Section& node) {
    std::vector<std::string> differences;
    auto differs = [&](std::string_view key, std::uint64_t value, std::uint64_t declared) {
        if (node.find(key) && value != declared)
            differences.push_back(
                fmt::format("{} is {}, declared as {}", key, value, *node.find(key)));
    };
    auto number = [&](std::string_view key) {
        const std::string* text = node.find(key);
        return text ? parse_number(*text, 0, UINT64_MAX, key) : 0;
    };
    differs("memory", is.memory_bytes,
            whole_pages(parse_size(*node.find("memory")), is.page_bytes));
    if (const std::string* page = node.find("page"))
        differs("page", is.page_bytes, parse_size(*page));
    differs("port", is.port, number("port"));
    differs("pool", is.pool_pages, number("pool"));
    differs("sessions", is.sessions_max, number("sessions"));
    differs("regions", is.regions_max, number("regions"));
    differs("spaces", is.spaces_max, number("spaces"));
    if (const std::string* idle = node.find("session-idle"))
        differs("session-idle", is.session_idle_ms, parse_seconds_ms(*idle));
    if (!differences.empty())
        throw Conflict("{}: a change needs 'remora node stop', which loses what it lends",
                       fmt::join(differences, ", "));
}

void make_node(Applying& applying, const Section& section) {
    if (auto node = started_node())
        return check_node(*node, section);
    applying.change("started", [&] {
        kernel_start(start_options(section));
        note_made("node", identity(kernel_report()));
    });
}

void remove_node(Applying& applying, const std::string&, const std::string& made) {
    const auto node = started_node();
    if (node && identity(*node) == made) {
        if (node->regions)
            throw Conflict("it lends {} regions, which its end would lose: 'remora node stop'",
                           node->regions);
        applying.change("stopped", [] { kernel_stop(); });
    }
    if (!applying.only_checks())
        forget_made("node");
}

std::optional<SpaceReport> space_of(const std::string& id) {
    if (!started_node())
        return std::nullopt;
    const std::vector<SpaceReport> spaces = kernel_spaces();
    auto found = std::ranges::find(spaces, parse_space_id(id), &SpaceReport::id);
    return found == spaces.end() ? std::nullopt : std::optional(*found);
}

std::string add_text(const Section& space) {
    std::string text = fmt::format("{}={}", space.name, *space.find("key"));
    if (const std::string* quota = space.find("quota"))
        text += fmt::format(",quota={}", *quota);
    if (const std::string* base = space.find("read-only-of"))
        text += fmt::format(",read-only-of={}", *base);
    if (const std::string* base = space.find("member-of"))
        text += fmt::format(",member-of={}", *base);
    return text;
}

void check_space(const SpaceReport& is, const Section& space) {
    const std::string* quota = space.find("quota");
    const auto id_of = [&](const char* key) {
        const std::string* base = space.find(key);
        return base ? parse_space_id(*base) : 0;
    };
    if (is.revoked)
        throw Conflict("its key was revoked: its memory stays for its members and views until "
                       "'remora node space del {}'",
                       space.name);
    // The node rounds a quota to its pages.
    const std::uint64_t page_bytes = kernel_report().page_bytes;
    const std::uint64_t declared = quota ? parse_size(*quota) : 0;
    if (whole_pages(is.quota_bytes, page_bytes) != whole_pages(declared, page_bytes) ||
        is.read_only_of != id_of("read-only-of") || is.member_of != id_of("member-of"))
        throw Conflict("its quota is {}, {}: a change needs 'remora node space del {}'",
                       is.quota_bytes ? size_text(is.quota_bytes) : "none",
                       is.read_only_of ? fmt::format("it is a view of {}", is.read_only_of)
                       : is.member_of  ? fmt::format("it is a member of {}", is.member_of)
                                       : "its memory is its own",
                       space.name);
}

// The node forgets a view or a member that is revoked. So one that apply added to this node, and
// that is gone, isn't added again: the files might still name the lost key.
void check_not_revoked(const Section& space) {
    if (!space.find("read-only-of") && !space.find("member-of"))
        return;
    const auto node = started_node();
    const auto all = made();
    const auto before = all.find(space.resource());
    if (node && before != all.end() && before->second == identity(*node))
        throw Conflict("it was revoked or deleted since it was added: if its key is a new one, "
                       "'remora node space add' adds it");
}

void make_space(Applying& applying, const Section& section) {
    if (auto space = space_of(section.name))
        return check_space(*space, section);
    check_not_revoked(section);
    applying.change("added", [&] {
        kernel_space_add(add_text(section));
        note_made(section.resource(), identity(kernel_report()));
    });
}

void remove_space(Applying& applying, const std::string& name, const std::string& made) {
    const auto node = started_node();
    if (node && identity(*node) == made && space_of(name))
        applying.change("deleted", [&] { kernel_space_del(parse_space_id(name), false); });
    if (!applying.only_checks())
        forget_made("space/" + name);
}

} // namespace

const ApplyKind apply_node{"node", make_node, remove_node};
const ApplyKind apply_space{"space", make_space, remove_space};

} // namespace remora
