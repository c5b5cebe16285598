// SPDX-License-Identifier: GPL-2.0
// Connections of the daemon's control socket.
#include "common/control_server.hpp"

#include <atomic>
#include <cstdlib>
#include <future>
#include <latch>
#include <list>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/control.hpp"
#include "common/listener.hpp"
#include "support/failure.hpp"
#include "support/unix_address.hpp"

namespace remora::daemon {

namespace {

using namespace std::chrono_literals;

// A control socket, whose thread hands each line to the handler.
class Controlled : public testing::Test {
protected:
    ~Controlled() override {
        stopping_ = true;
        connect(); // wakes the thread
        thread_.join();
        rmdir(folder_);
    }

    void start(Control::Handler handler, std::chrono::milliseconds time = 60s) {
        control_.emplace(path_, time);
        thread_ = std::thread([this, handler] {
            pollfd some{control_->fd(), POLLIN, 0};
            while (!stopping_ && poll(&some, 1, -1) >= 0)
                control_->ready(handler);
            control_.reset();
        });
    }

    Descriptor connect() {
        Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_un address = unix_address(path_);
        EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        return fd;
    }

    static void say(const Descriptor& fd, std::string_view text) {
        EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(text.size()));
    }

    // Up to so many bytes, fewer if the connection ends.
    static std::string read(const Descriptor& fd, std::size_t bytes) {
        std::string text(bytes, '\0');
        ssize_t got = recv(fd.get(), text.data(), bytes, MSG_WAITALL);
        text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        return text;
    }

private:
    char folder_[32] = "/tmp/remora-control-XXXXXX";
    std::string path_ = std::string(mkdtemp(folder_)) + "/socket";
    std::optional<Control> control_;
    std::atomic<bool> stopping_ = false;
    std::thread thread_;
};

void echo(std::string_view line, const Control::Answer& answer) {
    answer(std::string(line));
}

TEST_F(Controlled, LinesSentTogetherAreAnsweredInTheirOrder) {
    start(echo);
    Descriptor fd = connect();
    say(fd, "one\ntwo\n\nthr");
    EXPECT_EQ(read(fd, 9), "one\ntwo\n\n");
    say(fd, "ee\n");
    EXPECT_EQ(read(fd, 6), "three\n");
}

TEST_F(Controlled, AnswersMayComeLaterFromAnotherThread) {
    std::list<std::thread> threads;
    start([&](std::string_view line, Control::Answer answer) {
        threads.emplace_back([text = std::string(line), answer] { answer(text); });
    });
    Descriptor one = connect(), two = connect();
    say(one, "one\nmore\n");
    say(two, "two\n");
    EXPECT_EQ(read(two, 4), "two\n");
    EXPECT_EQ(read(one, 9), "one\nmore\n");
    for (std::thread& thread : threads)
        thread.join();
}

TEST_F(Controlled, AnAnswerLargerThanTheSocketsBufferArrivesWhole) {
    const std::string large(8 << 20, 'x');
    start([&](std::string_view, const Control::Answer& answer) { answer(large); });
    Descriptor fd = connect();
    say(fd, "?\n?\n");
    EXPECT_EQ(read(fd, 2 * large.size() + 2), large + "\n" + large + "\n");
}

TEST_F(Controlled, AConnectionThatIsIdleForTooLongIsClosed) {
    start(echo, 1ms);
    Descriptor silent = connect(), slow = connect();
    say(slow, "no line");
    EXPECT_EQ(read(silent, 1), "");
    EXPECT_EQ(read(slow, 1), "");
}

TEST_F(Controlled, OneThatTakesNoAnswerIsClosed) {
    start(
        [](std::string_view, const Control::Answer& answer) { answer(std::string(8 << 20, 'x')); },
        100ms);
    Descriptor fd = connect();
    say(fd, "?\n");
    pollfd gone{fd.get(), POLLRDHUP, 0};
    EXPECT_EQ(poll(&gone, 1, -1), 1);
}

TEST_F(Controlled, WhereAllWaitForTheirAnswersANewcomerIsClosed) {
    std::mutex lock;
    std::list<Control::Answer> waiting;
    start([&](std::string_view line, const Control::Answer& answer) {
        if (line == "wait") {
            std::lock_guard guard(lock);
            waiting.push_back(answer);
        } else {
            answer(std::string(line));
        }
    });
    std::list<Descriptor> all;
    for (std::size_t n = 0; n < Control::connections_max; n++) {
        all.push_back(connect());
        say(all.back(), "one\n");
        EXPECT_EQ(read(all.back(), 4), "one\n");
    }
    for (const Descriptor& fd : all)
        say(fd, "wait\n");
    for (;;) {
        std::lock_guard guard(lock);
        if (waiting.size() == Control::connections_max)
            break;
    }
    EXPECT_EQ(read(connect(), 1), "");
    for (const Control::Answer& answer : waiting)
        answer("done");
    for (const Descriptor& fd : all)
        EXPECT_EQ(read(fd, 5), "done\n");
}

// A folder for sockets.
class Folder {
public:
    Folder() { mkdtemp(name_); }
    ~Folder() { rmdir(name_); }
    std::string operator/(std::string_view name) const { return fmt::format("{}/{}", name_, name); }

private:
    char name_[32] = "/tmp/remora-socket-XXXXXX";
};

Descriptor connected(const std::string& path) {
    Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = unix_address(path);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
}

TEST(Control, WithoutADescriptorForAConnectionItRestsAndServesItLater) {
    Folder folder;
    Control control(folder / "socket");
    Descriptor client = connected(folder / "socket");
    std::string line = "one\n";
    EXPECT_EQ(send(client.get(), line.data(), line.size(), 0), 4);
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(Descriptor(dup(0)).get()); // the lowest that is free
    setrlimit(RLIMIT_NOFILE, &none);
    pollfd some{control.fd(), POLLIN, 0};
    EXPECT_EQ(poll(&some, 1, 0), 1);
    control.ready(echo);
    EXPECT_EQ(poll(&some, 1, 0), 0) << "it would look again and again";
    setrlimit(RLIMIT_NOFILE, &before);
    pollfd answered{client.get(), POLLIN, 0};
    while (!poll(&answered, 1, 0)) {
        ASSERT_EQ(poll(&some, 1, 60'000), 1);
        control.ready(echo);
    }
}

TEST(Listener, OfManyThatReplaceAStaleSocketOneListens) {
    Folder folder;
    const std::string path = folder / "socket";
    for (int round = 0; round < 50; round++) {
        {
            UnixListener stale("--socket", path, 0600);
            stale.leave();
        }
        std::atomic<unsigned> listening{0};
        std::latch ready(4), over(4);
        std::vector<std::thread> threads;
        for (int n = 0; n < 4; n++)
            threads.emplace_back([&] {
                std::optional<UnixListener> mine;
                ready.arrive_and_wait();
                try {
                    mine.emplace("--socket", path, 0600);
                    listening++;
                } catch (const Failure&) { // another one has it
                }
                over.arrive_and_wait();
            });
        for (std::thread& thread : threads)
            thread.join();
        ASSERT_EQ(listening, 1U) << "in round " << round;
    }
}

TEST_F(Controlled, AnAnswerToAConnectionThatIsGoneIsDropped) {
    std::promise<Control::Answer> first;
    bool is_first = true;
    start([&](std::string_view line, const Control::Answer& answer) {
        if (std::exchange(is_first, false))
            first.set_value(answer);
        else
            answer(std::string(line));
    });
    Control::Answer late;
    {
        Descriptor fd = connect();
        say(fd, "one\n");
        late = first.get_future().get();
    }
    Descriptor other = connect();
    late("late");
    say(other, "two\n");
    EXPECT_EQ(read(other, 4), "two\n");
}

} // namespace

} // namespace remora::daemon
