// SPDX-License-Identifier: GPL-2.0
#include "remora/doctor.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "common/version.hpp"
#include "support/parse.hpp"
#include "uapi/remora_rmem.h"

namespace remora {

namespace fs = std::filesystem;

std::string Machine::read(const std::string& absolute) const {
    std::ifstream file(path(absolute));
    std::string text{std::istreambuf_iterator<char>(file), {}};
    while (text.ends_with("\n"))
        text.pop_back();
    return text;
}

namespace {

std::vector<std::string> names_in(const Machine& machine, const std::string& folder) {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& each : fs::directory_iterator(machine.path(folder), none))
        names.push_back(each.path().filename());
    std::ranges::sort(names);
    return names;
}

// A line of /proc/swaps.
struct Swap {
    std::string file; // as the kernel has it: a space is \040
    long priority;
};

std::vector<Swap> swaps_of(const Machine& machine) {
    std::vector<Swap> swaps;
    std::istringstream lines(machine.read("/proc/swaps"));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
        std::istringstream words(line);
        std::string file, kind, size, used;
        long priority = 0;
        if (words >> file >> kind >> size >> used >> priority)
            swaps.push_back({file, priority});
    }
    return swaps;
}

bool is_of_remora(const Swap& swap) {
    return swap.file.starts_with("/dev/rmb");
}

std::uint64_t number_in(const Machine& machine, const std::string& file) {
    return std::strtoull(machine.read(file).c_str(), nullptr, 10);
}

// The choice of a file such as "always [madvise] never".
std::string chosen(const std::string& text) {
    const std::size_t begin = text.find('['), end = text.find(']');
    return begin < end && end != text.npos ? text.substr(begin + 1, end - begin - 1) : "";
}

struct View {
    const Machine& machine;
    std::vector<SeenDevice> devices;
    std::vector<Swap> swaps; // all of the machine's
    bool serves;

    bool swaps_here() const { return std::ranges::any_of(swaps, is_of_remora); }
    bool has_disk() const { return std::ranges::any_of(devices, &SeenDevice::is_disk); }
};

using Faults = std::vector<Fault>;

// ---- modules ----

std::string release(const Machine& machine) {
    return machine.read("/proc/sys/kernel/osrelease");
}

// The module's file, below /lib/modules/RELEASE; empty: there is none.
std::string module_file(const Machine& machine, const std::string& name) {
    const std::string folder = "/lib/modules/" + release(machine);
    std::istringstream lines(machine.read(folder + "/modules.dep"));
    std::string line;
    while (std::getline(lines, line)) {
        const std::string file = line.substr(0, line.find(':'));
        if (fs::path(file).stem().stem() == name)
            return folder + "/" + file;
    }
    return {};
}

// The modules compile for Linux 6.1 to 6.12. True if release can't be read.
bool is_supported(const std::string& release) {
    unsigned major = 0, minor = 0;
    if (std::sscanf(release.c_str(), "%u.%u", &major, &minor) != 2)
        return true;
    return major == 6 && minor >= 1 && minor <= 12;
}

void check_module(const View& view, Faults& faults) {
    const Machine& machine = view.machine;
    if (view.serves || machine.has("/sys/module/rmem") || machine.has("/sys/module/rmem_node"))
        return;
    const bool is_built = !module_file(machine, "rmem").empty();
    if (!is_built && !is_supported(release(machine)))
        faults.push_back({"module", fmt::format("kernel {} isn't supported", release(machine)),
                          "the modules are for Linux 6.1 to 6.12",
                          "boot one of these kernels, and install its modules: README, Install"});
    else if (!is_built)
        faults.push_back({"module", fmt::format("no module rmem for kernel {}", release(machine)),
                          "it was built for another kernel, or not at all",
                          "build and install the modules: README, Install"});
    else
        faults.push_back({"module", "neither rmem nor rmem_node is loaded",
                          "this machine can't use or lend memory", "modprobe rmem"});
}

void check_version(const View& view, Faults& faults) {
    for (const char* name : {"rmem", "rmem_node"}) {
        const std::string loaded = view.machine.read(fmt::format("/sys/module/{}/version", name));
        if (!loaded.empty() && loaded != version)
            faults.push_back({"version", fmt::format("module {} is of version {}", name, loaded),
                              fmt::format("this program is {}: an upgrade doesn't replace a module "
                                          "that is in use",
                                          version),
                              "reboot"});
    }
}

// A signed module's file ends with these words.
constexpr std::string_view signature_end = "~Module signature appended~\n";

bool is_signed(const Machine& machine, const std::string& file) {
    std::ifstream in(machine.path(file), std::ios::binary | std::ios::ate);
    const std::streamoff bytes = in.tellg(), end_bytes = signature_end.size();
    std::string end(signature_end.size(), '\0');
    return bytes >= end_bytes && in.seekg(bytes - end_bytes) && in.read(end.data(), end_bytes) &&
           end == signature_end;
}

void check_signature(const View& view, Faults& faults) {
    const std::string lockdown = chosen(view.machine.read("/sys/kernel/security/lockdown"));
    const std::string file = module_file(view.machine, "rmem");
    // A compressed file's signature can't be seen.
    if (lockdown.empty() || lockdown == "none" || !file.ends_with(".ko") ||
        is_signed(view.machine, file))
        return;
    faults.push_back(
        {"signature", fmt::format("{} is not signed", file),
         fmt::format("the kernel is locked down ({}), so it refuses the module", lockdown),
         "mokutil --import /var/lib/dkms/mok.pub && dkms autoinstall --force, then reboot"});
}

// ---- memory and swap ----

void check_min_free(const View& view, Faults& faults) {
    const std::uint64_t kib = number_in(view.machine, "/proc/sys/vm/min_free_kbytes");
    if (view.has_disk() && kib && kib < RMEM_MIN_FREE_KIB)
        faults.push_back(
            {"min-free", fmt::format("vm.min_free_kbytes is {}", kib),
             "a machine that swaps over its network needs memory for packets, or it can "
             "stand still for ever",
             fmt::format("sysctl vm.min_free_kbytes={}", RMEM_MIN_FREE_KIB)});
}

// Sizes of cgroups that are limited, by their paths.
void each_cgroup(const Machine& machine, const auto& visit) {
    std::error_code none;
    const fs::path top = machine.path("/sys/fs/cgroup");
    const auto options = fs::directory_options::skip_permission_denied;
    for (auto at = fs::recursive_directory_iterator(top, options, none);
         at != fs::recursive_directory_iterator(); at.increment(none)) {
        if (at->path().filename() != "memory.max")
            continue;
        std::ifstream file(at->path());
        std::uint64_t bytes = 0;
        if (file >> bytes) // else it says max
            visit("/" + fs::relative(at->path().parent_path(), top, none).string(), bytes);
    }
}

// The kernel ends a program of a cgroup whose memory all waits to be written at once.
void check_cgroups(const View& view, Faults& faults) {
    for (const SeenDevice& device : view.devices) {
        if (!device.is_swap)
            continue;
        const std::string queue = "/sys/block/" + device.name + "/queue/";
        const std::uint64_t requests = number_in(view.machine, queue + "nr_requests");
        const std::uint64_t queue_bytes =
            requests * number_in(view.machine, queue + "max_sectors_kb") * 1024;
        std::string smallest;
        std::uint64_t bytes = queue_bytes;
        each_cgroup(view.machine, [&](const std::string& name, std::uint64_t max) {
            if (max && max < bytes) {
                bytes = max;
                smallest = name;
            }
        });
        if (!smallest.empty())
            faults.push_back(
                {"cgroup",
                 fmt::format("cgroup {} has {}, and a queue of {} holds {}", smallest,
                             size_text(bytes), device.name, size_text(queue_bytes)),
                 "the kernel ends programs of a cgroup whose memory all waits to be swapped out",
                 fmt::format("echo {} > {}nr_requests",
                             std::max<std::uint64_t>(4, requests * bytes / queue_bytes / 8),
                             queue)});
    }
}

void check_throttling(const View& view, Faults& faults) {
    for (const SeenDevice& device : view.devices) {
        const std::string knob = "/sys/block/" + device.name + "/queue/wbt_lat_usec";
        if (device.is_swap && number_in(view.machine, knob))
            faults.push_back({"throttled-swap",
                              fmt::format("the kernel throttles writes to {}", device.name),
                              "a network driver that needs memory can wait for ever for the "
                              "answers it should receive",
                              fmt::format("echo 0 > {}", knob)});
    }
}

void check_node_and_client(const View& view, Faults& faults) {
    const auto swap = std::ranges::find_if(view.swaps, is_of_remora);
    if (view.serves && swap != view.swaps.end())
        faults.push_back({"node-and-client", "this machine lends memory and swaps to remote memory",
                          "under memory pressure the two can wait for each other",
                          fmt::format("remora node stop, or swapoff {}", swap->file)});
}

void check_swaps(const View& view, Faults& faults) {
    std::optional<Swap> ours;
    for (const Swap& swap : view.swaps) {
        if (!is_of_remora(swap))
            continue;
        ours = swap;
        if (swap.file.ends_with("(deleted)"))
            faults.push_back(
                {"swap-deleted", fmt::format("{} is swap, and detached", swap.file),
                 "no swapoff can name it any more, and programs whose pages were there "
                 "are ended",
                 "reboot"});
    }
    for (const Swap& swap : view.swaps) {
        const bool is_memory = is_of_remora(swap) || swap.file.starts_with("/dev/zram");
        if (ours && !is_memory && swap.priority >= ours->priority)
            faults.push_back(
                {"swap-priority",
                 fmt::format("{} has the priority {}, and {} has {}", swap.file, swap.priority,
                             ours->file, ours->priority),
                 "the kernel swaps to the slower device first",
                 fmt::format("swapoff {0}; swapon --discard --priority 100 {0}", ours->file)});
    }
}

void check_mthp(const View& view, Faults& faults) {
    constexpr std::uint64_t larger_kib = 2048; // the kernel splits such pages before it swaps them
    const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
    for (const std::string& name : names_in(view.machine, folder)) {
        std::uint64_t kib = 0;
        if (std::sscanf(name.c_str(), "hugepages-%lukB", &kib) != 1 || kib >= larger_kib ||
            !view.swaps_here() || chosen(view.machine.read(folder + name + "/enabled")) != "always")
            continue;
        faults.push_back(
            {"mthp", fmt::format("all programs get pages of {} KiB", kib),
             "they are swapped whole, so a program that reads at random waits for data "
             "that it doesn't need",
             fmt::format("echo madvise > {}{}/enabled", folder, name)});
    }
}

void check_kubelet(const View& view, Faults& faults) {
    const std::string file = "/var/lib/kubelet/config.yaml";
    if (view.swaps_here() && view.machine.has(file) &&
        view.machine.read(file).find("failSwapOn: false") == std::string::npos)
        faults.push_back(
            {"kubelet", "kubelet fails while swap is on",
             fmt::format("{} doesn't say failSwapOn: false", file),
             fmt::format("set failSwapOn: false in {}, then systemctl restart kubelet", file)});
}

// ---- the rest ----

void check_clock(const View& view, Faults& faults) {
    static constexpr std::array slow = {"acpi_pm", "hpet", "jiffies", "refined-jiffies", "pit"};
    const std::string clock =
        view.machine.read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if (std::ranges::find(slow, clock) != slow.end())
        faults.push_back({"clock", fmt::format("the kernel's clock is {}", clock),
                          "each look at it takes a microsecond or more, and an operation takes "
                          "several",
                          "echo tsc > /sys/devices/system/clocksource/clocksource0/"
                          "current_clocksource; if it is refused, dmesg | grep -i tsc tells why"});
}

void check_key(const fs::path& file, const std::string& shown, Faults& faults) {
    struct stat about {};
    if (stat(file.c_str(), &about)) {
        faults.push_back({"key", fmt::format("there is no key file {}", shown),
                          "neither a node nor a device can start with it",
                          fmt::format("remora key new {}", shown)});
        return;
    }
    if (about.st_mode & (S_IRWXG | S_IRWXO))
        faults.push_back({"key-mode",
                          fmt::format("others than its owner can use the key {}", shown),
                          "who has the key can read and change all memory of its space",
                          fmt::format("chmod 600 {}", shown)});
}

void check_keys(const View& view, const std::vector<std::string>& named, Faults& faults) {
    for (const std::string& name : names_in(view.machine, "/etc/remora"))
        if (name.ends_with(".key"))
            check_key(view.machine.path("/etc/remora/" + name), "/etc/remora/" + name, faults);
    for (const std::string& file : named)
        check_key(file, file, faults);
}

void check_lost(const View& view, Faults& faults) {
    for (const SeenDevice& device : view.devices)
        if (device.state == "lost")
            faults.push_back(
                {"content-lost", fmt::format("{} has lost its content", device.name),
                 fmt::format("its node {} restarted, or this machine was restored from "
                             "a snapshot",
                             device.node),
                 fmt::format("remora detach --force {}", device.name)});
}

} // namespace

std::vector<SeenDevice> Machine::devices() const {
    std::vector<SeenDevice> devices;
    const std::vector<Swap> swaps = swaps_of(*this);
    for (const std::string folder : {"/sys/block/", "/sys/class/rmem/"})
        for (const std::string& name : names_in(*this, folder)) {
            const std::string about = folder + name + "/rmem/";
            if (!name.starts_with("rm") || !has(about + "state"))
                continue;
            devices.push_back({name, read(about + "node"), read(about + "state"),
                               name.starts_with("rmb"),
                               std::ranges::any_of(swaps, [&](const Swap& swap) {
                                   return swap.file == "/dev/" + name;
                               })});
        }
    return devices;
}

std::vector<Fault> faults_of_files(const Machine& machine, const std::vector<std::string>& keys,
                                   bool serves) {
    const View view{machine, machine.devices(), swaps_of(machine), serves};
    Faults faults;
    check_module(view, faults);
    check_version(view, faults);
    check_signature(view, faults);
    check_lost(view, faults);
    check_min_free(view, faults);
    check_cgroups(view, faults);
    check_throttling(view, faults);
    check_node_and_client(view, faults);
    check_swaps(view, faults);
    check_mthp(view, faults);
    check_kubelet(view, faults);
    check_clock(view, faults);
    check_keys(view, keys, faults);
    return faults;
}

} // namespace remora
