// SPDX-License-Identifier: MIT
// The mappings of a handle, by their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "src/epoch.hpp"
#include "src/mapping.hpp"

namespace remora::lib {

class Mappings {
public:
    // Throws as Mapping does.
    int map(const EpochRef& epoch, std::uint64_t address, std::size_t bytes, bool writable,
            const PagerLimits& limits, void*& memory);
    // -ESTALE: it's of an epoch that is lost, and so is what was written.
    int sync(void* memory, std::size_t bytes);
    int unmap(void* memory);
    // All of them; errors are lost.
    void finish();
    // In a child of the process that made them.
    void disown();

private:
    struct Mapped {
        EpochRef epoch; // whose backend the mapping has; gone after it
        std::shared_ptr<Mapping> mapping;
    };
    using All = std::map<std::uintptr_t, Mapped>;

    static int result_of(const Mapped& mapped, int result);

    std::mutex lock_;
    All all_;
};

} // namespace remora::lib
