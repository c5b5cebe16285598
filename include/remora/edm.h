/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * EDM datagrams, version 1. This header is their specification. MUST, MUST NOT and MAY bind hosts
 * and schedulers.
 *
 * After EDM (ASPLOS'25), section 3.1. A scheduler grants every chunk of data that one host sends to
 * another. It never books a port for two chunks at a time. All fields are little-endian. Datagrams
 * travel in UDP; the scheduler's default port is EDM_PORT.
 *
 *   source                 scheduler                destination
 *     DEMAND (WRITE) -------> |                          |     a write: its source announces it
 *       | <----------- GRANT  |                          |
 *     DATA ------------------------------------------->  |
 *       |                     | <------------- REQUEST   |     a read: its destination announces it
 *       | <--------- FORWARD  |                          |
 *       | <----------- GRANT  |                          |
 *     DATA ------------------------------------------->  |
 *
 * Source and destination are those of the data. The announcer of a message is the source of a
 * write and the destination of a read.
 *
 * Ports and lives. The operator gives each host a port, 0 to EDM_PORTS_MAX - 1, and the scheduler's
 * 128-bit key.
 *   - An epoch names one life of a host, never 0. A later life MUST have a greater epoch. Epochs
 *     compare modulo 2^32: one is greater if it is ahead by less than 2^31.
 *   - A life names one life of a scheduler. A scheduler draws it at random, never 0.
 *   - seq numbers the datagrams that one end sends in an epoch and a life, from 1. A receiver MUST
 *     drop a datagram whose seq is not greater than each seq before it.
 *
 * Joining. A host sends JOIN with cookie 0. The scheduler answers CHALLENGE and keeps no state.
 *   - The host MUST repeat JOIN with that cookie. The scheduler then answers WELCOME.
 *   - A scheduler MUST ignore a JOIN for a port whose lease runs for another address.
 *   - A JOIN with the known epoch and address changes nothing. The scheduler answers it by WELCOME.
 *   - Another JOIN with a right cookie and no greater epoch is of a host whose clock went back. The
 *     scheduler answers CHALLENGE with the least greater epoch, which the host MUST join with.
 *   - A JOIN with a greater epoch ends every demand that the port has announced.
 *
 * Leases. Every DEMAND and REQUEST renews the host's lease, and the leases of the demands in it.
 *   - A host MUST send a DEMAND each quarter of a lease, for it hears of its DEMANDs alone: a
 *     REQUEST is passed on. A DEMAND MAY have no entries.
 *   - A host sets EDM_FOLLOWS while it obeys this scheduler's grants. Otherwise it is a standby's
 *     host: joined, but without demand.
 *   - A scheduler MUST NOT grant unless both ports have leases that run and follow it.
 *   - A host that has heard nothing for EDM_MUTE_LEASES MUST send nothing but JOIN.
 *     Its lease then ends before another scheduler can book its port.
 *   - A host that has heard nothing for EDM_SILENT_LEASES MAY follow another scheduler. If it has
 *     none it MAY send without grants.
 *   - A host that follows a standby SHOULD return to its first scheduler once that welcomes it. It
 *     MUST first send the standby a DEMAND without EDM_FOLLOWS. It MUST NOT follow the first one
 *     until seen in a GRANT of the standby covers that DEMAND.
 *   - A scheduler MUST treat a port as busy for a chunk's time after it begins to follow.
 *
 * Demands. An entry of DEMAND names a message by announcer and id. Entries MAY be repeated.
 *   - id modulo the scheduler's slots is the message's slot. A host MUST NOT have two messages in a
 *     slot. A later message of the slot MUST have an id that is ahead modulo 2^32.
 *   - A host MUST NOT have more than active_max messages of its own to one peer announced.
 *   - An entry with size 0 ends a message.
 *   - A source reports in granted the highest end offset that it has accepted. For a read it does
 *     so by an entry ANSWER.
 *
 * Grants. An entry of GRANT tells an end offset and the bytes before it that it grants.
 *   - The source MAY send those of the granted bytes that it has not sent. So a repeated grant is
 *     harmless.
 *   - A source MUST ignore a grant that begins beyond the offset it has accepted: one before it
 *     was lost, and the bytes of both have no place in one booking.
 *   - seen in a host's datagram is the greatest seq that it received from the scheduler.
 *   - If seen covers the datagram of a grant that the source did not accept, the grant is lost.
 *     The scheduler then books the bytes again.
 *   - A scheduler MUST answer each DEMAND by a GRANT, which MAY have no entries.
 *   - A status other than EDM_GRANTED refuses a message. The host MAY send it without grants.
 *
 * Reads. A REQUEST carries an entry READ and the request itself, which is opaque. The scheduler
 * forwards both at once to the source of the data.
 *   - A repeated REQUEST is forwarded again. The source MUST NOT execute it a second time.
 *   - A host MUST NOT use an id again while data of an earlier message with that id could arrive.
 *
 * Tags. tag is SipHash-2-4 of the datagram with tag set to 0. A receiver MUST drop a datagram whose
 * tag does not verify, without an answer.
 *   - The key of JOIN, CHALLENGE and WELCOME is the operator's.
 *   - The key of other datagrams has two words. Word i is SipHash-2-4 under the operator's key of
 *     struct edm_derive with label EDM_LABEL + i.
 *   - DATA has no tag: the payload carries the proof of the protocol above.
 */
#ifndef REMORA_EDM_H
#define REMORA_EDM_H

#include <linux/types.h>

#define EDM_VERSION 1
#define EDM_PORT 7673

/* Ports of a scheduler, and slots of a port's messages: bounds of its memory. */
#define EDM_PORTS_MAX 512
#define EDM_SLOTS_MAX 256
/* Messages that a port announces to one peer at a time; the paper uses 3. */
#define EDM_ACTIVE_MAX 8
#define EDM_CHUNK_BYTES_MAX (1u << 20)
#define EDM_LEASE_US_MIN 100u
#define EDM_LEASE_US_MAX 10000000u
#define EDM_MUTE_LEASES 2
#define EDM_SILENT_LEASES 3
#define EDM_RATE_MBPS_MAX 1600000u

/* kind: the version in the upper four bits, and below */
#define EDM_JOIN 1	/* host to scheduler: struct edm_join */
#define EDM_CHALLENGE 2 /* scheduler to host: struct edm_join */
#define EDM_WELCOME 3	/* scheduler to host: struct edm_join */
#define EDM_DEMAND 4	/* host to scheduler: struct edm_list, struct edm_entry each */
#define EDM_GRANT 5	/* scheduler to host: struct edm_list, struct edm_entry each */
#define EDM_REQUEST 6	/* host to scheduler: struct edm_request, then the request */
#define EDM_FORWARD 7	/* scheduler to host: struct edm_request, then the request */
#define EDM_DATA 8	/* source to destination: struct edm_data, then bytes of the message */

/* flags: DEMAND and REQUEST. Others are 0. */
#define EDM_FOLLOWS 0x01

/* Size and order of all but DATA: this, then the struct of the kind. */
struct edm_head {
	__u8 kind;
	__u8 flags;
	__le16 port;  /* the host's */
	__le32 epoch; /* the host's, 1 or more */
	__le32 life;  /* the scheduler's; JOIN: 0 */
	__le32 seq;   /* 1 or more; JOIN, CHALLENGE, WELCOME: 0 */
	__u8 tag[8];
};

#define EDM_HEAD_BYTES 24

/* JOIN has cookie and rate; CHALLENGE cookie alone; WELCOME all but rate. Else a field is 0. */
struct edm_join {
	__le64 cookie;	    /* JOIN: from CHALLENGE, or 0 */
	__le32 rate_mbps;   /* of the host's link, 1 to EDM_RATE_MBPS_MAX */
	__le32 chunk_bytes; /* most bytes of a grant, 1 to EDM_CHUNK_BYTES_MAX */
	__le32 lease_us;    /* EDM_LEASE_US_MIN to EDM_LEASE_US_MAX */
	__le16 slots;	    /* per port: a power of two, 1 to EDM_SLOTS_MAX */
	__u8 active_max;    /* 1 to EDM_ACTIVE_MAX */
	__u8 reserved;	    /* 0 */
};

#define EDM_JOIN_BYTES 24

/* Entries of a list; 64 of them and the heads fit an Ethernet frame of 1500 bytes. */
#define EDM_ENTRIES_MAX 64

struct edm_list {
	__le32 seen;	/* the greatest seq received from the other end, or 0 */
	__le16 count;	/* entries that follow, 0 to EDM_ENTRIES_MAX */
	__le16 reserved; /* 0 */
};

#define EDM_LIST_BYTES 8

/* type of an entry */
#define EDM_WRITE 1  /* announcer: the datagram's host, the source; peer: the destination */
#define EDM_READ 2   /* announcer: the datagram's host, the destination; peer: the source */
#define EDM_ANSWER 3 /* announcer: peer, the destination; the datagram's host is the source */

/* status of an entry in GRANT; 0 in DEMAND and REQUEST */
#define EDM_GRANTED 0
#define EDM_REFUSED_ABSENT 1 /* the peer has not followed this scheduler for a lease */
#define EDM_REFUSED_FULL 2   /* more than active_max messages to the peer */
#define EDM_REFUSED_STALE 3  /* the slot has a later message */

struct edm_entry {
	__le32 id;
	__le32 size;	/* bytes of the message; 0 ends it. GRANT: granted bytes; refusals: 0 */
	__le32 granted; /* end offset. DEMAND: accepted, 0 to size. GRANT: size or more, or 0 */
	__le16 peer;	/* another port than the host's */
	__u8 type;	/* DEMAND: any. REQUEST: READ. GRANT: WRITE or ANSWER; refusals: any */
	__u8 status;
};

#define EDM_ENTRY_BYTES 16

/* FORWARD: type ANSWER, granted 0; peer: the announcer. A GRANT follows once it is booked. */
struct edm_request {
	__le32 seen;	   /* REQUEST: as in struct edm_list. FORWARD: 0 */
	__le32 peer_epoch; /* FORWARD: the announcer's epoch. REQUEST: 0 */
	struct edm_entry entry;
};

#define EDM_REQUEST_BYTES 24
/* The request itself, 1 or more. */
#define EDM_OPAQUE_BYTES_MAX 1400

struct edm_data {
	__u8 kind;
	__u8 type;     /* EDM_WRITE or EDM_ANSWER */
	__le16 source; /* port of the sender */
	__le32 epoch;  /* the announcer's */
	__le32 id;     /* the message's */
	__le32 offset; /* of the first byte that follows, in the message */
};

#define EDM_DATA_BYTES 16

/* Input of a derived key; all fields as in the WELCOME. */
struct edm_derive {
	__le64 label; /* EDM_LABEL + i for word i, 0 or 1 */
	__le64 cookie;
	__le32 epoch;
	__le32 life;
	__le16 port;
	__le16 reserved[3]; /* 0 */
};

#define EDM_LABEL 0x45444d206b657900ull /* "EDM key" and a digit */
#define EDM_DERIVE_BYTES 32

#ifdef __cplusplus
#define EDM_ASSERT static_assert
#else
#define EDM_ASSERT _Static_assert
#endif

EDM_ASSERT(sizeof(struct edm_head) == EDM_HEAD_BYTES, "head has no padding");
EDM_ASSERT(__builtin_offsetof(struct edm_head, epoch) == 4, "epoch");
EDM_ASSERT(__builtin_offsetof(struct edm_head, tag) == 16, "tag");
EDM_ASSERT(sizeof(struct edm_join) == EDM_JOIN_BYTES, "join has no padding");
EDM_ASSERT(__builtin_offsetof(struct edm_join, slots) == 20, "slots");
EDM_ASSERT(sizeof(struct edm_list) == EDM_LIST_BYTES, "list has no padding");
EDM_ASSERT(sizeof(struct edm_entry) == EDM_ENTRY_BYTES, "entry has no padding");
EDM_ASSERT(__builtin_offsetof(struct edm_entry, peer) == 12, "peer");
EDM_ASSERT(sizeof(struct edm_request) == EDM_REQUEST_BYTES, "request has no padding");
EDM_ASSERT(sizeof(struct edm_data) == EDM_DATA_BYTES, "data has no padding");
EDM_ASSERT(__builtin_offsetof(struct edm_data, offset) == 12, "offset");
EDM_ASSERT(sizeof(struct edm_derive) == EDM_DERIVE_BYTES, "derive has no padding");
EDM_ASSERT(EDM_HEAD_BYTES + EDM_LIST_BYTES + EDM_ENTRIES_MAX * EDM_ENTRY_BYTES <= 1472,
	   "a list fits a frame");

#undef EDM_ASSERT

#endif
