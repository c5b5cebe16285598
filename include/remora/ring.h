/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Rings by one-sided writes, version 1. This header is their specification; include/README.md has
 * the glossary. MUST, MUST NOT and MAY bind both ends. After Orca (HPCA'23), sections III-A to
 * III-C.
 *
 * A client and a node have a pair of rings, which no other client shares:
 *
 *       client                                               node's memory
 *   request writer  -- entries ----------------------------> request ring
 *                   -- entries posted, one word -----------> pointer buffer, a word per ring
 *   response reader -- entries taken, one word ------------> response credit
 *
 *       client's memory                                      node
 *   response ring   <---------------------------- entries -- response writer
 *   request credit  <------------- entries taken, one word -- request reader
 *
 * Both ends write into the other's memory. An end MUST NOT read the other's memory, for reading can
 * be slow or impossible, as over a bus. Flags of an end that sleeps or watches are the exception:
 * the other end reads them. All fields are little-endian. Each word is aligned, and is read and
 * written as a whole.
 *
 * Entries. A ring has a power of two of entries, all of the same size. An entry is struct
 * ring_head, and then the bytes of one record. Entry n of a ring's life, from 0 up, lies at place
 * n modulo the number of entries. Counts of entries wrap at 2^32.
 *   - word tells that the entry is valid, its number n, and the bytes of its record.
 *   - A writer MUST write the record before word. An entry whose word is 0 is empty.
 *   - A reader MUST read word once, check it, and only then read the record. It MUST read each
 *     byte of the record once, or copy it first: the writer can still write.
 *   - A reader that has taken an entry MUST write 0 to word before it counts the entry as taken.
 *
 * Credit. A writer MUST NOT have more entries posted and not yet taken than the ring has. It knows
 * the entries taken from the credit word in its own memory, which the reader writes.
 *   - A reader MUST write the credit word when it has taken a quarter of the ring's entries, or
 *     more, since it last did. It MAY write it at any time.
 *   - The word MUST NOT run backwards, nor beyond the entries posted.
 *
 * Pointer buffer. The node watches one region for all requests: a word for each request ring. A
 * client writes there how many entries it has posted, after the entries themselves. It MAY write it
 * once for many entries. The word MUST NOT run backwards, nor beyond the entries posted. Its change
 * tells the node how many entries came. The change MAY become visible before the entries do. A node
 * MAY also look at a ring's next entry itself, and take it before the word tells of it.
 *
 * Sleeping. An end that is going to sleep sets its flag to 1, and then looks once more at all that
 * the other end writes. An end that has written an entry's word, a pointer or a credit word then
 * reads the other end's flag. If that is 1, it MUST set it to 0 and then wake the other end. An end
 * MUST NOT sleep while its flag is 0. Between its write and its read each end MUST have a full
 * barrier that makes the write visible to the other end. Over a bus that takes a read of the
 * written word.
 *
 * Watching. A client on one machine that waits by its socket, with poll() say, sets client_watches
 * to 1, and then looks once more. The node reads that flag where it reads client_sleeps. If it is
 * 1, the node MUST set it to 0 and then send a message of one byte by the socket. It MUST NOT wait
 * for room there. The byte has no meaning.
 *
 * Closing. An end that finds a rule broken MUST stop using the pair, and tell its operator the
 * rule. It MUST NOT let other pairs suffer.
 *
 * Visibility. On one machine, stores with release order and loads with acquire order fulfil this.
 * A window whose writes are combined or posted needs its own barrier before each word.
 */
#ifndef REMORA_RING_H
#define REMORA_RING_H

#include <linux/types.h>

#define RING_VERSION 1

/* Entries begin at cache lines. */
#define RING_LINE_BYTES 64

/* Shapes: entries, a power of two; bytes of an entry with its head, multiples of RING_LINE_BYTES */
#define RING_ENTRIES_MIN 2
#define RING_ENTRIES_MAX 1024
#define RING_ENTRY_BYTES_MAX 65536

struct ring_head {
	__le32 bytes;  /* of the record, 0 to entry size less the head; RING_VALID is set */
	__le32 number; /* n */
};

/* struct ring_head is one 64-bit word: bytes are its lower half. */
#define RING_HEAD_BYTES 8
#define RING_VALID 0x80000000U

/*
 * Pairs on one machine ("shm"). A client connects to the node's Unix socket, of type
 * SOCK_SEQPACKET. The node MUST check the client's credentials. It sends one struct
 * ring_offer, with the descriptors of two files of memory if answer is RING_OFFERED:
 *   1. the pair: struct ring_pair, then the request ring, then the response ring, each at a
 *      multiple of RING_PAGE_BYTES; both ends map it for writing
 *   2. struct ring_page, a page of the pointer buffer; both ends map it for writing, and so do
 *      other clients of the same user, but no client of another user
 * Both MUST be sealed against shrinking. The client MUST check sizes, seals and shapes.
 * Records are datagrams or plain messages of the memory protocol (remora/rmem.h). The pair ends
 * when either end closes the socket. To wake an end is to wake one waiter of the futex that is
 * its flag.
 */
#define RING_PAGE_BYTES 4096

#define RING_OFFERED 0
#define RING_REFUSED_USER 1 /* this user has no right to use the node */
#define RING_REFUSED_FULL 2 /* the node has no ring left, or this user has its share of them */
#define RING_REFUSED_ERROR 3 /* the node has no memory or no descriptors */

struct ring_shape {
	__le32 entries;
	__le32 entry_bytes;
};

struct ring_offer {
	__le32 version; /* RING_VERSION */
	__le32 answer; /* RING_OFFERED or RING_REFUSED_* */
	struct ring_shape request;
	struct ring_shape response;
	__le64 request_offset; /* in file 1 */
	__le64 response_offset; /* in file 1 */
	__le64 pair_bytes; /* size of file 1 */
	__le32 pointer; /* the client's word in file 2: 0 to RING_POINTERS_MAX - 1 */
	__le32 reserved; /* 0 */
};

#define RING_OFFER_BYTES 56

/* Words that one end writes often have a line of their own. */
struct ring_pair {
	/* the client's memory, written by the node */
	__le32 request_credit;
	__u8 pad1[RING_LINE_BYTES - 4];
	/* the node's memory, written by the client */
	__le32 response_credit;
	__u8 pad2[RING_LINE_BYTES - 4];
	/* the client's flags, 0 or 1: it sleeps; it watches the socket */
	__le32 client_sleeps;
	__le32 client_watches;
	__u8 pad3[RING_LINE_BYTES - 8];
};

#define RING_POINTERS_MAX 1008

struct ring_page {
	__le32 node_sleeps; /* the node's flag, 0 or 1 */
	__u8 pad[RING_LINE_BYTES - 4];
	__le32 pointer[RING_POINTERS_MAX];
};

#ifdef __cplusplus
#define RING_ASSERT static_assert
#else
#define RING_ASSERT _Static_assert
#endif

RING_ASSERT(sizeof(struct ring_head) == RING_HEAD_BYTES, "head is one word");
RING_ASSERT(__builtin_offsetof(struct ring_head, number) == 4, "number");
RING_ASSERT(RING_ENTRY_BYTES_MAX < RING_VALID, "bytes leave room for the flag");
RING_ASSERT(sizeof(struct ring_offer) == RING_OFFER_BYTES, "offer has no padding");
RING_ASSERT(__builtin_offsetof(struct ring_offer, request_offset) == 24, "request_offset");
RING_ASSERT(__builtin_offsetof(struct ring_offer, pointer) == 48, "pointer");
RING_ASSERT(sizeof(struct ring_pair) == 3 * RING_LINE_BYTES, "a line for each word");
RING_ASSERT(__builtin_offsetof(struct ring_pair, response_credit) == RING_LINE_BYTES,
	    "response_credit");
RING_ASSERT(__builtin_offsetof(struct ring_pair, client_sleeps) == 2 * RING_LINE_BYTES,
	    "client_sleeps");
RING_ASSERT(__builtin_offsetof(struct ring_pair, client_watches) == 2 * RING_LINE_BYTES + 4,
	    "client_watches");
RING_ASSERT(sizeof(struct ring_page) == RING_PAGE_BYTES, "a page");
RING_ASSERT(__builtin_offsetof(struct ring_page, pointer) == RING_LINE_BYTES, "pointer");

#undef RING_ASSERT

#endif
