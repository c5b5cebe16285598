// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * TX_RUN at the head, and TX_RESULT.
 *
 * Locks end with their call, also with one that failed before its record was acknowledged. So a
 * call that holds its locks still looks for records of its tuples that aren't applied
 * (run_find_conflict()), and forwards them first.
 */
#include <linux/errno.h>

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "replica.h"

#define RUN_LOCK_SHIFT 10 /* a lock covers so much data: 1 KiB */
#define RUN_LOCK_DATA (1ULL << 63)

_Static_assert(sizeof(struct tx_run_args) == 1024 - TX_INLINE_BYTES_MAX, "a request in arguments");

/* Could the tuples that are read overwrite the log? A program can write there, a client can't. */
static bool run_is_persistent(struct rmem_call *call, u64 addr)
{
	u64 bytes = sizeof(struct tx_read_head) + (u64)TX_READS_MAX * TX_TUPLE_BYTES_MAX;

	return addr + bytes < addr || (addr + bytes > RMEM_PERSISTENT_ADDR &&
				       addr < RMEM_PERSISTENT_ADDR + rmem_persistent_bytes(call));
}

/* The request, checked: in tx->request, its writes as a record's tuples in tx->record. */
static int run_load_request(struct rmem_call *call, const struct tx_run_args *args)
{
	struct tx_record *record = (struct tx_record *)tx->record;
	u32 bytes = base_load_le32(&args->bytes), reads = base_load_le32(&args->reads);
	u32 skip = reads * sizeof(struct tx_read), n;
	u64 area = base_load_le64(&args->area);
	int error = 0;

	if (bytes > TX_REQUEST_BYTES_MAX || reads > TX_READS_MAX || skip > bytes ||
	    base_load_le32(&args->writes) > TX_WRITES_MAX || args->reserved ||
	    base_load_le64(&args->client) & RUN_LOCK_DATA)
		return -EINVAL;
	if (reads && (!args->result || run_is_persistent(call, base_load_le64(&args->result))))
		return -EINVAL;
	if (area)
		error = rmem_read(call, area, tx->request, bytes);
	else if (rmem_args_bytes(call) != sizeof(*args) + bytes)
		error = -EINVAL;
	else
		base_copy(tx->request, args + 1, bytes);
	if (error)
		return error;
	if (base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, tx->request, bytes)) !=
	    base_load_le32(&args->sum))
		return area ? -ENODATA : -EINVAL;
	for (n = 0; n < reads; n++) {
		const struct tx_read *read = (const struct tx_read *)tx->request + n;
		u64 offset = base_load_le64(&read->offset);
		u32 size = base_load_le32(&read->bytes);

		if (!size || size > TX_TUPLE_BYTES_MAX || offset > tx->log.data_bytes ||
		    size > tx->log.data_bytes - offset)
			return -EINVAL;
	}
	base_zero(record, sizeof(*record));
	base_store_le64(&record->bytes, sizeof(*record) + bytes - skip);
	record->client = args->client;
	record->sequence = args->sequence;
	record->tuples = args->writes;
	base_copy(record + 1, tx->request + skip, bytes - skip);
	tx_log_seal(&tx->log, record);
	return tx_log_is_sound(&tx->log, record, sizeof(*record) + bytes - skip) ? 0 : -EINVAL;
}

struct run_keys {
	u64 key[RMEM_KEYS_MAX];
	u32 count;
};

/* Keeps the keys in order. */
static int run_add_key(struct run_keys *keys, u64 key)
{
	u32 at = keys->count, n;

	while (at && keys->key[at - 1] > key)
		at--;
	if (at && keys->key[at - 1] == key)
		return 0;
	if (keys->count == RMEM_KEYS_MAX)
		return -EMSGSIZE;
	for (n = keys->count++; n > at; n--)
		keys->key[n] = keys->key[n - 1];
	keys->key[at] = key;
	return 0;
}

static int run_add_range(struct run_keys *keys, u64 offset, u32 bytes)
{
	u64 block;
	int error = 0;

	for (block = offset >> RUN_LOCK_SHIFT;
	     !error && block <= (offset + bytes - 1) >> RUN_LOCK_SHIFT; block++)
		error = run_add_key(keys, RUN_LOCK_DATA | block);
	return error;
}

/* Adds the data of a record in a buffer, which is sound. */
static int run_add_record(struct run_keys *keys, const struct tx_record *record)
{
	const u8 *at = (const u8 *)(record + 1);
	u32 n;
	int error = 0;

	for (n = 0; !error && n < base_load_le32(&record->tuples); n++) {
		const struct tx_record_tuple *tuple = (const struct tx_record_tuple *)at;
		u32 bytes = base_load_le32(&tuple->bytes);

		error = run_add_range(keys, base_load_le64(&tuple->offset), bytes);
		at += sizeof(*tuple) + ((bytes + 7) & ~7U);
	}
	return error;
}

/* The client first: TX_RESULT waits for it. Then the data of the loaded request. */
static int run_find_keys(const struct tx_run_args *args, struct run_keys *keys)
{
	const struct tx_read *read = (const struct tx_read *)tx->request;
	u32 n;
	int error;

	keys->count = 0;
	error = run_add_key(keys, base_load_le64(&args->client));
	for (n = 0; !error && n < base_load_le32(&args->reads); n++)
		error = run_add_range(keys, base_load_le64(&read[n].offset),
				     base_load_le32(&read[n].bytes));
	return error ? error : run_add_record(keys, (struct tx_record *)tx->record);
}

/* *end: behind the last record of these keys that isn't applied; 0: there is none. */
static int run_find_conflict(const struct run_keys *keys, u64 *end)
{
	static u8 buffer[TX_RECORD_BYTES_MAX] __attribute__((aligned(8)));
	struct tx_record *record = (struct tx_record *)buffer;
	u64 position = tx->log.applied;

	*end = 0;
	while (position < tx->log.end) {
		struct run_keys its = { .count = 0 };
		u32 a, b;
		int error = tx_log_read(&tx->log, position, record);

		if (!error)
			error = run_add_record(&its, record);
		if (error)
			return error;
		position += base_load_le64(&record->bytes);
		for (a = 0, b = 0; a < its.count && b < keys->count;) {
			if (its.key[a] == keys->key[b]) {
				*end = position;
				break;
			}
			if (its.key[a] < keys->key[b])
				a++;
			else
				b++;
		}
	}
	return 0;
}

static int run_read_tuples(struct rmem_call *call, const struct tx_run_args *args)
{
	const struct tx_read *read = (const struct tx_read *)tx->request;
	u64 to = base_load_le64(&args->result) + sizeof(struct tx_read_head);
	u8 piece[TX_TUPLE_BYTES_MAX];
	u32 n;

	for (n = 0; n < base_load_le32(&args->reads); n++) {
		u32 bytes = base_load_le32(&read[n].bytes);
		int error = tx_log_read_data(&tx->log, base_load_le64(&read[n].offset), piece,
					     bytes);

		if (!error)
			error = rmem_write(call, to, piece, bytes);
		if (error)
			return error;
		to += (bytes + 7) & ~7U;
	}
	return 0;
}

static int run_execute(struct rmem_call *call, const struct tx_run_args *args,
		      struct tx_call *state, const struct run_keys *keys)
{
	const struct tx_log_client *client = tx_log_find(&tx->log, base_load_le64(&args->client));
	struct tx_record *record = (struct tx_record *)tx->record;
	u64 sequence = base_load_le64(&args->sequence), end;
	int error;

	if (client && client->sequence > sequence)
		return -ESTALE;
	if (client && client->sequence == sequence) {
		state->repeated = true;
		state->ours = true;
		return tx_wait_for(state, client->end, tx->acked);
	}
	error = run_find_conflict(keys, &end);
	if (error)
		return error;
	if (end)
		return tx_wait_for(state, end, tx->acked);
	error = run_read_tuples(call, args);
	if (error)
		return error;
	/* Nothing to write, nothing to make durable. */
	if (!args->writes) {
		state->ours = true;
		return tx_wait_for(state, 0, 0);
	}
	end = tx->log.end;
	error = tx_append(record);
	if (error == -ENOSPC) {
		if (base_min(tx->log.applied, tx->acked) < tx->log.end)
			return tx_wait_for(state, tx->log.end, tx->acked);
		error = tx_truncate(true);
		if (!error)
			error = tx_append(record);
		if (error == -ENOSPC)
			error = -EMSGSIZE;
	}
	if (error)
		return error;
	state->ours = true;
	return tx_wait_for(state, tx->log.end, end);
}

static int run_end(struct rmem_call *call, const struct tx_run_args *args,
		      const struct tx_call *state)
{
	struct tx_read_head head = { args->client, args->sequence };

	if (args->reads && !state->repeated) {
		int error = rmem_write(call, base_load_le64(&args->result), &head, sizeof(head));

		if (error)
			return error;
	}
	return tx_answer(call, state->repeated ? TX_REPEATED : TX_DONE, state->target);
}

int tx_run(struct rmem_call *call, struct tx_call *state)
{
	const struct tx_run_args *args = rmem_args(call, sizeof(*args));
	struct run_keys keys;
	u32 n;
	int error;

	if (!args)
		return -EINVAL;
	if (!(tx->log.role & TX_CHAIN_HEAD) || tx->fenced)
		return -ENOTCONN;
	if (state->phase == TX_DRIVE) {
		error = tx_drive(call, state);
		if (error)
			return error;
		if (state->ours)
			return run_end(call, args, state);
		state->phase = TX_EXECUTE;
	}
	error = run_load_request(call, args);
	if (!error)
		error = run_find_keys(args, &keys);
	if (error)
		return error;
	for (n = 0; state->phase == TX_LOCK && n < keys.count; n++) {
		error = rmem_key_lock(call, keys.key[n]);
		if (error)
			return error;
	}
	state->phase = TX_EXECUTE;
	return run_execute(call, args, state, &keys);
}

int tx_read_result(struct rmem_call *call)
{
	const struct tx_result_args *args = rmem_args(call, sizeof(*args));
	struct tx_read_head *head;
	u32 bytes;
	int error;

	if (!args || base_load_le64(&args->client) & RUN_LOCK_DATA)
		return -EINVAL;
	bytes = base_load_le32(&args->bytes);
	error = rmem_key_lock(call, base_load_le64(&args->client));
	if (error)
		return error;
	if (bytes < sizeof(*head))
		return -EINVAL;
	head = rmem_result(call, bytes);
	if (!head)
		return rmem_error(call);
	error = rmem_read(call, base_load_le64(&args->result), head, bytes);
	if (error)
		return error;
	return head->client == args->client && head->sequence == args->sequence ? 0 : -ENODATA;
}
