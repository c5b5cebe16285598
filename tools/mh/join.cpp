// SPDX-License-Identifier: GPL-2.0
#include "mh/join.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "common/control_client.hpp"
#include "remora/ntb.h"
#include "support/failure.hpp"

namespace remora::mh {

namespace {

using Json = nlohmann::ordered_json;

// PCI slot of port 0; QEMU fills the slots below by itself.
constexpr unsigned int first_slot = 0x10;
// A management host that dies while it answers leaves the request to its standby.
constexpr int tries_max = 3;

struct Membership {
    Json answer;
    std::vector<Descriptor> files;
};

Membership ask(const std::string& path, const std::string& machine) {
    for (int tried = 1;; tried++) {
        try {
            ControlClient client("management host", path);
            Json answer = client.call({{"verb", "join"}, {"machine", machine}});
            return {answer, client.take_files()};
        } catch (const Failure& failure) {
            if (failure.error() != ECONNRESET || tried == tries_max)
                throw;
        }
    }
}

class Arguments {
public:
    Arguments(std::vector<std::string>& argv, std::vector<Descriptor>& files)
        : argv_(argv), files_(files) {}

    template <typename... Args>
    void add(const char* option, fmt::format_string<Args...> text, Args&&... args) {
        argv_.emplace_back(option);
        argv_.push_back(fmt::format(text, std::forward<Args>(args)...));
    }
    // The next descriptor that came, kept open for the command.
    int file() {
        if (used_ == files_.size())
            throw Failure("the management host sent fewer descriptors than it says");
        int number = files_[used_++].get();
        fcntl(number, F_SETFD, 0);
        return number;
    }
    void add_memory(const char* how, const std::string& id, std::uint64_t bytes) {
        add("-object", "memory-backend-file,id={},size={},mem-path=/proc/self/fd/{},share=on{}", id,
            bytes, file(), how);
    }

private:
    std::vector<std::string>& argv_;
    std::vector<Descriptor>& files_;
    std::size_t used_ = 0;
};

// For RAM that the machine may not reach, the host sends zeros.
void add_peer(Arguments& arguments, const Json& peer) {
    unsigned int port = peer.at("port");
    std::uint64_t bytes = peer.at("ram_bytes");
    std::string may = peer.at("may"), id = fmt::format("ntb-ram{}", port);
    arguments.add_memory(may == "write" ? "" : ",readonly=on", id, bytes);
    arguments.add("-device", "ivshmem-plain,memdev={},addr={:#x}", id, first_slot + port);
}

void add_all(Arguments& arguments, const Json& answer) {
    unsigned int port = answer.at("port");
    std::uint64_t bytes = answer.at("ram_bytes");
    arguments.add("-chardev", "socket,id=ntb-doorbell,fd={}", arguments.file());
    arguments.add("-m", "{}M", bytes >> 20);
    arguments.add("-machine", "memory-backend=ntb-ram");
    arguments.add_memory("", "ntb-ram", bytes);
    arguments.add("-device", "ivshmem-doorbell,chardev=ntb-doorbell,vectors={},addr={:#x}",
                  NTB_VECTORS, first_slot + port);
    for (const Json& peer : answer.at("peers"))
        add_peer(arguments, peer);
}

} // namespace

void join(const std::string& path, const std::string& machine, std::vector<std::string> command) {
    Membership member = ask(path, machine);
    Arguments arguments(command, member.files);
    try {
        add_all(arguments, member.answer);
    } catch (const nlohmann::json::exception&) {
        throw Failure("the program that listens at {} is no management host", path);
    }
    std::vector<char*> argv;
    for (std::string& word : command)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    throw Failure("can't run {}: {}", command.front(), std::strerror(errno));
}

} // namespace remora::mh
