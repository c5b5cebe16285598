// SPDX-License-Identifier: MIT
// The mappings of a handle, by their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "src/backend/backend.hpp"
#include "src/mmap/mapping.hpp"

namespace remora::lib {

class Mappings {
public:
    // Throws as Mapping does.
    int map(const BackendRef& backend, std::uint64_t address, std::size_t bytes, bool writable,
            const PagerLimits& limits, void*& memory);
    // -ESTALE: the mapping's backend is lost, and so are its writes.
    int sync(void* memory, std::size_t bytes);
    int unmap(void* memory);
    // Unmaps all mappings; drops errors.
    void finish();
    // Called in a child of the process that made them.
    void disown();

private:
    struct Mapped {
        BackendRef backend; // outlives the mapping
        std::shared_ptr<Mapping> mapping;
    };
    using All = std::map<std::uintptr_t, Mapped>;

    static int result_of(const Mapped& mapped, int result);

    std::mutex lock_;
    All all_;
};

} // namespace remora::lib
