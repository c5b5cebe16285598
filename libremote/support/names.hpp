// SPDX-License-Identifier: MIT
/*
 * A program's pointers to objects of a library (remote_t *, remote_queue_t *, eqds_t *), which
 * point to nothing: a place in a table, and how often that was used. So a closed object is
 * recognised, however late, even if others were opened since.
 */
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace remora {

// Names of objects of type T, as pointers to Opaque. An object of this type is never destroyed: a
// late close can still use it.
template <typename T, typename Opaque>
class Names {
public:
    // Valid until taken back. Throws std::bad_alloc.
    Opaque* add(std::unique_ptr<T> object) {
        std::lock_guard lock(lock_);
        std::uint32_t index = take_place();
        Place* place = this->place(index);
        if (!place)
            std::terminate(); // take_place() made it; GCC warns without
        place->object.store(object.release(), std::memory_order_relaxed);
        if (!++place->uses)
            ++place->uses;
        place->use.store(place->uses, std::memory_order_release);
        return to_pointer({place->uses, index});
    }

    // NULL: not a name, or taken back.
    T* find(const Opaque* pointer) const noexcept {
        Name name = to_name(pointer);
        const Place* place = name.use ? this->place(name.index) : nullptr;
        return place && place->use.load(std::memory_order_acquire) == name.use
                   ? place->object.load(std::memory_order_relaxed)
                   : nullptr;
    }

    // Takes the name back. One of concurrent callers gets the object.
    std::unique_ptr<T> take(const Opaque* pointer) noexcept {
        Name name = to_name(pointer);
        std::lock_guard lock(lock_);
        Place* place = name.use ? this->place(name.index) : nullptr;
        if (!place || place->use.load(std::memory_order_relaxed) != name.use)
            return nullptr;
        place->use.store(0, std::memory_order_relaxed);
        place->next_free = std::exchange(free_, name.index);
        return std::unique_ptr<T>(place->object.exchange(nullptr, std::memory_order_relaxed));
    }

    // For fork(): the child finds the lock free.
    void lock() { lock_.lock(); }
    void unlock() { lock_.unlock(); }
    // Lock.
    template <typename Fn>
    void for_each(Fn fn) {
        for (std::uint32_t index = 0; index < made_; index++) {
            if (T* object = place(index)->object.load(std::memory_order_relaxed))
                fn(*object);
        }
    }

private:
    // Places never move, for find() takes no lock. Each block has as many places as all earlier
    // blocks; the first has 64.
    static constexpr unsigned first_shift = 6;
    static constexpr unsigned blocks = 32 - first_shift;
    static constexpr std::uint32_t none = UINT32_MAX;

    struct Place {
        std::atomic<std::uint32_t> use{0}; // number of the use by the present object; 0: free
        std::uint32_t uses = 0;
        std::uint32_t next_free = none;
        std::atomic<T*> object{nullptr}; // find() can read it while another thread takes it
    };
    struct Name {
        std::uint32_t use, index;
    };
    struct Where {
        unsigned block;
        std::uint32_t at;
    };
    static_assert(sizeof(Opaque*) == sizeof(std::uint64_t));

    static Opaque* to_pointer(Name name) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): never dereferenced
        return reinterpret_cast<Opaque*>(std::uint64_t{name.use} << 32 | name.index);
    }
    static Name to_name(const Opaque* pointer) {
        auto value = reinterpret_cast<std::uint64_t>(pointer);
        return {static_cast<std::uint32_t>(value >> 32), static_cast<std::uint32_t>(value)};
    }
    static Where where(std::uint32_t index) {
        std::uint32_t first = 1U << first_shift;
        if (index < first)
            return {0, index};
        auto top = static_cast<unsigned>(std::bit_width(index)) - 1;
        return {top - first_shift + 1, index - (1U << top)};
    }
    static std::uint32_t places_of(unsigned block) {
        return 1U << (block ? block + first_shift - 1 : first_shift);
    }

    // NULL: no such place exists.
    Place* place(std::uint32_t index) const {
        Where there = where(index);
        if (there.block >= blocks)
            return nullptr;
        Place* first = block_[there.block].load(std::memory_order_acquire);
        return first ? &first[there.at] : nullptr;
    }

    // Lock.
    std::uint32_t take_place() {
        if (free_ != none)
            return std::exchange(free_, place(free_)->next_free);
        Where there = where(made_);
        if (there.block >= blocks)
            throw std::bad_alloc();
        if (!there.at)
            block_[there.block].store(new Place[places_of(there.block)], std::memory_order_release);
        return made_++;
    }

    std::array<std::atomic<Place*>, blocks> block_{};
    std::mutex lock_; // all below, uses, next_free; a place's use becomes another one
    std::uint32_t free_ = none;
    std::uint32_t made_ = 0;
};

} // namespace remora
