// SPDX-License-Identifier: GPL-2.0
#include "eqds-run/peers.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include "support/failure.hpp"

namespace eqds_run {

namespace {

constexpr unsigned mapped_bits = 96;
constexpr Host mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0};

Host mapped_of(const in_addr& v4) {
    Host host = mapped;
    std::memcpy(host.data() + mapped_bits / 8, &v4, sizeof(v4));
    return host;
}

bool is_same(const Host& a, const Host& b, unsigned bits) {
    if (std::memcmp(a.data(), b.data(), bits / 8))
        return false;
    unsigned rest = bits % 8;
    return !rest || !((a[bits / 8] ^ b[bits / 8]) >> (8 - rest));
}

} // namespace

bool is_loopback(const Host& host) {
    static const Host v6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    return host == v6 || (is_same(host, mapped, mapped_bits) && host[12] == IN_LOOPBACKNET);
}

Host host_of(const eqds_udp::Address& address) {
    Host host;
    std::memcpy(host.data(), address.host, host.size());
    return host;
}

void Peers::add(const std::string& text) {
    auto slash = text.find('/');
    const std::string address = text.substr(0, slash);
    const bool v6 = address.find(':') != address.npos;
    const unsigned most = v6 ? 128 : 32;
    unsigned bits = most;
    Host host{};
    in_addr v4{};
    if (slash != text.npos) {
        const char *begin = text.c_str() + slash + 1, *end = text.c_str() + text.size();
        auto [stop, error] = std::from_chars(begin, end, bits);
        if (error != std::errc() || stop != end || bits > most)
            throw remora::Misuse("--peers {}: the length of the prefix is 0 to {}", text, most);
    }
    if (v6 ? inet_pton(AF_INET6, address.c_str(), host.data()) != 1
           : inet_pton(AF_INET, address.c_str(), &v4) != 1)
        throw remora::Misuse("--peers {}: write 10.0.0.0/24 or fd00::/64", text);
    if (!v6)
        host = mapped_of(v4);
    prefixes_.push_back({host, v6 ? bits : bits + mapped_bits});
}

bool Peers::has(const Host& host) const {
    return std::any_of(prefixes_.begin(), prefixes_.end(),
                       [&](const Prefix& each) { return is_same(each.host, host, each.bits); });
}

LocalHosts::LocalHosts() {
    ifaddrs* list = nullptr;
    if (getifaddrs(&list))
        throw remora::Failure("this machine's addresses: {}", std::strerror(errno));
    for (ifaddrs* each = list; each; each = each->ifa_next) {
        if (!each->ifa_addr)
            continue;
        if (each->ifa_addr->sa_family == AF_INET) {
            sockaddr_in in;
            std::memcpy(&in, each->ifa_addr, sizeof(in));
            hosts_.push_back(mapped_of(in.sin_addr));
            sockaddr_in mask{};
            if (each->ifa_netmask)
                std::memcpy(&mask, each->ifa_netmask, sizeof(mask));
            // The kernel's broadcast address of a prefix; one of 31 or 32 bits has none.
            const std::uint32_t hosts = ~ntohl(mask.sin_addr.s_addr);
            if (hosts > 1)
                broadcasts_.push_back(mapped_of({in.sin_addr.s_addr | htonl(hosts)}));
        } else if (each->ifa_addr->sa_family == AF_INET6) {
            sockaddr_in6 in6;
            Host host;
            std::memcpy(&in6, each->ifa_addr, sizeof(in6));
            std::memcpy(host.data(), &in6.sin6_addr, host.size());
            hosts_.push_back(host);
        }
    }
    freeifaddrs(list);
}

// The kernel takes a destination of zeros for this machine.
bool LocalHosts::has(const Host& host) const {
    return is_loopback(host) || host == Host{} || host == mapped ||
           std::find(hosts_.begin(), hosts_.end(), host) != hosts_.end();
}

bool LocalHosts::is_group(const Host& host) const {
    static const Host multicast = mapped_of({htonl(INADDR_UNSPEC_GROUP)});
    return host[0] == 0xff || is_same(host, multicast, mapped_bits + 4) ||
           host == mapped_of({htonl(INADDR_BROADCAST)}) ||
           std::find(broadcasts_.begin(), broadcasts_.end(), host) != broadcasts_.end();
}

} // namespace eqds_run
