// SPDX-License-Identifier: MIT
#include "src/api/heap.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

namespace remora::lib {

namespace {

// Size of the slot for an allocation of bytes.
std::uint64_t slot_bytes(std::uint64_t bytes) {
    return std::max(std::uint64_t{1} << Heap::shift_least, std::bit_ceil(bytes));
}

} // namespace

int Heap::alloc(std::uint64_t bytes, std::uint32_t permission, raddr_t wanted, raddr_t& address) {
    if (wanted || permission != REMOTE_RW || bytes > backend_.page_bytes() / 4) // or own pages
        return alloc_region(bytes, permission, wanted, address);
    return alloc_slot(static_cast<unsigned>(std::countr_zero(slot_bytes(bytes))), address);
}

int Heap::free(raddr_t address, std::uint64_t& bytes) {
    bool is_slot;
    {
        std::lock_guard lock(mutex_);
        if (backend_.is_lost())
            return -ESTALE;
        is_slot = slab_of(address) != slabs_.end();
    }
    return is_slot ? free_slot(address, bytes) : free_region(address, bytes);
}

int Heap::free_sized(raddr_t address, std::uint64_t& bytes) {
    std::uint64_t page = backend_.page_bytes();
    std::uint64_t own = bytes_of(address);
    if (!own)
        return free_foreign(address, bytes);
    bool is_region = own >= page;
    if (own != (is_region ? (bytes + page - 1) & ~(page - 1) : slot_bytes(bytes)))
        return -EFAULT;
    return free(address, bytes);
}

bool Heap::is_small(raddr_t address) {
    std::lock_guard lock(mutex_);
    return slab_of(address) != slabs_.end();
}

// ---- regions ----

int Heap::alloc_region(std::uint64_t bytes, std::uint32_t permission, raddr_t wanted,
                       raddr_t& address) {
    // Before the node allocates: without memory to note the region it would be nobody's.
    std::map<raddr_t, Allocation> made{{0, {}}};
    Region range{};
    if (int error = backend_.alloc(bytes, permission, wanted, range))
        return error;
    std::lock_guard lock(mutex_);
    if (backend_.is_lost())
        return -ESTALE; // remote_lost() would not report it
    auto region = made.extract(made.begin());
    region.key() = range.address;
    region.mapped() = {range};
    regions_.erase(range.address); // only a node that can't be trusted gives it out twice
    regions_.insert(std::move(region));
    address = range.address;
    return wanted && range.address != wanted;
}

int Heap::free_region(raddr_t address, std::uint64_t& bytes) {
    Region range;
    {
        std::lock_guard lock(mutex_);
        auto region = regions_.find(address);
        if (region == regions_.end() || region->second.freeing)
            return -EFAULT;
        region->second.freeing = true;
        range = region->second.range;
    }
    bytes = range.bytes;
    int error = backend_.dealloc(range);
    std::lock_guard lock(mutex_);
    auto region = regions_.find(address);
    if (region == regions_.end())
        return error; // lost, and among the regions to report
    // After any other error the node might still have the region; repeating the call tells.
    if (!error || error == -EFAULT)
        regions_.erase(region);
    else
        region->second.freeing = false;
    return error;
}

// A page of small allocations is in use until all are freed, so its own handle must free it. A
// caller that names more than a quarter of a page means a region.
int Heap::free_foreign(raddr_t address, std::uint64_t& bytes) {
    std::uint64_t page = backend_.page_bytes();
    if (bytes <= page / 4)
        return -EINVAL;
    bytes = (bytes + page - 1) & ~(page - 1);
    if (address % page)
        return -EFAULT;
    if (int error = backend_.dealloc({address, bytes}))
        return error;
    // A FREE that was issued again succeeds even if no region of that size is there. So check that
    // the memory is gone: no other error shows that.
    std::uint8_t byte;
    const int error = backend_.transfer(Kind::read, address, &byte, 1, never);
    if (error == -EFAULT)
        return 0;
    return error ? error : -EFAULT;
}

// Bytes of this handle's allocation at address; 0: none begins there.
std::uint64_t Heap::bytes_of(raddr_t address) {
    std::lock_guard lock(mutex_);
    if (auto region = regions_.find(address); region != regions_.end())
        return region->second.range.bytes;
    auto slab = slab_of(address);
    return slab == slabs_.end() ? 0 : std::uint64_t{1} << slab->second.shift;
}

// ---- slots ----

// The slab an address lies in, or none. Mutex.
Heap::Slabs::iterator Heap::slab_of(raddr_t address) {
    auto slab = slabs_.upper_bound(address);
    if (slab == slabs_.begin())
        return slabs_.end();
    --slab;
    return address - slab->first < slab->second.range.bytes ? slab : slabs_.end();
}

// False: no slab has room that isn't lost. Mutex.
bool Heap::take_slot(unsigned shift, raddr_t& address) {
    std::set<raddr_t>& with_room = with_room_[shift - shift_least];
    if (with_room.empty() || backend_.is_lost())
        return false;
    raddr_t base = *with_room.begin();
    Slab& slab = slabs_.at(base);
    while (slab.slots[slab.next] != Slot::free)
        slab.next++;
    slab.slots[slab.next] = Slot::taken;
    address = base + (slab.next << shift);
    slab.next++;
    if (++slab.not_free == slab.slots.size())
        slab.full = with_room.extract(base);
    return true;
}

int Heap::alloc_slot(unsigned shift, raddr_t& address) {
    {
        std::lock_guard lock(mutex_);
        if (take_slot(shift, address))
            return 0;
    }
    // As in alloc_region().
    Slabs made;
    std::vector<Slot> slots(backend_.page_bytes() >> shift, Slot::free);
    made.emplace(0, Slab{{}, shift, std::move(slots)});
    std::set<raddr_t> room{0};
    Region range{};
    if (int error = backend_.alloc(1, REMOTE_RW, 0, range))
        return error;
    std::lock_guard lock(mutex_);
    if (backend_.is_lost())
        return -ESTALE;
    // Don't trust a node that answers an impossible address.
    if (range.bytes != backend_.page_bytes() || range.address % range.bytes ||
        slabs_.contains(range.address))
        return -EIO;
    auto slab = made.extract(made.begin());
    slab.key() = range.address;
    slab.mapped().range = range;
    slabs_.insert(std::move(slab));
    auto has_room = room.extract(room.begin());
    has_room.value() = range.address;
    with_room_[shift - shift_least].insert(std::move(has_room));
    take_slot(shift, address);
    return 0;
}

int Heap::free_slot(raddr_t address, std::uint64_t& bytes) {
    {
        std::lock_guard lock(mutex_);
        auto slab = slab_of(address);
        if (slab == slabs_.end())
            return -EFAULT;
        bytes = std::uint64_t{1} << slab->second.shift;
        Slot& slot = slab->second.slots[(address - slab->first) >> slab->second.shift];
        if ((address - slab->first) % bytes || slot != Slot::taken)
            return -EFAULT;
        slot = Slot::freeing;
    }
    int error = backend_.zero(address, static_cast<std::uint32_t>(bytes));
    Region range{};
    {
        std::lock_guard lock(mutex_);
        auto at = slab_of(address);
        if (at == slabs_.end())
            return error; // as in free_region()
        Slab& slab = at->second;
        std::size_t index = (address - at->first) >> slab.shift;
        // After an error the content is unknown, so the slot stays taken; the call can be repeated.
        slab.slots[index] = error ? Slot::taken : Slot::free;
        if (error)
            return error;
        std::set<raddr_t>& with_room = with_room_[slab.shift - shift_least];
        slab.next = std::min(slab.next, index);
        if (slab.full)
            with_room.insert(std::move(slab.full));
        if (--slab.not_free)
            return 0;
        range = slab.range;
        with_room.erase(at->first);
        slabs_.erase(at);
    }
    // If this fails the node keeps the page; the caller's memory is freed all the same.
    backend_.dealloc(range);
    return 0;
}

// ---- losses ----

// Mutex.
void Heap::gather_lost() {
    std::vector<Lost> lost;
    for (const auto& [address, region] : regions_)
        lost.push_back({address, region.range.bytes});
    for (const auto& [address, slab] : slabs_) {
        for (std::size_t i = 0; i < slab.slots.size(); i++) {
            if (slab.slots[i] != Slot::free)
                lost.push_back({address + (i << slab.shift), std::uint64_t{1} << slab.shift});
        }
    }
    std::ranges::sort(lost, std::ranges::greater(), &Lost::address);
    lost_ = std::move(lost);
    regions_.clear();
    slabs_.clear();
}

bool Heap::tell_lost(raddr_t& address, std::uint64_t& bytes) {
    std::lock_guard lock(mutex_);
    if (lost_.empty())
        gather_lost(); // no effect if called before
    if (lost_.empty())
        return false;
    address = lost_.back().address;
    bytes = lost_.back().bytes;
    lost_.pop_back();
    return true;
}

} // namespace remora::lib
