// SPDX-License-Identifier: MIT
#include "src/transport/scratch.hpp"

#include <memory>
#include <new>

#include <pthread.h>

namespace remora::lib {

namespace {

// A key's destructor, unlike a thread_local object's, runs again for memory made after it. A thread
// can close handles after its thread_local objects are gone.
struct Owner {
    pthread_key_t key;
    bool made;
};

void destroy(void* mine) {
    delete static_cast<Scratch*>(mine);
}

const Owner& owner() {
    static const Owner made = [] {
        Owner mine;
        mine.made = !pthread_key_create(&mine.key, destroy);
        return mine;
    }();
    return made;
}

// Called when the library is unloaded or the process ends: destroy() must not be called any more.
__attribute__((destructor)) void disown() {
    const Owner& mine = owner();
    if (!mine.made)
        return;
    destroy(pthread_getspecific(mine.key));
    pthread_key_delete(mine.key);
}

std::mutex reserve_lock;

Scratch& reserve() {
    static Scratch scratch;
    return scratch;
}

} // namespace

Scratch* own_scratch() {
    const Owner& mine = owner();
    if (!mine.made)
        return nullptr;
    if (void* scratch = pthread_getspecific(mine.key))
        return static_cast<Scratch*>(scratch);
    // Not zeroed, for most of the memory is never touched.
    std::unique_ptr<Scratch> scratch(new (std::nothrow) Scratch);
    return scratch && !pthread_setspecific(mine.key, scratch.get()) ? scratch.release() : nullptr;
}

void lend_scratch(Scratch* scratch) {
    if (const Owner& mine = owner(); mine.made)
        pthread_setspecific(mine.key, scratch);
}

ScratchTurn::ScratchTurn() : scratch_(own_scratch()) {
    if (scratch_)
        return;
    turn_ = std::unique_lock(reserve_lock);
    scratch_ = &reserve();
}

} // namespace remora::lib
