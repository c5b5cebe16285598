// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "log.h"

#include <linux/errno.h>

#include "core/base/bits.h"
#include "core/base/bytes.h"

#define LOG_MAGIC 0x31786f7261726d52ULL /* "Rmarox1" */

#define LOG_SUPER_AT 0U
#define LOG_BEGIN_AT 64U
#define LOG_CHAIN_AT 128U
#define LOG_CLIENTS_AT 4096U
#define LOG_AT 10240U
#define LOG_WORD 8U

struct log_super {
	__le64 magic; /* written last */
	__le64 version;
	__le64 memory_bytes;
	__le64 log_bytes;
};

struct log_client {
	__le64 id;
	__le64 sequence;
	__le64 end; /* position behind its last record */
};

_Static_assert(LOG_CLIENTS_AT + TX_CLIENTS * sizeof(struct log_client) == LOG_AT,
	       "the clients lie before the log");

static u64 log_padded(u64 bytes)
{
	return (bytes + LOG_WORD - 1) & ~(u64)(LOG_WORD - 1);
}

u64 tx_log_data_at(const struct tx_log *log)
{
	return LOG_AT + log->log_bytes;
}

/* ---- the memory ----------------------------------------------------------------------------- */

static int log_load(const struct tx_log *log, u64 at, u64 *value)
{
	u8 bytes[LOG_WORD];
	int error = log->ops->read(log->memory, at, bytes, sizeof(bytes));

	*value = error ? 0 : base_load_le64(bytes);
	return error;
}

static int log_store(const struct tx_log *log, u64 at, u64 value)
{
	u8 bytes[LOG_WORD];

	base_store_le64(bytes, value);
	return log->ops->write(log->memory, at, bytes, sizeof(bytes));
}

static void log_persist(const struct tx_log *log, enum tx_log_point point, u64 at, u64 bytes)
{
	log->ops->persist(log->memory, point, at, bytes);
}

static void log_drain(const struct tx_log *log, enum tx_log_point point)
{
	log->ops->drain(log->memory, point);
}

/* Bytes from position on that lie in one piece. */
static u32 log_piece(const struct tx_log *log, u64 position, u64 bytes)
{
	return base_min(bytes, log->log_bytes - position % log->log_bytes);
}

static u64 log_place(const struct tx_log *log, u64 position)
{
	return LOG_AT + position % log->log_bytes;
}

static int log_ring_read(const struct tx_log *log, u64 position, void *to, u32 bytes)
{
	u32 first = log_piece(log, position, bytes);
	int error = log->ops->read(log->memory, log_place(log, position), to, first);

	if (error || first == bytes)
		return error;
	return log->ops->read(log->memory, LOG_AT, (u8 *)to + first, bytes - first);
}

static int log_ring_write(const struct tx_log *log, u64 position, const void *from, u32 bytes)
{
	u32 first = log_piece(log, position, bytes);
	int error = log->ops->write(log->memory, log_place(log, position), from, first);

	if (error || first == bytes)
		return error;
	return log->ops->write(log->memory, LOG_AT, (const u8 *)from + first, bytes - first);
}

static void log_ring_persist(const struct tx_log *log, enum tx_log_point point, u64 position,
			     u64 bytes)
{
	u32 first = log_piece(log, position, bytes);

	log_persist(log, point, log_place(log, position), first);
	if (first < bytes)
		log_persist(log, point, LOG_AT, bytes - first);
}

/* ---- clients -------------------------------------------------------------------------------- */

const struct tx_log_client *tx_log_find(const struct tx_log *log, u64 client)
{
	u32 n;

	for (n = 0; n < TX_CLIENTS; n++)
		if (log->client[n].id == client)
			return &log->client[n];
	return NULL;
}

/* The client's slot; else a free one; else that of the client that was silent for the longest. */
static u32 log_slot(const struct tx_log *log, u64 client)
{
	u32 oldest = 0, n;

	for (n = 0; n < TX_CLIENTS; n++) {
		if (log->client[n].id == client)
			return n;
		if (!log->client[oldest].id)
			continue;
		if (!log->client[n].id || log->client[n].end < log->client[oldest].end)
			oldest = n;
	}
	return oldest;
}

static void log_note_client(struct tx_log *log, const struct tx_record *record)
{
	struct tx_log_client *client = &log->client[base_load_le32(&record->slot)];

	client->id = base_load_le64(&record->client);
	client->sequence = base_load_le64(&record->sequence);
	client->end = base_load_le64(&record->position) + base_load_le64(&record->bytes);
}

/* ---- records -------------------------------------------------------------------------------- */

static u32 log_sum(const struct tx_log *log, const struct tx_record *record, u32 bytes)
{
	static const __le32 zero;
	const u8 *from = (const u8 *)record;
	u32 at = __builtin_offsetof(struct tx_record, sum);
	u32 sum = log->ops->sum(0xffffffffU, from, at);

	sum = log->ops->sum(sum, &zero, sizeof(zero));
	at += sizeof(zero);
	return ~log->ops->sum(sum, from + at, bytes - at);
}

static bool log_tuple_fits(const struct tx_log *log, const struct tx_record_tuple *tuple, u32 room)
{
	u64 offset = base_load_le64(&tuple->offset);
	u32 bytes = base_load_le32(&tuple->bytes);

	return bytes && bytes <= room && offset <= log->data_bytes &&
	       bytes <= log->data_bytes - offset;
}

bool tx_log_is_sound(const struct tx_log *log, const struct tx_record *record, u32 bytes)
{
	u32 at = sizeof(*record), tuples, n;

	if (bytes < sizeof(*record) || bytes > TX_RECORD_BYTES_MAX || bytes % LOG_WORD ||
	    base_load_le64(&record->bytes) != bytes)
		return false;
	tuples = base_load_le32(&record->tuples);
	if (tuples > TX_TUPLES_MAX || base_load_le32(&record->slot) >= TX_CLIENTS ||
	    !base_load_le64(&record->client) || !base_load_le64(&record->sequence))
		return false;
	for (n = 0; n < tuples; n++) {
		const struct tx_record_tuple *tuple =
			(const struct tx_record_tuple *)((const u8 *)record + at);

		if (bytes - at < sizeof(*tuple) ||
		    !log_tuple_fits(log, tuple, bytes - at - sizeof(*tuple)))
			return false;
		at += sizeof(*tuple) + log_padded(base_load_le32(&tuple->bytes));
	}
	return at == bytes && base_load_le32(&record->sum) == log_sum(log, record, bytes);
}

void tx_log_seal(const struct tx_log *log, struct tx_record *record)
{
	base_store_le64(&record->position, log->end);
	base_store_le32(&record->epoch, log->epoch);
	base_store_le32(&record->slot, log_slot(log, base_load_le64(&record->client)));
	base_store_le32(&record->sum, log_sum(log, record, base_load_le64(&record->bytes)));
}

int tx_log_append(struct tx_log *log, const struct tx_record *record)
{
	static const u8 zeros[LOG_WORD];
	u64 position = log->end;
	u32 bytes = base_load_le64(&record->bytes);
	int error;

	if (base_load_le64(&record->position) != position)
		return -EINVAL;
	if (position + bytes + LOG_WORD > log->begin + log->log_bytes)
		return -ENOSPC;
	error = log_ring_write(log, position + LOG_WORD, (const u8 *)record + LOG_WORD,
			       bytes - LOG_WORD);
	if (!error)
		error = log_ring_write(log, position + bytes, zeros, LOG_WORD);
	if (error)
		return error;
	/* The body, and the 0 behind it that ends the log. */
	log_ring_persist(log, TX_AT_BODY, position + LOG_WORD, bytes);
	log_drain(log, TX_AT_BODY_DRAIN);
	error = log_ring_write(log, position, record, LOG_WORD);
	if (error)
		return error;
	log_ring_persist(log, TX_AT_LENGTH, position, LOG_WORD);
	log_drain(log, TX_AT_LENGTH_DRAIN);
	log->end += bytes;
	log_note_client(log, record);
	return 0;
}

int tx_log_read(const struct tx_log *log, u64 position, struct tx_record *record)
{
	int error = log_ring_read(log, position, record, sizeof(*record));
	u64 bytes = base_load_le64(&record->bytes);

	if (error)
		return error;
	if (bytes < sizeof(*record) || bytes > TX_RECORD_BYTES_MAX)
		return -EUCLEAN;
	return log_ring_read(log, position + sizeof(*record), record + 1, bytes - sizeof(*record));
}

int tx_log_bytes_at(const struct tx_log *log, u64 position, u64 *bytes)
{
	return log_load(log, log_place(log, position), bytes);
}

/* ---- data ----------------------------------------------------------------------------------- */

int tx_log_read_data(const struct tx_log *log, u64 offset, void *to, u32 bytes)
{
	return log->ops->read(log->memory, tx_log_data_at(log) + offset, to, bytes);
}

/* The ring's bytes to the data. */
static int log_copy_tuple(const struct tx_log *log, u64 position, u64 offset, u32 bytes)
{
	u8 piece[512];

	while (bytes) {
		u32 now = base_min(bytes, (u32)sizeof(piece));
		int error = log_ring_read(log, position, piece, now);

		if (!error)
			error = log->ops->write(log->memory, tx_log_data_at(log) + offset, piece,
						now);
		if (error)
			return error;
		position += now;
		offset += now;
		bytes -= now;
	}
	return 0;
}

/* Each tuple of the record at position: written to the data, or that made durable. */
static int log_each_tuple(const struct tx_log *log, u64 position, u32 tuples, bool write)
{
	struct tx_record_tuple tuple;
	u32 n;

	for (n = 0; n < tuples; n++) {
		int error = log_ring_read(log, position, &tuple, sizeof(tuple));
		u64 offset = base_load_le64(&tuple.offset);
		u32 bytes = base_load_le32(&tuple.bytes);

		position += sizeof(tuple);
		if (!error && write)
			error = log_copy_tuple(log, position, offset, bytes);
		if (error)
			return error;
		if (!write)
			log_persist(log, TX_AT_DATA, tx_log_data_at(log) + offset, bytes);
		position += log_padded(bytes);
	}
	return 0;
}

static u64 log_client_at(const struct tx_record *record)
{
	return LOG_CLIENTS_AT + base_load_le32(&record->slot) * sizeof(struct log_client);
}

int tx_log_apply(struct tx_log *log, u64 to)
{
	struct tx_record record;
	struct log_client client;
	int error;

	if (log->applied >= to)
		return 0;
	error = log_ring_read(log, log->applied, &record, sizeof(record));
	if (!error)
		error = log_each_tuple(log, log->applied + sizeof(record),
				       base_load_le32(&record.tuples), true);
	if (error)
		return error;
	client.id = record.client;
	client.sequence = record.sequence;
	base_store_le64(&client.end, log->applied + base_load_le64(&record.bytes));
	error = log->ops->write(log->memory, log_client_at(&record), &client, sizeof(client));
	if (!error)
		log->applied += base_load_le64(&record.bytes);
	return error;
}

int tx_log_truncate(struct tx_log *log, u64 to)
{
	u64 position = log->begin;
	int error = 0;

	if (to == log->begin)
		return 0;
	while (position < to) {
		struct tx_record record;

		error = log_ring_read(log, position, &record, sizeof(record));
		if (!error)
			error = log_each_tuple(log, position + sizeof(record),
					       base_load_le32(&record.tuples), false);
		if (error)
			return error;
		log_persist(log, TX_AT_CLIENT, log_client_at(&record), sizeof(struct log_client));
		position += base_load_le64(&record.bytes);
	}
	log_drain(log, TX_AT_DATA_DRAIN);
	error = log_store(log, LOG_BEGIN_AT, position);
	if (error)
		return error;
	log_persist(log, TX_AT_BEGIN, LOG_BEGIN_AT, LOG_WORD);
	log_drain(log, TX_AT_BEGIN_DRAIN);
	log->begin = position;
	return 0;
}

/* ---- chain ---------------------------------------------------------------------------------- */

int tx_log_set_chain(struct tx_log *log, u32 epoch, u32 role)
{
	int error;

	if (epoch <= log->epoch)
		return -ESTALE;
	error = log_store(log, LOG_CHAIN_AT, (u64)epoch << 8 | role);
	if (error)
		return error;
	log_persist(log, TX_AT_CHAIN, LOG_CHAIN_AT, LOG_WORD);
	log_drain(log, TX_AT_CHAIN_DRAIN);
	log->epoch = epoch;
	log->role = role;
	return 0;
}

/* ---- format, recovery ----------------------------------------------------------------------- */

static bool log_set_sizes(struct tx_log *log, u64 log_bytes)
{
	if (log_bytes < TX_LOG_BYTES_MIN || log_bytes % TX_LINE_BYTES ||
	    log->memory_bytes <= LOG_AT || log_bytes >= log->memory_bytes - LOG_AT)
		return false;
	log->log_bytes = log_bytes;
	log->data_bytes = log->memory_bytes - LOG_AT - log_bytes;
	return true;
}

int tx_log_format(struct tx_log *log, u64 log_bytes)
{
	static const u8 zeros[TX_LINE_BYTES];
	struct log_super super = {};
	u64 at;
	int error;

	if (!log_set_sizes(log, log_bytes))
		return -EINVAL;
	base_store_le64(&super.version, TX_LOG_VERSION);
	base_store_le64(&super.memory_bytes, log->memory_bytes);
	base_store_le64(&super.log_bytes, log_bytes);
	error = log->ops->write(log->memory, LOG_SUPER_AT, &super, sizeof(super));
	/* All before the log, and the log's first word. */
	for (at = LOG_BEGIN_AT; !error && at <= LOG_AT; at += TX_LINE_BYTES)
		error = log->ops->write(log->memory, at, zeros, sizeof(zeros));
	if (error)
		return error;
	log_persist(log, TX_AT_FORMAT, LOG_SUPER_AT, LOG_AT + TX_LINE_BYTES);
	log_drain(log, TX_AT_FORMAT_DRAIN);
	error = log_store(log, LOG_SUPER_AT, LOG_MAGIC);
	/* tx_log_open() makes the magic durable. */
	return error ? error : tx_log_open(log);
}

static int log_open_clients(struct tx_log *log)
{
	u32 n;

	for (n = 0; n < TX_CLIENTS; n++) {
		struct log_client client;
		int error = log->ops->read(log->memory, LOG_CLIENTS_AT + n * sizeof(client),
					   &client, sizeof(client));

		if (error)
			return error;
		log->client[n].id = base_load_le64(&client.id);
		log->client[n].sequence = base_load_le64(&client.sequence);
		log->client[n].end = base_load_le64(&client.end);
	}
	return 0;
}

/*
 * The record at the log's end, whose bytes are read a part at a time; *bytes is 0 if there is none.
 * The 0 behind the last record is durable before that record's length is written. So a length that
 * isn't 0 has a whole record, and one that doesn't verify was damaged (-EUCLEAN).
 */
static int log_check_next(const struct tx_log *log, struct tx_record *head, u32 *bytes)
{
	static const __le32 zero;
	u32 at, tuples, n, sum;
	u64 total;
	int error = log_ring_read(log, log->end, head, sizeof(*head));

	*bytes = 0;
	total = base_load_le64(&head->bytes);
	if (error || !total)
		return error;
	tuples = base_load_le32(&head->tuples);
	if (total < sizeof(*head) || total > TX_RECORD_BYTES_MAX || total % LOG_WORD ||
	    log->end + total + LOG_WORD > log->begin + log->log_bytes ||
	    base_load_le64(&head->position) != log->end || tuples > TX_TUPLES_MAX ||
	    base_load_le32(&head->slot) >= TX_CLIENTS || !base_load_le64(&head->client))
		return -EUCLEAN;
	at = __builtin_offsetof(struct tx_record, sum);
	sum = log->ops->sum(0xffffffffU, head, at);
	sum = log->ops->sum(sum, &zero, sizeof(zero));
	sum = log->ops->sum(sum, (const u8 *)head + at + sizeof(zero),
			    sizeof(*head) - at - sizeof(zero));
	at = sizeof(*head);
	for (n = 0; n < tuples; n++) {
		struct tx_record_tuple tuple;
		u8 piece[512];
		u32 left;

		if (total - at < sizeof(tuple))
			return -EUCLEAN;
		error = log_ring_read(log, log->end + at, &tuple, sizeof(tuple));
		if (error)
			return error;
		if (!log_tuple_fits(log, &tuple, total - at - sizeof(tuple)))
			return -EUCLEAN;
		sum = log->ops->sum(sum, &tuple, sizeof(tuple));
		at += sizeof(tuple);
		for (left = log_padded(base_load_le32(&tuple.bytes)); left;) {
			u32 now = base_min(left, (u32)sizeof(piece));

			error = log_ring_read(log, log->end + at, piece, now);
			if (error)
				return error;
			sum = log->ops->sum(sum, piece, now);
			at += now;
			left -= now;
		}
	}
	if (at != total || ~sum != base_load_le32(&head->sum))
		return -EUCLEAN;
	*bytes = total;
	return 0;
}

int tx_log_open(struct tx_log *log)
{
	struct log_super super;
	struct tx_record record;
	u64 chain;
	u32 bytes;
	int error;

	error = log->ops->read(log->memory, LOG_SUPER_AT, &super, sizeof(super));
	if (error)
		return error;
	if (!base_load_le64(&super.magic))
		return -ENODATA;
	if (base_load_le64(&super.magic) != LOG_MAGIC ||
	    base_load_le64(&super.version) != TX_LOG_VERSION)
		return -EPROTONOSUPPORT;
	if (base_load_le64(&super.memory_bytes) != log->memory_bytes ||
	    !log_set_sizes(log, base_load_le64(&super.log_bytes)))
		return -EUCLEAN;
	error = log_load(log, LOG_BEGIN_AT, &log->begin);
	if (!error)
		error = log_load(log, LOG_CHAIN_AT, &chain);
	if (!error)
		error = log_open_clients(log);
	if (error)
		return error;
	if (log->begin % LOG_WORD)
		return -EUCLEAN;
	log->epoch = chain >> 8;
	log->role = chain & 0xff;
	log->applied = log->begin;
	log->end = log->begin;
	do {
		error = log_check_next(log, &record, &bytes);
		if (error)
			return error;
		if (bytes)
			log_note_client(log, &record);
		log->end += bytes;
	} while (bytes);
	/*
	 * A process that was killed can leave stores in the caches alone. All that was found counts
	 * from now on, so it must survive a power cut. The word behind the end is a part of it.
	 */
	log_persist(log, TX_AT_OPEN, LOG_SUPER_AT, LOG_AT);
	log_ring_persist(log, TX_AT_OPEN, log->begin, log->end - log->begin + LOG_WORD);
	log_drain(log, TX_AT_OPEN_DRAIN);
	return 0;
}
