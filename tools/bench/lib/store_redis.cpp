// SPDX-License-Identifier: GPL-2.0
// redis by hiredis. Pipelined as its manual has it: commands appended, then the replies taken.
#include "store.hpp"

#include <array>

#include <hiredis/hiredis.h>

#include "keys.hpp"
#include "loopback.hpp"

namespace remora::bench {

namespace {

class RedisStore final : public Store {
public:
    RedisStore(const std::string& target, std::uint32_t bytes)
        : values_(bytes), redis_(redisConnect("127.0.0.1", port_of(target)), redisFree) {
        if (!redis_ || redis_->err)
            throw Failure("redis: {}", redis_ ? redis_->errstr : "no memory");
    }

    void fill() override {
        for (std::uint32_t object = 0; object < objects; object++)
            write(object);
    }

    void read(std::uint32_t object) override {
        append_get(object);
        take_value(object);
    }

    void write(std::uint32_t object) override {
        append_set(object);
        take_ok();
    }

    void read_all(std::span<const std::uint32_t> list) override {
        for (std::uint32_t object : list)
            append_get(object);
        for (std::uint32_t object : list)
            take_value(object);
    }

    void write_all(std::span<const std::uint32_t> list) override {
        for (std::uint32_t object : list)
            append_set(object);
        for (std::size_t i = 0; i < list.size(); i++)
            take_ok();
    }

private:
    using Reply = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;

    template <std::size_t count>
    void append(std::array<const char*, count> words, std::array<std::size_t, count> bytes) {
        if (redisAppendCommandArgv(redis_.get(), count, words.data(), bytes.data()) != REDIS_OK)
            throw Failure("redis: {}", redis_->errstr);
    }

    void append_get(std::uint32_t object) {
        append<2>({"GET", keys_.text(object)}, {3, Keys::bytes});
    }

    void append_set(std::uint32_t object) {
        append<3>({"SET", keys_.text(object), values_.of(object).data()},
                  {3, Keys::bytes, values_.bytes()});
    }

    Reply take(int type) {
        void* reply = nullptr;
        if (redisGetReply(redis_.get(), &reply) != REDIS_OK)
            throw Failure("redis: {}", redis_->errstr);
        Reply owner(static_cast<redisReply*>(reply), [](void* it) { freeReplyObject(it); });
        if (owner->type != type)
            throw Failure("redis: {}", owner->str ? owner->str : "nothing there");
        return owner;
    }

    void take_value(std::uint32_t object) {
        Reply reply = take(REDIS_REPLY_STRING);
        values_.check(object, reply->str, reply->len);
    }

    void take_ok() { take(REDIS_REPLY_STATUS); }

    Values values_;
    Keys keys_;
    std::unique_ptr<redisContext, decltype(&redisFree)> redis_;
};

} // namespace

std::unique_ptr<Store> open_redis(const std::string& target, std::uint32_t bytes) {
    return std::make_unique<RedisStore>(target, bytes);
}

} // namespace remora::bench
