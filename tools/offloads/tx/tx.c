// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Transactions of several tuples in a chain of replicas (Orca, HPCA'23).
 *
 *   head:  TX_RUN -> locks, in order -> read -> append -> forward ... acked -> apply -> answer
 *   next:  TX_FORWARD -> parts -> append -> (forward ... acked) -> apply -> answer
 *
 * Records are applied in the order of the log, up to the position that all replicas behind have.
 *
 * One space in a process: the log's volatile state is static. The node runs one step at a time.
 */
#include "tx.h"

#include <linux/errno.h>

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "log.h"
#include "remora/offload.h"
#include "replica.h"

_Static_assert(sizeof(struct tx_call) <= RMEM_SCRATCH_BYTES_MAX, "a call's state");
_Static_assert(TX_PARTS_MAX * TX_PART_BYTES >= TX_REQUEST_BYTES_MAX + sizeof(struct tx_record),
	       "a record in parts");

/* ---- TX_STATUS, TX_CHAIN -------------------------------------------------------------------- */

static int tx_report(struct rmem_call *call)
{
	struct tx_status *status = rmem_result(call, sizeof(*status));

	if (!status)
		return rmem_error(call);
	base_store_le32(&status->epoch, tx->log.epoch);
	base_store_le32(&status->role, tx->log.role | (tx->fenced ? TX_STATUS_FENCED : 0));
	base_store_le64(&status->begin, tx->log.begin);
	base_store_le64(&status->applied, tx->log.applied);
	base_store_le64(&status->end, tx->log.end);
	base_store_le64(&status->log_bytes, tx->log.log_bytes);
	base_store_le64(&status->data_bytes, tx->log.data_bytes);
	base_store_le64(&status->data, RMEM_PERSISTENT_ADDR + tx_log_data_at(&tx->log));
	return 0;
}

/*
 * A head that stops to be one can have records that the new head lacks. They can't be applied, and
 * can't be taken back, so the replica needs a copy of another one's file.
 */
static bool tx_has_unacknowledged(void)
{
	return tx->log.role & TX_CHAIN_HEAD && !tx_is_last() && tx->acked < tx->log.end;
}

static int tx_set_chain(u32 epoch, u32 role)
{
	int error = tx_log_set_chain(&tx->log, epoch, role);

	if (!error)
		tx->fenced = false;
	return error;
}

static int tx_change_chain(struct rmem_call *call, struct tx_call *state)
{
	const struct tx_chain_args *args = rmem_args(call, sizeof(*args));
	u32 epoch, role;
	int error;

	if (!args || base_load_le32(&args->role) & ~(TX_CHAIN_HEAD | TX_CHAIN_NEXT))
		return -EINVAL;
	epoch = base_load_le32(&args->epoch);
	role = base_load_le32(&args->role);
	if (epoch <= tx->log.epoch)
		return -ESTALE;
	if (!(role & TX_CHAIN_HEAD) && tx_has_unacknowledged())
		return -EUCLEAN;
	if (role & TX_CHAIN_NEXT && (tx_is_last() || tx->fenced)) {
		error = tx_meet_next(call, state, epoch);
		if (error)
			return error;
	}
	error = tx_set_chain(epoch, role);
	if (!error)
		error = tx_apply();
	if (tx->broken)
		error = -EIO;
	return error ? error : tx_answer(call, TX_DONE, tx->log.end);
}

/* ---- TX_FORWARD ----------------------------------------------------------------------------- */

/* The stage of a record; else a free one; else that of the oldest record. */
static struct tx_stage *tx_find_stage(u64 position, u32 bytes, u32 epoch)
{
	struct tx_stage *oldest = &tx->stage[0];
	u32 n;

	for (n = 0; n < TX_STAGES; n++) {
		struct tx_stage *stage = &tx->stage[n];

		if (stage->bytes == bytes && stage->position == position && stage->epoch == epoch)
			return stage;
		if (!oldest->bytes)
			continue;
		if (!stage->bytes || stage->position < oldest->position)
			oldest = stage;
	}
	oldest->position = position;
	oldest->bytes = bytes;
	oldest->epoch = epoch;
	oldest->parts = 0;
	return oldest;
}

/* Puts a part to the others. NULL: some lack. */
static const struct tx_record *tx_join(const struct tx_forward_args *args, u32 bytes)
{
	u32 offset = base_load_le32(&args->offset), total = base_load_le32(&args->bytes);
	struct tx_stage *stage = tx_find_stage(base_load_le64(&args->position), total,
					       base_load_le32(&args->epoch));

	base_copy(stage->record + offset, args + 1, bytes);
	stage->parts |= 1U << offset / TX_PART_BYTES;
	if (stage->parts != (1ULL << tx_parts(total)) - 1)
		return NULL;
	stage->bytes = 0;
	return (const struct tx_record *)stage->record;
}

/* A record that this replica has: is it the same one? */
static int tx_check_same(const struct tx_record *record)
{
	struct tx_record *have = (struct tx_record *)tx->record;
	u64 position = base_load_le64(&record->position);
	int error;

	if (position < tx->log.begin)
		return 0;
	error = tx_log_read(&tx->log, position, have);
	return error ? error : have->sum == record->sum ? 0 : -EUCLEAN;
}

/* Refuses the question of a sender whose log can't have this one as its begin. */
static int tx_check_question(struct rmem_call *call, const struct tx_forward_args *args)
{
	const struct tx_question *question = (const struct tx_question *)(args + 1);
	struct tx_record last;
	int error;

	if (rmem_args_bytes(call) != sizeof(*args) + sizeof(*question))
		return -EINVAL;
	if (base_load_le64(&question->log_bytes) != tx->log.log_bytes ||
	    base_load_le64(&question->data_bytes) != tx->log.data_bytes)
		return -EXDEV;
	if (base_load_le64(&args->position) == tx->log.end && (question->sum || question->epoch)) {
		error = tx_find_record_before(tx->log.end, &last);
		if (error)
			return error;
		if ((last.sum || last.epoch) &&
		    (last.sum != question->sum || last.epoch != question->epoch))
			return -EUCLEAN;
	}
	return 0;
}

static bool tx_is_old_epoch(u32 epoch)
{
	return epoch < tx->log.epoch || (epoch == tx->log.epoch && tx->log.role & TX_CHAIN_HEAD);
}

static int tx_take_epoch(u32 epoch)
{
	if (epoch == tx->log.epoch)
		return 0;
	if (tx_has_unacknowledged())
		return -EUCLEAN;
	return tx_set_chain(epoch, tx->log.role & ~TX_CHAIN_HEAD);
}

static int tx_take_record(struct rmem_call *call, struct tx_call *state,
			  const struct tx_record *record, u32 total)
{
	u64 position = base_load_le64(&record->position);
	int error;

	if (!tx_log_is_sound(&tx->log, record, total))
		return -EINVAL;
	if (position > tx->log.end)
		return tx_answer(call, TX_GAP, tx->log.end);
	if (position < tx->log.end) {
		error = tx_check_same(record);
	} else {
		error = tx_append(record);
		/* Records that a further replica lacks keep their room. */
		if (error == -ENOSPC && tx->log.applied > tx->log.begin) {
			error = tx_truncate(true);
			if (!error)
				error = tx_append(record);
		}
	}
	return error ? error : tx_wait_for(state, position + total, position);
}

static int tx_take(struct rmem_call *call, struct tx_call *state)
{
	const struct tx_forward_args *args = rmem_args(call, sizeof(*args));
	u32 bytes = rmem_args_bytes(call) - sizeof(*args), total, offset;
	const struct tx_record *record;
	int error;

	if (state->phase == TX_DRIVE) {
		error = tx_drive(call, state);
		return error ? error : tx_answer(call, TX_DONE, tx->acked);
	}
	if (!args)
		return -EINVAL;
	if (tx_is_old_epoch(base_load_le32(&args->epoch)))
		return tx_answer(call, TX_OLD_EPOCH, tx->log.end);
	total = base_load_le32(&args->bytes);
	offset = base_load_le32(&args->offset);
	error = total ? 0 : tx_check_question(call, args);
	if (!error)
		error = tx_take_epoch(base_load_le32(&args->epoch));
	if (error || tx->broken)
		return error ? error : -EIO;
	if (!total)
		return tx_answer(call, TX_DONE, tx->log.end);
	if (total > TX_RECORD_BYTES_MAX || tx_parts(total) > TX_PARTS_MAX || offset >= total ||
	    offset % TX_PART_BYTES || bytes != base_min(total - offset, TX_PART_BYTES))
		return -EINVAL;
	record = tx_join(args, bytes);
	if (!record)
		return tx_answer(call, TX_PART, tx->log.end);
	if (record->position != args->position)
		return -EINVAL;
	return tx_take_record(call, state, record, total);
}

/* ---- start ---------------------------------------------------------------------------------- */

/* An eighth of the memory, but no more than 16 MiB. */
static u64 tx_choose_log_bytes(u64 memory_bytes)
{
	u64 bytes = base_min(memory_bytes / 8, (u64)16 << 20);

	return bytes & ~(u64)(TX_LINE_BYTES - 1);
}

static int tx_open(struct rmem_call *call)
{
	int error;

	tx->log.ops = &tx_memory;
	tx->log.memory_bytes = rmem_persistent_bytes(call);
	if (!tx->log.memory_bytes)
		return -ENODEV;
	base_crc32c_setup();
	error = tx_log_open(&tx->log);
	if (error == -ENODATA)
		error = tx_log_format(&tx->log, tx_choose_log_bytes(tx->log.memory_bytes));
	if (tx->broken)
		error = -EIO;
	if (!error)
		tx->acked = tx->log.begin;
	return error;
}

/* A replica with a next one sends the records that the next one lacks. */
static int tx_recover(struct rmem_call *call, struct tx_call *state)
{
	int error;

	if (!tx->started) {
		error = tx_open(call);
		if (error)
			return error;
		tx->started = true;
		state->target = tx->log.end;
		state->phase = tx_is_last() ? TX_DRIVE : TX_EXECUTE;
	}
	if (state->phase == TX_LOCK)
		return -EBUSY; /* another space has it */
	if (state->phase == TX_EXECUTE) {
		error = tx_meet_next(call, state, tx->log.epoch);
		if (error)
			return error;
		state->phase = TX_DRIVE;
	}
	return tx_drive(call, state);
}

/*
 * Recovery. A replica is fenced if it died while the chain changed, or isn't in the chain any more;
 * or the operator gave it no link, because the next one is lost. Then the operator, or the replica
 * before it, brings a later epoch.
 */
static int tx_start(struct rmem_call *call)
{
	int error;

	tx->log.memory = call;
	error = tx_recover(call, rmem_scratch(call, sizeof(struct tx_call)));
	tx->fenced = error == -ESTALE || error == -ENOLINK;
	return tx->fenced ? 0 : error;
}

static int tx_step(struct rmem_call *call)
{
	struct tx_call *state = rmem_scratch(call, sizeof(*state));

	if (tx->broken)
		return -EIO;
	tx->log.memory = call;
	switch (rmem_function(call)) {
	case TX_RUN:
		return tx_run(call, state);
	case TX_RESULT:
		return tx_read_result(call);
	case TX_FORWARD:
		return tx_take(call, state);
	case TX_CHAIN:
		return tx_change_chain(call, state);
	case TX_STATUS:
		return tx_report(call);
	default:
		return -ENOSYS;
	}
}

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION,
	.id = TX_ID,
	.once_mask = 1 << TX_RUN | 1 << TX_FORWARD | 1 << TX_CHAIN,
	.budget_us = RMEM_BUDGET_US_MAX,
	.name = "tx",
	.step = tx_step,
	.start = tx_start,
};
