// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/cookie.h"

static u64 cookie_of_period(const struct base_siphash_key *key, const void *address, size_t bytes,
			    u64 period)
{
	struct base_siphash h;
	u64 cookie;

	base_siphash_init(&h, key);
	base_siphash_update(&h, &period, sizeof(period));
	base_siphash_update(&h, address, bytes);
	cookie = base_siphash_final(&h);
	return cookie ? cookie : 1;
}

u64 eqds_cookie(const struct base_siphash_key *key, const void *address, size_t bytes, u64 now_ns,
		u64 offered)
{
	const u64 period = now_ns / EQDS_COOKIE_PERIOD_NS;
	const u64 before = cookie_of_period(key, address, bytes, period - 1);

	return offered == before ? before : cookie_of_period(key, address, bytes, period);
}

u64 eqds_cookie_claim(const void *address, size_t bytes)
{
	static const struct base_siphash_key no_secret;

	return cookie_of_period(&no_secret, address, bytes, 0);
}
