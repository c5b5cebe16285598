// SPDX-License-Identifier: GPL-2.0
//
// One thread around poll(): the port, SIGCHLD, and up to three descriptors a process.
//
//     host --run/input/signal/resize--> Process.in --> stdin --+
//                                                              +-- child, leader of its own session
//     host <--output/error/exited-- Process.out, err <---------+
//
// Invariants
//  - Input of a process never exceeds input_window, since the host keeps to the window; a host that
//    doesn't is cut off. So the agent's memory is bounded by processes_max * input_window.
//  - `exited` is the last frame of an id. It is sent when the child has died and what it had
//  written has
//    been passed on; a daemon it left behind may keep the pipe, whose later output is read and
//    dropped.
//  - The port is written blocking: the host always reads.
#include "agent.hpp"
#include "frame.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <memory>
#include <poll.h>
#include <pty.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace lab {
namespace {

class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() { reset(); }
    void reset() {
        if (fd_ >= 0)
            close(std::exchange(fd_, -1));
    }
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
};

struct Process {
    pid_t pid = -1;
    bool terminal = false;
    bool gone = false; // reaped, `exited` sent; only orphans hold its pipes
    bool input_ended = false;
    std::string input; // not yet taken by the child
    Descriptor in, out,
        err; // with a terminal: out only, a descriptor of the master; in is a duplicate
};

class Agent {
public:
    Agent(int port, bool serial) : port_(port), serial_(serial) {}
    void serve();

private:
    void send(Type type, uint32_t id, const void* payload, size_t length);
    bool receive();
    void dispatch(const Header& header, const char* payload);
    void start(uint32_t id, const char* payload, size_t length);
    void refuse(uint32_t id, int status, const std::string& why);
    void feed(uint32_t id, Process& process);
    bool pass_on(uint32_t id, Process& process, Descriptor& from, Type type);
    void drain(uint32_t id, Process& process);
    void reap();

    int port_;
    bool serial_;
    std::string received_;
    std::map<uint32_t, std::unique_ptr<Process>> processes_;
};

bool write_all(int fd, const char* data, size_t length) {
    while (length > 0) {
        ssize_t n = write(fd, data, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        length -= n;
    }
    return true;
}

void Agent::send(Type type, uint32_t id, const void* payload, size_t length) {
    Header header = {static_cast<uint32_t>(length), id, type, {}};
    std::string frame(reinterpret_cast<const char*>(&header), sizeof(header));

    frame.append(static_cast<const char*>(payload), length);
    write_all(port_, frame.data(), frame.size());
}

// The child's side of start(): never returns.
[[noreturn]] void become(std::vector<char*> argv, int in, int out, int err, bool terminal) {
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    setsid();
    if (terminal) {
        ioctl(in, TIOCSCTTY, 0);
        setenv("LANG", "C.UTF-8", 1); // a person reads it
    }
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    execvp(argv[0], argv.data());
    dprintf(2, "%s: %s\n", argv[0], std::strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

void Agent::refuse(uint32_t id, int status, const std::string& why) {
    int32_t code = status;

    send(Type::error, id, why.data(), why.size());
    send(Type::exited, id, &code, sizeof(code));
}

void Agent::start(uint32_t id, const char* payload, size_t length) {
    Start how;
    int in[2], out[2], err[2];

    if (length <= sizeof(how) || payload[length - 1] != '\0')
        return refuse(id, 126, "lab agent: malformed start\n");
    if (processes_.size() >= processes_max)
        return refuse(id, 126, "lab agent: too many processes at once\n");
    std::memcpy(&how, payload, sizeof(how));
    std::string words(payload + sizeof(how), length - sizeof(how));
    std::vector<char*> argv;
    for (size_t at = 0; at < words.size(); at += std::strlen(&words[at]) + 1)
        argv.push_back(&words[at]);
    argv.push_back(nullptr);

    auto process = std::make_unique<Process>();
    process->terminal = how.rows != 0;
    if (process->terminal) {
        struct winsize size = {};
        size.ws_row = how.rows;
        size.ws_col = how.columns;
        if (openpty(&out[0], &out[1], nullptr, nullptr, &size) != 0)
            return refuse(id, 126, "lab agent: no terminal left\n");
        fcntl(out[0], F_SETFD, FD_CLOEXEC);
        fcntl(out[1], F_SETFD, FD_CLOEXEC);
        process->out = Descriptor(out[0]);
        process->in = Descriptor(fcntl(out[0], F_DUPFD_CLOEXEC, 3));
        process->pid = fork();
        if (process->pid == 0)
            become(argv, out[1], out[1], out[1], true);
        close(out[1]);
    } else {
        if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
            return refuse(id, 126, "lab agent: no pipe left\n");
        process->in = Descriptor(in[1]);
        process->out = Descriptor(out[0]);
        process->err = Descriptor(err[0]);
        process->pid = fork();
        if (process->pid == 0)
            become(argv, in[0], out[1], err[1], false);
        close(in[0]);
        close(out[1]);
        close(err[1]);
        fcntl(err[0], F_SETFL, O_NONBLOCK);
    }
    if (process->pid < 0)
        return refuse(id, 126, std::string("lab agent: fork: ") + std::strerror(errno) + "\n");
    fcntl(process->in.get(), F_SETFL, O_NONBLOCK);
    fcntl(process->out.get(), F_SETFL, O_NONBLOCK);
    processes_[id] = std::move(process);
}

// Hands buffered input to the child, as much as it takes now.
void Agent::feed(uint32_t id, Process& process) {
    uint32_t taken = 0;

    while (process.in && !process.input.empty()) {
        ssize_t n = write(process.in.get(), process.input.data(), process.input.size());
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { // the process closed its input: drop the rest
            taken += process.input.size();
            process.input.clear();
            process.in.reset();
            break;
        }
        process.input.erase(0, n);
        taken += n;
    }
    if (process.input_ended && process.input.empty() && !process.terminal)
        process.in.reset();
    if (taken)
        send(Type::consumed, id, &taken, sizeof(taken));
}

// Passes one read on; false once there is nothing more now (or ever: then the descriptor is
// closed).
bool Agent::pass_on(uint32_t id, Process& process, Descriptor& from, Type type) {
    static char buffer[payload_max];

    if (!from)
        return false;
    ssize_t n = read(from.get(), buffer, sizeof(buffer));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        from.reset();
        return false;
    }
    if (!process.gone)
        send(type, id, buffer, n);
    return true;
}

void Agent::drain(uint32_t id, Process& process) {
    // Bounded by what a pipe holds: an orphan that writes for ever must not keep us here.
    for (int i = 0; i < 32 && pass_on(id, process, process.out, Type::output); i++)
        ;
    for (int i = 0; i < 32 && pass_on(id, process, process.err, Type::error); i++)
        ;
}

void Agent::reap() {
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        auto found = std::find_if(processes_.begin(), processes_.end(),
                                  [&](auto& entry) { return entry.second->pid == pid; });
        if (found == processes_.end())
            continue; // an orphan adopted by process 1
        auto& [id, process] = *found;
        int32_t code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        drain(id, *process);
        send(Type::exited, id, &code, sizeof(code));
        process->gone = true;
        process->pid = -1;
        process->in.reset();
        process->input.clear();
    }
}

void Agent::dispatch(const Header& header, const char* payload) {
    if (header.type == Type::run)
        return start(header.id, payload, header.length);
    auto found = processes_.find(header.id);
    if (found == processes_.end() || found->second->gone)
        return; // the signal came when the process had ended
    Process& process = *found->second;
    if (header.type == Type::input) {
        if (header.length == 0) {
            process.input_ended = true;
            if (process.terminal)
                process.input += '\x04';
        } else {
            process.input.append(payload, header.length);
        }
        feed(header.id, process);
    } else if (header.type == Type::signal && header.length == 4) {
        uint32_t number;
        std::memcpy(&number, payload, sizeof(number));
        kill(-process.pid, static_cast<int>(number));
    } else if (header.type == Type::resize && header.length == 4 && process.terminal) {
        uint16_t size[2];
        std::memcpy(size, payload, sizeof(size));
        struct winsize window = {};
        window.ws_row = size[0];
        window.ws_col = size[1];
        ioctl(process.out.get(), TIOCSWINSZ, &window);
    }
}

bool Agent::receive() {
    char buffer[16384];
    ssize_t n = read(port_, buffer, sizeof(buffer));

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return false;
    received_.append(buffer, n);
    if (serial_) {
        uint32_t taken = n;
        send(Type::taken, 0, &taken, sizeof(taken));
    }
    size_t at = 0;
    while (received_.size() - at >= sizeof(Header)) {
        Header header;
        std::memcpy(&header, &received_[at], sizeof(header));
        if (header.length > payload_max)
            return false;
        if (received_.size() - at - sizeof(header) < header.length)
            break;
        dispatch(header, &received_[at + sizeof(header)]);
        at += sizeof(header) + header.length;
    }
    received_.erase(0, at);
    return true;
}

void Agent::serve() {
    sigset_t child;
    struct utsname name;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, nullptr);
    signal(SIGPIPE, SIG_IGN);
    Descriptor children(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    uname(&name);
    send(Type::hello, 0, name.release, std::strlen(name.release));

    for (;;) {
        std::vector<struct pollfd> polled = {{port_, POLLIN, 0}, {children.get(), POLLIN, 0}};
        for (auto& [id, process] : processes_) {
            if (process->in && !process->input.empty())
                polled.push_back({process->in.get(), POLLOUT, 0});
            for (Descriptor* from : {&process->out, &process->err})
                if (*from)
                    polled.push_back({from->get(), POLLIN, 0});
        }
        if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR)
            return;
        for (auto& [id, process] : processes_) {
            pass_on(id, *process, process->out, Type::output);
            pass_on(id, *process, process->err, Type::error);
            if (!process->input.empty())
                feed(id, *process);
        }
        struct signalfd_siginfo info;
        if (read(children.get(), &info, sizeof(info)) > 0)
            reap();
        std::erase_if(processes_, [](auto& entry) {
            return entry.second->gone && !entry.second->out && !entry.second->err;
        });
        if (polled[0].revents && !receive())
            return;
    }
}

} // namespace

int open_port() {
    DIR* ports = opendir("/sys/class/virtio-ports");
    int fd = -1;

    if (!ports)
        return -1;
    errno = ENOENT;
    while (struct dirent* entry = readdir(ports)) {
        std::ifstream file(std::string("/sys/class/virtio-ports/") + entry->d_name + "/name");
        std::string name;
        if (std::getline(file, name) && name == port_name)
            fd = open((std::string("/dev/") + entry->d_name).c_str(), O_RDWR | O_CLOEXEC);
    }
    closedir(ports);
    return fd;
}

int open_serial_port() {
    int fd = open("/dev/ttyS0", O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct termios raw;

    if (fd < 0 || tcgetattr(fd, &raw) != 0)
        return -1;
    cfmakeraw(&raw);
    return tcsetattr(fd, TCSANOW, &raw) == 0 ? fd : -1;
}

int run_and_wait(const std::string& script) {
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void serve(int port, bool serial) {
    Agent(port, serial).serve();
}

} // namespace lab
