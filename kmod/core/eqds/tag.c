// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/tag.h"

#include "core/base/bytes.h"

static void tag_begin(struct base_siphash *h, const struct base_siphash_key *key, u64 what)
{
	u8 first[8];

	base_store_le64(first, what);
	base_siphash_init(h, key);
	base_siphash_update(h, first, sizeof(first));
}

void eqds_tag_payload_begin(struct base_siphash *payload, const struct base_siphash_key *key)
{
	tag_begin(payload, key, EQDS_TAG_PAYLOAD);
}

/* Both kinds of headers have the same length, and flags at the same place. */
static u64 tag_of_head(const void *header, const struct eqds_tag_ends *ends,
		       const struct base_siphash_key *key)
{
	u8 bytes[EQDS_DATA_BYTES + sizeof(((struct eqds_tag *)0)->payload)];
	struct base_siphash h;

	base_copy(bytes, header, sizeof(bytes));
	bytes[offsetof(struct eqds_data, flags)] &= ~EQDS_TRIM;
	tag_begin(&h, key, EQDS_TAG_HEAD);
	base_siphash_update(&h, ends, sizeof(*ends));
	base_siphash_update(&h, bytes, sizeof(bytes));
	return base_siphash_final(&h);
}

void eqds_tag_seal(void *header, const struct eqds_tag_ends *ends,
		   const struct base_siphash_key *key, struct base_siphash *payload)
{
	struct eqds_tag *tag = (struct eqds_tag *)((u8 *)header + EQDS_DATA_BYTES);

	base_store_le64(tag->payload, base_siphash_final(payload));
	base_store_le64(tag->head, tag_of_head(header, ends, key));
}

enum eqds_tag_verdict eqds_tag_check(const void *header, size_t bytes,
				     const struct eqds_tag_ends *ends,
				     const struct base_siphash_key *key)
{
	const u8 *p = header;
	const struct eqds_tag *tag = (const struct eqds_tag *)(p + EQDS_DATA_BYTES);
	bool tagged = bytes && p[0] & EQDS_KIND_TAGGED;

	if (!key)
		return tagged ? EQDS_TAG_UNEXPECTED : EQDS_TAG_GOOD;
	if (!tagged || bytes < EQDS_DATA_BYTES + sizeof(*tag))
		return EQDS_TAG_MISSING;
	return base_load_le64(tag->head) == tag_of_head(header, ends, key) ? EQDS_TAG_GOOD :
									      EQDS_TAG_WRONG;
}

bool eqds_tag_covers_payload(const void *header)
{
	return !(((const u8 *)header)[offsetof(struct eqds_data, flags)] & EQDS_TRIM);
}

bool eqds_tag_payload_verifies(const void *header, struct base_siphash *payload)
{
	const u8 *tag = (const u8 *)header + EQDS_DATA_BYTES;

	return base_load_le64(tag) == base_siphash_final(payload); /* the first of the two */
}
