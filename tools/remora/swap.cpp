// SPDX-License-Identifier: GPL-2.0
/*
 * swapoff(2) of a disk whose node is dead waits for ever, and takes no signal meanwhile. So a
 * child calls it, and the parent watches the disk's state. At shutdown systemd calls it at the same
 * time; the kernel lets one of the two in, and the other one waits for the end of that.
 */
#include "remora/swap.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include <spawn.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remora/attach.hpp"
#include "remora/devices.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

// For services that end meanwhile to give their memory back.
constexpr seconds fits_within{20};
// Without a page less. A read that a lost packet holds up takes less than a second.
constexpr seconds progress_within{30};
// A node that was silent for so long is given up, and the pages with it.
constexpr seconds silent_within{20};

// Bytes swapped there; nothing: it is no active swap.
std::optional<std::uint64_t> swapped_bytes(const std::string& path) {
    std::ifstream swaps("/proc/swaps");
    std::string line, name, type;
    std::uint64_t size_kib = 0, used_kib = 0;
    std::getline(swaps, line); // the columns' names
    while (std::getline(swaps, line))
        if (std::istringstream(line) >> name >> type >> size_kib >> used_kib && name == path)
            return used_kib << 10;
    return std::nullopt;
}

std::uint64_t available_bytes() {
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::uint64_t kib = 0;
        if (std::istringstream words(line); line.starts_with("MemAvailable:")) {
            std::string name;
            words >> name >> kib;
            return kib << 10;
        }
    }
    return 0;
}

void pause_a_moment() {
    static constexpr timespec moment{0, 100'000'000};
    nanosleep(&moment, nullptr);
}

// Whether the disk's pages can still come back: its node answers, or has been silent for less than
// a path that fails over takes. A node that restarted has none of them.
class Node {
public:
    explicit Node(const std::string& path) : path_(path) {}
    bool is_there() {
        const auto state = devices(path_).front().number(RMEM_A_STATE);
        const auto now = Clock::now();
        if (state == RMEM_DEVICE_UP)
            heard_ = now;
        return state != RMEM_DEVICE_LOST && now - heard_ < silent_within;
    }

private:
    const std::string path_;
    Clock::time_point heard_ = Clock::now();
};

// False: the node is gone.
bool wait_for_room(Node& node, const std::string& path) {
    const auto limit = Clock::now() + fits_within;
    while (node.is_there()) {
        const auto swapped = swapped_bytes(path);
        if (!swapped || *swapped <= available_bytes() || Clock::now() > limit)
            return true;
        pause_a_moment();
    }
    return false;
}

// The kernel keeps a disk that is swap, says so, and fails its I/O.
void abandon(const std::string& path) {
    try {
        detach(path, true);
    } catch (const Failure& failure) {
        if (failure.error() != EBUSY)
            throw;
    }
}

// swapoff(2) in a process of its own.
class Off {
public:
    explicit Off(const std::string& path) : child_(fork()) {
        if (child_ < 0)
            throw Failure("can't start a process: {}", std::strerror(errno));
        if (!child_)
            _exit(swapoff(path.c_str()) ? errno : 0);
    }
    // One that a dead node holds up outlives this.
    ~Off() {
        if (child_)
            kill(child_, SIGKILL);
    }
    Off(const Off&) = delete;
    Off& operator=(const Off&) = delete;

    // errno, or 0; nothing: it goes on.
    std::optional<int> ended() {
        int status = 0;
        if (!child_)
            return error_;
        if (waitpid(child_, &status, WNOHANG) != child_)
            return std::nullopt;
        child_ = 0;
        error_ = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
        return error_;
    }

private:
    pid_t child_;
    int error_ = 0;
};

// The header of a swap area, and those of all that a disk is commonly used for, lie here.
constexpr std::size_t headers_bytes = 128 << 10;

std::string headers(const std::string& path) {
    std::string bytes(headers_bytes, '\0');
    std::ifstream disk(path, std::ios::binary);
    disk.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (disk.bad() || !disk.gcount())
        throw Failure("can't read {}: {}", path, std::strerror(errno));
    return bytes;
}

bool is_swap_area(const std::string& bytes) {
    const std::string mark = "SWAPSPACE2";
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return !bytes.compare(page - mark.size(), mark.size(), mark);
}

void run_mkswap(const std::string& path) {
    std::string program = "mkswap", quiet = "--quiet", device = path;
    char* const argv[] = {program.data(), quiet.data(), device.data(), nullptr};
    pid_t child = 0;
    int status = 0;
    if (int error = posix_spawnp(&child, "mkswap", nullptr, nullptr, argv, environ))
        throw Failure("can't run mkswap: {}", std::strerror(error));
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
        throw Failure("mkswap {} failed", path);
}

} // namespace

bool swap_is_on(const std::string& path) {
    return swapped_bytes(path).has_value();
}

void swap_start(const std::string& path, const SwapOptions& options) {
    int flags = options.discard ? SWAP_FLAG_DISCARD : 0;
    if (options.priority)
        flags |= SWAP_FLAG_PREFER | (*options.priority & SWAP_FLAG_PRIO_MASK);
    if (const std::string bytes = headers(path); !is_swap_area(bytes)) {
        if (bytes.find_first_not_of('\0') != bytes.npos)
            throw Failure("{} has content that isn't swap: 'mkswap {}' would erase it", path, path);
        run_mkswap(path);
    }
    if (swapon(path.c_str(), flags))
        throw Failure("can't swap to {}: {}", path, std::strerror(errno));
}

bool swap_stop(const std::string& path) {
    // A page of this program's that is swapped there would hold it up, too. Without the permission
    // it goes on all the same.
    mlockall(MCL_CURRENT | MCL_FUTURE);
    Node node(path);
    bool is_there = wait_for_room(node, path);
    if (!is_there)
        abandon(path);
    Off off(path);
    auto limit = Clock::now() + progress_within;
    for (std::optional<std::uint64_t> least; auto left = swapped_bytes(path); pause_a_moment()) {
        if (!least || *left < *least) {
            least = left;
            limit = Clock::now() + progress_within;
        }
        if (is_there && !node.is_there()) {
            is_there = false;
            abandon(path);
            limit = Clock::now() + progress_within;
        }
        const int error = off.ended().value_or(0);
        if (error && error != EINVAL && swap_is_on(path)) // EINVAL: another process' is under way
            throw Failure("can't stop the swap to {}: {}", path, std::strerror(error));
        if (Clock::now() > limit)
            throw Failure("the swap to {} doesn't end: {} are there still", path, size_text(*left));
    }
    return !is_there;
}

} // namespace remora
