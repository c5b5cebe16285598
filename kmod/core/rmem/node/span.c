// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/span.h"

void rmem_spans_init(struct rmem_spans *spans, u64 end)
{
	spans->at[0].begin = 0;
	spans->at[0].end = end;
	spans->count = 1;
	spans->lost = 0;
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
static u32 last_from(const struct rmem_spans *spans, u64 vpn)
{
	u32 n = spans->count - 1;

	while (spans->at[n].begin > vpn)
		n--; /* ends: the first begins at 0 */
	return n;
}

u64 rmem_spans_hole(const struct rmem_spans *spans, u64 vpn)
{
	return spans->at[last_from(spans, vpn)].end;
}

/* Pages between a span and the next. */
static u64 hole(const struct rmem_spans *spans, u32 n)
{
	return spans->at[n + 1].begin - spans->at[n].end;
}

/* A span and the next become one. */
static void join(struct rmem_spans *spans, u32 n)
{
	spans->lost += hole(spans, n);
	spans->at[n].end = spans->at[n + 1].end;
	spans->count--;
	for (n++; n < spans->count; n++)
		spans->at[n] = spans->at[n + 1];
}

static u32 shortest(const struct rmem_spans *spans)
{
	u32 least = 0;
	u32 n;

	for (n = 1; n + 1 < spans->count; n++)
		if (hole(spans, n) < hole(spans, least))
			least = n;
	return least;
}

void rmem_spans_add(struct rmem_spans *spans, u64 begin, u64 end)
{
	u32 at = last_from(spans, begin) + 1;
	u32 n;

	for (n = spans->count++; n > at; n--)
		spans->at[n] = spans->at[n - 1];
	spans->at[at].begin = begin;
	spans->at[at].end = end;
	if (at + 1 < spans->count && !hole(spans, at))
		join(spans, at);
	if (!hole(spans, at - 1))
		join(spans, at - 1);
	if (spans->count > RMEM_SPANS_MAX)
		join(spans, shortest(spans));
}
