// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/asl.h"

#include "core/base/bytes.h"

/* Virtual time a pull costs a tunnel of weight 1; divisible by many weights. */
#define ASL_STRIDE (1U << 20)

/* A sender's word on its backlog counts up to this: 65 ms of a 100 Gbit/s link have 800 MB. */
#define ASL_BACKLOG_MTUS_MAX (1U << 20)

void eqds_asl_init(struct eqds_asl *asl, enum eqds_asl_policy policy, u32 mtu_bytes,
		   u64 bits_per_sec, u32 burst_mtus)
{
	base_zero(asl, sizeof(*asl));
	asl->policy = policy;
	asl->burst_mtus = burst_mtus;
	/* Bits of an MTU are below 2^20, ns of a second below 2^30: the product fits 64 bits. */
	asl->mtu_time_q16 = ((u64)mtu_bytes * 8 * BASE_NSEC_PER_SEC / bits_per_sec) << 16;
	asl->mtu_time_q16 |=
		((u64)mtu_bytes * 8 * BASE_NSEC_PER_SEC % bits_per_sec) * 65536 / bits_per_sec;
	eqds_pifo_init(&asl->pifo);
}

void eqds_share_init(struct eqds_share *share, struct eqds_asl *asl, u8 pull_bits)
{
	base_zero(share, sizeof(*share));
	share->asl = asl;
	share->pull_bits = pull_bits;
	share->may_send = true;
	eqds_asl_set(share, 0, 1);
	eqds_rate_init(&share->rate, 0);
}

void eqds_asl_set(struct eqds_share *share, u8 priority, u32 weight)
{
	if (priority >= EQDS_PRIORITIES)
		priority = EQDS_PRIORITIES - 1;
	/* Each priority has a virtual time of its own, so the tunnel joins at the new one. */
	if (priority != share->priority)
		share->finish = 0;
	share->priority = priority;
	share->stride = ASL_STRIDE / (weight < EQDS_WEIGHT_MAX ? weight : EQDS_WEIGHT_MAX);
}

static u32 asl_asked(const struct eqds_share *share)
{
	return (share->target - share->pull) & eqds_mask(share->pull_bits);
}

/* The demand has changed. A tunnel that is refused credit makes the link no busier. */
static void asl_count(struct eqds_share *share)
{
	share->asl->owed_mtus -= share->owed_mtus;
	share->owed_mtus = share->may_send ? asl_asked(share) + share->backlog_mtus : 0;
	share->asl->owed_mtus += share->owed_mtus;
}

static struct eqds_share *asl_of_node(struct eqds_pifo_node *node)
{
	return (struct eqds_share *)((char *)node - offsetof(struct eqds_share, node));
}

/* At the end of its turn order. */
static void asl_push(struct eqds_asl *asl, struct eqds_share *share)
{
	share->active = true;
	asl->active++;
	if (asl->policy == EQDS_ASL_PIFO) {
		if (share->finish < asl->virtual_time[share->priority])
			share->finish = asl->virtual_time[share->priority];
		eqds_pifo_push(&asl->pifo, &share->node, share->priority, share->finish);
		return;
	}
	share->next = NULL;
	share->prev = asl->tail;
	*(asl->tail ? &asl->tail->next : &asl->head) = share;
	asl->tail = share;
}

static void asl_take(struct eqds_asl *asl, struct eqds_share *share)
{
	share->active = false;
	asl->active--;
	if (asl->policy == EQDS_ASL_PIFO) {
		eqds_pifo_remove(&asl->pifo, &share->node);
		return;
	}
	*(share->prev ? &share->prev->next : &asl->head) = share->next;
	*(share->next ? &share->next->prev : &asl->tail) = share->prev;
	share->next = NULL;
	share->prev = NULL;
}

void eqds_asl_update(struct eqds_share *share, u32 target, u32 backlog_mtus)
{
	struct eqds_asl *asl = share->asl;

	share->target = target;
	share->backlog_mtus =
		backlog_mtus < ASL_BACKLOG_MTUS_MAX ? backlog_mtus : ASL_BACKLOG_MTUS_MAX;
	asl_count(share);
	if (!share->active && asl_asked(share) && share->may_send)
		asl_push(asl, share);
}

void eqds_asl_renumber(struct eqds_share *share, u32 pull)
{
	share->pull = pull;
	share->target = pull;
	asl_count(share);
	if (share->active)
		asl_take(share->asl, share);
}

void eqds_asl_leave(struct eqds_share *share)
{
	share->target = share->pull;
	share->backlog_mtus = 0;
	asl_count(share);
	if (share->active)
		asl_take(share->asl, share);
}

u64 eqds_asl_deadline_ns(const struct eqds_asl *asl)
{
	return asl->active ? asl->next_ns : EQDS_NEVER;
}

/* Time for one MTU passes on the link. */
static void asl_pace(struct eqds_asl *asl)
{
	u64 step = asl->mtu_time_q16 + asl->next_fraction;

	asl->next_ns += step >> 16;
	asl->next_fraction = step & 0xffff;
}

/* A late caller may catch up, but not with more than a burst. */
static void asl_bound_burst(struct eqds_asl *asl, u64 now_ns)
{
	u64 burst_ns = (asl->mtu_time_q16 * (asl->burst_mtus - 1)) >> 16;

	if (asl->next_ns + burst_ns < now_ns) {
		asl->next_ns = now_ns - burst_ns;
		asl->next_fraction = 0;
	}
}

static struct eqds_share *asl_pop(struct eqds_asl *asl)
{
	struct eqds_share *share = asl->policy == EQDS_ASL_PIFO ?
					  asl_of_node(asl->pifo.root) : asl->head;

	asl_take(asl, share);
	if (asl->policy == EQDS_ASL_PIFO) {
		asl->virtual_time[share->priority] = share->node.rank;
		share->finish = share->node.rank + share->stride;
	}
	return share;
}

/*
 * A tunnel whose rate is lowered lets a turn pass. It is out of the list until the turn is over, or
 * it would be asked again at once and take the turn after all.
 */
struct eqds_share *eqds_asl_next(struct eqds_asl *asl, u64 now_ns)
{
	struct eqds_share *passed[EQDS_ASL_LOOKS], *taken = NULL;
	u32 count = 0;

	if (!asl->active || now_ns < asl->next_ns)
		return NULL;
	asl_bound_burst(asl, now_ns);
	asl_pace(asl);
	while (!taken && count < EQDS_ASL_LOOKS && asl->active) {
		struct eqds_share *share = asl_pop(asl);

		if (eqds_rate_turn(&share->rate))
			taken = share;
		else
			passed[count++] = share;
	}
	for (u32 n = 0; n < count; n++)
		asl_push(asl, passed[n]);
	return taken;
}

u16 eqds_asl_busy_us(const struct eqds_asl *asl)
{
	/* Owed MTUs would have to pass 2^30, at 2^30 ns each, to overflow. */
	u64 us = ((asl->mtu_time_q16 >> 8) * asl->owed_mtus >> 8) / BASE_NSEC_PER_USEC;

	return us < 0xffff ? (u16)us : 0xffff;
}
