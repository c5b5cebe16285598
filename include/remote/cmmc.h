/* SPDX-License-Identifier: MIT */
/*
 * libcmmc: copies between programs of two machines, from the pages of one into the pages of the
 * other. The machines have a Marlin link (eopN is up), each program opens /dev/cmmc.
 *
 *     receiver                                        sender
 *       cmmc_translate() -> handle ---- a socket ---> handle
 *       its pages  <--------------------------------- cmmc_write()
 *       its pages  ---------------------------------> cmmc_read()
 *       cmmc_revoke()
 *
 * All functions return 0 or a number >= 0, or -errno; cmmc_open(3) lists each error's meaning.
 * Several threads MAY call them at once. `cmmc` is cmmc_open()'s result.
 */
#ifndef REMOTE_CMMC_H
#define REMOTE_CMMC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names a grant. Opaque; programs pass it on as 32 bytes. */
typedef struct {
	uint64_t word[4];
} cmmc_handle_t;

/* Rights, for cmmc_translate(). */
#define CMMC_READ 1u /* the peer MAY read */
#define CMMC_WRITE 2u /* the peer MAY write */

/* For cmmc_write(): the receiver's eventfd becomes readable when all is written. */
#define CMMC_SIGNAL 1u
/*
 * For cmmc_write(): it MAY return 0 when the bytes have been sent. If the link goes down at that
 * moment they might be lost, and the grant has ended. If a later cmmc_write() without this flag by
 * the same handle returns 0, all of them have arrived. With CMMC_SIGNAL the receiver is told only if
 * they have. A kernel that lacks the flag copies without; by io_uring it refuses the copy (-EINVAL).
 */
#define CMMC_POSTED 2u

/* Opens the device; returns a descriptor, which close() closes. path: NULL for /dev/cmmc */
int cmmc_open(const char *path);

/*
 * Grants bytes at an address to the peer at a port, until cmmc_revoke() or close(). The memory is
 * locked meanwhile. rights: CMMC_READ, CMMC_WRITE or both. eventfd: a descriptor of eventfd(2) for
 * signals, or -1.
 */
int cmmc_translate(int cmmc, unsigned port, void *address, size_t bytes, unsigned rights,
		   int eventfd, cmmc_handle_t *handle);

/* Ends a grant. Returns when no copy touches the memory any more. */
int cmmc_revoke(int cmmc, const cmmc_handle_t *handle);

/* Locks writable memory for later copies; returns its number, for cmmc_write_buffer(). */
int cmmc_register(int cmmc, void *address, size_t bytes);
int cmmc_unregister(int cmmc, int buffer);

/*
 * Copies between own memory and a grant, any length and alignment. Returns 0 when all is copied. An
 * error can come after a part was copied. flags: CMMC_SIGNAL, CMMC_POSTED. bytes 0 with
 * CMMC_SIGNAL only signals.
 */
int cmmc_write(int cmmc, const cmmc_handle_t *to, uint64_t offset, const void *from, size_t bytes,
	       unsigned flags);
int cmmc_read(int cmmc, const cmmc_handle_t *from, uint64_t offset, void *to, size_t bytes);

/* The same with a registered buffer, from its byte `at` on. */
int cmmc_write_buffer(int cmmc, const cmmc_handle_t *to, uint64_t offset, int buffer, uint64_t at,
		      size_t bytes, unsigned flags);
int cmmc_read_buffer(int cmmc, const cmmc_handle_t *from, uint64_t offset, int buffer, uint64_t at,
		     size_t bytes);

/*
 * Doorbells. cmmc_bell() makes one for the peer at a port; its programs send numbers by
 * cmmc_ring(), which needs no memory. Numbers arrive in order. cmmc_take() takes the oldest, and
 * doesn't wait: -EAGAIN if there is none. eventfd: becomes readable with each number, or -1. After
 * 256 numbers that were not taken, cmmc_ring() returns -EAGAIN. cmmc_revoke() ends a doorbell.
 */
int cmmc_bell(int cmmc, unsigned port, int eventfd, cmmc_handle_t *handle);
int cmmc_ring(int cmmc, const cmmc_handle_t *to, uint64_t number);
int cmmc_take(int cmmc, const cmmc_handle_t *bell, uint64_t *number);

/*
 * Signals that wake a futex: a thread reads the eventfd, and each time wakes all that wait for
 * `word` by FUTEX_WAIT, private or not, as std::atomic's wait() does. The word is memory that the
 * peer writes before it signals. After cmmc_wake_stop() the thread touches neither.
 */
typedef struct cmmc_wake cmmc_wake_t;
int cmmc_wake_start(cmmc_wake_t **wake, int eventfd, uint32_t *word);
void cmmc_wake_stop(cmmc_wake_t *wake);

/*
 * Locks across machines. port: the lock's home, the machine whose memory it SHOULD guard, by its
 * port; number: 0 to 63. timeout_ms: 0 for none. cmmc_lock() returns 0, or CMMC_BROKEN if the last
 * holder ended without cmmc_unlock(). The holder is `cmmc`, whose close() gives the lock to the
 * next as broken. -ENOLINK of cmmc_unlock(): the link to the home ended, and with it the lock;
 * another program might have it.
 */
#define CMMC_BROKEN 1
int cmmc_lock(int cmmc, unsigned port, unsigned number, unsigned timeout_ms);
int cmmc_unlock(int cmmc, unsigned port, unsigned number);

/*
 * The same by io_uring: fill a submission entry, as liburing's io_uring_prep_* do. The ring MUST
 * have IORING_SETUP_SQE128. The completion's res is 0 or an error; see include/uapi/remora_cmmc.h.
 * The memory, and the handle's grant, MUST stay until then. A copy that the ring's end cancels is
 * completed with -EINTR. fixed: the memory is in the ring's buffer of that number
 * (io_uring_register_buffers()).
 */
struct io_uring_sqe;
void cmmc_prep_write(struct io_uring_sqe *sqe, int cmmc, const cmmc_handle_t *to, uint64_t offset,
		     const void *from, size_t bytes, unsigned flags);
void cmmc_prep_read(struct io_uring_sqe *sqe, int cmmc, const cmmc_handle_t *from, uint64_t offset,
		    void *to, size_t bytes);
void cmmc_prep_write_buffer(struct io_uring_sqe *sqe, int cmmc, const cmmc_handle_t *to,
			    uint64_t offset, int buffer, uint64_t at, size_t bytes, unsigned flags);
void cmmc_prep_read_buffer(struct io_uring_sqe *sqe, int cmmc, const cmmc_handle_t *from,
			   uint64_t offset, int buffer, uint64_t at, size_t bytes);
void cmmc_prep_write_fixed(struct io_uring_sqe *sqe, int cmmc, const cmmc_handle_t *to,
			   uint64_t offset, const void *from, size_t bytes, int fixed,
			   unsigned flags);
void cmmc_prep_read_fixed(struct io_uring_sqe *sqe, int cmmc, const cmmc_handle_t *from,
			  uint64_t offset, void *to, size_t bytes, int fixed);

#ifdef __cplusplus
}
#endif

#endif
