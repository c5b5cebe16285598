// SPDX-License-Identifier: MIT
#include "src/api/handles.hpp"

#include <utility>

#include "support/fork.hpp"
#include "support/names.hpp"

namespace remora::lib {

namespace {

constinit Names<Handle, remote_t> names;

void leave_all_to_parent() {
    names.for_each([](Handle& handle) { handle.leave_to_parent(); });
    names.unlock();
}

void watch_forks() {
    static const AtFork watched([] { names.lock(); }, [] { names.unlock(); }, leave_all_to_parent);
}

} // namespace

remote_t* name_handle(std::unique_ptr<Handle> handle) {
    watch_forks();
    return names.add(std::move(handle));
}

Handle* handle_of(const remote_t* name) noexcept {
    return names.find(name);
}

std::unique_ptr<Handle> take_handle(const remote_t* name) noexcept {
    return names.take(name);
}

} // namespace remora::lib
