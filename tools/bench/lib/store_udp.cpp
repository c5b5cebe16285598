// SPDX-License-Identifier: GPL-2.0
// The floor: a datagram there and one back, of the same sizes, and nothing done in between.
#include "store.hpp"

#include <algorithm>

#include "loopback.hpp"

namespace remora::bench {

namespace {

class UdpStore final : public Store {
public:
    UdpStore(const std::string& target, std::uint32_t bytes, bool spin)
        : values_(bytes),
          socket_(udp_socket()),
          peer_(loopback(port_of(target))),
          flags_(spin ? MSG_DONTWAIT : 0),
          buffer_(std::max<std::size_t>(bytes, small_bytes)) {}

    void fill() override {}
    void read(std::uint32_t) override { ping(small_bytes, values_.bytes()); }
    void write(std::uint32_t) override { ping(values_.bytes(), small_bytes); }
    void read_all(std::span<const std::uint32_t>) override { refuse(); }
    void write_all(std::span<const std::uint32_t>) override { refuse(); }

private:
    // What carries no data is as long as the smallest object.
    static constexpr std::uint32_t small_bytes = 16;

    [[noreturn]] static void refuse() {
        throw Misuse("udp has no pipelining: it is the floor of latency");
    }

    void ping(std::uint32_t there, std::uint32_t back) {
        std::memcpy(buffer_.data(), &back, sizeof(back));
        if (sendto(socket_.get(), buffer_.data(), there, 0,
                   reinterpret_cast<const sockaddr*>(&peer_), sizeof(peer_)) < 0)
            throw Failure("sendto: {}", std::strerror(errno));
        ssize_t got;
        do {
            got = recvfrom(socket_.get(), buffer_.data(), buffer_.size(), flags_, nullptr, nullptr);
        } while (got < 0 && errno == EAGAIN);
        if (got != static_cast<ssize_t>(back))
            throw Failure("the other end of the floor answers {} bytes, not {}", got, back);
    }

    Values values_;
    Descriptor socket_;
    sockaddr_in peer_;
    int flags_;
    std::vector<char> buffer_;
};

} // namespace

std::unique_ptr<Store> open_udp(const std::string& target, std::uint32_t bytes, bool spin) {
    return std::make_unique<UdpStore>(target, bytes, spin);
}

} // namespace remora::bench
