// SPDX-License-Identifier: MIT
#include "src/api/heap.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

namespace remora::lib {

namespace {

// Bounds of the pauses of an op that waits for another one's slab.
constexpr auto look_first = std::chrono::microseconds(50);
constexpr auto look_most = std::chrono::milliseconds(2);

// Size of the slot for an allocation of bytes.
std::uint64_t slot_bytes(std::uint64_t bytes) {
    return std::max(std::uint64_t{1} << Heap::shift_least, std::bit_ceil(bytes));
}

} // namespace

// 0: pages of its own.
unsigned Heap::slot_shift(std::uint64_t bytes, std::uint32_t permission, raddr_t wanted) const {
    if (wanted || permission != REMOTE_RW || bytes > backend_.page_bytes() / 4)
        return 0;
    return static_cast<unsigned>(std::countr_zero(slot_bytes(bytes)));
}

int Heap::alloc(std::uint64_t bytes, std::uint32_t permission, raddr_t wanted, raddr_t& address) {
    const unsigned shift = slot_shift(bytes, permission, wanted);
    if (shift && take_slot_of(shift, address))
        return 0;
    Note note = prepare(shift);
    Region range{};
    if (int error = backend_.alloc(shift ? 1 : bytes, permission, wanted, range))
        return error;
    if (shift)
        return add_slab(std::move(note), shift, range, address);
    address = range.address;
    const int error = add_region(std::move(note), range);
    return error ? error : wanted && range.address != wanted;
}

// is_slot: does the address lie in a slab? -ESTALE: the memory is lost.
int Heap::begin_free(raddr_t address, bool& is_slot) {
    std::lock_guard lock(mutex_);
    if (backend_.is_lost())
        return -ESTALE;
    is_slot = slab_of(address) != slabs_.end();
    return 0;
}

int Heap::free(raddr_t address) {
    bool is_slot = false;
    if (int error = begin_free(address, is_slot))
        return error;
    return is_slot ? free_slot(address) : free_region(address);
}

int Heap::free_sized(raddr_t address, std::uint64_t bytes) {
    std::uint64_t page = backend_.page_bytes();
    std::uint64_t own = bytes_of(address);
    if (!own)
        return free_foreign(address, bytes);
    bool is_region = own >= page;
    if (own != (is_region ? (bytes + page - 1) & ~(page - 1) : slot_bytes(bytes)))
        return -EFAULT;
    return free(address);
}

bool Heap::is_small(raddr_t address) {
    std::lock_guard lock(mutex_);
    return slab_of(address) != slabs_.end();
}

// ---- regions ----

// shift: of a slab's slots; 0: for a region.
Heap::Note Heap::prepare(unsigned shift) const {
    Note note;
    if (!shift) {
        note.region.emplace(0, Allocation{});
        return note;
    }
    std::vector<Slot> slots(backend_.page_bytes() >> shift, Slot::free);
    note.slab.emplace(0, Slab{{}, shift, std::move(slots)});
    note.room.insert(0);
    return note;
}

int Heap::add_region(Note note, const Region& range) {
    std::lock_guard lock(mutex_);
    if (backend_.is_lost())
        return -ESTALE; // remote_lost() would not report it
    auto region = note.region.extract(note.region.begin());
    region.key() = range.address;
    region.mapped() = {range};
    regions_.erase(range.address); // only a node that can't be trusted gives it out twice
    regions_.insert(std::move(region));
    return 0;
}

int Heap::begin_free_region(raddr_t address, Region& range) {
    std::lock_guard lock(mutex_);
    auto region = regions_.find(address);
    if (region == regions_.end() || region->second.freeing)
        return -EFAULT;
    region->second.freeing = true;
    range = region->second.range;
    return 0;
}

int Heap::end_free_region(raddr_t address, int error) {
    std::lock_guard lock(mutex_);
    auto region = regions_.find(address);
    if (region == regions_.end())
        return error; // lost, and among the regions to report
    if (!error)
        locks_.forget(address, region->second.range.bytes);
    // After any other error the node might still have the region; repeating the call tells.
    if (!error || error == -EFAULT)
        regions_.erase(region);
    else
        region->second.freeing = false;
    return error;
}

int Heap::free_region(raddr_t address) {
    Region range{};
    if (int error = begin_free_region(address, range))
        return error;
    return end_free_region(address, backend_.dealloc(range));
}

// A page of small allocations is in use until all are freed, so its own handle must free it. A
// caller that names more than a quarter of a page means a region.
int Heap::free_foreign(raddr_t address, std::uint64_t bytes) {
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
    if (error != -EFAULT)
        return error ? error : -EFAULT;
    locks_.forget(address, bytes);
    return 0;
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

bool Heap::take_slot_of(unsigned shift, raddr_t& address) {
    std::lock_guard lock(mutex_);
    return take_slot(shift, address);
}

// missing: the caller is to add a slab, and then calls end_coming(). coming: another op does that.
// failures: of those, when the caller first waited: if one more has failed, it waits for none.
Heap::Room Heap::find_room(unsigned shift, raddr_t& address,
                           std::optional<std::uint64_t>& failures) {
    std::lock_guard lock(mutex_);
    if (take_slot(shift, address))
        return Room::taken;
    Coming& coming = coming_[shift - shift_least];
    if (!failures)
        failures = coming.failures;
    if (coming.is_one && *failures == coming.failures)
        return Room::coming;
    coming.is_one = true;
    return Room::missing;
}

void Heap::end_coming(unsigned shift, int error) {
    std::lock_guard lock(mutex_);
    Coming& coming = coming_[shift - shift_least];
    coming.is_one = false;
    coming.failures += error != 0;
}

// Adds the page that the node gave out, and takes its first slot.
int Heap::add_slab(Note note, unsigned shift, const Region& range, raddr_t& address) {
    std::lock_guard lock(mutex_);
    if (backend_.is_lost())
        return -ESTALE;
    // Don't trust a node that answers an impossible address.
    if (range.bytes != backend_.page_bytes() || range.address % range.bytes ||
        slabs_.contains(range.address))
        return -EIO;
    auto slab = note.slab.extract(note.slab.begin());
    slab.key() = range.address;
    slab.mapped().range = range;
    slabs_.insert(std::move(slab));
    auto has_room = note.room.extract(note.room.begin());
    has_room.value() = range.address;
    with_room_[shift - shift_least].insert(std::move(has_room));
    take_slot(shift, address);
    return 0;
}

int Heap::begin_free_slot(raddr_t address, std::uint64_t& bytes) {
    std::lock_guard lock(mutex_);
    auto slab = slab_of(address);
    if (slab == slabs_.end())
        return -EFAULT;
    bytes = std::uint64_t{1} << slab->second.shift;
    Slot& slot = slab->second.slots[(address - slab->first) >> slab->second.shift];
    if ((address - slab->first) % bytes || slot != Slot::taken)
        return -EFAULT;
    slot = Slot::freeing;
    return 0;
}

// error: of zeroing it. unused: the slab, if that was its last slot; the caller gives it back.
int Heap::end_free_slot(raddr_t address, int error, Region& unused) {
    std::lock_guard lock(mutex_);
    auto at = slab_of(address);
    if (at == slabs_.end())
        return error; // as in end_free_region()
    Slab& slab = at->second;
    std::size_t index = (address - at->first) >> slab.shift;
    if (!error)
        locks_.forget(address, std::uint64_t{1} << slab.shift);
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
    unused = slab.range;
    with_room.erase(at->first);
    slabs_.erase(at);
    return 0;
}

int Heap::free_slot(raddr_t address) {
    std::uint64_t bytes = 0;
    if (int error = begin_free_slot(address, bytes))
        return error;
    Region unused{};
    const int zeroed = backend_.zero(address, static_cast<std::uint32_t>(bytes));
    const int error = end_free_slot(address, zeroed, unused);
    // If this fails the node keeps the page; the caller's memory is freed all the same.
    if (unused.bytes)
        backend_.dealloc(unused);
    return error;
}

// ---- as steps ----

class Heap::Allocating final : public Steps {
public:
    Allocating(Heap& heap, std::uint64_t bytes, std::uint32_t permission, raddr_t wanted)
        : heap_(heap),
          bytes_(bytes),
          permission_(permission),
          wanted_(wanted),
          shift_(heap.slot_shift(bytes, permission, wanted)) {}

    bool next(Op& op, int& error) noexcept override {
        if (op.kind == Kind::alloc) {
            add(op, error);
            return false;
        }
        return !error && begin(op, error);
    }
    int hand_over(std::uint64_t* found) override {
        if (found)
            *found = address_;
        return wanted_ && address_ != wanted_;
    }

private:
    bool begin(Op& op, int& error) {
        op.begins_at = {};
        switch (shift_ ? heap_.find_room(shift_, address_, failures_) : Room::missing) {
        case Room::taken:
            return false;
        case Room::coming:
            op.begins_at = Clock::now() + pause_;
            pause_ = std::min<Clock::duration>(pause_ * 2, look_most);
            return true;
        case Room::missing:
            break;
        }
        try {
            note_ = heap_.prepare(shift_);
        } catch (const std::bad_alloc&) {
            error = -ENOMEM;
            if (shift_)
                heap_.end_coming(shift_, error);
            return false;
        }
        op.kind = Kind::alloc;
        op.address = wanted_;
        op.bytes = 0;
        op.region = {0, shift_ ? 1 : bytes_};
        op.permission = permission_;
        op.settles = true;
        op.tries = 0; // a queue uses its ops again
        return true;
    }
    // The message has ended.
    void add(const Op& op, int& error) {
        if (!error) {
            address_ = op.region.address;
            error = shift_ ? heap_.add_slab(std::move(note_), shift_, op.region, address_)
                           : heap_.add_region(std::move(note_), op.region);
        }
        if (shift_)
            heap_.end_coming(shift_, error);
    }

    Heap& heap_;
    const std::uint64_t bytes_;
    const std::uint32_t permission_;
    const raddr_t wanted_;
    const unsigned shift_; // of the slab's slots; 0: a region
    std::optional<std::uint64_t> failures_;
    Clock::duration pause_ = look_first;
    Note note_;
    raddr_t address_ = 0;
};

class Heap::Freeing final : public Steps {
public:
    Freeing(Heap& heap, raddr_t address) : heap_(heap), address_(address) {}

    bool next(Op& op, int& error) noexcept override {
        switch (op.kind) {
        case Kind::none:
            return !error && begin(op, error);
        case Kind::zero: {
            Region unused{};
            error = heap_.end_free_slot(address_, error, unused);
            if (!unused.bytes)
                return false;
            is_freed_ = true;
            give_back(op, unused);
            return true;
        }
        default:
            if (is_freed_) {
                error = 0; // the node keeps the slab's page if that failed
                return false;
            }
            error = heap_.end_free_region(address_, error);
            return false;
        }
    }
    int hand_over(std::uint64_t*) override { return 0; }

private:
    bool begin(Op& op, int& error) {
        bool is_slot = false;
        Region range{};
        std::uint64_t bytes = 0;
        error = heap_.begin_free(address_, is_slot);
        if (!error)
            error = is_slot ? heap_.begin_free_slot(address_, bytes)
                            : heap_.begin_free_region(address_, range);
        if (error)
            return false;
        if (!is_slot) {
            give_back(op, range);
            return true;
        }
        op.kind = Kind::zero;
        op.address = address_;
        op.bytes = static_cast<std::uint32_t>(bytes);
        return true;
    }
    static void give_back(Op& op, const Region& range) {
        op.kind = Kind::free;
        op.address = 0;
        op.bytes = 0;
        op.region = range;
    }

    Heap& heap_;
    const raddr_t address_;
    bool is_freed_ = false; // the slot; its slab's page is left
};

std::unique_ptr<Steps> Heap::allocating(std::uint64_t bytes, std::uint32_t permission,
                                        raddr_t wanted) {
    return std::make_unique<Allocating>(*this, bytes, permission, wanted);
}

std::unique_ptr<Steps> Heap::freeing(raddr_t address) {
    return std::make_unique<Freeing>(*this, address);
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
