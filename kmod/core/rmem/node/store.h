/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A node whose state outlives its process: the caller keeps this and the pages in memory that the
 * next process maps, too, at any address. Sessions go on there under the same boot epoch, and a
 * request that comes again is executed once in all.
 *
 *      | header | work | undo | redo | struct rmem_node | its state |   ...   | pages |
 *
 * The process might have been killed between any two instructions (undo.h). The next one puts the
 * tables right:
 *
 *      memory, marks     one change at a time (change lock), with its request in `redo`: executed
 *                        again before any other, to the same end. Integers: see rmem_redo.
 *      floors            `rising` of the session: its bits are cleared to their end
 *      sessions, spans   `undo`
 *      names             `undo`, unless the PUBLISH is marked
 *      regions           `work` names the call that makes or frees some. A region whose entries
 *                        aren't all in the table is given back
 *      spaces            valid by their id, which is stored last and cleared first
 *      page table        primary: an entry is valid by its key, stored last
 *      loads, chains, free lists, sums, the pool    derived: built anew
 *
 * A page without an entry is zeroed before it is lent again, unless it never was lent. Locks,
 * waiting calls and slow requests under way aren't kept: clients retransmit those requests.
 *
 * Neither calls of offloads nor persistent pages are covered. The caller says rmem_store_lapse()
 * before it admits a call: from then on the state ends with the process.
 */
#ifndef REMORA_RMEM_STORE_H
#define REMORA_RMEM_STORE_H

#include "core/rmem/node/execute.h"
#include "core/rmem/node/node.h"
#include "core/rmem/node/undo.h"

/* Raise it with each change that older or newer code would read wrongly in a store. */
#define RMEM_STORE_VERSION 1U

enum rmem_work_kind {
	RMEM_WORK_NONE,
	RMEM_WORK_ALLOC, /* no region unless id is marked */
	RMEM_WORK_FREE,	 /* region is gone, then id is marked */
	RMEM_WORK_END,	 /* session has ended: its regions of ids from `id` up go */
	RMEM_WORK_SPACE, /* the space `id` is being added; unless it is complete, it goes */
};

/* The call under way that makes, frees or adds. Call lock. */
struct rmem_work {
	u32 kind;
	u32 region; /* index + 1; 0: known by origin and id */
	u64 origin; /* of the session */
	u64 id;
};

enum rmem_redo_stage {
	RMEM_REDO_NONE,
	RMEM_REDO_REQUEST, /* execute it (again) */
	/*
	 * The data of a PUT is in place, and found is the integer's value before. If it is still
	 * the integer's, the operation is to be executed; else it was. Nothing else changes it.
	 */
	RMEM_REDO_INTEGER,
};

/* The change under way. Change lock, within the slot lock. */
struct rmem_redo {
	u32 stage;
	struct rmem_peer peer; /* its sender */
	struct rmem_head head;
	struct rmem_found found;
	u8 payload[RMEM_PIECE_BYTES_MAX];
};

struct rmem_store {
	u64 magic; /* stored last; without it there is nothing */
	u64 layout;
	u32 lapsed;
	struct rmem_work work;
	struct rmem_undo undo;
	struct rmem_redo redo;
	struct rmem_node node;
} __attribute__((aligned(64)));

/* For a sound configuration; the state is behind the store. */
size_t rmem_store_bytes(const struct rmem_node_config *config);

/* The caller's rmem_store_bytes() of memory are 0, and so are the pages. */
void rmem_store_init(struct rmem_store *store, const struct rmem_node_config *config);

/*
 * Goes on with the state that an ended process left there. NULL: done, once the caller has filled
 * the pool and called rmem_store_redo(), both before any request. Else one line that says why not:
 * the caller begins anew or leaves the store. Its tables might have been changed, and another try
 * finds the same. config: as it was then, but for boot and seed, which the store has.
 */
const char *rmem_store_take(struct rmem_store *store, const struct rmem_node_config *config,
			    u64 now_ns);

/* The state ends with this process. Any lock or none. */
void rmem_store_lapse(struct rmem_store *store);

/*
 * Brackets a change of the fast path, from before rmem_node_request() until after rmem_execute().
 * payload: `bytes` of it, at most RMEM_PIECE_BYTES_MAX. Change lock.
 */
static inline void rmem_redo_begin(struct rmem_redo *redo, const struct rmem_head *head,
				   const void *payload, u32 bytes, const struct rmem_peer *peer)
{
	redo->head = *head;
	redo->peer = *peer;
	base_copy(redo->payload, payload, bytes);
	rmem_undo_order();
	redo->stage = RMEM_REDO_REQUEST;
	rmem_undo_order();
}

static inline void rmem_redo_end(struct rmem_redo *redo)
{
	rmem_undo_order();
	redo->stage = RMEM_REDO_NONE;
	rmem_undo_order();
}

/* Brackets a call's changes. Call lock. Nothing without a store. */
static inline void rmem_work_begin(struct rmem_node *node, enum rmem_work_kind kind,
				   const struct rmem_region *region, u64 origin, u64 id)
{
	struct rmem_work *work = node->store ? &node->store->work : NULL;

	if (!work)
		return;
	work->region = region ? (u32)(region - node->alloc.region) + 1 : 0;
	work->origin = origin;
	work->id = id;
	rmem_undo_order();
	work->kind = kind;
	rmem_undo_order();
}

static inline void rmem_work_end(struct rmem_node *node)
{
	rmem_undo_order();
	if (node->store)
		node->store->work.kind = RMEM_WORK_NONE;
	rmem_undo_order();
}

/* Executes the change that was under way. ops: at() and copy(), whose data is redo.payload. */
void rmem_store_redo(struct rmem_store *store, const struct rmem_execute_ops *ops, void *carrier,
		     u64 now_ns);

#endif
