// SPDX-License-Identifier: GPL-2.0
// remora-image: users who compress and decompress pictures that lie in remote memory. Exit code 0:
// all pictures were right, 1: failure, 2: wrong usage.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <climits>
#include <ctime>
#include <mutex>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/image/user.hpp"
#include "common/cpu_time.hpp"
#include "common/program.hpp"
#include "common/version.hpp"
#include "support/parse.hpp"

namespace remora::image {

namespace {

constexpr unsigned users_max = 256;

struct Options {
    std::string target, users = "1", pictures = "100", quality = "90", node = "0";
    bool json = false;
};

// {} in a target is the user's number.
std::string target_of(const std::string& target, std::uint32_t user) {
    std::string made = target;
    for (std::size_t at = 0; (at = made.find("{}", at)) != made.npos;)
        made.replace(at, 2, std::to_string(user));
    return made;
}

struct Spent {
    double cpu_us = 0, elapsed_s = 0;
};

double thread_cpu_us() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// A thread for each user. They begin together once all have their pictures at the node.
class Session {
public:
    Session(const Options& options, unsigned users)
        : options_(options),
          pictures_(
              static_cast<std::uint32_t>(parse_number(options.pictures, 1, 100'000, "--pictures"))),
          quality_(static_cast<int>(parse_number(options.quality, 1, 100, "--quality"))),
          node_(static_cast<pid_t>(parse_number(options.node, 0, INT_MAX, "--node"))),
          spent_(users),
          filled_(users, Begin{*this}),
          worked_(users, End{*this}) {
        if (node_)
            process_cpu_ns(node_); // is there one?
    }

    void run() {
        std::vector<std::jthread> threads;
        for (std::uint32_t n = 0; n < spent_.size(); n++) {
            guarded([&] { threads.emplace_back([this, n] { serve(n); }); });
            if (threads.size() == n) { // no thread: the others don't wait for it
                threads.emplace_back();
                filled_.arrive_and_drop();
                worked_.arrive_and_drop();
            }
        }
        threads.clear();
        if (!failure_.empty())
            throw Failure("{}", failure_);
    }
    const std::vector<Spent>& spent() const { return spent_; }
    std::uint32_t pictures() const { return pictures_; }
    double node_us() const { return node_us_; }

private:
    using Clock = std::chrono::steady_clock;

    // Each user comes to both barriers even if it failed, for the others wait there.
    void serve(std::uint32_t n) {
        std::unique_ptr<User> user;
        guarded([&] {
            user = std::make_unique<User>(target_of(options_.target, n + 1), n + 1, pictures_,
                                          quality_, album_);
            user->fill();
        });
        filled_.arrive_and_wait();
        const double before = thread_cpu_us();
        if (user)
            guarded([&] {
                for (std::uint32_t each = 0; each < pictures_; each++) {
                    user->compress(each);
                    user->decompress(each);
                }
            });
        spent_[n] = {thread_cpu_us() - before,
                     std::chrono::duration<double>(Clock::now() - begun_).count()};
        worked_.arrive_and_wait();
    }
    template <typename Work>
    void guarded(Work&& work) {
        try {
            work();
        } catch (const std::exception& failure) {
            std::lock_guard guard(lock_);
            if (failure_.empty())
                failure_ = failure.what();
        }
    }
    double node_now_us() {
        double now_us = 0;
        guarded([&] { now_us = node_ ? process_cpu_ns(node_) / 1e3 : 0; });
        return now_us;
    }
    struct Begin {
        Session& session;
        void operator()() noexcept {
            session.node_us_ = session.node_now_us();
            session.begun_ = Clock::now();
        }
    };
    struct End {
        Session& session;
        void operator()() noexcept { session.node_us_ = session.node_now_us() - session.node_us_; }
    };

    const Options& options_;
    const std::uint32_t pictures_;
    const int quality_;
    const pid_t node_;
    const Album album_;
    std::vector<Spent> spent_;
    Clock::time_point begun_;
    double node_us_ = 0;
    std::mutex lock_;
    std::string failure_;
    std::barrier<Begin> filled_;
    std::barrier<End> worked_;
};

void serve(const Options& options) {
    const auto users = static_cast<unsigned>(parse_number(options.users, 1, users_max, "--users"));
    Session session(options, users);
    session.run();
    double cpu_us = 0, elapsed_s = 0;
    for (const Spent& each : session.spent()) {
        cpu_us += each.cpu_us;
        elapsed_s += each.elapsed_s / users;
    }
    const double pictures = double(session.pictures()) * users;
    if (options.json)
        fmt::print("{}\n", nlohmann::ordered_json{{"users", users},
                                                  {"pictures", session.pictures()},
                                                  {"cpu_us", cpu_us / pictures},
                                                  {"node_cpu_us", session.node_us() / pictures},
                                                  {"user_s", elapsed_s}}
                               .dump());
    else
        fmt::print("{} users, {} pictures each: {:.0f} us of CPU for a picture, {:.0f} us of the "
                   "node's, {:.3f} s for a user\n",
                   users, session.pictures(), cpu_us / pictures, session.node_us() / pictures,
                   elapsed_s);
}

int run(int argc, char** argv) {
    CLI::App program("Compresses and decompresses pictures in remote memory, and checks them.",
                     "remora-image");
    Options options;
    program.set_version_flag("--version", version);
    program
        .add_option("TARGET", options.target,
                    "udp:HOST[:PORT],key=FILE or shm:PATH,key=FILE; {} is the user's number")
        ->required();
    program.add_option("--users", options.users, "N users, a thread each; default 1");
    program.add_option("--pictures", options.pictures, "N of each user; default 100");
    program.add_option("--quality", options.quality, "N of the JPEGs, 1 to 100; default 90");
    program.add_option("--node", options.node,
                       "PID of a node on this machine, to tell its CPU time");
    program.add_flag("--json", options.json, "Print a line of JSON");
    if (!parse_command_line(program, argc, argv))
        return 0;
    serve(options);
    return 0;
}

} // namespace

} // namespace remora::image

int main(int argc, char** argv) {
    return remora::run_program("remora-image", [&] { return remora::image::run(argc, argv); });
}
