// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/mux.h"

#include "core/base/bytes.h"

/* A message of one block has two bytes at most. */
#define MUX_SMALL_BYTES 2U

/* ---- transmitter ---- */

void edm_mux_init(struct edm_mux *mux, bool strict)
{
	base_zero(mux, sizeof(*mux));
	mux->strict = strict;
}

void edm_mux_frame(struct edm_mux *mux, const struct edm_block *block)
{
	mux->frame[(mux->first + mux->count++) % EDM_MUX_BLOCKS] = *block;
}

/* Is it memory's turn? A message that has begun is not interrupted. */
static bool mux_is_memory(const struct edm_mux *mux, const struct edm_block *memory)
{
	if (!memory || !mux->count)
		return memory;
	return mux->within || mux->strict || mux->ahead <= 0;
}

/* While both sides wait, a block of one is owed to the other. */
static void mux_charge(struct edm_mux *mux, const struct edm_block *memory, bool sent)
{
	if (!memory || !mux->count)
		mux->ahead = mux->within ? mux->ahead : 0;
	else
		mux->ahead += sent ? 1 : -1;
}

enum edm_mux_source edm_mux_send(struct edm_mux *mux, const struct edm_block *memory,
				 enum edm_block_kind kind, struct edm_block *out)
{
	const bool is_memory = mux_is_memory(mux, memory);
	const bool must_idle = mux->since_idle >= EDM_IDLE_BLOCKS - 1;

	if (must_idle || (!is_memory && (!mux->count || mux->within))) {
		*out = edm_block_idle();
		mux->since_idle = 0;
		return EDM_MUX_IDLE;
	}
	mux->since_idle++;
	mux_charge(mux, memory, is_memory);
	if (!is_memory) {
		*out = mux->frame[mux->first];
		mux->first = (mux->first + 1) % EDM_MUX_BLOCKS;
		mux->count--;
		return EDM_MUX_FRAME;
	}
	*out = *memory;
	if (kind == EDM_BLOCK_MS || kind == EDM_BLOCK_MT)
		mux->within = kind == EDM_BLOCK_MS;
	return EDM_MUX_MEMORY;
}

/* ---- receiver ---- */

void edm_demux_init(struct edm_demux *demux, const struct edm_line *line, u8 *data,
		    u32 data_bytes_max, u8 small[2], struct edm_block *frame, u32 frame_blocks_max)
{
	base_zero(demux, sizeof(*demux));
	demux->line = *line;
	demux->frame = frame;
	demux->frame_blocks_max = frame_blocks_max;
	edm_block_reader_init(&demux->reader, data, data_bytes_max);
	edm_block_reader_init(&demux->small, small, MUX_SMALL_BYTES);
}

static enum edm_demux_event mux_break(struct edm_demux *demux)
{
	demux->broken++;
	return EDM_DEMUX_NOTHING;
}

/* A block that cannot be read might have been one of the frame's. */
static enum edm_demux_event mux_damaged(struct edm_demux *demux)
{
	demux->in_frame = false;
	return mux_break(demux);
}

/* A frame's block. It leaves with the others once END is there. */
static enum edm_demux_event mux_frame(struct edm_demux *demux, const struct edm_block *block,
				      bool is_data)
{
	const bool starts = !is_data && (u8)block->payload == EDM_TYPE_START;

	if (starts) {
		demux->broken += demux->in_frame;
		demux->in_frame = true;
		demux->frame_count = 0;
	}
	if (!demux->in_frame)
		return is_data ? mux_break(demux) : EDM_DEMUX_NOTHING;
	if (demux->frame_count == demux->frame_blocks_max) {
		demux->in_frame = false;
		return mux_break(demux);
	}
	demux->frame[demux->frame_count++] = *block;
	if (is_data || starts)
		return EDM_DEMUX_NOTHING;
	/* A control block within a frame that isn't END ends it as an error does. */
	demux->in_frame = false;
	return edm_block_is_end(block) ? EDM_DEMUX_FRAME : mux_break(demux);
}

/* A message that has not ended cannot go on. */
static void mux_abandon(struct edm_demux *demux)
{
	demux->broken += demux->reader.within;
	demux->reader.within = false;
	demux->dropping = false;
}

/* A block of a message of several. */
static enum edm_demux_event mux_message(struct edm_demux *demux, enum edm_block_kind kind, u64 bits)
{
	const bool dropped = demux->dropping && kind != EDM_BLOCK_MS;

	if (kind == EDM_BLOCK_MS)
		mux_abandon(demux);
	demux->dropping = demux->dropping && kind == EDM_BLOCK_DATA;
	if (dropped)
		return EDM_DEMUX_NOTHING;
	switch (edm_block_read(&demux->line, &demux->reader, kind, bits)) {
	case EDM_BLOCK_MESSAGE:
		return EDM_DEMUX_MESSAGE;
	case EDM_BLOCK_MORE:
		return EDM_DEMUX_NOTHING;
	default:
		demux->dropping = kind != EDM_BLOCK_MT;
		/* Without its MS, a message's data look like a frame's. */
		return mux_damaged(demux);
	}
}

enum edm_demux_event edm_mux_receive(struct edm_demux *demux, const struct edm_block *block)
{
	u64 field = block->payload;
	const enum edm_block_kind kind = edm_block_kind_of(&demux->line, block, &field);

	switch (kind) {
	case EDM_BLOCK_N:
	case EDM_BLOCK_G:
		if (!edm_block_note_read(field, &demux->note))
			return mux_damaged(demux);
		return kind == EDM_BLOCK_N ? EDM_DEMUX_N : EDM_DEMUX_G;
	case EDM_BLOCK_MST:
		if (edm_block_read(&demux->line, &demux->small, kind, field) != EDM_BLOCK_MESSAGE)
			return mux_damaged(demux);
		return EDM_DEMUX_SMALL;
	case EDM_BLOCK_MS:
	case EDM_BLOCK_MT:
		return mux_message(demux, kind, field);
	case EDM_BLOCK_DATA:
		return demux->reader.within || demux->dropping ? mux_message(demux, kind, field)
							       : mux_frame(demux, block, true);
	case EDM_BLOCK_FRAME:
		mux_abandon(demux);
		return mux_frame(demux, block, false);
	case EDM_BLOCK_INVALID:
		demux->invalid++;
		return demux->in_frame ? mux_damaged(demux) : EDM_DEMUX_NOTHING;
	default:
		return EDM_DEMUX_NOTHING;
	}
}
