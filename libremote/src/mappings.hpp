// SPDX-License-Identifier: MIT
// The mappings of a handle, by their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "src/mapping.hpp"

namespace remora::lib {

class Mappings {
public:
    // Throws as Mapping does.
    int map(Backend& backend, std::uint64_t address, std::size_t bytes, bool writable,
            const PagerLimits& limits, void*& memory);
    int sync(void* memory, std::size_t bytes);
    int unmap(void* memory);
    // All of them; errors are lost.
    void finish();
    // In a child of the process that made them.
    void disown();

private:
    using All = std::map<std::uintptr_t, std::shared_ptr<Mapping>>;

    std::mutex lock_;
    All all_;
};

} // namespace remora::lib
