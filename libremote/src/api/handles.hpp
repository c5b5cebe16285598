// SPDX-License-Identifier: MIT
// The names of handles (names.hpp).
#pragma once

#include <memory>

#include "remote/remote.h"
#include "src/api/handle.hpp"

namespace remora::lib {

// Returns a name for the handle, valid until taken back. Throws std::bad_alloc.
remote_t* name_handle(std::unique_ptr<Handle> handle);
// Looks up a name. NULL: not a name, or taken back.
Handle* handle_of(const remote_t* name) noexcept;
// Looks up a name and takes it back. One of concurrent callers gets the handle.
std::unique_ptr<Handle> take_handle(const remote_t* name) noexcept;

} // namespace remora::lib
