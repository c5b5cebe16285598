// SPDX-License-Identifier: GPL-2.0
#include "remora/doctor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/random.hpp"
#include "support/reach.hpp"
#include "support/resolve.hpp"

namespace remora {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Faults = std::vector<Fault>;

constexpr std::uint16_t default_node_port = 7670;
// A machine in the rack answers in a fraction of that. All probes of a node take at most 2.4 s, and
// all nodes are probed at once.
constexpr milliseconds reach_patience{800}, echo_patience{400};
constexpr int echo_tries = 2;

// The way to a node, as this machine's routes have it.
struct Way {
    sockaddr_storage node{};
    socklen_t bytes = 0;
    std::string interface;
    unsigned mtu = 0;
    bool is_v6() const { return node.ss_family == AF_INET6; }
};

std::string interface_of(const sockaddr_storage& own) {
    ifaddrs* all = nullptr;
    if (getifaddrs(&all))
        return {};
    std::string name;
    for (const ifaddrs* each = all; each; each = each->ifa_next) {
        if (!each->ifa_addr || each->ifa_addr->sa_family != own.ss_family)
            continue;
        const bool same =
            own.ss_family == AF_INET
                ? reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr.s_addr ==
                      reinterpret_cast<const sockaddr_in&>(own).sin_addr.s_addr
                : !std::memcmp(&reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr,
                               &reinterpret_cast<const sockaddr_in6&>(own).sin6_addr,
                               sizeof(in6_addr));
        if (same)
            name = each->ifa_name;
    }
    freeifaddrs(all);
    return name;
}

// None: node isn't an IP address, or no route leads there.
std::optional<Way> way_to(const std::string& node) {
    Way way;
    try {
        const Endpoint endpoint = parse_endpoint(node, default_node_port);
        const std::vector<Resolved> found =
            resolve(endpoint.host, endpoint.port, Clock::now() + reach_patience);
        if (found.empty())
            return std::nullopt;
        way.node = found.front().address;
        way.bytes = found.front().bytes;
    } catch (const Failure&) {
        return std::nullopt; // of a transport without IP
    }
    Descriptor fd(socket(way.node.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t own_bytes = sizeof(own);
    if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&way.node), way.bytes) ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &own_bytes))
        return std::nullopt;
    way.interface = interface_of(own);
    ifreq about{};
    way.interface.copy(about.ifr_name, IFNAMSIZ - 1);
    if (!ioctl(fd.get(), SIOCGIFMTU, &about))
        way.mtu = static_cast<unsigned>(about.ifr_mtu);
    return way;
}

// ---- does the node answer ----

void check_silent(const SeenDevice& device, const std::optional<Way>& way, Reach reached,
                  Faults& faults) {
    const std::string what = fmt::format("{}: {} does not answer", device.name, device.node);
    if (!way) {
        faults.push_back({"no-route", what, "no route leads there", "ip route"});
        return;
    }
    switch (reached) {
    case Reach::refused:
        faults.push_back({"no-node", what, "the machine is there, and no memory node listens",
                          "remora node start, on that machine"});
        return;
    case Reach::listened:
        faults.push_back(
            {"node-silent", what,
             "the machine refuses other ports and is silent at this one: a firewall, or "
             "the node has another key",
             fmt::format("remora ping {} --key FILE", device.node)});
        return;
    case Reach::silent:
        break;
    }
    faults.push_back({"unreachable", what,
                      "nothing comes back: the machine is off, or a firewall "
                      "drops UDP",
                      fmt::format("ping the machine; on both, let UDP port {} pass",
                                  parse_endpoint(device.node, default_node_port).port)});
}

// ---- do large packets pass ----

class Echo {
public:
    explicit Echo(const Way& way) : way_(way) {
        const int protocol = way.is_v6() ? int{IPPROTO_ICMPV6} : int{IPPROTO_ICMP};
        fd_ = Descriptor(socket(way.node.ss_family, SOCK_RAW | SOCK_CLOEXEC, protocol));
        const int probe = way.is_v6() ? int{IPV6_PMTUDISC_PROBE} : int{IP_PMTUDISC_PROBE};
        if (!fd_)
            return;
        if (way.is_v6())
            setsockopt(fd_.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe, sizeof(probe));
        else
            setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe));
        sockaddr_storage to = way.node;
        reinterpret_cast<sockaddr_in&>(to).sin_port = 0;
        if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), way.bytes))
            fd_ = Descriptor();
    }
    // False: only root may probe.
    bool may() const { return static_cast<bool>(fd_); }

    // The sizes of the packets that come back.
    std::set<unsigned> returned(const std::vector<unsigned>& packet_bytes) {
        std::set<unsigned> found;
        for (int n = 0; n < echo_tries && found.size() < packet_bytes.size(); n++) {
            for (const unsigned bytes : packet_bytes)
                if (!found.contains(bytes))
                    send_one(bytes);
            const Clock::time_point until = Clock::now() + echo_patience;
            while (found.size() < packet_bytes.size() && take_one(until, found)) {
            }
        }
        return found;
    }

private:
    void send_one(unsigned packet_bytes) {
        const std::size_t headers = way_.is_v6() ? 40 : 20;
        std::vector<std::uint8_t> packet(packet_bytes - headers);
        sent_.push_back(packet_bytes);
        const auto sequence = static_cast<std::uint16_t>(sent_.size());
        icmphdr head{}; // as ICMPv6 has it, whose checksum the kernel fills in
        head.type = way_.is_v6() ? std::uint8_t{ICMP6_ECHO_REQUEST} : std::uint8_t{ICMP_ECHO};
        head.un.echo.id = id_;
        head.un.echo.sequence = htons(sequence);
        std::memcpy(packet.data(), &head, sizeof(head));
        if (!way_.is_v6()) {
            std::uint32_t sum = 0;
            for (std::size_t at = 0; at + 1 < sizeof(head); at += 2) {
                std::uint16_t word = 0;
                std::memcpy(&word, packet.data() + at, sizeof(word));
                sum += word;
            }
            sum = (sum & 0xffff) + (sum >> 16);
            head.checksum = static_cast<std::uint16_t>(~(sum + (sum >> 16)));
            std::memcpy(packet.data(), &head, sizeof(head));
        }
        // One that is too long for the link isn't sent, and so doesn't come back.
        [[maybe_unused]] ssize_t sent = send(fd_.get(), packet.data(), packet.size(), 0);
    }
    // False: the time is up.
    bool take_one(Clock::time_point until, std::set<unsigned>& found) {
        for (;;) {
            const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
            pollfd in{fd_.get(), POLLIN, 0};
            if (left.count() <= 0 || poll(&in, 1, static_cast<int>(left.count())) <= 0)
                return false;
            std::array<std::uint8_t, 128> answer;
            const ssize_t got = recv(fd_.get(), answer.data(), answer.size(), MSG_DONTWAIT);
            const std::size_t skip = way_.is_v6() ? 0 : (answer[0] & 15) * 4;
            icmphdr head;
            if (got < static_cast<ssize_t>(skip + sizeof(head)))
                continue;
            std::memcpy(&head, answer.data() + skip, sizeof(head));
            const bool reply =
                head.type == (way_.is_v6() ? int{ICMP6_ECHO_REPLY} : int{ICMP_ECHOREPLY});
            const unsigned sequence = ntohs(head.un.echo.sequence);
            if (reply && head.un.echo.id == id_ && sequence && sequence <= sent_.size()) {
                found.insert(sent_[sequence - 1]);
                return true;
            }
        }
    }

    const Way& way_;
    Descriptor fd_;
    // No other probe has the same id.
    std::uint16_t id_ = random_value<std::uint16_t>();
    std::vector<unsigned> sent_; // sizes, by their sequence numbers less 1
};

// MTUs that networks often have, and the least of IPv6.
constexpr std::array<unsigned, 4> usual_mtus = {8900, 1500, 1400, 1280};
constexpr unsigned small_packet_bytes = 100;

void check_mtu(const std::string& node, const Way& way, Faults& faults) {
    Echo echo(way);
    if (way.mtu <= small_packet_bytes || way.interface == "lo" || !echo.may())
        return;
    std::vector<unsigned> sizes = {way.mtu, small_packet_bytes};
    std::ranges::copy_if(usual_mtus, std::back_inserter(sizes),
                         [&](unsigned mtu) { return mtu < way.mtu; });
    const std::set<unsigned> passes = echo.returned(sizes);
    // A machine that answers no echo tells nothing of its MTU.
    if (passes.contains(way.mtu) || !passes.contains(small_packet_bytes))
        return;
    for (const unsigned mtu : usual_mtus) {
        if (!passes.contains(mtu))
            continue;
        faults.push_back(
            {"mtu",
             fmt::format("{} has the MTU {}, and such packets don't reach {}", way.interface,
                         way.mtu, node),
             "a switch or the other machine passes less: small messages go through and "
             "data does not",
             fmt::format("ip link set {} mtu {}, or raise the others' MTU", way.interface, mtu)});
        return;
    }
}

// ---- the network device ----

bool is_off(const std::string& interface, std::uint32_t command) {
    Descriptor fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ethtool_value value{command, 0};
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);
    return fd && !ioctl(fd.get(), SIOCETHTOOL, &request) && !value.data;
}

void check_offloads(const std::string& interface, Faults& faults) {
    struct Offload {
        const char *word, *name;
        std::uint32_t command;
        const char* why;
    };
    static constexpr Offload offloads[] = {
        {"gro", "generic-receive-offload", ETHTOOL_GGRO,
         "received packets pass the kernel one by one, which costs processor time"},
        {"gso", "generic-segmentation-offload", ETHTOOL_GGSO,
         "sent packets pass the kernel one by one, which costs processor time"},
    };
    for (const Offload& offload : offloads)
        if (is_off(interface, offload.command))
            faults.push_back({offload.word, fmt::format("{} of {} is off", offload.name, interface),
                              offload.why,
                              fmt::format("ethtool -K {} {} on", interface, offload.word)});
}

// ---- all nodes ----

struct Probed {
    std::optional<Way> way;
    Reach reached = Reach::silent; // valid if a device is down
    Faults faults;
};

Probed probe(const std::string& node, bool is_down, bool is_up) {
    Probed probed{way_to(node), Reach::silent, {}};
    if (probed.way && is_down)
        probed.reached = reach(probed.way->node, probed.way->bytes, reach_patience);
    if (probed.way && is_up)
        check_mtu(node, *probed.way, probed.faults);
    return probed;
}

std::map<std::string, Probed> probe_all(const std::vector<SeenDevice>& devices) {
    struct States {
        bool down = false, up = false;
    };
    std::map<std::string, States> nodes;
    for (const SeenDevice& device : devices) {
        nodes[device.node].down |= device.state == "down";
        nodes[device.node].up |= device.state == "up";
    }
    std::map<std::string, std::future<Probed>> asked;
    for (const auto& [node, states] : nodes)
        asked[node] = std::async(std::launch::async, probe, node, states.down, states.up);
    std::map<std::string, Probed> probed;
    for (auto& [node, answer] : asked)
        probed[node] = answer.get();
    return probed;
}

} // namespace

std::vector<Fault> faults_of_network(const std::vector<SeenDevice>& devices) {
    Faults faults;
    std::set<std::string> interfaces;
    std::map<std::string, Probed> probed = probe_all(devices);
    for (const SeenDevice& device : devices) {
        Probed& node = probed[device.node];
        if (device.state == "down")
            check_silent(device, node.way, node.reached, faults);
        for (Fault& fault : std::exchange(node.faults, {}))
            faults.push_back(std::move(fault));
        if (node.way && !node.way->interface.empty() && node.way->interface != "lo" &&
            interfaces.insert(node.way->interface).second)
            check_offloads(node.way->interface, faults);
    }
    return faults;
}

} // namespace remora
