/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/rmemN gives programs access to a remote address space through the machine's client
 * (rmem.ko). A program with permission to open the device has access to the whole space. The key
 * stays in the kernel.
 *
 * An operation is a struct rmem_io. A program submits it in one of two ways:
 *   - by io_uring: IORING_OP_URING_CMD in a ring with IORING_SETUP_SQE128, sqe->cmd_op
 *     RMEM_IO_URING, the struct in sqe->cmd. With IORING_URING_CMD_FIXED its data lies in the
 *     registered buffer sqe->buf_index. cqe->res is 0 or one of the errors below, negated. An
 *     entry MAY be reused once it was submitted; but Linux 6.10 to 6.13 reads an entry that waits
 *     for others (IOSQE_IO_LINK, IOSQE_IO_DRAIN) when its turn comes, so a program there MUST
 *     leave that one as it is until then;
 *   - by ioctl() RMEM_IOC_IO, which waits for the completion.
 *
 * Operations in flight together MAY be executed in any order. Each is executed at some time between
 * submission and completion. An operation submitted after another one's completion is executed
 * after that one, even if that one ended with ECANCELED or ETIMEDOUT. This holds for operations of
 * one open file.
 *
 * The operations of an open file use one session, which other files MAY share. When a change is
 * cancelled and a copy of it might be in flight, the node renews the session. Operations in flight
 * continue; operations submitted later wait for the renewal.
 *
 * When a program ends, killed or not, its io_uring operations in flight have one second to
 * complete. The module then cancels them as CANCEL does. If the program closed the device before it
 * ended, they have the device's fail_after.
 *
 *   EINVAL      invalid bytes, unknown type, or a reserved field that isn't 0
 *   EBADF       the device isn't open for writing; only READ, READV, LOOKUP, LIST, FENCE do without
 *   EFAULT      no such remote memory; or data isn't memory of the program
 *   EACCES      the region or the space doesn't permit the operation
 *   ETIMEDOUT   the node was silent for the device's fail_after. A change might have been executed,
 *               but is never executed later
 *   ESTALE      the node restarted and its content is lost. The open file stays unusable. Opening
 *               the device anew connects it to the restarted node. open() waits for that as attach
 *               does, and fails with EHOSTDOWN if there was no answer
 *   ECONNRESET  ATOMIC, PUT, PUBLISH: the node ended the session first; executed once or never
 *   ECANCELED   CANCEL ended the operation, or the program ended: executed once, in part, or never
 *   ENODEV      the device was detached
 *   ENOSPC      ALLOC: no memory or quota left; PUBLISH: the space has all its names
 *   EEXIST      PUBLISH: the space has that name
 *   ENOENT      PUBLISH, LOOKUP: the space has no such name
 *   EBUSY       by io_uring: 4,096 operations of the open file are in flight
 *   ENOMEM      no memory left on this machine
 */
#ifndef _UAPI_REMORA_RMEM_IO_H
#define _UAPI_REMORA_RMEM_IO_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define RMEM_IO_BYTES_MAX (256 << 10) /* of one READ or WRITE */
#define RMEM_IO_RANGES_MAX 128	      /* of one READV or WRITEV */
#define RMEM_IO_COPY_BYTES_MAX (64 << 10) /* of one COPY */
#define RMEM_IO_NAME_BYTES_MAX 64 /* of one PUBLISH or LOOKUP */

enum rmem_io_type {
	RMEM_IO_READ = 1,  /* addr, bytes; data: destination */
	RMEM_IO_WRITE = 2, /* addr, bytes; data: source */
	RMEM_IO_ZERO = 3,  /* addr, bytes; up to 64 MiB */
	/*
	 * addr; bytes: 4, 8, or 16 if the node's processor supports it; how, value, compare. data:
	 * destination of the integer found, 16 bytes, little-endian, or 0 for none. An integer of
	 * 16 bytes is two of 8, the lower one first. Executed once, however often it is
	 * retransmitted.
	 */
	RMEM_IO_ATOMIC = 4,
	RMEM_IO_FENCE = 5, /* completes when all that the node was executing is executed */
	/*
	 * addr; bytes: 0 .. put_bytes of struct rmem_io_info; data: source. The node writes the
	 * data, then changes the integer at integer, of integer_bytes 4 or 8: how (no CAS),
	 * value[0]. Both are executed once, however often the operation is retransmitted.
	 */
	RMEM_IO_PUT = 6,
	/*
	 * Several short READs in one message. ranges: 1 .. RMEM_IO_RANGES_MAX; data: an array of as
	 * many struct rmem_io_vec; bytes: the sum of their bytes; addr is 0. bytes and 16 times
	 * ranges MUST NOT exceed vector_bytes of struct rmem_io_info. An error in one range refuses
	 * all. The module copies the data, so registered buffers are not supported.
	 */
	RMEM_IO_READV = 7,
	/*
	 * Several short WRITEs, as READV; bytes plus 16 times ranges MUST NOT exceed vector_bytes.
	 * The node writes in the order of the ranges, which MAY overlap. It writes all or none.
	 */
	RMEM_IO_WRITEV = 8,
	/*
	 * addr: destination; from: source; bytes: 1 .. RMEM_IO_COPY_BYTES_MAX. The node copies; no
	 * data crosses the network. The two ranges MUST NOT overlap.
	 */
	RMEM_IO_COPY = 9,
	/*
	 * Gives the region that begins at addr a name, or withdraws the name if addr is 0. data:
	 * the name, of bytes 1 .. RMEM_IO_NAME_BYTES_MAX, none of which is 0. Executed once,
	 * however often it is retransmitted. The module copies the name, so registered buffers are
	 * not supported.
	 */
	RMEM_IO_PUBLISH = 10,
	/*
	 * Finds the region of a name; data and bytes as for PUBLISH, addr is 0. found: destination
	 * of a struct rmem_io_range, the whole region.
	 */
	RMEM_IO_LOOKUP = 11,
	/*
	 * Finds the first region of the space that begins at addr or behind. bytes is 0. found:
	 * destination of a struct rmem_io_region, whose bytes are 0 if there is none.
	 */
	RMEM_IO_LIST = 12,
};

/* The change of an integer. Integers of 16 bytes allow SWAP and CAS only. */
enum rmem_io_how {
	RMEM_IO_SWAP = 1, /* value */
	RMEM_IO_CAS = 2,  /* value if the integer equals compare */
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
	__u64 cookie;	  /* name of the operation for CANCEL, if not 0 */
	union {
		__u64 integer; /* PUT: remote address */
		__u64 from;    /* COPY: remote address of the source */
		__u64 found;   /* LOOKUP, LIST: an address in the program's memory */
	}; /* else 0 */
	__u64 timeout_us; /* RMEM_IOC_IO: ETIMEDOUT after it; 0: never. By io_uring 0 */
};

/* One range of a READV or WRITEV. The array is read once, when the operation is submitted. */
struct rmem_io_vec {
	__u64 addr;
	__u64 data;  /* an address in the program's memory */
	__u32 bytes; /* not 0 */
	__u32 reserved;
};

/* Memory of the node, zeroed, rounded up to the node's pages. */
struct rmem_io_alloc {
	__u64 bytes; /* out: bytes of the region */
	__u64 addr;  /* wanted address, or 0; out: address of the region, maybe another */
	__u32 perm;  /* 1: read, 3: read and write */
	__u32 reserved;
};

struct rmem_io_range {
	__u64 addr;
	__u64 bytes;
};

/* A region of the space, whichever client has allocated it. */
struct rmem_io_region {
	__u64 addr;
	__u64 bytes;
	__u32 perm;  /* 1: read, 3: read and write */
	__u32 names; /* number of its names */
	__u8 name[RMEM_IO_NAME_BYTES_MAX]; /* one of them, with zeros behind it */
};

struct rmem_io_info {
	__u64 memory_bytes; /* all memory of the node */
	__u32 page_bytes;   /* the node's unit of allocation */
	__u32 piece_bytes;  /* largest payload of a packet */
	__u32 space;
	__u32 fail_after_ms;
	__u32 put_bytes; /* largest data of a PUT */
	__u32 vector_bytes; /* largest data of a READV; largest data and ranges of a WRITEV */
};

#define RMEM_IO_MAGIC 0xba

#define RMEM_IO_URING _IOW(RMEM_IO_MAGIC, 0, struct rmem_io)
#define RMEM_IOC_IO _IOW(RMEM_IO_MAGIC, 1, struct rmem_io)
#define RMEM_IOC_ALLOC _IOWR(RMEM_IO_MAGIC, 2, struct rmem_io_alloc)
#define RMEM_IOC_FREE _IOW(RMEM_IO_MAGIC, 3, struct rmem_io_range)
#define RMEM_IOC_INFO _IOR(RMEM_IO_MAGIC, 4, struct rmem_io_info)
/*
 * Cancels the operations in flight of this open file that have this cookie; 0: that have any
 * cookie. They complete now with ECANCELED, and the module ignores the node's answers to them.
 * Returns the number of operations cancelled.
 */
#define RMEM_IOC_CANCEL _IOW(RMEM_IO_MAGIC, 5, __u64)

#endif
