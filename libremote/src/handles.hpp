// SPDX-License-Identifier: MIT
/*
 * The program's remote_t *, which point to nothing: a place in a table, and how often that was
 * used. So a handle that was closed is known for what it is, however late, and whatever was opened
 * since.
 */
#pragma once

#include <memory>

#include "remote/remote.h"
#include "src/handle.hpp"

namespace remora::lib {

// The name it goes by, until taken back. Throws std::bad_alloc.
remote_t* name_handle(std::unique_ptr<Handle> handle);
// NULL: no name, or that of one that was taken back.
Handle* handle_of(const remote_t* name) noexcept;
// The same, and from now on it has no name. Of threads that ask at once, one gets it.
std::unique_ptr<Handle> take_handle(const remote_t* name) noexcept;

} // namespace remora::lib
