// SPDX-License-Identifier: MIT
// A client's end of a pair of rings, and how it comes and goes: the socket to the node.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "src/clock.hpp"
#include "support/descriptor.hpp"
#include "support/shared_memory.hpp"

extern "C" {
#include "core/ring/ring.h"
}

namespace remora::lib {

class ShmLink {
public:
    // Waits for the node's offer. Throws Failure.
    explicit ShmLink(std::string path, Clock::time_point limit = never);

    // With the handle's lock, in the thread that receives: is the node still there? If not, tries
    // to reach another one. Never waits.
    void look_after();
    // The node broke a rule of the rings: ends the pair.
    void drop() { open_ = false; }
    bool is_open() const { return open_; }
    // The socket, for poll(); -1: there is none. Another serial: another socket.
    int fd() const { return socket_.get(); }
    std::uint64_t serial() const { return serial_; }
    // Takes the bytes that the node has sent to a client that watches. False: the socket has ended.
    bool take_bytes() const;
    void disown() { socket_ = Descriptor(); }

    // While it is open.
    ring_out out;
    ring_in in;
    std::uint32_t* pointer = nullptr;     // in the node's pointer buffer
    std::uint32_t* node_sleeps = nullptr; // flags
    std::uint32_t *sleeps = nullptr, *watches = nullptr;

private:
    bool call();
    bool take_offer();
    void map(const ring_offer& offer, const std::vector<Descriptor>& files);

    std::string path_;
    Descriptor socket_;
    std::uint64_t serial_ = 0;
    bool offered_ = false;           // the socket's node has offered a pair
    std::atomic<bool> open_ = false; // and neither end has dropped it
    Mapping pair_, page_;
};

} // namespace remora::lib
