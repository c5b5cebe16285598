// SPDX-License-Identifier: GPL-2.0
/*
 * Dumps of tunnels, devices and rules, and changes of the latter two: family eqds of
 * include/uapi/remora_eqds.h. A dump in several messages goes on at the bucket it came to, so an
 * entry that is made or freed meanwhile may be missing.
 */
#include "eqds/netlink.h"

#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <net/genetlink.h>

#include "eqds/configure.h"
#include "eqds/hook.h"
#include "eqds/memory.h"
#include "eqds/rdma.h"
#include "eqds/rule.h"
#include "eqds/xmit.h"
#include "uapi/remora_eqds.h"

#define NETLINK_BUCKETS ((long)ARRAY_SIZE(((struct eqds_dev *)NULL)->tx.hash))

static struct genl_family netlink_family;

/* Where a dump is: struct netlink_callback.args. */
struct netlink_at {
	long device; /* devices done */
	long bucket; /* of the sending table, then of the other */
	long tunnel; /* tunnels of the bucket done */
};

static int netlink_put_paths(struct sk_buff *msg, const struct eqds_tx *tx)
{
	for (u32 i = 0; i < EQDS_PATHS; i++) {
		const struct eqds_path *path = &tx->path[i];
		struct nlattr *nest = nla_nest_start(msg, EQDS_A_PATHS);

		if (!nest || nla_put_u32(msg, EQDS_PATH_A_RTT_NS, path->rtt_ns) ||
		    nla_put_u32(msg, EQDS_PATH_A_SENT, path->sent) ||
		    nla_put_u32(msg, EQDS_PATH_A_TRIMMED, path->trimmed) ||
		    nla_put_u32(msg, EQDS_PATH_A_LOST, path->lost) ||
		    nla_put_u32(msg, EQDS_PATH_A_MARKED, path->marked))
			return -EMSGSIZE;
		nla_nest_end(msg, nest);
	}
	return 0;
}

static int netlink_put_tx(struct sk_buff *msg, const struct eqds_tx *tx)
{
	const struct eqds_sender *s = &tx->core;
	u64 credit = s->credit_bytes > 0 ? s->credit_bytes : 0;

	if (nla_put_flag(msg, EQDS_A_SENDING) ||
	    (s->state == EQDS_SENDER_ESTABLISHED && nla_put_flag(msg, EQDS_A_ESTABLISHED)) ||
	    nla_put_u32(msg, EQDS_A_QUEUED, s->queue.count) ||
	    nla_put_u32(msg, EQDS_A_QUEUED_BYTES, s->queue.bytes) ||
	    nla_put_u32(msg, EQDS_A_IN_FLIGHT, s->in_flight.count + s->retransmit.count) ||
	    nla_put_u64_64bit(msg, EQDS_A_CREDIT, credit, EQDS_A_PAD) ||
	    nla_put_u32(msg, EQDS_A_PULLS, s->target - s->pull) ||
	    nla_put_u64_64bit(msg, EQDS_A_RTT_NS, s->rtt_ns, EQDS_A_PAD))
		return -EMSGSIZE;
	return netlink_put_paths(msg, tx);
}

static int netlink_put_rx(struct sk_buff *msg, const struct eqds_rx *rx)
{
	const struct eqds_receiver *r = &rx->core;

	if ((r->established && nla_put_flag(msg, EQDS_A_ESTABLISHED)) ||
	    nla_put_u32(msg, EQDS_A_QUEUED, r->held) ||
	    nla_put_u32(msg, EQDS_A_QUEUED_BYTES, r->held_bytes) ||
	    nla_put_u32(msg, EQDS_A_PULLS, r->share.target - r->share.pull))
		return -EMSGSIZE;
	return 0;
}

static u16 netlink_class(const struct eqds_tunnel *tunnel)
{
	if (tunnel->sending)
		return container_of(tunnel, struct eqds_tx, tunnel)->core.id;
	return container_of(tunnel, struct eqds_rx, tunnel)->core.id;
}

static int netlink_put(struct sk_buff *msg, struct netlink_callback *cb, const struct eqds_dev *ed,
		       const struct eqds_tunnel *tunnel)
{
	lockdep_assert_held(&ed->lock);
	void *head = genlmsg_put(msg, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				 &netlink_family, NLM_F_MULTI, EQDS_CMD_TUNNELS);
	int err;

	if (!head)
		return -EMSGSIZE;
	err = nla_put_string(msg, EQDS_A_DEVICE, ed->dev->name);
	if (!err)
		err = nla_put(msg, EQDS_A_PEER, sizeof(tunnel->peer), &tunnel->peer);
	if (!err)
		err = nla_put_u16(msg, EQDS_A_CLASS, netlink_class(tunnel));
	if (!err && tunnel->sending)
		err = netlink_put_tx(msg, container_of(tunnel, struct eqds_tx, tunnel));
	else if (!err)
		err = netlink_put_rx(msg, container_of(tunnel, struct eqds_rx, tunnel));
	if (err)
		genlmsg_cancel(msg, head);
	else
		genlmsg_end(msg, head);
	return err;
}

/* The tunnels of a device from at on; -EMSGSIZE: the message is full. */
static int netlink_put_device(struct sk_buff *msg, struct netlink_callback *cb, struct eqds_dev *ed,
			      struct netlink_at *at)
{
	const struct eqds_tunnel *tunnel;
	struct eqds_table *table;
	int err = 0;

	spin_lock_bh(&ed->lock);
	for (; ed->up && at->bucket < 2 * NETLINK_BUCKETS; at->bucket++) {
		long n = 0;

		table = at->bucket < NETLINK_BUCKETS ? &ed->tx : &ed->rx;
		hlist_for_each_entry(tunnel, &table->hash[at->bucket % NETLINK_BUCKETS], hash) {
			if (n++ < at->tunnel)
				continue;
			err = netlink_put(msg, cb, ed, tunnel);
			if (err)
				goto unlock;
			at->tunnel++;
		}
		at->tunnel = 0;
	}
unlock:
	spin_unlock_bh(&ed->lock);
	return err;
}

static int netlink_tunnels(struct sk_buff *msg, struct netlink_callback *cb)
{
	struct netlink_at *at = (struct netlink_at *)cb->args;
	struct net_device *dev;
	long n = 0;
	int err;

	BUILD_BUG_ON(sizeof(*at) > sizeof(cb->args));
	rtnl_lock();
	for_each_netdev(sock_net(cb->skb->sk), dev) {
		if (!eqds_xmit_is_device(dev) || n++ < at->device)
			continue;
		err = netlink_put_device(msg, cb, netdev_priv(dev), at);
		if (err)
			break;
		*at = (struct netlink_at){.device = n};
	}
	rtnl_unlock();
	return msg->len;
}

/* ---- devices ---- */

static int netlink_put_state(struct sk_buff *msg, struct eqds_dev *ed)
{
	const struct eqds_stats *stats = &ed->stats;
	int err;

	spin_lock_bh(&ed->lock);
	err = nla_put_u32(msg, EQDS_A_MTU, ed->up ? ed->config.mtu_bytes : 0) ||
	      nla_put_u32(msg, EQDS_A_WINDOW, ed->up ? ed->config.window_bytes : 0) ||
	      nla_put_u16(msg, EQDS_A_WINDOW_MTUS, ed->window_mtus) ||
	      nla_put_u8(msg, EQDS_A_TTL, ed->ttl) || nla_put_u16(msg, EQDS_A_TOS, ed->tos) ||
	      nla_put_u32(msg, EQDS_A_TX_TUNNELS, ed->tx.count) ||
	      nla_put_u32(msg, EQDS_A_RX_TUNNELS, ed->rx.count) ||
	      nla_put_u32(msg, EQDS_A_ACTIVE, ed->asl.active) ||
	      nla_put_u64_64bit(msg, EQDS_A_OWED, ed->asl.owed_mtus, EQDS_A_PAD) ||
	      nla_put_u32(msg, EQDS_A_BUSY_US, ed->up ? eqds_asl_busy_us(&ed->asl) : 0) ||
	      nla_put_u64_64bit(msg, EQDS_A_TIMERS, stats->pull_timers, EQDS_A_PAD) ||
	      nla_put_u64_64bit(msg, EQDS_A_LATE_NS_SUM, stats->pull_late_ns_sum, EQDS_A_PAD) ||
	      nla_put_u64_64bit(msg, EQDS_A_LATE_NS_MAX, stats->pull_late_ns_max, EQDS_A_PAD) ||
	      nla_put(msg, EQDS_A_LATE, sizeof(stats->pull_late), stats->pull_late) ||
	      nla_put_u64_64bit(msg, EQDS_A_TX_PACKETS, stats->tx_packets, EQDS_A_PAD) ||
	      nla_put_u64_64bit(msg, EQDS_A_TX_AGAIN, stats->tx_retransmits, EQDS_A_PAD) ||
	      nla_put_u64_64bit(msg, EQDS_A_RX_PACKETS, stats->rx_packets, EQDS_A_PAD) ||
	      (ed->tag_bytes && nla_put_flag(msg, EQDS_A_KEYED)) ||
	      nla_put_u8(msg, EQDS_A_CNP, !!rcu_access_pointer(ed->roce)) ||
	      nla_put_u32(msg, EQDS_A_TUNNELS_MAX, ed->tunnels_max) ||
	      nla_put_u64_64bit(msg, EQDS_A_HELD,
				ed->held_bytes[EQDS_POOL_TX] + ed->held_bytes[EQDS_POOL_RX],
				EQDS_A_PAD) ||
	      nla_put_u64_64bit(msg, EQDS_A_HELD_MAX, ed->held_max_bytes, EQDS_A_PAD) ||
	      nla_put_u64_64bit(msg, EQDS_A_REFUSED,
				stats->rx_drop_untagged + stats->rx_drop_tagged +
					stats->rx_drop_tag,
				EQDS_A_PAD);
	spin_unlock_bh(&ed->lock);
	return err ? -EMSGSIZE : 0;
}

static int netlink_put_dev(struct sk_buff *msg, struct netlink_callback *cb, struct eqds_dev *ed)
{
	struct net_device *link = __dev_get_by_index(ed->net, ed->link);
	void *head = genlmsg_put(msg, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				 &netlink_family, NLM_F_MULTI, EQDS_CMD_DEVICES);

	if (!head)
		return -EMSGSIZE;
	if (nla_put_string(msg, EQDS_A_DEVICE, ed->dev->name) ||
	    nla_put_string(msg, EQDS_A_LINK, link ? link->name : "") ||
	    nla_put_u32(msg, EQDS_A_MBITS, eqds_configure_mbits(ed)) ||
	    netlink_put_state(msg, ed)) {
		genlmsg_cancel(msg, head);
		return -EMSGSIZE;
	}
	genlmsg_end(msg, head);
	return 0;
}

static int netlink_devices(struct sk_buff *msg, struct netlink_callback *cb)
{
	struct netlink_at *at = (struct netlink_at *)cb->args;
	struct net_device *dev;
	long n = 0;

	rtnl_lock();
	for_each_netdev(sock_net(cb->skb->sk), dev) {
		if (!eqds_xmit_is_device(dev) || n++ < at->device)
			continue;
		if (netlink_put_dev(msg, cb, netdev_priv(dev)))
			break;
		at->device = n;
	}
	rtnl_unlock();
	return msg->len;
}

/* The device that a request names. RTNL. */
static struct eqds_dev *netlink_device(struct genl_info *info)
{
	struct net_device *dev;

	if (!info->attrs[EQDS_A_DEVICE]) {
		NL_SET_ERR_MSG_MOD(info->extack, "name the eqds device");
		return NULL;
	}
	dev = __dev_get_by_name(genl_info_net(info), nla_data(info->attrs[EQDS_A_DEVICE]));
	if (!dev || !eqds_xmit_is_device(dev)) {
		NL_SET_ERR_MSG_MOD(info->extack, "no such eqds device");
		return NULL;
	}
	return netdev_priv(dev);
}

static int netlink_set(struct sk_buff *msg, struct genl_info *info)
{
	struct nlattr **tb = info->attrs;
	struct eqds_dev *ed;
	int err = -ENODEV;

	rtnl_lock();
	ed = netlink_device(info);
	if (!ed)
		goto unlock;
	if (tb[EQDS_A_HELD_MAX] && nla_get_u64(tb[EQDS_A_HELD_MAX]) > eqds_memory_max_bytes()) {
		NL_SET_ERR_MSG_MOD(info->extack,
				   "memory above the default needs CAP_NET_ADMIN in the initial user namespace");
		err = -EPERM;
		goto unlock;
	}
	spin_lock_bh(&ed->lock);
	if (tb[EQDS_A_TTL])
		ed->ttl = nla_get_u8(tb[EQDS_A_TTL]);
	if (tb[EQDS_A_TOS])
		ed->tos = nla_get_u16(tb[EQDS_A_TOS]);
	if (tb[EQDS_A_TUNNELS_MAX])
		ed->tunnels_max = nla_get_u32(tb[EQDS_A_TUNNELS_MAX]);
	if (tb[EQDS_A_HELD_MAX])
		ed->held_max_bytes = nla_get_u64(tb[EQDS_A_HELD_MAX]);
	spin_unlock_bh(&ed->lock);
	err = 0;
	if (tb[EQDS_A_WINDOW_MTUS])
		err = eqds_configure_window(ed, nla_get_u16(tb[EQDS_A_WINDOW_MTUS]));
	if (!err && tb[EQDS_A_CNP])
		err = eqds_rdma_set_cnp(ed, nla_get_u8(tb[EQDS_A_CNP]));
unlock:
	rtnl_unlock();
	return err;
}

static int netlink_key(struct sk_buff *msg, struct genl_info *info)
{
	const struct nlattr *key = info->attrs[EQDS_A_KEY];
	struct eqds_dev *ed;
	int err = -ENODEV;

	rtnl_lock();
	ed = netlink_device(info);
	if (ed)
		err = eqds_configure_key(ed, key ? nla_data(key) : NULL, info->extack);
	rtnl_unlock();
	return err;
}

/* ---- rules ---- */

static int netlink_read_rule(struct genl_info *info, struct eqds_rule *rule, bool whole)
{
	struct nlattr **tb = info->attrs;

	*rule = (struct eqds_rule){.weight = 1};
	if (!tb[EQDS_A_RULE_KIND] || !tb[EQDS_A_PREFIX] || !tb[EQDS_A_LENGTH]) {
		NL_SET_ERR_MSG_MOD(info->extack, "a rule has a kind, a prefix and a length");
		return -EINVAL;
	}
	rule->kind = nla_get_u8(tb[EQDS_A_RULE_KIND]);
	rule->length = nla_get_u8(tb[EQDS_A_LENGTH]);
	nla_memcpy(&rule->prefix, tb[EQDS_A_PREFIX], sizeof(rule->prefix));
	if (!whole)
		return 0;
	if (rule->kind == EQDS_RULE_MAP && !tb[EQDS_A_PEER]) {
		NL_SET_ERR_MSG_MOD(info->extack, "name the peer that packets go to");
		return -EINVAL;
	}
	if (tb[EQDS_A_PEER])
		nla_memcpy(&rule->peer, tb[EQDS_A_PEER], sizeof(rule->peer));
	if (tb[EQDS_A_WEIGHT])
		rule->weight = nla_get_u32(tb[EQDS_A_WEIGHT]);
	if (tb[EQDS_A_PRIORITY])
		rule->priority = nla_get_u8(tb[EQDS_A_PRIORITY]);
	return 0;
}

/* Applies a change of rules to tunnels and packets of now. RTNL. */
static int netlink_rules_changed(struct eqds_dev *ed, u8 kind)
{
	struct eqds_rx *rx;

	if (kind == EQDS_RULE_MAP && netif_running(ed->dev)) {
		if (ed->rules[kind].count && !ed->hooked)
			return eqds_hook_open(ed);
		if (!ed->rules[kind].count)
			eqds_hook_close(ed);
	}
	if (kind == EQDS_RULE_SHARE) {
		rcu_read_lock();
		spin_lock_bh(&ed->lock);
		if (ed->up)
			list_for_each_entry(rx, &ed->rx.lru, tunnel.lru) eqds_rule_share(ed, rx);
		spin_unlock_bh(&ed->lock);
		rcu_read_unlock();
	}
	return 0;
}

static int netlink_rule_set(struct sk_buff *msg, struct genl_info *info)
{
	struct eqds_rule rule;
	struct eqds_dev *ed;
	int err = netlink_read_rule(info, &rule, true);

	if (err)
		return err;
	err = -ENODEV;
	rtnl_lock();
	ed = netlink_device(info);
	if (!ed)
		goto unlock;
	err = eqds_rule_set(ed, &rule, info->extack);
	if (err)
		goto unlock;
	err = netlink_rules_changed(ed, rule.kind);
	if (err)
		eqds_rule_remove(ed, &rule);
	else if (rule.kind == EQDS_RULE_MAP && !IS_ENABLED(CONFIG_NETFILTER))
		NL_SET_ERR_MSG_MOD(info->extack,
				   "this kernel has no netfilter: route the prefix into the device");
unlock:
	rtnl_unlock();
	return err;
}

static int netlink_rule_remove(struct sk_buff *msg, struct genl_info *info)
{
	struct eqds_rule rule;
	struct eqds_dev *ed;
	int err = netlink_read_rule(info, &rule, false);

	if (err)
		return err;
	err = -ENODEV;
	rtnl_lock();
	ed = netlink_device(info);
	if (!ed)
		goto unlock;
	err = eqds_rule_remove(ed, &rule);
	if (err)
		NL_SET_ERR_MSG_MOD(info->extack, "no such rule");
	else
		err = netlink_rules_changed(ed, rule.kind);
unlock:
	rtnl_unlock();
	return err;
}

static int netlink_put_rule(struct sk_buff *msg, struct netlink_callback *cb,
			    const struct eqds_dev *ed, const struct eqds_rule *rule)
{
	void *head = genlmsg_put(msg, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				 &netlink_family, NLM_F_MULTI, EQDS_CMD_RULES);

	if (!head)
		return -EMSGSIZE;
	if (nla_put_string(msg, EQDS_A_DEVICE, ed->dev->name) ||
	    nla_put_u8(msg, EQDS_A_RULE_KIND, rule->kind) ||
	    nla_put(msg, EQDS_A_PREFIX, sizeof(rule->prefix), &rule->prefix) ||
	    nla_put_u8(msg, EQDS_A_LENGTH, rule->length) ||
	    nla_put(msg, EQDS_A_PEER, sizeof(rule->peer), &rule->peer) ||
	    nla_put_u32(msg, EQDS_A_WEIGHT, rule->weight) ||
	    nla_put_u8(msg, EQDS_A_PRIORITY, rule->priority)) {
		genlmsg_cancel(msg, head);
		return -EMSGSIZE;
	}
	genlmsg_end(msg, head);
	return 0;
}

/* The rules of a device from at on; -EMSGSIZE: the message is full. RTNL. */
static int netlink_put_rules(struct sk_buff *msg, struct netlink_callback *cb, struct eqds_dev *ed,
			     struct netlink_at *at)
{
	const struct eqds_rule *rule;

	for (; at->bucket < EQDS_RULE_KINDS * EQDS_RULE_BUCKETS; at->bucket++) {
		struct eqds_rules *rules = &ed->rules[at->bucket / EQDS_RULE_BUCKETS];
		long n = 0;

		hlist_for_each_entry(rule, &rules->hash[at->bucket % EQDS_RULE_BUCKETS], hash) {
			if (n++ < at->tunnel)
				continue;
			if (netlink_put_rule(msg, cb, ed, rule))
				return -EMSGSIZE;
			at->tunnel++;
		}
		at->tunnel = 0;
	}
	return 0;
}

static int netlink_rules(struct sk_buff *msg, struct netlink_callback *cb)
{
	struct netlink_at *at = (struct netlink_at *)cb->args;
	struct net_device *dev;
	long n = 0;

	rtnl_lock();
	for_each_netdev(sock_net(cb->skb->sk), dev) {
		if (!eqds_xmit_is_device(dev) || n++ < at->device)
			continue;
		if (netlink_put_rules(msg, cb, netdev_priv(dev), at))
			break;
		*at = (struct netlink_at){.device = n};
	}
	rtnl_unlock();
	return msg->len;
}

static const struct nla_policy netlink_policy[EQDS_A_MAX + 1] = {
	[EQDS_A_DEVICE] = {.type = NLA_NUL_STRING, .len = IFNAMSIZ - 1},
	[EQDS_A_TTL] = {.type = NLA_U8},
	[EQDS_A_TOS] = NLA_POLICY_MAX(NLA_U16, EQDS_TOS_INHERIT),
	[EQDS_A_CNP] = NLA_POLICY_MAX(NLA_U8, 1),
	[EQDS_A_TUNNELS_MAX] = NLA_POLICY_RANGE(NLA_U32, 1, EQDS_TUNNELS_MAX),
	[EQDS_A_HELD_MAX] = {.type = NLA_U64},
	[EQDS_A_WINDOW_MTUS] = NLA_POLICY_RANGE(NLA_U16, 1, EQDS_WINDOW_MTUS_MAX),
	[EQDS_A_RULE_KIND] = NLA_POLICY_MAX(NLA_U8, EQDS_RULE_KINDS - 1),
	[EQDS_A_PREFIX] = NLA_POLICY_EXACT_LEN(sizeof(struct in6_addr)),
	[EQDS_A_PEER] = NLA_POLICY_EXACT_LEN(sizeof(struct in6_addr)),
	[EQDS_A_LENGTH] = NLA_POLICY_MAX(NLA_U8, 128),
	[EQDS_A_WEIGHT] = NLA_POLICY_RANGE(NLA_U32, 1, EQDS_WEIGHT_MAX),
	[EQDS_A_KEY] = NLA_POLICY_EXACT_LEN(BASE_SIPHASH_KEY_BYTES),
	[EQDS_A_PRIORITY] = NLA_POLICY_MAX(NLA_U8, EQDS_PRIORITIES - 1),
};

#define NETLINK_DUMP(number, function)                                                             \
	{                                                                                          \
		.cmd = number, .flags = GENL_UNS_ADMIN_PERM, .dumpit = function                    \
	}
#define NETLINK_DO(number, function)                                                               \
	{                                                                                          \
		.cmd = number, .flags = GENL_UNS_ADMIN_PERM, .doit = function                      \
	}

static const struct genl_small_ops netlink_ops[] = {
	NETLINK_DUMP(EQDS_CMD_TUNNELS, netlink_tunnels),
	/* For any user: it tells no peer. */
	{ .cmd = EQDS_CMD_DEVICES, .dumpit = netlink_devices },
	NETLINK_DO(EQDS_CMD_SET, netlink_set),
	NETLINK_DO(EQDS_CMD_RULE_SET, netlink_rule_set),
	NETLINK_DO(EQDS_CMD_RULE_REMOVE, netlink_rule_remove),
	NETLINK_DUMP(EQDS_CMD_RULES, netlink_rules),
	NETLINK_DO(EQDS_CMD_KEY, netlink_key),
};

static struct genl_family netlink_family __ro_after_init = {
	.name = EQDS_GENL_NAME,
	.version = EQDS_GENL_VERSION,
	.maxattr = EQDS_A_MAX,
	.policy = netlink_policy,
	.netnsok = true,
	.parallel_ops = true,
	.module = THIS_MODULE,
	.small_ops = netlink_ops,
	.n_small_ops = ARRAY_SIZE(netlink_ops),
};

int eqds_netlink_register(void)
{
	return genl_register_family(&netlink_family);
}

void eqds_netlink_unregister(void)
{
	genl_unregister_family(&netlink_family);
}

/* Commands for the family load the module. */
MODULE_ALIAS_GENL_FAMILY(EQDS_GENL_NAME);
