// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/types.h"

struct rmem_none {};

enum { RMEM_NOT = 0 };

#define ROW(type, name, path, memory, request, answer, data, also, counted)                        \
	[RMEM_##type] = { name,                                                                    \
			  RMEM_TYPE_##path | RMEM_TYPE_##memory | RMEM_TYPE_##data |               \
				  RMEM_TYPE_##also,                                                \
			  sizeof(struct rmem_##request), sizeof(struct rmem_##answer),             \
			  RMEM_##counted },
const struct rmem_type_row rmem_type_table[RMEM_RESPONSE] = { RMEM_TYPES(ROW) };
#undef ROW

#define COUNT(...) +1
_Static_assert(0 RMEM_TYPES(COUNT) == RMEM_TYPE_END - RMEM_OPEN, "each type has one row");
#undef COUNT
