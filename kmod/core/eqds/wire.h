/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Headers in and out of their bytes, in both profiles (remora/eqds.h). The state machines see
 * struct eqds_head alone and never ask which profile it came from.
 */
#ifndef REMORA_EQDS_WIRE_H
#define REMORA_EQDS_WIRE_H

#include "core/eqds/config.h"
#include "remora/eqds.h"

struct eqds_head {
	bool control;
	bool tagged;	/* struct eqds_tag is behind the header: tag.h */
	u8 flags;	/* EQDS_SYN .. EQDS_TRIM */
	bool unnumbered; /* data: seq is the next number, and the packet has none */
	bool claims;	/* data: cookie is a claim of the source address */
	bool has_epoch; /* else epoch says nothing: paper's packets without SYN */
	u8 attempt;	/* data: of seq; control: of echo */
	u32 epoch;
	u32 pull;   /* data: pull target; control: pull number */
	u16 sender; /* tells tunnels from one address apart */
	/* data */
	u32 seq;
	u16 path;
	u16 more;  /* numbers after seq that came with it: a train, receiver.h; never on the wire */
	u8 counted; /* COUNTED: numbers after seq that the header is for; else 0 */
	u32 bytes; /* credit it cost, all of a train; 0: unknown (paper); COUNTED: at most */
	u8 next_proto;
	bool ce;	   /* the IP header said congestion experienced; the caller sets it */
	bool no_room;	   /* the caller has no memory for the payload, and sets this */
	u16 unacked;	   /* numbers outstanding before seq */
	u32 stamp;	   /* 16 ns; 0 in the paper profile */
	u32 backlog_bytes; /* beyond the target */
	/* control */
	u8 marks;     /* EQDS_MARK_* */
	u16 busy_us;
	u32 ack, echo;
	u64 sack;
	u64 cookie; /* both kinds; 0: none */
};

enum eqds_wire_verdict {
	EQDS_WIRE_GOOD,
	EQDS_WIRE_SHORT,
	EQDS_WIRE_VERSION,
	EQDS_WIRE_FLAGS, /* flags that exclude each other */
	EQDS_WIRE_VERDICTS
};

/* Longest header, with a tag. */
#define EQDS_WIRE_BYTES_MAX (EQDS_DATA_BYTES + EQDS_TAG_BYTES)

/*
 * Read the header of a UDP payload. The user's packet begins eqds_wire_header_bytes() in, or behind
 * the tag. Whether the tag verifies is not looked at.
 */
enum eqds_wire_verdict eqds_wire_parse(const struct eqds_profile *profile, const void *data,
				       size_t bytes, struct eqds_head *head);

/*
 * A packet with a COUNTED header has arrived; more: numbers after its own that arrived with it.
 * Leaves its own number in *head. Returns false if the header does not cover these numbers.
 */
static inline bool eqds_wire_count(struct eqds_head *head, u16 ip_id, u32 more)
{
	const u16 nth = ip_id - (u16)head->seq;

	if (nth + more > head->counted)
		return false;
	head->seq += nth;
	head->unacked += nth;
	head->more = more;
	return true;
}

/* Bytes of the header, without tag. */
static inline u32 eqds_wire_header_bytes(const struct eqds_profile *profile, bool control)
{
	if (profile->start_bits)
		return EQDS_PAPER_BYTES;
	return control ? EQDS_CONTROL_BYTES : EQDS_DATA_BYTES;
}

/* Bytes that eqds_wire_encode() writes: the header, and zeros where a tag is to be. */
u32 eqds_wire_bytes(const struct eqds_profile *profile, const struct eqds_head *head);

/* data has room for eqds_wire_bytes(), at most EQDS_WIRE_BYTES_MAX. */
void eqds_wire_encode(const struct eqds_profile *profile, const struct eqds_head *head, void *data);

#endif
