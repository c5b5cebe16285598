// SPDX-License-Identifier: MIT
// This class knows who has which buffer of the area: the program, or a ring of the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace libeqds {

enum class Owner : std::uint8_t { Library, Caller, Sending, Filling };

class Buffers {
public:
    Buffers(std::size_t count, std::size_t bytes) : owner_(count, Owner::Library), bytes_(bytes) {
        for (std::size_t i = count; i--;)
            free_.push_back(i);
    }

    std::size_t bytes() const { return bytes_; }
    Owner owner(std::size_t index) const { return owner_[index]; }
    std::size_t free() const { return free_.size(); }

    // A free one gets an owner. The caller has seen that there is one.
    std::size_t take(Owner owner) {
        std::size_t index = free_.back();
        free_.pop_back();
        owner_[index] = owner;
        return index;
    }

    void give(std::size_t index, Owner owner) {
        owner_[index] = owner;
        if (owner == Owner::Library)
            free_.push_back(index);
    }

    // The buffer that begins at an offset of the area, or -1.
    std::ptrdiff_t at(std::uint64_t offset) const {
        if (offset % bytes_ || offset / bytes_ >= owner_.size())
            return -1;
        return static_cast<std::ptrdiff_t>(offset / bytes_);
    }

private:
    std::vector<Owner> owner_;
    std::vector<std::size_t> free_;
    std::size_t bytes_;
};

} // namespace libeqds
