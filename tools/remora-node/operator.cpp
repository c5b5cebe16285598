// SPDX-License-Identifier: GPL-2.0
#include "remora-node/operator.hpp"

#include <nlohmann/json.hpp>

#include "common/control.hpp"
#include "remora-node/command.hpp"
#include "remora-node/link.hpp"

namespace remora::daemon {

namespace {

void change(Node& node, const Command& command, const node::Host::Between& between) {
    if (command.verb == Command::Verb::offload_load)
        node.calls().load(
            command.offload, command.space, command.budget_us, command.clients,
            [&](const ForwardEnd& ended) { return open_links(command.links, ended); },
            [&] { node.run_calls(); });
    else if (command.verb == Command::Verb::offload_remove)
        node.calls().remove(command.offload, command.space, [&] { node.run_calls(); });
    else if (command.verb == Command::Verb::space_del) {
        node.del_space(command.space, command.force, between);
        node.calls().space_gone();
    } else if (command.verb == Command::Verb::space_revoke) {
        node.revoke_space(command.space, between);
        node.calls().space_gone();
    } else if (command.read_only_of)
        node.add_view(command.space, command.key, command.read_only_of, command.sealed_only);
    else if (command.member_of)
        node.add_member(command.space, command.key, command.member_of, command.sealed_only);
    else
        node.add_space(command.space, command.key, command.quota_bytes, command.sealed_only);
}

RegionReport report_of(const rmem_listed& region) {
    return {base_load_le64(&region.addr), base_load_le64(&region.bytes),
            base_load_le32(&region.perm), base_load_le32(&region.names),
            name_text({reinterpret_cast<const char*>(region.name), sizeof(region.name)})};
}

} // namespace

// No request may end the node, so every failure is answered.
void Operator::execute(std::string_view line, Control::Answer answer) {
    using enum Command::Verb;
    nlohmann::ordered_json done{{"ok", true}};
    try {
        Command command = parse_command(line);
        switch (command.verb) {
        case status:
            done["status"] = node_report_json(node_.report(port_));
            break;
        case space_list:
            done["spaces"] = nlohmann::ordered_json::array();
            for (const SpaceReport& space : node_.spaces())
                done["spaces"].push_back(space_json(space));
            break;
        case regions:
            done["regions"] = nlohmann::ordered_json::array();
            for (const rmem_listed& region : node_.regions(command.space, command.from))
                done["regions"].push_back(region_json(report_of(region)));
            break;
        case offload_list:
            done["offloads"] = nlohmann::ordered_json::array();
            for (const OffloadReport& offload : node_.calls().list())
                done["offloads"].push_back(offload_json(offload));
            break;
        case stop:
            stopped_ = true;
            break;
        case space_add:
        case space_del:
        case space_revoke:
        case offload_load:
        case offload_remove:
            return node_.operate([this, command, answer](const node::Host::Between& between) {
                try {
                    change(node_, command, between);
                    answer(nlohmann::ordered_json{{"ok", true}}.dump());
                } catch (const std::exception& failure) {
                    answer(control_error(failure.what()));
                }
            });
        }
        answer(done.dump());
    } catch (const std::exception& failure) {
        answer(control_error(failure.what()));
    }
}

} // namespace remora::daemon
