// SPDX-License-Identifier: GPL-2.0
// memcached by libmemcached, each thing in the way that serves memcached best:
//
//   one at a time   the text protocol, which is no slower than the binary one
//   many reads      mget: one request names all keys
//   many writes     the binary protocol's quiet sets, buffered, and a get behind them: one packet,
//   if they
//                   fit, and the answer to the get says that all of them were executed. With an
//                   answer to each, or the text protocol, the server has more to do.
#include "store.hpp"

#include <cstdlib>

#include <libmemcached/memcached.h>

#include "keys.hpp"
#include "loopback.hpp"

namespace remora::bench {

namespace {

class Connection {
public:
    explicit Connection(const std::string& target)
        : memcached_(memcached_create(nullptr), memcached_free) {
        if (target.starts_with('/')) {
            must(memcached_server_add_unix_socket(get(), target.c_str()));
            return;
        }
        must(memcached_server_add(get(), "127.0.0.1", port_of(target)));
        behave(MEMCACHED_BEHAVIOR_TCP_NODELAY);
    }
    memcached_st* get() const { return memcached_.get(); }
    void behave(memcached_behavior_t which) { must(memcached_behavior_set(get(), which, 1)); }
    void must(memcached_return_t error) const {
        if (error != MEMCACHED_SUCCESS && error != MEMCACHED_BUFFERED)
            throw Failure("memcached: {}", memcached_strerror(get(), error));
    }

private:
    std::unique_ptr<memcached_st, decltype(&memcached_free)> memcached_;
};

class MemcachedStore final : public Store {
public:
    MemcachedStore(const std::string& target, std::uint32_t bytes)
        : values_(bytes), plain_(target), quiet_(target) {
        quiet_.behave(MEMCACHED_BEHAVIOR_BINARY_PROTOCOL);
        quiet_.behave(MEMCACHED_BEHAVIOR_NOREPLY);
        quiet_.behave(MEMCACHED_BEHAVIOR_BUFFER_REQUESTS);
        memcached_result_create(plain_.get(), &result_);
    }
    MemcachedStore(const MemcachedStore&) = delete;
    MemcachedStore& operator=(const MemcachedStore&) = delete;
    ~MemcachedStore() override { memcached_result_free(&result_); }

    void fill() override {
        for (std::uint32_t object = 0; object < objects; object++)
            write(object);
    }

    void read(std::uint32_t object) override { get(plain_, object); }
    void write(std::uint32_t object) override { set(plain_, object); }

    void read_all(std::span<const std::uint32_t> list) override {
        texts_.clear();
        for (std::uint32_t object : list)
            texts_.push_back(keys_.text(object));
        bytes_.resize(list.size(), Keys::bytes);
        plain_.must(memcached_mget(plain_.get(), texts_.data(), bytes_.data(), list.size()));
        std::size_t got = 0;
        memcached_return_t error;
        // In the order of the keys.
        for (; memcached_fetch_result(plain_.get(), &result_, &error) && got < list.size(); got++)
            values_.check(list[got], memcached_result_value(&result_),
                          memcached_result_length(&result_));
        if (got != list.size())
            throw Failure("memcached: {} of {} came back", got, list.size());
    }

    void write_all(std::span<const std::uint32_t> list) override {
        for (std::uint32_t object : list)
            set(quiet_, object);
        get(quiet_, list.back());
    }

private:
    void get(const Connection& connection, std::uint32_t object) {
        std::size_t bytes = 0;
        std::uint32_t flags = 0;
        memcached_return_t error;
        char* data = memcached_get(connection.get(), keys_.text(object), Keys::bytes, &bytes,
                                   &flags, &error);
        std::unique_ptr<char, decltype(&std::free)> owner(data, std::free);
        connection.must(error);
        values_.check(object, data, bytes);
    }

    void set(const Connection& connection, std::uint32_t object) {
        connection.must(memcached_set(connection.get(), keys_.text(object), Keys::bytes,
                                      values_.of(object).data(), values_.bytes(), 0, 0));
    }

    Values values_;
    Keys keys_;
    Connection plain_, quiet_;
    memcached_result_st result_;
    std::vector<const char*> texts_;
    std::vector<std::size_t> bytes_;
};

} // namespace

std::unique_ptr<Store> open_memcached(const std::string& target, std::uint32_t bytes) {
    return std::make_unique<MemcachedStore>(target, bytes);
}

} // namespace remora::bench
