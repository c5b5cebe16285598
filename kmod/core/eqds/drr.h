/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Deficit round robin between the sending interfaces of a NIC (NSDI'22, section 6): credit keeps
 * receivers' links from overflowing, this shares our own uplink.
 *
 *   NIC -- level 0 -- EQIF -- tunnel, tunnel ...      strict priority between levels,
 *      |           `- EQIF -- ...                     bytes by weight between EQIFs of a level,
 *      `-- level 1 -- ...                             packet by packet between tunnels
 *
 * The caller holds one lock around a NIC's struct and calls eqds_drr_send() while the NIC has room.
 */
#ifndef REMORA_EQDS_DRR_H
#define REMORA_EQDS_DRR_H

#include "core/eqds/sender.h"

#define EQDS_DRR_LEVELS 4U

struct eqds_eqif {
	struct eqds_eqif *next;	   /* in its level's ring */
	struct eqds_sender *ready; /* ring of tunnels that may send, the next one first */
	u32 quantum_bytes;	   /* at least an MTU */
	u32 deficit_bytes;
	u8 level; /* 0 first */
	bool listed;
};

struct eqds_drr {
	struct eqds_eqif *head[EQDS_DRR_LEVELS], *tail[EQDS_DRR_LEVELS];
};

void eqds_drr_init(struct eqds_drr *drr);
void eqds_eqif_init(struct eqds_eqif *eqif, u8 level, u32 quantum_bytes);

/* After every event of a sender: it joins if it is ready. */
void eqds_drr_update(struct eqds_drr *drr, struct eqds_eqif *eqif, struct eqds_sender *s);
/* Before its memory goes. */
void eqds_drr_remove(struct eqds_sender *s);
void eqds_drr_remove_eqif(struct eqds_drr *drr, struct eqds_eqif *eqif);

/* The next packet the NIC sends, its header and tunnel; NULL: none may leave. */
struct eqds_packet *eqds_drr_send(struct eqds_drr *drr, u64 now_ns, struct eqds_head *head,
				  struct eqds_sender **from);

#endif
