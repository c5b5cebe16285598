// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/client/seq.h"

#include "core/base/bytes.h"

static void **seq_owner_of(const struct rmem_seq *seq, u64 id)
{
	return &seq->owner[id & (seq->window - 1)];
}

void rmem_seq_init(struct rmem_seq *seq, void **owner, u32 window)
{
	seq->owner = owner;
	seq->window = window;
	rmem_seq_reset(seq);
}

void rmem_seq_reset(struct rmem_seq *seq)
{
	base_zero(seq->owner, seq->window * sizeof(*seq->owner));
	seq->floor = 1;
	seq->next = 1;
}

u64 rmem_seq_take(struct rmem_seq *seq, u32 count, void *owner)
{
	u64 first = seq->next;

	if (count > seq->floor + seq->window - first)
		return 0;
	for (; seq->next < first + count; seq->next++)
		*seq_owner_of(seq, seq->next) = owner;
	return first;
}

void rmem_seq_put(struct rmem_seq *seq, u64 id)
{
	*seq_owner_of(seq, id) = NULL;
	while (seq->floor < seq->next && !*seq_owner_of(seq, seq->floor))
		seq->floor++;
}
