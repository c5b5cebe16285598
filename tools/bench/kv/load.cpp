// SPDX-License-Identifier: GPL-2.0
// Load on a key-value server: YCSB's mixes, keys by Zipf 0.99 (or all alike), one thread.
//
//   bench-kv fill PROTOCOL ADDRESS KEYS BYTES
//   bench-kv run PROTOCOL ADDRESS KEYS BYTES CLIENTS BATCH SETS_PERCENT SECONDS SEED
//   bench-kv floor TARGET TABLE CLIENTS SECONDS
//
// PROTOCOL: memcached or redis. ADDRESS: a port of 127.0.0.1, or the path of a Unix socket. Each of
// CLIENTS connections has one request under way; one in SETS_PERCENT of 100 sets a key, the others
// get BATCH keys. floor: queries that look at the table's header and no more. Prints operations (a
// key each), hits and seconds as JSON.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <endian.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>
#include <remote/queue.h>

#include "offloads/kv/kv.h"
#include "support/descriptor.hpp"
#include "support/failure.hpp"
#include "support/say.hpp"

namespace {

using remora::Descriptor;
using remora::Failure;
using Clock = std::chrono::steady_clock;

constexpr double skew = 0.99;
constexpr std::size_t fill_pipeline = 64;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Ranks by Zipf (Gray et al., SIGMOD'94), spread over the keys, as YCSB does.
class Keys {
public:
    Keys(std::uint64_t count, std::uint64_t seed) : count_(count), random_(seed) {
        for (std::uint64_t n = 1; n <= count; n++)
            zeta_ += 1 / std::pow(static_cast<double>(n), skew);
        const double two = 1 + std::pow(0.5, skew);
        eta_ = (1 - std::pow(2.0 / static_cast<double>(count), 1 - skew)) / (1 - two / zeta_);
    }
    std::uint64_t next() {
        const double u = std::uniform_real_distribution<>()(random_), uz = u * zeta_;
        std::uint64_t rank = 0;
        if (uz >= 1 + std::pow(0.5, skew))
            rank = static_cast<std::uint64_t>(static_cast<double>(count_) *
                                              std::pow(eta_ * u - eta_ + 1, 1 / (1 - skew)));
        else if (uz >= 1)
            rank = 1;
        return std::min(rank, count_ - 1) * 0x9e3779b97f4a7c15 % count_;
    }
    bool sets(unsigned percent) { return random_() % 100 < percent; }

private:
    std::uint64_t count_;
    std::mt19937_64 random_;
    double zeta_ = 0, eta_;
};

Descriptor connect_to(const std::string& address) {
    const bool local = address.find('/') != address.npos;
    Descriptor fd(socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un path{};
    sockaddr_in port{};
    path.sun_family = AF_UNIX;
    address.copy(path.sun_path, sizeof(path.sun_path) - 1);
    port.sin_family = AF_INET;
    port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    port.sin_port = htons(static_cast<std::uint16_t>(local ? 0 : std::stoul(address)));
    const int failed = local ? connect(fd.get(), reinterpret_cast<sockaddr*>(&path), sizeof(path))
                             : connect(fd.get(), reinterpret_cast<sockaddr*>(&port), sizeof(port));
    if (failed)
        throw Failure("can't connect to {}: {}", address, std::strerror(errno));
    const int yes = 1;
    if (!local)
        setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    return fd;
}

std::string key_of(std::uint64_t n) {
    return fmt::format("k{:09}", n);
}

// Requests, and the ends of their replies.
class Dialect {
public:
    Dialect(const std::string& protocol, std::size_t bytes)
        : redis_(protocol == "redis"), value_(bytes, 'v') {
        if (!redis_ && protocol != "memcached")
            throw Failure("'{}' is not a protocol: use memcached or redis", protocol);
    }
    void set(std::string& to, std::uint64_t key) const {
        const std::string name = key_of(key);
        if (redis_)
            to += fmt::format("*3\r\n$3\r\nSET\r\n${}\r\n{}\r\n${}\r\n{}\r\n", name.size(), name,
                              value_.size(), value_);
        else
            to += fmt::format("set {} 0 0 {}\r\n{}\r\n", name, value_.size(), value_);
    }
    void get(std::string& to, Keys& keys, unsigned batch) const {
        to += redis_ ? fmt::format("*{}\r\n$4\r\nMGET\r\n", batch + 1) : "get";
        for (unsigned n = 0; n < batch; n++) {
            const std::string name = key_of(keys.next());
            to += redis_ ? fmt::format("${}\r\n{}\r\n", name.size(), name) : " " + name;
        }
        if (!redis_)
            to += "\r\n";
    }
    // The bytes of a whole reply; 0: more have to come. Values are told from lines by their length.
    std::size_t reply(std::string_view text, bool set, std::uint64_t& hits) const {
        std::size_t end = line(text, 0);
        if (!end)
            return 0;
        if (set) {
            if (text.starts_with("STORED") || text.starts_with("+OK"))
                return end;
            throw Failure("a set was answered by '{}'", text.substr(0, end - 2));
        }
        return redis_ ? array(text, end, hits) : values(text, hits);
    }

private:
    static std::size_t line(std::string_view text, std::size_t from) {
        const std::size_t end = text.find("\r\n", from);
        return end == text.npos ? 0 : end + 2;
    }
    std::size_t values(std::string_view text, std::uint64_t& hits) const {
        std::uint64_t found = 0;
        for (std::size_t at = 0;;) {
            const std::size_t end = line(text, at);
            if (!end)
                return 0;
            if (text.substr(at, 3) == "END") {
                hits += found;
                return end;
            }
            if (text.substr(at, 5) != "VALUE")
                throw Failure("a get was answered by '{}'", text.substr(at, end - at - 2));
            found++;
            at = end + value_.size() + 2;
            if (at > text.size())
                return 0;
        }
    }
    std::size_t array(std::string_view text, std::size_t at, std::uint64_t& hits) const {
        std::uint64_t found = 0;
        if (text[0] != '*')
            throw Failure("a get was answered by '{}'", text.substr(0, at - 2));
        for (long left = std::stol(std::string(text.substr(1, at - 3))); left; left--) {
            const std::size_t end = line(text, at);
            if (!end)
                return 0;
            const bool there = text.substr(at, 3) != "$-1";
            found += there;
            at = end + (there ? value_.size() + 2 : 0);
            if (at > text.size())
                return 0;
        }
        hits += found;
        return at;
    }

    bool redis_;
    std::string value_;
};

void send_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
        if (n < 0)
            throw Failure("the server closed a connection: {}", std::strerror(errno));
        text.remove_prefix(static_cast<std::size_t>(n));
    }
}

void receive_more(int fd, std::string& in) {
    const std::size_t had = in.size();
    in.resize(had + 65536);
    const ssize_t n = recv(fd, in.data() + had, 65536, 0);
    if (n <= 0)
        throw Failure("the server closed a connection");
    in.resize(had + static_cast<std::size_t>(n));
}

void print(std::uint64_t operations, std::uint64_t hits, double seconds) {
    fmt::print("{{\"operations\": {}, \"hits\": {}, \"seconds\": {}}}\n", operations, hits,
               seconds);
}

void fill(const Dialect& dialect, const std::string& address, std::uint64_t keys) {
    const Descriptor fd = connect_to(address);
    const auto start = Clock::now();
    std::string out, in;
    std::uint64_t none = 0;
    for (std::uint64_t n = 0; n < keys; n += fill_pipeline) {
        const std::uint64_t end = std::min<std::uint64_t>(n + fill_pipeline, keys);
        out.clear();
        for (std::uint64_t each = n; each < end; each++)
            dialect.set(out, each);
        send_all(fd.get(), out);
        in.clear();
        std::size_t at = 0;
        for (std::uint64_t each = n; each < end;) {
            const std::size_t bytes = dialect.reply(std::string_view(in).substr(at), true, none);
            if (bytes)
                each++;
            else
                receive_more(fd.get(), in);
            at += bytes;
        }
    }
    print(keys, 0, seconds_since(start));
}

struct Client {
    Descriptor fd;
    std::string in;
    bool sets = false;
};

void run(const Dialect& dialect, const std::string& address, std::uint64_t key_count,
         unsigned client_count, unsigned batch, unsigned sets_percent, double seconds,
         std::uint64_t seed) {
    Keys keys(key_count, seed);
    std::vector<Client> clients(client_count);
    const Descriptor poll(epoll_create1(EPOLL_CLOEXEC));
    std::string out;
    std::uint64_t operations = 0, hits = 0;
    auto ask = [&](Client& client) {
        out.clear();
        client.sets = keys.sets(sets_percent);
        // memcached has no set of many keys: a set stores one, also among batches.
        if (client.sets)
            dialect.set(out, keys.next());
        else
            dialect.get(out, keys, batch);
        send_all(client.fd.get(), out);
    };
    for (std::size_t n = 0; n < clients.size(); n++) {
        clients[n].fd = connect_to(address);
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = n;
        epoll_ctl(poll.get(), EPOLL_CTL_ADD, clients[n].fd.get(), &event);
        ask(clients[n]);
    }
    const auto start = Clock::now();
    std::array<epoll_event, 64> events;
    while (seconds_since(start) < seconds) {
        const int ready = epoll_wait(poll.get(), events.data(), events.size(), 1000);
        for (int n = 0; n < ready; n++) {
            Client& client = clients[events[static_cast<std::size_t>(n)].data.u64];
            receive_more(client.fd.get(), client.in);
            if (!dialect.reply(client.in, client.sets, hits))
                continue;
            operations += client.sets ? 1 : batch;
            client.in.clear();
            ask(client);
        }
    }
    print(operations, hits, seconds_since(start));
}

void check(int error, const char* what) {
    if (error < 0)
        throw Failure("{}: {}", what, remote_strerror(error));
}

void floor(const std::string& target, const std::string& name, unsigned clients, double seconds) {
    remote_t* r = nullptr;
    remote_queue_t* q = nullptr;
    raddr_t table = 0;
    if (remote_open(&r, target.c_str(), nullptr))
        throw Failure("can't open '{}': {}", target, remote_why());
    check(remote_queue_open(&q, r, nullptr), "no queue");
    check(remote_lookup(r, name.c_str(), &table, nullptr), "no table");
    kv_args args{};
    args.table = htole64(table);
    std::vector<kv_stats> results(clients);
    std::vector<remote_function> functions(clients);
    std::vector<remote_op> ops;
    std::vector<remote_completion> done(clients);
    auto begin = [&](std::size_t n) {
        functions[n] = {KV_ID, KV_STATS, 0, &args, sizeof(args), &results[n], sizeof(results[n])};
        ops.push_back(remote_op_query(&functions[n], n));
    };
    for (std::size_t n = 0; n < clients; n++)
        begin(n);
    const auto start = Clock::now();
    std::uint64_t operations = 0;
    while (seconds_since(start) < seconds) {
        check(remote_queue_submit(q, ops.data(), ops.size()), "can't submit");
        ops.clear();
        const int n = remote_queue_wait(q, done.data(), done.size(), 1, 1'000'000);
        check(n, "can't wait");
        for (int i = 0; i < n; i++) {
            check(done[static_cast<std::size_t>(i)].result, "a query failed");
            begin(done[static_cast<std::size_t>(i)].user_data);
        }
        operations += static_cast<std::uint64_t>(n);
    }
    print(operations, 0, seconds_since(start));
    remote_queue_close(q);
    remote_close(r);
}

int start(const std::vector<std::string>& words) {
    auto number = [&](std::size_t n) { return std::stoull(words.at(n)); };
    const std::string verb = words.empty() ? "" : words[0];
    if (verb == "fill" && words.size() == 5)
        fill(Dialect(words[1], number(4)), words[2], number(3));
    else if (verb == "run" && words.size() == 10)
        run(Dialect(words[1], number(4)), words[2], number(3), static_cast<unsigned>(number(5)),
            static_cast<unsigned>(number(6)), static_cast<unsigned>(number(7)), std::stod(words[8]),
            number(9));
    else if (verb == "floor" && words.size() == 5)
        floor(words[1], words[2], static_cast<unsigned>(number(3)), std::stod(words[4]));
    else
        return remora::warn("bench-kv: wrong arguments: its source says which"), 2;
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return start({argv + 1, argv + argc});
    } catch (const std::exception& failure) {
        remora::warn("bench-kv: {}", failure.what());
        return 1;
    }
}
