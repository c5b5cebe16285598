// SPDX-License-Identifier: GPL-2.0
/*
 * The node's side of loans (include/remora/marlin.h): requests whose data is copied from and to a
 * client's pages.
 *
 *   READ    rmem_port_request() --> port_copy_add: parts --> marlin_loan_copy --> port_copied
 *   WRITE   port_fetch: parts --> marlin_loan_copy --> port_fetched --> rmem_port_request()
 *
 * A READ's data comes from the node's pages. A WRITE's goes to memory of the port, and the WRITE is
 * executed when it is there, as if it had been longer on its way: so order, FENCE and repetition
 * are as ever.
 *
 * A READ that can't is answered with data. A WRITE that can't is refused, and comes with its data.
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/vmalloc.h>

#include "rmem/transport/marlin/port.h"

static bool loans = true;
module_param(loans, bool, 0644);
MODULE_PARM_DESC(loans, "copy data of READs and WRITEs to and from pages that clients lend (default: yes)");

u16 port_copies_of(unsigned int from)
{
	if (!READ_ONCE(loans) || !marlin_loan_ram(from))
		return 0;
	return marlin_loan_fetches(from) ? MARLIN_LOAN_COPIES : MARLIN_LOAN_READS;
}

/* The client's copies that are under way. */
static unsigned int port_copies_under_way(const struct port *port, unsigned int from)
{
	unsigned long which;
	unsigned int count = 0;

	for_each_set_bit(which, &port->copies_used, PORT_COPIES)
		count += port->copies[which].loan.port == from;
	return count;
}

/* No more than are left free, so n greedy clients get 1 / (n + 1) of them each. */
static bool port_has_copy(const struct port *port, unsigned int from)
{
	unsigned int used = hweight_long(READ_ONCE(port->copies_used));

	return port_copies_under_way(port, from) < PORT_COPIES - used;
}

/*
 * For the request that the reader has, with the room for its answers; NULL: its data can't be
 * copied, and the room is released.
 */
static struct port_copy *port_copy_get(struct port *port, unsigned int from,
				       struct marlin_room *room)
{
	const struct rmem_marlin_reader *reader = &port->reader;
	unsigned long which = find_first_zero_bit(&port->copies_used, PORT_COPIES);
	struct port_copy *copy;

	if (!READ_ONCE(loans) || !port_has_copy(port, from))
		goto release;
	copy = &port->copies[which];
	copy->remote = (struct scatter_pieces){
		.pieces = copy->pieces,
		.count = rmem_marlin_reader_pieces(reader, copy->pieces),
	};
	if (!marlin_loan_holds(from, &copy->remote, reader->plains[0].head.len))
		goto release;
	/* Only the poll sets bits; others clear them. */
	set_bit(which, &port->copies_used);
	copy->loan.request.count = 0;
	copy->loan.port = from;
	copy->loan.number = reader->loan;
	copy->loan.epoch = reader->epoch;
	copy->bytes = 0;
	copy->refused = false;
	copy->overflow = false;
	copy->pages = 0;
	copy->answers = 0;
	copy->room = *room;
	port_path_init(&copy->path, from, reader->path);
	return copy;

release:
	marlin_message_release(MARLIN_NODE, from, room);
	return NULL;
}

/* Sends the answers, if any, and gives back the rest of the room. BH disabled. */
static void port_copy_put(struct port_copy *copy)
{
	struct port *port = copy->port;

	marlin_message_ring(MARLIN_NODE, copy->loan.port, &copy->room);
	while (copy->pages)
		put_page(copy->page[--copy->pages]);
	clear_bit_unlock(copy - port->copies, &port->copies_used);
	/* A full barrier: pairs with port_awaits_copy(). */
	if (xchg(&port->copies_awaited, false))
		marlin_message_again();
	wake_up_all(&port->copies_none);
}

/* True if the client might wait for the end of one of its copies. */
static bool port_awaits_copy(struct port *port, unsigned int from)
{
	if (port_has_copy(port, from))
		return false;
	WRITE_ONCE(port->copies_awaited, true);
	smp_mb(); /* pairs with port_copy_put(): it sees that, or this sees the copy's end */
	return port_copies_under_way(port, from);
}

/* Executes a message of the request. */
static void port_copy_request(struct port_copy *copy, const struct rmem_record *record)
{
	struct port_batch batch = {
		.batch = { .port = &copy->port->port, .path = copy->path },
		.copy = copy,
	};

	rmem_port_request(&batch.batch, record);
}

/* The client has ended the op, or an earlier request for it is at work. */
static bool port_copy_is_void(int err)
{
	return err == -ESTALE || err == -EALREADY;
}

/* ---- READ ---- */

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

/*
 * marlin_loan_copy() has ended: one answer for the whole READ. If bytes might be lost, the client
 * asks again.
 */
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

	if (loan->whole) {
		copy->head.offset = copy->head.len;
		copy->head.len = copy->bytes;
		port_send(&out, &copy->room);
	}
	port_copy_put(copy);
}

static enum port_lent port_receive_read(struct port *port, unsigned int from)
{
	struct marlin_room room = {};
	struct rmem_marlin_record r;
	struct port_copy *copy;
	int err = 0;

	if (!port_reserve(&room, from, 1))
		return PORT_LENT_LATER;
	copy = port_copy_get(port, from, &room);
	if (!copy)
		return PORT_LENT_NOT;
	copy->loan.fetches = false;
	copy->loan.done = port_copied;
	rmem_marlin_reader_step(&port->reader, &r);
	port_copy_request(copy, &r.record);
	if (copy->bytes && !copy->refused) {
		err = copy->overflow ? -E2BIG : marlin_loan_copy(&copy->loan);
		if (!err)
			return PORT_LENT_DONE;
	}
	port_copy_put(copy);
	if (!err || port_copy_is_void(err))
		return PORT_LENT_DONE;
	rmem_marlin_reader_rewind(&port->reader);
	return PORT_LENT_NOT;
}

/* ---- WRITE ---- */

/* How many WRITEs the request stands for; 0: it breaks a rule. */
static u32 port_writes(const struct rmem_head *head)
{
	u32 part = head->piece ?: max(head->len, 1U);

	if (!head->len || part > RMEM_PIECE_BYTES_MAX || head->len > RMEM_READ_BYTES_MAX ||
	    head->len > part * MARLIN_LOAN_WRITES)
		return 0;
	return DIV_ROUND_UP(head->len, part);
}

/* The data of one of them. */
struct port_fetched {
	struct rmem_payload payload; /* first */
	const u8 *data;
};

static void port_fetched_copy(const struct rmem_payload *payload, u32 offset, void *to, u32 n)
{
	memcpy(to, container_of(payload, struct port_fetched, payload)->data + offset, n);
}

static void port_execute(struct port_copy *copy)
{
	struct port_fetched fetched = { .payload.copy = port_fetched_copy, .data = copy->data };
	struct rmem_head head = copy->head;
	const struct rmem_record record = {
		.head = &head,
		.payload = &fetched.payload,
		.last = true,
	};
	u32 part = copy->head.piece ?: copy->head.len, left = copy->head.len;

	head.piece = 0;
	do {
		head.len = min(part, left);
		fetched.payload.bytes = head.len;
		port_copy_request(copy, &record);
		left -= head.len;
		fetched.data += head.len;
		head.addr += head.len;
		head.id++;
	} while (left);
}

/* Answers that share a record. */
struct port_answers {
	const struct port_copy *copy;
	u32 from, count;
};

static u32 port_write_answers(void *arg, u8 *record)
{
	const struct port_answers *answers = arg;
	const struct port_copy *copy = answers->copy;

	return rmem_marlin_write_plains(record, copy->answer + answers->from, answers->count,
					copy->path.peer.port);
}

static void port_send_answers(struct port_copy *copy)
{
	struct port_answers answers = { .copy = copy };

	for (; answers.from < copy->answers; answers.from += answers.count) {
		answers.count = min(copy->answers - answers.from, RMEM_BUNDLE_MAX);
		if (port_post(copy->loan.port, &copy->room, port_write_answers, &answers))
			return; /* the client asks again */
	}
}

/*
 * marlin_loan_copy() has ended. If the data might not be whole, the client asks again. A node that
 * hibernates by now executes nothing either.
 */
static void port_fetched(struct marlin_loan_copy *loan)
{
	struct port_copy *copy = container_of(loan, struct port_copy, loan);
	struct rmem_port *port = &copy->port->port;

	rcu_read_lock();
	if (loan->whole && rmem_port_takes(port, copy->head.len)) {
		port_execute(copy);
		port_send_answers(copy);
		rmem_port_settle(port);
	}
	port_copy_put(copy);
	rcu_read_unlock();
}

/* The pages of copy->data, which follow each other only as the kernel maps them. */
static int port_fetch(struct port_copy *copy)
{
	u8 *end = copy->data + copy->head.len;

	for (u8 *page = copy->data; page < end; page += PAGE_SIZE) {
		u64 local = page_to_phys(vmalloc_to_page(page));

		if (!marlin_loan_add(copy->parts, &copy->loan.request.count, &copy->remote, local,
				     min_t(u64, end - page, PAGE_SIZE)))
			return -E2BIG;
	}
	copy->loan.fetches = true;
	copy->loan.done = port_fetched;
	return marlin_loan_copy(&copy->loan);
}

/* None of the WRITEs is executed, and the client sends them with their data. */
static enum port_lent port_refuse(struct port *port, unsigned int from,
				  const struct rmem_head *request)
{
	struct rmem_port_path path;
	struct rmem_head head = *request;
	struct port_tx out = { .port = port, .path = &path, .head = &head };

	if (!port_reserve(&port->room, from, 1))
		return PORT_LENT_LATER;
	port_path_init(&path, from, port->reader.path);
	head.type |= RMEM_RESPONSE;
	head.status = RMEM_DAMAGED;
	head.piece = 0;
	port_send(&out, &port->room);
	return PORT_LENT_DONE;
}

static enum port_lent port_receive_write(struct port *port, unsigned int from, u32 bytes)
{
	const struct rmem_head *head = &port->reader.plains[0].head;
	u32 writes = port_writes(head);
	struct marlin_room room = {};
	struct port_copy *copy;
	int err;

	if (!writes) {
		rmem_port_drop(RMEM_PORT_WIRE + RMEM_WIRE_MALFORMED, bytes);
		return PORT_LENT_DONE;
	}
	if (!marlin_loan_fetches(from))
		return port_refuse(port, from, head);
	if (port_awaits_copy(port, from) ||
	    !port_reserve(&room, from, DIV_ROUND_UP(writes, RMEM_BUNDLE_MAX)))
		return PORT_LENT_LATER;
	copy = port_copy_get(port, from, &room);
	if (!copy)
		return port_refuse(port, from, head);
	copy->head = *head;
	err = port_fetch(copy);
	if (!err)
		return PORT_LENT_DONE;
	port_copy_put(copy);
	return port_copy_is_void(err) ? PORT_LENT_DONE : port_refuse(port, from, head);
}

/* ---- the port calls ---- */

enum port_lent port_receive_lent(struct port *port, unsigned int from, u32 bytes)
{
	switch (port->reader.plains[0].head.type) {
	case RMEM_READ:
		return port_receive_read(port, from);
	case RMEM_WRITE:
		return port_receive_write(port, from, bytes);
	default:
		return PORT_LENT_NOT;
	}
}

bool port_copy_takes(struct port_copy *copy, const struct rmem_head *head,
		     const struct rmem_port_data *data, int *err)
{
	*err = 0;
	if (copy->loan.fetches) {
		if (!WARN_ON_ONCE(copy->answers == MARLIN_LOAN_WRITES))
			copy->answer[copy->answers++] = *head;
		return true;
	}
	if (head->status == RMEM_OK && data) {
		*err = port_copy_add(copy, head, data);
		return true;
	}
	copy->refused = true;
	return false;
}

/* ---- life ---- */

bool port_copies_init(struct port *port)
{
	port->copies_data = vmalloc(PORT_COPIES * RMEM_READ_BYTES_MAX);
	if (!port->copies_data)
		return false;
	init_waitqueue_head(&port->copies_none);
	for (unsigned int i = 0; i < PORT_COPIES; i++) {
		struct port_copy *copy = &port->copies[i];

		copy->port = port;
		copy->data = port->copies_data + i * RMEM_READ_BYTES_MAX;
		copy->loan.request.parts = copy->parts;
		copy->loan.request.slots = copy->slots;
	}
	return true;
}

void port_copies_wait(struct port *port)
{
	wait_event(port->copies_none, !READ_ONCE(port->copies_used));
	/* The end of the last copy might be about to wake this thread. */
	synchronize_net();
}

void port_copies_free(struct port *port)
{
	vfree(port->copies_data);
}
