// SPDX-License-Identifier: GPL-2.0
/*
 * Dump of tunnels: family eqds of include/uapi/remora_eqds.h. A dump in several messages goes on at
 * the bucket it came to, so a tunnel that is made or freed meanwhile may be missing.
 */
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <net/genetlink.h>

#include "eqds/eqds.h"
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
	    nla_put_u32(msg, EQDS_A_PULLS, r->target - r->pull))
		return -EMSGSIZE;
	return 0;
}

/* Lock. */
static int netlink_put(struct sk_buff *msg, struct netlink_callback *cb, const struct eqds_dev *ed,
		       const struct eqds_tunnel *tunnel)
{
	void *head = genlmsg_put(msg, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				 &netlink_family, NLM_F_MULTI, EQDS_CMD_TUNNELS);
	int err;

	if (!head)
		return -EMSGSIZE;
	err = nla_put_string(msg, EQDS_A_DEVICE, ed->dev->name);
	if (!err)
		err = nla_put(msg, EQDS_A_PEER, sizeof(tunnel->peer), &tunnel->peer);
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
		hlist_for_each_entry(tunnel, &table->hash[at->bucket % NETLINK_BUCKETS], hash)
		{
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
	for_each_netdev(sock_net(cb->skb->sk), dev)
	{
		if (dev->rtnl_link_ops != &eqds_link_ops || n++ < at->device)
			continue;
		err = netlink_put_device(msg, cb, netdev_priv(dev), at);
		if (err)
			break;
		*at = (struct netlink_at){.device = n};
	}
	rtnl_unlock();
	return msg->len;
}

static const struct genl_small_ops netlink_ops[] = {
	{
		.cmd = EQDS_CMD_TUNNELS,
		.flags = GENL_UNS_ADMIN_PERM,
		.dumpit = netlink_tunnels,
	},
};

static struct genl_family netlink_family __ro_after_init = {
	.name = EQDS_GENL_NAME,
	.version = EQDS_GENL_VERSION,
	.maxattr = EQDS_A_MAX,
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
