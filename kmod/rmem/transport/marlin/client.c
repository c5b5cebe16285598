// SPDX-License-Identifier: GPL-2.0
/*
 * rmem_marlin.ko: the client's transport over Marlin. A path is a number that the node sends back
 * with each answer. The paths to a node share one pair of rings.
 *
 *   lends:    client_lends(): which WRITEs does the node fetch?           under the channel's lock
 *   room:     marlin_message_reserve()                                    likewise
 *   add:      marlin_message_send(): the message into the node's memory   likewise
 *   flush:    marlin_message_ring(): the node is told, and woken          after it
 *   receive:  client_receive(), a record each                             softirq
 *   keeps:    client_keeps(): does the node still copy an op's pages?     no lock
 *
 * Address: marlin:PORT, the port of the node's machine at the bridge.
 */
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/netlink.h>

#include "remora_rmem.h"
#include "rmem/carrier/record.h"
#include "rmem_ops.h"

#define SCHEME "marlin"

static unsigned int loans = 16384;
module_param(loans, uint, 0644);
MODULE_PARM_DESC(loans,
		 "smallest READ or WRITE, in bytes, that lends its pages (default: 16384; 0: none)");

struct client_path {
	struct rmem_path path; /* first */
	unsigned int port;
	u32 number;
	u16 copies; /* loans, by the node: its last answer to OPEN says MARLIN_LOAN_*; or 0 */
	/* client_waiting_lock guards these. */
	struct list_head waiting; /* in client_waiting, or empty */
	bool quiet; /* waits no more */
	bool turn; /* was let go, and can send though others wait */
};

static_assert(MARLIN_LOAN_WRITES == RMEM_LENT_PARTS_MAX);

static struct client_path *client_path_of(struct rmem_path *path)
{
	return container_of(path, struct client_path, path);
}

/* Paths by their numbers. A receiver finds them under rcu_read_lock(). */
static DEFINE_XARRAY_ALLOC1(client_paths);
static u32 client_next_number;

/* ---- loans ---- */

/* In rmem_op.own. The loan is the op's until that has ended, and of all its data. */
struct client_loan {
	u32 epoch; /* 0: none */
	u8 port, number;
	u8 result; /* of an op that is kept */
	u8 reserved;
};

static_assert(sizeof(struct client_loan) == sizeof_field(struct rmem_op, own));

static struct client_loan *client_loan_of(struct rmem_op *op)
{
	return (struct client_loan *)&op->own;
}

/*
 * The smallest READ or WRITE that lends its pages; 0: none. Not of a device that gives up: a node
 * that stands still in a copy keeps the op.
 */
static u32 client_bytes_min(const struct client_path *mine, u8 type)
{
	const struct rmem_session *session = mine->path.session;
	u16 copies = READ_ONCE(mine->copies);

	if (session->integrity != RMEM_LINK || session->fail_after_ms || !copies ||
	    (type == RMEM_WRITE && copies != MARLIN_LOAN_COPIES))
		return 0;
	return READ_ONCE(loans);
}

static u32 client_lends(struct rmem_path *path)
{
	return client_bytes_min(client_path_of(path), RMEM_WRITE);
}

static bool client_may_lend(const struct client_path *mine, const struct rmem_client_tx *tx)
{
	u8 type = tx->head.type;
	u32 bytes_min;

	if (type != RMEM_READ && (type != RMEM_WRITE || !tx->op->lent || tx->op->single))
		return false;
	bytes_min = client_bytes_min(mine, type);
	return bytes_min && tx->op->len >= bytes_min;
}

/* The loan of the message's op, made if need be; NULL: none. Under the channel's lock. */
static const struct client_loan *client_lend(const struct client_path *mine,
					     const struct rmem_client_tx *tx)
{
	struct client_loan *loan;
	int number;
	u32 epoch;

	if (likely(!client_may_lend(mine, tx)))
		return NULL;
	loan = client_loan_of(tx->op);
	if (loan->epoch)
		return loan;
	number = marlin_loan_lend(mine->port, &epoch);
	if (number < 0)
		return NULL;
	*loan = (struct client_loan){
		.epoch = epoch,
		.port = mine->port,
		.number = number,
	};
	return loan;
}

static DEFINE_SPINLOCK(client_kept_lock); /* guards client_kept; softirqs off */
/* Ops that have ended but for a copy to their pages, linked by next. */
static struct rmem_op *client_kept;
static atomic_t client_kept_ops; /* how many, with those that a look has taken off the list */
static DECLARE_WAIT_QUEUE_HEAD(client_kept_none);
/* These ops can free memory. */
static struct workqueue_struct *client_kept_queue;
static void client_kept_look(struct work_struct *work);
static DECLARE_DELAYED_WORK(client_kept_work, client_kept_look);

/* The work looks at the op each tick: a copy is short, and a dead node tells of nothing. */
static void client_keep(struct rmem_op *op)
{
	spin_lock(&client_kept_lock);
	op->next = client_kept;
	client_kept = op;
	queue_delayed_work(client_kept_queue, &client_kept_work, 1);
	spin_unlock(&client_kept_lock);
}

static void client_kept_look(struct work_struct *work)
{
	struct rmem_op *op, *next;

	local_bh_disable();
	spin_lock(&client_kept_lock);
	op = client_kept;
	client_kept = NULL;
	spin_unlock(&client_kept_lock);
	for (; op; op = next) {
		const struct client_loan *loan = client_loan_of(op);

		next = op->next;
		if (!marlin_loan_end(loan->port, loan->number)) {
			client_keep(op);
			continue;
		}
		op->ops->end(op, loan->result);
		if (atomic_dec_and_test(&client_kept_ops))
			wake_up_all(&client_kept_none);
	}
	local_bh_enable();
}

static bool client_keeps(struct rmem_op *op, enum rmem_client_result result)
{
	struct client_loan *loan = client_loan_of(op);

	if (likely(marlin_loan_end(loan->port, loan->number)))
		return false;
	loan->result = result;
	atomic_inc(&client_kept_ops);
	client_keep(op);
	return true;
}

/* ---- out ---- */

/* A batch's own: the room that is left to it, and whether any message joined it. */
struct client_batch {
	struct marlin_room room;
	bool unrung;
};

static_assert(sizeof(struct client_batch) <= sizeof_field(struct rmem_batch, own));

static struct client_batch *client_batch_of(struct rmem_batch *batch)
{
	return (struct client_batch *)batch->own;
}

struct client_tx {
	struct rmem_marlin_writer writer;
	const struct client_path *path;
	struct rmem_client_tx *tx;
};

static bool client_write_page(void *arg, struct page *page, u32 at, u32 bytes)
{
	struct rmem_marlin_writer *writer = arg;
	u8 *from = kmap_local_page(page);

	rmem_marlin_writer_add(writer, from + at, bytes);
	kunmap_local(from);
	return true;
}

/* Pieces of a loan as they are found, those that follow each other as one. */
struct client_pieces {
	struct rmem_marlin_writer *writer;
	u64 address;
	u32 bytes; /* of the last one, not yet written; 0: there is none */
	u32 count; /* of those written */
};

static bool client_piece_write(struct client_pieces *pieces)
{
	const struct marlin_loan_piece piece = {
		.address = cpu_to_le64(pieces->address),
		.bytes = cpu_to_le32(pieces->bytes),
	};

	if (!pieces->bytes)
		return true;
	if (pieces->count == MARLIN_LOAN_PIECES)
		return false;
	rmem_marlin_writer_add(pieces->writer, &piece, sizeof(piece));
	pieces->count++;
	return true;
}

static bool client_piece_add(void *arg, struct page *page, u32 at, u32 bytes)
{
	struct client_pieces *pieces = arg;
	u64 address = page_to_phys(page) + at;

	if (pieces->address + pieces->bytes != address) {
		if (!client_piece_write(pieces))
			return false;
		pieces->address = address;
		pieces->bytes = 0;
	}
	pieces->bytes += bytes;
	return true;
}

/* The READ or WRITE, and the pages of its data. Returns 0 if those are too many pieces. */
static u32 client_write_lent(struct client_tx *out, u8 *record, const struct client_loan *loan)
{
	struct client_pieces pieces = { .writer = &out->writer };
	struct rmem_client_tx *tx = out->tx;

	out->writer.loan = loan->number;
	out->writer.epoch = loan->epoch;
	rmem_marlin_writer_begin(&out->writer, record, &tx->head, &out->path->path.session->key);
	if (!tx->op->ops->walk(tx->op, tx->data_offset, tx->head.len, client_piece_add, &pieces) ||
	    !client_piece_write(&pieces))
		return 0;
	return rmem_marlin_writer_end(&out->writer, out->path->number);
}

static u32 client_write(void *arg, u8 *record)
{
	struct client_tx *out = arg;
	struct rmem_client_tx *tx = out->tx;
	const struct client_loan *loan = client_lend(out->path, tx);
	u32 bytes;

	if (loan) {
		tx->head.plain = true;
		bytes = client_write_lent(out, record, loan);
		if (bytes)
			return bytes;
		out->writer = (struct rmem_marlin_writer){};
	}
	/* Several parts of a WRITE have no room in a record. */
	if (tx->head.type == RMEM_WRITE && tx->head.piece)
		return 0;
	/* Its session was opened by this path: OPEN is never plain. */
	tx->head.plain = rmem_plain_fits(&tx->head);
	rmem_marlin_writer_begin(&out->writer, record, &tx->head, &out->path->path.session->key);
	if (tx->payload_bytes)
		rmem_marlin_writer_add(&out->writer, rmem_client_tx_payload(tx),
				       tx->payload_bytes);
	if (tx->data_bytes && !tx->op->ops->walk(tx->op, tx->data_offset, tx->data_bytes,
						 client_write_page, &out->writer))
		return 0;
	return rmem_marlin_writer_end(&out->writer, out->path->number);
}

/* Without a link the message counts as lost. */
static bool client_add(struct rmem_path *path, struct rmem_batch *batch, struct rmem_client_tx *tx,
		       u32 row)
{
	struct client_tx out = { .path = client_path_of(path), .tx = tx };
	struct client_batch *mine = client_batch_of(batch);

	switch (marlin_message_send(MARLIN_CLIENT, out.path->port, &mine->room, client_write,
				    &out)) {
	case 0:
		mine->unrung = true;
		return true;
	case -ENOTCONN:
		rmem_path_count(path, RMEM_PATH_NO_ROUTE);
		return true;
	default:
		rmem_path_count(path, RMEM_PATH_NO_BUFFER);
		return false;
	}
}

/* ---- room ---- */

/* Paths that wait for room, oldest first. */
static LIST_HEAD(client_waiting);
static DEFINE_SPINLOCK(client_waiting_lock);

/* Reserved at a time, and a path's turn while others wait: as many as a node tells of at once. */
#define CLIENT_TURN (MARLIN_REQUESTS / 4)

/* The oldest one at a port, or NULL. */
static struct client_path *client_oldest(unsigned int port)
{
	struct client_path *each;

	lockdep_assert_held(&client_waiting_lock);
	list_for_each_entry(each, &client_waiting, waiting)
		if (each->port == port)
			return each;
	return NULL;
}

/* Room isn't for a path that comes while others wait for it. */
static bool client_is_behind(struct client_path *mine)
{
	bool behind;

	if (list_empty(&client_waiting))
		return false;
	spin_lock(&client_waiting_lock);
	behind = client_oldest(mine->port);
	/* A turn is used up by the room that it gets. */
	if (behind && mine->turn) {
		mine->turn = false;
		behind = false;
	}
	spin_unlock(&client_waiting_lock);
	return behind;
}

static u32 client_room(struct rmem_path *path, struct rmem_batch *batch)
{
	struct client_path *mine = client_path_of(path);
	u32 wanted = client_is_behind(mine) ? 0 : CLIENT_TURN;

	return marlin_message_reserve(MARLIN_CLIENT, mine->port, wanted, 0,
				      &client_batch_of(batch)->room);
}

static bool client_wait(struct rmem_path *path)
{
	struct client_path *mine = client_path_of(path);
	bool quiet;

	spin_lock(&client_waiting_lock);
	quiet = mine->quiet;
	if (!quiet && list_empty(&mine->waiting))
		list_add_tail(&mine->waiting, &client_waiting);
	spin_unlock(&client_waiting_lock);
	if (quiet || marlin_message_wait(MARLIN_CLIENT, mine->port, 1))
		return true;
	spin_lock(&client_waiting_lock);
	list_del_init(&mine->waiting);
	spin_unlock(&client_waiting_lock);
	return false;
}

/* The oldest one at a port; *more: it isn't the only one. */
static struct client_path *client_waiting_take(unsigned int port, bool *more)
{
	struct client_path *found;

	spin_lock(&client_waiting_lock);
	found = client_oldest(port);
	if (found) {
		list_del_init(&found->waiting);
		found->turn = true;
	}
	*more = client_oldest(port);
	spin_unlock(&client_waiting_lock);
	return found;
}

static void client_end_turn(struct client_path *mine)
{
	spin_lock(&client_waiting_lock);
	mine->turn = false;
	spin_unlock(&client_waiting_lock);
}

/*
 * Paths send in turn: one that finds too little room waits again, behind the others. Without a link
 * nobody would call again, so all have their turns now.
 */
static void client_has_room(unsigned int port)
{
	struct client_path *mine;
	bool more;

	do {
		mine = client_waiting_take(port, &more);
		if (mine) {
			mine->path.to->room(mine->path.channel);
			client_end_turn(mine);
		}
	} while (more && !marlin_message_wait(MARLIN_CLIENT, port, 1));
}

static void client_flush(struct rmem_path *path, struct rmem_batch *batch)
{
	struct client_batch *mine = client_batch_of(batch);

	if (mine->unrung)
		marlin_message_ring(MARLIN_CLIENT, client_path_of(path)->port, &mine->room);
	else if (mine->room.records)
		marlin_message_release(MARLIN_CLIENT, client_path_of(path)->port, &mine->room);
	mine->unrung = false;
}

/* ---- in ---- */

/* The poll's: one record at a time. */
static struct rmem_marlin_reader client_reader;
/* The path of the last of the records that came together. */
static struct client_path *client_settles;

static bool client_verify(struct rmem_path *path, enum rmem_path_count *reason)
{
	const struct rmem_session *session = path->session;
	const struct rmem_head *head = &client_reader.in.head;

	if (client_reader.plain ? session->integrity != RMEM_LINK :
				  head->space != session->space ||
					  head->integrity != session->integrity)
		*reason = RMEM_PATH_DROP_STRANGER;
	else if (!client_reader.plain &&
		 !rmem_marlin_reader_verifies(&client_reader, &session->key))
		*reason = RMEM_PATH_DROP_WIRE + RMEM_WIRE_TAG;
	else
		return true;
	return false;
}

/* After the messages of a record: the rest can be empty. */
static void client_drop_rest(struct rmem_path *path, u32 bytes)
{
	if (client_reader.plain && client_reader.plain_rest != RMEM_WIRE_GOOD)
		path->to->drop(path->channel,
			       RMEM_PATH_DROP_WIRE + client_reader.plain_rest, bytes);
}

static void client_settle(unsigned int port)
{
	if (client_settles)
		client_settles->path.to->settle(client_settles->path.channel);
	client_settles = NULL;
}

/* The data of a whole READ is in its pages: as many answers as there would have been with data. */
static void client_receive_lent(struct client_path *mine, struct rmem_marlin_record *r)
{
	const struct rmem_head *read = r->record.head;
	struct rmem_head head = *read;
	u32 part = read->offset;

	if (head.type != (RMEM_READ | RMEM_RESPONSE) || head.status != RMEM_OK ||
	    head.len > RMEM_READ_BYTES_MAX || (part < RMEM_PIECE_BYTES_MIN && part < head.len) ||
	    !marlin_loan_has(mine->port, client_reader.loan, client_reader.epoch)) {
		mine->path.to->drop(mine->path.channel, RMEM_PATH_DROP_WIRE + RMEM_WIRE_MALFORMED,
				    RMEM_PLAIN_BYTES);
		return;
	}
	r->record.head = &head;
	for (head.offset = 0; head.offset < read->len; head.offset += head.len) {
		head.len = min(part, read->len - head.offset);
		r->record.last = head.offset + head.len == read->len;
		mine->path.to->receive(mine->path.channel, &r->record);
	}
}

static void client_receive_one(struct client_path *mine, struct rmem_marlin_record *r)
{
	if (client_reader.epoch) {
		client_receive_lent(mine, r);
		return;
	}
	if (r->record.head->type == (RMEM_OPEN | RMEM_RESPONSE))
		WRITE_ONCE(mine->copies, client_reader.loan >= MARLIN_LOAN_READS ?
						 client_reader.loan : 0);
	mine->path.to->receive(mine->path.channel, &r->record);
}

static enum marlin_verdict client_receive(unsigned int port, const u8 *record, u32 bytes)
{
	struct rmem_marlin_record r;
	enum rmem_wire_verdict verdict;
	enum rmem_path_count reason;
	struct client_path *mine;
	struct rmem_path *path;

	if (!rmem_marlin_reader_open(&client_reader, record, bytes, true, &verdict))
		return MARLIN_BROKEN;
	mine = xa_load(&client_paths, client_reader.path);
	/* An answer to a path that was closed. */
	if (!mine || mine->port != port)
		return MARLIN_TAKEN;
	path = &mine->path;
	reason = RMEM_PATH_DROP_WIRE + verdict;
	if (verdict != RMEM_WIRE_GOOD || !client_verify(path, &reason)) {
		path->to->drop(path->channel, reason, bytes);
		return MARLIN_TAKEN;
	}
	rmem_marlin_reader_set_space(&client_reader, path->session->space);
	while (rmem_marlin_reader_step(&client_reader, &r))
		client_receive_one(mine, &r);
	client_drop_rest(path, bytes);
	if (client_settles != mine)
		client_settle(port);
	client_settles = mine;
	return MARLIN_TAKEN;
}

static const struct marlin_message_ops client_messages = {
	.receive = client_receive,
	.settle = client_settle,
	.room = client_has_room,
};

/* ---- addresses ---- */

static int client_address_get(struct rmem_address *address, struct nlattr **attrs,
			      struct netlink_ext_ack *extack)
{
	const struct nlattr *attr = attrs[RMEM_A_ADDRESS];
	char text[RMEM_ADDRESS_TEXT_MAX + 1];
	unsigned int port;

	nla_strscpy(text, attr, sizeof(text));
	if (kstrtouint(text + strlen(SCHEME ":"), 10, &port)) {
		NL_SET_ERR_MSG_ATTR(extack, attr,
				    "no such ADDRESS: write marlin:PORT, the node's port at the bridge");
		return -EINVAL;
	}
	switch (marlin_message_peer(port)) {
	case 0:
		memset(address, 0, sizeof(*address));
		address->bytes[0] = port;
		snprintf(address->text, sizeof(address->text), "%u", port);
		return 0;
	case -ENODEV:
		NL_SET_ERR_MSG_ATTR(extack, attr, "this machine has no NTB device");
		return -ENODEV;
	case -EINVAL:
		NL_SET_ERR_MSG_ATTR(extack, attr,
				    "that is this machine's own port at the bridge");
		return -EINVAL;
	default:
		NL_SET_ERR_MSG_ATTR(extack, attr,
				    "the bridge has no such port: 'ethtool -S eop0' lists them");
		return -ENXIO;
	}
}

static int client_address_put(const struct rmem_address *address, struct sk_buff *reply)
{
	return 0; /* ADDRESS says all */
}

/* ---- life ---- */

static int client_open(struct rmem_path *path, const struct rmem_address *to)
{
	struct client_path *mine = client_path_of(path);
	int err;

	mine->port = to->bytes[0];
	INIT_LIST_HEAD(&mine->waiting);
	/* Numbers in turn: an answer that is under way finds no new path. */
	err = xa_alloc_cyclic(&client_paths, &mine->number, mine, XA_LIMIT(1, U16_MAX),
			      &client_next_number, GFP_KERNEL);
	return err < 0 ? err : 0;
}

static void client_quiesce(struct rmem_path *path)
{
	struct client_path *mine = client_path_of(path);

	xa_erase(&client_paths, mine->number);
	spin_lock_bh(&client_waiting_lock);
	mine->quiet = true;
	list_del_init(&mine->waiting);
	spin_unlock_bh(&client_waiting_lock);
}

static void client_close(struct rmem_path *path)
{
	/* All is done since quiesce(), and no call from below is under way. */
}

static int client_limits(struct rmem_path *path, struct rmem_limits *limits,
			 struct netlink_ext_ack *extack)
{
	*limits = (struct rmem_limits){
		.payload_bytes = RMEM_PIECE_BYTES_MAX,
		.checks_payload = true, /* memory and bus check themselves */
		.has_credit = true,
	};
	return 0;
}

static const struct rmem_credit_ops client_credit = {
	.room = client_room,
	.wait = client_wait,
};

static const struct rmem_loan_ops client_loans = {
	.lends = client_lends,
	.keeps = client_keeps,
};

static const struct rmem_transport_ops client_transport = {
	.name = SCHEME,
	.owner = THIS_MODULE,
	.path_bytes = sizeof(struct client_path),
	.no_answer = "the node is silent: is rmem_node_marlin loaded, do space and key match?",
	.address_get = client_address_get,
	.address_put = client_address_put,
	.open = client_open,
	.quiesce = client_quiesce,
	.close = client_close,
	.limits = client_limits,
	.add = client_add,
	.flush = client_flush,
	.credit = &client_credit,
	.loans = &client_loans,
};

static int __init client_init(void)
{
	int err;

	client_kept_queue = alloc_workqueue("rmem_marlin", WQ_MEM_RECLAIM, 0);
	if (!client_kept_queue)
		return -ENOMEM;
	err = marlin_messages_register(MARLIN_CLIENT, &client_messages);
	if (err)
		goto destroy_queue;
	err = rmem_transport_register(&client_transport);
	if (err)
		goto unregister;
	return 0;

unregister:
	marlin_messages_unregister(MARLIN_CLIENT);
destroy_queue:
	destroy_workqueue(client_kept_queue);
	return err;
}

static void __exit client_exit(void)
{
	rmem_transport_unregister(&client_transport);
	marlin_messages_unregister(MARLIN_CLIENT);
	/* A device that was forced off can have left some: programs have its files open. */
	wait_event(client_kept_none, !atomic_read(&client_kept_ops));
	synchronize_net();
	cancel_delayed_work_sync(&client_kept_work);
	destroy_workqueue(client_kept_queue);
}

module_init(client_init);
module_exit(client_exit);

MODULE_ALIAS("rmem-transport-" SCHEME);
MODULE_DESCRIPTION("Remora remote memory: client's transport over Marlin");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
