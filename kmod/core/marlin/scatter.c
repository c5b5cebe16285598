// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/marlin/scatter.h"

#include "core/base/bytes.h"

/* Appends a part to others, or to the last of them if it goes on where that ends. */
static bool scatter_append(struct scatter_part *parts, u32 *count, u32 parts_max,
			   const struct scatter_part *next)
{
	struct scatter_part *last = *count ? &parts[*count - 1] : NULL;

	if (last && last->local + last->bytes == next->local &&
	    last->remote + last->bytes == next->remote) {
		last->bytes += next->bytes;
		return true;
	}
	if (*count == parts_max)
		return false;
	parts[(*count)++] = *next;
	return true;
}

static u64 scatter_address(const struct scatter_pages *side)
{
	return side->pages[side->offset / MARLIN_PAGE_BYTES] + side->offset % MARLIN_PAGE_BYTES;
}

/* Bytes from the offset to the end of its page. */
static u64 scatter_left(const struct scatter_pages *side)
{
	return MARLIN_PAGE_BYTES - side->offset % MARLIN_PAGE_BYTES;
}

u32 scatter_cut(struct scatter_part *parts, u32 parts_max, struct scatter_pages *local,
		struct scatter_pages *remote, u64 bytes, u64 *cut)
{
	u32 count = 0;

	*cut = 0;
	while (*cut < bytes) {
		struct scatter_part next = {
			.local = scatter_address(local),
			.remote = scatter_address(remote),
			.bytes = scatter_left(local),
		};

		if (next.bytes > scatter_left(remote))
			next.bytes = scatter_left(remote);
		if (next.bytes > bytes - *cut)
			next.bytes = bytes - *cut;
		if (!scatter_append(parts, &count, parts_max, &next))
			break;
		local->offset += next.bytes;
		remote->offset += next.bytes;
		*cut += next.bytes;
	}
	return count;
}

bool scatter_holds(const struct scatter_pieces *remote, u64 ram_bytes, u64 bytes)
{
	u64 sum = 0;

	for (u32 i = 0; i < remote->count; i++) {
		const struct marlin_loan_piece *piece = &remote->pieces[i];
		u64 address = base_load_le64(&piece->address);
		u32 piece_bytes = base_load_le32(&piece->bytes);

		if (!piece_bytes || base_load_le32(&piece->reserved) || piece_bytes > ram_bytes ||
		    address > ram_bytes - piece_bytes)
			return false;
		sum += piece_bytes;
	}
	return sum >= bytes;
}

bool scatter_add(struct scatter_part *parts, u32 *count, u32 parts_max,
		 struct scatter_pieces *remote, u64 local, u64 bytes)
{
	while (bytes) {
		const struct marlin_loan_piece *piece = &remote->pieces[remote->at];
		u32 left = base_load_le32(&piece->bytes) - remote->offset;
		struct scatter_part next = {
			.local = local,
			.remote = base_load_le64(&piece->address) + remote->offset,
			.bytes = left < bytes ? left : bytes,
		};

		if (!scatter_append(parts, count, parts_max, &next))
			return false;
		remote->offset += (u32)next.bytes;
		if (next.bytes == left) {
			remote->at++;
			remote->offset = 0;
		}
		local += next.bytes;
		bytes -= next.bytes;
	}
	return true;
}

/* Bytes from the last multiple of SCATTER_ALIGN to the start, if they are as many on both sides. */
static u32 scatter_skew(const struct scatter_part *part)
{
	u32 local = part->local % SCATTER_ALIGN;

	return local == part->remote % SCATTER_ALIGN ? local : 0;
}

bool scatter_is_aligned(const struct scatter_part *part)
{
	return (part->local | part->remote) % SCATTER_ALIGN == 0;
}

u32 scatter_head(const struct scatter_part *part)
{
	u32 skew = scatter_skew(part);
	u32 head = skew ? SCATTER_ALIGN - skew : 0;

	return head < part->bytes ? head : 0;
}

u32 scatter_widen(struct scatter_part *part)
{
	u32 skew = scatter_skew(part);

	part->local -= skew;
	part->remote -= skew;
	part->bytes += skew;
	return skew;
}
