// SPDX-License-Identifier: GPL-2.0
#include "remora-node/command.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "remora/offload.h"
#include "support/failure.hpp"

namespace remora::daemon {

namespace {

using nlohmann::json;

// The members of a request. Each is taken once; one that is left over is an error.
class Members {
public:
    explicit Members(std::string_view line) : object_(json::parse(line, nullptr, false)) {
        if (!object_.is_object())
            throw Misuse("a request is a line with an object of JSON: {{\"verb\": \"status\"}}");
    }
    ~Members() {
        // No key stays in memory that is used for other things later.
        for (auto& member : object_)
            if (auto* text = member.get_ptr<json::string_t*>())
                explicit_bzero(text->data(), text->size());
    }
    Members(const Members&) = delete;
    Members& operator=(const Members&) = delete;

    const std::string& text(const char* name) {
        auto member = object_.find(name);
        if (member == object_.end() || !member->is_string())
            throw Misuse("the request has no string \"{}\"", name);
        taken_.insert(name);
        return member->get_ref<const std::string&>();
    }
    // 0: the member is optional and absent.
    std::uint64_t number(const char* name, std::uint64_t max, bool may_lack) {
        auto member = object_.find(name);
        if (member == object_.end() && may_lack)
            return 0;
        if (member == object_.end() || !member->is_number_unsigned() ||
            member->get<std::uint64_t>() > max || !member->get<std::uint64_t>())
            throw Misuse("the request has no number \"{}\" from 1 to {}", name, max);
        taken_.insert(name);
        return member->get<std::uint64_t>();
    }
    // Empty: the member is absent.
    std::vector<std::uint32_t> numbers(const char* name) {
        return list<std::uint32_t>(name, "numbers of 32 bits", [](const json& each) {
            return each.is_number_unsigned() && each.get<std::uint64_t>() <= ~std::uint32_t{0};
        });
    }
    std::vector<std::string> texts(const char* name) {
        return list<std::string>(name, "strings",
                                 [](const json& each) { return each.is_string(); });
    }
    bool flag(const char* name) {
        auto member = object_.find(name);
        if (member == object_.end())
            return false;
        if (!member->is_boolean())
            throw Misuse("\"{}\" is neither true nor false", name);
        taken_.insert(name);
        return member->get<bool>();
    }
    void check_all_taken() const {
        for (const auto& [name, value] : object_.items())
            if (!taken_.contains(name))
                throw Misuse("the request's verb doesn't know the member \"{}\"", name);
    }

private:
    template <typename T>
    std::vector<T> list(const char* name, const char* of, std::predicate<const json&> auto is_one) {
        auto member = object_.find(name);
        if (member == object_.end())
            return {};
        taken_.insert(name);
        if (!member->is_array() || !std::ranges::all_of(*member, is_one))
            throw Misuse("\"{}\" is not a list of {}", name, of);
        return member->get<std::vector<T>>();
    }

    json object_;
    std::set<std::string> taken_;
};

Command::Verb verb_of(const std::string& text) {
    using enum Command::Verb;
    static constexpr std::pair<std::string_view, Command::Verb> verbs[] = {
        {"status", status},
        {"space add", space_add},
        {"space del", space_del},
        {"space revoke", space_revoke},
        {"space list", space_list},
        {"regions", regions},
        {"stop", stop},
        {"offload load", offload_load},
        {"offload remove", offload_remove},
        {"offload list", offload_list},
    };
    for (const auto& [name, verb] : verbs)
        if (name == text)
            return verb;
    throw Misuse("unknown verb: use status, space add, space del, space revoke, space list, "
                 "regions, offload load, offload remove, offload list or stop");
}

} // namespace

Command parse_command(std::string_view line) {
    static constexpr std::uint64_t id_max = std::numeric_limits<std::uint32_t>::max();
    Members members(line);
    Command command{};
    command.verb = verb_of(members.text("verb"));
    bool adds = command.verb == Command::Verb::space_add;
    const bool lists = command.verb == Command::Verb::regions;
    const bool loads = command.verb == Command::Verb::offload_load;
    const bool removes = command.verb == Command::Verb::offload_remove;
    if (adds || lists || loads || removes || command.verb == Command::Verb::space_del ||
        command.verb == Command::Verb::space_revoke)
        command.space = static_cast<std::uint32_t>(members.number("space", id_max, false));
    if (adds) {
        command.key = key_parse(members.text("key"), "of the request");
        command.quota_bytes =
            members.number("quota_bytes", std::numeric_limits<std::uint64_t>::max(), true);
        command.read_only_of =
            static_cast<std::uint32_t>(members.number("read_only_of", id_max, true));
        command.member_of = static_cast<std::uint32_t>(members.number("member_of", id_max, true));
        command.sealed_only = members.flag("sealed_only");
        if (!!command.quota_bytes + !!command.read_only_of + !!command.member_of > 1)
            throw Misuse("quota_bytes, read_only_of and member_of exclude each other");
    }
    if (loads) {
        command.offload = members.text("file");
        command.clients = members.numbers("clients");
        command.links = members.texts("links");
        command.budget_us =
            static_cast<std::uint32_t>(members.number("budget_us", RMEM_BUDGET_US_MAX, true));
    }
    if (removes)
        command.offload = members.text("name");
    if (lists)
        command.from = members.number("from", std::numeric_limits<std::uint64_t>::max(), true);
    if (command.verb == Command::Verb::space_del)
        command.force = members.flag("force");
    members.check_all_taken();
    return command;
}

} // namespace remora::daemon
