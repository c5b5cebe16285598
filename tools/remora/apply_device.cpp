// SPDX-License-Identifier: GPL-2.0
/*
 * [device NAME]: a disk, or a device for programs. A device that is otherwise than declared is
 * never detached for that, since its content would be gone; one that is lost, and not in use, is
 * attached anew.
 */
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "remora/apply.hpp"
#include "remora/attach.hpp"
#include "remora/devices.hpp"
#include "remora/made.hpp"
#include "remora/swap.hpp"
#include "support/parse.hpp"
#include "support/random.hpp"

namespace remora {

namespace {

using declared::Section;

std::optional<Device> device_of(const std::string& name) {
    try {
        for (Device& each : devices(std::nullopt))
            if (each.attributes.string(RMEM_A_NAME) == name)
                return std::move(each);
    } catch (const netlink::NoFamily&) {
    }
    return std::nullopt;
}

// Known before the device is there, so a device of an apply that was killed is known as its own.
std::string identity_by(std::uint64_t cookie) {
    return fmt::format("cookie {:016x}", cookie);
}

// A device that an older module attached has no cookie.
std::string identity_by_region(const Device& device) {
    return fmt::format("{} {:016x} {:#x}", device.name(), device.number(RMEM_A_BOOT),
                       device.number(RMEM_A_ADDR));
}

std::string identity(const Device& device) {
    const std::uint64_t cookie = device.number(RMEM_A_COOKIE);
    return cookie ? identity_by(cookie) : identity_by_region(device);
}

bool is_ours(const Device& device, const std::string& resource) {
    const auto all = made();
    const auto found = all.find(resource);
    return found != all.end() && found->second == identity(device);
}

std::string text_or(const Section& section, std::string_view key, const std::string& otherwise) {
    const std::string* text = section.find(key);
    return text ? *text : otherwise;
}

AttachOptions attach_options(const Section& section) {
    auto optional = [&](std::string_view key) {
        const std::string* text = section.find(key);
        return text ? std::optional(*text) : std::nullopt;
    };
    AttachOptions options;
    options.node = *section.find("node");
    options.key_file = *section.find("key");
    options.integrity = text_or(section, "integrity", options.integrity);
    options.space = text_or(section, "space", options.space);
    options.size = optional("size");
    options.fail_after = optional("fail-after");
    options.queues = optional("queues");
    options.name = section.name;
    options.programs = section.is_on("programs");
    options.keep = section.is_on("keep");
    return options;
}

std::string attach_and_note(const Applying& applying, const Section& section) {
    const std::string resource = section.resource();
    AttachOptions options = attach_options(section);
    options.wait = applying.waits();
    // A device for programs has no region that could be taken.
    options.take = applying.takes() && options.size;
    options.cookie = random_value<std::uint64_t>() | 1;
    note_made(resource, identity_by(options.cookie));
    try {
        std::string path = attach(options);
        note_made(resource, identity(devices(path).front()));
        return path;
    } catch (const Failure&) {
        forget_made(resource);
        throw;
    }
}

std::vector<std::string> differences(const Device& device, const Section& section) {
    const AttachOptions declared = attach_options(section);
    std::vector<std::string> found;
    auto compare = [&](std::string_view key, const std::string& is, const std::string& other) {
        if (is != other)
            found.push_back(fmt::format("{} is {}, declared as {}", key, is, other));
    };
    const bool programs = device.number(RMEM_A_KIND) == RMEM_KIND_PROGRAMS;
    compare("programs", programs ? "yes" : "no", declared.programs ? "yes" : "no");
    compare("keep", device.attributes.has(RMEM_A_KEEP) ? "yes" : "no",
            declared.keep ? "yes" : "no");
    if (declared.size)
        compare("size", size_text(device.number(RMEM_A_BYTES)),
                size_text(parse_size(*declared.size)));
    compare("space", fmt::to_string(device.number(RMEM_A_SPACE)), declared.space);
    compare("integrity", name_of(integrity_names, device.number(RMEM_A_INTEGRITY)),
            declared.integrity);
    if (declared.fail_after)
        compare("fail-after", fmt::format("{} ms", device.number(RMEM_A_FAIL_AFTER_MS)),
                fmt::format("{} ms", parse_seconds_ms(*declared.fail_after)));
    if (!is_node(declared.node, device.node()))
        found.push_back(fmt::format("node is {}, declared as {}", device.node(), declared.node));
    return found;
}

// Whether the device has to be attached. Throws Conflict.
bool is_to_be_attached(Applying& applying, const std::optional<Device>& device,
                       const Section& section) {
    if (!device)
        return true;
    if (device->number(RMEM_A_STATE) == RMEM_DEVICE_LOST && !section.is_on("programs")) {
        if (device->number(RMEM_A_OPENERS))
            throw Conflict("{} has lost its content, and is in use: end that, then apply again",
                           device->name());
        applying.change("detached as it was lost", [&] { detach(device->name(), false); });
        return true;
    }
    if (const auto found = differences(*device, section); !found.empty())
        throw Conflict("{}: a change needs 'remora detach {}', which loses its content",
                       fmt::join(found, ", "), device->name());
    return false;
}

void make_swap(Applying& applying, const std::string& path, const Section& section) {
    SwapOptions options;
    options.discard = section.is_on("discard", true);
    if (const std::string* priority = section.find("priority"))
        options.priority = static_cast<int>(parse_number(*priority, 0, 32767, "priority"));
    applying.change("made swap", [&] { swap_start(path, options); });
}

void make_device(Applying& applying, const Section& section) {
    const std::optional<Device> device = device_of(section.name);
    std::string path = device ? "/dev/" + device->name() : "";
    const bool attaches = is_to_be_attached(applying, device, section);
    if (attaches) {
        applying.change("attached", [&] { path = attach_and_note(applying, section); });
        if (applying.only_checks())
            path.clear();
    }
    if (!section.is_on("swap") || (!path.empty() && swap_is_on(path)))
        return;
    if (!attaches && !is_ours(*device, section.resource()))
        throw Conflict("{} was not attached by 'remora apply', which erases nothing of it: swap to "
                       "it by hand, or 'remora detach {}'",
                       device->name(), device->name());
    make_swap(applying, path, section);
}

void remove_device(Applying& applying, const std::string& name, const std::string& noted) {
    const std::optional<Device> device = device_of(name);
    if (device && noted == identity(*device)) {
        const std::string path = "/dev/" + device->name();
        bool forced = false;
        if (swap_is_on(path))
            applying.change("swapped off", [&] { forced = swap_stop(path); });
        applying.change("detached", [&] { detach(device->name(), forced); });
    }
    if (!applying.only_checks())
        forget_made("device/" + name);
}

} // namespace

const ApplyKind apply_device{"device", make_device, remove_device};

} // namespace remora
