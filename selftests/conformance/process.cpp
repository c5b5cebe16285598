// SPDX-License-Identifier: GPL-2.0
#include "process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::test {

namespace {

// Under emulation and sanitizers everything takes longer.
constexpr int patience_ms = 60'000;

[[noreturn]] void execute(const std::string& program, std::vector<std::string>& args) {
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (std::string& arg : args)
        argv.push_back(arg.data());
    argv.push_back(nullptr);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(program.c_str(), argv.data());
    _exit(127);
}

// The line the daemon writes once it serves; empty if it ends before.
std::string ready_line(int fd) {
    pollfd ready{fd, POLLIN, 0};
    std::array<char, 16> line{};
    if (poll(&ready, 1, patience_ms) != 1)
        return {};
    ssize_t bytes = read(fd, line.data(), line.size());
    return {line.data(), static_cast<std::size_t>(bytes > 0 ? bytes - 1 : 0)};
}

} // namespace

NodeProcess::NodeProcess(const std::string& program, std::vector<std::string> args) {
    int fds[2];
    if (pipe(fds))
        throw Failure("no pipe: {}", std::strerror(errno));
    Descriptor reader(fds[0]);
    Descriptor writer(fds[1]);
    for (std::string arg : {std::string("--port"), std::string("0"), std::string("--ready-fd"),
                            std::to_string(fds[1])})
        args.push_back(arg);
    pid_ = fork();
    if (pid_ < 0)
        throw Failure("no process: {}", std::strerror(errno));
    if (pid_ == 0)
        execute(program, args);
    writer = Descriptor(); // the daemon's alone, so that its end is noticed
    std::string line = ready_line(reader.get());
    if (line.empty()) {
        stop();
        throw Failure("{} doesn't serve", program);
    }
    port_ = static_cast<std::uint16_t>(parse_number(line, 1, 65535, "port"));
}

NodeProcess::~NodeProcess() {
    if (pid_ > 0) {
        kill(-pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
}

int NodeProcess::stop() {
    int status = -1;
    if (pid_ > 0) {
        kill(pid_, SIGTERM);
        waitpid(pid_, &status, 0);
        pid_ = -1;
    }
    return status;
}

} // namespace remora::test
