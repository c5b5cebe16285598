// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/cookie.h"

u64 eqds_cookie(const struct base_siphash_key *key, const void *address, size_t bytes)
{
	u64 cookie = base_siphash(key, address, bytes);

	return cookie ? cookie : 1;
}
