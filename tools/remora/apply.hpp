// SPDX-License-Identifier: GPL-2.0
// remora apply, by kinds of resources: apply_node.cpp, apply_eqds.cpp, apply_device.cpp.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/declared.hpp"
#include "support/failure.hpp"

namespace remora {

// A run of the command: its options, and its report.
class Applying {
public:
    struct Entry {
        std::string resource;
        std::vector<std::string> changes; // "attached"
        std::string error;                // empty: none
    };

    Applying(bool only_checks, bool waits, bool takes)
        : only_checks_(only_checks), waits_(waits), takes_(takes) {}

    // --wait, --take
    bool waits() const { return waits_; }
    bool takes() const { return takes_; }
    // Changes and failures from now on are this resource's.
    void begin(const std::string& resource);
    // The resource isn't as declared: how() changes that, unless this is a --check. done: a
    // participle, "attached".
    void change(const std::string& done, const std::function<void()>& how);
    void fail(const std::string& why);

    const std::vector<Entry>& entries() const { return entries_; }
    bool only_checks() const { return only_checks_; }

private:
    const bool only_checks_, waits_, takes_;
    std::vector<Entry> entries_;
};

// A resource was declared otherwise than it is, and changing it would do harm.
class Conflict : public Failure {
public:
    using Failure::Failure;
};

/*
 * make: makes the resource of a section, or changes nothing if it is there. remove: takes down a
 * resource that make made; identity tells it from a later one of that name. Both throw Failure.
 */
struct ApplyKind {
    std::string name;
    void (*make)(Applying& applying, const declared::Section& section);
    void (*remove)(Applying& applying, const std::string& name, const std::string& identity);
};

extern const ApplyKind apply_node, apply_space, apply_eqds, apply_device;

} // namespace remora
