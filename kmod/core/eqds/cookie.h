/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A cookie proves that the peer gets what is sent to its address: SipHash of the address under a
 * key that only the receiver has. Nothing is stored to check it.
 */
#ifndef REMORA_EQDS_COOKIE_H
#define REMORA_EQDS_COOKIE_H

#include "core/base/siphash.h"

/* address: bytes that name the peer, port left out if paths are source ports. Never returns 0. */
u64 eqds_cookie(const struct base_siphash_key *key, const void *address, size_t bytes);

#endif
