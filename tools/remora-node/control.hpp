// SPDX-License-Identifier: GPL-2.0
/*
 * The connections of the control socket (common/control.hpp). They never block:
 *
 *   lines in ─> Handler ─> Answer, at once or later, from any thread ─> lines out
 *      '────────────── the next line, once that one is answered ───────────'
 *
 * A connection has connection_time to send a request, and again to take its answer; then it is
 * closed. At most connections_max are served. One more takes the place of the one that has been
 * idle for longest; if all wait for their answers, it is closed.
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

#include "remora-node/listener.hpp"

namespace remora::daemon {

class Control {
public:
    static constexpr std::size_t connections_max = 16;
    static constexpr std::chrono::seconds connection_time{5};

    // To be called once, with a line. Not when the Control is gone.
    using Answer = std::function<void(std::string line)>;
    using Handler = std::function<void(std::string_view line, Answer answer)>;

    explicit Control(std::string path, std::chrono::milliseconds time = connection_time);
    ~Control();

    // Is readable when there is something to do for ready().
    int fd() const { return events_.get(); }
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
    bool write(Connection& connection);
    void reply(std::uint64_t number, std::string line);
    bool take_answers(const Handler& handler);
    void close_late();
    void set_timer();

    UnixListener listener_;
    std::chrono::milliseconds time_;
    Descriptor events_, timer_, answered_;
    std::map<std::uint64_t, Connection> connections_; // by number
    std::uint64_t last_ = 0;                          // number given
    std::mutex lock_;
    std::vector<std::pair<std::uint64_t, std::string>> answers_; // under the lock
};

} // namespace remora::daemon
