/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Loads from a peer's memory and stores to it, across the bridge.
 *
 * A store is posted: it costs little, and is lost without a link. A load waits for its completion,
 * a microsecond or more over a bus, pushes earlier stores, and gives all ones without a link. So
 * loads are few, and counted for each peer (ethtool -S, port*_loads). Memory that the lab shares
 * has neither cost nor loss; its driver has both as faults (../ntb_ops.h), which these functions
 * ask.
 *
 * A DMA engine goes its own way: neither counted nor faulty.
 */
#ifndef REMORA_MARLIN_BUS_H
#define REMORA_MARLIN_BUS_H

#include <linux/atomic.h>
#include <linux/compiler.h>
#include <linux/string.h>

#include "core/marlin/claim.h"
#include "ntb_ops.h"

/* The way to a peer. */
struct marlin_bus {
	struct ntb_dev *ntb;
	int peer; /* of the NTB API */
	const struct ntb_host_ops *host; /* NULL: the driver has none */
	const struct ntb_host_ops *faults; /* the same, if faults are on; else NULL */
	atomic_t losses; /* how often the link was found down, of a driver without host ops */
	atomic64_t loads; /* of up to 8 bytes */
	u32 lost_word; /* where cores write a word that is lost */
};

extern const struct claim_bus marlin_claim_bus; /* its context is a struct marlin_bus */

/* Another value than before if the link was down in between. */
u32 bus_epoch(struct marlin_bus *bus);
/* The driver tells of an outage by an event, and the link can be up again before that. */
bool bus_is_late(const struct marlin_bus *bus);
/* A store was lost since the epoch was that, which is late: it is another from now on. */
void bus_lost(struct marlin_bus *bus, u32 epoch);
/* memcpy() from the peer's memory, and into it. */
void bus_read(struct marlin_bus *bus, void *to, const void *from, size_t bytes);
void bus_write(struct marlin_bus *bus, void *to, const void *from, size_t bytes);

static inline bool bus_carries(const struct marlin_bus *bus)
{
	return likely(!bus->faults) || bus->faults->bus_carries(bus->ntb, bus->peer);
}

static inline void bus_count_loads(struct marlin_bus *bus, u32 loads)
{
	atomic64_add(loads, &bus->loads);
	if (unlikely(bus->faults))
		bus->faults->bus_load(bus->ntb, loads);
}

static inline u32 bus_load32(struct marlin_bus *bus, const __le32 *word)
{
	u32 value = le32_to_cpu(READ_ONCE(*word));

	bus_count_loads(bus, 1);
	return bus_carries(bus) ? value : U32_MAX;
}

static inline u64 bus_load64(struct marlin_bus *bus, const __le64 *word)
{
	u64 value = le64_to_cpu(READ_ONCE(*word));

	bus_count_loads(bus, 1);
	return bus_carries(bus) ? value : U64_MAX;
}

static inline void bus_store32(struct marlin_bus *bus, __le32 *word, u32 value)
{
	if (bus_carries(bus))
		WRITE_ONCE(*word, cpu_to_le32(value));
}

static inline void bus_store64(struct marlin_bus *bus, __le64 *word, u64 value)
{
	if (bus_carries(bus))
		WRITE_ONCE(*word, cpu_to_le64(value));
}

/* For the cores, which write words by themselves. */
static inline u32 *bus_word(struct marlin_bus *bus, __le32 *word)
{
	return bus_carries(bus) ? (__force u32 *)word : &bus->lost_word;
}

#endif
