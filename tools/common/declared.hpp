// SPDX-License-Identifier: GPL-2.0
// The state that /etc/remora declares for a machine (remora.conf(5)):
//
//     [device db]
//     node = 10.0.0.2
//     size = 8G
//
// Nothing here looks at the machine: a text becomes sections, or mistakes with their lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace remora::declared {

struct Place {
    std::string file;
    unsigned line;
};

struct Value {
    std::string key, text;
    unsigned line;
};

struct Section {
    std::string kind, name; // "device", "db"; a node has no name
    Place place;
    std::vector<Value> values;

    std::string resource() const; // "device/db", "node"
    // The value; nullptr: the key isn't there. all() has each value of a key that repeats.
    const std::string* find(std::string_view key) const;
    std::vector<std::string> all(std::string_view key) const;
    // False if it isn't there, unless told otherwise.
    bool is_on(std::string_view key, bool otherwise = false) const;
};

struct Mistake {
    Place place;
    std::string what;

    std::string text() const; // FILE:LINE: the fault: the remedy
};

struct State {
    std::vector<Section> sections; // without those that have a mistake
    std::vector<Mistake> mistakes;

    const Section* find(std::string_view resource) const;
    std::vector<const Section*> of(std::string_view kind) const;
};

struct Source {
    std::string file, text;
};

// remora.conf, then remora.conf.d/*.conf by their names; a file that isn't there declares nothing.
// Throws Failure if one can't be read.
std::vector<Source> read(const std::string& folder);

State parse(const std::vector<Source>& sources);

} // namespace remora::declared
