// SPDX-License-Identifier: GPL-2.0
#include "sim/matrix.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "support/failure.hpp"

namespace sim {

using remora::Failure;

namespace {

class Parser {
public:
    Parser(std::istream& in, const std::string& name) : in_(in), name_(name) {}

    Matrix parse() {
        for (std::string text; std::getline(in_, text);) {
            line_++;
            std::istringstream words(text);
            words_.clear();
            for (std::string word; words >> word;)
                words_.push_back(word);
            at_ = 0;
            if (!words_.empty() && words_[0][0] != '#')
                parse_line();
        }
        if (in_.bad())
            throw Failure("{}: can't be read", name_);
        finish();
        return std::move(matrix_);
    }

private:
    template <typename... Args>
    [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
        throw Failure("{}:{}: {}", name_, line_, fmt::format(text, std::forward<Args>(args)...));
    }

    const std::string& word(const char* what) {
        if (at_ == words_.size())
            fail("{} is missing at the end of the line", what);
        return words_[at_++];
    }

    std::uint64_t number(const std::string& text, const char* what, std::uint64_t max) const {
        std::uint64_t value = 0;
        const char* end = text.data() + text.size();
        auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error != std::errc() || stop != end || value > max)
            fail("{} '{}' isn't a number from 0 to {}", what, text, max);
        return value;
    }
    std::uint32_t number32(const char* what) {
        return static_cast<std::uint32_t>(number(word(what), what, ~std::uint32_t{0}));
    }
    std::uint32_t name32(const char* what) {
        std::uint32_t value = number32(what);
        if (!value)
            fail("{} 0 isn't allowed", what);
        return value;
    }

    void parse_line() {
        const std::string& first = word("a word");
        if (first == "Nodes") {
            matrix_.nodes = number32("the number of nodes");
        } else if (first == "Connections") {
            connections_ = number32("the number of connections");
            has_connections_ = true;
        } else if (first == "Triggers") {
            triggers_ = number32("the number of triggers");
        } else if (first == "Failures") {
            failures_ = number32("the number of failures");
        } else if (first == "trigger") {
            parse_trigger();
        } else if (first == "failure") {
            parse_failure();
        } else if (first.find("->") != std::string::npos) {
            parse_connection(first);
        } else {
            fail("'{}' is none of Nodes, Connections, Triggers, Failures, trigger, failure, A->B",
                 first);
        }
        if (at_ != words_.size())
            fail("'{}' is too much on this line", words_[at_]);
    }

    std::uint32_t node(const std::string& text) const {
        if (!matrix_.nodes)
            fail("a line 'Nodes N' must come before connections");
        return static_cast<std::uint32_t>(number(text, "node", matrix_.nodes - 1));
    }

    void parse_connection(const std::string& ends) {
        Matrix::Connection one;
        std::size_t arrow = ends.find("->");
        one.src = node(ends.substr(0, arrow));
        one.dst = node(ends.substr(arrow + 2));
        if (one.src == one.dst)
            fail("node {} would send to itself", one.src);
        while (at_ < words_.size()) {
            const std::string& key = word("a word");
            if (key == "id")
                one.id = name32("id");
            else if (key == "start")
                one.start = start(word("start"));
            else if (key == "size")
                one.bytes = number(word("size"), "size", never);
            else if (key == "trigger")
                one.trigger = name32("trigger");
            else if (key == "send_done_trigger")
                one.send_done = name32("send_done_trigger");
            else if (key == "recv_done_trigger")
                one.recv_done = name32("recv_done_trigger");
            else if (key == "prio")
                number32("prio");
            else
                fail("'{}' is none of id, start, size, trigger, send_done_trigger, "
                     "recv_done_trigger, prio",
                     key);
        }
        if ((one.start == never) == !one.trigger)
            fail("a connection needs either start or trigger");
        if (one.id && !ids_.insert(one.id).second)
            fail("id {} is used twice", one.id);
        matrix_.connections.push_back(one);
    }

    // Picoseconds; generators write a fraction or an exponent at times.
    Time start(const std::string& text) const {
        std::size_t point = text.find_first_of(".eE");
        if (point == std::string::npos)
            return number(text, "start", never - 1);
        double value = 0;
        const char* end = text.data() + text.size();
        auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error != std::errc() || stop != end || !(value >= 0 && value < 1e19))
            fail("start '{}' isn't a time in picoseconds", text);
        return static_cast<Time>(value);
    }

    void parse_trigger() {
        using Type = Matrix::Trigger::Type;
        std::uint32_t id = 0;
        Matrix::Trigger one;
        while (at_ < words_.size()) {
            const std::string& key = word("a word");
            if (key == "id")
                id = name32("id");
            else if (key == "count")
                one.count = name32("count");
            else if (key == "oneshot")
                one.type = Type::oneshot;
            else if (key == "multishot")
                one.type = Type::multishot;
            else if (key == "barrier")
                one.type = Type::barrier;
            else
                fail("'{}' is none of id, count, oneshot, multishot, barrier", key);
        }
        if (!id || one.type == Type::unspecified)
            fail("a trigger needs an id and one of oneshot, multishot, barrier");
        if (!matrix_.triggers.emplace(id, one).second)
            fail("trigger {} is described twice", id);
    }

    void parse_failure() {
        std::string tier;
        std::uint32_t index = 0, link = 0;
        while (at_ < words_.size()) {
            const std::string& key = word("a word");
            if (key == "switch_type") {
                const std::string& type = word("switch_type");
                tier = type == "TOR" ? "tor" : type == "AGG" ? "agg" : "";
                if (tier.empty())
                    fail("switch_type '{}' is none of TOR, AGG: a link belongs to its lower switch",
                         type);
            } else if (key == "switch_id") {
                index = number32("switch_id");
            } else if (key == "link_id") {
                link = number32("link_id");
            } else {
                fail("'{}' is none of switch_type, switch_id, link_id", key);
            }
        }
        if (tier.empty())
            fail("a failure needs a switch_type");
        matrix_.failures.push_back(fmt::format("{}:{}:{}", tier, index, link));
    }

    void finish() const {
        if (!matrix_.nodes)
            throw Failure("{}: there is no line 'Nodes N'", name_);
        if (has_connections_ && matrix_.connections.size() != connections_)
            throw Failure("{}: 'Connections {}', but there are {}", name_, connections_,
                          matrix_.connections.size());
        if (matrix_.triggers.size() != triggers_)
            throw Failure("{}: 'Triggers {}', but there are {}", name_, triggers_,
                          matrix_.triggers.size());
        if (matrix_.failures.size() != failures_)
            throw Failure("{}: 'Failures {}', but there are {}", name_, failures_,
                          matrix_.failures.size());
        for (const Matrix::Connection& one : matrix_.connections) {
            for (std::uint32_t id : {one.trigger, one.send_done, one.recv_done}) {
                if (id && !matrix_.triggers.count(id))
                    throw Failure("{}: trigger {} is used but not described", name_, id);
            }
        }
    }

    std::istream& in_;
    const std::string& name_;
    std::uint64_t line_ = 0;
    std::vector<std::string> words_;
    std::size_t at_ = 0;
    std::size_t connections_ = 0, triggers_ = 0, failures_ = 0;
    bool has_connections_ = false;
    std::set<std::uint64_t> ids_;
    Matrix matrix_;
};

} // namespace

Matrix parse_matrix(std::istream& in, const std::string& name) {
    return Parser(in, name).parse();
}

Matrix read_matrix(const std::string& file) {
    std::ifstream in(file);
    if (!in)
        throw Failure("{}: {}", file, std::strerror(errno));
    return parse_matrix(in, file);
}

} // namespace sim
