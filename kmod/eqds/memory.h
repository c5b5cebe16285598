/* SPDX-License-Identifier: GPL-2.0 */
/* Nodes of packets, and bounds on the memory of those held. */
#ifndef KMOD_EQDS_MEMORY_H
#define KMOD_EQDS_MEMORY_H

#include "eqds/device.h"

struct eqds_node *eqds_node_get(struct eqds_dev *ed, enum eqds_pool pool, struct sk_buff *skb,
				u16 segments);
struct sk_buff *eqds_node_put(struct eqds_dev *ed, struct eqds_node *node);
bool eqds_memory_is_full(const struct eqds_dev *ed, enum eqds_pool pool);
bool eqds_memory_may_hold(const struct eqds_dev *ed, const struct eqds_rx *rx, u32 bytes);
u64 eqds_memory_max_bytes(void);
void eqds_memory_open(struct eqds_dev *ed);
void eqds_memory_close(struct eqds_dev *ed);
int eqds_memory_register(void);
void eqds_memory_unregister(void);

/* The node of a packet that the core names; of a whole packet, one for all segments. */
static inline struct eqds_node *eqds_node_of(struct eqds_packet *packet)
{
	return container_of(packet - packet->nth, struct eqds_node, core);
}

#endif
