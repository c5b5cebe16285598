/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The redo log of one replica: the state of the transactions in persistent memory.
 *
 *   0     superblock      magic, version, sizes         written by tx_log_format() alone
 *   64    begin           position of the oldest record that the log needs
 *   128   chain           epoch and role
 *   4096  clients         the last sequence number of each, as of the applied records
 *   10240 log             a ring; position p lies at p % log_bytes
 *   then  data            bytes that transactions read and write
 *
 *        begin           applied            end
 *   free |   records, data |  records not yet |0 free
 *        |   is written    |  in the data     |
 *
 * A record is valid once its first word, its length, isn't 0. tx_log_append() makes the rest of the
 * record durable before that word, and a 0 behind the record before that. So the order of writes
 * alone keeps a torn record from being found. The sum of each record finds damage of the medium,
 * which tx_log_open() refuses: the record might have been acknowledged.
 *
 * Data is written after the record is durable, and needn't be durable itself before
 * tx_log_truncate(): recovery writes it again.
 *
 * The core allocates nothing and takes no lock: the caller serialises calls. All integers in the
 * memory are little-endian.
 */
#ifndef REMORA_OFFLOADS_TX_LOG_H
#define REMORA_OFFLOADS_TX_LOG_H

#include <linux/types.h>

#include "core/base/types.h"

#define TX_LOG_VERSION 2

#define TX_LINE_BYTES 64
#define TX_CLIENTS 256
#define TX_TUPLES_MAX 16
/* Bounds a record, so that it fits into a buffer of the program. */
#define TX_RECORD_BYTES_MAX 16384U
#define TX_LOG_BYTES_MIN 512U
#define TX_EPOCH_MAX 0xffffffffU

/* Roles of a replica in its chain: flags. */
#define TX_CHAIN_HEAD 1U /* executes the clients' transactions */
#define TX_CHAIN_NEXT 2U /* sends its records to a next replica */

/* A record, in the log and in messages: this, then its tuples. */
struct tx_record {
	__le64 bytes;	 /* of the record, a multiple of 8 */
	__le64 position; /* of its first byte, counted from the format on */
	__le32 sum;	 /* CRC32C of the record, with 0 here */
	__le32 epoch;	 /* of the chain, when the head appended it */
	__le64 client;	 /* not 0 */
	__le64 sequence; /* the client's number of the transaction, not 0 */
	__le32 slot;	 /* of the client in the table, below TX_CLIENTS */
	__le32 tuples;	 /* 0 to TX_TUPLES_MAX */
};

/* Followed by the data, and by zeros up to a multiple of 8 bytes. */
struct tx_record_tuple {
	__le64 offset; /* in the data */
	__le32 bytes;  /* not 0 */
	__le32 reserved;
};

/* Each place in log.c that persists or drains. A test leaves one of them out. */
enum tx_log_point {
	TX_AT_FORMAT,
	TX_AT_FORMAT_DRAIN,
	TX_AT_OPEN,
	TX_AT_OPEN_DRAIN,
	TX_AT_BODY,
	TX_AT_BODY_DRAIN,
	TX_AT_LENGTH,
	TX_AT_LENGTH_DRAIN,
	TX_AT_DATA,
	TX_AT_CLIENT,
	TX_AT_DATA_DRAIN,
	TX_AT_BEGIN,
	TX_AT_BEGIN_DRAIN,
	TX_AT_CHAIN,
	TX_AT_CHAIN_DRAIN,
	TX_POINTS
};

/*
 * The memory, by offsets from its begin. A write of 8 aligned bytes is whole after a crash. read()
 * and write() return 0 or -errno, which the function that called them returns.
 */
struct tx_log_ops {
	int (*read)(void *memory, u64 at, void *to, u32 bytes);
	int (*write)(void *memory, u64 at, const void *from, u32 bytes);
	/* Begins to make a range durable. */
	void (*persist)(void *memory, enum tx_log_point point, u64 at, u64 bytes);
	/* Returns once all ranges that were begun are durable. */
	void (*drain)(void *memory, enum tx_log_point point);
	/* As base_crc32c_update(). */
	u32 (*sum)(u32 sum, const void *data, size_t bytes);
};

struct tx_log_client {
	u64 id; /* 0: the slot is free */
	u64 sequence;
	u64 end; /* position behind its last record */
};

struct tx_log {
	const struct tx_log_ops *ops;
	void *memory;
	u64 memory_bytes, log_bytes, data_bytes;
	u64 begin, applied, end; /* positions */
	u32 epoch, role;	 /* TX_CHAIN_* */
	struct tx_log_client client[TX_CLIENTS];
};

/* The client's last transaction that was appended; NULL: none, or it was forgotten. */
const struct tx_log_client *tx_log_find(const struct tx_log *log, u64 client);

/*
 * Both begin with ops, memory and memory_bytes in *log, the rest unset. log_bytes: a multiple of
 * TX_LINE_BYTES, from TX_LOG_BYTES_MIN on, that leaves room for data (-EINVAL).
 */
int tx_log_format(struct tx_log *log, u64 log_bytes);
/*
 * Recovery: finds the records up to the log's end. None of them counts as applied. The state that
 * it finds is durable when this returns 0, also if a killed process left it in the caches alone.
 * -ENODATA: the memory was never formatted; -EPROTONOSUPPORT: another version; -EUCLEAN: another
 * size, or damaged.
 */
int tx_log_open(struct tx_log *log);

/*
 * A record as a message or a program brings it: lengths and offsets within bounds, and its sum
 * right. bytes: those there are. The program that makes one sets position and sum by
 * tx_log_seal().
 */
bool tx_log_is_sound(const struct tx_log *log, const struct tx_record *record, u32 bytes);
/* Gives the record the log's end as its position, the epoch, a slot for its client, and the sum. */
void tx_log_seal(const struct tx_log *log, struct tx_record *record);
/*
 * The record, sealed or of another replica, is durable when this returns 0. -ENOSPC: truncate
 * first; -EINVAL: it isn't the next one.
 */
int tx_log_append(struct tx_log *log, const struct tx_record *record);
/* Copies the record at position, which the log has, to a buffer of TX_RECORD_BYTES_MAX bytes. */
int tx_log_read(const struct tx_log *log, u64 position, struct tx_record *record);
/* Its bytes alone. */
int tx_log_bytes_at(const struct tx_log *log, u64 position, u64 *bytes);

/* Writes the data of the next record that isn't applied, if its end is `to` or before. */
int tx_log_apply(struct tx_log *log, u64 to);
/* Makes the data of the records before `to` durable, and gives up their room. to <= applied. */
int tx_log_truncate(struct tx_log *log, u64 to);

/* The new epoch and role are durable when this returns 0. -ESTALE: the epoch isn't a later one. */
int tx_log_set_chain(struct tx_log *log, u32 epoch, u32 role);

/* Data, by its offset; the range lies within data_bytes. */
int tx_log_read_data(const struct tx_log *log, u64 offset, void *to, u32 bytes);
/* Where data begins in the memory. */
u64 tx_log_data_at(const struct tx_log *log);

#endif
