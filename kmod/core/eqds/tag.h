/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The keyed tag behind a header (remora/eqds.h, "Tags"): two hashes, so that a switch may cut the
 * payload off, and the header still proves where it comes from.
 *
 *   header 40 | tag of payload 8 | tag of head 8 | payload
 *      |               |               ^             |
 *      |               +<-- payload tag ----- hash --+
 *      +--- addresses, header, payload tag --- hash
 *
 * The payload may lie in fragments, so the caller walks it: eqds_tag_payload_begin(), then
 * base_siphash_update() for each.
 */
#ifndef REMORA_EQDS_TAG_H
#define REMORA_EQDS_TAG_H

#include "core/base/siphash.h"
#include "remora/eqds.h"

/* Addresses of the outer packet; IPv4 as mapped address. */
struct eqds_tag_ends {
	u8 from[16], to[16];
};

enum eqds_tag_verdict {
	EQDS_TAG_GOOD,	     /* head verifies, or neither end has a key */
	EQDS_TAG_MISSING,    /* there is a key, but no tag */
	EQDS_TAG_UNEXPECTED, /* there is a tag, but no key */
	EQDS_TAG_WRONG,
};

void eqds_tag_payload_begin(struct base_siphash *payload, const struct base_siphash_key *key);

/*
 * Write the tag behind a header that eqds_wire_encode() wrote as tagged. payload: of the bytes
 * behind the tag.
 */
void eqds_tag_seal(void *header, const struct eqds_tag_ends *ends,
		   const struct base_siphash_key *key, struct base_siphash *payload);

/* header: the first bytes of a UDP payload, which has this many. key: NULL without one. */
enum eqds_tag_verdict eqds_tag_check(const void *header, size_t bytes,
				     const struct eqds_tag_ends *ends,
				     const struct base_siphash_key *key);

/* Is the payload still there, so that its tag has to verify, too? */
bool eqds_tag_covers_payload(const void *header);
bool eqds_tag_payload_verifies(const void *header, struct base_siphash *payload);

#endif
