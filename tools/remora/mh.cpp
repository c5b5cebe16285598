// SPDX-License-Identifier: GPL-2.0
// remora mh: the management host of virtual machines whose RAM is in each other's PCI BARs.
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include "common/control.hpp"
#include "common/control_client.hpp"
#include "mh/host.hpp"
#include "mh/join.hpp"
#include "mh/say.hpp"
#include "remora/commands.hpp"
#include "remora/table.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora {

namespace {

using Json = nlohmann::ordered_json;
using Text = std::shared_ptr<std::string>;

std::string socket_path(const std::string& named) {
    std::string path = named.empty() ? control_path_default("remora-mh") : named;
    if (path.empty())
        throw Failure("there is no XDG_RUNTIME_DIR for the control socket: give --socket PATH");
    return path;
}

// ---- the daemon ----

void say_ready(const std::string& what, const std::string& ready_fd) {
    mh::say("{}", what);
    if (ready_fd.empty())
        return;
    Descriptor fd(
        static_cast<int>(parse_number(ready_fd, 0, std::numeric_limits<int>::max(), "--ready-fd")));
    if (write(fd.get(), "ready\n", 6) != 6)
        throw Failure("can't write to --ready-fd {}: {}", ready_fd, std::strerror(errno));
}

void serve(const std::string& file, const std::string& named, const std::string& ready_fd) {
    Descriptor signals = mh::signal_descriptor();
    raise_descriptor_limit();
    mh::Map map = mh::Map::read(file);
    UnixListener control("--socket", socket_path(named), mh::control_mode);
    mh::Host host(mh::Fabric(std::move(map)), std::move(control));
    say_ready("ready", ready_fd);
    host.serve(signals);
}

// False: a signal or the operator ends the standby.
bool keep_watch(mh::Standby& standby, const Descriptor& signals, const std::string& ready_fd) {
    bool told = false;
    for (;;) {
        pollfd fds[] = {{signals.get(), POLLIN, 0}, {standby.fd(), POLLIN, 0}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            throw Failure("can't wait for the active management host: {}", std::strerror(errno));
        if (fds[0].revents)
            return false;
        if (fds[1].revents && !standby.ready())
            return !standby.is_over();
        if (standby.has_all() && !told)
            say_ready(fmt::format("standby for {} machines", standby.ports()), ready_fd);
        told = standby.has_all();
    }
}

void stand_by(const std::string& named, const std::string& ready_fd) {
    Descriptor signals = mh::signal_descriptor();
    raise_descriptor_limit();
    mh::Standby standby(socket_path(named));
    if (!keep_watch(standby, signals, ready_fd))
        return;
    mh::Standby::State state = standby.take_over();
    mh::Host host(std::move(state.fabric), std::move(state.control), state.takeovers);
    mh::say("has taken over");
    host.serve(signals);
}

// ---- its operator ----

Json call(const std::string& named, const Json& request) {
    return ControlClient("management host", socket_path(named)).call(request);
}

// An answer without its "ok".
void print_json(Json answer) {
    answer.erase("ok");
    fmt::print("{}\n", answer.dump(2));
}

void status(bool json, const std::string& named) {
    Json answer = call(named, {{"verb", "status"}});
    if (json)
        return print_json(answer);
    Table table({"MACHINE", "PORT", "RAM", "WINDOWS", "STATE", "KERNEL PARAMETER"});
    std::size_t peers = answer.at("machines").size() - 1;
    for (const Json& each : answer["machines"])
        table.add({each.at("name"), fmt::format("{}", each.at("port").get<unsigned int>()),
                   size_text(each.at("ram_bytes")),
                   fmt::format("{} x {}", peers, size_text(each.at("window_bytes"))),
                   !each.at("joined")   ? "off"
                   : each.at("plugged") ? "on"
                                        : "on, unplugged",
                   each.at("kernel_parameter")});
    table.print();
    fmt::print("standby: {}, takeovers: {}\n", answer.at("standby").get<std::string>(),
               answer.at("takeovers").get<unsigned int>());
}

void policy(bool json, const std::string& named) {
    Json answer = call(named, {{"verb", "policy"}});
    if (json)
        return print_json(answer);
    Table table({"FROM", "TO", "MAY", "LINK", "PAGES", "IN FORCE"});
    for (const Json& each : answer.at("access")) {
        auto pages = each.at("pages").get<std::vector<std::string>>();
        table.add({each.at("from"), each.at("to"), each.at("may"), each.at("link") ? "yes" : "no",
                   pages.empty() ? "none" : fmt::format("{}", fmt::join(pages, " ")),
                   each.at("in_force") ? "yes" : "no"});
    }
    table.print();
}

// ranges: START-END each, or one word: all, none.
void set_pages(const std::string& from, const std::string& to,
               const std::vector<std::string>& ranges, const std::string& named) {
    Json pages = ranges;
    if (ranges == std::vector<std::string>{"all"})
        pages = "all";
    else if (ranges == std::vector<std::string>{"none"})
        pages = Json::array();
    call(named, {{"verb", "pages"}, {"from", from}, {"to", to}, {"pages", pages}});
}

void stop(const std::string& named) {
    ControlClient client("management host", socket_path(named));
    client.call({{"verb", "stop"}});
    client.wait_end();
}

Text add_socket(CLI::App& command) {
    auto socket = std::make_shared<std::string>();
    command.add_option("--socket", *socket,
                       "PATH of the control socket; default /run/remora-mh.sock");
    return socket;
}

void add_daemon_commands(CLI::App& mh) {
    CLI::App* serve_command = mh.add_subcommand("serve", "Serve machines, in the foreground");
    auto file = std::make_shared<std::string>(), ready = std::make_shared<std::string>();
    serve_command->add_option("MAP", *file, "File of machines and access rules")->required();
    serve_command->add_option("--ready-fd", *ready, "Write to descriptor N once it serves");
    Text socket = add_socket(*serve_command);
    serve_command->callback([=] { serve(*file, *socket, *ready); });

    CLI::App* standby = mh.add_subcommand("standby", "Wait, and take over when it dies");
    standby->add_option("--ready-fd", *ready, "Write to descriptor N once it could take over");
    socket = add_socket(*standby);
    standby->callback([=] { stand_by(*socket, *ready); });

    CLI::App* join = mh.add_subcommand("join", "Start a QEMU as a machine of the map");
    auto machine = std::make_shared<std::string>();
    auto command = std::make_shared<std::vector<std::string>>();
    join->add_option("MACHINE", *machine)->required();
    join->add_option("COMMAND", *command, "QEMU and its arguments, after --")->required();
    socket = add_socket(*join);
    join->callback([=] { mh::join(socket_path(*socket), *machine, *command); });
}

void add_pages_command(CLI::App& mh) {
    CLI::App* command = mh.add_subcommand(
        "pages", "Change which pages of a machine another one may copy to and from");
    auto from = std::make_shared<std::string>(), to = std::make_shared<std::string>();
    auto ranges = std::make_shared<std::vector<std::string>>();
    command->add_option("FROM", *from, "The machine whose programs copy")->required();
    command->add_option("TO", *to, "The machine whose RAM it is")->required();
    command->add_option("RANGE", *ranges, "START-END in its RAM, as 64M-128M; or all, or none")
        ->required();
    Text socket = add_socket(*command);
    command->callback([=] { set_pages(*from, *to, *ranges, *socket); });
}

void add_cable_command(CLI::App& mh, const char* verb, const char* help) {
    CLI::App* command = mh.add_subcommand(verb, help);
    auto machine = std::make_shared<std::string>();
    command->add_option("MACHINE", *machine)->required();
    Text socket = add_socket(*command);
    command->callback([=] { call(*socket, {{"verb", verb}, {"machine", *machine}}); });
}

} // namespace

void add_mh_commands(CLI::App& program) {
    CLI::App* mh = program.add_subcommand("mh", "The management host of a PCIe fabric");
    mh->require_subcommand(1);
    add_daemon_commands(*mh);

    CLI::App* command = mh->add_subcommand("status", "Its machines, and whether it has a standby");
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "Print JSON");
    Text socket = add_socket(*command);
    command->callback([=] { status(*json, *socket); });

    command = mh->add_subcommand("policy", "Which machine may reach the RAM of which");
    command->add_flag("--json", *json, "Print JSON");
    socket = add_socket(*command);
    command->callback([=] { policy(*json, *socket); });

    add_pages_command(*mh);
    add_cable_command(*mh, "unplug", "Pull a machine's cable: it has no links");
    add_cable_command(*mh, "plug", "Put it in again");
    add_cable_command(*mh, "cut", "Pull it and tell no machine before it is in again: for tests");
    command = mh->add_subcommand("stop", "End it and its standby; running machines keep links");
    socket = add_socket(*command);
    command->callback([=] { stop(*socket); });
}

} // namespace remora
