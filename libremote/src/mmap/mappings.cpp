// SPDX-License-Identifier: MIT
#include "src/mmap/mappings.hpp"

#include <cerrno>

namespace remora::lib {

namespace {

std::uintptr_t number(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

} // namespace

int Mappings::map(const BackendRef& backend, std::uint64_t address, std::size_t bytes,
                  bool writable, const PagerLimits& limits, void*& memory) {
    // Report an unreadable range here rather than by SIGBUS on first touch.
    for (std::uint64_t each : {address, address + bytes - 1}) {
        std::uint8_t byte;
        if (int error = backend->transfer(Kind::read, each, &byte, 1, never))
            return error;
    }
    auto mapping = std::make_shared<Mapping>(*backend, address, bytes, writable, limits);
    std::lock_guard lock(lock_);
    all_[number(mapping->memory())] = {backend, mapping};
    memory = mapping->memory();
    return 0;
}

// After a restart earlier successful writes are lost, too.
int Mappings::result_of(const Mapped& mapped, int result) {
    return !result && mapped.backend->is_lost() ? -ESTALE : result;
}

int Mappings::sync(void* memory, std::size_t bytes) {
    Mapped mapped;
    {
        std::lock_guard lock(lock_);
        auto next = all_.upper_bound(number(memory));
        if (next == all_.begin())
            return -EINVAL;
        mapped = std::prev(next)->second;
    }
    return result_of(mapped, mapped.mapping->sync(memory, bytes));
}

int Mappings::unmap(void* memory) {
    Mapped mapped;
    {
        std::lock_guard lock(lock_);
        auto found = all_.find(number(memory));
        if (found == all_.end())
            return -EINVAL;
        mapped = std::move(found->second);
        all_.erase(found);
    }
    return result_of(mapped, mapped.mapping->finish());
}

// Finishes all mappings at once, so that a dead node costs one timeout for all.
void Mappings::finish() {
    for (auto& [memory, mapped] : all_)
        mapped.mapping->begin_finish();
    all_.clear();
}

void Mappings::disown() {
    for (auto& [memory, mapped] : all_) {
        mapped.mapping->disown();
        mapped.backend->disown();
    }
    // The mappings' threads don't exist in the child.
    static_cast<void>(new All(std::move(all_)));
}

} // namespace remora::lib
