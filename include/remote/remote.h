/* SPDX-License-Identifier: MIT */
/*
 * libremote: memory on another machine, at byte granularity. After Clio (ASPLOS'22), section 3.
 *
 *	remote_t *r;
 *	raddr_t a;
 *
 *	remote_open(&r, "embedded:size=64M", NULL);
 *	ralloc(r, 1 << 20, REMOTE_RW, &a);
 *	rwrite(r, a, "hello", 5);
 *	rread(r, a, buffer, 5);
 *	rfree(r, a);
 *	remote_close(r);
 *
 * Errors are values: 0 or more is success, else a negative errno. Those any call may give:
 *   -EINVAL     an argument can't be: length 0, range beyond 2^64, unknown permission
 *   -EFAULT     no such memory: never allocated, freed, or the range crosses a region's end
 *   -EACCES     the region doesn't permit it; or the space, which may be a read-only view of another
 *   -ETIMEDOUT  nothing was heard of the node for the handle's timeout, or the time is up that the
 *               thread has set (rtimeout())
 *   -ESTALE     the node restarted: what was in its memory is lost, for good. All operations of the
 *               handle say so until remote_lost() has told what that was
 *   -EBADF      the handle was closed
 *   -ECHILD     the handle was opened by this process's parent: open one of your own
 *   -ENOMEM     no memory left here, for what the call needs
 *   -ECONNRESET the handle's session has ended before the answer came: the node had heard nothing of
 *               it for long, and others wanted one, or a ralloc() by UDP was given up. An integer
 *               operation (rfetch() and the like) or rput() is executed once, or never. Others go
 *               again by themselves; then what another handle wrote meanwhile to the bytes of such a
 *               write may be written over
 *   -EIO        the node refuses without a reason that has a name here
 *
 * Threads. A handle may be used by any number of threads at once. remote_close() is for when they
 * are done.
 *
 * Order (Clio, sections 3.1 and 4.5). A synchronous call is done when it returns. Asynchronous ones
 * may run in any order, but that two of one handle never pass each other if they
 * overlap and one of them writes. A synchronous call counts as one of them; one of more than 1 MiB as
 * several, one after the other. rput() is about the bytes it writes and those of its integer, both.
 * Of operations by different handles at once on the same bytes, 8 aligned bytes are seen whole if
 * neither is longer than 1 KiB, and more may be seen in part.
 *
 * Giving up. A change that ends with -ETIMEDOUT, -ECANCELED or -ECONNRESET is executed once, in part, or
 * never. It isn't executed later than what this handle begins afterwards; nor than what other
 * handles begin, once something has succeeded that this one began afterwards, rfence() say. For
 * that the node gives the handle's session another name, if a copy of the change may be on its way:
 * what begins afterwards waits for that. To what else is under way nothing happens.
 *
 * fork(). Handles are their process's: in the child they give -ECHILD, and remote_close() closes
 * their sockets, without a word to the node.
 */
#ifndef REMOTE_REMOTE_H
#define REMOTE_REMOTE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct remote_handle remote_t;

/* An address in the remote address space. 0 is none. */
typedef uint64_t raddr_t;

/* What payloads are protected by (include/remora/rmem.h); headers always are, by a keyed tag. */
enum remote_integrity {
	REMOTE_DIGEST, /* CRC32C, under the tag */
	REMOTE_LINK,   /* UDP's checksum */
	REMOTE_FULL,   /* the tag runs over the payload */
};

struct remote_options {
	size_t size;	     /* sizeof(struct remote_options) */
	uint64_t timeout_us; /* for a silent node; 0: 10 s; UINT64_MAX: never; open: at most 5 s */
	uint32_t integrity;  /* enum remote_integrity */
	uint32_t async_max;  /* asynchronous operations under way at most; 0: 1024 */
};

/*
 * Opens a handle to a remote address space. target is one of
 *   embedded:[size=64M][,page=64K]            a node of its own inside the process; size of its memory
 *   udp:HOST[:PORT],key=FILE[,space=ID]       a node on the network; space 1 unless told
 *   dev:/dev/rmemN                            the kernel module's device (remora attach --programs);
 *                                             timeout and integrity are those of the device
 * options may be NULL. -EINVAL, -EHOSTUNREACH, -ENOMEM; remote_why() says more.
 */
int remote_open(remote_t **r, const char *target, const struct remote_options *options);

/*
 * Ends all mappings and all operations under way, and frees the handle; the memory stays allocated.
 * NULL is fine, and so is one that was closed before.
 */
void remote_close(remote_t *r);

/* One line: what was wrong with the thread's last remote_open(), remote_mmap() or remote_lost(). */
const char *remote_why(void);

/* ---- memory ---- */

enum {
	REMOTE_READ = 1,
	REMOTE_WRITE = 2, /* wants REMOTE_READ, too */
	REMOTE_RW = REMOTE_READ | REMOTE_WRITE,
};

/*
 * bytes of zeros. What it takes of the node is that, rounded up to its pages (remote_page_bytes());
 * but pieces of a quarter of a page and less share pages with others of the handle's, rounded up
 * to a power of two, 16 at least, unless they are read-only. They lie at multiples of that.
 * permission is for all who have the space. To share what others may only read, give them the key of
 * a read-only view of the space (remora(8)): they find it at the same addresses.
 * -ENOSPC: the node has less left, or this space's quota, or no room in its tables.
 */
int ralloc(remote_t *r, uint64_t bytes, unsigned int permission, raddr_t *address);

/*
 * The same at an address that is wanted, a multiple of the page. 1: it had to be another one, since
 * some of the wanted range was given out before, be it freed or not (to a region belongs the page
 * behind it), or it would overflow a bucket of the node's page table. Or the space's regions lie in
 * too many places: the node remembers sixteen runs of addresses, and counts the least gaps between
 * more of them as given out, half of all addresses at most; a wish that would cost more isn't granted.
 */
int ralloc_at(remote_t *r, raddr_t wanted, uint64_t bytes, unsigned int permission,
	      raddr_t *address);

/*
 * What ralloc() gave, by this handle: waits for operations under way on it, and those that begin
 * meanwhile wait for it. They fail, but where the page is shared with others: there they touch what
 * may be given out again. -EFAULT: nothing of this handle's begins there.
 */
int rfree(remote_t *r, raddr_t address);

/*
 * The same of what any handle of the space has allocated, one that was closed or killed, too, for
 * memory outlives handles. bytes are what was asked for, more than a quarter of a page (-EINVAL):
 * small pieces are for their own handle to give back, whose page they share; its own rfree() of what
 * others have freed gives -EFAULT. Operations of other handles aren't waited for: they end before, or
 * with -EFAULT. -EFAULT: no region begins there that takes so many bytes; but 0 where an answer was
 * lost meanwhile, for then it may have been this call that freed it.
 */
int rfree_sized(remote_t *r, raddr_t address, uint64_t bytes);

/*
 * After -ESTALE: what the node's restart has taken; then the handle goes on with the node as it is.
 *
 *	while ((told = remote_lost(r, &address, &bytes)) == 1)
 *		forget(address, bytes);
 *
 * 1: what ralloc() gave there, by this handle, and wasn't freed. It is told once, whoever asks, in the
 * order of addresses; bytes are as it was rounded up. 0: all of it is told, and the handle has a
 * new session; or none of its operations has said -ESTALE, and nothing happens. Until that 0 all of
 * them do. By asking the program says that it knows: from then on the addresses it has, those from
 * other handles, too, mean nothing, or something else.
 *
 * What began before never reaches the node as it is now: asynchronous operations end with -ESTALE, and
 * are to be polled; calls of other threads end with it, too. Locks aren't held any more (-EPERM).
 * Mappings stay as they are: what isn't here can't be read, and remote_msync() and remote_munmap() say
 * -ESTALE. Buffers stay registered.
 *
 * -EHOSTUNREACH, -ENOMEM: as of remote_open(), and remote_why() says more; the handle is as it was,
 * so it may be asked again. Embedded, nothing is ever lost.
 */
int remote_lost(remote_t *r, raddr_t *address, uint64_t *bytes);

/* Of the node: unit of allocation. */
uint64_t remote_page_bytes(remote_t *r);

/* ---- data ---- */

int rread(remote_t *r, raddr_t address, void *buffer, size_t bytes);
int rwrite(remote_t *r, raddr_t address, const void *buffer, size_t bytes);

/* An asynchronous operation: the caller's, from its start until rpoll() says it has ended. */
typedef struct rop {
	uint64_t token; /* the library's */
	int result;	/* once ended: 0 or a negative errno; until then -EINPROGRESS */
} rop_t;

/*
 * Start it, of 1 GiB at most. The buffer is the library's until the operation ends. -EAGAIN:
 * async_max are under way: rpoll() some.
 */
int rread_async(remote_t *r, raddr_t address, void *buffer, size_t bytes, rop_t *op);
int rwrite_async(remote_t *r, raddr_t address, const void *buffer, size_t bytes, rop_t *op);

/*
 * Waits until all of them have ended, for timeout_us at most (0: doesn't wait; UINT64_MAX: no
 * end). 0: they have, and well. -EAGAIN: some haven't, whose result is -EINPROGRESS; poll them
 * again. Else the first error among them. Polling one that has ended gives its result again.
 */
int rpoll(remote_t *r, rop_t *ops, size_t count, uint64_t timeout_us);

/*
 * Ends it now: rpoll() gives -ECANCELED, or what it has ended with before; until then it keeps its
 * place among async_max. What was lent to the library is the caller's when this returns. Any
 * thread may call it, while another one polls, too. -EINVAL: no operation of this handle. Embedded,
 * operations have ended when they have been started.
 */
int rcancel(remote_t *r, const rop_t *op);

/*
 * How long what the calling thread begins from now on may take, by any handle: asynchronous
 * operations, and calls from rread() to runlock(), each as a whole. When the time is up it ends
 * with -ETIMEDOUT, however well the node does; the handle's timeout holds besides. 0: no such time,
 * as at first. Returns what it was before.
 *
 * Not for allocations and mappings. Of asynchronous operations it's noticed while somebody waits in
 * a call on the handle. Embedded, only rlock() and rwait() take time.
 */
uint64_t rtimeout(uint64_t timeout_us);

/*
 * Waits until all operations of the handle that were started before have ended, well or not: whoever
 * acts on what this thread does next finds them done (release consistency). Releases end in the
 * order they began in.
 */
int rrelease(remote_t *r);

/*
 * Waits as rrelease() does, and then until what the node is executing has ended, of other handles,
 * too (Clio's rfence).
 */
int rfence(remote_t *r);

/*
 * Memory that operations will often be about: it's pinned now, and not again by each operation whose
 * buffer lies in it. That is for the time it takes, and only where the kernel moves the data (dev:,
 * by io_uring's registered buffers); elsewhere buffers are used as they are, registered or not.
 * Until remote_unregister() or remote_close() the memory must stay.
 *
 * -EEXIST: it overlaps one that is registered. -ENOSPC: REMOTE_BUFFERS_MAX are. -ENOMEM: more than
 * RLIMIT_MEMLOCK permits. -EFAULT, -EOPNOTSUPP: not memory of the program's that can be pinned, as
 * that of a file.
 */
#define REMOTE_BUFFERS_MAX 64
#define REMOTE_BUFFER_BYTES_MAX (1U << 30)
int remote_register(remote_t *r, void *buffer, size_t bytes);
/* What begins there. Operations under way on it go on. -EINVAL: none does. */
int remote_unregister(remote_t *r, void *buffer);

/* ---- several pieces at once ---- */

/* Some bytes there, and here. */
struct rvec {
	raddr_t address;
	void *buffer;
	size_t bytes;
};

/*
 * Gather and scatter: as many reads, or writes, as there are pieces, 1 to REMOTE_PIECES_MAX, of
 * 1 GiB at most together. Small ones, of 1 KiB at most, that follow each other travel up to 128 to a
 * message, by udp and dev. Pieces that overlap are done in their order. The first error among them; the
 * others are done all the same.
 */
#define REMOTE_PIECES_MAX 4096
int rreadv(remote_t *r, const struct rvec *pieces, size_t count);
int rwritev(remote_t *r, const struct rvec *pieces, size_t count);
int rreadv_async(remote_t *r, const struct rvec *pieces, size_t count, rop_t *op);
int rwritev_async(remote_t *r, const struct rvec *pieces, size_t count, rop_t *op);

/* count pieces of so many bytes each: stride from one to the next there, side by side here. */
int rread_strided(remote_t *r, raddr_t address, size_t stride, void *buffer, size_t bytes,
		  size_t count);
int rwrite_strided(remote_t *r, raddr_t address, size_t stride, const void *buffer, size_t bytes,
		   size_t count);

/* ---- integers, changed at the node ---- */

/*
 * Little-endian, of 4 or 8 bytes, at a multiple of that. Each is one step for all who are
 * about it by these functions, and is executed once, however often it has to be sent. All of
 * them may give -ECONNRESET; then, and after -ETIMEDOUT, it isn't known whether it was.
 */
enum remote_fetch {
	REMOTE_SWAP = 1, /* becomes value */
	REMOTE_ADD = 3,	 /* modulo 2^32, 2^64 */
	REMOTE_AND = 4,
	REMOTE_OR = 5,
	REMOTE_XOR = 6,
	REMOTE_MIN = 7, /* unsigned */
	REMOTE_MAX = 8,
	REMOTE_SMIN = 9, /* signed */
	REMOTE_SMAX = 10,
};

/* *found (may be NULL): what was there before. */
int rfetch(remote_t *r, raddr_t address, size_t bytes, enum remote_fetch what, uint64_t value,
	   uint64_t *found);
/* 1: *expected was there, and is now desired. 0: *expected becomes what was there. */
int rcas(remote_t *r, raddr_t address, size_t bytes, uint64_t *expected, uint64_t desired);
/* The same of 16 bytes, lower half first. -EINVAL also where the node's processor has no such. */
int rcas128(remote_t *r, raddr_t address, uint64_t expected[2], const uint64_t desired[2]);
/* Test and set, of 4 bytes that are 0 or 1: 0 if it was 0, and is 1 now; 1 if it was set. */
int rtas(remote_t *r, raddr_t address);

/* *found is the library's until the operation ends; of rcas_async() *expected, too. */
int rfetch_async(remote_t *r, raddr_t address, size_t bytes, enum remote_fetch what,
		 uint64_t value, uint64_t *found, rop_t *op);
/* *expected is always what was there before: the exchange took place if it hasn't changed. */
int rcas_async(remote_t *r, raddr_t address, size_t bytes, uint64_t *expected, uint64_t desired,
	       rop_t *op);

/* ---- data, and a signal that it is there ---- */

/* An integer of 4 or 8 bytes at a multiple of that, and what becomes of it, as by rfetch(). */
struct rsignal {
	raddr_t address;
	size_t bytes;
	enum remote_fetch what;
	uint64_t value;
};

/*
 * Writes bytes, and then changes the signal's integer, by one message where they fit in one.
 * Whoever sees the integer changed, by any handle, and then reads the bytes finds what was written.
 * So the data is first where the two overlap, too. The signal is read before the call returns; the
 * buffer is the library's until the operation ends.
 *
 * It is executed once, however often it has to be sent, and both are done or neither: if one of
 * them isn't permitted, nothing is changed. But of more bytes than fit (some 1,350 where the MTU is
 * 1500, 8.5 KiB at most) all but the last go before, as by rwrite(). They may have been written when
 * it fails; the integer is changed only when all are there. After -ECONNRESET and -ETIMEDOUT it
 * isn't known whether it was executed.
 */
int rput(remote_t *r, raddr_t address, const void *buffer, size_t bytes,
	 const struct rsignal *signal);
int rput_async(remote_t *r, raddr_t address, const void *buffer, size_t bytes,
	       const struct rsignal *signal, rop_t *op);

/* Unsigned: what is there, compared with the value given. */
enum remote_compare {
	REMOTE_EQ = 1,
	REMOTE_NE = 2,
	REMOTE_GT = 3,
	REMOTE_GE = 4,
	REMOTE_LT = 5,
	REMOTE_LE = 6,
};

/*
 * Waits until the integer of 4 or 8 bytes there, at a multiple of that, compares so with value, for
 * timeout_us at most (0: looks once; UINT64_MAX: no end). It is read again and again, at first
 * without a pause, then with pauses that grow to 1 ms: no node knows of a waiter, none has memory
 * or a thread for him. What comes and goes between two looks isn't seen. -EAGAIN: time is up.
 * *found (may be NULL): what was there, in both cases.
 */
int rwait(remote_t *r, raddr_t address, size_t bytes, enum remote_compare compare, uint64_t value,
	  uint64_t timeout_us, uint64_t *found);

/* ---- locks ---- */

/*
 * A lock is REMOTE_LOCK_BYTES of remote memory at a multiple of 8, zero at first; whoever has the
 * address may take it, by any handle, on any machine. Those who wait get it in the order they came.
 *
 * It has a lease: if its holder neither gives it back nor extends it for so long, the next who
 * waits gets it, and is told. The holder is a thread. Each measures that by his own clock, from when he first saw that
 * holder; so a holder has that time at least, from rlock()'s return, less what
 * rlock() needed to see that it was his turn: some milliseconds.
 */
#define REMOTE_LOCK_BYTES 16

/* How long the lease is, 1 ms to 2^32 - 1 ms, before anybody uses the lock. Unless told: 10 s. */
int rlock_init(remote_t *r, raddr_t lock, uint64_t lease_us);

/*
 * Waits until it's ours. 0; or 1: the lease of the one before ran out, so what the lock
 * protects may be half done. If it times out while it waits, its place in the row is kept for
 * the handle's next rlock(); one that nobody takes up costs the others a lease, and so does one
 * that was being drawn when the handle's session ended.
 */
int rlock(remote_t *r, raddr_t lock);

/* The lease begins anew. -EPERM: it's not ours (any more). */
int rlock_extend(remote_t *r, raddr_t lock);

/*
 * Waits as rrelease() does, and gives it back. -EPERM: it's not ours (any more): the lease ran
 * out and another has it, or had.
 */
int runlock(remote_t *r, raddr_t lock);

/* ---- what happened ---- */

enum remote_kind {
	REMOTE_KIND_READ,
	REMOTE_KIND_WRITE, /* puts, too */
	REMOTE_KIND_INTEGER,
	REMOTE_KIND_OTHER, /* allocations and the like */
	REMOTE_KINDS
};

#define REMOTE_BUCKETS 128

/*
 * Of a kind: operations on the way, of which a call of more than 256 KiB is several; embedded, of
 * more than 8.5 KiB. Pieces that travel in one message are one operation.
 */
struct remote_kind_stats {
	uint64_t done, failed;
	uint64_t bytes; /* of those done */
	/* By the time each took; read it by remote_percentile_ns(). Embedded: of one call in 16. */
	uint64_t times[REMOTE_BUCKETS];
};

struct remote_counters {
	struct remote_kind_stats kind[REMOTE_KINDS];
	/* Embedded: 0, all of them; by a device, too, which counts for all programs (remora stats). */
	uint64_t sent, received; /* messages */
	uint64_t retries, timeouts;
	uint64_t damaged;  /* refused by tag or digest, here or there */
	uint64_t busy;	   /* told to come again */
	uint64_t reopened; /* session opened again: the node had ended it, or a change was given up */
};

/* Since the handle was opened. */
int remote_stats(remote_t *r, struct remote_counters *counters);

/* The time that so many percent of a kind's operations took at most, to a fifth; 0: none ended. */
uint64_t remote_percentile_ns(const struct remote_kind_stats *kind, double percent);

/* ---- memory as memory ---- */

/*
 * A range of remote memory as memory of this process: a page is read when it is touched, is kept in
 * a local cache, and is written back when there is no room for it, or when somebody asks. Each
 * mapping has a thread for that.
 *
 * The cache is a client of its own: what others write is seen when a page is read again, and of two
 * who write to one page the last to write it back wins, for it is written back whole.
 *
 * Who touches what can't be read gets SIGBUS, as with mmap() of a file that was cut short; such a
 * page fails until it is unmapped. What can't be written back stays here, and remote_msync() and
 * remote_munmap() say so; once it fills the cache, what isn't here can't be read.
 *
 * Such memory is not for: buffers of rread() and the like (-EINVAL); munmap(), mremap(), madvise();
 * I/O that pins it (O_DIRECT, registered buffers of io_uring); handlers of signals that may
 * interrupt a call on the handle. A child of fork() doesn't have it. By a device: system calls on
 * pages that aren't here, in a thread that has asynchronous operations under way, which couldn't end
 * meanwhile. Where the system gives a
 * program without privilege no more than its own page faults, a system call fails with EFAULT on
 * pages that aren't here.
 */
struct remote_mmap_options {
	size_t size;		 /* sizeof(struct remote_mmap_options) */
	uint64_t cache_bytes;	 /* of local memory at most; 0: 64 MiB; less than 16 pages: 16 */
	uint64_t prefetch_bytes; /* of a sequential run at once, at most; 0: 256 KiB; 1: a page */
};

/*
 * address and bytes are multiples of this system's page. permission is REMOTE_READ or REMOTE_RW,
 * and what the region permits, or nothing can be written back. options may be NULL.
 * -EFAULT: the range's first or last page can't be read. -EOPNOTSUPP: the system gives no
 * userfaultfd. -EMFILE, -EAGAIN: no descriptor, no thread left here. remote_why() says more.
 */
int remote_mmap(remote_t *r, raddr_t address, size_t bytes, unsigned int permission,
		const struct remote_mmap_options *options, void **memory);

/*
 * Until the node has what was written to these bytes of a mapping before. An error: some of it
 * isn't there; it is kept, and can be asked for again. -EINVAL: they aren't of one mapping.
 */
int remote_msync(remote_t *r, void *memory, size_t bytes);

/*
 * Writes back what is left, and ends the mapping that begins there; nobody touches it any more. An
 * error: some of it couldn't be written back, and is lost. remote_close() does this with all, and
 * has no way to say so.
 */
int remote_munmap(remote_t *r, void *memory);

#ifdef __cplusplus
}
#endif

#endif
