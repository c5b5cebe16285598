// SPDX-License-Identifier: GPL-2.0
// The resources that `remora apply` has made, and is therefore permitted to remove:
// /run/remora/made, a line for each:
//
//     device/db cookie 3f2a91c0d4e5b607
//
// Behind the resource stands its identity, which another one that a user makes later under the
// same name doesn't have. The file is gone with the machine's state after a restart.
#pragma once

#include <map>
#include <string>

#include "support/descriptor.hpp"

namespace remora {

// Each call reads or changes the file at once, so several programs can run. Throws Failure.
std::map<std::string, std::string> made();
void note_made(const std::string& resource, const std::string& identity);
void forget_made(const std::string& resource);

/*
 * A resource's turn: one process at a time makes it or takes it down. It ends with the process,
 * also one that is killed. A child has no part in it: a swapoff can outlive its parent.
 */
class Turn {
public:
    // Throws Failure if another process has it, with that one's number.
    static Turn to_make(const std::string& resource);
    // Ends a process that makes the resource, by SIGTERM, as it might wait for a node for ever.
    // Waits for one that takes it down.
    static Turn to_remove(const std::string& resource);

private:
    explicit Turn(const std::string& resource);
    Descriptor file_;
};

} // namespace remora
