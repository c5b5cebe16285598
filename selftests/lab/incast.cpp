// SPDX-License-Identifier: GPL-2.0
// Load for the namespaces of one machine. One process holds all streams, since in a User Mode Linux
// it is processes and their wake-ups that cost time, not packets.
//
//     incast pour ADDRESS PORT SECONDS NAMESPACE=CONTROL...
//         In this namespace a receiver; from each named one a TCP stream to it by that congestion
//         control, as fast as it goes. After a ramp of 2 s prints "counting", and after SECONDS a
//         line per stream: peer bytes.
//     incast ask ADDRESS PORT COUNT
//         Asks a memcached, one question at a time. Prints the answer times in us.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kChunk = 1 << 20;
// Not woken for each packet.
constexpr int kWakeBytes = 1 << 14;
constexpr std::chrono::seconds kRamp{2};

[[noreturn]] void fail(const char* what) {
    fprintf(stderr, "incast: %s: %s\n", what, strerror(errno));
    exit(1);
}

template <typename T>
T check(T result, const char* what) {
    if (result < 0)
        fail(what);
    return result;
}

sockaddr_in at(const char* address, const char* port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(uint16_t(atoi(port)));
    errno = EINVAL;
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        fail(address);
    return to;
}

void set(int fd, int level, int option, int value) {
    check(setsockopt(fd, level, option, &value, sizeof(value)), "setsockopt");
}

int connected(const sockaddr_in& to) {
    const int fd = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    check(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), "connect");
    return fd;
}

// ---- pour ----

struct Stream {
    std::string peer;
    int from, to;
    uint64_t bytes = 0, before = 0;
};

// sender: NAMESPACE=CONTROL. Leaves the thread in the sender's namespace: a socket keeps the one it
// was made in.
Stream open_stream(int listener, const sockaddr_in& to, const std::string& sender) {
    const size_t split = sender.find('=');
    const std::string control = sender.substr(split + 1);
    const int home =
        check(open(("/run/netns/" + sender.substr(0, split)).c_str(), O_RDONLY), sender.c_str());
    check(setns(home, CLONE_NEWNET), "setns");
    close(home);
    Stream stream{};
    stream.from = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    check(setsockopt(stream.from, IPPROTO_TCP, TCP_CONGESTION, control.c_str(),
                     socklen_t(control.size())),
          control.c_str());
    check(connect(stream.from, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), "connect");
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    stream.to = check(accept(listener, reinterpret_cast<sockaddr*>(&peer), &size), "accept");
    char text[INET_ADDRSTRLEN];
    stream.peer = inet_ntop(AF_INET, &peer.sin_addr, text, sizeof(text));
    set(stream.to, SOL_SOCKET, SO_RCVLOWAT, kWakeBytes);
    // A reset at the end of the process: queued bytes must not be sent beside the next load.
    const linger reset{1, 0};
    check(setsockopt(stream.from, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), "setsockopt");
    for (int fd : {stream.from, stream.to})
        check(fcntl(fd, F_SETFL, O_NONBLOCK), "fcntl");
    return stream;
}

void run_until(std::vector<Stream>& streams, std::vector<char>& memory, Clock::time_point end) {
    std::vector<pollfd> fds;
    for (const Stream& stream : streams) {
        fds.push_back({stream.from, POLLOUT, 0});
        fds.push_back({stream.to, POLLIN, 0});
    }
    for (auto now = Clock::now(); now < end; now = Clock::now()) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now);
        check(poll(fds.data(), fds.size(), int(left.count())), "poll");
        for (size_t i = 0; i < streams.size(); i++) {
            if (fds[2 * i].revents &&
                send(streams[i].from, memory.data(), kChunk, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
                fail("send");
            if (!fds[2 * i + 1].revents)
                continue;
            const ssize_t got = recv(streams[i].to, memory.data() + kChunk, 4 * kChunk, 0);
            if (got < 0 && errno != EAGAIN)
                fail("recv");
            streams[i].bytes += got > 0 ? uint64_t(got) : 0;
        }
    }
}

void pour(const char* address, const char* port, int seconds,
          const std::vector<std::string>& senders) {
    const sockaddr_in to = at(address, port);
    const int listener = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    check(bind(listener, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), "bind");
    check(listen(listener, int(senders.size())), "listen");
    std::vector<Stream> streams;
    for (const std::string& sender : senders)
        streams.push_back(open_stream(listener, to, sender));
    std::vector<char> memory(5 * kChunk, 'x');
    auto began = Clock::now();
    run_until(streams, memory, began + kRamp);
    printf("counting\n");
    fflush(stdout);
    for (Stream& stream : streams)
        stream.before = stream.bytes;
    began = Clock::now();
    run_until(streams, memory, began + std::chrono::seconds(seconds));
    for (const Stream& stream : streams)
        printf("%s %llu\n", stream.peer.c_str(),
               static_cast<unsigned long long>(stream.bytes - stream.before));
}

// ---- ask ----

void say(int fd, const std::string& text) {
    if (check(send(fd, text.data(), text.size(), MSG_NOSIGNAL), "send") != ssize_t(text.size()))
        fail("send");
}

void hear(int fd, const std::string& end) {
    std::string heard;
    char memory[4096];
    while (!heard.ends_with(end)) {
        const ssize_t got = check(recv(fd, memory, sizeof(memory), 0), "recv");
        if (!got)
            fail("memcached hung up");
        heard.append(memory, size_t(got));
    }
}

void ask(const char* address, const char* port, int count) {
    const int fd = connected(at(address, port));
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    say(fd, "set k 0 0 1000\r\n" + std::string(1000, 'x') + "\r\n");
    hear(fd, "STORED\r\n");
    for (int i = 0; i < count; i++) {
        const auto began = Clock::now();
        say(fd, "get k\r\n");
        hear(fd, "END\r\n");
        printf("%.0f\n", std::chrono::duration<double, std::micro>(Clock::now() - began).count());
    }
}

} // namespace

int main(int argc, char** argv) {
    const std::string verb = argc > 4 ? argv[1] : "";
    if (verb == "pour")
        pour(argv[2], argv[3], atoi(argv[4]), {argv + 5, argv + argc});
    else if (verb == "ask")
        ask(argv[2], argv[3], atoi(argv[4]));
    else
        fprintf(stderr, "usage: see the head of incast.cpp\n");
    return verb != "pour" && verb != "ask";
}
