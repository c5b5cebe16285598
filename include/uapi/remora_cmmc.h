/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/cmmc copies between programs of two machines: from the pages of one straight into the pages
 * of the other (cross-machine memory copy, CMMC). The machines have a Marlin link (eopN is up), and
 * windows into each other's whole RAM.
 *
 * The receiving program grants a range of its memory to a peer by CMMC_IOC_TRANSLATE, and gets a
 * handle. It passes the handle to the other program in any way, a socket for instance. That program
 * then writes or reads the range by CMMC_IOC_WRITE and CMMC_IOC_READ. A program that has the handle
 * MAY use it on that peer, and on no other machine.
 *
 * A peer is named by its port number; `ethtool -S eopN` lists ports. Granted and registered pages
 * stay in memory and count against RLIMIT_MEMLOCK. A grant ends when its owner revokes it or closes
 * the device, or when the link to the peer ends. Its pages stay locked until its owner revokes it
 * or closes the device, also after the link has ended, and until no copy can touch them. So long
 * it counts as one of the file's CMMC_GRANTS_MAX.
 *
 * Each struct begins with its size in bytes and flags. Unknown flags are refused. Fields marked
 * "out" MAY hold anything before the call.
 *
 *   EINVAL        a wrong size, an unknown flag, a reserved field that isn't 0, no such port, or
 *                 bytes that are no handle
 *   EFAULT        the memory isn't the program's, or is read-only to it
 *   ENOMEM        RLIMIT_MEMLOCK would be exceeded, or there is no memory
 *   ENOSPC        the file has too many grants or buffers, or the user has more of the peer's 512
 *                 grants than it leaves free for others. LOCK: the same of the home's locks
 *   ENODEV        no NTB device is there
 *   ENOLINK       there is no link to the peer, it ended, or the peer isn't ready for copies
 *   EOPNOTSUPP    the bridge offers no window into whole RAM, or none that shows this memory
 *   EACCES        the handle's key is wrong, or it was granted to another machine
 *   ESTALE        the handle's grant ended, and another one has its place
 *   EKEYREVOKED   the handle was revoked, or its owner is gone
 *   EPERM         WRITE, READ, RING: the grant doesn't permit that. REVOKE, TAKE: it isn't this
 *                 file's
 *   ERANGE        offset and bytes are beyond the range
 *   EBADF         no such registered buffer in this file, or `eventfd` is no open file
 *   EREMOTEIO     the peer's machine told of memory it doesn't have, or of numbers that can't be.
 *                 The link starts again
 *   EINTR         a signal ended the call. READ, WRITE: see `done`. REVOKE: the handle is revoked,
 *                 but copies might be under way; call again to wait for their end
 *   EBUSY         REVOKE: the device went while the peer stood still in a copy. It can touch the
 *                 pages at any time, so they stay locked until the next boot
 */
#ifndef _UAPI_REMORA_CMMC_H
#define _UAPI_REMORA_CMMC_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define CMMC_BYTES_MAX (1ULL << 30) /* of a grant or a registered buffer, less its first offset */
#define CMMC_GRANTS_MAX 64 /* of one open file */
#define CMMC_BUFFERS_MAX 64 /* of one open file */

struct cmmc_handle {
	__u64 word[4]; /* opaque */
};

/* Locks memory that WRITE and READ will use, which saves them that each time. */
struct cmmc_register {
	__u32 size;
	__u32 flags; /* 0 */
	__u64 address;
	__u64 bytes;
	__u32 buffer; /* out: its number, from 0 on */
	__u32 reserved; /* 0 */
};

struct cmmc_unregister {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 buffer;
	__u32 reserved; /* 0 */
};

#define CMMC_GRANT_READ 1u /* the peer MAY read */
#define CMMC_GRANT_WRITE 2u
/* eventfd: a file of eventfd() that is signalled after a WRITE with CMMC_COPY_SIGNAL. */
#define CMMC_GRANT_EVENTFD 4u
/*
 * A doorbell: the grant has no memory, so address and bytes are 0, nor the rights READ and WRITE.
 * The peer's programs send it numbers by CMMC_IOC_RING, up to CMMC_BELL_NUMBERS before this file
 * takes them by CMMC_IOC_TAKE. Each signals the eventfd, if there is one.
 */
#define CMMC_GRANT_BELL 8u
#define CMMC_BELL_NUMBERS 256

struct cmmc_translate {
	__u32 size;
	__u32 flags; /* CMMC_GRANT_*; READ, WRITE or both; or BELL */
	__u64 address;
	__u64 bytes;
	__u32 port; /* of the peer */
	__s32 eventfd; /* 0 without CMMC_GRANT_EVENTFD */
	struct cmmc_handle handle; /* out */
};

/*
 * address is an offset in the registered buffer `buffer`. Without: it is the program's memory, and
 * buffer is 0.
 */
#define CMMC_COPY_BUFFER 1u
/*
 * WRITE: when all is written, the grant's eventfd becomes readable. Signals that come close
 * together MAY be counted as one. If bytes is 0, the call only signals.
 */
#define CMMC_COPY_SIGNAL 2u

/*
 * WRITE: the call MAY return 0 when the bytes have been sent. They arrive before all that this
 * machine sends to the peer later, unless the link goes down at that moment: then the grant has
 * ended. If a later WRITE by the same handle without POSTED returns 0, all bytes sent before have
 * arrived. Over a bus that saves the wait for a read. Kernels before Marlin's version 7 refuse it.
 */
#define CMMC_COPY_POSTED 4u

/*
 * The bytes arrive in no particular order. When the call returns 0 without POSTED, they all have. A
 * signal is seen after them, and only if they all have arrived.
 */
struct cmmc_copy {
	__u32 size;
	__u32 flags; /* CMMC_COPY_* */
	struct cmmc_handle handle;
	__u64 address;
	__u64 offset; /* in the grant */
	__u64 bytes;
	__u64 done; /* out: bytes that were copied, also after an error */
	__u32 buffer;
	__u32 reserved; /* 0 */
};

/*
 * Returns when no copy touches the pages any more. They are the program's alone then. That takes as
 * long as the copies under way. But if the link was down meanwhile, or since the grant was made, it
 * takes until the peer's kernel has ended the session, or 5 to 10 s after its link went for good.
 * So a peer whose kernel stands still with its link up keeps the pages locked without bound.
 */
struct cmmc_revoke {
	__u32 size;
	__u32 flags; /* 0 */
	struct cmmc_handle handle;
};

/*
 * Sends a number to a doorbell. EAGAIN: its owner has CMMC_BELL_NUMBERS to take. Numbers arrive in
 * the order in which a machine sent them, each once, unless the grant or the link ends.
 */
struct cmmc_ring {
	__u32 size;
	__u32 flags; /* 0 */
	struct cmmc_handle handle;
	__u64 number;
};

/* Takes the oldest number from a doorbell of this file. EAGAIN: there is none. It doesn't wait. */
struct cmmc_take {
	__u32 size;
	__u32 flags; /* 0 */
	struct cmmc_handle handle;
	__u64 number; /* out */
};

/*
 * Locks across machines. A lock has a home: a machine, by its port, possibly the own one. A
 * home has the locks 0 to CMMC_LOCKS - 1. A lock SHOULD guard memory of its home: when the link to
 * the home ends, locks and grants there end together, so a late write of a lost holder can't
 * arrive.
 *
 * The holder is the open file. When it is closed, its locks go on to the next. Waiters of a machine
 * are served in their order, and machines in theirs, one waiter of each in turn. So before a waiter
 * that has n before it on its machine, each other machine gets the lock n + 1 times at most.
 *
 * A user has or awaits at most as many of a home's locks as nobody on the machine has or awaits:
 * half of them, if it is alone (ENOSPC).
 *
 * LOCK waits, but for a signal (EINTR), timeout_ms (ETIMEDOUT; 0: none), or the end of the link
 * (ENOLINK). EDEADLK: this file has the lock, or lost it and has not unlocked it.
 * UNLOCK: EPERM: this file doesn't have the lock. ENOLINK: it lost the lock when the link ended;
 * another program might have it.
 */
#define CMMC_LOCKS 64
/* The last holder did not unlock: the guarded memory might be half changed. */
#define CMMC_LOCK_BROKEN 1u

struct cmmc_lock {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 port; /* of the home */
	__u32 number;
	__u32 timeout_ms;
	__u32 state; /* out: CMMC_LOCK_BROKEN or 0 */
	__u32 reserved; /* 0 */
};

struct cmmc_unlock {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 port;
	__u32 number;
};

#define CMMC_IO_MAGIC 0xbb

#define CMMC_IOC_REGISTER _IOWR(CMMC_IO_MAGIC, 1, struct cmmc_register)
#define CMMC_IOC_UNREGISTER _IOW(CMMC_IO_MAGIC, 2, struct cmmc_unregister)
#define CMMC_IOC_TRANSLATE _IOWR(CMMC_IO_MAGIC, 3, struct cmmc_translate)
#define CMMC_IOC_WRITE _IOWR(CMMC_IO_MAGIC, 4, struct cmmc_copy)
#define CMMC_IOC_READ _IOWR(CMMC_IO_MAGIC, 5, struct cmmc_copy)
#define CMMC_IOC_REVOKE _IOW(CMMC_IO_MAGIC, 6, struct cmmc_revoke)

#define CMMC_IOC_LOCK _IOWR(CMMC_IO_MAGIC, 9, struct cmmc_lock)
#define CMMC_IOC_UNLOCK _IOW(CMMC_IO_MAGIC, 10, struct cmmc_unlock)
#define CMMC_IOC_RING _IOW(CMMC_IO_MAGIC, 11, struct cmmc_ring)
#define CMMC_IOC_TAKE _IOWR(CMMC_IO_MAGIC, 12, struct cmmc_take)

/*
 * Copies by io_uring: cmd_op of an IORING_OP_URING_CMD whose command is a struct cmmc_copy. The
 * ring MUST have IORING_SETUP_SQE128. The submitter does not wait; the completion is the copy's
 * end. Its res is 0 or an error; with IORING_SETUP_CQE32, big_cqe[0] is `done`. Copies that are
 * under way at once are done in any order, unless linked (IOSQE_IO_LINK). An entry MAY be reused
 * once it was submitted; but Linux 6.10 to 6.13 reads one that waits for others (IOSQE_IO_LINK,
 * IOSQE_IO_DRAIN) when its turn comes, so a program there MUST leave it as it is until then.
 *
 * With IORING_URING_CMD_FIXED, address is in the ring's registered buffer buf_index, and flags
 * don't have CMMC_COPY_BUFFER.
 */
#define CMMC_URING_WRITE _IOW(CMMC_IO_MAGIC, 7, struct cmmc_copy)
#define CMMC_URING_READ _IOW(CMMC_IO_MAGIC, 8, struct cmmc_copy)

#endif
