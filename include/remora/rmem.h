/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The Remora memory protocol, version 1. This header is its specification.
 *
 * Who speaks: a client sends requests, a memory node answers them; a message
 * is a struct rmem_hdr and a payload. The node's default port is RMEM_PORT.
 * All fields are little-endian.
 *
 * Datagrams. A UDP datagram carries up to RMEM_BUNDLE_MAX messages: all their
 * headers, then all their payloads, in the same order:
 *
 *   hdr 1 | hdr 2 | ... | hdr n | payload 1 | payload 2 | ... | payload n
 *
 * The payloads are RMEM_PIECE_BYTES_MAX at most, together; so that a datagram makes for
 * bounded work, bytes to be read and a 256th of those to be discarded or zeroed are
 * RMEM_READ_BYTES_MAX at most, together. n isn't told: there is another header as long as
 * the datagram is longer than what the headers before it account for. If that never
 * comes out even, or asks for more, all messages found until then are damaged, if their
 * headers verify. Messages that travel together are on their own:
 * each has its tag, its id and its answer, and a bad one spoils none of the
 * others. They are of one space and session, and of types READ, WRITE, DISCARD,
 * ZERO, ATOMIC, PUT, READV and WRITEV; others travel alone. Their answers are bundled in the
 * same order, as far as the datagram size allows that the client gave in OPEN; so are those to
 * datagrams that come together, or by RMEM_FLAGS_MORE. A client may send without bundling.
 *
 * After Clio (ASPLOS'22), sections 4.2 to 4.5: no connections, the response is
 * the acknowledgement, a write larger than the path's MTU goes as independent
 * packets that may be executed in any order, a client retries a whole request.
 * What Clio leaves to the reader and this protocol adds: keyed tags, boot
 * epochs, and sessions, which make a late copy of a finished write harmless.
 *
 * Address spaces. A remote address space (RAS) has a 32-bit id and a 128-bit
 * key, both told to the node by its operator. A message counts only if its tag
 * verifies under its space's key; what fails gets no answer at all. Some spaces are
 * read-only views of others: all regions of such a one are there at the same addresses, and
 * what would change memory, ALLOC and FREE, too, is refused as RMEM_PERM.
 *
 * Sessions and stale writes. A client opens a session and numbers what it
 * sends in it with ids that are never used twice. Each request tells the
 * session's floor: the oldest id its sender still waits for. Of each session
 * the node keeps the highest floor it has seen and, for the RMEM_WINDOW ids
 * above it, whether that id was executed. A message that changes memory is
 *   - refused as RMEM_STALE when its id is below the floor,
 *   - answered again but not executed again when its id is marked executed,
 *   - refused again when it was refused as RMEM_FAULT, even if its address has been
 *     allocated since,
 *   - otherwise executed, and marked before its answer leaves.
 * So a change is executed at most once, and never after its sender went on. Other
 * refusals need no mark: RMEM_BUSY and RMEM_DAMAGED keep the sender waiting, and the rest
 * say of a message, its region or its session what stays so. But for one, the id beyond
 * the window: a client tells no floor that lies RMEM_WINDOW or more below the id.
 * The node alone names sessions and never names two alike; a session that was
 * evicted, closed or superseded (same client id opened again), or that an
 * earlier boot of the node knew, does not come back, and what was sent in it
 * is refused. A client that learns of this opens a new session and issues what
 * is outstanding under new ids.
 *
 * Renewal. Who gives a change up must know that no copy of it is executed later, while others of
 * the session are outstanding. So it sends an OPEN that names the session. The node gives that
 * another name and keeps the rest: ids, floor, marks, results, what ALLOC owes. What was sent
 * under the old name is refused from then on; the client sends what is still outstanding again
 * under the new one, with the ids it has, so that it's executed once whichever copy came first.
 * A session that the node doesn't have any more, or that is another client's, peer's or level's,
 * isn't renewed: the OPEN is one like any other, and its answer says so.
 *
 * Exactly once. What an ATOMIC found can't be found again, so the node keeps it until it is
 * acknowledged: for the RMEM_REPLAY ids from the floor on, a copy of an executed ATOMIC is
 * answered as the first was. One whose id lies beyond them is answered RMEM_BUSY. A client tells a
 * floor above its id when it has the answer. If the session ends before, nothing says
 * any more whether the ATOMIC was executed: the client must not issue it anew by itself. All of
 * this goes for a PUT, too.
 *
 * Regions outlive the session that allocated them, once their client is known to
 * know of them: an ALLOC is acknowledged when a request of its session has come whose
 * floor is above its id. If the session ends before (evicted, superseded, closed), the ALLOC is
 * undone, so that no memory is lost to an answer that was. A client therefore
 *   - lets its floor pass an ALLOC's id only when it has the answer;
 *   - then acknowledges at once, by any request of the same session, and takes the
 *     region for its own when that was answered RMEM_OK, for RMEM_NO_SESSION says that
 *     the region may be gone, too;
 *   - who gives an ALLOC up ends the session: by an OPEN that doesn't renew it, or by a CLOSE
 *     whose floor is not above the ALLOC's id.
 *
 * Integrity. The tag is SipHash-2-4 (64 bits) under the space's key over the
 * header with the tag's bytes left out. The session's level says what else is covered:
 *   RMEM_LINK    payload: the UDP checksum only (which must then be present),
 *   RMEM_DIGEST  payload: CRC32C in the header's digest field,
 *   RMEM_FULL    the tag runs over the header, then the payload.
 * Of messages other than RMEM_READ and RMEM_WRITE (either direction), RMEM_WRITEV and answers to
 * RMEM_READV the tag always runs over header and payload; of RMEM_WRITEV it always
 * runs over header and ranges. A payload that fails its digest or tag,
 * or whose length isn't the header's, under a header that verifies is answered
 * RMEM_DAMAGED where the level tells the two apart (RMEM_DIGEST; lengths).
 */
#ifndef REMORA_RMEM_H
#define REMORA_RMEM_H

#include <linux/types.h>

#define RMEM_VERSION 1
#define RMEM_PORT 7670

/* Ids of one session the node remembers above the floor, one bit each. */
#define RMEM_WINDOW 4096
/* And those among them whose result it can keep, if they are ATOMICs or PUTs. */
#define RMEM_REPLAY 128

/* Largest READ: the node answers it with several packets. */
#define RMEM_READ_BYTES_MAX (256U * 1024)
/* Payload bytes of one packet: at least what IPv6's minimum MTU leaves, at
 * most what a jumbo frame does, less the headers.
 */
#define RMEM_PIECE_BYTES_MIN 1024U
#define RMEM_PIECE_BYTES_MAX 8704U
/* Largest range of one DISCARD or ZERO. */
#define RMEM_ZERO_BYTES_MAX (64U * 1024 * 1024)
/* Ranges of one READV or WRITEV. */
#define RMEM_RANGES_MAX 128U

#define RMEM_PAGE_SHIFT_MIN 16 /* 64 KiB */
#define RMEM_PAGE_SHIFT_MAX 22 /* 4 MiB */

/* Messages in one datagram, and its largest size. */
#define RMEM_BUNDLE_MAX 16U
#define RMEM_DATAGRAM_BYTES_MAX (RMEM_BUNDLE_MAX * RMEM_HDR_BYTES + RMEM_PIECE_BYTES_MAX)

/* A response's type is its request's with RMEM_RESPONSE set. */
#define RMEM_RESPONSE 0x80

enum rmem_type {
	/*
	 * Start a session. In: session 0, or the one to be renewed, boot 0, id: a nonce fresh for
	 * each attempt to open; payload rmem_open. Out: session named by the node,
	 * boot, the nonce as id; payload rmem_opened. The same nonce again
	 * gets the same session while that is unused. Of one client later attempts have larger
	 * nonces, beginning anywhere; one below its session's is a late copy and gets no answer.
	 */
	RMEM_OPEN = 1,
	/*
	 * End the session; no payload. Repeating it is answered RMEM_NO_SESSION. Its floor
	 * acknowledges, as any.
	 */
	RMEM_CLOSE = 2,
	/* Reserve a range of addresses. Payload rmem_alloc; out: rmem_range; to be acknowledged. */
	RMEM_ALLOC = 3,
	/* Give a whole range back. Payload rmem_range, as ALLOC answered it. */
	RMEM_FREE = 4,
	/*
	 * len bytes at addr, in packets of at most piece bytes. Out: one
	 * packet each, with offset and len of the part it carries; the parts
	 * are cut at multiples of piece. An error is one packet, without
	 * payload; parts may come before it. Memory never written reads as zero.
	 */
	RMEM_READ = 5,
	/* len bytes of payload to addr. Each packet has its own id and answer. */
	RMEM_WRITE = 6,
	/* The range's content may be forgotten; whole pages in it are freed. */
	RMEM_DISCARD = 7,
	/* The range reads as zero from now on; whole pages in it are freed. */
	RMEM_ZERO = 8,
	/*
	 * Read, change and write the little-endian integer of len bytes at addr, as one
	 * step: no other message is executed between. len is 4 or 8, or 16 where the node's
	 * processor can do that, and divides addr. Header's op says how; payload
	 * rmem_operands, out: rmem_found, what was there before.
	 */
	RMEM_ATOMIC = 9,
	/*
	 * No payload, len and addr 0. Answered when all requests whose execution the node had
	 * begun, of whatever client, are executed.
	 */
	RMEM_FENCE = 10,
	/*
	 * Data, and then an integer by which somebody learns that it's there: len bytes to addr, as
	 * WRITE, and afterwards the change of an integer, as ATOMIC, under one id. Who finds the
	 * integer changed, and then asks for the data, gets it; so the data is first where the two
	 * overlap, too. Either both are done or neither: what is wrong with one of them refuses
	 * both. Header's op says how the integer is changed, all ops but CAS; payload rmem_put,
	 * then the data, 1 byte at least, together what a packet carries at most. Out:
	 * rmem_found.
	 */
	RMEM_PUT = 11,
	/*
	 * Many READs that are short, under one header and id: addr is 0, op the number of ranges,
	 * 1 up to RMEM_RANGES_MAX; payload as many rmem_range, len bytes in all. Out: one packet,
	 * with the bytes of all ranges in their order; so len is what a packet carries at most.
	 * What is wrong with one range refuses all.
	 */
	RMEM_READV = 12,
	/*
	 * WRITEs, the same way: payload the ranges, then their data, together what a packet
	 * carries at most; header's len is of the data alone. Written in the order of the ranges,
	 * which may overlap. All are written or none.
	 */
	RMEM_WRITEV = 13,
	RMEM_TYPE_END
};

/* What is there afterwards. Of 16 bytes there are SWAP and CAS only. */
enum rmem_atomic_op {
	RMEM_SWAP = 1, /* value */
	RMEM_CAS = 2,  /* value if compare was there, else what was there */
	RMEM_ADD = 3,  /* the sum with value, modulo 2^bits */
	RMEM_AND = 4,
	RMEM_OR = 5,
	RMEM_XOR = 6,
	RMEM_MIN = 7, /* the lesser of it and value, unsigned */
	RMEM_MAX = 8,
	RMEM_SMIN = 9, /* the same, signed */
	RMEM_SMAX = 10,
	RMEM_ATOMIC_OP_END
};

enum rmem_integrity {
	RMEM_LINK = 0,
	RMEM_DIGEST = 1,
	RMEM_FULL = 2,
};

/* flags: enum rmem_integrity of the session in the low bits. Others than these are 0. */
#define RMEM_FLAGS_INTEGRITY 0x03
/*
 * In requests: another one of the session follows at once. If it comes in a datagram of its
 * own, the node may keep answers back to bundle them with that one's; some milliseconds at
 * most, should it be lost.
 */
#define RMEM_FLAGS_MORE 0x04

/* In responses. Only RMEM_OK carries a payload. */
enum rmem_status {
	RMEM_OK = 0,
	RMEM_DAMAGED = 1,    /* payload arrived damaged: send it again, at once */
	RMEM_BUSY = 2,	     /* no zeroed page, session slot or place for a result: later */
	RMEM_NO_SESSION = 3, /* the node doesn't know this session (any more) */
	RMEM_REBOOTED = 4,   /* the request names another boot; header has the current one */
	RMEM_STALE = 5,	     /* id below the session's floor: sender has long gone on */
	RMEM_FAULT = 6,	     /* address not allocated in this space */
	RMEM_PERM = 7,	     /* region or space doesn't permit this */
	RMEM_INVALID = 8,    /* a length, alignment or op that can't be; id beyond the window */
	RMEM_NO_MEMORY = 9,  /* ALLOC: larger than what is left, of memory or of regions */
	RMEM_STATUS_COUNT
};

struct rmem_hdr {
	__u8 version;	 /* RMEM_VERSION */
	__u8 type;	 /* enum rmem_type, RMEM_RESPONSE */
	__u8 flags;	 /* RMEM_FLAGS_* */
	__u8 status;	 /* enum rmem_status; 0 in requests */
	__le32 space;	 /* RAS id, not 0 */
	__le64 session;	 /* as named by the node; in OPEN: to be renewed, or 0 */
	__le64 boot;	 /* node's boot epoch, random and not 0; 0 in OPEN */
	__le64 id;	 /* of this message in its session; from 1 up */
	__le64 floor;	 /* requests: oldest id outstanding, <= id; responses: 0 */
	__le64 addr;	 /* first byte in the RAS; READ responses: the request's */
	__le32 len;	 /* bytes asked for, or of data carried if there is any */
	__le32 offset;	 /* READ responses: of this part in the request; else 0 */
	__le16 piece;	 /* READ requests: payload bytes per response packet; else 0 */
	__u8 attempt;	 /* of the request, wrapping; echoed, so a round trip is unambiguous */
	__u8 op;	 /* ATOMIC, PUT: enum rmem_atomic_op; READV, WRITEV: ranges; echoed */
	__le32 digest;	 /* RMEM_DIGEST: CRC32C of the payload, 0 without one; else 0 */
	__u8 tag[8];	 /* SipHash-2-4, little-endian; see above */
};

#define RMEM_HDR_BYTES 72
#define RMEM_TAGGED_BYTES 64 /* of the header; the tag is last */

/*
 * Payloads. In messages that carry one of these, header's addr is 0 and len is the payload's
 * size; but of ATOMIC, PUT, READV and WRITEV they are what is said there.
 */
struct rmem_open {
	__u8 client[16];  /* names the client for good; opening supersedes its older sessions */
	__u8 integrity;	  /* enum rmem_integrity, of the session */
	__u8 reserved;	  /* 0 */
	__le16 datagram_bytes; /* answers are bundled up to this; 0: each travels alone */
	__u8 reserved2[4]; /* 0 */
};

struct rmem_opened {
	__le64 memory_bytes; /* the node's, all */
	__le64 free_bytes;   /* not yet promised to a region */
	__le32 page_bytes;   /* unit of ALLOC and of freeing */
	__le32 piece_bytes;  /* largest payload of a packet the node takes or sends */
	__u8 renewed;	     /* 1: it's the session that OPEN named; 0: a new one */
	__u8 reserved[7];    /* 0 */
};

#define RMEM_PERM_READ 1
#define RMEM_PERM_WRITE 2

struct rmem_alloc {
	__le64 bytes;	 /* rounded up to pages */
	__le64 addr;	 /* wanted, page-aligned, or 0; the answer may differ */
	__le32 perm;	 /* RMEM_PERM_*; WRITE without READ is refused */
	__le32 reserved; /* 0 */
};

/* READV, WRITEV: bytes is 1 or more. */
struct rmem_range {
	__le64 addr;
	__le64 bytes;
};

/* Of ATOMIC; the integer's first 8 bytes come first, what it doesn't have is 0. */
struct rmem_operands {
	__le64 value[2];
	__le64 compare[2]; /* CAS; else 0 */
};

struct rmem_found {
	__le64 value[2];
};

/* Of PUT, before the data: the integer. */
struct rmem_put {
	__le64 addr;	 /* a multiple of bytes */
	__le64 value;	 /* its first bytes, as many as the integer has */
	__le32 bytes;	 /* 4 or 8 */
	__le32 reserved; /* 0 */
};

/*
 * An ALLOC or FREE that is repeated under its id is answered as the first time,
 * while its id is in the window; an ALLOC whose region was freed since, RMEM_NO_MEMORY.
 * Addresses of a freed range aren't given out again in the node's boot, so a late copy
 * finds RMEM_FAULT.
 */

#ifdef __cplusplus
#define RMEM_ASSERT static_assert
#else
#define RMEM_ASSERT _Static_assert
#endif

RMEM_ASSERT(sizeof(struct rmem_hdr) == RMEM_HDR_BYTES, "header has no padding");
RMEM_ASSERT(__builtin_offsetof(struct rmem_hdr, session) == 8, "session");
RMEM_ASSERT(__builtin_offsetof(struct rmem_hdr, addr) == 40, "addr");
RMEM_ASSERT(__builtin_offsetof(struct rmem_hdr, piece) == 56, "piece");
RMEM_ASSERT(__builtin_offsetof(struct rmem_hdr, tag) == RMEM_TAGGED_BYTES, "tag is last");
RMEM_ASSERT(sizeof(struct rmem_open) == 24, "open");
RMEM_ASSERT(sizeof(struct rmem_opened) == 32, "opened");
RMEM_ASSERT(sizeof(struct rmem_alloc) == 24, "alloc");
RMEM_ASSERT(sizeof(struct rmem_range) == 16, "range");
RMEM_ASSERT(sizeof(struct rmem_operands) == 32, "operands");
RMEM_ASSERT(sizeof(struct rmem_found) == 16, "found");
RMEM_ASSERT(sizeof(struct rmem_put) == 24, "put");
RMEM_ASSERT(__builtin_offsetof(struct rmem_put, bytes) == 16, "bytes of the integer");

#undef RMEM_ASSERT

#endif
