/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Marlin, version 7: frames (Ethernet over PCIe, EOP) and messages between machines that have
 * memory windows into each other by non-transparent bridges. This header is the specification;
 * include/README.md has the glossary. MUST, MUST NOT and MAY bind both ends. After Marlin
 * (ANCS'14), section 3.4.
 *
 * Each ordered pair of machines, a writer and a reader, has 1, 2 or 4 rings of frames. They lie
 * in the reader's memory, behind the window that the writer has there. For each of them:
 *
 *     writer                                              reader's memory
 *       frames, one after the other ----------------------> ring
 *       "I sleep for room" -------------------------------> writer_sleeps
 *     writer's memory                                       reader
 *       tail          <------------------------------------ bytes taken, lazily
 *       reader_sleeps <------------------------------------ "I sleep until you ring"
 *
 * A window therefore holds, for ring k, struct marlin_window at k * MARLIN_WINDOW_BYTES, written by
 * the peer, and at MARLIN_RING_OFFSET + k * the bytes of a ring the ring that the same peer fills.
 * All fields are little-endian. A machine MUST read each shared word once, and check the copy. A
 * machine SHOULD read a peer's memory only before it sleeps, for locks, and where marlin_grants.h
 * or "Loans" says so.
 *
 * Rings. A machine chooses how many rings peers have in its memory, and their bytes; its pair words
 * say so. A writer MUST use only rings whose number is below the rings of both machines. It SHOULD
 * choose by the frame's flow, so that the frames of a flow stay in order. Both directions of a flow
 * SHOULD have the same ring: a reader that waits for an answer looks there.
 *
 * Ring. A position counts bytes from the start of a session, and wraps at 2^32. Position p lies
 * at offset p modulo the ring's bytes, a power of two. A record is struct marlin_record and then
 * the bytes of one frame. It begins at a multiple of MARLIN_LINE_BYTES, and takes a multiple of it.
 * A frame MAY continue at the ring's start where its end is reached.
 *   - A writer MUST write the record, and 0 into the word where the next record will begin, before
 *     it writes the record's own word. So it MUST keep MARLIN_LINE_BYTES of the ring free.
 *   - A word that is 0 says that no record has come. A valid word tells the frame's bytes and the
 *     record's position.
 *   - A reader MUST write the tail when it has taken a quarter of the ring's bytes since it last
 *     did, and before it sleeps. It MAY write it at any time. The tail MUST NOT run backwards, nor
 *     beyond the bytes posted.
 *
 * Sleeping. An end that is going to sleep sets its flag to 1 in the other end's memory, and then
 * reads any word of that memory. It then looks once more at all that the other end writes. An end
 * that has posted records, or moved the tail, then reads the other end's flag in its own memory,
 * behind a full barrier. If that is 1, it MUST set it to 0 and then ring the other end's doorbell.
 *
 * Order. A store across a bus is posted: it arrives some time later, and no end waits for it. These
 * rules of a bus make the read of the one end do for both, so the end that writes reads nothing:
 *   - stores of a machine to another arrive in the order in which they left;
 *   - a read arrives behind the stores that left before it, so it pushes them;
 *   - the completion of a read arrives behind the stores that left the other machine before it.
 * So the writer's store has arrived when the reader's read is completed, or the reader's store had
 * arrived before the writer looked behind its barrier. Bridges and both machines MUST NOT use
 * relaxed or ID-based ordering for these windows. A doorbell arrives behind earlier stores.
 *
 * Messages. Behind the rings of frames a window has struct marlin_messages, with the rings of
 * remora/ring.h by which a client and a node exchange messages. Each machine can be both:
 *
 *     client                                              node's memory
 *       requests --------------------------------------->   request, entries
 *       requests posted -------------------------------->   request_pointer
 *       responses taken -------------------------------->   response_credit
 *     client's memory                                     node
 *       response, entries <------------------------------   responses
 *       request_credit <---------------------------------   requests taken
 *
 * A node has no pointer buffer in one piece, since its windows lie apart: a word in each.
 *   - A record is struct marlin_message_head, and then a datagram or plain messages of
 *     remora/rmem.h, whose client is the path that the head names. A response has the path of its
 *     request. A plain message's session MUST have been opened by the same path.
 *   - A machine without a node, or without such a client, MUST take the records and drop them.
 *   - A writer MUST have made an entry visible before it writes the pointer.
 *   - The ends sleep and wake as above, with the flag message_sleeps.
 *
 * Loans. A client MAY lend memory of its own for the data of a READ or WRITE. The node then copies
 * the data there, or from there, by itself, and the messages carry none. It takes a memory window
 * that shows all of the client's RAM: offset in the window = physical address.
 *   - Each machine has MARLIN_LOANS loans to a peer. A loan is lent while its word lent[] in the
 *     client's memory is its epoch, which is not 0. A client MUST NOT use an epoch twice.
 *   - A request that names a loan is one plain READ or WRITE. Behind it are 1 to
 *     MARLIN_LOAN_PIECES structs marlin_loan_piece, together as long as the data or longer.
 *   - A client MAY send up to MARLIN_LOAN_WRITES WRITEs in a row of addresses and ids as one such
 *     WRITE, with a part. Each but the last one has part bytes. Together they have
 *     RMEM_READ_BYTES_MAX at most.
 *   - A node that copies MUST, in this order: set the loan's word copies[] in the client's memory
 *     to the epoch; make that visible, which over a bus takes a read; read the loan's word lent[],
 *     and not copy if it isn't the epoch; copy; set the word copies[] to 0, after all of the copy.
 *     It MUST have at most one copy of a loan under way. Its waits during the copy, and its duties
 *     before it leaves the stage READY, are those of marlin_grants.h.
 *   - The answer to a READ then names the loan. It is one plain message with the READ's addr and
 *     len, without payload. Its part is the length of the parts that an answer with data would have
 *     had. WRITEs are executed when their data has been copied, and answered as any other.
 *   - A node MAY answer a READ that names a loan as any other. It MAY refuse to copy the data of a
 *     WRITE: it answers RMEM_DAMAGED for the first, and none of them is executed. It MAY drop a
 *     request if the loan is lent no more, or if a copy for an earlier request is under way.
 *   - A node that copies says so: its answer to OPEN has MARLIN_LOAN_COPIES for a loan, or
 *     MARLIN_LOAN_READS if it copies the data of READs only, and epoch 0. A client MUST NOT name a
 *     loan in a session whose OPEN was not answered so.
 *   - A node MUST NOT execute a WRITE, nor answer a READ, whose data it copied while the link might
 *     have been down, be it for an instant: bytes might be lost, or no data.
 *   - A client takes a loan back by setting its word lent[] to 0, and making that visible. From
 *     then on, no copy is under way while the word copies[] is not the loan's epoch.
 *
 * Doorbells. With n the highest port plus 1, and h the number of the highest valid bit, each port
 * has s = h / n bits, rounded down: bits p * s to p * s + s - 1 are port p's.
 *   - Bit p * s + k rings for records, and room, of ring k at port p. A machine MUST NOT have more
 *     rings in its memory than MARLIN_RINGS_MAX, nor than s - 1, or 1 if s is 1.
 *   - Bit p * s + s - 1 rings for messages and copies at port p.
 *   - Bit h says that a pair word might have changed. A machine rings it after each change of one
 *     of its pair words.
 *
 * Scratchpads of a machine, which only the machine itself writes:
 *   MARLIN_SPAD_VERSION   MARLIN_MAGIC | MARLIN_VERSION
 *   MARLIN_SPAD_MAC_LOW   bytes 0 to 3 of its interface's MAC address, byte 0 lowest
 *   MARLIN_SPAD_MAC_HIGH  bytes 4 and 5, and MARLIN_PLAIN: a machine MUST NOT send frames to this
 *                         one whose struct marlin_offload is not 0. It is read when a link starts
 *   MARLIN_SPAD_PAIR + p  its pair word for port p
 *
 * Pair words, by which the two machines of a link start together. A pair word has a stage, the
 * machine's own session number, and the peer's session number as the machine last read it:
 *   MARLIN_STAGE_DOWN     the machine has no interest in the peer
 *   MARLIN_STAGE_HELLO    the machine writes nothing into the peer's memory until both are READY
 *   MARLIN_STAGE_READY    in the machine's memory each ring's struct marlin_window and first word,
 *                         the words of struct marlin_messages but lent[], and its entries' words,
 *                         are 0, and the peer MAY write there once it is READY itself
 * Two pair words match if each names the other's own session. A machine goes
 *   - from DOWN to HELLO when its interface and the link are up, under a new session number, which
 *     MUST NOT be the one that the peer's word names;
 *   - from HELLO to READY when the peer's word matches and has stage HELLO or READY;
 *   - from READY to HELLO, under a new session number, when the peer's word no longer matches or is
 *     DOWN, when the peer broke a rule, or when the link was down since it became READY, be it up
 *     again: stores of that time are lost. The number tells the peer to start again, too.
 * A machine exchanges frames and messages while both words match and have stage READY.
 */
#ifndef REMORA_MARLIN_H
#define REMORA_MARLIN_H

#include <linux/types.h>

#define MARLIN_MAGIC 0x4d524c00u /* "\0LRM" */
#define MARLIN_VERSION 7u

#define MARLIN_LINE_BYTES 64
#define MARLIN_RINGS_MAX 4
#define MARLIN_WINDOW_BYTES 256
#define MARLIN_RING_OFFSET 36864 /* behind the table of marlin_grants.h */
#define MARLIN_RING_BYTES_MIN (1u << 17) /* more than a record of the largest frame */
#define MARLIN_RING_BYTES_MAX (1u << 30)

/* An Ethernet header with a VLAN tag, and an IP packet of 64 KiB. */
#define MARLIN_FRAME_BYTES_MIN 14
#define MARLIN_FRAME_BYTES_MAX (65536 + 18)

/*
 * Work left to the receiver, as in VIRTIO's struct virtio_net_hdr; 0: none. The GSO type is none,
 * TCPv4 or TCPv6, with or without ECN, and then gso_bytes is at least MARLIN_GSO_BYTES_MIN. A
 * reader MUST drop a frame with another.
 */
struct marlin_offload {
	__u8 flags;
	__u8 gso_type;
	__le16 header_bytes;
	__le16 gso_bytes;
	__le16 checksum_start;
	__le16 checksum_offset;
} __attribute__((packed));

/* TCP's smallest segment. A frame becomes 1,366 packets at most. */
#define MARLIN_GSO_BYTES_MIN 48

struct marlin_record {
	__le32 bytes; /* of the frame; MARLIN_VALID is set */
	__le32 position; /* of the record. bytes and position are one aligned word */
	struct marlin_offload offload;
} __attribute__((packed));

#define MARLIN_VALID 0x80000000u
/* So the frame's network header begins at a multiple of 32 in the ring. */
#define MARLIN_RECORD_BYTES 18

struct marlin_window {
	__le32 tail; /* position up to which the peer has taken the frames of this machine */
	__u8 reserved[60];
	__le32 reader_sleeps; /* the peer waits for frames of this machine */
	__u8 reserved2[60];
	__le32 writer_sleeps; /* the peer waits until this machine moves its tail */
	__u8 reserved3[60];
};

#define MARLIN_LOANS 64 /* of a client to a node: more than its requests, and those being copied */
#define MARLIN_LOAN_PIECES 144 /* of a request: a disk's largest has 128 */
#define MARLIN_LOAN_WRITES 32 /* of a request */

#define MARLIN_REQUESTS 16
/* Room for the answers to a request of the largest work, with a quarter of the ring untold. */
#define MARLIN_RESPONSES 64
/* An entry's word, the message's head, and the longest datagram. Plain messages are shorter. */
#define MARLIN_ENTRY_BYTES 9280

struct marlin_message_head {
	__le16 path; /* of the client, which chooses it */
	__le16 loan; /* below MARLIN_LOANS; or MARLIN_LOAN_COPIES, MARLIN_LOAN_READS */
	__le32 epoch; /* of the loan; 0: the message names none */
};

/* In the answer to OPEN, for a loan: the node copies this client's. Otherwise it is 0. */
#define MARLIN_LOAN_COPIES 0xffffu
#define MARLIN_LOAN_READS 0xfffeu

/* A piece of a client's memory. */
struct marlin_loan_piece {
	__le64 address; /* physical */
	__le32 bytes; /* 1 or more */
	__le32 reserved; /* 0 */
};

/* All words but lent[] are written by the peer. */
struct marlin_messages {
	__le32 request_pointer; /* requests to this machine that were posted */
	__u8 reserved[60];
	__le32 request_credit; /* requests of this machine that were taken */
	__u8 reserved2[60];
	__le32 response_credit; /* responses of this machine that were taken */
	__u8 reserved3[60];
	__le32 message_sleeps; /* the peer waits for anything that this machine writes here */
	__u8 reserved4[60];
	__le32 lent[MARLIN_LOANS]; /* to the peer, which reads it; can be other than 0 at a start */
	__le32 copies[MARLIN_LOANS]; /* loans to the peer, that it copies to or from */
	__u8 request[MARLIN_REQUESTS][MARLIN_ENTRY_BYTES]; /* to this machine */
	__u8 response[MARLIN_RESPONSES][MARLIN_ENTRY_BYTES];
};

#define MARLIN_SPAD_VERSION 0
#define MARLIN_SPAD_MAC_LOW 1
#define MARLIN_SPAD_MAC_HIGH 2
#define MARLIN_SPAD_PAIR 3

#define MARLIN_PLAIN 0x10000u

#define MARLIN_STAGE_DOWN 0u
#define MARLIN_STAGE_HELLO 1u
#define MARLIN_STAGE_READY 2u

/*
 * A pair word: bits 0-11 the own session, 12-23 the peer's; of the rings in own memory, 24-27 log2
 * of the bytes of each by MARLIN_RING_BYTES_MIN, and 28-29 log2 of how many; 30-31 the stage.
 */
#define MARLIN_SESSION_MASK 0xfffu
#define MARLIN_PEER_SESSION_SHIFT 12
#define MARLIN_RING_LOG_SHIFT 24
#define MARLIN_RING_LOG_MASK 0xfu
#define MARLIN_RING_LOG_MIN 17
#define MARLIN_RINGS_LOG_SHIFT 28
#define MARLIN_RINGS_LOG_MASK 3u
#define MARLIN_STAGE_SHIFT 30
#define MARLIN_STAGE_MASK 3u

#ifdef __cplusplus
#define MARLIN_ASSERT static_assert
#else
#define MARLIN_ASSERT _Static_assert
#endif

MARLIN_ASSERT(sizeof(struct marlin_record) == MARLIN_RECORD_BYTES, "layout");
MARLIN_ASSERT(__builtin_offsetof(struct marlin_record, offload) == 8, "layout");
MARLIN_ASSERT(__builtin_offsetof(struct marlin_window, reader_sleeps) == 64, "layout");
MARLIN_ASSERT(__builtin_offsetof(struct marlin_window, writer_sleeps) == 128, "layout");
MARLIN_ASSERT(sizeof(struct marlin_window) <= MARLIN_WINDOW_BYTES, "layout");
MARLIN_ASSERT(MARLIN_RINGS_MAX * MARLIN_WINDOW_BYTES <= MARLIN_RING_OFFSET, "layout");
MARLIN_ASSERT(MARLIN_RING_BYTES_MIN == 1u << MARLIN_RING_LOG_MIN, "layout");
MARLIN_ASSERT(__builtin_offsetof(struct marlin_messages, message_sleeps) == 192, "layout");
MARLIN_ASSERT(__builtin_offsetof(struct marlin_messages, request) == 768, "layout");
MARLIN_ASSERT(MARLIN_ENTRY_BYTES % MARLIN_LINE_BYTES == 0, "entries begin at cache lines");
MARLIN_ASSERT(sizeof(struct marlin_message_head) == 8, "layout");
MARLIN_ASSERT(sizeof(struct marlin_loan_piece) == 16, "layout");
MARLIN_ASSERT(MARLIN_RECORD_BYTES + MARLIN_FRAME_BYTES_MAX + 2 * MARLIN_LINE_BYTES <=
		      MARLIN_RING_BYTES_MIN,
	      "an empty ring has room for any frame");

#undef MARLIN_ASSERT

#endif
