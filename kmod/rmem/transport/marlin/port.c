// SPDX-License-Identifier: GPL-2.0
/*
 * rmem_node_marlin.ko: the node's port at Marlin. In the softirq that polls the rings:
 *
 *   port_receive: form, lengths -> room for the answers? -> space known? -> tag, if it has one
 *     |
 *   each message: digest, rmem_port_request() --> port_answer --> record in the client's memory
 *
 * Requests that name a loan take other ways: port_loan.c.
 *
 * While this module is loaded, the node of this machine serves the peers of the bridge, too. It
 * can't be removed while that node is started.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/netlink.h>
#include <linux/slab.h>

#include "compat/compat.h"
#include "rmem/transport/marlin/port.h"

/* Kept free of answers to requests in the ring: for those of the slow path, which can't wait. */
#define PORT_ROOM_KEPT 4
/* A client tells of those it has taken when they are a quarter of the ring. */
#define PORT_ROOM_UNTOLD (MARLIN_RESPONSES / 4 - 1)
/* Largest room that a node waits for, for the answers to one request: there will be as much. */
#define PORT_ROOM_MAX (MARLIN_RESPONSES - PORT_ROOM_UNTOLD - PORT_ROOM_KEPT)

/* The answers to an honest client's request have room: a READ's parts, and its last answer. */
static_assert(RMEM_READ_BYTES_MAX / 8192 + 1 <= PORT_ROOM_MAX);

/* There is one node. Set while the rings call it. */
static struct port *port_open_one;

/* ---- paths ---- */

void port_path_init(struct rmem_port_path *path, unsigned int port, u16 number)
{
	memset(path, 0, sizeof(*path));
	path->peer.addr[0] = 1;
	path->peer.addr[15] = port;
	path->peer.port = number;
	path->own[0] = port;
}

/* ---- answers ---- */

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

int port_post(unsigned int to, struct marlin_room *room, u32 (*write)(void *arg, u8 *record),
	      void *arg)
{
	switch (marlin_message_send(MARLIN_NODE, to, room, write, arg)) {
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

int port_send(struct port_tx *out, struct marlin_room *room)
{
	const unsigned int to = port_of(out->path);

	if (out->head->type == (RMEM_OPEN | RMEM_RESPONSE))
		out->writer.loan = port_copies_of(to);
	/* Unlike any of UDP's, which begin with a CPU's number. */
	out->head->number = BIT_ULL(63) | atomic64_inc_return(&out->port->number);
	return port_post(to, room, port_write, out);
}

static int port_answer(struct rmem_port_batch *batch, struct rmem_head *head,
		       const struct rmem_port_data *data, u32 room_bytes)
{
	struct port *port = container_of(batch->port, struct port, port);
	struct port_copy *copy = port_copy_of(batch);
	struct port_tx out = {
		.port = port,
		.path = &batch->path,
		.key = batch->key,
		.head = head,
		.data = data,
	};
	int err;

	if (likely(!copy))
		return port_send(&out, &port->room);
	if (port_copy_takes(copy, head, data, &err))
		return err;
	return port_send(&out, &copy->room);
}

static void port_answered(struct rmem_port_batch *batch, u32 slot)
{
}

/* The answer to a request that names a loan leaves by itself. */
static void port_flush(struct rmem_port_batch *batch)
{
	struct port *port = container_of(batch->port, struct port, port);

	if (!port_copy_of(batch))
		marlin_message_ring(MARLIN_NODE, port_of(&batch->path), &port->room);
}

static void port_reply(struct rmem_port *port, const struct rmem_port_path *path,
		       const struct base_siphash_key *key, const struct rmem_seal_key *seal,
		       struct rmem_head *head, const void *payload)
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

bool port_reserve(struct marlin_room *room, unsigned int from, u32 answers)
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

/* ---- requests, in ---- */

static enum marlin_verdict port_receive(unsigned int from, const u8 *record, u32 bytes)
{
	struct port *port = port_open_one;
	struct rmem_marlin_reader *reader = &port->reader;
	struct port_batch batch = { .batch.port = &port->port };
	enum rmem_wire_verdict verdict;
	struct rmem_marlin_record r;

	if (!rmem_marlin_reader_open(reader, record, bytes, false, &verdict))
		return MARLIN_BROKEN;
	if (verdict == RMEM_WIRE_GOOD && reader->epoch) {
		enum port_lent lent;

		if (!port_verifies(reader, &batch.batch, bytes))
			return MARLIN_TAKEN;
		lent = port_receive_lent(port, from, bytes);
		if (lent != PORT_LENT_NOT)
			return lent == PORT_LENT_LATER ? MARLIN_LATER : MARLIN_TAKEN_LONG;
	}
	if (verdict == RMEM_WIRE_GOOD &&
	    !port_reserve(&port->room, from, rmem_marlin_reader_answers(reader)))
		return MARLIN_LATER;
	if (verdict != RMEM_WIRE_GOOD) {
		rmem_port_drop(RMEM_PORT_WIRE + verdict, bytes);
		return MARLIN_TAKEN;
	}
	if (!port_verifies(reader, &batch.batch, bytes))
		return MARLIN_TAKEN;
	port_path_init(&batch.batch.path, from, reader->path);
	while (rmem_marlin_reader_step(reader, &r))
		rmem_port_request(&batch.batch, &r.record);
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
	if (!port_copies_init(port)) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the port's copies");
		kvfree(port);
		return ERR_PTR(-ENOMEM);
	}
	port_open_one = port;
	err = marlin_messages_register(MARLIN_NODE, &port_messages);
	if (err) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "no port at Marlin: error %d", -err);
		port_copies_free(port);
		kvfree(port);
		return ERR_PTR(err);
	}
	return &port->port;
}

static void port_close(struct rmem_port *port)
{
	struct port *mine = container_of(port, struct port, port);

	marlin_messages_unregister(MARLIN_NODE);
	port_copies_wait(mine);
	port_open_one = NULL;
	port_copies_free(mine);
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
MODULE_VERSION(REMORA_VERSION);
