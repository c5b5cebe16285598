// SPDX-License-Identifier: GPL-2.0
// The library's udp: one region, an object after the other.
#include "store.hpp"

#include "remote_handle.hpp"

namespace remora::bench {

namespace {

class RemoteStore final : public Store {
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

private:
    raddr_t address(std::uint32_t object) const {
        return region_.address() + std::uint64_t{object} * values_.bytes();
    }
    char* slot(std::size_t index) { return &buffer_[index * values_.bytes()]; }

    Values values_;
    RemoteHandle handle_;
    RemoteRegion region_;
    std::vector<char> buffer_;
    std::vector<remote_vec> pieces_;
};

} // namespace

std::unique_ptr<Store> open_remote(const std::string& target, std::uint32_t bytes,
                                   std::uint32_t integrity) {
    return std::make_unique<RemoteStore>(target, bytes, integrity);
}

} // namespace remora::bench
