/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A cookie proves that the peer gets the packets sent to its address: SipHash of the address and
 * the time under a key that only the receiver has. Nothing is stored to check it.
 */
#ifndef REMORA_EQDS_COOKIE_H
#define REMORA_EQDS_COOKIE_H

#include "core/base/siphash.h"

/* Time for which a cookie is told. It is accepted for as long again. */
#define EQDS_COOKIE_PERIOD_NS (120 * BASE_NSEC_PER_SEC)

/*
 * The cookie of the period that now_ns is in, or that of the period before if the peer offers it.
 * address: bytes that name the peer, port left out if paths are source ports. Never returns 0.
 */
u64 eqds_cookie(const struct base_siphash_key *key, const void *address, size_t bytes, u64 now_ns,
		u64 offered);

/*
 * Claim of a source address: a receiver compares it with the address that it sees, to detect NAT.
 * Never 0.
 */
u64 eqds_cookie_claim(const void *address, size_t bytes);

#endif
