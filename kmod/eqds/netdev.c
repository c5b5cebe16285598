// SPDX-License-Identifier: GPL-2.0
/*
 * Devices made by `ip link add link eth0 name eqds0 type eqds`.
 *
 *   made --up--> socket, timers, tunnels on demand --down--> FIN and RST to the peers, all freed
 *
 * A device can leave its link's namespace, for a container's, say. Outer packets stay in that of
 * the link, with which the device goes.
 */
#include "eqds/netdev.h"

#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/rtnetlink.h>

#include "compat/compat.h"
#include "eqds/configure.h"
#include "eqds/emit.h"
#include "eqds/ethtool.h"
#include "eqds/hook.h"
#include "eqds/key.h"
#include "eqds/life.h"
#include "eqds/memory.h"
#include "eqds/native.h"
#include "eqds/pull.h"
#include "eqds/rdma.h"
#include "eqds/recv.h"
#include "eqds/rule.h"
#include "eqds/shrink.h"
#include "eqds/sock.h"
#include "eqds/table.h"
#include "eqds/untrack.h"
#include "eqds/work.h"
#include "eqds/xmit.h"

/* All devices: RTNL. */
static LIST_HEAD(netdev_all);

/* GSO: a segment is a packet of the tunnel. */
#define NETDEV_FEATURES                                                                            \
	(NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HIGHDMA | NETIF_F_HW_CSUM | NETIF_F_RXCSUM |      \
	 NETIF_F_GSO_SOFTWARE)

/* The link has negotiated another speed, which counts unless the operator has set one. RTNL. */
static void netdev_follow_speed(struct eqds_dev *ed)
{
	const u32 mbits = eqds_configure_mbits(ed);

	spin_lock_bh(&ed->lock);
	if (ed->up && mbits != ed->rate_mbits)
		eqds_configure_rate(ed, mbits);
	spin_unlock_bh(&ed->lock);
}

static int netdev_open(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);
	int err;

	eqds_table_init(ed);
	err = eqds_configure(ed, eqds_configure_mbits(ed));
	if (err)
		return err;
	napi_enable(&ed->napi);
	err = eqds_untrack_open(ed);
	if (err)
		goto disable;
	err = eqds_sock_open(ed);
	if (err)
		goto track;
	/* A device that has map rules keeps them while it is down. */
	if (ed->rules[EQDS_RULE_MAP].count)
		err = eqds_hook_open(ed);
	if (err)
		goto close;
	spin_lock_bh(&ed->lock);
	ed->up = true;
	spin_unlock_bh(&ed->lock);
	return 0;

close:
	eqds_sock_close(ed);
track:
	eqds_untrack_close(ed);
disable:
	napi_disable(&ed->napi);
	skb_queue_purge(&ed->backlog);
	return err;
}

static int netdev_stop(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);
	struct eqds_work work;

	eqds_hook_close(ed);
	eqds_work_init(&work);
	spin_lock_bh(&ed->lock);
	ed->up = false; /* nothing arms a timer or makes a tunnel from here on */
	spin_unlock_bh(&ed->lock);
	hrtimer_cancel(&ed->due_timer);
	hrtimer_cancel(&ed->pull_timer);
	spin_lock_bh(&ed->lock);
	eqds_life_close_all(ed, &work);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	eqds_sock_close(ed);
	eqds_untrack_close(ed);
	napi_disable(&ed->napi);
	skb_queue_purge(&ed->backlog);
	return 0;
}

static int netdev_init(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);
	int err;

	dev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	if (!dev->tstats)
		return -ENOMEM;
	err = eqds_emit_init(ed);
	if (err)
		goto free_stats;
	eqds_memory_open(ed);
	err = eqds_shrink_open(ed);
	if (err)
		goto exit_emit;
	netif_napi_add(dev, &ed->napi, eqds_recv_poll);
	list_add_tail(&ed->all, &netdev_all);
	return 0;

exit_emit:
	eqds_emit_exit(ed);
free_stats:
	free_percpu(dev->tstats);
	return err;
}

static void netdev_uninit(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);

	list_del(&ed->all);
	eqds_shrink_close(ed);
	eqds_memory_close(ed);
	eqds_native_detach(ed);
	netif_napi_del(&ed->napi);
	eqds_rule_clear(ed);
	eqds_key_clear(ed);
	eqds_rdma_set_cnp(ed, false);
	eqds_emit_exit(ed);
	free_percpu(dev->tstats);
}

/* Both ends count credit in MTUs, so tunnels don't outlive a change. */
static int netdev_change_mtu(struct net_device *dev, int mtu_bytes)
{
	struct eqds_dev *ed = netdev_priv(dev);

	eqds_configure_quiesce(ed);
	WRITE_ONCE(dev->mtu, mtu_bytes);
	return eqds_configure_resume(ed);
}

static int netdev_iflink(const struct net_device *dev)
{
	return ((const struct eqds_dev *)netdev_priv(dev))->link;
}

static const struct net_device_ops netdev_ops = {
	.ndo_init = netdev_init,
	.ndo_uninit = netdev_uninit,
	.ndo_open = netdev_open,
	.ndo_stop = netdev_stop,
	.ndo_start_xmit = eqds_xmit,
	.ndo_change_mtu = netdev_change_mtu,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_get_iflink = netdev_iflink,
};

static const struct device_type netdev_type = {.name = "eqds"};

static void netdev_setup(struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);

	dev->netdev_ops = &netdev_ops;
	dev->ethtool_ops = &eqds_ethtool_ops;
	SET_NETDEV_DEVTYPE(dev, &netdev_type);
	dev->type = ARPHRD_NONE;
	dev->flags = IFF_POINTOPOINT | IFF_NOARP;
	dev->priv_flags |= IFF_NO_QUEUE;
	dev->features |= NETDEV_FEATURES;
	dev->hw_features |= NETDEV_FEATURES;
	dev->needs_free_netdev = true;
	dev->min_mtu = ETH_MIN_MTU;
	compat_netdev_lltx(dev);
	netif_keep_dst(dev); /* the next hop is the other end of the tunnel */

	ed->dev = dev;
	ed->burst = true;
	ed->window_mtus = EQDS_WINDOW_MTUS;
	ed->tos = EQDS_TOS_INHERIT;
	spin_lock_init(&ed->lock);
	skb_queue_head_init(&ed->backlog);
	compat_hrtimer_setup(&ed->due_timer, eqds_life_fire, CLOCK_MONOTONIC,
			     HRTIMER_MODE_ABS_SOFT);
	compat_hrtimer_setup(&ed->pull_timer, eqds_pull_fire, CLOCK_MONOTONIC,
			     HRTIMER_MODE_ABS_PINNED_SOFT);
}

static int netdev_validate(struct nlattr *tb[], struct nlattr *data[],
			   struct netlink_ext_ack *extack)
{
	if (!tb[IFLA_ADDRESS])
		return 0;
	NL_SET_ERR_MSG_ATTR(extack, tb[IFLA_ADDRESS], "an eqds device has no hardware address");
	return -EINVAL;
}

static int netdev_newlink(struct net *src_net, struct net_device *dev, struct nlattr *tb[],
			  struct nlattr *data[], struct netlink_ext_ack *extack)
{
	struct eqds_dev *ed = netdev_priv(dev);
	struct net_device *link;

	if (!tb[IFLA_LINK]) {
		NL_SET_ERR_MSG_MOD(extack, "name the device that tunnels use: link DEV");
		return -EINVAL;
	}
	link = __dev_get_by_index(src_net, nla_get_u32(tb[IFLA_LINK]));
	if (!link) {
		NL_SET_ERR_MSG_MOD(extack, "no such link");
		return -ENODEV;
	}
	if (eqds_xmit_is_device(link)) {
		NL_SET_ERR_MSG_MOD(extack, "the link is an eqds device: no tunnels in tunnels");
		return -ELOOP;
	}
	dev->max_mtu = eqds_configure_max_mtu(ed, link);
	if (!dev->max_mtu) {
		NL_SET_ERR_MSG_MOD(extack, "the link's MTU has no room for a tunnel's headers");
		return -EINVAL;
	}
	ed->net = src_net;
	ed->link = link->ifindex;
	if (!tb[IFLA_MTU])
		dev->mtu = dev->max_mtu;
	if (dev->mtu > dev->max_mtu) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "MTU %u: with this link at most %u", dev->mtu,
				       dev->max_mtu);
		return -EINVAL;
	}
	dev->needed_headroom = LL_RESERVED_SPACE(link) + EQDS_OVERHEAD_BYTES + EQDS_TAG_BYTES;
	return register_netdevice(dev);
}

static void netdev_dellink(struct net_device *dev, struct list_head *head)
{
	unregister_netdevice_queue(dev, head);
}

static struct net *netdev_link_net(const struct net_device *dev)
{
	return ((const struct eqds_dev *)netdev_priv(dev))->net;
}

static struct rtnl_link_ops netdev_link_ops __read_mostly = {
	.kind = "eqds",
	.priv_size = sizeof(struct eqds_dev),
	.setup = netdev_setup,
	.validate = netdev_validate,
	.newlink = netdev_newlink,
	.dellink = netdev_dellink,
	.get_link_net = netdev_link_net,
};

/*
 * A link that goes, or leaves its namespace, takes its eqds devices with it. They follow its speed,
 * and its MTU, for which their tunnels begin anew.
 */
static int netdev_event(struct notifier_block *block, unsigned long event, void *info)
{
	struct net_device *link = netdev_notifier_info_to_dev(info);
	struct eqds_dev *ed;
	LIST_HEAD(gone);

	if (event != NETDEV_UNREGISTER && event != NETDEV_CHANGEMTU && event != NETDEV_CHANGE)
		return NOTIFY_DONE;
	list_for_each_entry(ed, &netdev_all, all) {
		struct net_device *dev = ed->dev;

		/* Also raised when it changes its namespace: programs of the old one lose it. */
		if (dev == link && event == NETDEV_UNREGISTER)
			eqds_native_detach(ed);
		if (ed->link != link->ifindex || !net_eq(ed->net, dev_net(link)) ||
		    dev->reg_state != NETREG_REGISTERED)
			continue;
		if (event == NETDEV_UNREGISTER)
			unregister_netdevice_queue(dev, &gone);
		else if (event == NETDEV_CHANGE)
			netdev_follow_speed(ed);
		else if (eqds_configure_fit(ed, NULL))
			netdev_err(dev, "MTU %u doesn't fit %s, which has %u now\n", dev->mtu,
				   link->name, link->mtu);
	}
	unregister_netdevice_many(&gone);
	return NOTIFY_DONE;
}

static struct notifier_block netdev_notifier = {.notifier_call = netdev_event};

int eqds_netdev_register(void)
{
	int err = register_netdevice_notifier(&netdev_notifier);

	if (err)
		return err;
	err = rtnl_link_register(&netdev_link_ops);
	if (err)
		unregister_netdevice_notifier(&netdev_notifier);
	return err;
}

void eqds_netdev_unregister(void)
{
	rtnl_link_unregister(&netdev_link_ops);
	unregister_netdevice_notifier(&netdev_notifier);
}
