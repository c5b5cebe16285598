// SPDX-License-Identifier: GPL-2.0
//
// Runs a command whose N-th allocation fails, as far as the kernel's fault injection counts it
// (Documentation/fault-injection: fail-nth):
//
//     failnth N COMMAND...
//
// The last line of its output is "fired" or "not fired", then the command's status. The count
// belongs to one task and is gone when that is reaped; so it is read while the task is a zombie.
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace {

bool write_file(const char* path, const std::string& text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());

    if (fd >= 0)
        close(fd);
    return done;
}

long read_number(const std::string& path) {
    char text[32] = {};
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return -1;
    close(fd);
    return std::strtol(text, nullptr, 10);
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: failnth N COMMAND...\n");
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        if (!write_file("/proc/self/fail-nth", argv[1])) {
            std::perror("/proc/self/fail-nth");
            _exit(126);
        }
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    siginfo_t info{};
    if (child < 0 || waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) != 0) {
        std::perror("failnth");
        return 2;
    }
    long left = read_number("/proc/" + std::to_string(child) + "/fail-nth");
    waitpid(child, nullptr, 0);
    std::printf("%s %d\n", left == 0 ? "fired" : "not fired", info.si_status);
    return 0;
}
