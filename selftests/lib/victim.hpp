// SPDX-License-Identifier: GPL-2.0
// A child process that is killed, so that it ends and frees nothing, or that stands still for a
// while. The constructor forks at once, while no other thread has work half done, and the child
// waits for the signal to begin.
#pragma once

#include <csignal>
#include <cstdlib>
#include <functional>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/descriptor.hpp"

namespace remora::test {

class Victim {
public:
    // The child runs what(), which returns true on success.
    explicit Victim(const std::function<bool()>& what) {
        int go[2], done[2];
        if (pipe2(go, O_CLOEXEC) || pipe2(done, O_CLOEXEC))
            std::abort();
        Descriptor child_go(go[0]), child_done(done[1]);
        go_ = Descriptor(go[1]);
        done_ = Descriptor(done[0]);
        pid_ = fork();
        if (pid_ < 0)
            std::abort();
        if (!pid_)
            live(what, child_go.get(), child_done.get());
    }
    Victim(const Victim&) = delete;
    Victim& operator=(const Victim&) = delete;
    ~Victim() { kill(); }

    pid_t pid() const { return pid_; }
    // Waits until the child has run what(), and returns its result.
    bool run() {
        char said = 0;
        return write(go_.get(), &said, 1) == 1 && read(done_.get(), &said, 1) == 1 && said;
    }
    // Returns when all of its threads stand still.
    void stop() {
        ::kill(pid_, SIGSTOP);
        waitpid(pid_, nullptr, WUNTRACED);
    }
    void resume() { ::kill(pid_, SIGCONT); }
    void kill() {
        if (pid_ <= 0)
            return;
        ::kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

private:
    [[noreturn]] static void live(const std::function<bool()>& what, int go, int done) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char said = 0;
        if (read(go, &said, 1) != 1)
            _exit(1);
        said = what();
        if (write(done, &said, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }

    Descriptor go_, done_;
    pid_t pid_ = 0;
};

} // namespace remora::test
