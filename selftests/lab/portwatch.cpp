// SPDX-License-Identifier: GPL-2.0
// The queue of a switch's port, as its root qdisc has it.
//
//     portwatch DEVICE PERIOD_US
//         Looks each PERIOD_US, after it has printed "watching", until its input ends. Prints the
//         longest backlog and the mean of all in bytes, and the packets dropped and bytes sent
//         meanwhile.
#include <linux/gen_stats.h>
#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

struct Sample {
    uint32_t backlog_bytes = 0, drops = 0;
    uint64_t sent_bytes = 0;
};

[[noreturn]] void fail(const char* what) {
    fprintf(stderr, "portwatch: %s: %s\n", what, strerror(errno));
    exit(1);
}

void read_stats(const rtattr* nest, Sample& sample) {
    int left = int(RTA_PAYLOAD(nest));
    for (auto* a = static_cast<const rtattr*>(RTA_DATA(nest)); RTA_OK(a, left);
         a = RTA_NEXT(a, left)) {
        if (a->rta_type == TCA_STATS_BASIC) {
            memcpy(&sample.sent_bytes, RTA_DATA(a), sizeof(sample.sent_bytes));
        } else if (a->rta_type == TCA_STATS_QUEUE) {
            gnet_stats_queue queue{};
            memcpy(&queue, RTA_DATA(a), std::min(sizeof(queue), size_t(RTA_PAYLOAD(a))));
            sample.backlog_bytes = queue.backlog;
            sample.drops = queue.drops;
        }
    }
}

class Port {
public:
    explicit Port(const char* device) : fd_(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)) {
        request_.head.nlmsg_len = sizeof(request_);
        request_.head.nlmsg_type = RTM_GETQDISC;
        // Without ECHO the answer goes to listeners alone.
        request_.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ECHO;
        request_.tc.tcm_family = AF_UNSPEC;
        request_.tc.tcm_ifindex = int(if_nametoindex(device));
        request_.tc.tcm_parent = TC_H_ROOT;
        if (fd_ < 0 || !request_.tc.tcm_ifindex)
            fail(device);
    }

    Sample look() {
        alignas(nlmsghdr) char buffer[8192];
        if (send(fd_, &request_, sizeof(request_), 0) < 0)
            fail("send");
        ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
        auto* head = reinterpret_cast<nlmsghdr*>(buffer);
        if (got < 0 || head->nlmsg_type != RTM_NEWQDISC)
            fail("the port has no root qdisc");
        Sample sample;
        auto* tc = static_cast<tcmsg*>(NLMSG_DATA(head));
        int left = int(head->nlmsg_len - NLMSG_LENGTH(sizeof(*tc)));
        for (auto* a = reinterpret_cast<rtattr*>(tc + 1); RTA_OK(a, left); a = RTA_NEXT(a, left))
            if ((a->rta_type & NLA_TYPE_MASK) == TCA_STATS2)
                read_stats(a, sample);
        return sample;
    }

private:
    int fd_;
    struct {
        nlmsghdr head{};
        tcmsg tc{};
    } request_;
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: portwatch DEVICE PERIOD_US\n");
        return 2;
    }
    const timespec period{0, 1000 * atol(argv[2])};
    Port port(argv[1]);
    const Sample first = port.look();
    Sample last = first;
    uint32_t longest = 0;
    uint64_t sum = 0, looks = 0;
    printf("watching\n");
    fflush(stdout);
    for (pollfd input{0, POLLIN, 0}; ppoll(&input, 1, &period, nullptr) == 0; looks++) {
        last = port.look();
        longest = std::max(longest, last.backlog_bytes);
        sum += last.backlog_bytes;
    }
    printf("%u %llu %u %llu\n", longest, static_cast<unsigned long long>(looks ? sum / looks : 0),
           last.drops - first.drops,
           static_cast<unsigned long long>(last.sent_bytes - first.sent_bytes));
    return 0;
}
