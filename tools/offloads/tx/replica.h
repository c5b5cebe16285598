/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A replica of a chain, and a call's state: for the files of this offload.
 *
 *   tx.c       TX_CHAIN, TX_FORWARD, TX_STATUS, start
 *   run.c      TX_RUN, TX_RESULT
 *   chain.c    the way to the next replica
 *   replica.c  the log in persistent memory: records are appended, applied, truncated
 *   log.c      that log as a core
 */
#ifndef REMORA_OFFLOADS_TX_REPLICA_H
#define REMORA_OFFLOADS_TX_REPLICA_H

#include "log.h"
#include "remora/offload.h"
#include "tx.h"

#define TX_PART_BYTES (RMEM_FORWARD_BYTES_MAX - (u32)sizeof(struct tx_forward_args))
#define TX_PARTS_MAX RMEM_FORWARDS_MAX
#define TX_STAGES 32U

enum tx_phase { TX_LOCK, TX_EXECUTE, TX_DRIVE };

/* A call's last question to the next replica. */
enum tx_asked { TX_ASKED_NOTHING, TX_ASKED_POSITION, TX_ASKED_RECORD };

struct tx_call {
	u32 phase;
	u32 asked; /* enum tx_asked */
	u32 tries; /* since tx.acked rose */
	u64 target; /* the log's position that the call waits for */
	u64 at;	    /* the record to be forwarded next */
	u64 acked;  /* tx.acked when the tries began */
	u32 parts;  /* under way */
	struct tx_result answer; /* the most telling one that came */
	bool ours;  /* the call's own record is in the log */
	bool repeated;
};

struct tx_stage {
	u64 position;
	u32 bytes; /* 0: free */
	u32 epoch; /* of the parts: a new head can have another record at the position */
	u32 parts; /* bits of the parts that came */
	u8 record[TX_RECORD_BYTES_MAX] __attribute__((aligned(8)));
};

/* The volatile state. */
struct tx_replica {
	bool started;
	bool broken; /* the memory failed */
	bool fenced; /* the replica has no place before a later epoch gives it one: tx_start() */
	struct tx_log log;
	u64 acked; /* position that all replicas behind this one have */
	struct tx_stage stage[TX_STAGES];
	u8 request[TX_REQUEST_BYTES_MAX] __attribute__((aligned(8)));
	u8 record[TX_RECORD_BYTES_MAX] __attribute__((aligned(8)));
};

/* The process has one. Tests have several, whose calls they step in turns. */
extern struct tx_replica *tx;

/* ---- replica.c ---- */

extern const struct tx_log_ops tx_memory;

/* A CALL's result. 0 or -errno. */
int tx_answer(struct rmem_call *call, enum tx_done done, u64 position);
/* There is no next replica. */
bool tx_is_last(void);
int tx_apply(void);
int tx_truncate(bool all);
int tx_append(const struct tx_record *record);

/* ---- chain.c ---- */

u32 tx_parts(u32 bytes);
int tx_find_record_before(u64 position, struct tx_record *record);
int tx_meet_next(struct rmem_call *call, struct tx_call *state, u32 epoch);
int tx_drive(struct rmem_call *call, struct tx_call *state);
int tx_wait_for(struct tx_call *state, u64 target, u64 from);

/* ---- run.c ---- */

int tx_run(struct rmem_call *call, struct tx_call *state);
int tx_read_result(struct rmem_call *call);

#endif
