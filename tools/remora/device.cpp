// SPDX-License-Identifier: GPL-2.0
/*
 * remora attach, detach: /dev/rmbN and /dev/rmemN come and go.
 *
 * The kernel attaches within the system call that sends the request. A signal ends the wait, and
 * the kernel then undoes its work. If the device existed before the kernel noticed the signal, this
 * program detaches it. So an interrupted attach leaves nothing behind.
 */
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "remora/attach.hpp"
#include "remora/commands.hpp"
#include "remora/devices.hpp"
#include "remora/machine.hpp"
#include "remora/signals.hpp"
#include "support/failure.hpp"
#include "support/key.hpp"
#include "support/parse.hpp"
#include "support/resolve.hpp"
#include "support/say.hpp"

namespace remora {

namespace {

using netlink::Request;

// ---- addresses ----

// As long as the kernel waits for the node, unless told otherwise.
constexpr std::uint32_t look_up_ms_default = 5000;

struct Address {
    std::vector<std::uint8_t> bytes; // 4 or 16; or none: the text as it is, for the kernel
    std::uint32_t scope;
    std::string text;
    std::uint16_t port;
};

Address address_of(const Resolved& found, std::uint16_t port) {
    char text[INET6_ADDRSTRLEN + 1] = {};
    if (found.address.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(found.address);
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&in.sin_addr);
        inet_ntop(AF_INET, bytes, text, sizeof(text));
        return {{bytes, bytes + 4}, 0, endpoint_text(text, port), port};
    }
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(found.address);
    const auto* bytes = in6.sin6_addr.s6_addr;
    inet_ntop(AF_INET6, bytes, text, sizeof(text));
    // An IPv4-mapped IPv6 address is reached by IPv4.
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
        return {{bytes + 12, bytes + 16}, 0, endpoint_text(text, port), port};
    return {{bytes, bytes + 16}, in6.sin6_scope_id, endpoint_text(text, port), port};
}

class LookUpFailed : public Failure {
public:
    using Failure::Failure;
};

std::vector<Address> look_up(const Endpoint& endpoint, std::chrono::milliseconds patience) {
    std::vector<Address> addresses;
    try {
        for (const Resolved& each :
             resolve(endpoint.host, endpoint.port, std::chrono::steady_clock::now() + patience))
            addresses.push_back(address_of(each, endpoint.port));
    } catch (const Failure& failure) {
        throw LookUpFailed("{}", failure.what());
    }
    if (addresses.empty())
        throw LookUpFailed("{} has no IPv4 and no IPv6 address", endpoint.host);
    const auto& first = addresses.front();
    if (first.bytes.size() == 16 && first.bytes[0] == 0xfe && (first.bytes[1] & 0xc0) == 0x80 &&
        !first.scope)
        throw Misuse("{} is link-local: write [{}%INTERFACE]", endpoint.host, endpoint.host);
    return addresses;
}

// Is text TRANSPORT:ADDRESS? HOST:PORT ends in digits, and an IPv6 address has no letter beyond f.
// Marlin's addresses are ports of a bridge, so they end in digits, too.
bool has_transport(std::string_view text) {
    if (text.starts_with("marlin:"))
        return true;
    auto name = text.substr(0, text.find(':'));
    auto rest = text.substr(std::min(name.size() + 1, text.size()));
    return rest.find_first_not_of("0123456789") != rest.npos &&
           name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == name.npos &&
           name.find_first_not_of("abcdef") != name.npos;
}

// The kernel parses the address behind a transport's name; this program looks up host names.
std::vector<Address> addresses_of(const std::string& node, std::chrono::milliseconds patience) {
    if (has_transport(node))
        return {{{}, 0, node, 0}};
    return look_up(parse_endpoint(node, default_port), patience);
}

// ---- attach ----

std::uint64_t disk_bytes(const std::string& size) {
    std::uint64_t bytes = parse_size(size);
    if (!bytes || bytes % 4096)
        throw Misuse("size {} is not a multiple of 4096: use one, such as 512M", size);
    return bytes;
}

constexpr std::uint32_t u32_max = std::numeric_limits<std::uint32_t>::max();

std::uint32_t fail_after_ms(const AttachOptions& options) {
    return parse_seconds_ms(*options.fail_after, options.programs ? 1 : 0,
                            options.programs ? RMEM_FAIL_AFTER_MS_PROGRAMS_MAX : u32_max,
                            "--fail-after");
}

Request attach_request(const AttachOptions& options) {
    auto number = [](const std::string& text, std::uint64_t min, std::uint64_t max,
                     std::string_view what) {
        return static_cast<std::uint32_t>(parse_number(text, min, max, what));
    };
    auto integrity = std::find(integrity_names.begin(), integrity_names.end(), options.integrity);
    if (integrity == integrity_names.end())
        throw Misuse("integrity '{}' is unknown: write link, digest, full or sealed",
                     options.integrity);
    if (options.programs == options.size.has_value())
        throw Misuse("write --size SIZE for a disk, or --programs; one of them");
    if ((options.keep || options.take) && !(options.size && options.name))
        throw Misuse("{} is for disks with a --name", options.keep ? "--keep" : "--take");

    Request request(RMEM_CMD_ATTACH);
    request.u8(RMEM_A_KIND, options.programs ? RMEM_KIND_PROGRAMS : RMEM_KIND_DISK);
    if (options.size)
        request.u64(RMEM_A_BYTES, disk_bytes(*options.size));
    request.u32(RMEM_A_SPACE, number(options.space, 1, u32_max, "space id"));
    request.u8(RMEM_A_INTEGRITY, static_cast<std::uint8_t>(integrity - integrity_names.begin()));
    if (options.fail_after)
        request.u32(RMEM_A_FAIL_AFTER_MS, fail_after_ms(options));
    if (options.timeout)
        request.u32(RMEM_A_TIMEOUT_MS,
                    parse_seconds_ms(*options.timeout, 1, RMEM_TIMEOUT_MS_MAX, "--timeout"));
    if (options.index)
        request.u32(RMEM_A_INDEX, number(*options.index, 0, RMEM_INDEX_MAX, "--index"));
    if (options.queues)
        request.u32(RMEM_A_QUEUES, number(*options.queues, 1, u32_max, "--queues"));
    if (options.name)
        request.string(RMEM_A_NAME, *options.name);
    if (options.keep)
        request.flag(RMEM_A_KEEP);
    if (options.take)
        request.flag(RMEM_A_TAKE);
    Key key = key_read_warning(options.key_file, "remora");
    request.bytes(RMEM_A_KEY, key.data(), key.size());
    return request;
}

// An older module refuses attributes that it doesn't know.
void add_owner(Request& request, const AttachOptions& options, std::uint32_t loaded_version) {
    const bool is_named_disk = options.name && !options.programs;
    if (loaded_version < 2) {
        if (is_named_disk)
            warn("remora: the loaded rmem is older and knows no owners of names: keep {} to this "
                 "machine until the next boot",
                 *options.name);
        return;
    }
    if (options.cookie)
        request.u64(RMEM_A_COOKIE, options.cookie);
    if (!is_named_disk)
        return;
    if (const auto owner = machine_owner())
        request.string(RMEM_A_OWNER, *owner);
    else
        warn("remora: no machine-id, so other machines can take the name {}: run "
             "systemd-machine-id-setup",
             *options.name);
}

void detach_by(netlink::Family& family, const DeviceName& name, bool force) {
    Request request(RMEM_CMD_DETACH);
    request.u32(RMEM_A_INDEX, name.index);
    if (!name.stem.empty())
        request.u8(RMEM_A_KIND, name.stem == "rmem" ? RMEM_KIND_PROGRAMS : RMEM_KIND_DISK);
    if (force)
        request.flag(RMEM_A_FORCE);
    family.call(std::move(request));
}

// udev can have a new device open for a moment, so retry; the last try is by force.
void detach_unwanted(netlink::Family& family, std::uint32_t index) {
    static constexpr int tries = 20;
    static constexpr timespec pause{0, 50'000'000};
    for (int i = 0; i < tries; i++) {
        try {
            return detach_by(family, {{}, index}, i + 1 == tries);
        } catch (const netlink::Refused& refused) {
            if (refused.error() != EBUSY)
                throw;
            nanosleep(&pause, nullptr);
        }
    }
}

// May another address of the same host succeed after this error?
bool of_the_way(int error) {
    return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
           error == ENETDOWN || error == EHOSTDOWN || error == ECONNREFUSED ||
           error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

std::uint32_t attach_to(netlink::Family& family, Request request, const Address& address) {
    if (address.bytes.empty()) {
        request.bytes(RMEM_A_ADDRESS, address.text.c_str(), address.text.size() + 1);
    } else {
        request.bytes(RMEM_A_NODE, address.bytes.data(), address.bytes.size());
        request.u16(RMEM_A_PORT, address.port);
    }
    if (address.scope)
        request.u32(RMEM_A_SCOPE, address.scope);
    auto index = static_cast<std::uint32_t>(
        family.call_interruptibly(std::move(request), signalled).number(RMEM_A_INDEX));
    if (signalled) {
        detach_unwanted(family, index);
        throw netlink::Interrupted();
    }
    return index;
}

// Whether a later try might succeed, when the node is there.
bool comes_and_goes(int error) {
    return of_the_way(error) || error == ESTALE || error == EAGAIN;
}

// The device's number; nothing: the node doesn't answer, *why says so. Throws Failure.
std::optional<std::uint32_t> try_attach(netlink::Family& family, const Request& request,
                                        const std::vector<Address>& addresses, std::string* why) {
    for (const Address& address : addresses) {
        try {
            return attach_to(family, request, address);
        } catch (const netlink::Refused& refused) {
            if (signalled)
                throw netlink::Interrupted();
            *why = fmt::format("can't attach to {}: {}", address.text, refused.what());
            if (!comes_and_goes(refused.error()))
                throw Failure("{}", *why);
            if (!of_the_way(refused.error()))
                break;
        }
    }
    return std::nullopt;
}

std::uint32_t attach_patiently(const AttachOptions& options) {
    Request request = attach_request(options);
    netlink::Family family = device_family();
    add_owner(request, options, family.loaded_version());
    const std::chrono::milliseconds patience(options.timeout ? parse_seconds_ms(*options.timeout)
                                                             : look_up_ms_default);
    std::string why, told;
    catch_signals();
    for (;;) {
        try {
            auto index = try_attach(family, request, addresses_of(options.node, patience), &why);
            if (index)
                return *index;
        } catch (const LookUpFailed& failed) {
            why = failed.what();
        }
        if (!options.wait)
            throw Failure("{}", why);
        if (why != told)
            warn("remora: {}; waiting", why);
        told = why;
        static constexpr timespec pause{1, 0};
        nanosleep(&pause, nullptr);
        if (signalled)
            throw netlink::Interrupted();
    }
}

// ---- detach ----

void detach_named(const std::string& device, bool force) {
    const std::string prefix = "/dev/remora/";
    if (!device.starts_with(prefix))
        return detach(device, force);
    const std::string name = device.substr(prefix.size());
    for (const Device& each : devices(std::nullopt))
        if (each.attributes.string(RMEM_A_NAME) == name)
            return detach(each.name(), force);
    throw Failure("there is no {}: 'remora status' lists the devices", device);
}

// The kernel bounds how many writes of a slow disk are under way. A network driver's worker that
// needs memory to receive into swaps pages out, and would wait there for answers that nothing
// receives.
void end_write_back_throttling(const std::string& disk) {
    const std::string path = fmt::format("/sys/block/{}/queue/wbt_lat_usec", disk);
    std::ofstream file(path);
    if (!file.is_open() && errno == ENOENT)
        return; // a kernel without it
    if (!(file << "0" << std::flush))
        warn("remora: can't write {}: {}; before {} becomes swap, 'echo 0 > {}'", path,
             std::strerror(errno), disk, path);
}

} // namespace

std::string attach(const AttachOptions& options) {
    try {
        const std::uint32_t index = attach_patiently(options);
        const std::string name = fmt::format("{}{}", options.programs ? "rmem" : "rmb", index);
        if (!options.programs)
            end_write_back_throttling(name);
        return "/dev/" + name;
    } catch (const netlink::Interrupted&) {
        throw Failure("attach interrupted: nothing is attached");
    }
}

bool is_node(const std::string& text, const std::string& address) {
    if (has_transport(text))
        return text == address || text == "udp:" + address;
    try {
        for (const Address& each :
             addresses_of(text, std::chrono::milliseconds(look_up_ms_default)))
            if (each.text == address)
                return true;
        return false;
    } catch (const LookUpFailed&) {
        return true;
    }
}

void detach(const std::string& device, bool force) {
    DeviceName name = parse_device(device);
    netlink::Family family = device_family();
    try {
        detach_by(family, name, force);
    } catch (const netlink::Refused& refused) {
        throw Failure(refused.error(), "can't detach {}{}: {}", name.stem, name.index,
                      refused.what());
    }
}

void add_device_commands(CLI::App& program) {
    CLI::App* attach_command = program.add_subcommand("attach", "Make remote memory a device");
    auto options = std::make_shared<AttachOptions>();
    attach_command
        ->add_option("NODE", options->node,
                     "HOST[:PORT], [IPV6]:PORT, marlin:PORT or TRANSPORT:ADDRESS")
        ->required();
    attach_command->add_option("--size", options->size, "SIZE of a disk, /dev/rmbN");
    attach_command->add_flag("--programs", options->programs,
                             "Device for programs, /dev/rmemN, instead of a disk");
    attach_command->add_option("--key", options->key_file, "Key FILE of the space")->required();
    attach_command->add_option("--space", options->space, "ID of the address space; default 1");
    attach_command->add_option("--integrity", options->integrity,
                               "Protection of data: link, digest, full or sealed; default digest");
    attach_command->add_option("--fail-after", options->fail_after,
                               "SECONDS after which I/O to a silent node fails; default: it "
                               "waits; with --programs: at most 60, default 10");
    attach_command->add_option("--index", options->index,
                               "N of the device, 0 to 1023; default the first free one");
    attach_command->add_option("--queues", options->queues,
                               "N hardware queues; default one per CPU");
    attach_command->add_option("--timeout", options->timeout,
                               "SECONDS to wait for the node, at most 30; default 5");
    attach_command->add_option("--name", options->name,
                               "NAME of the device, /dev/remora/NAME, and of its memory at the "
                               "node: what this machine left under it is freed");
    attach_command->add_flag("--keep", options->keep,
                             "Take what is there under the name, with its content, and leave it "
                             "there at the end");
    attach_command->add_flag("--take", options->take,
                             "Take the name over from another machine, which is gone");
    attach_command->add_flag("--wait", options->wait,
                             "Wait for a node that doesn't answer, until there is a signal");
    attach_command->callback([options] { fmt::print("{}\n", attach(*options)); });

    CLI::App* detach_command = program.add_subcommand("detach", "Remove a device");
    auto device = std::make_shared<std::string>();
    auto force = std::make_shared<bool>(false);
    detach_command
        ->add_option("DEVICE", *device, "For instance rmb0, /dev/rmem1, 2 or /dev/remora/NAME")
        ->required();
    detach_command->add_flag("--force", *force,
                             "Even if in use: fail its I/O, wait at most 2 s for the node");
    detach_command->callback([=] { detach_named(*device, *force); });
}

} // namespace remora
