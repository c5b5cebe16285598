// SPDX-License-Identifier: GPL-2.0
#include "common/declared.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <net/if.h>

#include "common/nearest.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::declared {

namespace {

constexpr std::string_view blanks = " \t\r\v\f";

// ---- values ----

using Check = std::function<void(const std::string&)>;

void check_size(const std::string& text) {
    if (!parse_size(text))
        throw Misuse("a size of 0: write one, such as 8G");
}

void check_disk_size(const std::string& text) {
    check_size(text);
    if (parse_size(text) % 4096)
        throw Misuse("size {} is not a multiple of 4096: use one, such as 512M", text);
}

void check_seconds(const std::string& text) {
    parse_seconds_ms(text);
}

Check number(std::uint64_t min, std::uint64_t max) {
    return [=](const std::string& text) { parse_number(text, min, max, "the value"); };
}

Check one_of(std::vector<std::string> words) {
    return [words = std::move(words)](const std::string& text) {
        if (std::ranges::find(words, text) == words.end())
            throw Misuse("'{}' is none of its values: write {}", text, fmt::join(words, ", "));
    };
}

const Check yes_or_no = one_of({"yes", "no"});

void check_path(const std::string& text) {
    if (!text.starts_with("/"))
        throw Misuse("'{}' is not an absolute path: begin it with /", text);
}

void check_node(const std::string& text) {
    if (text.find_first_of(" \t") != text.npos)
        throw Misuse("'{}' is not a node: write HOST, HOST:PORT or TRANSPORT:ADDRESS", text);
}

void check_link(const std::string& text) {
    if (text.size() >= IFNAMSIZ || text.find_first_of("/ \t:") != text.npos)
        throw Misuse("'{}' is not a network device: 'ip link' lists them", text);
}

void check_tos(const std::string& text) {
    if (text != "inherit")
        number(0, 255)(text);
}

std::vector<std::string> words_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> words;
    for (std::string word; stream >> word;)
        words.push_back(word);
    return words;
}

bool is_address(const std::string& text) {
    in6_addr any{};
    return inet_pton(AF_INET, text.c_str(), &any) == 1 ||
           inet_pton(AF_INET6, text.c_str(), &any) == 1;
}

void check_prefix(const std::string& text) {
    const std::string address = text.substr(0, text.find('/'));
    if (!is_address(address))
        throw Misuse("'{}' is not a prefix: write ADDRESS or ADDRESS/LENGTH", text);
    if (address.size() < text.size())
        parse_number(text.substr(address.size() + 1), 0,
                     address.find(':') == address.npos ? 32 : 128, "the prefix' length");
}

void check_map(const std::string& text) {
    const std::vector<std::string> words = words_of(text);
    if (words.size() != 2 || !is_address(words[1]))
        throw Misuse("'{}' is not a map: write PREFIX PEER", text);
    check_prefix(words[0]);
}

void check_share(const std::string& text) {
    const std::vector<std::string> words = words_of(text);
    if (words.size() != 3)
        throw Misuse("'{}' is not a share: write PREFIX PRIORITY WEIGHT", text);
    check_prefix(words[0]);
    parse_number(words[1], 0, 7, "the priority");
    parse_number(words[2], 1, 1024, "the weight");
}

// ---- kinds of sections ----

struct Key {
    std::string name;
    Check check;
    bool is_needed = false;
    bool repeats = false;
};

struct Kind {
    std::string name;
    std::string instance; // of the name, in a heading; empty: sections have no name
    Check check_name;
    std::vector<Key> keys;
    std::function<void(const Section&)> check_whole; // or none

    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const Key& key : keys)
            names.push_back(key.name);
        return names;
    }
};

constexpr std::uint64_t u32_max = ~std::uint32_t{0};

void check_device_name(const std::string& name) {
    constexpr std::size_t name_max = 48;
    auto is_letter = [](unsigned char c) { return c < 128 && std::isalnum(c); };
    auto is_valid = [&](char c) { return is_letter(c) || std::strchr("_-.", c); };
    if (name.size() > name_max || !is_letter(name.front()) || !std::ranges::all_of(name, is_valid))
        throw Misuse("'{}' is not a name: use up to {} letters, digits, _ - and ., a letter or "
                     "digit first",
                     name, name_max);
}

// The device also names a unit of systemd.
void check_eqds_name(const std::string& name) {
    check_link(name);
    check_device_name(name);
}

void check_space_name(const std::string& name) {
    if (fmt::to_string(parse_space_id(name)) != name)
        throw Misuse("'{}' is not the id of a space: write it as {}", name, parse_space_id(name));
}

void check_space(const Section& space) {
    if (!!space.find("quota") + !!space.find("read-only-of") + !!space.find("member-of") > 1)
        throw Misuse("quota, read-only-of and member-of exclude each other: keep one");
}

void check_device(const Section& device) {
    const bool disk = device.find("size"), swap = device.is_on("swap");
    if (disk == device.is_on("programs"))
        throw Misuse("a device is a disk with a size, or has programs = yes: write one of them");
    if (!disk && (swap || device.is_on("keep")))
        throw Misuse("swap and keep are for disks: add a size");
    if (swap && device.is_on("keep"))
        throw Misuse("swap is of no use after a restart: remove keep");
    if (!swap && (device.find("priority") || device.find("discard")))
        throw Misuse("priority and discard are for swap: add swap = yes");
}

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> table = {
        {"node",
         "",
         {},
         {{"memory", check_size, true},
          {"page", check_size},
          {"port", number(1, 65535)},
          {"pool", number(2, u32_max)},
          {"sessions", number(1, u32_max)},
          {"regions", number(1, u32_max)},
          {"spaces", number(1, u32_max)},
          {"session-idle", check_seconds}},
         {}},
        {"space",
         "ID",
         check_space_name,
         {{"key", check_path, true},
          {"quota", check_size},
          {"read-only-of", [](const std::string& text) { parse_space_id(text); }},
          {"member-of", [](const std::string& text) { parse_space_id(text); }}},
         check_space},
        {"device",
         "NAME",
         check_device_name,
         {{"node", check_node, true},
          {"key", check_path, true},
          {"space", [](const std::string& text) { parse_space_id(text); }},
          {"size", check_disk_size},
          {"programs", yes_or_no},
          {"keep", yes_or_no},
          {"integrity", one_of({"link", "digest", "full"})},
          {"fail-after", check_seconds},
          {"queues", number(1, u32_max)},
          {"swap", yes_or_no},
          {"priority", number(0, 32767)},
          {"discard", yes_or_no}},
         check_device},
        {"eqds",
         "DEV",
         check_eqds_name,
         {{"link", check_link, true},
          {"key", check_path},
          {"ttl", number(0, 255)},
          {"tos", check_tos},
          {"window", number(1, 512)},
          {"rdma", one_of({"pause", "cnp"})},
          {"tunnels", number(1, 16384)},
          {"memory", check_size},
          {"map", check_map, false, true},
          {"allow", check_prefix, false, true},
          {"share", check_share, false, true}},
         {}},
    };
    return table;
}

// ---- the text ----

std::string trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(blanks);
    if (begin == text.npos)
        return {};
    return std::string(text.substr(begin, text.find_last_not_of(blanks) - begin + 1));
}

// "; is it X?", if there is a word that is near.
std::string is_it(const std::string& word, const std::vector<std::string>& known) {
    const std::string near = nearest(word, known);
    return near.empty() ? fmt::format(": write one of {}", fmt::join(known, ", "))
                        : fmt::format(": is it '{}'?", near);
}

class Reader {
public:
    State read(const std::vector<Source>& sources) {
        for (const Source& source : sources)
            read(source);
        check_across();
        std::erase_if(state_.sections, [&](const Section& section) {
            return std::ranges::find(spoilt_, section.resource()) != spoilt_.end();
        });
        std::ranges::stable_sort(state_.mistakes, {}, [&](const Mistake& mistake) {
            return std::pair(order_of(sources, mistake.place.file), mistake.place.line);
        });
        return std::move(state_);
    }

private:
    static std::size_t order_of(const std::vector<Source>& sources, const std::string& file) {
        return std::ranges::find(sources, file, &Source::file) - sources.begin();
    }

    void read(const Source& source) {
        std::istringstream lines(source.text);
        place_ = {source.file, 0};
        skips_ = false;
        for (std::string line; std::getline(lines, line);) {
            place_.line++;
            const std::string text = trimmed(line);
            if (text.empty() || text.front() == '#' || text.front() == ';')
                continue;
            if (std::ranges::any_of(text, [](unsigned char c) { return c < ' ' && c != '\t'; }))
                fail("the line has a control character: remove it");
            else if (text.front() == '[')
                begin(text);
            else
                take(text);
        }
        end();
    }

    void fail(const std::string& what) { fail(place_, what); }
    void fail(const Place& place, const std::string& what) {
        state_.mistakes.push_back({place, what});
        good_ = false;
    }

    // The heading of a section. After a heading with a mistake its keys are skipped, for their kind
    // is unknown.
    void begin(const std::string& text) {
        end();
        kind_ = nullptr;
        skips_ = true;
        if (text.back() != ']')
            return fail("the heading has no ] at its end");
        const std::vector<std::string> words = words_of(text.substr(1, text.size() - 2));
        std::vector<std::string> known;
        for (const Kind& kind : kinds())
            known.push_back(kind.name);
        const std::string word = words.empty() ? "" : words[0];
        auto found = std::ranges::find(kinds(), word, &Kind::name);
        if (found == kinds().end())
            return fail(fmt::format("there is no section [{}]{}", word, is_it(word, known)));
        if (words.size() != (found->instance.empty() ? 1 : 2))
            return fail(found->instance.empty()
                            ? fmt::format("[{}] has no name: remove '{}'", word, words[1])
                            : fmt::format("a section [{} {}] has one name", word, found->instance));
        section_ = {word, words.size() > 1 ? words[1] : "", place_, {}};
        try {
            if (found->check_name)
                found->check_name(section_.name);
        } catch (const Misuse& misuse) {
            return fail(misuse.what());
        }
        if (const Section* other = state_.find(section_.resource()))
            return fail(fmt::format("[{}] is in {}:{}, too: remove one",
                                    text.substr(1, text.size() - 2), other->place.file,
                                    other->place.line));
        kind_ = &*found;
        skips_ = false;
        good_ = true;
    }

    void take(const std::string& text) {
        if (skips_)
            return;
        if (!kind_)
            return fail("the line belongs to no section: write [node], [device NAME] ... before");
        const std::size_t equals = text.find('=');
        if (equals == text.npos)
            return fail(fmt::format("'{}' is not KEY = VALUE", text));
        const Value value{trimmed(text.substr(0, equals)), trimmed(text.substr(equals + 1)),
                          place_.line};
        auto key = std::ranges::find(kind_->keys, value.key, &Key::name);
        if (key == kind_->keys.end())
            return fail(fmt::format("[{}] has no key '{}'{}", kind_->name, value.key,
                                    is_it(value.key, kind_->names())));
        if (value.text.empty())
            return fail(fmt::format("{} has no value: write one, or remove the line", value.key));
        if (section_.find(value.key) && !key->repeats)
            return fail(fmt::format("{} is there twice: remove one", value.key));
        try {
            key->check(value.text);
        } catch (const Misuse& misuse) {
            return fail(fmt::format("{}: {}", value.key, misuse.what()));
        }
        section_.values.push_back(value);
    }

    // The section as a whole: its mistakes are told where it begins.
    void end() {
        if (!kind_)
            return;
        if (good_)
            check_whole();
        if (!good_)
            spoilt_.push_back(section_.resource());
        state_.sections.push_back(std::move(section_));
        kind_ = nullptr;
    }

    void check_whole() {
        for (const Key& key : kind_->keys)
            if (key.is_needed && !section_.find(key.name))
                fail(section_.place,
                     fmt::format("{} is missing in [{}]", key.name, title(section_)));
        try {
            if (good_ && kind_->check_whole)
                kind_->check_whole(section_);
        } catch (const Misuse& misuse) {
            fail(section_.place, misuse.what());
        }
    }

    static std::string title(const Section& section) {
        return section.name.empty() ? section.kind
                                    : fmt::format("{} {}", section.kind, section.name);
    }

    void check_across() {
        for (const Section* space : state_.of("space")) {
            const std::string* base = space->find("read-only-of");
            base = base ? base : space->find("member-of");
            good_ = true;
            if (!state_.find("node"))
                fail(space->place, "a space belongs to a node: add [node]");
            else if (base && !state_.find("space/" + *base))
                fail(space->place, fmt::format("there is no [space {}] whose memory it is", *base));
            if (!good_)
                spoilt_.push_back(space->resource());
        }
    }

    State state_;
    std::vector<std::string> spoilt_;
    Place place_;
    Section section_;
    const Kind* kind_ = nullptr; // of section_; nullptr: there is none
    bool skips_ = false;
    bool good_ = true;
};

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    if (file && file.peek() != std::ifstream::traits_type::eof())
        text << file.rdbuf();
    if (!file)
        throw Failure("can't read {}: {}", path.string(), std::strerror(errno));
    return text.str();
}

} // namespace

std::string Section::resource() const {
    return name.empty() ? kind : fmt::format("{}/{}", kind, name);
}

const std::string* Section::find(std::string_view key) const {
    auto found = std::ranges::find(values, key, &Value::key);
    return found == values.end() ? nullptr : &found->text;
}

std::vector<std::string> Section::all(std::string_view key) const {
    std::vector<std::string> texts;
    for (const Value& value : values)
        if (value.key == key)
            texts.push_back(value.text);
    return texts;
}

bool Section::is_on(std::string_view key, bool otherwise) const {
    const std::string* text = find(key);
    return text ? *text == "yes" : otherwise;
}

std::string Mistake::text() const {
    return fmt::format("{}:{}: {}", place.file, place.line, what);
}

const Section* State::find(std::string_view resource) const {
    auto found = std::ranges::find(sections, resource, &Section::resource);
    return found == sections.end() ? nullptr : &*found;
}

std::vector<const Section*> State::of(std::string_view kind) const {
    std::vector<const Section*> found;
    for (const Section& section : sections)
        if (section.kind == kind)
            found.push_back(&section);
    return found;
}

std::vector<Source> read(const std::string& folder) {
    namespace fs = std::filesystem;
    std::vector<fs::path> paths;
    const fs::path main = fs::path(folder) / "remora.conf";
    const fs::path more = fs::path(folder) / "remora.conf.d";
    std::error_code error;
    if (fs::is_directory(more, error))
        for (const auto& each : fs::directory_iterator(more))
            if (each.path().extension() == ".conf")
                paths.push_back(each.path());
    std::ranges::sort(paths);
    if (fs::exists(main, error))
        paths.insert(paths.begin(), main);
    std::vector<Source> sources;
    for (const fs::path& path : paths)
        sources.push_back({path.string(), text_of(path)});
    return sources;
}

State parse(const std::vector<Source>& sources) {
    return Reader().read(sources);
}

} // namespace remora::declared
