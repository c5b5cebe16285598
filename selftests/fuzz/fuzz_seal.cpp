// SPDX-License-Identifier: GPL-2.0
// Two clients in sealed sessions of one node, and an attacker on the wire who holds the space's key
// but no session's: the input is a script of calls, and of recorded datagrams that the attacker
// sends again, damaged, spliced, turned round, or under a header of its own whose tag verifies.
// An end opens only texts that another end sealed under that key and number, no number
// has two plaintexts, a read returns the last data written, and every op ends in time once the
// attacker has stopped.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "../unit/rmem/net_rig.hpp"
#include "script.hpp"

extern "C" {
#include "core/rmem/client/session.h"
}

namespace {

using net::Bytes;
using net::Op;
using net::Packet;
using net::World;

constexpr size_t channels = 2, recorded_max = 64, acts_max = 100;
constexpr uint32_t area_bytes = 1500; // in two parts

class Fuzzed {
public:
    Fuzzed(const uint8_t* data, size_t bytes) : script_(data, bytes) {
        world_.sealed = true;
        world_.keeps_books = false;
        world_.datagram_bytes = 1472;
        for (size_t n = 0; n < channels; n++)
            world_.add_channel(world_.config(static_cast<uint8_t>(1 + n)));
        base_ = net::allocate(world_, RMEM_BUNDLE_MAX * area_bytes);
        // The region is the first client's once a request has acknowledged it.
        for (size_t n = 0; n < channels; n++)
            check(n);
        world_.on_sent = [this](const Packet& packet) {
            recorded_[count_++ % recorded_max] = packet;
        };
    }

    void run() {
        for (size_t acts = 0; acts < acts_max && !script_.done(); acts++)
            act();
        world_.weather = {};
        for (size_t n = 0; n < channels; n++) {
            Area& area = areas_[n];
            require(world_.run([&] { return !area.op.flying; }));
            settle(area);
            check(n);
        }
    }

private:
    // A client's bytes, for one op at a time: so the last write is known.
    struct Area {
        Op op;
        bool writes = false;
        Bytes data = Bytes(area_bytes);
    };

    void act() {
        const uint64_t what = script_.take(1);
        const size_t n = what / 16 % channels;
        switch (what % 16) {
        case 0:
        case 1:
        case 2:
            submit(n);
            break;
        case 3:
            rmem_client_renew(&world_.channels[n]->client, world_.now_ns);
            world_.pump(n);
            break;
        case 4:
            world_.weather.loss = static_cast<uint32_t>(script_.take(1));
            world_.weather.dup = static_cast<uint32_t>(script_.take(1));
            break;
        case 5:
            world_.host->evict_all();
            break;
        case 6:
        case 7:
        case 8:
        case 9:
            for (uint64_t steps = 1 + script_.take(1) % 16; steps; steps--)
                world_.step();
            break;
        default:
            attack();
        }
    }

    uint64_t at(size_t n) const { return base_ + n * area_bytes; }

    void submit(size_t n) {
        Area& area = areas_[n];
        if (area.op.flying)
            return;
        settle(area);
        area.op = Op();
        area.writes = script_.take(1) % 2;
        if (area.writes) {
            const auto value = static_cast<uint8_t>(script_.take(1));
            net::make_write(area.op, at(n), Bytes(area_bytes, value));
        } else {
            net::make(area.op, RMEM_READ, at(n), area_bytes);
        }
        world_.submit(area.op, n);
    }

    // Check an op that has ended.
    void settle(Area& area) {
        if (area.op.op.type == 0)
            return;
        require(area.op.result == RMEM_CLIENT_OK);
        if (area.writes)
            area.data = area.op.data;
        else
            require(area.op.data == area.data);
        area.op = Op();
    }

    void check(size_t n) {
        Op op;
        net::make(op, RMEM_READ, at(n), area_bytes);
        require(net::finish(world_, op, n) == RMEM_CLIENT_OK && op.data == areas_[n].data);
    }

    // ---- the attacker ----

    const Packet& any() { return recorded_[script_.take(1) % std::min(count_, recorded_max)]; }

    static void tag(Bytes& bytes) {
        const base_siphash_key key = net::space_key();
        base_store_le64(bytes.data() + RMEM_TAGGED_BYTES,
                        base_siphash(&key, bytes.data(), RMEM_TAGGED_BYTES));
    }

    void attack() {
        if (!count_)
            return;
        Packet packet = any();
        Bytes& bytes = packet.bytes;
        // An attacker with the space's key can pose as the node to a client that opens a session.
        // So this one sends OPENs and their answers unchanged, or damaged.
        const bool sealed = wire::is_sealed(bytes);
        const uint64_t how = script_.take(1);
        switch (how % 8) {
        case 0:
            bytes[script_.take(2) % bytes.size()] ^= static_cast<uint8_t>(1 << how / 8 % 8);
            break;
        case 1:
            bytes.resize(script_.take(2) % (bytes.size() + RMEM_SEAL_BYTES));
            break;
        case 2:
            if (sealed) {
                bytes[script_.take(1) % RMEM_TAGGED_BYTES] = static_cast<uint8_t>(script_.take(1));
                tag(bytes);
            }
            break;
        case 3:
            splice(bytes, any().bytes);
            break;
        case 4:
            if (const Bytes& other = any().bytes; sealed && wire::is_sealed(other))
                std::copy(other.end() - RMEM_SEAL_BYTES, other.end(),
                          bytes.end() - RMEM_SEAL_BYTES);
            break;
        case 5:
            packet.to_node = !packet.to_node;
            break;
        case 6:
            notice(packet);
            break;
        default: // as it was
            break;
        }
        packet.channel = how / 64 % 2 ? packet.channel : script_.take(1) % channels;
        packet.at_ns = world_.now_ns;
        world_.inject(packet);
    }

    // One's header with another's text.
    static void splice(Bytes& bytes, const Bytes& other) {
        if (!wire::is_sealed(bytes) || !wire::is_sealed(other))
            return;
        bytes.resize(RMEM_HDR_BYTES);
        bytes.insert(bytes.end(), other.begin() + RMEM_HDR_BYTES, other.end());
        tag(bytes);
    }

    void notice(Packet& packet) {
        const rmem_client& client = world_.channels[packet.channel]->client;
        rmem_head head{};
        head.type = RMEM_CLOSE | RMEM_RESPONSE;
        head.status = RMEM_NO_SESSION;
        head.integrity = RMEM_SEALED;
        head.clear = true;
        head.space = net::space;
        head.session = script_.take(1) % 2 ? client.session : client.renews;
        head.boot = client.boot;
        packet.to_node = false;
        packet.bytes = wire::sealed(head, net::space_key());
    }

    Script script_;
    World world_{1, RMEM_IWND_BYTES, 16};
    uint64_t base_ = 0;
    std::array<Area, channels> areas_;
    std::array<Packet, recorded_max> recorded_;
    size_t count_ = 0; // ever recorded
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Fuzzed(data, size).run();
    return 0;
}
