// SPDX-License-Identifier: GPL-2.0
#include "remora-node/shm_transport.hpp"

#include <charconv>

#include <CLI/CLI.hpp>

#include "remora-node/ring_listener.hpp"
#include "remora-node/ring_worker.hpp"
#include "remora-node/running.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::daemon {

namespace {

class ShmServing final : public Serving {
public:
    ShmServing(Node& node, Rings& rings, unsigned thread, const ShmOptions& options)
        : worker_(node, rings, thread, options.spin_us),
          listener_(rings, options.path, options.mode) {}

private:
    Running<RingWorker> worker_;
    Running<RingListener> listener_;
};

class ShmTransport final : public Transport {
public:
    explicit ShmTransport(const ShmOptions& options) : options_(options), rings_(options.rings) {}
    unsigned threads() const override { return 1; }
    std::unique_ptr<Serving> serve(Node& node, unsigned first) override {
        return std::make_unique<ShmServing>(node, rings_, first, options_);
    }

private:
    const ShmOptions options_;
    Rings rings_;
};

mode_t parse_mode(const std::string& text) {
    unsigned mode = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
    if (error != std::errc() || end != text.data() + text.size() || mode > 0777)
        throw Misuse("--shm-mode {} is invalid: use three octal digits, such as 660", text);
    return mode;
}

class ShmKind final : public TransportKind {
public:
    void declare(CLI::App& program) override {
        program.add_option("--shm", options_.path,
                           "Unix SOCKET where programs of this machine get rings in shared memory");
        program.add_option("--shm-mode", mode_, "MODE of that socket, octal; default 600");
        program.add_option("--shm-rings", rings_, "At most N clients of it; default 256");
    }
    void interpret(std::optional<std::uint32_t> spin_us) override {
        if (options_.path.find(',') != std::string::npos)
            throw Misuse("--shm {} has a comma, which ends the path in a program's target: choose "
                         "another",
                         options_.path);
        if (!mode_.empty())
            options_.mode = parse_mode(mode_);
        if (!rings_.empty())
            options_.rings =
                static_cast<unsigned>(parse_number(rings_, 1, RING_POINTERS_MAX, "--shm-rings"));
        options_.spin_us = spin_us.value_or(options_.spin_us);
    }
    std::unique_ptr<Transport> open() override {
        return options_.path.empty() ? nullptr : open_shm_transport(options_);
    }

private:
    std::string mode_, rings_; // as the user wrote them
    ShmOptions options_;
};

} // namespace

std::unique_ptr<Transport> open_shm_transport(const ShmOptions& options) {
    return std::make_unique<ShmTransport>(options);
}

std::unique_ptr<TransportKind> shm_transport_kind() {
    return std::make_unique<ShmKind>();
}

} // namespace remora::daemon
