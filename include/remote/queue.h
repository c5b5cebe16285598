/* SPDX-License-Identifier: MIT */
/*
 * Completion queues: operations that a thread starts together and whose ends it learns in the
 * order in which they come.
 *
 *	struct remote_completion done[2];
 *	struct remote_op ops[2];
 *	remote_queue_t *q;
 *
 *	if (remote_queue_open(&q, r, NULL))
 *		return 1;
 *	ops[0] = remote_op_write(a, "hello", 5, 1);
 *	ops[1] = remote_op_read(b, buffer, sizeof(buffer), 2);
 *	if (remote_queue_submit(q, ops, 2) != 2 || remote_queue_wait(q, done, 2, 2, 1000000) != 2)
 *		return 1;
 *	remote_queue_close(q);
 *
 * A queue belongs to a handle. A handle MAY have many queues, for instance one for each thread. A
 * queue holds a bounded number of operations: those in flight, and those that have ended and whose
 * completion nobody has taken. So completions are never lost.
 *
 * The library has no thread of its own: operations make progress while a thread waits in a call on
 * the handle or on one of its queues. Embedded, operations have ended when they are submitted.
 *
 * Any number of threads MAY use a queue at once, until one closes it. Each completion is taken by
 * one of them.
 */
#ifndef REMOTE_QUEUE_H
#define REMOTE_QUEUE_H

#include <string.h>

#include <remote/remote.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct remote_queue remote_queue_t;

struct remote_queue_options {
	size_t size;	/* sizeof(struct remote_queue_options) */
	uint32_t depth; /* limit of the operations in the queue, at most 2^20; 0: 256 */
	uint32_t reserved;
};

/*
 * Opens a queue. options MAY be NULL. -EINVAL; -ENOMEM. remote_close() of the handle ends the
 * operations in the handle's queues; a queue still has to be closed.
 */
int remote_queue_open(remote_queue_t **q, remote_t *r, const struct remote_queue_options *options);

/*
 * Cancels the operations in flight and frees the queue; completions that nobody took are lost.
 * Memory that an ALLOC among them got stays allocated, and a lock that a LOCK among them got is
 * held until its lease is over. The caller MAY reuse the operations' buffers.
 * Closing NULL or a closed queue has no effect; other
 * calls return -EBADF for a closed queue.
 */
void remote_queue_close(remote_queue_t *q);

enum remote_op_kind {
	REMOTE_OP_READ = 1,
	REMOTE_OP_WRITE = 2,
	REMOTE_OP_READV = 3,
	REMOTE_OP_WRITEV = 4,
	REMOTE_OP_FETCH = 5,
	REMOTE_OP_CAS = 6,
	REMOTE_OP_PUT = 7,
	REMOTE_OP_COPY = 8,
	REMOTE_OP_PUBLISH = 9,
	REMOTE_OP_LOOKUP = 10,
	REMOTE_OP_RELEASE = 11,
	REMOTE_OP_FENCE = 12,
	REMOTE_OP_LIST = 13,
	REMOTE_OP_QUERY = 14,
	REMOTE_OP_CALL = 15,
	REMOTE_OP_ALLOC = 16,
	REMOTE_OP_FREE = 17,
	REMOTE_OP_LOCK = 18,
	REMOTE_OP_UNLOCK = 19,
};

enum remote_op_flag {
	/*
	 * The next operation of the batch begins when this one has ended, if it succeeded. Else it
	 * ends with -ECANCELED, and so do those linked behind it. A CAS that finds another integer
	 * counts as a failure here. At most REMOTE_LINKED_MAX operations are linked in a row.
	 * remote.hpp's and coroutine.hpp's start() take operations one by one, so none with LINK.
	 */
	REMOTE_OP_LINK = 1,
	/*
	 * The library compares the operation with no other, which saves the time for that, unless
	 * it has to cut the operation into several messages. The
	 * program makes sure that no operation in flight of this handle overlaps it, if one of the
	 * two changes the bytes. It MUST NOT free the memory meanwhile.
	 */
	REMOTE_OP_UNORDERED = 2,
};

#define REMOTE_LINKED_MAX 64

/*
 * An operation, with the arguments of the call of the same name. Fields that its kind doesn't name
 * are ignored. The library reads the operation, its pieces, its signal and its name before
 * remote_queue_submit() returns. Other buffers and *found MUST stay valid, and the caller MUST NOT
 * touch them, until the completion is taken or the operation is cancelled. PUBLISH and LOOKUP have
 * no order among each other, nor with operations on the allocation. RELEASE ends when all earlier
 * operations of the handle have ended; FENCE begins then. LIST finds the first region at address or
 * behind; its bytes are 0 if there is none. QUERY and CALL keep no order with other operations; a
 * program links them (REMOTE_OP_LINK).
 *
 * ALLOC, FREE, LOCK and UNLOCK take several messages, one after the other.
 *
 * ALLOC is remote_alloc(), or remote_alloc_at() if address isn't 0. Its result is 1 if the memory
 * lies at another address than the wanted one. One that ends with an error leaves no memory
 * allocated, with one exception. If it is given up while its message is in flight, the library
 * waits up to half a second for each of the two answers that undoing it takes. After that it ends
 * the handle's session; other operations in flight can then end with -ECONNRESET. With the session
 * goes memory of which the node doesn't know yet that this client learned of it. If the node does
 * know and is silent for so long, the memory can stay allocated: remote_list() finds it, and
 * remote_free_sized() frees it. Small ALLOCs of a batch share pages: one that needs a new page
 * waits while another one gets one. FREE is remote_free(), and takes its place in the order when it
 * begins. It gives a page of small allocations back by a message of its own, for which no RELEASE
 * waits. By dev: both end the batch with -EOPNOTSUPP: the module allocates only by ioctl(), which
 * can't be limited in time.
 *
 * A program that frees a lock's memory MUST link FREE behind UNLOCK, or start it later. It MUST NOT
 * free it while another LOCK is under way there. If an operation between LOCK and UNLOCK of a row
 * fails, UNLOCK is cancelled, and the lock stays held: the program then starts UNLOCK by itself.
 *
 * LOCK and UNLOCK are remote_lock() and remote_unlock(). The holder is the thread that submits
 * LOCK; it also submits UNLOCK. The lease runs from the end of the LOCK, which a thread that waits
 * in the handle learns, and not from when its completion is taken. A LOCK whose handle is looked at
 * less often than each quarter of the lease doesn't end. -EDEADLK: the thread holds the lock, or
 * another of its LOCKs is under way.
 * No RELEASE, FENCE or UNLOCK waits for a LOCK. Operations linked behind a LOCK have
 * their places in the order from when the lock is held. A LOCK that ends with -ETIMEDOUT or
 * -ECANCELED leaves its place in the queue to the handle's next one, as remote_lock() does. So that
 * the place isn't lost, the library waits up to half a second for the answer if it is just being
 * drawn. Embedded, and by dev: in a program that gets no io_uring, the submission itself waits for
 * the lock.
 */
struct remote_op {
	uint32_t size; /* sizeof(struct remote_op) */
	uint32_t kind; /* enum remote_op_kind */
	uint64_t user_data;
	uint64_t timeout_us; /* from submission; 0: only the handle's */
	/* all but READV, WRITEV, LOOKUP, QUERY, CALL; COPY: destination; ALLOC: wanted, or 0 */
	raddr_t address;
	raddr_t from;	     /* COPY: source */
	/* READ, WRITE, PUT; PUBLISH, LOOKUP: name; LIST: struct remote_region; QUERY, CALL: */
	/* struct remote_function */
	void *buffer;
	size_t bytes; /* READ, WRITE, PUT, COPY: at most 1 GiB; FETCH, CAS, ALLOC */
	const struct remote_vec *pieces;    /* READV, WRITEV */
	size_t count;			    /* READV, WRITEV: number of pieces */
	const struct remote_signal *signal; /* PUT */
	/* FETCH, CAS: integer; LOOKUP: address, bytes; or NULL. ALLOC: address */
	uint64_t *found;
	uint64_t value[2];    /* FETCH: operand; CAS: desired */
	uint64_t expected[2]; /* CAS */
	uint32_t change;      /* FETCH: enum remote_change; ALLOC: permission */
	uint32_t flags;	      /* enum remote_op_flag; remote_execute(): no LINK */
};

/* Never changes its size. */
struct remote_completion {
	uint64_t user_data;
	int32_t result; /* as of the synchronous call; of a CAS: 1 or 0, or an error */
	uint32_t reserved;
};

/*
 * Starts operations in their order and returns how many were started, the first ones. One that
 * isn't valid, or for which the queue has no room, ends the batch. If it is the first, the call
 * returns its error: -EINVAL; -EAGAIN: take completions first; -ENOMEM; -EOPNOTSUPP: by dev:, ALLOC
 * and FREE. Operations that are linked
 * start all or none; the last operation of a batch has no LINK (-EINVAL). All operations of a batch
 * have the same size. A batch costs less than its operations one by one. Adjacent READs of at most
 * 1 KiB with equal timeouts share messages.
 */
int remote_queue_submit(remote_queue_t *q, const struct remote_op *ops, size_t count);

/*
 * Takes up to max completions, in the order in which the operations ended. Waits until there are
 * at_least, or none is in flight any more, for at most timeout_us (0: doesn't wait; UINT64_MAX: no
 * limit). With at_least 0 it doesn't wait. Returns the number taken, which is less than at_least
 * when the time is up.
 */
int remote_queue_wait(remote_queue_t *q, struct remote_completion *completions, size_t max,
		      size_t at_least, uint64_t timeout_us);

/*
 * Cancels all operations in flight that have this user_data. Returns how many; those
 * linked behind one of them might not be counted. -ENOENT: none. Each
 * has a completion, with -ECANCELED, or its result if it had ended before. The caller MAY reuse the
 * buffers when the call returns. "Giving up" in remote.h says when a cancelled change can still be
 * executed.
 */
int remote_queue_cancel(remote_queue_t *q, uint64_t user_data);

/*
 * Returns a descriptor for poll() or epoll: it is readable when remote_queue_wait() has something
 * to do, and stays the queue's. *next_us: the caller MUST call remote_queue_wait() after this time,
 * too, even if the descriptor isn't readable: something has to be sent again, or times out.
 * UINT64_MAX: no such time. An event loop asks anew before each time it sleeps. -EMFILE, -ENFILE,
 * -ENOMEM.
 */
int remote_queue_fd(remote_queue_t *q, uint64_t *next_us);

/*
 * Executes one operation and waits for its end, as the call of the same name does. The operation's
 * timeout_us limits this call alone, beside the handle's call_timeout_us. -EINVAL also if flags has
 * REMOTE_OP_LINK.
 */
int remote_execute(remote_t *r, const struct remote_op *op);

/* ---- operations to submit ---- */

/* The library exports the functions below, too, for other languages. */
#ifndef REMOTE_OP_FUNCTION
#define REMOTE_OP_FUNCTION static inline
#endif

static inline struct remote_op remote_op_of(uint32_t kind, raddr_t address, const void *buffer,
					    size_t bytes, uint64_t user_data)
{
	struct remote_op op;

	memset(&op, 0, sizeof(op));
	op.size = sizeof(op);
	op.kind = kind;
	op.user_data = user_data;
	op.address = address;
	op.buffer = (void *)(uintptr_t)buffer;
	op.bytes = bytes;
	return op;
}

REMOTE_OP_FUNCTION struct remote_op remote_op_read(raddr_t address, void *buffer, size_t bytes,
						   uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_READ, address, buffer, bytes, user_data);
}

REMOTE_OP_FUNCTION struct remote_op remote_op_write(raddr_t address, const void *buffer,
						    size_t bytes, uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_WRITE, address, buffer, bytes, user_data);
}

REMOTE_OP_FUNCTION struct remote_op remote_op_copy(raddr_t to, raddr_t from, size_t bytes,
						   uint64_t user_data)
{
	struct remote_op op = remote_op_of(REMOTE_OP_COPY, to, NULL, bytes, user_data);

	op.from = from;
	return op;
}

REMOTE_OP_FUNCTION struct remote_op remote_op_readv(const struct remote_vec *pieces, size_t count,
						    uint64_t user_data)
{
	struct remote_op op = remote_op_of(REMOTE_OP_READV, 0, NULL, 0, user_data);

	op.pieces = pieces;
	op.count = count;
	return op;
}

REMOTE_OP_FUNCTION struct remote_op remote_op_writev(const struct remote_vec *pieces, size_t count,
						     uint64_t user_data)
{
	struct remote_op op = remote_op_readv(pieces, count, user_data);

	op.kind = REMOTE_OP_WRITEV;
	return op;
}

REMOTE_OP_FUNCTION struct remote_op remote_op_fetch(raddr_t address, size_t bytes,
						    enum remote_change change, uint64_t value,
						    uint64_t *found, uint64_t user_data)
{
	struct remote_op op = remote_op_of(REMOTE_OP_FETCH, address, NULL, bytes, user_data);

	op.change = (uint32_t)change;
	op.value[0] = value;
	op.found = found;
	return op;
}

/* bytes 16: expected and desired point to two integers each. */
REMOTE_OP_FUNCTION struct remote_op remote_op_cas(raddr_t address, size_t bytes,
						  const uint64_t *expected, const uint64_t *desired,
						  uint64_t *found, uint64_t user_data)
{
	struct remote_op op = remote_op_of(REMOTE_OP_CAS, address, NULL, bytes, user_data);
	size_t i;

	for (i = 0; i < (bytes == 16 ? 2 : 1); i++) {
		op.expected[i] = expected[i];
		op.value[i] = desired[i];
	}
	op.found = found;
	return op;
}

REMOTE_OP_FUNCTION struct remote_op remote_op_put(raddr_t address, const void *buffer, size_t bytes,
						  const struct remote_signal *signal,
						  uint64_t user_data)
{
	struct remote_op op = remote_op_of(REMOTE_OP_PUT, address, buffer, bytes, user_data);

	op.signal = signal;
	return op;
}

/* address 0: withdraws the name. */
REMOTE_OP_FUNCTION struct remote_op remote_op_publish(const char *name, raddr_t address,
						      uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_PUBLISH, address, name, 0, user_data);
}

/* found: two integers, the address and the bytes; or NULL. */
REMOTE_OP_FUNCTION struct remote_op remote_op_lookup(const char *name, uint64_t *found,
						     uint64_t user_data)
{
	struct remote_op op = remote_op_of(REMOTE_OP_LOOKUP, 0, name, 0, user_data);

	op.found = found;
	return op;
}

REMOTE_OP_FUNCTION struct remote_op remote_op_list(raddr_t from, struct remote_region *found,
						   uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_LIST, from, found, 0, user_data);
}

/* The caller keeps *function, its arguments and its result until it takes the completion. */
REMOTE_OP_FUNCTION struct remote_op remote_op_query(struct remote_function *function,
						    uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_QUERY, 0, function, 0, user_data);
}

REMOTE_OP_FUNCTION struct remote_op remote_op_call(struct remote_function *function,
						   uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_CALL, 0, function, 0, user_data);
}

REMOTE_OP_FUNCTION struct remote_op remote_op_release(uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_RELEASE, 0, NULL, 0, user_data);
}

REMOTE_OP_FUNCTION struct remote_op remote_op_fence(uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_FENCE, 0, NULL, 0, user_data);
}

/* wanted: an address, or 0. *address is set when the completion is taken. */
REMOTE_OP_FUNCTION struct remote_op remote_op_alloc(raddr_t wanted, size_t bytes,
						    unsigned int permission, raddr_t *address,
						    uint64_t user_data)
{
	struct remote_op op = remote_op_of(REMOTE_OP_ALLOC, wanted, NULL, bytes, user_data);

	op.change = permission;
	op.found = address;
	return op;
}

REMOTE_OP_FUNCTION struct remote_op remote_op_free(raddr_t address, uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_FREE, address, NULL, 0, user_data);
}

REMOTE_OP_FUNCTION struct remote_op remote_op_lock(raddr_t lock, uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_LOCK, lock, NULL, 0, user_data);
}

REMOTE_OP_FUNCTION struct remote_op remote_op_unlock(raddr_t lock, uint64_t user_data)
{
	return remote_op_of(REMOTE_OP_UNLOCK, lock, NULL, 0, user_data);
}

/* Clio's name; remote.h says why a program MAY leave it out. */
#ifndef REMOTE_NO_SHORT_NAMES
static inline int rpoll(remote_queue_t *q, struct remote_completion *completions, size_t max,
			uint64_t timeout_us)
{
	return remote_queue_wait(q, completions, max, max ? 1 : 0, timeout_us);
}
#endif

#ifdef __cplusplus
}
#endif

#endif
