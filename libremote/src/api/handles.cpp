// SPDX-License-Identifier: MIT
#include "src/api/handles.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include <pthread.h>

namespace remora::lib {

namespace {

// Places never move, for lookups take no lock. Each block has as many places as all earlier blocks;
// the first has 64.
constexpr unsigned first_shift = 6;
constexpr unsigned blocks = 32 - first_shift;
constexpr std::uint32_t none = UINT32_MAX;

struct Place {
    std::atomic<std::uint32_t> use{0}; // number of the use by the present handle; 0: free
    std::uint32_t uses = 0;
    std::uint32_t next_free = none;
    std::atomic<Handle*> handle{nullptr}; // a look-up may read it while another thread closes it
};

struct Name {
    std::uint32_t use, index;
};

static_assert(sizeof(remote_t*) == sizeof(std::uint64_t));

remote_t* to_pointer(Name name) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): never dereferenced
    return reinterpret_cast<remote_t*>(std::uint64_t{name.use} << 32 | name.index);
}

Name to_name(const remote_t* pointer) {
    auto value = reinterpret_cast<std::uint64_t>(pointer);
    return {static_cast<std::uint32_t>(value >> 32), static_cast<std::uint32_t>(value)};
}

struct Where {
    unsigned block;
    std::uint32_t at;
};

Where where(std::uint32_t index) {
    std::uint32_t first = 1U << first_shift;
    if (index < first)
        return {0, index};
    auto top = static_cast<unsigned>(std::bit_width(index)) - 1;
    return {top - first_shift + 1, index - (1U << top)};
}

std::uint32_t places_of(unsigned block) {
    return 1U << (block ? block + first_shift - 1 : first_shift);
}

struct Table {
    std::array<std::atomic<Place*>, blocks> block{};
    std::mutex lock; // all below, uses, next_free; a place's use becomes another one
    std::uint32_t free = none;
    std::uint32_t made = 0;

    // NULL: no such place exists.
    Place* place(std::uint32_t index) const {
        Where there = where(index);
        if (there.block >= blocks)
            return nullptr;
        Place* first = block[there.block].load(std::memory_order_acquire);
        return first ? &first[there.at] : nullptr;
    }

    // Lock.
    std::uint32_t take() {
        if (free != none)
            return std::exchange(free, place(free)->next_free);
        Where there = where(made);
        if (there.block >= blocks)
            throw std::bad_alloc();
        if (!there.at)
            block[there.block].store(new Place[places_of(there.block)], std::memory_order_release);
        return made++;
    }
};

// Never destroyed: a late remote_close() may still use it.
constinit Table table;

void leave_all_to_parent() {
    for (std::uint32_t index = 0; index < table.made; index++) {
        if (Handle* handle = table.place(index)->handle.load(std::memory_order_relaxed))
            handle->leave_to_parent();
    }
    table.lock.unlock();
}

// A child of fork() finds the lock free.
void watch_forks() {
    static const int watched =
        pthread_atfork([] { table.lock.lock(); }, [] { table.lock.unlock(); }, leave_all_to_parent);
    if (watched)
        throw std::bad_alloc();
}

} // namespace

remote_t* name_handle(std::unique_ptr<Handle> handle) {
    watch_forks();
    std::lock_guard lock(table.lock);
    std::uint32_t index = table.take();
    Place* place = table.place(index);
    if (!place)
        std::terminate(); // take() made it; GCC warns without
    place->handle.store(handle.release(), std::memory_order_relaxed);
    if (!++place->uses)
        ++place->uses;
    place->use.store(place->uses, std::memory_order_release);
    return to_pointer({place->uses, index});
}

Handle* handle_of(const remote_t* pointer) noexcept {
    Name name = to_name(pointer);
    const Place* place = name.use ? table.place(name.index) : nullptr;
    return place && place->use.load(std::memory_order_acquire) == name.use
               ? place->handle.load(std::memory_order_relaxed)
               : nullptr;
}

std::unique_ptr<Handle> take_handle(const remote_t* pointer) noexcept {
    Name name = to_name(pointer);
    std::lock_guard lock(table.lock);
    Place* place = name.use ? table.place(name.index) : nullptr;
    if (!place || place->use.load(std::memory_order_relaxed) != name.use)
        return nullptr;
    place->use.store(0, std::memory_order_relaxed);
    place->next_free = std::exchange(table.free, name.index);
    return std::unique_ptr<Handle>(place->handle.exchange(nullptr, std::memory_order_relaxed));
}

} // namespace remora::lib
