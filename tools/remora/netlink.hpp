// SPDX-License-Identifier: GPL-2.0
// Generic netlink, as far as the families of Remora's modules need it: requests, one answer or a
// dump, and the kernel's error texts (extended acknowledgements).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libmnl/libmnl.h>

#include "support/failure.hpp"

namespace remora::netlink {

// The kernel refused a request. what() is the kernel's text, or errno's.
class Refused : public Failure {
public:
    Refused(int error, const std::string& text) : Failure(text), error_(error) {}
    int error() const { return error_; }

private:
    int error_; // errno, positive
};

// The module that has the family isn't loaded, or serves in another network namespace alone.
class NoFamily : public Failure {
public:
    explicit NoFamily(std::string_view module);
    bool is_loaded() const { return loaded_; }

private:
    bool loaded_;
};

// A signal ended the call before its answer; the kernel undid its work.
class Interrupted : public Failure {
public:
    Interrupted() : Failure("interrupted") {}
};

// The attributes of an answer, or of a nest in it; copied, so that they outlive the message.
class Attributes {
public:
    Attributes() = default;
    // Attributes in bytes of memory; malformed ones end the list.
    Attributes(const void* data, std::size_t bytes);

    bool has(std::uint16_t type) const { return find(type) != nullptr; }
    // 0 or empty if there is none. Shorter integers widen.
    std::uint64_t number(std::uint16_t type) const;
    std::string string(std::uint16_t type) const;
    const std::vector<std::uint8_t>& bytes(std::uint16_t type) const;
    // One for each attribute of that type.
    std::vector<Attributes> nests(std::uint16_t type) const;

private:
    struct Attribute {
        std::uint16_t type;
        std::vector<std::uint8_t> payload;
    };
    const Attribute* find(std::uint16_t type) const;

    std::vector<Attribute> attributes_;
};

// A request under construction.
class Request {
public:
    explicit Request(std::uint8_t command);
    Request& u8(std::uint16_t type, std::uint8_t value);
    Request& u16(std::uint16_t type, std::uint16_t value);
    Request& u32(std::uint16_t type, std::uint32_t value);
    Request& u64(std::uint16_t type, std::uint64_t value);
    Request& flag(std::uint16_t type);
    Request& string(std::uint16_t type, const std::string& value);
    Request& bytes(std::uint16_t type, const void* data, std::size_t size);
    // Attributes that inside puts.
    Request& nest(std::uint16_t type, const std::function<void(Request&)>& inside);

private:
    friend class Family;
    nlmsghdr* header() { return reinterpret_cast<nlmsghdr*>(buffer_.data()); }
    std::vector<char> buffer_;
};

// One family of the kernel's, resolved by name.
class Family {
public:
    // module: its name for the error when the family isn't there.
    Family(const std::string& name, std::uint8_t version, std::string_view module);

    // Sends and waits for the acknowledgement; the answer, if the command has one. The kernel's
    // warning, if there is one, goes to standard error.
    Attributes call(Request request);
    // The same, but gives up when *signalled becomes true: Interrupted, unless the answer was
    // there.
    Attributes call_interruptibly(Request request, const volatile int& signalled);
    std::vector<Attributes> dump(Request request);
    // The loaded module's, which can be older than this program.
    std::uint32_t loaded_version() const { return loaded_version_; }

private:
    struct Close {
        void operator()(mnl_socket* socket) const { mnl_socket_close(socket); }
    };
    void send(Request& request, std::uint16_t type, std::uint16_t flags, std::uint8_t version);
    void receive(const volatile int* signalled, const std::function<void(Attributes)>& answer);
    Attributes exchange(Request& request, const volatile int* signalled);

    std::unique_ptr<mnl_socket, Close> socket_;
    std::uint16_t id_ = 0;
    std::uint8_t version_;
    std::uint32_t loaded_version_ = 0;
    std::uint32_t sequence_ = 0;
};

// rtnetlink: makes a network device of a kind over a link, and sets it up. Refused, in the kernel's
// words.
void add_link(const std::string& name, const std::string& kind, unsigned link_index);
void remove_link(unsigned index);

// Numbers as tc(8) has them, 0x00010001 for 1:1.
struct Qdisc {
    unsigned link_index;
    std::string kind;
    std::uint32_t parent, handle; // handle 0: the kernel chooses one
};

// rtnetlink: makes a qdisc, or changes the one that is there. options: puts its attributes.
// Refused, in the kernel's words.
void set_qdisc(const Qdisc& qdisc, const std::function<void(nlmsghdr*)>& options);
// The same, but refused with EEXIST if somebody has put one there.
void add_qdisc(const Qdisc& qdisc, const std::function<void(nlmsghdr*)>& options);
// False: there is none with that handle. kind is ignored.
bool remove_qdisc(const Qdisc& qdisc);

} // namespace remora::netlink
