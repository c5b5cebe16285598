// SPDX-License-Identifier: GPL-2.0
#include "remora/doctor.hpp"

#include <chrono>
#include <future>
#include <memory>

#include <nlohmann/json.hpp>

#include "remora/commands.hpp"
#include "remora/look.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

struct DoctorOptions {
    bool json = false;
    std::string root = "/";
    std::vector<std::string> keys;
};

std::vector<Fault> faults_of(const DoctorOptions& options) {
    const Machine machine(options.root);
    if (!machine.is_this())
        return faults_of_files(machine, options.keys, false);
    // An operator waits, so the command ends within 5 s beside silent nodes and daemons.
    auto network = std::async(std::launch::async, faults_of_network, machine.devices());
    const Look now = look({}, std::chrono::seconds(2));
    std::vector<Fault> faults =
        faults_of_files(machine, options.keys, !now.nodes.empty() || !now.silent.empty());
    for (const std::string& socket : now.silent)
        faults.push_back({"node-still", "the remora-node at " + socket + " does not answer",
                          "it stands still, and so do its clients",
                          "journalctl -u remora-node, then systemctl restart remora-node, which "
                          "loses all memory that it lends"});
    for (Fault& fault : network.get())
        faults.push_back(std::move(fault));
    return faults;
}

void doctor(const DoctorOptions& options) {
    const std::vector<Fault> faults = faults_of(options);
    auto list = nlohmann::ordered_json::array();
    for (const Fault& fault : faults) {
        list.push_back({{"check", fault.check},
                        {"what", fault.what},
                        {"why", fault.why},
                        {"command", fault.command}});
        if (!options.json)
            fmt::print("{}: {}: {}\n", fault.what, fault.why, fault.command);
    }
    if (options.json)
        fmt::print("{}\n", list.dump(2));
    if (!faults.empty())
        throw Ended{1};
}

} // namespace

void add_doctor_command(CLI::App& program) {
    CLI::App* command = program.add_subcommand("doctor", "Look for faults, and how to mend them");
    auto options = std::make_shared<DoctorOptions>();
    command->add_flag("--json", options->json, "Print JSON");
    command->add_option("--key", options->keys, "Key FILE to look at, too; repeatable")
        ->allow_extra_args(false);
    command
        ->add_option("--root", options->root,
                     "DIRECTORY with the files of another machine; no module, node or network is "
                     "asked")
        ->check(CLI::ExistingDirectory);
    command->callback([options] { doctor(*options); });
}

} // namespace remora
