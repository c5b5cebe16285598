// SPDX-License-Identifier: GPL-2.0
/*
 * Control of the memory node: family rmem_node of include/uapi/remora_node.h.
 *
 * Changes need CAP_NET_ADMIN in the initial user namespace, since they lock the
 * machine's memory. The node serves in the network namespace it is started
 * from, and can be seen and stopped from any. Spaces and offloads are told to any user of the
 * initial network namespace, as metrics need them, but not to containers.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/sizes.h>
#include <net/genetlink.h>
#include <net/netlink.h>
#include <net/sock.h>

#include "compat/compat.h"
#include "rmem/node/calls.h"
#include "rmem/node/count.h"
#include "rmem/node/host.h"
#include "rmem/node/mem.h"
#include "rmem/node/netlink.h"
#include "rmem/node/programs.h"
#include "rmem/node/slow.h"
#include "rmem/node/types.h"
#include "rmem_seal_ops.h"
#include "uapi/remora_node.h"

static_assert(RMEM_NODE_KEY_BYTES == BASE_SIPHASH_KEY_BYTES);

#define PAGE_BYTES_DEFAULT SZ_64K
#define SPACES_DEFAULT 256
#define SESSIONS_DEFAULT 1024
#define REGIONS_DEFAULT 4096
#define SESSION_IDLE_MS_DEFAULT 60000

/* Room for the attributes that are not counters. */
#define STATUS_BYTES 512
#define USAGE_COUNTERS 3 /* of netlink_put_running() */
/* Nest, name, padding, value. */
#define COUNTER_BYTES 64

static struct genl_family family;

static const struct nla_policy policy[RMEM_NODE_A_MAX + 1] = {
	[RMEM_NODE_A_MEMORY] = { .type = NLA_U64 },
	[RMEM_NODE_A_PAGE_BYTES] = { .type = NLA_U32 },
	[RMEM_NODE_A_PORT] = { .type = NLA_U16 },
	[RMEM_NODE_A_POOL_PAGES] = { .type = NLA_U32 },
	[RMEM_NODE_A_SPACES_MAX] = { .type = NLA_U32 },
	[RMEM_NODE_A_SESSIONS_MAX] = { .type = NLA_U32 },
	[RMEM_NODE_A_REGIONS_MAX] = { .type = NLA_U32 },
	[RMEM_NODE_A_SESSION_IDLE_MS] = { .type = NLA_U32 },
	[RMEM_NODE_A_SPACE] = { .type = NLA_U32 },
	[RMEM_NODE_A_KEY] = NLA_POLICY_EXACT_LEN(RMEM_NODE_KEY_BYTES),
	[RMEM_NODE_A_QUOTA] = { .type = NLA_U64 },
	[RMEM_NODE_A_FORCE] = { .type = NLA_FLAG },
	[RMEM_NODE_A_READ_ONLY_OF] = { .type = NLA_U32 },
	[RMEM_NODE_A_OFFLOAD] = { .type = NLA_NUL_STRING, .len = RMEM_OFFLOAD_NAME_BYTES - 1 },
	[RMEM_NODE_A_BUDGET_US] = { .type = NLA_U32 },
	[RMEM_NODE_A_SEALED_ONLY] = { .type = NLA_FLAG },
	[RMEM_NODE_A_MEMBER_OF] = { .type = NLA_U32 },
	[RMEM_NODE_A_CLIENTS] = { .type = NLA_BINARY, .len = RMEM_RUN_CLIENTS * sizeof(u32) },
};

/* ---- START, STOP ---- */

static int netlink_refuse(struct genl_info *info, int attribute, const char *text, int err)
{
	if (info->attrs[attribute])
		NL_SET_BAD_ATTR(info->extack, info->attrs[attribute]);
	NL_SET_ERR_MSG_FMT_MOD(info->extack, "%s", text);
	return err;
}

static u32 netlink_get_u32_or(const struct genl_info *info, int attribute, u32 otherwise)
{
	const struct nlattr *attr = info->attrs[attribute];

	return attr ? nla_get_u32(attr) : otherwise;
}

/* A value out of its range, by the attribute that holds it. */
static int netlink_check_value(struct genl_info *info, int attribute, const char *name, u32 value,
			       u32 min, u32 max)
{
	if (value >= min && value <= max)
		return 0;
	if (info->attrs[attribute])
		NL_SET_BAD_ATTR(info->extack, info->attrs[attribute]);
	NL_SET_ERR_MSG_FMT_MOD(info->extack, "%s %u is out of range: give %u .. %u", name, value,
			       min, max);
	return -ERANGE;
}

static int netlink_check_start(struct genl_info *info, const struct node_start *start)
{
	int err = netlink_check_value(info, RMEM_NODE_A_PAGE_BYTES, "PAGE_BYTES", start->page_bytes,
				      1U << RMEM_PAGE_SHIFT_MIN, 1U << RMEM_PAGE_SHIFT_MAX);

	if (!err && start->page_bytes & (start->page_bytes - 1))
		err = netlink_refuse(info, RMEM_NODE_A_PAGE_BYTES,
				     "PAGE_BYTES is not a power of two", -EINVAL);
	if (!err && start->pool_pages && (start->pool_pages < 2 ||
					  start->pool_pages & (start->pool_pages - 1)))
		err = netlink_refuse(info, RMEM_NODE_A_POOL_PAGES,
				     "POOL_PAGES is not a power of two, 2 or more", -EINVAL);
	if (!err)
		err = netlink_check_value(info, RMEM_NODE_A_PORT, "PORT", start->port, 1, U16_MAX);
	if (!err)
		err = netlink_check_value(info, RMEM_NODE_A_SPACES_MAX, "SPACES_MAX",
					  start->spaces_max, 1, RMEM_SPACES_MAX);
	if (!err)
		err = netlink_check_value(info, RMEM_NODE_A_SESSIONS_MAX, "SESSIONS_MAX",
					  start->sessions_max, 1, RMEM_SESSIONS_MAX);
	if (!err)
		err = netlink_check_value(info, RMEM_NODE_A_REGIONS_MAX, "REGIONS_MAX",
					  start->regions_max, 1, RMEM_REGIONS_MAX);
	if (!err && start->memory_bytes < start->page_bytes)
		err = netlink_refuse(info, RMEM_NODE_A_MEMORY,
				     "MEMORY is less than a page; raise it", -ERANGE);
	if (!err && start->memory_bytes / start->page_bytes > RMEM_NODE_PAGES_MAX)
		err = netlink_refuse(info, RMEM_NODE_A_MEMORY,
				     "MEMORY has too many pages; lower it or raise PAGE_BYTES",
				     -ERANGE);
	return err;
}

static int netlink_start_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct node_start start = {
		.page_bytes = netlink_get_u32_or(info, RMEM_NODE_A_PAGE_BYTES, PAGE_BYTES_DEFAULT),
		.port = RMEM_PORT,
		.pool_pages = netlink_get_u32_or(info, RMEM_NODE_A_POOL_PAGES, 0),
		.spaces_max = netlink_get_u32_or(info, RMEM_NODE_A_SPACES_MAX, SPACES_DEFAULT),
		.sessions_max = netlink_get_u32_or(info, RMEM_NODE_A_SESSIONS_MAX,
						   SESSIONS_DEFAULT),
		.regions_max = netlink_get_u32_or(info, RMEM_NODE_A_REGIONS_MAX, REGIONS_DEFAULT),
		.session_idle_ms =
			netlink_get_u32_or(info, RMEM_NODE_A_SESSION_IDLE_MS,
					   SESSION_IDLE_MS_DEFAULT),
	};
	int err;

	if (!info->attrs[RMEM_NODE_A_MEMORY])
		return netlink_refuse(info, RMEM_NODE_A_MEMORY, "MEMORY is missing: bytes to lend",
				      -EINVAL);
	start.memory_bytes = nla_get_u64(info->attrs[RMEM_NODE_A_MEMORY]);
	if (info->attrs[RMEM_NODE_A_PORT])
		start.port = nla_get_u16(info->attrs[RMEM_NODE_A_PORT]);
	err = netlink_check_start(info, &start);
	if (err)
		return err;
	if (mutex_lock_interruptible(&node_control))
		return -EINTR;
	err = node_host_start(genl_info_net(info), &start, info->extack);
	mutex_unlock(&node_control);
	return err;
}

/* Takes node_control and finds the node started, or says that it isn't. */
static int netlink_lock_started(struct genl_info *info)
{
	if (mutex_lock_interruptible(&node_control))
		return -EINTR;
	if (node_running)
		return 0;
	mutex_unlock(&node_control);
	NL_SET_ERR_MSG_MOD(info->extack, "the node is not started; start it first");
	return -ENOTCONN;
}

static int netlink_stop_doit(struct sk_buff *skb, struct genl_info *info)
{
	int err = netlink_lock_started(info);

	if (err)
		return err;
	node_host_stop();
	mutex_unlock(&node_control);
	return 0;
}

/* ---- spaces ---- */

static const char *netlink_space_error_text(enum rmem_space_error error)
{
	switch (error) {
	case RMEM_SPACE_EXISTS:
		return "SPACE exists already; delete it first or choose another id";
	case RMEM_SPACE_FULL:
		return "all spaces are in use; delete one or start with more SPACES_MAX";
	case RMEM_SPACE_UNKNOWN:
		return "no such SPACE: 'remora node space list' has them";
	case RMEM_SPACE_BUSY:
		return "SPACE has regions; --force frees them";
	case RMEM_SPACE_INVALID:
		return "SPACE must not be 0";
	case RMEM_SPACE_QUOTA:
		return "QUOTA is less than a page; raise it";
	case RMEM_SPACE_VIEWED:
		return "SPACE has read-only views or members; delete them first";
	case RMEM_SPACE_NO_BASE:
		return "READ_ONLY_OF or MEMBER_OF is no space: add that first";
	case RMEM_SPACE_IS_VIEW:
		return "READ_ONLY_OF or MEMBER_OF has no memory: name the space that has";
	case RMEM_SPACE_SAME_KEY:
		return "KEY is that of another client of the space: make one for this client";
	case RMEM_SPACE_NO_CIPHER:
		return "this node can't seal: it needs CONFIG_WIREGUARD, and memory when it starts";
	case RMEM_SPACE_REVOKED:
		return "the key of SPACE is revoked already";
	case RMEM_SPACE_PERSISTENT: /* this node has none */
	case RMEM_SPACE_OK:
		break;
	}
	return "";
}

static int netlink_space_error_attribute(const struct genl_info *info, enum rmem_space_error error)
{
	switch (error) {
	case RMEM_SPACE_QUOTA:
		return RMEM_NODE_A_QUOTA;
	case RMEM_SPACE_NO_BASE:
	case RMEM_SPACE_IS_VIEW:
		return info->attrs[RMEM_NODE_A_MEMBER_OF] ? RMEM_NODE_A_MEMBER_OF :
							     RMEM_NODE_A_READ_ONLY_OF;
	case RMEM_SPACE_SAME_KEY:
		return RMEM_NODE_A_KEY;
	case RMEM_SPACE_NO_CIPHER:
		return RMEM_NODE_A_SEALED_ONLY;
	default:
		return RMEM_NODE_A_SPACE;
	}
}

static int netlink_refuse_space(struct genl_info *info, enum rmem_space_error error)
{
	static const int err_of[] = {
		[-RMEM_SPACE_EXISTS] = -EEXIST,	  [-RMEM_SPACE_FULL] = -ENOSPC,
		[-RMEM_SPACE_UNKNOWN] = -ENOENT,  [-RMEM_SPACE_BUSY] = -EBUSY,
		[-RMEM_SPACE_INVALID] = -EINVAL,  [-RMEM_SPACE_QUOTA] = -ERANGE,
		[-RMEM_SPACE_VIEWED] = -EBUSY,	  [-RMEM_SPACE_NO_BASE] = -ENOENT,
		[-RMEM_SPACE_IS_VIEW] = -EINVAL,  [-RMEM_SPACE_SAME_KEY] = -EINVAL,
		[-RMEM_SPACE_REVOKED] = -EALREADY, [-RMEM_SPACE_NO_CIPHER] = -EOPNOTSUPP,
	};

	if (error == RMEM_SPACE_OK)
		return 0;
	return netlink_refuse(info, netlink_space_error_attribute(info, error),
			      netlink_space_error_text(error), err_of[-error]);
}

static enum rmem_space_error netlink_add_space(struct node_host *host, const struct genl_info *info)
{
	const struct nlattr *member = info->attrs[RMEM_NODE_A_MEMBER_OF];
	const struct nlattr *view = info->attrs[RMEM_NODE_A_READ_ONLY_OF];
	const struct nlattr *quota = info->attrs[RMEM_NODE_A_QUOTA];
	u32 space = nla_get_u32(info->attrs[RMEM_NODE_A_SPACE]);
	const u8 *key = nla_data(info->attrs[RMEM_NODE_A_KEY]);
	enum rmem_space_error error;

	if (info->attrs[RMEM_NODE_A_SEALED_ONLY] && !rmem_node_seals(&host->core))
		return RMEM_SPACE_NO_CIPHER;
	mutex_lock(&host->call_lock);
	mutex_lock(&host->slow_lock);
	if (view)
		error = rmem_node_space_add_view(&host->core, space, key, nla_get_u32(view));
	else if (member)
		error = rmem_node_space_add_member(&host->core, space, key, nla_get_u32(member));
	else
		error = rmem_node_space_add(&host->core, space, key,
					    quota ? nla_get_u64(quota) : 0);
	if (error == RMEM_SPACE_OK && info->attrs[RMEM_NODE_A_SEALED_ONLY])
		rmem_node_space_require(&host->core, space, RMEM_SEALED);
	mutex_unlock(&host->slow_lock);
	mutex_unlock(&host->call_lock);
	return error;
}

static int netlink_add_checked_space(struct genl_info *info)
{
	enum rmem_space_error error;
	int err;

	if (!info->attrs[RMEM_NODE_A_SPACE])
		return netlink_refuse(info, RMEM_NODE_A_SPACE, "SPACE is missing: an id", -EINVAL);
	if (!info->attrs[RMEM_NODE_A_KEY])
		return netlink_refuse(info, RMEM_NODE_A_KEY, "KEY is missing: 16 bytes", -EINVAL);
	if (!!info->attrs[RMEM_NODE_A_QUOTA] + !!info->attrs[RMEM_NODE_A_READ_ONLY_OF] +
	    !!info->attrs[RMEM_NODE_A_MEMBER_OF] > 1)
		return netlink_refuse(info, RMEM_NODE_A_SPACE,
				      "QUOTA, READ_ONLY_OF and MEMBER_OF exclude each other",
				      -EINVAL);
	err = netlink_lock_started(info);
	if (err)
		return err;
	error = netlink_add_space(node_running, info);
	mutex_unlock(&node_control);
	return netlink_refuse_space(info, error);
}

static int netlink_space_add_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr *key = info->attrs[RMEM_NODE_A_KEY];
	int err = netlink_add_checked_space(info);

	/* The message's memory is freed as it is. */
	if (key)
		memzero_explicit(nla_data(key), RMEM_NODE_KEY_BYTES);
	return err;
}

/* Ends the space's sessions and frees its regions, if they are its own. */
static void netlink_clear_space(struct node_host *host, u32 space)
{
	struct rmem_node_call call;

	lockdep_assert_held(&host->call_lock);
	if (!rmem_node_call_clear(&host->core, &call, space))
		return;
	node_slow_run(host, &call);
	node_mem_scrub(host);
}

/* regions, bytes: the space's, if they are why it can't be deleted. */
static enum rmem_space_error netlink_delete_space(struct node_host *host, u32 space, bool force,
						  u32 *regions, u64 *bytes)
{
	const struct rmem_space *found;
	enum rmem_space_error error;

	mutex_lock(&host->call_lock);
	if (force || rmem_node_space_is_view(&host->core, space))
		netlink_clear_space(host, space);
	mutex_lock(&host->slow_lock);
	error = rmem_node_space_del(&host->core, space);
	if (error == RMEM_SPACE_BUSY) {
		found = rmem_spaces_find(&host->core.spaces, space);
		*regions = found->regions;
		*bytes = found->pages_promised << host->core.config.page_shift;
	}
	mutex_unlock(&host->slow_lock);
	/* Requests that found its key have ended before the next space can take its place. */
	if (error == RMEM_SPACE_OK) {
		synchronize_rcu();
		rmem_node_space_wipe(&host->core);
	}
	mutex_unlock(&host->call_lock);
	return error;
}

/* Ends the space's sessions; its memory stays, and so does the space if that is its own. */
static enum rmem_space_error netlink_revoke_space(struct node_host *host, u32 space)
{
	struct rmem_node_call call;
	enum rmem_space_error error;

	mutex_lock(&host->call_lock);
	if (rmem_node_call_revoke(&host->core, &call, space)) {
		node_slow_run(host, &call);
		node_mem_scrub(host);
	}
	mutex_lock(&host->slow_lock);
	error = rmem_node_space_revoke(&host->core, space);
	mutex_unlock(&host->slow_lock);
	if (error == RMEM_SPACE_OK) {
		synchronize_rcu();
		rmem_node_space_wipe(&host->core);
	}
	mutex_unlock(&host->call_lock);
	return error;
}

static int netlink_space_revoke_doit(struct sk_buff *skb, struct genl_info *info)
{
	enum rmem_space_error error;
	int err;

	if (!info->attrs[RMEM_NODE_A_SPACE])
		return netlink_refuse(info, RMEM_NODE_A_SPACE, "SPACE is missing: an id", -EINVAL);
	err = netlink_lock_started(info);
	if (err)
		return err;
	error = netlink_revoke_space(node_running, nla_get_u32(info->attrs[RMEM_NODE_A_SPACE]));
	if (error == RMEM_SPACE_OK)
		node_calls_space_gone(node_running);
	mutex_unlock(&node_control);
	return netlink_refuse_space(info, error);
}

static int netlink_space_del_doit(struct sk_buff *skb, struct genl_info *info)
{
	enum rmem_space_error error;
	u32 regions = 0;
	u64 bytes = 0;
	int err;

	if (!info->attrs[RMEM_NODE_A_SPACE])
		return netlink_refuse(info, RMEM_NODE_A_SPACE, "SPACE is missing: an id", -EINVAL);
	err = netlink_lock_started(info);
	if (err)
		return err;
	error = netlink_delete_space(node_running, nla_get_u32(info->attrs[RMEM_NODE_A_SPACE]),
				     info->attrs[RMEM_NODE_A_FORCE], &regions, &bytes);
	if (error == RMEM_SPACE_OK)
		node_calls_space_gone(node_running);
	mutex_unlock(&node_control);
	err = netlink_refuse_space(info, error);
	if (error == RMEM_SPACE_BUSY)
		NL_SET_ERR_MSG_FMT_MOD(info->extack,
				       "SPACE has %u regions (%llu KiB); --force frees them",
				       regions, bytes >> 10);
	return err;
}

static int netlink_put_space(struct sk_buff *skb, struct netlink_callback *cb,
			     const struct node_host *host, const struct rmem_space *space)
{
	u32 base = rmem_spaces_base(&host->core.spaces, space);
	unsigned int shift = host->core.config.page_shift;
	void *hdr = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &family,
				NLM_F_MULTI, RMEM_NODE_CMD_SPACES);

	if (!hdr)
		return -EMSGSIZE;
	if (nla_put_u32(skb, RMEM_NODE_A_SPACE, space->id) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_QUOTA, space->quota_pages << shift,
			      RMEM_NODE_A_PAD) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_PROMISED, space->pages_promised << shift,
			      RMEM_NODE_A_PAD) ||
	    nla_put_u32(skb, RMEM_NODE_A_REGIONS, space->regions) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_USED_NS, READ_ONCE(space->calls_ns),
			      RMEM_NODE_A_PAD) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_OPERATIONS, space->traffic.operations,
			      RMEM_NODE_A_PAD) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_READ_BYTES, space->traffic.read_bytes,
			      RMEM_NODE_A_PAD) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_WRITTEN_BYTES, space->traffic.written_bytes,
			      RMEM_NODE_A_PAD) ||
	    (base && nla_put_u32(skb, space->member ? RMEM_NODE_A_MEMBER_OF :
						      RMEM_NODE_A_READ_ONLY_OF, base)) ||
	    (rmem_space_is_revoked(space) && nla_put_flag(skb, RMEM_NODE_A_REVOKED)) ||
	    (space->required == RMEM_SEALED && nla_put_flag(skb, RMEM_NODE_A_SEALED_ONLY))) {
		genlmsg_cancel(skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, hdr);
	return 0;
}

static int netlink_check_reader(struct netlink_callback *cb)
{
	if (net_eq(sock_net(cb->skb->sk), &init_net) || netlink_capable(cb->skb, CAP_NET_ADMIN))
		return 0;
	NL_SET_ERR_MSG(cb->extack, "only an administrator may (CAP_NET_ADMIN)");
	return -EPERM;
}

/*
 * Settling takes each session's lock under the slow lock, for which clients wait. So a user who
 * asks all the time gets figures that are up to a second old. Slow lock.
 */
static void netlink_settle(struct netlink_callback *cb)
{
	static u64 settled_ns; /* 0: never */
	u64 now_ns = ktime_get_ns();

	if (!netlink_capable(cb->skb, CAP_NET_ADMIN) && settled_ns &&
	    now_ns - settled_ns < NSEC_PER_SEC)
		return;
	settled_ns = now_ns;
	rmem_traffic_settle_all(&node_running->core);
}

/* cb->args[0]: slot to go on with. */
static int netlink_spaces_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct rmem_spaces *spaces;
	unsigned long at = cb->args[0];
	int err = netlink_check_reader(cb);

	if (err)
		return err;
	if (mutex_lock_interruptible(&node_control))
		return -EINTR;
	if (node_running) {
		mutex_lock(&node_running->slow_lock);
		spaces = &node_running->core.spaces;
		if (!at)
			netlink_settle(cb);
		for (; at < spaces->slots; at++) {
			if (spaces->slot[at].id &&
			    netlink_put_space(skb, cb, node_running, &spaces->slot[at]))
				break;
		}
		mutex_unlock(&node_running->slow_lock);
	}
	mutex_unlock(&node_control);
	cb->args[0] = at;
	return skb->len;
}

static int netlink_put_region(struct sk_buff *skb, struct netlink_callback *cb,
			      const struct node_host *host, const struct rmem_region *region)
{
	struct rmem_listed listed;
	size_t name_bytes;
	void *hdr;

	if (!rmem_node_list(&host->core, region, &listed))
		return 0;
	hdr = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &family, NLM_F_MULTI,
			  RMEM_NODE_CMD_REGIONS);
	if (!hdr)
		return -EMSGSIZE;
	name_bytes = strnlen(listed.name, sizeof(listed.name));
	if (nla_put_u64_64bit(skb, RMEM_NODE_A_ADDRESS, le64_to_cpu(listed.addr),
			      RMEM_NODE_A_PAD) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_BYTES, le64_to_cpu(listed.bytes),
			      RMEM_NODE_A_PAD) ||
	    nla_put_u32(skb, RMEM_NODE_A_PERMISSION, le32_to_cpu(listed.perm)) ||
	    nla_put_u32(skb, RMEM_NODE_A_NAMES, le32_to_cpu(listed.names)) ||
	    (name_bytes && nla_put(skb, RMEM_NODE_A_NAME, name_bytes, listed.name))) {
		genlmsg_cancel(skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, hdr);
	return 0;
}

/* Slots from at on. Returns the one to go on with, or -ENOENT: there is no such space. */
static long netlink_put_regions(struct sk_buff *skb, struct netlink_callback *cb,
				const struct node_host *host, u32 id, u32 at)
{
	const struct rmem_space *space = rmem_spaces_find(&host->core.spaces, id);
	const struct rmem_alloc_state *alloc = &host->core.alloc;
	const struct rmem_region *region;
	struct rmem_place place;

	if (!space)
		return -ENOENT;
	rmem_spaces_place(&host->core.spaces, space, &place);
	for (; at < alloc->regions_max; at++) {
		region = rmem_alloc_at(alloc, at);
		if (region && region->space_index == place.memory &&
		    netlink_put_region(skb, cb, host, region))
			break;
	}
	return at;
}

/* cb->args[0]: slot to go on with. */
static int netlink_regions_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct nlattr *space = nlmsg_find_attr(cb->nlh, GENL_HDRLEN, RMEM_NODE_A_SPACE);
	long at = -ENOTCONN;

	if (!space || nla_len(space) != sizeof(u32))
		return -EINVAL;
	if (mutex_lock_interruptible(&node_control))
		return -EINTR;
	if (node_running) {
		mutex_lock(&node_running->slow_lock);
		at = netlink_put_regions(skb, cb, node_running, nla_get_u32(space), cb->args[0]);
		mutex_unlock(&node_running->slow_lock);
	}
	mutex_unlock(&node_control);
	if (at < 0)
		return at;
	cb->args[0] = at;
	return skb->len;
}

/* ---- offloads ---- */

/* The attributes of LOAD and REMOVE. */
static int netlink_read_offload(struct genl_info *info, struct node_offload *offload)
{
	const struct nlattr *clients = info->attrs[RMEM_NODE_A_CLIENTS];

	if (!info->attrs[RMEM_NODE_A_OFFLOAD])
		return netlink_refuse(info, RMEM_NODE_A_OFFLOAD, "OFFLOAD is missing: a name",
				      -EINVAL);
	if (!info->attrs[RMEM_NODE_A_SPACE])
		return netlink_refuse(info, RMEM_NODE_A_SPACE, "SPACE is missing: an id", -EINVAL);
	if (clients && nla_len(clients) % sizeof(u32))
		return netlink_refuse(info, RMEM_NODE_A_CLIENTS, "CLIENTS are no ids", -EINVAL);
	if (info->attrs[RMEM_NODE_A_BUDGET_US] &&
	    nla_get_u32(info->attrs[RMEM_NODE_A_BUDGET_US]) - 1 >= RMEM_BUDGET_US_MAX)
		return netlink_refuse(info, RMEM_NODE_A_BUDGET_US, "BUDGET_US is not 1 to 100000",
				      -ERANGE);
	offload->name = nla_data(info->attrs[RMEM_NODE_A_OFFLOAD]);
	offload->space = nla_get_u32(info->attrs[RMEM_NODE_A_SPACE]);
	offload->budget_us = info->attrs[RMEM_NODE_A_BUDGET_US] ?
				     nla_get_u32(info->attrs[RMEM_NODE_A_BUDGET_US]) : 0;
	offload->clients = clients ? nla_len(clients) / sizeof(u32) : 0;
	if (clients)
		nla_memcpy(offload->client, clients, sizeof(offload->client));
	return 0;
}

static int netlink_offload_load_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct node_offload offload;
	int err = netlink_read_offload(info, &offload);

	if (err)
		return err;
	err = netlink_lock_started(info);
	if (err)
		return err;
	err = node_programs_load(node_running, &offload, info->extack);
	mutex_unlock(&node_control);
	return err;
}

static int netlink_offload_remove_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct node_offload offload;
	int err = netlink_read_offload(info, &offload);

	if (!err)
		err = netlink_lock_started(info);
	if (err)
		return err;
	err = node_calls_remove(node_running, &offload, info->extack);
	mutex_unlock(&node_control);
	return err;
}

static int netlink_put_clients(struct sk_buff *skb, const struct rmem_run_offload *offload)
{
	u32 client[RMEM_RUN_CLIENTS];
	u32 n;

	for (n = 0; n < offload->clients; n++)
		client[n] = offload->client[n].space;
	return nla_put(skb, RMEM_NODE_A_CLIENTS, n * sizeof(client[0]), client);
}

static int netlink_put_offload(struct sk_buff *skb, struct netlink_callback *cb,
			       const struct rmem_run_offload *offload)
{
	void *hdr = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &family,
				NLM_F_MULTI, RMEM_NODE_CMD_OFFLOADS);

	if (!hdr)
		return -EMSGSIZE;
	if (nla_put_string(skb, RMEM_NODE_A_OFFLOAD, offload->ops->name) ||
	    nla_put_u32(skb, RMEM_NODE_A_SPACE, offload->place.space) ||
	    netlink_put_clients(skb, offload) ||
	    nla_put_u32(skb, RMEM_NODE_A_BUDGET_US, offload->budget_us) ||
	    nla_put_u32(skb, RMEM_NODE_A_OFFLOAD_ID, offload->ops->id) ||
	    nla_put_u32(skb, RMEM_NODE_A_RUNNING, offload->calls) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_ENDED, offload->ended, RMEM_NODE_A_PAD) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_FAILED, offload->failed, RMEM_NODE_A_PAD) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_OVER_BUDGET, offload->over_budget,
			      RMEM_NODE_A_PAD) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_A_USED_NS, offload->used_ns, RMEM_NODE_A_PAD)) {
		genlmsg_cancel(skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, hdr);
	return 0;
}

/* cb->args[0]: place to go on with. */
static int netlink_offloads_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	unsigned long at = cb->args[0];
	struct rmem_run_offload offload;
	int err = netlink_check_reader(cb);

	if (err)
		return err;
	if (mutex_lock_interruptible(&node_control))
		return -EINTR;
	for (; node_running && at < RMEM_RUN_OFFLOADS; at++) {
		if (node_calls_at(node_running, at, &offload) &&
		    netlink_put_offload(skb, cb, &offload))
			break;
	}
	mutex_unlock(&node_control);
	cb->args[0] = at;
	return skb->len;
}

/* ---- STATUS ---- */

static int netlink_put_bytes(struct sk_buff *skb, int attribute, u64 bytes)
{
	return nla_put_u64_64bit(skb, attribute, bytes, RMEM_NODE_A_PAD);
}

static int netlink_put_config(struct sk_buff *skb, const struct node_host *host)
{
	const struct rmem_node_config *config = &host->core.config;

	return nla_put_flag(skb, RMEM_NODE_A_STARTED) ||
	       nla_put_u32(skb, RMEM_NODE_A_PAGE_BYTES, 1U << config->page_shift) ||
	       nla_put_u16(skb, RMEM_NODE_A_PORT, host->port_number) ||
	       nla_put_u32(skb, RMEM_NODE_A_POOL_PAGES, config->pool_pages) ||
	       nla_put_u32(skb, RMEM_NODE_A_SPACES_MAX, config->spaces_max) ||
	       nla_put_u32(skb, RMEM_NODE_A_SESSIONS_MAX, config->sessions_max) ||
	       nla_put_u32(skb, RMEM_NODE_A_REGIONS_MAX, config->regions_max) ||
	       nla_put_u32(skb, RMEM_NODE_A_SESSION_IDLE_MS, config->session_idle_ms) ||
	       netlink_put_bytes(skb, RMEM_NODE_A_BOOT, config->boot);
}

static int netlink_put_usage(struct sk_buff *skb, const struct node_host *host,
			     const struct rmem_node_usage *usage)
{
	unsigned int shift = host->core.config.page_shift;

	return netlink_put_bytes(skb, RMEM_NODE_A_MEMORY, usage->pages << shift) ||
	       netlink_put_bytes(skb, RMEM_NODE_A_PROMISED, usage->pages_promised << shift) ||
	       netlink_put_bytes(skb, RMEM_NODE_A_BACKED, usage->pages_backed << shift) ||
	       netlink_put_bytes(skb, RMEM_NODE_A_READY, usage->pages_ready << shift) ||
	       nla_put_u32(skb, RMEM_NODE_A_SPACES, usage->spaces) ||
	       nla_put_u32(skb, RMEM_NODE_A_SESSIONS, usage->sessions) ||
	       nla_put_u32(skb, RMEM_NODE_A_REGIONS, usage->regions);
}

static int netlink_put_counter(struct sk_buff *skb, const char *name, u64 value)
{
	struct nlattr *nest = nla_nest_start(skb, RMEM_NODE_A_COUNTERS);

	if (!nest || nla_put_string(skb, RMEM_NODE_COUNTER_NAME, name) ||
	    nla_put_u64_64bit(skb, RMEM_NODE_COUNTER_VALUE, value, RMEM_NODE_COUNTER_PAD))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int netlink_put_counters(struct sk_buff *skb)
{
	unsigned int i;

	for (i = 0; i < NODE_COUNTS; i++) {
		if (netlink_put_counter(skb, node_count_name[i], node_count_sum(i)))
			return -EMSGSIZE;
	}
	return 0;
}

static int netlink_put_running(struct sk_buff *skb)
{
	struct rmem_node_usage usage;

	mutex_lock(&node_running->slow_lock);
	rmem_node_usage(&node_running->core, &usage);
	mutex_unlock(&node_running->slow_lock);
	return netlink_put_config(skb, node_running) ||
	       netlink_put_usage(skb, node_running, &usage) ||
	       netlink_put_counter(skb, "alloc-retries", usage.alloc_retries) ||
	       netlink_put_counter(skb, "alloc-retries-worst", usage.alloc_retries_worst) ||
	       netlink_put_counter(skb, "allocs-undone", usage.allocs_undone);
}

static int netlink_status_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply;
	void *hdr;
	int err;

	reply = genlmsg_new(STATUS_BYTES + (NODE_COUNTS + USAGE_COUNTERS) * COUNTER_BYTES,
			    GFP_KERNEL);
	if (!reply)
		return -ENOMEM;
	hdr = genlmsg_put_reply(reply, info, &family, 0, RMEM_NODE_CMD_STATUS);
	if (!hdr) {
		nlmsg_free(reply);
		return -EMSGSIZE;
	}
	if (mutex_lock_interruptible(&node_control)) {
		nlmsg_free(reply);
		return -EINTR;
	}
	err = node_running && netlink_put_running(reply);
	mutex_unlock(&node_control);
	if (err || netlink_put_counters(reply)) {
		nlmsg_free(reply);
		return -EMSGSIZE;
	}
	genlmsg_end(reply, hdr);
	return genlmsg_reply(reply, info);
}

/* ---- the family ---- */

static const struct genl_small_ops ops[] = {
	{ .cmd = RMEM_NODE_CMD_START, .flags = GENL_ADMIN_PERM, .doit = netlink_start_doit },
	{ .cmd = RMEM_NODE_CMD_STOP, .flags = GENL_ADMIN_PERM, .doit = netlink_stop_doit },
	{ .cmd = RMEM_NODE_CMD_STATUS, .doit = netlink_status_doit },
	{ .cmd = RMEM_NODE_CMD_SPACE_ADD, .flags = GENL_ADMIN_PERM,
	  .doit = netlink_space_add_doit },
	{ .cmd = RMEM_NODE_CMD_SPACE_DEL, .flags = GENL_ADMIN_PERM,
	  .doit = netlink_space_del_doit },
	{ .cmd = RMEM_NODE_CMD_SPACE_REVOKE, .flags = GENL_ADMIN_PERM,
	  .doit = netlink_space_revoke_doit },
	{ .cmd = RMEM_NODE_CMD_SPACES, .dumpit = netlink_spaces_dumpit },
	{ .cmd = RMEM_NODE_CMD_REGIONS, .flags = GENL_ADMIN_PERM,
	  .dumpit = netlink_regions_dumpit },
	{ .cmd = RMEM_NODE_CMD_OFFLOAD_LOAD, .flags = GENL_ADMIN_PERM,
	  .doit = netlink_offload_load_doit },
	{ .cmd = RMEM_NODE_CMD_OFFLOAD_REMOVE, .flags = GENL_ADMIN_PERM,
	  .doit = netlink_offload_remove_doit },
	{ .cmd = RMEM_NODE_CMD_OFFLOADS, .dumpit = netlink_offloads_dumpit },
};

/*
 * parallel_ops: reserving memory takes a while, and others' families shouldn't wait for it. A
 * module that registers or removes a family does wait for a start that runs (cb_lock), and then
 * later commands wait for that module; Ctrl-C ends a start.
 */
static struct genl_family family __ro_after_init = {
	.name = RMEM_NODE_GENL_NAME,
	.version = RMEM_NODE_GENL_VERSION,
	.maxattr = RMEM_NODE_A_MAX,
	.policy = policy,
	.netnsok = true,
	.parallel_ops = true,
	.module = THIS_MODULE,
	.small_ops = ops,
	.n_small_ops = ARRAY_SIZE(ops),
};

int node_netlink_register(void)
{
	return genl_register_family(&family);
}

void node_netlink_unregister(void)
{
	genl_unregister_family(&family);
}

/* Commands for the family load the module. */
MODULE_ALIAS_GENL_FAMILY(RMEM_NODE_GENL_NAME);
