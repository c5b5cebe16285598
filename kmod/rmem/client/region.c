// SPDX-License-Identifier: GPL-2.0
/*
 * A disk's region of the node's memory, and its names there:
 *
 *   no name   ALLOC -> DISCARD of less than a page, which changes nothing
 *   fresh     LOOKUP -> FREE, if an earlier client left a region of that name -> ALLOC -> PUBLISH
 *   keep      LOOKUP -> that region; if there is none: ALLOC -> PUBLISH
 *
 * The region's name is "disk/NAME"; the space has it once. A second name of the region, the mark
 * "disk/NAME@OWNER", tells whose it is. PUBLISH of the mark comes first, so a client that loses
 * power in between leaves a region that it finds by its mark.
 *
 *   disk/NAME has the mark of this owner     its own
 *   disk/NAME is the region's only name      a client's that gave no OWNER: everybody's
 *   else                                     another owner's: refused, unless TAKE is given
 *
 * The node keeps an allocated region only if a later request of the same session shows that the
 * client knows of it. The disk's requests might all go through other channels, so the last step
 * is that request. A client that loses power therefore leaves a region with its name, or none:
 * the next attach finds it.
 *
 * FREE also fences the earlier client off, if that still runs: the node gives the addresses to
 * nobody again until it restarts, and refuses requests for them. With keep nothing fences it off.
 */
#include <linux/netlink.h>
#include <linux/sched/signal.h>

#include "compat/compat.h"
#include "rmem/client/channel.h"
#include "rmem/client/region.h"

/* Keeps the names of disks' regions apart from those that programs publish. */
#define PREFIX "disk/"

static_assert(sizeof(PREFIX "@") - 1 + RMEM_DEVICE_NAME_MAX + RMEM_OWNER_MAX <= RMEM_NAME_BYTES);

static int region_silent(struct netlink_ext_ack *extack)
{
	NL_SET_ERR_MSG(extack, "the node stopped answering while it was to allocate");
	return signal_pending(current) ? -EINTR : -EHOSTDOWN;
}

static int region_refused(struct rmem_device *device, u8 status, struct netlink_ext_ack *extack)
{
	const struct rmem_client_node *node = &device->channel[0]->client.node;

	if (status == RMEM_NO_MEMORY) {
		NL_SET_ERR_MSG_FMT(extack,
				   "no memory, quota or region left (%llu of %llu MiB free): ask for less",
				   node->free_bytes >> 20, node->memory_bytes >> 20);
		return -ENOSPC;
	}
	if (status == RMEM_PERM) {
		NL_SET_ERR_MSG(extack, "SPACE is read-only: it has no room for a disk");
		return -EACCES;
	}
	NL_SET_ERR_MSG_FMT(extack, "the node refuses to allocate (status %u)", status);
	return -EREMOTEIO;
}

static int region_call(struct rmem_device *device, struct rmem_call *call,
		       struct netlink_ext_ack *extack)
{
	int err = rmem_channel_call(device->channel[0], call, rmem_attach_left_ms(device));

	if (err || (call->result != RMEM_CLIENT_OK && call->result != RMEM_CLIENT_REFUSED))
		return region_silent(extack);
	return 0;
}

/* PUBLISH, LOOKUP or LIST for named, which the caller keeps. 0: call->result is OK or REFUSED. */
static int region_call_named(struct rmem_device *device, u8 type, const struct rmem_named *named,
			     struct rmem_call *call, struct netlink_ext_ack *extack)
{
	*call = (struct rmem_call){ .op = { .type = type, .name = { .named = named } } };
	return region_call(device, call, extack);
}

/* The region's name, or with an owner its mark. */
static struct rmem_named region_named(const struct rmem_device *device, const char *owner, u64 addr)
{
	struct rmem_named named = { .addr = cpu_to_le64(addr) };
	char text[RMEM_NAME_BYTES + 1];
	int bytes;

	bytes = snprintf(text, sizeof(text), PREFIX "%s%s%s", device->params.name,
			 *owner ? "@" : "", owner);
	memcpy(named.name, text, bytes);
	return named;
}

static int region_publish(struct rmem_device *device, const char *owner, struct rmem_call *call,
			  struct netlink_ext_ack *extack)
{
	struct rmem_named named = region_named(device, owner, device->addr);

	return region_call_named(device, RMEM_PUBLISH, &named, call, extack);
}

/* The node's answer to the request that acknowledges the ALLOC. */
static int region_confirmed(struct rmem_device *device, const struct rmem_call *call,
			    struct netlink_ext_ack *extack)
{
	if (call->result == RMEM_CLIENT_OK)
		return 0;
	if (call->op.status == RMEM_EXISTS) {
		NL_SET_ERR_MSG_FMT(extack, "another client has just attached %s: choose another",
				   device->params.name);
		return -EEXIST;
	}
	if (call->op.status == RMEM_NO_MEMORY) {
		NL_SET_ERR_MSG_FMT(extack, "SPACE has all its %u names: attach without NAME",
				   RMEM_NAMES_MAX);
		return -ENOSPC;
	}
	device->region_bytes = 0;
	NL_SET_ERR_MSG(extack, "the node took the memory back at once: try again");
	return -EAGAIN;
}

/* Other clients find the region by its name from now on. */
static int region_confirm_named(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_call call;
	int err = 0;

	if (*device->params.owner)
		err = region_publish(device, device->params.owner, &call, extack) ?:
		      region_confirmed(device, &call, extack);
	if (!err)
		err = region_publish(device, "", &call, extack) ?:
		      region_confirmed(device, &call, extack);
	if (!err)
		device->keeps = device->params.keep;
	return err;
}

static int region_confirm(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_call call = {
		.op = {
			.type = RMEM_DISCARD,
			.addr = device->addr,
			.len = RMEM_BLOCK_BYTES,
		},
	};

	if (*device->params.name)
		return region_confirm_named(device, extack);
	return region_call(device, &call, extack) ?: region_confirmed(device, &call, extack);
}

static int region_alloc(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_call call = {
		.op = {
			.type = RMEM_ALLOC,
			.alloc = {
				.bytes = device->params.bytes,
				.perm = RMEM_PERM_READ | RMEM_PERM_WRITE,
			},
		},
	};
	int err = region_call(device, &call, extack);

	if (err)
		return err;
	if (call.result == RMEM_CLIENT_REFUSED)
		return region_refused(device, call.op.status, extack);
	device->addr = call.op.range.addr;
	device->region_bytes = call.op.range.bytes;
	return region_confirm(device, extack);
}

/* The region of the name, or with an owner of its mark; bytes 0: there is none. */
static int region_find(struct rmem_device *device, const char *owner, struct rmem_op_range *found,
		       struct netlink_ext_ack *extack)
{
	struct rmem_named named = region_named(device, owner, 0);
	struct rmem_call call;
	int err = region_call_named(device, RMEM_LOOKUP, &named, &call, extack);

	*found = (struct rmem_op_range){};
	if (err)
		return err;
	if (call.result == RMEM_CLIENT_OK)
		*found = (struct rmem_op_range){ .addr = call.op.name.addr,
						 .bytes = call.op.name.bytes };
	else if (call.op.status != RMEM_NO_NAME)
		return region_refused(device, call.op.status, extack);
	return 0;
}

/* All zero: the region at addr has just gone. */
static int region_list(struct rmem_device *device, u64 addr, struct rmem_listed *listed,
		       struct netlink_ext_ack *extack)
{
	struct rmem_named named = { .addr = cpu_to_le64(addr) };
	struct rmem_call call = {
		.op = { .type = RMEM_LIST, .name = { .named = &named, .listed = listed } },
	};
	int err;

	*listed = (struct rmem_listed){};
	err = region_call(device, &call, extack);
	if (!err && call.result == RMEM_CLIENT_REFUSED)
		return region_refused(device, call.op.status, extack);
	if (le64_to_cpu(listed->addr) != addr)
		*listed = (struct rmem_listed){};
	return err;
}

/* Withdraws the mark of the owner that TAKE takes the region from. */
static int region_unmark(struct rmem_device *device, const struct rmem_listed *listed,
			 struct netlink_ext_ack *extack)
{
	struct rmem_named named = region_named(device, "", 0);
	size_t bytes = strnlen(named.name, sizeof(named.name));
	struct rmem_call call;

	if (memcmp(named.name, listed->name, bytes) || listed->name[bytes] != '@') {
		NL_SET_ERR_MSG(extack, "the node doesn't tell who owns NAME: TAKE it without KEEP");
		return -EOPNOTSUPP;
	}
	memcpy(named.name, listed->name, sizeof(named.name));
	return region_call_named(device, RMEM_PUBLISH, &named, &call, extack);
}

/* listed: NULL, or the region hasn't this owner's mark. */
static int region_keep(struct rmem_device *device, const struct rmem_op_range *found,
		       const struct rmem_listed *listed, struct netlink_ext_ack *extack)
{
	struct rmem_call call;
	int err = 0;

	if (found->bytes < device->params.bytes ||
	    found->bytes - device->params.bytes >= device->page_bytes) {
		NL_SET_ERR_MSG_FMT(extack,
				   "the node keeps %llu MiB as %s: attach that size, or without KEEP",
				   found->bytes >> 20, device->params.name);
		return -EINVAL;
	}
	device->addr = found->addr;
	device->region_bytes = found->bytes;
	device->keeps = true;
	/* In this order: one that fails between leaves no owner, rather than two. */
	if (listed && le32_to_cpu(listed->names) > 1)
		err = region_unmark(device, listed, extack);
	if (!err && listed && *device->params.owner)
		err = region_publish(device, device->params.owner, &call, extack) ?:
		      region_confirmed(device, &call, extack);
	return err;
}

static int region_remove(struct rmem_device *device, const struct rmem_op_range *found,
			 struct netlink_ext_ack *extack)
{
	struct rmem_call call = { .op = { .type = RMEM_FREE, .range = *found } };
	int err = region_call(device, &call, extack);

	/* The earlier client might have freed the region meanwhile. */
	if (!err && call.result == RMEM_CLIENT_REFUSED && call.op.status != RMEM_FAULT)
		return region_refused(device, call.op.status, extack);
	return err;
}

/* 0: the region isn't another owner's, or TAKE is given. */
static int region_check_owner(struct rmem_device *device, const struct rmem_listed *listed,
			      struct netlink_ext_ack *extack)
{
	if (le32_to_cpu(listed->names) <= 1 || device->params.take)
		return 0;
	NL_SET_ERR_MSG(extack,
		       "another machine owns NAME: choose another, or TAKE it if that one is gone");
	return -EEXIST;
}

static int region_use_found(struct rmem_device *device, const struct rmem_op_range *found,
			    bool own, struct netlink_ext_ack *extack)
{
	struct rmem_listed listed;
	int err = 0;

	if (!own)
		err = region_list(device, found->addr, &listed, extack) ?:
		      region_check_owner(device, &listed, extack);
	if (err)
		return err;
	if (device->params.keep)
		return region_keep(device, found, own ? NULL : &listed, extack);
	return region_remove(device, found, extack) ?: region_alloc(device, extack);
}

static int region_get_named(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_op_range found, marked = {};
	int err = region_find(device, "", &found, extack);

	if (!err && *device->params.owner)
		err = region_find(device, device->params.owner, &marked, extack);
	/* A client that lost power before its device was there left it. */
	if (!err && marked.bytes && marked.addr != found.addr)
		err = region_remove(device, &marked, extack);
	if (err)
		return err;
	if (!found.bytes)
		return region_alloc(device, extack);
	return region_use_found(device, &found, found.addr == marked.addr, extack);
}

int rmem_region_get(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	if (*device->params.name)
		return region_get_named(device, extack);
	return region_alloc(device, extack);
}

bool rmem_region_free(struct rmem_device *device, unsigned int timeout_ms)
{
	struct rmem_call call = {
		.op = {
			.type = RMEM_FREE,
			.range = { .addr = device->addr, .bytes = device->region_bytes },
		},
	};

	if (rmem_channel_call(device->channel[0], &call, timeout_ms))
		return false;
	/* FAULT: the next client of the name has freed it. */
	return call.result == RMEM_CLIENT_OK || call.result == RMEM_CLIENT_LOST ||
	       (call.result == RMEM_CLIENT_REFUSED && call.op.status == RMEM_FAULT);
}
