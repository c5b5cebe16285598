// SPDX-License-Identifier: GPL-2.0
#include "remora-node/udp_transport.hpp"

#include <list>
#include <system_error>

#include <CLI/CLI.hpp>

#include "remora-node/running.hpp"
#include "remora-node/worker.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::daemon {

namespace {

constexpr unsigned threads_max = 64;

class UdpServing final : public Serving {
public:
    UdpServing(Node& node, const std::vector<Socket>& sockets, unsigned first,
               std::uint32_t spin_us)
        : late_(sockets.front().fd(), node.counters(node.slow_thread())) {
        try {
            for (const Socket& socket : sockets)
                workers_.emplace_back(node, socket, first++, spin_us, &late_);
        } catch (const std::system_error& error) {
            throw Failure("no {} threads: {}", sockets.size(), error.what());
        }
    }

private:
    SocketOutbox late_;
    std::list<Running<Worker>> workers_;
};

class UdpTransport final : public Transport {
public:
    explicit UdpTransport(const UdpOptions& options) : spin_us_(options.spin_us) {
        using enum Socket::Sharing;
        sockets_.emplace_back(options.bind, options.port, options.threads > 1 ? first : none);
        while (sockets_.size() < options.threads)
            sockets_.emplace_back(options.bind, port(), joins);
    }
    unsigned threads() const override { return static_cast<unsigned>(sockets_.size()); }
    std::unique_ptr<Serving> serve(Node& node, unsigned first) override {
        return std::make_unique<UdpServing>(node, sockets_, first, spin_us_);
    }
    std::uint16_t port() const override { return sockets_.front().port(); }

private:
    const std::uint32_t spin_us_;
    std::vector<Socket> sockets_;
};

class UdpKind final : public TransportKind {
public:
    void declare(CLI::App& program) override {
        program.add_option("--port", port_, "UDP port; default 7670");
        program.add_option("--bind", options_.bind,
                           "ADDRESS to serve at; default all of this machine");
        program.add_option("--threads", threads_, "N threads; default 1");
    }
    void interpret(std::optional<std::uint32_t> spin_us) override {
        if (!port_.empty())
            options_.port = static_cast<std::uint16_t>(parse_number(port_, 0, 65535, "--port"));
        options_.threads =
            static_cast<unsigned>(parse_number(threads_, 1, threads_max, "--threads"));
        options_.spin_us = spin_us.value_or(options_.spin_us);
    }
    std::unique_ptr<Transport> open() override { return open_udp_transport(options_); }

private:
    std::string port_, threads_ = "1"; // as the user wrote them
    UdpOptions options_;
};

} // namespace

std::unique_ptr<Transport> open_udp_transport(const UdpOptions& options) {
    return std::make_unique<UdpTransport>(options);
}

std::unique_ptr<TransportKind> udp_transport_kind() {
    return std::make_unique<UdpKind>();
}

} // namespace remora::daemon
