// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The way to the next replica. */
#include <linux/errno.h>

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "replica.h"

#define CHAIN_TRIES_MAX 64U

u32 tx_parts(u32 bytes)
{
	return (bytes + TX_PART_BYTES - 1) / TX_PART_BYTES;
}

/* A record in parts. */
static int chain_send(struct rmem_call *call, struct tx_call *state, u64 position, u32 bytes)
{
	u8 message[RMEM_FORWARD_BYTES_MAX];
	struct tx_forward_args *args = (struct tx_forward_args *)message;
	u32 offset = 0;
	int error;

	base_store_le32(&state->answer.done, TX_PART);
	do {
		u32 now = base_min(bytes - offset, TX_PART_BYTES);

		base_store_le32(&args->epoch, tx->log.epoch);
		base_store_le32(&args->offset, offset);
		base_store_le64(&args->position, position);
		base_store_le32(&args->bytes, bytes);
		args->reserved = 0;
		base_copy(args + 1, tx->record + offset, now);
		error = rmem_forward(call, "next", TX_FORWARD, message, sizeof(*args) + now);
		if (error)
			return error;
		state->parts++;
		offset += now;
	} while (offset < bytes);
	return 0;
}

/* The record that ends at position, for its sum and epoch; zeros: the log doesn't have it. */
int tx_find_record_before(u64 position, struct tx_record *record)
{
	u64 at = tx->log.begin, bytes = 0;
	int error = 0;

	base_zero(record, sizeof(*record));
	while (!error && at < position) {
		error = tx_log_bytes_at(&tx->log, at, &bytes);
		if (!error && !bytes)
			error = -EUCLEAN;
		at += bytes;
	}
	if (error || !bytes)
		return error;
	if (at != position)
		return -EXDEV; /* no record ends there */
	error = tx_log_read(&tx->log, at - bytes, (struct tx_record *)tx->record);
	if (!error)
		base_copy(record, tx->record, sizeof(*record));
	return error;
}

/* Asks the next replica about a position, in an epoch that needn't be this replica's yet. */
static int chain_ask(struct rmem_call *call, struct tx_call *state, u32 epoch, u64 position)
{
	struct {
		struct tx_forward_args args;
		struct tx_question question;
	} message = {};
	struct tx_record record;
	int error = tx_find_record_before(position, &record);

	if (error)
		return error;
	base_store_le32(&message.args.epoch, epoch);
	base_store_le64(&message.args.position, position);
	base_store_le64(&message.question.log_bytes, tx->log.log_bytes);
	base_store_le64(&message.question.data_bytes, tx->log.data_bytes);
	message.question.sum = record.sum;
	message.question.epoch = record.epoch;
	error = rmem_forward(call, "next", TX_FORWARD, &message, sizeof(message));
	if (!error)
		state->parts++;
	return error;
}

/* Takes the answers to all parts, for state->answer. RMEM_AGAIN: some lack. */
static int chain_collect(struct rmem_call *call, struct tx_call *state)
{
	struct tx_result each;
	int error;

	while (state->parts) {
		error = rmem_forwarded(call, &each);
		if (error)
			return error;
		state->parts--;
		if (base_load_le32(&each.done) != TX_PART)
			state->answer = each;
	}
	return 0;
}

/*
 * 0: tx->acked is the next replica's position, and that one's log is the begin of this one's. First
 * the position is asked for, then whether the record before it is the same.
 */
int tx_meet_next(struct rmem_call *call, struct tx_call *state, u32 epoch)
{
	u64 position = tx->log.end;
	int error;

	if (state->asked != TX_ASKED_NOTHING) {
		error = chain_collect(call, state);
		if (error)
			return error;
		if (base_load_le32(&state->answer.done) == TX_OLD_EPOCH)
			return -ESTALE;
		position = base_load_le64(&state->answer.position);
		if (position < tx->log.begin || position > tx->log.end)
			return -EXDEV;
	}
	if (state->asked == TX_ASKED_RECORD && position == state->at) {
		tx->acked = position;
		return 0;
	}
	state->asked = state->asked == TX_ASKED_NOTHING ? TX_ASKED_POSITION : TX_ASKED_RECORD;
	state->at = position;
	error = chain_ask(call, state, epoch, position);
	return error ? error : RMEM_AGAIN;
}

/* 0: all replicas behind have the log up to state->target, and this one has applied it. */
int tx_drive(struct rmem_call *call, struct tx_call *state)
{
	u64 bytes, position;
	int error;

	if (state->parts) {
		error = chain_collect(call, state);
		if (error)
			return error;
		position = base_load_le64(&state->answer.position);
		switch (base_load_le32(&state->answer.done)) {
		case TX_DONE:
			if (position > tx->log.end)
				return -EXDEV;
			tx->acked = base_max(tx->acked, position);
			state->at = tx->acked;
			break;
		case TX_GAP:
			if (position < tx->log.begin || position >= tx->log.end)
				return -EXDEV;
			/* A replaced replica can lack records that the one before it had. */
			state->at = position;
			tx->acked = base_min(tx->acked, position);
			state->acked = base_min(state->acked, tx->acked);
			break;
		case TX_OLD_EPOCH:
			return -ESTALE;
		default:
			break; /* the parts go again */
		}
	}
	error = tx_apply();
	if (error)
		return error;
	if (tx->acked >= state->target)
		return tx->log.applied < state->target ? RMEM_AGAIN : 0;
	if (tx->acked > state->acked) {
		state->acked = tx->acked;
		state->tries = 0;
	}
	if (state->tries++ == CHAIN_TRIES_MAX)
		return -ETIMEDOUT;
	state->at = base_max(state->at, tx->acked);
	error = tx_log_read(&tx->log, state->at, (struct tx_record *)tx->record);
	if (error)
		return error;
	bytes = base_load_le64(&((struct tx_record *)tx->record)->bytes);
	error = chain_send(call, state, state->at, bytes);
	return error ? error : RMEM_AGAIN;
}

/* Sets state->target and the phase. Returns RMEM_AGAIN. */
int tx_wait_for(struct tx_call *state, u64 target, u64 from)
{
	state->target = target;
	state->at = from;
	state->phase = TX_DRIVE;
	return RMEM_AGAIN;
}
