// SPDX-License-Identifier: MIT
// A thread that turns an eventfd's signals into wake-ups of a futex: a kernel module can't wake
// one.
#include "remote/cmmc.h"

#include <cerrno>
#include <climits>
#include <linux/futex.h>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct cmmc_wake {
    pthread_t thread;
    int event, stop;
    uint32_t* word;
};

namespace {

void wake_all(uint32_t* word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// False: another reader of the eventfd was first. It might block, so it is not asked to wait: the
// thread would not see that it has to stop.
bool take(int event) {
    uint64_t count;
    iovec part{&count, sizeof(count)};
    return preadv2(event, &part, 1, -1, RWF_NOWAIT) > 0;
}

void* run(void* context) {
    auto* wake = static_cast<cmmc_wake*>(context);
    pollfd both[] = {{wake->stop, POLLIN, 0}, {wake->event, POLLIN, 0}};
    for (;;) {
        if (poll(both, 2, -1) < 0 && errno != EINTR)
            return nullptr;
        if (both[0].revents)
            return nullptr;
        if (both[1].revents & POLLIN && take(wake->event))
            wake_all(wake->word);
    }
}

} // namespace

#pragma GCC visibility push(default)

extern "C" {

int cmmc_wake_start(cmmc_wake_t** wake, int eventfd, uint32_t* word) {
    auto* made = new (std::nothrow) cmmc_wake{};
    if (!made)
        return -ENOMEM;
    made->event = eventfd;
    made->word = word;
    made->stop = ::eventfd(0, EFD_CLOEXEC);
    int error = made->stop < 0 ? errno : pthread_create(&made->thread, nullptr, run, made);
    if (error) {
        if (made->stop >= 0)
            close(made->stop);
        delete made;
        return -error;
    }
    *wake = made;
    return 0;
}

void cmmc_wake_stop(cmmc_wake_t* wake) {
    eventfd_write(wake->stop, 1);
    pthread_join(wake->thread, nullptr);
    close(wake->stop);
    delete wake;
}
}
