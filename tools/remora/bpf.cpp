// SPDX-License-Identifier: GPL-2.0
#include "remora/bpf.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

// Beside this program.
std::string loader() {
    const std::string path =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "remora-bpf";
    if (access(path.c_str(), X_OK))
        throw Failure("{} is not there: build it by 'make bpf'", path);
    return path;
}

std::string read_line(int fd) {
    std::string text;
    char part[256];
    for (ssize_t bytes; (bytes = read(fd, part, sizeof(part))) > 0;)
        text.append(part, static_cast<std::size_t>(bytes));
    return text.substr(0, text.find('\n'));
}

} // namespace

bool bpf_is_file(std::string_view program) {
    return program.ends_with(".o");
}

std::string bpf_run(const std::string& verb, const std::string& which) {
    std::string words[] = {loader(), verb, which};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    int ends[2], status = 0;
    pid_t child;
    if (pipe2(ends, O_CLOEXEC))
        throw Failure("can't make a pipe: {}", std::strerror(errno));
    Descriptor from(ends[0]), to(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // A line comes: the name, or the failure.
    for (int fd : {STDOUT_FILENO, STDERR_FILENO})
        posix_spawn_file_actions_adddup2(&actions, to.get(), fd);
    const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        throw Failure("can't run {}: {}", words[0], std::strerror(error));
    to = Descriptor();
    const std::string line = read_line(from.get());
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
        throw Failure("can't {} {}: {}", verb, which,
                      line.substr(std::min(line.find(' ') + 1, line.size())));
    return line;
}

bool bpf_forget(const std::string& name) {
    std::error_code error;
    if (!std::filesystem::exists("/sys/fs/bpf/remora/" + name, error))
        return false;
    bpf_run("forget", name);
    return true;
}

} // namespace remora
