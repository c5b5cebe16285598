// SPDX-License-Identifier: GPL-2.0
#include "mh/fabric.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include <endian.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/failure.hpp"
#include "support/unix_socket.hpp"

namespace remora::mh {

namespace {

constexpr std::size_t registers_bytes = std::size_t{NTB_PAGE_BYTES} * (NTB_PORTS_MAX + 1);
// Words of the ivshmem protocol that are no port's number.
constexpr std::int64_t ivshmem_version = 0, ivshmem_memory = -1;
// All that is said to a QEMU waits in its socket until it reads: 15 ports' vectors.
constexpr int socket_buffer_bytes = 1 << 20;

void say(const Descriptor& socket, std::int64_t word, const Descriptor* file = nullptr) {
    std::uint64_t little = htole64(static_cast<std::uint64_t>(word));
    int number = file ? file->get() : -1;
    if (!send_files(socket.get(), {reinterpret_cast<const std::uint8_t*>(&little), sizeof(little)},
                    std::span(&number, file ? 1 : 0)))
        throw Failure("can't hand out doorbells: {}: try again", std::strerror(errno));
}

Descriptor duplicate(const Descriptor& file) {
    Descriptor copy(fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy)
        throw Failure("can't hand out memory: {}: try again", std::strerror(errno));
    return copy;
}

Descriptor read_only(const Descriptor& file) {
    Descriptor opened(
        open(fmt::format("/proc/self/fd/{}", file.get()).c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened)
        throw Failure("can't hand out memory to read: {}: try again", std::strerror(errno));
    return opened;
}

Port make_port(const Machine& machine) {
    Port port;
    port.ram = shared_file(("remora-" + machine.name).c_str(), machine.ram_bytes);
    for (Descriptor& vector : port.vectors) {
        vector = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!vector)
            throw Failure("no doorbells for {}: {}", machine.name, std::strerror(errno));
    }
    return port;
}

// A QEMU has the same open file, and might have made it blocking.
void never_block(const Descriptor& vector) {
    fcntl(vector.get(), F_SETFL, O_RDWR | O_NONBLOCK);
}

void ring(const Port& port) {
    const Descriptor& vector = port.vectors[NTB_VECTOR_EVENT];
    never_block(vector);
    eventfd_write(vector.get(), 1);
}

// Zeros, for the BARs of RAM that machines may not reach, which share it: handed out to be read.
Descriptor make_nothing(const std::vector<Machine>& machines) {
    std::uint64_t bytes = 0;
    for (const Machine& machine : machines)
        bytes = std::max(bytes, machine.ram_bytes);
    return shared_file("remora-nothing", bytes);
}

} // namespace

Fabric::Fabric(Map map)
    : map_(std::move(map)),
      file_(shared_file("remora-registers", registers_bytes)),
      nothing_(make_nothing(map_.machines())),
      registers_(file_, registers_bytes, PROT_READ | PROT_WRITE) {
    for (const Machine& machine : map_.machines())
        ports_.push_back(make_port(machine));
    write_map();
    write_policies();
}

Fabric::Fabric(Map map, Descriptor registers, std::vector<Port> ports, std::uint32_t policy)
    : map_(std::move(map)),
      file_(std::move(registers)),
      nothing_(make_nothing(map_.machines())),
      registers_(file_, registers_bytes, PROT_READ | PROT_WRITE),
      ports_(std::move(ports)),
      policy_(policy) {
    // The dead one might have told machines of one more: to them, its number would mean no change.
    count_policy();
    count_policy();
}

void Fabric::count_policy() {
    if (!++policy_)
        policy_ = 1;
}

ntb_port_page& Fabric::page(std::size_t number) const {
    return *reinterpret_cast<ntb_port_page*>(registers_.data() + NTB_PAGE_BYTES * (number + 1));
}

void Fabric::write_policy(std::size_t number) {
    ntb_port_page& own = page(number);
    __atomic_store_n(&own.policy, 0, __ATOMIC_SEQ_CST);
    for (std::size_t to = 0; to < map_.ports(); to++) {
        const std::vector<Range>& pages = map_.pages(number, to);
        for (std::size_t i = 0; i < NTB_RANGES; i++) {
            Range each = i < pages.size() && to != number ? pages[i] : Range{0, 0};
            own.pages[to][i] = {
                htole32(static_cast<std::uint32_t>(each.begin / NTB_PAGE_BYTES)),
                htole32(static_cast<std::uint32_t>((each.end - each.begin) / NTB_PAGE_BYTES))};
        }
    }
    __atomic_store_n(&own.policy, htole32(policy_), __ATOMIC_SEQ_CST);
}

void Fabric::write_policies() {
    for (std::size_t number = 0; number < map_.ports(); number++) {
        write_policy(number);
        if (ports_[number].doorbell)
            ring(ports_[number]);
    }
}

void Fabric::set_pages(std::size_t from, std::size_t to, const nlohmann::ordered_json& ranges) {
    map_.set_pages(from, to, ranges,
                   map_.machines()[from].name + " to " + map_.machines()[to].name);
    count_policy();
    write_policies();
}

bool Fabric::is_in_force(std::size_t number) const {
    return !has_joined(number) ||
           __atomic_load_n(&page(number).policy_seen, __ATOMIC_SEQ_CST) == htole32(policy_);
}

void Fabric::write_map() {
    auto& page = *reinterpret_cast<ntb_switch_page*>(registers_.data());
    page.magic = htole32(NTB_MAGIC);
    page.version = htole32(NTB_VERSION);
    page.ports = htole32(static_cast<std::uint32_t>(map_.ports()));
    for (std::size_t number = 0; number < map_.ports(); number++) {
        const Machine& machine = map_.machines()[number];
        std::uint64_t reach = 0;
        for (std::size_t other = 0; other < map_.ports(); other++)
            reach |= static_cast<std::uint64_t>(map_.linked(number, other)) << other;
        page.map[number] = {htole64(machine.ram_bytes), htole64(machine.windows_base),
                            htole64(machine.window_bytes), htole64(reach)};
    }
}

std::vector<Descriptor> Fabric::join(std::size_t number) {
    if (has_joined(number) && hear(number) != Heard::nothing)
        leave(number);
    if (has_joined(number))
        throw Failure("{} has joined already: end its QEMU first", map_.machines()[number].name);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        throw Failure("no doorbell socket: {}", std::strerror(errno));
    Descriptor ours(ends[0]), theirs(ends[1]);
    setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &socket_buffer_bytes,
               sizeof(socket_buffer_bytes));
    std::vector<Descriptor> given;
    given.push_back(std::move(theirs));
    for (Descriptor& memory : memory_for(number))
        given.push_back(std::move(memory));
    clear(number);
    write_map(); // any machine can write it
    write_policy(number);
    greet(number, ours);
    ports_[number].doorbell = std::move(ours);
    tell_presence();
    return given;
}

std::vector<Descriptor> Fabric::memory_for(std::size_t number) {
    std::vector<Descriptor> given;
    given.push_back(duplicate(ports_[number].ram));
    for (std::size_t other = 0; other < map_.ports(); other++) {
        Access access = other == number ? Access::nothing : map_.access(number, other);
        if (access == Access::write)
            given.push_back(duplicate(ports_[other].ram));
        else if (other != number)
            given.push_back(read_only(access == Access::read ? ports_[other].ram : nothing_));
    }
    return given;
}

void Fabric::clear(std::size_t number) {
    const Port& port = ports_[number];
    auto bytes = static_cast<off_t>(map_.machines()[number].ram_bytes);
    if (fallocate(port.ram.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes))
        throw Failure("can't clear the RAM of {}: {}", map_.machines()[number].name,
                      std::strerror(errno));
    std::memset(registers_.data() + NTB_PAGE_BYTES * (number + 1), 0, NTB_PAGE_BYTES);
    for (const Descriptor& vector : port.vectors) {
        eventfd_t rung;
        never_block(vector);
        eventfd_read(vector.get(), &rung);
    }
}

void Fabric::greet(std::size_t number, const Descriptor& socket) {
    say(socket, ivshmem_version);
    say(socket, static_cast<std::int64_t>(number));
    say(socket, ivshmem_memory, &file_);
    auto say_vectors = [&](std::size_t port) {
        for (const Descriptor& vector : ports_[port].vectors)
            say(socket, static_cast<std::int64_t>(port), &vector);
    };
    for (std::size_t other = 0; other < map_.ports(); other++)
        if (map_.linked(number, other))
            say_vectors(other);
    say_vectors(number);
}

void Fabric::leave(std::size_t number) {
    ports_[number].doorbell = Descriptor();
    tell_presence();
}

Fabric::Heard Fabric::hear(std::size_t number) {
    char byte;
    ssize_t got = recv(ports_[number].doorbell.get(), &byte, sizeof(byte), MSG_DONTWAIT);
    if (got > 0)
        return Heard::garbage;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? Heard::nothing : Heard::end;
}

void Fabric::plug(std::size_t number, bool plugged) {
    ports_[number].plugged = plugged;
    tell_presence();
}

void Fabric::cut(std::size_t number) {
    ports_[number].plugged = false;
    write_presence();
}

void Fabric::count_change(std::size_t number) {
    std::uint32_t& changes = page(number).changes;
    __atomic_store_n(&changes, htole32(le32toh(changes) + 1), __ATOMIC_SEQ_CST);
}

// A driver that looks at both can't miss that a port was away: its count changes first, and last.
void Fabric::write_presence() {
    auto& switch_page = *reinterpret_cast<ntb_switch_page*>(registers_.data());
    std::uint32_t before = le32toh(switch_page.present), present = 0;
    for (std::size_t number = 0; number < ports_.size(); number++) {
        bool is_there = has_joined(number) && ports_[number].plugged;
        present |= static_cast<std::uint32_t>(is_there) << number;
        if (!is_there && before >> number & 1)
            count_change(number);
    }
    __atomic_store_n(&switch_page.present, htole32(present), __ATOMIC_SEQ_CST);
    for (std::size_t number = 0; number < ports_.size(); number++)
        if ((present & ~before) >> number & 1)
            count_change(number);
}

void Fabric::tell_presence() {
    write_presence();
    for (const Port& port : ports_)
        if (port.doorbell)
            ring(port);
}

} // namespace remora::mh
