/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/rmemN: a program's way to a remote address space through the machine's client
 * (rmem.ko). Whoever may open the device has all of the space; the key stays in the kernel.
 *
 * An operation is a struct rmem_io. By io_uring: IORING_OP_URING_CMD in a ring with
 * IORING_SETUP_SQE128, sqe->cmd_op RMEM_IO_URING, the struct in sqe->cmd; with
 * IORING_URING_CMD_FIXED its data lies in the registered buffer sqe->buf_index. cqe->res is 0 or
 * one of the errors below. By ioctl() RMEM_IOC_IO, which waits for its end.
 *
 * Operations under way at once are executed in any order, each at its time between its
 * submission and its end; one that was begun after another's end comes after it, even if that
 * ended as ECANCELED or ETIMEDOUT, as far as both are of one open file.
 *
 * The operations of an open file go in one session, which other files may share. Where a change
 * is taken back whose copy may be on its way, the node gives the session another name; what is
 * under way in it stays so, and what is begun later waits for that.
 *
 * What a program has under way by io_uring when it ends, killed or not, has a second to end, and is
 * then taken back as by CANCEL; if it has closed the device before, after the device's fail_after.
 *
 *   EINVAL      what can't be: bytes, unknown type, reserved fields that aren't 0
 *   EBADF       the device isn't open for writing; only READ, READV and FENCE go without
 *   EFAULT      no such remote memory; or data isn't memory of the program
 *   EACCES      the region, or the space, doesn't permit it
 *   ETIMEDOUT   the node gave no sign for the device's fail_after. A change may have been executed,
 *               but is never executed later
 *   ESTALE      the node restarted: its content is lost, and the open file of no use any more. When
 *               the device is opened anew it's connected to the node as it is now. The open waits
 *               for that as attach would; EHOSTDOWN: there was no answer
 *   ECONNRESET  ATOMIC, PUT: the node ended its session first; it was executed once, or never
 *   ECANCELED   CANCEL took it back, or the program ended: it was executed once, in part, or never
 *   ENODEV      the device was detached
 *   ENOSPC      ALLOC: no memory or quota left
 *   EBUSY       by io_uring: 4,096 of the open file are under way
 *   ENOMEM      no memory here
 */
#ifndef _UAPI_REMORA_RMEM_IO_H
#define _UAPI_REMORA_RMEM_IO_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define RMEM_IO_BYTES_MAX (256 << 10) /* of a READ or WRITE */
#define RMEM_IO_RANGES_MAX 128	      /* of a READV or WRITEV */

enum rmem_io_type {
	RMEM_IO_READ = 1,  /* addr, bytes, data: there it comes */
	RMEM_IO_WRITE = 2, /* addr, bytes, data */
	RMEM_IO_ZERO = 3,  /* addr, bytes; up to 64 MiB */
	/*
	 * addr, bytes: 4, 8, or 16 where the node's processor can; how, value, compare. data: where
	 * what was found is put, 16 bytes, little-endian; 0: nowhere. 16 bytes are two of 8, the
	 * lower one first. Executed once, however often it has to be sent.
	 */
	RMEM_IO_ATOMIC = 4,
	RMEM_IO_FENCE = 5, /* ends when all has ended that the node was executing */
	/*
	 * addr, bytes: 0 .. put_bytes of struct rmem_io_info; data: written first. Then the
	 * integer at integer, of integer_bytes 4 or 8, is changed: how (no CAS), value[0]. Both
	 * once, however often it has to be sent.
	 */
	RMEM_IO_PUT = 6,
	/*
	 * Many READs that are short, in one message: ranges, 1 .. RMEM_IO_RANGES_MAX; data: an
	 * array of as many struct rmem_io_vec; bytes: of all of them together, at most vector_bytes
	 * of struct rmem_io_info, as 16 for each range are. addr is 0. What is wrong with one range
	 * refuses all. Data is copied: no registered buffers.
	 */
	RMEM_IO_READV = 7,
	/*
	 * WRITEs, the same way; bytes and 16 for each range together are at most vector_bytes.
	 * Written in the order of the ranges, which may overlap. All are written or none.
	 */
	RMEM_IO_WRITEV = 8,
};

/* How an integer is changed; of 16 bytes SWAP and CAS only. */
enum rmem_io_how {
	RMEM_IO_SWAP = 1, /* value */
	RMEM_IO_CAS = 2,  /* value if compare was there */
	RMEM_IO_ADD = 3,
	RMEM_IO_AND = 4,
	RMEM_IO_OR = 5,
	RMEM_IO_XOR = 6,
	RMEM_IO_MIN = 7, /* unsigned */
	RMEM_IO_MAX = 8,
	RMEM_IO_SMIN = 9, /* signed */
	RMEM_IO_SMAX = 10,
};

struct rmem_io {
	__u8 type; /* enum rmem_io_type */
	__u8 how;  /* ATOMIC, PUT: enum rmem_io_how; else 0 */
	union {
		__u16 integer_bytes; /* PUT */
		__u16 ranges;	     /* READV, WRITEV */
	}; /* else 0 */
	__u32 bytes;
	__u64 addr;
	__u64 data; /* an address in the program's memory */
	__u64 value[2];
	__u64 compare[2];
	__u64 cookie;	  /* what CANCEL names it by; 0: never taken back by that */
	__u64 integer;	  /* PUT: an address; else 0 */
	__u64 timeout_us; /* RMEM_IOC_IO: then it ends with ETIMEDOUT; 0: never. By io_uring 0 */
};

/* One range of a READV or WRITEV. The array is read once, when the operation is submitted. */
struct rmem_io_vec {
	__u64 addr;
	__u64 data;  /* an address in the program's memory */
	__u32 bytes; /* not 0 */
	__u32 reserved;
};

/* Memory at the node: zeros, rounded up to its pages. */
struct rmem_io_alloc {
	__u64 bytes; /* out: of the region */
	__u64 addr;  /* wanted, or 0; out: of the region, perhaps not the one wanted */
	__u32 perm;  /* 1: read, 3: read and write */
	__u32 reserved;
};

struct rmem_io_range {
	__u64 addr;
	__u64 bytes;
};

struct rmem_io_info {
	__u64 memory_bytes; /* of the node */
	__u32 page_bytes;   /* the node's unit of allocation */
	__u32 piece_bytes;  /* payload of a packet */
	__u32 space;
	__u32 fail_after_ms;
	__u32 put_bytes; /* data of a PUT, at most */
	__u32 vector_bytes; /* data of a READV, at most; data and ranges of a WRITEV */
};

#define RMEM_IO_MAGIC 0xba

#define RMEM_IO_URING _IOW(RMEM_IO_MAGIC, 0, struct rmem_io)
#define RMEM_IOC_IO _IOW(RMEM_IO_MAGIC, 1, struct rmem_io)
#define RMEM_IOC_ALLOC _IOWR(RMEM_IO_MAGIC, 2, struct rmem_io_alloc)
#define RMEM_IOC_FREE _IOW(RMEM_IO_MAGIC, 3, struct rmem_io_range)
#define RMEM_IOC_INFO _IOR(RMEM_IO_MAGIC, 4, struct rmem_io_info)
/*
 * The operations of this open file with that cookie, or 0 for any, which are under way: they end
 * now, with ECANCELED, and the node's answers to them are ignored. The number of them is returned.
 */
#define RMEM_IOC_CANCEL _IOW(RMEM_IO_MAGIC, 5, __u64)

#endif
