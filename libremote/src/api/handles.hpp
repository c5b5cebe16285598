// SPDX-License-Identifier: MIT
/*
 * The program's remote_t *, which point to nothing: a place in a table, and how often that was
 * used. So a handle that was closed is known for what it is, however late, and whatever was opened
 * since.
 */
#pragma once

#include <memory>

#include "remote/remote.h"
#include "src/api/handle.hpp"

namespace remora::lib {

// Returns a name for the handle, valid until taken back. Throws std::bad_alloc.
remote_t* name_handle(std::unique_ptr<Handle> handle);
// Looks up a name. NULL: not a name, or taken back.
Handle* handle_of(const remote_t* name) noexcept;
// Looks up a name and takes it back. Of concurrent callers one gets the handle.
std::unique_ptr<Handle> take_handle(const remote_t* name) noexcept;

} // namespace remora::lib
