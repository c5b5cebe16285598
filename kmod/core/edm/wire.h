/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * EDM datagrams in and out of their bytes (remora/edm.h). Every field is in its range once
 * edm_wire_parse() has returned EDM_WIRE_GOOD; ports are below EDM_PORTS_MAX, and the caller checks
 * them against its own number of ports.
 *
 *   head 24 | join 24                                 JOIN, CHALLENGE, WELCOME
 *   head 24 | list 8    | entry 16 | entry 16 | ...   DEMAND, GRANT
 *   head 24 | request 24           | opaque           REQUEST, FORWARD
 *   data 16 | bytes of the message                    DATA
 */
#ifndef REMORA_EDM_WIRE_H
#define REMORA_EDM_WIRE_H

#include "core/base/siphash.h"
#include "core/base/types.h"
#include "remora/edm.h"

enum edm_wire_verdict {
	EDM_WIRE_GOOD,
	EDM_WIRE_SHORT,	  /* shorter or longer than its kind and count say */
	EDM_WIRE_VERSION, /* another version, or an unknown kind */
	EDM_WIRE_RANGE,	  /* a field is out of its range, or a reserved one is not 0 */
	EDM_WIRE_VERDICTS
};

/* An entry, in the machine's byte order. */
struct edm_item {
	u32 id, size, granted;
	u16 peer;
	u8 type, status;
};

/* A datagram without its entries. Fields of other kinds are 0. */
struct edm_message {
	u8 kind;
	bool follows;	      /* DEMAND, REQUEST */
	u16 port;	      /* DATA: the source */
	u32 epoch, life, seq; /* DATA: epoch alone */
	/* JOIN, CHALLENGE, WELCOME */
	u64 cookie;
	u32 rate_mbps, chunk_bytes, lease_us;
	u16 slots;
	u8 active_max;
	/* DEMAND, GRANT, REQUEST */
	u32 seen;
	u16 count; /* entries */
	/* REQUEST, FORWARD */
	u32 peer_epoch;
	struct edm_item item;
	/* DATA */
	u8 type;
	u32 id, offset;
	/* REQUEST, FORWARD, DATA: bytes behind the headers */
	u32 payload_bytes;
};

/* Headers of the longest datagram without payload. */
#define EDM_WIRE_BYTES_MAX (EDM_HEAD_BYTES + EDM_LIST_BYTES + EDM_ENTRIES_MAX * EDM_ENTRY_BYTES)

/* Read a UDP payload. Does not look at the tag. */
enum edm_wire_verdict edm_wire_parse(struct edm_message *message, const void *data, size_t bytes);

/* Entry n of a DEMAND or GRANT that was parsed as good; n is below its count. */
void edm_wire_item(const void *data, u32 n, struct edm_item *item);

/* Bytes of the headers, with message->count entries; the payload follows them. */
u32 edm_wire_header_bytes(const struct edm_message *message);

/*
 * Write headers and entries: items has message->count of them. data has room for
 * edm_wire_header_bytes(). The tag is 0.
 */
void edm_wire_encode(const struct edm_message *message, const struct edm_item *items, void *data);

/* ---- tags: of all kinds but DATA ---- */

/* The key of an epoch and a life: fields of the WELCOME, under the operator's key. */
void edm_wire_derive(struct base_siphash_key *key, const struct base_siphash_key *operator_key,
		     const struct edm_message *welcome);

/* Write the tag of a datagram whose other bytes are complete. bytes: at least EDM_HEAD_BYTES. */
void edm_wire_seal(void *data, size_t bytes, const struct base_siphash_key *key);
bool edm_wire_verifies(const void *data, size_t bytes, const struct base_siphash_key *key);

/* Proof that a host receives at its address. address: bytes that name it. Never 0. */
u64 edm_wire_cookie(const struct base_siphash_key *secret, const void *address, size_t bytes);

#endif
