// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/marlin/scatter.h"

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
		struct scatter_part *last = count ? &parts[count - 1] : NULL;
		struct scatter_part next = {
			.local = scatter_address(local),
			.remote = scatter_address(remote),
			.bytes = scatter_left(local),
		};

		if (next.bytes > scatter_left(remote))
			next.bytes = scatter_left(remote);
		if (next.bytes > bytes - *cut)
			next.bytes = bytes - *cut;
		if (last && last->local + last->bytes == next.local &&
		    last->remote + last->bytes == next.remote) {
			last->bytes += next.bytes;
		} else {
			if (count == parts_max)
				break;
			parts[count++] = next;
		}
		local->offset += next.bytes;
		remote->offset += next.bytes;
		*cut += next.bytes;
	}
	return count;
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
