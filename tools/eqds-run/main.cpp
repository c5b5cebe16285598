// SPDX-License-Identifier: GPL-2.0
// eqds-run: runs a program whose UDP datagrams travel through EQDS tunnels.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <nlohmann/json.hpp>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "eqds-run/pump.hpp"
#include "support/descriptor.hpp"
#include "support/failure.hpp"
#include "support/say.hpp"

namespace eqds_run {

namespace {

using remora::Failure;

// Away from the numbers that programs count on.
constexpr int requests_fd_min = 100;

struct Options {
    std::string device = "eqds0", stats;
    std::vector<std::string> peers, command;
};

std::string layer() {
    std::string path(4096, '\0');
    ssize_t bytes = readlink("/proc/self/exe", path.data(), path.size());
    if (bytes < 0)
        throw Failure("/proc/self/exe: {}", std::strerror(errno));
    path.resize(static_cast<std::size_t>(bytes));
    std::string bin = path.substr(0, path.rfind('/'));
    return bin.substr(0, bin.rfind('/')) + "/lib/remora/libeqds-udp.so";
}

void set_environment(const std::string& preload, int requests) {
    const char* before = std::getenv("LD_PRELOAD");
    std::string all = before && *before ? preload + ":" + before : preload;
    setenv("LD_PRELOAD", all.c_str(), 1);
    setenv(eqds_udp::environment, fmt::to_string(requests).c_str(), 1);
}

[[noreturn]] void become(std::vector<std::string>& command, int requests, const sigset_t& mask) {
    std::vector<char*> words;
    for (std::string& word : command)
        words.push_back(word.data());
    words.push_back(nullptr);
    set_environment(layer(), requests);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    execvp(words[0], words.data());
    int error = errno;
    remora::warn("eqds-run: {}: {}", command[0], std::strerror(error));
    _exit(error == ENOENT ? 127 : 126);
}

void print_counts(const Counts& c, const std::string& to) {
    nlohmann::ordered_json told = {
        {"sent",
         {{"eqds", c.sent_eqds},
          {"kernel",
           {{"not_a_peer", c.sent_not_peer},
            {"this_machine", c.sent_local},
            {"too_large", c.sent_large},
            {"no_device", c.sent_no_device}}}}},
        {"received", {{"eqds", c.received_eqds}, {"kernel", c.received_kernel}}},
        {"dropped",
         {{"peer_full", c.dropped_peer_full},
          {"tunnel", c.dropped_tunnel},
          {"receiver_full", c.dropped_receiver_full},
          {"no_socket", c.dropped_no_socket},
          {"kernel", c.dropped_kernel}}}};
    if (to == "-") {
        std::cerr << told.dump(2) << std::endl;
        return;
    }
    std::ofstream file(to);
    if (!(file << told.dump(2) << std::endl))
        remora::warn("eqds-run: {}: {}", to, std::strerror(errno));
}

// Signals of eqds-run, and the program's end.
class Signals : public Source {
public:
    Signals(Pump& pump, pid_t child, const sigset_t& mask, const std::string& stats)
        : pump_(pump),
          child_(child),
          stats_(stats),
          fd_(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK)) {
        if (fd_ < 0)
            throw_errno("signalfd");
        pump_.loop.add(fd_, this);
    }
    ~Signals() override {
        pump_.loop.remove(fd_);
        close(fd_);
    }

    // All is done, or the user waits no longer for datagrams without credit.
    bool is_over() const { return ended_ && (pump_.is_over() || given_up_); }
    int status() const { return status_; }

    void ready(std::uint32_t) override {
        signalfd_siginfo info{};
        while (read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
            auto number = static_cast<int>(info.ssi_signo);
            if (number == SIGCHLD)
                reap();
            else if (number == SIGUSR1)
                print_counts(pump_.counts, stats_.empty() ? "-" : stats_);
            else if (!ended_ && number != SIGINT && number != SIGQUIT)
                kill(child_, number); // a terminal sends those two to the program itself
            else if (ended_ && pump_.is_deserted())
                given_up_ = true;
        }
    }

private:
    void reap() {
        int status = 0;
        if (waitpid(child_, &status, WNOHANG) != child_)
            return;
        ended_ = true;
        status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }

    Pump& pump_;
    pid_t child_;
    const std::string& stats_;
    int fd_, status_ = 0;
    bool ended_ = false, given_up_ = false;
};

int run(Options& options) {
    Peers peers;
    sigset_t mask, before;
    int pair[2];
    for (const std::string& each : options.peers)
        peers.add(each);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        throw_errno("socketpair");
    Pump pump(options.device, std::move(peers), pair[0]);
    // Tells at once of a device that isn't there, and not at the program's first socket.
    {
        eqds_t* probe = nullptr;
        int err = eqds_open(&probe, options.device.c_str(), nullptr);
        if (err == -ENODEV && if_nametoindex(options.device.c_str()))
            throw Failure("{} is no eqds device: name one by --device", options.device);
        if (err == -ENODEV)
            throw Failure("there is no eqds device {}: modprobe eqds && ip link add link eth0 "
                          "name {} type eqds",
                          options.device, options.device);
        if (err == -ENOENT)
            throw Failure("there is no /dev/eqds: load the kernel module eqds");
        if (err == -EPERM)
            throw Failure("{}: this needs CAP_NET_RAW", options.device);
        if (err == -ENOMEM)
            throw Failure("{}: a port takes 4 MiB of locked memory: raise ulimit -l",
                          options.device);
        if (err)
            throw Failure("{}: {}", options.device, std::strerror(-err));
        eqds_close(probe);
    }
    sigemptyset(&mask);
    for (int number : {SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1})
        sigaddset(&mask, number);
    sigprocmask(SIG_BLOCK, &mask, &before);
    pid_t child = fork();
    if (child < 0)
        throw_errno("fork");
    if (!child) {
        int requests = fcntl(pair[1], F_DUPFD, requests_fd_min);
        if (requests < 0)
            requests = fcntl(pair[1], F_DUPFD, 3);
        become(options.command, requests, before);
    }
    close(pair[1]);
    // A reader of the statistics that has ended must not end the program's network.
    signal(SIGPIPE, SIG_IGN);
    // A socket of the program takes three here. The program keeps its own limit.
    remora::raise_descriptor_limit();
    Signals signals(pump, child, mask, options.stats);
    while (!signals.is_over())
        pump.loop.serve();
    if (!options.stats.empty())
        print_counts(pump.counts, options.stats);
    return signals.status();
}

} // namespace

} // namespace eqds_run

int main(int argc, char** argv) {
    CLI::App program("Runs a program whose UDP datagrams to PREFIX travel through EQDS tunnels.",
                     "eqds-run");
    eqds_run::Options options;
    program.add_option("--device", options.device, "eqds device; default eqds0");
    program
        .add_option("--peers", options.peers,
                    "PREFIX of hosts whose programs run under eqds-run, too; repeatable")
        ->required()
        ->allow_extra_args(false);
    program.add_option("--stats", options.stats,
                       "FILE for counts at the end, and at SIGUSR1; -: standard error");
    program.prefix_command();
    program.footer("eqds-run --peers PREFIX [OPTIONS] [--] PROGRAM [ARGUMENT...]\n"
                   "eqds-run --peers 10.0.0.0/24 iperf3 -s");
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (!error.get_exit_code())
            return program.exit(error); // help
        remora::warn("eqds-run: {}: see 'eqds-run --help'", error.what());
        return 125;
    }
    options.command = program.remaining();
    if (!options.command.empty() && options.command.front() == "--")
        options.command.erase(options.command.begin());
    try {
        if (options.command.empty())
            throw remora::Misuse("name the PROGRAM to run");
        return eqds_run::run(options);
    } catch (const std::exception& error) {
        remora::warn("eqds-run: {}", error.what());
        return 125;
    }
}
