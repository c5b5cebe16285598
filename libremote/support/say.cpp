// SPDX-License-Identifier: MIT
#include "support/say.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <exception>

#include <poll.h>
#include <unistd.h>

namespace remora {

bool say(int fd, std::string_view text) noexcept {
    while (!text.empty()) {
        pollfd writable{fd, POLLOUT, 0};
        if (poll(&writable, 1, 0) <= 0 || !(writable.revents & POLLOUT))
            return false;
        // A writable pipe takes PIPE_BUF bytes without waiting.
        ssize_t wrote = write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        text.remove_prefix(static_cast<std::size_t>(wrote));
    }
    return true;
}

void warn_text(fmt::string_view text, fmt::format_args args) noexcept {
    try {
        say(STDERR_FILENO, fmt::vformat(text, args) + "\n");
    } catch (const std::exception&) { // no memory for the text
    }
}

} // namespace remora
