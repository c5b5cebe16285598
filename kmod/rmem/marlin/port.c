// SPDX-License-Identifier: GPL-2.0
/*
 * rmem_node_marlin.ko: the node's port at Marlin. In the softirq that polls the rings:
 *
 *   port_receive: form, lengths -> room for the answers? -> space known? -> tag, if it has one
 *     |
 *   each message: digest, rmem_port_request() --> port_answer --> record in the client's memory
 *
 * A READ that names a loan (include/remora/marlin.h) takes another way, if it can:
 *
 *   rmem_port_request() --> port_copy_add: parts --> marlin_loan_copy --> port_copied: the answer
 *
 * While this module is loaded, the node of this machine serves the peers of the bridge, too. It
 * can't be removed while that node is started.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/netlink.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "compat/compat.h"
#include "rmem/marlin/record.h"
#include "rmem_port_ops.h"

/* Kept free of answers to requests in the ring: for those of the slow path, which can't wait. */
#define PORT_ROOM_KEPT 4
/* A client tells of those it has taken when they are a quarter of the ring. */
#define PORT_ROOM_UNTOLD (MARLIN_RESPONSES / 4 - 1)
/* Room for the answers to one request that a node waits for, at most: there will be so much. */
#define PORT_ROOM_MAX (MARLIN_RESPONSES - PORT_ROOM_UNTOLD - PORT_ROOM_KEPT)

/* The answers to an honest client's request have room: a READ's parts, and its last answer. */
static_assert(RMEM_READ_BYTES_MAX / 8192 + 1 <= PORT_ROOM_MAX);

static bool loans;
module_param(loans, bool, 0644);
MODULE_PARM_DESC(loans, "copy the data of READs to pages that clients lend (default: no)");

/* Copies to loans that are under way at once. A READ beyond is answered with data. */
#define PORT_COPIES 8

/* A READ whose data is copied to a loan. */
struct port_copy {
	struct marlin_loan_copy loan; /* first */
	struct port *port;
	struct rmem_port_path path;
	struct marlin_room room; /* for the answer */
	struct rmem_head head;	 /* of the first answer */
	u32 bytes;		 /* collected */
	bool refused;		 /* the READ was, and answered so */
	bool overflow;		 /* parts[] has no room for the READ */
	u32 pages;		 /* held, one for each stretch of the data */
	struct scatter_pieces remote;
	struct page *page[SCATTER_PARTS];
	struct scatter_part parts[SCATTER_PARTS];
	struct hrdma_slot slots[SCATTER_PARTS];
	struct marlin_loan_piece pieces[MARLIN_LOAN_PIECES];
};

struct port {
	struct rmem_port port; /* first */
	atomic64_t number; /* of answers */
	/* The poll's: one record at a time, and room for the answers to it. */
	struct rmem_marlin_reader reader;
	struct marlin_room room;
	struct port_copy *copy; /* the request's; or NULL */

	unsigned long copies_used; /* bits: of copies[] */
	wait_queue_head_t copies_none;
	struct port_copy copies[PORT_COPIES];
};

/* There is one node. Set while the rings call it. */
static struct port *port_open_one;

/* ---- paths ---- */

/* In rmem_port_path.own: the client's machine and path. */
static unsigned int port_of(const struct rmem_port_path *path)
{
	return path->own[0];
}

/* An address of no network (RFC 6666's discard prefix), which no client by UDP has. */
static void port_path_init(struct rmem_port_path *path, unsigned int port, u16 number)
{
	memset(path, 0, sizeof(*path));
	path->peer.addr[0] = 1;
	path->peer.addr[15] = port;
	path->peer.port = number;
	path->own[0] = port;
}

/* ---- answers ---- */

struct port_tx {
	struct rmem_marlin_writer writer;
	struct port *port;
	const struct rmem_port_path *path;
	const struct base_siphash_key *key;
	struct rmem_head *head;
	const struct rmem_port_data *data; /* or NULL, and */
	const void *payload; /* contiguous, or NULL */
};

static void port_write_stretch(void *arg, struct page *page, const void *data, u32 bytes)
{
	rmem_marlin_writer_add(arg, data, bytes);
}

static u32 port_write(void *arg, u8 *record)
{
	struct port_tx *out = arg;

	rmem_marlin_writer_begin(&out->writer, record, out->head, out->key);
	if (out->data && !out->data->walk(out->data, port_write_stretch, &out->writer))
		return 0;
	if (out->payload)
		rmem_marlin_writer_add(&out->writer, out->payload,
				       rmem_wire_payload_bytes(out->head));
	return rmem_marlin_writer_end(&out->writer, out->path->peer.port);
}

static int port_send(struct port_tx *out, struct marlin_room *room)
{
	int err;

	if (out->head->type == (RMEM_OPEN | RMEM_RESPONSE))
		out->writer.loan = READ_ONCE(loans) && marlin_loan_ram(port_of(out->path)) ?
					   MARLIN_LOAN_COPIES :
					   0;
	/* Unlike any of UDP's, which begin with a CPU's number. */
	out->head->number = BIT_ULL(63) | atomic64_inc_return(&out->port->number);
	err = marlin_message_send(MARLIN_NODE, port_of(out->path), room, port_write, out);
	switch (err) {
	case 0:
		rmem_port_count(RMEM_PORT_ANSWERS);
		return 0;
	case -EFAULT:
		return -EFAULT;
	case -ENOTCONN:
		rmem_port_count(RMEM_PORT_NO_ROUTE);
		return -ENOMEM;
	default:
		rmem_port_count(RMEM_PORT_NO_BUFFER);
		return -ENOMEM;
	}
}

static void port_copy_stretch(void *arg, struct page *page, const void *data, u32 bytes)
{
	struct port_copy *copy = arg;

	copy->overflow |= !page || copy->pages == SCATTER_PARTS ||
			  !marlin_loan_add(copy->parts, &copy->loan.request.count, &copy->remote,
					   virt_to_phys((void *)data), bytes);
	if (copy->overflow)
		return;
	get_page(page);
	copy->page[copy->pages++] = page;
}

/* The data of an answer becomes parts of a copy. */
static int port_copy_add(struct port_copy *copy, const struct rmem_head *head,
			 const struct rmem_port_data *data)
{
	if (!copy->bytes)
		copy->head = *head;
	copy->bytes += head->len;
	return data->walk(data, port_copy_stretch, copy) ? 0 : -EFAULT;
}

static int port_answer(struct rmem_port_batch *batch, struct rmem_head *head,
		       const struct rmem_port_data *data, u32 room_bytes)
{
	struct port *port = container_of(batch->port, struct port, port);
	struct port_copy *copy = port->copy;
	struct port_tx out = {
		.port = port,
		.path = &batch->path,
		.key = batch->key,
		.head = head,
		.data = data,
	};

	if (likely(!copy))
		return port_send(&out, &port->room);
	if (head->status == RMEM_OK && data)
		return port_copy_add(copy, head, data);
	copy->refused = true;
	return port_send(&out, &copy->room);
}

static void port_answered(struct rmem_port_batch *batch, u32 slot)
{
}

static void port_flush(struct rmem_port_batch *batch)
{
	struct port *port = container_of(batch->port, struct port, port);

	marlin_message_ring(MARLIN_NODE, port_of(&batch->path), &port->room);
}

static void port_reply(struct rmem_port *port, const struct rmem_port_path *path,
		       const struct base_siphash_key *key, struct rmem_head *head,
		       const void *payload)
{
	struct port_tx out = {
		.port = container_of(port, struct port, port),
		.path = path,
		.key = key,
		.head = head,
		.payload = payload,
	};
	struct marlin_room room = {};

	/* Without room the client asks again. */
	marlin_message_reserve(MARLIN_NODE, port_of(path), 1, 0, &room);
	port_send(&out, &room);
	marlin_message_ring(MARLIN_NODE, port_of(path), &room);
}

/* ---- requests ---- */

/* Answers wait in no queue: a request waits, in the ring, until they have room. */
static bool port_reserve(struct marlin_room *room, unsigned int from, u32 answers)
{
	u32 wanted = min(answers, PORT_ROOM_MAX);

	if (marlin_message_reserve(MARLIN_NODE, from, wanted, PORT_ROOM_KEPT, room) >= wanted)
		return true;
	marlin_message_release(MARLIN_NODE, from, room);
	/* If there is some by now, the poll runs again at once. */
	marlin_message_wait(MARLIN_NODE, from, wanted + PORT_ROOM_KEPT);
	return false;
}

/*
 * Plain messages have no tag: only this peer writes into its ring, and the core asks whether their
 * session was opened by their path.
 */
static bool port_verifies(struct rmem_marlin_reader *reader, struct rmem_port_batch *batch,
			  u32 bytes)
{
	if (reader->plain)
		return rmem_port_takes(batch->port, bytes);
	batch->key = rmem_port_key(batch->port, reader->in.head.space, bytes);
	if (!batch->key)
		return false;
	return rmem_marlin_reader_verifies(reader, batch->key) ||
	       rmem_port_drop(RMEM_PORT_WIRE + RMEM_WIRE_TAG, bytes);
}

/* ---- copies to loans ---- */

/* Of a READ that the reader has; NULL: it is to be answered with data. */
static struct port_copy *port_copy_get(struct port *port, unsigned int from)
{
	const struct rmem_marlin_reader *reader = &port->reader;
	const struct rmem_head *head = &reader->plains[0].head;
	unsigned long which = find_first_zero_bit(&port->copies_used, PORT_COPIES);
	struct port_copy *copy;

	if (which == PORT_COPIES || head->type != RMEM_READ)
		return NULL;
	copy = &port->copies[which];
	copy->remote = (struct scatter_pieces){
		.pieces = copy->pieces,
		.count = rmem_marlin_reader_pieces(reader, copy->pieces),
	};
	if (!marlin_loan_holds(from, &copy->remote, head->len))
		return NULL;
	/* Of the poll alone; others clear bits. */
	set_bit(which, &port->copies_used);
	copy->loan.request.count = 0;
	copy->loan.port = from;
	copy->loan.number = reader->loan;
	copy->loan.epoch = reader->epoch;
	copy->bytes = 0;
	copy->refused = false;
	copy->overflow = false;
	copy->pages = 0;
	copy->room = (struct marlin_room){};
	port_path_init(&copy->path, from, reader->path);
	return copy;
}

/* An answer leaves, if there is one, and what room is left. BH disabled. */
static void port_copy_put(struct port_copy *copy)
{
	struct port *port = copy->port;

	marlin_message_ring(MARLIN_NODE, copy->loan.port, &copy->room);
	while (copy->pages)
		put_page(copy->page[--copy->pages]);
	clear_bit_unlock(copy - port->copies, &port->copies_used);
	wake_up_all(&port->copies_none);
}

/* marlin_loan_copy() has ended: one answer for the whole READ. */
static void port_copied(struct marlin_loan_copy *loan)
{
	struct port_copy *copy = container_of(loan, struct port_copy, loan);
	struct port_tx out = {
		.writer.loan = loan->number,
		.writer.epoch = loan->epoch,
		.port = copy->port,
		.path = &copy->path,
		.head = &copy->head,
	};

	copy->head.offset = copy->head.len;
	copy->head.len = copy->bytes;
	port_send(&out, &copy->room);
	port_copy_put(copy);
}

enum port_lent {
	PORT_LENT_DONE,	 /* copied, refused, or nothing that anybody waits for */
	PORT_LENT_LATER, /* there is no room for the answer */
	PORT_LENT_NOT,	 /* to be answered with data */
};

static enum port_lent port_receive_lent(struct port *port, unsigned int from,
					struct rmem_port_batch *batch)
{
	struct port_copy *copy = port_copy_get(port, from);
	struct rmem_marlin_record r;
	int err = 0;

	if (!copy)
		return PORT_LENT_NOT;
	if (!port_reserve(&copy->room, from, 1)) {
		port_copy_put(copy);
		return PORT_LENT_LATER;
	}
	port->copy = copy;
	rmem_marlin_reader_step(&port->reader, &r);
	rmem_port_request(batch, &r.record);
	port->copy = NULL;
	if (copy->bytes && !copy->refused) {
		err = copy->overflow ? -E2BIG : marlin_loan_copy(&copy->loan);
		if (!err)
			return PORT_LENT_DONE;
	}
	port_copy_put(copy);
	/* The client has ended the READ, or an earlier request for it is being answered. */
	if (!err || err == -ESTALE || err == -EALREADY)
		return PORT_LENT_DONE;
	rmem_marlin_reader_rewind(&port->reader);
	return PORT_LENT_NOT;
}

/* ---- requests, in ---- */

static enum marlin_verdict port_receive(unsigned int from, const u8 *record, u32 bytes)
{
	struct port *port = port_open_one;
	struct rmem_marlin_reader *reader = &port->reader;
	struct rmem_port_batch batch = { .port = &port->port };
	enum port_lent lent = PORT_LENT_NOT;
	enum rmem_wire_verdict verdict;
	struct rmem_marlin_record r;

	if (!rmem_marlin_reader_open(reader, record, bytes, false, &verdict))
		return MARLIN_BROKEN;
	if (verdict == RMEM_WIRE_GOOD && reader->epoch && READ_ONCE(loans)) {
		if (!port_verifies(reader, &batch, bytes))
			return MARLIN_TAKEN;
		port_path_init(&batch.path, from, reader->path);
		lent = port_receive_lent(port, from, &batch);
	}
	if (lent != PORT_LENT_NOT)
		return lent == PORT_LENT_LATER ? MARLIN_LATER : MARLIN_TAKEN;
	if (verdict == RMEM_WIRE_GOOD &&
	    !port_reserve(&port->room, from, rmem_marlin_reader_answers(reader)))
		return MARLIN_LATER;
	if (verdict != RMEM_WIRE_GOOD) {
		rmem_port_drop(RMEM_PORT_WIRE + verdict, bytes);
		return MARLIN_TAKEN;
	}
	if (!port_verifies(reader, &batch, bytes))
		return MARLIN_TAKEN;
	port_path_init(&batch.path, from, reader->path);
	while (rmem_marlin_reader_step(reader, &r))
		rmem_port_request(&batch, &r.record);
	if (reader->plain && reader->plain_rest != RMEM_WIRE_GOOD)
		rmem_port_drop(RMEM_PORT_WIRE + reader->plain_rest, bytes);
	return MARLIN_TAKEN;
}

static void port_settle(unsigned int from)
{
	struct port *port = port_open_one;

	marlin_message_ring(MARLIN_NODE, from, &port->room);
	rmem_port_settle(&port->port);
}

static const struct marlin_message_ops port_messages = {
	.receive = port_receive,
	.settle = port_settle,
};

/* ---- life ---- */

static const struct rmem_port_ops port_ops;

static struct rmem_port *port_open(struct node_host *node, const struct rmem_port_config *config,
				   struct netlink_ext_ack *extack)
{
	struct port *port = kvzalloc(sizeof(*port), GFP_KERNEL);
	int err;

	if (!port) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the port at Marlin");
		return ERR_PTR(-ENOMEM);
	}
	port->port.ops = &port_ops;
	port->port.node = node;
	init_waitqueue_head(&port->copies_none);
	for (unsigned int i = 0; i < PORT_COPIES; i++) {
		struct port_copy *copy = &port->copies[i];

		copy->port = port;
		copy->loan.request.parts = copy->parts;
		copy->loan.request.slots = copy->slots;
		copy->loan.done = port_copied;
	}
	port_open_one = port;
	err = marlin_messages_register(MARLIN_NODE, &port_messages);
	if (err) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "no port at Marlin: error %d", -err);
		kvfree(port);
		return ERR_PTR(err);
	}
	return &port->port;
}

static void port_close(struct rmem_port *port)
{
	struct port *mine = container_of(port, struct port, port);

	marlin_messages_unregister(MARLIN_NODE);
	wait_event(mine->copies_none, !READ_ONCE(mine->copies_used));
	/* The end of the last copy may be about to wake this thread. */
	synchronize_net();
	port_open_one = NULL;
	kvfree(mine);
}

static const struct rmem_port_ops port_ops = {
	.name = "marlin",
	.owner = THIS_MODULE,
	.open = port_open,
	.close = port_close,
	.answer = port_answer,
	.answered = port_answered,
	.flush = port_flush,
	.reply = port_reply,
};

static int __init port_init(void)
{
	return rmem_port_register(&port_ops);
}

static void __exit port_exit(void)
{
	rmem_port_unregister(&port_ops);
}

module_init(port_init);
module_exit(port_exit);

MODULE_DESCRIPTION("Remora memory node: port at Marlin");
MODULE_LICENSE("GPL");
