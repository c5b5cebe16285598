// SPDX-License-Identifier: MIT
#include "support/key.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"
#include "support/random.hpp"
#include "support/say.hpp"

namespace remora {

namespace {

// More than a key with any sensible white space around it.
constexpr std::size_t file_bytes_max = 256;

int hex_value(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

std::string_view trimmed(std::string_view text) {
    static constexpr std::string_view space = " \t\r\n";
    auto first = text.find_first_not_of(space);
    if (first == std::string_view::npos)
        return {};
    return text.substr(first, text.find_last_not_of(space) - first + 1);
}

void write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        ssize_t wrote = write(fd, text.data(), text.size());
        if (wrote < 0 && errno != EINTR)
            throw Failure("{}", std::strerror(errno));
        text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(wrote, 0)));
    }
}

// Blocks signals while it exists, so that Ctrl-C can't interrupt the code it brackets.
class SignalsHeld {
public:
    SignalsHeld() {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, &before_);
    }
    SignalsHeld(const SignalsHeld&) = delete;
    SignalsHeld& operator=(const SignalsHeld&) = delete;
    ~SignalsHeld() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
};

} // namespace

Key key_random() {
    return random_value<Key>();
}

std::string key_text(const Key& key) {
    std::string text;
    for (std::uint8_t byte : key)
        text += fmt::format("{:02x}", byte);
    return text;
}

Key key_parse(std::string_view text, const std::string& source) {
    std::string_view digits = trimmed(text);
    Key key;
    if (digits.size() != 2 * key.size())
        throw Failure(ENOKEY,
                      "key {} has {} characters, not 32 hex digits: make one with 'remora key new'",
                      source, digits.size());
    for (std::size_t i = 0; i < key.size(); i++) {
        int high = hex_value(digits[2 * i]);
        int low = hex_value(digits[2 * i + 1]);
        if (high < 0 || low < 0)
            throw Failure(ENOKEY,
                          "key {} has other characters than hex digits: make one with "
                          "'remora key new'",
                          source);
        key[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    return key;
}

namespace {

// The user's remedy for an error of open().
const char* remedy(int error) {
    switch (error) {
    case ENOENT:
        return ": copy it from the other machine, or make it with 'remora key new FILE'";
    case EACCES:
        return ": be its owner, or copy it to a file of this user's with mode 600";
    default:
        return "";
    }
}

} // namespace

KeyFile key_read(const std::string& file) {
    Descriptor fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!fd || fstat(fd.get(), &status))
        throw Failure(ENOKEY, "can't read key {}: {}{}", file, std::strerror(errno), remedy(errno));
    if (S_ISDIR(status.st_mode))
        throw Failure(ENOKEY, "can't read key {}: it is a directory", file);
    std::array<char, file_bytes_max> text;
    ssize_t bytes = read(fd.get(), text.data(), text.size());
    if (bytes < 0)
        throw Failure(ENOKEY, "can't read key {}: {}", file, std::strerror(errno));
    return {key_parse({text.data(), static_cast<std::size_t>(bytes)}, file),
            S_ISREG(status.st_mode) && (status.st_mode & (S_IRGRP | S_IROTH)) != 0};
}

Key key_read_warning(const std::string& file, std::string_view program) {
    KeyFile read = key_read(file);
    if (read.exposed)
        warn("{}: warning: others can read key {}: chmod 600 {}", program, file, file);
    return read.key;
}

void key_write(const Key& key, const std::string& file) {
    SignalsHeld whole_or_not_at_all;
    Descriptor fd(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd && errno == EEXIST)
        throw Failure("{} exists already: choose another name, or remove it if no node and no "
                      "client uses it",
                      file);
    if (!fd)
        throw Failure("can't create {}: {}", file, std::strerror(errno));
    try {
        write_all(fd.get(), key_text(key) + "\n");
        if (fsync(fd.get()) && errno != EINVAL)
            throw Failure("{}", std::strerror(errno));
    } catch (const Failure& failure) {
        unlink(file.c_str());
        throw Failure("can't write {}: {}", file, failure.what());
    }
}

} // namespace remora
