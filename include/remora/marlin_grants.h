/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Marlin's copies from application to application across machines (CMMC), version 2: grants. This
 * header is the specification; include/README.md has the glossary. MUST, MUST NOT and MAY bind both
 * ends. After Marlin (ANCS'14), sections 3.2 and 3.5.
 *
 * An owner grants a range of pages to one peer. The peer's machine, the initiator, then reads and
 * writes those pages by itself: no message is exchanged, and the owner's processor takes no part.
 * It needs a memory window that shows all of the owner's RAM: offset in the window = physical
 * address.
 *
 *     initiator's memory                                       owner
 *       table[index]: word, key, directory  <----- writes ------ once per grant, and its revocation
 *     owner's memory                                           initiator
 *         directory -> lists -> pages       <----- reads ------- once per grant and epoch
 *       pages                               <-- reads, writes -- the copy
 *       copy[k], behind the peer's window   <----- writes ------ "a copy of grant i is under way"
 *       signal[i], behind the peer's window <----- writes ------ "grant i was written"
 *
 * All fields are little-endian. A machine MUST read each shared word once, and check the copy. The
 * grants belong to a session of marlin.h. The struct at MARLIN_GRANTS_OFFSET and the table at
 * MARLIN_TABLE_OFFSET of both windows are 0 when a session starts. A machine that leaves the stage
 * READY MUST have ended all its copies before it writes that pair word, and MUST have set its copy
 * words to 0.
 *
 * Order. marlin.h has the rules of a bus by which one end's load orders the stores of both.
 *
 * Table. The owner has one for each peer, of MARLIN_GRANTS entries, in that peer's memory. It is
 * behind the owner's window there. The owner alone writes it.
 *
 * Entry. Its word is the epoch << MARLIN_GRANT_EPOCH_SHIFT, with the state below. An owner MUST NOT
 * use an entry's epoch twice. It changes the other fields only while the state isn't
 * MARLIN_GRANT_LIVE and no copy of the entry can be under way. It writes the word last, and makes
 * it visible before it passes the handle on.
 *
 * Copy. An initiator MUST, in this order:
 *   1. set a copy word that is 0 to a sequence number << MARLIN_COPY_SEQUENCE_SHIFT | index + 1.
 *      The sequence number MUST be another than the word's last;
 *   2. have a full barrier, behind which that store precedes the completion of any later load of
 *      its memory;
 *   3. read the entry's word. If it isn't live with the handle's epoch, go to 5;
 *   4. copy, or read the directory and lists. If the link was down since the session began, be it
 *      for an instant, nothing of that counts: stores might be lost, and loads have given all ones;
 *   5. set the copy word to 0, ordered behind all of 4, and have a full barrier;
 *   6. read the entry's word again. If it doesn't hold as in step 3 any more, ring the owner's
 *      doorbell.
 * Between 1 and 5 it MUST NOT wait for anything but a DMA engine of its own. It MUST stop an engine
 * that takes longer than MARLIN_COPY_MS_MAX, and end the copy without it.
 *
 * Revocation. An owner sets the state to MARLIN_GRANT_REVOKED, and then reads any word of the
 * initiator's memory. That read makes the state visible there, and copy words of copies that did
 * not see it visible here. The owner then reads all copy words. A copy is under way while its word
 * is the one that the owner read then, and names the entry. When no such word is left, no copy can
 * touch the pages any more. This holds if the link was not down since the session began: a copy
 * word that was on its way then is lost. Otherwise the initiator's copies have ended when it has
 * left the stage READY of that session. An owner that might be told of an outage late MUST take
 * another value than it wrote, where it reads, for an outage; and an initiator that might MUST read
 * its copy word back before step 3, and go to 5 unless it is there.
 *
 * Signal. An initiator that wrote to a grant MAY add 1 to its signal word, and then ring the
 * owner's doorbell. The store MUST be ordered behind the data. An owner MUST ignore a signal if the
 * link was down since the session began: the data might be lost.
 *
 * Doorbell. A grant whose only right is MARLIN_GRANT_BELL has no pages, but a queue of numbers: its
 * directory is the physical address of a struct marlin_bell, a multiple of 64. All of that is 0
 * when the grant begins. To ring it, an initiator does as for a copy. In step 4 it reads `rung` and
 * `taken`. If MARLIN_BELL_NUMBERS numbers are not taken, there is no room. Otherwise it MUST write
 * number[rung % MARLIN_BELL_NUMBERS] and, ordered behind that, `rung` + 1. It then signals. The
 * owner takes numbers in order, and tells so by `taken`.
 *
 * Lists. The directory is a page of physical addresses of list pages, a list is a page of physical
 * addresses of the grant's pages. Entry n of the grant is entry n % 512 of list n / 512.
 */
#ifndef REMORA_MARLIN_GRANTS_H
#define REMORA_MARLIN_GRANTS_H

#include <linux/types.h>

#define MARLIN_GRANTS_OFFSET 1024 /* in a window */
#define MARLIN_TABLE_OFFSET 4096 /* likewise */
#define MARLIN_GRANTS 512	  /* of an owner to one peer */
#define MARLIN_COPIES 32	  /* of an initiator at one owner, at once */
#define MARLIN_COPY_MS_MAX 1000	  /* longest wait of a copy for a DMA engine, ms */

#define MARLIN_PAGE_BYTES 4096
#define MARLIN_LIST_PAGES (MARLIN_PAGE_BYTES / 8)
/* 1 GiB of whole pages. */
#define MARLIN_GRANT_PAGES_MAX (MARLIN_LIST_PAGES * MARLIN_LIST_PAGES)

#define MARLIN_GRANT_FREE 0u
#define MARLIN_GRANT_LIVE 1u
#define MARLIN_GRANT_REVOKED 2u
#define MARLIN_GRANT_STATE_MASK 3u
#define MARLIN_GRANT_EPOCH_SHIFT 2

#define MARLIN_GRANT_READ 1u /* the peer MAY read */
#define MARLIN_GRANT_WRITE 2u
#define MARLIN_GRANT_BELL 4u /* the peer MAY ring; with no other right */

#define MARLIN_BELL_NUMBERS 256 /* most numbers that the owner has not taken; a power of two */

#define MARLIN_COPY_SEQUENCE_SHIFT 16

struct marlin_grant {
	__le64 word;
	__le64 key[2];	  /* at random; a handle must have it */
	__le64 directory; /* physical address, page-aligned */
	__le64 bytes;
	__le32 offset; /* of the first byte in the first page */
	__le32 rights;
	__u8 reserved[16];
};

struct marlin_grants_window {
	__le64 copy[MARLIN_COPIES];
	__le32 signal[MARLIN_GRANTS];
};

struct marlin_bell {
	__le32 rung; /* the initiator's: numbers that it ever wrote */
	__u8 reserved1[60];
	__le32 taken; /* the owner's */
	__u8 reserved2[60];
	__le64 number[MARLIN_BELL_NUMBERS];
};

/* A grant's name, which programs pass to each other. They MUST take it for opaque. */
struct marlin_handle {
	__le32 magic; /* MARLIN_HANDLE_MAGIC */
	__le16 index;
	__u8 owner; /* port of the machine whose memory it is */
	__u8 peer;  /* port of the machine that MAY use it */
	__le64 epoch;
	__le64 key[2];
};

#define MARLIN_HANDLE_MAGIC 0x31484d52u /* "RMH1" */

#ifdef __cplusplus
#define MARLIN_ASSERT static_assert
#else
#define MARLIN_ASSERT _Static_assert
#endif

MARLIN_ASSERT(sizeof(struct marlin_grant) == 64, "layout");
MARLIN_ASSERT(__builtin_offsetof(struct marlin_grants_window, signal) == 256, "layout");
MARLIN_ASSERT(MARLIN_GRANTS_OFFSET + sizeof(struct marlin_grants_window) <= MARLIN_TABLE_OFFSET,
	      "the table begins there");
MARLIN_ASSERT(__builtin_offsetof(struct marlin_bell, number) == 128, "layout");
MARLIN_ASSERT(sizeof(struct marlin_handle) == 32, "layout");

#undef MARLIN_ASSERT

#endif
