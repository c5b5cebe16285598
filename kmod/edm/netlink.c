// SPDX-License-Identifier: GPL-2.0
/* Control of the scheduler and of the membership: family edm of include/uapi/remora_edm.h. */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sizes.h>
#include <net/genetlink.h>

#include "compat/compat.h"
#include "core/base/bits.h"
#include "edm/edm.h"
#include "uapi/remora_edm.h"

static_assert(EDM_KEY_BYTES == BASE_SIPHASH_KEY_BYTES);

#define NETLINK_PORTS_DEFAULT 64
#define NETLINK_CHUNK_DEFAULT SZ_16K
#define NETLINK_LEASE_US_DEFAULT 50000

/* The scheduler and the membership change under this alone. */
static DEFINE_MUTEX(netlink_control);

static const struct nla_policy netlink_policy[EDM_A_MAX + 1] = {
	[EDM_A_KEY] = NLA_POLICY_EXACT_LEN(EDM_KEY_BYTES),
	[EDM_A_PORTS] = NLA_POLICY_RANGE(NLA_U16, 2, EDM_PORTS_MAX),
	[EDM_A_CHUNK_BYTES] = NLA_POLICY_MIN(NLA_U32, SZ_4K),
	[EDM_A_LEASE_US] = NLA_POLICY_MIN(NLA_U32, 1000),
	[EDM_A_UDP_PORT] = NLA_POLICY_MIN(NLA_U16, 1),
	[EDM_A_SCHEDULER] = { .type = NLA_NUL_STRING, .len = 63 },
	[EDM_A_STANDBY] = { .type = NLA_NUL_STRING, .len = 63 },
	[EDM_A_PORT] = NLA_POLICY_MAX(NLA_U16, EDM_PORTS_MAX - 1),
	[EDM_A_RATE_MBPS] = NLA_POLICY_MIN(NLA_U32, 1),
};

static struct genl_family netlink_family;

static u32 netlink_u32(const struct genl_info *info, int attribute, u32 otherwise)
{
	return info->attrs[attribute] ? nla_get_u32(info->attrs[attribute]) : otherwise;
}

static u16 netlink_u16(const struct genl_info *info, int attribute, u16 otherwise)
{
	return info->attrs[attribute] ? nla_get_u16(info->attrs[attribute]) : otherwise;
}

static int netlink_refuse(struct genl_info *info, int err, const char *text)
{
	NL_SET_ERR_MSG_FMT_MOD(info->extack, "%s", text);
	return err;
}

/* Takes the key out of the message, whose memory is freed as it is. */
static int netlink_key(struct genl_info *info, struct base_siphash_key *key)
{
	struct nlattr *attr = info->attrs[EDM_A_KEY];

	if (!attr)
		return netlink_refuse(info, -EINVAL, "KEY is missing: 16 bytes");
	base_siphash_key_load(key, nla_data(attr));
	memzero_explicit(nla_data(attr), EDM_KEY_BYTES);
	return 0;
}

static int netlink_start(struct sk_buff *skb, struct genl_info *info)
{
	struct edm_service_config config = {
		.ports = netlink_u16(info, EDM_A_PORTS, NETLINK_PORTS_DEFAULT),
		.chunk_bytes = netlink_u32(info, EDM_A_CHUNK_BYTES, NETLINK_CHUNK_DEFAULT),
		.lease_us = netlink_u32(info, EDM_A_LEASE_US, NETLINK_LEASE_US_DEFAULT),
		.udp_port = netlink_u16(info, EDM_A_UDP_PORT, EDM_PORT),
	};
	int err = netlink_key(info, &config.key);

	if (err)
		return err;
	if (config.chunk_bytes > EDM_CHUNK_BYTES_MAX || config.lease_us > EDM_LEASE_US_MAX)
		return netlink_refuse(info, -ERANGE,
				      "CHUNK_BYTES is 1048576 at most, LEASE_US 10000000");
	mutex_lock(&netlink_control);
	err = edm_service_start(genl_info_net(info), &config, info->extack);
	mutex_unlock(&netlink_control);
	memzero_explicit(&config.key, sizeof(config.key));
	return err;
}

static int netlink_stop(struct sk_buff *skb, struct genl_info *info)
{
	u16 members;
	int err = 0;

	mutex_lock(&netlink_control);
	if (edm_service_status(&members))
		edm_service_stop();
	else
		err = netlink_refuse(info, -ENOTCONN, "no scheduler is started here");
	mutex_unlock(&netlink_control);
	return err;
}

static int netlink_join(struct sk_buff *skb, struct genl_info *info)
{
	struct edm_member_config config = {};
	int err = netlink_key(info, &config.key);

	if (err)
		return err;
	if (!info->attrs[EDM_A_SCHEDULER] || !info->attrs[EDM_A_PORT] ||
	    !info->attrs[EDM_A_RATE_MBPS])
		return netlink_refuse(info, -EINVAL, "SCHEDULER, PORT and RATE_MBPS are needed");
	nla_strscpy(config.scheduler, info->attrs[EDM_A_SCHEDULER], sizeof(config.scheduler));
	if (info->attrs[EDM_A_STANDBY])
		nla_strscpy(config.standby, info->attrs[EDM_A_STANDBY], sizeof(config.standby));
	config.port = nla_get_u16(info->attrs[EDM_A_PORT]);
	config.rate_mbps = nla_get_u32(info->attrs[EDM_A_RATE_MBPS]);
	if (config.rate_mbps > EDM_RATE_MBPS_MAX)
		return netlink_refuse(info, -ERANGE, "RATE_MBPS is 1600000 at most");
	mutex_lock(&netlink_control);
	err = edm_member_join(&config, info->extack);
	mutex_unlock(&netlink_control);
	memzero_explicit(&config.key, sizeof(config.key));
	return err;
}

static int netlink_leave(struct sk_buff *skb, struct genl_info *info)
{
	int err;

	mutex_lock(&netlink_control);
	err = edm_member_leave(info->extack);
	mutex_unlock(&netlink_control);
	return err;
}

/* ---- STATUS ---- */

static int netlink_put_count(void *arg, const char *name, u64 value)
{
	struct sk_buff *reply = arg;
	struct nlattr *nest = nla_nest_start(reply, EDM_A_COUNTERS);

	if (!nest || nla_put_string(reply, EDM_COUNTER_NAME, name) ||
	    nla_put_u64_64bit(reply, EDM_COUNTER_VALUE, value, EDM_COUNTER_PAD))
		return -EMSGSIZE;
	nla_nest_end(reply, nest);
	return 0;
}

static int netlink_put_service(struct sk_buff *reply)
{
	const struct edm_service_config *config;
	u16 members;

	config = edm_service_status(&members);
	if (!config)
		return 0;
	return nla_put_flag(reply, EDM_A_STARTED) ||
	       nla_put_u16(reply, EDM_A_PORTS, config->ports) ||
	       nla_put_u32(reply, EDM_A_CHUNK_BYTES, config->chunk_bytes) ||
	       nla_put_u32(reply, EDM_A_LEASE_US, config->lease_us) ||
	       nla_put_u16(reply, EDM_A_UDP_PORT, config->udp_port) ||
	       nla_put_u16(reply, EDM_A_MEMBERS, members) ||
	       edm_service_counts(netlink_put_count, reply);
}

static int netlink_put_member(struct sk_buff *reply)
{
	const struct edm_member_config *config;
	const char *state;

	config = edm_member_status(&state);
	if (!config)
		return 0;
	return nla_put_string(reply, EDM_A_SCHEDULER, config->scheduler) ||
	       (*config->standby && nla_put_string(reply, EDM_A_STANDBY, config->standby)) ||
	       nla_put_u16(reply, EDM_A_PORT, config->port) ||
	       nla_put_u32(reply, EDM_A_RATE_MBPS, config->rate_mbps) ||
	       nla_put_string(reply, EDM_A_STATE, state) ||
	       edm_member_counts(netlink_put_count, reply);
}

static int netlink_status(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	void *head;
	int err;

	/* A container sees nothing of the machine's scheduler. */
	if (!net_eq(genl_info_net(info), &init_net) && !netlink_capable(skb, CAP_NET_ADMIN)) {
		nlmsg_free(reply);
		GENL_SET_ERR_MSG(info, "only an administrator may (CAP_NET_ADMIN)");
		return -EPERM;
	}
	if (!reply)
		return -ENOMEM;
	head = genlmsg_put_reply(reply, info, &netlink_family, 0, EDM_CMD_STATUS);
	mutex_lock(&netlink_control);
	err = !head || netlink_put_service(reply) || netlink_put_member(reply);
	mutex_unlock(&netlink_control);
	if (err) {
		nlmsg_free(reply);
		return -EMSGSIZE;
	}
	genlmsg_end(reply, head);
	return genlmsg_reply(reply, info);
}

/* ---- the family ---- */

static const struct genl_small_ops netlink_ops[] = {
	{ .cmd = EDM_CMD_START, .flags = GENL_ADMIN_PERM, .doit = netlink_start },
	{ .cmd = EDM_CMD_STOP, .flags = GENL_ADMIN_PERM, .doit = netlink_stop },
	{ .cmd = EDM_CMD_STATUS, .doit = netlink_status },
	{ .cmd = EDM_CMD_JOIN, .flags = GENL_ADMIN_PERM, .doit = netlink_join },
	{ .cmd = EDM_CMD_LEAVE, .flags = GENL_ADMIN_PERM, .doit = netlink_leave },
};

/* parallel_ops: leave waits until messages under way have ended. */
static struct genl_family netlink_family __ro_after_init = {
	.name = EDM_GENL_NAME,
	.version = EDM_GENL_VERSION,
	.maxattr = EDM_A_MAX,
	.policy = netlink_policy,
	.netnsok = true,
	.parallel_ops = true,
	.module = THIS_MODULE,
	.small_ops = netlink_ops,
	.n_small_ops = ARRAY_SIZE(netlink_ops),
};

int edm_netlink_register(void)
{
	return genl_register_family(&netlink_family);
}

void edm_netlink_unregister(void)
{
	genl_unregister_family(&netlink_family);
}

/* Commands for the family load the module. */
MODULE_ALIAS_GENL_FAMILY(EDM_GENL_NAME);
