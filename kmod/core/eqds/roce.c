// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/roce.h"

#include "core/base/bytes.h"

/* Base transport header. */
#define ROCE_BECN	  0x40 /* byte 4 */
#define ROCE_OPCODES_RC	  0x20 /* opcodes below: reliable connection */
#define ROCE_UD_SEND_ONLY 0x64
#define ROCE_CM_QPN	  1

/* A management datagram comes behind the base and the datagram transport header. */
#define ROCE_MAD       20U
#define ROCE_MAD_CM    0x07
#define ROCE_MAD_REQ   0x0010
#define ROCE_MAD_REP   0x0013
#define ROCE_CM_FIELDS (ROCE_MAD + 24U)

static const u8 roce_mapped[12] = { [10] = 0xff, [11] = 0xff };

static u32 roce_get(const u8 *p, u32 bytes)
{
	u32 x = 0;

	while (bytes--)
		x = x << 8 | *p++;
	return x;
}

static void roce_put16(u8 *p, u32 x)
{
	p[0] = (u8)(x >> 8);
	p[1] = (u8)x;
}

static bool roce_is_v4(const u8 address[16])
{
	return !__builtin_memcmp(address, roce_mapped, sizeof(roce_mapped));
}

void eqds_roce_init(struct eqds_roce *roce, const struct base_siphash_key *key)
{
	base_zero(roce, sizeof(*roce));
	roce->key = *key;
}

/* ---- tables ---- */

static bool roce_is_same(const struct eqds_roce_entry *a, const struct eqds_roce_entry *b)
{
	return a->used && a->id == b->id && !__builtin_memcmp(a->local, b->local, 16) &&
	       !__builtin_memcmp(a->remote, b->remote, 16);
}

/* The set of a table of entries, a power of two, that an entry with this key is in. */
static struct eqds_roce_entry *roce_set(const struct eqds_roce *roce, struct eqds_roce_entry *table,
					u32 entries, const struct eqds_roce_entry *key)
{
	struct base_siphash h;

	base_siphash_init(&h, &roce->key);
	base_siphash_update(&h, key->local, sizeof(key->local));
	base_siphash_update(&h, key->remote, sizeof(key->remote));
	base_siphash_update(&h, &key->id, sizeof(key->id));
	return table + (base_siphash_final(&h) & (entries / EQDS_ROCE_WAYS - 1)) * EQDS_ROCE_WAYS;
}

static u32 roce_now(struct eqds_roce *roce)
{
	roce->clock++;
	roce->clock += !roce->clock; /* 0 is free */
	return roce->clock;
}

static struct eqds_roce_entry *roce_find(struct eqds_roce *roce, struct eqds_roce_entry *table,
					 u32 entries, const struct eqds_roce_entry *key)
{
	struct eqds_roce_entry *set = roce_set(roce, table, entries, key);

	for (u32 i = 0; i < EQDS_ROCE_WAYS; i++) {
		if (!roce_is_same(&set[i], key))
			continue;
		set[i].used = roce_now(roce);
		return &set[i];
	}
	return NULL;
}

static void roce_enter(struct eqds_roce *roce, struct eqds_roce_entry *table, u32 entries,
		       const struct eqds_roce_entry *entry)
{
	struct eqds_roce_entry *set = roce_set(roce, table, entries, entry), *to = set;
	const u32 now = roce_now(roce);

	for (u32 i = 0; i < EQDS_ROCE_WAYS; i++) {
		if (roce_is_same(&set[i], entry)) {
			to = &set[i];
			break;
		}
		if (to->used && (!set[i].used || now - set[i].used > now - to->used))
			to = &set[i];
	}
	*to = *entry;
	to->used = now;
}

/* ---- connection management ---- */

static void roce_request(struct eqds_roce *roce, const struct eqds_roce_ends *ends, const u8 *cm,
			 bool outgoing)
{
	struct eqds_roce_entry entry = {
		.id = roce_get(cm, 4),
		.qpn = roce_get(cm + 32, 3),
		.outgoing = outgoing,
	};

	base_copy(entry.local, ends->from, sizeof(entry.local));
	base_copy(entry.remote, ends->to, sizeof(entry.remote));
	roce_enter(roce, roce->pending, EQDS_ROCE_PENDING, &entry);
}

static void roce_reply(struct eqds_roce *roce, const struct eqds_roce_ends *ends, const u8 *cm,
		       bool outgoing)
{
	struct eqds_roce_entry key = { .id = roce_get(cm + 4, 4) }, entry, *pending;
	const u32 responder_qpn = roce_get(cm + 12, 3);

	base_copy(key.local, ends->to, sizeof(key.local));
	base_copy(key.remote, ends->from, sizeof(key.remote));
	pending = roce_find(roce, roce->pending, EQDS_ROCE_PENDING, &key);
	/* A reply answers a request that went the other way. */
	if (!pending || pending->outgoing == outgoing)
		return;
	base_zero(&entry, sizeof(entry));
	base_copy(entry.remote, outgoing ? ends->to : ends->from, sizeof(entry.remote));
	entry.id = outgoing ? pending->qpn : responder_qpn;
	entry.qpn = outgoing ? responder_qpn : pending->qpn;
	roce_enter(roce, roce->connection, EQDS_ROCE_CONNECTIONS, &entry);
}

void eqds_roce_track(struct eqds_roce *roce, const struct eqds_roce_ends *ends, const u8 *bth,
		     u32 bytes, bool outgoing)
{
	u32 attribute;

	if (bytes < EQDS_ROCE_CM_BYTES || bth[0] != ROCE_UD_SEND_ONLY ||
	    roce_get(bth + 5, 3) != ROCE_CM_QPN || bth[ROCE_MAD + 1] != ROCE_MAD_CM)
		return;
	attribute = roce_get(bth + ROCE_MAD + 16, 2);
	if (attribute == ROCE_MAD_REQ)
		roce_request(roce, ends, bth + ROCE_CM_FIELDS, outgoing);
	else if (attribute == ROCE_MAD_REP)
		roce_reply(roce, ends, bth + ROCE_CM_FIELDS, outgoing);
}

bool eqds_roce_source(struct eqds_roce *roce, const struct eqds_roce_ends *ends, const u8 *bth,
		      u32 bytes, u32 *qpn)
{
	struct eqds_roce_entry key, *connection;

	if (bytes < EQDS_ROCE_BTH_BYTES || bth[0] >= ROCE_OPCODES_RC)
		return false;
	base_zero(&key, sizeof(key));
	base_copy(key.remote, ends->to, sizeof(key.remote));
	key.id = roce_get(bth + 5, 3);
	connection = roce_find(roce, roce->connection, EQDS_ROCE_CONNECTIONS, &key);
	if (connection)
		*qpn = connection->qpn;
	return connection;
}

/* ---- the packet ---- */

/* Ethernet's CRC-32, continued. */
static u32 roce_crc(u32 crc, const u8 *p, u32 bytes)
{
	while (bytes--) {
		crc ^= *p++;
		for (u32 i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320U : 0);
	}
	return crc;
}

static u32 roce_sum(u32 sum, const u8 *p, u32 bytes)
{
	for (; bytes; p += 2, bytes -= 2)
		sum += roce_get(p, 2);
	return sum;
}

static u32 roce_fold(u32 sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum ^ 0xffff;
}

/* The invariant checksum: with all ones in what routers change. */
static u32 roce_icrc(const u8 *packet, u32 ip_bytes, u32 bytes)
{
	u8 masked[EQDS_ROCE_CNP_MAX];
	u32 crc = 0xffffffff;

	base_copy(masked, packet, bytes);
	if (ip_bytes == 20) {
		masked[1] = 0xff;
		masked[8] = 0xff;
		roce_put16(masked + 10, 0xffff);
	} else {
		masked[0] |= 0x0f;
		__builtin_memset(masked + 1, 0xff, 3);
		masked[7] = 0xff;
	}
	roce_put16(masked + ip_bytes + 6, 0xffff);
	masked[ip_bytes + 8 + 4] = 0xff;
	for (u32 i = 0; i < 8; i++)
		crc = roce_crc(crc, (const u8[]){ 0xff }, 1);
	return ~roce_crc(crc, masked, bytes);
}

/* Fills packet in front of its UDP header; returns the sum of the pseudo header. */
static u32 roce_ip(u8 *packet, const struct eqds_roce_ends *ends, u32 ip_bytes, u32 bytes)
{
	const u32 udp_bytes = bytes - ip_bytes;

	if (ip_bytes == 20) {
		packet[0] = 0x45;
		roce_put16(packet + 2, bytes);
		packet[6] = 0x40; /* don't fragment */
		packet[8] = 64;
		packet[9] = 17;
		base_copy(packet + 12, ends->from + 12, 4);
		base_copy(packet + 16, ends->to + 12, 4);
		roce_put16(packet + 10, roce_fold(roce_sum(0, packet, ip_bytes)));
		return roce_sum(17 + udp_bytes, packet + 12, 8);
	}
	packet[0] = 0x60;
	roce_put16(packet + 4, udp_bytes);
	packet[6] = 17;
	packet[7] = 64;
	base_copy(packet + 8, ends->from, 16);
	base_copy(packet + 24, ends->to, 16);
	return roce_sum(17 + udp_bytes, packet + 8, 32);
}

u32 eqds_roce_cnp(u8 *packet, const struct eqds_roce_ends *ends, u32 qpn)
{
	const u32 ip_bytes = roce_is_v4(ends->from) ? 20 : 40;
	const u32 bytes = ip_bytes + 8 + EQDS_ROCE_BTH_BYTES + 16 + 4;
	u8 *udp = packet + ip_bytes, *bth = udp + 8;
	u32 pseudo, sum;

	base_zero(packet, bytes);
	pseudo = roce_ip(packet, ends, ip_bytes, bytes);
	roce_put16(udp, EQDS_ROCE_PORT);
	roce_put16(udp + 2, EQDS_ROCE_PORT);
	roce_put16(udp + 4, bytes - ip_bytes);
	bth[0] = EQDS_ROCE_CNP;
	roce_put16(bth + 2, 0xffff); /* the default partition */
	bth[4] = ROCE_BECN;
	bth[5] = (u8)(qpn >> 16);
	roce_put16(bth + 6, qpn & 0xffff);
	base_store_le32(bth + EQDS_ROCE_BTH_BYTES + 16, roce_icrc(packet, ip_bytes, bytes - 4));
	sum = roce_fold(roce_sum(pseudo, udp, bytes - ip_bytes));
	roce_put16(udp + 6, sum ? sum : 0xffff);
	return bytes;
}
