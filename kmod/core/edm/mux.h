/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Preemption between memory messages and Ethernet frames on a link, block by block (EDM, ASPLOS'25,
 * 3.2.3).
 *
 *   memory blocks ------------------.
 *   frame blocks --> [ 4 blocks ] ---+--> edm_mux_send() --> link --> edm_mux_receive()
 *      <-- full: back-pressure       '--> idle, in time         |--> a note or message
 *                                                               '--> [ a frame ] --> gapless
 *
 *   strict  memory first
 *   fair    while both wait, each gets as many blocks as the other
 *
 * A message is not cut, for its data blocks look like a frame's. So frames wait for a message in
 * either mode, and memory for one block of a frame. "Fair" is exact over whole messages.
 *
 * Invariants:
 *   - EDM_MUX_BLOCKS blocks of frames wait at most;
 *   - an idle block leaves at least once in EDM_IDLE_BLOCKS;
 *   - a frame's blocks leave the receiver in order, without others between, and whole.
 */
#ifndef REMORA_EDM_MUX_H
#define REMORA_EDM_MUX_H

#include "core/edm/block.h"

/* The path that back-pressure takes to the MAC has four cycles. */
#define EDM_MUX_BLOCKS 4U

/* ---- transmitter ---- */

struct edm_mux {
	struct edm_block frame[EDM_MUX_BLOCKS]; /* a ring */
	u32 first, count;
	u32 since_idle; /* blocks */
	s32 ahead;	/* fair: blocks that memory got more than frames while both waited */
	bool strict;
	bool within; /* a message has begun and has not ended */
};

enum edm_mux_source {
	EDM_MUX_MEMORY,
	EDM_MUX_FRAME,
	EDM_MUX_IDLE,
};

void edm_mux_init(struct edm_mux *mux, bool strict);

/* Room for another block of a frame? If not, the MAC has to wait. */
static inline bool edm_mux_has_room(const struct edm_mux *mux)
{
	return mux->count < EDM_MUX_BLOCKS;
}

/* A block of a frame, START to END. There is room. */
void edm_mux_frame(struct edm_mux *mux, const struct edm_block *block);

/*
 * The block that leaves next. memory: the block that memory would send, of a kind; or NULL. It was
 * sent if EDM_MUX_MEMORY is returned. Once MS was sent, the rest of the message has to follow
 * without other memory blocks, but the notes.
 */
enum edm_mux_source edm_mux_send(struct edm_mux *mux, const struct edm_block *memory,
				 enum edm_block_kind kind, struct edm_block *out);

/* ---- receiver ---- */

struct edm_demux {
	struct edm_line line;
	struct edm_block_reader reader; /* of messages of several blocks */
	struct edm_block_reader small;	/* of MST */
	struct edm_block_note note;
	struct edm_block *frame; /* the caller's */
	u32 frame_blocks_max, frame_count;
	bool in_frame;	/* START was received, END not yet */
	bool dropping;	/* a message is broken: its data blocks are no frame's */
	u32 invalid;	/* sync headers 00 or 11: the caller judges the link by them */
	u32 broken;	/* messages, notes and frames that were dropped */
};

enum edm_demux_event {
	EDM_DEMUX_NOTHING,
	EDM_DEMUX_N,	   /* demux.note */
	EDM_DEMUX_G,	   /* demux.note */
	EDM_DEMUX_MESSAGE, /* demux.reader.head and its data */
	EDM_DEMUX_SMALL,   /* demux.small.head and its data */
	EDM_DEMUX_FRAME,   /* demux.frame_count blocks of demux.frame; valid until the next call */
};

/* data: for messages; frame: for frame_blocks_max blocks of the longest frame. */
void edm_demux_init(struct edm_demux *demux, const struct edm_line *line, u8 *data,
		    u32 data_bytes_max, u8 small[2], struct edm_block *frame, u32 frame_blocks_max);

/* A block from the descrambler. */
enum edm_demux_event edm_mux_receive(struct edm_demux *demux, const struct edm_block *block);

#endif
