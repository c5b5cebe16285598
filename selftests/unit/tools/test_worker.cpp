// SPDX-License-Identifier: GPL-2.0
// A thread of the daemon whose socket fails.
#include "remora-node/worker.hpp"

#include <array>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"

namespace remora::daemon {

namespace {

constexpr int patience_ms = 60'000;

rmem_node_config config() {
    rmem_node_config config{};
    config.boot = 7;
    config.pages = 4;
    config.page_shift = RMEM_PAGE_SHIFT_MIN;
    config.pool_pages = 2;
    config.piece_bytes = RMEM_PIECE_BYTES_MAX;
    config.spaces_max = 1;
    config.sessions_max = 4;
    config.regions_max = 4;
    return config;
}

// Captures stderr while it exists.
class Complaints {
public:
    Complaints() : stderr_(dup(STDERR_FILENO)) {
        int fds[2];
        if (pipe(fds))
            throw Failure("no pipe");
        reader_ = Descriptor(fds[0]);
        dup2(fds[1], STDERR_FILENO);
        close(fds[1]);
    }
    ~Complaints() { dup2(stderr_.get(), STDERR_FILENO); }
    Complaints(const Complaints&) = delete;
    Complaints& operator=(const Complaints&) = delete;
    // Waits for some; empty: there is none.
    std::string read(int patience) const {
        pollfd ready{reader_.get(), POLLIN, 0};
        std::array<char, 4096> text;
        if (poll(&ready, 1, patience) != 1)
            return {};
        ssize_t bytes = ::read(reader_.get(), text.data(), text.size());
        return {text.data(), static_cast<std::size_t>(bytes > 0 ? bytes : 0)};
    }

private:
    Descriptor stderr_, reader_;
};

TEST(Worker, SaysOnceThatItReceivesNothing) {
    Socket socket("::1", 0, Socket::Sharing::none);
    Node node(config(), false, 1);
    Worker worker(node, socket, 0, 0, nullptr);
    Descriptor none(eventfd(0, EFD_CLOEXEC));
    dup2(none.get(), socket.fd()); // no socket, as long as there is somebody to ask it
    Complaints complaints;
    std::thread thread(&Worker::run, &worker);
    std::string said = complaints.read(patience_ms);
    worker.stop();
    thread.join();
    EXPECT_EQ(said, "remora-node: warning: nothing can be received: Socket operation on "
                    "non-socket\n");
    EXPECT_EQ(complaints.read(0), "");
}

} // namespace

} // namespace remora::daemon
