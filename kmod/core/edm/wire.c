// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/wire.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"

#define WIRE_KIND(kind) ((u8)(EDM_VERSION << 4 | (kind)))

#define WIRE_GET16(p, type, field)    base_load_le16((p) + offsetof(type, field))
#define WIRE_GET32(p, type, field)    base_load_le32((p) + offsetof(type, field))
#define WIRE_PUT16(p, type, field, x) base_store_le16((p) + offsetof(type, field), (x))
#define WIRE_PUT32(p, type, field, x) base_store_le32((p) + offsetof(type, field), (x))

static bool wire_is_join(u8 kind)
{
	return kind == EDM_JOIN || kind == EDM_CHALLENGE || kind == EDM_WELCOME;
}

static bool wire_is_list(u8 kind)
{
	return kind == EDM_DEMAND || kind == EDM_GRANT;
}

static bool wire_is_request(u8 kind)
{
	return kind == EDM_REQUEST || kind == EDM_FORWARD;
}

static bool wire_within(u32 x, u32 min, u32 max)
{
	return x >= min && x <= max;
}

/* ---- parse ---- */

static enum edm_wire_verdict wire_parse_head(struct edm_message *message, const u8 *p)
{
	const u8 flags = p[offsetof(struct edm_head, flags)];
	const bool from_host = message->kind == EDM_DEMAND || message->kind == EDM_REQUEST;
	const bool numbered = !wire_is_join(message->kind);
	const bool has_life = message->kind != EDM_JOIN;

	message->follows = flags & EDM_FOLLOWS;
	message->port = WIRE_GET16(p, struct edm_head, port);
	message->epoch = WIRE_GET32(p, struct edm_head, epoch);
	message->life = WIRE_GET32(p, struct edm_head, life);
	message->seq = WIRE_GET32(p, struct edm_head, seq);
	if ((flags & ~EDM_FOLLOWS) || (flags && !from_host) || message->port >= EDM_PORTS_MAX ||
	    !message->epoch || !!message->life != has_life || !message->seq == numbered)
		return EDM_WIRE_RANGE;
	return EDM_WIRE_GOOD;
}

static bool wire_welcome_is_good(const struct edm_message *m)
{
	return !m->rate_mbps && m->cookie && wire_within(m->chunk_bytes, 1, EDM_CHUNK_BYTES_MAX) &&
	       wire_within(m->lease_us, EDM_LEASE_US_MIN, EDM_LEASE_US_MAX) &&
	       base_is_pow2(m->slots) && m->slots <= EDM_SLOTS_MAX &&
	       wire_within(m->active_max, 1, EDM_ACTIVE_MAX);
}

static enum edm_wire_verdict wire_parse_join(struct edm_message *m, const u8 *p)
{
	const bool plain = !WIRE_GET32(p, struct edm_join, chunk_bytes) &&
			   !WIRE_GET32(p, struct edm_join, lease_us) &&
			   !WIRE_GET16(p, struct edm_join, slots) &&
			   !p[offsetof(struct edm_join, active_max)];
	bool good;

	m->cookie = base_load_le64(p + offsetof(struct edm_join, cookie));
	m->rate_mbps = WIRE_GET32(p, struct edm_join, rate_mbps);
	m->chunk_bytes = WIRE_GET32(p, struct edm_join, chunk_bytes);
	m->lease_us = WIRE_GET32(p, struct edm_join, lease_us);
	m->slots = WIRE_GET16(p, struct edm_join, slots);
	m->active_max = p[offsetof(struct edm_join, active_max)];
	if (m->kind == EDM_WELCOME)
		good = wire_welcome_is_good(m);
	else if (m->kind == EDM_CHALLENGE)
		good = plain && !m->rate_mbps && m->cookie;
	else
		good = plain && wire_within(m->rate_mbps, 1, EDM_RATE_MBPS_MAX);
	return good && !p[offsetof(struct edm_join, reserved)] ? EDM_WIRE_GOOD : EDM_WIRE_RANGE;
}

static void wire_load_item(const u8 *p, struct edm_item *item)
{
	item->id = WIRE_GET32(p, struct edm_entry, id);
	item->size = WIRE_GET32(p, struct edm_entry, size);
	item->granted = WIRE_GET32(p, struct edm_entry, granted);
	item->peer = WIRE_GET16(p, struct edm_entry, peer);
	item->type = p[offsetof(struct edm_entry, type)];
	item->status = p[offsetof(struct edm_entry, status)];
}

static bool wire_item_is_good(u8 kind, u16 port, const struct edm_item *item)
{
	if (item->peer >= EDM_PORTS_MAX || item->peer == port ||
	    !wire_within(item->type, EDM_WRITE, EDM_ANSWER))
		return false;
	switch (kind) {
	case EDM_DEMAND:
		return !item->status && item->granted <= item->size;
	case EDM_GRANT:
		if (item->status)
			return item->status <= EDM_REFUSED_STALE && !item->size && !item->granted;
		return wire_within(item->size, 1, EDM_CHUNK_BYTES_MAX) &&
		       item->granted >= item->size && item->type != EDM_READ;
	case EDM_REQUEST:
		return !item->status && item->size && item->granted <= item->size &&
		       item->type == EDM_READ;
	default:
		return !item->status && item->size && !item->granted && item->type == EDM_ANSWER;
	}
}

static enum edm_wire_verdict wire_parse_list(struct edm_message *m, const u8 *p, size_t bytes)
{
	struct edm_item item;

	m->seen = WIRE_GET32(p, struct edm_list, seen);
	m->count = WIRE_GET16(p, struct edm_list, count);
	if (m->count > EDM_ENTRIES_MAX || WIRE_GET16(p, struct edm_list, reserved))
		return EDM_WIRE_RANGE;
	if (bytes != EDM_LIST_BYTES + (size_t)m->count * EDM_ENTRY_BYTES)
		return EDM_WIRE_SHORT;
	for (u32 n = 0; n < m->count; n++) {
		wire_load_item(p + EDM_LIST_BYTES + (size_t)n * EDM_ENTRY_BYTES, &item);
		if (!wire_item_is_good(m->kind, m->port, &item))
			return EDM_WIRE_RANGE;
	}
	return EDM_WIRE_GOOD;
}

static enum edm_wire_verdict wire_parse_request(struct edm_message *m, const u8 *p, size_t bytes)
{
	const bool forward = m->kind == EDM_FORWARD;

	m->seen = WIRE_GET32(p, struct edm_request, seen);
	m->peer_epoch = WIRE_GET32(p, struct edm_request, peer_epoch);
	m->payload_bytes = (u32)(bytes - EDM_REQUEST_BYTES);
	wire_load_item(p + offsetof(struct edm_request, entry), &m->item);
	if (!wire_item_is_good(m->kind, m->port, &m->item) || !!m->peer_epoch != forward ||
	    (m->seen && forward))
		return EDM_WIRE_RANGE;
	return wire_within(m->payload_bytes, 1, EDM_OPAQUE_BYTES_MAX) ? EDM_WIRE_GOOD
								      : EDM_WIRE_SHORT;
}

static enum edm_wire_verdict wire_parse_data(struct edm_message *m, const u8 *p, size_t bytes)
{
	if (bytes <= EDM_DATA_BYTES || bytes - EDM_DATA_BYTES > EDM_CHUNK_BYTES_MAX)
		return EDM_WIRE_SHORT;
	m->type = p[offsetof(struct edm_data, type)];
	m->port = WIRE_GET16(p, struct edm_data, source);
	m->epoch = WIRE_GET32(p, struct edm_data, epoch);
	m->id = WIRE_GET32(p, struct edm_data, id);
	m->offset = WIRE_GET32(p, struct edm_data, offset);
	m->payload_bytes = (u32)(bytes - EDM_DATA_BYTES);
	if ((m->type != EDM_WRITE && m->type != EDM_ANSWER) || m->port >= EDM_PORTS_MAX ||
	    !m->epoch || m->payload_bytes > ~0U - m->offset)
		return EDM_WIRE_RANGE;
	return EDM_WIRE_GOOD;
}

enum edm_wire_verdict edm_wire_parse(struct edm_message *message, const void *data, size_t bytes)
{
	const u8 *p = data;
	enum edm_wire_verdict verdict;
	size_t least;

	base_zero(message, sizeof(*message));
	if (!bytes)
		return EDM_WIRE_SHORT;
	message->kind = p[0] & 15;
	if (p[0] >> 4 != EDM_VERSION || !wire_within(message->kind, EDM_JOIN, EDM_DATA))
		return EDM_WIRE_VERSION;
	if (message->kind == EDM_DATA)
		return wire_parse_data(message, p, bytes);
	least = wire_is_list(message->kind) ? EDM_LIST_BYTES : EDM_JOIN_BYTES;
	if (bytes < EDM_HEAD_BYTES + least)
		return EDM_WIRE_SHORT;
	verdict = wire_parse_head(message, p);
	if (verdict)
		return verdict;
	p += EDM_HEAD_BYTES;
	bytes -= EDM_HEAD_BYTES;
	if (wire_is_list(message->kind))
		return wire_parse_list(message, p, bytes);
	if (wire_is_request(message->kind))
		return wire_parse_request(message, p, bytes);
	return bytes == EDM_JOIN_BYTES ? wire_parse_join(message, p) : EDM_WIRE_SHORT;
}

void edm_wire_item(const void *data, u32 n, struct edm_item *item)
{
	wire_load_item((const u8 *)data + EDM_HEAD_BYTES + EDM_LIST_BYTES +
			       (size_t)n * EDM_ENTRY_BYTES,
		       item);
}

/* ---- encode ---- */

u32 edm_wire_header_bytes(const struct edm_message *message)
{
	if (message->kind == EDM_DATA)
		return EDM_DATA_BYTES;
	if (wire_is_list(message->kind))
		return EDM_HEAD_BYTES + EDM_LIST_BYTES + message->count * EDM_ENTRY_BYTES;
	return EDM_HEAD_BYTES +
	       (wire_is_request(message->kind) ? EDM_REQUEST_BYTES : EDM_JOIN_BYTES);
}

static void wire_store_item(u8 *p, const struct edm_item *item)
{
	WIRE_PUT32(p, struct edm_entry, id, item->id);
	WIRE_PUT32(p, struct edm_entry, size, item->size);
	WIRE_PUT32(p, struct edm_entry, granted, item->granted);
	WIRE_PUT16(p, struct edm_entry, peer, item->peer);
	p[offsetof(struct edm_entry, type)] = item->type;
	p[offsetof(struct edm_entry, status)] = item->status;
}

static void wire_encode_data(const struct edm_message *m, u8 *p)
{
	p[offsetof(struct edm_data, type)] = m->type;
	WIRE_PUT16(p, struct edm_data, source, m->port);
	WIRE_PUT32(p, struct edm_data, epoch, m->epoch);
	WIRE_PUT32(p, struct edm_data, id, m->id);
	WIRE_PUT32(p, struct edm_data, offset, m->offset);
}

static void wire_encode_join(const struct edm_message *m, u8 *p)
{
	base_store_le64(p + offsetof(struct edm_join, cookie), m->cookie);
	WIRE_PUT32(p, struct edm_join, rate_mbps, m->rate_mbps);
	WIRE_PUT32(p, struct edm_join, chunk_bytes, m->chunk_bytes);
	WIRE_PUT32(p, struct edm_join, lease_us, m->lease_us);
	WIRE_PUT16(p, struct edm_join, slots, m->slots);
	p[offsetof(struct edm_join, active_max)] = m->active_max;
}

void edm_wire_encode(const struct edm_message *message, const struct edm_item *items, void *data)
{
	u8 *p = data;

	base_zero(p, edm_wire_header_bytes(message));
	p[0] = WIRE_KIND(message->kind);
	if (message->kind == EDM_DATA) {
		wire_encode_data(message, p);
		return;
	}
	p[offsetof(struct edm_head, flags)] = message->follows ? EDM_FOLLOWS : 0;
	WIRE_PUT16(p, struct edm_head, port, message->port);
	WIRE_PUT32(p, struct edm_head, epoch, message->epoch);
	WIRE_PUT32(p, struct edm_head, life, message->life);
	WIRE_PUT32(p, struct edm_head, seq, message->seq);
	p += EDM_HEAD_BYTES;
	if (wire_is_join(message->kind)) {
		wire_encode_join(message, p);
	} else if (wire_is_list(message->kind)) {
		WIRE_PUT32(p, struct edm_list, seen, message->seen);
		WIRE_PUT16(p, struct edm_list, count, message->count);
		for (u32 n = 0; n < message->count; n++)
			wire_store_item(p + EDM_LIST_BYTES + (size_t)n * EDM_ENTRY_BYTES,
					&items[n]);
	} else {
		WIRE_PUT32(p, struct edm_request, seen, message->seen);
		WIRE_PUT32(p, struct edm_request, peer_epoch, message->peer_epoch);
		wire_store_item(p + offsetof(struct edm_request, entry), &message->item);
	}
}

/* ---- tags ---- */

static u64 wire_tag(const u8 *p, size_t bytes, const struct base_siphash_key *key)
{
	static const u8 zero[sizeof(((struct edm_head *)0)->tag)];
	const size_t at = offsetof(struct edm_head, tag);
	struct base_siphash h;

	base_siphash_init(&h, key);
	base_siphash_update(&h, p, at);
	base_siphash_update(&h, zero, sizeof(zero));
	base_siphash_update(&h, p + at + sizeof(zero), bytes - at - sizeof(zero));
	return base_siphash_final(&h);
}

void edm_wire_derive(struct base_siphash_key *key, const struct base_siphash_key *operator_key,
		     const struct edm_message *welcome)
{
	for (u32 word = 0; word < 2; word++) {
		u8 input[EDM_DERIVE_BYTES];

		base_zero(input, sizeof(input));
		base_store_le64(input + offsetof(struct edm_derive, label), EDM_LABEL + word);
		base_store_le64(input + offsetof(struct edm_derive, cookie), welcome->cookie);
		WIRE_PUT32(input, struct edm_derive, epoch, welcome->epoch);
		WIRE_PUT32(input, struct edm_derive, life, welcome->life);
		WIRE_PUT16(input, struct edm_derive, port, welcome->port);
		key->k[word] = base_siphash(operator_key, input, sizeof(input));
	}
}

void edm_wire_seal(void *data, size_t bytes, const struct base_siphash_key *key)
{
	base_store_le64((u8 *)data + offsetof(struct edm_head, tag), wire_tag(data, bytes, key));
}

bool edm_wire_verifies(const void *data, size_t bytes, const struct base_siphash_key *key)
{
	return bytes >= EDM_HEAD_BYTES &&
	       base_load_le64((const u8 *)data + offsetof(struct edm_head, tag)) ==
		       wire_tag(data, bytes, key);
}

u64 edm_wire_cookie(const struct base_siphash_key *secret, const void *address, size_t bytes)
{
	const u64 cookie = base_siphash(secret, address, bytes);

	return cookie ? cookie : 1;
}
