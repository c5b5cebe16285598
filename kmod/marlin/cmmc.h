/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copies between programs of two machines: what their files share. include/uapi/remora_cmmc.h is
 * the programs' side, include/remora/marlin_grants.h what the machines exchange.
 *
 *   cmmc.c    /dev/cmmc: open files and their calls
 *   grant.c   an owner's grants: made, revoked, reclaimed
 *   copy.c    an initiator's copies, and doorbells that it rings
 *   uring.c   copies that io_uring asks for
 *   lock.c    locks across machines
 *   pin.c     pages of programs, locked and accounted
 *   hrdma.h   transactions, moved by a DMA engine or the CPU
 *
 * Locks, each after those above it
 *   cmmc_gate            read: a call uses the device; write: the device goes. Never held while a
 *                        page of a program is waited for, nor a peer
 *   file->lock           a file's grants and buffers
 *   lock_mutex           locks across machines, and the files that hold them (lock.c)
 *   cmmc->bell_lock      one number at a time is sent
 *   cmmc->list_lock      one step of reading a page list at a time
 *   cmmc->import_lock    page lists of peers' grants, as they were read; no allocation within
 *   cmmc->session_lock   read: a batch is being copied; write: the session begins or ends
 *   cmmc->lock           the table in a peer's memory, and the grants in it
 */
#ifndef REMORA_MARLIN_CMMC_H
#define REMORA_MARLIN_CMMC_H

#include <linux/bvec.h>
#include <linux/eventfd.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/semaphore.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "core/marlin/grants.h"
#include "core/marlin/scatter.h"
#include "marlin/hrdma.h"
#include "marlin/marlin.h"
#include "remora_cmmc.h"

static_assert(PAGE_SIZE == MARLIN_PAGE_BYTES);
static_assert(sizeof(struct cmmc_handle) == sizeof(struct marlin_handle));
/* The command's part of a large submission entry of io_uring. */
static_assert(sizeof(struct cmmc_copy) == 80);
static_assert(CMMC_GRANT_READ == MARLIN_GRANT_READ && CMMC_GRANT_WRITE == MARLIN_GRANT_WRITE);
static_assert(CMMC_BELL_NUMBERS == MARLIN_BELL_NUMBERS);

/* Queues of users' copies: two users whose numbers collide share one. */
#define CMMC_USERS 64

/* The rule that a peer broke whose table, page lists or doorbells can't be true. */
#define CMMC_FAULT "its grants are invalid"

/* A program's pages. */
struct cmmc_pin {
	struct page **pages;
	unsigned long count;
	u32 offset; /* of the first byte in the first page */
	u64 bytes;
	bool write; /* the pages' content might have changed */
	struct user_struct *user; /* is charged for them */
};

/* Own memory of a copy: a registered buffer, one of io_uring, or the current task's memory. */
struct cmmc_memory {
	const struct cmmc_pin *pin; /* or NULL */
	const struct bio_vec *vector; /* of io_uring, which keeps the pages; or NULL */
	struct bvec_iter iter; /* rest of the vector */
};

/* A grant of this machine's. Its file has it, until that is closed; then the device. */
struct cmmc_grant {
	struct list_head link; /* of cmmc->grants */
	struct marlin_cmmc *cmmc; /* NULL: the device is gone, and the pages are free or lost */
	bool lost; /* a copy might be under way for ever */
	u32 index;
	u64 epoch, key[2];
	bool live; /* not revoked */
	bool orphan; /* its file was closed: it ends when no copy is under way */
	u32 rights;
	struct cmmc_pin pin;
	__le64 *directory;
	struct marlin_bell *bell; /* or NULL; a page, which the peer writes */
	u32 taken; /* numbers of that; guarded by file->lock */
	struct eventfd_ctx *signal;
	u32 signals; /* as last seen */
};

/* A peer's grant, as this machine's copies use it. */
struct cmmc_import {
	refcount_t users;
	struct marlin_grant entry;
	u64 count;
	u64 pages[]; /* addresses in the peer's RAM, checked */
};

/* Copies to and from one peer, whose whole RAM is in a window. */
struct marlin_cmmc {
	struct marlin_peer *peer;
	void *ram; /* of the peer */
	u64 ram_bytes;
	struct hrdma_window hrdma; /* of that RAM; each transaction under way has entered it */
	unsigned int window; /* the NTB core's number of both ways' */
	resource_size_t own_bytes; /* of own RAM, that the peer sees */

	/* Own grants to the peer. */
	bool open; /* the peer's table may be written */
	struct delayed_work dead_work; /* looks whether the link stays down */
	bool down; /* as it found the link */
	struct mutex lock; /* guards what follows; held for loads across the bus */
	struct list_head grants;
	struct grants core;

	/* Own copies. */
	struct rw_semaphore session_lock; /* guards live and session */
	bool live;
	u64 session;
	struct semaphore copies_free;
	struct semaphore user_copies[CMMC_USERS]; /* by a hash of the user */
	unsigned long copies_used;
	atomic64_t sequence;
	spinlock_t signal_lock; /* guards the signal words in the peer's memory */
	u32 signals[MARLIN_GRANTS];
	struct mutex bell_lock; /* one ring of the peer's doorbells at a time */
	struct mutex list_lock; /* one step of a page list at a time: it has a copy word */
	struct mutex import_lock; /* guards what follows */
	u64 import_pages;
	struct cmmc_import *imports[MARLIN_GRANTS];
};

static inline struct marlin_grants_window *cmmc_own_window(struct marlin_cmmc *cmmc)
{
	return cmmc->peer->in_memory + MARLIN_GRANTS_OFFSET;
}

static inline struct marlin_grants_window *cmmc_peer_window(struct marlin_cmmc *cmmc)
{
	return cmmc->peer->out_memory + MARLIN_GRANTS_OFFSET;
}

/* The peer's grants to this machine, which the peer writes; and own grants, in its memory. */
static inline struct marlin_grant *cmmc_own_table(struct marlin_cmmc *cmmc)
{
	return cmmc->peer->in_memory + MARLIN_TABLE_OFFSET;
}

static inline struct marlin_grant *cmmc_peer_table(struct marlin_cmmc *cmmc)
{
	return cmmc->peer->out_memory + MARLIN_TABLE_OFFSET;
}

/* pin.c */
int cmmc_pin_start(struct cmmc_pin *pin, u64 address, u64 bytes, bool write);
void cmmc_pin_end(struct cmmc_pin *pin);

/* cmmc.c */
struct cmmc_file;
struct io_uring_cmd;
struct marlin_cmmc *cmmc_enter(u32 port);
void cmmc_leave(void);
int cmmc_copy_buffer(struct cmmc_file *file, struct cmmc_copy *in, struct cmmc_memory *memory,
		     bool write);

struct marlin_dev *cmmc_enter_device(void);

/* lock.c */
int cmmc_locks_attach(struct marlin_dev *md);
void cmmc_locks_detach(struct marlin_dev *md);
void cmmc_locks_start(struct marlin_peer *peer);
void cmmc_locks_stop(struct marlin_peer *peer);
void cmmc_locks_clean(struct marlin_peer *peer);
bool cmmc_locks_changed(struct marlin_dev *md);
void cmmc_locks_look(struct marlin_dev *md);
int cmmc_lock(struct list_head *held, struct cmmc_lock *in);
int cmmc_unlock(struct list_head *held, const struct cmmc_unlock *in);
void cmmc_locks_release(struct list_head *held);

/* uring.c */
int cmmc_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);

/*
 * In the lab a pulled cable carries stores on. A live peer ends its copies as soon as it hears of
 * the cable, after MARLIN_COPY_MS_MAX if its DMA engine hangs. This leaves it five times that.
 */
#define CMMC_DEAD msecs_to_jiffies(5 * MARLIN_COPY_MS_MAX)

/* grant.c */
bool cmmc_peer_is_dead(struct marlin_peer *peer, bool *down);
void cmmc_grant_init(struct marlin_cmmc *cmmc);
void cmmc_grant_exit(struct marlin_cmmc *cmmc);
struct cmmc_grant *cmmc_grant_new(const struct cmmc_translate *in);
void cmmc_grant_drop(struct cmmc_grant *grant);
int cmmc_grant_publish(struct marlin_cmmc *cmmc, struct cmmc_grant *grant);
int cmmc_grant_revoke(struct cmmc_grant *grant);
void cmmc_grant_free(struct cmmc_grant *grant);
void cmmc_grant_orphan(struct cmmc_grant *grant);
int cmmc_grant_peek(struct cmmc_grant *grant, u64 *number, u32 *place);
bool cmmc_grant_taken(struct cmmc_grant *grant, u32 place);
int cmmc_grants_changes(void);
int cmmc_grants_wait(int changes);
void cmmc_grants_look(struct marlin_cmmc *cmmc);
void cmmc_grants_look_ended(struct marlin_cmmc *cmmc);
bool cmmc_grants_are_quiet(struct marlin_cmmc *cmmc);
void cmmc_grants_start(struct marlin_cmmc *cmmc);
void cmmc_grants_stop(struct marlin_cmmc *cmmc);
void cmmc_grants_clean(struct marlin_cmmc *cmmc);

/* copy.c */
void cmmc_copy_init(struct marlin_cmmc *cmmc);
void cmmc_copy_start(struct marlin_cmmc *cmmc);
void cmmc_copy_stop(struct marlin_cmmc *cmmc);
int cmmc_copy(struct cmmc_copy *in, struct cmmc_memory *memory, bool write);
int cmmc_ring(const struct cmmc_ring *in);

#endif
