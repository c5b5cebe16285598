/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The node's port at Marlin: types and functions that its files share.
 *
 *   port.c        requests, answers, life
 *   port_loan.c   requests that name a loan
 */
#ifndef REMORA_RMEM_MARLIN_PORT_H
#define REMORA_RMEM_MARLIN_PORT_H

#include <linux/mm_types.h>
#include <linux/wait.h>

#include "rmem/carrier/record.h"
#include "rmem_port_ops.h"

/* Copies that are under way at once. */
#define PORT_COPIES 8

/* A READ whose data is copied to a loan, or a WRITE whose data is copied from one. */
struct port_copy {
	struct marlin_loan_copy loan; /* first */
	struct port *port;
	struct rmem_port_path path;
	struct marlin_room room; /* for the answers */
	struct rmem_head head;	 /* of a READ's first answer; of a WRITE, the request's */
	bool overflow;		 /* parts[] has no room for the data */
	struct scatter_pieces remote;
	struct scatter_part parts[SCATTER_PARTS];
	struct hrdma_slot slots[SCATTER_PARTS];
	struct marlin_loan_piece pieces[MARLIN_LOAN_PIECES];
	/* A READ's. */
	u32 bytes;    /* collected */
	bool refused; /* and answered so */
	u32 pages;    /* held, one for each stretch of the data */
	struct page *page[SCATTER_PARTS];
	/* A WRITE's. */
	u8 *data; /* RMEM_READ_BYTES_MAX, of whole pages */
	u32 answers;
	struct rmem_head answer[MARLIN_LOAN_WRITES];
};

struct port {
	struct rmem_port port; /* first */
	atomic64_t number; /* of answers */
	/* The poll's: one record at a time, and room for the answers to it. */
	struct rmem_marlin_reader reader;
	struct marlin_room room;

	unsigned long copies_used; /* bits: of copies[] */
	bool copies_awaited;	   /* a record was left for later, until a copy ends */
	wait_queue_head_t copies_none;
	u8 *copies_data; /* of all copies */
	struct port_copy copies[PORT_COPIES];
};

/* A batch, as port_answer() needs it. */
struct port_batch {
	struct rmem_port_batch batch; /* first */
	struct port_copy *copy; /* of the only request, which names a loan; or NULL */
};

static inline struct port_copy *port_copy_of(struct rmem_port_batch *batch)
{
	return container_of(batch, struct port_batch, batch)->copy;
}

/* In rmem_port_path.own: the client's machine and path. */
static inline unsigned int port_of(const struct rmem_port_path *path)
{
	return path->own[0];
}

/* ---- port.c ---- */

/* An address of no network (RFC 6666's discard prefix), which no client by UDP has. */
void port_path_init(struct rmem_port_path *path, unsigned int port, u16 number);

/* An answer of one message. */
struct port_tx {
	struct rmem_marlin_writer writer;
	struct port *port;
	const struct rmem_port_path *path;
	const struct base_siphash_key *key;
	struct rmem_head *head;
	const struct rmem_port_data *data; /* or NULL, and */
	const void *payload; /* contiguous, or NULL */
};

/* -EFAULT: its data is gone. -ENOMEM: it wasn't sent, counted. */
int port_send(struct port_tx *out, struct marlin_room *room);
/* The same of a record that write() makes. */
int port_post(unsigned int to, struct marlin_room *room, u32 (*write)(void *arg, u8 *record),
	      void *arg);
/* Answers wait in no queue: a request waits, in the ring, until they have room. */
bool port_reserve(struct marlin_room *room, unsigned int from, u32 answers);

/* ---- port_loan.c ---- */

bool port_copies_init(struct port *port);
/* No request is received any more: waits for the copies that are under way. */
void port_copies_wait(struct port *port);
void port_copies_free(struct port *port);

/* Does this node copy a client's loans? MARLIN_LOAN_*, or 0. */
u16 port_copies_of(unsigned int from);

enum port_lent {
	PORT_LENT_DONE,	 /* copied, refused, or nothing that anybody waits for */
	PORT_LENT_LATER, /* there is no room for the answers, or its client's copies are too many */
	PORT_LENT_NOT,	 /* to be answered with data */
};

/* The request that the reader has, which names a loan and was verified. */
enum port_lent port_receive_lent(struct port *port, unsigned int from, u32 bytes);
/* An answer to such a request. False: it is to be sent. */
bool port_copy_takes(struct port_copy *copy, const struct rmem_head *head,
		     const struct rmem_port_data *data, int *err);

#endif
