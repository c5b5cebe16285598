// SPDX-License-Identifier: GPL-2.0
// remora-bpf: loads a program in BPF for the kernel's memory node, or a newer one in its place.
// remora runs it. Exit code 0: the program's name is on standard output, 1: failure, 2: wrong
// usage.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "common/program.hpp"
#include "common/version.hpp"
#include "remora/offload.h"
#include "support/failure.hpp"

namespace remora::bpf {

namespace {

constexpr char mount[] = "/sys/fs/bpf", pins[] = "/sys/fs/bpf/remora";
constexpr std::size_t log_bytes = 1 << 20;
constexpr unsigned map_has_link = 1 << 13; // BPF_F_LINK of Linux 6.4

// libbpf's own words, which are shown when the verifier says nothing.
std::string last_warning;

int keep_warning(libbpf_print_level level, const char* format, va_list arguments) {
    char line[1024];
    if (level == LIBBPF_WARN && std::vsnprintf(line, sizeof(line), format, arguments) > 0)
        last_warning.assign(line, std::strcspn(line, "\n"));
    return 0;
}

// The last source line in the verifier's log, and its last words before its statistics.
std::string words_of_verifier(std::string_view log, int error) {
    std::string source, words;
    while (!log.empty()) {
        const std::size_t end = std::min(log.find('\n'), log.size());
        const std::string_view line = log.substr(0, end);
        log.remove_prefix(std::min(end + 1, log.size()));
        if (line.starts_with("processed ") || line.starts_with("cur state:") ||
            line.starts_with("old state:") || line.empty())
            continue;
        if (line.starts_with(";"))
            source = line.substr(1);
        words = line;
    }
    // The module's own refusals are errnos (kmod/rmem/bpf/ops.c).
    if (words.find("attach to unsupported member") != std::string::npos) {
        switch (error) {
        case EOPNOTSUPP:
            return "it calls a function of the kernel's own, as bpf_for() does: a loop has a "
                   "constant number of turns, or is rmem_for_steps()";
        case ELOOP:
            return "it uses may_goto: loop by rmem_for_steps()";
        case EMLINK:
            return "it has a global function beside its step: make it static";
        case EDEADLK:
            return "it can sleep: put its step in the section struct_ops";
        }
    }
    return source.empty() || words.empty() ? words : fmt::format("{}, at:{}", words, source);
}

void check_kernel() {
    utsname kernel{};
    uname(&kernel);
    if (std::filesystem::exists("/sys/kernel/btf/rmem_bpf"))
        return;
    if (std::filesystem::exists("/sys/module/rmem_bpf"))
        throw Failure("the type information of rmem_bpf isn't that of this kernel: build the "
                      "modules with this kernel's headers");
    unsigned major = 0, minor = 0;
    std::sscanf(kernel.release, "%u.%u", &major, &minor);
    if (major < 6 || (major == 6 && minor < 11))
        throw Failure(
            "programs in BPF need Linux 6.11 or later, this is {}: build the program as a "
            "module and load it by its name",
            kernel.release);
    throw Failure("the module rmem_bpf is not loaded: modprobe rmem_bpf");
}

void check_mount() {
    struct statfs found {};
    if (statfs(mount, &found) || found.f_type != BPF_FS_MAGIC)
        throw Failure("no BPF file system is at {0}: mount -t bpf bpf {0}", mount);
}

std::string pin_of(const std::string& name) {
    return fmt::format("{}/{}", pins, name);
}

struct Close {
    void operator()(bpf_object* object) const { bpf_object__close(object); }
    void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using Object = std::unique_ptr<bpf_object, Close>;
using Link = std::unique_ptr<bpf_link, Close>;

struct Program {
    Object object;
    bpf_map* map;
    std::string name;
};

// The kernel checks the same, without words.
void check(const rmem_offload_ops& ops) {
    const std::string_view name(ops.name, strnlen(ops.name, sizeof(ops.name)));
    if (ops.version != RMEM_OFFLOAD_VERSION)
        throw Failure("it is of version {} of remora/offload.h, not {}", ops.version,
                      RMEM_OFFLOAD_VERSION);
    if (!ops.id)
        throw Failure("its id is 0");
    if (ops.budget_us > RMEM_BUDGET_US_MAX)
        throw Failure("its budget of {} us is above {}", ops.budget_us, RMEM_BUDGET_US_MAX);
    if (name.empty() || name.size() == sizeof(ops.name) ||
        name.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
            std::string_view::npos)
        throw Failure("'{}' is no name of a program: use 1 to {} letters, digits, _ and -", name,
                      sizeof(ops.name) - 1);
}

Program load(const std::string& file) {
    // libbpf asks the verifier for words when it refuses.
    static std::vector<char> log(log_bytes);
    LIBBPF_OPTS(bpf_object_open_opts, options, .kernel_log_buf = log.data(),
                .kernel_log_size = log.size());
    Program program;
    program.object.reset(bpf_object__open_file(file.c_str(), &options));
    if (!program.object)
        throw Failure("{}",
                      errno == ENOENT
                          ? "no such file"
                          : "it is not an object file in BPF: compile it by clang -target bpf");
    program.map = bpf_object__find_map_by_name(program.object.get(), "rmem_offload");
    std::size_t bytes = 0;
    const void* value = program.map ? bpf_map__initial_value(program.map, &bytes) : nullptr;
    if (!value || bpf_map__type(program.map) != BPF_MAP_TYPE_STRUCT_OPS ||
        !(bpf_map__map_flags(program.map) & map_has_link) || bytes < sizeof(rmem_offload_ops))
        throw Failure("it defines no rmem_offload: see remora/offload.h");
    const auto* ops = static_cast<const rmem_offload_ops*>(value);
    check(*ops);
    program.name = ops->name;
    if (const int error = bpf_object__load(program.object.get())) {
        const std::string words = words_of_verifier(log.data(), -error);
        if (!words.empty())
            throw Failure("the kernel's verifier refuses it: {}", words);
        if (error == -EPERM)
            throw Failure("not permitted: run as root");
        throw Failure("{} ({})", std::strerror(-error), last_warning);
    }
    return program;
}

// A link lives as long as its pin.
void pin(bpf_link& link, const std::string& name) {
    const std::string path = pin_of(name);
    std::filesystem::create_directories(pins);
    if (bpf_link__pin(&link, path.c_str()))
        throw Failure("{}: {}", path, std::strerror(errno));
}

void add(const std::string& file) {
    Program program = load(file);
    if (std::filesystem::exists(pin_of(program.name)))
        throw Failure("a program {} is loaded: remora node offload replace {}, or load {} for "
                      "another space",
                      program.name, file, program.name);
    Link link(bpf_map__attach_struct_ops(program.map));
    if (!link)
        throw Failure("{}", errno == EEXIST ? "there is a module's program of that name"
                                            : std::strerror(errno));
    pin(*link, program.name);
    fmt::print("{}\n", program.name);
}

void replace(const std::string& file) {
    Program program = load(file);
    const Link old(bpf_link__open(pin_of(program.name).c_str()));
    if (!old)
        throw Failure("no program {} in BPF is loaded: remora node offload load {}", program.name,
                      file);
    // This makes the map ready. It can't be attached beside the old one, unless that has just gone.
    const Link alone(bpf_map__attach_struct_ops(program.map));
    if (alone || errno != EEXIST)
        throw Failure("the program {} was removed meanwhile: remora node offload remove {}, and "
                      "load {}",
                      program.name, program.name, file);
    if (const int error =
            bpf_link_update(bpf_link__fd(old.get()), bpf_map__fd(program.map), nullptr)) {
        if (error == -EINVAL)
            throw Failure("its id or its functions that change memory are others than those of the "
                          "program {} that is loaded: remove that first",
                          program.name);
        throw Failure("{}", std::strerror(-error));
    }
    fmt::print("{}\n", program.name);
}

// Its pin's removal alone would have the kernel forget it some time later.
void forget(const std::string& name) {
    const Link link(bpf_link__open(pin_of(name).c_str()));
    if (!link)
        throw Failure("no program {} in BPF is loaded", name);
    if (bpf_link__detach(link.get()) && errno != ENOLINK)
        throw Failure("{}: {}", name, std::strerror(errno));
    std::filesystem::remove(pin_of(name));
}

int run(int argc, char** argv) {
    CLI::App program("Loads programs in BPF for the kernel's memory node. 'remora node offload' "
                     "runs it.",
                     "remora-bpf");
    std::string file, name;
    program.set_version_flag("--version", version);
    program.require_subcommand(1);
    CLI::App* load = program.add_subcommand("load", "Register a program under its name");
    load->add_option("FILE", file)->required();
    CLI::App* replace_verb =
        program.add_subcommand("replace", "Put a program in the place of that of its name");
    replace_verb->add_option("FILE", file)->required();
    CLI::App* forget_verb = program.add_subcommand("forget", "Have the kernel forget a program");
    forget_verb->add_option("NAME", name)->required();
    if (!parse_command_line(program, argc, argv))
        return 0;
    libbpf_set_print(keep_warning);
    if (forget_verb->parsed()) {
        forget(name);
        return 0;
    }
    check_kernel();
    check_mount();
    load->parsed() ? add(file) : replace(file);
    return 0;
}

} // namespace

} // namespace remora::bpf

int main(int argc, char** argv) {
    return remora::run_program("remora-bpf", [&] { return remora::bpf::run(argc, argv); });
}
