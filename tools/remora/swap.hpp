// SPDX-License-Identifier: GPL-2.0
// A disk as the machine's swap, and no longer, even if its node is dead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace remora {

struct SwapOptions {
    std::optional<int> priority; // 0 to 32767; nothing: the kernel's choice, below all others
    bool discard = true;         // freed pages go back to the node
};

bool swap_is_on(const std::string& path);

// Activates it, after writing a header if it is empty. Needs mkswap(8). Throws Failure, also if it
// has other content.
void swap_start(const std::string& path, const SwapOptions& options);

/*
 * Deactivates it, and returns when the kernel has let go of it. Waits for enough free memory to
 * hold the swapped pages, for 20 s at most, and then while there is progress. As soon as the node
 * doesn't answer, the disk's I/O fails from then on: swapoff then ends, and programs whose pages
 * were there get SIGBUS. True: it was so. Throws Failure if the swap is still active.
 */
bool swap_stop(const std::string& path);

} // namespace remora
