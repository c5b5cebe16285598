// SPDX-License-Identifier: GPL-2.0
// The floors of rings in shared memory: a word there, a word back between two threads that never
// sleep. And one copy of the object, from memory that the client's processor has in its cache; or,
// where the data crosses, two: the server's thread writes the object into memory that both share,
// and the client's thread copies it out.
#include "store.hpp"

#include <atomic>
#include <thread>

#include "processor.hpp"
#include "support/parse.hpp"

namespace remora::bench {

namespace {

class FloorStore final : public Store {
public:
    FloorStore(unsigned server, unsigned client, std::uint32_t bytes, bool crosses)
        : values_(bytes),
          crosses_(crosses),
          memory_(std::size_t{objects} * bytes),
          buffer_(bytes),
          shared_(bytes) {
        run_on(client); // to fail before there is another thread, if it does
        run_on(server); // a thread begins where its creator is
        echo_ = std::thread([this] { echo(); });
        run_on(client);
    }
    FloorStore(const FloorStore&) = delete;
    FloorStore& operator=(const FloorStore&) = delete;
    ~FloorStore() override {
        stopped_ = true;
        echo_.join();
    }

    void fill() override {
        for (std::uint32_t object = 0; object < objects; object++)
            write(object);
    }
    void read(std::uint32_t object) override {
        there_.object = object;
        there_.writes = false;
        ping();
        std::memcpy(buffer_.data(), crosses_ ? shared_.data() : at(object), values_.bytes());
        values_.check(object, buffer_.data(), values_.bytes());
    }
    void write(std::uint32_t object) override {
        there_.object = object;
        there_.writes = true;
        std::memcpy(crosses_ ? shared_.data() : at(object), values_.of(object).data(),
                    values_.bytes());
        ping();
    }
    void read_all(std::span<const std::uint32_t> list) override {
        for (std::uint32_t object : list)
            read(object);
    }
    void write_all(std::span<const std::uint32_t> list) override {
        for (std::uint32_t object : list)
            write(object);
    }

private:
    struct alignas(64) Line {
        std::atomic<std::uint32_t> word{0};
        // Of the request, written before its word.
        std::uint32_t object = 0;
        bool writes = false;
    };

    char* at(std::uint32_t object) { return &memory_[std::size_t{object} * values_.bytes()]; }
    void ping() {
        there_.word.store(++number_, std::memory_order_release);
        while (back_.word.load(std::memory_order_acquire) != number_) {
        }
    }
    void echo() {
        for (std::uint32_t last = 0; !stopped_;) {
            std::uint32_t now = there_.word.load(std::memory_order_acquire);
            if (now == last)
                continue;
            last = now;
            if (crosses_)
                carry();
            back_.word.store(now, std::memory_order_release);
        }
    }

    void carry() {
        char* from = there_.writes ? shared_.data() : at(there_.object);
        char* to = there_.writes ? at(there_.object) : shared_.data();
        std::memcpy(to, from, values_.bytes());
    }

    Values values_;
    const bool crosses_;
    std::vector<char> memory_, buffer_, shared_;
    std::uint32_t number_ = 0;
    Line there_, back_;
    alignas(64) std::atomic<bool> stopped_ = false;
    std::thread echo_;
};

} // namespace

std::unique_ptr<Store> open_floor(const std::string& target, std::uint32_t bytes, bool crosses) {
    auto comma = target.find(',');
    if (comma == std::string::npos)
        throw Misuse("the floor's target is two processors, the server's and the client's: 0,1");
    auto processor = [](const std::string& text) {
        return static_cast<unsigned>(parse_number(text, 0, 1023, "processor"));
    };
    return std::make_unique<FloorStore>(processor(target.substr(0, comma)),
                                        processor(target.substr(comma + 1)), bytes, crosses);
}

} // namespace remora::bench
