// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/wire.h"

#include "core/base/bytes.h"

#define GET(type, field) base_load_be(p + offsetof(type, field), sizeof(((type *)0)->field))
#define PUT(type, field, x) base_store_be(p + offsetof(type, field), x, sizeof(((type *)0)->field))

/* Flags that a state machine can make sense of. */
static bool wire_flags_are_good(bool control, u8 flags)
{
	if (!control)
		return !(flags & EQDS_PAUSE) && (!(flags & EQDS_FIN) || flags & EQDS_EMPTY) &&
		       !(flags & EQDS_TRIM && flags & EQDS_EMPTY);
	if (flags & (EQDS_EMPTY | EQDS_TRIM) || (flags & EQDS_NACK && flags & EQDS_SACK))
		return false;
	if (flags & EQDS_FIN)
		return flags == EQDS_RST;
	if (flags & EQDS_PAUSE)
		return flags == (EQDS_PAUSE | EQDS_SYN | EQDS_NACK);
	return true;
}

static void wire_parse_paper(const u8 *p, struct eqds_head *head)
{
	u32 number;

	head->flags = p[0];
	head->control = head->flags & EQDS_CONTROL_FLAGS;
	if (head->control) {
		head->sender = GET(struct eqds_paper_control, sender);
		number = GET(struct eqds_paper_control, number);
		head->pull = GET(struct eqds_paper_control, pull);
		head->busy_us = GET(struct eqds_paper_control, busy_us);
		if (head->flags & (EQDS_NACK | EQDS_SACK))
			head->echo = number;
		else
			head->ack = number;
	} else {
		head->next_proto = GET(struct eqds_paper_data, next_proto);
		number = GET(struct eqds_paper_data, seq);
		head->seq = number;
		head->pull = GET(struct eqds_paper_data, pull_target);
		head->path = GET(struct eqds_paper_data, path);
		head->sender = GET(struct eqds_paper_data, sender);
	}
	head->has_epoch = head->flags & EQDS_SYN;
	if (head->has_epoch)
		head->epoch = number >> EQDS_PAPER_START_BITS;
}

static void wire_parse_data(const u8 *p, struct eqds_head *head)
{
	head->flags = p[1];
	head->next_proto = GET(struct eqds_data, next_proto);
	if (p[0] & EQDS_KIND_COUNTED)
		head->counted = GET(struct eqds_data, attempt);
	else
		head->attempt = GET(struct eqds_data, attempt);
	head->epoch = GET(struct eqds_data, epoch);
	head->seq = GET(struct eqds_data, seq);
	head->pull = GET(struct eqds_data, pull_target);
	head->path = GET(struct eqds_data, path);
	head->sender = GET(struct eqds_data, sender);
	head->bytes = GET(struct eqds_data, bytes);
	head->unacked = GET(struct eqds_data, unacked);
	head->stamp = GET(struct eqds_data, stamp);
	head->backlog_bytes = GET(struct eqds_data, backlog);
	head->cookie = GET(struct eqds_data, cookie);
	head->claims = head->flags == (EQDS_SYN | EQDS_EMPTY) && head->attempt == EQDS_CLAIM;
}

static void wire_parse_control(const u8 *p, struct eqds_head *head)
{
	head->control = true;
	head->flags = p[1];
	head->marks = GET(struct eqds_control, marks);
	head->attempt = GET(struct eqds_control, attempt);
	head->epoch = GET(struct eqds_control, epoch);
	head->ack = GET(struct eqds_control, ack);
	head->pull = GET(struct eqds_control, pull);
	head->sender = GET(struct eqds_control, sender);
	head->busy_us = GET(struct eqds_control, busy_us);
	head->echo = GET(struct eqds_control, echo);
	head->sack = GET(struct eqds_control, sack);
	head->cookie = GET(struct eqds_control, cookie);
}

enum eqds_wire_verdict eqds_wire_parse(const struct eqds_profile *profile, const void *data,
				       size_t bytes, struct eqds_head *head)
{
	const u8 *p = data;

	base_zero(head, sizeof(*head));
	if (profile->start_bits) {
		if (bytes < EQDS_PAPER_BYTES)
			return EQDS_WIRE_SHORT;
		wire_parse_paper(p, head);
		return wire_flags_are_good(head->control, head->flags) ? EQDS_WIRE_GOOD :
									 EQDS_WIRE_FLAGS;
	}
	if (bytes < EQDS_CONTROL_BYTES)
		return EQDS_WIRE_SHORT;
	if ((p[0] & ~EQDS_KIND_TAGGED) == EQDS_KIND_DATA ||
	    p[0] == (EQDS_KIND_DATA | EQDS_KIND_COUNTED) || p[0] == EQDS_KIND_UNNUMBERED)
		wire_parse_data(p, head);
	else if ((p[0] & ~EQDS_KIND_TAGGED) == EQDS_KIND_CONTROL)
		wire_parse_control(p, head);
	else
		return EQDS_WIRE_VERSION;
	head->unnumbered = p[0] == EQDS_KIND_UNNUMBERED;
	head->tagged = p[0] & EQDS_KIND_TAGGED;
	if (head->tagged && bytes < EQDS_CONTROL_BYTES + EQDS_TAG_BYTES)
		return EQDS_WIRE_SHORT;
	head->has_epoch = true;
	/* Of the two kinds, flags have to tell, too: so the profiles mean the same. */
	if (head->control != !!(head->flags & EQDS_CONTROL_FLAGS) ||
	    !wire_flags_are_good(head->control, head->flags))
		return EQDS_WIRE_FLAGS;
	if (p[0] & EQDS_KIND_COUNTED && (!head->counted || head->flags & EQDS_EMPTY))
		return EQDS_WIRE_FLAGS;
	if (head->unnumbered && head->flags)
		return EQDS_WIRE_FLAGS;
	return EQDS_WIRE_GOOD;
}

u32 eqds_wire_bytes(const struct eqds_profile *profile, const struct eqds_head *head)
{
	return eqds_wire_header_bytes(profile, head->control) + (head->tagged ? EQDS_TAG_BYTES : 0);
}

/*
 * The paper has one number. ACK says more than SACK of what lies before it. A SYN's number tells
 * the epoch by its upper bits, so an ack that has left the first 1024 numbers says less than it
 * could.
 */
static void wire_encode_paper(const struct eqds_profile *profile, const struct eqds_head *head,
			      u8 *p)
{
	u32 start = eqds_epoch_start(profile, head->epoch), number = head->ack;
	u8 flags = head->flags;

	if (!head->control) {
		p[0] = flags;
		PUT(struct eqds_paper_data, next_proto, head->next_proto);
		PUT(struct eqds_paper_data, seq, head->seq);
		PUT(struct eqds_paper_data, pull_target, head->pull);
		PUT(struct eqds_paper_data, path, head->path);
		PUT(struct eqds_paper_data, sender, head->sender);
		return;
	}
	if (flags & EQDS_SACK && flags & EQDS_ACK &&
	    eqds_ahead(head->ack, head->echo, profile->seq_bits) > 0)
		flags &= ~EQDS_SACK;
	if (flags & (EQDS_NACK | EQDS_SACK)) {
		flags &= ~EQDS_ACK;
		number = head->echo;
	} else if (flags & EQDS_SYN && number - start >= 1U << EQDS_PAPER_START_BITS) {
		number = start + (1U << EQDS_PAPER_START_BITS) - 1;
	}
	p[0] = flags;
	PUT(struct eqds_paper_control, sender, head->sender);
	PUT(struct eqds_paper_control, number, number);
	PUT(struct eqds_paper_control, pull, head->pull);
	PUT(struct eqds_paper_control, busy_us, head->busy_us);
}

void eqds_wire_encode(const struct eqds_profile *profile, const struct eqds_head *head, void *data)
{
	u8 *p = data;

	base_zero(p, eqds_wire_bytes(profile, head));
	if (profile->start_bits) {
		wire_encode_paper(profile, head, p);
	} else if (head->control) {
		p[0] = EQDS_KIND_CONTROL | (head->tagged ? EQDS_KIND_TAGGED : 0);
		p[1] = head->flags;
		PUT(struct eqds_control, marks, head->marks);
		PUT(struct eqds_control, attempt, head->attempt);
		PUT(struct eqds_control, epoch, head->epoch);
		PUT(struct eqds_control, ack, head->ack);
		PUT(struct eqds_control, pull, head->pull);
		PUT(struct eqds_control, sender, head->sender);
		PUT(struct eqds_control, busy_us, head->busy_us);
		PUT(struct eqds_control, echo, head->echo);
		PUT(struct eqds_control, sack, head->sack);
		PUT(struct eqds_control, cookie, head->cookie);
	} else {
		p[0] = EQDS_KIND_DATA | (head->tagged ? EQDS_KIND_TAGGED : 0) |
		       (head->counted ? EQDS_KIND_COUNTED : 0);
		if (head->unnumbered)
			p[0] = EQDS_KIND_UNNUMBERED;
		p[1] = head->flags;
		PUT(struct eqds_data, next_proto, head->next_proto);
		PUT(struct eqds_data, attempt,
		    head->counted ? head->counted : head->claims ? EQDS_CLAIM : head->attempt);
		PUT(struct eqds_data, epoch, head->epoch);
		PUT(struct eqds_data, seq, head->seq);
		PUT(struct eqds_data, pull_target, head->pull);
		PUT(struct eqds_data, path, head->path);
		PUT(struct eqds_data, sender, head->sender);
		PUT(struct eqds_data, bytes, head->bytes);
		PUT(struct eqds_data, unacked, head->unacked);
		PUT(struct eqds_data, stamp, head->stamp);
		PUT(struct eqds_data, backlog, head->backlog_bytes);
		PUT(struct eqds_data, cookie, head->cookie);
	}
}
