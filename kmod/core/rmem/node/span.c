// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/span.h"

void rmem_spans_init(struct rmem_spans *spans, u64 end)
{
	spans->at[0].begin = 0;
	spans->at[0].end = end;
	spans->count = 1;
}

u64 rmem_spans_next(const struct rmem_spans *spans, u64 vpn, u64 pages)
{
	u32 n;

	for (n = 0; n < spans->count && spans->at[n].begin < vpn + pages; n++)
		if (spans->at[n].end > vpn)
			vpn = spans->at[n].end;
	return vpn;
}

/* The last span that begins at vpn or before. */
static u32 span_last_from(const struct rmem_spans *spans, u64 vpn)
{
	u32 n = spans->count - 1;

	while (spans->at[n].begin > vpn)
		n--; /* ends: the first begins at 0 */
	return n;
}

u64 rmem_spans_hole(const struct rmem_spans *spans, u64 vpn)
{
	return spans->at[span_last_from(spans, vpn)].end;
}

static bool span_meets_next(const struct rmem_spans *spans, u32 n, u64 end)
{
	return n + 1 < spans->count && spans->at[n + 1].begin == end;
}

bool rmem_spans_may_add(const struct rmem_spans *spans, u64 begin, u64 end)
{
	u32 n = span_last_from(spans, begin);

	return spans->count < RMEM_SPANS_MAX || spans->at[n].end == begin ||
	       span_meets_next(spans, n, end);
}

void rmem_spans_add(struct rmem_spans *spans, u64 begin, u64 end)
{
	u32 n = span_last_from(spans, begin), i;

	if (span_meets_next(spans, n, end)) {
		spans->at[n + 1].begin = begin;
		if (spans->at[n].end < begin)
			return;
		spans->at[n].end = spans->at[n + 1].end;
		spans->count--;
		for (i = n + 1; i < spans->count; i++)
			spans->at[i] = spans->at[i + 1];
	} else if (spans->at[n].end == begin) {
		spans->at[n].end = end;
	} else {
		for (i = spans->count++; i > n + 1; i--)
			spans->at[i] = spans->at[i - 1];
		spans->at[n + 1].begin = begin;
		spans->at[n + 1].end = end;
	}
}
