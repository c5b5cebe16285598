// SPDX-License-Identifier: GPL-2.0
// The floor: as many bytes there and back in as few packets, and nothing done in between.
#include "store.hpp"

#include <algorithm>
#include <chrono>

#include <sys/time.h>

#include "loopback.hpp"
#include "pong.hpp"
#include "support/train.hpp"

namespace remora::bench {

namespace {

class UdpStore final : public Store {
public:
    UdpStore(const std::string& target, std::uint32_t bytes, bool spin)
        : values_(bytes),
          socket_(udp_socket()),
          peer_(loopback(port_of(target))),
          room_(make_room(socket_.get())),
          flags_(spin ? MSG_DONTWAIT : 0),
          buffer_(std::max(bytes * objects, std::uint32_t{packet_bytes_max})) {
        receive_trains(socket_.get());
        timeval patience{patience_s, 0};
        setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    }

    void fill() override {}
    void read(std::uint32_t) override { ping(small_bytes, values_.bytes()); }
    void write(std::uint32_t) override { ping(values_.bytes(), small_bytes); }
    void read_all(std::span<const std::uint32_t> list) override { ping(small_bytes, of(list)); }
    void write_all(std::span<const std::uint32_t> list) override { ping(of(list), small_bytes); }

private:
    // A message without data is as long as the smallest object.
    static constexpr std::uint32_t small_bytes = 16;
    static constexpr int patience_s = 1;

    std::uint32_t of(std::span<const std::uint32_t> list) const {
        return static_cast<std::uint32_t>(list.size()) * values_.bytes();
    }

    void ping(std::uint32_t there, std::uint32_t back) {
        if (std::max(there, back) > room_)
            throw Failure("{} bytes at once don't fit into a socket's {}: lower --depth or --bytes,"
                          " or raise net.core.rmem_max",
                          std::max(there, back), room_);
        Ping head{there, back};
        std::memcpy(buffer_.data(), &head, sizeof(head));
        send_burst(socket_.get(), peer_, std::span(buffer_).first(there));
        using Clock = std::chrono::steady_clock;
        auto end = Clock::now() + std::chrono::seconds(patience_s);
        std::size_t got = 0;
        while (got < back) {
            ssize_t bytes = recv(socket_.get(), buffer_.data(), buffer_.size(), flags_);
            if (bytes >= 0)
                got += static_cast<std::size_t>(bytes);
            else if (errno != EAGAIN)
                throw Failure("the other end of the floor is gone: {}", std::strerror(errno));
            else if (Clock::now() > end)
                throw Failure("the other end of the floor answered {} bytes of {} within {} s: a "
                              "packet was lost, or nobody is there",
                              got, back, patience_s);
        }
        if (got != back)
            throw Failure("the other end of the floor answers {} bytes, not {}", got, back);
    }

    Values values_;
    Descriptor socket_;
    sockaddr_in peer_;
    std::size_t room_;
    int flags_;
    std::vector<char> buffer_;
};

} // namespace

std::unique_ptr<Store> open_udp(const std::string& target, std::uint32_t bytes, bool spin) {
    return std::make_unique<UdpStore>(target, bytes, spin);
}

} // namespace remora::bench
