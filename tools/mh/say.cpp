// SPDX-License-Identifier: GPL-2.0
#include "mh/say.hpp"

#include <climits>

#include <poll.h>
#include <unistd.h>

namespace remora::mh {

void say_line(const std::string& line) {
    // A pipe that poll() calls writable has room for PIPE_BUF bytes.
    pollfd output{STDOUT_FILENO, POLLOUT, 0};
    if (line.size() > PIPE_BUF || poll(&output, 1, 0) != 1 || !(output.revents & POLLOUT))
        return;
    // A reader that has ended is no matter either.
    [[maybe_unused]] ssize_t written = write(STDOUT_FILENO, line.data(), line.size());
}

} // namespace remora::mh
