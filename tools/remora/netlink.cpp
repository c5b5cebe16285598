// SPDX-License-Identifier: GPL-2.0
#include "remora/netlink.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include "support/say.hpp"

namespace remora::netlink {

namespace {

// Remora's requests are a few hundred bytes. The kernel fills at most 64 KiB of a dump at once.
constexpr std::size_t request_bytes_max = 4096;
constexpr std::size_t answer_bytes_max = 65536;

// Control characters would break the one line an error has.
std::string one_line(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
    return text;
}

// NL_SET_ERR_MSG_MOD puts the module's name first, which the caller's context makes needless.
std::string without_module(const std::string& text) {
    for (std::string_view module : {"rmem_node: ", "rmem: ", "eqds: "}) {
        if (text.starts_with(module))
            return text.substr(module.size());
    }
    return text;
}

// The kernel's text, in attributes behind the first skip bytes of a message.
std::string text_behind(const nlmsghdr* header, std::size_t skip) {
    const std::size_t bytes = mnl_nlmsg_get_payload_len(header);
    if (!(header->nlmsg_flags & NLM_F_ACK_TLVS) || skip > bytes)
        return {};
    Attributes attributes(static_cast<const char*>(mnl_nlmsg_get_payload(header)) + skip,
                          bytes - skip);
    return one_line(without_module(attributes.string(NLMSGERR_ATTR_MSG)));
}

// The kernel's text about an error or a success.
std::string extended_text(const nlmsghdr* header, const nlmsgerr* error) {
    // The request follows the error number whole, unless the kernel was asked to cap it.
    std::size_t skip = sizeof(*error);
    if (!(header->nlmsg_flags & NLM_F_CAPPED))
        skip += MNL_ALIGN(error->msg.nlmsg_len) - sizeof(error->msg);
    return text_behind(header, skip);
}

[[noreturn]] void refuse_by(int number, std::string text) {
    if (text.empty())
        text = number == EPERM ? "not permitted: run it as root" : std::strerror(number);
    throw Refused(number, text);
}

[[noreturn]] void refuse(const nlmsghdr* header, const nlmsgerr* error) {
    refuse_by(-error->error, extended_text(header, error));
}

// The end of a dump has an error number, too.
void check_end_of_dump(const nlmsghdr* header) {
    int number = 0;
    if (mnl_nlmsg_get_payload_len(header) < sizeof(number))
        return;
    std::memcpy(&number, mnl_nlmsg_get_payload(header), sizeof(number));
    if (number < 0)
        refuse_by(-number, text_behind(header, sizeof(number)));
}

// Prints the kernel's warning about a successful request, if there is one.
void warn_of(const nlmsghdr* header, const nlmsgerr* acknowledgement) {
    std::string text = extended_text(header, acknowledgement);
    if (!text.empty())
        warn("remora: {}", text);
}

} // namespace

// ---- attributes ----

Attributes::Attributes(const void* data, std::size_t bytes) {
    const auto* attribute = static_cast<const nlattr*>(data);
    int left = static_cast<int>(bytes);
    for (; mnl_attr_ok(attribute, left); attribute = mnl_attr_next(attribute)) {
        const auto* payload = static_cast<const std::uint8_t*>(mnl_attr_get_payload(attribute));
        attributes_.push_back({mnl_attr_get_type(attribute),
                               {payload, payload + mnl_attr_get_payload_len(attribute)}});
        left -= MNL_ALIGN(attribute->nla_len);
    }
}

const Attributes::Attribute* Attributes::find(std::uint16_t type) const {
    auto found = std::find_if(attributes_.begin(), attributes_.end(),
                              [=](const Attribute& each) { return each.type == type; });
    return found == attributes_.end() ? nullptr : &*found;
}

std::uint64_t Attributes::number(std::uint16_t type) const {
    const auto& payload = bytes(type);
    auto as = [&](auto value) {
        std::memcpy(&value, payload.data(), sizeof(value));
        return static_cast<std::uint64_t>(value);
    };
    switch (payload.size()) {
    case 1:
        return as(std::uint8_t{});
    case 2:
        return as(std::uint16_t{});
    case 4:
        return as(std::uint32_t{});
    case 8:
        return as(std::uint64_t{});
    default:
        return 0;
    }
}

std::string Attributes::string(std::uint16_t type) const {
    const auto& payload = bytes(type);
    return {payload.begin(), std::find(payload.begin(), payload.end(), 0)};
}

const std::vector<std::uint8_t>& Attributes::bytes(std::uint16_t type) const {
    static const std::vector<std::uint8_t> none;
    const Attribute* found = find(type);
    return found ? found->payload : none;
}

std::vector<Attributes> Attributes::nests(std::uint16_t type) const {
    std::vector<Attributes> nests;
    for (const Attribute& each : attributes_) {
        if (each.type == type)
            nests.emplace_back(each.payload.data(), each.payload.size());
    }
    return nests;
}

// ---- requests ----

Request::Request(std::uint8_t command) : buffer_(request_bytes_max) {
    mnl_nlmsg_put_header(buffer_.data());
    auto* generic =
        static_cast<genlmsghdr*>(mnl_nlmsg_put_extra_header(header(), sizeof(genlmsghdr)));
    generic->cmd = command;
}

Request& Request::u8(std::uint16_t type, std::uint8_t value) {
    return bytes(type, &value, sizeof(value));
}

Request& Request::u16(std::uint16_t type, std::uint16_t value) {
    return bytes(type, &value, sizeof(value));
}

Request& Request::u32(std::uint16_t type, std::uint32_t value) {
    return bytes(type, &value, sizeof(value));
}

Request& Request::u64(std::uint16_t type, std::uint64_t value) {
    return bytes(type, &value, sizeof(value));
}

Request& Request::flag(std::uint16_t type) {
    return bytes(type, nullptr, 0);
}

Request& Request::string(std::uint16_t type, const std::string& value) {
    return bytes(type, value.c_str(), value.size() + 1);
}

Request& Request::bytes(std::uint16_t type, const void* data, std::size_t size) {
    if (!mnl_attr_put_check(header(), buffer_.size(), type, size, data))
        throw Failure("a request to the kernel would be longer than {} bytes", request_bytes_max);
    return *this;
}

Request& Request::nest(std::uint16_t type, const std::function<void(Request&)>& inside) {
    nlattr* nest = mnl_attr_nest_start_check(header(), buffer_.size(), type);
    if (!nest)
        throw Failure("a request to the kernel would be longer than {} bytes", request_bytes_max);
    inside(*this);
    mnl_attr_nest_end(header(), nest);
    return *this;
}

// ---- the family ----

namespace {

bool is_in_kernel(std::string_view module) {
    return !access(fmt::format("/sys/module/{}", module).c_str(), F_OK);
}

std::string why_no_family(std::string_view module, bool loaded) {
    if (!loaded)
        return fmt::format("the kernel module {} is not loaded: modprobe {}", module, module);
    return fmt::format("the kernel module {} takes no commands now: is it being unloaded?", module);
}

} // namespace

NoFamily::NoFamily(std::string_view module)
    : Failure(why_no_family(module, is_in_kernel(module))), loaded_(is_in_kernel(module)) {}

Family::Family(const std::string& name, std::uint8_t version, std::string_view module)
    : socket_(mnl_socket_open2(NETLINK_GENERIC, SOCK_CLOEXEC)), version_(version) {
    if (!socket_ || mnl_socket_bind(socket_.get(), 0, MNL_SOCKET_AUTOPID) < 0)
        throw Failure("no generic netlink socket: {}", std::strerror(errno));
    // Optional features: without them an error has errno's text only.
    int on = 1;
    mnl_socket_setsockopt(socket_.get(), NETLINK_EXT_ACK, &on, sizeof(on));
    mnl_socket_setsockopt(socket_.get(), NETLINK_CAP_ACK, &on, sizeof(on));

    Request request(CTRL_CMD_GETFAMILY);
    request.string(CTRL_ATTR_FAMILY_NAME, name);
    try {
        send(request, GENL_ID_CTRL, NLM_F_ACK, 1);
        receive(nullptr, [&](const Attributes& answer) {
            id_ = static_cast<std::uint16_t>(answer.number(CTRL_ATTR_FAMILY_ID));
            loaded_version_ = static_cast<std::uint32_t>(answer.number(CTRL_ATTR_VERSION));
        });
    } catch (const Refused& refused) {
        if (refused.error() == ENOENT)
            throw NoFamily(module);
        throw;
    }
}

Attributes Family::exchange(Request& request, const volatile int* signalled) {
    Attributes answer;
    send(request, id_, NLM_F_ACK, version_);
    receive(signalled, [&](Attributes got) { answer = std::move(got); });
    return answer;
}

Attributes Family::call(Request request) {
    return exchange(request, nullptr);
}

Attributes Family::call_interruptibly(Request request, const volatile int& signalled) {
    return exchange(request, &signalled);
}

std::vector<Attributes> Family::dump(Request request) {
    std::vector<Attributes> answers;
    send(request, id_, NLM_F_DUMP, version_);
    receive(nullptr, [&](Attributes got) { answers.push_back(std::move(got)); });
    return answers;
}

void Family::send(Request& request, std::uint16_t type, std::uint16_t flags, std::uint8_t version) {
    nlmsghdr* header = request.header();
    header->nlmsg_type = type;
    header->nlmsg_flags = NLM_F_REQUEST | flags;
    header->nlmsg_seq = ++sequence_;
    static_cast<genlmsghdr*>(mnl_nlmsg_get_payload(header))->version = version;
    // The kernel executes the request in this call, and a signal ends it only before that.
    while (mnl_socket_sendto(socket_.get(), header, header->nlmsg_len) < 0) {
        if (errno != EINTR)
            throw Failure("the kernel takes no netlink request: {}", std::strerror(errno));
    }
}

/*
 * Runs until the acknowledgement, or the end of a dump. A request that a signal interrupted in the
 * kernel gets no answer at all: after *signalled, wait for no further answer.
 */
void Family::receive(const volatile int* signalled, const std::function<void(Attributes)>& answer) {
    std::vector<char> buffer(answer_bytes_max);
    for (;;) {
        int flags = signalled && *signalled ? MSG_DONTWAIT : 0;
        ssize_t got = recv(mnl_socket_get_fd(socket_.get()), buffer.data(), buffer.size(), flags);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN && flags)
            throw Interrupted();
        if (got < 0)
            throw Failure("no answer from the kernel: {}", std::strerror(errno));
        int left = static_cast<int>(got);
        const auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data());
        for (; mnl_nlmsg_ok(header, left); header = mnl_nlmsg_next(header, &left)) {
            if (header->nlmsg_seq != sequence_)
                continue;
            if (header->nlmsg_type == NLMSG_DONE) {
                check_end_of_dump(header);
                return;
            }
            if (header->nlmsg_type == NLMSG_ERROR) {
                const auto* error = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(header));
                if (error->error)
                    refuse(header, error);
                warn_of(header, error);
                return;
            }
            const auto* first =
                static_cast<const char*>(mnl_nlmsg_get_payload_offset(header, sizeof(genlmsghdr)));
            answer(Attributes(first,
                              mnl_nlmsg_get_payload_len(header) - MNL_ALIGN(sizeof(genlmsghdr))));
        }
    }
}

// ---- rtnetlink ----

namespace {

// A request to rtnetlink, whose attributes the caller puts behind its fixed part.
class RouteRequest {
public:
    RouteRequest(std::uint16_t type, std::uint16_t flags) : buffer_(answer_bytes_max) {
        header_ = mnl_nlmsg_put_header(buffer_.data());
        header_->nlmsg_type = type;
        header_->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    }

    nlmsghdr* header() { return header_; }
    template <typename Fixed>
    Fixed* fixed() {
        return static_cast<Fixed*>(mnl_nlmsg_put_extra_header(header_, sizeof(Fixed)));
    }

    // Throws Refused with the kernel's words. what: the thing asked for, for other errors.
    void call(const char* what) {
        std::unique_ptr<mnl_socket, int (*)(mnl_socket*)> socket(mnl_socket_open(NETLINK_ROUTE),
                                                                 mnl_socket_close);
        int on = 1;
        if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0 ||
            mnl_socket_setsockopt(socket.get(), NETLINK_EXT_ACK, &on, sizeof(on)) < 0 ||
            mnl_socket_sendto(socket.get(), header_, header_->nlmsg_len) < 0)
            throw Failure("can't ask the kernel for {}: {}", what, std::strerror(errno));
        ssize_t got = mnl_socket_recvfrom(socket.get(), buffer_.data(), buffer_.size());
        const auto* answer = reinterpret_cast<const nlmsghdr*>(buffer_.data());
        if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(nlmsgerr))) ||
            answer->nlmsg_type != NLMSG_ERROR)
            throw Failure("the kernel's answer about {} can't be read", what);
        const auto* error = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(answer));
        if (error->error)
            refuse(answer, error);
    }

private:
    std::vector<char> buffer_;
    nlmsghdr* header_;
};

} // namespace

void add_link(const std::string& name, const std::string& kind, unsigned link_index) {
    if (name.empty() || name.size() >= IFNAMSIZ)
        throw Misuse("a device's name has 1 to {} characters", IFNAMSIZ - 1);
    RouteRequest request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    auto* about = request.fixed<ifinfomsg>();
    about->ifi_flags = IFF_UP;
    about->ifi_change = IFF_UP;
    mnl_attr_put_strz(request.header(), IFLA_IFNAME, name.c_str());
    mnl_attr_put_u32(request.header(), IFLA_LINK, link_index);
    nlattr* info = mnl_attr_nest_start(request.header(), IFLA_LINKINFO);
    mnl_attr_put_strz(request.header(), IFLA_INFO_KIND, kind.c_str());
    mnl_attr_nest_end(request.header(), info);
    request.call("a device");
}

void remove_link(unsigned index) {
    RouteRequest request(RTM_DELLINK, 0);
    request.fixed<ifinfomsg>()->ifi_index = static_cast<int>(index);
    request.call("a device's end");
}

namespace {

RouteRequest about_qdisc(const Qdisc& qdisc, std::uint16_t type, std::uint16_t flags) {
    RouteRequest request(type, flags);
    auto* about = request.fixed<tcmsg>();
    about->tcm_family = AF_UNSPEC;
    about->tcm_ifindex = static_cast<int>(qdisc.link_index);
    about->tcm_parent = qdisc.parent;
    about->tcm_handle = qdisc.handle;
    return request;
}

void new_qdisc(const Qdisc& qdisc, std::uint16_t flags,
               const std::function<void(nlmsghdr*)>& options) {
    RouteRequest request = about_qdisc(qdisc, RTM_NEWQDISC, NLM_F_CREATE | flags);
    mnl_attr_put_strz(request.header(), TCA_KIND, qdisc.kind.c_str());
    nlattr* nest = mnl_attr_nest_start(request.header(), TCA_OPTIONS);
    options(request.header());
    mnl_attr_nest_end(request.header(), nest);
    request.call("a qdisc");
}

} // namespace

void set_qdisc(const Qdisc& qdisc, const std::function<void(nlmsghdr*)>& options) {
    new_qdisc(qdisc, NLM_F_REPLACE, options);
}

void add_qdisc(const Qdisc& qdisc, const std::function<void(nlmsghdr*)>& options) {
    new_qdisc(qdisc, NLM_F_EXCL, options);
}

bool remove_qdisc(const Qdisc& qdisc) {
    try {
        about_qdisc(qdisc, RTM_DELQDISC, 0).call("a qdisc's end");
        return true;
    } catch (const Refused& refused) {
        if (refused.error() == ENOENT || refused.error() == EINVAL)
            return false;
        throw;
    }
}

} // namespace remora::netlink
