// SPDX-License-Identifier: GPL-2.0
// remora node: the memory node of this machine, the kernel's (rmem_node.ko) or a remora-node.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "remora/bpf.hpp"
#include "remora/commands.hpp"
#include "remora/daemon.hpp"
#include "remora/nodes.hpp"
#include "remora/signals.hpp"
#include "remora/table.hpp"
#include "support/failure.hpp"
#include "support/key.hpp"
#include "support/parse.hpp"
#include "uapi/remora_node.h"

namespace remora {

namespace {

using netlink::Request;

// ---- start, stop ----

struct Space {
    SpaceOption option;
    Key key;
};

// All key files are read before anything is started.
std::vector<Space> read_spaces(const std::vector<std::string>& texts) {
    std::vector<Space> spaces;
    for (const std::string& text : texts) {
        SpaceOption option = parse_space(text);
        spaces.push_back({option, key_read_warning(option.key_file, "remora")});
    }
    return spaces;
}

void add_space(netlink::Family& family, const Space& space) {
    Request request(RMEM_NODE_CMD_SPACE_ADD);
    request.u32(RMEM_NODE_A_SPACE, space.option.id);
    request.bytes(RMEM_NODE_A_KEY, space.key.data(), space.key.size());
    if (space.option.quota_bytes)
        request.u64(RMEM_NODE_A_QUOTA, space.option.quota_bytes);
    if (space.option.read_only_of)
        request.u32(RMEM_NODE_A_READ_ONLY_OF, space.option.read_only_of);
    if (space.option.member_of)
        request.u32(RMEM_NODE_A_MEMBER_OF, space.option.member_of);
    if (space.option.sealed_only)
        request.flag(RMEM_NODE_A_SEALED_ONLY);
    try {
        family.call(std::move(request));
    } catch (const netlink::Refused& refused) {
        throw Failure("can't add space {}: {}", space.option.id, refused.what());
    }
}

Request start_request(const StartOptions& options) {
    static constexpr std::uint64_t u32_max = std::numeric_limits<std::uint32_t>::max();
    Request request(RMEM_NODE_CMD_START);
    request.u64(RMEM_NODE_A_MEMORY, parse_size(options.memory));
    if (!options.page.empty()) {
        std::uint64_t bytes = parse_size(options.page);
        if (bytes > u32_max)
            throw Misuse("--page {} is too large: write 64K to 4M", options.page);
        request.u32(RMEM_NODE_A_PAGE_BYTES, static_cast<std::uint32_t>(bytes));
    }
    if (options.port)
        request.u16(RMEM_NODE_A_PORT,
                    static_cast<std::uint16_t>(parse_number(*options.port, 1, 65535, "port")));
    auto count = [&](std::uint16_t type, const std::optional<std::string>& text,
                     std::string_view what) {
        if (text)
            request.u32(type, static_cast<std::uint32_t>(parse_number(*text, 1, u32_max, what)));
    };
    count(RMEM_NODE_A_POOL_PAGES, options.pool, "--pool");
    count(RMEM_NODE_A_SESSIONS_MAX, options.sessions, "--sessions");
    count(RMEM_NODE_A_REGIONS_MAX, options.regions, "--regions");
    count(RMEM_NODE_A_SPACES_MAX, options.spaces_max, "--spaces");
    if (!options.idle.empty())
        request.u32(RMEM_NODE_A_SESSION_IDLE_MS, parse_seconds_ms(options.idle));
    return request;
}

void node_stop(const std::string& named) {
    std::string socket = daemon_socket(named);
    if (!socket.empty())
        return Daemon(socket).stop();
    kernel_stop();
}

// ---- status ----

void node_status(bool json, const std::string& named) {
    std::string socket = daemon_socket(named);
    NodeReport report = socket.empty() ? kernel_report() : Daemon(socket).report();
    if (json)
        fmt::print("{}\n", node_report_json(report).dump(2));
    else
        fmt::print("{}", node_report_text(report));
}

// ---- spaces ----

void space_add(const std::string& text, const std::string& named) {
    Space space = read_spaces({text}).front();
    std::string socket = daemon_socket(named);
    if (!socket.empty())
        return Daemon(socket).add_space(space.option, space.key);
    netlink::Family family = node_family();
    add_space(family, space);
}

void space_del(const std::string& text, bool force, const std::string& named) {
    std::uint32_t id = parse_space_id(text);
    std::string socket = daemon_socket(named);
    if (!socket.empty())
        return Daemon(socket).del_space(id, force);
    kernel_space_del(id, force);
}

void space_revoke(const std::string& text, const std::string& named) {
    std::uint32_t id = parse_space_id(text);
    std::string socket = daemon_socket(named);
    if (!socket.empty())
        return Daemon(socket).revoke_space(id);
    Request request(RMEM_NODE_CMD_SPACE_REVOKE);
    request.u32(RMEM_NODE_A_SPACE, id);
    try {
        node_family().call(std::move(request));
    } catch (const netlink::Refused& refused) {
        throw Failure("can't revoke the key of space {}: {}", id, refused.what());
    }
}

void space_list(bool json, const std::string& named) {
    std::string socket = daemon_socket(named);
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    Table table(space_columns());
    for (const SpaceReport& space : socket.empty() ? kernel_spaces() : Daemon(socket).spaces()) {
        list.push_back(space_json(space));
        table.add(space_row(space));
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
}

void node_regions(const std::string& text, bool json, const std::string& named) {
    const std::uint32_t space = parse_space_id(text);
    std::string socket = daemon_socket(named);
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    Table table(region_columns());
    for (const RegionReport& region :
         socket.empty() ? kernel_regions(space) : Daemon(socket).regions(space)) {
        list.push_back(region_json(region));
        table.add(region_row(region));
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
}

// ---- offloads ----

constexpr std::size_t offload_name_max = 15, offload_clients_max = 16; // the kernel's

struct OffloadOptions {
    std::string which, space, clients;
    std::uint32_t budget_us = 0; // the program's own
    std::vector<std::string> links;
};

std::vector<std::uint32_t> clients_of(const std::string& text) {
    std::vector<std::uint32_t> clients;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = std::min(text.find(',', at), text.size());
        clients.push_back(parse_space_id(text.substr(at, end - at)));
        at = end + 1;
    }
    return clients;
}

void call_offload(Request request, std::string_view verb, const std::string& name) {
    try {
        node_family().call(std::move(request));
    } catch (const netlink::Refused& refused) {
        throw Failure("can't {} offload {}: {}", verb, name, refused.what());
    }
}

void offload_load(const OffloadOptions& options, const std::string& named) {
    const std::uint32_t space = parse_space_id(options.space);
    const std::vector<std::uint32_t> clients = clients_of(options.clients);
    std::string socket = daemon_socket(named);
    if (!socket.empty())
        return Daemon(socket).load_offload(std::filesystem::absolute(options.which), space,
                                           options.budget_us, clients, options.links);
    if (!options.links.empty())
        throw Misuse("--link is for a remora-node: name its --socket");
    if (clients.size() > offload_clients_max)
        throw Failure("{} spaces are more than the {} that can call a program", clients.size(),
                      offload_clients_max);
    const bool in_bpf = bpf_is_file(options.which);
    const std::string name = in_bpf ? bpf_run("load", options.which) : options.which;
    if (name.find('/') != std::string::npos || name.size() > offload_name_max)
        throw Failure("'{}' is no name of a module's program, nor FILE.bpf.o: for a remora-node "
                      "name its --socket",
                      name);
    Request request(RMEM_NODE_CMD_OFFLOAD_LOAD);
    request.string(RMEM_NODE_A_OFFLOAD, name);
    request.u32(RMEM_NODE_A_SPACE, space);
    request.bytes(RMEM_NODE_A_CLIENTS, clients.data(), clients.size() * sizeof(clients[0]));
    if (options.budget_us)
        request.u32(RMEM_NODE_A_BUDGET_US, options.budget_us);
    try {
        call_offload(std::move(request), "load", name);
    } catch (...) {
        if (in_bpf)
            bpf_forget(name);
        throw;
    }
}

bool is_bound(const std::string& name) {
    const std::vector<OffloadReport> all = kernel_offloads();
    return std::ranges::any_of(all, [&](const OffloadReport& each) { return each.name == name; });
}

// The kernel forgets a program in BPF when no space has it, also one that its node has lost.
void offload_remove(const OffloadOptions& options, const std::string& named) {
    const std::uint32_t space = parse_space_id(options.space);
    std::string socket = daemon_socket(named);
    if (!socket.empty())
        return Daemon(socket).remove_offload(options.which, space);
    if (options.which.find('/') != std::string::npos)
        throw Failure("'{}' is no name of a program", options.which);
    Request request(RMEM_NODE_CMD_OFFLOAD_REMOVE);
    request.string(RMEM_NODE_A_OFFLOAD, options.which);
    request.u32(RMEM_NODE_A_SPACE, space);
    try {
        call_offload(std::move(request), "remove", options.which);
    } catch (const Failure&) {
        if (is_bound(options.which) || !bpf_forget(options.which))
            throw;
        return;
    }
    if (!is_bound(options.which))
        bpf_forget(options.which);
}

void offload_list(bool json, const std::string& named) {
    std::string socket = daemon_socket(named);
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    Table table(offload_columns());
    for (const OffloadReport& offload :
         socket.empty() ? kernel_offloads() : Daemon(socket).offloads()) {
        list.push_back(offload_json(offload));
        table.add(offload_row(offload));
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
}

using Socket = std::shared_ptr<std::string>;

Socket add_socket(CLI::App& command) {
    auto socket = std::make_shared<std::string>();
    command.add_option("--socket", *socket,
                       "PATH of a remora-node's control socket; default: the kernel's node, or, "
                       "without its module, the remora-node at the default path");
    return socket;
}

void add_space_commands(CLI::App& node) {
    CLI::App* space = node.add_subcommand("space", "Remote address spaces of the node");
    space->require_subcommand(1);

    CLI::App* add = space->add_subcommand("add", "Let clients that hold the key use a space");
    auto text = std::make_shared<std::string>();
    add->add_option("SPACE", *text,
                    "ID=KEYFILE[,quota=SIZE|,read-only-of=ID|,member-of=ID][,require=sealed]")
        ->required();
    Socket socket = add_socket(*add);
    add->callback([=] { space_add(*text, *socket); });

    CLI::App* del = space->add_subcommand("del", "Forget a space and its key");
    auto id = std::make_shared<std::string>();
    auto force = std::make_shared<bool>(false);
    del->add_option("ID", *id)->required();
    del->add_flag("--force", *force, "End its sessions and free its regions first");
    socket = add_socket(*del);
    del->callback([=] { space_del(*id, *force, *socket); });

    CLI::App* revoke = space->add_subcommand(
        "revoke", "Let a space's key open nothing any more; its memory stays");
    auto revoked = std::make_shared<std::string>();
    revoke->add_option("ID", *revoked)->required();
    socket = add_socket(*revoke);
    revoke->callback([=] { space_revoke(*revoked, *socket); });

    CLI::App* list = space->add_subcommand("list", "List the spaces");
    auto json = std::make_shared<bool>(false);
    list->add_flag("--json", *json, "Print JSON");
    socket = add_socket(*list);
    list->callback([=] { space_list(*json, *socket); });
}

void add_offload_commands(CLI::App& node) {
    CLI::App* offload = node.add_subcommand("offload", "Programs that run beside the memory");
    offload->require_subcommand(1);

    CLI::App* load = offload->add_subcommand("load", "Let clients call a program");
    auto options = std::make_shared<OffloadOptions>();
    load->add_option("PROGRAM", options->which,
                     "FILE.so for a remora-node; for the kernel's node FILE.bpf.o, or the NAME of "
                     "a module's or of one that is loaded")
        ->required();
    load->add_option("--space", options->space, "ID of the space that it reaches")->required();
    load->add_option("--clients", options->clients,
                     "ID,... of other spaces whose clients can call it");
    load->add_option("--budget", options->budget_us,
                     "Microseconds of the node's time for a call, instead of the program's choice")
        ->check(CLI::Range(1, 100000));
    load->add_option("--link", options->links,
                     "NAME=TARGET: another node for the program, as in next=udp:HOST,key=FILE; "
                     "repeatable; a remora-node's alone")
        ->allow_extra_args(false);
    Socket socket = add_socket(*load);
    load->callback([=] { offload_load(*options, *socket); });

    CLI::App* replace = offload->add_subcommand(
        "replace", "Put a newer program in BPF in the place of that of its name");
    auto file = std::make_shared<std::string>();
    replace->add_option("FILE", *file, "FILE.bpf.o")->required();
    replace->callback([=] { bpf_run("replace", *file); });

    CLI::App* remove = offload->add_subcommand("remove", "Unload a program from a space");
    options = std::make_shared<OffloadOptions>();
    remove->add_option("NAME", options->which)->required();
    remove->add_option("--space", options->space, "ID of its space")->required();
    socket = add_socket(*remove);
    remove->callback([=] { offload_remove(*options, *socket); });

    CLI::App* list = offload->add_subcommand("list", "List the programs, with their calls");
    auto json = std::make_shared<bool>(false);
    list->add_flag("--json", *json, "Print JSON");
    socket = add_socket(*list);
    list->callback([=] { offload_list(*json, *socket); });
}

void add_start_command(CLI::App& node) {
    CLI::App* start = node.add_subcommand("start", "Lend memory of this machine");
    auto options = std::make_shared<StartOptions>();
    start->add_option("--memory", options->memory, "SIZE to lend")->required();
    start->add_option("--page", options->page, "SIZE of a page, 64K to 4M; default 64K");
    start->add_option("--port", options->port, "UDP port; default 7670");
    start->add_option("--pool", options->pool, "Zeroed PAGES kept ready; a power of two");
    start->add_option("--sessions", options->sessions, "At most N sessions");
    start->add_option("--regions", options->regions, "At most N regions");
    start->add_option("--spaces", options->spaces_max, "At most N address spaces");
    start->add_option("--session-idle", options->idle,
                      "SECONDS after which the node can evict an unused session");
    start
        ->add_option("--space", options->spaces,
                     "ID=KEYFILE[,quota=SIZE|,read-only-of=ID|,member-of=ID][,require=sealed]; "
                     "repeatable")
        ->allow_extra_args(false);
    start->callback([options] { kernel_start(*options); });
}

} // namespace

void kernel_start(const StartOptions& options) {
    Request request = start_request(options);
    std::vector<Space> spaces = read_spaces(options.spaces);
    netlink::Family family = node_family();
    catch_signals();
    try {
        family.call_interruptibly(std::move(request), signalled);
    } catch (const netlink::Refused& refused) {
        if (refused.error() == EALREADY)
            throw Failure("the node is started already: 'remora node stop' first");
        throw Failure("can't start the node: {}", refused.what());
    } catch (const netlink::Interrupted&) {
        throw Failure("start interrupted: the node is not started");
    }
    try {
        for (const Space& space : spaces)
            add_space(family, space);
        if (signalled)
            throw Failure("start interrupted");
    } catch (const Failure& failure) {
        family.call(Request(RMEM_NODE_CMD_STOP));
        throw Failure("{}; the node is stopped again", failure.what());
    }
}

void kernel_stop() {
    try {
        node_family().call(Request(RMEM_NODE_CMD_STOP));
    } catch (const netlink::Refused& refused) {
        throw Failure("can't stop the node: {}", refused.what());
    }
}

void kernel_space_add(const std::string& text) {
    const std::vector<Space> spaces = read_spaces({text});
    netlink::Family family = node_family();
    add_space(family, spaces.front());
}

void kernel_space_del(std::uint32_t id, bool force) {
    Request request(RMEM_NODE_CMD_SPACE_DEL);
    request.u32(RMEM_NODE_A_SPACE, id);
    if (force)
        request.flag(RMEM_NODE_A_FORCE);
    try {
        node_family().call(std::move(request));
    } catch (const netlink::Refused& refused) {
        throw Failure("can't delete space {}: {}", id, refused.what());
    }
}

void add_node_commands(CLI::App& program) {
    CLI::App* node = program.add_subcommand("node", "The memory node of this machine");
    node->require_subcommand(1);
    add_start_command(*node);
    CLI::App* stop = node->add_subcommand("stop", "Stop the node; all lent memory is lost");
    Socket socket = add_socket(*stop);
    stop->callback([=] { node_stop(*socket); });

    CLI::App* status = node->add_subcommand("status", "Configuration, usage, counters");
    auto json = std::make_shared<bool>(false);
    status->add_flag("--json", *json, "Print JSON");
    socket = add_socket(*status);
    status->callback([=] { node_status(*json, *socket); });
    add_space_commands(*node);
    add_offload_commands(*node);

    CLI::App* regions = node->add_subcommand("regions", "List the regions of a space");
    auto space = std::make_shared<std::string>();
    auto as_json = std::make_shared<bool>(false);
    regions->add_option("SPACE", *space, "ID of the space")->required();
    regions->add_flag("--json", *as_json, "Print JSON");
    socket = add_socket(*regions);
    regions->callback([=] { node_regions(*space, *as_json, *socket); });
}

} // namespace remora
