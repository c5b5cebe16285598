// SPDX-License-Identifier: GPL-2.0
/*
 * Control of the client: family rmem of include/uapi/remora_rmem.h.
 *
 * An attach waits for its node in the caller's system call, so that Ctrl-C ends it and nothing
 * has to be found and cleaned up later. With parallel_ops that holds up no other command. But a
 * module that registers or removes a generic netlink family waits for the commands that run
 * (cb_lock), and then every later command waits for that module: `detach --force`, too. So no
 * command here waits for I/O of a device. All steps of an attach together have TIMEOUT_MS; a detach
 * refuses a device that is open without waiting, and waits for answers to FREE and CLOSE.
 *
 * Devices are the machine's, so they are controlled from the initial network namespace
 * only, and reach their nodes through that.
 */
#include <linux/capability.h>
#include <linux/ctype.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <net/genetlink.h>
#include <net/sock.h>

#include "compat/compat.h"
#include "rmem/client/blk.h"
#include "rmem/client/chr.h"
#include "rmem/client/count.h"
#include "rmem/client/device.h"
#include "rmem/client/netlink.h"
#include "rmem/client/transport.h"
#include "rmem_seal_ops.h"

static_assert(RMEM_KEY_BYTES == BASE_SIPHASH_KEY_BYTES);
static_assert(RMEM_TIMES_BUCKETS == BASE_TIMES_BUCKETS);

#define TIMEOUT_MS_DEFAULT 5000U
#define FAIL_AFTER_MS_PROGRAMS 10000U

/* Room for the attributes that are neither counters nor times. */
#define STATUS_BYTES 640
/* Nest, name, padding, value. */
#define COUNTER_BYTES 64
#define TIMES_BYTES   (48 + BASE_TIMES_BUCKETS * sizeof(u64))
#define MESSAGE_BYTES                                                                              \
	(STATUS_BYTES + RMEM_COUNTERS * COUNTER_BYTES + RMEM_TIMES * TIMES_BYTES)

static struct genl_family family;

static const struct nla_policy policy[RMEM_A_MAX + 1] = {
	[RMEM_A_INDEX] = NLA_POLICY_MAX(NLA_U32, RMEM_INDEX_MAX),
	[RMEM_A_NODE] = { .type = NLA_BINARY, .len = sizeof(struct in6_addr) },
	[RMEM_A_PORT] = NLA_POLICY_MIN(NLA_U16, 1),
	[RMEM_A_SCOPE] = { .type = NLA_U32 },
	[RMEM_A_BYTES] = { .type = NLA_U64 },
	[RMEM_A_SPACE] = { .type = NLA_U32 },
	[RMEM_A_KEY] = { .type = NLA_BINARY },
	[RMEM_A_INTEGRITY] = NLA_POLICY_MAX(NLA_U8, RMEM_SEALED),
	[RMEM_A_FAIL_AFTER_MS] = { .type = NLA_U32 },
	[RMEM_A_TIMEOUT_MS] = NLA_POLICY_RANGE(NLA_U32, 1, RMEM_TIMEOUT_MS_MAX),
	[RMEM_A_QUEUES] = NLA_POLICY_MIN(NLA_U32, 1),
	[RMEM_A_FORCE] = { .type = NLA_FLAG },
	[RMEM_A_KIND] = NLA_POLICY_MAX(NLA_U8, RMEM_KIND_PROGRAMS),
	[RMEM_A_ADDRESS] = { .type = NLA_NUL_STRING, .len = RMEM_ADDRESS_TEXT_MAX },
	[RMEM_A_NAME] = { .type = NLA_NUL_STRING, .len = RMEM_DEVICE_NAME_MAX },
	[RMEM_A_KEEP] = { .type = NLA_FLAG },
	[RMEM_A_OWNER] = { .type = NLA_NUL_STRING, .len = RMEM_OWNER_MAX },
	[RMEM_A_TAKE] = { .type = NLA_FLAG },
	[RMEM_A_COOKIE] = { .type = NLA_U64 },
};

static int netlink_refuse(struct genl_info *info, int attribute, const char *text, int err)
{
	if (info->attrs[attribute])
		NL_SET_BAD_ATTR(info->extack, info->attrs[attribute]);
	NL_SET_ERR_MSG_FMT(info->extack, "%s", text);
	return err;
}

/* Both the caller and the socket's opener, as the socket can have been handed on. */
static int netlink_check_admin(struct sk_buff *skb, struct genl_info *info)
{
	if (netlink_capable(skb, CAP_SYS_ADMIN))
		return 0;
	GENL_SET_ERR_MSG(info, "only an administrator may (CAP_SYS_ADMIN)");
	return -EPERM;
}

/* ---- ATTACH ---- */

static u32 netlink_get_u32_or(const struct genl_info *info, int attribute, u32 otherwise)
{
	const struct nlattr *attr = info->attrs[attribute];

	return attr ? nla_get_u32(attr) : otherwise;
}

/* The transport stays the caller's to put. */
static int netlink_get_address(struct genl_info *info, struct rmem_attach_params *params)
{
	const struct nlattr *text = info->attrs[RMEM_A_ADDRESS];

	if (text && info->attrs[RMEM_A_NODE])
		return netlink_refuse(info, RMEM_A_ADDRESS, "ADDRESS and NODE: give one of them",
				      -EINVAL);
	params->transport = rmem_transport_get(text ? nla_data(text) : "", info->extack);
	if (!params->transport)
		return -EPROTONOSUPPORT;
	return params->transport->address_get(&params->address, info->attrs, info->extack);
}

static const struct rmem_device_ops *netlink_get_device_ops(const struct genl_info *info,
							    const struct rmem_device_ops *otherwise)
{
	const struct nlattr *kind = info->attrs[RMEM_A_KIND];

	if (!kind)
		return otherwise;
	return nla_get_u8(kind) == RMEM_KIND_PROGRAMS ? &rmem_chr_device_ops : &rmem_blk_device_ops;
}

/* Operations of programs always have a limit, so that a program can end. */
static int netlink_get_programs(struct genl_info *info, struct rmem_attach_params *params)
{
	if (info->attrs[RMEM_A_BYTES])
		return netlink_refuse(info, RMEM_A_BYTES,
				      "BYTES is for disks: programs ask for memory", -EINVAL);
	if (!info->attrs[RMEM_A_FAIL_AFTER_MS])
		params->session.fail_after_ms = FAIL_AFTER_MS_PROGRAMS;
	if (!params->session.fail_after_ms ||
	    params->session.fail_after_ms > RMEM_FAIL_AFTER_MS_PROGRAMS_MAX)
		return netlink_refuse(info, RMEM_A_FAIL_AFTER_MS,
				      "FAIL_AFTER_MS is 1 .. 60000 where programs wait", -EINVAL);
	return 0;
}

static int netlink_get_bytes(struct genl_info *info, u64 *bytes)
{
	if (!info->attrs[RMEM_A_BYTES])
		return netlink_refuse(info, RMEM_A_BYTES,
				      "BYTES is missing: the size of the device", -EINVAL);
	*bytes = nla_get_u64(info->attrs[RMEM_A_BYTES]);
	if (!*bytes)
		return netlink_refuse(info, RMEM_A_BYTES, "BYTES must not be 0", -EINVAL);
	if (*bytes % RMEM_BLOCK_BYTES)
		return netlink_refuse(info, RMEM_A_BYTES, "BYTES must be a multiple of 4096",
				      -EINVAL);
	if (*bytes > (u64)LLONG_MAX)
		return netlink_refuse(info, RMEM_A_BYTES, "BYTES is more than a device can have",
				      -EFBIG);
	return 0;
}

static bool netlink_name_is_valid(const char *name)
{
	const char *at;

	for (at = name; *at; at++) {
		if (!(isascii(*at) && isalnum(*at)) && (at == name || !strchr("_-.", *at)))
			return false;
	}
	return at > name;
}

static int netlink_get_name(struct genl_info *info, struct rmem_attach_params *params)
{
	const struct nlattr *name = info->attrs[RMEM_A_NAME], *owner = info->attrs[RMEM_A_OWNER];

	params->take = nla_get_flag(info->attrs[RMEM_A_TAKE]);
	params->keep = nla_get_flag(info->attrs[RMEM_A_KEEP]);
	if ((params->keep || params->take) && (!name || params->ops != &rmem_blk_device_ops))
		return netlink_refuse(info, params->keep ? RMEM_A_KEEP : RMEM_A_TAKE,
				      "KEEP and TAKE are for disks with a NAME", -EINVAL);
	if (!name)
		return 0;
	nla_strscpy(params->name, name, sizeof(params->name));
	if (!netlink_name_is_valid(params->name))
		return netlink_refuse(info, RMEM_A_NAME,
				      "NAME has letters, digits, _ - . and begins with one of the first two",
				      -EINVAL);
	if (!owner)
		return 0;
	nla_strscpy(params->owner, owner, sizeof(params->owner));
	if (!netlink_name_is_valid(params->owner))
		return netlink_refuse(info, RMEM_A_OWNER, "OWNER is not written as NAME is",
				      -EINVAL);
	return 0;
}

static int netlink_get_space(struct genl_info *info, struct rmem_session *session)
{
	const struct nlattr *key = info->attrs[RMEM_A_KEY];

	session->space = netlink_get_u32_or(info, RMEM_A_SPACE, 0);
	if (!session->space)
		return netlink_refuse(info, RMEM_A_SPACE, "SPACE is missing, or 0", -EINVAL);
	if (!key || nla_len(key) != RMEM_KEY_BYTES)
		return netlink_refuse(info, RMEM_A_KEY, "KEY must have 16 bytes", -EINVAL);
	base_siphash_key_load(&session->key, nla_data(key));
	return 0;
}

/* Can this kernel and the way to the node seal, if they are to? */
static int netlink_check_integrity(struct genl_info *info,
				   const struct rmem_attach_params *params)
{
	if (params->session.integrity != RMEM_SEALED)
		return 0;
	if (!params->transport->seals)
		return netlink_refuse(info, RMEM_A_INTEGRITY,
				      "only messages by udp can be sealed: choose a udp address",
				      -EOPNOTSUPP);
	if (!rmem_cipher())
		return netlink_refuse(info, RMEM_A_INTEGRITY,
				      "this kernel can't seal: build it with CONFIG_WIREGUARD",
				      -EOPNOTSUPP);
	if (!rmem_skb_prepare_unseal())
		return netlink_refuse(info, RMEM_A_INTEGRITY, "no memory to open datagrams in",
				      -ENOMEM);
	/* Without them, after a boot, OPEN finds no key pair, and the node seems not to answer. */
	if (wait_for_random_bytes())
		return netlink_refuse(info, RMEM_A_INTEGRITY,
				      "the kernel has no random numbers for keys yet: try again",
				      -EINTR);
	return 0;
}

static int netlink_get_params(struct genl_info *info, struct rmem_attach_params *params)
{
	int err;

	*params = (struct rmem_attach_params){
		.ops = netlink_get_device_ops(info, &rmem_blk_device_ops),
		.index = netlink_get_u32_or(info, RMEM_A_INDEX, RMEM_INDEX_ANY),
		.timeout_ms = netlink_get_u32_or(info, RMEM_A_TIMEOUT_MS, TIMEOUT_MS_DEFAULT),
		.queues = netlink_get_u32_or(info, RMEM_A_QUEUES, 0),
		.session = {
			.fail_after_ms = netlink_get_u32_or(info, RMEM_A_FAIL_AFTER_MS, 0),
			.integrity = RMEM_DIGEST,
		},
	};
	if (info->attrs[RMEM_A_COOKIE])
		params->cookie = nla_get_u64(info->attrs[RMEM_A_COOKIE]);
	if (info->attrs[RMEM_A_INTEGRITY])
		params->session.integrity = nla_get_u8(info->attrs[RMEM_A_INTEGRITY]);
	err = netlink_get_address(info, params);
	if (!err)
		err = netlink_check_integrity(info, params);
	if (!err && params->ops == &rmem_chr_device_ops)
		err = netlink_get_programs(info, params);
	else if (!err)
		err = netlink_get_bytes(info, &params->bytes);
	if (!err)
		err = netlink_get_name(info, params);
	if (!err)
		err = netlink_get_space(info, &params->session);
	return err;
}

static int netlink_attach_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct rmem_attach_params params;
	struct sk_buff *reply;
	u32 index;
	void *hdr;
	int err;

	err = netlink_check_admin(skb, info);
	if (err)
		return err;
	err = netlink_get_params(info, &params);
	if (err)
		goto forget;
	/* Before the work, so that nothing fails after it. */
	reply = genlmsg_new(nla_total_size(sizeof(u32)), GFP_KERNEL);
	if (!reply) {
		err = -ENOMEM;
		goto forget;
	}
	hdr = genlmsg_put_reply(reply, info, &family, 0, RMEM_CMD_ATTACH);
	err = rmem_device_attach(&params, &index, info->extack);
	if (!err && !WARN_ON_ONCE(!hdr || nla_put_u32(reply, RMEM_A_INDEX, index))) {
		genlmsg_end(reply, hdr);
		genlmsg_reply(reply, info);
	} else {
		nlmsg_free(reply);
	}
forget:
	/* Else it is the device's. */
	if (err && params.transport)
		rmem_transport_put(params.transport);
	memzero_explicit(&params.session.key, sizeof(params.session.key));
	/* The message's memory is freed as it is. */
	if (info->attrs[RMEM_A_KEY])
		memzero_explicit(nla_data(info->attrs[RMEM_A_KEY]),
				 nla_len(info->attrs[RMEM_A_KEY]));
	return err;
}

/* ---- DETACH ---- */

static int netlink_detach_doit(struct sk_buff *skb, struct genl_info *info)
{
	int err = netlink_check_admin(skb, info);

	if (err)
		return err;
	if (!info->attrs[RMEM_A_INDEX])
		return netlink_refuse(info, RMEM_A_INDEX, "INDEX is missing: N of rmbN or rmemN",
				      -EINVAL);
	return rmem_device_detach(netlink_get_device_ops(info, NULL),
				  nla_get_u32(info->attrs[RMEM_A_INDEX]),
				  nla_get_flag(info->attrs[RMEM_A_FORCE]), info->extack);
}

/* ---- STATUS ---- */

static int netlink_put_counters(struct sk_buff *reply, struct rmem_device *device)
{
	u64 values[RMEM_COUNTERS];
	struct nlattr *nest;
	unsigned int i;

	rmem_count_sums(device, values);
	for (i = 0; i < RMEM_COUNTERS; i++) {
		if (!rmem_count_name(i))
			continue;
		nest = nla_nest_start(reply, RMEM_A_COUNTERS);
		if (!nest ||
		    nla_put_string(reply, RMEM_COUNTER_NAME, rmem_count_name(i)) ||
		    nla_put_u64_64bit(reply, RMEM_COUNTER_VALUE, values[i], RMEM_COUNTER_PAD))
			return -EMSGSIZE;
		nla_nest_end(reply, nest);
	}
	return 0;
}

static int netlink_put_times(struct sk_buff *reply, struct rmem_device *device)
{
	/* Under rmem_devices_lock: see remote.c. */
	u64 *times = kmalloc_array(BASE_TIMES_BUCKETS, sizeof(*times), GFP_NOIO);
	unsigned int which, buckets;
	struct nlattr *nest;
	int err = 0;
	u64 sum_ns;

	if (!times)
		return -ENOMEM;
	for (which = 0; !err && which < RMEM_TIMES; which++) {
		buckets = rmem_count_times(device, which, times, &sum_ns);
		nest = nla_nest_start(reply, RMEM_A_TIMES);
		err = !nest ||
		      nla_put_string(reply, RMEM_TIMES_NAME, rmem_count_time_name(which)) ||
		      nla_put(reply, RMEM_TIMES_COUNTS, buckets * sizeof(*times), times) ||
		      nla_put_u64_64bit(reply, RMEM_TIMES_SUM_NS, sum_ns, RMEM_TIMES_PAD);
		if (!err)
			nla_nest_end(reply, nest);
	}
	kfree(times);
	return err ? -EMSGSIZE : 0;
}

static int netlink_put_address(struct sk_buff *reply, const struct rmem_attach_params *params)
{
	const char *scheme = params->transport->name;
	char text[RMEM_ADDRESS_TEXT_MAX + 1];

	snprintf(text, sizeof(text), "%s:%s", scheme, params->address.text);
	return nla_put_string(reply, RMEM_A_ADDRESS, text) ||
	       params->transport->address_put(&params->address, reply);
}

/* The congestion window of the device: the sum of its channels'. */
static u32 netlink_cwnd(const struct rmem_device *device)
{
	u32 sum = 0;
	unsigned int i;

	for (i = 0; i < device->channels; i++)
		sum += READ_ONCE(device->channel[i]->client.window.cwnd);
	return sum;
}

/* The mean over the channels that measured one. */
static u64 netlink_rtt_ns(const struct rmem_device *device)
{
	unsigned int i, measured = 0;
	u64 sum_ns = 0, one_ns;

	for (i = 0; i < device->channels; i++) {
		one_ns = READ_ONCE(device->channel[i]->client.rtt.srtt_ns);
		sum_ns += one_ns;
		measured += !!one_ns;
	}
	return measured ? div_u64(sum_ns, measured) : 0;
}

static int netlink_put_status(struct sk_buff *reply, struct rmem_device *device)
{
	const struct rmem_attach_params *params = &device->params;

	return nla_put_u32(reply, RMEM_A_INDEX, device->index) ||
	       netlink_put_address(reply, params) ||
	       nla_put_u64_64bit(reply, RMEM_A_BYTES, params->bytes, RMEM_A_PAD) ||
	       nla_put_u32(reply, RMEM_A_SPACE, params->session.space) ||
	       nla_put_u8(reply, RMEM_A_INTEGRITY, params->session.integrity) ||
	       nla_put_u32(reply, RMEM_A_FAIL_AFTER_MS, params->session.fail_after_ms) ||
	       nla_put_u32(reply, RMEM_A_QUEUES, device->queues) ||
	       nla_put_u8(reply, RMEM_A_KIND, params->ops->kind) ||
	       nla_put_u8(reply, RMEM_A_STATE, READ_ONCE(device->state)) ||
	       nla_put_u32(reply, RMEM_A_PAGE_BYTES, device->page_bytes) ||
	       nla_put_u64_64bit(reply, RMEM_A_BOOT, device->boot, RMEM_A_PAD) ||
	       nla_put_u64_64bit(reply, RMEM_A_ADDR, device->addr, RMEM_A_PAD) ||
	       nla_put_u32(reply, RMEM_A_PIECE, device->piece_bytes) ||
	       nla_put_u32(reply, RMEM_A_CWND, netlink_cwnd(device)) ||
	       nla_put_u64_64bit(reply, RMEM_A_RTT_NS, netlink_rtt_ns(device), RMEM_A_PAD) ||
	       nla_put_u32(reply, RMEM_A_OPENERS, device->openers) ||
	       (*params->name && nla_put_string(reply, RMEM_A_NAME, params->name)) ||
	       (params->keep && nla_put_flag(reply, RMEM_A_KEEP)) ||
	       (*params->owner && nla_put_string(reply, RMEM_A_OWNER, params->owner)) ||
	       (params->cookie &&
		nla_put_u64_64bit(reply, RMEM_A_COOKIE, params->cookie, RMEM_A_PAD)) ||
	       netlink_put_counters(reply, device) || netlink_put_times(reply, device);
}

static int netlink_status_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	u32 index = cb->args[0];
	struct rmem_device *device = rmem_device_next(&index);
	bool whole;
	void *hdr;

	if (!device)
		return 0;
	hdr = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &family, NLM_F_MULTI,
			  RMEM_CMD_STATUS);
	whole = hdr && !netlink_put_status(skb, device);
	rmem_device_next_end();
	if (!whole) {
		if (hdr)
			genlmsg_cancel(skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, hdr);
	cb->args[0] = index + 1;
	cb->min_dump_alloc = MESSAGE_BYTES;
	return skb->len;
}

static int netlink_status_start(struct netlink_callback *cb)
{
	/* A container sees nothing of the machine's devices. */
	if (!net_eq(sock_net(cb->skb->sk), &init_net) &&
	    !netlink_capable(cb->skb, CAP_SYS_ADMIN)) {
		NL_SET_ERR_MSG(cb->extack, "only an administrator may (CAP_SYS_ADMIN)");
		return -EPERM;
	}
	cb->min_dump_alloc = MESSAGE_BYTES;
	return 0;
}

static const struct genl_ops ops[] = {
	{
		.cmd = RMEM_CMD_ATTACH,
		.doit = netlink_attach_doit,
		.policy = policy,
		.maxattr = RMEM_A_MAX,
	},
	{
		.cmd = RMEM_CMD_DETACH,
		.doit = netlink_detach_doit,
		.policy = policy,
		.maxattr = RMEM_A_MAX,
	},
	{
		.cmd = RMEM_CMD_STATUS,
		.start = netlink_status_start,
		.dumpit = netlink_status_dumpit,
	},
};

static struct genl_family family = {
	.name = RMEM_GENL_NAME,
	.version = RMEM_GENL_VERSION,
	.netnsok = true,
	.module = THIS_MODULE,
	.parallel_ops = true,
	.ops = ops,
	.n_ops = ARRAY_SIZE(ops),
};

int rmem_netlink_register(void)
{
	return genl_register_family(&family);
}

void rmem_netlink_unregister(void)
{
	genl_unregister_family(&family);
}

/* Commands for the family load the module. */
MODULE_ALIAS_GENL_FAMILY(RMEM_GENL_NAME);
