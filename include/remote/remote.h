/* SPDX-License-Identifier: MIT */
/*
 * libremote: memory on another machine, at byte granularity. After Clio (ASPLOS'22), section 3.
 *
 *	remote_t *r;
 *	raddr_t a;
 *
 *	remote_open(&r, "embedded:size=64M", NULL);
 *	remote_alloc(r, 1 << 20, REMOTE_RW, &a);
 *	remote_write(r, a, "hello", 5);
 *	remote_read(r, a, buffer, 5);
 *	remote_free(r, a);
 *	remote_close(r);
 *
 * A call returns 0 or more on success, else a negative errno. Any call can return:
 *   -EINVAL     invalid argument: length 0, range beyond 2^64, unknown permission
 *   -EFAULT     no such memory: never allocated, freed, or the range crosses a region's end
 *   -EACCES     the region doesn't permit it, or the space is a read-only view
 *   -ETIMEDOUT  the node was silent for the handle's timeout_us, or the call took longer than its
 *               call_timeout_us
 *   -ESTALE     the node restarted: the content of its memory is lost for good. All operations of
 *               the handle return this until remote_lost() has reported all losses
 *   -EBADF      the handle was closed
 *   -ECHILD     the handle was opened by this process's parent: open a handle in this process
 *   -ENOMEM     no memory left on this machine for the call
 *   -ECONNRESET the handle's session ended before the answer came. Either the node heard nothing of
 *               the session for long and other clients needed one, or a remote_alloc() by UDP was
 *               given up. An integer operation (remote_fetch() and the like), remote_put(),
 *               remote_publish() or remote_call() was executed once or never. The library issues
 *               other operations again by itself. A write that goes again can overwrite bytes that another handle
 *               wrote to the same place meanwhile
 *   -EIO        the node refused for a reason that has no errno here
 * remote_strerror() has a sentence for each.
 *
 * Structures. One that can grow begins with its size, which the caller sets. A newer library
 * accepts the shorter structure of an older program, and fills no more of one for results. An older
 * library accepts the longer structure of a newer program if the fields that it doesn't know are 0,
 * and refuses it otherwise. In one for results, it sets size to the bytes that it has filled.
 *
 * Threads. Any number of threads MAY use a handle at once. They MUST have finished before
 * remote_close(). No call is a cancellation point: a thread that pthread_cancel() ends meanwhile ends
 * after the call. So a call without a time limit delays it for as long as the call takes.
 *
 * Unloading. dlclose() leaves the shared library in memory, for a mapping's thread might run, and
 * the look-up of a host's name that took too long. A program that links the static library into a
 * plug-in MUST NOT unload that while a handle is open, or such a look-up is under way.
 *
 * Order (Clio, sections 3.1 and 4.5). A synchronous call is complete when it returns. Asynchronous
 * operations MAY be executed in any order, with one exception: two operations of one handle that
 * overlap, and one of which writes, are executed in the order of their start. A synchronous call
 * counts as one operation; a call of more than 1 MiB counts as several. A remote_read(),
 * remote_write() or remote_copy() has 1 MiB in flight at once, the others all of theirs.
 * remote_put() covers the bytes it writes and those of its integer. remote_copy() reads one range
 * and writes the other. An operation that its program calls unordered (queue.h) has no place in
 * this order. Operations of different handles MAY touch the same bytes at once. Then 8 aligned
 * bytes are read whole if neither operation is longer than 1 KiB; more bytes MAY be a mixture.
 *
 * Giving up. A change that ends with -ETIMEDOUT, -ECANCELED or -ECONNRESET is executed once, in
 * part, or never. It isn't executed after an operation that this handle starts later. Once a later
 * operation of this handle has succeeded, remote_fence() for instance, it isn't executed after
 * operations that other handles start from then on. If a copy of the change might be in flight, the
 * node renews the handle's session for this. Later operations wait for the renewal; operations in
 * flight are not affected.
 *
 * Snapshots. The kernel doesn't tell a program that its machine was restored from a snapshot, nor
 * the process from a checkpoint. The restored copy gives its operations numbers that the original
 * has used since. The node takes them for retransmissions, and answers changes without executing
 * them: writes are lost silently. By udp: and shm: a program MUST close its handles before the
 * snapshot or the checkpoint, or end in the copy. By dev: the kernel module notices the snapshot of
 * a machine whose hypervisor has a generation counter (vmgenid); operations then end with -ESTALE.
 * An embedded node is part of the copy.
 *
 * Addresses. A handle whose machine gets another address, by DHCP for instance, goes on from there.
 * A host's name is looked up when the handle is opened and by remote_lost(), no more.
 *
 * fork(). A handle belongs to its process. In the child its calls return -ECHILD. The child closes
 * its copies of the handle's sockets when it begins, without a message to the node.
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

/* Protection of payloads (include/remora/rmem.h). A keyed tag always protects headers. */
enum remote_integrity {
	REMOTE_DIGEST, /* CRC32C, under the tag; by shm: as REMOTE_LINK, for memory changes nothing */
	REMOTE_LINK,   /* UDP's checksum */
	REMOTE_FULL,   /* the tag runs over the payload */
	REMOTE_SEALED, /* all but a header is encrypted, with keys of the session's own; udp: alone */
};

#define REMOTE_KEY_BYTES 16

struct remote_options {
	size_t size;	     /* sizeof(struct remote_options) */
	uint64_t timeout_us; /* for a silent node; 0: 10 s; UINT64_MAX: none; open: at most 5 s */
	uint32_t integrity;  /* enum remote_integrity */
	uint32_t reserved;   /* 0 */
	/*
	 * Limit for each synchronous call as a whole, even if the node answers; 0: none. A call
	 * that exceeds it returns -ETIMEDOUT. It doesn't apply to allocations and mappings.
	 * Embedded, only remote_lock() and remote_wait() take time.
	 */
	uint64_t call_timeout_us;
	const uint8_t *key; /* the space's, of REMOTE_KEY_BYTES, instead of ,key=FILE; NULL: none */
};

/*
 * Opens a handle to a remote address space. target is one of
 *   embedded:[size=64M][,page=64K]            a private node inside the process, with size bytes
 *   udp:HOST[:PORT][,key=FILE][,space=ID][,integrity=LEVEL]
 *                                             a node on the network; default space 1; LEVEL link,
 *                                             digest, full or sealed, if the options have no other
 *   shm:PATH[,key=FILE][,space=ID][,integrity=LEVEL]
 *                                             a node on this machine, by shared memory; LEVEL not
 *                                             sealed
 *   edm:SCHEDULER[:PORT]/N@HOST[:PORT],as=M,rate=MBIT,rack=FILE[,standby=SCHEDULER[:PORT]]
 *                        [,key=FILE][,space=ID][,integrity=LEVEL]
 *                                             the kernel's node HOST, at port N of EDM's
 *                                             scheduler, by its grants. The program is at port M,
 *                                             its machine's link has MBIT Mbit/s, and the first
 *                                             FILE has the scheduler's key
 *   dev:/dev/rmemN                            the kernel module's (remora attach --programs);
 *                                             timeout_us, integrity and key are the device's
 * A comma ends FILE, PATH and the like: a key whose file's name has one is given by options.
 * options MAY be NULL. remote_why() returns the reason of a failure:
 *   -EINVAL        not a target, or not valid options
 *   -ENOKEY        the key file can't be read, or there is no key in it, or none is given
 *   -EHOSTUNREACH  no such host, no answer from the name servers, or nothing comes back from the
 *                  host: the machine is down, a firewall drops the datagrams, the program at
 *                  PATH stands still, or the scheduler doesn't welcome the program. It takes up to 2 s more to tell this from the next two
 *   -ECONNREFUSED  the machine, or a firewall, refuses the port: no node is there, or it can't be
 *                  reached; or there is no such PATH
 *   -EKEYREJECTED  the machine is there and the port gives no answer: the space has another key, or
 *                  there is no such space, or a firewall drops this port's datagrams alone, or the
 *                  program that listens there is no memory node
 *   -EAGAIN        no thread to look up the host's name; or 16 look-ups wait for silent name servers
 *   -EPROTONOSUPPORT  nothing is sealed by shm:, or by a node in a kernel without ciphers; a dev:
 *                     device has the level it was attached with
 *   -EPROTO        the program at PATH offers no rings, or is of a version with other ones
 *   -EBUSY         another handle is at port M of the scheduler, with another rate, key or standby
 *   -EUSERS        the node is full: it has no session left, or no ring
 *   -ENODEV        no such device, or not one that remora attach --programs made
 *   -EACCES        the caller has no permission to open the device or the socket; or the space is
 *                  for clients with REMOTE_SEALED alone
 *   -ENOMEM        no memory for an embedded node, for the handle, or for its rings at the node
 */
int remote_open(remote_t **r, const char *target, const struct remote_options *options);

/*
 * Ends all mappings and all operations in flight, and frees the handle. Remote memory stays
 * allocated. Closing NULL or a closed handle has no effect.
 */
void remote_close(remote_t *r);

/* One line: why the thread's last remote_open(), remote_mmap() or remote_lost() failed. */
const char *remote_why(void);

/* One line: the meaning of any call's error. error: a negative errno, or positive. */
const char *remote_strerror(int error);

/* The version of this header: 1000 times the major number, plus the minor one. */
#define REMOTE_VERSION 1
/* The library's. From 1000 on, versions of one major number are compatible. */
unsigned int remote_version(void);

struct remote_node {
	size_t size;	       /* sizeof(struct remote_node), set by the caller */
	uint64_t page_bytes;   /* the node's unit of allocation */
	uint64_t memory_bytes; /* all memory of the node */
	uint64_t free_bytes;   /* memory that no region has; dev: UINT64_MAX, which is unknown */
	/* Smoothed time of an operation's message and its answer; 0: unknown, embedded or dev:. */
	uint64_t round_trip_ns;
	/* Most room for the result of a remote_query(); 0: the target runs no functions. */
	uint64_t result_bytes;
};

/*
 * Asks the node for its memory. The node tells it when a session begins, so the call has the
 * handle's session renewed: operations in flight are sent again, and each is executed once. -EINVAL
 * also for node->size. -ETIMEDOUT also after 5 s.
 */
int remote_info(remote_t *r, struct remote_node *node);

/* ---- memory ---- */

enum {
	REMOTE_READ = 1,
	REMOTE_WRITE = 2, /* only with REMOTE_READ */
	REMOTE_RW = REMOTE_READ | REMOTE_WRITE,
	/* remote_alloc_at(): anywhere if not at the wanted address. */
	REMOTE_ANYWHERE = 4,
	/* Pages of its own, however small: it can have a name, and other handles can free it. */
	REMOTE_OWN_PAGES = 8,
};

/*
 * Allocates bytes of zeroed memory. It occupies bytes rounded up to the node's page
 * (remote_info()). An allocation of at most a quarter of a page shares a page with others of the
 * handle instead, unless it is read-only or permission has REMOTE_OWN_PAGES. It occupies bytes
 * rounded up to a power of two, at least 16, and lies at a multiple of that. permission is
 * REMOTE_READ or REMOTE_RW, perhaps with flags. It applies to every client of the space. To
 * share memory read-only, give the readers the key of a read-only view of the space (remora(8)); it
 * has the memory at the same addresses. -ENOSPC: more than the node has left, more than the space's
 * quota, or the node's tables are full.
 */
int remote_alloc(remote_t *r, uint64_t bytes, unsigned int permission, raddr_t *address);

/*
 * As remote_alloc(), with pages of its own, at the wanted address, a multiple of the page.
 * -EADDRNOTAVAIL: the node can't grant that address, and nothing is allocated. With REMOTE_ANYWHERE
 * in permission the memory then lies at another address, and the call returns 1. The reasons:
 *   - part of the wanted range was given out before, even if it was freed since; the page behind a
 *     region belongs to the region;
 *   - the range would overflow a bucket of the node's page table;
 *   - the space's regions lie in too many places. The node remembers 64 runs of addresses that were
 *     allocated, and moves a region that would begin another run.
 */
int remote_alloc_at(remote_t *r, raddr_t wanted, uint64_t bytes, unsigned int permission,
	      raddr_t *address);

/*
 * Frees memory that this handle's remote_alloc() returned. Waits for operations in flight on the
 * memory; operations that start meanwhile wait for remote_free(), then fail. Where the memory
 * shared its page they don't fail: they touch memory that the handle might allocate again. -EFAULT:
 * no allocation of this handle begins there.
 */
int remote_free(remote_t *r, raddr_t address);

/*
 * Frees memory that any handle of the space has allocated, even one that was closed or killed:
 * memory outlives handles. bytes is the size that was allocated, or the one that remote_lookup() or
 * remote_list() tells: more than a quarter of a page (-EINVAL). A smaller allocation shares a
 * page, so only its own handle can free it; with REMOTE_OWN_PAGES it has a page's bytes. A later
 * remote_free() of the memory by the handle that allocated it returns -EFAULT. The call doesn't
 * wait for operations of other handles: they complete before, or fail with -EFAULT. -EFAULT: no
 * region of that size begins there. If an answer was lost, the call returns 0 instead, for it might
 * have freed the region itself.
 */
int remote_free_sized(remote_t *r, raddr_t address, uint64_t bytes);

/*
 * After -ESTALE: reports the memory that the node's restart has lost; then the handle goes on with
 * the restarted node.
 *
 *	while ((told = remote_lost(r, &address, &bytes)) == 1)
 *		forget(address, bytes);
 *
 * 1: *address is an allocation of this handle that wasn't freed, and *bytes its rounded size. Each
 * is reported once, to any thread that asks, in the order of addresses. 0: all of it is reported,
 * and the handle has a new session; or no operation has returned -ESTALE, and the call has no
 * effect. Until that 0, all operations return -ESTALE. Asking tells the library that the program
 * knows of the loss. From then on the addresses it holds, also those from other handles, are
 * invalid or mean other memory.
 *
 * Operations started before never reach the restarted node. Asynchronous ones end with -ESTALE and
 * have their completions; calls of other threads return it, too. Locks are no longer held (-EPERM).
 * Mappings stay: a page that isn't in the cache can't be read, and remote_msync() and
 * remote_munmap() return -ESTALE. Buffers stay registered.
 *
 * Other errors are those of remote_open(); remote_why() returns the reason. The handle is
 * unchanged and the call MAY be repeated. An embedded node never loses memory.
 */
int remote_lost(remote_t *r, raddr_t *address, uint64_t *bytes);

/* ---- names for allocations ---- */

#define REMOTE_NAME_BYTES_MAX 64

/*
 * Gives the allocation that begins at address a name, by which every client of the space and of its
 * read-only views finds it: remote_lookup(). name has 1 to REMOTE_NAME_BYTES_MAX bytes, any but 0,
 * and a 0 behind them. An allocation MAY have several names. A name lasts until it is withdrawn or
 * the allocation is freed; it outlives the handle.
 *
 * address 0 withdraws the name instead.
 *
 * Any handle MAY name another one's allocation. An allocation of at most a quarter of a page shares
 * a page unless it has REMOTE_OWN_PAGES, so it can't have a name: -EINVAL if this handle has
 * allocated it. A program MUST NOT name such an allocation of another handle.
 *
 * -EEXIST: the space has that name. -ENOENT: it has no such name to withdraw. -ENOSPC: the space
 * has 128 names. -EFAULT: no allocation begins at address. -EACCES: the space is a read-only view.
 */
int remote_publish(remote_t *r, const char *name, raddr_t address);

/*
 * Finds the allocation of a name: its address and its bytes, rounded up to the node's page. bytes
 * MAY be NULL. -ENOENT: the space has no such name.
 */
int remote_lookup(remote_t *r, const char *name, raddr_t *address, uint64_t *bytes);

/* Memory that the node has given out, to any handle of the space. Never changes its size. */
struct remote_region {
	raddr_t address;
	uint64_t bytes;	     /* a multiple of the node's page */
	uint32_t permission; /* REMOTE_READ or REMOTE_RW */
	uint32_t names;	     /* number of its names */
	char name[REMOTE_NAME_BYTES_MAX + 8]; /* one of them; "": none */
};

/*
 * Lists the space's regions in the order of their addresses, from the first one at from or behind.
 * Fills up to max of them and returns how many: fewer than max if there are no more. A region that
 * is allocated or freed meanwhile is listed or not. A page that small allocations share is one
 * region. The library asks the node for each region by itself. After an error *regions might be
 * changed.
 *
 *	for (from = 0; (n = remote_list(r, from, regions, 16)) > 0; from = regions[n - 1].address + 1)
 *		show(regions, n);
 */
int remote_list(remote_t *r, raddr_t from, struct remote_region *regions, size_t max);

/* ---- functions at the node ---- */

#define REMOTE_ARGS_BYTES_MAX 1024

/* A function of an offload, a program that the node's operator has loaded. Never changes its size. */
struct remote_function {
	uint64_t offload;  /* its id */
	uint32_t function; /* below 32 */
	uint32_t detail;   /* set by -EREMOTEIO: the function's errno; by -ETIME: us it has used */
	const void *args;
	size_t args_bytes; /* at most REMOTE_ARGS_BYTES_MAX */
	void *result;
	size_t result_bytes; /* room for the result; set to the bytes of it */
};

/*
 * Has the node execute a function beside the memory, in place of a round trip for each access to
 * it. remote_query() is for functions that change nothing; the room counts up to a packet's
 * payload, which remote_info() tells. remote_call() is for the others: executed once, as remote_fetch(); the result has 16
 * bytes, of which as many are stored as there is room for. The offload tells which kind a function
 * is. Neither keeps an order with other operations in flight.
 *
 * -ENOSYS: the node has no offload of that id for this client. -EREMOTEIO: the function ended with
 * an error. -ETIME: it used up its budget of the node's time; its changes until then stay. -EINVAL:
 * the function is of the other kind, or the room is more than a packet takes. -EOPNOTSUPP: the
 * handle's target is embedded: or dev:. After an error *result is unchanged.
 *
 * The node is silent while it runs a function: timeout_us has to exceed the budget by as much as
 * calls wait for each other. A remote_call() that ends with -ETIMEDOUT or -ECANCELED is executed
 * once, in part, or never (see Giving up). The renewal of the session then waits for all calls of
 * the handle that the node has begun. A query that is given up can run on at the node.
 */
int remote_query(remote_t *r, struct remote_function *function);
int remote_call(remote_t *r, struct remote_function *function);

/* ---- data ---- */

int remote_read(remote_t *r, raddr_t address, void *buffer, size_t bytes);
int remote_write(remote_t *r, raddr_t address, const void *buffer, size_t bytes);

/*
 * Copies bytes from one remote range to another, inside the node: none of them crosses the network.
 * Both ranges are in the handle's space; from needs read permission, to write permission. -EINVAL
 * also if the ranges overlap; then nothing is copied. Messages of up to 64 KiB each carry out the
 * copy, in any order. Another client can see some of them executed and others not. When the call
 * fails, bytes might have been copied.
 */
int remote_copy(remote_t *r, raddr_t to, raddr_t from, size_t bytes);

/*
 * Waits until all earlier operations of the handle have ended, with or without success, but not
 * until a lock is taken (REMOTE_OP_LOCK). A client
 * that sees this thread's next operation then sees the earlier ones, too (release consistency).
 * Concurrent calls return in the order in which they started.
 */
int remote_release(remote_t *r);

/*
 * Waits as remote_release() does, and then until the node has executed the operations it is
 * executing, also for other handles (Clio's rfence).
 */
int remote_fence(remote_t *r);

/*
 * Pins memory once, so that operations whose buffers lie in it need not pin it each time. This
 * saves time only where the kernel moves the data (dev:, by io_uring's registered buffers). Other
 * targets use buffers alike, registered or not. The memory MUST stay mapped until
 * remote_unregister() or remote_close().
 *
 * -EEXIST: the memory overlaps a registered buffer. -ENOSPC: REMOTE_BUFFERS_MAX are registered.
 * -ENOMEM: more than RLIMIT_MEMLOCK permits. -EFAULT, -EOPNOTSUPP: not memory that can be pinned, a
 * mapped file for instance.
 */
#define REMOTE_BUFFERS_MAX 64
#define REMOTE_BUFFER_BYTES_MAX (1U << 30)
int remote_register(remote_t *r, void *buffer, size_t bytes);
/* Ends a registration; operations in flight continue. -EINVAL: no registration begins there. */
int remote_unregister(remote_t *r, void *buffer);

/* ---- several pieces at once ---- */

/* A remote range and the local buffer of the same size. Never changes its size. */
struct remote_vec {
	raddr_t address;
	void *buffer;
	size_t bytes;
};

/*
 * Scatter and gather: one read, or write, for each of 1 to REMOTE_PIECES_MAX pieces, together at
 * most 1 GiB. By udp, shm and dev, up to 128 adjacent pieces of at most 1 KiB travel in one
 * message. Overlapping pieces are executed in their order. Returns the first error among them; the
 * other pieces are executed all the same.
 */
#define REMOTE_PIECES_MAX 4096
int remote_readv(remote_t *r, const struct remote_vec *pieces, size_t count);
int remote_writev(remote_t *r, const struct remote_vec *pieces, size_t count);

/* ---- integers, changed at the node ---- */

/*
 * Integers are little-endian, of 4 or 8 bytes, at a multiple of their size. Each operation is
 * atomic with respect to all operations of these functions. It is executed once, however often it
 * is retransmitted. After -ECONNRESET and -ETIMEDOUT it is unknown whether it was executed.
 */
enum remote_change {
	REMOTE_SWAP = 1, /* the integer becomes value */
	REMOTE_ADD = 3,	 /* modulo 2^32, 2^64 */
	REMOTE_AND = 4,
	REMOTE_OR = 5,
	REMOTE_XOR = 6,
	REMOTE_MIN = 7, /* unsigned */
	REMOTE_MAX = 8,
	REMOTE_SMIN = 9, /* signed */
	REMOTE_SMAX = 10,
};

/* *found (found MAY be NULL): the integer before the change. */
int remote_fetch(remote_t *r, raddr_t address, size_t bytes, enum remote_change what,
		 uint64_t value, uint64_t *found);
/*
 * 1: the integer was *expected and is now *desired. 0: *expected becomes the integer found. bytes
 * MAY also be 16: then both point to two integers of 8 bytes, the lower half first. -EINVAL also if
 * the node's processor can't change 16 bytes at once.
 */
int remote_cas(remote_t *r, raddr_t address, size_t bytes, uint64_t *expected,
	       const uint64_t *desired);

/* ---- data, and a signal that it is there ---- */

/*
 * An integer of 4 or 8 bytes, at a multiple of its size, and its change, as for remote_fetch().
 * Never changes its size.
 */
struct remote_signal {
	raddr_t address;
	size_t bytes;
	enum remote_change what;
	uint64_t value;
};

/*
 * Writes bytes, then changes the signal's integer, in one message if they fit in one. A thread that
 * reads the changed integer, by any handle, and then reads the bytes, reads the bytes written. The
 * data is also written first where the two overlap. The library reads the signal before the call
 * returns. The caller MUST NOT touch the buffer until the operation ends.
 *
 * The operation is executed once, however often it is retransmitted. Both parts are executed or
 * neither: if one isn't permitted, nothing is changed. -EINVAL also for more than 1 GiB. One
 * message holds some 1,350 bytes where the MTU is 1500, and at most 8.5 KiB. A larger change first
 * sends all bytes but the last message's, as remote_write() does. These bytes might have been
 * written when the operation fails. The integer changes only when all bytes are written. After
 * -ECONNRESET and -ETIMEDOUT it is unknown whether the operation was executed.
 */
int remote_put(remote_t *r, raddr_t address, const void *buffer, size_t bytes,
	 const struct remote_signal *signal);

/* Unsigned comparison of the remote integer with the given value. */
enum remote_compare {
	REMOTE_EQ = 1,
	REMOTE_NE = 2,
	REMOTE_GT = 3,
	REMOTE_GE = 4,
	REMOTE_LT = 5,
	REMOTE_LE = 6,
};

/*
 * Waits until the integer of 4 or 8 bytes, at a multiple of its size, compares so with value. Waits
 * for at most timeout_us (0: reads once; UINT64_MAX: no limit). The library polls: at first without
 * a pause, then with pauses that grow to 1 ms. The node doesn't know of a waiter and has no state
 * for it. A value that appears and vanishes between two reads goes unnoticed. -EAGAIN: the time is
 * up. *found (found MAY be NULL): the integer last read, in both cases. The first read isn't
 * bounded by timeout_us: from a silent node it takes until the handle's limits.
 */
int remote_wait(remote_t *r, raddr_t address, size_t bytes, enum remote_compare compare,
		uint64_t value, uint64_t timeout_us, uint64_t *found);

/* ---- counters ---- */

enum remote_kind {
	REMOTE_KIND_READ,
	REMOTE_KIND_WRITE, /* with puts and copies */
	REMOTE_KIND_INTEGER,
	REMOTE_KIND_OTHER, /* allocations, names, functions and the like */
	REMOTE_KINDS
};

/* Bounds the kinds of later versions, so that the structure can grow behind them. */
#define REMOTE_KINDS_MAX 16

/*
 * Operations of one kind. Never changes its size. A call of more than 256 KiB (embedded: 8.5 KiB;
 * remote_copy(): 64 KiB) counts as several operations. Pieces that travel in one message count as
 * one. The USDT probes remote:start and remote:end have their durations.
 */
struct remote_kind_stats {
	uint64_t done, failed;
	uint64_t bytes; /* of the done operations */
};

struct remote_counters {
	size_t size; /* sizeof(struct remote_counters), set by the caller */
	struct remote_kind_stats kind[REMOTE_KINDS_MAX]; /* from REMOTE_KINDS on: 0 */
	/* All 0 if embedded, and by a device, which counts for all programs (remora stats). */
	uint64_t sent, received; /* messages */
	uint64_t retries, timeouts;
	uint64_t damaged;  /* refused by tag or digest, by the client or the node */
	uint64_t busy;	   /* answers that told the client to retry later */
	uint64_t reopened; /* sessions opened again: the node ended one, or a change was cancelled */
	uint64_t unscheduled; /* edm: datagrams that left without the scheduler's grant */
};

/* Counts since the handle was opened. -EINVAL also for counters->size. */
int remote_stats(remote_t *r, struct remote_counters *counters);

/* ---- memory as memory ---- */

/*
 * A mapping makes a range of remote memory usable as memory of this process. A page is read from
 * the node when the program touches it, and kept in a local cache. It is written back when the
 * cache needs room, or on remote_msync(). Each mapping has a thread for this.
 *
 * The cache is a client like any other. Changes by other clients become visible when a page is read
 * again. Pages are written back whole, so of two clients that change one page the last to write it
 * back overwrites the other's changes.
 *
 * A thread that touches a page that can't be read gets SIGBUS, as with mmap() of a truncated file.
 * The page keeps failing until it is unmapped. A page that can't be written back stays in the
 * cache, and remote_msync() and remote_munmap() return the error. Once such pages fill the cache,
 * other pages can't be read.
 *
 * A program MUST NOT use such memory for:
 *   - buffers of remote_read() and the like (-EINVAL);
 *   - munmap(), mremap(), madvise();
 *   - I/O that pins it: O_DIRECT, registered buffers of io_uring;
 *   - signal handlers that can interrupt a call on the handle;
 *   - by a device: system calls on pages that aren't in the cache, in a thread that has
 *     asynchronous operations in flight, for these couldn't complete meanwhile.
 * A child of fork() doesn't have the mapping. On systems that give an unprivileged program only its
 * own page faults, a system call fails with EFAULT on pages that aren't in the cache.
 */
struct remote_mmap_options {
	size_t size;		 /* sizeof(struct remote_mmap_options) */
	uint64_t cache_bytes;	 /* limit of local memory; 0: 64 MiB; less than 16 pages: 16 */
	uint64_t prefetch_bytes; /* limit of one read-ahead; 0: 256 KiB; 1: a page */
};

/*
 * address and bytes are multiples of this system's page. permission is REMOTE_READ or REMOTE_RW.
 * The region SHOULD permit it, or changes can't be written back. options MAY be NULL. -EFAULT: the
 * range's first or last page can't be read. -EOPNOTSUPP: the system gives no userfaultfd. -EMFILE,
 * -EAGAIN: no descriptor, no thread left. remote_why() returns the reason.
 */
int remote_mmap(remote_t *r, raddr_t address, size_t bytes, unsigned int permission,
		const struct remote_mmap_options *options, void **memory);

/*
 * Waits until the node has everything written before to these bytes of a mapping. On an error some
 * of it isn't written back; it is kept, and the call MAY be repeated. -EINVAL: the bytes aren't of
 * one mapping.
 */
int remote_msync(remote_t *r, void *memory, size_t bytes);

/*
 * Writes dirty pages back and ends the mapping that begins at memory. A thread MUST NOT touch it
 * any more. On an error some pages couldn't be written back and are lost. remote_close() does the
 * same with all mappings, and can't report such an error.
 */
int remote_munmap(remote_t *r, void *memory);

/* ---- Clio's names ---- */

/*
 * Short names, after Clio's. A program that includes rdma-core's <rdma/rsocket.h>, which declares
 * rread(), rwrite() and rpoll() with other parameters, defines REMOTE_NO_SHORT_NAMES before it
 * includes this header.
 */
#ifndef REMOTE_NO_SHORT_NAMES
static inline int ralloc(remote_t *r, uint64_t bytes, unsigned int permission, raddr_t *address)
{
	return remote_alloc(r, bytes, permission, address);
}

static inline int rfree(remote_t *r, raddr_t address)
{
	return remote_free(r, address);
}

static inline int rread(remote_t *r, raddr_t address, void *buffer, size_t bytes)
{
	return remote_read(r, address, buffer, bytes);
}

static inline int rwrite(remote_t *r, raddr_t address, const void *buffer, size_t bytes)
{
	return remote_write(r, address, buffer, bytes);
}

static inline int rrelease(remote_t *r)
{
	return remote_release(r);
}

static inline int rfence(remote_t *r)
{
	return remote_fence(r);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
