// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "replica.h"

#include <linux/errno.h>

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/base/crc32c.h"

#define REPLICA_BATCH 32U /* records that a step applies or truncates */

static struct tx_replica replica_only;
struct tx_replica *tx = &replica_only;

/* ---- the memory ----------------------------------------------------------------------------- */

static int replica_read(void *call, u64 at, void *to, u32 bytes)
{
	return rmem_read(call, RMEM_PERSISTENT_ADDR + at, to, bytes);
}

static int replica_write(void *call, u64 at, const void *from, u32 bytes)
{
	return rmem_write(call, RMEM_PERSISTENT_ADDR + at, from, bytes);
}

static void replica_persist(void *call, enum tx_log_point point, u64 at, u64 bytes)
{
	(void)point;
	if (rmem_persist(call, RMEM_PERSISTENT_ADDR + at, bytes))
		tx->broken = true;
}

static void replica_drain(void *call, enum tx_log_point point)
{
	(void)point;
	if (rmem_drain(call))
		tx->broken = true;
}

const struct tx_log_ops tx_memory = {
	.read = replica_read,
	.write = replica_write,
	.persist = replica_persist,
	.drain = replica_drain,
	.sum = base_crc32c_update,
};

int tx_answer(struct rmem_call *call, enum tx_done done, u64 position)
{
	struct tx_result *result = rmem_result(call, sizeof(*result));

	if (!result)
		return rmem_error(call);
	base_store_le32(&result->done, done);
	base_store_le32(&result->epoch, tx->log.epoch);
	base_store_le64(&result->position, position);
	return 0;
}

bool tx_is_last(void)
{
	return !(tx->log.role & TX_CHAIN_NEXT);
}

/* Positions up to which records were acknowledged are applied, some of them in each step. */
int tx_apply(void)
{
	u32 n;
	int error = 0;

	if (tx_is_last())
		tx->acked = tx->log.end;
	for (n = 0; !error && n < REPLICA_BATCH && tx->log.applied < tx->acked; n++)
		error = tx_log_apply(&tx->log, tx->acked);
	return error;
}

/*
 * Gives up the room of some records once the log is half full, or of as many as there are. A record
 * that a replica behind lacks keeps its room, also if it is applied.
 */
int tx_truncate(bool all)
{
	u64 to = tx->log.begin, most = base_min(tx->log.applied, tx->acked);
	u32 n;

	if (!all && tx->log.end - tx->log.begin < tx->log.log_bytes / 2)
		return 0;
	for (n = 0; (all || n < REPLICA_BATCH) && to < most; n++) {
		u64 bytes;
		int error = tx_log_bytes_at(&tx->log, to, &bytes);

		if (error)
			return error;
		to += bytes;
	}
	return tx_log_truncate(&tx->log, to);
}

int tx_append(const struct tx_record *record)
{
	int error = tx_truncate(false);

	if (!error)
		error = tx_log_append(&tx->log, record);
	return tx->broken ? -EIO : error;
}
