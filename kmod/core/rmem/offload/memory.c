// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The functions that offloads call (include/remora/offload.h). */
#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/offload/run.h"

__u32 rmem_function(const struct rmem_call *call)
{
	return call->head.op;
}

__u32 rmem_args_bytes(const struct rmem_call *call)
{
	return call->head.len;
}

void *rmem_call_fails(struct rmem_call *call, int error)
{
	call->error = error;
	return NULL;
}

const void *rmem_args(struct rmem_call *call, __u32 bytes)
{
	return bytes <= call->head.len ? call->args : rmem_call_fails(call, -EINVAL);
}

/* The bytes from *cleared to `bytes`, which haven't been used yet. */
static void memory_clear(u8 *memory, u32 *cleared, u32 bytes)
{
	if (bytes <= *cleared)
		return;
	base_zero(memory + *cleared, bytes - *cleared);
	*cleared = bytes;
}

void *rmem_result(struct rmem_call *call, __u32 bytes)
{
	if (bytes > call->room_bytes)
		return rmem_call_fails(call, -EMSGSIZE);
	memory_clear(call->result, &call->result_bytes, bytes);
	call->result_bytes = bytes;
	return call->result;
}

void *rmem_scratch(struct rmem_call *call, __u32 bytes)
{
	if (bytes > sizeof(call->scratch))
		return rmem_call_fails(call, -EINVAL);
	memory_clear(call->scratch, &call->scratch_bytes, bytes);
	return call->scratch;
}

int rmem_error(const struct rmem_call *call)
{
	return call->error;
}

/* Clients can't change persistent memory, its offload can. */
static bool memory_is_persistent(const struct rmem_call *call, u64 addr, u64 bytes)
{
	u64 offset = addr - RMEM_PERSISTENT_ADDR, size = rmem_persistent_bytes(call);

	return addr >= RMEM_PERSISTENT_ADDR && offset <= size && bytes <= size - offset;
}

static int memory_errno(enum rmem_node_reason reason)
{
	switch (reason) {
	case RMEM_NODE_OK:
		return 0;
	case RMEM_NODE_FAULT:
		return -EFAULT;
	case RMEM_NODE_PERM:
		return -EACCES;
	case RMEM_NODE_BUSY:
		return -EAGAIN;
	default:
		return -EINVAL;
	}
}

/* The extents of a range that is read (RMEM_READ) or changed (RMEM_WRITE). */
static int memory_find(struct rmem_call *call, u8 type, u64 addr, u32 bytes,
		       struct rmem_answer *answer)
{
	const struct rmem_place *place = &call->offload->place;
	enum rmem_node_reason reason;

	if (type == RMEM_WRITE && call->head.type != RMEM_CALL)
		return -EACCES;
	/* Another space might have the place of one that was deleted since the call began. */
	if (!rmem_spaces_has(&call->run->node->spaces, place))
		return -EFAULT;
	if (type == RMEM_WRITE && memory_is_persistent(call, addr, bytes))
		type = RMEM_READ;
	reason = rmem_node_access(call->run->node, place->memory, type, addr, bytes, answer);
	call->wants_page = reason == RMEM_NODE_BUSY;
	return memory_errno(reason);
}

static u8 *memory_at(const struct rmem_call *call, const struct rmem_extent *extent)
{
	return call->run->ops->at(call->run->carrier, extent);
}

static void *memory_slice(struct rmem_call *call, u8 type, u64 addr, u32 bytes)
{
	struct rmem_answer answer;
	int error = memory_find(call, type, addr, bytes, &answer);

	if (error)
		return rmem_call_fails(call, error);
	if (answer.extents != 1)
		return rmem_call_fails(call, -EINVAL);
	return memory_at(call, &answer.extent[0]);
}

const void *rmem_look(struct rmem_call *call, __u64 addr, __u32 bytes)
{
	return memory_slice(call, RMEM_READ, addr, bytes);
}

void *rmem_at(struct rmem_call *call, __u64 addr, __u32 bytes)
{
	return memory_slice(call, RMEM_WRITE, addr, bytes);
}

/* to or from is NULL, and the other one the program's. */
static int memory_copy(struct rmem_call *call, u64 addr, u8 *to, const u8 *from, u32 bytes)
{
	while (bytes) {
		u32 now = base_min(bytes, call->run->node->config.piece_bytes);
		struct rmem_answer answer;
		int error = memory_find(call, to ? RMEM_READ : RMEM_WRITE, addr, now, &answer);
		u32 n, done = 0;

		if (error)
			return error;
		for (n = 0; n < answer.extents; n++) {
			u8 *at = memory_at(call, &answer.extent[n]);

			if (to)
				base_copy(to + done, at, answer.extent[n].bytes);
			else
				base_copy(at, from + done, answer.extent[n].bytes);
			done += answer.extent[n].bytes;
		}
		addr += now;
		if (to)
			to += now;
		else
			from += now;
		bytes -= now;
	}
	return 0;
}

int rmem_read(struct rmem_call *call, __u64 addr, void *to, __u32 bytes)
{
	return memory_copy(call, addr, to, NULL, bytes);
}

int rmem_write(struct rmem_call *call, __u64 addr, const void *from, __u32 bytes)
{
	return memory_copy(call, addr, NULL, from, bytes);
}

void rmem_prefetch(struct rmem_call *call, __u64 addr)
{
	struct rmem_answer answer;

	if (!memory_find(call, RMEM_READ, addr, 1, &answer))
		__builtin_prefetch(memory_at(call, &answer.extent[0]));
}

/* ---- hosts with persistent memory and links -------------------------------------------------- */

__u64 rmem_persistent_bytes(const struct rmem_call *call)
{
	const struct rmem_node *node = call->run->node;

	return node->persistent && call->offload->place.memory == node->persistent_memory ?
		       node->config.persistent_pages << node->config.page_shift : 0;
}

int rmem_persist(struct rmem_call *call, __u64 addr, __u64 bytes)
{
	const struct rmem_run *run = call->run;
	const struct rmem_node *node = run->node;
	u64 first = node->config.pages - node->config.persistent_pages;
	struct rmem_extent extent = { .page = first, .bytes = 1 };

	if (!run->ops->persist)
		return -EOPNOTSUPP;
	if (!memory_is_persistent(call, addr, bytes))
		return -EFAULT;
	/* Its pages follow each other. */
	return run->ops->persist(run->carrier,
				 (u8 *)memory_at(call, &extent) + (addr - RMEM_PERSISTENT_ADDR),
				 bytes);
}

int rmem_drain(struct rmem_call *call)
{
	return call->run->ops->drain ? call->run->ops->drain(call->run->carrier) : -EOPNOTSUPP;
}

int rmem_key_lock(struct rmem_call *call, __u64 key)
{
	const struct rmem_run *run = call->run;

	return run->ops->key_lock ? run->ops->key_lock(run->carrier, call, key) : -EOPNOTSUPP;
}

int rmem_forward(struct rmem_call *call, const char *link, __u32 function, const void *args,
		 __u32 bytes)
{
	const struct rmem_run *run = call->run;

	if (!run->ops->forward)
		return -EOPNOTSUPP;
	return run->ops->forward(run->carrier, call, link, function, args, bytes);
}

int rmem_forwarded(struct rmem_call *call, void *answer)
{
	const struct rmem_run *run = call->run;

	return run->ops->forwarded ? run->ops->forwarded(run->carrier, call, answer) : -EOPNOTSUPP;
}
