// SPDX-License-Identifier: MIT
/*
 * A file in memory that outlives the process, for the state of core/rmem/node/store.h and the
 * pages.
 *
 *      0                     state_bytes, a multiple of 2 MiB
 *      | struct rmem_store, state | pages ... |
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/stat.h>

#include "support/descriptor.hpp"

namespace remora::node {

class Store {
public:
    // A file of that name in a folder on tmpfs or hugetlbfs. Throws Failure: it can't be made,
    // another process has it, or another user can have changed it.
    explicit Store(const std::string& folder);
    // A file that somebody else keeps, by its descriptor.
    explicit Store(Descriptor fd) : fd_(std::move(fd)) {}

    int fd() const { return fd_.get(); }
    // The file's size; 0: it is new.
    std::uint64_t bytes() const;
    // Zeroes, of that size, all of them allocated. Throws Failure. option: of the program's user.
    void renew(std::uint64_t bytes, const char* option);
    // Throws Failure.
    void* map(std::uint64_t offset, std::uint64_t bytes) const;
    // Nothing is to be taken over any more: memory and keys go back to the system.
    void end();

private:
    void check_owner(const struct stat& opened) const;
    bool is_at_path(const struct stat& opened) const;

    Descriptor fd_;
    std::string path_; // empty: kept elsewhere
};

} // namespace remora::node
