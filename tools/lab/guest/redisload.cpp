// SPDX-License-Identifier: GPL-2.0
//
// Fills a redis server with values that can be told from each other and don't compress, and reads
// every one of them back:
//
//     redisload SOCKET fill COUNT BYTES     SET value:0 ... value:COUNT-1, of BYTES each
//     redisload SOCKET check COUNT BYTES    GET them, newest first, compare byte for byte
//
// Each value is the output of a generator seeded with its key's number, so that nothing has to be
// remembered to check it. Status 0: done; 1: a value differs; 2: the server went away or refused,
// and the last line says after how many values.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

namespace {

// Requests under way at once: enough to keep the server busy, little memory.
constexpr size_t PIPELINE = 32;

struct Gone : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA'14).
uint64_t splitmix(uint64_t& state) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

void make_value(size_t number, std::vector<char>& value) {
    uint64_t state = number * 0xd1342543de82ef95 + 1;

    for (size_t at = 0; at < value.size(); at += sizeof(uint64_t)) {
        uint64_t word = splitmix(state);
        std::memcpy(&value[at], &word, std::min(sizeof word, value.size() - at));
    }
}

class Server {
public:
    explicit Server(const char* path) : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
        sockaddr_un address{};

        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
        if (fd_ < 0 || connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
            throw Gone(std::string("no server at ") + path);
    }

    void send(std::string_view bytes) {
        while (!bytes.empty()) {
            ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0)
                throw Gone("the server went away");
            bytes.remove_prefix(static_cast<size_t>(sent));
        }
    }

    // The next line of an answer; an error line is the server's refusal.
    std::string_view line() {
        for (;;) {
            std::string_view rest(&buffer_[begin_], end_ - begin_);
            if (size_t length = rest.find("\r\n"); length != std::string_view::npos) {
                begin_ += length + 2;
                if (rest[0] == '-')
                    throw Gone(std::string(rest.substr(0, length)));
                return rest.substr(0, length);
            }
            fill();
        }
    }

    // The next `bytes` of an answer, and the line end behind them.
    std::string_view bulk(size_t bytes) {
        while (end_ - begin_ < bytes + 2)
            fill();
        std::string_view data(&buffer_[begin_], bytes);
        begin_ += bytes + 2;
        return data;
    }

private:
    void fill() {
        std::memmove(buffer_.data(), &buffer_[begin_], end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
        if (end_ == buffer_.size())
            throw Gone("an answer larger than any asked for");
        ssize_t got = recv(fd_, &buffer_[end_], buffer_.size() - end_, 0);
        if (got <= 0)
            throw Gone("the server went away");
        end_ += static_cast<size_t>(got);
    }

    int fd_;
    std::vector<char> buffer_ = std::vector<char>(1 << 20);
    size_t begin_ = 0, end_ = 0;
};

std::string key_of(size_t number) {
    return "value:" + std::to_string(number);
}

void append_bulk(std::string& request, std::string_view data) {
    request += "$" + std::to_string(data.size()) + "\r\n";
    request.append(data).append("\r\n");
}

void fill(Server& server, std::vector<char>& value, size_t count, size_t& done) {
    std::string request;

    for (size_t begin = 0; begin < count; begin += PIPELINE) {
        size_t end = std::min(begin + PIPELINE, count);
        request.clear();
        for (size_t number = begin; number < end; number++) {
            make_value(number, value);
            request += "*3\r\n$3\r\nSET\r\n";
            append_bulk(request, key_of(number));
            append_bulk(request, {value.data(), value.size()});
        }
        server.send(request);
        for (; done < end; done++)
            server.line();
    }
}

bool same(size_t number, std::string_view found, std::vector<char>& value) {
    make_value(number, value);
    if (found.size() != value.size()) {
        std::printf("value:%zu has %zu bytes, not %zu\n", number, found.size(), value.size());
        return false;
    }
    auto [at, wanted] = std::mismatch(found.begin(), found.end(), value.begin());
    if (at == found.end())
        return true;
    std::printf("value:%zu differs at byte %td: %02x, not %02x\n", number, at - found.begin(),
                static_cast<unsigned char>(*at), static_cast<unsigned char>(*wanted));
    return false;
}

// Newest first, since the oldest are those that were moved out.
bool check(Server& server, std::vector<char>& value, size_t count, size_t& done) {
    std::string request;
    bool whole = true;

    while (done < count) {
        size_t batch = std::min(PIPELINE, count - done);
        request.clear();
        for (size_t at = 1; at <= batch; at++) {
            request += "*2\r\n$3\r\nGET\r\n";
            append_bulk(request, key_of(count - done - at));
        }
        server.send(request);
        for (size_t end = done + batch; done < end; done++) {
            size_t number = count - done - 1;
            std::string_view head = server.line();
            long bytes = -1;
            std::from_chars(head.data() + 1, head.data() + head.size(), bytes);
            if (head[0] != '$' || bytes < 0) {
                std::printf("value:%zu is not there\n", number);
                whole = false;
                continue;
            }
            whole &= same(number, server.bulk(static_cast<size_t>(bytes)), value);
        }
    }
    return whole;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: redisload SOCKET fill|check COUNT BYTES\n");
        return 2;
    }
    size_t count = std::strtoull(argv[3], nullptr, 0), done = 0;
    std::vector<char> value(std::strtoull(argv[4], nullptr, 0));
    bool filling = std::string_view(argv[2]) == "fill", whole = true;

    try {
        Server server(argv[1]);
        if (filling)
            fill(server, value, count, done);
        else
            whole = check(server, value, count, done);
    } catch (const Gone& gone) {
        std::printf("%s after %zu values\n", gone.what(), done);
        return 2;
    }
    std::printf("%zu values\n", done);
    return whole ? 0 : 1;
}
