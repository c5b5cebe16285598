// SPDX-License-Identifier: MIT
#include "src/scratch.hpp"

#include <new>

namespace remora::lib {

namespace {

// A pointer has nothing to destroy: so those who close handles when their thread's objects are
// gone, static objects among them, find it null rather than gone.
thread_local Scratch* mine;

struct Owner {
    ~Owner() {
        delete mine;
        mine = nullptr;
    }
};

} // namespace

Scratch* scratch() {
    if (mine)
        return mine;
    static thread_local Owner owner;
    // Not zeroed: most of it is never touched.
    return mine = new (std::nothrow) Scratch;
}

} // namespace remora::lib
