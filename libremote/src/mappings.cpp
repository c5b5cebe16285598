// SPDX-License-Identifier: MIT
#include "src/mappings.hpp"

#include <cerrno>

namespace remora::lib {

namespace {

std::uintptr_t number(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

} // namespace

int Mappings::map(Backend& backend, std::uint64_t address, std::size_t bytes, bool writable,
                  const PagerLimits& limits, void*& memory) {
    // What can't be read at all is told here, not to who touches it.
    for (std::uint64_t each : {address, address + bytes - 1}) {
        std::uint8_t byte;
        if (int error = backend.transfer(RMEM_READ, each, &byte, 1, never))
            return error;
    }
    auto mapping = std::make_shared<Mapping>(backend, address, bytes, writable, limits);
    std::lock_guard lock(lock_);
    all_[number(mapping->memory())] = mapping;
    memory = mapping->memory();
    return 0;
}

int Mappings::sync(void* memory, std::size_t bytes) {
    std::shared_ptr<Mapping> mapping;
    {
        std::lock_guard lock(lock_);
        auto next = all_.upper_bound(number(memory));
        if (next == all_.begin())
            return -EINVAL;
        mapping = std::prev(next)->second;
    }
    return mapping->sync(memory, bytes);
}

int Mappings::unmap(void* memory) {
    std::shared_ptr<Mapping> mapping;
    {
        std::lock_guard lock(lock_);
        auto found = all_.find(number(memory));
        if (found == all_.end())
            return -EINVAL;
        mapping = std::move(found->second);
        all_.erase(found);
    }
    return mapping->finish();
}

// At once, for a node that is gone is one timeout for all.
void Mappings::finish() {
    for (auto& [memory, mapping] : all_)
        mapping->begin_finish();
    all_.clear();
}

void Mappings::disown() {
    for (auto& [memory, mapping] : all_)
        mapping->disown();
    // Their threads are not here to be ended.
    static_cast<void>(new All(std::move(all_)));
}

} // namespace remora::lib
