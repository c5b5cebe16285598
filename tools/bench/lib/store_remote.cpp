// SPDX-License-Identifier: GPL-2.0
// The library's udp: one region, an object after the other.
#include "store.hpp"

#include <remote/queue.h>

#include "common/remote_handle.hpp"

namespace remora::bench {

namespace {

class RemoteStore : public Store {
public:
    RemoteStore(const std::string& target, std::uint32_t bytes, std::uint32_t integrity)
        : values_(bytes),
          handle_(target, integrity),
          region_(handle_, std::uint64_t{objects} * bytes),
          buffer_(std::size_t{objects} * bytes),
          pieces_(objects) {}

    void fill() override {
        for (std::uint32_t object = 0; object < objects; object++)
            write(object);
    }

    void read(std::uint32_t object) override {
        must(rread(handle_.get(), address(object), buffer_.data(), values_.bytes()), "rread");
        values_.check(object, buffer_.data(), values_.bytes());
    }

    void write(std::uint32_t object) override {
        must(rwrite(handle_.get(), address(object), values_.of(object).data(), values_.bytes()),
             "rwrite");
    }

    void read_all(std::span<const std::uint32_t> list) override {
        for (std::size_t i = 0; i < list.size(); i++)
            pieces_[i] = {address(list[i]), slot(i), values_.bytes()};
        must(remote_readv(handle_.get(), pieces_.data(), list.size()), "remote_readv");
        for (std::size_t i = 0; i < list.size(); i++)
            values_.check(list[i], slot(i), values_.bytes());
    }

    void write_all(std::span<const std::uint32_t> list) override {
        for (std::size_t i = 0; i < list.size(); i++)
            pieces_[i] = {address(list[i]), const_cast<char*>(values_.of(list[i]).data()),
                          values_.bytes()};
        must(remote_writev(handle_.get(), pieces_.data(), list.size()), "remote_writev");
    }

protected:
    remote_t* handle() const { return handle_.get(); }
    const Values& values() const { return values_; }
    raddr_t address(std::uint32_t object) const {
        return region_.address() + std::uint64_t{object} * values_.bytes();
    }
    char* slot(std::size_t index) { return &buffer_[index * values_.bytes()]; }

private:
    Values values_;
    RemoteHandle handle_;
    RemoteRegion region_;
    std::vector<char> buffer_;
    std::vector<remote_vec> pieces_;
};

// All of a list as operations of their own, by a completion queue.
class QueueStore final : public RemoteStore {
public:
    QueueStore(const std::string& target, std::uint32_t bytes, std::uint32_t integrity)
        : RemoteStore(target, bytes, integrity), ops_(objects), done_(objects) {
        remote_queue_options options{};
        options.size = sizeof(options);
        options.depth = objects;
        must(remote_queue_open(&queue_, handle(), &options), "remote_queue_open");
    }
    ~QueueStore() override { remote_queue_close(queue_); }

    void read_all(std::span<const std::uint32_t> list) override {
        for (std::size_t i = 0; i < list.size(); i++)
            ops_[i] = remote_op_read(address(list[i]), slot(i), values().bytes(), i);
        run(list.size());
        for (std::size_t i = 0; i < list.size(); i++)
            values().check(list[i], slot(i), values().bytes());
    }

    void write_all(std::span<const std::uint32_t> list) override {
        for (std::size_t i = 0; i < list.size(); i++)
            ops_[i] =
                remote_op_write(address(list[i]), values().of(list[i]).data(), values().bytes(), i);
        run(list.size());
    }

private:
    void run(std::size_t count) {
        int started = remote_queue_submit(queue_, ops_.data(), count);
        if (started != static_cast<int>(count))
            throw Failure("remote_queue_submit: {}", started);
        int taken = remote_queue_wait(queue_, done_.data(), count, count, UINT64_MAX);
        if (taken != started)
            throw Failure("remote_queue_wait: {}", taken);
        for (const remote_completion& each : std::span(done_).first(count))
            must(each.result, "an operation");
    }

    remote_queue_t* queue_ = nullptr;
    std::vector<remote_op> ops_;
    std::vector<remote_completion> done_;
};

} // namespace

std::unique_ptr<Store> open_queue(const std::string& target, std::uint32_t bytes,
                                  std::uint32_t integrity) {
    return std::make_unique<QueueStore>(target, bytes, integrity);
}

std::unique_ptr<Store> open_remote(const std::string& target, std::uint32_t bytes,
                                   std::uint32_t integrity) {
    return std::make_unique<RemoteStore>(target, bytes, integrity);
}

} // namespace remora::bench
