// SPDX-License-Identifier: GPL-2.0
/*
 * A fabric's memory and doorbells, and who is in it. include/remora/ntb.h specifies the registers.
 *
 *   a port   RAM, a memory file ──────────────> the machine's QEMU, and those of peers that may
 *            an eventfd for each vector ──────> the same
 *            doorbell socket ── ivshmem ──────> the machine's QEMU, while it runs
 *
 * Ports keep memory and eventfds for good, and each QEMU gets all its permissions when it starts.
 * So machines come and go in any order without a word to the others' QEMUs: the registers tell who
 * is there. The ivshmem protocol could tell it, too, but QEMU 7.2 uses memory it has freed if a
 * peer comes back with the ID of one that left (close_peer_eventfds()).
 *
 * The doorbell socket is one of ivshmem's server (QEMU's docs/specs/ivshmem-spec.txt). All the
 * server has to say is sent when a machine joins. QEMU says nothing; its end of the socket closes
 * with it.
 */
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mh/map.hpp"
#include "remora/ntb.h"
#include "support/descriptor.hpp"
#include "support/shared_memory.hpp"

namespace remora::mh {

struct Port {
    Descriptor ram;
    std::array<Descriptor, NTB_VECTORS> vectors;
    Descriptor doorbell; // none while the machine is off
    bool plugged = true; // its cable
};

class Fabric {
public:
    // Memory and doorbells for all ports; every machine is off. Throws Failure.
    explicit Fabric(Map map);
    // A dead management host's memory and doorbells go on; policy: number of its last one that the
    // standby knew of. Throws Failure.
    Fabric(Map map, Descriptor registers, std::vector<Port> ports, std::uint32_t policy);

    const Map& map() const { return map_; }
    const Descriptor& registers() const { return file_; }
    const Port& port(std::size_t number) const { return ports_[number]; }
    bool has_joined(std::size_t number) const { return static_cast<bool>(ports_[number].doorbell); }

    // A machine gets power: its RAM and registers are cleared. Returns what its QEMU needs: its
    // doorbell socket, its RAM, for each peer by port the RAM, or zeros if it may not be reached.
    // Throws Failure.
    std::vector<Descriptor> join(std::size_t number);
    // A machine has lost its power.
    void leave(std::size_t number);
    // Has the machine's QEMU closed its doorbell socket, or said something?
    enum class Heard { nothing, end, garbage };
    Heard hear(std::size_t number);
    // A cable is pulled, or put in again: no links meanwhile, but memory stays mapped.
    void plug(std::size_t number, bool plugged);
    // A cable is pulled, and no machine is told before something else happens: a fault, for tests.
    void cut(std::size_t number);
    // Tells every machine who is there.
    void tell_presence();

    // Changes which pages of `to` the machine `from` may copy to and from, and tells that machine.
    // Throws Failure, and nothing has changed.
    void set_pages(std::size_t from, std::size_t to, const nlohmann::ordered_json& ranges);
    // Counts the changes.
    std::uint32_t policy() const { return policy_; }
    // Does the machine's kernel keep to the last change? True of one that is off.
    bool is_in_force(std::size_t number) const;
    // A dead management host might have been changing them.
    void write_policies();

private:
    void count_change(std::size_t number);
    void write_presence();
    void count_policy();
    void write_map();
    void write_policy(std::size_t number);
    ntb_port_page& page(std::size_t number) const;
    void clear(std::size_t number);
    void greet(std::size_t number, const Descriptor& socket);
    std::vector<Descriptor> memory_for(std::size_t number);

    Map map_;
    Descriptor file_; // of the registers
    Descriptor nothing_;
    Mapping registers_;
    std::vector<Port> ports_;
    std::uint32_t policy_ = 1;
};

} // namespace remora::mh
