// SPDX-License-Identifier: GPL-2.0
// remora-node: the memory node as a daemon. SIGTERM, SIGINT, SIGHUP and the control socket's stop
// end it, SIGUSR1 prints its counters. Exit code 0: ended by one of these, 1: failure, 2: wrong
// usage, 3: ended by stop, with --store.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <optional>

#include <poll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/control.hpp"
#include "common/control_server.hpp"
#include "common/program.hpp"
#include "remora-node/notify.hpp"
#include "remora-node/operator.hpp"
#include "remora-node/options.hpp"
#include "remora-node/running.hpp"
#include "remora-node/status.hpp"
#include "remora-node/store.hpp"
#include "remora-node/worker.hpp"
#include "support/failure.hpp"
#include "support/key.hpp"
#include "support/random.hpp"
#include "support/say.hpp"

namespace remora::daemon {

namespace {

rmem_node_config seeded(rmem_node_config config) {
    config.boot = random_value<std::uint64_t>() | 1;
    for (u64& seed : config.seed)
        seed = random_value<u64>();
    return config;
}

// Blocked in all threads, for they inherit it: signals are read here.
Descriptor signal_descriptor() {
    sigset_t set;
    sigemptyset(&set);
    for (int number : {SIGTERM, SIGINT, SIGUSR1})
        sigaddset(&set, number);
    // A closed terminal ends the daemon, too, but not one that nohup has made ignore that.
    struct sigaction hangup {};
    if (sigaction(SIGHUP, nullptr, &hangup) || hangup.sa_handler != SIG_IGN)
        sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    return Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

Descriptor timer_descriptor(std::uint32_t interval_ms) {
    Descriptor timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    timespec interval{static_cast<time_t>(interval_ms / 1000),
                      static_cast<long>(interval_ms % 1000) * 1'000'000};
    itimerspec timing{interval, interval};
    timerfd_settime(timer.get(), 0, &timing, nullptr);
    return timer;
}

template <typename T>
bool take(int fd, T& value) {
    return read(fd, &value, sizeof(value)) == static_cast<ssize_t>(sizeof(value));
}

void print(const NodeReport& report) {
    say(STDOUT_FILENO, node_report_text(report) + "\n");
}

void say_ready(const Options& options, std::uint16_t port) {
    say(STDOUT_FILENO,
        fmt::format("remora-node: ready on port {}, lending {} in {} space{}\n", port,
                    size_text(options.config.pages << options.config.page_shift),
                    options.spaces.size(), options.spaces.size() == 1 ? "" : "s"));
    tell_port(options.ready_fd, port);
    notify("READY=1");
}

// An event source of the first thread. ready() is called when fd is readable; false: end the loop.
struct Watch {
    int fd;
    std::function<bool()> ready;
};

void keep_watch(const std::vector<Watch>& watches) {
    std::vector<pollfd> fds;
    fds.reserve(watches.size());
    for (const Watch& watch : watches)
        fds.push_back({watch.fd, POLLIN, 0});
    for (;;) {
        if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR)
            throw Failure("can't wait for signals: {}", std::strerror(errno));
        for (std::size_t i = 0; i < watches.size(); i++) {
            if (fds[i].revents && !watches[i].ready())
                return;
        }
    }
}

Transports open_transports(const Options& options) {
    Transports transports;
    for (const auto& kind : options.transports) {
        if (auto transport = kind->open())
            transports.push_back(std::move(transport));
    }
    return transports;
}

std::uint16_t port_of(const Transports& transports) {
    for (const auto& transport : transports) {
        if (transport->port())
            return transport->port();
    }
    return 0;
}

void add_spaces(Node& node, const Options& options) {
    for (const SpaceOption& space : options.spaces) {
        Key key = key_read_warning(space.key_file, "remora-node");
        const std::uint32_t base = space.member_of ? space.member_of : space.read_only_of;
        if (node.took_over() && node.keep_space(space.id, key, space.quota_bytes, base,
                                                space.member_of, space.sealed_only))
            continue;
        if (node.took_over() && base)
            warn("remora-node: warning: space {} isn't in the store and is added: if its key was "
                 "revoked, remove it from the options, and 'remora node space del {}'",
                 space.id, space.id);
        if (space.read_only_of)
            node.add_view(space.id, key, space.read_only_of, space.sealed_only);
        else if (space.member_of)
            node.add_member(space.id, key, space.member_of, space.sealed_only);
        else
            node.add_space(space.id, key, space.quota_bytes, space.sealed_only);
    }
    if (options.spaces.empty() && !node.report(0).spaces)
        warn("remora-node: warning: no --space: nobody can use this node before "
             "'remora node space add'");
}

// Where the operator named no path, the node serves without a control socket, too: another node of
// this machine might have the default one.
std::unique_ptr<Control> open_control(const Options& options) {
    if (options.control_socket)
        return std::make_unique<Control>(*options.control_socket);
    std::string path = control_path_default();
    try {
        if (!path.empty())
            return std::make_unique<Control>(path);
    } catch (const Failure& failure) {
        warn("remora-node: warning: no control socket: {}", failure.what());
    }
    return nullptr;
}

void answer_operator(Control& control, Operator& oper) {
    control.ready([&](std::string_view line, Control::Answer answer) {
        oper.execute(line, std::move(answer));
    });
}

std::uint64_t page_bytes(const rmem_node_config& config) {
    return std::uint64_t{1} << config.page_shift;
}

void say_file(const Options& options, const node::MemoryFile& file) {
    say(STDOUT_FILENO,
        fmt::format("remora-node: space {} has {} of {}, made durable by {}\n",
                    options.memory_file_space, size_text(file.bytes()), options.memory_file,
                    file.is_direct() ? "the processor: persistent memory" : "msync(): a file"));
}

// How long a node that ends tells its clients so.
constexpr int farewell_ms = 200;

// Clients with requests under way hear of it; the others will hear nothing any more. A signal
// shortens it.
void say_farewell(Node& node, const Descriptor& signals) {
    node.retire();
    if (!node.report(0).sessions)
        return;
    pollfd signal{signals.get(), POLLIN, 0};
    poll(&signal, 1, farewell_ms);
}

// The store, until the operator ends the node.
class Kept {
public:
    explicit Kept(const Options& options) : where_(options.store) {
        if (where_.empty())
            return;
        if (options.memory_file.empty() && options.store_holds) {
            store_.emplace(open_store(where_));
            return;
        }
        drop_store(where_);
        warn("remora-node: warning: --store keeps nothing: {}",
             options.store_holds ? "it can't hold the offloads of --memory-file: leave one of them "
                                   "out"
                                 : "it takes pages up to 128K: lower --page");
    }
    ~Kept() {
        if (!ends_)
            return;
        store_->end();
        forget_store(where_);
    }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

    node::Store* get() { return store_ ? &*store_ : nullptr; }
    // The destructor then removes the store.
    void end() { ends_ = store_.has_value(); }

private:
    const std::string where_;
    std::optional<node::Store> store_;
    bool ends_ = false;
};

void say_store(Node& node) {
    if (const char* why = node.store_refused())
        warn("remora-node: warning: the store isn't taken over, and its memory is lost: {}", why);
    if (!node.took_over())
        return;
    const NodeReport report = node.report(0);
    say(STDOUT_FILENO,
        fmt::format("remora-node: took over {} in {} regions, {} sessions, boot {:016x}\n",
                    size_text(report.promised_bytes), report.regions, report.sessions,
                    report.boot));
}

// With --store: nothing is left to go on with. For service managers, which restart it otherwise.
constexpr int code_stopped = 3;

// Returns the exit code.
int serve(const Options& options) {
    raise_descriptor_limit(); // a client's rings take three
    Descriptor signals = signal_descriptor();
    Transports transports = open_transports(options);
    std::uint16_t port = port_of(transports);
    std::unique_ptr<Control> control = open_control(options);
    std::unique_ptr<StatusSocket> status;
    if (!options.status_socket.empty())
        status = std::make_unique<StatusSocket>(options.status_socket);
    std::optional<node::MemoryFile> file;
    rmem_node_config config = seeded(options.config);
    if (!options.memory_file.empty()) {
        file.emplace(options.memory_file, options.memory_file_bytes, page_bytes(config));
        config.persistent_pages = file->bytes() >> config.page_shift;
        config.pages += config.persistent_pages;
        if (config.pages > RMEM_NODE_PAGES_MAX)
            throw Misuse("{} has too many pages of {}: raise --page", options.memory_file,
                         size_text(page_bytes(config)));
    }
    Kept kept(options);
    Node node(config, options.lock, threads_of(transports), file ? &*file : nullptr, kept.get());
    say_store(node);
    add_spaces(node, options);
    if (file) {
        node.add_persistent(options.memory_file_space);
        say_file(options, *file);
    }
    if (!node::shield_from_oom_killer())
        warn("remora-node: warning: not shielded from the OOM killer: that needs "
             "CAP_SYS_RESOURCE");

    Operator oper(node, port);
    std::vector<Watch> watches;
    watches.push_back({signals.get(), [&] {
                           signalfd_siginfo info{};
                           if (!take(signals.get(), info))
                               return true;
                           if (info.ssi_signo != SIGUSR1)
                               return false;
                           print(node.report(port));
                           return true;
                       }});
    if (status)
        watches.push_back({status->fd(), [&] {
                               status->answer(node.report(port));
                               return true;
                           }});
    if (control)
        watches.push_back({control->fd(), [&] {
                               answer_operator(*control, oper);
                               return !oper.is_stopped();
                           }});
    std::list<Descriptor> timers;
    auto every = [&](std::uint32_t interval_ms, auto act) {
        int fd = timers.emplace_back(timer_descriptor(interval_ms)).get();
        watches.push_back({fd, [fd, act] {
                               std::uint64_t expirations;
                               if (take(fd, expirations))
                                   act();
                               return true;
                           }});
    };
    if (options.stats_interval_ms)
        every(options.stats_interval_ms, [&] { print(node.report(port)); });
    every(rmem_node_expire_ms(&options.config), [&] { node.expire(); });
    node.defer_slow();
    std::vector<std::unique_ptr<Serving>> served = serve_by(transports, node);
    Running<SlowWorker> slow(node); // ends before those whose outboxes it uses
    say_ready(options, port);
    keep_watch(watches);
    notify("STOPPING=1");
    if (kept.get() && !oper.is_stopped())
        return 0; // the clients wait for the next process
    node.lapse();
    kept.end();
    say_farewell(node, signals);
    return oper.is_stopped() && !options.store.empty() ? code_stopped : 0;
}

int run(int argc, char** argv) {
    int code = 0;
    if (auto options = parse_options(argc, argv, &code))
        return serve(*options);
    return code;
}

} // namespace

} // namespace remora::daemon

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    return remora::run_program("remora-node", [&] { return remora::daemon::run(argc, argv); });
}
