/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The transactions' arguments and results. All fields are little-endian.
 *
 * Data is a range of bytes that every replica has. A transaction reads tuples (offset, bytes) of
 * it, then writes others. It is executed once by its client's number and sequence: a client has one
 * transaction under way, and gives the next one a higher sequence. To ask again after an error or a
 * restart it sends the same transaction with the same sequence.
 *
 * Errors (errno of RMEM_FAILED): -ENOTCONN: this replica isn't its chain's head; -ESTALE: the chain
 * has a later epoch, or the client a later sequence; -ENODATA: the request's area has another
 * request; -EINVAL, -EMSGSIZE; -ETIMEDOUT: the next replica doesn't answer, so the transaction
 * might be executed; -EIO: the memory failed, and a restart
 * isn't enough, because the kernel can take a page for written whose write failed: give the replica
 * a copy of another one's file; -EXDEV: the logs of this replica and the next one
 * aren't of one chain, or the sizes of their log or data differ; -EUCLEAN: a replica has a record
 * that the chain doesn't have: give it a copy of another one's file.
 */
#ifndef REMORA_OFFLOADS_TX_H
#define REMORA_OFFLOADS_TX_H

#include <linux/types.h>

#define TX_ID 8

#define TX_TUPLE_BYTES_MAX 4096U
#define TX_READS_MAX 16U
#define TX_WRITES_MAX 16U
/* Bound of a request: its reads and writes. */
#define TX_REQUEST_BYTES_MAX 12288U
/* A request up to this lies behind tx_run_args; a larger one in the client's area. */
#define TX_INLINE_BYTES_MAX (1024U - 56U)

enum tx_function {
	/* CALL: arguments tx_run_args, then the request if area is 0. Result tx_result. */
	TX_RUN = 0,
	/* QUERY: the tuples that a TX_RUN read. Waits for one that was sent before. */
	TX_RESULT = 1,
	/* CALL, by replicas. Arguments tx_forward_args, then a part of a record. tx_result. */
	TX_FORWARD = 2,
	/* CALL, by the operator. Arguments tx_chain_args, result tx_result. */
	TX_CHAIN = 3,
	/* QUERY: no arguments, result tx_status. */
	TX_STATUS = 4,
};

/* In a request: the tuples to read. Behind them those to write, as records have them (log.h). */
struct tx_read {
	__le64 offset;
	__le32 bytes; /* 1 to TX_TUPLE_BYTES_MAX */
	__le32 reserved;
};

struct tx_run_args {
	__le64 client; /* a random number below 2^63, not 0 */
	__le64 sequence; /* not 0 */
	__le64 area;	 /* address of the request; 0: it lies behind */
	__le64 result;	 /* address of the tuples that are read: tx_read_head; 0: there are none */
	__le32 bytes;	 /* of the request */
	__le32 sum;	 /* CRC32C of the request */
	__le32 reads;
	__le32 writes;
	__le64 reserved;
};

/* At the address `result`, then the tuples, each padded to 8 bytes. */
struct tx_read_head {
	__le64 client;
	__le64 sequence; /* of the transaction, once it is committed */
};

struct tx_result_args {
	__le64 client;
	__le64 sequence;
	__le64 result; /* as in tx_run_args */
	__le32 bytes;  /* to be answered, from the head on */
	__le32 reserved;
};

enum tx_done {
	TX_DONE = 0,
	TX_REPEATED = 1, /* TX_RUN: it was executed before; its reads are gone */
	TX_GAP = 2,	 /* TX_FORWARD: records before it lack, from `position` on */
	TX_PART = 3,	 /* TX_FORWARD: other parts lack */
	TX_OLD_EPOCH = 4, /* TX_FORWARD: the sender's epoch isn't the chain's any more */
};

struct tx_result {
	__le32 done;	 /* enum tx_done */
	__le32 epoch;	 /* of the replica */
	__le64 position; /* behind its last record */
};

struct tx_forward_args {
	__le32 epoch;
	__le32 offset;	 /* of this part in the record */
	__le64 position; /* of the record */
	__le32 bytes;	 /* of the record; 0: tx_question lies behind */
	__le32 reserved;
};

/*
 * Asks for the replica's position. -EXDEV unless it has these sizes. -EUCLEAN if tx_forward_args's
 * position is that of the replica and its last record is another one than the sender's there.
 */
struct tx_question {
	__le64 log_bytes;
	__le64 data_bytes;
	__le32 sum; /* of the sender's record that ends at the position */
	__le32 epoch; /* of that record; both 0: the sender doesn't have it */
};

struct tx_chain_args {
	__le32 epoch; /* above that of the replica */
	__le32 role;  /* TX_CHAIN_HEAD, TX_CHAIN_NEXT */
};

/* In a status: the replica has no place in its chain before TX_CHAIN, or the head, gives it one. */
#define TX_STATUS_FENCED 4U

struct tx_status {
	__le32 epoch;
	__le32 role; /* TX_CHAIN_HEAD, TX_CHAIN_NEXT, TX_STATUS_FENCED */
	__le64 begin, applied, end; /* positions: log.h */
	__le64 log_bytes, data_bytes;
	__le64 data; /* address of offset 0, for READs of one tuple */
};

#endif
