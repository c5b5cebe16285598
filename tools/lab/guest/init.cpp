// SPDX-License-Identifier: GPL-2.0
//
// First process of a lab machine. From the initramfs it builds the guest's world, then becomes its
// agent:
//
//     initramfs: /init /lab.conf /setup.sh *.ko
//         |  load the modules, mount the host's root (9p or hostfs, read-only) on /host
//         v
//     overlay on /new:  upper = tmpfs (lost at power off)
//                       lower = guest tools : the host's root
//         |  the guest's own /proc /sys /dev /run /tmp hide the host's; chroot
//         v
//     /bin/sh setup.sh  (names, addresses), then serve() for ever
//
// lab.conf is lines of `word argument...`, written by tools/lab/remoralab/initramfs.py:
//
//     module FILE              insert /FILE of the initramfs
//     native                   this is a User Mode Linux: shares are hostfs, and the port is a
//     serial
//                              line
//     lower NAME PATH          share of a directory, to lie over the host's root (of which it
//     cannot
//                              be part: overlayfs refuses layers that contain each other)
//     modules PATH             directory of the host to appear as /lib/modules/RELEASE
//     keep PATH                directory of the host to show even though a tmpfs covers its parent
#include "agent.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/udp.h>
#include <netinet/in.h>
#include <sstream>
#include <string>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

// The lab reads the console: say what is wrong there and go off, there is nobody else to tell.
[[noreturn]] void die(const std::string& what) {
    std::fprintf(stderr, "lab init: %s: %s\n", what.c_str(), std::strerror(errno));
    sync();
    reboot(RB_AUTOBOOT); // which ends a QEMU started with -no-reboot
    _exit(1);
}

void make_directories(const std::string& path) {
    for (size_t at = 1; at != std::string::npos;) {
        at = path.find('/', at);
        mkdir(path.substr(0, at).c_str(), 0755);
        if (at != std::string::npos)
            at++;
    }
}

void mount_on(const char* type, const char* source, const std::string& target,
              const std::string& options, unsigned long flags = 0) {
    make_directories(target);
    if (mount(source, target.c_str(), type, flags, options.c_str()) != 0)
        die("mount " + target);
}

struct Config {
    std::vector<std::string> modules;
    bool native = false;
    std::vector<std::pair<std::string, std::string>> lower; // name, path
    std::vector<std::string> keep;
    std::string module_tree;
    std::string setup;
};

std::string read_all(const char* path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

Config read_config() {
    Config config;
    std::ifstream file("/lab.conf");
    std::string line;

    if (!file)
        die("/lab.conf");
    while (std::getline(file, line)) {
        size_t space = line.find(' ');
        std::string word = line.substr(0, space);
        std::string argument = space == std::string::npos ? "" : line.substr(space + 1);

        if (word == "module")
            config.modules.push_back(argument);
        else if (word == "native")
            config.native = true;
        else if (word == "lower")
            config.lower.emplace_back(argument.substr(0, argument.find(' ')),
                                      argument.substr(argument.find(' ') + 1));
        else if (word == "keep")
            config.keep.push_back(argument);
        else if (word == "modules")
            config.module_tree = argument;
    }
    config.setup = read_all("/setup.sh");
    return config;
}

void load_module(const std::string& name) {
    int fd = open(("/" + name).c_str(), O_RDONLY | O_CLOEXEC);

    if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST))
        die("module " + name);
    close(fd);
    unlink(("/" + name).c_str()); // the initramfs is memory
}

// One overlay: what the host has at `path`, under a writable layer of its own in /writable.
void overlay(const Config& config, const std::string& path, const std::string& target) {
    static int serial;
    std::string own = "/writable/" + std::to_string(serial++);
    std::string lower;

    if (path == "/")
        for (const auto& [name, _] : config.lower)
            lower += "/layers/" + name + ":";
    lower += "/host" + path;
    make_directories(own + "/upper");
    make_directories(own + "/work");
    mount_on("overlay", "lab", target,
             "lowerdir=" + lower + ",upperdir=" + own + "/upper,workdir=" + own + "/work");
}

// A directory of the host's: `path`, which 9p knows as `name`.
void mount_share(const Config& config, const std::string& name, const std::string& path,
                 const std::string& target) {
    if (config.native)
        mount_on("hostfs", name.c_str(), target, path, MS_RDONLY);
    else
        mount_on("9p", name.c_str(), target,
                 "trans=virtio,version=9p2000.L,msize=262144,cache=loose,access=any", MS_RDONLY);
}

void build_root(const Config& config) {
    struct utsname name;

    mount_share(config, "host", "/", "/host");
    for (const auto& [share, path] : config.lower)
        mount_share(config, share, path, "/layers/" + share);
    mount_on("tmpfs", "lab", "/writable", "mode=0755");
    overlay(config, "/", "/new");
    for (const char* covered : {"/run", "/tmp"})
        mount_on("tmpfs", "lab", std::string("/new") + covered, "mode=1777");
    for (const std::string& path : config.keep)
        overlay(config, path, "/new" + path);
    if (!config.module_tree.empty()) {
        uname(&name);
        std::string tree = std::string("/new/lib/modules/") + name.release;
        make_directories(tree);
        if (mount(("/host" + config.module_tree).c_str(), tree.c_str(), nullptr, MS_BIND, nullptr))
            die("bind " + tree);
    }
}

void enter_root() {
    for (const char* path : {"/proc", "/sys", "/dev"})
        if (mount(path, (std::string("/new") + path).c_str(), nullptr, MS_MOVE, nullptr) != 0)
            die(std::string("move ") + path);
    if (chdir("/new") != 0 || mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || chroot(".") != 0 ||
        chdir("/") != 0)
        die("change root");
}

// Set up what udev and systemd would on a real machine; each is absent from some kernel, none is
// vital here.
void furnish() {
    mkdir("/dev/pts", 0755);
    mkdir("/dev/shm", 01777);
    mkdir("/run/lock", 01777);
    mount("devpts", "/dev/pts", "devpts", 0, "mode=0620,ptmxmode=0666");
    mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, nullptr);
    mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, nullptr);
    mount("configfs", "/sys/kernel/config", "configfs", 0, nullptr);
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, nullptr);
    (void)!symlink("/proc/self/fd", "/dev/fd");
    (void)!symlink("/proc/self/fd/0", "/dev/stdin");
    (void)!symlink("/proc/self/fd/1", "/dev/stdout");
    (void)!symlink("/proc/self/fd/2", "/dev/stderr");
}

// An emulated machine boots on one CPU; accel.py says why.
void bring_up_cpus() {
    for (int cpu = 1;; cpu++) {
        std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/online";
        if (access(path.c_str(), F_OK) != 0)
            return;
        std::ifstream now(path);
        if (now.get() == '0' && !(std::ofstream(path) << "1" << std::flush))
            die(path);
    }
}

// The kernel patches its UDP receive path when the first socket of a tunnel comes and when the last
// one goes, as nodes' and channels' are; an emulated machine of several CPUs may not survive that.
// So there is one from the beginning.
void keep_tunnel_socket() {
    int type = UDP_ENCAP_L2TPINUDP;
    int socket = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0)
        socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0 || setsockopt(socket, IPPROTO_UDP, UDP_ENCAP, &type, sizeof(type)) != 0)
        die("a UDP socket of a tunnel");
}

// The kernel patches the receive path of all packets when the first socket wants to know when they
// came, as ping's does, and again when the last one goes. Under a flood of packets, sockets that
// came and went ended an emulated machine of two CPUs within two seconds.
void keep_timestamped_socket() {
    int on = 1;
    int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0 || setsockopt(socket, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) != 0)
        die("a socket with timestamps");
}

// The first limit of CPU time makes the kernel patch its scheduler, and the first cgroup of the
// memory controller its allocator. So there is a cgroup with both from the beginning, on kernels
// that have them.
void keep_limited_cgroup() {
    const std::string root = "/sys/fs/cgroup";
    std::ofstream(root + "/cgroup.subtree_control") << "+cpu" << std::flush;
    std::ofstream(root + "/cgroup.subtree_control") << "+memory" << std::flush;
    mkdir((root + "/limited").c_str(), 0755);
    std::ofstream(root + "/limited/cpu.max") << "100000 100000" << std::flush;
}

} // namespace

int main() {
    mount_on("proc", "proc", "/proc", "");
    mount_on("sysfs", "sysfs", "/sys", "");
    mount_on("devtmpfs", "dev", "/dev", "mode=0755");

    Config config = read_config();
    for (const std::string& name : config.modules)
        load_module(name);
    int port = config.native ? lab::open_serial_port() : lab::open_port();
    if (port < 0)
        die("the lab's port");
    build_root(config);
    enter_root();
    furnish();
    keep_tunnel_socket();
    // Each packet then costs a look at the clock, which a User Mode Linux need not pay: it patches
    // no code.
    if (!config.native)
        keep_timestamped_socket();
    keep_limited_cgroup();
    bring_up_cpus();

    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    setenv("HOME", "/tmp", 1);
    // With another locale than that most programs open a dozen files more, which for `cat` is half
    // the time.
    setenv("LANG", "C", 1);
    setenv("TERM", "xterm-256color", 1);
    setsid();
    if (int status = lab::run_and_wait(config.setup); status != 0) {
        errno = ECANCELED;
        die("setup.sh: status " + std::to_string(status));
    }
    // Booting was quiet (loglevel=5); from here on tests may wait for what a module says at
    // KERN_INFO.
    klogctl(8 /* SYSLOG_ACTION_CONSOLE_LEVEL */, nullptr, 7);
    lab::serve(port, config.native);
    die("the lab's port closed");
}
