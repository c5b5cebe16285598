// SPDX-License-Identifier: GPL-2.0
/* Copies across the bridge, and the words of claims. */
#include <linux/align.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/mm.h>

#include "marlin/bus.h"

/* So much at a time, for a fault can begin within a copy. */
#define BUS_STRETCH_BYTES PAGE_SIZE

u32 bus_epoch(struct marlin_bus *bus)
{
	u32 losses = atomic_read(&bus->losses);

	if (bus->host)
		return bus->host->link_epoch(bus->ntb, bus->peer);
	/* A link that is down might have no event yet. */
	return ntb_link_is_up(bus->ntb, NULL, NULL) & BIT_ULL(bus->peer) ? losses : ~losses;
}

bool bus_is_late(const struct marlin_bus *bus)
{
	return !bus->host;
}

void bus_lost(struct marlin_bus *bus, u32 epoch)
{
	if (bus_epoch(bus) == epoch)
		atomic_inc(&bus->losses);
}

void bus_read(struct marlin_bus *bus, void *to, const void *from, size_t bytes)
{
	while (bytes) {
		size_t part = min_t(size_t, bytes, BUS_STRETCH_BYTES);

		memcpy(to, from, part);
		bus_count_loads(bus, DIV_ROUND_UP(part, sizeof(u64)));
		if (!bus_carries(bus))
			memset(to, 0xff, part);
		to += part;
		from += part;
		bytes -= part;
	}
}

void bus_write(struct marlin_bus *bus, void *to, const void *from, size_t bytes)
{
	while (bytes) {
		size_t part = min_t(size_t, bytes, BUS_STRETCH_BYTES);

		if (bus_carries(bus))
			memcpy(to, from, part);
		to += part;
		from += part;
		bytes -= part;
	}
}

/* ---- as claims want it: core/marlin/claim.h ---- */

static u64 bus_claim_load(void *bus, const void *word, u32 bytes)
{
	u64 value;

	mb(); /* stores have left the processor, and loads of such memory are not ordered */
	value = bytes == sizeof(u32) ? bus_load32(bus, word) : bus_load64(bus, word);
	mb(); /* as above */
	return value;
}

static void bus_claim_store(void *bus, void *word, u64 value, u32 bytes)
{
	mb(); /* all loads and stores of the copy come before its end */
	if (bytes == sizeof(u32))
		bus_store32(bus, word, value);
	else
		bus_store64(bus, word, value);
}

/*
 * To ask a driver for the link can cost more than a load. It has no need: where the epoch is late,
 * claims and grants load back what they stored, and a link that is down gives all ones.
 */
static u32 bus_claim_epoch(void *context)
{
	struct marlin_bus *bus = context;

	return bus_is_late(bus) ? (u32)atomic_read(&bus->losses) : bus_epoch(bus);
}

const struct claim_bus marlin_claim_bus = {
	.load = bus_claim_load,
	.store = bus_claim_store,
	.epoch = bus_claim_epoch,
};
