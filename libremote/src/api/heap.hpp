// SPDX-License-Identifier: MIT
/*
 * A handle's allocations. The node gives out whole pages of 64 KiB and more, so small allocations
 * share a page:
 *
 *   bytes > a quarter of a page, or read-only:  a region of the node's
 *   else:  a slot of a slab; a slab is a region of one page, cut into slots of one power of two
 *
 * A slot that is freed is zeroed at the node, in order with the operations on it: so those that
 * were under way have ended, and the next who gets it finds zeros. Only then it's free. The page of
 * a slab goes back when its last slot does.
 *
 * When the node's memory is lost, so are all allocations. The heap then gives out and frees
 * nothing. It only reports each allocation that it had, once.
 */
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "remote/remote.h"
#include "src/backend/backend.hpp"
#include "src/sync/lock.hpp"

namespace remora::lib {

class Heap {
public:
    static constexpr unsigned shift_least = 4; // slots of 16 bytes

    // locks: those in freed memory are forgotten, before another allocation can have it.
    Heap(Backend& backend, Locks& locks) : backend_(backend), locks_(locks) {}

    // wanted: 0, or the wanted address. Returns 1 if the memory lies at another address.
    int alloc(std::uint64_t bytes, std::uint32_t permission, raddr_t wanted, raddr_t& address);
    int free(raddr_t address);
    // The same as the steps of an op.
    std::unique_ptr<Steps> allocating(std::uint64_t bytes, std::uint32_t permission,
                                      raddr_t wanted);
    std::unique_ptr<Steps> freeing(raddr_t address);
    // Frees a region of this size, another handle's, too.
    int free_sized(raddr_t address, std::uint64_t bytes);
    // Is the address in a page of small allocations of this handle?
    bool is_small(raddr_t address);
    // For a lost backend: the next allocation that wasn't freed, by address. False: all are
    // reported.
    bool tell_lost(raddr_t& address, std::uint64_t& bytes);

private:
    static constexpr unsigned shifts = 18; // to those of a quarter of a page of 4 MiB

    enum class Slot : std::uint8_t { free, taken, freeing };
    struct Slab {
        Region range;
        unsigned shift;
        std::vector<Slot> slots;
        std::size_t not_free = 0;
        std::size_t next = 0;                // no slot below is free
        std::set<raddr_t>::node_type full{}; // its place in with_room_, while it has no room
    };
    using Slabs = std::map<raddr_t, Slab>;
    struct Allocation {
        Region range;
        bool freeing = false;
    };
    struct Lost {
        raddr_t address;
        std::uint64_t bytes;
    };

    // The slab that an op is about to add for all that need such slots.
    struct Coming {
        bool is_one = false;
        std::uint64_t failures = 0; // of earlier ones
    };
    enum class Room : std::uint8_t { taken, coming, missing };

    class Allocating;
    class Freeing;
    // Memory for the note of an allocation. It is allocated before the message is sent, so that no
    // region is left without a note.
    struct Note {
        std::map<raddr_t, Allocation> region;
        Slabs slab;
        std::set<raddr_t> room;
    };

    unsigned slot_shift(std::uint64_t bytes, std::uint32_t permission, raddr_t wanted) const;
    Note prepare(unsigned shift) const;
    int add_region(Note note, const Region& range);
    int add_slab(Note note, unsigned shift, const Region& range, raddr_t& address);
    bool take_slot_of(unsigned shift, raddr_t& address);
    Room find_room(unsigned shift, raddr_t& address, std::optional<std::uint64_t>& failures);
    void end_coming(unsigned shift, int error);
    int free_region(raddr_t address);
    int begin_free_region(raddr_t address, Region& range);
    int end_free_region(raddr_t address, int error);
    int free_foreign(raddr_t address, std::uint64_t bytes);
    std::uint64_t bytes_of(raddr_t address);
    bool take_slot(unsigned shift, raddr_t& address);
    int free_slot(raddr_t address);
    int begin_free_slot(raddr_t address, std::uint64_t& bytes);
    int end_free_slot(raddr_t address, int error, Region& unused);
    int begin_free(raddr_t address, bool& is_slot);
    Slabs::iterator slab_of(raddr_t address);
    void gather_lost();

    Backend& backend_;
    Locks& locks_;
    std::mutex mutex_; // all below; no call of the backend is made under it
    std::map<raddr_t, Allocation> regions_;
    Slabs slabs_;
    std::array<std::set<raddr_t>, shifts> with_room_; // slabs, by shift - shift_least
    std::array<Coming, shifts> coming_;               // by shift - shift_least, too
    std::vector<Lost> lost_; // still to be reported, the highest address first
};

} // namespace remora::lib
