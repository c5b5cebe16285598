// SPDX-License-Identifier: GPL-2.0
/*
 * The connections of a daemon's control socket: lines in, lines out. They never block:
 *
 *   lines in ─> Handler ─> Answer, at once or later, from any thread ─> lines out
 *      '────────────── the next line, once that one is answered ───────────'
 *
 * A connection has connection_time to send a request, and again to take its answer; then it is
 * closed. At most connections_max are served. One more takes the place of the one that has been
 * idle for longest; if all wait for their answers, it is closed. Without a descriptor for it, one
 * waits in the listener, which is looked at again after accept_pause. Only root and the daemon's
 * own user are served.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/listener.hpp"

namespace remora {

class Control {
public:
    static constexpr std::size_t connections_max = 16;
    static constexpr std::chrono::seconds connection_time{5};
    static constexpr std::chrono::milliseconds accept_pause{100};

    // An answer's line, and descriptors that travel with it: at most files_max.
    struct Reply {
        Reply(std::string text, std::vector<Descriptor> passed = {})
            : line(std::move(text)), files(std::move(passed)) {}
        Reply(const char* text) : line(text) {}

        std::string line;
        std::vector<Descriptor> files;
    };
    // To be called once. Not when the Control is gone.
    using Answer = std::function<void(Reply reply)>;
    using Handler = std::function<void(std::string_view line, Answer answer)>;

    explicit Control(std::string path, std::chrono::milliseconds time = connection_time);
    // At a socket that listens already.
    explicit Control(UnixListener&& listener, std::chrono::milliseconds time = connection_time);
    ~Control();

    // Is readable when there is something to do for ready().
    int fd() const { return events_.get(); }
    UnixListener& socket() { return listener_; }
    void ready(const Handler& handler);

private:
    using Clock = std::chrono::steady_clock;
    struct Connection;

    bool watch(int fd, std::uint64_t number, std::uint32_t events);
    void accept();
    bool make_room();
    bool advance(std::uint64_t number, Connection& connection, const Handler& handler);
    bool read(Connection& connection);
    void take_line(std::uint64_t number, Connection& connection, const Handler& handler);
    static bool send_with_files(Connection& connection, char first);
    bool write(Connection& connection);
    void reply(std::uint64_t number, Reply answer);
    bool take_answers(const Handler& handler);
    void close_late();
    void set_timer();

    UnixListener listener_;
    std::chrono::milliseconds time_;
    Descriptor events_, timer_, answered_;
    Clock::time_point listens_again_{};               // after want of descriptors
    std::map<std::uint64_t, Connection> connections_; // by number
    std::uint64_t last_ = 0;                          // number given
    std::mutex lock_;
    std::vector<std::pair<std::uint64_t, Reply>> answers_; // under the lock
};

} // namespace remora
