// SPDX-License-Identifier: GPL-2.0
/*
 * remora doctor: faults of a machine that lends or uses memory.
 *
 *   doctor_files.cpp    checks of files: /proc, /sys, /etc; below any directory
 *   doctor_network.cpp  the way to each node: does it answer, do large packets pass
 *   doctor.cpp          the command
 *
 * A check adds one Fault for each fault that it finds, and none where it can't tell.
 */
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace remora {

struct Fault {
    std::string check;   // a word for scripts
    std::string what;    // is wrong
    std::string why;     // its cause, or its consequence
    std::string command; // the remedy
};

// A device as sysfs tells it.
struct SeenDevice {
    std::string name;  // rmb0
    std::string node;  // 10.0.0.2:7670
    std::string state; // up, down, lost
    bool is_disk = false;
    bool is_swap = false;
};

class Machine {
public:
    explicit Machine(std::filesystem::path root) : root_(std::move(root)) {}
    std::filesystem::path path(const std::string& absolute) const {
        return root_ / absolute.substr(1);
    }
    bool is_this() const { return root_ == "/"; }
    bool has(const std::string& absolute) const { return std::filesystem::exists(path(absolute)); }
    // The file's text without the last newline; empty: it isn't there, or can't be read.
    std::string read(const std::string& absolute) const;
    std::vector<SeenDevice> devices() const;

private:
    std::filesystem::path root_;
};

// keys: files beside those of /etc/remora. serves: a memory node is started on this machine.
std::vector<Fault> faults_of_files(const Machine& machine, const std::vector<std::string>& keys,
                                   bool serves);

// Probes each device's node, once.
std::vector<Fault> faults_of_network(const std::vector<SeenDevice>& devices);

} // namespace remora
