// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/drr.h"

#include "core/base/bytes.h"

void eqds_drr_init(struct eqds_drr *drr)
{
	base_zero(drr, sizeof(*drr));
}

void eqds_eqif_init(struct eqds_eqif *eqif, u8 level, u32 quantum_bytes)
{
	base_zero(eqif, sizeof(*eqif));
	eqif->level = level < EQDS_DRR_LEVELS ? level : EQDS_DRR_LEVELS - 1;
	eqif->quantum_bytes = quantum_bytes;
}

static void drr_append(struct eqds_drr *drr, struct eqds_eqif *eqif)
{
	const u8 level = eqif->level;

	eqif->next = NULL;
	eqif->listed = true;
	*(drr->head[level] ? &drr->tail[level]->next : &drr->head[level]) = eqif;
	drr->tail[level] = eqif;
}

static void drr_pop(struct eqds_drr *drr, struct eqds_eqif *eqif)
{
	drr->head[eqif->level] = eqif->next;
	eqif->listed = false;
}

void eqds_drr_update(struct eqds_drr *drr, struct eqds_eqif *eqif, struct eqds_sender *s)
{
	if (s->eqif || !eqds_sender_is_ready(s))
		return;
	s->eqif = eqif;
	if (!eqif->ready) {
		s->ready_next = s;
		s->ready_prev = s;
		eqif->ready = s;
	} else {
		s->ready_next = eqif->ready;
		s->ready_prev = eqif->ready->ready_prev;
		s->ready_prev->ready_next = s;
		s->ready_next->ready_prev = s;
	}
	if (!eqif->listed)
		drr_append(drr, eqif);
}

void eqds_drr_remove(struct eqds_sender *s)
{
	struct eqds_eqif *eqif = s->eqif;

	if (!eqif)
		return;
	if (eqif->ready == s)
		eqif->ready = s->ready_next == s ? NULL : s->ready_next;
	s->ready_prev->ready_next = s->ready_next;
	s->ready_next->ready_prev = s->ready_prev;
	s->eqif = NULL;
}

void eqds_drr_remove_eqif(struct eqds_drr *drr, struct eqds_eqif *eqif)
{
	struct eqds_eqif **link = &drr->head[eqif->level], *before = NULL;

	while (eqif->ready)
		eqds_drr_remove(eqif->ready);
	if (!eqif->listed)
		return;
	for (; *link != eqif; link = &before->next)
		before = *link;
	*link = eqif->next;
	if (drr->tail[eqif->level] == eqif)
		drr->tail[eqif->level] = before;
	eqif->listed = false;
}

/* One step of the level's round: a packet, or the head goes to the tail or leaves. */
static struct eqds_packet *drr_step(struct eqds_drr *drr, struct eqds_eqif *eqif, u64 now_ns,
				    struct eqds_head *head, struct eqds_sender **from)
{
	struct eqds_sender *s = eqif->ready;
	struct eqds_packet *packet;
	u32 bytes;

	if (!s) {
		/* An interface that has nothing to send keeps no claim. */
		eqif->deficit_bytes = 0;
		drr_pop(drr, eqif);
		return NULL;
	}
	bytes = eqds_sender_next_bytes(s, now_ns);
	if (!bytes) {
		eqds_drr_remove(s); /* all its packets were acknowledged meanwhile */
		return NULL;
	}
	if (eqif->deficit_bytes < bytes) {
		eqif->deficit_bytes += eqif->quantum_bytes;
		drr_pop(drr, eqif);
		drr_append(drr, eqif);
		return NULL;
	}
	packet = eqds_sender_next(s, now_ns, head);
	eqif->deficit_bytes -= packet->bytes;
	eqif->ready = s->ready_next;
	if (!eqds_sender_is_ready(s))
		eqds_drr_remove(s);
	*from = s;
	return packet;
}

struct eqds_packet *eqds_drr_send(struct eqds_drr *drr, u64 now_ns, struct eqds_head *head,
				  struct eqds_sender **from)
{
	for (u32 level = 0; level < EQDS_DRR_LEVELS; level++) {
		while (drr->head[level]) {
			struct eqds_packet *packet =
				drr_step(drr, drr->head[level], now_ns, head, from);

			if (packet)
				return packet;
		}
	}
	return NULL;
}
