// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/marlin/frames.h"

const char *frames_fault_name(enum frames_fault fault)
{
	static const char *const names[FRAMES_FAULTS] = {
		[FRAMES_OK] = "ok",
		[FRAMES_FAULT_TAIL] = "its tail ran backwards, past the last frame, or off a line",
		[FRAMES_FAULT_WORD] = "a record's word is not valid",
		[FRAMES_FAULT_POSITION] = "a record is not the one that is due",
		[FRAMES_FAULT_BYTES] = "a frame is too short or too long",
		[FRAMES_FAULT_STUCK] = "it makes no room for frames",
	};

	return fault < FRAMES_FAULTS ? names[fault] : "unknown";
}

bool frames_ring_is_valid(u64 ring_bytes)
{
	return base_is_pow2(ring_bytes) && ring_bytes >= MARLIN_RING_BYTES_MIN &&
	       ring_bytes <= MARLIN_RING_BYTES_MAX;
}

u32 frames_ring_bytes(u64 window_bytes)
{
	const u64 others_bytes = MARLIN_RING_OFFSET + sizeof(struct marlin_messages);
	u32 ring_bytes = MARLIN_RING_BYTES_MAX;

	while (ring_bytes >= MARLIN_RING_BYTES_MIN) {
		if (window_bytes >= others_bytes && ring_bytes <= window_bytes - others_bytes)
			return ring_bytes;
		ring_bytes /= 2;
	}
	return 0;
}

void frames_out_init(struct frames_out *out, void *ring, u32 ring_bytes, const u32 *tail)
{
	out->ring = (u8 *)ring;
	out->tail = tail;
	out->mask = ring_bytes - 1;
	out->head = 0;
	out->freed = 0;
}

void frames_in_init(struct frames_in *in, void *ring, u32 ring_bytes, u32 *tail)
{
	in->ring = (u8 *)ring;
	in->tail = tail;
	in->mask = ring_bytes - 1;
	in->taken = 0;
	in->told = 0;
}
