// SPDX-License-Identifier: GPL-2.0
// remora-kv: a front door to a key-value table in remote memory, for clients of memcached and
// Redis. SIGTERM and SIGINT end it. Exit code 0: ended by one of these, 1: failure, 2: wrong usage.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>

#include "common/listener.hpp"
#include "common/program.hpp"
#include "common/version.hpp"
#include "remora-kv/worker.hpp"
#include "support/descriptor.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/say.hpp"

namespace remora::kv {

namespace {

constexpr std::uint16_t port_default = 11211;
constexpr int backlog = 1024;
constexpr std::uint64_t item_bytes_least = 32, item_bytes_most = 65536;
constexpr unsigned threads_max = 64;
constexpr std::uint64_t buffers_default_bytes = 256 << 20;
// For each thread: a command of 4 MiB has room then, while greedy clients take all they can.
constexpr std::uint64_t buffers_least_bytes = 32 << 20;

struct Options {
    std::string target, listen, unix_path, memory = "64M", item = "128", threads = "1",
                                           connections = "1024", table = "kv", buffers;
    bool store = false, cache = false;
    std::optional<int> ready_fd;
};

// Port 0, for any that is free, is none to connect to: parse_endpoint() refuses it.
Endpoint parse_listen(std::string_view text) {
    const bool any =
        text.ends_with(":0") && (text.ends_with("]:0") || text.find(':') == text.size() - 2);
    Endpoint at = parse_endpoint(any ? text.substr(0, text.size() - 2) : text, port_default);
    if (any)
        at.port = 0;
    return at;
}

Descriptor listen_tcp(const std::string& text) {
    const Endpoint at = parse_listen(text);
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST;
    if (int error = getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found))
        throw Misuse("--listen: '{}' is not an address: use 127.0.0.1 or [::1]:11211 ({})", text,
                     gai_strerror(error));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
    Descriptor fd(
        socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    const int yes = 1;
    if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
        bind(fd.get(), found->ai_addr, found->ai_addrlen) || ::listen(fd.get(), backlog))
        throw Failure("can't listen at {}: {}", text, std::strerror(errno));
    return fd;
}

std::uint16_t port_of(int fd) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes))
        return 0;
    if (address.ss_family == AF_INET)
        return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
    return address.ss_family == AF_INET6
               ? ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port)
               : 0;
}

// Blocked in all threads, for they inherit it.
Descriptor signal_descriptor() {
    sigset_t set;
    sigemptyset(&set);
    for (int number : {SIGTERM, SIGINT})
        sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    return Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

void say_ready(const Options& options, const Place& place, std::uint16_t port) {
    say(STDOUT_FILENO,
        fmt::format("remora-kv: ready at {}, with the {} '{}'\n",
                    options.unix_path.empty() ? fmt::format("port {}", port) : options.unix_path,
                    place.cache ? "cache" : "store", options.table));
    tell_port(options.ready_fd, port);
}

void serve(const Options& options) {
    if (!options.listen.empty() && !options.unix_path.empty())
        throw Misuse("--listen and --unix exclude each other: start a process for each");
    if (options.store && options.cache)
        throw Misuse("--store and --cache exclude each other");
    if (options.table.empty() || options.table.size() > REMOTE_NAME_BYTES_MAX)
        throw Misuse("--table: a name has 1 to {} bytes", REMOTE_NAME_BYTES_MAX);
    Settings settings{options.target, options.table, parse_size(options.memory),
                      parse_size(options.item), !options.store};
    if (settings.item_bytes < item_bytes_least || settings.item_bytes > item_bytes_most)
        throw Misuse("--item: '{}' is out of range: use 32 to 64K", options.item);
    const auto threads =
        static_cast<unsigned>(parse_number(options.threads, 1, threads_max, "--threads"));
    Shared shared;
    shared.connections_max =
        static_cast<std::uint32_t>(parse_number(options.connections, 1, 1 << 20, "--connections"));
    const std::uint64_t least_bytes = buffers_least_bytes * threads;
    shared.buffers_bytes = options.buffers.empty()
                               ? std::max<std::uint64_t>(buffers_default_bytes, least_bytes)
                               : parse_size(options.buffers);
    if (shared.buffers_bytes < least_bytes)
        throw Misuse("--buffers: '{}' is too small for {} threads: use {}M or more",
                     options.buffers, threads, least_bytes >> 20);
    raise_descriptor_limit();

    std::optional<UnixListener> at_path;
    Descriptor at_port;
    int listener = -1;
    if (options.unix_path.empty()) {
        at_port = listen_tcp(options.listen.empty() ? "127.0.0.1" : options.listen);
        listener = at_port.get();
    } else {
        at_path.emplace("--unix", options.unix_path, 0600);
        listener = at_path->fd();
        if (::listen(listener, backlog))
            throw Failure("can't listen at {}: {}", options.unix_path, std::strerror(errno));
    }
    const Descriptor signals = signal_descriptor();
    const Place place = find_table(settings);
    if (place.cache == options.store && (options.store || options.cache))
        throw Failure("the table '{}' is a {}: leave --{} out, or choose another --table",
                      options.table, place.cache ? "cache" : "store",
                      options.store ? "store" : "cache");
    shared.started_s = static_cast<std::uint32_t>(std::time(nullptr));
    shared.threads = threads;
    // All threads end when this is readable: nobody reads it.
    shared.stop_fd = signals.get();

    std::vector<std::unique_ptr<Worker>> workers;
    for (unsigned n = 0; n < threads; n++) {
        shared.counts.push_back(std::make_unique<Counts>());
        workers.push_back(std::make_unique<Worker>(shared, *shared.counts.back(), options.target,
                                                   place, listener));
    }
    say_ready(options, place, at_port ? port_of(listener) : 0);
    std::mutex lock;
    std::string failed;
    std::vector<std::thread> running;
    for (auto& worker : workers) {
        running.emplace_back([&, each = worker.get()] {
            try {
                each->run();
            } catch (const std::exception& failure) {
                std::lock_guard guard(lock);
                failed = failure.what();
                kill(getpid(), SIGTERM);
            }
        });
    }
    for (auto& each : running)
        each.join();
    if (!failed.empty())
        throw Failure("{}", failed);
}

int run(int argc, char** argv) {
    CLI::App program("Serves a key-value table in remote memory to clients of memcached and Redis.",
                     "remora-kv");
    Options options;
    program.set_version_flag("--version", version);
    program.add_option("TARGET", options.target, "udp:HOST[:PORT],key=FILE or shm:PATH,key=FILE")
        ->required();
    program.add_option("--listen", options.listen,
                       "ADDRESS[:PORT] to serve at; default 127.0.0.1:11211");
    program.add_option("--unix", options.unix_path, "Unix SOCKET to serve at instead");
    program.add_option("--table", options.table, "NAME of the table; default kv");
    program.add_option("--memory", options.memory,
                       "SIZE of the table, if it has to be made; default 64M");
    program.add_option("--item", options.item,
                       "Average SIZE of items, if it has to be made; default 128");
    program.add_flag("--cache", options.cache, "Evict items when memory is full; the default");
    program.add_flag("--store", options.store, "Refuse items when memory is full");
    program.add_option("--threads", options.threads, "N threads; default 1");
    program.add_option("--connections", options.connections, "At most N clients; default 1024");
    program.add_option("--buffers", options.buffers,
                       "Memory of SIZE for clients' commands and replies; default 256M");
    program.add_option("--ready-fd", options.ready_fd,
                       "Write the port to descriptor N once it serves");
    if (!parse_command_line(program, argc, argv))
        return 0;
    serve(options);
    return 0;
}

} // namespace

} // namespace remora::kv

int main(int argc, char** argv) {
    return remora::run_program("remora-kv", [&] { return remora::kv::run(argc, argv); });
}
